//! Flavor assignment: which flavor each pod set gets for each resource, or what stands in the way.
//!
//! Pod sets of one group are judged together, each resource group is given by one flavor, and what earlier pod sets take
//! counts for later ones. Nothing is charged here; evictions are only tried out.

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

/// What judging looks at beside quota.
#[derive(Clone, Copy)]
pub(super) struct AssignRequest<'a> {
    pub(super) workload: &'a Workload,
    /// Its pod sets, perhaps with fewer pods than it asks for.
    pub(super) pod_sets: &'a [PodSet],
    pub(super) queue: &'a CompiledClusterQueue,
    pub(super) flavors: &'a BTreeMap<Arc<str>, Flavor>,
    pub(super) cursor: Option<&'a FlavorCursor>,
    /// Flavors found before, to which the search is bound.
    pub(super) allowed_flavors: Option<&'a [PodSetGroupFlavors]>,
    /// The slice that the workload takes over from: it keeps its flavors.
    pub(super) replaced_slice: Option<&'a ReservingWorkload>,
    pub(super) cycle: u64,
}

impl AssignRequest<'_> {
    pub(super) fn requester(&self) -> Requester<'_> {
        let workload = self.workload;
        Requester { queue: self.queue, priority: workload.priority, queued_since: workload.queued_since }
    }
}

/// Flavors of pod sets that share them.
#[derive(Clone, Debug, Default)]
pub(super) struct PodSetGroupFlavors {
    /// Places of the pod sets.
    pub(super) pod_set_indexes: Vec<usize>,
    /// Flavor by resource group, both by place.
    pub(super) flavors: Vec<(usize, usize)>,
}

/// What was found for a workload.
#[derive(Clone, Debug)]
pub(super) struct TentativeAssignment {
    /// The worst of all its parts.
    pub(super) mode: PreemptionMode,
    pub(super) group_flavors: Vec<PodSetGroupFlavors>,
    pub(super) usage: Usage,
    /// Where somebody would have to go.
    pub(super) frs_need_preemption: Vec<FlavorResourceId>,
    /// Highest level that quota is borrowed from; 0 without borrowing.
    pub(super) borrowing_level: u32,
    /// Where to go on if somebody else is faster.
    pub(super) cursor: Option<FlavorCursor>,
    pub(super) reason: PendingReason,
    pub(super) blockers: Vec<Blocker>,
    pub(super) wake_conditions: WakeConditions,
    /// Where the pods go.
    pub(super) tas_assignment: TasAssignment,
}

/// Assigns flavors, from the cursor on.
pub(super) fn assign_flavors(field: &mut SchedulingContext, question: &AssignRequest) -> TentativeAssignment {
    FlavorScan::new(field, *question).run()
}

impl AssignRequest<'_> {
    /// The cursor, unless it is out of date.
    pub(super) fn fresh_cursor(&self, field: &SchedulingContext) -> Option<&FlavorCursor> {
        let generation = field.tree.generation(self.queue.node);
        let preserve = field.settings.gates.preserve_scan_progress;
        self.cursor.filter(|c| (preserve && c.cycle + 1 >= self.cycle) || c.generation == generation)
    }
}

/// A requested resource of a group: its place among the covered, and how much.
type GroupRequest = (usize, Amount);

/// The flavor found for a resource group.
struct FlavorCandidate {
    index: usize,
    granular_mode: GranularMode,
    frs: Vec<(FlavorResourceId, i128, GranularMode)>,
}

impl FlavorCandidate {
    /// The worst of its parts. The grade by which flavors are compared may be another's: one that borrows more.
    fn preemption_mode(&self) -> PreemptionMode {
        self.frs.iter().map(|(_, _, grade)| grade.mode).min().unwrap_or(PreemptionMode::Fit)
    }
}

struct FlavorScan<'a, 'f> {
    context: &'a mut SchedulingContext<'f>,
    request: AssignRequest<'a>,
    assignment: TentativeAssignment,
    last_tried: BTreeMap<(Arc<str>, Arc<str>), usize>,
    /// Pairs of groups that were settled while another flavor was possible.
    decided_frs: Vec<FlavorResourceId>,
}

impl<'a, 'f> FlavorScan<'a, 'f> {
    fn new(field: &'a mut SchedulingContext<'f>, question: AssignRequest<'a>) -> Self {
        let tree = field.tree.root(question.queue.node);
        let found = TentativeAssignment {
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
        Self {
            context: field,
            request: question,
            assignment: found,
            last_tried: BTreeMap::new(),
            decided_frs: Vec::new(),
        }
    }

    fn run(mut self) -> TentativeAssignment {
        for members in pod_set_groups(self.request.pod_sets) {
            let first = members.first().and_then(|at| self.request.pod_sets.get(*at)).map(|set| &set.name);
            if let Err(reason) = self.assign_pod_set_group(members) {
                (self.assignment.mode, self.assignment.reason) = (PreemptionMode::NoFit, reason);
                // Pod sets without flavors leave no place to go on from.
                self.last_tried.retain(|(set, _), _| Some(set) != first);
                break;
            }
        }
        self.assignment.cursor = self.next_cursor();
        self.assignment
    }

    /// Where the search goes on, if there is anything left that was not tried.
    fn next_cursor(&mut self) -> Option<FlavorCursor> {
        let queue = self.request.queue;
        let rounds = self.request.cursor.map_or(0, |cursor| cursor.scans) + 1;
        let most: usize = queue.groups.iter().map(|group| group.flavors.len()).sum();
        (!self.last_tried.is_empty() && rounds <= most).then(|| FlavorCursor {
            last_tried: std::mem::take(&mut self.last_tried),
            scans: rounds,
            lost_race: self.request.cursor.is_some_and(|cursor| cursor.lost_race),
            cycle: self.request.cycle,
            generation: self.context.tree.generation(queue.node),
        })
    }

    /// Judges pod sets that share their flavors.
    fn assign_pod_set_group(&mut self, members: Vec<usize>) -> Result<(), PendingReason> {
        let queue = self.request.queue;
        let sum = requests_by_resource(self.request.pod_sets, &members, queue);
        let mut pick = PodSetGroupFlavors { pod_set_indexes: members, flavors: Vec::new() };
        // The last by name first, as Kueue does: the first group that fails names the reason.
        for (resource, amount) in sum.iter().rev() {
            let Some(group) = queue.groups.iter().position(|group| group.position(resource).is_some()) else {
                if *amount == Amount::ZERO
                    || self.context.settings.undeclared_resources == UndeclaredResources::Ignore
                {
                    continue;
                }
                let blocker = blocker_without_amounts(
                    &self.pod_set_names(&pick),
                    "",
                    resource,
                    BlockerKind::Undeclared,
                );
                self.assignment.blockers.push(blocker);
                return Err(PendingReason::NoMatchingFlavor);
            };
            if pick.flavors.iter().all(|(known, _)| *known != group) {
                let flavor = self.find_flavor_for_group(group, &pick, &sum)?;
                pick.flavors.push((group, flavor));
            }
        }
        self.assignment.group_flavors.push(pick);
        Ok(())
    }

    fn pod_set_names(&self, pick: &PodSetGroupFlavors) -> Arc<str> {
        let sets = pick.pod_set_indexes.iter().filter_map(|at| self.request.pod_sets.get(*at));
        if let (Some(first), [_]) = (sets.clone().next(), &*pick.pod_set_indexes) {
            return Arc::clone(&first.name);
        }
        Arc::from(sets.map(|set| &*set.name).collect::<Vec<_>>().join(", "))
    }

    /// The best flavor of a resource group; it takes part in the assignment from here on.
    fn find_flavor_for_group(
        &mut self,
        at: usize,
        pick: &PodSetGroupFlavors,
        sum: &[(&Arc<str>, Amount)],
    ) -> Result<usize, PendingReason> {
        let queue = self.request.queue;
        let Some(group) = queue.groups.get(at) else {
            return Err(PendingReason::NoMatchingFlavor);
        };
        let place = |(resource, amount): &(&Arc<str>, Amount)| Some((group.position(resource)?, *amount));
        let wanted: Vec<GroupRequest> = sum.iter().filter_map(place).collect();
        let fungibility = &queue.config.fungibility;
        let scans = self.context.settings.gates.flavor_fungibility;
        let mut best: Option<FlavorCandidate> = None;
        let (mut last, mut severity) = (0, PendingReason::NoMatchingFlavor);
        let (mut blockers, mut needs) = (Vec::new(), Vec::new());
        let start = self.start_index(group, pick, &wanted);
        for (index, flavor) in group.flavors.iter().enumerate().skip(start) {
            if !self.is_flavor_allowed(pick, at, index) {
                continue;
            }
            last = index;
            if let Some(why) = self.flavor_mismatch(&flavor.name, group, pick) {
                let kind = BlockerKind::Mismatch(Arc::from(why));
                blockers.push(blocker_without_amounts(&self.pod_set_names(pick), &flavor.name, "", kind));
                continue;
            }
            let choice = self.evaluate_flavor(index, group, &wanted);
            let unfit = choice.frs.iter().filter(|(_, _, grade)| grade.mode != PreemptionMode::Fit);
            let found: Vec<Blocker> = unfit
                .map(|(pair, need, _)| {
                    self.context.blocker(&self.request.requester(), *pair, *need, &self.pod_set_names(pick))
                })
                .collect();
            let first = choice.frs.iter().find(|(_, _, grade)| grade.mode != PreemptionMode::Fit);
            needs.extend(first.map(|(pair, need, _)| (*pair, *need)));
            severity = if found.is_empty() { severity } else { milder_reason(severity, &found) };
            blockers.extend(found);
            let stop = if scans {
                !choice.granular_mode.should_try_next_flavor(fungibility)
            } else {
                choice.granular_mode.mode == PreemptionMode::Fit
            };
            let better = best.as_ref().is_none_or(|best| {
                if scans {
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
            let slots: Vec<_> =
                wanted.iter().filter_map(|(at, _)| self.cursor_key(group, pick, *at)).collect();
            self.last_tried.extend(slots.into_iter().map(|slot| (slot, last)));
        }
        self.apply_candidate(&best, &wanted);
        Ok(best.index)
    }

    /// Makes a choice part of the assignment.
    fn apply_candidate(&mut self, best: &FlavorCandidate, wanted: &[GroupRequest]) {
        self.assignment.mode = self.assignment.mode.min(best.preemption_mode());
        for ((pair, _, grade), (_, amount)) in best.frs.iter().zip(wanted) {
            self.assignment.borrowing_level = self.assignment.borrowing_level.max(grade.borrowing_level);
            add_usage(&mut self.assignment.usage, *pair, amount.to_i128());
            if grade.mode.needs_preemption() && !self.assignment.frs_need_preemption.contains(pair) {
                self.assignment.frs_need_preemption.push(*pair);
            }
        }
    }

    fn cursor_key(
        &self,
        group: &CompiledResourceGroup,
        pick: &PodSetGroupFlavors,
        position: usize,
    ) -> Option<(Arc<str>, Arc<str>)> {
        let first = self.request.pod_sets.get(*pick.pod_set_indexes.first()?)?;
        Some((Arc::clone(&first.name), Arc::clone(group.covered_resources.get(position)?)))
    }

    /// Where the search over the flavors of a group begins.
    fn start_index(
        &self,
        group: &CompiledResourceGroup,
        pick: &PodSetGroupFlavors,
        wanted: &[GroupRequest],
    ) -> usize {
        let Some(cursor) = self.request.cursor else {
            return 0;
        };
        let mut slots = wanted.iter().filter_map(|(at, _)| self.cursor_key(group, pick, *at));
        slots.find_map(|slot| cursor.last_tried.get(&slot)).map_or(0, |index| index + 1)
    }

    /// Whether the search is free to use a flavor.
    fn is_flavor_allowed(&self, pick: &PodSetGroupFlavors, group: usize, flavor: usize) -> bool {
        let variant = self.request.workload.variant.as_ref();
        let name = self.request.queue.groups.get(group).and_then(|g| g.flavors.get(flavor)).map(|f| &f.name);
        if variant.is_some_and(|variant| name.is_none_or(|name| !variant.flavors.contains(name))) {
            return false;
        }
        if let Some(old) = self.request.replaced_slice
            && !old.charge.usage.keys().any(|pair| Some(&pair.flavor) == name)
        {
            return false;
        }
        let Some(bound) = self.request.allowed_flavors else {
            return true;
        };
        let same = bound.iter().find(|other| other.pod_set_indexes == pick.pod_set_indexes);
        same.is_some_and(|other| other.flavors.contains(&(group, flavor)))
    }

    /// Notes what the workload waits for: the first group that does not fit, and any change where an earlier group might
    /// choose otherwise, where others who may be evicted come and go, or where room is kept from others only as long as
    /// evictions could help: that may end when others use more.
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
        let pairs = || flavors.iter().flat_map(|f| wanted.iter().filter_map(|(at, _)| f.fr(*at)));
        if fits {
            if group.flavors.len() > 1 {
                self.decided_frs.extend(pairs());
            }
            return;
        }
        if self.assignment.mode == PreemptionMode::Fit {
            self.assignment.wake_conditions.min_available.extend(needs);
            if !self.decided_frs.is_empty() {
                self.assignment
                    .wake_conditions
                    .on_usage_change
                    .extend(self.decided_frs.drain(..).chain(pairs()));
            }
        }
        if self.request.queue.may_preempt() {
            self.assignment.wake_conditions.on_release.extend(pairs());
        }
        if self.request.queue.withholds_capacity()
            && best.is_some_and(|best| best.preemption_mode().needs_preemption())
        {
            self.assignment.wake_conditions.on_usage_change.extend(pairs());
        }
        self.assignment.blockers.extend(blockers);
    }

    /// Grades every resource of a flavor; the worst is the flavor's grade.
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
            let Some(pair) = group.flavors.get(index).and_then(|flavor| flavor.fr(*position)) else {
                continue;
            };
            let need = usage_of(&self.assignment.usage, pair) + amount.to_i128();
            let found = self.context.evaluate(&self.request.requester(), pair, need);
            choice.frs.push((pair, need, found));
            if worst.is_none_or(|worst| worst.is_preferred_over(found, fungibility)) {
                worst = Some(found);
            }
        }
        choice.granular_mode = worst.unwrap_or(GranularMode::BEST);
        choice
    }

    fn flavor_mismatch(
        &self,
        name: &Arc<str>,
        group: &CompiledResourceGroup,
        pick: &PodSetGroupFlavors,
    ) -> Option<String> {
        let Some(flavor) = self.request.flavors.get(name) else {
            return Some(format!("flavor {name} not found"));
        };
        let sets = pick.pod_set_indexes.iter().filter_map(|at| self.request.pod_sets.get(*at));
        if let Some(why) = topology::topology_mismatch(self.context, &self.request, name, group, sets) {
            return Some(why);
        }
        let mut sets = pick.pod_set_indexes.iter().filter_map(|at| self.request.pod_sets.get(*at));
        sets.find_map(|set| flavor_mismatch(name, flavor, &set.pod_requirements))
    }
}

impl TentativeAssignment {
    /// The assignment as the workload is given it.
    pub(super) fn to_assignment(
        &self,
        queue: &CompiledClusterQueue,
        name: &Arc<str>,
        pod_sets: &[PodSet],
    ) -> Assignment {
        let mut assigned: Vec<(usize, PodSetAssignment)> = Vec::with_capacity(pod_sets.len());
        for pick in &self.group_flavors {
            for at in &pick.pod_set_indexes {
                let Some(set) = pod_sets.get(*at) else { continue };
                let (mut flavors, mut usage) = (BTreeMap::new(), Requests::new());
                for (resource, amount) in total_requests(set, queue) {
                    let group = |(group, flavor): &(usize, usize)| {
                        let group = queue.groups.get(*group)?;
                        group.position(resource)?;
                        group.flavors.get(*flavor)
                    };
                    if let Some(flavor) = pick.flavors.iter().find_map(group) {
                        flavors.insert(Arc::clone(resource), Arc::clone(&flavor.name));
                        usage.insert(Arc::clone(resource), amount);
                    }
                }
                let name = Arc::clone(&set.name);
                let topology = self.tas_assignment.pod_set_placement(*at);
                let given = PodSetAssignment { name, count: set.count, flavors, usage, topology };
                assigned.push((*at, given));
            }
        }
        assigned.sort_by_key(|(at, _)| *at);
        let pod_sets = assigned.into_iter().map(|(_, given)| given).collect();
        Assignment { cluster_queue: Arc::clone(name), pod_sets }
    }
}

/// The milder of a reason and what the blockers of one flavor amount to: the best alternative names the reason.
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
