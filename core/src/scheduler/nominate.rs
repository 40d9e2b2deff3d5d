//! Nomination: what each head could be assigned against projected usage, and which targets it would have to evict.
//!
//! Invariant: simulated usage is undone before a function returns.
//! Neighbours: `flavor_assigner` chooses flavors, `topology` nodes, `preemption` targets; `cycle` processes the
//! entries.

use super::compiled::CompiledClusterQueue;
use super::config::Flavor;
use super::engine::Engine;
use super::flavor_assigner::{AssignRequest, assign_flavors};
use super::granular_mode::PreemptionMode;
use super::matching::selects;
use super::preemption::{Preemptor, SchedulingContext, Target};
use super::tentative_assignment::{PodSetGroupFlavors, TentativeAssignment};
use super::topology;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::queue::{
    Blocker, BlockerKind, ClassId, FlavorCursor, HeadClaim, PodSet, Verdict, WakeConditions, Workload,
};
use crate::quota::{FlavorResource, NodeId, Usage, UsageLayer};
use crate::topology::TasCache;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Flavors by name.
pub(super) type Flavors = BTreeMap<Arc<str>, Flavor>;

/// Order of heads across ClusterQueues: higher priority first, then earlier queueing time.
type HeadPriority = (Reverse<i64>, Timestamp);

/// The workload at the head of a ClusterQueue.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) queue: Arc<str>,
    /// Its ClusterQueue in the quota tree.
    pub(super) node: NodeId,
    pub(super) class: ClassId,
    pub(super) workload: Arc<Workload>,
}

/// A head of this cycle after nomination.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) head: Head,
    /// Highest borrowing level of its flavor-resources; 0 without borrowing.
    pub(super) borrowing_level: u32,
    /// Requested usage, as far as flavors were assigned.
    pub(super) usage: Usage,
    pub(super) nomination: Nomination,
}

/// What a head enters the cycle with.
#[derive(Debug)]
pub(super) enum Nomination {
    Evaluated(Evaluation),
    /// It did not fit and its class is parked.
    Parked(ParkedHead),
    /// An already blocked head that keeps its head claim.
    ClaimOnly(HeadClaim),
}

/// Whether a head fits projected usage.
#[derive(Debug)]
pub(super) enum Evaluation {
    /// It fits.
    Fits(Box<NominatedAssignment>),
    /// It fits once the targets are evicted.
    NeedsPreemption(Box<NominatedAssignment>, Vec<Target>),
    /// It does not fit.
    Inadmissible(Box<Inadmissible>),
}

/// A head whose class is parked or has flavors left to try in the next cycle.
#[derive(Debug)]
pub(super) struct ParkedHead {
    pub(super) verdict: Arc<Verdict>,
    /// Capacity to withhold from other heads of this cycle.
    pub(super) claim: Option<HeadClaim>,
}

/// The assignment that a head could get.
#[derive(Debug)]
pub(super) struct NominatedAssignment {
    pub(super) assignment: TentativeAssignment,
    /// The pod sets with the pod counts to be admitted.
    pub(super) pod_sets: Arc<[PodSet]>,
}

/// Why a head does not fit, and what happens to its class.
#[derive(Debug)]
pub(super) struct Inadmissible {
    pub(super) verdict: Verdict,
    pub(super) wake_conditions: WakeConditions,
    /// Capacity to withhold from other heads; only if evictions could make the head fit.
    pub(super) claim: Option<HeadClaim>,
    /// Whether the class never blocks its ClusterQueue, not even a StrictFIFO one.
    pub(super) never_blocks_queue: bool,
    /// Where the next cycle's scan starts; `None` if every flavor was tried.
    pub(super) cursor: Option<FlavorCursor>,
}

impl Head {
    pub(super) fn key(&self) -> &ObjectKey {
        &self.workload.key
    }
}

impl Engine {
    /// Nominates the ready heads and adds the blocked heads whose head claims affect them.
    pub(super) fn nominate_heads(&mut self, heads: usize) -> Vec<Entry> {
        let ready = if heads < self.pending.ready().len() {
            self.most_urgent_queues(heads)
        } else {
            self.pending.ready().iter().cloned().collect()
        };
        let claims = self.blocked_heads_in_trees_of(&ready);
        let mut entries: Vec<Entry> = ready.iter().filter_map(|queue| self.nominate(queue)).collect();
        entries.extend(claims);
        entries
    }

    /// Blocked heads with head claims in the cohort trees of the given ClusterQueues.
    pub(super) fn blocked_heads_in_trees_of(&self, ready: &[Arc<str>]) -> Vec<Entry> {
        let mut blocked =
            self.pending.blocked_heads().filter(|queue| !self.pending.ready().contains(*queue)).peekable();
        if blocked.peek().is_none() {
            return Vec::new();
        }
        let trees: BTreeSet<NodeId> = ready.iter().filter_map(|queue| self.root(queue)).collect();
        let near = blocked.filter(|queue| self.root(queue).is_some_and(|root| trees.contains(&root)));
        near.filter_map(|queue| self.blocked_head_entry(queue)).collect()
    }

    /// ClusterQueues of the most urgent trees, ordered by the best head of each tree, until they hold `heads` heads.
    fn most_urgent_queues(&self, heads: usize) -> Vec<Arc<str>> {
        let mut trees: BTreeMap<NodeId, (HeadPriority, Vec<Arc<str>>)> = BTreeMap::new();
        for name in self.pending.ready() {
            let Some(head) = self.pending.head(name) else { continue };
            let priority = (Reverse(head.workload.priority), head.workload.queued_since);
            let root = self.root(name).unwrap_or_default();
            let (best, queues) = trees.entry(root).or_insert_with(|| (priority, Vec::new()));
            *best = priority.min(*best);
            queues.push(Arc::clone(name));
        }
        let mut trees: Vec<(HeadPriority, Vec<Arc<str>>)> = trees.into_values().collect();
        trees.sort_by_key(|(best, _)| *best);
        let mut count = 0;
        let first = trees.into_iter().take_while(|(_, queues)| {
            let before = count;
            count += queues.len();
            before < heads
        });
        first.flat_map(|(_, queues)| queues).collect()
    }

    fn blocked_head_entry(&self, queue: &Arc<str>) -> Option<Entry> {
        let head = self.pending.blocked_head(queue)?;
        let claim = head.claim?.clone();
        Some(Entry {
            head: Head {
                queue: Arc::clone(queue),
                node: self.config.cluster_queue(queue)?.node,
                class: head.class,
                workload: Arc::clone(head.workload),
            },
            borrowing_level: claim.borrowing_level,
            usage: claim.usage.clone(),
            nomination: Nomination::ClaimOnly(claim),
        })
    }

    /// Nominates the head of a ClusterQueue.
    fn nominate(&mut self, name: &Arc<str>) -> Option<Entry> {
        let head = self.pending.head(name)?;
        let (class, workload, cursor) = (head.class, Arc::clone(head.workload), head.cursor.cloned());
        let node = self.config.cluster_queue(name)?.node;
        let precheck_failure = self.precheck_failure(name, &workload);
        let head = Head { queue: Arc::clone(name), node, class, workload };
        if let Some(verdict) = precheck_failure {
            let inadmissible = Inadmissible {
                verdict,
                wake_conditions: WakeConditions::default(),
                claim: None,
                never_blocks_queue: true,
                cursor: None,
            };
            let nomination = Nomination::Evaluated(Evaluation::Inadmissible(Box::new(inadmissible)));
            return Some(Entry { head, borrowing_level: 0, usage: Usage::new(), nomination });
        }
        let (nominated, targets) = self.compute_assignment(name, &head.workload, cursor.as_ref(), None)?;
        let (borrowing_level, usage) =
            (nominated.assignment.borrowing_level, nominated.assignment.usage.clone());
        let nomination = Nomination::Evaluated(evaluation_of(nominated, targets, &mut self.topology));
        Some(Entry { head, borrowing_level, usage, nomination })
    }

    /// Why a workload is not evaluated at all: invalid requests, a failed check, or a namespace that its ClusterQueue does
    /// not select.
    pub(super) fn precheck_failure(&self, queue: &str, workload: &Workload) -> Option<Verdict> {
        if let Some(verdict) = &workload.precheck_failure {
            return Some((**verdict).clone());
        }
        let selector = self.config.cluster_queue(queue)?.config.namespace_selector.as_ref();
        let labels = self.config.namespace_labels(&workload.key.namespace);
        let text = "Workload namespace doesn't match ClusterQueue selector";
        (!selects(selector, labels)).then(|| Verdict::without_blockers(PendingReason::Misconfigured, text))
    }

    /// Computes assignment and targets against projected usage without the workload's own reservation and replaced
    /// slice.
    pub(super) fn compute_assignment(
        &mut self,
        name: &Arc<str>,
        workload: &Workload,
        cursor: Option<&FlavorCursor>,
        allowed_flavors: Option<&[PodSetGroupFlavors]>,
    ) -> Option<(NominatedAssignment, Vec<Target>)> {
        let cycle = self.cycle_count;
        self.with_usage_removed(&self.own_projected_usage(workload), UsageLayer::Projected, |engine| {
            let (mut context, queue, flavors) = engine.scheduling_context(name, &workload.key)?;
            let reserving_workloads = context.reserving_workloads;
            // The quota of the replaced slice goes over to the workload: if that evicted it, it would be counted twice.
            let excluded = workload.replaces.as_ref().map(|old| {
                let mut all = context.already_preempted.cloned().unwrap_or_default();
                all.insert(old.clone());
                all
            });
            context.already_preempted = excluded.as_ref().or(context.already_preempted);
            let request = AssignRequest {
                workload,
                pod_sets: &workload.pod_sets,
                queue,
                flavors,
                cursor,
                allowed_flavors,
                replaced_slice: workload
                    .replaces
                    .as_ref()
                    .and_then(|old| reserving_workloads.get(old))
                    .map(|h| &**h),
                cycle,
            };
            let (mut nominated, targets) = assign_with_partial_admission(&mut context, &request);
            if targets.is_empty() {
                name_borrowing_that_forbids_reclaim(&mut context, &request, &mut nominated.assignment);
            }
            engine.assign_projected_topology(name, &mut nominated.assignment, &targets);
            Some((nominated, targets))
        })
    }

    /// Borrows what assigning a workload reads, with its ClusterQueue and the flavors.
    pub(super) fn scheduling_context(
        &mut self,
        queue: &str,
        workload: &ObjectKey,
    ) -> Option<(SchedulingContext<'_>, &CompiledClusterQueue, &Flavors)> {
        let queue = self.config.cluster_queue(queue)?;
        let root = self.tree.root(queue.node);
        let context = SchedulingContext {
            settings: &self.settings,
            tree: &mut self.tree,
            config: &self.config,
            reserving_workloads: &self.reserving_workloads,
            inactive: &self.inactive,
            afs_usage: &self.afs_usage,
            topology: &mut self.topology,
            already_preempted: self.preemption_history.victims(root, workload),
            target_cache: Vec::new(),
            is_empty: false,
        };
        Some((context, queue, self.config.flavors()))
    }
}

/// Classifies an assignment with its targets.
pub(super) fn evaluation_of(
    nominated: NominatedAssignment,
    targets: Vec<Target>,
    topology: &mut TasCache,
) -> Evaluation {
    match nominated.assignment.mode {
        PreemptionMode::Fit => Evaluation::Fits(Box::new(nominated)),
        _ if !targets.is_empty() => Evaluation::NeedsPreemption(Box::new(nominated), targets),
        mode => {
            let TentativeAssignment {
                usage,
                borrowing_level,
                reason,
                blockers,
                wake_conditions,
                cursor,
                tas_assignment,
                ..
            } = nominated.assignment;
            let footprint = tas_assignment.footprint(topology);
            let claim = mode.needs_preemption().then_some(HeadClaim { usage, borrowing_level, footprint });
            let verdict = Verdict { reason, blockers, text: Arc::default() };
            Evaluation::Inadmissible(Box::new(Inadmissible {
                verdict,
                wake_conditions,
                claim,
                never_blocks_queue: false,
                cursor,
            }))
        }
    }
}

/// Assigns the whole workload; if that fails and partial admission is allowed, the largest number of pods that fits.
pub(super) fn assign_with_partial_admission(
    context: &mut SchedulingContext,
    request: &AssignRequest,
) -> (NominatedAssignment, Vec<Target>) {
    let (mut full, targets) = assign_with_scan_restart(context, request);
    let reducible =
        |set: &PodSet| set.min_count.map_or(0, |minimum| set.count.saturating_sub(minimum).max(0));
    let total: i32 = request.pod_sets.iter().fold(0, |sum, set| sum.saturating_add(reducible(set)));
    let pod_sets = Arc::clone(&request.workload.pod_sets);
    let enough = full.mode == PreemptionMode::Fit || !targets.is_empty() || total == 0;
    if enough || !context.settings.gates.partial_admission {
        return (NominatedAssignment { assignment: full, pod_sets }, targets);
    }
    let reducible: Vec<i32> = request.pod_sets.iter().map(reducible).collect();
    // With partial admission the workload may fit before the whole request is available.
    full.wake_conditions.on_release.extend(full.wake_conditions.min_available.keys().copied());
    let (mut low, mut high, mut best) = (0, total.saturating_add(1), None);
    while low < high {
        let middle = low + (high - low) / 2;
        let reduced = reduced_pod_sets(request.pod_sets, &reducible, middle, total);
        let (assignment, targets) =
            assign_with_scan_restart(context, &AssignRequest { pod_sets: &reduced, ..*request });
        if assignment.mode == PreemptionMode::Fit || !targets.is_empty() {
            best = Some((NominatedAssignment { assignment, pod_sets: reduced }, targets));
            high = middle;
        } else {
            // A smaller pod count may be blocked by something else than the full count.
            let WakeConditions { min_available, on_usage_change, on_release, on_topology_change, .. } =
                assignment.wake_conditions;
            full.wake_conditions.on_release.extend(min_available.into_keys().chain(on_release));
            full.wake_conditions.on_usage_change.extend(on_usage_change);
            full.wake_conditions.on_topology_change.extend(on_topology_change);
            low = middle + 1;
        }
    }
    best.unwrap_or((NominatedAssignment { assignment: full, pod_sets }, Vec::new()))
}

/// Reduces the pod counts by `part` of `total`, in proportion to how far each pod set may shrink.
fn reduced_pod_sets(pod_sets: &[PodSet], fewer: &[i32], part: i32, total: i32) -> Arc<[PodSet]> {
    let set = |(set, less): (&PodSet, &i32)| {
        let off = i64::from(*less) * i64::from(part) / i64::from(total.max(1));
        let count = set.count.saturating_sub(i32::try_from(off).unwrap_or(i32::MAX));
        PodSet { count, ..set.clone() }
    };
    pod_sets.iter().zip(fewer).map(set).collect()
}

/// Assigns flavors from the cursor on. A scan that started behind the first flavor and found nothing runs once more
/// from the first flavor, so that the wake conditions cover all flavors. If the earlier scan had lost a race, the
/// cursor of the second scan is kept.
fn assign_with_scan_restart(
    context: &mut SchedulingContext,
    request: &AssignRequest,
) -> (TentativeAssignment, Vec<Target>) {
    let cursor = request.fresh_cursor(context);
    let (assignment, targets) = assign_once(context, &AssignRequest { cursor, ..*request });
    let succeeded = assignment.mode == PreemptionMode::Fit || !targets.is_empty();
    let Some(old_cursor) = cursor.filter(|_| !succeeded && assignment.cursor.is_none()) else {
        return (assignment, targets);
    };
    let (assignment, targets) = assign_once(context, &AssignRequest { cursor: None, ..*request });
    let cursor = assignment.cursor.filter(|_| old_cursor.lost_race);
    (TentativeAssignment { cursor, ..assignment }, targets)
}

fn assign_once(
    context: &mut SchedulingContext,
    request: &AssignRequest,
) -> (TentativeAssignment, Vec<Target>) {
    let mut assignment = assign_flavors(context, request);
    topology::assign_topology(context, request, &mut assignment);
    if !assignment.mode.needs_preemption() {
        return (assignment, Vec::new());
    }
    let targets = context.find_targets(&preemptor_of(request, &assignment));
    (assignment, targets)
}

fn preemptor_of<'a>(request: &AssignRequest<'a>, assignment: &'a TentativeAssignment) -> Preemptor<'a> {
    Preemptor {
        queue: request.queue,
        priority: request.workload.priority,
        queued_since: request.workload.queued_since,
        usage: &assignment.usage,
        frs_need_preemption: &assignment.frs_need_preemption,
        pod_set_requests: &assignment.tas_assignment.pod_set_requests,
    }
}

/// Adds to the blockers what the workload would borrow, if only that keeps it from reclaiming: the shortage alone does
/// not tell why the owner of lent quota waits.
fn name_borrowing_that_forbids_reclaim(
    context: &mut SchedulingContext,
    request: &AssignRequest,
    assignment: &mut TentativeAssignment,
) {
    if !assignment.mode.needs_preemption() || assignment.frs_need_preemption.is_empty() {
        return;
    }
    let borrowed = context.borrowing_that_forbids_reclaim(&preemptor_of(request, assignment));
    let text = context.fr_text(&borrowed);
    let short: Vec<_> =
        assignment.frs_need_preemption.iter().filter_map(|fr| context.tree.fr_name(*fr)).collect();
    let concerned = |blocker: &&mut Blocker| {
        let same = |fr: &&FlavorResource| fr.flavor == blocker.flavor && fr.resource == blocker.resource;
        blocker.kind == BlockerKind::InUse && short.iter().any(same)
    };
    assignment.blockers.iter_mut().filter(concerned).for_each(|blocker| blocker.borrowed = Arc::clone(&text));
}
