//! A whole cluster in simulated time: Jobs that run, finish, stop and release quota; later changes; and the report of all that.

use crate::fixtures::simulate_cluster::{
    KUEUE_API_VERSION, bare_workload, empty_simulation, flavor, history, job, manifests, options, queue,
    report,
};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::lifecycle::pods_ready::PodsReadyLimits;
use sluice_core::reconciler::CoreSettings;
use sluice_core::reconciler::failpoints::{Failpoint, FailpointScript, Failpoints, SecondPassGuard};
use sluice_core::simulate::{Simulation, SimulationOptions, Until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn with_class(mut job: Value, class: &str) -> Value {
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
    job
}

/// The owner reference names a queued Job; because a Job creates no Jobs, its child is queued by itself.
#[test]
fn job_owned_by_job_is_queued_separately() {
    let mut objects = vec![flavor()];
    objects.extend(queue("q", "2", &json!({})));
    let mut parent = job("parent", "q", 1, &json!({}));
    parent["metadata"]["uid"] = json!("parent-1");
    parent["spec"]["suspend"] = json!(true);
    let mut child = job("child", "q", 100, &json!({}));
    child["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "batch/v1", "kind": "Job", "name": "parent", "uid": "parent-1", "controller": true}]);
    objects.extend([parent, child]);
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(&objects));
    simulation.run(Until::Settled);
    let report = report(&mut simulation);
    assert_eq!(report["unqueued"], json!([]));
    assert_eq!(report["admitted"][0]["job"], "team/parent");
    let child = &report["pending"][0];
    assert_eq!(child["job"], "team/child", "{report}");
    assert_eq!(child["conditions"]["QuotaReserved"]["reason"], "ExceedsMaxQuota", "{child}");
}

#[test]
fn jobs_run_sequentially_in_simulated_time() {
    let mut objects = vec![flavor()];
    objects.extend(queue("q", "2", &json!({})));
    objects.push(job("first", "q", 2, &json!({"sluice.dev/run-for": "10m"})));
    objects.push(job("second", "q", 2, &json!({"sluice.dev/run-for": "90s"})));
    objects.push(job("late", "q", 1, &json!({"sluice.dev/arrives-after": "1h"})));
    let run = |until: Until| {
        let mut simulation = empty_simulation();
        simulation.apply_all(manifests(&objects));
        simulation.run(until);
        report(&mut simulation)
    };
    let end = run(Until::Settled);
    assert_eq!(
        history(&end),
        [
            "0.0 admitted team/first",
            "0.0 pending team/second",
            "600.0 finished team/first",
            "600.0 admitted team/second",
            "690.0 finished team/second",
            "3600.0 admitted team/late",
        ]
    );
    assert_eq!(end["end"], json!({"seconds": 3600.0, "settled": true, "livelocked": false}));
    assert_eq!(end["finished"].as_array().unwrap().len(), 2);
    assert_eq!(end["admitted"][0]["job"], "team/late");
    assert!(end["admitted"][0].get("endsAt").is_none(), "it never ends: {end}");
    assert_eq!(end, run(Until::Settled), "the same input gives the same history");

    let early = run(Until::After(SignedDuration::from_secs(605)));
    assert_eq!(early["end"], json!({"seconds": 605.0, "settled": false, "livelocked": false}));
    assert_eq!(early["admitted"][0]["job"], "team/second");
    assert_eq!(early["admitted"][0]["endsAt"], 690.0);
}

#[test]
fn simultaneous_workloads_are_scheduled_together() {
    let mut objects = vec![flavor()];
    objects.extend(queue("q", "1", &json!({})));
    for (name, priority) in [("low", 1), ("high", 2)] {
        let pods = json!([{"name": "main", "count": 1, "template": {"spec": {"containers": [
            {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}}]);
        objects.push(json!({"apiVersion": KUEUE_API_VERSION, "kind": "Workload",
            "metadata": {"name": name, "annotations": {"sluice.dev/arrives-after": "1m", "sluice.dev/run-for": "10s"}},
            "spec": {"queueName": "q", "priority": priority, "podSets": pods}}));
    }
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(&objects));
    simulation.run(Until::Settled);
    let admitted = |entry: &String| entry.contains("admitted");
    let admitted: Vec<String> = history(&report(&mut simulation)).into_iter().filter(admitted).collect();
    assert_eq!(admitted, ["60.0 admitted team/high", "70.0 admitted team/low"]);
}

#[test]
fn default_run_time_applies_when_annotation_is_absent() {
    let mut objects = vec![flavor()];
    objects.extend(queue("q", "1", &json!({})));
    objects.push(job("own", "q", 1, &json!({"sluice.dev/run-for": "10s"})));
    // Three pods, one at a time, run three times as long.
    let mut waves = job("waves", "q", 1, &json!({}));
    waves["spec"]["completions"] = json!(3);
    objects.push(waves);
    let mut simulation =
        Simulation::new(SimulationOptions { run_for: Some(SignedDuration::from_secs(60)), ..options() })
            .unwrap();
    simulation.apply_all(manifests(&objects));
    simulation.run(Until::Settled);
    let end = report(&mut simulation);
    assert!(history(&end).contains(&"190.0 finished team/waves".to_owned()), "{:?}", history(&end));
}

#[test]
fn failed_job_releases_quota() {
    let mut objects = vec![flavor()];
    objects.extend(queue("q", "1", &json!({})));
    objects.push(job("bad", "q", 1, &json!({"sluice.dev/run-for": "5s", "sluice.dev/exit-code": "1"})));
    objects.push(job("next", "q", 1, &json!({"sluice.dev/run-for": "5s"})));
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(&objects));
    simulation.run(Until::Settled);
    let end = report(&mut simulation);
    let reasons: Vec<&Value> = end["timeline"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|e| e["event"] == "finished")
        .map(|e| &e["reason"])
        .collect();
    assert_eq!(reasons, ["Failed", "Succeeded"]);
}

#[test]
fn victims_terminate_slowly_and_are_requeued() {
    let preempts = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let mut objects = vec![flavor()];
    objects.extend(queue("q", "2", &preempts));
    objects.push(json!({"apiVersion": KUEUE_API_VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 9}));
    objects.push(job(
        "low",
        "q",
        2,
        &json!({"sluice.dev/run-for": "1m", "sluice.dev/terminate-after": "20s"}),
    ));
    let high = with_class(job("high", "q", 2, &json!({"sluice.dev/run-for": "1m"})), "high");
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(&objects));
    simulation.run_until_stable();
    simulation.apply_change("more", manifests(&[high]));
    simulation.run(Until::After(SignedDuration::from_secs(10)));
    let soon = report(&mut simulation);
    assert_eq!(soon["preempted"][0]["now"], "evicted");
    assert_eq!(soon["preempted"][0]["by"], "team/high");
    assert_eq!(soon["preempted"][0]["reason"], "InClusterQueue");
    assert_eq!(soon["pending"][0]["reason"], "WaitingForPreemptedWorkloads");
    simulation.run(Until::Settled);
    let end = report(&mut simulation);
    assert_eq!(
        history(&end),
        [
            "0.0 admitted team/low",
            "0.0 changed more",
            "0.0 pending team/high",
            "0.0 preempted team/low",
            "20.0 released team/low",
            "20.0 admitted team/high",
            "20.0 pending team/low",
            "80.0 finished team/high",
            "80.0 admitted team/low",
            "140.0 finished team/low",
        ]
    );
    assert_eq!(end["preempted"][0]["now"], "finished");
}

#[test]
fn changes_update_existing_objects() {
    let mut objects = vec![flavor()];
    objects.extend(queue("q", "1", &json!({})));
    objects.push(job("large", "q", 3, &json!({})));
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(&objects));
    simulation.run_until_stable();
    let before = report(&mut simulation);
    assert_eq!(before["pending"][0]["reason"], "ExceedsMaxQuota");
    assert_eq!(before["pending"][0]["neverFits"], true);

    // A quota is raised; fields that the change does not name stay.
    let mut raised = queue("q", "3", &json!({}))[0].clone();
    raised["spec"].as_object_mut().unwrap().shift_remove("namespaceSelector");
    simulation.apply_change("raise", manifests(&[raised]));
    simulation.run_until_stable();
    assert_eq!(report(&mut simulation)["admitted"][0]["job"], "team/large");

    // A queue is drained.
    let drained = json!({"apiVersion": KUEUE_API_VERSION, "kind": "ClusterQueue", "metadata": {"name": "q"},
        "spec": {"stopPolicy": "HoldAndDrain"}});
    simulation.apply_change("drain", manifests(&[drained]));
    simulation.run_until_stable();
    let after = report(&mut simulation);
    assert_eq!(after["admitted"], json!([]));
    assert_eq!(after["pending"][0]["reason"], "Suspended");
    assert_eq!(after["pending"][0]["clusterQueue"], "q");

    // A job is deleted, and its Workload with it.
    let mut deleted = job("large", "q", 3, &json!({}));
    deleted["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
    simulation.apply_change("delete", manifests(&[deleted]));
    simulation.run_until_stable();
    let end = report(&mut simulation);
    assert_eq!((&end["pending"], &end["problems"]), (&json!([]), &json!([])));
}

#[test]
fn pending_row_explains_blockers_with_numbers() {
    let mut objects = vec![flavor()];
    objects.extend(queue("q", "4", &json!({"cohortName": "c"})));
    objects.push(job("holder", "q", 3, &json!({})));
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(&objects));
    simulation.run_until_stable();
    simulation.apply_change(
        "more",
        manifests(&[job("waits", "q", 2, &json!({})), job("behind", "q", 2, &json!({}))]),
    );
    simulation.run_until_stable();
    let end = report(&mut simulation);
    let row = &end["pending"][0];
    let blocker = json!({"kind": "inUse", "podSet": "main", "flavor": "f", "resource": "cpu", "node": "Cohort/c",
        "requested": "2", "available": "1", "limit": "4", "text": row["blockers"][0]["text"]});
    assert_eq!(row["blockers"], json!([blocker]));
    assert_eq!(
        (&row["neverFits"], &row["position"], &row["since"]),
        (&json!(false), &json!(0), &json!("2027-01-15T08:00:00Z"))
    );
    assert_eq!(end["pending"][1]["position"], 1);
    // The condition, the timeline and the table use the same words.
    assert_eq!(row["message"], row["conditions"]["QuotaReserved"]["message"]);
    assert_eq!(row["reason"], row["conditions"]["QuotaReserved"]["reason"]);
    let entry = end["timeline"].as_array().unwrap().iter().find(|e| e["job"] == row["job"]).unwrap();
    assert_eq!(entry["detail"], row["message"]);
    let tables = simulation.report().tables(100);
    let line = format!("{} (free now: 1 cpu of f)", row["message"].as_str().unwrap());
    assert!(tables.contains(&line), "{tables}");
}

#[test]
fn workload_behind_head_of_strict_queue_says_so() {
    let mut objects = vec![flavor()];
    objects.extend(queue("q", "2", &json!({"queueingStrategy": "StrictFIFO"})));
    objects.push(job("holder", "q", 1, &json!({})));
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(&objects));
    for (name, pods) in [("large", 2), ("small", 1)] {
        simulation.run_until_stable();
        simulation.apply_change(name, manifests(&[job(name, "q", pods, &json!({}))]));
    }
    simulation.run_until_stable();
    let end = report(&mut simulation);
    let row = |index: usize| (end["pending"][index]["job"].clone(), end["pending"][index]["reason"].clone());
    assert_eq!(row(0), (json!("team/large"), json!("WaitingForQuota")));
    assert_eq!(row(1), (json!("team/small"), json!("WaitingForQuota")));
    let message = end["pending"][1]["message"].as_str().unwrap();
    assert!(message.starts_with("behind team/job-large-"), "{message}");
    assert!(message.ends_with(" in the StrictFIFO ClusterQueue q (position 1)"), "{message}");
    assert_eq!(end["pending"][1]["position"], 1);
}

#[test]
fn unqueued_job_is_reported() {
    let mut unqueued = job("free", "q", 1, &json!({}));
    unqueued["metadata"]["labels"] = json!({});
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(&[unqueued]));
    simulation.run_until_stable();
    let end = report(&mut simulation);
    assert_eq!(end["unqueued"], json!(["Job team/free"]));
    assert_eq!(end["timeline"], json!([]));
}

#[test]
fn queue_report_shows_borrowing() {
    let mut objects = vec![flavor()];
    objects.extend(queue("a", "2", &json!({"cohortName": "c"})));
    objects.extend(queue("b", "2", &json!({"cohortName": "c"})));
    objects.push(job("wide", "a", 3, &json!({})));
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(&objects));
    simulation.run_until_stable();
    let end = report(&mut simulation);
    let usage = json!([{"flavor": "f", "resource": "cpu", "nominal": "2", "used": "3", "borrowed": "1"}]);
    assert_eq!(end["queues"][0]["usage"], usage);
    // One of the four CPUs that the cohort could lend is borrowed.
    assert_eq!(end["queues"][0]["weightedShare"], 250);
}

fn with_pods_ready_timeout() -> SimulationOptions {
    let mut options = options();
    options.core.lifecycle.pods_ready = Some(PodsReadyLimits {
        timeout: SignedDuration::from_mins(30),
        recovery_timeout: None,
        max_requeues: None,
        backoff_base: SignedDuration::from_secs(60),
        backoff_max: SignedDuration::from_hours(1),
    });
    options
}

#[test]
fn bare_workload_pods_become_ready() {
    let mut objects = vec![flavor()];
    objects.extend(queue("q", "1", &json!({})));
    objects.push(bare_workload("long", "q", &json!({"sluice.dev/run-for": "2h"})));
    let mut simulation = Simulation::new(with_pods_ready_timeout()).unwrap();
    simulation.apply_all(manifests(&objects));
    simulation.run(Until::After(SignedDuration::from_mins(1)));
    let ready = &report(&mut simulation)["admitted"][0]["conditions"]["PodsReady"];
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("True"), &json!("Started")));
    simulation.run(Until::After(SignedDuration::from_hours(10)));
    assert_eq!(history(&report(&mut simulation)), ["0.0 admitted team/long", "7200.0 finished team/long"]);
}

#[test]
fn ready_after_annotation_delays_pods_ready() {
    let mut objects = vec![flavor()];
    objects.extend(queue("q", "2", &json!({})));
    let slow = json!({"sluice.dev/run-for": "2h", "sluice.dev/ready-after": "10m"});
    objects.push(job("one", "q", 1, &slow));
    objects.push(bare_workload("two", "q", &slow));
    let mut simulation = Simulation::new(with_pods_ready_timeout()).unwrap();
    simulation.apply_all(manifests(&objects));
    let mut ready = |minutes: i64| {
        simulation.run(Until::After(SignedDuration::from_mins(minutes)));
        let rows = report(&mut simulation)["admitted"].as_array().unwrap().clone();
        let ready_and_end =
            |row: &Value| (row["conditions"]["PodsReady"]["status"].clone(), row["endsAt"].clone());
        rows.iter().map(ready_and_end).collect::<Vec<_>>()
    };
    let row = |status: Value| (status, json!(7200.0));
    // Without a job no controller says that pods are awaited.
    assert_eq!(ready(9), [row(json!("False")), row(Value::Null)]);
    assert_eq!(ready(11), [row(json!("True")), row(json!("True"))]);
    assert_eq!(ready(121), []);
}

#[test]
fn endless_eviction_ends_as_livelock() {
    for endless in
        [job, |name: &str, queue: &str, _, annotations: &Value| bare_workload(name, queue, annotations)]
    {
        let mut objects = vec![flavor()];
        objects.extend(queue("q", "1", &json!({})));
        objects.push(endless("endless", "q", 1, &json!({"sluice.dev/ready-after": "1h"})));
        let mut simulation = Simulation::new(with_pods_ready_timeout()).unwrap();
        simulation.apply_all(manifests(&objects));
        simulation.run(Until::Settled);
        let end = report(&mut simulation);
        assert_eq!((&end["end"]["settled"], &end["end"]["livelocked"]), (&json!(false), &json!(true)));
        let evictions = history(&end).iter().filter(|entry| entry.contains("evicted")).count();
        assert!((100..200).contains(&evictions), "{evictions}");
        let tables = simulation.report().tables(10);
        assert!(tables.contains("\nLivelock after "), "{tables}");
        // A given duration is simulated in full: with some hundreds of evictions.
        let mut simulation = Simulation::new(with_pods_ready_timeout()).unwrap();
        simulation.apply_all(manifests(&objects));
        simulation.run(Until::After(SignedDuration::from_hours(24 * 20)));
        let end = report(&mut simulation);
        assert_eq!(end["end"], json!({"seconds": 1_728_000.0, "settled": false, "livelocked": false}));
    }
}

/// A script that halts every pass without guards, and records that it was asked.
#[derive(Debug, Default)]
struct HaltsAll(AtomicBool);

impl FailpointScript for HaltsAll {
    fn halts(&self, _: &ObjectKey, _: Failpoint) -> bool {
        self.0.store(true, Ordering::Relaxed);
        true
    }

    fn is_unguarded(&self, _: &ObjectKey) -> bool {
        self.0.store(true, Ordering::Relaxed);
        true
    }

    fn is_guard_disabled(&self, _: &ObjectKey, _: SecondPassGuard) -> bool {
        self.0.store(true, Ordering::Relaxed);
        true
    }
}

/// Estimates have the settings of the manager in whose process they are made.
#[test]
fn failpoints_of_a_manager_do_not_reach_simulations() {
    let mut objects = vec![flavor()];
    objects.extend(queue("q", "2", &json!({})));
    objects.push(job("one", "q", 1, &json!({"sluice.dev/run-for": "10m"})));
    let script = Arc::new(HaltsAll::default());
    let shared: Arc<dyn FailpointScript> = script.clone();
    let core = CoreSettings { failpoints: Failpoints(Some(shared)), ..CoreSettings::default() };
    let mut simulation = Simulation::new(SimulationOptions { core, ..options() }).unwrap();
    simulation.apply_all(manifests(&objects));
    simulation.run(Until::Settled);
    assert_eq!(history(&report(&mut simulation)), ["0.0 admitted team/one", "600.0 finished team/one"]);
    assert!(!script.0.load(Ordering::Relaxed), "the script of the manager was asked");
}
