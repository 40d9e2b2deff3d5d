//! What a workload would get if nothing were in use: the same assignment as in a cycle, on empty quota and empty nodes.
//!
//! Invariants: usage, order and other workloads play no part, so nothing is preempted, and pods on nodes count only if they stay when
//! all that holds quota ends; what was found for a class is kept until configuration, nodes or pods on them change.
//! Neighbours: `nominate` computes assignments against usage; `obstacle` decides what is shown of a pending workload.

use super::engine::Engine;
use super::flavor_assigner::AssignRequest;
use super::granular_mode::PreemptionMode;
use super::nominate::assign_with_partial_admission;
use crate::api::reason::PendingReason;
use crate::api::similar;
use crate::queue::{
    Alone, Blocker, BlockerKind, ClassId, FlavorCursor, FlavorMismatch, NeverFits, PodSet, Workload,
    WrongFlavor,
};
use crate::quota::FlavorResource;
use crate::resources::Amount;
use crate::topology::TopologyLimit;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a workload would use.
type EmptyUsage = Vec<(FlavorResource, Amount)>;

/// What one scan of the flavors found on empty quota and nodes.
struct EmptyScan {
    result: Result<EmptyUsage, (PendingReason, Vec<Blocker>)>,
    limit: Option<TopologyLimit>,
    cursor: Option<FlavorCursor>,
}

impl Engine {
    /// Returns what the workloads of a class would get if nothing were in use.
    pub(super) fn alone_in_class(&mut self, class: ClassId, first: &Workload) -> Arc<Alone> {
        let (queue, state) = (&first.cluster_queue, self.standings.empty_state);
        if let Some(known) = self.pending.alone(queue, class, state) {
            return Arc::clone(known);
        }
        let alone = Arc::new(self.alone(first));
        self.pending.set_alone(queue, class, (state, &alone));
        alone
    }

    /// Returns what a workload would get if nothing were in use.
    pub(super) fn alone(&mut self, workload: &Workload) -> Alone {
        let (mut cursor, mut first) = (None, None);
        let (mut blockers, mut limit): (Vec<Blocker>, Option<TopologyLimit>) = (Vec::new(), None);
        // As in cycles, a scan after one whose flavor has no nodes begins at the next flavor.
        for _ in 0..=self.flavors_of(workload) {
            let Some(scan) = self.scan_empty(workload, cursor.as_ref()) else { break };
            match scan.result {
                Ok(usage) => return Alone::Fits(usage),
                Err((reason, found)) => {
                    first.get_or_insert(reason);
                    let new: Vec<Blocker> =
                        found.into_iter().filter(|blocker| !blockers.contains(blocker)).collect();
                    blockers.extend(new);
                    limit = limit.or(scan.limit);
                }
            }
            cursor = scan.cursor;
            if cursor.is_none() {
                break;
            }
        }
        let only_mismatches = limit.is_none()
            && blockers.iter().all(|blocker| matches!(blocker.kind, BlockerKind::Mismatch(_)));
        let wrong = only_mismatches.then(|| self.wrong_flavor(workload, &blockers)).flatten();
        let reason = first.unwrap_or(PendingReason::NoMatchingFlavor);
        Alone::Never(Arc::new(NeverFits { reason, blockers, limit, wrong }))
    }

    fn flavors_of(&self, workload: &Workload) -> usize {
        let queue = self.config.cluster_queue(&workload.cluster_queue);
        queue.map_or(0, |queue| queue.groups.iter().map(|group| group.flavors.len()).sum())
    }

    fn scan_empty(&mut self, workload: &Workload, cursor: Option<&FlavorCursor>) -> Option<EmptyScan> {
        let cycle = self.cycle_count;
        let (mut context, queue, flavors) =
            self.scheduling_context(&workload.cluster_queue, &workload.key)?;
        context.is_empty = true;
        let request = AssignRequest {
            workload,
            pod_sets: &workload.pod_sets,
            queue,
            flavors,
            cursor,
            allowed_flavors: None,
            replaced_slice: None,
            cycle,
        };
        let (nominated, _) = assign_with_partial_admission(&mut context, &request);
        let assignment = nominated.assignment;
        let fits = assignment.mode == PreemptionMode::Fit;
        let tas = &assignment.tas_assignment;
        let failed = assignment
            .blockers
            .iter()
            .find(|blocker| matches!(blocker.kind, BlockerKind::Mismatch(_)) && blocker.flavor.is_empty());
        let placed = failed.filter(|_| !fits).and_then(|failed| {
            let request = tas.pod_set_requests.iter().find(|request| request.name == failed.pod_set)?;
            Some((request, Arc::from(failed.to_string())))
        });
        let limit = placed.map(|(request, text)| context.topology.empty_limit(request, text));
        let result = if fits {
            Ok(self.tree.to_named(assignment.usage).into_iter().collect())
        } else {
            Err((assignment.reason, assignment.blockers))
        };
        Some(EmptyScan { result, limit, cursor: assignment.cursor })
    }

    /// Returns the flavor that the pods ask for, of flavors that all do not match.
    fn wrong_flavor(&self, workload: &Workload, blockers: &[Blocker]) -> Option<WrongFlavor> {
        if let Some(unplaced) = blockers.iter().find(|blocker| blocker.flavor.is_empty()) {
            let mismatch = self.unplaced(workload, unplaced);
            return Some(WrongFlavor { flavor: Arc::default(), mismatch });
        }
        let first = blockers.first()?;
        let set =
            workload.pod_sets.iter().find(|set| first.pod_set.split(", ").any(|name| name == &*set.name))?;
        let of_set: Vec<&Blocker> =
            blockers.iter().filter(|blocker| blocker.pod_set == first.pod_set).collect();
        let labels =
            |blocker: &Blocker| self.config.flavors().get(&blocker.flavor).map(|flavor| &flavor.node_labels);
        let selector = &set.pod_requirements.node_selector;
        // How much of the selector a flavor has; one with another value of a label is not meant.
        let matching = |blocker: &&Blocker| {
            let labels = labels(blocker)?;
            let is_other =
                selector.iter().any(|(key, value)| labels.get(key).is_some_and(|known| known != value));
            let same = selector.iter().filter(|(key, value)| labels.get(*key) == Some(*value)).count();
            (!is_other).then_some(same)
        };
        let most = of_set.iter().filter_map(matching).max();
        let meant = of_set.iter().find(|blocker| most.is_some() && matching(blocker) == most);
        if let Some(meant) = meant.filter(|_| most > Some(0) || selector.is_empty() || of_set.len() == 1) {
            return Some(WrongFlavor {
                flavor: Arc::clone(&meant.flavor),
                mismatch: self.mismatch_with(&meant.flavor, set, meant),
            });
        }
        let offered = |key: &str| -> BTreeSet<&str> {
            let values = of_set.iter().filter_map(|blocker| labels(blocker)?.get(key));
            values.map(String::as_str).collect()
        };
        let missing = selector.iter().find(|(key, value)| {
            let offered = offered(key);
            !offered.is_empty() && !offered.contains(value.as_str())
        });
        let Some((key, value)) = missing else {
            let meant = meant.or(of_set.first())?;
            let mismatch = self.mismatch_with(&meant.flavor, set, meant);
            return Some(WrongFlavor { flavor: Arc::clone(&meant.flavor), mismatch });
        };
        let offered = offered(key);
        let near = similar::nearest(value, offered.iter().copied());
        let only = if offered.len() == 1 { offered.first().copied() } else { None };
        let near = near.or(only).map(str::to_owned);
        let mismatch = FlavorMismatch::NoFlavorWith { key: key.clone(), value: value.clone(), near };
        Some(WrongFlavor { flavor: Arc::default(), mismatch })
    }

    /// Returns why pods with a topology get no nodes to look at.
    fn unplaced(&self, workload: &Workload, blocker: &Blocker) -> FlavorMismatch {
        let queue = self.config.cluster_queue(&workload.cluster_queue);
        let groups = || queue.into_iter().flat_map(|queue| &queue.groups);
        let requests_nothing = |set: &&PodSet| {
            set.name == blocker.pod_set
                && set.pod_requirements.is_explicit()
                && !set
                    .requests
                    .keys()
                    .any(|resource| groups().any(|group| group.position(resource).is_some()))
        };
        match workload.pod_sets.iter().find(requests_nothing) {
            Some(set) => FlavorMismatch::RequestsNothing { pod_set: Arc::clone(&set.name) },
            None => FlavorMismatch::Other(Arc::from(blocker.to_string())),
        }
    }

    fn mismatch_with(&self, flavor: &str, set: &PodSet, blocker: &Blocker) -> FlavorMismatch {
        let has_topology = self.settings.gates.topology && self.config.has_topology(flavor);
        let text = blocker.to_string();
        match (set.pod_requirements.is_explicit(), has_topology) {
            (true, true) if self.topology.lacks_level(flavor, &set.pod_requirements) => {
                FlavorMismatch::LacksLevel
            }
            (true, false) if text.ends_with("does not support topology-aware scheduling") => {
                FlavorMismatch::HasNoTopology
            }
            (false, true) if text.ends_with("supports only topology-aware scheduling") => {
                FlavorMismatch::NeedsTopologyRequest
            }
            _ => FlavorMismatch::Other(Arc::from(text)),
        }
    }
}
