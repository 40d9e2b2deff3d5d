//! One scenario: a cluster that lives for some scheduling cycles, and what happens in it between them.
//!
//! Invariants: the scenario depends on seed, number and answers alone; as in `cluster`, the order of draws is part of it. What an
//! answer decides is written to the Workloads before anything else happens, as the manager would have written it.

use super::cluster::{Cluster, HOSTNAME, NAMESPACE, amount};
use super::random::{Digest, Random};
use super::suite::Suite;
use super::workload;
use crate::objects::{assigned_domains, condition_is_true, text};
use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::fmt;
use std::time::Duration;

/// Cycles of a scenario.
pub(super) const CYCLES: u32 = 8;
/// How many heads of each ClusterQueue the first cycle takes, one after the other, so that the others begin with used quota.
const FIRST_CYCLES: u32 = 6;
/// When scenarios begin.
const START: Timestamp = Timestamp::constant(1_795_132_800, 0);

/// A cluster between two cycles.
pub(super) struct Life {
    number: u64,
    random: Random,
    config: Value,
    cluster: Cluster,
    workloads: Vec<Value>,
    /// Number of Workloads that were ever made.
    made: u64,
    /// Whether the priorities of later Workloads are higher.
    rises: bool,
    /// Cycles that were decided.
    cycle: u32,
    /// Time since the start.
    elapsed: Duration,
    totals: Totals,
    digest: Digest,
}

/// What was decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Admissions, also repeated ones of one Workload.
    pub(super) admitted: usize,
    pub(super) preempted: usize,
    /// Workloads that were still pending after the last cycle.
    pub(super) pending: usize,
}

/// The input of `simulate --jsonl`.
#[derive(Serialize)]
struct Line<'a> {
    suite: &'a str,
    name: String,
    now: String,
    cycles: u32,
    config: &'a Value,
    objects: Vec<&'a Value>,
}

impl Life {
    /// Draws the scenario of a seed that has this number.
    pub(super) fn draw(seed: u64, number: u64) -> Self {
        let suite = Suite::of(number);
        let mut random = Random::new(seed, number);
        let config = draw_config(suite, &mut random);
        let cluster = Cluster::draw(suite, &mut random);
        let first = random.between(4..=10);
        let rises = random.chance(50);
        let mut life = Self {
            number,
            random,
            config,
            cluster,
            workloads: Vec::new(),
            made: 0,
            rises,
            cycle: 0,
            elapsed: Duration::ZERO,
            totals: Totals::default(),
            digest: Digest::new(),
        };
        life.submit(first);
        life
    }

    /// Returns the input of the next cycle: one line, without its end.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub(super) fn scenario(&self) -> Result<String> {
        let line = Line {
            suite: self.cluster.suite.name(),
            name: format!("{}-{}", self.name(), self.cycle),
            now: self.now(),
            cycles: if self.cycle == 0 { FIRST_CYCLES } else { 1 },
            config: &self.config,
            objects: self.cluster.objects.iter().chain(&self.workloads).collect(),
        };
        Ok(serde_json::to_string(&line)?)
    }

    /// Takes the answer of a cycle, one line without its end, and goes on to the next cycle.
    ///
    /// # Errors
    /// The answer is no JSON.
    pub(super) fn go_on(&mut self, answer: &str) -> Result<()> {
        let outcome: Value = serde_json::from_str(answer).with_context(|| self.name())?;
        self.digest.add(answer);
        self.totals.add(&outcome);
        self.cycle += 1;
        let now = self.now();
        for workload in &mut self.workloads {
            write_decision(workload, &outcome, &now);
        }
        self.pass_time();
        self.change_workloads();
        if self.random.chance(25) {
            self.change_quota();
        }
        if self.random.chance(5) {
            self.hold_or_release();
        }
        if self.cluster.suite == Suite::Tas && self.random.chance(40) {
            self.change_node();
        }
        let count = self.random.between(1..=4);
        self.submit(count);
        Ok(())
    }

    /// Returns what was decided.
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns one line: the name, what was decided, and a digest of all answers.
    pub(super) fn summary(&self) -> String {
        format!("{}: {}, {}", self.name(), self.totals, self.digest)
    }

    fn name(&self) -> String {
        format!("{}-{}", self.cluster.suite.name(), self.number)
    }

    fn now(&self) -> String {
        (START + self.elapsed).to_string()
    }

    fn pass_time(&mut self) {
        self.elapsed += Duration::from_secs(self.random.between(1..=6));
    }

    fn submit(&mut self, count: u64) {
        let priorities: &[i32] = if self.rises && self.cycle > 0 { &workload::HIGH } else { &workload::EVEN };
        for _ in 0..count {
            self.pass_time();
            self.made += 1;
            let created = self.now();
            let workload = workload::draw(&self.cluster, &mut self.random, self.made, &created, priorities);
            self.workloads.push(workload);
        }
        self.pass_time();
    }

    /// Workloads finish and are evicted, pods of evicted ones end, and finished and pending ones are deleted.
    fn change_workloads(&mut self) {
        let now = self.now();
        let random = &mut self.random;
        self.workloads.retain_mut(|workload| {
            let number = random.below(100);
            if condition_is_true(workload, "Finished") {
                return number < 50;
            }
            if !condition_is_true(workload, "QuotaReserved") {
                return number < 95;
            }
            if condition_is_true(workload, "Evicted") {
                if number < 65 {
                    release_quota(workload, &now);
                }
            } else if number < 8 {
                set_condition(workload, ["Finished", "True", "Succeeded"], &now);
            } else if number < 12 {
                set_condition(workload, ["Evicted", "True", "PodsReadyTimeout"], &now);
            }
            true
        });
    }

    /// Changes a nominal quota of a ClusterQueue or Cohort, also to less than is used.
    fn change_quota(&mut self) {
        let has_quota = |object: &Value| object["spec"]["resourceGroups"].is_array();
        let Some(object) = pick_object(&mut self.random, &mut self.cluster.objects, has_quota) else {
            return;
        };
        let group = pick_item(&mut self.random, &mut object["spec"]["resourceGroups"]);
        let flavor = pick_item(&mut self.random, &mut group["flavors"]);
        let quota = pick_item(&mut self.random, &mut flavor["resources"]);
        let nominal = self.random.below(self.cluster.largest_quota + 1);
        quota["nominalQuota"] = json!(amount(text(quota, "/name"), nominal));
        // It must not be above the nominal quota.
        remove_field(quota, "lendingLimit");
    }

    fn hold_or_release(&mut self) {
        let is_queue = |object: &Value| object["kind"] == "ClusterQueue";
        let Some(queue) = pick_object(&mut self.random, &mut self.cluster.objects, is_queue) else { return };
        let next = if queue["spec"]["stopPolicy"] == "Hold" { "None" } else { "Hold" };
        queue["spec"]["stopPolicy"] = json!(next);
    }

    /// A node fails, which is noted at the Workloads on it, or it becomes ready.
    fn change_node(&mut self) {
        let is_node = |object: &Value| object["kind"] == "Node";
        let Some(node) = pick_object(&mut self.random, &mut self.cluster.objects, is_node) else { return };
        let ready = &mut node["status"]["conditions"][0]["status"];
        let fails = *ready == "True";
        *ready = json!(if fails { "False" } else { "True" });
        if fails {
            let name = text(node, "/metadata/name");
            self.workloads.iter_mut().for_each(|workload| note_failed_node(workload, name));
        }
    }
}

impl Totals {
    /// Adds the totals of another scenario.
    pub(super) fn add_all(&mut self, other: Self) {
        self.admitted += other.admitted;
        self.preempted += other.preempted;
        self.pending += other.pending;
    }

    fn add(&mut self, outcome: &Value) {
        self.admitted += outcome["admitted"].as_object().map_or(0, Map::len);
        self.preempted += outcome["preempted"].as_object().map_or(0, Map::len);
        let queues = ["pending", "inadmissible"].map(|state| outcome[state].as_object());
        let lists = queues.into_iter().flatten().flat_map(Map::values).filter_map(Value::as_array);
        self.pending = lists.map(Vec::len).sum();
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} admitted, {} preempted, {} pending", self.admitted, self.preempted, self.pending)
    }
}

fn draw_config(suite: Suite, random: &mut Random) -> Value {
    let mut config = json!({"fairSharing": suite == Suite::Fair, "featureGates": {}});
    if suite == Suite::Fair {
        let (last, first) = ("LessThanOrEqualToFinalShare", "LessThanInitialShare");
        let choices: [&[&str]; 5] = [&[], &[], &[last, first], &[first], &[last]];
        let strategies = *random.pick(&choices);
        // Without strategies there are both.
        if !strategies.is_empty() {
            config["fairStrategies"] = json!(strategies);
        }
    }
    config
}

/// Returns one of the objects for which this holds, if there is one.
fn pick_object<'a>(
    random: &mut Random,
    objects: &'a mut [Value],
    holds: impl Fn(&Value) -> bool,
) -> Option<&'a mut Value> {
    let count = objects.iter().filter(|object| holds(object)).count();
    let chosen = random.index(count);
    objects.iter_mut().filter(|object| holds(object)).nth(chosen)
}

/// Returns one of the items of a list, which must not be empty.
fn pick_item<'a>(random: &mut Random, list: &'a mut Value) -> &'a mut Value {
    let chosen = random.index(list.as_array().map_or(0, Vec::len));
    &mut list[chosen]
}

fn remove_field(object: &mut Value, name: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(name);
    }
}

/// Writes what a cycle decided to the status of a Workload. The answer has type, status and reason of each condition; the time
/// stays while the status does.
fn write_decision(workload: &mut Value, outcome: &Value, now: &str) {
    let key = format!("{NAMESPACE}/{}", text(workload, "/metadata/name"));
    let status = &mut workload["status"];
    let grant = &outcome["admitted"][&key];
    if grant.is_object() {
        let (queue, pod_sets) = (&grant["clusterQueue"], &grant["podSets"]);
        status["admission"] = json!({"clusterQueue": queue, "podSetAssignments": pod_sets});
        remove_field(status, "unhealthyNodes");
    }
    let former = status["conditions"].take();
    let since = |kind: &str, value: &Value| {
        let mut former = former.as_array().into_iter().flatten();
        let same = former.find(|condition| condition["type"] == kind && condition["status"] == *value);
        same.map_or_else(|| now.to_owned(), |condition| text(condition, "/lastTransitionTime").to_owned())
    };
    let conditions = outcome["conditions"][&key].as_object().into_iter().flatten();
    let conditions: Vec<Value> = conditions
        .map(|(kind, value)| {
            let condition = [kind.as_str(), text(value, "/0"), text(value, "/1")];
            stored_condition(condition, &since(kind, &value[0]))
        })
        .collect();
    status["conditions"] = json!(conditions);
}

fn stored_condition([kind, status, reason]: [&str; 3], since: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": since})
}

/// Sets a condition, given as type, status and reason.
fn set_condition(workload: &mut Value, condition: [&str; 3], now: &str) {
    if let Some(conditions) = workload["status"]["conditions"].as_array_mut() {
        conditions.retain(|other| other["type"] != condition[0]);
        conditions.push(stored_condition(condition, now));
    }
}

/// The pods of an evicted Workload have ended: it is queued again.
fn release_quota(workload: &mut Value, now: &str) {
    remove_field(&mut workload["status"], "admission");
    remove_field(&mut workload["status"], "unhealthyNodes");
    set_condition(workload, ["QuotaReserved", "False", "Pending"], now);
    set_condition(workload, ["Admitted", "False", "NoReservation"], now);
    set_condition(workload, ["Requeued", "True", "Preempted"], now);
}

/// Adds a failed node to the unhealthy nodes of a Workload that runs on it.
fn note_failed_node(workload: &mut Value, node: &str) {
    let has_ended = ["Finished", "Evicted"].iter().any(|kind| condition_is_true(workload, kind));
    if has_ended || !condition_is_true(workload, "QuotaReserved") {
        return;
    }
    let assignments = workload["status"]["admission"]["podSetAssignments"].as_array();
    let runs_on_it = assignments.into_iter().flatten().any(|pod_set| {
        let assignment = &pod_set["topologyAssignment"];
        let lowest = assignment["levels"].as_array().and_then(|levels| levels.last());
        lowest.is_some_and(|level| level == HOSTNAME) && assigned_domains(assignment).contains(node)
    });
    if runs_on_it {
        let unhealthy = &mut workload["status"]["unhealthyNodes"];
        let mut nodes = unhealthy.as_array().cloned().unwrap_or_default();
        nodes.push(json!({"name": node}));
        *unhealthy = json!(nodes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::condition;

    #[test]
    fn decisions_are_written_and_times_stay() {
        let mut workload = json!({"metadata": {"name": "w1"}});
        let grant = json!({"clusterQueue": "cq0", "podSets": [{"name": "main"}]});
        let reserved = json!({"QuotaReserved": ["True", "QuotaReserved"]});
        let outcome = json!({"admitted": {"default/w1": grant}, "conditions": {"default/w1": reserved}});
        write_decision(&mut workload, &outcome, "earlier");
        let admission = json!({"clusterQueue": "cq0", "podSetAssignments": [{"name": "main"}]});
        assert_eq!(workload["status"]["admission"], admission);

        let evicted = json!({"QuotaReserved": ["True", "QuotaReserved"], "Evicted": ["True", "Preempted"]});
        write_decision(&mut workload, &json!({"conditions": {"default/w1": evicted}}), "later");
        let times = [0_usize, 1].map(|index| &workload["status"]["conditions"][index]["lastTransitionTime"]);
        assert_eq!(times, ["earlier", "later"]);
        assert_eq!(workload["status"]["admission"], admission);

        release_quota(&mut workload, "at last");
        assert_eq!(workload["status"]["admission"], Value::Null);
        let status = |kind| condition(&workload, kind).status;
        assert_eq!(["QuotaReserved", "Evicted", "Requeued"].map(status), ["False", "True", "True"]);
    }

    #[test]
    fn failed_node_is_noted_where_pods_run() {
        let values = json!([{"universal": "r0"}, {"individual": {"prefix": "n", "roots": ["1", "2"]}}]);
        let assignment = json!({"levels": ["rack", HOSTNAME], "slices": [{"valuesPerLevel": values}]});
        let admission = json!({"podSetAssignments": [{"name": "main", "topologyAssignment": assignment}]});
        let mut workload = json!({"status": {"admission": admission, "conditions": []}});
        note_failed_node(&mut workload, "n2");
        assert_eq!(workload["status"]["unhealthyNodes"], Value::Null, "no quota is reserved");
        set_condition(&mut workload, ["QuotaReserved", "True", "QuotaReserved"], "now");
        for node in ["n2", "n3", "r0"] {
            note_failed_node(&mut workload, node);
        }
        assert_eq!(workload["status"]["unhealthyNodes"], json!([{"name": "n2"}]));
        set_condition(&mut workload, ["Evicted", "True", "Preempted"], "now");
        note_failed_node(&mut workload, "n1");
        assert_eq!(workload["status"]["unhealthyNodes"], json!([{"name": "n2"}]));
    }
}
