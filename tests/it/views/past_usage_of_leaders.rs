//! Past usage of LocalQueues goes on when another manager leads: it is what the former leader has written, and the entry penalties
//! that it has not written yet.

use crate::fixtures::leading_core::{Core, condition, workload};
use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::cache::Kind;
use sluice::reconciler::{CoreSettings, Delta, Effect, SnapshotIntervals, Verb, WriteOutcome, WriteResult};
use sluice::scheduler::AdmissionFairSharing;
use sluice::visibility::access::Access;
use sluice::visibility::page::PageQuery;
use sluice::visibility::pending_list::{ListOrder, pending_workloads};
use sluice::visibility::selector::WorkloadSelector;
use sluice::visibility::workloads::WorkloadQuery;
use std::collections::BTreeMap;

/// A manager that leads and one that stands by, which see the same objects.
struct Managers {
    leader: Core,
    standby: Core,
    objects: BTreeMap<(Kind, ObjectKey), Value>,
    /// Whether the statuses of LocalQueues that the leader writes are lost.
    loses_statuses: bool,
    checked: bool,
    half_life: SignedDuration,
}

fn new_core(half_life: SignedDuration) -> Core {
    let mut settings = CoreSettings {
        snapshot: SnapshotIntervals { queues: SignedDuration::ZERO, ..SnapshotIntervals::default() },
        ..CoreSettings::default()
    };
    settings.engine.admission_fair_sharing = Some(AdmissionFairSharing {
        half_life,
        sampling_interval: SignedDuration::from_mins(5),
        resource_weights: BTreeMap::new(),
    });
    Core::new(settings)
}

fn configuration(checked: bool) -> Vec<(Kind, Value)> {
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "100"}]}]}]);
    let checks = if checked { json!({"admissionChecks": [{"name": "c"}]}) } else { json!(null) };
    let spec = json!({"namespaceSelector": {}, "resourceGroups": groups, "admissionChecksStrategy": checks,
        "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}});
    let check = json!({"metadata": {"name": "c"}, "spec": {"controllerName": "a.b/c"},
        "status": {"conditions": [condition("Active", "True", "Active")]}});
    vec![
        (Kind::AdmissionCheck, check),
        (Kind::ClusterQueue, json!({"metadata": {"name": "cq"}, "spec": spec})),
    ]
}

impl Managers {
    fn new(checked: bool) -> Self {
        Self::with_half_life(checked, SignedDuration::from_hours(1))
    }

    fn with_half_life(checked: bool, half_life: SignedDuration) -> Self {
        let (leader, mut standby) = (new_core(half_life), new_core(half_life));
        standby.feed(Delta::Leading(false));
        let objects = BTreeMap::new();
        let mut managers = Self { leader, standby, objects, loses_statuses: false, checked, half_life };
        for (kind, object) in configuration(checked) {
            managers.put(kind, object);
        }
        let queue = json!({"metadata": {"name": "used", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}});
        managers.put(Kind::LocalQueue, queue);
        managers
    }

    /// Stores an object; both managers see it.
    fn put(&mut self, kind: Kind, object: Value) {
        let object = self.store(kind, object);
        self.standby.feed(Delta::Applied { kind, object: object.clone() });
        let effects = self.leader.feed(Delta::Applied { kind, object });
        self.carry_out(effects);
    }

    fn store(&mut self, kind: Kind, object: Value) -> Value {
        let object = self.leader.with_server_metadata(kind, object);
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let key = ObjectKey::new(namespace, object["metadata"]["name"].as_str().unwrap());
        self.objects.insert((kind, key), object.clone());
        object
    }

    /// Carries out the writes of statuses of the leader, and those that follow from them.
    fn carry_out(&mut self, mut effects: Vec<Effect>) {
        while !effects.is_empty() {
            let mut next = Vec::new();
            for effect in effects {
                let Effect::Write(write) = effect else { continue };
                let body = serde_json::to_value(write.payload()).unwrap();
                let (id, kind, key) = (write.id, write.kind, write.key.clone());
                let mut object = self.objects.get(&(kind, key.clone())).cloned().unwrap_or_default();
                if !object.is_object() {
                    continue;
                }
                match write.verb {
                    Verb::Apply | Verb::Merge if write.subresource == Some("status") => {
                        object["status"] = body["status"].clone();
                    }
                    _ => object["metadata"]["finalizers"] = body["metadata"]["finalizers"].clone(),
                }
                let object = self.store(kind, object);
                if !(kind == Kind::LocalQueue && self.loses_statuses) {
                    self.standby.feed(Delta::Applied { kind, object: object.clone() });
                }
                let outcome = WriteOutcome::Done(object);
                let result = WriteResult { id, kind, key, outcome };
                next.extend(self.leader.feed(Delta::Written(result)));
            }
            effects = next;
        }
    }

    fn pass_seconds(&mut self, seconds: i64) {
        self.standby.advance_seconds(seconds);
        let effects = self.leader.advance_seconds(seconds);
        self.carry_out(effects);
    }

    /// Creates a workload of a LocalQueue.
    fn queue(&mut self, name: &str, queue: &str, cpu: i64) {
        let mut new = workload(name, &[]);
        new["metadata"]["labels"] = json!({});
        new["metadata"]["ownerReferences"] = json!([]);
        new["spec"]["queueName"] = json!(queue);
        let container = &mut new["spec"]["podSets"][0]["template"]["spec"]["containers"][0];
        container["resources"]["requests"]["cpu"] = json!(cpu);
        self.put(Kind::Workload, new);
    }

    /// Admits a workload, which its check holds up where there is one.
    fn admit(&mut self, name: &str, cpu: i64) {
        self.queue(name, "used", cpu);
        let conditions = &self.workload(name)["status"]["conditions"];
        let admitted =
            conditions.as_array().unwrap().iter().any(|c| c["type"] == "Admitted" && c["status"] == "True");
        assert_eq!(admitted, !self.checked, "{conditions:#}");
    }

    fn workload(&self, name: &str) -> &Value {
        &self.objects[&(Kind::Workload, ObjectKey::new("ns", &format!("w-{name}")))]
    }

    fn end(&mut self, name: &str) {
        let key = ObjectKey::new("ns", &format!("w-{name}"));
        self.objects.remove(&(Kind::Workload, key.clone())).unwrap();
        let deleted = |key| Delta::Deleted { kind: Kind::Workload, key, uid: format!("workloads-w-{name}") };
        self.standby.feed(deleted(key.clone()));
        let effects = self.leader.feed(deleted(key));
        self.carry_out(effects);
    }

    /// Returns a manager that starts with what is stored, at this time.
    fn restarted(&self) -> Core {
        let mut core = new_core(self.half_life);
        core.feed(Delta::Leading(false));
        core.now = self.leader.now;
        let all = self.objects.iter();
        core.feed_all(all.map(|((kind, _), object)| Delta::Applied { kind: *kind, object: object.clone() }));
        core
    }
}

/// Past usage by which the workloads of the LocalQueue are ordered.
fn past_usage(core: &Core) -> f64 {
    core.state.snapshot().queues.local_queues[&ObjectKey::new("ns", "used")].past_usage.unwrap()
}

/// Names of the workloads that wait, in the order in which readers of this manager see them.
fn pending_names(core: &Core) -> Vec<String> {
    let query = WorkloadQuery {
        namespace: None,
        selector: WorkloadSelector::parse("status=pending").unwrap(),
        page: PageQuery { limit: 10, ..PageQuery::default() },
    };
    let found = pending_workloads(&core.state.snapshot(), &Access::everything(), &query, ListOrder::Position);
    found.unwrap().0.into_iter().map(|row| row.metadata.name).collect()
}

fn take_over(core: &mut Core) -> f64 {
    core.feed(Delta::Leading(true));
    core.advance_seconds(1);
    past_usage(core)
}

/// Short jobs, nearly all of whose past usage are entry penalties.
#[test]
fn penalties_of_short_jobs_go_on_after_a_change_of_leader() {
    let mut managers = Managers::new(false);
    for number in 0..10 {
        managers.admit(&number.to_string(), 2);
        managers.pass_seconds(3);
        managers.end(&number.to_string());
        managers.pass_seconds(10);
    }
    managers.pass_seconds(30);
    let before = past_usage(&managers.leader);
    assert!(before > 0.5, "{before}");
    for after in [take_over(&mut managers.standby), take_over(&mut managers.restarted())] {
        assert!((after - before).abs() < before * 0.02, "{before} became {after}");
    }
}

/// What the leader has not written: penalties of admissions that wait for a check, and of the last ones before it ends.
#[test]
fn penalties_that_are_not_written_go_on_after_a_change_of_leader() {
    for checked in [false, true] {
        let mut managers = Managers::new(checked);
        managers.admit("first", 40);
        managers.pass_seconds(60);
        managers.loses_statuses = true;
        managers.admit("second", 40);
        managers.pass_seconds(2);
        let before = past_usage(&managers.leader);
        assert!(before > 4.0, "{before}");
        for after in [take_over(&mut managers.standby), take_over(&mut managers.restarted())] {
            assert!((after - before).abs() < before * 0.05, "checked: {checked}: {before} became {after}");
        }
    }
}

/// What waits in a LocalQueue without past usage comes before what has waited longer in one that has some: in the lists of each manager.
#[test]
fn lists_of_a_standby_are_in_the_order_of_the_leader() {
    let mut managers = Managers::new(false);
    let idle = json!({"metadata": {"name": "idle", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}});
    managers.put(Kind::LocalQueue, idle);
    managers.admit("first", 40);
    managers.pass_seconds(600);
    managers.queue("early", "used", 90);
    managers.pass_seconds(5);
    managers.queue("late", "idle", 90);
    managers.pass_seconds(30);
    let mut restarted = managers.restarted();
    restarted.advance_seconds(1);
    for core in [&managers.leader, &managers.standby, &restarted] {
        assert_eq!(pending_names(core), ["w-late", "w-early"]);
    }
}

/// With a half-life of zero there is no past usage, whichever manager leads.
#[test]
fn half_life_of_zero_keeps_nothing() {
    let mut managers = Managers::with_half_life(false, SignedDuration::ZERO);
    managers.admit("first", 40);
    managers.pass_seconds(60);
    managers.loses_statuses = true;
    managers.admit("second", 40);
    managers.pass_seconds(400);
    let keeps_nothing = |mut core: Core| {
        core.feed(Delta::Leading(true));
        core.advance_seconds(1);
        let queues = &core.state.snapshot().queues;
        let past_usage = queues.local_queues[&ObjectKey::new("ns", "used")].past_usage;
        assert!(past_usage.is_none_or(|usage| usage == 0.0), "{past_usage:?}");
    };
    keeps_nothing(managers.restarted());
    keeps_nothing(managers.standby);
    keeps_nothing(managers.leader);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// A standby orders as the leader does, and goes on from there.
    #[test]
    fn standby_has_the_past_usage_of_the_leader(
        steps in prop::collection::vec((1..400_i64, 1..9_i64, any::<bool>()), 1..12),
    ) {
        let mut managers = Managers::new(false);
        let mut running = Vec::new();
        for (number, (seconds, cpu, ends)) in steps.into_iter().enumerate() {
            let name = number.to_string();
            managers.admit(&name, cpu);
            running.push(name);
            managers.pass_seconds(seconds);
            if ends {
                managers.end(&running.remove(0));
            }
        }
        managers.pass_seconds(30);
        let (leader, standby) = (past_usage(&managers.leader), past_usage(&managers.standby));
        prop_assert!((leader - standby).abs() <= leader * 0.03 + 0.01, "{} and {}", leader, standby);
        let after = take_over(&mut managers.standby);
        // The second of the take-over may end a sampling interval.
        managers.leader.advance_seconds(1);
        let leader = past_usage(&managers.leader);
        prop_assert!((leader - after).abs() <= leader * 0.03 + 0.01, "{} became {}", leader, after);
    }
}
