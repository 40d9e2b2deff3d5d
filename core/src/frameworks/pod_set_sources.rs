//! The walk over the places where the row of a kind says that its pod templates are.
//!
//! Invariant: what is read of a stored job, of a job under review, and what is decoded of a review, follow from this one walk,
//! so that a kind with several sources, such as a head and a list of groups, has the same pod sets for all of them.

use super::row::{Count, PodSetSource, Pointer};

/// Pod set of a leader that has a template of its own.
pub(super) const LEADER: &str = "leader";
/// Pod set of its workers.
pub(super) const WORKER: &str = "worker";
/// Pod set of pods that are all made from one template.
pub(super) const ALL_TOGETHER: &str = "main";

/// Name of a pod set.
#[derive(Clone, Copy, Debug)]
pub enum RoleName<'a> {
    /// It is this one.
    Fixed(&'a str),
    /// It is a field of the role.
    Field(Pointer),
}

/// What a source says about each of its roles. Pointers are relative to the role.
#[derive(Clone, Copy, Debug)]
pub struct RoleFields<'a> {
    /// Its name.
    pub name: RoleName<'a>,
    /// Its template.
    pub template: Pointer,
    /// Its number of pods.
    pub count: &'a Count,
    /// Whether its pods have an index each.
    pub indexed: bool,
}

/// What is done with the roles of a job.
pub trait RoleReader {
    /// A place of a role.
    type Place;
    /// Why a job cannot be read.
    type Error;

    /// Returns the object as a role.
    fn object(&mut self) -> Self::Place;

    /// Returns whether the object has a field.
    fn has(&mut self, field: Pointer) -> bool;

    /// Returns the items of a list.
    fn items(&mut self, list: Pointer) -> Result<Vec<Self::Place>, Self::Error>;

    /// Returns an entry of a map, if it exists.
    fn entry(&mut self, map: Pointer, key: &'static str) -> Option<Self::Place>;

    /// Returns the entries of a map beside these, with their keys, if they are read at all.
    fn others(&mut self, _map: Pointer, _known: &[&str]) -> Vec<(String, Self::Place)> {
        Vec::new()
    }

    /// Reads a role.
    fn role(&mut self, place: Self::Place, fields: RoleFields<'_>) -> Result<(), Self::Error>;
}

impl PodSetSource {
    /// Reads the roles of a source, in the order of their pod sets.
    pub fn walk<R: RoleReader>(&self, reader: &mut R) -> Result<(), R::Error> {
        match self {
            Self::Fixed { name, template, count } => {
                let place = reader.object();
                reader.role(place, RoleFields { name: RoleName::Fixed(name), template, count, indexed: true })
            }
            Self::Array { list, name, template, count } => {
                let fields = RoleFields { name: RoleName::Field(name), template, count, indexed: true };
                reader.items(list)?.into_iter().try_for_each(|place| reader.role(place, fields))
            }
            Self::Map { map, order, others, template, count } => {
                let unnamed = RoleFields { name: RoleName::Fixed(""), template, count, indexed: true };
                for key in *order {
                    if let Some(place) = reader.entry(map, key) {
                        reader.role(place, RoleFields { name: RoleName::Fixed(key), ..unnamed })?;
                    }
                }
                let others = if *others { reader.others(map, order) } else { Vec::new() };
                others.into_iter().try_for_each(|(key, place)| {
                    reader.role(place, RoleFields { name: RoleName::Fixed(&key), ..unnamed })
                })
            }
            Self::LeaderAndWorkers { leader, workers, size } => {
                let led = reader.has(leader);
                if led {
                    let (name, count) = (RoleName::Fixed(LEADER), &Count::One);
                    let place = reader.object();
                    reader.role(place, RoleFields { name, template: leader, count, indexed: false })?;
                }
                let (name, count) =
                    if led { (WORKER, Count::AllButOne(size)) } else { (ALL_TOGETHER, Count::Field(size)) };
                let (name, count, place) = (RoleName::Fixed(name), &count, reader.object());
                reader.role(place, RoleFields { name, template: workers, count, indexed: true })
            }
        }
    }

    /// Returns whether its templates are in an array, which a merge patch would replace as a whole.
    pub(super) const fn is_array(&self) -> bool {
        matches!(self, Self::Array { .. })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::batch_job;
    use super::super::hooks::NoHooks;
    use super::super::job_under_review::JobUnderReview;
    use super::super::row::{Count, Framework, PodSetSource};
    use crate::api::validation::Errors;
    use serde_json::{Value, json};

    /// A kind with a head, a list of groups and a map of others.
    pub(crate) static SEVERAL: Framework = Framework {
        pod_sets: &[
            PodSetSource::Fixed {
                name: "head",
                template: "/spec/head/template",
                count: Count::Field("/spec/heads"),
            },
            PodSetSource::Array {
                list: "/spec/groups",
                name: "/groupName",
                template: "/template",
                count: Count::Product(&Count::Field("/replicas"), &Count::Field("/hosts")),
            },
            PodSetSource::Map {
                map: "/spec/others",
                order: &["Last"],
                others: false,
                template: "/template",
                count: Count::Field("/replicas"),
            },
        ],
        hooks: &NoHooks,
        ..batch_job::ROW
    };

    pub(crate) fn job() -> Value {
        let template =
            |mark: &str| json!({"metadata": {"annotations": {"mark": mark}}, "spec": {"containers": []}});
        json!({
            "metadata": {"name": "j", "uid": "u"},
            "spec": {
                "suspend": true,
                "head": {"template": template("h")},
                "groups": [
                    {"groupName": "Small", "replicas": 2, "template": template("s"), "other": 1},
                    {"groupName": "large", "replicas": 3, "hosts": 4, "template": template("l")},
                ],
                "others": {"Last": {"replicas": 5, "template": template("o")}, "Ignored": {"template": {}}},
            },
        })
    }

    /// Annotations and numbers of pods, as a review reads them.
    pub(crate) fn reviewed(job: &Value) -> Vec<(Value, i64)> {
        let mut errors = Errors::new();
        let read = JobUnderReview::read(&SEVERAL, job, &mut errors);
        assert!(errors.is_empty());
        read.pod_sets.iter().map(|set| (json!(set.annotations.unwrap()["mark"]), set.pods)).collect()
    }

    /// A kind whose controller makes pods of every entry of a map.
    static OPEN: Framework = Framework {
        pod_sets: &[PodSetSource::Map {
            map: "/spec/others",
            order: &["Last"],
            others: true,
            template: "/template",
            count: Count::Field("/replicas"),
        }],
        hooks: &NoHooks,
        ..batch_job::ROW
    };

    #[test]
    fn entries_that_are_not_in_the_order_follow_the_others() {
        let role = |pods: i32| json!({"replicas": pods, "template": {"spec": {"containers": []}}});
        let mut job = job();
        job["spec"]["others"] = json!({"b": role(3), "A": role(2), "None": null, "Last": role(1)});
        let view = OPEN.decode(&job).unwrap();
        let sets = view.pod_sets.iter().map(|set| (&*set.name, set.count, &*set.pointer));
        let wanted = [
            ("last", 1, "/spec/others/Last/template"),
            ("a", 2, "/spec/others/A/template"),
            ("b", 3, "/spec/others/b/template"),
        ];
        assert_eq!(sets.collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn several_sources_follow_one_another() {
        let job = job();
        let view = SEVERAL.decode(&job).unwrap();
        let sets: Vec<_> = view
            .pod_sets
            .iter()
            .map(|set| (set.name.to_string(), set.count, set.pointer.to_string()))
            .collect();
        let set = |name: &str, count, pointer: &str| (name.to_owned(), count, pointer.to_owned());
        assert_eq!(
            sets,
            [
                set("head", 1, "/spec/head/template"),
                set("small", 2, "/spec/groups/0/template"),
                set("large", 12, "/spec/groups/1/template"),
                set("last", 5, "/spec/others/Last/template"),
            ]
        );
        assert_eq!(reviewed(&job), [(json!("h"), 1), (json!("s"), 2), (json!("l"), 12), (json!("o"), 5)]);
    }
}
