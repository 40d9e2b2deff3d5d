//! When a pending Workload may be admitted: scenarios whose answers follow by hand, refusals, and laws against `simulate`.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice::admission::AdmissionSettings;
use sluice::api::ObjectKey;
use sluice::cache::Kind;
use sluice::reconciler::CoreSettings;
use sluice::simulate::estimate::{
    AdmissionRange, LowerBound, MAX_WORKLOADS, NoRange, Question, RecordedRun, Refusal, estimate,
};
use sluice::simulate::{Simulation, SimulationOptions, Until};

const NOW: &str = "2026-11-26T14:00:00Z";
pub(crate) const NAMESPACE: &str = "team";

pub(crate) fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn minutes_ago(minutes: i64) -> String {
    now().checked_sub(SignedDuration::from_mins(minutes)).unwrap().to_string()
}

/// Objects of a cluster with the ClusterQueue `q`.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) objects: Vec<Value>,
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name, "uid": format!("{kind}-{name}"), "creationTimestamp": minutes_ago(10_000)}, "spec": spec})
}

pub(crate) fn condition(kind: &str, status: &str, minutes: i64) -> Value {
    json!({"type": kind, "status": status, "reason": kind, "message": "", "lastTransitionTime": minutes_ago(minutes)})
}

fn template(cpu: i64) -> Value {
    let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu.to_string()}}});
    json!({"spec": {"restartPolicy": "Never", "containers": [container]}})
}

impl Cluster {
    /// A ClusterQueue with so many CPUs, with one queue per word of `queues`.
    pub(crate) fn new(cpu: i64, strategy: &str, queues: &str) -> Self {
        let mut cluster = Self { objects: vec![object("ResourceFlavor", "f", &json!({}))] };
        cluster
            .objects
            .push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}));
        cluster.cluster_queue("q", cpu, &json!({"queueingStrategy": strategy}));
        queues.split_whitespace().for_each(|queue| cluster.local_queue(queue, "q"));
        cluster
    }

    pub(crate) fn cluster_queue(&mut self, name: &str, cpu: i64, more: &Value) {
        let mut spec = json!({"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "f", "resources": [{"name": "cpu", "nominalQuota": cpu.to_string()}]}]}]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.objects.push(object("ClusterQueue", name, &spec));
    }

    pub(crate) fn local_queue(&mut self, name: &str, queue: &str) {
        let mut queue = object("LocalQueue", name, &json!({"clusterQueue": queue}));
        queue["metadata"]["namespace"] = json!(NAMESPACE);
        self.objects.push(queue);
    }

    /// A Workload with the conditions of a Workload, and its Job.
    pub(crate) fn workload(&mut self, name: &str, queue: &str, cpu: i64, status: Value) -> &mut Value {
        let admitted = status["admission"].is_object();
        let mut job = object(
            "Job",
            name,
            &json!({"suspend": !admitted, "parallelism": 1, "completions": 1, "template": template(cpu)}),
        );
        job["apiVersion"] = json!("batch/v1");
        job["metadata"]["namespace"] = json!(NAMESPACE);
        job["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": queue});
        job["status"] =
            match status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Admitted") {
                Some(condition) => {
                    json!({"active": 1, "ready": 1, "startTime": condition["lastTransitionTime"]})
                }
                None => json!({}),
            };
        let spec = json!({"queueName": queue, "active": true, "priority": 0,
            "podSets": [{"name": "main", "count": 1, "template": template(cpu)}]});
        let mut workload = object("Workload", name, &spec);
        workload["metadata"]["namespace"] = json!(NAMESPACE);
        workload["metadata"]["labels"] = json!({"kueue.x-k8s.io/job-uid": format!("Job-{name}")});
        workload["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": format!("Job-{name}"), "controller": true, "blockOwnerDeletion": true}]);
        workload["metadata"]["finalizers"] = json!(["kueue.x-k8s.io/resource-in-use"]);
        workload["status"] = status;
        self.objects.extend([job, workload]);
        self.objects.last_mut().unwrap()
    }

    /// Runs of a LocalQueue that have ended, of workloads of 1 to 3 CPUs.
    pub(crate) fn history(&mut self, queue: &str, minutes: impl IntoIterator<Item = i64>) {
        for (number, length) in (0..).zip(minutes) {
            for cpu in 1..=3 {
                let name =
                    if cpu == 1 { format!("{queue}-{number}") } else { format!("{queue}-{number}-{cpu}") };
                self.ended(&name, queue, cpu, length);
            }
        }
    }

    /// A run that has ended.
    pub(crate) fn ended(&mut self, name: &str, queue: &str, cpu: i64, length: i64) {
        let conditions = json!([
            condition("QuotaReserved", "True", 2_000 + length),
            condition("Admitted", "True", 2_000 + length),
            condition("Finished", "True", 2_000)
        ]);
        self.workload(name, queue, cpu, json!({"conditions": conditions}));
        let job = self.objects.len() - 2;
        self.objects.remove(job);
    }

    pub(crate) fn running(&mut self, name: &str, queue: &str, cpu: i64, age: i64) -> &mut Value {
        let assignment = json!([{"name": "main", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": cpu.to_string()}}]);
        let conditions = json!([condition("QuotaReserved", "True", age), condition("Admitted", "True", age)]);
        let cluster_queue = self.queue_of(queue);
        let admission = json!({"clusterQueue": cluster_queue, "podSetAssignments": assignment});
        self.workload(name, queue, cpu, json!({"admission": admission, "conditions": conditions}))
    }

    pub(crate) fn pending(&mut self, name: &str, queue: &str, cpu: i64, age: i64) -> &mut Value {
        let workload = self.workload(
            name,
            queue,
            cpu,
            json!({"conditions": [condition("QuotaReserved", "False", age)]}),
        );
        workload["metadata"]["creationTimestamp"] = json!(minutes_ago(age));
        workload
    }

    fn queue_of(&self, local: &str) -> Value {
        let queue = self.objects.iter().find(|o| o["kind"] == "LocalQueue" && o["metadata"]["name"] == local);
        queue.unwrap()["spec"]["clusterQueue"].clone()
    }

    pub(crate) fn typed(&self) -> Vec<(Kind, Value)> {
        let kind = |object: &Value| {
            let group = object["apiVersion"].as_str().unwrap().split_once('/').map_or("", |(group, _)| group);
            Kind::from_group_kind(group, object["kind"].as_str().unwrap()).unwrap()
        };
        let mut typed: Vec<_> = self.objects.iter().map(|object| (kind(object), object.clone())).collect();
        typed.sort_by_key(|(kind, _)| *kind == Kind::Workload);
        typed
    }

    pub(crate) fn ask(&self, name: &str) -> Result<AdmissionRange, Refusal> {
        self.estimate_with(name, &[])
    }

    /// The same with runs that a durable record knows.
    pub(crate) fn estimate_with(
        &self,
        name: &str,
        recorded: &[RecordedRun],
    ) -> Result<AdmissionRange, Refusal> {
        let key = ObjectKey::new(NAMESPACE, name);
        let objects = self.typed();
        let question = Question { workload: &key, objects: &objects, recorded, sees: &|_| true };
        estimate(&question, &options(None), &|| true).map_err(|none| none.refusal)
    }

    /// What is known of a Workload without a range, for a reader of a namespace, or of all.
    pub(crate) fn without_range(&self, key: &ObjectKey, reader: Option<&str>) -> NoRange {
        let sees = |namespace: &str| reader.is_none_or(|own| own == namespace);
        let objects = self.typed();
        let question = Question { workload: key, objects: &objects, recorded: &[], sees: &sees };
        *estimate(&question, &options(None), &|| true).unwrap_err()
    }

    /// The minutes until the time before which a Workload is not admitted, and what must end.
    pub(crate) fn not_before(&self, name: &str) -> Option<(i64, Vec<String>)> {
        self.without_range(&ObjectKey::new(NAMESPACE, name), None).not_before.map(|bound| minutes_of(&bound))
    }

    /// Returns the minutes until the earliest and the latest admission, or why there are none.
    pub(crate) fn range(&self, name: &str) -> Result<(i64, i64), String> {
        let (earliest, latest) = self.bounds(name)?;
        Ok((earliest.expect("known"), latest))
    }

    /// The same, where nothing may say how early it is.
    pub(crate) fn bounds(&self, name: &str) -> Result<(Option<i64>, i64), String> {
        let range = self.ask(name).map_err(|refusal| refusal.to_string())?;
        let minutes = |time: Timestamp| time.duration_since(now()).as_mins();
        Ok((range.earliest.map(minutes), minutes(range.latest)))
    }
}

/// The minutes from now until a bound, and the names of what must end.
pub(crate) fn minutes_of(bound: &LowerBound) -> (i64, Vec<String>) {
    let ending = bound.ending.iter().map(|key| key.name.to_string()).collect();
    (bound.at.duration_since(now()).as_mins(), ending)
}

pub(crate) fn options(run_for: Option<SignedDuration>) -> SimulationOptions {
    SimulationOptions {
        core: CoreSettings::default(),
        admission: AdmissionSettings::default(),
        start: now(),
        run_for,
    }
}

pub(crate) fn with_maximum(workload: &mut Value, minutes: i64) {
    workload["spec"]["maximumExecutionTimeSeconds"] = json!(minutes * 60);
}

/// Three Jobs fill 3 CPUs, and others wait. Runs of `a` take 60 minutes, those of `b` 120, those of `mixed` 5 to 100 by fives: the
/// quickest quarter 25, nine of ten 90.
pub(crate) fn three_running() -> Cluster {
    three_running_in("BestEffortFIFO")
}

fn three_running_in(strategy: &str) -> Cluster {
    let mut cluster = Cluster::new(3, strategy, "a b mixed none");
    cluster.history("a", [60; 20]);
    cluster.history("b", [120; 20]);
    cluster.history("mixed", (1..=20).map(|step| 5 * step));
    cluster
}

#[test]
fn answers_follow_by_hand() {
    // Queue and age of the three; what waits: queue, CPUs and age, oldest first; minutes until the last of those is admitted.
    type Row = (&'static str, [(&'static str, i64); 3], &'static [(&'static str, i64)], (i64, i64));
    let rows: [Row; 9] = [
        ("the first that ends", [("a", 10), ("a", 20), ("b", 0)], &[("a", 1)], (40, 40)),
        ("the second that ends", [("a", 10), ("a", 20), ("b", 0)], &[("a", 2)], (50, 50)),
        ("the last that ends", [("a", 10), ("a", 20), ("b", 0)], &[("a", 3)], (120, 120)),
        // The one before it takes the CPU at 40, the next is free at 50.
        ("one is before it", [("a", 10), ("a", 20), ("b", 0)], &[("b", 1), ("a", 1)], (50, 50)),
        // In strict order, what needs all CPUs runs from 120 to 180; otherwise the other one goes first.
        ("strict: one is before it", [("a", 10), ("a", 20), ("b", 0)], &[("a", 3), ("a", 2)], (180, 180)),
        (
            "one that does not fit is before it",
            [("a", 10), ("a", 20), ("b", 0)],
            &[("a", 3), ("a", 2)],
            (50, 50),
        ),
        ("a range", [("mixed", 0), ("b", 0), ("b", 0)], &[("a", 1)], (25, 90)),
        ("a range, as far as it has run", [("mixed", 20), ("b", 0), ("b", 0)], &[("a", 1)], (5, 70)),
        // 14 of 20 runs were longer than 30 minutes: a quarter of them took up to 50, and 9 of 10 up to 95.
        ("longer than the quick guess", [("mixed", 30), ("b", 0), ("b", 0)], &[("a", 1)], (20, 65)),
    ];
    for (what, running, waits, expected) in rows {
        let strategy = if what.starts_with("strict") { "StrictFIFO" } else { "BestEffortFIFO" };
        let mut cluster = three_running_in(strategy);
        for (name, (queue, age)) in ["x", "y", "z"].into_iter().zip(running) {
            cluster.running(name, queue, 1, age);
        }
        let mut last = String::new();
        for (number, (queue, cpu)) in waits.iter().enumerate() {
            last = format!("w{number}");
            cluster.pending(&last, queue, *cpu, 100 - i64::try_from(number).unwrap());
        }
        assert_eq!(cluster.range(&last), Ok(expected), "{what}");
    }
}

#[test]
fn a_declared_maximum_bounds_a_run() {
    let ask = |queue: &str, age: i64, maximum: i64| {
        let mut cluster = three_running();
        with_maximum(cluster.running("x", queue, 1, age), maximum);
        cluster.running("y", "b", 2, 0);
        cluster.pending("w", "a", 1, 5);
        let range = cluster.ask("w").unwrap();
        assert_eq!((range.declared, range.from_history), (1, 1));
        assert_eq!(range.open_ended, usize::from(queue == "none"));
        assert_eq!(
            (range.earlier_runs, range.earlier_runs_since),
            (20, Some(minutes_ago(2_000).parse().unwrap()))
        );
        cluster.bounds("w").unwrap()
    };
    assert_eq!(ask("mixed", 0, 40), (Some(25), 40), "above the quick guess");
    assert_eq!(ask("mixed", 0, 10), (Some(10), 10), "below both");
    assert_eq!(ask("mixed", 0, 1_000), (Some(25), 90), "above both");
    assert_eq!(ask("none", 10, 40), (None, 30), "without earlier runs it may end at any time");
}

#[test]
fn runs_before_an_eviction_count_against_the_maximum() {
    let mut cluster = three_running();
    let running = cluster.running("x", "none", 1, 10);
    with_maximum(running, 60);
    running["status"]["accumulatedPastExecutionTimeSeconds"] = json!(20 * 60);
    cluster.running("y", "b", 2, 0);
    cluster.pending("w", "a", 1, 5);
    assert_eq!(cluster.bounds("w"), Ok((None, 30)));
}

#[test]
fn runs_of_the_same_shape_count() {
    let mut cluster = three_running();
    for number in 0..20 {
        let conditions = json!([condition("Admitted", "True", 1_010), condition("Finished", "True", 1_000)]);
        let name = format!("own-{number}");
        cluster.workload(&name, "none", 1, json!({"conditions": conditions}));
    }
    cluster.running("x", "none", 1, 0);
    cluster.running("y", "a", 2, 0);
    cluster.pending("w", "a", 1, 5);
    assert_eq!(cluster.range("w"), Ok((10, 10)));
}

/// What waits in another ClusterQueue of the cohort comes first; what runs outside of the cohort is of no concern.
#[test]
fn the_cohort_tree_is_simulated() {
    let mut cluster = three_running();
    for name in ["q", "lender", "elsewhere"] {
        if name != "q" {
            cluster.cluster_queue(name, 0, &json!({}));
        }
        let cohort = if name == "elsewhere" { "other" } else { "leaf" };
        let queue =
            cluster.objects.iter_mut().find(|o| o["kind"] == "ClusterQueue" && o["metadata"]["name"] == name);
        queue.unwrap()["spec"]["cohortName"] = json!(cohort);
    }
    cluster.objects.push(object("Cohort", "leaf", &json!({"parentName": "root"})));
    cluster.local_queue("lent", "lender");
    cluster.local_queue("far", "elsewhere");
    cluster.running("x", "a", 3, 0);
    cluster.running("far-away", "far", 1, 5);
    cluster.pending("w", "a", 1, 5);
    let range = cluster.ask("w").unwrap();
    assert_eq!((cluster.range("w"), range.from_history), (Ok((60, 60)), 1));
    cluster.running("borrower", "lent", 1, 0);
    let unknown = "1 of 2 running workloads has neither a maximum or expected run time nor 20 earlier runs of the same shape";
    assert_eq!(cluster.range("w"), Err(unknown.to_owned()));
}

/// A job whose kind may not be listed is missing: its Workload runs without it.
#[test]
fn a_workload_runs_without_its_job() {
    let mut cluster = three_running();
    cluster.running("x", "a", 1, 10);
    cluster.running("y", "b", 2, 0);
    cluster.pending("w", "a", 1, 5);
    let with_jobs = cluster.range("w");
    cluster.objects.retain(|object| object["kind"] != "Job");
    assert_eq!((cluster.range("w"), with_jobs), (Ok((50, 50)), Ok((50, 50))));
}

#[test]
fn what_is_not_known_is_refused() {
    let full = || {
        let mut cluster = three_running();
        cluster.running("x", "a", 3, 0);
        cluster
    };
    let refused = |cluster: &Cluster, expected: &str| {
        assert_eq!(cluster.range("w"), Err(expected.to_owned()));
    };
    let mut cluster = full();
    cluster.pending("before", "none", 3, 10);
    cluster.pending("w", "a", 1, 5);
    refused(
        &cluster,
        "1 of 1 pending workloads that are admitted before it has neither a maximum or expected run time nor 20 earlier runs of the same shape",
    );
    // It is admitted later, so that its run time does not matter.
    let mut cluster = full();
    cluster.pending("w", "a", 1, 10);
    cluster.pending("behind", "none", 1, 5);
    assert_eq!(cluster.range("w"), Ok((60, 60)));
    let mut cluster = full();
    cluster.pending("w", "a", 4, 10);
    refused(&cluster, "in the simulation it is not admitted while quotas and nodes stay");
    let mut cluster = full();
    cluster.pending("w", "gone", 1, 10);
    refused(&cluster, "its ClusterQueue is not known");
    let mut cluster = full();
    cluster.running("w", "a", 1, 10);
    refused(&cluster, "it is not pending (Admitted)");
    let mut cluster = full();
    cluster.history("w", [1]);
    assert_eq!(cluster.range("w-0"), Err("it has finished".to_owned()));
    let mut cluster = full();
    cluster.pending("w", "a", 1, 10)["spec"]["active"] = json!(false);
    refused(&cluster, "it is deactivated: sluice activate lets it wait again");
    let mut cluster = full();
    cluster.pending("w", "a", 1, 10)["metadata"]["deletionTimestamp"] = json!(minutes_ago(0));
    refused(&cluster, "it has been deleted");
    refused(&full(), "it has been deleted");
    // Without finished Workloads nothing is known.
    let mut cluster = full();
    cluster.pending("w", "a", 1, 10);
    cluster.objects.retain(|object| !object["metadata"]["name"].as_str().unwrap().starts_with("a-"));
    refused(
        &cluster,
        "1 of 1 running workloads has neither a maximum or expected run time nor 20 earlier runs of the same shape",
    );
}

#[test]
fn an_estimate_takes_bounded_work() {
    let mut cluster = three_running();
    cluster.running("x", "a", 3, 0);
    cluster.pending("w", "a", 1, 5);
    let (key, objects) = (ObjectKey::new(NAMESPACE, "w"), cluster.typed());
    let question = Question { workload: &key, objects: &objects, recorded: &[], sees: &|_| true };
    let stopped = estimate(&question, &options(None), &|| false).map_err(|none| none.refusal);
    assert_eq!(stopped, Err(Refusal::TooLong));
    let (job, workload) = (cluster.objects.len() - 2, cluster.objects.last().unwrap().clone());
    cluster.objects.remove(job);
    for number in 0..MAX_WORKLOADS {
        let mut more = workload.clone();
        more["metadata"]["name"] = json!(format!("more-{number}"));
        cluster.objects.push(more);
    }
    assert_eq!(cluster.range("w"), Err("10,002 workloads are in its cohort (limit 10,000)".to_owned()));
}

/// Returns the time at which `simulate` admits a Workload of these objects.
fn simulated(cluster: &Cluster, name: &str, run_for: SignedDuration) -> Option<f64> {
    let mut simulation = Simulation::new(options(Some(run_for))).unwrap();
    for (kind, object) in cluster.typed() {
        simulation.load_stored(kind, object);
    }
    simulation.run(Until::Settled);
    let report = serde_json::to_value(simulation.report()).unwrap();
    let is_admission =
        |entry: &&Value| entry["event"] == "admitted" && entry["workload"] == format!("{NAMESPACE}/{name}");
    report["timeline"]
        .as_array()
        .unwrap()
        .iter()
        .find(is_admission)
        .map(|entry| entry["seconds"].as_f64().unwrap())
}

/// CPUs and ages in minutes.
fn some(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(i64, i64)>> {
    prop::collection::vec((1..4_i64, 0..60_i64), count)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// With one run time, the range is a point: the one at which `simulate` admits.
    #[test]
    fn one_run_time_gives_the_time_of_simulate(running in some(1..6), pending in some(1..6), is_strict: bool) {
        let used: i64 = running.iter().map(|(cpu, _)| cpu).sum();
        let strategy = if is_strict { "StrictFIFO" } else { "BestEffortFIFO" };
        let mut cluster = Cluster::new(used.max(3), strategy, "a");
        cluster.history("a", [60; 20]);
        for (number, (cpu, age)) in running.iter().enumerate() {
            cluster.running(&format!("r{number}"), "a", *cpu, *age);
        }
        for (number, (cpu, age)) in pending.iter().enumerate() {
            cluster.pending(&format!("p{number}"), "a", *cpu, *age);
        }
        for number in 0..pending.len() {
            let name = format!("p{number}");
            let range = cluster.ask(&name).unwrap();
            prop_assert_eq!(range.earliest, Some(range.latest));
            let found = range.latest.duration_since(now()).as_secs_f64();
            prop_assert_eq!(Some(found), simulated(&cluster, &name, SignedDuration::from_mins(60)), "{}", name);
        }
    }

    /// In a queue in strict order, nothing is admitted earlier because another runs for longer.
    #[test]
    fn longer_runs_admit_nothing_earlier(
        running in some(1..5), pending in some(2..6), longer in any::<prop::sample::Index>(), minutes in 1..200_i64,
    ) {
        let used: i64 = running.iter().map(|(cpu, _)| cpu).sum();
        let total = running.len() + pending.len();
        let longer = longer.index(total - 1);
        let ask = |more: i64| {
            let queues: Vec<String> = (0..total).map(|number| format!("q{number}")).collect();
            let mut cluster = Cluster::new(used.max(3), "StrictFIFO", &queues.join(" "));
            for (number, (cpu, age)) in running.iter().chain(&pending).enumerate() {
                let (queue, name) = (format!("q{number}"), format!("w{number}"));
                let length = 60 + if number == longer { more } else { 0 };
                cluster.history(&queue, (0..20).map(|step| length + step));
                if number < running.len() {
                    cluster.running(&name, &queue, *cpu, *age);
                } else {
                    // Oldest first.
                    cluster.pending(&name, &queue, *cpu, 100 - i64::try_from(number).unwrap());
                }
            }
            cluster.ask(&format!("w{}", total - 1)).unwrap()
        };
        let (before, after) = (ask(0), ask(minutes));
        prop_assert!(before.earliest <= Some(before.latest));
        prop_assert!(before.earliest <= after.earliest && before.latest <= after.latest, "{:?} {:?}", before, after);
    }
}
