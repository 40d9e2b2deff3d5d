//! What nodes have, and what quotas allow, by flavor-resource: a change of one does not change the other.
//!
//! Invariant: amounts are written in the unit of the quotas, without and with a change in the same one.

use super::quota_units::quota_units;
use super::simulation::Simulation;
use crate::quota::{FlavorResource, NodeRef, QuotaUnits};
use crate::resources::Amount;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What there is of each flavor-resource that has a quota.
#[derive(Clone, Debug, Default)]
pub(super) struct FlavorAmounts {
    amounts: BTreeMap<FlavorResource, Amounts>,
    units: QuotaUnits,
}

/// What there is of a flavor-resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amounts {
    /// What the schedulable nodes have; `None` if no node is known.
    nodes: Option<Amount>,
    /// Sum of the nominal quotas.
    quota: Amount,
}

/// A flavor-resource without and with a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComparedAmounts {
    /// Name of the flavor.
    pub flavor: String,
    /// Name of the resource.
    pub resource: String,
    /// What its schedulable nodes have without the change; `-` if no node is known.
    pub nodes_without: String,
    /// The same with it.
    pub nodes_with: String,
    /// Sum of the nominal quotas without the change.
    pub quota_without: String,
    /// The same with it.
    pub quota_with: String,
    /// What the change leaves as it is, without a full stop.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remark: String,
}

impl Simulation {
    /// Returns what nodes and quotas have now.
    pub(super) fn flavor_amounts(&mut self) -> FlavorAmounts {
        let units = quota_units(&self.harness.server);
        let facts = self.harness.core.audit_facts();
        let mut amounts: BTreeMap<FlavorResource, Amounts> = BTreeMap::new();
        let engine = self.harness.core.engine();
        for (node, _) in engine.nodes() {
            for (fr, usage) in engine.usage(node) {
                let sum = &mut amounts.entry(fr).or_default().quota;
                *sum = sum.plus(usage.limits.nominal);
            }
        }
        for (fr, found) in &mut amounts {
            let nodes = facts.flavors.get(&fr.flavor).map(|flavor| &flavor.amounts);
            let nodes = nodes.filter(|nodes| facts.knows_nodes && nodes.total > 0);
            let of_resource = |resource: &Arc<str>| {
                nodes.map(|nodes| nodes.amounts.get(resource).map_or(0, |amount| amount.allocatable))
            };
            found.nodes = of_resource(&fr.resource).map(Amount::saturating_from_i128);
        }
        FlavorAmounts { amounts, units }
    }
}

impl FlavorAmounts {
    /// Returns the flavor-resources that differ.
    pub(super) fn compared(&self, with: &Self) -> Vec<ComparedAmounts> {
        let names =
            self.amounts.keys().chain(with.amounts.keys().filter(|fr| !self.amounts.contains_key(*fr)));
        let rows = names.filter_map(|fr| {
            let (before, after) = (self.of(fr), with.of(fr));
            (before != after).then(|| row(fr, before, after, &with.units))
        });
        rows.collect()
    }

    fn of(&self, fr: &FlavorResource) -> Amounts {
        self.amounts.get(fr).copied().unwrap_or_default()
    }
}

fn row(fr: &FlavorResource, before: Amounts, after: Amounts, units: &QuotaUnits) -> ComparedAmounts {
    // No node of the tree has this name, so the unit is that of any of them.
    let anywhere = NodeRef::Cohort(Arc::from(""));
    let quota = |amount: Amount| units.format_limit(&anywhere, fr, amount);
    let nodes = |amount: Option<Amount>| {
        amount.map_or_else(|| "-".to_owned(), |amount| units.format(&anywhere, fr, amount))
    };
    ComparedAmounts {
        flavor: fr.flavor.to_string(),
        resource: fr.resource.to_string(),
        nodes_without: nodes(before.nodes),
        nodes_with: nodes(after.nodes),
        quota_without: quota(before.quota),
        quota_with: quota(after.quota),
        remark: remark(before, after, &|amount| units.format(&anywhere, fr, amount)),
    }
}

/// Returns what a change leaves as it is.
fn remark(before: Amounts, after: Amounts, text: &dyn Fn(Amount) -> String) -> String {
    let excess = after.nodes.map(|nodes| after.quota.minus(nodes)).filter(|excess| *excess > Amount::ZERO);
    let excess = excess.filter(|_| after.quota != Amount::UNLIMITED).map(text);
    let has_more_nodes = after.nodes > before.nodes;
    match (before.nodes == after.nodes, before.quota == after.quota, excess) {
        (false, true, None) if has_more_nodes => "adding nodes adds no quota: --quota raises it".to_owned(),
        (false, true, Some(excess)) if has_more_nodes => {
            format!("adding nodes adds no quota; {excess} of the quota have no node")
        }
        (false, true, Some(excess)) => format!("the quota stays: {excess} of it have no node"),
        (false, true, None) => "the quota stays".to_owned(),
        (true, false, Some(excess)) if after.quota > before.quota => {
            format!("a quota adds no nodes: {excess} of it have none, so admitted pods may find no place")
        }
        (_, _, Some(excess)) => format!("{excess} of the quota have no node"),
        (_, _, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(nodes: Option<i64>, quota: i64) -> Amounts {
        Amounts { nodes: nodes.map(Amount::new), quota: Amount::new(quota) }
    }

    #[test]
    fn nodes_and_quotas_are_told_apart() {
        let unlimited = Amounts { nodes: Some(Amount::new(4)), quota: Amount::UNLIMITED };
        for (before, after, expected) in [
            (amounts(Some(8), 8), amounts(Some(24), 8), "adding nodes adds no quota: --quota raises it"),
            (amounts(None, 8), amounts(Some(8), 8), "adding nodes adds no quota: --quota raises it"),
            (
                amounts(Some(8), 32),
                amounts(Some(24), 32),
                "adding nodes adds no quota; 8 of the quota have no node",
            ),
            (amounts(Some(24), 16), amounts(Some(16), 16), "the quota stays"),
            (amounts(Some(24), 24), amounts(Some(16), 24), "the quota stays: 8 of it have no node"),
            (
                amounts(Some(8), 8),
                amounts(Some(8), 16),
                "a quota adds no nodes: 8 of it have none, so admitted pods may find no place",
            ),
            (amounts(Some(16), 8), amounts(Some(16), 16), ""),
            (amounts(Some(8), 16), amounts(Some(8), 12), "4 of the quota have no node"),
            (amounts(Some(8), 8), amounts(Some(24), 24), ""),
            (amounts(Some(8), 8), amounts(Some(16), 24), "8 of the quota have no node"),
            (amounts(None, 8), amounts(None, 16), ""),
            (amounts(Some(4), 8), unlimited, ""),
        ] {
            let found = remark(before, after, &|amount| amount.to_string());
            assert_eq!(found, expected, "{before:?} {after:?}");
        }
    }

    #[test]
    fn only_what_differs_is_compared() {
        let of = |rows: &[(&str, Amounts)]| FlavorAmounts {
            amounts: rows
                .iter()
                .map(|(flavor, found)| (FlavorResource::new(flavor, "cpu"), *found))
                .collect(),
            units: QuotaUnits::default(),
        };
        let before = of(&[("a", amounts(Some(1_000), 1_000)), ("b", amounts(None, 1_000))]);
        let after = of(&[
            ("a", amounts(Some(1_000), 1_000)),
            ("b", amounts(None, 2_000)),
            ("c", amounts(None, 3_000)),
        ]);
        let rows = before.compared(&after);
        let shown: Vec<(&str, &str, &str, &str)> = rows
            .iter()
            .map(|row| (&*row.flavor, &*row.nodes_with, &*row.quota_without, &*row.quota_with))
            .collect();
        assert_eq!(shown, [("b", "-", "1", "2"), ("c", "-", "0", "3")]);
    }
}
