//! Findings about preemption between ClusterQueues of one tree.
//!
//! Invariant: a finding follows from the policies alone; the check `starved` finds queues that have lost quota by them.

use super::{Audit, Said, finding, number, verb, word};
use crate::api::ObjectKey;
use crate::quota::{FlavorResource, NodeRef};
use crate::resources::Amount;
use crate::visibility::views::{Check, Finding};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of ClusterQueues that a finding names.
const NAMED: usize = 3;

impl Audit<'_> {
    /// Finds ClusterQueues that lend, do not reclaim, and share a cohort tree with borrowers that reclaim.
    pub(super) fn asymmetric(&self, found: &mut Vec<Finding>) {
        let mut trees: BTreeMap<NodeRef, Vec<&Arc<str>>> = BTreeMap::new();
        for name in self.quota.facts.cluster_queues.keys() {
            let path = self.quota.path(&NodeRef::ClusterQueue(Arc::clone(name)));
            if let Some(root) = path.filter(|path| path.len() > 1).and_then(|mut path| path.pop()) {
                trees.entry(root).or_default().push(name);
            }
        }
        for names in trees.values() {
            // Once for each tree: to ask each lender for its borrowers costs the square of the queues.
            let mut borrowers: BTreeMap<&FlavorResource, Vec<&str>> = BTreeMap::new();
            for name in names.iter().filter(|name| self.reclaims(name)) {
                for fr in self.quotas(name).iter().filter(|fr| self.may_borrow(name, fr)) {
                    borrowers.entry(fr).or_default().push(name);
                }
            }
            for name in names.iter().filter(|name| !self.reclaims(name)) {
                let mut lent = self.quotas(name).iter().filter(|fr| self.lends(name, fr));
                // One flavor-resource is enough for the finding.
                if let Some((fr, borrowers)) = lent.find_map(|fr| Some((fr, borrowers.get(fr)?))) {
                    found.push(one_sided(name, fr, borrowers));
                }
            }
        }
    }

    /// Returns the flavor-resources of which a ClusterQueue has a quota.
    fn quotas(&self, name: &Arc<str>) -> &[FlavorResource] {
        let facts = self.quota.facts.cluster_queues.get(name);
        facts.map(|facts| facts.order.as_slice()).unwrap_or_default()
    }

    fn reclaims(&self, name: &Arc<str>) -> bool {
        let facts = self.quota.facts.cluster_queues.get(name);
        facts.is_some_and(|facts| facts.preemption.reclaim().is_some())
    }

    fn lends(&self, name: &Arc<str>, fr: &FlavorResource) -> bool {
        let limits = self.quota.usage(&NodeRef::ClusterQueue(Arc::clone(name)), fr).limits;
        limits.nominal > Amount::ZERO && limits.lending_limit != Some(Amount::ZERO)
    }

    fn may_borrow(&self, name: &Arc<str>, fr: &FlavorResource) -> bool {
        let limits = self.quota.usage(&NodeRef::ClusterQueue(Arc::clone(name)), fr).limits;
        limits.borrowing_limit != Some(Amount::ZERO)
    }
}

fn one_sided(name: &str, fr: &FlavorResource, borrowers: &[&str]) -> Finding {
    let left = borrowers.len().saturating_sub(NAMED);
    let mut shown: Vec<String> = borrowers.iter().take(NAMED).map(|name| (*name).to_owned()).collect();
    if left > 0 {
        shown.push(format!("{left} more"));
    }
    let said = Said {
        message: format!(
            "it lends {} to {}, which {} back quota, and never takes back its own",
            word(&fr.resource),
            shown.join(", "),
            verb(borrowers.len(), "take")
        ),
        consequence: "its workloads wait until borrowing workloads end",
        correction: format!("kubectl edit clusterqueue {name}; set spec.preemption.reclaimWithinCohort"),
        ..Said::default()
    };
    let said = said.with("borrowers", number(borrowers.len()));
    finding(Check::PreemptionAsymmetric, ("ClusterQueue", &ObjectKey::cluster(name)), said)
}
