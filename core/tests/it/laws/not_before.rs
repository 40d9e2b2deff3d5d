//! *Not before* never lies: whatever run times are drawn after the estimate was made, the workload is not admitted earlier.
//!
//! Excluded, as the answer says: workloads that are deleted, that fail, or that end sooner than the shortest of their earlier runs or than
//! an annotation expects. All other run times are drawn without regard to what the estimate saw: what it knows nothing of may end at once.

use crate::fixtures::builders::config;
use crate::fixtures::estimated_cluster::{Cluster, NAMESPACE, now, options};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::simulate::estimate::{Question, estimate};
use sluice_core::simulate::{Simulation, Until};

/// Cases outside of soak runs, which draw 100 times as many.
const CASES: u32 = 100;

/// What is known of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    EarlierRuns,
    Annotation(i64),
    Maximum(i64),
}

/// A workload. Times are in minutes.
#[derive(Clone, Debug)]
struct Drawn {
    cpu: i64,
    age: i64,
    known: Known,
    /// How much longer it runs than it must.
    more: i64,
    priority: i64,
    lends: bool,
}

impl Drawn {
    fn queue(&self) -> &'static str {
        match (self.known == Known::EarlierRuns, self.lends) {
            (true, false) => "known",
            (false, false) => "unknown",
            (true, true) => "known-lent",
            (false, true) => "unknown-lent",
        }
    }

    /// The length of its run: at least what it has lasted for, and what is not excluded.
    fn length(&self, shortest: i64) -> i64 {
        let least = match self.known {
            Known::EarlierRuns => shortest,
            Known::Annotation(minutes) => minutes,
            Known::Nothing | Known::Maximum(_) => 0,
        };
        least.max(self.age) + self.more
    }
}

fn known() -> impl Strategy<Value = Known> {
    prop_oneof![
        2 => Just(Known::Nothing),
        4 => Just(Known::EarlierRuns),
        2 => (1..200_i64).prop_map(Known::Annotation),
        1 => (1..200_i64).prop_map(Known::Maximum),
    ]
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let numbers = (1..4_i64, 0..120_i64, 0..150_i64, 0..3_i64);
    (numbers, known(), any::<bool>()).prop_map(|((cpu, age, more, priority), known, lends)| Drawn {
        cpu,
        age,
        known,
        more,
        priority,
        lends,
    })
}

fn policy() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!({}),
        json!({}),
        json!({"withinClusterQueue": "LowerPriority"}),
        json!({"reclaimWithinCohort": "Any"}),
        json!({"reclaimWithinCohort": "LowerPriority", "borrowWithinCohort": {"policy": "LowerPriority"}}),
    ])
}

/// A cohort of two ClusterQueues that is full. `borrowed` CPUs of what the first one uses are lent by the second one.
fn cluster(running: &[Drawn], pending: &[Drawn], world: &(bool, i64, i64, [Value; 2])) -> Cluster {
    let (is_strict, shortest, borrowed, policies) = world;
    let used = |lends: bool| -> i64 { running.iter().filter(|r| r.lends == lends).map(|r| r.cpu).sum() };
    let borrowed = (*borrowed).min(used(false));
    let strategy = if *is_strict { "StrictFIFO" } else { "BestEffortFIFO" };
    let mut cluster = Cluster::new(used(false) - borrowed, strategy, "known unknown");
    cluster.cluster_queue("lender", used(true) + borrowed, &json!({"queueingStrategy": strategy}));
    for queue in ["known-lent", "unknown-lent"] {
        cluster.local_queue(queue, "lender");
    }
    for (name, policy) in ["q", "lender"].into_iter().zip(policies) {
        let is_it =
            |object: &&mut Value| object["kind"] == "ClusterQueue" && object["metadata"]["name"] == name;
        let queue = cluster.objects.iter_mut().find(is_it).unwrap();
        queue["spec"]["cohortName"] = json!("c");
        queue["spec"]["preemption"] = policy.clone();
    }
    for queue in ["known", "known-lent"] {
        cluster.history(queue, (0..20).map(|step| shortest + step));
    }
    for (number, drawn) in running.iter().enumerate() {
        let workload = cluster.running(&format!("r{number}"), drawn.queue(), drawn.cpu, drawn.age);
        describe(workload, drawn);
    }
    for (number, drawn) in pending.iter().enumerate() {
        let workload = cluster.pending(&format!("p{number}"), drawn.queue(), drawn.cpu, drawn.age);
        describe(workload, drawn);
    }
    cluster
}

fn describe(workload: &mut Value, drawn: &Drawn) {
    workload["spec"]["priority"] = json!(drawn.priority);
    match drawn.known {
        Known::Annotation(minutes) => {
            workload["metadata"]["annotations"] =
                json!({"sluice.dev/expected-run-time": format!("{minutes}m")});
        }
        Known::Maximum(minutes) => workload["spec"]["maximumExecutionTimeSeconds"] = json!(minutes * 60),
        Known::Nothing | Known::EarlierRuns => {}
    }
}

/// Lets each job run for as long as was drawn, and returns the seconds until a Workload is admitted.
fn admitted(mut cluster: Cluster, lengths: &[(String, i64)], name: &str) -> Option<f64> {
    for (job, minutes) in lengths {
        let is_it = |object: &&mut Value| object["kind"] == "Job" && object["metadata"]["name"] == **job;
        let job = cluster.objects.iter_mut().find(is_it).unwrap();
        job["metadata"]["annotations"] = json!({"sluice.dev/run-for": format!("{minutes}m")});
    }
    let mut simulation = Simulation::new(options(None)).unwrap();
    for (kind, object) in cluster.typed() {
        simulation.load_stored(kind, object);
    }
    simulation.run(Until::Settled);
    let report = serde_json::to_value(simulation.report()).unwrap();
    let is_admission =
        |entry: &&Value| entry["event"] == "admitted" && entry["workload"] == format!("{NAMESPACE}/{name}");
    let timeline = report["timeline"].as_array().unwrap();
    timeline.iter().find(is_admission).map(|entry| entry["seconds"].as_f64().unwrap())
}

proptest! {
    #![proptest_config(config(CASES))]

    #[test]
    fn not_before_never_lies(
        running in prop::collection::vec(drawn(), 1..7), pending in prop::collection::vec(drawn(), 1..5),
        world in (any::<bool>(), 10..120_i64, 0..4_i64, [policy(), policy()]), asked in any::<prop::sample::Index>(),
    ) {
        let cluster = cluster(&running, &pending, &world);
        let name = format!("p{}", asked.index(pending.len()));
        let (key, objects) = (ObjectKey::new(NAMESPACE, &name), cluster.typed());
        let question = Question { workload: &key, objects: &objects, recorded: &[], sees: &|_| true };
        let bound = match estimate(&question, &options(None), &|| true) {
            Ok(range) => range.not_before,
            Err(none) => none.not_before,
        };
        let Some(bound) = bound else { return Ok(()) };
        let named = |prefix: &'static str, all: &[Drawn]| -> Vec<(String, i64)> {
            all.iter().enumerate().map(|(number, drawn)| (format!("{prefix}{number}"), drawn.length(world.1))).collect()
        };
        let lengths = [named("r", &running), named("p", &pending)].concat();
        let not_before = bound.at.duration_since(now()).as_secs_f64();
        if let Some(seconds) = admitted(cluster, &lengths, &name) {
            prop_assert!(seconds >= not_before, "admitted after {} s, not before {} s: {:?}", seconds, not_before, bound.ending);
        }
    }
}
