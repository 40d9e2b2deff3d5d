//! Findings about queues below their quota that wait while others borrow.

use super::{Audit, Said, finding, word};
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::quota::{FlavorResource, NodeRef};
use crate::scheduler::VictimPriority;
use crate::visibility::views::{Check, Finding, WorkloadState};
use crate::visibility::workload_row::{Rows, reason_of, state_of};
use jiff::SignedDuration;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Minimum wait for a finding.
const MIN_WAIT: SignedDuration = SignedDuration::from_mins(10);

impl Audit<'_> {
    pub(super) fn starved(&self, found: &mut Vec<Finding>) {
        let borrowers = self.borrowers();
        for (name, facts) in &self.quota.facts.cluster_queues {
            // With any other policy the engine reclaims, or reports what keeps it from reclaiming.
            let prevents = match facts.preemption.reclaim().map(|rule| rule.priority) {
                None => "preemption.reclaimWithinCohort is Never",
                Some(VictimPriority::Any) => continue,
                Some(_) => "preemption.reclaimWithinCohort is LowerPriority",
            };
            let Some((key, since)) = self.waiting_head(name) else { continue };
            let Some(record) = self.snapshot.workloads.get(&key) else { continue };
            let root = self.root_of(&NodeRef::ClusterQueue(Arc::clone(name)));
            let node = NodeRef::ClusterQueue(Arc::clone(name));
            let needs = Rows::needs_of(record);
            let owed = facts.order.iter().find_map(|fr| {
                let (usage, need) = (self.quota.usage(&node, fr), needs.get(&fr.resource)?);
                let nominal = usage.limits.nominal.to_i128();
                let is_owed = usage.usage.to_i128().saturating_add(*need) <= nominal;
                let is_short = self.quota.headroom(&node, fr).0.available < *need;
                let borrower = borrowers.get(&(root.clone(), fr.clone()))?;
                (is_owed && is_short && borrower.0 != *name).then_some((fr, usage, borrower))
            });
            let Some((fr, usage, (borrower, borrowed))) = owed else { continue };
            let amount = |amount: i128| self.sums.view(self.snapshot, fr, amount);
            let minutes = self.now.duration_since(since).as_mins();
            let said = Said {
                message: format!(
                    "its head has waited for {minutes}m below nominal quota ({} of {} {} {}) while {borrower} borrows {}; {prevents}",
                    amount(usage.usage.to_i128()).value,
                    amount(usage.limits.nominal.to_i128()).value,
                    fr.flavor,
                    word(&fr.resource),
                    amount(*borrowed).value,
                ),
                consequence: "it gets its own quota only when the borrower ends",
                correction: format!(
                    "kubectl edit clusterqueue {name}; set spec.preemption.reclaimWithinCohort: Any"
                ),
                ..Said::default()
            };
            let said = said.with("used", amount(usage.usage.to_i128()));
            let said = said.with("nominal", amount(usage.limits.nominal.to_i128()));
            let said = said.with("borrowed", amount(*borrowed));
            found.push(finding(Check::Starved, ("ClusterQueue", &ObjectKey::cluster(name)), said));
        }
    }

    /// Returns the first workload of a queue and its start of waiting, if it waits for quota long enough.
    fn waiting_head(&self, queue: &Arc<str>) -> Option<(ObjectKey, jiff::Timestamp)> {
        let head = self.snapshot.pending.from_position(queue, 0).next()?.workload;
        let record = self.snapshot.workloads.get(&head.key)?;
        let state = state_of(record);
        let waits = state == WorkloadState::Pending
            && reason_of(record, state) == PendingReason::WaitingForQuota.as_str()
            && self.now.duration_since(head.queued_since) > MIN_WAIT;
        waits.then(|| (head.key.clone(), head.queued_since))
    }

    fn root_of(&self, node: &NodeRef) -> Option<NodeRef> {
        self.quota.path(node)?.pop()
    }

    /// Returns the ClusterQueue that borrows most, and the amount, by root and flavor-resource.
    fn borrowers(&self) -> BTreeMap<(Option<NodeRef>, FlavorResource), (Arc<str>, i128)> {
        let mut most: BTreeMap<(Option<NodeRef>, FlavorResource), (Arc<str>, i128)> = BTreeMap::new();
        for (name, queue) in &self.snapshot.queues.cluster_queues {
            let root = self.root_of(&NodeRef::ClusterQueue(Arc::clone(name)));
            for (fr, usage) in &queue.usage_by_flavor_resource {
                let borrowed = usage.borrowed(queue.parent.is_some()).to_i128();
                let known = most.get(&(root.clone(), fr.clone())).map_or(0, |(_, amount)| *amount);
                if borrowed > known {
                    most.insert((root.clone(), fr.clone()), (Arc::clone(name), borrowed));
                }
            }
        }
        most
    }
}
