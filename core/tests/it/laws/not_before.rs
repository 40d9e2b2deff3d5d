//! *Not before* never lies: whatever run times are drawn after the estimate was made, the workload is not admitted earlier.
//!
//! Excluded, as the answer says: workloads that are deleted, that fail, or that end sooner than the shortest of their earlier runs or than
//! an annotation expects. All other run times are drawn without regard to what the estimate saw: what it knows nothing of may end at once.
//!
//! The clusters have all that can let a workload in early: two flavors, partial admission, lending with and without limits, preemption in
//! the own queue and reclaim. Two tests below prove of reclaim, of another flavor, of partial admission, and of the order of heads that
//! each matters in clusters of this form: an estimate that overlooks it lies.

use crate::fixtures::builders::config;
use crate::fixtures::estimated_cluster::{Cluster, NAMESPACE, now, object, options};
use jiff::Timestamp;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::simulate::estimate::{EstimateRequest, LowerBound, estimate};
use sluice_core::simulate::{Simulation, Until};

/// Cases outside of soak runs, which draw 100 times as many.
const CASES: u32 = 100;
/// Most states that are drawn until a way to be admitted early matters.
const MOST_DRAWN: u32 = 50;
/// Highest priority of a workload.
const HIGHEST: i64 = 3;
const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";
/// Annotation with the least number of pods of a Job.
const LEAST_PODS: &str = "kueue.x-k8s.io/job-min-parallelism";

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
    /// Runs in the second flavor, if there is one.
    in_second: bool,
    /// Waits with one pod for each CPU, of which one is enough.
    in_parts: bool,
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
    let numbers = (1..4_i64, 0..120_i64, 0..150_i64, 0..HIGHEST);
    let (second, parts) = (prop::bool::weighted(0.4), prop::bool::weighted(0.3));
    (numbers, known(), any::<bool>(), second, parts).prop_map(
        |((cpu, age, more, priority), known, lends, in_second, in_parts)| Drawn {
            cpu,
            age,
            known,
            more,
            priority,
            lends,
            in_second,
            in_parts,
        },
    )
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

/// What a search for a flavor does where it could borrow or preempt.
fn fungibility() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!({}),
        json!({"whenCanBorrow": "TryNextFlavor"}),
        json!({"whenCanPreempt": "MayStopSearch"}),
        json!({"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "MayStopSearch"}),
    ])
}

/// Two ClusterQueues of a cohort.
#[derive(Clone, Debug)]
struct Queues {
    is_strict: bool,
    /// Least length of the runs that have ended, in minutes.
    shortest: i64,
    /// CPUs of what the first one uses that the second one lends.
    borrowed: i64,
    policies: [Value; 2],
    fungibility: Value,
    /// Whether the quota has a second flavor.
    has_second: bool,
    /// Whether the second one may lend no more than it does.
    is_limited: bool,
}

fn queues() -> impl Strategy<Value = Queues> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let drawn = (flags, 10..120_i64, 0..4_i64, [policy(), policy()], fungibility());
    drawn.prop_map(|((is_strict, has_second, is_limited), shortest, borrowed, policies, fungibility)| {
        Queues { is_strict, shortest, borrowed, policies, fungibility, has_second, is_limited }
    })
}

/// A cluster that is full, and the pending Workload of which an estimate is asked.
#[derive(Clone, Debug)]
struct State {
    running: Vec<Drawn>,
    pending: Vec<Drawn>,
    queues: Queues,
    asked: prop::sample::Index,
}

fn state() -> impl Strategy<Value = State> {
    let workloads = (prop::collection::vec(drawn(), 1..7), prop::collection::vec(drawn(), 1..5));
    (workloads, queues(), any::<prop::sample::Index>())
        .prop_map(|((running, pending), queues, asked)| State { running, pending, queues, asked })
}

impl State {
    /// Name of the Workload of which an estimate is asked, and of its Job.
    fn name(&self) -> String {
        format!("p{}", self.asked.index(self.pending.len()))
    }

    fn flavor(&self, running: &Drawn) -> &'static str {
        if self.queues.has_second && running.in_second { "g" } else { "f" }
    }

    fn cluster(&self) -> Cluster {
        let used = |lends: bool, flavor: &str| -> i64 {
            let is_it = |running: &&Drawn| running.lends == lends && self.flavor(running) == flavor;
            self.running.iter().filter(is_it).map(|running| running.cpu).sum()
        };
        let borrowed = self.queues.borrowed.min(used(false, "f"));
        let strategy = if self.queues.is_strict { "StrictFIFO" } else { "BestEffortFIFO" };
        let mut cluster = Cluster::new(0, strategy, "known unknown");
        cluster.objects.push(object("ResourceFlavor", "g", &json!({})));
        cluster.cluster_queue("lender", 0, &json!({"queueingStrategy": strategy}));
        for queue in ["known-lent", "unknown-lent"] {
            cluster.local_queue(queue, "lender");
        }
        let nominal =
            [[used(false, "f") - borrowed, used(false, "g")], [used(true, "f") + borrowed, used(true, "g")]];
        for (number, [first, second]) in nominal.into_iter().enumerate() {
            let quota = |nominal: i64| json!({"name": "cpu", "nominalQuota": nominal.to_string()});
            let mut lent = quota(first);
            if number == 1 && self.queues.is_limited {
                lent["lendingLimit"] = json!(borrowed.to_string());
            }
            let mut flavors = vec![json!({"name": "f", "resources": [lent]})];
            if self.queues.has_second {
                flavors.push(json!({"name": "g", "resources": [quota(second)]}));
            }
            let spec = spec_of(&mut cluster, ["q", "lender"][number]);
            spec["resourceGroups"] = json!([{"coveredResources": ["cpu"], "flavors": flavors}]);
            spec["cohortName"] = json!("c");
            spec["preemption"] = self.queues.policies[number].clone();
            spec["flavorFungibility"] = self.queues.fungibility.clone();
        }
        for priority in 0..=HIGHEST {
            let mut class = object("WorkloadPriorityClass", &class(priority), &json!({}));
            class["value"] = json!(priority);
            cluster.objects.push(class);
        }
        self.add_workloads(&mut cluster);
        cluster
    }

    fn add_workloads(&self, cluster: &mut Cluster) {
        for queue in ["known", "known-lent"] {
            cluster.history(queue, (0..20).map(|step| self.queues.shortest + step));
        }
        for (number, drawn) in self.running.iter().enumerate() {
            let workload = cluster.running(&format!("r{number}"), drawn.queue(), drawn.cpu, drawn.age);
            let flavor = json!(self.flavor(drawn));
            workload["status"]["admission"]["podSetAssignments"][0]["flavors"]["cpu"] = flavor;
            describe(cluster, drawn);
        }
        for (number, drawn) in self.pending.iter().enumerate() {
            cluster.pending(&format!("p{number}"), drawn.queue(), drawn.cpu, drawn.age);
            describe(cluster, drawn);
            if drawn.in_parts && drawn.cpu > 1 {
                divide(cluster, drawn.cpu);
            }
        }
    }

    /// Returns before when the Workload is not admitted, as an estimate says of a cluster, in seconds.
    fn not_before(&self, cluster: &Cluster) -> Option<(f64, LowerBound)> {
        let (key, objects) = (ObjectKey::new(NAMESPACE, &self.name()), cluster.typed());
        let request = EstimateRequest { workload: &key, objects: &objects, recorded: &[], sees: &|_| true };
        let bound = match estimate(&request, &options(None), None) {
            Ok(range) => range.not_before,
            Err(none) => none.not_before,
        };
        bound.map(|bound| (seconds_until(bound.at), bound))
    }

    /// Lets each job run for as long as was drawn, and returns the seconds until the Workload is admitted.
    fn admitted(&self, mut cluster: Cluster) -> Option<f64> {
        for (prefix, all) in [("r", &self.running), ("p", &self.pending)] {
            for (number, drawn) in all.iter().enumerate() {
                let name = format!("{prefix}{number}");
                let is_it =
                    |object: &&mut Value| object["kind"] == "Job" && object["metadata"]["name"] == *name;
                let job = cluster.objects.iter_mut().find(is_it).unwrap();
                let minutes = drawn.length(self.queues.shortest);
                job["metadata"]["annotations"]["sluice.dev/run-for"] = json!(format!("{minutes}m"));
            }
        }
        let mut simulation = Simulation::new(options(None)).unwrap();
        for (kind, object) in cluster.typed() {
            simulation.load_stored(kind, object);
        }
        simulation.run(Until::Settled);
        let report = serde_json::to_value(simulation.report()).unwrap();
        let own = format!("{NAMESPACE}/{}", self.name());
        let is_admission = |entry: &&Value| entry["event"] == "admitted" && entry["workload"] == *own;
        let timeline = report["timeline"].as_array().unwrap();
        timeline.iter().find(is_admission).map(|entry| entry["seconds"].as_f64().unwrap())
    }
}

fn seconds_until(time: Timestamp) -> f64 {
    time.duration_since(now()).as_secs_f64()
}

/// Returns the spec of a ClusterQueue.
fn spec_of<'a>(cluster: &'a mut Cluster, name: &str) -> &'a mut Value {
    let is_it = |object: &&mut Value| object["kind"] == "ClusterQueue" && object["metadata"]["name"] == name;
    &mut cluster.objects.iter_mut().find(is_it).unwrap()["spec"]
}

/// Gives the last Workload and its Job what is known of the run, and a priority, which the Job has by a class.
fn describe(cluster: &mut Cluster, drawn: &Drawn) {
    let [.., job, workload] = cluster.objects.as_mut_slice() else { panic!("a Job and its Workload") };
    let class = class(drawn.priority);
    job["metadata"]["labels"][PRIORITY_CLASS] = json!(class);
    workload["spec"]["priority"] = json!(drawn.priority);
    workload["spec"]["priorityClassRef"] =
        json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": class});
    match drawn.known {
        Known::Annotation(minutes) => {
            workload["metadata"]["annotations"] =
                json!({"sluice.dev/expected-run-time": format!("{minutes}m")});
        }
        Known::Maximum(minutes) => workload["spec"]["maximumExecutionTimeSeconds"] = json!(minutes * 60),
        Known::Nothing | Known::EarlierRuns => {}
    }
}

fn class(priority: i64) -> String {
    format!("p{priority}")
}

/// Divides the last Workload and its Job into pods of one CPU, of which one is enough.
fn divide(cluster: &mut Cluster, pods: i64) {
    let [.., job, workload] = cluster.objects.as_mut_slice() else { panic!("a Job and its Workload") };
    let spec = &mut job["spec"];
    (spec["parallelism"], spec["completions"]) = (json!(pods), json!(pods));
    request_one_cpu(&mut spec["template"]);
    job["metadata"]["annotations"][LEAST_PODS] = json!("1");
    let set = &mut workload["spec"]["podSets"][0];
    (set["count"], set["minCount"]) = (json!(pods), json!(1));
    request_one_cpu(&mut set["template"]);
}

fn request_one_cpu(template: &mut Value) {
    template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1");
}

/// Something that can let a workload in early.
struct Way {
    name: &'static str,
    /// Changes a drawn state so that it matters there.
    favor: fn(&mut State),
    /// Hides it from an estimate.
    hide: fn(&mut Cluster),
}

const WAYS: [Way; 3] = [
    Way {
        name: "reclaim",
        favor: |state| {
            state.queues.borrowed = 3;
            state.queues.policies[1] = json!({"reclaimWithinCohort": "Any"});
            state.asked_mut().lends = true;
        },
        hide: |cluster| {
            each_queue(cluster, |spec| {
                remove(&mut spec["preemption"], "borrowWithinCohort");
                remove(&mut spec["preemption"], "reclaimWithinCohort");
            });
        },
    },
    Way {
        name: "another flavor",
        favor: |state| {
            state.queues.has_second = true;
            state.running[0].in_second = true;
        },
        hide: |cluster| {
            each_queue(cluster, |spec| {
                if let Some(second) = spec.pointer_mut("/resourceGroups/0/flavors/1/resources/0") {
                    second["nominalQuota"] = json!("0");
                }
            });
        },
    },
    Way {
        name: "partial admission",
        favor: |state| {
            state.asked_mut().cpu = 3;
            state.asked_mut().in_parts = true;
        },
        hide: hide_parts,
    },
];

impl State {
    fn asked_mut(&mut self) -> &mut Drawn {
        let number = self.asked.index(self.pending.len());
        &mut self.pending[number]
    }

    /// Leaves one queue and one flavor in use, in which one CPU is released early and the others late, and asks for one CPU.
    fn simplify(&mut self) {
        for (number, running) in self.running.iter_mut().enumerate() {
            let is_early = number == 0;
            running.known = Known::Annotation(if is_early { 5 } else { 150 });
            (running.age, running.more, running.priority) = (0, 0, 0);
            (running.lends, running.in_second) = (false, false);
            running.cpu = if is_early { 1 } else { 3 };
        }
        let asked = self.asked_mut();
        (asked.cpu, asked.priority, asked.lends, asked.in_parts) = (1, 0, false, false);
        let queues = &mut self.queues;
        (queues.borrowed, queues.has_second, queues.is_limited, queues.is_strict) = (0, false, false, false);
        queues.policies.fill(json!({}));
    }

    /// Adds, in strict order, a head that only what is released late lets in.
    fn add_head(&mut self) {
        self.queues.is_strict = true;
        let number = self.asked.index(self.pending.len());
        for (_, pending) in self.pending.iter_mut().enumerate().filter(|(other, _)| *other != number) {
            (pending.cpu, pending.age, pending.lends, pending.in_parts) = (3, 119, false, false);
        }
        self.asked_mut().age = 0;
    }
}

fn each_queue(cluster: &mut Cluster, change: impl Fn(&mut Value)) {
    for queue in cluster.objects.iter_mut().filter(|object| object["kind"] == "ClusterQueue") {
        change(&mut queue["spec"]);
    }
}

/// Lets all Workloads and Jobs wait for all of their pods.
fn hide_parts(cluster: &mut Cluster) {
    for object in &mut cluster.objects {
        for (parent, field) in [("/metadata/annotations", LEAST_PODS), ("/spec/podSets/0", "minCount")] {
            if let Some(parent) = object.pointer_mut(parent) {
                remove(parent, field);
            }
        }
    }
}

fn remove(value: &mut Value, field: &str) {
    if let Some(fields) = value.as_object_mut() {
        fields.remove(field);
    }
}

/// The cluster with heads that block nothing.
fn without_strict_order(mut cluster: Cluster) -> Cluster {
    each_queue(&mut cluster, |spec| spec["queueingStrategy"] = json!("BestEffortFIFO"));
    cluster
}

/// Draws states, changes them by `favor`, and returns whether `is_seen` holds in one of them.
fn is_drawn(favor: impl Fn(&mut State), is_seen: impl Fn(&State, &Cluster, f64) -> bool) -> bool {
    let mut runner = TestRunner::new(config(CASES));
    (0..MOST_DRAWN).any(|_| {
        let mut state = state().new_tree(&mut runner).unwrap().current();
        state.simplify();
        favor(&mut state);
        let cluster = state.cluster();
        state.admitted(cluster.clone()).is_some_and(|seconds| is_seen(&state, &cluster, seconds))
    })
}

#[test]
fn an_estimate_that_overlooks_a_way_in_lies() {
    let overlooked = |way: &Way| {
        let lies = |state: &State, cluster: &Cluster, seconds: f64| {
            let mut blind = cluster.clone();
            (way.hide)(&mut blind);
            state.not_before(&blind).is_some_and(|(not_before, _)| seconds < not_before)
        };
        is_drawn(way.favor, lies)
    };
    let harmless: Vec<&str> = WAYS.iter().filter(|way| !overlooked(way)).map(|way| way.name).collect();
    assert!(harmless.is_empty(), "never mattered: {harmless:?}");
}

#[test]
fn a_head_in_strict_order_delays_what_is_bounded() {
    let is_delayed = |state: &State, cluster: &Cluster, seconds: f64| {
        state.not_before(cluster).is_some()
            && state.admitted(without_strict_order(cluster.clone())).is_some_and(|free| free < seconds)
    };
    assert!(is_drawn(State::add_head, is_delayed), "the order never mattered");
}

proptest! {
    #![proptest_config(config(CASES))]

    #[test]
    fn not_before_never_lies(state in state()) {
        let cluster = state.cluster();
        let Some((not_before, bound)) = state.not_before(&cluster) else { return Ok(()) };
        if let Some(seconds) = state.admitted(cluster) {
            prop_assert!(seconds >= not_before, "admitted after {} s, not before {} s: {:?}", seconds, not_before, bound.ending);
        }
    }
}
