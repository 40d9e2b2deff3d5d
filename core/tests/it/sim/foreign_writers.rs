//! Statuses of Workloads in which other clients own fields: a server-side apply cannot remove what they own. Every life
//! must end as without them, in a bounded number of writes.

use super::topology::run_until;
use super::world::{World, condition};
use crate::fixtures::leading_core::JOB;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::reconciler::{CoreSettings, Verb, Write, WriteOutcome};
use sluice_core::simulate::fake_api_server::{FakeApiServer, key_of};
use std::collections::BTreeSet;

/// What happens to an apply that leaves out something in which another client owns fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ownership {
    /// The other client owns the item too: it stays.
    Whole,
    /// The other client owns fields of the item, which only the manager owns: an empty list becomes null and is refused.
    Fields,
}

/// Fields of the status of every Workload that another client owns, as they are now.
#[derive(Debug)]
pub(crate) struct ForeignOwner {
    pub(crate) ownership: Ownership,
    pub(crate) fields: BTreeSet<&'static str>,
    /// Items that it has written.
    items: BTreeSet<(ObjectKey, &'static str, String)>,
}

const FIELDS: [&str; 12] = [
    "conditions",
    "admission",
    "requeueState",
    "reclaimablePods",
    "admissionChecks",
    "resourceRequests",
    "unhealthyNodes",
    "accumulatedPastExecutionTimeSeconds",
    "schedulingStats",
    "nominatedClusterNames",
    "clusterName",
    "preemptionGates",
];

fn item_name(item: &Value) -> String {
    let name = item.get("name").or_else(|| item.get("type"));
    // Names of clusters are items themselves.
    name.or(Some(item)).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns the items of a list; of anything else itself.
fn items_of(value: Option<&Value>) -> Vec<&Value> {
    match value {
        Some(Value::Array(list)) => list.iter().collect(),
        Some(other) => vec![other],
        None => Vec::new(),
    }
}

impl ForeignOwner {
    pub(crate) fn new(ownership: Ownership, fields: impl IntoIterator<Item = &'static str>) -> Self {
        Self { ownership, fields: fields.into_iter().collect(), items: BTreeSet::new() }
    }

    /// Takes over the fields of all Workloads as they are.
    pub(crate) fn own_all(&mut self, server: &FakeApiServer) {
        for object in server.all(Kind::Workload) {
            for field in &self.fields {
                let items = items_of(object["status"].get(field));
                self.items.extend(items.into_iter().map(|item| (key_of(object), *field, item_name(item))));
            }
        }
    }

    /// Changes a write as the API server would, or refuses it.
    pub(crate) fn intercept(&mut self, server: &FakeApiServer, write: &mut Write) -> Option<WriteOutcome> {
        let object = server.get(write.kind, &write.key).filter(|_| write.kind == Kind::Workload)?;
        if write.verb == Verb::Merge {
            // What a merge patch removes, no client owns any more.
            let patch = write.body.get("status").cloned().unwrap_or_default();
            self.items.retain(|(key, field, name)| {
                let kept = items_of(patch.get(field)).iter().any(|item| item_name(item) == *name);
                *key != write.key || patch.get(field).is_none() || kept
            });
            return None;
        }
        let mut status = json!(**write.status.as_ref().filter(|_| write.verb == Verb::Apply)?);
        for (_, field, name) in self.items.iter().filter(|(key, ..)| *key == write.key) {
            let is_same = |item: &&Value| item_name(item) == *name;
            let known = items_of(object["status"].get(field)).into_iter().find(is_same).cloned();
            let Some(known) = known.filter(|_| !items_of(status.get(field)).iter().any(is_same)) else {
                continue;
            };
            let emptied = status.get(field).is_none();
            match self.ownership {
                Ownership::Fields if emptied => {
                    let message = format!("status.{field}: Invalid value: \"null\"");
                    return Some(WriteOutcome::Rejected { code: 422, message });
                }
                Ownership::Fields => {}
                Ownership::Whole if object["status"][field].is_array() => {
                    let list = status.as_object_mut().unwrap().entry(*field).or_insert(json!([]));
                    list.as_array_mut().unwrap().push(known);
                }
                Ownership::Whole => status[field] = known,
            }
        }
        write.status = None;
        write.body["status"] = status;
        None
    }
}

fn workload(world: &World) -> Value {
    world.harness.server.all(Kind::Workload).next().cloned().unwrap_or_default()
}

fn edit_workload(world: &mut World, change: impl FnOnce(&mut Value)) {
    let key = key_of(&workload(world));
    world.harness.server.edit(Kind::Workload, &key, change);
    world.foreign.own_all(&world.harness.server);
}

fn set_checks(world: &mut World, strategy: Value) {
    world.harness.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("a"), |q| {
        q["spec"]["admissionChecksStrategy"] = strategy;
    });
}

fn status_of(world: &World) -> Vec<(String, String)> {
    let w = workload(world);
    let list = w["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let pair = |c: &Value| (c["type"].to_string(), format!("{} {}", c["status"], c["reason"]));
    let mut all: Vec<_> = list.iter().map(pair).collect();
    let fields = w["status"].as_object().unwrap().keys();
    all.extend(fields.filter(|f| *f != "conditions").map(|f| (f.clone(), String::new())));
    all.sort();
    all
}

/// Plays a life with a check that is removed, a deactivation and a second admission. Returns the states at rest.
fn life(seed: u64, foreign: ForeignOwner) -> Vec<Vec<(String, String)>> {
    let description = format!("seed {seed}: {foreign:?}");
    let mut world = World::with_queue(&CoreSettings::default(), 4);
    world.reseed(seed);
    world.foreign = foreign;
    world.jobs_never_end = true;
    let stamp = world.timestamp_text();
    let active = json!({"conditions": [{"type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": stamp}]});
    let gate =
        json!({"metadata": {"name": "gate"}, "spec": {"controllerName": "sim/gate"}, "status": active});
    world.create(Kind::AdmissionCheck, gate);
    set_checks(&mut world, json!({"admissionChecks": [{"name": "gate"}]}));
    world.create(
        JOB,
        json!({
            "metadata": {"name": "j", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "a"}},
            "spec": {"parallelism": 2, "completions": 2, "suspend": true, "template": {
                "spec": {"restartPolicy": "Never", "containers": [
                    {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}},
        }),
    );
    let mut states = Vec::new();
    let mut rest = |world: &mut World, step: &str| {
        let before: u32 = world.writes.values().sum();
        assert!(
            world.run_until_idle(40_000),
            "{description}: {step}: no rest: {}",
            workload(world)["status"]
        );
        let writes = world.writes.values().sum::<u32>() - before;
        assert!(writes <= 20, "{description}: {step}: {writes} writes");
        states.push(status_of(world));
    };
    rest(&mut world, "check is pending");
    edit_workload(&mut world, |w| {
        w["status"]["admissionChecks"][0]["message"] = json!("waiting for approval");
        w["status"]["requeueState"] = json!({"count": 1});
        w["status"]["unhealthyNodes"] = json!([{"name": "gone"}]);
        w["status"]["accumulatedPastExecutionTimeSeconds"] = json!(7);
        w["status"]["schedulingStats"] =
            json!({"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]});
        w["status"]["nominatedClusterNames"] = json!(["one", "two"]);
        w["status"]["preemptionGates"] =
            json!([{"name": "closed", "position": "Closed", "lastTransitionTime": stamp}]);
    });
    set_checks(&mut world, Value::Null);
    rest(&mut world, "check is removed");
    assert_eq!(condition(&workload(&world), "Admitted"), Some("True"), "{description}");
    assert_eq!(workload(&world)["status"]["admissionChecks"], Value::Null, "{description}");
    edit_workload(&mut world, |w| {
        w["status"]["reclaimablePods"] = json!([{"name": "main", "count": 1}]);
        w["status"].as_object_mut().unwrap().remove("nominatedClusterNames");
        w["status"]["clusterName"] = json!("one");
        w["spec"]["active"] = json!(false);
    });
    rest(&mut world, "deactivated");
    let w = workload(&world);
    assert_eq!(condition(&w, "QuotaReserved"), Some("False"), "{description}");
    assert_eq!(w["status"]["admission"], Value::Null, "{description}");
    edit_workload(&mut world, |w| w["spec"]["active"] = json!(true));
    rest(&mut world, "active again");
    assert_eq!(condition(&workload(&world), "Admitted"), Some("True"), "{description}");
    world.jobs_never_end = false;
    run_until(&mut world, "it is finished", |world| condition(&workload(world), "Finished") == Some("True"));
    rest(&mut world, "finished");
    states
}

#[test]
fn i11_owners_of_status_fields_cause_no_write_loops() {
    for seed in 1..4 {
        let expected = life(seed, ForeignOwner::new(Ownership::Whole, []));
        for ownership in [Ownership::Whole, Ownership::Fields] {
            for field in FIELDS {
                let states = life(seed, ForeignOwner::new(ownership, [field]));
                assert_eq!(states, expected, "seed {seed}: {field} owned by another client: {ownership:?}");
            }
            let states = life(seed, ForeignOwner::new(ownership, FIELDS));
            assert_eq!(states, expected, "seed {seed}: all owned by another client: {ownership:?}");
        }
    }
}

/// A webhook of another project reverts what the manager writes: the write is repeated with growing backoff, and reported.
#[test]
fn i11_reverted_writes_are_backed_off_and_reported() {
    let mut world = World::with_queue(&CoreSettings::default(), 4);
    world.jobs_never_end = true;
    world.reverted = true;
    world.create(
        JOB,
        json!({
            "metadata": {"name": "j", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "a"}},
            "spec": {"parallelism": 1, "completions": 1, "suspend": true, "template": {
                "spec": {"restartPolicy": "Never", "containers": [
                    {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}},
        }),
    );
    for _ in 0..20_000 {
        world.step();
    }
    let writes = world.writes.iter().find(|(name, _)| name.contains("ns/j") && name.contains("Job"));
    let writes = *writes.unwrap().1;
    assert!((8..=25).contains(&writes), "{writes} writes of the Job in {:?}", world.elapsed());
    assert!(world.events.iter().any(|(_, reason)| reason == "WriteIneffective"), "{:?}", world.events);
}

/// A webhook that changes the pods of every new Workload makes no loop of replacements: it is reported and backed off.
#[test]
fn i11_changed_new_workloads_are_replaced_with_backoff() {
    let mut world = super::user_edits::cluster(1);
    world.adds_pods = true;
    world.create(JOB, super::laws::job("edited", "a", 2));
    let end = world.now.checked_add(jiff::SignedDuration::from_secs(600)).unwrap();
    while world.now < end {
        world.step();
    }
    let created = world.events.iter().filter(|(_, reason)| reason == "CreatedWorkload").count();
    assert!((5..=24).contains(&created), "{created} Workloads in ten minutes");
    let reported = world.events.iter().filter(|(_, reason)| reason == "WorkloadReplacedRepeatedly").count();
    assert_eq!(reported, 1, "{created} Workloads: {:?}", world.events);
}
