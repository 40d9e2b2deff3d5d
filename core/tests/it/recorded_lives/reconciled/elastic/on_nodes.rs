//! Elastic jobs on the nodes of a topology: pods that run keep their nodes, only others are placed, and what the pods that go
//! had is free. After each write, no node has more pods than fit.

use super::super::plane::{Fault, Plane, settings};
use super::story::{FAULTS, JOB, Story, charged, ended, quota_is_right};
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::frameworks::JobKind;
use sluice_core::simulate::fake_api_server::FakeApiServer;
use std::collections::BTreeMap;

const HOST: &str = "kubernetes.io/hostname";
/// Pods that fit on a node.
const ROOM: i64 = 3;

/// Pods by node, from the topology assignments of a Workload.
fn assigned(workload: &Value) -> BTreeMap<String, i64> {
    let assignment = &workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"];
    let parsed = serde_json::from_value(assignment.clone()).ok();
    let placement = parsed.and_then(|parsed| sluice_core::topology::decode(&parsed));
    let domains = placement.into_iter().flat_map(|placement| placement.domains);
    domains.map(|(values, pods)| (values.last().unwrap().to_string(), i64::from(pods))).collect()
}

fn nodes_have_room(server: &FakeApiServer) {
    quota_is_right(server);
    let mut charges: BTreeMap<String, i64> = BTreeMap::new();
    for (node, pods) in charged(server).into_iter().flat_map(assigned) {
        *charges.entry(node).or_default() += pods;
    }
    assert!(charges.values().all(|pods| *pods <= ROOM), "{charges:?}");
    let mut running: BTreeMap<&str, i64> = BTreeMap::new();
    for pod in server.all(Kind::Pod).filter(|pod| !ended(pod)) {
        if let Some(node) = pod["spec"]["nodeSelector"][HOST].as_str() {
            *running.entry(node).or_default() += 1;
        }
    }
    assert!(running.values().all(|pods| *pods <= ROOM), "{running:?}");
}

/// A node on which three pods fit.
fn node(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"pool": "p", HOST: name}},
        "status": {"allocatable": {"cpu": "3", "pods": "10"}, "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

impl Story {
    /// Three nodes, a topology of them, and a queue with quota for all.
    fn on_nodes(fault: Fault) -> Self {
        let mut settings = settings(JobKind::BATCH_JOB);
        settings.engine.gates.elastic_topology = true;
        let mut story = Self::on(Plane::with_settings(settings, JobKind::BATCH_JOB, "ns", fault));
        story.plane.law = nodes_have_room;
        let levels = json!([{"nodeLabel": HOST}]);
        let topology = json!({"metadata": {"name": "t"}, "spec": {"levels": levels}});
        story.plane.create(Kind::Topology, &topology);
        for name in ["a", "b", "c"] {
            story.plane.create(Kind::Node, &node(name));
        }
        let flavor = ObjectKey::new("", "f");
        story.plane.harness.server.edit(Kind::ResourceFlavor, &flavor, |flavor| {
            flavor["spec"] = json!({"topologyName": "t", "nodeLabels": {"pool": "p"}});
        });
        story.settle();
        story
    }

    /// Binds the pods that may run to the nodes that they ask for.
    fn bind(&mut self) {
        for key in self.plane.harness.server.keys_of(Kind::Pod) {
            self.plane.harness.server.edit(Kind::Pod, &key, |pod| {
                let gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
                let wanted = pod["spec"]["nodeSelector"][HOST].clone();
                if !gated && !wanted.is_null() {
                    pod["spec"]["nodeName"] = wanted;
                }
            });
        }
        self.settle();
    }

    /// Number of pods of a Job on each node.
    fn on_node(&self, job: &str) -> Vec<(String, usize)> {
        let mut all: BTreeMap<String, usize> = BTreeMap::new();
        for pod in self.plane.harness.server.all(Kind::Pod) {
            if pod["metadata"]["ownerReferences"][0]["name"] == job && !ended(pod) {
                let node = pod["spec"]["nodeSelector"][HOST].as_str().unwrap_or("gated");
                *all.entry(node.to_owned()).or_default() += 1;
            }
        }
        all.into_iter().collect()
    }

    /// Pods by node that a Job is charged for.
    fn charged_on_nodes(&self, job: &str) -> Vec<(String, i64)> {
        let own = charged(&self.plane.harness.server)
            .into_iter()
            .filter(|workload| workload["metadata"]["ownerReferences"][0]["name"] == job);
        own.flat_map(assigned).collect()
    }
}

fn on<T: Copy>(nodes: &[(&str, T)]) -> Vec<(String, T)> {
    nodes.iter().map(|(node, pods)| ((*node).to_owned(), *pods)).collect()
}

#[test]
fn pods_that_run_keep_their_nodes_when_the_job_grows() {
    for fault in FAULTS {
        let mut story = Story::on_nodes(fault);
        story.create("j", 2, true);
        story.create("other", 1, false);
        story.bind();
        assert_eq!((story.on_node("j"), story.on_node("other")), (on(&[("a", 2)]), on(&[("a", 1)])));
        story.scale(5);
        story.bind();
        assert_eq!(story.charged_on_nodes("j"), on(&[("a", 2), ("b", 3)]), "{fault:?}");
        assert_eq!(story.on_node("j"), on(&[("a", 2), ("b", 3)]), "{fault:?}");
        story.scale(8);
        assert_eq!(story.charged_on_nodes("j"), on(&[("a", 2), ("b", 3), ("c", 3)]), "{fault:?}");
        assert_eq!((story.slices(), story.pods()), (vec![(8, true)], (8, 0)), "{fault:?}");
    }
}

/// What is free on the nodes, and not what the job has, decides whether a larger slice waits.
#[test]
fn job_waits_for_nodes_for_the_pods_that_it_adds() {
    for fault in FAULTS {
        let mut story = Story::on_nodes(fault);
        story.create("j", 3, true);
        story.create("other", 3, false);
        let key = ObjectKey::new("", "c");
        story.plane.harness.server.edit(Kind::Node, &key, |node| node["spec"]["unschedulable"] = json!(true));
        story.settle();
        story.scale(5);
        assert_eq!((story.slices(), story.pods()), (vec![(3, true), (5, false)], (3, 2)), "{fault:?}");
        story.finish("other");
        assert_eq!((story.slices(), story.pods()), (vec![(5, true)], (5, 0)), "{fault:?}");
        assert_eq!(story.on_node("j"), on(&[("a", 3), ("b", 2)]), "{fault:?}");
    }
}

#[test]
fn slice_that_shrinks_keeps_the_nodes_of_its_pods() {
    for fault in FAULTS {
        let mut story = Story::on_nodes(fault);
        story.create("j", 3, true);
        story.scale(5);
        story.bind();
        assert_eq!(story.on_node("j"), on(&[("a", 3), ("b", 2)]), "{fault:?}");
        let now = story.plane.now();
        let first = story.plane.harness.server.keys_of(Kind::Pod);
        for key in first.into_iter().take(3) {
            story.plane.harness.server.delete(Kind::Pod, &key, now);
        }
        story.scale(2);
        assert_eq!(story.charged_on_nodes("j"), on(&[("b", 2)]), "{fault:?}");
        story.create("third", 3, false);
        assert_eq!(story.charged_on_nodes("third"), on(&[("a", 3)]), "what was given up is free: {fault:?}");
        story.scale(3);
        assert_eq!(story.on_node("j"), on(&[("b", 3)]), "{fault:?}");
    }
}

/// The slice that takes over starts from the nodes of the one in use, although it was made for more pods and got smaller since.
#[test]
fn slice_that_shrinks_while_it_waits_starts_from_the_nodes_of_its_pods() {
    for fault in FAULTS {
        let mut story = Story::on_nodes(fault);
        story.create("j", 3, true);
        story.scale(5);
        story.create("other", 3, false);
        story.bind();
        story.scale(7);
        assert_eq!(story.slices(), [(5, true), (7, false)], "{fault:?}");
        let now = story.plane.now();
        for key in ["j-1", "j-2", "j-3"].map(|name| story.key(name)) {
            story.plane.harness.server.delete(Kind::Pod, &key, now);
        }
        story.scale(2);
        assert_eq!(story.on_node("j"), on(&[("b", 2)]), "{fault:?}");
        assert_eq!(story.charged_on_nodes("j"), on(&[("b", 2)]), "{fault:?}");
    }
}

#[test]
fn job_without_pods_keeps_no_node() {
    for fault in FAULTS {
        let mut story = Story::on_nodes(fault);
        story.create("j", 3, true);
        story.scale(0);
        assert_eq!((story.slices(), story.charged_on_nodes("j")), (vec![(0, true)], Vec::new()), "{fault:?}");
        story.scale(2);
        assert_eq!((story.slices(), story.on_node("j")), (vec![(2, true)], on(&[("a", 2)])), "{fault:?}");
    }
}

/// A node that takes no pods any more, but on which pods run: they stay there.
#[test]
fn pods_stay_on_a_cordoned_node() {
    for fault in FAULTS {
        let mut story = Story::on_nodes(fault);
        story.create("j", 2, true);
        story.bind();
        let key = ObjectKey::new("", "a");
        story.plane.harness.server.edit(Kind::Node, &key, |node| {
            node["spec"] = json!({"unschedulable": true, "taints": [
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]});
        });
        story.settle();
        story.scale(4);
        assert_eq!(story.charged_on_nodes("j"), on(&[("a", 2), ("b", 2)]), "{fault:?}");
        assert_eq!((story.pods(), story.on_node("j")), ((4, 0), on(&[("a", 2), ("b", 2)])), "{fault:?}");
    }
}

#[test]
fn evicted_job_gives_up_its_nodes_and_is_placed_again() {
    for fault in FAULTS {
        let mut story = Story::on_nodes(fault);
        story.create("j", 2, true);
        story.scale(5);
        story.bind();
        assert_eq!(story.on_node("j"), on(&[("a", 2), ("b", 3)]), "{fault:?}");
        let last = story.slice(true);
        story.edit(Kind::Workload, &last, |workload| workload["spec"]["active"] = json!(false));
        assert_eq!((story.charged_on_nodes("j"), story.on_node("j")), (Vec::new(), Vec::new()), "{fault:?}");
        story.create("other", 3, false);
        story.edit(Kind::Workload, &last, |workload| workload["spec"]["active"] = json!(true));
        assert_eq!(story.on_node("other"), on(&[("a", 3)]), "{fault:?}");
        assert_eq!(
            (story.slices(), story.on_node("j")),
            (vec![(5, true)], on(&[("b", 3), ("c", 2)])),
            "{fault:?}"
        );
    }
}

/// Pods whose slices are gone use their nodes, although they name the first slice only.
#[test]
fn pods_of_deleted_slices_use_their_nodes() {
    for fault in FAULTS {
        let mut story = Story::on_nodes(fault);
        story.create("j", 2, true);
        story.scale(3);
        story.bind();
        assert_eq!(story.on_node("j"), on(&[("a", 3)]), "{fault:?}");
        let (now, key) = (story.plane.now(), story.key("j"));
        story.plane.harness.server.delete(JOB, &key, now);
        story.settle();
        assert_eq!(story.plane.harness.server.all(Kind::Workload).count(), 0, "{fault:?}");
        story.create("next", 6, false);
        assert_eq!(story.charged_on_nodes("next"), on(&[("b", 3), ("c", 3)]), "{fault:?}");
    }
}

/// Pods that are added may not fit into the domain of those that run.
#[test]
fn constrained_elastic_job_is_refused_by_name() {
    for fault in FAULTS {
        let mut story = Story::on_nodes(fault);
        let template = json!({
            "metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": HOST}},
            "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/elastic-job"}], "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        });
        let metadata = json!({"name": "j", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"},
            "annotations": {"kueue.x-k8s.io/elastic-job": "true"}});
        let spec = json!({"suspend": true, "parallelism": 2, "template": template});
        story.plane.create(JOB, &json!({"metadata": metadata, "spec": spec}));
        story.settle();
        assert_eq!(story.slices(), [(2, false)], "{fault:?}");
        let slice = story.slice(false);
        let workload = story.plane.harness.server.get(Kind::Workload, &story.key(&slice)).unwrap();
        let text = workload["status"]["conditions"].to_string();
        assert!(text.contains("required topology is not supported with ElasticJobs"), "{text}");
    }
}
