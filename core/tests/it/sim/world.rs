//! A small cluster in memory: the core, a fake API server and a fake Job controller, driven by a seed.

use super::foreign_writers::{ForeignOwner, Ownership};
use super::lazy_decoding::partially_decoded_by_turns;
use crate::fixtures::leading_core::JOB;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::lifecycle::clock::SlewedClock;
use sluice_core::reconciler::{
    CoreSettings, Delta, Effect, Observation, Verb, Write, WriteOutcome, WriteResult,
};
use sluice_core::simulate::Harness;
use sluice_core::simulate::fake_api_server::{FakeApiServer, key_of};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const BEGIN: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// Faults, each in so many of 1,000 cases.
#[derive(Clone, Copy, Default)]
pub(crate) struct Faults {
    /// A write succeeds, but its response is lost.
    pub(crate) lost_responses: u32,
    /// A write is not executed, and its outcome is unknown.
    pub(crate) dropped_writes: u32,
    /// The manager is killed and restarted.
    pub(crate) manager_kills: u32,
    /// Another client writes an object in between.
    pub(crate) concurrent_writes: u32,
}

pub(crate) struct World {
    pub(crate) harness: Harness,
    /// Every version of every Workload.
    pub(crate) history: Vec<Value>,
    settings: CoreSettings,
    /// Wall-clock time.
    pub(crate) now: Timestamp,
    /// Monotonic time since the start.
    elapsed: Duration,
    /// The core's clock.
    clock: SlewedClock,
    /// Writes sent and not yet executed.
    outbox: VecDeque<Write>,
    /// End times of running Jobs.
    end_times: BTreeMap<ObjectKey, Timestamp>,
    /// Running Jobs never finish.
    pub(crate) jobs_never_end: bool,
    /// Pods of running Jobs never become ready.
    pub(crate) pods_never_ready: bool,
    /// The garbage collector is late: it deletes nothing.
    pub(crate) keeps_orphans: bool,
    pub(crate) faults: Faults,
    /// Fields of Workload statuses that another client owns.
    pub(crate) foreign: ForeignOwner,
    /// A webhook of another project suspends every Job again that the manager starts.
    pub(crate) reverted: bool,
    /// A webhook of another project adds a pod to every new Workload.
    pub(crate) adds_pods: bool,
    random: u64,
    pub(crate) writes: BTreeMap<String, u32>,
    pub(crate) events: Vec<(ObjectKey, String)>,
    /// Notes of the events.
    pub(crate) event_notes: Vec<String>,
    /// Whether each is a warning.
    pub(crate) event_warnings: Vec<bool>,
    pub(crate) observed: Vec<Observation>,
}

impl World {
    pub(crate) fn new(seed: u64, settings: &CoreSettings) -> Self {
        let mut world = Self {
            harness: Harness::new(settings.clone(), FakeApiServer::new(true)),
            history: Vec::new(),
            settings: settings.clone(),
            now: BEGIN,
            elapsed: Duration::ZERO,
            clock: SlewedClock::new(BEGIN, Duration::ZERO),
            outbox: VecDeque::new(),
            end_times: BTreeMap::new(),
            jobs_never_end: false,
            pods_never_ready: false,
            keeps_orphans: false,
            faults: Faults::default(),
            foreign: ForeignOwner::new(Ownership::Whole, []),
            reverted: false,
            adds_pods: false,
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            writes: BTreeMap::new(),
            events: Vec::new(),
            event_notes: Vec::new(),
            event_warnings: Vec::new(),
            observed: Vec::new(),
        };
        world.restart();
        world
    }

    /// Continues with the random numbers of another seed.
    pub(crate) fn reseed(&mut self, seed: u64) {
        self.random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    }

    /// A world with a queue `a` of this many CPUs.
    pub(crate) fn with_queue(settings: &CoreSettings, cpus: i64) -> Self {
        let mut world = Self::new(1, settings);
        world.create(Kind::Namespace, json!({"metadata": {"name": "ns"}}));
        world.create(Kind::ResourceFlavor, json!({"metadata": {"name": "f"}, "spec": {}}));
        let flavor = json!({"name": "f", "resources": [{"name": "cpu", "nominalQuota": cpus}]});
        let groups = json!([{"coveredResources": ["cpu"], "flavors": [flavor]}]);
        let spec = json!({"namespaceSelector": {}, "resourceGroups": groups});
        world.create(Kind::ClusterQueue, json!({"metadata": {"name": "a"}, "spec": spec}));
        let spec = json!({"clusterQueue": "a"});
        world.create(Kind::LocalQueue, json!({"metadata": {"name": "a", "namespace": "ns"}, "spec": spec}));
        world
    }

    /// Kills the manager; the next one reads everything before it leads.
    pub(crate) fn restart(&mut self) {
        self.clock = SlewedClock::new(self.now, self.elapsed);
        self.outbox.clear();
        self.record_undelivered_versions();
        for delta in self.harness.restart(self.settings.clone()) {
            self.feed([delta]);
        }
        self.feed([Delta::Leading(true)]);
    }

    /// Steps the wall clock; run times of Jobs are unaffected.
    pub(crate) fn set_clocks(&mut self, step: SignedDuration) {
        self.now = self.now.checked_add(step).unwrap();
        for end in self.end_times.values_mut() {
            *end = end.checked_add(step).unwrap();
        }
    }

    /// Monotonic time since the start, unaffected by clock steps.
    pub(crate) fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Returns a random number below `n`.
    pub(crate) fn random_below(&mut self, n: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        u32::try_from((self.random >> 33) % u64::from(n.max(1))).unwrap()
    }

    pub(crate) fn timestamp_text(&self) -> String {
        Timestamp::from_second(self.now.as_second()).unwrap().to_string()
    }

    pub(crate) fn create(&mut self, kind: Kind, object: Value) {
        self.harness.server.create(kind, object, self.now);
    }

    fn feed(&mut self, deltas: impl IntoIterator<Item = Delta>) {
        let now = self.clock.read(self.now, self.elapsed);
        for effect in self.harness.core.apply_all(deltas.into_iter().map(partially_decoded_by_turns), now) {
            match effect {
                Effect::Write(write) => self.outbox.push_back(write),
                Effect::Refetch { kind, key } => self.harness.read(kind, key),
                Effect::Event(event) => {
                    self.event_warnings.push(event.is_warning());
                    self.events.push((event.key, event.reason));
                    self.event_notes.push(event.note);
                }
                Effect::Observe(observation) => self.observed.push(observation),
                Effect::LogWaitingHead { .. } => {}
            }
        }
        // I1: the ledger equals the usage recomputed from the objects, assumed admissions included.
        assert_eq!(self.harness.core.ledger_drift(), 0, "the ledger has drifted");
        assert_eq!(self.harness.core.history_drift(), 0, "open runs are not the usage of the ledger");
    }

    /// Performs one action, chosen by the seed.
    pub(crate) fn step(&mut self) {
        if self.random_below(1000) < self.faults.manager_kills {
            self.restart();
        }
        match self.random_below(10) {
            0..=2 => {
                let deltas = self.next_watch_deltas();
                self.feed(deltas);
            }
            3..=5 => self.execute_write(),
            6..=7 => {
                let deltas = self.next_responses();
                self.feed(deltas);
            }
            8 => {
                self.run_jobs();
                self.collect_garbage();
            }
            _ => {
                self.now = self.now.checked_add(SignedDuration::from_millis(200)).unwrap();
                self.elapsed += Duration::from_millis(200);
                self.feed([Delta::Tick]);
            }
        }
        if self.random_below(1000) < self.faults.concurrent_writes {
            self.annotate_random_object();
        }
    }

    /// Returns what the watch delivers next: mostly one delta, sometimes several.
    fn next_watch_deltas(&mut self) -> Vec<Delta> {
        let count = self.batch_size(self.harness.server.watch_events.len());
        let deltas: Vec<Delta> = self.harness.server.watch_events.drain(..count).collect();
        for delta in &deltas {
            self.record_version(delta);
        }
        deltas
    }

    /// Returns the next responses, sometimes together with watch deltas.
    fn next_responses(&mut self) -> Vec<Delta> {
        let count = self.batch_size(self.harness.inbox.len());
        let mut deltas: Vec<Delta> = self.harness.inbox.drain(..count).collect();
        if self.random_below(4) == 0 {
            deltas.extend(self.next_watch_deltas());
        }
        deltas
    }

    fn batch_size(&mut self, most: usize) -> usize {
        let count = if self.random_below(3) == 0 { 1 + self.random_below(8) } else { 1 };
        most.min(usize::try_from(count).unwrap())
    }

    /// Records the version of a Workload that the watch delivers.
    fn record_version(&mut self, delta: &Delta) {
        if let Delta::Applied { kind: Kind::Workload, object } = delta {
            self.history.push(object.clone());
        }
    }

    /// Records the versions that the watch will not deliver.
    pub(crate) fn record_undelivered_versions(&mut self) {
        for delta in std::mem::take(&mut self.harness.server.watch_events) {
            self.record_version(&delta);
        }
    }

    /// Executes the oldest write; its response is delivered later or lost.
    fn execute_write(&mut self) {
        let Some(mut write) = self.outbox.pop_front() else { return };
        let unknown = WriteOutcome::Unavailable { message: "timeout".to_owned() };
        let precondition = match write.verb {
            Verb::Create => Some(&Value::Null),
            Verb::Delete => write.body.pointer("/preconditions/resourceVersion"),
            Verb::JsonPatch => write.body.pointer("/0/value"),
            _ => write.body.pointer("/metadata/resourceVersion"),
        };
        assert!(precondition.is_some(), "a write without precondition: {write:?}");
        let outcome = if self.random_below(1000) < self.faults.dropped_writes {
            unknown
        } else if self.refuses(&write) {
            panic!("a write that the API server refuses: {write:?}");
        } else {
            let name = format!("{:?} {}", write.kind, write.key);
            *self.writes.entry(name).or_default() += 1;
            let refused = self.foreign.intercept(&self.harness.server, &mut write);
            if self.reverted && write.kind == JOB && write.body["spec"]["suspend"] == json!(false) {
                write.body["spec"] = json!({"suspend": true});
                write.body["metadata"]["annotations"] = json!({"suspended": self.now.to_string()});
            }
            if self.adds_pods && (write.kind, write.verb) == (Kind::Workload, Verb::Create) {
                let count = &mut write.body["spec"]["podSets"][0]["count"];
                *count = json!(count.as_i64().unwrap() + 1);
            }
            let outcome = refused.unwrap_or_else(|| self.harness.server.write(write.clone(), self.now));
            if self.random_below(1000) < self.faults.lost_responses { unknown } else { outcome }
        };
        self.harness.answer(WriteResult { id: write.id, kind: write.kind, key: write.key, outcome });
    }

    /// Whether the write changes the pod template of a Job that runs or is not stopped yet, in the version that it is
    /// decided on.
    fn refuses(&self, write: &Write) -> bool {
        let Some(job) = self.harness.server.get(write.kind, &write.key).filter(|_| write.kind == JOB) else {
            return false;
        };
        let version = |object: &Value| object.pointer("/metadata/resourceVersion").cloned();
        let has = |pointer: &str| job.pointer(pointer).is_some_and(|value| !value.is_null() && *value != 0);
        write.body.pointer("/spec/template").is_some()
            && version(&write.body) == version(job)
            && (job["spec"]["suspend"] != json!(true) || has("/status/startTime") || has("/status/active"))
    }

    /// Annotates a random object, as another client would, so that its version changes under a write.
    fn annotate_random_object(&mut self) {
        let kinds = Kind::all().into_iter().filter(|kind| matches!(kind, Kind::Workload | Kind::Job(_)));
        let keys: Vec<(Kind, ObjectKey)> = kinds
            .flat_map(|kind| self.harness.server.keys_of(kind).into_iter().map(move |key| (kind, key)))
            .collect();
        let count = u32::try_from(keys.len()).unwrap();
        if count > 0 {
            let (kind, key) = keys[usize::try_from(self.random_below(count)).unwrap()].clone();
            let mark = self.random_below(1_000_000).to_string();
            self.harness.server.edit(kind, &key, |o| o["metadata"]["annotations"]["meddled"] = json!(mark));
        }
    }

    /// Garbage collector: deletes Workloads whose owner does not exist.
    fn collect_garbage(&mut self) {
        if self.keeps_orphans {
            return;
        }
        let owners = self.harness.server.all(JOB).chain(self.harness.server.all(Kind::Pod));
        let uids: Vec<Value> = owners.map(|owner| owner["metadata"]["uid"].clone()).collect();
        let is_orphan = |w: &&Value| {
            let owner = w.pointer("/metadata/ownerReferences/0/uid");
            owner.is_some_and(|uid| !uids.contains(uid)) && w.pointer("/metadata/deletionTimestamp").is_none()
        };
        let orphans: Vec<ObjectKey> =
            self.harness.server.all(Kind::Workload).filter(is_orphan).map(key_of).collect();
        for key in orphans {
            self.harness.server.delete(Kind::Workload, &key, self.now);
        }
    }

    /// Job controller and kubelets: pods of a running Job are ready at once, follow its size and finish in time; pods of a
    /// suspended Job take a moment to terminate.
    fn run_jobs(&mut self) {
        let jobs: Vec<Value> = self.harness.server.all(JOB).cloned().collect();
        for job in jobs {
            let key = key_of(&job);
            let active = job.pointer("/status/active").and_then(Value::as_i64).unwrap_or(0);
            let started = job.pointer("/status/startTime").is_some_and(|time| !time.is_null());
            let pods = pods_of(&job);
            let (now, stamp) = (self.now, self.timestamp_text());
            let complete = condition(&job, "Complete") == Some("True");
            let deleting = job.pointer("/metadata/deletionTimestamp").is_some();
            if deleting && (complete || job["metadata"]["finalizers"] == json!(["foregroundDeletion"])) {
                self.end_deletion(&key, active);
                continue;
            }
            if complete || (deleting && active == 0) {
                continue;
            }
            if job.pointer("/spec/suspend") == Some(&json!(true)) {
                self.end_times.remove(&key);
                self.harness.server.edit(JOB, &key, |j| {
                    j["status"]["active"] = json!((active - 1).max(0));
                    j["status"]["ready"] = json!(0);
                });
            } else if !started || (active == 0 && pods > 0) {
                let run = 1 + self.random_below(4);
                self.end_times
                    .insert(key.clone(), now.checked_add(SignedDuration::from_secs(i64::from(run))).unwrap());
                let ready = if self.pods_never_ready { 0 } else { pods };
                self.harness.server.edit(JOB, &key, |j| {
                    let status = j["status"].as_object_mut();
                    let ended = status.map(std::mem::take).unwrap_or_default();
                    j["status"] = json!({"active": pods, "ready": ready, "startTime": stamp});
                    for (field, value) in
                        ended.into_iter().filter(|(field, _)| ENDED.contains(&field.as_str()))
                    {
                        j["status"][field] = value;
                    }
                });
            } else if active != pods {
                self.harness.server.edit(JOB, &key, |j| j["status"]["active"] = json!(pods));
            } else if !self.jobs_never_end && self.end_times.get(&key).is_none_or(|end| *end <= now) {
                self.harness.server.edit(JOB, &key, |j| {
                    let ended = j["status"]["succeeded"].as_i64().unwrap_or(0);
                    j["status"] = json!({"active": 0, "ready": 0, "succeeded": ended + pods, "startTime": stamp,
                        "conditions": [{"type": "Complete", "status": "True", "message": "done"}]});
                });
            }
        }
    }

    /// Garbage collector: deletes the pods of a Job in foreground deletion, and the Job after its last pod and Workload.
    fn end_deletion(&mut self, key: &ObjectKey, active: i64) {
        let job = self.harness.server.get(JOB, key).unwrap();
        let owns = |w: &Value| w["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"];
        let blocked = self.harness.server.all(Kind::Workload).any(owns);
        self.harness.server.edit(JOB, key, |j| {
            j["status"]["active"] = json!((active - 1).max(0));
            if active == 0 && !blocked {
                j["metadata"]["finalizers"] = json!([]);
            }
        });
    }

    /// Steps without faults until everything has finished. Returns whether that happened within `steps`.
    pub(crate) fn run_until_finished(&mut self, steps: u32) -> bool {
        self.faults = Faults::default();
        for _ in 0..steps {
            self.step();
            if self.is_quiet() && self.all_finished() {
                return true;
            }
        }
        false
    }

    /// Steps, while Jobs run on, until nothing was in flight for 200 steps. Returns whether that happened within `steps`.
    pub(crate) fn run_until_idle(&mut self, steps: u32) -> bool {
        let mut quiet = 0;
        for _ in 0..steps {
            self.step();
            quiet = if self.is_quiet() { quiet + 1 } else { 0 };
            if quiet > 200 {
                return true;
            }
        }
        false
    }

    /// Whether nothing is in flight.
    pub(crate) fn is_quiet(&self) -> bool {
        self.outbox.is_empty() && self.harness.inbox.is_empty() && self.harness.server.watch_events.is_empty()
    }

    /// Whether every Job is complete and every Workload finished. (A Workload deleted after its Job completed is not recreated.)
    fn all_finished(&self) -> bool {
        self.harness.server.all(JOB).all(|j| condition(j, "Complete") == Some("True"))
            && self.harness.server.all(Kind::Workload).all(|w| condition(w, "Finished") == Some("True"))
    }
}

/// Fields of a Job's status that a restart keeps.
const ENDED: [&str; 2] = ["succeeded", "completedIndexes"];

/// Number of pods that a Job runs at the same time, those that have succeeded left out.
pub(crate) fn pods_of(job: &Value) -> i64 {
    let number = |pointer: &str| job.pointer(pointer).and_then(Value::as_i64);
    let parallelism = number("/spec/parallelism").unwrap_or(1);
    let left = |completions: i64| completions - number("/status/succeeded").unwrap_or(0);
    number("/spec/completions").map_or(parallelism, |completions| left(completions).min(parallelism))
}

/// Status of a condition of an object.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let list = object.pointer("/status/conditions")?.as_array()?;
    list.iter().find(|c| c["type"] == kind)?["status"].as_str()
}
