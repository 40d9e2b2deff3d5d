//! Groups of pods whose controllers replace each pod that is deleted: a replacement that comes too early is neither deleted, which
//! its controller would answer with the next one, nor does it run beside the pod that it replaces.

use crate::fixtures::job_server::{JobServer, pod};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::cache::Kind;

const GROUP: &str = "g";

/// A group with two CPUs for its two pods.
struct Group {
    server: JobServer,
    serving: bool,
}

impl Group {
    fn new(serving: bool) -> Self {
        Self { server: JobServer::new(&["pod"], "2"), serving }
    }

    fn running(serving: bool) -> Self {
        let mut group = Self::new(serving);
        for name in ["a", "b"] {
            group.create(name);
        }
        for name in ["a", "b"] {
            group.run(name);
        }
        group
    }

    fn create(&mut self, name: &str) {
        let mut pod = pod(name, Some((GROUP, 2)));
        if self.serving {
            pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-serving"] = json!("true");
        }
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r",
            "uid": "r", "controller": true}]);
        self.server.create(Kind::Pod, pod);
        self.check();
    }

    fn run(&mut self, name: &str) {
        assert!(self.is_started(name), "{name}");
        self.server.run_pod(name);
        self.server.edit(Kind::Pod, name, |pod| {
            pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        });
    }

    fn delete(&mut self, name: &str) {
        self.server.delete_member(name);
        self.check();
    }

    /// The containers of a pod end; its node has nothing more to do for it.
    fn end(&mut self, name: &str, phase: &str) {
        self.server.edit(Kind::Pod, name, |pod| {
            pod["status"] = json!({"phase": phase});
            let finalizers = pod["metadata"]["finalizers"].as_array().unwrap();
            let rest: Vec<Value> =
                finalizers.iter().filter(|name| **name != "test/kubelet").cloned().collect();
            pod["metadata"]["finalizers"] = json!(rest);
        });
        self.check();
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.server.get(Kind::Pod, name)
    }

    /// Returns whether a pod exists without the gate.
    fn is_started(&self, name: &str) -> bool {
        let gates = self.get(name).map(|pod| pod["spec"]["schedulingGates"].as_array());
        gates.is_some_and(|gates| gates.is_none_or(Vec::is_empty))
    }

    /// Returns whether a pod exists with the gate, and is not deleted.
    fn waits(&self, name: &str) -> bool {
        let pod = self.get(name).unwrap_or_else(|| {
            let said: Vec<_> = self.server.events.iter().map(|e| (&e.key.name, &e.reason, &e.note)).collect();
            panic!("{name} was deleted: {said:#?}")
        });
        assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{name} is deleted");
        !self.is_started(name)
    }

    fn has_event(&self, name: &str, reason: &str) -> bool {
        let mut events = self.server.events.iter();
        events.any(|event| *event.key.name == *name && event.reason == reason)
    }

    /// No more pods run than there is quota for.
    fn check(&self) {
        let names: Vec<String> = self
            .server
            .all(Kind::Pod)
            .iter()
            .filter(|pod| !["Failed", "Succeeded"].iter().any(|phase| pod["status"]["phase"] == *phase))
            .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
            .collect();
        let started = names.iter().filter(|name| self.is_started(name)).count();
        assert!(started <= 2, "{started} of {names:?} run");
    }
}

/// A replacement takes the place of a pod that terminates when that has ended, whatever its exit code.
#[test]
fn replacement_waits_for_the_end_of_its_predecessor() {
    for (serving, phase) in [(true, "Failed"), (true, "Succeeded"), (false, "Failed")] {
        let case = format!("serving: {serving}, {phase}");
        let mut group = Group::running(serving);
        group.delete("a");
        group.create("c");
        assert!(group.waits("c"), "{case}: its predecessor terminates");
        group.end("a", phase);
        assert!(group.get("a").is_none(), "{case}: it is replaced");
        assert!(group.is_started("c") && group.is_started("b"), "{case}");
        assert!(!group.has_event("c", "ExcessPodDeleted"), "{case}");
    }
}

/// A pod of a group that serves may end by itself and not be deleted: the next one takes its place.
#[test]
fn replacement_takes_the_place_of_a_pod_that_succeeded() {
    let mut group = Group::running(true);
    group.end("a", "Succeeded");
    group.create("c");
    assert!(group.is_started("c"));
    let finalizers = &group.get("a").unwrap()["metadata"]["finalizers"];
    assert!(finalizers.as_array().is_none_or(Vec::is_empty), "{finalizers}");
}

/// The replacements of evicted pods that end with exit code 0 start with the next admission.
#[test]
fn evicted_group_starts_again_whose_pods_succeed() {
    let mut group = Group::running(true);
    group.server.deactivate();
    for name in ["c", "d"] {
        group.create(name);
        assert!(group.waits(name));
    }
    assert!(group.server.holds_quota(), "its pods terminate");
    for name in ["a", "b"] {
        group.end(name, "Succeeded");
        assert!(group.get(name).is_none(), "{name} is replaced");
    }
    assert!(!group.server.holds_quota() && group.waits("c") && group.waits("d"));
    group.server.edit(Kind::Workload, GROUP, |workload| workload["spec"]["active"] = json!(true));
    assert!(group.is_started("c") && group.is_started("d"));
    assert!(group.server.holds_quota());
}

/// The surge pod of a roll-out waits, says how to go on, and starts when a pod of the old revision has ended.
#[test]
fn surge_pod_waits_with_an_event() {
    for serving in [true, false] {
        let mut group = Group::running(serving);
        group.create("c");
        let writes = group.server.writes;
        assert!(group.waits("c") && group.has_event("c", "ExcessPodWaits"), "serving: {serving}");
        // The pod has no place in the Workload of its group, and it is known why; the others have one.
        let why = group.server.why_no_workload("pod", "c").unwrap();
        let said = format!(
            "Pod group {GROUP} has all pods that its Workload asks for: the pod waits until one of them has ended"
        );
        assert!(why.starts_with(&said), "{why}");
        assert_eq!(group.server.why_no_workload("pod", "a"), None);
        group.delete("b");
        group.end("b", "Failed");
        assert!(group.is_started("c") && group.server.writes > writes, "serving: {serving}");
        assert_eq!(group.server.why_no_workload("pod", "c"), None);
    }
}

/// A pod that waits because it is too many says nothing about whether the others are ready.
#[test]
fn group_with_a_pod_too_many_is_made_of_the_others() {
    let mut group = Group::new(true);
    // One step for all: the Workload is made from three.
    group.create("a");
    group.create("b");
    group.create("c");
    let workload = group.server.get(Kind::Workload, GROUP).unwrap();
    assert_eq!(workload["spec"]["podSets"][0]["count"], 2);
    assert!(group.is_started("a") && group.is_started("b") && group.waits("c"));
}

/// The Workload of a group is deleted while its pods take their time to end: replacements wait for the next Workload. Its controller
/// would answer their deletion with the next ones.
#[test]
fn replacements_wait_for_the_next_workload() {
    for serving in [true, false] {
        let mut group = Group::running(serving);
        group.server.delete(Kind::Workload, GROUP);
        for name in ["a", "b"] {
            let deleted = &group.get(name).unwrap()["metadata"]["deletionTimestamp"];
            assert!(deleted.is_string(), "serving: {serving}, {name}");
        }
        group.server.advance(SignedDuration::from_secs(2));
        for name in ["c", "d"] {
            group.create(name);
            assert!(group.waits(name), "serving: {serving}");
        }
        for name in ["a", "b"] {
            assert!(group.waits("c") && group.waits("d"), "serving: {serving}");
            group.end(name, "Failed");
            assert!(group.get(name).is_none(), "serving: {serving}, {name} stays");
        }
        group.server.advance(SignedDuration::from_secs(2));
        assert!(group.is_started("c") && group.is_started("d"), "serving: {serving}");
    }
}
