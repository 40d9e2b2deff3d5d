//! Takeover of clusters as four versions of Kueue left them, killed in the middle of work: nothing is deleted or evicted, unless
//! it was already terminating or is due by the clock.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use sluice::api::ObjectKey;
use sluice::cache::Kind;
use sluice::lifecycle::pods_ready::PodsReadyLimits;
use sluice::reconciler::{CoreSettings, Delta, Effect, Reconciler, Verb, Write, WriteResult};
use sluice::scheduler::FairStrategy;
use sluice::simulate::fake_api_server::{FakeApiServer, key_of};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

/// How long each takeover is observed.
const WATCHED_SECONDS: i64 = 30;
/// Frameworks of the recorded managers.
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

/// A recorded cluster with a core of Sluice.
struct Takeover {
    server: FakeApiServer,
    core: Reconciler,
    now: Timestamp,
    /// Allowed fate of each Workload, from the recording.
    expected_fate: BTreeMap<ObjectKey, String>,
    /// Workload of a Job, by the Job's UID.
    workload_of: BTreeMap<String, ObjectKey>,
    violations: Vec<String>,
    writes: usize,
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn condition_is_true(object: &Value, kind: &str) -> bool {
    let all = object.pointer("/status/conditions").and_then(Value::as_array);
    all.is_some_and(|all| all.iter().any(|c| c["type"] == kind && c["status"] == "True"))
}

/// A condition, without `observedGeneration`.
fn condition(object: &Value, kind: &str) -> Value {
    let all = object.pointer("/status/conditions").and_then(Value::as_array);
    let entry = all.and_then(|all| all.iter().find(|c| c["type"] == kind)).cloned();
    let mut entry = entry.unwrap_or_default();
    if let Some(fields) = entry.as_object_mut() {
        fields.shift_remove("observedGeneration");
    }
    entry
}

/// Whether a Workload was created for a Job and has lost its owner. All recorded versions but the oldest finish it.
fn is_orphan(workload: &Value) -> bool {
    let labels = workload.pointer("/metadata/labels");
    workload.pointer("/metadata/ownerReferences").is_none()
        && labels.is_some_and(|labels| labels.get("kueue.x-k8s.io/job-uid").is_some())
}

impl Takeover {
    fn read(folder: &Path) -> Self {
        let expect: Value =
            serde_json::from_str(&std::fs::read_to_string(folder.join("expect.json")).unwrap()).unwrap();
        // The dump was taken some seconds after the kill; the lease has expired by then.
        let killed: Timestamp = text(&expect, "/killed_at").parse().unwrap();
        let now = killed.checked_add(SignedDuration::from_secs(20)).unwrap();
        let recorded = expect["workloads"].as_array().unwrap();
        let key_in = |workload: &Value| ObjectKey::new(text(workload, "/namespace"), text(workload, "/name"));
        let fates = recorded.iter().map(|workload| (key_in(workload), text(workload, "/after").to_owned()));
        let mut takeover = Self {
            server: FakeApiServer::new(true),
            core: Reconciler::new(settings()),
            now,
            expected_fate: fates.collect(),
            workload_of: BTreeMap::new(),
            violations: Vec::new(),
            writes: 0,
        };
        for mut object in sluice_recorded::documents(&folder.join("objects.jsonl.gz")).unwrap() {
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

    /// Becomes leader, and lets the core write for `WATCHED_SECONDS`.
    fn run(&mut self) {
        let watched: BTreeSet<Kind> = self.core.kinds().iter().copied().collect();
        let listed = self.server.list(Kind::all()).into_iter().filter(|delta| match delta {
            Delta::Restarted { kind } | Delta::Synced { kind } | Delta::Applied { kind, .. } => {
                watched.contains(kind)
            }
            _ => true,
        });
        let mut queue: VecDeque<Delta> = listed.chain([Delta::Leading(true)]).collect();
        for _ in 0..=WATCHED_SECONDS {
            while let Some(delta) = queue.pop_front() {
                for effect in self.core.apply(delta, self.now) {
                    self.execute_effect(effect, &mut queue);
                }
                queue.extend(self.server.watch_events.drain(..));
            }
            assert_eq!(self.core.ledger_drift(), 0);
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
                queue.push_back(Delta::Read { kind, key, object });
            }
            Effect::Event(_) | Effect::Observe(_) | Effect::LogWaitingHead { .. } => {}
        }
    }

    /// Records a violation if a takeover must not make this write to its Workload.
    fn check_write(&mut self, write: &Write, stored: &Value) {
        let workload = match write.kind {
            Kind::Workload => Some(write.key.clone()),
            Kind::Job(_) => self.workload_of.get(text(stored, "/metadata/uid")).cloned(),
            _ => return,
        };
        let fate = workload.as_ref().and_then(|key| self.expected_fate.get(key)).map_or("", String::as_str);
        let body = serde_json::to_value(write.payload()).unwrap();
        let action = match (write.kind, write.verb) {
            (Kind::Workload, Verb::Delete) => Some(("is deleted", &["gone"][..])),
            (Kind::Workload, Verb::Apply) => {
                let loses_quota =
                    condition_is_true(stored, "QuotaReserved") && !condition_is_true(&body, "QuotaReserved");
                let evicted = !condition_is_true(stored, "Evicted") && condition_is_true(&body, "Evicted");
                let finished = !condition_is_true(stored, "Finished") && condition_is_true(&body, "Finished");
                if evicted {
                    Some(("is evicted", &["due", "evict", "gone"][..]))
                } else if loses_quota {
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
            (Kind::Job(_), Verb::Delete) => Some(("has its job deleted", &[][..])),
            (Kind::Job(_), Verb::Merge)
                if body["spec"]["suspend"] == true && stored["spec"]["suspend"] != true =>
            {
                Some(("has its job suspended", &["due", "evict", "gone"][..]))
            }
            _ => None,
        };
        if let Some((action, allowed)) = action
            && !allowed.contains(&fate)
        {
            let name = workload.unwrap_or_else(|| write.key.clone());
            self.violations.push(format!("{name} ({fate:?}) {action}: {body}"));
        }
    }

    /// Checks what must remain of each Workload.
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
        for (key, fate) in &self.expected_fate {
            let name = key.to_string();
            let Some(earlier) = before.get(&name) else { continue };
            let Some(current) = self.server.get(Kind::Workload, key) else {
                if fate != "gone" {
                    self.violations.push(format!("{name} ({fate}) was deleted"));
                }
                continue;
            };
            let unchanged: &[&str] = match fate.as_str() {
                "same" => &["QuotaReserved", "Admitted"],
                "check" => &["QuotaReserved"],
                "still" => &["Finished", "Evicted"],
                _ => &[],
            };
            for kind in unchanged {
                if condition(earlier, kind) != condition(current, kind) {
                    let (earlier, current) = (condition(earlier, kind), condition(current, kind));
                    self.violations.push(format!("{name} ({fate}): {kind} was {earlier}, is {current}"));
                }
            }
            let fields: &[&str] = match fate.as_str() {
                "same" => &["/status/admission", "/metadata/uid"],
                "check" => &["/status/admission", "/status/admissionChecks", "/metadata/uid"],
                "still" => &["/spec", "/status", "/metadata"],
                _ => &["/metadata/uid"],
            };
            // No user has changed a job.
            for field in fields.iter().chain(&["/spec/podSets"]) {
                if fate != "gone" && earlier.pointer(field) != current.pointer(field) {
                    self.violations.push(format!(
                        "{name} ({fate}): {field} was {:?}, is {:?}",
                        earlier.pointer(field),
                        current.pointer(field)
                    ));
                }
            }
            let count = |object: &Value| object.pointer("/status/requeueState/count").and_then(Value::as_i64);
            if count(current) < count(earlier) && fate != "finish" && fate != "still" {
                self.violations.push(format!("{name} ({fate}): its requeue count fell"));
            }
        }
    }
}

/// Takes over the cluster in this folder.
pub(crate) fn keep_every_workload(folder: &Path) {
    let mut takeover = Takeover::read(folder);
    let workloads = takeover.server.all(Kind::Workload);
    let before: Map<String, Value> =
        workloads.map(|workload| (key_of(workload).to_string(), workload.clone())).collect();
    assert_eq!(before.len(), takeover.expected_fate.len());
    takeover.run();
    takeover.check_end_state(&before);
    assert!(takeover.writes > 0, "no writes");
    assert!(takeover.violations.is_empty(), "{}", takeover.violations.join("\n"));
}
