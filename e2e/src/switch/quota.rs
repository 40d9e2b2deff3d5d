//! The quota that Workloads hold, summed from the Workloads alone, and the tree of queues that limits it. Written for the judgement
//! of a switch, independently of Sluice's ledger; amounts are in thousandths.

use crate::objects::{condition_is_true, number, text};
use anyhow::{Context as _, Result};
use serde_json::Value;
use sluice::resources::Quantity;
use std::collections::BTreeMap;

/// Flavor and resource.
pub(crate) type Cell = (String, String);
/// Amounts by `ClusterQueue`, flavor and resource; none is zero.
pub(crate) type Usage = BTreeMap<String, BTreeMap<Cell, i64>>;

/// Sums what Workloads hold from their reservation until they have finished, less the pods that they have given back.
pub(crate) fn held<'a>(workloads: impl Iterator<Item = &'a Value>) -> Result<Usage> {
    let mut usage = Usage::new();
    for workload in workloads {
        if !condition_is_true(workload, "QuotaReserved") || condition_is_true(workload, "Finished") {
            continue;
        }
        let admission = &workload["status"]["admission"];
        let queue = usage.entry(text(admission, "/clusterQueue").to_owned()).or_default();
        for set in admission["podSetAssignments"].as_array().into_iter().flatten() {
            add_pod_set(queue, workload, set).with_context(|| text(workload, "/metadata/name").to_owned())?;
        }
    }
    without_zeros(&mut usage);
    Ok(usage)
}

fn add_pod_set(queue: &mut BTreeMap<Cell, i64>, workload: &Value, set: &Value) -> Result<()> {
    let reclaimable = workload["status"]["reclaimablePods"].as_array().into_iter().flatten();
    let given_back: i64 =
        reclaimable.filter(|pods| pods["name"] == set["name"]).map(|pods| number(pods, "/count")).sum();
    let count = number(set, "/count").max(1);
    for (resource, flavor) in set["flavors"].as_object().into_iter().flatten() {
        let amount = Quantity::parse(text(set, &format!("/resourceUsage/{}", escaped(resource))))?.milli();
        let cell = (flavor.as_str().unwrap_or_default().to_owned(), resource.clone());
        *queue.entry(cell).or_default() += amount * (count - given_back) / count;
    }
    Ok(())
}

/// Returns a name as part of a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Returns the reservation that the status of a `ClusterQueue` says.
pub(crate) fn published(queue: &Value) -> Result<BTreeMap<Cell, i64>> {
    let mut cells = BTreeMap::new();
    for flavor in queue["status"]["flavorsReservation"].as_array().into_iter().flatten() {
        for resource in flavor["resources"].as_array().into_iter().flatten() {
            let total = Quantity::parse(text(resource, "/total"))?.milli();
            cells.insert((text(flavor, "/name").to_owned(), text(resource, "/name").to_owned()), total);
        }
    }
    cells.retain(|_, amount| *amount != 0);
    Ok(cells)
}

/// Adds what another sum holds.
pub(super) fn add(usage: &mut Usage, more: &Usage) {
    for (queue, cells) in more {
        let own = usage.entry(queue.clone()).or_default();
        for (cell, amount) in cells {
            *own.entry(cell.clone()).or_default() += amount;
        }
    }
}

fn without_zeros(usage: &mut Usage) {
    for cells in usage.values_mut() {
        cells.retain(|_, amount| *amount != 0);
    }
}

/// One `ClusterQueue` or Cohort.
#[derive(Default)]
struct Node {
    parent: String,
    limits: BTreeMap<Cell, Limits>,
}

#[derive(Clone, Copy, Default)]
struct Limits {
    nominal: i64,
    borrowing: Option<i64>,
    lending: Option<i64>,
}

/// All `ClusterQueues` and Cohorts. Cohorts have a prefix, because a `ClusterQueue` may have the same name.
#[derive(Default)]
pub(super) struct Tree {
    nodes: BTreeMap<String, Node>,
}

fn cohort(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!("cohort {name}") }
}

impl Tree {
    /// Reads the limits of all objects of both kinds.
    pub(super) fn new<'a>(
        queues: impl Iterator<Item = &'a Value>,
        cohorts: impl Iterator<Item = &'a Value>,
    ) -> Result<Self> {
        let mut tree = Self::default();
        for queue in queues {
            let parent = cohort(text(queue, "/spec/cohortName"));
            // A cohort need not have an object.
            if !parent.is_empty() {
                tree.nodes.entry(parent.clone()).or_default();
            }
            let node = Node { parent, limits: limits(queue)? };
            tree.nodes.insert(text(queue, "/metadata/name").to_owned(), node);
        }
        for object in cohorts {
            let parent = cohort(text(object, "/spec/parentName"));
            if !parent.is_empty() {
                tree.nodes.entry(parent.clone()).or_default();
            }
            let node = Node { parent, limits: limits(object)? };
            tree.nodes.insert(cohort(text(object, "/metadata/name")), node);
        }
        Ok(tree)
    }

    /// Returns each node whose usage is above what it may have, with both amounts.
    pub(super) fn excess(&self, usage: &Usage) -> Vec<String> {
        let cells: std::collections::BTreeSet<&Cell> =
            self.nodes.values().flat_map(|node| node.limits.keys()).collect();
        let mut found = Vec::new();
        for cell in cells {
            for (name, node) in &self.nodes {
                let (used, quota) = (self.used(name, cell, usage), self.quota(name, cell));
                let borrowing = node.limits.get(cell).and_then(|limits| limits.borrowing);
                let limit = match borrowing {
                    _ if node.parent.is_empty() => Some(quota),
                    Some(borrowing) => Some(quota + borrowing),
                    None => None,
                };
                if let Some(limit) = limit.filter(|limit| used > *limit) {
                    found.push(format!("{name} uses {used} of {limit} thousandths of {cell:?}"));
                }
            }
        }
        found
    }

    fn children<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a String> {
        self.nodes.iter().filter(move |(_, node)| node.parent == name).map(|(child, _)| child)
    }

    /// Its own quota and what its children lend.
    fn quota(&self, name: &str, cell: &Cell) -> i64 {
        let own = self.nodes.get(name).and_then(|node| node.limits.get(cell)).map_or(0, |l| l.nominal);
        let lent = self.children(name).map(|child| self.quota(child, cell) - self.kept(child, cell));
        own + lent.sum::<i64>()
    }

    /// The part of its quota that it does not lend.
    fn kept(&self, name: &str, cell: &Cell) -> i64 {
        let lending = self.nodes.get(name).and_then(|node| node.limits.get(cell)?.lending);
        lending.map_or(0, |limit| (self.quota(name, cell) - limit).max(0))
    }

    fn used(&self, name: &str, cell: &Cell, usage: &Usage) -> i64 {
        let own = usage.get(name).and_then(|cells| cells.get(cell)).copied().unwrap_or_default();
        let passed =
            self.children(name).map(|child| (self.used(child, cell, usage) - self.kept(child, cell)).max(0));
        own + passed.sum::<i64>()
    }
}

fn limits(object: &Value) -> Result<BTreeMap<Cell, Limits>> {
    let mut all = BTreeMap::new();
    let groups = object["spec"]["resourceGroups"].as_array().into_iter().flatten();
    for flavor in groups.flat_map(|group| group["flavors"].as_array().into_iter().flatten()) {
        for resource in flavor["resources"].as_array().into_iter().flatten() {
            let amount = |field: &str| match resource[field].as_str() {
                Some(text) => Ok::<_, anyhow::Error>(Some(Quantity::parse(text)?.milli())),
                None => Ok(None),
            };
            let cell = (text(flavor, "/name").to_owned(), text(resource, "/name").to_owned());
            let nominal = amount("nominalQuota")?.unwrap_or_default();
            let limits =
                Limits { nominal, borrowing: amount("borrowingLimit")?, lending: amount("lendingLimit")? };
            all.insert(cell, limits);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{cluster_queue, cohort as cohort_object};
    use serde_json::json;

    fn usage(queue: &str, cpu: i64) -> Usage {
        let cell = ("f".to_owned(), "cpu".to_owned());
        BTreeMap::from([(queue.to_owned(), BTreeMap::from([(cell, cpu)]))])
    }

    #[test]
    fn excess_is_found_at_queue_and_root() {
        let a = cluster_queue("a", "top", "f", &[("cpu", "4", Some("2"))]);
        let mut b = cluster_queue("b", "top", "f", &[("cpu", "3", None)]);
        b["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["lendingLimit"] = "1".into();
        let top = cohort_object("top", "", "f", &[("cpu", "1", None)]);
        let tree = Tree::new([&a, &b].into_iter(), [&top].into_iter()).unwrap();
        // 4 of its own, 1 of the cohort and 1 that b lends.
        assert!(tree.excess(&usage("a", 6000)).is_empty());
        let found = tree.excess(&usage("a", 6001));
        assert_eq!(found.len(), 2, "{found:?}");
        // b keeps 2; 1 of its own above that, 4 of a and 1 of the cohort.
        assert!(tree.excess(&usage("b", 8000)).is_empty());
        assert_eq!(tree.excess(&usage("b", 8001)).len(), 1);
    }

    #[test]
    fn pods_given_back_are_not_held() {
        let workload = json!({"metadata": {"name": "w"}, "status": {
            "conditions": [{"type": "QuotaReserved", "status": "True"}],
            "reclaimablePods": [{"name": "main", "count": 1}],
            "admission": {"clusterQueue": "a", "podSetAssignments": [
                {"name": "main", "count": 4, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "2"}}]},
        }});
        assert_eq!(held([&workload].into_iter()).unwrap(), usage("a", 1500));
    }
}
