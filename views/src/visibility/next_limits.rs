//! Limits that bind a pending Workload once the missing amounts of its blockers are free: nodes further up, and pod sets that
//! were not tried because an earlier pod set got no flavor.
//!
//! Invariants:
//! - the request in a row is cumulative: it includes the requests of the earlier pod sets. So the greatest missing amount of a
//!   node is what its limit lacks for the whole Workload;
//! - an untried pod set has rows only for resources with a single flavor in its ClusterQueue, because it is not known which of
//!   several flavors it would get.

use super::amounts::{amount_view, limit_view};
use super::verdict::Asked;
use super::views::{BlockerKindView, BlockerView};
use super::workload_row::{Rows, node_text};
use crate::cache::records::WorkloadRecord;
use crate::queue::{Blocker, BlockerKind, PodSet};
use crate::quota::{FlavorResource, NodeRef};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Rows<'_> {
    /// Returns what the pod sets after the named ones request of a flavor-resource; 0 if the resource has several flavors in the queue.
    pub(super) fn later_request(
        self,
        record: &WorkloadRecord,
        queue: &NodeRef,
        fr: &FlavorResource,
        names: &str,
    ) -> i128 {
        let sets: &[PodSet] = record.effective_requests.pod_sets.as_deref().unwrap_or_default();
        if self.quota.flavors_of(queue, &fr.resource) != [fr.clone()] {
            return 0;
        }
        PodSet::later_request(sets, names, &fr.resource)
    }
}

impl Asked<'_> {
    /// Returns the limits behind the blockers: from the node above the one that binds now to the root, then for later pod sets.
    pub(super) fn next_limits(&self, blockers: &[Blocker]) -> Vec<BlockerView> {
        let in_use = || blockers.iter().filter(|blocker| blocker.kind == BlockerKind::InUse);
        let above = in_use().flat_map(|blocker| {
            let fr = FlavorResource::new(&blocker.flavor, &blocker.resource);
            let requested = blocker.requested.to_i128();
            let limits = self.quota().limits(&self.queue, &fr);
            limits
                .into_iter()
                .skip(1)
                .filter_map(|limit| self.limit_row((&fr, &blocker.pod_set), requested, limit))
                .collect::<Vec<_>>()
        });
        let mut rows: Vec<BlockerView> = above.collect();
        rows.extend(self.later_pod_sets(blockers));
        rows
    }

    /// Returns a row for a node whose limit leaves less than the requested amount.
    fn limit_row(
        &self,
        (fr, pod_set): (&FlavorResource, &str),
        requested: i128,
        (node, available): (NodeRef, i128),
    ) -> Option<BlockerView> {
        if available >= requested {
            return None;
        }
        let units = &self.quota().facts.units;
        let amount = |amount: i128| Some(amount_view(units, &self.queue, fr, amount));
        Some(BlockerView {
            kind: BlockerKindView::Next,
            pod_set: pod_set.to_owned(),
            flavor: fr.flavor.to_string(),
            resource: fr.resource.to_string(),
            node: node_text(&node),
            requested: amount(requested),
            available: Some(limit_view(units, &self.queue, fr, available.max(0))),
            limit: self.quota().node_limit(&node, fr).filter(|_| self.rows.access.sees_sums()),
            missing: amount(requested - available),
            ..BlockerView::default()
        })
    }

    fn later_pod_sets(&self, blockers: &[Blocker]) -> Vec<BlockerView> {
        let sets: &[PodSet] = self.record.effective_requests.pod_sets.as_deref().unwrap_or_default();
        let is_blocked = |set: &PodSet| blockers.iter().any(|blocker| set.is_named(&blocker.pod_set));
        let Some(last) = sets.iter().rposition(is_blocked) else { return Vec::new() };
        if !blockers.iter().any(|blocker| blocker.kind == BlockerKind::InUse) {
            return Vec::new();
        }
        let is_of_last = |blocker: &&Blocker| {
            let names_last = sets.get(last).is_some_and(|set| set.is_named(&blocker.pod_set));
            blocker.kind == BlockerKind::InUse && names_last
        };
        let (mut sums, mut rows) = (BTreeMap::<&Arc<str>, i128>::new(), Vec::new());
        for (index, set) in sets.iter().enumerate() {
            if index == last.saturating_add(1) {
                // A shortage is without the quota that goes over from a slice which the workload replaces.
                for blocker in blockers.iter().filter(is_of_last) {
                    let resource = &blocker.resource;
                    if let Some(sum) = sums.get_mut(&resource) {
                        *sum = blocker.requested.to_i128().min(*sum);
                    }
                }
            }
            for (resource, amount) in &set.requests {
                let sum = sums.entry(resource).or_default();
                *sum = sum.saturating_add(amount.to_i128().saturating_mul(set.count.into()));
                let flavors = self.quota().flavors_of(&self.queue, resource);
                let ([fr], true) = (&flavors[..], index > last) else { continue };
                let (requested, limits) = (*sum, self.quota().limits(&self.queue, fr).into_iter());
                rows.extend(limits.filter_map(|limit| self.limit_row((fr, &set.name), requested, limit)));
            }
        }
        rows
    }
}
