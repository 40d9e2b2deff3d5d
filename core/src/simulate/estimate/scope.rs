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
    pub(crate) fn of(workload: &Value, objects: &'a [(Kind, Value)]) -> Option<Self> {
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
        match text_at(workload, "/status/admission/clusterQueue") {
            "" => self
                .of_local_queue
                .get(&local_queue(workload))
                .is_some_and(|queue| self.queues.contains(queue)),
            queue => self.queues.contains(queue),
        }
    }
}

fn local_queue(workload: &Value) -> ObjectKey {
    ObjectKey::new(text_at(workload, "/metadata/namespace"), text_at(workload, "/spec/queueName"))
}

/// Whether a Workload has finished.
pub(super) fn is_finished(workload: &Value) -> bool {
    is_true(workload, "Finished")
}

/// Keeps what a simulation of the tree needs, Workloads last: nothing new arrives from jobs that have no Workload, and what runs
/// elsewhere goes on.
pub(super) fn simulated(objects: &[(Kind, Value)], tree: &CohortTree<'_>) -> Vec<(Kind, Value)> {
    let is_kept = |workload: &Value| {
        !is_finished(workload) && (ConditionFlags::from_workload(workload).reserved || tree.has(workload))
    };
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
    let others = objects.iter().filter(|(kind, object)| match kind {
        Kind::Workload => false,
        Kind::Job(_) => is_owned(object),
        Kind::Pod => !PodMember::is_managed(object) || owners.contains(text_at(object, "/metadata/uid")),
        _ => true,
    });
    others.chain(workloads()).cloned().collect()
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
