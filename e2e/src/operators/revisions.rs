//! Every revision of the Workloads and pods of a namespace: how much of the quota is charged, and how much is used.

use crate::history::{History, in_store_order, is_deleted};
use crate::objects::{Kind, ObjectClient, condition_is_true, number, text};
use anyhow::{Context as _, Result, ensure};
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
    /// UIDs of pods that had no gate.
    pods: BTreeSet<String>,
    /// Those of them that ran on after their job had finished.
    outliving: BTreeSet<String>,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, quota) = (self.most_used, self.quota);
        write!(f, "{} revisions, at most {used}m of {quota}m CPU used, ", self.revisions)?;
        write!(f, "{} pods ran, {} of them longer than their job", self.pods.len(), self.outliving.len())
    }
}

impl Recording {
    pub(super) async fn start(objects: &ObjectClient, namespace: &str) -> Result<Self> {
        Ok(Self {
            workloads: History::start(objects, Kind::WORKLOAD, namespace).await?,
            pods: History::start(objects, Kind::POD, namespace).await?,
        })
    }

    /// Checks all revisions so far.
    pub(super) fn check(&self, rules: &Rules<'_>) -> Result<Seen> {
        rules.check(&self.workloads.revisions()?, &self.pods.revisions()?)
    }
}

/// What must hold at each revision: Workloads are charged no more than the quota, and the pods of each job that run or still end use
/// no more than the job is charged.
pub(super) struct Rules<'a> {
    /// Names of the jobs.
    pub(super) jobs: &'a [&'a str],
    pub(super) quota: i64,
    /// Whether pods of a job whose Workload has finished are not counted.
    pub(super) pods_outlive_jobs: bool,
}

impl Rules<'_> {
    fn check(&self, workloads: &[Value], pods: &[Value]) -> Result<Seen> {
        let ordered = in_store_order(&[workloads, pods])?;
        let mut present: BTreeMap<&str, &Value> = BTreeMap::new();
        let (pods, outliving) = (BTreeSet::new(), BTreeSet::new());
        let mut seen = Seen { revisions: ordered.len(), most_used: 0, quota: self.quota, pods, outliving };
        for (index, &(revision, object)) in ordered.iter().enumerate() {
            let uid = text(object, "/metadata/uid");
            if is_deleted(object) {
                present.remove(uid);
            } else {
                present.insert(uid, object);
            }
            self.check_revision(&present, &mut seen).with_context(|| {
                let recent = ordered.get(index.saturating_sub(SHOWN)..=index).unwrap_or_default();
                format!("at revision {revision}, the last of these:\n{}\n ", describe(recent))
            })?;
        }
        ensure!(seen.most_used == self.quota, "at most {}m CPU were used of {}m", seen.most_used, self.quota);
        Ok(seen)
    }

    fn check_revision(&self, present: &BTreeMap<&str, &Value>, seen: &mut Seen) -> Result<()> {
        let (mut charged, mut used) = (0, 0);
        for job in self.jobs {
            let balance = Balance::of(job, present)?;
            seen.pods.extend(balance.pods.iter().copied().map(str::to_owned));
            charged += balance.charged;
            if balance.finished && self.pods_outlive_jobs {
                seen.outliving.extend(balance.pods.into_iter().map(str::to_owned));
                continue;
            }
            ensure!(
                balance.used <= balance.charged,
                "pods of {job} use {}m CPU and {}m are charged",
                balance.used,
                balance.charged
            );
            used += balance.used;
        }
        ensure!(charged <= self.quota, "{charged}m of {}m CPU are charged", self.quota);
        seen.most_used = seen.most_used.max(used);
        Ok(())
    }
}

/// What a job is charged and uses at one revision.
struct Balance<'a> {
    charged: i64,
    used: i64,
    /// Whether all its Workloads have finished.
    finished: bool,
    /// UIDs of the pods that use something.
    pods: Vec<&'a str>,
}

impl<'a> Balance<'a> {
    fn of(job: &str, present: &BTreeMap<&str, &'a Value>) -> Result<Self> {
        let (of_workload, of_pod) = (format!("-{job}-"), format!("{job}-"));
        let mut balance = Balance { charged: 0, used: 0, finished: true, pods: Vec::new() };
        for object in present.values() {
            let name = text(object, "/metadata/name");
            if is_workload(object) && name.contains(&of_workload) {
                balance.charged += charge(object)?;
                balance.finished &= condition_is_true(object, "Finished");
            } else if !is_workload(object) && name.starts_with(&of_pod) {
                let used = use_of_pod(object)?;
                balance.used += used;
                balance.pods.extend((used > 0).then(|| text(object, "/metadata/uid")));
            }
        }
        Ok(balance)
    }
}

fn is_workload(object: &Value) -> bool {
    object["spec"].get("podSets").is_some()
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const RULES: Rules<'_> = Rules { jobs: &["low", "high"], quota: 1000, pods_outlive_jobs: false };

    fn workload(revision: u32, job: &str, conditions: &[&str]) -> Value {
        let conditions: Vec<Value> =
            conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        let admission =
            json!({"podSetAssignments": [{"name": "main", "count": 1, "resourceUsage": {"cpu": "1"}}]});
        json!({"metadata": {"name": format!("job-{job}-1"), "uid": job, "resourceVersion": revision.to_string()},
            "spec": {"podSets": []}, "status": {"conditions": conditions, "admission": admission}})
    }

    fn pod(revision: u32, job: &str, phase: &str) -> Value {
        let name = format!("{job}-0");
        json!({"metadata": {"name": name, "uid": name, "resourceVersion": revision.to_string()},
            "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}, "status": {"phase": phase}})
    }

    #[test]
    fn quota_released_under_running_pods_is_found() {
        let reserved = ["QuotaReserved"];
        let right = [workload(1, "low", &reserved), workload(4, "low", &[]), workload(5, "high", &reserved)];
        let pods = [pod(2, "low", "Running"), pod(3, "low", "Failed"), pod(6, "high", "Running")];
        assert_eq!(RULES.check(&right, &pods).unwrap().pods.len(), 2);
        let early = [workload(1, "low", &reserved), workload(3, "low", &[])];
        let error = format!("{:#}", RULES.check(&early, &[pod(2, "low", "Running")]).err().unwrap());
        assert!(error.contains("pods of low use 1000m CPU and 0m are charged"), "{error}");
        let both = [workload(1, "low", &reserved), workload(2, "high", &reserved)];
        let error = format!("{:#}", RULES.check(&both, &[]).err().unwrap());
        assert!(error.contains("2000m of 1000m CPU are charged"), "{error}");
    }

    #[test]
    fn pods_of_finished_jobs_count_unless_they_may_outlive_them() {
        let workloads =
            [workload(1, "low", &["QuotaReserved"]), workload(3, "low", &["QuotaReserved", "Finished"])];
        let pods = [pod(2, "low", "Running")];
        assert!(RULES.check(&workloads, &pods).is_err());
        let lenient = Rules { pods_outlive_jobs: true, ..RULES };
        assert_eq!(lenient.check(&workloads, &pods).unwrap().outliving.len(), 1);
    }
}
