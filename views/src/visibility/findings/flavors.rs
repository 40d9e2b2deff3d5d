//! Findings about flavors and their nodes.

use super::{Audit, Said, counted, finding, meant, number, verb, word};
use crate::api::ObjectKey;
use crate::api::similar::nearest;
use crate::quota::FlavorResource;
use crate::snapshot::{AuditFacts, AuditedFlavor};
use crate::visibility::views::{Check, Finding};
use std::sync::Arc;

/// A flavor is reported if its capacity without quota exceeds this fraction of the whole: one in so many.
const REPORTED_SLACK: i128 = 20;

impl Audit<'_> {
    pub(super) fn flavors(&self, facts: &AuditFacts, found: &mut Vec<Finding>) {
        if !facts.knows_nodes {
            return;
        }
        for (name, flavor) in &facts.flavors {
            let key = ObjectKey::cluster(name);
            if flavor.amounts.total == 0 {
                found.push(without_nodes(&key, flavor));
                continue;
            }
            self.capacity(name, flavor, facts, found);
            if flavor.amounts.without_level > 0 {
                let (nodes, topology) =
                    (flavor.amounts.without_level, flavor.topology.as_deref().unwrap_or_default());
                let said = Said {
                    message: format!(
                        "{nodes} of {} {} a level label of Topology {topology}",
                        counted(flavor.amounts.total, "node"),
                        verb(nodes, "lack")
                    ),
                    consequence: "no pod is placed on them",
                    correction: format!("kubectl describe topology {topology}; label the nodes"),
                    ..Said::default()
                };
                let said = said.with("nodes", number(nodes));
                found.push(finding(Check::TopologyLevelMissing, ("ResourceFlavor", &key), said));
            }
        }
    }

    /// Returns the nominal quotas of other flavors that may be on the same nodes.
    fn beside(
        &self,
        name: &Arc<str>,
        flavor: &AuditedFlavor,
        resource: &Arc<str>,
        facts: &AuditFacts,
    ) -> i128 {
        let may_share = |other: &AuditedFlavor| {
            let differs = |(label, value)| flavor.node_labels.get(label).is_some_and(|own| own != value);
            !other.node_labels.iter().any(differs)
        };
        let others = facts.flavors.iter().filter(|(other, found)| *other != name && may_share(found));
        let quota = |other: &Arc<str>| {
            let fr = FlavorResource { flavor: Arc::clone(other), resource: Arc::clone(resource) };
            self.sums.get(&fr).map_or(0, |sum| sum.nominal)
        };
        others.map(|(other, _)| quota(other)).sum()
    }

    /// Compares quotas with the capacity of the nodes.
    fn capacity(
        &self,
        name: &Arc<str>,
        flavor: &AuditedFlavor,
        facts: &AuditFacts,
        found: &mut Vec<Finding>,
    ) {
        let (mut exceeded, mut unused) = (None, None);
        for (resource, amounts) in &flavor.amounts.amounts {
            let fr = FlavorResource { flavor: Arc::clone(name), resource: Arc::clone(resource) };
            let Some(sum) = self.sums.get(&fr).filter(|sum| sum.nominal > 0) else { continue };
            let slack = amounts.allocatable - sum.nominal;
            if slack < 0 {
                exceeded.get_or_insert((fr, sum.nominal, amounts.allocatable));
            } else if (slack - self.beside(name, flavor, resource, facts)).saturating_mul(REPORTED_SLACK)
                > amounts.allocatable
            {
                unused.get_or_insert((fr, sum.nominal, amounts.allocatable));
            }
        }
        let nodes = &flavor.amounts;
        let unschedulable = nodes.total.saturating_sub(nodes.schedulable).saturating_sub(nodes.without_level);
        let cordoned = if unschedulable == 0 {
            String::new()
        } else {
            format!(" ({} not schedulable)", counted(unschedulable, "node"))
        };
        let all = [
            (
                Check::QuotaExceedsCapacity,
                exceeded,
                "admitted pods may find no node",
                "lower nominal quotas, or add nodes",
            ),
            (Check::QuotaBelowCapacity, unused, "no workload uses the rest", "raise nominal quotas"),
        ];
        for (check, compared, consequence, correction) in all {
            let Some((fr, quota, schedulable)) = compared else { continue };
            let amount = |amount: i128| self.sums.view(self.snapshot, &fr, amount);
            let (quota, schedulable) = (amount(quota), amount(schedulable));
            let said = Said {
                message: format!(
                    "{} {} of quota, {} on schedulable nodes{cordoned}",
                    quota.value,
                    word(&fr.resource),
                    schedulable.value
                ),
                consequence,
                correction: correction.to_owned(),
                ..Said::default()
            };
            let said = said.with("quota", quota).with("schedulable", schedulable);
            found.push(finding(check, ("ResourceFlavor", &ObjectKey::cluster(name)), said));
        }
    }
}

fn without_nodes(key: &ObjectKey, flavor: &AuditedFlavor) -> Finding {
    // If several labels have no node, the first of them must be corrected.
    let values = |label: &String| flavor.nodes.label_values.get(label);
    let wrong = flavor
        .node_labels
        .iter()
        .find(|(label, value)| values(label).is_none_or(|known| !known.contains(*value)))
        .or_else(|| flavor.node_labels.first_key_value());
    let message = match wrong {
        None => "there is no node".to_owned(),
        Some((label, value)) => {
            let near = values(label).and_then(|known| nearest(value, known.iter().map(String::as_str)));
            format!("no node has {label}={value}{}", meant(near))
        }
    };
    let said = Said {
        message,
        consequence: "pods that are admitted with it find no node",
        correction: format!("kubectl edit resourceflavor {}; change spec.nodeLabels", key.name),
        ..Said::default()
    };
    finding(Check::FlavorWithoutNodes, ("ResourceFlavor", key), said)
}
