//! What an assignment lacks in a usage layer.
//!
//! Invariant: usage removed for a question is restored before the answer returns.

use super::cycle::CycleState;
use super::engine::Engine;
use super::nominate::{Head, NominatedAssignment};
use super::preemption::Target;
use super::reserving_workloads::ReservingWorkload;
use super::topology::CapacityUsage;
use crate::queue::Workload;
use crate::quota::{FlavorResourceId, UsageLayer};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What an assignment needs but cannot get.
#[derive(Default)]
pub(super) struct Shortfall {
    /// Flavor-resources with too little available quota.
    pub(super) quota: BTreeSet<FlavorResourceId>,
    /// Whether the leaf capacity of its topology assignment is taken.
    pub(super) topology: bool,
}

impl Shortfall {
    pub(super) fn is_empty(&self) -> bool {
        self.quota.is_empty() && !self.topology
    }

    pub(super) fn only_topology(&self) -> bool {
        self.quota.is_empty() && self.topology
    }
}

impl Engine {
    /// Returns what an assignment lacks in projected usage. Head claims do not count against a workload with a
    /// capacity reservation: the reservation came first, and the workload would otherwise retry forever.
    pub(super) fn projected_shortfall(
        &mut self,
        head: &Head,
        nominated: &NominatedAssignment,
        targets: &[Target],
        cycle: &CycleState,
    ) -> Shortfall {
        let claims: &[CapacityUsage] =
            if self.reservations.contains(head.key()) { &cycle.head_claims } else { &[] };
        self.with_usage_removed(claims, UsageLayer::Projected, |engine| {
            engine.shortfall(head, nominated, targets, UsageLayer::Projected)
        })
    }

    /// Returns what an assignment lacks in a layer once the targets are gone and without the workload's own usage.
    pub(super) fn shortfall(
        &mut self,
        head: &Head,
        nominated: &NominatedAssignment,
        targets: &[Target],
        layer: UsageLayer,
    ) -> Shortfall {
        let (node, usage) = (head.node, &nominated.assignment.usage);
        let mut removed = match layer {
            UsageLayer::Projected => self.own_projected_usage(&head.workload),
            UsageLayer::Current => {
                let old = self.replaced_slice(&head.workload);
                old.map(|old| usage_that_goes_over(&head.workload, old)).into_iter().collect()
            }
        };
        removed.extend(CapacityUsage::from_targets(targets));
        self.with_usage_removed(&removed, layer, |engine| {
            let free = |fr: FlavorResourceId| engine.tree.available(node, fr, layer).max(0);
            let frs =
                usage.iter().filter(|(fr, requested)| *requested > free(*fr)).map(|(fr, _)| *fr).collect();
            let footprint = nominated.assignment.tas_assignment.footprint(&mut engine.topology);
            Shortfall { quota: frs, topology: !engine.topology.footprint_fits(&footprint, layer) }
        })
    }

    fn replaced_slice(&self, workload: &Workload) -> Option<&ReservingWorkload> {
        workload
            .replaces
            .as_ref()
            .and_then(|old| self.reserving_workloads.get(old))
            .map(|reserving| &**reserving)
    }

    /// Projected usage of the workload itself: its capacity reservation and the slice that it replaces.
    pub(super) fn own_projected_usage(&self, workload: &Workload) -> Vec<CapacityUsage> {
        let old = self.replaced_slice(workload).filter(|old| !old.is_terminating());
        let old = old.map(|old| usage_that_goes_over(workload, old));
        self.reservation_of(&workload.key).into_iter().chain(old).collect()
    }
}

/// Returns the usage that goes over from the slice that a workload replaces: its quota. The nodes of an elastic job stay with the
/// pods that run on them, and only other pods are placed.
fn usage_that_goes_over(workload: &Workload, old: &ReservingWorkload) -> CapacityUsage {
    let usage = CapacityUsage::from_workload(old);
    if workload.is_slice { CapacityUsage { footprint: Arc::default(), ..usage } } else { usage }
}
