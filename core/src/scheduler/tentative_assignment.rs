//! The result of a flavor assignment: what a workload would be granted, or why it would not.
//!
//! Invariant: nothing here is charged yet.

use super::compiled::{CompiledClusterQueue, CompiledResourceGroup, GroupFlavor};
use super::decision::{Assignment, PodSetAssignment};
use super::granular_mode::PreemptionMode;
use super::requests::total_requests;
use super::topology::TasAssignment;
use crate::api::reason::PendingReason;
use crate::queue::{Blocker, FlavorCursor, PodSet, WakeConditions};
use crate::quota::{FlavorResourceId, Usage};
use crate::resources::Requests;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Flavors of one pod set group.
#[derive(Clone, Debug, Default)]
pub(super) struct PodSetGroupFlavors {
    /// Indexes of the pod sets in the workload.
    pub(super) pod_set_indexes: Vec<usize>,
    /// One flavor of each resource group that the pod sets need.
    pub(super) flavors: Vec<GroupFlavorIndex>,
}

/// Position of a flavor in a ClusterQueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupFlavorIndex {
    /// Index of the resource group.
    pub(super) group: usize,
    /// Index of the flavor in the group.
    pub(super) flavor: usize,
}

impl GroupFlavorIndex {
    /// The resource group and the flavor at this position.
    pub(super) fn find(self, queue: &CompiledClusterQueue) -> Option<(&CompiledResourceGroup, &GroupFlavor)> {
        let group = queue.groups.get(self.group)?;
        Some((group, group.flavors.get(self.flavor)?))
    }
}

/// Result of a flavor assignment; nothing is charged yet.
#[derive(Clone, Debug)]
pub(super) struct TentativeAssignment {
    /// Worst mode of all parts.
    pub(super) mode: PreemptionMode,
    pub(super) group_flavors: Vec<PodSetGroupFlavors>,
    pub(super) usage: Usage,
    /// Flavor-resources that need preemption.
    pub(super) frs_need_preemption: Vec<FlavorResourceId>,
    /// Highest borrowing level; 0 without borrowing.
    pub(super) borrowing_level: u32,
    /// Where the next scan starts if another head takes this capacity first.
    pub(super) cursor: Option<FlavorCursor>,
    pub(super) reason: PendingReason,
    pub(super) blockers: Vec<Blocker>,
    pub(super) wake_conditions: WakeConditions,
    /// Topology requests and, once found, their placements.
    pub(super) tas_assignment: TasAssignment,
}

impl TentativeAssignment {
    /// Converts to the assignment that the workload is granted.
    pub(super) fn to_assignment(
        &self,
        queue: &CompiledClusterQueue,
        name: &Arc<str>,
        pod_sets: &[PodSet],
    ) -> Assignment {
        let mut assigned: Vec<(usize, PodSetAssignment)> = Vec::with_capacity(pod_sets.len());
        for group_flavors in &self.group_flavors {
            for index in &group_flavors.pod_set_indexes {
                let Some(set) = pod_sets.get(*index) else { continue };
                let (mut flavors, mut usage) = (BTreeMap::new(), Requests::new());
                for (resource, amount) in total_requests(set, queue) {
                    let provider = |index: &GroupFlavorIndex| {
                        let (group, flavor) = index.find(queue)?;
                        group.position(resource).map(|_| flavor)
                    };
                    if let Some(flavor) = group_flavors.flavors.iter().find_map(provider) {
                        flavors.insert(Arc::clone(resource), Arc::clone(&flavor.name));
                        usage.insert(Arc::clone(resource), amount);
                    }
                }
                let name = Arc::clone(&set.name);
                let topology = self.tas_assignment.pod_set_placement(*index);
                let assignment = PodSetAssignment { name, count: set.count, flavors, usage, topology };
                assigned.push((*index, assignment));
            }
        }
        assigned.sort_by_key(|(index, _)| *index);
        let pod_sets = assigned.into_iter().map(|(_, assignment)| assignment).collect();
        Assignment { cluster_queue: Arc::clone(name), pod_sets }
    }
}
