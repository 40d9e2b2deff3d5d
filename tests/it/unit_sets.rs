//! Objects with a Workload for their pods: what a StatefulSet makes of its Workload and its pods.

use crate::core_fixture::{Core, writes};
use serde_json::{Value, json};
use sluice::cache::Kind;
use sluice::frameworks::{JobKind, framework};
use sluice::reconciler::{CoreSettings, Verb};

fn set_kind() -> Kind {
    Kind::Job(JobKind::new(framework("apps", "StatefulSet").expect("a row")))
}

fn core() -> Core {
    let frameworks = ["batch/job", "statefulset"].map(str::to_owned).into();
    Core::new(CoreSettings { frameworks, ..CoreSettings::default() })
}

fn set(replicas: i64) -> Value {
    json!({
        "metadata": {"name": "s", "namespace": "ns", "generation": replicas,
            "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"replicas": replicas, "template": {
            "metadata": {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}},
            "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1m"}}}]}}},
    })
}

fn pod(name: &str, uid: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "labels": {"apps.kubernetes.io/pod-index": "0"},
            "annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": uid,
                "controller": true}]},
        "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}], "containers": [
            {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Pending"},
    })
}

/// The Workload is made from the set; its pods become members of the group when it exists, and not before.
#[test]
fn pods_of_a_set_become_members_of_its_workload() {
    let mut core = core();
    let effects = core.put(set_kind(), set(3));
    let [created] = &writes(&effects, Kind::Workload)[..] else { panic!("{effects:?}") };
    assert_eq!((created.verb, &created.body["spec"]["podSets"][0]["count"]), (Verb::Create, &json!(3)));
    let uid = &created.body["metadata"]["ownerReferences"][0]["uid"];
    let effects = core.put(Kind::Pod, pod("s-0", uid));
    assert_eq!(writes(&effects, Kind::Pod).len(), 0, "the Workload does not exist yet");
    let effects = core.put(Kind::Workload, created.body.clone());
    let [marked] = &writes(&effects, Kind::Pod)[..] else { panic!("{effects:?}") };
    let metadata = &marked.body["metadata"];
    assert_eq!(metadata["annotations"]["kueue.x-k8s.io/pod-group-name"], json!(&*created.key.name));
    assert_eq!(metadata["annotations"]["kueue.x-k8s.io/pod-group-total-count"], "3");
    assert_eq!(metadata["labels"]["kueue.x-k8s.io/queue-name"], "lq");
    let effects = core.put(Kind::Pod, pod("other-0", &json!("another set of this name")));
    assert_eq!(writes(&effects, Kind::Pod).len(), 0, "the pod of a set that is gone");
}

/// While a set has no pods, the count of its Workload is that of the last time; a set that grows again asks for what it needs.
#[test]
fn count_follows_a_set_that_was_scaled_to_zero() {
    let (mut core, mut workload) = (core(), Value::Null);
    let effects = core.put(set_kind(), set(3));
    let effects = core.land(&effects, &mut workload);
    core.land(&effects, &mut workload);
    assert!(workload["status"]["admission"].is_object(), "{workload}");
    let effects = core.put(set_kind(), set(0));
    core.land(&effects, &mut workload);
    let conditions = workload["status"]["conditions"].as_array().unwrap();
    let reserved = conditions.iter().find(|condition| condition["type"] == "QuotaReserved").unwrap();
    assert_eq!((&reserved["status"], &reserved["reason"]), (&json!("False"), &json!("OnHold")));
    assert!(workload["status"].get("admission").is_none(), "its quota is free");
    let effects = core.put(set_kind(), set(5));
    let resized = writes(&effects, Kind::Workload);
    let spec = resized.iter().find(|write| write.body["spec"].is_object()).expect("a write of the spec");
    assert_eq!(spec.body["spec"]["podSets"][0]["count"], 5);
}

/// A pod of an old revision waits for the admission as the others, and an event says why the roll-out does not go on.
#[test]
fn rollout_waits_while_the_workload_is_pending() {
    let (mut core, mut workload) = (core(), Value::Null);
    let mut rolling = set(3);
    rolling["status"] = json!({"currentRevision": "old", "updateRevision": "new"});
    let effects = core.put(set_kind(), rolling.clone());
    let uid = &writes(&effects, Kind::Workload)[0].body["metadata"]["ownerReferences"][0]["uid"];
    let mut old = pod("s-0", uid);
    old["metadata"]["labels"]["controller-revision-hash"] = json!("old");
    let effects = land(&mut core, &effects, &mut workload);
    workload["spec"]["active"] = json!(false);
    workload["status"] = json!({});
    drop(effects);
    core.put(Kind::Workload, workload.clone());
    let effects = core.put(Kind::Pod, old);
    let gates = |effects: &[Effect]| {
        writes(effects, Kind::Pod).iter().filter(|write| write.body["spec"].is_object()).count()
    };
    assert_eq!(gates(&effects), 0, "nothing is ungated: {effects:?}");
    let is_said = |effect: &Effect| matches!(effect, Effect::Event(event) if event.reason == "RolloutWaits");
    assert_eq!(effects.iter().filter(|effect| is_said(effect)).count(), 1, "{effects:?}");
    let effects = core.put(set_kind(), rolling);
    assert!(!effects.iter().any(is_said), "it is said once");
}
