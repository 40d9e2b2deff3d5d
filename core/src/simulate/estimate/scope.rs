//! Which objects an estimate simulates: the cohort tree of a Workload, and what runs beside it.

use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::frameworks::{PodMember, Role};
use crate::simulate::objects::{
    ConditionFlags, controller_uid, field_text, is_true, key_of, text_at, value_at,
};
use crate::simulate::pods;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Most owners between an object and its job, and Cohorts above a ClusterQueue.
const MAX_DEPTH: usize = 64;

/// The ClusterQueues of a cohort tree.
pub(super) struct CohortTree<'a> {
    of_local_queue: BTreeMap<ObjectKey, &'a str>,
    queues: BTreeSet<&'a str>,
}

impl<'a> CohortTree<'a> {
    /// Returns the tree of the ClusterQueue of a Workload; `None` if it has none.
    pub(super) fn of(workload: &Value, objects: &'a [(Kind, Value)]) -> Option<Self> {
        let of_kind =
            |wanted: Kind| objects.iter().filter(move |(kind, _)| *kind == wanted).map(|(_, object)| object);
        let of_local_queue: BTreeMap<ObjectKey, &str> = of_kind(Kind::LocalQueue)
            .map(|queue| (key_of(queue), text_at(queue, "/spec/clusterQueue")))
            .collect();
        let parents: BTreeMap<&str, &str> = of_kind(Kind::Cohort)
            .map(|cohort| (text_at(cohort, "/metadata/name"), text_at(cohort, "/spec/parentName")))
            .collect();
        let root = |queue: &'a Value| {
            let mut cohort = text_at(queue, "/spec/cohortName");
            for _ in 0..MAX_DEPTH {
                match parents.get(cohort).copied().filter(|parent| !parent.is_empty()) {
                    Some(parent) => cohort = parent,
                    None => break,
                }
            }
            cohort
        };
        let name = |queue: &'a Value| text_at(queue, "/metadata/name");
        let own = *of_local_queue.get(&local_queue(workload))?;
        let own_root = root(of_kind(Kind::ClusterQueue).find(|queue| name(queue) == own)?);
        let queues = of_kind(Kind::ClusterQueue)
            .filter(|queue| name(queue) == own || (!own_root.is_empty() && root(queue) == own_root))
            .map(name)
            .collect();
        Some(Self { of_local_queue, queues })
    }

    /// Whether a Workload waits or runs in the tree.
    pub(super) fn has(&self, workload: &Value) -> bool {
        self.queue_of(workload).is_some()
    }

    /// Whether a ClusterQueue is in the tree.
    pub(super) fn has_queue(&self, name: &str) -> bool {
        self.queues.contains(name)
    }

    /// Returns the ClusterQueue of the tree in which a Workload waits or runs.
    pub(super) fn queue_of<'b>(&'b self, workload: &'b Value) -> Option<&'b str> {
        let queue: Option<&'b str> = match text_at(workload, "/status/admission/clusterQueue") {
            "" => self.of_local_queue.get(&local_queue(workload)).copied(),
            queue => Some(queue),
        };
        queue.filter(|queue| self.queues.contains(queue))
    }
}

fn local_queue(workload: &Value) -> ObjectKey {
    ObjectKey::new(text_at(workload, "/metadata/namespace"), text_at(workload, "/spec/queueName"))
}

/// Returns whether a Workload has finished.
pub fn is_finished(workload: &Value) -> bool {
    is_true(workload, "Finished")
}

/// Keeps what a simulation of the tree needs, Workloads last: nothing new arrives from jobs that have no Workload, and what runs
/// elsewhere keeps what it has.
pub(super) fn simulated<'a>(objects: &'a [(Kind, Value)], tree: &CohortTree<'_>) -> Vec<&'a (Kind, Value)> {
    let is_kept = |workload: &Value| {
        !is_finished(workload) && (ConditionFlags::from_workload(workload).reserved || tree.has(workload))
    };
    with_workloads(objects, &is_kept, true)
}

/// Keeps some Workloads, last, with their jobs and pods, and all that is neither; `with_pods` also keeps pods that are in no queue.
pub(super) fn with_workloads<'a>(
    objects: &'a [(Kind, Value)],
    is_kept: &dyn Fn(&Value) -> bool,
    with_pods: bool,
) -> Vec<&'a (Kind, Value)> {
    let kept = with_owners(objects, is_kept, with_pods);
    let all = || objects.iter().zip(&kept).filter(|(_, is_kept)| **is_kept).map(|(object, _)| object);
    let is_workload = |(kind, _): &&(Kind, Value)| *kind == Kind::Workload;
    all().filter(|object| !is_workload(object)).chain(all().filter(is_workload)).collect()
}

/// Drops finished Workloads, and the jobs and pods of which no Workload is left: a simulation of what comes needs none of them.
pub fn drop_finished(objects: &mut Vec<(Kind, Value)>) {
    let mut kept = with_owners(objects, &|workload| !is_finished(workload), true).into_iter();
    objects.retain(|_| kept.next().unwrap_or(true));
}

/// Returns for each object whether it is a Workload that is kept, an owner of one, or of another kind than jobs and their pods.
fn with_owners(objects: &[(Kind, Value)], is_kept: &dyn Fn(&Value) -> bool, with_pods: bool) -> Vec<bool> {
    let workloads = || objects.iter().filter(|(kind, workload)| *kind == Kind::Workload && is_kept(workload));
    let owners: BTreeSet<&str> = workloads().flat_map(|(_, workload)| owner_uids(workload)).collect();
    let controllers: BTreeMap<&str, &str> = objects
        .iter()
        .filter(|(kind, _)| matches!(kind, Kind::Job(_)))
        .filter_map(|(_, job)| Some((text_at(job, "/metadata/uid"), controller_uid(job)?)))
        .collect();
    let is_owned = |object: &Value| {
        let mut uid = text_at(object, "/metadata/uid");
        for _ in 0..MAX_DEPTH {
            if owners.contains(uid) {
                return true;
            }
            match controllers.get(uid) {
                Some(above) => uid = above,
                None => return false,
            }
        }
        false
    };
    let is_needed = |(kind, object): &(Kind, Value)| match kind {
        Kind::Workload => is_kept(object),
        Kind::Job(_) => is_owned(object),
        Kind::Pod => {
            let is_outside = with_pods && !PodMember::is_managed(object);
            is_outside || owners.contains(text_at(object, "/metadata/uid"))
        }
        _ => true,
    };
    objects.iter().map(is_needed).collect()
}

/// Returns the UIDs of objects that own Workloads and do not end by themselves.
pub(super) fn serving(objects: &[(Kind, Value)]) -> BTreeSet<&str> {
    let serves = |(kind, object): &&(Kind, Value)| match kind {
        Kind::Job(row) => row.role != Role::Suspended || !row.can_finish(true),
        Kind::Pod => !pods::finishes(object) || text_at(object, "/spec/restartPolicy") == "Always",
        _ => false,
    };
    objects.iter().filter(serves).map(|(_, object)| text_at(object, "/metadata/uid")).collect()
}

fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    let owners = value_at(object, "/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().map(|owner| field_text(owner, "uid"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frameworks::{JobKind, framework};
    use serde_json::json;

    #[test]
    fn finished_workloads_go_with_their_jobs() {
        let job = |uid: &str| (Kind::Job(JobKind::BATCH_JOB), json!({"metadata": {"name": uid, "uid": uid}}));
        let workload = |owner: &str, finished: bool| {
            let status = if finished { "True" } else { "False" };
            let conditions = json!([{"type": "Finished", "status": status}]);
            (
                Kind::Workload,
                json!({"metadata": {"name": owner, "ownerReferences": [{"uid": owner}]}, "status": {"conditions": conditions}}),
            )
        };
        let mut objects = vec![
            job("done"),
            job("runs"),
            (Kind::Node, json!({"metadata": {"name": "n"}})),
            workload("done", true),
            workload("runs", false),
        ];
        drop_finished(&mut objects);
        let names: Vec<&str> = objects.iter().map(|(_, object)| text_at(object, "/metadata/name")).collect();
        assert_eq!(names, ["runs", "n", "runs"]);
    }

    #[test]
    fn what_another_controller_restarts_serves() {
        let job = |group: &str, kind: &str| Kind::of_job(JobKind::new(framework(group, kind).unwrap()));
        let object = |kind: Kind, uid: &str, annotations: Value| {
            (kind, json!({"metadata": {"uid": uid, "annotations": annotations}}))
        };
        let objects = [
            object(job("batch", "Job"), "job", json!({})),
            object(job("ray.io", "RayCluster"), "raycluster", json!({})),
            object(job("ray.io", "RayJob"), "rayjob", json!({})),
            object(job("apps", "StatefulSet"), "statefulset", json!({})),
            object(Kind::Pod, "pod", json!({})),
            object(Kind::Pod, "replica", json!({"kueue.x-k8s.io/pod-suspending-parent": "deployment"})),
            (Kind::Pod, json!({"metadata": {"uid": "server"}, "spec": {"restartPolicy": "Always"}})),
            (Kind::Pod, json!({"metadata": {"uid": "step"}, "spec": {"restartPolicy": "OnFailure"}})),
            object(Kind::Workload, "workload", json!({})),
        ];
        let found: Vec<&str> = serving(&objects).into_iter().collect();
        assert_eq!(found, ["raycluster", "replica", "server", "statefulset"]);
    }
}
