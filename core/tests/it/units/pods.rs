//! What events of pods cost a unit: the group is decided as a whole, but only the pod that changed is read.

use crate::fixtures::leading_core::{Core, writes};
use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::frameworks::{JobKind, PodMember, UnitSummary};
use sluice_core::lifecycle::pods_ready::PodsReadyLimits;
use sluice_core::reconciler::{CoreSettings, Delta, Effect, Verb, WriteOutcome, WriteResult};
use std::collections::BTreeSet;
use std::sync::Arc;

fn settings() -> CoreSettings {
    let frameworks = BTreeSet::from(["batch/job", "pod"].map(str::to_owned));
    CoreSettings { frameworks, added_job_kinds: [JobKind::POD].into(), ..CoreSettings::default() }
}

fn core() -> Core {
    Core::new(settings())
}

fn pod(name: &str, group: &str, total: usize) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns",
            "labels": {"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/queue-name": "lq"},
            "annotations": {"kueue.x-k8s.io/pod-group-name": group, "kueue.x-k8s.io/role-hash": "role",
                "kueue.x-k8s.io/pod-group-total-count": total.to_string()},
            "finalizers": ["kueue.x-k8s.io/managed"]},
        "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}], "containers": [
            {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1m"}}}]},
        "status": {"phase": "Pending"},
    })
}

/// Answers all writes of this kind with the object as it is then.
fn land(core: &mut Core, effects: &[Effect], kind: Kind, change: impl Fn(&str) -> Value) -> Vec<Effect> {
    let mut all = Vec::new();
    for write in writes(effects, kind) {
        let object = core.with_server_metadata(kind, change(&write.key.name));
        let result =
            WriteResult { id: write.id, kind, key: write.key.clone(), outcome: WriteOutcome::Done(object) };
        all.extend(core.feed(Delta::Written(result)));
    }
    all
}

#[test]
fn event_of_large_group_reads_one_pod() {
    const TOTAL: usize = 300;
    let mut core = core();
    let name = |index: usize| format!("p-{index:04}");
    let pods: Vec<Delta> =
        (0..TOTAL).map(|index| core.applied_delta(Kind::Pod, pod(&name(index), "group", TOTAL))).collect();
    let effects = core.feed_all(pods);
    let created = writes(&effects, Kind::Workload);
    assert_eq!((created.len(), created[0].verb), (1, Verb::Create), "{effects:?}");
    assert_eq!(core.state.unit_pod_reads(), 300, "each pod is read once when it is created");

    let mut workload = created[0].body.clone();
    let effects = land(&mut core, &effects, Kind::Workload, |_| workload.clone());
    let admitted = writes(&effects, Kind::Workload);
    workload["status"] = admitted[0].body["status"].clone();
    let effects = land(&mut core, &effects, Kind::Workload, |_| workload.clone());
    let starts: BTreeSet<ObjectKey> =
        writes(&effects, Kind::Pod).into_iter().map(|write| write.key).collect();
    assert_eq!(starts.len(), TOTAL, "all pods are started");
    assert_eq!(core.state.unit_pod_reads(), 300, "an admission reads no pod again");

    // They start one by one: the response to the write, bound, running.
    let before = core.state.unit_pod_reads();
    let mut sent = 0;
    for index in 0..TOTAL {
        let mut started = pod(&name(index), "group", TOTAL);
        started["spec"]["schedulingGates"] = json!([]);
        started["spec"]["nodeName"] = json!("n");
        sent += writes(&core.put(Kind::Pod, started.clone()), Kind::Pod).len();
        started["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        sent += writes(&core.put(Kind::Pod, started), Kind::Pod).len();
    }
    assert_eq!(core.state.unit_pod_reads() - before, 2 * 300, "an event reads the pod that it is about");
    assert_eq!(sent, 0, "no pod is written again");
}

#[test]
fn priority_class_gives_steps_to_units_that_name_it() {
    let mut core = core();
    let mut naming = pod("first", "one", 1);
    naming["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("urgent");
    let waits = core.put(Kind::Pod, naming);
    assert_eq!(writes(&waits, Kind::Workload).len(), 0, "its class does not exist yet");
    let class = json!({"metadata": {"name": "urgent"}, "value": 7});
    let created = writes(&core.put(Kind::WorkloadPriorityClass, class), Kind::Workload);
    assert_eq!(created.len(), 1, "the class lets its Workload be made");
    assert_eq!(created[0].body["spec"]["priority"], 7);
}

fn running_pod(name: &str, total: usize) -> Value {
    let mut pod = pod(name, "group", total);
    pod["spec"]["schedulingGates"] = json!([]);
    pod["spec"]["nodeName"] = json!("n");
    pod["status"]["phase"] = json!("Running");
    pod
}

/// A group whose pods all run and are ready, and its Workload.
struct RunningGroup {
    core: Core,
    total: usize,
    workload: Value,
}

impl RunningGroup {
    fn new(total: usize) -> Self {
        let mut settings = settings();
        let minutes = SignedDuration::from_mins(5);
        settings.lifecycle.pods_ready = Some(PodsReadyLimits {
            timeout: minutes,
            recovery_timeout: None,
            max_requeues: None,
            backoff_base: minutes,
            backoff_max: minutes,
        });
        let mut group = Self { core: Core::new(settings), total, workload: Value::Null };
        for index in 0..total {
            let effects = group.core.put(Kind::Pod, pod(&format!("p-{index}"), "group", total));
            group.answer(effects);
        }
        for index in 0..total {
            let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
            group.set_status(index, total, ready);
        }
        assert_eq!(group.condition("PodsReady"), Some(json!("True")));
        group
    }

    /// Answers all writes of pods with pods that run, and those of the Workload.
    fn answer(&mut self, mut effects: Vec<Effect>) {
        let total = self.total;
        loop {
            let of_pods = land(&mut self.core, &effects, Kind::Pod, |name| running_pod(name, total));
            effects.extend(of_pods);
            let Some(write) = writes(&effects, Kind::Workload).into_iter().next() else { return };
            match write.verb {
                Verb::Create => self.workload = write.body.clone(),
                _ if write.subresource.is_some() => self.workload["status"] = write.body["status"].clone(),
                Verb::JsonPatch => {
                    let mut operations: Vec<Value> = serde_json::from_value(write.body.clone()).unwrap();
                    operations.retain(|operation| operation["path"] != "/metadata/resourceVersion");
                    let operations: json_patch::Patch = serde_json::from_value(json!(operations)).unwrap();
                    json_patch::patch(&mut self.workload, &operations).unwrap();
                }
                _ => json_patch::merge(&mut self.workload, &write.body),
            }
            let workload = self.workload.clone();
            effects = land(&mut self.core, &effects, Kind::Workload, |_| workload.clone());
        }
    }

    fn set_status(&mut self, index: usize, total: usize, status: Value) {
        let mut pod = running_pod(&format!("p-{index}"), total);
        pod["status"] = status;
        let effects = self.core.put(Kind::Pod, pod);
        self.answer(effects);
    }

    fn advance_millis(&mut self, millis: i64) {
        self.core.now = self.core.now.checked_add(SignedDuration::from_millis(millis)).unwrap();
        let effects = self.core.feed(Delta::Tick);
        self.answer(effects);
    }

    fn condition(&self, kind: &str) -> Option<Value> {
        let conditions = self.workload["status"]["conditions"].as_array().unwrap();
        Some(conditions.iter().find(|condition| condition["type"] == kind)?["status"].clone())
    }
}

/// A lost readiness is reported when others have not succeeded a second later; their quota is free at once.
#[test]
fn pods_that_succeed_are_not_ready_after_a_second() {
    let mut group = RunningGroup::new(2);
    group.set_status(0, 2, json!({"phase": "Succeeded"}));
    assert_eq!(group.workload["status"]["reclaimablePods"], json!([{"name": "role", "count": 1}]));
    group.advance_millis(900);
    assert_eq!(group.condition("PodsReady"), Some(json!("True")));
    group.advance_millis(200);
    assert_eq!(group.condition("PodsReady"), Some(json!("False")));
}

/// A group whose pods succeed within a second finishes at once, and was ready until then.
#[test]
fn group_that_completes_at_once_stays_ready() {
    let mut group = RunningGroup::new(2);
    group.set_status(0, 2, json!({"phase": "Succeeded"}));
    group.advance_millis(500);
    group.set_status(1, 2, json!({"phase": "Succeeded"}));
    assert_eq!(group.condition("Finished"), Some(json!("True")));
    group.advance_millis(2_000);
    assert_eq!(group.condition("PodsReady"), Some(json!("True")));
}

/// A pod that fails is reported at once, also beside others that succeed.
#[test]
fn pod_that_fails_is_not_ready_at_once() {
    let mut group = RunningGroup::new(3);
    group.set_status(0, 3, json!({"phase": "Succeeded"}));
    assert_eq!(group.condition("PodsReady"), Some(json!("True")));
    group.set_status(1, 3, json!({"phase": "Failed"}));
    assert_eq!(group.condition("PodsReady"), Some(json!("False")));
}

/// A pod of another shape joins a group that runs, or takes the place of a failed pod. It is never started, and the others keep
/// their quota.
#[test]
fn pod_of_unknown_role_does_not_end_running_group() {
    for failed in [false, true] {
        let mut group = RunningGroup::new(2);
        if failed {
            group.set_status(0, 2, json!({"phase": "Failed"}));
        }
        let mut alien = pod("p-2", "group", 2);
        alien["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"] = json!("alien");
        let effects = group.core.put(Kind::Pod, alien);
        assert!(writes(&effects, Kind::Pod).is_empty(), "{effects:?}");
        group.answer(effects);
        group.advance_millis(2_000);
        assert_eq!(group.condition("Finished"), None, "failed: {failed}");
        assert_eq!(group.condition("Admitted"), Some(json!("True")));
    }
}

/// A Workload without owners would be collected with the last pod that was replaced.
#[test]
fn replaced_pod_is_released_when_its_replacement_is_an_owner() {
    let mut group = RunningGroup::new(1);
    group.set_status(0, 1, json!({"phase": "Failed"}));
    let effects = group.core.put(Kind::Pod, pod("p-1", "group", 1));
    let of_pods = |effects: &[Effect]| -> Vec<Arc<str>> {
        writes(effects, Kind::Pod).into_iter().map(|write| write.key.name).collect()
    };
    assert!(!of_pods(&effects).contains(&"p-0".into()), "{effects:?}");
    let mut owners: Vec<Value> = group.workload["metadata"]["ownerReferences"].as_array().unwrap().clone();
    owners.push(json!({"apiVersion": "v1", "kind": "Pod", "name": "p-1", "uid": "pods-p-1"}));
    group.workload["metadata"]["ownerReferences"] = json!(owners);
    let workload = group.workload.clone();
    let effects = land(&mut group.core, &effects, Kind::Workload, |_| workload.clone());
    assert!(of_pods(&effects).contains(&"p-0".into()), "{effects:?}");
}

/// Another client writes `Finished` to the Workload of pods that run: they may not run on without quota.
#[test]
fn running_pods_of_finished_workload_are_deleted() {
    let mut group = RunningGroup::new(2);
    group.set_status(0, 2, json!({"phase": "Succeeded"}));
    let finished = json!({"type": "Finished", "status": "True", "reason": "ByHand", "message": "m",
        "lastTransitionTime": "2027-01-15T08:00:00Z"});
    group.workload["status"]["conditions"].as_array_mut().unwrap().push(finished);
    let workload = group.workload.clone();
    let effects = group.core.put(Kind::Workload, workload);
    let of_pods: Vec<(Verb, Arc<str>)> =
        writes(&effects, Kind::Pod).into_iter().map(|write| (write.verb, write.key.name)).collect();
    // The reason is written before the pod is deleted; the finalizer of the other one goes.
    assert_eq!(of_pods, [(Verb::Apply, "p-1".into()), (Verb::JsonPatch, "p-0".into())], "{effects:?}");
}

/// A Workload that a user makes for a group asks for another role than its pods have.
#[test]
fn prebuilt_workload_that_does_not_fit_its_group_finishes() {
    let mut core = core();
    let mut waiting = pod("first", "group", 1);
    waiting["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("group");
    core.put(Kind::Pod, waiting.clone());
    let mut workload = json!({
        "metadata": {"name": "group", "namespace": "ns",
            "annotations": {"kueue.x-k8s.io/is-group-workload": "true"},
            "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "first", "uid": "pods-first"}]},
        "spec": {"queueName": "lq", "podSets": [{"name": "other", "count": 1, "template": {
            "spec": waiting["spec"]}}]},
    });
    let effects = core.put(Kind::Workload, workload.clone());
    let [finish] = &writes(&effects, Kind::Workload)[..] else { panic!("{effects:?}") };
    let conditions = finish.body["status"]["conditions"].as_array().unwrap();
    let finished = conditions.iter().find(|condition| condition["type"] == "Finished");
    assert_eq!(finished.map(|condition| &condition["reason"]), Some(&json!("OutOfSync")), "{conditions:?}");
    assert_eq!(writes(&effects, Kind::Pod).len(), 0, "a pod that waits is not deleted");

    workload["status"] = finish.body["status"].clone();
    let effects = land(&mut core, &effects, Kind::Workload, |_| workload.clone());
    let [release] = &writes(&effects, Kind::Pod)[..] else { panic!("{effects:?}") };
    assert_eq!((release.verb, &*release.key.name), (Verb::JsonPatch, "first"));
}

fn drawn_pod() -> impl Strategy<Value = Value> {
    let phase = proptest::sample::select(&["Pending", "Running", "Succeeded", "Failed"][..]);
    (phase, any::<[bool; 6]>(), 0..3_u8).prop_map(
        |(phase, [gated, deleting, bound, ready, kept, retries], role)| {
            let mut pod = pod("p", "group", 4);
            let metadata = &mut pod["metadata"];
            metadata["uid"] = json!("u");
            metadata["annotations"]["kueue.x-k8s.io/role-hash"] = json!(role.to_string());
            if deleting {
                metadata["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
            }
            if !kept {
                metadata["finalizers"] = json!([]);
            }
            if !retries {
                metadata["annotations"]["kueue.x-k8s.io/retriable-in-group"] = json!("false");
            }
            if !gated {
                pod["spec"]["schedulingGates"] = json!([]);
            }
            if bound {
                pod["spec"]["nodeName"] = json!("n");
            }
            let ready = if ready { "True" } else { "False" };
            pod["status"] = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
            pod
        },
    )
}

proptest! {
    /// Whatever events come, the numbers are those of the members that are left.
    #[test]
    fn summary_follows_events(pods in proptest::collection::vec(drawn_pod(), 1..8), gone in any::<[bool; 8]>()) {
        let members: Vec<PodMember> =
            pods.into_iter().map(|pod| PodMember::read(Arc::new(pod)).unwrap().unwrap()).collect();
        let mut summary = UnitSummary::of(&members);
        let (removed, left): (Vec<_>, Vec<_>) = members.iter().zip(gone).partition(|(_, gone)| *gone);
        for (member, _) in removed {
            summary.remove(member);
        }
        prop_assert_eq!(summary, UnitSummary::of(left.into_iter().map(|(member, _)| member)));
    }
}
