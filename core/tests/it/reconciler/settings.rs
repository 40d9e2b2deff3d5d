//! Effects of settings on the core: which objects are managed, for how long, and what is counted of them.

use crate::fixtures::leading_core::{Core, JOB, START, condition, job, reserving_workload, workload, writes};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_core::admission::OwnerRef;
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::lifecycle::pods_ready::PodsReadyLimits;
use sluice_core::reconciler::{CoreSettings, Delta, Effect, Observation, Verb, Write};
use sluice_core::snapshot::UnadmittedKey;
use std::collections::{BTreeMap, BTreeSet};

fn deactivated_workload(reason: &str) -> Value {
    let conditions =
        [condition("Evicted", "True", reason), condition("QuotaReserved", "False", "Deactivated")];
    let mut workload = workload("j", &conditions);
    workload["spec"]["active"] = json!(false);
    workload
}

#[test]
fn job_of_deactivated_workload_is_deleted_after_retention() {
    let settings = || {
        let mut settings = CoreSettings::default();
        settings.lifecycle.retain_deactivated = Some(SignedDuration::from_secs(10));
        settings
    };
    for (reason, deleted) in [("DeactivatedDueToRequeuingLimitExceeded", true), ("Deactivated", false)] {
        let mut core = Core::new(settings());
        core.put(Kind::Workload, deactivated_workload(reason));
        let early = core.put(JOB, job("j"));
        let due = core.state.next_due();
        assert_eq!(writes(&early, JOB), [], "{reason}");
        let late = writes(&core.advance_seconds(9), JOB);
        assert_eq!(late.len(), usize::from(deleted), "{reason}: {late:?}");
        if deleted {
            assert_eq!(due, Timestamp::from_second(START + 8).ok());
            assert_eq!((late[0].verb, &*late[0].key.name), (Verb::Delete, "j"));
            assert_eq!(late[0].body["preconditions"]["uid"], "jobs-j");
            assert_eq!(late[0].body["propagationPolicy"], "Background");
        }
    }
    let mut core = Core::new(CoreSettings::default());
    core.put(Kind::Workload, deactivated_workload("DeactivatedDueToRequeuingLimitExceeded"));
    core.put(JOB, job("j"));
    assert_eq!(writes(&core.advance_seconds(1_000_000), JOB), [], "kept forever");
}

/// Other times of waiting for pods hold at once for workloads that wait already; where workloads do not wait, none begins to.
#[test]
fn times_of_waiting_for_pods_may_change() {
    let limits = |seconds| PodsReadyLimits {
        timeout: SignedDuration::from_secs(seconds),
        recovery_timeout: None,
        max_requeues: None,
        backoff_base: SignedDuration::from_secs(1),
        backoff_max: SignedDuration::from_secs(1),
    };
    let is_evicted = |effects: &[Effect]| {
        let evicted = |condition: &Value| condition["type"] == "Evicted" && condition["status"] == "True";
        let conditions = |write: &Write| write.body["status"]["conditions"].as_array().cloned();
        writes(effects, Kind::Workload).iter().filter_map(conditions).flatten().any(|c| evicted(&c))
    };
    for waits in [true, false] {
        let mut settings = CoreSettings::default();
        settings.lifecycle.pods_ready = waits.then(|| limits(3600));
        let mut core = Core::new(settings);
        let mut running = job("j");
        running["spec"]["suspend"] = json!(false);
        core.put(JOB, running);
        let mut conditions = ["QuotaReserved", "Admitted"].map(|kind| condition(kind, "True", kind)).to_vec();
        conditions.push(condition("PodsReady", "False", "WaitForStart"));
        let mut effects = core.put(Kind::Workload, reserving_workload("j", &conditions));
        effects.extend(core.advance_seconds(60));
        effects.extend(core.feed(Delta::PodsReadyLimits(limits(7200))));
        effects.extend(core.advance_seconds(4000));
        assert!(!is_evicted(&effects), "{effects:?}");
        let effects = core.feed(Delta::PodsReadyLimits(limits(10)));
        assert_eq!(is_evicted(&effects), waits, "{effects:?}");
    }
}

#[test]
fn jobs_of_disabled_framework_are_ignored() {
    let mut core = Core::new(CoreSettings { frameworks: BTreeSet::new(), ..CoreSettings::default() });
    assert!(core.state.is_synced() && !core.state.kinds().contains(&JOB));
    // Its Workload belongs to another controller: it is queued, and not treated as an orphan.
    let effects = core.put(Kind::Workload, workload("j", &[]));
    let written = writes(&effects, Kind::Workload);
    assert_eq!(written.len(), 1);
    assert_eq!(written[0].body["status"]["conditions"][0]["reason"], "QuotaReserved");
}

#[test]
fn child_of_external_owner_gets_no_workload() {
    let external = BTreeSet::from([("example.com".to_owned(), "Foo".to_owned())]);
    for (settings, expected) in [
        (CoreSettings { external_kinds: external, ..CoreSettings::default() }, true),
        (CoreSettings::default(), false),
    ] {
        let mut core = Core::new(settings);
        let owner = json!({"apiVersion": "example.com/v1", "kind": "Foo", "name": "foo", "uid": "jobs-foo",
            "controller": true});
        let mut parent = workload("foo", &[]);
        parent["metadata"]["ownerReferences"] = json!([owner]);
        parent["metadata"]["labels"] = json!({});
        core.put(Kind::Workload, parent);
        let reference = OwnerRef {
            api_version: "example.com/v1".to_owned(),
            kind: "Foo".to_owned(),
            name: "foo".to_owned(),
            uid: "jobs-foo".to_owned(),
        };
        let known = core.state.snapshot().owner("ns", &reference).is_some();
        assert_eq!(known, expected);
        let mut child = job("child");
        child["metadata"]["ownerReferences"] = json!([owner]);
        child["spec"]["suspend"] = json!(false);
        let effects = core.put(JOB, child.clone());
        let stops = writes(&effects, JOB);
        assert_eq!(stops.len(), 1, "it must not run before its parent is admitted");
        child["spec"]["suspend"] = json!(true);
        let written = writes(&core.put(JOB, child), Kind::Workload);
        assert_eq!(
            written.iter().filter(|write| write.verb == Verb::Create).count(),
            0,
            "a write is in flight"
        );
        let uid = "workloads-w-foo".to_owned();
        core.feed(Delta::Deleted { kind: Kind::Workload, key: ObjectKey::new("ns", "w-foo"), uid });
        assert!(core.state.snapshot().owner("ns", &reference).is_none());
    }
}

/// A Job was created while the webhook was unavailable: its owner reference is evaluated again.
#[test]
fn owner_reference_does_not_bypass_queue() {
    let only_jobs = BTreeSet::from(["batch/job".to_owned()]);
    let settings = || CoreSettings {
        manage_jobs_without_queue_name: true,
        frameworks: only_jobs.clone(),
        ..CoreSettings::default()
    };
    let table = [
        ("batch/v1", "Job", "lq", CoreSettings::default(), true),
        ("batch/v1", "Job", "", settings(), true),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", "", settings(), true),
    ];
    for (api_version, kind, queue, settings, queued) in table {
        let mut core = Core::new(settings.clone());
        core.put(JOB, job("parent"));
        core.put(Kind::Workload, workload("parent", &[]));
        let mut child = job("child");
        child["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": queue});
        child["metadata"]["ownerReferences"] = json!([{"apiVersion": api_version, "kind": kind,
            "name": "parent", "uid": "jobs-parent", "controller": true}]);
        child["spec"]["suspend"] = json!(false);
        let stops = writes(&core.put(JOB, child.clone()), JOB);
        assert_eq!(stops.len(), usize::from(queued), "{kind} {queue:?}: it must not run: {stops:?}");
        let mut core = Core::new(settings);
        child["spec"]["suspend"] = json!(true);
        let written = writes(&core.put(JOB, child), Kind::Workload);
        let created = written.iter().filter(|write| write.verb == Verb::Create).count();
        assert_eq!(created, usize::from(queued), "{kind} {queue:?}");
    }
}

#[test]
fn queue_counts_return_to_zero_after_deletion() {
    let mut core = Core::new(CoreSettings::default());
    let reserved = || condition("QuotaReserved", "True", "QuotaReserved");
    let finished =
        [reserved(), condition("Admitted", "True", "x"), condition("Finished", "True", "Succeeded")];
    for name in ["big", "runs", "over"] {
        core.put(JOB, job(name));
    }
    let mut big = workload("big", &[condition("QuotaReserved", "False", "ExceedsMaxQuota")]);
    big["spec"]["podSets"][0]["count"] = json!(5);
    core.put(Kind::Workload, big.clone());
    core.put(Kind::Workload, reserving_workload("runs", &[reserved(), condition("Admitted", "False", "x")]));
    core.put(Kind::Workload, reserving_workload("over", &finished));
    core.advance_seconds(1);
    let view = core.state.snapshot().queues.cluster_queues["cq"].clone();
    assert_eq!((view.finished, view.reserving, view.admitted), (1, 1, 0));
    let requested: Vec<_> = view.pending_requests.iter().map(|(name, sum)| (&**name, sum.get())).collect();
    assert_eq!(requested, [("cpu", 5000)]);
    let unadmitted_key = |reason, underlying_cause| UnadmittedKey { reason, underlying_cause };
    let expected = BTreeMap::from([
        (unadmitted_key("NoReservation", "ExceedsMaxQuota"), 1),
        (unadmitted_key("UnsatisfiedAdmissionChecks", ""), 1),
    ]);
    assert_eq!(view.unadmitted, expected);
    let local = &core.state.snapshot().queues.local_queues[&ObjectKey::new("ns", "lq")].clone();
    assert_eq!((local.finished, &local.unadmitted, local.exported), (1, &expected, true));
    assert_eq!(core.state.ledger_drift(), 0);
    for name in ["big", "runs", "over"] {
        let uid = format!("workloads-w-{name}");
        let key = ObjectKey::new("ns", &format!("w-{name}"));
        core.feed(Delta::Deleted { kind: Kind::Workload, key, uid });
    }
    core.advance_seconds(1);
    let view = core.state.snapshot().queues.cluster_queues["cq"].clone();
    assert_eq!(
        (view.finished, view.reserving, view.pending_requests.len(), view.unadmitted.len()),
        (0, 0, 0, 0)
    );
    assert_eq!(core.state.ledger_drift(), 0);
}

#[test]
fn observation_labels_name_cohorts_and_queue_visibility() {
    for (team, exported) in [("a", true), ("b", false)] {
        let selector = serde_json::from_value(json!({"matchLabels": {"team": team}})).unwrap();
        let mut core = Core::new(CoreSettings {
            local_queue_metrics_selector: Some(selector),
            ..CoreSettings::default()
        });
        core.put(JOB, job("j"));
        let effects = core.put(Kind::Workload, workload("j", &[]));
        let write = writes(&effects, Kind::Workload).remove(0);
        let mut stored = workload("j", &[]);
        stored["metadata"]["uid"] = json!("workloads-w-j");
        stored["metadata"]["resourceVersion"] = json!("900");
        stored["metadata"]["generation"] = json!(1);
        stored["status"] = write.body["status"].clone();
        let outcome = sluice_core::reconciler::WriteOutcome::Done(stored);
        let result =
            sluice_core::reconciler::WriteResult { id: write.id, kind: write.kind, key: write.key, outcome };
        let effects = core.feed(Delta::Written(result));
        let labels = effects.iter().find_map(|effect| match effect {
            Effect::Observe(Observation::Admitted(labels, _)) => Some(labels.clone()),
            _ => None,
        });
        let labels = labels.expect("an admission");
        assert_eq!(labels.cohorts, ["team", "org"]);
        assert_eq!(labels.local_queue_exported, exported);
        core.advance_seconds(1);
        assert_eq!(
            core.state.snapshot().queues.local_queues.values().next().map(|q| q.exported),
            Some(exported)
        );
    }
}

#[test]
fn rejected_write_releases_quota_until_retry() {
    let mut core = Core::new(CoreSettings::default());
    let mut first = workload("first", &[]);
    first["spec"]["podSets"][0]["count"] = json!(2);
    core.put(JOB, job("first"));
    let write = writes(&core.put(Kind::Workload, first), Kind::Workload).remove(0);
    let message = "etcdserver: request is too large".to_owned();
    let outcome = sluice_core::reconciler::WriteOutcome::Rejected { code: 400, message };
    let (id, kind, key) = (write.id, write.kind, write.key.clone());
    core.feed(Delta::Written(sluice_core::reconciler::WriteResult { id, kind, key, outcome }));
    // Another workload needs the same quota and gets it at once, although it was created later.
    core.put(JOB, job("second"));
    let effects = core.put(Kind::Workload, workload("second", &[]));
    let names: Vec<_> = writes(&effects, Kind::Workload).iter().map(|w| w.key.name.to_string()).collect();
    assert_eq!(names, ["w-second"]);
    // After its backoff, when quota is available, the first workload is retried.
    let key = ObjectKey::new("ns", "w-second");
    core.feed(Delta::Deleted { kind: Kind::Workload, key, uid: "workloads-w-second".to_owned() });
    let retried: Vec<Write> = (0..3).flat_map(|_| writes(&core.advance_seconds(1), Kind::Workload)).collect();
    assert!(retried.iter().any(|w| *w.key.name == *"w-first" && w.body["status"]["admission"].is_object()));
}

/// Simulates a minute in which every write of a Workload meets a conflict; `deliver_change` delivers the change that caused it.
/// Returns the number of writes, and the writes that are still to be sent.
fn run_with_conflicts(
    core: &mut Core,
    first: Vec<Write>,
    deliver_change: impl Fn(&mut Core) -> Vec<Effect>,
) -> (u32, Vec<Write>) {
    let (mut sent, mut tries) = (first, 0);
    for _ in 0..600 {
        // At most this many within a tenth of a second, should there be no backoff.
        for _ in 0..20 {
            let Some(write) = sent.pop() else { break };
            assert!(sent.is_empty(), "one write of an object at a time");
            tries += 1;
            let mut effects = deliver_change(core);
            let outcome = sluice_core::reconciler::WriteOutcome::Conflict;
            let (id, kind, key) = (write.id, write.kind, write.key.clone());
            effects.extend(core.feed(Delta::Written(sluice_core::reconciler::WriteResult {
                id,
                kind,
                key,
                outcome,
            })));
            sent = writes_after_refetch(core, effects);
        }
        core.now = core.now.checked_add(SignedDuration::from_millis(100)).unwrap();
        let effects = core.feed(Delta::Tick);
        sent.extend(writes_after_refetch(core, effects));
    }
    (tries, sent)
}

/// The writes of Workloads, after delivering the Job again if a refetch was requested.
fn writes_after_refetch(core: &mut Core, mut effects: Vec<Effect>) -> Vec<Write> {
    if effects.iter().any(|effect| matches!(effect, Effect::Refetch { .. })) {
        effects.extend(core.put(JOB, job("first")));
    }
    writes(&effects, Kind::Workload)
}

#[test]
fn conflicting_writes_back_off() {
    // Another client writes the same object all the time.
    let mut core = Core::new(CoreSettings::default());
    core.put(JOB, job("first"));
    let first = writes(&core.put(Kind::Workload, workload("first", &[])), Kind::Workload);
    let (tries, mut sent) =
        run_with_conflicts(&mut core, first, |core| core.put(Kind::Workload, workload("first", &[])));
    assert!((5..=30).contains(&tries), "{tries} tries in a minute");
    // Then no other client writes: the decision is made on the newest object.
    sent.extend((0..6).flat_map(|_| writes(&core.advance_seconds(1), Kind::Workload)));
    let last = sent.pop().expect("the write is retried");
    assert!(last.body["status"]["admission"].is_object());
    assert_eq!(last.body["metadata"]["resourceVersion"], json!(core.version.to_string()));

    // The Workload cannot be created, and does not exist either.
    let mut core = Core::new(CoreSettings::default());
    let first = writes(&core.put(JOB, job("first")), Kind::Workload);
    let key = first[0].key.clone();
    let deletion = |core: &mut Core| {
        core.feed(Delta::Deleted { kind: Kind::Workload, key: key.clone(), uid: String::new() })
    };
    let (tries, mut sent) = run_with_conflicts(&mut core, first, deletion);
    assert!((5..=30).contains(&tries), "{tries} tries in a minute");
    for _ in 0..6 {
        let effects = core.advance_seconds(1);
        sent.extend(writes_after_refetch(&mut core, effects));
    }
    assert!(!sent.is_empty(), "the write was abandoned");
}

#[test]
fn scheduling_budget_lets_events_in() {
    const MANY: usize = 1500;
    let mut core = Core::new(CoreSettings::default());
    core.feed(Delta::Leading(false));
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "2k"}]}]}]);
    core.put(
        Kind::ClusterQueue,
        json!({"metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": groups}}),
    );
    for number in 0..MANY {
        let mut object = workload("none", &[]);
        object["metadata"] = json!({"name": format!("w-{number}"), "namespace": "ns"});
        core.put(Kind::Workload, object);
    }
    let admissions = |effects: &[Effect]| {
        writes(effects, Kind::Workload).iter().filter(|w| w.body["status"]["admission"].is_object()).count()
    };
    // A cycle admits one workload of a queue: events that arrive in between are processed before all are admitted.
    let first = admissions(&core.feed(Delta::Leading(true)));
    assert!(first > 0 && first < MANY, "{first}");
    assert_eq!(core.state.next_due(), Some(core.now));
    let rest = core.advance_seconds(0);
    assert_eq!(first + admissions(&rest), MANY);
    assert_ne!(core.state.next_due(), Some(core.now));
}

/// Nothing may come to a follower for long after the last change: the counts of its queues are right soon all the same.
#[test]
fn counts_of_a_quiet_follower_are_soon_right() {
    let mut core = Core::new(CoreSettings::default());
    core.feed(Delta::Leading(false));
    core.advance_seconds(60);
    let pending = |core: &Core| {
        let snapshot = core.state.snapshot();
        let counts = &snapshot.queues.cluster_queues["cq"].pending;
        counts.active + counts.inadmissible
    };
    for name in ["a", "b"] {
        core.put(JOB, job(name));
        core.put(Kind::Workload, workload(name, &[condition("QuotaReserved", "False", "WaitingForQuota")]));
    }
    assert_eq!(pending(&core), 0, "the view is rebuilt at intervals");
    let due = core.state.next_due().expect("the view is behind");
    let wait = due.duration_since(core.now).as_secs() + 1;
    core.advance_seconds(wait);
    assert_eq!((pending(&core), core.state.next_due()), (2, None));
}
