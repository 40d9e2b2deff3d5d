//! Draws what a cluster has besides Workloads: flavors, cohorts, queues, and nodes of a topology.
//!
//! Invariant: the order of draws is part of the scenarios. Every draw that is added or moved changes all scenarios after it.

use super::random::Random;
use super::suite::Suite;
use serde_json::{Value, json};

/// API version of the kinds of queues.
pub(super) const API_VERSION: &str = "kueue.x-k8s.io/v1beta2";
/// Namespace of all LocalQueues and Workloads.
pub(super) const NAMESPACE: &str = "default";
/// Namespace that some ClusterQueues accept instead.
const OTHER_NAMESPACE: &str = "other";
/// Node label of single nodes, the lowest level that a topology can have.
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
/// Levels of the topologies, the widest first.
static LEVELS: [&[&str]; 3] = [&["block", "rack"], &["block", "rack", HOSTNAME], &["rack", HOSTNAME]];
/// Resources; a ClusterQueue covers the first one, two or three.
static RESOURCES: [&str; 3] = ["cpu", "memory", "example.com/gpu"];
/// Weights of fair sharing.
static WEIGHTS: [&str; 5] = ["0", "0.5", "1", "2", "3"];

/// Everything but Workloads.
pub(super) struct Cluster {
    pub(super) suite: Suite,
    /// In the order in which they are given to the program.
    pub(super) objects: Vec<Value>,
    /// Where Workloads are queued.
    pub(super) queues: Vec<Queue>,
    /// Names of the ResourceFlavors.
    pub(super) flavors: Vec<String>,
    /// Node labels of the topology, the widest level first; empty without a topology.
    pub(super) levels: &'static [&'static str],
    /// Largest nominal quota of a ClusterQueue.
    pub(super) largest_quota: u64,
}

/// A LocalQueue.
pub(super) struct Queue {
    pub(super) name: String,
    /// Resources that its ClusterQueue covers.
    pub(super) resources: &'static [&'static str],
}

/// How quotas are drawn.
#[derive(Clone, Copy)]
struct Quotas {
    /// Largest nominal quota.
    largest: u64,
    /// Whether there are limits of borrowing and lending, which need a cohort.
    limits: bool,
}

/// Returns an amount as a quantity: Gi of memory, else units.
pub(super) fn amount(resource: &str, number: u64) -> String {
    if resource == "memory" { format!("{number}Gi") } else { number.to_string() }
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

impl Cluster {
    /// Draws a cluster.
    pub(super) fn draw(suite: Suite, random: &mut Random) -> Self {
        let namespaces = [(NAMESPACE, "a"), (OTHER_NAMESPACE, "b")].map(|(name, team)| {
            let metadata = json!({"name": name, "labels": {"team": team}});
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        });
        let largest_quota = *random.pick(&[4, 6, 8, 8, 10]);
        let flavors = (0..random.between(suite.flavors())).map(|number| format!("f{number}")).collect();
        let objects = Vec::from(namespaces);
        let queues = Vec::new();
        let mut cluster = Self { suite, objects, queues, flavors, levels: &[], largest_quota };
        if suite == Suite::Tas {
            cluster.draw_topology(random);
        }
        cluster.draw_flavors(random);
        let cohorts = if suite.has_trees() { cluster.draw_cohorts(random) } else { vec!["all".to_owned()] };
        for number in 0..random.between(suite.queues()) {
            cluster.draw_queue(random, &format!("cq{number}"), &cohorts);
        }
        cluster
    }

    fn draw_topology(&mut self, random: &mut Random) {
        self.levels = *random.pick(&LEVELS);
        let levels: Vec<Value> = self.levels.iter().map(|level| json!({"nodeLabel": level})).collect();
        self.objects.push(object("Topology", "topo", &json!({"levels": levels})));
        let mut nodes = 0;
        for flavor in self.flavors.clone() {
            for block in 0..random.between(1..=2) {
                for rack in 0..random.between(1..=3) {
                    for _ in 0..random.between(1..=3) {
                        nodes += 1;
                        let rack = format!("{flavor}-b{block}-r{rack}");
                        let block = format!("{flavor}-b{block}");
                        self.draw_node(random, &format!("n{nodes}"), [&flavor, &block, &rack]);
                    }
                }
            }
        }
    }

    fn draw_node(&mut self, random: &mut Random, name: &str, [pool, block, rack]: [&str; 3]) {
        let mut spec = json!({});
        if random.chance(5) {
            spec["taints"] = json!([{"key": "maint", "value": "x", "effect": "NoSchedule"}]);
        }
        if random.chance(5) {
            spec["unschedulable"] = json!(true);
        }
        let allocatable = json!({
            "cpu": random.pick(&["2", "4", "4", "8"]),
            "memory": random.pick(&["2Gi", "4Gi", "8Gi", "16Gi"]),
            "pods": random.pick(&["3", "5", "10", "110"]),
        });
        let ready = if random.chance(6) { "False" } else { "True" };
        let labels = json!({"pool": pool, "block": block, "rack": rack, (HOSTNAME): name});
        let status = json!({"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]});
        let metadata = json!({"name": name, "labels": labels});
        self.objects.push(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status
        }));
        if random.chance(10) {
            // A pod that is not queued: it uses capacity outside topology assignments.
            let metadata = json!({"name": format!("sys-{name}"), "namespace": OTHER_NAMESPACE});
            let containers = json!([{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]);
            let spec = json!({"nodeName": name, "containers": containers});
            let status = json!({"phase": "Running"});
            self.objects.push(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status
            }));
        }
    }

    fn draw_flavors(&mut self, random: &mut Random) {
        for name in &self.flavors {
            let mut spec = json!({});
            if self.suite == Suite::Flavor {
                if random.chance(45) {
                    spec["nodeLabels"] = json!({"type": name});
                }
                if random.chance(35) {
                    spec["nodeTaints"] = json!([{"key": "spot", "value": "true", "effect": "NoSchedule"}]);
                }
            }
            if self.suite == Suite::Tas {
                spec = json!({"nodeLabels": {"pool": name}, "topologyName": "topo"});
            }
            self.objects.push(object("ResourceFlavor", name, &spec));
        }
    }

    /// Draws trees of cohorts and returns their names.
    fn draw_cohorts(&mut self, random: &mut Random) -> Vec<String> {
        let names: Vec<String> = (0..random.between(2..=5)).map(|number| format!("co{number}")).collect();
        for (index, name) in names.iter().enumerate() {
            let mut spec = json!({});
            let has_parent = index > 0 && random.chance(75);
            if has_parent {
                spec["parentName"] = json!(names[random.index(index)]);
            }
            if random.chance(50) {
                let quotas = Quotas { largest: 3, limits: has_parent };
                spec["resourceGroups"] = self.draw_groups(random, quotas).0;
            }
            if self.suite == Suite::Fair && random.chance(80) {
                spec["fairSharing"] = json!({"weight": random.pick(&WEIGHTS)});
            }
            self.objects.push(object("Cohort", name, &spec));
        }
        names
    }

    /// Draws a ClusterQueue and its LocalQueue.
    fn draw_queue(&mut self, random: &mut Random, name: &str, cohorts: &[String]) {
        let other = random.chance(4);
        let selector = if other { json!({"matchLabels": {"team": "b"}}) } else { json!({}) };
        let mut spec = json!({"namespaceSelector": selector});
        let has_cohort = random.chance(90);
        if has_cohort {
            spec["cohortName"] = json!(random.pick(cohorts));
        }
        spec["queueingStrategy"] = json!(random.pick(&["BestEffortFIFO", "BestEffortFIFO", "StrictFIFO"]));
        spec["flavorFungibility"] = draw_fungibility(random);
        spec["preemption"] = draw_preemption(self.suite, random);
        if self.suite == Suite::Fair && random.chance(45) {
            spec["fairSharing"] = json!({"weight": random.pick(&WEIGHTS)});
        }
        if random.chance(4) {
            spec["stopPolicy"] = json!("Hold");
        }
        let quotas = Quotas { largest: self.largest_quota, limits: has_cohort };
        let (groups, resources) = self.draw_groups(random, quotas);
        spec["resourceGroups"] = groups;
        self.objects.push(object("ClusterQueue", name, &spec));
        let queue = Queue { name: format!("lq-{name}"), resources };
        let mut local_queue = object("LocalQueue", &queue.name, &json!({"clusterQueue": name}));
        local_queue["metadata"]["namespace"] = json!(NAMESPACE);
        self.objects.push(local_queue);
        self.queues.push(queue);
    }

    /// Draws resource groups and returns them with the resources that they cover.
    fn draw_groups(&self, random: &mut Random, quotas: Quotas) -> (Value, &'static [&'static str]) {
        let counts: &[usize] = if self.suite == Suite::Tas { &[1, 2] } else { &[1, 1, 2, 3] };
        let resources = &RESOURCES[..*random.pick(counts)];
        let can_be_two = self.suite.has_two_groups() && resources.len() > 1 && self.flavors.len() > 1;
        let groups = if can_be_two && random.chance(35) {
            let (first, rest) = self.flavors.split_at(1 + random.index(self.flavors.len() - 1));
            let first = draw_group(random, &resources[..1], first, quotas);
            vec![first, draw_group(random, &resources[1..], rest, quotas)]
        } else {
            let mut flavors: Vec<String> =
                self.flavors.iter().filter(|_| random.chance(70)).cloned().collect();
            if flavors.is_empty() {
                flavors.extend(self.flavors.first().cloned());
            }
            vec![draw_group(random, resources, &flavors, quotas)]
        };
        (json!(groups), resources)
    }
}

fn draw_group(random: &mut Random, resources: &[&str], flavors: &[String], quotas: Quotas) -> Value {
    let mut drawn = Vec::new();
    for flavor in flavors {
        let quotas: Vec<Value> =
            resources.iter().map(|resource| draw_quota(random, resource, quotas)).collect();
        drawn.push(json!({"name": flavor, "resources": quotas}));
    }
    json!({"coveredResources": resources, "flavors": drawn})
}

fn draw_quota(random: &mut Random, resource: &str, quotas: Quotas) -> Value {
    let nominal = random.below(quotas.largest + 1);
    let mut quota = json!({"name": resource, "nominalQuota": amount(resource, nominal)});
    if quotas.limits && random.chance(22) {
        quota["borrowingLimit"] = json!(amount(resource, random.between(0..=6)));
    }
    if quotas.limits && random.chance(22) {
        quota["lendingLimit"] = json!(amount(resource, random.between(0..=nominal)));
    }
    quota
}

fn draw_fungibility(random: &mut Random) -> Value {
    let (stop, next) = ("MayStopSearch", "TryNextFlavor");
    let mut fungibility = json!({
        "whenCanBorrow": random.pick(&[stop, stop, stop, next]),
        "whenCanPreempt": random.pick(&[next, next, next, stop]),
    });
    if random.chance(20) {
        let preferences = ["BorrowingOverPreemption", "PreemptionOverBorrowing"];
        fungibility["preference"] = json!(random.pick(&preferences));
    }
    fungibility
}

fn draw_preemption(suite: Suite, random: &mut Random) -> Value {
    let (any, lower, newer) = ("Any", "LowerPriority", "LowerOrNewerEqualPriority");
    let reclaim = *random.pick(&[any, any, any, lower, lower, "Never"]);
    let mut borrow = json!({"policy": "Never"});
    // Validation refuses it together with fair sharing, and without reclaiming.
    if suite != Suite::Fair && reclaim != "Never" && random.chance(40) {
        borrow = json!({"policy": lower});
        if random.chance(55) {
            borrow["maxPriorityThreshold"] = json!(random.pick(&[-1, 0, 1, 2, 3]));
        }
    }
    let within = *random.pick(&[lower, lower, lower, newer, newer, "Never"]);
    json!({"withinClusterQueue": within, "reclaimWithinCohort": reclaim, "borrowWithinCohort": borrow})
}
