//! Charges of reserving Workloads as their objects change: reclaimable pods, deactivation, and past usage of LocalQueues.

use crate::fixtures::leading_core::{Core, condition, reserving_workload, workload, writes};
use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::reconciler::{CoreSettings, Delta, SnapshotIntervals, WriteOutcome, WriteResult};
use sluice_core::scheduler::AdmissionFairSharing;
use std::collections::BTreeMap;

fn admitted_conditions() -> [Value; 2] {
    [condition("QuotaReserved", "True", "QuotaReserved"), condition("Admitted", "True", "Admitted")]
}

/// The Workload without its owner.
fn without_owner(mut workload: Value) -> Value {
    workload["metadata"]["labels"] = json!({});
    workload["metadata"]["ownerReferences"] = json!([]);
    workload
}

/// The Workload with an owner of an unsupported kind: it does not stop by itself.
fn with_external_owner(mut workload: Value) -> Value {
    workload["metadata"]["labels"] = json!({});
    workload["metadata"]["ownerReferences"] = json!([{"apiVersion": "example.com/v1", "kind": "Other", "name": "o", "uid": "o", "controller": true}]);
    workload
}

fn cpu_usage(core: &Core) -> i64 {
    core.state.snapshot().queues.cluster_queues["cq"]
        .usage_by_flavor_resource
        .values()
        .map(|node| node.usage.get())
        .sum()
}

#[test]
fn reclaimable_pods_reduce_requested_count_first() {
    for (requested, admitted, reclaimable, charged) in [
        (10, 10, 3, 7),
        (10, 4, 3, 4),
        (10, 4, 6, 4),
        (10, 4, 7, 3),
        (10, 4, 10, 0),
        (10, 4, 12, 0),
        (4, 4, 0, 4),
        // A pod set that was scaled down while it runs.
        (2, 4, 1, 1),
    ] {
        let mut core = Core::new(CoreSettings::default());
        let mut object = without_owner(reserving_workload("j", &admitted_conditions()));
        object["spec"]["podSets"][0]["count"] = json!(requested);
        object["status"]["admission"]["podSetAssignments"][0]["count"] = json!(admitted);
        object["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]["cpu"] = json!(admitted);
        object["status"]["reclaimablePods"] = json!([{"name": "main", "count": reclaimable}]);
        core.put(Kind::Workload, object);
        core.advance_seconds(1);
        let case = format!("{reclaimable} of {requested}, {admitted} admitted");
        assert_eq!(cpu_usage(&core), charged * 1000, "{case}");
    }
}

/// Lets workloads of the queue preempt lower priority.
fn enable_preemption(core: &mut Core) {
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]}]);
    let spec = json!({"namespaceSelector": {}, "resourceGroups": groups,
        "preemption": {"withinClusterQueue": "LowerPriority"}});
    core.put(Kind::ClusterQueue, json!({"metadata": {"name": "cq"}, "spec": spec}));
}

/// A deactivated Workload is already leaving: the next Workload waits for its quota, and no other is evicted for it.
#[test]
fn deactivated_workload_is_awaited_instead_of_preempting() {
    for priority in [0, 9] {
        let mut core = Core::new(CoreSettings::default());
        enable_preemption(&mut core);
        core.put(Kind::Workload, with_external_owner(reserving_workload("stays", &admitted_conditions())));
        let mut deactivated = with_external_owner(reserving_workload("goes", &admitted_conditions()));
        deactivated["spec"]["active"] = json!(false);
        let mut written = writes(&core.put(Kind::Workload, deactivated), Kind::Workload);
        let mut next = without_owner(workload("next", &[]));
        next["spec"]["priority"] = json!(priority);
        written.extend(writes(&core.put(Kind::Workload, next), Kind::Workload));
        written.extend(writes(&core.advance_seconds(1), Kind::Workload));
        assert_eq!(cpu_usage(&core), 2000, "its pods may still run");
        let conditions_of = |name: &str| {
            let own_writes = written.iter().filter(|write| *write.key.name == format!("w-{name}"));
            own_writes
                .flat_map(|write| write.body["status"]["conditions"].as_array().cloned().unwrap_or_default())
                .map(|c| format!("{}={} {}", c["type"], c["status"], c["reason"]).replace('"', ""))
                .collect::<Vec<_>>()
        };
        assert_eq!(conditions_of("stays"), [""; 0], "priority {priority}");
        assert!(
            conditions_of("goes").contains(&"Evicted=True Deactivated".to_owned()),
            "{:?}",
            conditions_of("goes")
        );
        assert!(
            !conditions_of("goes").iter().any(|c| c.starts_with("Preempted=True")),
            "{:?}",
            conditions_of("goes")
        );
        let expected = "QuotaReserved=False WaitingForPreemptedWorkloads".to_owned();
        assert!(
            conditions_of("next").contains(&expected),
            "priority {priority}: {:?}",
            conditions_of("next")
        );
    }
}

/// A workload that was evicted and is then deactivated by its user is not evicted a second time, whether its quota was released
/// or not.
#[test]
fn evicted_workload_is_not_evicted_again_when_deactivated() {
    let evicted =
        [condition("Evicted", "True", "Preempted"), condition("Preempted", "True", "InClusterQueue")];
    let released =
        [condition("QuotaReserved", "False", "Pending"), condition("Requeued", "True", "Preempted")];
    let reserving =
        with_external_owner(reserving_workload("j", &[&admitted_conditions()[..], &evicted].concat()));
    let requeued = without_owner(workload("j", &[&released[..], &evicted].concat()));
    for mut before in [reserving, requeued] {
        let mut core = Core::new(CoreSettings::default());
        before["status"]["requeueState"] = json!({"count": 1});
        before["spec"]["active"] = json!(false);
        let mut written = writes(&core.put(Kind::Workload, before), Kind::Workload);
        written.extend(writes(&core.advance_seconds(1), Kind::Workload));
        assert!(!written.is_empty(), "a write is expected");
        for write in written {
            let status = &write.body["status"];
            let conditions = status["conditions"].as_array().unwrap();
            let reason = |kind: &str| {
                conditions
                    .iter()
                    .find(|c| c["type"] == kind)
                    .map(|c| c["reason"].as_str().unwrap().to_owned())
            };
            assert_eq!(reason("Evicted").as_deref(), Some("Preempted"), "{status}");
            assert_eq!(reason("Preempted").as_deref(), Some("InClusterQueue"), "{status}");
            assert!(status["schedulingStats"].is_null(), "an eviction was counted: {status}");
        }
    }
}

const SAMPLING: SignedDuration = SignedDuration::from_mins(5);

/// A core whose queue counts past usage, with a LocalQueue that has consumed this many cores.
fn core_with_past_usage(half_life: SignedDuration, consumed: i64) -> Core {
    let mut settings = CoreSettings {
        snapshot: SnapshotIntervals { queues: SignedDuration::ZERO, ..SnapshotIntervals::default() },
        ..CoreSettings::default()
    };
    let weights = BTreeMap::new();
    settings.engine.admission_fair_sharing =
        Some(AdmissionFairSharing { half_life, sampling_interval: SAMPLING, resource_weights: weights });
    let mut core = Core::new(settings);
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "100"}]}]}]);
    let spec = json!({"namespaceSelector": {}, "resourceGroups": groups,
        "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}});
    core.put(Kind::ClusterQueue, json!({"metadata": {"name": "cq"}, "spec": spec}));
    let past =
        json!({"consumedResources": {"cpu": consumed.to_string()}, "lastUpdate": "2026-01-01T00:00:00Z"});
    let status = json!({"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": past}});
    core.put(
        Kind::LocalQueue,
        json!({"metadata": {"name": "used", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}, "status": status}),
    );
    core
}

fn past_usage(core: &Core) -> f64 {
    core.state.snapshot().queues.local_queues[&ObjectKey::new("ns", "used")].past_usage.unwrap()
}

/// Creates a workload that is admitted; the response to that write arrives `answered` seconds later and settles its penalty.
fn admit_workload(core: &mut Core, name: &str, cpu: i64, answered: i64) -> Value {
    let mut new = without_owner(workload(name, &[]));
    new["spec"]["queueName"] = json!("used");
    let container = &mut new["spec"]["podSets"][0]["template"]["spec"]["containers"][0];
    container["resources"]["requests"]["cpu"] = json!(cpu);
    let written = writes(&core.put(Kind::Workload, new.clone()), Kind::Workload);
    assert_eq!(written.len(), 1, "it is admitted at once");
    // No tick in between: the response refreshes the snapshot.
    core.now = core.now.checked_add(SignedDuration::from_secs(answered)).unwrap();
    new["status"] = written[0].body["status"].clone();
    let outcome = WriteOutcome::Done(core.with_server_metadata(Kind::Workload, new.clone()));
    let (id, kind, key) = (written[0].id, written[0].kind, written[0].key.clone());
    core.feed(Delta::Written(WriteResult { id, kind, key, outcome }));
    new
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// With a running clock, past usage is the decayed integral of usage, whenever samples are taken, plus the entry penalties of
    /// admitted workloads; workloads finish in between.
    #[test]
    fn afs_usage_equals_decayed_integral(
        half_life in prop::sample::select(vec![60_i64, 3600, 86_400]),
        consumed in 0..20_i64,
        steps in prop::collection::vec((0..400_i64, 1..30_i64, 1..5_i64, prop::bool::weighted(0.4)), 10),
    ) {
        let decay = |seconds: i64| 0.5_f64.powf(f64::from(i32::try_from(seconds).unwrap()) / f64::from(i32::try_from(half_life).unwrap()));
        let number = |cpu: i64| f64::from(i32::try_from(cpu).unwrap());
        let mut core = core_with_past_usage(SignedDuration::from_secs(half_life), consumed);
        let (mut past, mut in_use) = (number(consumed), 0);
        let mut running: Vec<(Value, i64)> = Vec::new();
        let advance_past = |past: &mut f64, in_use: i64, seconds: i64| {
            let factor = decay(seconds);
            *past = *past * factor + number(in_use) * (1.0 - factor);
        };
        for (index, (wait, answered, cpu, ends)) in steps.into_iter().enumerate() {
            core.advance_seconds(wait);
            let new = admit_workload(&mut core, &format!("j{index}"), cpu, answered);
            advance_past(&mut past, in_use, wait + answered);
            past += number(cpu) * (1.0 - decay(SAMPLING.as_secs()));
            in_use += cpu;
            running.push((new, cpu));
            let actual = past_usage(&core);
            prop_assert!((actual - past).abs() < 1e-6 * past.max(1.0), "{}: {} instead of {}", index, actual, past);
            if ends {
                let (mut finished, cpu) = running.remove(0);
                core.advance_seconds(wait / 2);
                let mut conditions = finished["status"]["conditions"].as_array().unwrap().clone();
                conditions.push(condition("Finished", "True", "Succeeded"));
                finished["status"]["conditions"] = json!(conditions);
                core.put(Kind::Workload, finished);
                advance_past(&mut past, in_use, wait / 2);
                in_use -= cpu;
            }
        }
    }
}

/// Without a half-life, a sample resets past usage, as in Kueue; an admission does not.
#[test]
fn admission_keeps_afs_usage_without_half_life() {
    let mut core = core_with_past_usage(SignedDuration::ZERO, 5);
    core.advance_seconds(1);
    for index in 0..10 {
        admit_workload(&mut core, &format!("j{index}"), 2, 1);
        assert!((past_usage(&core) - 5.0).abs() < 1e-9, "{index}: {}", past_usage(&core));
    }
    core.advance_seconds(SAMPLING.as_secs());
    assert!(past_usage(&core).abs() < 1e-9, "{}", past_usage(&core));
}
