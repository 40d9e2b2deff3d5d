//! What earlier versions have stored, from the dumps of `e2e/upgrades`: it is complete, names no machine and no key, and the core of this
//! version writes nothing when it finds it. `upgrade_dumps` of the end-to-end cases does the same on a control plane.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sluice::cache::Kind;
use sluice::frameworks::frameworks;
use sluice::lifecycle::pods_ready::PodsReadyLimits;
use sluice::reconciler::{CoreSettings, Delta, Effect, Event};
use sluice::simulate::Harness;
use sluice::simulate::fake_api_server::FakeApiServer;
use sluice::visibility::access::Access;
use sluice::visibility::findings::audit;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of the files of a dump.
const LIMIT: usize = 2_000_000;
/// Conditions of Workloads that a dump has, each with its reason.
const STATES: [&str; 30] = [
    "QuotaReserved=True QuotaReserved",
    "QuotaReserved=False WaitingForQuota",
    "QuotaReserved=False ExceedsMaxQuota",
    "QuotaReserved=False WaitingForPreemptedWorkloads",
    "QuotaReserved=False PendingEvaluation",
    "QuotaReserved=False Suspended",
    "QuotaReserved=False Misconfigured",
    "QuotaReserved=False Deactivated",
    "Admitted=True Admitted",
    "Admitted=False NoReservation",
    "Admitted=False UnsatisfiedAdmissionChecks",
    "PodsReady=True Started",
    "PodsReady=False WaitForStart",
    "PodsReady=False WaitForRecovery",
    "Evicted=True Preempted",
    "Evicted=True Deactivated",
    "Evicted=True DeactivatedDueToAdmissionCheck",
    "Evicted=True AdmissionCheck",
    "Evicted=True PodsReadyTimeout",
    "Evicted=True ClusterQueueStopped",
    "Evicted=True LocalQueueStopped",
    "Evicted=True NodeFailures",
    "Preempted=True InClusterQueue",
    "Requeued=False Deactivated",
    "Requeued=False PodsReadyTimeout",
    "Requeued=True Preempted",
    "WaitingForReplacementPods=True PodsFailed",
    "Finished=True Succeeded",
    "Finished=True Failed",
    "Finished=True WorkloadSliceReplaced",
];

fn dumps() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/upgrades");
    let mut all: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    assert!(!all.is_empty(), "no dump");
    all
}

fn objects(dump: &Path) -> Vec<Value> {
    let text = fs::read_to_string(dump.join("objects.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn conditions(workload: &Value) -> impl Iterator<Item = String> {
    let all = workload["status"]["conditions"].as_array().into_iter().flatten();
    all.map(|c| format!("{}={} {}", text(c, "/type"), text(c, "/status"), text(c, "/reason")))
}

#[test]
fn dumps_have_every_kind_and_state_and_no_key() {
    for dump in dumps() {
        let files = ["dump.json", "objects.jsonl", "definitions.jsonl"];
        let files = files.map(|file| fs::read_to_string(dump.join(file)).unwrap());
        assert!(files.iter().map(String::len).sum::<usize>() <= LIMIT, "{}", dump.display());
        for word in ["PRIVATE KEY", "CERTIFICATE", "caBundle"] {
            assert!(files.iter().all(|text| !text.contains(word)), "{} has {word}", dump.display());
        }
        let objects = objects(&dump);
        let of_kind = |kind: &str| objects.iter().filter(move |object| object["kind"] == *kind).count();
        assert_eq!(of_kind("Secret") + of_kind("Lease"), 0);
        // One that runs and one that waits, and the table has no kind that a dump lacks.
        for row in frameworks() {
            assert!(of_kind(row.gvk.kind) >= 2, "{}: {} of them", row.name, of_kind(row.gvk.kind));
        }
        let found: BTreeSet<String> =
            objects.iter().filter(|object| object["kind"] == "Workload").flat_map(conditions).collect();
        let missing: Vec<&&str> = STATES.iter().filter(|state| !found.contains(**state)).collect();
        assert!(missing.is_empty(), "{}: {missing:?} not in {found:#?}", dump.display());
    }
}

/// Lets the core read what a dump has, become the leader, and find nothing to write for a minute. Returns it, with its events.
fn take_over(dump: &Path, change: impl Fn(&mut Value)) -> (Harness, Vec<Event>, Timestamp) {
    let facts = fs::read_to_string(dump.join("dump.json")).unwrap();
    let facts: Value = serde_json::from_str(&facts).unwrap();
    let names = facts["configuration"]["integrations"]["frameworks"].as_array().unwrap().iter();
    let mut settings = CoreSettings {
        frameworks: names.map(|name| name.as_str().unwrap().to_owned()).collect(),
        ..CoreSettings::default()
    };
    let hours = SignedDuration::from_hours(10);
    settings.lifecycle.pods_ready = Some(PodsReadyLimits {
        timeout: hours,
        recovery_timeout: None,
        max_requeues: None,
        backoff_base: hours,
        backoff_max: hours,
    });
    let mut now: Timestamp = text(&facts, "/written").parse().unwrap();
    let mut harness = Harness::new(settings, FakeApiServer::new(true));
    let watched = harness.core.kinds().to_vec();
    for mut object in objects(dump) {
        change(&mut object);
        let (version, name) = (text(&object, "/apiVersion"), text(&object, "/kind"));
        let is_kind = |kind: &&Kind| kind.resource().api_version() == version && kind.resource().kind == name;
        if let Some(kind) = watched.iter().find(is_kind) {
            harness.server.load(*kind, object, now);
        }
    }
    harness.server.watch_events.clear();
    let mut deltas = harness.lists();
    deltas.push(Delta::Leading(true));
    let mut events = Vec::new();
    for second in 0..60 {
        while !deltas.is_empty() {
            for effect in harness.core.apply_all(std::mem::take(&mut deltas), now) {
                match effect {
                    Effect::Write(write) => {
                        let body = serde_json::to_value(write.payload()).unwrap();
                        panic!("{second} s: {:?} {:?} {}: {body}", write.verb, write.kind, write.key);
                    }
                    Effect::Refetch { kind, key } => harness.read(kind, key),
                    Effect::Event(event) => events.push(event),
                    Effect::Observe(_) | Effect::LogWaitingHead { .. } => {}
                }
            }
            deltas.extend(harness.inbox.drain(..));
        }
        assert_eq!(harness.core.ledger_drift(), 0);
        now = now.checked_add(SignedDuration::from_secs(1)).unwrap();
        deltas.push(Delta::Tick);
    }
    (harness, events, now)
}

#[test]
fn nothing_is_written_for_what_a_dump_has() {
    for dump in dumps() {
        take_over(&dump, |_| {});
    }
}

/// The recorded versions charged `replicas` of a Ray group, also where its operator runs more: such a job runs on, and an event and an
/// audit say by how much it is charged too little. No recorded object is such a one, so the minimum of one group is raised here.
#[test]
fn a_job_that_was_charged_too_little_runs_on() {
    for dump in dumps() {
        let (mut harness, events, now) = take_over(&dump, |object| {
            if object["kind"] == "RayCluster" && object["spec"]["suspend"] == false {
                let group = &mut object["spec"]["workerGroupSpecs"][0];
                (group["minReplicas"], group["maxReplicas"]) = (4.into(), 4.into());
            }
        });
        let said: Vec<&Event> = events.iter().filter(|event| event.reason == "ChargedTooLittle").collect();
        let [event] = &said[..] else { panic!("{}: {said:?}", dump.display()) };
        assert_eq!(&*event.key.name, "raycluster-runs");
        assert!(event.note.contains("not charged: cpu: 2, memory: 400Mi."), "{}", event.note);
        let facts = harness.core.audit_facts();
        let snapshot = harness.core.snapshot();
        let found = audit((&snapshot, Some(&facts)), &Access::everything(), (None, now)).unwrap();
        let found: Vec<_> =
            found.iter().filter(|one| one.check.as_str() == "job-charged-too-little").collect();
        let [finding] = &found[..] else { panic!("{found:?}") };
        assert_eq!(finding.object.name, "raycluster-runs");
        assert!(finding.message.contains("not charged: cpu: 2, memory: 400Mi"), "{}", finding.message);
    }
}
