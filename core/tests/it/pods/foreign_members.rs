//! Pods that name the Workload of a StatefulSet as their group, although the set has not made them: they wait, and count for nothing.

use crate::fixtures::job_server::{JobServer, kind, pod};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::admission::AdmissionSettings;
use sluice_core::cache::Kind;
use sluice_core::frameworks::framework;
use sluice_core::lifecycle::pods_ready::PodsReadyLimits;
use sluice_core::reconciler::CoreSettings;

/// A set of one pod in a queue of 4 CPUs, with its Workload.
fn server(frameworks: &[&str]) -> JobServer {
    let frameworks = frameworks.iter().map(|name| (*name).to_owned()).collect();
    let mut core = CoreSettings { frameworks, ..CoreSettings::default() };
    core.lifecycle.pods_ready = Some(PodsReadyLimits {
        timeout: SignedDuration::from_hours(1),
        recovery_timeout: None,
        max_requeues: None,
        backoff_base: SignedDuration::from_secs(1),
        backoff_max: SignedDuration::from_secs(1),
    });
    let mut server = JobServer::with_settings(core, AdmissionSettings::default(), "4");
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "s", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "s"}}, "serviceName": "s",
            "template": {"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [
                {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}}});
    server.submit(framework("apps", "StatefulSet").unwrap(), set).unwrap();
    assert!(server.holds_quota());
    server
}

/// Makes the pod of the set, as its controller does.
fn make_own(server: &mut JobServer) {
    let uid = server.get(kind("apps", "StatefulSet"), "s").unwrap()["metadata"]["uid"].clone();
    let mut own = pod("s-0", None);
    own["metadata"]["labels"] = json!({"app": "s", "apps.kubernetes.io/pod-index": "0"});
    own["metadata"]["annotations"] = json!({"kueue.x-k8s.io/pod-suspending-parent": "statefulset"});
    own["metadata"]["finalizers"] = json!([]);
    own["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": uid, "controller": true}]);
    server.create(Kind::Pod, own);
}

/// Makes a pod of someone else that names the Workload of the set as its group.
fn make_alien(server: &mut JobServer, name: &str, gated: bool) {
    let group = server.workload_name();
    let mut alien = pod(name, Some((&group, 1)));
    if !gated {
        alien["spec"]["schedulingGates"] = json!([]);
    }
    server.create(Kind::Pod, alien);
}

fn set_status(server: &mut JobServer, name: &str, phase: &str) {
    server.edit(Kind::Pod, name, |pod| {
        pod["spec"]["nodeName"] = json!("n");
        let ready = if phase == "Running" { "True" } else { "False" };
        pod["status"] = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
    });
}

fn is_started(server: &JobServer, name: &str) -> bool {
    let pod = server.get(Kind::Pod, name).unwrap_or_else(|| panic!("{name} was deleted"));
    pod["spec"]["schedulingGates"].as_array().is_none_or(Vec::is_empty)
}

fn is_said(server: &JobServer, name: &str) -> bool {
    let mut events = server.events.iter();
    events.any(|event| *event.key.name == *name && event.reason == "WorkloadNameConflict")
}

fn is(server: &JobServer, condition: &str) -> bool {
    server.condition(condition).is_some_and(|(status, _)| status == "True")
}

/// Their names come before that of the pod of the set: what all members agree on is read from the first.
#[test]
fn set_is_ready_whatever_pods_of_others_are() {
    for frameworks in [&["pod", "statefulset"][..], &["statefulset"]] {
        let mut server = server(frameworks);
        make_alien(&mut server, "alien-0", true);
        assert!(!is_started(&server, "alien-0"), "{frameworks:?}: the set has no pod yet");
        make_own(&mut server);
        assert!(is_started(&server, "s-0"), "{frameworks:?}");
        assert!(!is(&server, "PodsReady"), "{frameworks:?}");
        set_status(&mut server, "s-0", "Running");
        assert!(is(&server, "PodsReady"), "{frameworks:?}");
        make_alien(&mut server, "alien-1", true);
        make_alien(&mut server, "z", true);
        assert!(is(&server, "PodsReady") && is(&server, "Admitted"), "{frameworks:?}");
        set_status(&mut server, "s-0", "Pending");
        assert!(!is(&server, "PodsReady"), "{frameworks:?}");
        assert!(["alien-0", "alien-1", "z"].iter().all(|name| !is_started(&server, name)));
        assert_eq!(
            is_said(&server, "alien-0"),
            frameworks.len() > 1,
            "{frameworks:?}: a pod that is not ours"
        );
    }
}

/// The end of a pod of someone else is not that of a set.
#[test]
fn set_outlives_the_end_of_pods_of_others() {
    for phase in ["Succeeded", "Failed"] {
        let mut server = server(&["pod", "statefulset"]);
        make_own(&mut server);
        set_status(&mut server, "s-0", "Running");
        make_alien(&mut server, "alien", true);
        server.edit(Kind::Pod, "alien", |pod| {
            pod["metadata"]["annotations"]["kueue.x-k8s.io/retriable-in-group"] = json!("false");
        });
        set_status(&mut server, "alien", phase);
        assert!(is(&server, "Admitted") && !is(&server, "Finished") && is(&server, "PodsReady"), "{phase}");
        let own = server.get(Kind::Pod, "s-0").unwrap();
        assert!(own["metadata"]["deletionTimestamp"].is_null(), "{phase}");
    }
}

/// The Workload is charged for the pods of the set alone.
#[test]
fn running_pod_of_someone_else_is_stopped() {
    let mut server = server(&["pod", "statefulset"]);
    make_own(&mut server);
    set_status(&mut server, "s-0", "Running");
    make_alien(&mut server, "alien", false);
    let alien = server.get(Kind::Pod, "alien");
    assert!(alien.is_none_or(|alien| alien["metadata"]["deletionTimestamp"].is_string()), "{alien:?}");
    assert!(is(&server, "Admitted") && is(&server, "PodsReady"));
    let own = server.get(Kind::Pod, "s-0").unwrap();
    assert!(own["metadata"]["deletionTimestamp"].is_null());
}

/// Nothing replaces it: its finalizer goes when its user deletes it.
#[test]
fn waiting_pod_of_someone_else_can_be_deleted() {
    let mut server = server(&["pod", "statefulset"]);
    make_own(&mut server);
    make_alien(&mut server, "alien", true);
    server.delete(Kind::Pod, "alien");
    let left: Vec<Value> = server.all(Kind::Pod).iter().map(|pod| pod["metadata"]["name"].clone()).collect();
    assert_eq!(left, [json!("s-0")]);
}
