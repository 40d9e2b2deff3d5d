//! Every revision of Workloads and ClusterQueues while the manager takes over: what it publishes first, and that nothing it admits goes
//! above a quota.

use super::judge::Judgement;
use super::quota::{self, Tree, Usage};
use crate::history::{History, in_store_order, is_deleted};
use crate::objects::{Kind, ObjectClient, condition_is_true, text};
use anyhow::Result;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Both histories.
pub(super) struct Revisions {
    workloads: History,
    queues: History,
}

impl Revisions {
    /// Begins to record; waits until the kinds can be read.
    pub(super) async fn start(objects: &ObjectClient) -> Result<Self> {
        Ok(Self {
            workloads: History::start(objects, Kind::WORKLOAD, "").await?,
            queues: History::start(objects, Kind::CLUSTER_QUEUE, "").await?,
        })
    }

    /// Compares what is published with the sum over Workloads, and the sum with the quotas when something is admitted.
    pub(super) fn judge(&self, judgement: &mut Judgement<'_>) -> Result<()> {
        let (workloads, queues) = (self.workloads.revisions()?, self.queues.revisions()?);
        let store = judgement.store;
        let tree = Tree::new(store.of_kind("ClusterQueue"), store.of_kind("Cohort"))?;
        let left: Vec<Value> = judgement.before.of_kind("Workload").cloned().collect();
        // The manager may have worked before the recording began.
        let mut present = by_uid(self.workloads.present());
        let mut sums = vec![quota::held(left.iter())?, quota::held(present.values().copied())?];
        // What was reserved up to each sum.
        let mut gains = vec![Usage::new(), quota::held(reserved_since(&left, &present).into_iter())?];
        // The first status of each queue, and the number of sums before it.
        let mut published: BTreeMap<&str, (&Value, usize)> = BTreeMap::new();
        for (revision, object) in in_store_order(&[&workloads, &queues])? {
            let name = text(object, "/metadata/name");
            if text(object, "/kind") == "ClusterQueue" {
                published.entry(name).or_insert((object, sums.len()));
                continue;
            }
            let uid = text(object, "/metadata/uid");
            let before = present.get(uid).is_some_and(|before| condition_is_true(before, "QuotaReserved"));
            if is_deleted(object) {
                present.remove(uid);
            } else {
                present.insert(uid, object);
            }
            let sum = quota::held(present.values().copied())?;
            let mut gained = gains.last().cloned().unwrap_or_default();
            if !before && condition_is_true(object, "QuotaReserved") {
                quota::add(&mut gained, &quota::held(std::iter::once(object))?);
            }
            gains.push(gained);
            if !before && condition_is_true(object, "QuotaReserved") {
                for excess in tree.excess(&sum) {
                    judgement.add(
                        "workload",
                        object,
                        &format!("within quota at revision {revision}"),
                        ("", &excess),
                    );
                }
            }
            sums.push(sum);
        }
        for (queue, position) in published.into_values() {
            let seen = sums.get(..position + AHEAD).unwrap_or(&sums);
            let gained = gains.get(seen.len() - 1).cloned().unwrap_or_default();
            first_status(queue, seen, &gained, judgement)?;
        }
        let last = sums.last().cloned().unwrap_or_default();
        for queue in judgement.after.of_kind("ClusterQueue") {
            let (status, sum) = (quota::published(queue)?, of_queue(&last, text(queue, "/metadata/name")));
            if status != sum {
                judgement.add(
                    "clusterQueue",
                    queue,
                    "status is the sum at the end",
                    (&format!("{sum:?}"), &format!("{status:?}")),
                );
            }
        }
        Ok(())
    }
}

fn by_uid(objects: &[Value]) -> BTreeMap<&str, &Value> {
    objects.iter().map(|object| (text(object, "/metadata/uid"), object)).collect()
}

/// Returns the Workloads that have quota and had none.
fn reserved_since<'a>(left: &[Value], present: &BTreeMap<&str, &'a Value>) -> Vec<&'a Value> {
    let left = by_uid(left);
    let had = |uid: &str| left.get(uid).is_some_and(|before| condition_is_true(before, "QuotaReserved"));
    let gained = present.iter().filter(|(uid, now)| condition_is_true(now, "QuotaReserved") && !had(uid));
    gained.map(|(_, now)| *now).collect()
}

fn of_queue(usage: &Usage, queue: &str) -> BTreeMap<quota::Cell, i64> {
    usage.get(queue).cloned().unwrap_or_default()
}

/// A status counts what is decided, and its Workload may be written after it: so many revisions are looked at after a status.
const AHEAD: usize = 100;

/// What is published first counts every Workload: no less than some sum up to then, no more than the first sum and all that was
/// reserved since.
fn first_status(queue: &Value, sums: &[Usage], gained: &Usage, judgement: &mut Judgement<'_>) -> Result<()> {
    let name = text(queue, "/metadata/name");
    let status = quota::published(queue)?;
    let of = |usage: &Usage, cell: &quota::Cell| of_queue(usage, name).get(cell).copied().unwrap_or_default();
    let cells: BTreeSet<quota::Cell> = sums
        .iter()
        .chain([gained])
        .flat_map(|sum| of_queue(sum, name).into_keys())
        .chain(status.keys().cloned())
        .collect();
    for cell in cells {
        let least = sums.iter().map(|sum| of(sum, &cell)).min().unwrap_or_default();
        let most = sums.first().map(|sum| of(sum, &cell)).unwrap_or_default() + of(gained, &cell);
        let found = status.get(&cell).copied().unwrap_or_default();
        if found < least || found > most {
            let rule = format!("the first status counts each Workload, {cell:?}");
            judgement.add("clusterQueue", queue, &rule, (&format!("{least} to {most}"), &found.to_string()));
        }
    }
    Ok(())
}
