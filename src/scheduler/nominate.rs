//! Nomination: what each head could take against the plan as it stands, and who would have to go.

use super::compiled::CompiledClusterQueue;
use super::config::Flavor;
use super::engine::Engine;
use super::flavor_assigner::{AssignRequest, TentativeAssignment, assign_flavors};
use super::granular_mode::PreemptionMode;
use super::matching::selects;
use super::preemption::{Preemptor, SchedulingContext, Target};
use super::topology;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::queue::{ClassId, FlavorCursor, HeadClaim, PodSet, Verdict, WakeConditions, Workload};
use crate::quota::{NodeId, Usage, UsageLayer};
use crate::topology::TasCache;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Flavors by name.
pub(super) type Flavors = BTreeMap<Arc<str>, Flavor>;

/// Place of a head among those of all queues: the more important first, then the older.
type HeadPriority = (Reverse<i64>, Timestamp);

/// A head of this cycle after nomination.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) queue: Arc<str>,
    /// Its queue in the tree.
    pub(super) node: NodeId,
    pub(super) class: ClassId,
    pub(super) workload: Arc<Workload>,
    /// Highest level that quota is borrowed from; 0 without borrowing.
    pub(super) borrowing_level: u32,
    /// What it asks for, as far as flavors were found.
    pub(super) usage: Usage,
    pub(super) nomination: Nomination,
}

#[derive(Debug)]
pub(super) enum Nomination {
    /// It fits the plan as it stood at the start of the cycle.
    Fits(Box<NominatedAssignment>),
    /// It would fit if others went.
    NeedsPreemption(Box<NominatedAssignment>, Vec<Target>),
    /// It does not fit.
    Inadmissible(Box<Inadmissible>),
    /// It did not fit and its class is parked.
    Parked(Arc<Verdict>, Option<HeadClaim>),
    /// A head that was blocked before keeps its claim.
    ClaimOnly(HeadClaim),
}

/// What a head could take.
#[derive(Debug)]
pub(super) struct NominatedAssignment {
    pub(super) assignment: TentativeAssignment,
    /// The pod sets with the numbers of pods that are to be admitted.
    pub(super) pod_sets: Arc<[PodSet]>,
}

/// What a head could not take.
#[derive(Debug)]
pub(super) struct Inadmissible {
    pub(super) verdict: Verdict,
    pub(super) wake_conditions: WakeConditions,
    /// What it would keep from others; only if evictions could make it fit.
    pub(super) claim: Option<HeadClaim>,
    /// Whether it is passed over even at the head of a StrictFIFO queue.
    pub(super) never_blocks_queue: bool,
    /// Where the search goes on in the next cycle, if there are flavors left to try.
    pub(super) cursor: Option<FlavorCursor>,
}

impl Entry {
    pub(super) fn key(&self) -> &ObjectKey {
        &self.workload.key
    }
}

impl Engine {
    /// Heads to be judged, judged against the plan as it stands, and the blocked heads with claims beside them.
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

    /// Blocked heads with claims in the trees of these queues.
    fn blocked_heads_in_trees_of(&self, ready: &[Arc<str>]) -> Vec<Entry> {
        let mut blocked =
            self.pending.blocked_heads().filter(|queue| !self.pending.ready().contains(*queue)).peekable();
        if blocked.peek().is_none() {
            return Vec::new();
        }
        let trees: BTreeSet<NodeId> = ready.iter().filter_map(|queue| self.root(queue)).collect();
        let near = blocked.filter(|queue| self.root(queue).is_some_and(|root| trees.contains(&root)));
        near.filter_map(|queue| self.blocked_head_entry(queue)).collect()
    }

    /// Queues of the trees whose best heads come first by priority and time, until so many are found.
    fn most_urgent_queues(&self, heads: usize) -> Vec<Arc<str>> {
        let mut trees: BTreeMap<NodeId, (HeadPriority, Vec<Arc<str>>)> = BTreeMap::new();
        for name in self.pending.ready() {
            let Some(head) = self.pending.head(name) else { continue };
            let place = (Reverse(head.workload.priority), head.workload.queued_since);
            let root = self.root(name).unwrap_or_default();
            let (best, queues) = trees.entry(root).or_insert_with(|| (place, Vec::new()));
            *best = place.min(*best);
            queues.push(Arc::clone(name));
        }
        let mut trees: Vec<(HeadPriority, Vec<Arc<str>>)> = trees.into_values().collect();
        trees.sort_by_key(|(best, _)| *best);
        let mut taken = 0;
        let first = trees.into_iter().take_while(|(_, queues)| {
            let before = taken;
            taken += queues.len();
            before < heads
        });
        first.flat_map(|(_, queues)| queues).collect()
    }

    fn blocked_head_entry(&self, queue: &Arc<str>) -> Option<Entry> {
        let head = self.pending.blocked_head(queue)?;
        let claim = head.claim?.clone();
        Some(Entry {
            queue: Arc::clone(queue),
            node: self.queues.get(queue)?.node,
            class: head.class,
            workload: Arc::clone(head.workload),
            borrowing_level: claim.borrowing_level,
            usage: claim.usage.clone(),
            nomination: Nomination::ClaimOnly(claim),
        })
    }

    /// Judges the head of a queue.
    fn nominate(&mut self, name: &Arc<str>) -> Option<Entry> {
        let head = self.pending.head(name)?;
        let (class, workload, cursor) = (head.class, Arc::clone(head.workload), head.cursor.cloned());
        let queue = self.queues.get(name)?;
        let labels = self.namespaces.get(&workload.key.namespace);
        let obstacle = if let Some(obstacle) = &workload.precheck_failure {
            Some((**obstacle).clone())
        } else if selects(queue.config.namespace_selector.as_ref(), labels) {
            None
        } else {
            let text = "Workload namespace doesn't match ClusterQueue selector";
            Some(Verdict::without_blockers(PendingReason::Misconfigured, text))
        };
        let (queue, node) = (Arc::clone(name), queue.node);
        if let Some(verdict) = obstacle {
            let short = Inadmissible {
                verdict,
                wake_conditions: WakeConditions::default(),
                claim: None,
                never_blocks_queue: true,
                cursor: None,
            };
            let found = Nomination::Inadmissible(Box::new(short));
            return Some(Entry {
                queue,
                node,
                class,
                workload,
                borrowing_level: 0,
                usage: Usage::new(),
                nomination: found,
            });
        }
        let (plan, targets) = self.compute_assignment(name, &workload, cursor.as_ref(), None)?;
        let (borrows, usage) = (plan.assignment.borrowing_level, plan.assignment.usage.clone());
        let found = nomination_of(plan, targets, &mut self.topology);
        Some(Entry { queue, node, class, workload, borrowing_level: borrows, usage, nomination: found })
    }

    /// Judges a workload against the plan without what is kept for itself and without the slice that it takes over from.
    pub(super) fn compute_assignment(
        &mut self,
        name: &Arc<str>,
        workload: &Workload,
        cursor: Option<&FlavorCursor>,
        bound: Option<&[super::flavor_assigner::PodSetGroupFlavors]>,
    ) -> Option<(NominatedAssignment, Vec<Target>)> {
        let cycle = self.cycle_count;
        self.with_usage_removed(&self.own_projected_usage(workload), UsageLayer::Projected, |engine| {
            let (mut field, queue, flavors) = engine.scheduling_context(name, &workload.key)?;
            let holders = field.reserving_workloads;
            let question = AssignRequest {
                workload,
                pod_sets: &workload.pod_sets,
                queue,
                flavors,
                cursor,
                allowed_flavors: bound,
                replaced_slice: workload.replaces.as_ref().and_then(|old| holders.get(old)).map(|h| &**h),
                cycle,
            };
            let (mut plan, targets) = assign_with_partial_admission(&mut field, &question);
            engine.assign_projected_topology(name, &mut plan.assignment, &targets);
            Some((plan, targets))
        })
    }

    /// What a workload of a queue is judged on, with the queue and the flavors.
    pub(super) fn scheduling_context(
        &mut self,
        queue: &str,
        workload: &ObjectKey,
    ) -> Option<(SchedulingContext<'_>, &CompiledClusterQueue, &Flavors)> {
        let queue = self.queues.get(queue)?;
        let root = self.tree.root(queue.node);
        let field = SchedulingContext {
            settings: &self.settings,
            tree: &mut self.tree,
            queues: &self.queues,
            reserving_workloads: &self.reserving_workloads,
            inactive: &self.inactive,
            afs_usage: &self.afs_usage,
            topology: &mut self.topology,
            already_preempted: self.preemption_history.victims(root, workload),
            target_cache: Vec::new(),
        };
        Some((field, queue, &self.flavors))
    }
}

/// What becomes of a plan and its victims.
pub(super) fn nomination_of(
    plan: NominatedAssignment,
    targets: Vec<Target>,
    topology: &mut TasCache,
) -> Nomination {
    match plan.assignment.mode {
        PreemptionMode::Fit => Nomination::Fits(Box::new(plan)),
        _ if !targets.is_empty() => Nomination::NeedsPreemption(Box::new(plan), targets),
        mode => {
            let TentativeAssignment {
                usage,
                borrowing_level: borrows,
                reason,
                blockers,
                wake_conditions: waits,
                cursor,
                tas_assignment: stand,
                ..
            } = plan.assignment;
            let stand = Arc::new(topology.footprint(&stand.occupancies()));
            let claim = mode.needs_preemption().then_some(HeadClaim {
                usage,
                borrowing_level: borrows,
                footprint: stand,
            });
            let verdict = Verdict { reason, blockers, text: Arc::default() };
            Nomination::Inadmissible(Box::new(Inadmissible {
                verdict,
                wake_conditions: waits,
                claim,
                never_blocks_queue: false,
                cursor,
            }))
        }
    }
}

/// Judges the whole workload, and if that is not to be had, as many pods of it as are.
fn assign_with_partial_admission(
    field: &mut SchedulingContext,
    question: &AssignRequest,
) -> (NominatedAssignment, Vec<Target>) {
    let (mut full, targets) = assign_with_scan_restart(field, question);
    let fewer = |set: &PodSet| set.min_count.map_or(0, |least| set.count.saturating_sub(least).max(0));
    let total: i32 = question.pod_sets.iter().fold(0, |sum, set| sum.saturating_add(fewer(set)));
    let pod_sets = Arc::clone(&question.workload.pod_sets);
    let enough = full.mode == PreemptionMode::Fit || !targets.is_empty() || total == 0;
    if enough || !field.settings.gates.partial_admission {
        return (NominatedAssignment { assignment: full, pod_sets }, targets);
    }
    let fewer: Vec<i32> = question.pod_sets.iter().map(fewer).collect();
    // Where fewer pods could be admitted, what the whole asks for is not what it waits for.
    full.wake_conditions.on_release.extend(full.wake_conditions.min_available.keys().copied());
    let (mut low, mut high, mut best) = (0, total.saturating_add(1), None);
    while low < high {
        let middle = low + (high - low) / 2;
        let reduced = reduced_pod_sets(question.pod_sets, &fewer, middle, total);
        let (judgement, targets) =
            assign_with_scan_restart(field, &AssignRequest { pod_sets: &reduced, ..*question });
        if judgement.mode == PreemptionMode::Fit || !targets.is_empty() {
            best = Some((NominatedAssignment { assignment: judgement, pod_sets: reduced }, targets));
            high = middle;
        } else {
            // Fewer pods can lack something else than all of them.
            let WakeConditions {
                min_available: needs,
                on_usage_change: any,
                on_release: freed,
                on_topology_change: places,
                ..
            } = judgement.wake_conditions;
            full.wake_conditions.on_release.extend(needs.into_keys().chain(freed));
            full.wake_conditions.on_usage_change.extend(any);
            full.wake_conditions.on_topology_change.extend(places);
            low = middle + 1;
        }
    }
    best.unwrap_or((NominatedAssignment { assignment: full, pod_sets }, Vec::new()))
}

/// Pod sets with a part of the pods that they can do without taken off.
fn reduced_pod_sets(pod_sets: &[PodSet], fewer: &[i32], part: i32, total: i32) -> Arc<[PodSet]> {
    let set = |(set, less): (&PodSet, &i32)| {
        let off = i64::from(*less) * i64::from(part) / i64::from(total.max(1));
        let count = set.count.saturating_sub(i32::try_from(off).unwrap_or(i32::MAX));
        PodSet { count, ..set.clone() }
    };
    pod_sets.iter().zip(fewer).map(set).collect()
}

/// Judges from the cursor on. A search that went on behind the first flavor and comes to the end without success starts over
/// once, so that what is waited for concerns all flavors; one that was interrupted goes on from there, as if it had just begun.
fn assign_with_scan_restart(
    field: &mut SchedulingContext,
    question: &AssignRequest,
) -> (TentativeAssignment, Vec<Target>) {
    let cursor = question.fresh_cursor(field);
    let (judgement, targets) = assign_once(field, &AssignRequest { cursor, ..*question });
    let found = judgement.mode == PreemptionMode::Fit || !targets.is_empty();
    let Some(before) = cursor.filter(|_| !found && judgement.cursor.is_none()) else {
        return (judgement, targets);
    };
    let (judgement, targets) = assign_once(field, &AssignRequest { cursor: None, ..*question });
    let cursor = judgement.cursor.filter(|_| before.lost_race);
    (TentativeAssignment { cursor, ..judgement }, targets)
}

fn assign_once(
    field: &mut SchedulingContext,
    question: &AssignRequest,
) -> (TentativeAssignment, Vec<Target>) {
    let mut judgement = assign_flavors(field, question);
    topology::assign_topology(field, question, &mut judgement);
    if !judgement.mode.needs_preemption() {
        return (judgement, Vec::new());
    }
    let asker = question.requester();
    let targets = field.find_targets(&Preemptor {
        queue: asker.queue,
        priority: asker.priority,
        queued_since: asker.queued_since,
        usage: &judgement.usage,
        frs_need_preemption: &judgement.frs_need_preemption,
        pod_set_requests: &judgement.tas_assignment.pod_set_requests,
    });
    (judgement, targets)
}
