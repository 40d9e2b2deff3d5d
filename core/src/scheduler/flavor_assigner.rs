//! Flavor assignment: which flavor each pod set gets for each resource, or which blockers prevent it.
//!
//! Invariants: pod sets of one group get the same flavors; one flavor serves a whole resource group; usage of earlier
//! pod sets counts for later ones. Nothing is charged, and evictions are only simulated.
//! Neighbours: `granular_mode` evaluates one flavor-resource, `topology` assigns nodes, `nominate` calls.

use super::compiled::{CompiledClusterQueue, CompiledResourceGroup, GroupFlavor};
use super::config::{Flavor, UndeclaredResources};
use super::granular_mode::{GranularMode, PreemptionMode, Requester};
use super::matching::flavor_mismatch;
use super::preemption::{FlavorRules, SchedulingContext};
use super::requests::{add_usage, pod_set_groups, requests_by_resource, usage_of};
use super::reserving_workloads::ReservingWorkload;
use super::tentative_assignment::{GroupFlavorIndex, PodSetGroupFlavors, TentativeAssignment};
use super::topology::{self, TasAssignment};
use crate::api::reason::PendingReason;
use crate::queue::{Blocker, BlockerKind, FlavorCursor, PodSet, WakeConditions, Workload};
use crate::quota::{FlavorResourceId, Usage};
use crate::resources::Amount;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Input of a flavor assignment.
#[derive(Clone, Copy)]
pub(super) struct AssignRequest<'a> {
    pub(super) workload: &'a Workload,
    /// Pod sets to assign; with partial admission their counts may be below those of the workload.
    pub(super) pod_sets: &'a [PodSet],
    pub(super) queue: &'a CompiledClusterQueue,
    pub(super) flavors: &'a BTreeMap<Arc<str>, Flavor>,
    pub(super) cursor: Option<&'a FlavorCursor>,
    /// If set, only these flavors may be assigned.
    pub(super) allowed_flavors: Option<&'a [PodSetGroupFlavors]>,
    /// The slice that the workload replaces; the workload keeps its flavors.
    pub(super) replaced_slice: Option<&'a ReservingWorkload>,
    pub(super) cycle: u64,
}

impl AssignRequest<'_> {
    pub(super) fn requester(&self) -> Requester<'_> {
        let workload = self.workload;
        Requester { queue: self.queue, priority: workload.priority, queued_since: workload.queued_since }
    }
}

/// Assigns flavors to the pod sets of a request, starting at its cursor.
pub(super) fn assign_flavors(
    context: &mut SchedulingContext,
    request: &AssignRequest,
) -> TentativeAssignment {
    FlavorScan::new(context, *request).run()
}

impl AssignRequest<'_> {
    /// Returns the cursor unless it is stale.
    pub(super) fn fresh_cursor(&self, context: &SchedulingContext) -> Option<&FlavorCursor> {
        let generation = context.tree.generation(self.queue.node);
        let preserve = context.settings.gates.preserve_scan_progress;
        self.cursor.filter(|c| (preserve && c.cycle + 1 >= self.cycle) || c.generation == generation)
    }
}

/// A requested resource of a group.
struct GroupRequest {
    /// Index in `covered_resources`.
    position: usize,
    amount: Amount,
}

/// One flavor-resource of a flavor after evaluation.
struct EvaluatedRequest {
    fr: FlavorResourceId,
    /// The request with that of earlier pod sets.
    requested: i128,
    granular: GranularMode,
}

impl EvaluatedRequest {
    fn fits(&self) -> bool {
        self.granular.mode == PreemptionMode::Fit
    }
}

/// The flavor chosen for a resource group.
struct FlavorCandidate {
    index: usize,
    granular_mode: GranularMode,
    frs: Vec<EvaluatedRequest>,
}

/// The scan over the flavors of a resource group, and what it found.
struct GroupScan<'s> {
    group: &'s CompiledResourceGroup,
    group_flavors: &'s PodSetGroupFlavors,
    wanted: &'s [GroupRequest],
    best: Option<FlavorCandidate>,
    /// Index of the last flavor that was tried.
    last: usize,
    /// Reason if no flavor is chosen: the mildest that blockers of a flavor imply.
    reason: PendingReason,
    /// For each flavor that does not fit, its first flavor-resource that does not, with the amount.
    needs: Vec<(FlavorResourceId, i128)>,
    blockers: Vec<Blocker>,
}

impl FlavorCandidate {
    /// Worst mode of its flavor-resources. `granular_mode` may come from another one: the one that borrows at the
    /// higher level.
    fn preemption_mode(&self) -> PreemptionMode {
        self.frs.iter().map(|evaluated| evaluated.granular.mode).min().unwrap_or(PreemptionMode::Fit)
    }
}

struct FlavorScan<'a, 'f> {
    context: &'a mut SchedulingContext<'f>,
    request: AssignRequest<'a>,
    assignment: TentativeAssignment,
    last_tried: BTreeMap<(Arc<str>, Arc<str>), usize>,
    /// Flavor-resources of groups that fit, where another flavor was possible.
    decided_frs: Vec<FlavorResourceId>,
}

impl<'a, 'f> FlavorScan<'a, 'f> {
    fn new(context: &'a mut SchedulingContext<'f>, request: AssignRequest<'a>) -> Self {
        let tree = context.tree.root(request.queue.node);
        let assignment = TentativeAssignment {
            mode: PreemptionMode::Fit,
            group_flavors: Vec::new(),
            usage: Usage::new(),
            frs_need_preemption: Vec::new(),
            borrowing_level: 0,
            cursor: None,
            reason: PendingReason::WaitingForQuota,
            blockers: Vec::new(),
            wake_conditions: WakeConditions { tree: Some(tree), ..WakeConditions::default() },
            tas_assignment: TasAssignment::default(),
        };
        Self { context, request, assignment, last_tried: BTreeMap::new(), decided_frs: Vec::new() }
    }

    fn run(mut self) -> TentativeAssignment {
        for members in pod_set_groups(self.request.pod_sets) {
            let first =
                members.first().and_then(|index| self.request.pod_sets.get(*index)).map(|set| &set.name);
            if let Err(reason) = self.assign_pod_set_group(members) {
                (self.assignment.mode, self.assignment.reason) = (PreemptionMode::NoFit, reason);
                // Without an assigned flavor there is no position to resume from.
                self.last_tried.retain(|(set, _), _| Some(set) != first);
                break;
            }
        }
        self.assignment.cursor = self.next_cursor();
        self.assignment
    }

    /// Returns where the next scan resumes, or `None` if every flavor was tried.
    fn next_cursor(&mut self) -> Option<FlavorCursor> {
        let queue = self.request.queue;
        let scans = self.request.cursor.map_or(0, |cursor| cursor.scans) + 1;
        let max_scans: usize = queue.groups.iter().map(|group| group.flavors.len()).sum();
        (!self.last_tried.is_empty() && scans <= max_scans).then(|| FlavorCursor {
            last_tried: std::mem::take(&mut self.last_tried),
            scans,
            lost_race: self.request.cursor.is_some_and(|cursor| cursor.lost_race),
            cycle: self.request.cycle,
            generation: self.context.tree.generation(queue.node),
        })
    }

    /// Assigns flavors to pod sets that share them.
    fn assign_pod_set_group(&mut self, members: Vec<usize>) -> Result<(), PendingReason> {
        let queue = self.request.queue;
        let sum = requests_by_resource(self.request.pod_sets, &members, queue);
        let mut group_flavors = PodSetGroupFlavors { pod_set_indexes: members, flavors: Vec::new() };
        // Kueue iterates in reverse name order; the first group that fails determines the reason.
        for (resource, amount) in sum.iter().rev() {
            let Some(group) = queue.groups.iter().position(|group| group.position(resource).is_some()) else {
                if *amount == Amount::ZERO
                    || self.context.settings.undeclared_resources == UndeclaredResources::Ignore
                {
                    continue;
                }
                let blocker = blocker_without_amounts(
                    &self.pod_set_names(&group_flavors),
                    "",
                    resource,
                    BlockerKind::Undeclared,
                );
                self.assignment.blockers.push(blocker);
                return Err(PendingReason::NoMatchingFlavor);
            };
            if group_flavors.flavors.iter().all(|known| known.group != group) {
                let flavor = self.find_flavor_for_group(group, &group_flavors, &sum)?;
                group_flavors.flavors.push(GroupFlavorIndex { group, flavor });
            }
        }
        self.assignment.group_flavors.push(group_flavors);
        Ok(())
    }

    fn pod_set_names(&self, group_flavors: &PodSetGroupFlavors) -> Arc<str> {
        let sets = group_flavors.pod_set_indexes.iter().filter_map(|index| self.request.pod_sets.get(*index));
        if let (Some(first), [_]) = (sets.clone().next(), &*group_flavors.pod_set_indexes) {
            return Arc::clone(&first.name);
        }
        Arc::from(sets.map(|set| &*set.name).collect::<Vec<_>>().join(", "))
    }

    /// Chooses the best flavor of a resource group and adds it to the assignment. Returns its index.
    fn find_flavor_for_group(
        &mut self,
        group_index: usize,
        group_flavors: &PodSetGroupFlavors,
        sum: &[(&Arc<str>, Amount)],
    ) -> Result<usize, PendingReason> {
        let queue = self.request.queue;
        let Some(group) = queue.groups.get(group_index) else {
            return Err(PendingReason::NoMatchingFlavor);
        };
        let group_request = |(resource, amount): &(&Arc<str>, Amount)| {
            Some(GroupRequest { position: group.position(resource)?, amount: *amount })
        };
        let wanted: Vec<GroupRequest> = sum.iter().filter_map(group_request).collect();
        let mut scan = GroupScan {
            group,
            group_flavors,
            wanted: &wanted,
            best: None,
            last: 0,
            reason: PendingReason::NoMatchingFlavor,
            needs: Vec::new(),
            blockers: Vec::new(),
        };
        let start = self.start_index(group, group_flavors, &wanted);
        for (index, flavor) in group.flavors.iter().enumerate().skip(start) {
            let place = GroupFlavorIndex { group: group_index, flavor: index };
            let is_allowed = self.is_flavor_allowed(group_flavors, place);
            if is_allowed && self.scan_flavor(&mut scan, index, flavor).is_break() {
                break;
            }
        }
        let (last, reason) = (scan.last, scan.reason);
        let best = self.record_wake_conditions(scan).ok_or(reason)?;
        // Without fungibility each scan starts at the first flavor.
        if self.context.settings.gates.flavor_fungibility && last + 1 < group.flavors.len() {
            let keys: Vec<_> = wanted
                .iter()
                .filter_map(|request| self.cursor_key(group, group_flavors, request.position))
                .collect();
            self.last_tried.extend(keys.into_iter().map(|key| (key, last)));
        }
        self.apply_candidate(&best, &wanted);
        Ok(best.index)
    }

    /// Evaluates a flavor. Breaks if it is chosen whatever later flavors offer.
    fn scan_flavor(
        &mut self,
        scan: &mut GroupScan<'_>,
        index: usize,
        flavor: &GroupFlavor,
    ) -> ControlFlow<()> {
        scan.last = index;
        if let Some(mismatch) = self.flavor_mismatch(&flavor.name, scan.group, scan.group_flavors) {
            let names = self.pod_set_names(scan.group_flavors);
            let kind = BlockerKind::Mismatch(Arc::from(mismatch));
            scan.blockers.push(blocker_without_amounts(&names, &flavor.name, "", kind));
            return ControlFlow::Continue(());
        }
        let choice = self.evaluate_flavor(index, scan.group, scan.wanted);
        self.record_shortages(scan, &choice);
        let fungibility = &self.request.queue.config.fungibility;
        let fungible = self.context.settings.gates.flavor_fungibility;
        let stop = if fungible {
            !choice.granular_mode.should_try_next_flavor(fungibility)
        } else {
            choice.granular_mode.mode == PreemptionMode::Fit
        };
        let better = scan.best.as_ref().is_none_or(|best| {
            if fungible {
                choice.granular_mode.is_preferred_over(best.granular_mode, fungibility)
            } else {
                choice.granular_mode.mode > best.granular_mode.mode
            }
        });
        if choice.granular_mode.mode != PreemptionMode::NoFit && (stop || better) {
            scan.best = Some(choice);
        }
        if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Adds what a flavor lacks: its blockers, the reason that follows from them, and the first need.
    fn record_shortages(&self, scan: &mut GroupScan<'_>, choice: &FlavorCandidate) {
        let requester = self.request.requester();
        let blocker = |evaluated: &EvaluatedRequest| {
            let request = (evaluated.fr, evaluated.requested);
            let names = self.pod_set_names(scan.group_flavors);
            let blocker = self.context.blocker(&requester, evaluated.granular.mode, request, &names);
            self.beside_replaced_slice(blocker)
        };
        let mut not_fitting = choice.frs.iter().filter(|evaluated| !evaluated.fits());
        let flavor_blockers: Vec<Blocker> = not_fitting.clone().map(blocker).collect();
        scan.needs.extend(not_fitting.next().map(|first| (first.fr, first.requested)));
        if !flavor_blockers.is_empty() {
            scan.reason = milder_reason(scan.reason, &flavor_blockers);
        }
        scan.blockers.extend(flavor_blockers);
    }

    /// Returns a shortage without the quota that goes over from the slice which the workload replaces.
    fn beside_replaced_slice(&self, blocker: Blocker) -> Blocker {
        let Some(old) = self.request.replaced_slice.filter(|_| blocker.kind == BlockerKind::InUse) else {
            return blocker;
        };
        let holds = old
            .charge
            .usage
            .iter()
            .find(|(fr, _)| fr.flavor == blocker.flavor && fr.resource == blocker.resource);
        let requested = holds.map_or(blocker.requested, |(_, held)| blocker.requested.minus(*held));
        Blocker { requested, ..blocker }
    }

    /// Adds the chosen flavor to the assignment.
    fn apply_candidate(&mut self, best: &FlavorCandidate, wanted: &[GroupRequest]) {
        self.assignment.mode = self.assignment.mode.min(best.preemption_mode());
        for (EvaluatedRequest { fr, granular, .. }, request) in best.frs.iter().zip(wanted) {
            self.assignment.borrowing_level = self.assignment.borrowing_level.max(granular.borrowing_level);
            add_usage(&mut self.assignment.usage, *fr, request.amount.to_i128());
            if granular.mode.needs_preemption() && !self.assignment.frs_need_preemption.contains(fr) {
                self.assignment.frs_need_preemption.push(*fr);
            }
        }
    }

    fn cursor_key(
        &self,
        group: &CompiledResourceGroup,
        group_flavors: &PodSetGroupFlavors,
        position: usize,
    ) -> Option<(Arc<str>, Arc<str>)> {
        let first = self.request.pod_sets.get(*group_flavors.pod_set_indexes.first()?)?;
        Some((Arc::clone(&first.name), Arc::clone(group.covered_resources.get(position)?)))
    }

    /// Index of the flavor at which the scan of a group starts.
    fn start_index(
        &self,
        group: &CompiledResourceGroup,
        group_flavors: &PodSetGroupFlavors,
        wanted: &[GroupRequest],
    ) -> usize {
        let Some(cursor) = self.request.cursor else {
            return 0;
        };
        let mut keys =
            wanted.iter().filter_map(|request| self.cursor_key(group, group_flavors, request.position));
        keys.find_map(|key| cursor.last_tried.get(&key)).map_or(0, |index| index + 1)
    }

    /// Whether variant, replaced slice and `allowed_flavors` permit a flavor.
    fn is_flavor_allowed(&self, group_flavors: &PodSetGroupFlavors, index: GroupFlavorIndex) -> bool {
        let variant = self.request.workload.variant.as_ref();
        let name = index.find(self.request.queue).map(|(_, flavor)| &flavor.name);
        if variant.is_some_and(|variant| name.is_none_or(|name| !variant.flavors.contains(name))) {
            return false;
        }
        if let Some(old) = self.request.replaced_slice
            && !old.charge.usage.keys().any(|fr| Some(&fr.flavor) == name)
        {
            return false;
        }
        let Some(allowed) = self.request.allowed_flavors else {
            return true;
        };
        let matching = allowed.iter().find(|other| other.pod_set_indexes == group_flavors.pod_set_indexes);
        matching.is_some_and(|other| other.flavors.contains(&index))
    }

    /// Records the wake conditions and blockers of a group that does not fit: the minimum available quota of the
    /// first such group; any usage change where an earlier group might choose another flavor; releases where
    /// preemption candidates may change; and any usage change while a head claim depends on evictions being possible,
    /// since growing usage may end it. Returns the best flavor.
    fn record_wake_conditions(&mut self, scan: GroupScan<'_>) -> Option<FlavorCandidate> {
        let GroupScan { group, wanted, best, needs, blockers, .. } = scan;
        let mode = best.as_ref().map(FlavorCandidate::preemption_mode);
        let requested = |flavor: &GroupFlavor, request: &GroupRequest| flavor.fr(request.position);
        let frs = || group.flavors.iter().flat_map(|f| wanted.iter().filter_map(|r| requested(f, r)));
        if mode == Some(PreemptionMode::Fit) {
            if group.flavors.len() > 1 {
                self.decided_frs.extend(frs());
            }
            return best;
        }
        if self.assignment.mode == PreemptionMode::Fit {
            if self.request.replaced_slice.is_some() {
                // What it needs beside the slice that it replaces changes with that slice.
                self.assignment.wake_conditions.on_usage_change.extend(frs());
            } else {
                self.assignment.wake_conditions.min_available.extend(needs);
            }
            if !self.decided_frs.is_empty() {
                self.assignment
                    .wake_conditions
                    .on_usage_change
                    .extend(self.decided_frs.drain(..).chain(frs()));
            }
        }
        if self.request.queue.policy.may_preempt() {
            self.assignment.wake_conditions.on_release.extend(frs());
        }
        if self.request.queue.withholds_capacity() && mode.is_some_and(PreemptionMode::needs_preemption) {
            self.assignment.wake_conditions.on_usage_change.extend(frs());
        }
        self.assignment.blockers.extend(blockers);
        best
    }

    /// Evaluates every resource of a flavor; the worst result is the flavor's granular mode.
    fn evaluate_flavor(
        &mut self,
        index: usize,
        group: &CompiledResourceGroup,
        wanted: &[GroupRequest],
    ) -> FlavorCandidate {
        let fungibility = &self.request.queue.config.fungibility;
        let mut choice = FlavorCandidate {
            index,
            granular_mode: GranularMode::BEST,
            frs: Vec::with_capacity(wanted.len()),
        };
        let mut worst: Option<GranularMode> = None;
        for request in wanted {
            let Some(fr) = group.flavors.get(index).and_then(|flavor| flavor.fr(request.position)) else {
                continue;
            };
            let requested = usage_of(&self.assignment.usage, fr) + request.amount.to_i128();
            let granular = self.context.evaluate(&self.request.requester(), fr, requested);
            choice.frs.push(EvaluatedRequest { fr, requested, granular });
            if worst.is_none_or(|worst| worst.is_preferred_over(granular, fungibility)) {
                worst = Some(granular);
            }
        }
        choice.granular_mode = worst.unwrap_or(GranularMode::BEST);
        choice
    }

    fn flavor_mismatch(
        &self,
        name: &Arc<str>,
        group: &CompiledResourceGroup,
        group_flavors: &PodSetGroupFlavors,
    ) -> Option<String> {
        let rules = self.context.flavor_rules();
        mismatch((rules, &self.request), name, group, &group_flavors.pod_set_indexes)
    }
}

/// Returns why a flavor does not suit pod sets that share their flavors, whatever is in use; `None` if it does.
pub(super) fn mismatch(
    (rules, request): (FlavorRules<'_>, &AssignRequest),
    name: &Arc<str>,
    group: &CompiledResourceGroup,
    members: &[usize],
) -> Option<String> {
    let Some(flavor) = request.flavors.get(name) else {
        return Some(format!("flavor {name} not found"));
    };
    let sets = || members.iter().filter_map(|index| request.pod_sets.get(*index));
    topology::topology_mismatch((rules, request), name, group, sets())
        .or_else(|| sets().find_map(|set| flavor_mismatch(name, flavor, &set.pod_requirements)))
}

/// Returns the milder of a reason and the reason that one flavor's blockers imply: the best alternative counts.
fn milder_reason(reason: PendingReason, blockers: &[Blocker]) -> PendingReason {
    let never = blockers.iter().any(|blocker| blocker.kind == BlockerKind::NeverFits);
    reason.max(if never { PendingReason::ExceedsMaxQuota } else { PendingReason::WaitingForQuota })
}

pub(super) fn blocker_without_amounts(
    pod_set: &Arc<str>,
    flavor: &str,
    resource: &str,
    kind: BlockerKind,
) -> Blocker {
    Blocker {
        pod_set: Arc::clone(pod_set),
        flavor: Arc::from(flavor),
        resource: Arc::from(resource),
        node: None,
        requested: Amount::ZERO,
        available: Amount::ZERO,
        limit: Amount::ZERO,
        borrowed: Arc::default(),
        kind,
    }
}
