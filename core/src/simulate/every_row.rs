//! Plays a job of every row that can be suspended, from its creation to its end, whether or not this version serves its kind.
//! A row whose status is not played as it is read fails here.

use super::objects::{condition, field_text, is_true, text_at};
use super::{Simulation, SimulationOptions, Until};
use crate::admission::AdmissionSettings;
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::frameworks::{
    Beside, Between, Count, Found, Framework, JobKind, PlayedJob, PlayedState, PodSetSource, Related,
    RelatedKey, RoleShape, frameworks,
};
use crate::lifecycle::pods_ready::PodsReadyLimits;
use crate::reconciler::CoreSettings;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::sync::LazyLock;

const START: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// The runtime of TrainJobs, whatever the job names.
#[derive(Debug)]
struct Runtime;

const RUNTIME: Runtime = Runtime;

static STORED_RUNTIME: LazyLock<Value> = LazyLock::new(|| {
    let job = |name: &str, step: &str| {
        json!({"name": name, "replicas": 1, "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": step}},
            "spec": {"template": {"spec": {"containers": [{"name": name, "image": "i",
                "resources": {"requests": {"cpu": "1"}}}]}}}}})
    };
    let jobs = [job("dataset-initializer", "dataset-initializer"), job("node", "trainer")];
    json!({"metadata": {"name": "r"}, "spec": {"mlPolicy": {"numNodes": 2}, "template": {"spec": {"replicatedJobs": jobs}}}})
});

impl Related for Runtime {
    fn find(&self, object: &RelatedKey) -> Found<'_> {
        if object.kind.in_reviews { Found::Object(&STORED_RUNTIME) } else { Found::Missing }
    }
}

/// Rows that can be suspended.
fn suspended_rows() -> impl Iterator<Item = &'static Framework> {
    frameworks().filter(|row| row.fields.suspend.is_some())
}

fn set(object: &mut Value, pointer: &str, value: Value) {
    let path: Vec<&str> = pointer.split('/').skip(1).collect();
    super::objects::set(object, &path, value);
}

fn set_count(role: &mut Value, count: &Count, pods: i32) {
    match count {
        Count::Field(pointer)
        | Count::AtLeastOne(pointer)
        | Count::AllButOne(pointer)
        | Count::FieldOrText(pointer, _)
        | Count::Job { parallelism: pointer, .. } => {
            set(role, pointer, json!(pods));
        }
        Count::Between(Between { count, .. }) => set(role, count, json!(pods)),
        Count::Unless(_, count) => set_count(role, count, pods),
        Count::One => {}
        Count::Product(a, b) => {
            set_count(role, a, pods);
            set_count(role, b, pods);
        }
    }
}

/// Returns a suspended job with two pods or more in each place where the row reads pod sets.
fn sample(row: &Framework) -> Value {
    let template = match row.fields.roles {
        RoleShape::Template | RoleShape::Patched(_) | RoleShape::Listed => {
            json!({"spec": {"containers": [{"name": "c", "image": "i",
            "resources": {"requests": {"cpu": "1"}}}]}})
        }
        // The one kind of this shape.
        RoleShape::Described(_) => json!({"coreRequest": "1"}),
    };
    let mut job = json!({
        "apiVersion": format!("{}/{}", row.gvk.group, row.gvk.version), "kind": row.gvk.kind,
        "metadata": {"name": "job", "namespace": "ns", "uid": "u",
            "labels": {"kueue.x-k8s.io/queue-name": "lq"}, "annotations": {}},
        "spec": {},
    });
    if row.fields.roles.is_listed() {
        let wrapped = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 2, "template": template}});
        set(&mut job, "/spec/components", json!([{"template": wrapped}]));
    }
    for source in row.pod_sets {
        match source {
            PodSetSource::Fixed { template: place, count, .. } => {
                set(&mut job, place, template.clone());
                set_count(&mut job, count, 2);
            }
            PodSetSource::LeaderAndWorkers { leader, workers, size } => {
                for place in [leader, workers] {
                    set(&mut job, place, template.clone());
                }
                set(&mut job, size, json!(3));
            }
            PodSetSource::Array { list, name, template: place, count } => {
                let role = |title: &str| {
                    let mut role = json!({});
                    set(&mut role, name, json!(title));
                    set(&mut role, place, template.clone());
                    set_count(&mut role, count, 2);
                    role
                };
                set(&mut job, list, json!([role("First"), role("second")]));
            }
            PodSetSource::Map { map, order, template: place, count, .. } => {
                for key in *order {
                    let mut role = json!({});
                    set(&mut role, place, template.clone());
                    set_count(&mut role, count, 2);
                    set(&mut job, &format!("{map}/{key}"), role);
                }
            }
        }
    }
    if row.fields.roles.is_decided_at_start() {
        set(&mut job, "/spec/runtimeRef", json!({"name": "r"}));
    }
    set(&mut job, row.fields.suspend.unwrap(), json!(true));
    job
}

/// Whether the row tells a job whose pods start from one whose pods are ready.
fn knows_unready(row: &Framework) -> bool {
    let mut job = sample(row);
    row.play(&mut job, &RUNTIME, PlayedState::Started, START).unwrap();
    !row.played_job(&job, &RUNTIME).unwrap().ready
}

#[test]
fn the_row_reads_what_is_played() {
    for row in suspended_rows() {
        let kind = row.gvk.kind;
        let mut job = sample(row);
        let mut play = |state: PlayedState| -> PlayedJob {
            row.play(&mut job, &RUNTIME, state, START).unwrap();
            let once = job.clone();
            row.play(&mut job, &RUNTIME, state, START).unwrap();
            assert_eq!(job, once, "{kind}: {state:?} a second time");
            row.played_job(&job, &RUNTIME).unwrap()
        };
        let started = play(PlayedState::Started);
        assert!(started.active && !started.finished && started.suspended, "{kind}: {started:?}");
        assert_eq!(started.started.is_some(), row.fields.start_time.is_some(), "{kind}: {started:?}");
        let ready = play(PlayedState::Ready);
        assert!(ready.active && ready.ready && !ready.finished, "{kind}: {ready:?}");
        let stopped = play(PlayedState::Stopped);
        let gone = !stopped.active && !stopped.ready && !stopped.finished && stopped.started.is_none();
        assert!(gone, "{kind}: {stopped:?}");
        assert!(play(PlayedState::Started).active, "{kind} starts again");
        let results = [(PlayedState::Succeeded, true), (PlayedState::Failed, false)];
        for (state, success) in results.into_iter().filter(|(_, success)| row.can_finish(*success)) {
            let mut ended = sample(row);
            row.play(&mut ended, &RUNTIME, PlayedState::Started, START).unwrap();
            row.play(&mut ended, &RUNTIME, state, START).unwrap();
            assert!(row.played_job(&ended, &RUNTIME).unwrap().finished, "{kind}: {ended}");
            if row.reads_pod_sets() {
                let result = row
                    .decode_after(&ended, None, Beside::of(&RUNTIME))
                    .unwrap()
                    .status
                    .finished
                    .map(|result| result.success);
                assert_eq!(result, Some(success), "{kind}: {ended}");
            }
        }
        let both = row.can_finish(true) == row.can_finish(false);
        assert!(both, "{kind} has a rule for one result alone");
    }
}

/// A simulated cluster with a job of one kind in a queue that it fits into.
struct Cluster {
    simulation: Simulation,
    row: &'static Framework,
    now: SignedDuration,
}

impl Cluster {
    fn new(row: &'static Framework, annotations: Value) -> Self {
        let mut core =
            CoreSettings { added_job_kinds: [JobKind::new(row)].into(), ..CoreSettings::default() };
        core.frameworks.insert(row.name.to_owned());
        core.lifecycle.pods_ready = Some(PodsReadyLimits {
            timeout: SignedDuration::from_mins(30),
            recovery_timeout: None,
            max_requeues: None,
            backoff_base: SignedDuration::from_secs(60),
            backoff_max: SignedDuration::from_secs(60),
        });
        let admission = AdmissionSettings::default();
        let options = SimulationOptions { core, admission, start: START, run_for: None, recorded: None };
        let mut simulation = Simulation::new(options).unwrap();
        let groups = json!([{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "f", "resources": [
            {"name": "cpu", "nominalQuota": "100"}, {"name": "memory", "nominalQuota": "100Gi"}]}]}]);
        let spec = json!({"namespaceSelector": {}, "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": groups});
        let mut job = sample(row);
        job["metadata"]["annotations"] = annotations;
        let runtimes = row.related.iter().filter(|kind| kind.in_reviews && !kind.namespaced);
        for kind in runtimes {
            simulation.load_stored(Kind::Related(*kind), STORED_RUNTIME.clone());
        }
        let objects = [
            (Kind::ResourceFlavor, json!({"metadata": {"name": "f"}, "spec": {}})),
            (Kind::ClusterQueue, json!({"metadata": {"name": "cq"}, "spec": spec})),
            (
                Kind::LocalQueue,
                json!({"metadata": {"name": "lq", "namespace": "ns"},
                "spec": {"clusterQueue": "cq"}}),
            ),
            (Kind::Job(JobKind::new(row)), job),
        ];
        for (kind, object) in objects {
            simulation.load_stored(kind, object);
        }
        Self { simulation, row, now: SignedDuration::ZERO }
    }

    fn run(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
        self.simulation.run(Until::After(self.now));
    }

    fn job(&self) -> PlayedJob {
        let key = ObjectKey::new("ns", "job");
        let job = self.simulation.harness.server.get(Kind::Job(JobKind::new(self.row)), &key).unwrap();
        self.row.played_job(job, &RUNTIME).unwrap()
    }

    /// The Workload of the job.
    fn workload(&self) -> &Value {
        let mut all = self.simulation.harness.server.all(Kind::Workload);
        all.find(|workload| text_at(workload, "/metadata/ownerReferences/0/name") == "job").unwrap()
    }

    /// Checks the state of the job and the conditions of its Workload that are True.
    fn assert(&self, state: [bool; 4], conditions: &[&str]) {
        let kind = self.row.gvk.kind;
        let PlayedJob { suspended, active, ready, finished, .. } = self.job();
        let ready = ready && !finished;
        assert_eq!([suspended, active, ready, finished], state, "{kind} at {}: {:?}", self.now, self.job());
        for name in ["QuotaReserved", "Admitted", "PodsReady", "Evicted", "Finished"] {
            let holds = is_true(self.workload(), name);
            assert_eq!(
                holds,
                conditions.contains(&name),
                "{kind} at {}: {name} {}",
                self.now,
                self.workload()
            );
        }
    }
}

/// Rows whose jobs get a Workload.
fn rows_with_pod_sets() -> impl Iterator<Item = &'static Framework> {
    suspended_rows().filter(|row| row.reads_pod_sets())
}

#[test]
fn jobs_of_every_row_run_and_end() {
    for row in rows_with_pod_sets() {
        for (code, reason) in [("0", "Succeeded"), ("1", "Failed")] {
            let mut cluster = Cluster::new(
                row,
                json!({"sluice.dev/ready-after": "10s", "sluice.dev/run-for": "60s", "sluice.dev/exit-code": code}),
            );
            cluster.run(5);
            let unready = knows_unready(row);
            let conditions = ["QuotaReserved", "Admitted", "PodsReady"];
            cluster.assert([false, true, !unready, false], &conditions[..3 - usize::from(unready)]);
            cluster.run(10);
            cluster.assert([false, true, true, false], &conditions);
            cluster.run(600);
            if row.can_finish(true) {
                assert!(cluster.job().finished, "{}", row.gvk.kind);
                let finished = condition(cluster.workload(), "Finished").unwrap();
                assert_eq!(field_text(finished, "reason"), reason, "{}", row.gvk.kind);
            } else {
                cluster.assert([false, true, true, false], &conditions);
            }
        }
    }
}

#[test]
fn jobs_of_every_row_are_preempted_and_run_again() {
    for row in rows_with_pod_sets() {
        let mut cluster = Cluster::new(row, json!({"sluice.dev/terminate-after": "10s"}));
        cluster.run(10);
        let runs = ["QuotaReserved", "Admitted", "PodsReady"];
        cluster.assert([false, true, true, false], &runs);
        let template =
            json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100"}}}]}});
        let sets = json!([{"name": "main", "count": 1, "template": template}]);
        cluster.simulation.load_stored(
            Kind::Workload,
            json!({"metadata": {"name": "preemptor", "namespace": "ns", "uid": "p",
                    "annotations": {"sluice.dev/run-for": "60s"}},
                "spec": {"queueName": "lq", "priority": 100, "podSets": sets}}),
        );
        cluster.run(5);
        let PlayedJob { suspended, active, .. } = cluster.job();
        assert!(suspended && active, "{}: its pods terminate", row.gvk.kind);
        assert!(is_true(cluster.workload(), "Evicted") && is_true(cluster.workload(), "QuotaReserved"));
        cluster.run(15);
        cluster.assert([true, false, false, false], &["Evicted"]);
        cluster.run(100);
        cluster.assert([false, true, true, false], &runs);
    }
}
