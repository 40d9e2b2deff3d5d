//! Every revision of Workloads and ClusterQueues while the manager takes over: what it publishes first, and that nothing it admits goes
//! above a quota.

use super::judge::Judgement;
use super::quota::{self, Tree, Usage};
use crate::history::{History, in_store_order, is_deleted};
use crate::objects::{Kind, ObjectClient, condition_is_true, text};
use anyhow::Result;
use serde_json::Value;
use std::collections::BTreeMap;

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
        let mut present: BTreeMap<&str, &Value> =
            left.iter().map(|workload| (text(workload, "/metadata/uid"), workload)).collect();
        let mut sums = vec![quota::held(present.values().copied())?];
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
            if !before && condition_is_true(object, "QuotaReserved") {
                for excess in tree.excess(&sum) {
                    judgement.add(
                        "workload",
                        object,
                        &format!("within quota at revision {revision}"),
                        "",
                        &excess,
                    );
                }
            }
            sums.push(sum);
        }
        for (queue, position) in published.into_values() {
            first_status(queue, sums.get(..position + AHEAD).unwrap_or(&sums), judgement)?;
        }
        let last = sums.last().cloned().unwrap_or_default();
        for queue in judgement.after.of_kind("ClusterQueue") {
            let (status, sum) = (quota::published(queue)?, of_queue(&last, text(queue, "/metadata/name")));
            if status != sum {
                judgement.add(
                    "clusterQueue",
                    queue,
                    "status is the sum at the end",
                    &format!("{sum:?}"),
                    &format!("{status:?}"),
                );
            }
        }
        Ok(())
    }
}

fn of_queue(usage: &Usage, queue: &str) -> BTreeMap<quota::Cell, i64> {
    usage.get(queue).cloned().unwrap_or_default()
}

/// A status counts what is decided, and its Workload may be written after it: so many revisions are looked at after a status.
const AHEAD: usize = 100;

/// What is published first is the sum at some revision.
fn first_status(queue: &Value, sums: &[Usage], judgement: &mut Judgement<'_>) -> Result<()> {
    let name = text(queue, "/metadata/name");
    let status = quota::published(queue)?;
    if !sums.iter().any(|sum| of_queue(sum, name) == status) {
        let first = sums.first().map(|sum| of_queue(sum, name)).unwrap_or_default();
        judgement.add(
            "clusterQueue",
            queue,
            "first published status is a sum over Workloads",
            &format!("{first:?}"),
            &format!("{status:?}"),
        );
    }
    Ok(())
}
