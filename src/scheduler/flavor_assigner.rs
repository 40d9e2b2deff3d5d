//! Flavor assignment: which flavor each pod set gets for each resource, or which blockers prevent it.
//!
//! Invariants: pod sets of one group get the same flavors; one flavor serves a whole resource group; usage of earlier
//! pod sets counts for later ones. Nothing is charged, and evictions are only simulated.
//! Neighbours: `granular_mode` evaluates one flavor-resource, `topology` assigns nodes, `nominate` calls.

use super::compiled::{CompiledClusterQueue, CompiledResourceGroup};
use super::config::{Flavor, UndeclaredResources};
use super::decision::{Assignment, PodSetAssignment};
use super::granular_mode::{GranularMode, PreemptionMode, Requester};
use super::matching::flavor_mismatch;
use super::preemption::SchedulingContext;
use super::requests::{add_usage, pod_set_groups, requests_by_resource, total_requests, usage_of};
use super::reserving_workloads::ReservingWorkload;
use super::topology::{self, TasAssignment};
use crate::api::reason::PendingReason;
use crate::queue::{Blocker, BlockerKind, FlavorCursor, PodSet, WakeConditions, Workload};
use crate::quota::{FlavorResourceId, Usage};
use crate::resources::{Amount, Requests};
use std::collections::BTreeMap;
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

/// Flavors of one pod set group.
#[derive(Clone, Debug, Default)]
pub(super) struct PodSetGroupFlavors {
    /// Indexes of the pod sets in the workload.
    pub(super) pod_set_indexes: Vec<usize>,
    /// Pairs of resource group index and flavor index.
    pub(super) flavors: Vec<(usize, usize)>,
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

/// A requested resource of a group: its index in `covered_resources`, and the amount.
type GroupRequest = (usize, Amount);

/// The flavor chosen for a resource group.
struct FlavorCandidate {
    index: usize,
    granular_mode: GranularMode,
    frs: Vec<(FlavorResourceId, i128, GranularMode)>,
}

impl FlavorCandidate {
    /// Worst mode of its flavor-resources. `granular_mode` may come from another one: the one that borrows at the
    /// higher level.
    fn preemption_mode(&self) -> PreemptionMode {
        self.frs.iter().map(|(_, _, granular)| granular.mode).min().unwrap_or(PreemptionMode::Fit)
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
            if group_flavors.flavors.iter().all(|(known, _)| *known != group) {
                let flavor = self.find_flavor_for_group(group, &group_flavors, &sum)?;
                group_flavors.flavors.push((group, flavor));
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
        let group_request =
            |(resource, amount): &(&Arc<str>, Amount)| Some((group.position(resource)?, *amount));
        let wanted: Vec<GroupRequest> = sum.iter().filter_map(group_request).collect();
        let fungibility = &queue.config.fungibility;
        let fungible = self.context.settings.gates.flavor_fungibility;
        let mut best: Option<FlavorCandidate> = None;
        let (mut last, mut severity) = (0, PendingReason::NoMatchingFlavor);
        let (mut blockers, mut needs) = (Vec::new(), Vec::new());
        let start = self.start_index(group, group_flavors, &wanted);
        for (index, flavor) in group.flavors.iter().enumerate().skip(start) {
            if !self.is_flavor_allowed(group_flavors, group_index, index) {
                continue;
            }
            last = index;
            if let Some(mismatch) = self.flavor_mismatch(&flavor.name, group, group_flavors) {
                let kind = BlockerKind::Mismatch(Arc::from(mismatch));
                blockers.push(blocker_without_amounts(
                    &self.pod_set_names(group_flavors),
                    &flavor.name,
                    "",
                    kind,
                ));
                continue;
            }
            let choice = self.evaluate_flavor(index, group, &wanted);
            let not_fitting =
                choice.frs.iter().filter(|(_, _, granular)| granular.mode != PreemptionMode::Fit);
            let flavor_blockers: Vec<Blocker> = not_fitting
                .map(|(fr, requested, _)| {
                    self.context.blocker(
                        &self.request.requester(),
                        *fr,
                        *requested,
                        &self.pod_set_names(group_flavors),
                    )
                })
                .collect();
            let first = choice.frs.iter().find(|(_, _, granular)| granular.mode != PreemptionMode::Fit);
            needs.extend(first.map(|(fr, requested, _)| (*fr, *requested)));
            severity =
                if flavor_blockers.is_empty() { severity } else { milder_reason(severity, &flavor_blockers) };
            blockers.extend(flavor_blockers);
            let stop = if fungible {
                !choice.granular_mode.should_try_next_flavor(fungibility)
            } else {
                choice.granular_mode.mode == PreemptionMode::Fit
            };
            let better = best.as_ref().is_none_or(|best| {
                if fungible {
                    choice.granular_mode.is_preferred_over(best.granular_mode, fungibility)
                } else {
                    choice.granular_mode.mode > best.granular_mode.mode
                }
            });
            if choice.granular_mode.mode != PreemptionMode::NoFit && (stop || better) {
                best = Some(choice);
            }
            if stop {
                break;
            }
        }
        self.record_wake_conditions(group, &wanted, best.as_ref(), needs, blockers);
        let best = best.ok_or(severity)?;
        if last + 1 < group.flavors.len() {
            let keys: Vec<_> = wanted
                .iter()
                .filter_map(|(position, _)| self.cursor_key(group, group_flavors, *position))
                .collect();
            self.last_tried.extend(keys.into_iter().map(|key| (key, last)));
        }
        self.apply_candidate(&best, &wanted);
        Ok(best.index)
    }

    /// Adds the chosen flavor to the assignment.
    fn apply_candidate(&mut self, best: &FlavorCandidate, wanted: &[GroupRequest]) {
        self.assignment.mode = self.assignment.mode.min(best.preemption_mode());
        for ((fr, _, granular), (_, amount)) in best.frs.iter().zip(wanted) {
            self.assignment.borrowing_level = self.assignment.borrowing_level.max(granular.borrowing_level);
            add_usage(&mut self.assignment.usage, *fr, amount.to_i128());
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
            wanted.iter().filter_map(|(position, _)| self.cursor_key(group, group_flavors, *position));
        keys.find_map(|key| cursor.last_tried.get(&key)).map_or(0, |index| index + 1)
    }

    /// Whether variant, replaced slice and `allowed_flavors` permit a flavor.
    fn is_flavor_allowed(&self, group_flavors: &PodSetGroupFlavors, group: usize, flavor: usize) -> bool {
        let variant = self.request.workload.variant.as_ref();
        let name = self.request.queue.groups.get(group).and_then(|g| g.flavors.get(flavor)).map(|f| &f.name);
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
        matching.is_some_and(|other| other.flavors.contains(&(group, flavor)))
    }

    /// Records the wake conditions and blockers of a group that does not fit: the minimum available quota of the
    /// first such group; any usage change where an earlier group might choose another flavor; releases where
    /// preemption candidates may change; and any usage change while a head claim depends on evictions being possible,
    /// since growing usage may end it.
    fn record_wake_conditions(
        &mut self,
        group: &CompiledResourceGroup,
        wanted: &[GroupRequest],
        best: Option<&FlavorCandidate>,
        needs: Vec<(FlavorResourceId, i128)>,
        blockers: Vec<Blocker>,
    ) {
        let fits = best.is_some_and(|best| best.preemption_mode() == PreemptionMode::Fit);
        let flavors = &group.flavors;
        let frs = || flavors.iter().flat_map(|f| wanted.iter().filter_map(|(position, _)| f.fr(*position)));
        if fits {
            if group.flavors.len() > 1 {
                self.decided_frs.extend(frs());
            }
            return;
        }
        if self.assignment.mode == PreemptionMode::Fit {
            self.assignment.wake_conditions.min_available.extend(needs);
            if !self.decided_frs.is_empty() {
                self.assignment
                    .wake_conditions
                    .on_usage_change
                    .extend(self.decided_frs.drain(..).chain(frs()));
            }
        }
        if self.request.queue.may_preempt() {
            self.assignment.wake_conditions.on_release.extend(frs());
        }
        if self.request.queue.withholds_capacity()
            && best.is_some_and(|best| best.preemption_mode().needs_preemption())
        {
            self.assignment.wake_conditions.on_usage_change.extend(frs());
        }
        self.assignment.blockers.extend(blockers);
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
        for (position, amount) in wanted {
            let Some(fr) = group.flavors.get(index).and_then(|flavor| flavor.fr(*position)) else {
                continue;
            };
            let requested = usage_of(&self.assignment.usage, fr) + amount.to_i128();
            let granular = self.context.evaluate(&self.request.requester(), fr, requested);
            choice.frs.push((fr, requested, granular));
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
        let Some(flavor) = self.request.flavors.get(name) else {
            return Some(format!("flavor {name} not found"));
        };
        let sets = group_flavors.pod_set_indexes.iter().filter_map(|index| self.request.pod_sets.get(*index));
        if let Some(mismatch) = topology::topology_mismatch(self.context, &self.request, name, group, sets) {
            return Some(mismatch);
        }
        let mut sets =
            group_flavors.pod_set_indexes.iter().filter_map(|index| self.request.pod_sets.get(*index));
        sets.find_map(|set| flavor_mismatch(name, flavor, &set.pod_requirements))
    }
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
                    let group = |(group, flavor): &(usize, usize)| {
                        let group = queue.groups.get(*group)?;
                        group.position(resource)?;
                        group.flavors.get(*flavor)
                    };
                    if let Some(flavor) = group_flavors.flavors.iter().find_map(group) {
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
        kind,
    }
}
