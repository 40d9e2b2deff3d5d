//! Clusters as four versions of Kueue left them, killed in the middle of work: taking one over deletes and evicts nothing but
//! what was on its way out or is due by the clock.

use super::reference_data;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use sluice::api::ObjectKey;
use sluice::lifecycle::pods_ready::PodsReadyLimits;
use sluice::scheduler::FairStrategy;
use sluice::simulate::fake_api_server::{FakeApiServer, key_of};
use sluice::state::{CoreSettings, Delta, Effect, Kind, Reconciler, Verb, Write, WriteResult};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Read as _;
use std::path::Path;

const VERSIONS: [&str; 4] = ["v0.17.8", "v0.18.6", "v0.19.2", "ff69552"];
const JOB: Kind = Kind::Job(0);
/// How long each takeover is watched.
const WATCHED_SECONDS: i64 = 30;
/// The frameworks that the recorded managers had.
const FRAMEWORKS: [&str; 12] = [
    "batch/job",
    "kubeflow.org/mpijob",
    "ray.io/rayjob",
    "ray.io/raycluster",
    "ray.io/rayservice",
    "jobset.x-k8s.io/jobset",
    "workload.codeflare.dev/appwrapper",
    "trainer.kubeflow.org/trainjob",
    "pod",
    "deployment",
    "statefulset",
    "leaderworkerset.x-k8s.io/leaderworkerset",
];

/// The configuration of the recorded managers.
fn settings() -> CoreSettings {
    let seconds = SignedDuration::from_secs;
    let mut settings = CoreSettings {
        frameworks: FRAMEWORKS.iter().map(|name| (*name).to_owned()).collect(),
        ..CoreSettings::default()
    };
    settings.lifecycle.pods_ready = Some(PodsReadyLimits {
        timeout: seconds(40),
        recovery_timeout: Some(seconds(600)),
        max_requeues: Some(1),
        backoff_base: seconds(40),
        backoff_max: seconds(3600),
    });
    settings.engine.fair_sharing =
        Some(vec![FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare]);
    settings
}

/// A recorded cluster under a core of ours.
struct Takeover {
    server: FakeApiServer,
    state: Reconciler,
    now: Timestamp,
    /// What a takeover may do, by Workload.
    expected_fate: BTreeMap<ObjectKey, String>,
    /// The Workload of a job, by the job's UID.
    workload_of: BTreeMap<String, ObjectKey>,
    violations: Vec<String>,
    writes: usize,
}

fn lines(path: &Path) -> Vec<Value> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a condition is True.
fn condition_is_true(object: &Value, kind: &str) -> bool {
    let all = object.pointer("/status/conditions").and_then(Value::as_array);
    all.is_some_and(|all| all.iter().any(|c| c["type"] == kind && c["status"] == "True"))
}

/// A condition as a whole.
fn condition(object: &Value, kind: &str) -> Value {
    let all = object.pointer("/status/conditions").and_then(Value::as_array);
    let found = all.and_then(|all| all.iter().find(|c| c["type"] == kind)).cloned();
    let mut found = found.unwrap_or_default();
    if let Some(fields) = found.as_object_mut() {
        fields.shift_remove("observedGeneration");
    }
    found
}

/// Whether a Workload was made for a job and has lost its owner. All but the oldest recorded version finish it.
fn is_orphan(workload: &Value) -> bool {
    let labels = workload.pointer("/metadata/labels");
    workload.pointer("/metadata/ownerReferences").is_none()
        && labels.is_some_and(|labels| labels.get("kueue.x-k8s.io/job-uid").is_some())
}

impl Takeover {
    fn read(folder: &Path) -> Self {
        let expect: Value =
            serde_json::from_str(&std::fs::read_to_string(folder.join("expect.json")).unwrap()).unwrap();
        // The dump was taken some seconds after the kill, and the lease has run out by then.
        let killed: Timestamp = text(&expect, "/killed_at").parse().unwrap();
        let now = killed.checked_add(SignedDuration::from_secs(20)).unwrap();
        let recorded = expect["workloads"].as_array().unwrap();
        let key_in = |workload: &Value| ObjectKey::new(text(workload, "/namespace"), text(workload, "/name"));
        let after = recorded.iter().map(|one| (key_in(one), text(one, "/after").to_owned()));
        let mut takeover = Self {
            server: FakeApiServer::new(true),
            state: Reconciler::new(settings()),
            now,
            expected_fate: after.collect(),
            workload_of: BTreeMap::new(),
            violations: Vec::new(),
            writes: 0,
        };
        for mut object in lines(&folder.join("objects.jsonl.gz")) {
            let group = text(&object, "/apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
            let Some(kind) = Kind::from_group_kind(group, text(&object, "/kind")) else { continue };
            if kind == Kind::Workload {
                let owner = text(&object, "/metadata/ownerReferences/0/uid").to_owned();
                takeover.workload_of.insert(owner, key_of(&object));
            }
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.shift_remove("managedFields");
            }
            takeover.server.load(kind, object, now);
        }
        takeover.server.watch_events.clear();
        takeover
    }

    /// Takes the lead, and lets the core write for a while.
    fn run(&mut self) {
        let followed: BTreeSet<Kind> = self.state.kinds().iter().copied().collect();
        let listed = self.server.list().into_iter().filter(|delta| match delta {
            Delta::Restarted { kind } | Delta::Synced { kind } | Delta::Applied { kind, .. } => {
                followed.contains(kind)
            }
            _ => true,
        });
        let mut queue: VecDeque<Delta> = listed.chain([Delta::Leading(true)]).collect();
        for _ in 0..=WATCHED_SECONDS {
            while let Some(delta) = queue.pop_front() {
                for effect in self.state.apply(delta, self.now) {
                    self.execute_effect(effect, &mut queue);
                }
                queue.extend(self.server.watch_events.drain(..));
            }
            assert_eq!(self.state.ledger_drift(), 0);
            self.now = self.now.checked_add(SignedDuration::from_secs(1)).unwrap();
            queue.push_back(Delta::Tick);
        }
    }

    fn execute_effect(&mut self, effect: Effect, queue: &mut VecDeque<Delta>) {
        match effect {
            Effect::Write(write) => {
                if let Some(stored) = self.server.get(write.kind, &write.key).cloned() {
                    self.check_write(&write, &stored);
                }
                self.writes += 1;
                let (id, kind, key) = (write.id, write.kind, write.key.clone());
                let outcome = self.server.write(write, self.now);
                queue.push_back(Delta::Written(WriteResult { id, kind, key, outcome }));
            }
            Effect::Refetch { kind, key } => {
                let object = self.server.get(kind, &key).cloned();
                queue.extend(object.map(|object| Delta::Applied { kind, object }));
            }
            Effect::Event(_) | Effect::Observe(_) => {}
        }
    }

    /// Notes a write that a takeover may not do to its Workload.
    fn check_write(&mut self, write: &Write, stored: &Value) {
        let workload = match write.kind {
            Kind::Workload => Some(write.key.clone()),
            JOB => self.workload_of.get(text(stored, "/metadata/uid")).cloned(),
            _ => return,
        };
        let after = workload.as_ref().and_then(|key| self.expected_fate.get(key)).map_or("", String::as_str);
        let body = serde_json::to_value(write.payload()).unwrap();
        let what = match (write.kind, write.verb) {
            (Kind::Workload, Verb::Delete) => Some(("is deleted", &["gone"][..])),
            (Kind::Workload, Verb::Apply) => {
                let lost =
                    condition_is_true(stored, "QuotaReserved") && !condition_is_true(&body, "QuotaReserved");
                let evicted = !condition_is_true(stored, "Evicted") && condition_is_true(&body, "Evicted");
                let finished = !condition_is_true(stored, "Finished") && condition_is_true(&body, "Finished");
                if evicted {
                    Some(("is evicted", &["due", "evict", "gone"][..]))
                } else if lost {
                    Some(("loses its quota", &["due", "evict", "finish", "gone"][..]))
                } else if finished && !is_orphan(stored) {
                    Some(("is finished", &["due", "finish", "gone"][..]))
                } else {
                    None
                }
            }
            (Kind::Workload, Verb::Merge) if body["spec"]["active"] == false => {
                Some(("is deactivated", &["due"][..]))
            }
            (JOB, Verb::Delete) => Some(("has its job deleted", &[][..])),
            (JOB, Verb::Merge) if body["spec"]["suspend"] == true && stored["spec"]["suspend"] != true => {
                Some(("has its job suspended", &["due", "evict", "gone"][..]))
            }
            _ => None,
        };
        if let Some((what, allowed)) = what
            && !allowed.contains(&after)
        {
            let name = workload.unwrap_or_else(|| write.key.clone());
            self.violations.push(format!("{name} ({after:?}) {what}: {body}"));
        }
    }

    /// What must be left of a Workload.
    fn check_end_state(&mut self, before: &Map<String, Value>) {
        let mut owners: BTreeMap<String, usize> = BTreeMap::new();
        for workload in self.server.all(Kind::Workload) {
            let owner = text(workload, "/metadata/ownerReferences/0/uid");
            if !owner.is_empty() && workload["metadata"].get("deletionTimestamp").is_none() {
                *owners.entry(owner.to_owned()).or_default() += 1;
            }
        }
        self.violations
            .extend(owners.iter().filter(|(_, n)| **n > 1).map(|(uid, n)| format!("{uid}: {n} Workloads")));
        for (key, after) in &self.expected_fate {
            let name = key.to_string();
            let Some(then) = before.get(&name) else { continue };
            let Some(now) = self.server.get(Kind::Workload, key) else {
                if after != "gone" {
                    self.violations.push(format!("{name} ({after}) is gone"));
                }
                continue;
            };
            let kept: &[&str] = match after.as_str() {
                "same" => &["QuotaReserved", "Admitted"],
                "check" => &["QuotaReserved"],
                "still" => &["Finished", "Evicted"],
                _ => &[],
            };
            for kind in kept {
                if condition(then, kind) != condition(now, kind) {
                    let (then, now) = (condition(then, kind), condition(now, kind));
                    self.violations.push(format!("{name} ({after}): {kind} was {then}, is {now}"));
                }
            }
            let fields: &[&str] = match after.as_str() {
                "same" => &["/status/admission", "/metadata/uid"],
                "check" => &["/status/admission", "/status/admissionChecks", "/metadata/uid"],
                _ => &["/metadata/uid"],
            };
            for field in fields {
                if after != "gone" && then.pointer(field) != now.pointer(field) {
                    self.violations.push(format!(
                        "{name} ({after}): {field} was {:?}, is {:?}",
                        then.pointer(field),
                        now.pointer(field)
                    ));
                }
            }
            let count = |object: &Value| object.pointer("/status/requeueState/count").and_then(Value::as_i64);
            if count(now) < count(then) && after != "finish" && after != "still" {
                self.violations.push(format!("{name} ({after}): its requeue count fell"));
            }
        }
    }
}

#[test]
fn takeover_keeps_every_workload_kueue_keeps() {
    for version in VERSIONS {
        let Some(folder) = reference_data::path(&format!("switch/{version}")) else { return };
        let mut takeover = Takeover::read(&folder);
        let before: Map<String, Value> = takeover
            .server
            .all(Kind::Workload)
            .map(|workload| (key_of(workload).to_string(), workload.clone()))
            .collect();
        assert_eq!(before.len(), takeover.expected_fate.len());
        takeover.run();
        takeover.check_end_state(&before);
        println!("{version}: {} Workloads taken over with {} writes", before.len(), takeover.writes);
        assert!(takeover.writes > 0, "{version}: it did nothing at all");
        assert!(takeover.violations.is_empty(), "{version}:\n{}", takeover.violations.join("\n"));
    }
}
