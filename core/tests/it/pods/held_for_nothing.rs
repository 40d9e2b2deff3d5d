//! Pods that keep their gate for ever: an event on each says why.

use crate::fixtures::job_server::{JobServer, pod};
use serde_json::json;
use sluice_core::admission::AdmissionSettings;
use sluice_core::cache::Kind;
use sluice_core::frameworks::{framework, frameworks};
use sluice_core::reconciler::CoreSettings;

fn notes(server: &JobServer, name: &str, reason: &str) -> Vec<String> {
    let own = server.events.iter().filter(|event| *event.key.name == *name && event.reason == reason);
    own.map(|event| event.note.clone()).collect()
}

fn is_held(server: &JobServer, name: &str) -> bool {
    server.get(Kind::Pod, name).unwrap()["spec"]["schedulingGates"]
        .to_string()
        .contains("kueue.x-k8s.io/admission")
}

/// The webhook holds a pod with the annotation of a marked template, whichever kind that names, and only the label of such a template
/// has it started.
#[test]
fn marked_pod_without_label_says_that_nothing_starts_it() {
    let row = framework("", "Pod").unwrap();
    for parent in ["pod", "deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset", "another"]
    {
        let all = frameworks().map(|row| row.name.to_owned()).collect();
        let core = CoreSettings { frameworks: all, ..CoreSettings::default() };
        let mut server = JobServer::with_settings(core, AdmissionSettings::default(), "10");
        let mut pod = pod("p", None);
        pod["metadata"] = json!({"name": "p", "namespace": "ns", "annotations": {"kueue.x-k8s.io/pod-suspending-parent": parent},
            "labels": {"kueue.x-k8s.io/queue-name": "lq"}});
        pod["spec"]["schedulingGates"] = json!([]);
        server.submit(row, pod).unwrap();
        let said = notes(&server, "p", "PodsStayGated");
        assert!(is_held(&server, "p") && said.len() == 1, "{parent}: {said:?}");
        assert!(
            said.iter().all(|note| note.contains("not the label kueue.x-k8s.io/managed")),
            "{parent}: {said:?}"
        );
        server.edit(Kind::Pod, "p", |pod| pod["metadata"]["labels"]["x"] = json!("y"));
        assert!(notes(&server, "p", "PodsStayGated").len() <= 1, "{parent}: it says so once");
    }
}

#[test]
fn replacement_of_another_role_says_why_it_waits() {
    let mut server = JobServer::new(&["pod"], "10");
    for name in ["a", "b"] {
        server.create(Kind::Pod, pod(name, Some(("group", 2))));
    }
    assert!(!is_held(&server, "a") && !is_held(&server, "b"));
    for name in ["a", "b"] {
        server.run_pod(name);
    }
    server.end_pod("a");
    let mut other = pod("c", Some(("group", 2)));
    other["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"] = json!("other");
    server.create(Kind::Pod, other);
    let said = notes(&server, "c", "ExcessPodWaits");
    assert!(is_held(&server, "c") && said.len() == 1, "{:?}", server.events);
    assert!(said[0].contains("has no pods of its role"), "{said:?}");
    server.create(Kind::Pod, pod("d", Some(("group", 2))));
    assert!(!is_held(&server, "d"), "{:?}", server.events);
}
