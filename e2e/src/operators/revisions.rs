//! Every revision of the Workloads and pods of a namespace: how much of the quota is charged, and how much is used.

use crate::history::{History, in_store_order, is_deleted};
use crate::objects::{Kind, ObjectClient, condition_is_true, number, text};
use anyhow::{Result, ensure};
use serde_json::Value;
use sluice::resources::Quantity;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Number of revisions before a wrong one that a failure shows.
const SHOWN: usize = 40;

/// Both histories from when a story began.
pub(super) struct Recording {
    workloads: History,
    pods: History,
}

/// What the revisions of a story show. Amounts are in thousandths of a CPU.
pub(super) struct Seen {
    revisions: usize,
    most_used: i64,
    quota: i64,
    /// Names of pods that had no gate.
    pods: BTreeSet<String>,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, quota) = (self.most_used, self.quota);
        write!(
            f,
            "{} revisions, at most {used}m of {quota}m CPU used, {} pods ran",
            self.revisions,
            self.pods.len()
        )
    }
}

impl Recording {
    pub(super) async fn start(objects: &ObjectClient, namespace: &str) -> Result<Self> {
        Ok(Self {
            workloads: History::start(objects, Kind::WORKLOAD, namespace).await?,
            pods: History::start(objects, Kind::POD, namespace).await?,
        })
    }

    /// Checks each revision: Workloads are charged no more than the quota, and the pods that run or still end use no more than what is
    /// charged.
    pub(super) fn check(&self, quota: i64) -> Result<Seen> {
        let (workloads, pods) = (self.workloads.revisions()?, self.pods.revisions()?);
        let ordered = in_store_order(&[&workloads, &pods])?;
        let (mut known_workloads, mut known_pods) = (BTreeMap::new(), BTreeMap::new());
        let mut seen = Seen { revisions: ordered.len(), most_used: 0, quota, pods: BTreeSet::new() };
        for (index, (revision, object)) in ordered.iter().enumerate() {
            let amounts = if is_workload(object) { &mut known_workloads } else { &mut known_pods };
            let amount = amount(object)?;
            amounts.insert(text(object, "/metadata/uid"), if is_deleted(object) { 0 } else { amount });
            if !is_workload(object) && amount > 0 {
                seen.pods.insert(text(object, "/metadata/name").to_owned());
            }
            let (charged, used): (i64, i64) = (known_workloads.values().sum(), known_pods.values().sum());
            seen.most_used = seen.most_used.max(used);
            ensure!(
                charged <= quota && used <= charged,
                "at revision {revision} pods use {used}m CPU, {charged}m are charged, the quota is {quota}m:\n{}",
                describe(ordered.get(index.saturating_sub(SHOWN)..=index).unwrap_or_default())
            );
        }
        ensure!(seen.most_used == quota, "at most {}m CPU were used of {quota}m", seen.most_used);
        Ok(seen)
    }
}

fn is_workload(object: &Value) -> bool {
    object["spec"].get("podSets").is_some()
}

/// Returns what a Workload is charged, or what a pod uses.
fn amount(object: &Value) -> Result<i64> {
    if is_workload(object) { charge(object) } else { use_of_pod(object) }
}

/// A Workload is charged from its reservation until it has finished, but for pods whose quota it has given back.
fn charge(workload: &Value) -> Result<i64> {
    if !condition_is_true(workload, "QuotaReserved") || condition_is_true(workload, "Finished") {
        return Ok(0);
    }
    let mut total = 0;
    let sets = workload.pointer("/status/admission/podSetAssignments").and_then(Value::as_array);
    for set in sets.into_iter().flatten() {
        let reclaimable = workload["status"]["reclaimablePods"].as_array().into_iter().flatten();
        let given_back: i64 =
            reclaimable.filter(|pods| pods["name"] == set["name"]).map(|pods| number(pods, "/count")).sum();
        let count = number(set, "/count").max(1);
        total += Quantity::parse(text(set, "/resourceUsage/cpu"))?.milli() * (count - given_back) / count;
    }
    Ok(total)
}

/// A pod uses what it requests from when it has no gate until it has ended or is gone.
fn use_of_pod(pod: &Value) -> Result<i64> {
    if is_gated(pod) || ["Succeeded", "Failed"].contains(&text(pod, "/status/phase")) {
        return Ok(0);
    }
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let requests = containers.map(|container| text(container, "/resources/requests/cpu"));
    requests.filter(|cpu| !cpu.is_empty()).map(|cpu| Ok(Quantity::parse(cpu)?.milli())).sum()
}

fn is_gated(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
}

/// One line for each revision.
fn describe(revisions: &[(u64, &Value)]) -> String {
    let mut lines = Vec::new();
    for (revision, object) in revisions {
        let conditions = ["QuotaReserved", "Admitted", "Evicted", "Finished", "Ready"];
        let mut marks: Vec<&str> =
            conditions.into_iter().filter(|condition| condition_is_true(object, condition)).collect();
        marks.extend(is_gated(object).then_some("gated"));
        marks.extend((!object["metadata"]["deletionTimestamp"].is_null()).then_some("ending"));
        marks.extend(is_deleted(object).then_some("gone"));
        let (name, phase) = (text(object, "/metadata/name"), text(object, "/status/phase"));
        lines.push(format!("  {revision} {name} {phase} {}", marks.join(" ")));
    }
    lines.join("\n")
}
