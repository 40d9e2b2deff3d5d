//! Workloads by submitter, for readers outside the core.
//!
//! Invariants: it has every Workload of the cache that has a submitter, in the version that the cache has, so that it is empty where
//! none is read; a clone is a pointer; what a user submitted costs the logarithm of the number of Workloads, and what is found.

use super::records::WorkloadRecord;
use crate::api::ObjectKey;
use rpds::RedBlackTreeMapSync;
use std::sync::Arc;

/// Workloads by the name of their submitter, in order of namespace and name.
#[derive(Clone, Debug, Default)]
pub(super) struct SubmitterIndex(RedBlackTreeMapSync<(Arc<str>, ObjectKey), Arc<WorkloadRecord>>);

impl SubmitterIndex {
    /// Replaces a version of a Workload by the next one, if there is one.
    pub(super) fn replace(&mut self, old: Option<&WorkloadRecord>, new: Option<&Arc<WorkloadRecord>>) {
        let next = new.and_then(|record| place_of(record));
        let former = old.and_then(place_of);
        if let Some(former) = former.filter(|former| next.as_ref() != Some(former)) {
            self.0.remove_mut(&former);
        }
        if let Some((place, record)) = next.zip(new) {
            self.0.insert_mut(place, Arc::clone(record));
        }
    }

    /// Iterates over the Workloads of a user from a key on.
    pub(super) fn starting_at<'a>(
        &'a self,
        user: &str,
        first: ObjectKey,
    ) -> impl Iterator<Item = &'a Arc<WorkloadRecord>> + use<'a> {
        let user: Arc<str> = Arc::from(user);
        let from = self.0.range((Arc::clone(&user), first)..);
        from.take_while(move |((of, _), _)| *of == user).map(|(_, record)| record)
    }
}

/// Returns the place of a Workload; `None` without a submitter.
fn place_of(record: &WorkloadRecord) -> Option<(Arc<str>, ObjectKey)> {
    let user = record.annotations.submitter.as_ref().filter(|name| !name.is_empty())?;
    Some((Arc::clone(user), record.meta.key.clone()))
}
