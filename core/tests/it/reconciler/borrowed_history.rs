//! What the history says is borrowed is what the statuses of the ClusterQueues say, through cohorts joined and left, quotas of 0,
//! flavors removed, and queues deleted and made again.

use crate::fixtures::queue_cluster::Cluster;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::history::{UsageGroup, UsageQuery};
use sluice_core::reconciler::{CoreSettings, Delta};
use std::collections::BTreeMap;

/// Seconds between two steps: a status is written within a second, but for the limit of writes.
const PAUSE: i64 = 600;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Sets the quota.
    Quota(i64),
    /// Joins the cohort, or leaves it.
    Cohort(bool),
    /// Creates a Workload that asks for this many CPUs.
    Create(i64),
    /// Finishes the oldest Workload.
    Finish,
    /// Deletes the ClusterQueue by force, or makes it again.
    Delete,
    /// Takes the flavor away, or gives it back.
    Flavor,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0_i64..4).prop_map(Step::Quota),
        2 => any::<bool>().prop_map(Step::Cohort),
        4 => (1_i64..4).prop_map(Step::Create),
        2 => Just(Step::Finish),
        1 => Just(Step::Delete),
        1 => Just(Step::Flavor),
    ];
    prop::collection::vec(step, 1..24)
}

/// A ClusterQueue beside another one that lends to it, and what its statuses said.
struct Scene {
    cluster: Cluster,
    quota: i64,
    cohort: bool,
    flavor: &'static str,
    workloads: Vec<String>,
    /// Number of Workloads that were created.
    created: usize,
    /// CPUs × milliseconds that the statuses say are borrowed.
    borrowed: i128,
}

fn groups(flavor: &str, quota: i64) -> Value {
    json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": quota.to_string()}]}]}])
}

impl Scene {
    fn new() -> Self {
        let mut cluster = Cluster::new(CoreSettings::default());
        cluster.create(Kind::ResourceFlavor, json!({"metadata": {"name": "g"}, "spec": {}}));
        cluster.create(
            Kind::ClusterQueue,
            json!({"metadata": {"name": "lender"}, "spec": {"namespaceSelector": {}, "cohortName": "c",
                "resourceGroups": groups("f", 50)}}),
        );
        let mut scene = Self {
            cluster,
            quota: 2,
            cohort: false,
            flavor: "f",
            workloads: Vec::new(),
            created: 0,
            borrowed: 0,
        };
        scene.wait();
        scene
    }

    fn spec(&self) -> Value {
        let mut spec = json!({"namespaceSelector": {}, "resourceGroups": groups(self.flavor, self.quota)});
        if self.cohort {
            spec["cohortName"] = json!("c");
        }
        spec
    }

    fn apply(&mut self, step: Step) {
        let (key, now) = (ObjectKey::cluster("cq"), self.cluster.now);
        match step {
            Step::Quota(quota) => self.quota = quota,
            Step::Cohort(cohort) => self.cohort = cohort,
            Step::Flavor => self.flavor = if self.flavor == "f" { "g" } else { "f" },
            Step::Create(cpus) => {
                self.created += 1;
                let name = format!("w{}", self.created);
                let template = json!({"spec": {"containers": [
                    {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpus.to_string()}}}]}});
                let spec = json!({"queueName": "lq",
                    "podSets": [{"name": "main", "count": 1, "template": template}]});
                let object = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec});
                self.cluster.create(Kind::Workload, object);
                self.workloads.push(name);
            }
            Step::Finish if self.workloads.is_empty() => {}
            Step::Finish => {
                let name = self.workloads.remove(0);
                let condition = json!({"type": "Finished", "status": "True", "reason": "Succeeded", "message": "m",
                    "lastTransitionTime": now.round(jiff::Unit::Second).unwrap()});
                self.cluster.server.edit(Kind::Workload, &ObjectKey::new("ns", &name), |workload| {
                    let status = workload["status"]["conditions"].as_array_mut();
                    match status {
                        Some(conditions) => conditions.push(condition),
                        None => workload["status"] = json!({"conditions": [condition]}),
                    }
                });
            }
            Step::Delete if self.cluster.server.get(Kind::ClusterQueue, &key).is_some() => {
                self.cluster
                    .server
                    .edit(Kind::ClusterQueue, &key, |queue| queue["metadata"]["finalizers"] = json!([]));
                self.cluster.server.delete(Kind::ClusterQueue, &key, now);
            }
            Step::Delete => {
                let object = json!({"metadata": {"name": "cq"}, "spec": self.spec()});
                self.cluster.create(Kind::ClusterQueue, object);
            }
        }
        let spec = self.spec();
        if matches!(step, Step::Quota(_) | Step::Cohort(_) | Step::Flavor)
            && self.cluster.server.get(Kind::ClusterQueue, &key).is_some()
        {
            self.cluster.server.edit(Kind::ClusterQueue, &key, |queue| queue["spec"] = spec);
        }
        self.wait();
    }

    /// What the statuses of all ClusterQueues say is borrowed, in thousandths of CPUs.
    fn of_statuses(&self) -> i128 {
        let queues = self.cluster.server.all(Kind::ClusterQueue);
        let flavors =
            queues.flat_map(|queue| queue["status"]["flavorsUsage"].as_array().cloned().unwrap_or_default());
        let resources =
            flavors.flat_map(|flavor| flavor["resources"].as_array().cloned().unwrap_or_default());
        let cpus =
            resources.map(|resource| resource["borrowed"].as_str().unwrap_or("0").parse::<i128>().unwrap());
        cpus.sum::<i128>() * 1_000
    }

    /// Lets the statuses be written, compares them, and lets time pass.
    fn wait(&mut self) {
        self.cluster.advance_tenths(40, |_, _| {});
        let of_history: i128 =
            self.cluster.core.history().open_borrowed().values().flat_map(BTreeMap::values).sum();
        assert_eq!(of_history, self.of_statuses());
        self.borrowed += self.of_statuses() * i128::from(PAUSE) * 1_000;
        self.cluster.now = self.cluster.now.checked_add(SignedDuration::from_secs(PAUSE)).unwrap();
        self.cluster.core.apply_all([Delta::Tick], self.cluster.now);
    }

    /// What the history says is borrowed.
    fn of_usage(&mut self, by: UsageGroup) -> i128 {
        let cohorts = BTreeMap::new();
        let (from, until) = (Timestamp::MIN, self.cluster.now);
        let query = UsageQuery { by, from, until, resource: None, namespace: None, cohorts: &cohorts };
        let usage = self.cluster.core.history().view().usage(&query);
        usage.sums.iter().map(|row| row.borrowed).sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn borrowed_hours_are_those_of_the_statuses(steps in steps()) {
        let mut scene = Scene::new();
        for step in &steps {
            scene.apply(*step);
        }
        // Between a step and its status the amounts are those before or after: at most what all Workloads ask for.
        let tolerance = i128::try_from(steps.len() + 1).unwrap() * 5_000 * 80_000;
        let by_queue = scene.of_usage(UsageGroup::Queue);
        prop_assert!((by_queue - scene.borrowed).abs() <= tolerance, "{} of {}", by_queue, scene.borrowed);
    }
}
