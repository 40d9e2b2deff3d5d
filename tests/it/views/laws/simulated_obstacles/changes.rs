//! What an answer names, done in the objects of a cluster: a raised limit, a node, an object that is made, started or corrected.

use crate::fixtures::offline_objects::{kueue, meta};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice::visibility::views::{BlockerKindView, ChangeKind, Verdict};

/// How much an answer promises of what it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promise {
    /// It is enough for all that is taken up to the workload.
    Admits,
    /// It is in the way; something else may be, too.
    Removes,
}

/// The objects of a cluster.
pub(super) struct Objects(pub(super) Vec<Value>);

impl Objects {
    fn get(&mut self, kind: &str, name: &str) -> Option<&mut Value> {
        self.0.iter_mut().find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
    }

    /// Does what the answer about a pending workload names.
    pub(super) fn follow(&mut self, found: &Verdict) -> Result<Promise, TestCaseError> {
        let row = &found.workload;
        let name = &row.metadata.name;
        let is_done = match row.reason.as_str() {
            "Deactivated" => {
                self.get("Workload", name).unwrap()["spec"]["active"] = json!(true);
                true
            }
            "Suspended" => self.start(&row.message),
            "Misconfigured" => self.make(&row.message),
            _ if found.never_fits && found.obstacle.is_empty() => self.raise_limits(found),
            _ if found.never_fits => self.correct(found),
            _ if row.stuck => self.delete(&found.obstacle),
            _ => return self.give(found),
        };
        prop_assert!(is_done, "nothing is named");
        Ok(Promise::Removes)
    }

    /// Starts the queues that a message names, and makes their checks active.
    fn start(&mut self, message: &str) -> bool {
        let mut is_done = false;
        for object in &mut self.0 {
            let (kind, name) =
                (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
            let stops =
                message.contains(&format!("{kind} {name} ")) && object["spec"]["stopPolicy"] == "Hold";
            let is_check =
                kind == "AdmissionCheck" && message.contains(&format!("AdmissionCheck(s): {name}"));
            if stops {
                object["spec"]["stopPolicy"] = json!("None");
            }
            if is_check {
                object["status"]["conditions"][0]["status"] = json!("True");
            }
            is_done |= stops || is_check;
        }
        is_done
    }

    /// Makes the queue that a message names, or has the namespace selected.
    fn make(&mut self, message: &str) -> bool {
        if message == "LocalQueue missing doesn't exist" {
            self.0.push(kueue("LocalQueue", "missing", "ns", &json!({"clusterQueue": "q0"})));
        } else if message == "ClusterQueue gone doesn't exist" {
            let flavor =
                |name: &str| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": "100"}]});
            let flavors = ["plain", "tree", "gpu"].map(flavor);
            let groups = json!([{"coveredResources": ["cpu"], "flavors": flavors}]);
            self.0.push(kueue(
                "ClusterQueue",
                "gone",
                "",
                &json!({"namespaceSelector": {}, "resourceGroups": groups}),
            ));
        } else if message.contains("namespace doesn't match") {
            self.get("Namespace", "ns").unwrap()["metadata"]["labels"] = json!({"team": "other"});
        } else {
            return false;
        }
        true
    }

    /// Raises the nominal quotas of the first flavor of which the workload requests more than its queue can have.
    fn raise_limits(&mut self, found: &Verdict) -> bool {
        let never = || found.blockers.iter().filter(|blocker| blocker.kind == BlockerKindView::NeverFits);
        let Some(first) = never().next() else { return false };
        let of_flavor = never().filter(|blocker| blocker.flavor == first.flavor);
        let missing =
            of_flavor.filter_map(|blocker| blocker.missing.as_ref()?.value.parse::<u32>().ok()).max();
        let Some(missing) = missing.filter(|missing| *missing > 0) else { return false };
        let queue = ("ClusterQueue", &*found.workload.cluster_queue);
        let limit = self.limit(queue, &first.flavor, "nominalQuota");
        *limit = json!((limit.as_str().unwrap().parse::<u32>().unwrap() + missing).to_string());
        true
    }

    /// The limit of a node of the quota tree; a Cohort without an object gets one.
    fn limit(&mut self, (kind, name): (&str, &str), flavor: &str, field: &str) -> &mut Value {
        if self.get(kind, name).is_none() {
            self.0.push(kueue(
                kind,
                name,
                "",
                &json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": []}]}),
            ));
        }
        let flavors =
            self.get(kind, name).unwrap()["spec"]["resourceGroups"][0]["flavors"].as_array_mut().unwrap();
        if !flavors.iter().any(|known| known["name"] == flavor) {
            flavors.push(json!({"name": flavor, "resources": [{"name": "cpu", "nominalQuota": "0"}]}));
        }
        let known = flavors.iter_mut().find(|known| known["name"] == flavor).unwrap();
        &mut known["resources"][0][field]
    }

    /// Corrects flavor, topology, nodes or pods, whichever the obstacle of a workload that can never be admitted names.
    fn correct(&mut self, found: &Verdict) -> bool {
        let (said, name) = (&found.obstacle, &found.workload.metadata.name);
        if let Some((_, rest)) = said.split_once(" has gpu=") {
            let value = rest.split(';').next().unwrap();
            let flavor = format!("gpu-{value}");
            self.0.push(kueue("ResourceFlavor", &flavor, "", &json!({"nodeLabels": {"gpu": value}})));
            *self.limit(("ClusterQueue", &found.workload.cluster_queue), &flavor, "nominalQuota") =
                json!("100");
        } else if said.contains("nothing of which") {
            for set in self.pod_sets(name) {
                set["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1");
            }
        } else if said.contains("tree takes only pods with a topology") {
            for set in self.pod_sets(name).filter(|set| set.get("topologyRequest").is_none()) {
                set["topologyRequest"] = json!({"unconstrained": true});
            }
        } else if said.contains("has no topology, and the pods request one") {
            for set in self.pod_sets(name) {
                set.as_object_mut().unwrap().remove("topologyRequest");
            }
        } else if said.contains("the topology of tree does not contain the level") {
            let levels = self.get("Topology", "t").unwrap()["spec"]["levels"].as_array_mut().unwrap();
            levels.insert(0, json!({"nodeLabel": "zone"}));
            for node in self.0.iter_mut().filter(|object| object["kind"] == "Node") {
                node["metadata"]["labels"]["zone"] = json!("z");
            }
        } else if said.contains("tree") {
            self.add_nodes(name);
        } else {
            return false;
        }
        true
    }

    fn pod_sets(&mut self, name: &str) -> impl Iterator<Item = &mut Value> {
        self.get("Workload", name).unwrap()["spec"]["podSets"].as_array_mut().unwrap().iter_mut()
    }

    /// Adds nodes that take all pods of all workloads, where those of a workload may run.
    fn add_nodes(&mut self, workload: &str) {
        let selector = |set: &mut Value| set["template"]["spec"]["nodeSelector"]["gpu"].clone();
        let selected: Vec<Value> = self.pod_sets(workload).map(selector).collect();
        for value in selected {
            let name = format!("added-{}", self.0.len());
            let mut metadata = meta(&name, "");
            metadata["labels"] =
                json!({"pool": "tree", "rack": name, "kubernetes.io/hostname": name, "zone": "z"});
            if value.is_string() {
                metadata["labels"]["gpu"] = value;
            }
            self.0.push(json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata,
                "status": {"allocatable": {"cpu": "1000", "pods": "1000"}, "conditions": [{"type": "Ready", "status": "True"}]}}));
        }
    }

    /// Deletes the workload that keeps those behind it without end.
    fn delete(&mut self, said: &str) -> bool {
        let named =
            said.split_once(". Before it is ").map_or(said.strip_prefix("Behind "), |(_, rest)| Some(rest));
        let name = named.and_then(|rest| rest.split_once(',')?.0.strip_prefix("ns/"));
        let before = self.0.len();
        self.0.retain(|object| object["kind"] != "Workload" || object["metadata"]["name"].as_str() != name);
        self.0.len() < before
    }

    /// Gives what others use: the quota that would be enough, and room on nodes where that is a condition.
    fn give(&mut self, found: &Verdict) -> Result<Promise, TestCaseError> {
        let enough = found.options.iter().find(|option| option.kind == ChangeKind::Quota && option.possible);
        let waits_for_nodes =
            found.blockers.iter().any(|blocker| blocker.kind == BlockerKindView::NodesInUse)
                || found.obstacle.contains("waits for nodes that others use");
        prop_assert!(enough.is_some() || waits_for_nodes, "nothing is named");
        // Workloads ahead may take the quota once there are nodes; only then is it in the way.
        let promise = if enough.is_some() { Promise::Admits } else { Promise::Removes };
        if let Some(enough) = enough {
            self.raise(&enough.detail, &found.workload.cluster_queue);
        }
        if waits_for_nodes
            || enough.is_some_and(|enough| enough.detail.contains("if nodes of tree have room"))
        {
            self.add_nodes(&found.workload.metadata.name);
        }
        Ok(promise)
    }

    /// Does what a line says: `a nominal quota of 5 of cpu in plain and of 3 of cpu in tree at ClusterQueue q would be enough`.
    fn raise(&mut self, detail: &str, own: &str) {
        let (field, rest) = match detail.rsplit_once("a nominal quota of ") {
            Some((_, rest)) => ("nominalQuota", rest),
            None => ("borrowingLimit", detail.rsplit_once("a borrowing limit of ").unwrap().1),
        };
        let (amounts, rest) = rest.split_once(" at ").unwrap();
        let mut words = rest.split([' ', ',']);
        let (kind, name) = (words.next().unwrap(), words.next().unwrap());
        for amount in amounts.split(" and of ") {
            let (value, flavor) = amount.split_once(" of cpu in ").unwrap_or((amount, ""));
            let flavor = if flavor.is_empty() { self.only_flavor(own) } else { flavor.to_owned() };
            *self.limit((kind, name), &flavor, field) = json!(value);
        }
    }

    /// The flavor that is meant where none is named.
    fn only_flavor(&mut self, queue: &str) -> String {
        let flavors = &self.get("ClusterQueue", queue).unwrap()["spec"]["resourceGroups"][0]["flavors"];
        let flavors = flavors.as_array().unwrap();
        assert_eq!(flavors.len(), 1, "no flavor is named");
        flavors[0]["name"].as_str().unwrap().to_owned()
    }
}
