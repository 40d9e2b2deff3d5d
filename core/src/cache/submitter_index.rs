//! Keys of Workloads by submitter, for readers outside the core.
//!
//! Invariants: it has every Workload of the cache that has a submitter, so that it is empty where none is read; a clone is a pointer; a
//! change of a Workload that keeps its submitter costs a comparison; what a user submitted costs the logarithm of the number of
//! Workloads, and what is found.

use super::records::WorkloadRecord;
use crate::api::ObjectKey;
use rpds::RedBlackTreeSetSync;
use std::sync::Arc;

/// Workloads by the name of their submitter, in order of namespace and name.
#[derive(Clone, Debug, Default)]
pub(super) struct SubmitterIndex(RedBlackTreeSetSync<(Arc<str>, ObjectKey)>);

impl SubmitterIndex {
    /// Replaces a version of a Workload by the next one, if there is one.
    pub(super) fn replace(&mut self, old: Option<&WorkloadRecord>, new: Option<&WorkloadRecord>) {
        let (former, next) = (old.and_then(place_of), new.and_then(place_of));
        if former == next {
            return;
        }
        if let Some((user, key)) = former {
            self.0.remove_mut(&(Arc::clone(user), key.clone()));
        }
        if let Some((user, key)) = next {
            self.0.insert_mut((Arc::clone(user), key.clone()));
        }
    }

    /// Iterates over the Workloads of a user from a key on.
    pub(super) fn starting_at<'a>(
        &'a self,
        user: &str,
        first: ObjectKey,
    ) -> impl Iterator<Item = &'a ObjectKey> + use<'a> {
        let user: Arc<str> = Arc::from(user);
        let from = self.0.range((Arc::clone(&user), first)..);
        from.take_while(move |(of, _)| *of == user).map(|(_, key)| key)
    }
}

/// Returns the place of a Workload; `None` without a submitter.
fn place_of(record: &WorkloadRecord) -> Option<(&Arc<str>, &ObjectKey)> {
    let user = record.annotations.submitter.as_ref().filter(|name| !name.is_empty())?;
    Some((user, &record.meta.key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::interned_templates::InternedTemplates;
    use crate::cache::workload_object::WorkloadObject;
    use serde_json::json;

    fn record(version: &str, user: &str) -> WorkloadRecord {
        let object = json!({
            "metadata": {"name": "w", "namespace": "ns", "uid": "u", "resourceVersion": version,
                "creationTimestamp": "2027-01-15T08:00:00Z"},
            "spec": {"queueName": "lq", "podSets": []}, "status": {},
        });
        let object = WorkloadObject::from_value(object).unwrap();
        let mut record = WorkloadRecord::decode(&object, &mut InternedTemplates::default()).unwrap();
        record.annotations.submitter = Some(Arc::from(user));
        record
    }

    /// What the index has of a Workload stays while its submitter does; with each name, it has one reference more.
    #[test]
    fn a_version_with_the_same_submitter_changes_nothing() {
        let names =
            |record: &WorkloadRecord| record.annotations.submitter.as_ref().map_or(0, Arc::strong_count);
        let found = |index: &SubmitterIndex, user: &str| -> Vec<String> {
            index.starting_at(user, ObjectKey::new("", "")).map(ToString::to_string).collect()
        };
        let (first, second, third) = (record("1", "ann"), record("2", "ann"), record("3", "bob"));
        let mut index = SubmitterIndex::default();
        index.replace(None, Some(&first));
        index.replace(Some(&first), Some(&second));
        assert_eq!((names(&first), names(&second)), (2, 1));
        assert_eq!(found(&index, "ann"), ["ns/w"]);
        index.replace(Some(&second), Some(&third));
        assert_eq!((names(&first), names(&third)), (1, 2));
        assert_eq!((found(&index, "ann"), found(&index, "bob")), (vec![], vec!["ns/w".to_owned()]));
        index.replace(Some(&third), None);
        assert_eq!((names(&third), found(&index, "bob")), (1, vec![]));
    }
}
