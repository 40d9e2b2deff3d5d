//! Nomination: what each head could take against the plan as it stands, and who would have to go.

use super::assign::{Judgement, Question, assign};
use super::compiled::Queue;
use super::config::Flavor;
use super::engine::Engine;
use super::fit::Mode;
use super::matching::selects;
use super::preemption::{Field, Preemptor, Target};
use super::topology;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::queue::{Claim, ClassId, Cursor, PodSet, Verdict, Waits, Workload};
use crate::quota::{Layer, NodeId, Usage};
use crate::topology::Cluster;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Flavors by name.
pub(super) type Flavors = BTreeMap<Arc<str>, Flavor>;

/// Place of a head among those of all queues: the more important first, then the older.
type Place = (Reverse<i64>, Timestamp);

/// A head of this cycle after nomination.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) queue: Arc<str>,
    /// Its queue in the tree.
    pub(super) node: NodeId,
    pub(super) class: ClassId,
    pub(super) workload: Arc<Workload>,
    /// Highest level that quota is borrowed from; 0 without borrowing.
    pub(super) borrows: u32,
    /// What it asks for, as far as flavors were found.
    pub(super) usage: Usage,
    pub(super) found: Found,
}

#[derive(Debug)]
pub(super) enum Found {
    /// It fits the plan as it stood at the start of the cycle.
    Fits(Box<Plan>),
    /// It would fit if others went.
    Preempts(Box<Plan>, Vec<Target>),
    /// It does not fit.
    Short(Box<Short>),
    /// It did not fit and its class is parked.
    Parked(Arc<Verdict>, Option<Claim>),
    /// A head that was blocked before keeps its claim.
    Claims(Claim),
}

/// What a head could take.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) judgement: Judgement,
    /// The pod sets with the numbers of pods that are to be admitted.
    pub(super) pod_sets: Arc<[PodSet]>,
}

/// What a head could not take.
#[derive(Debug)]
pub(super) struct Short {
    pub(super) verdict: Verdict,
    pub(super) waits: Waits,
    /// What it would keep from others; only if evictions could make it fit.
    pub(super) claim: Option<Claim>,
    /// Whether it is passed over even at the head of a StrictFIFO queue.
    pub(super) aside: bool,
    /// Where the search goes on in the next cycle, if there are flavors left to try.
    pub(super) cursor: Option<Cursor>,
}

impl Entry {
    pub(super) fn key(&self) -> &ObjectKey {
        &self.workload.key
    }
}

impl Engine {
    /// Heads to be judged, judged against the plan as it stands, and the blocked heads with claims beside them.
    pub(super) fn nominees(&mut self, heads: usize) -> Vec<Entry> {
        let ready = if heads < self.pending.ready().len() {
            self.most_urgent(heads)
        } else {
            self.pending.ready().iter().cloned().collect()
        };
        let claims = self.claims_beside(&ready);
        let mut entries: Vec<Entry> = ready.iter().filter_map(|queue| self.nominate(queue)).collect();
        entries.extend(claims);
        entries
    }

    /// Blocked heads with claims in the trees of these queues.
    fn claims_beside(&self, ready: &[Arc<str>]) -> Vec<Entry> {
        let mut blocked =
            self.pending.claimants().filter(|queue| !self.pending.ready().contains(*queue)).peekable();
        if blocked.peek().is_none() {
            return Vec::new();
        }
        let trees: BTreeSet<NodeId> = ready.iter().filter_map(|queue| self.root(queue)).collect();
        let near = blocked.filter(|queue| self.root(queue).is_some_and(|root| trees.contains(&root)));
        near.filter_map(|queue| self.claiming(queue)).collect()
    }

    /// Queues of the trees whose best heads come first by priority and time, until so many are found.
    fn most_urgent(&self, heads: usize) -> Vec<Arc<str>> {
        let mut trees: BTreeMap<NodeId, (Place, Vec<Arc<str>>)> = BTreeMap::new();
        for name in self.pending.ready() {
            let Some(head) = self.pending.head(name) else { continue };
            let place = (Reverse(head.workload.priority), head.workload.queued_since);
            let root = self.root(name).unwrap_or_default();
            let (best, queues) = trees.entry(root).or_insert_with(|| (place, Vec::new()));
            *best = place.min(*best);
            queues.push(Arc::clone(name));
        }
        let mut trees: Vec<(Place, Vec<Arc<str>>)> = trees.into_values().collect();
        trees.sort_by_key(|(best, _)| *best);
        let mut taken = 0;
        let first = trees.into_iter().take_while(|(_, queues)| {
            let before = taken;
            taken += queues.len();
            before < heads
        });
        first.flat_map(|(_, queues)| queues).collect()
    }

    fn claiming(&self, queue: &Arc<str>) -> Option<Entry> {
        let head = self.pending.claimant(queue)?;
        let claim = head.claim?.clone();
        Some(Entry {
            queue: Arc::clone(queue),
            node: self.queues.get(queue)?.node,
            class: head.class,
            workload: Arc::clone(head.workload),
            borrows: claim.borrows,
            usage: claim.usage.clone(),
            found: Found::Claims(claim),
        })
    }

    /// Judges the head of a queue.
    fn nominate(&mut self, name: &Arc<str>) -> Option<Entry> {
        let head = self.pending.head(name)?;
        let (class, workload, cursor) = (head.class, Arc::clone(head.workload), head.cursor.cloned());
        let queue = self.queues.get(name)?;
        let labels = self.namespaces.get(&workload.key.namespace);
        let obstacle = if let Some(obstacle) = &workload.obstacle {
            Some((**obstacle).clone())
        } else if selects(queue.config.namespace_selector.as_ref(), labels) {
            None
        } else {
            let text = "Workload namespace doesn't match ClusterQueue selector";
            Some(Verdict::plain(PendingReason::Misconfigured, text))
        };
        let (queue, node) = (Arc::clone(name), queue.node);
        if let Some(verdict) = obstacle {
            let short = Short { verdict, waits: Waits::default(), claim: None, aside: true, cursor: None };
            let found = Found::Short(Box::new(short));
            return Some(Entry { queue, node, class, workload, borrows: 0, usage: Usage::new(), found });
        }
        let (plan, targets) = self.judge(name, &workload, cursor.as_ref(), None)?;
        let (borrows, usage) = (plan.judgement.borrows, plan.judgement.usage.clone());
        let found = found(plan, targets, &mut self.topology);
        Some(Entry { queue, node, class, workload, borrows, usage, found })
    }

    /// Judges a workload against the plan without what is kept for itself and without the slice that it takes over from.
    pub(super) fn judge(
        &mut self,
        name: &Arc<str>,
        workload: &Workload,
        cursor: Option<&Cursor>,
        bound: Option<&[super::assign::Pick]>,
    ) -> Option<(Plan, Vec<Target>)> {
        let cycle = self.cycles;
        self.without(&self.own_in_plan(workload), Layer::Planned, |engine| {
            let (mut field, queue, flavors) = engine.field(name, &workload.key)?;
            let holders = field.holders;
            let question = Question {
                workload,
                pod_sets: &workload.pod_sets,
                queue,
                flavors,
                cursor,
                bound,
                replaced: workload.replaces.as_ref().and_then(|old| holders.get(old)).map(|h| &**h),
                cycle,
            };
            let (mut plan, targets) = judge_with_partial(&mut field, &question);
            engine.reserve(name, &mut plan.judgement, &targets);
            Some((plan, targets))
        })
    }

    /// What a workload of a queue is judged on, with the queue and the flavors.
    pub(super) fn field(
        &mut self,
        queue: &str,
        workload: &ObjectKey,
    ) -> Option<(Field<'_>, &Queue, &Flavors)> {
        let queue = self.queues.get(queue)?;
        let root = self.tree.root(queue.node);
        let field = Field {
            settings: &self.settings,
            tree: &mut self.tree,
            queues: &self.queues,
            holders: &self.holders,
            inactive: &self.inactive,
            order: &self.order,
            topology: &mut self.topology,
            barred: self.taken.victims(root, workload),
            known: Vec::new(),
        };
        Some((field, queue, &self.flavors))
    }
}

/// What becomes of a plan and its victims.
pub(super) fn found(plan: Plan, targets: Vec<Target>, topology: &mut Cluster) -> Found {
    match plan.judgement.mode {
        Mode::Fit => Found::Fits(Box::new(plan)),
        _ if !targets.is_empty() => Found::Preempts(Box::new(plan), targets),
        mode => {
            let Judgement { usage, borrows, reason, blockers, waits, cursor, stand, .. } = plan.judgement;
            let stand = Arc::new(topology.footprint(&stand.occupancies()));
            let claim = mode.needs_room().then_some(Claim { usage, borrows, stand });
            let verdict = Verdict { reason, blockers, text: Arc::default() };
            Found::Short(Box::new(Short { verdict, waits, claim, aside: false, cursor }))
        }
    }
}

/// Judges the whole workload, and if that is not to be had, as many pods of it as are.
fn judge_with_partial(field: &mut Field, question: &Question) -> (Plan, Vec<Target>) {
    let (mut full, targets) = judge_once(field, question);
    let fewer = |set: &PodSet| set.min_count.map_or(0, |least| set.count.saturating_sub(least).max(0));
    let total: i32 = question.pod_sets.iter().fold(0, |sum, set| sum.saturating_add(fewer(set)));
    let pod_sets = Arc::clone(&question.workload.pod_sets);
    let enough = full.mode == Mode::Fit || !targets.is_empty() || total == 0;
    if enough || !field.settings.gates.partial_admission {
        return (Plan { judgement: full, pod_sets }, targets);
    }
    let fewer: Vec<i32> = question.pod_sets.iter().map(fewer).collect();
    // Where fewer pods could be admitted, what the whole asks for is not what it waits for.
    full.waits.freed.extend(full.waits.needs.keys().copied());
    let (mut low, mut high, mut best) = (0, total.saturating_add(1), None);
    while low < high {
        let middle = low + (high - low) / 2;
        let reduced = reduced(question.pod_sets, &fewer, middle, total);
        let (judgement, targets) = judge_once(field, &Question { pod_sets: &reduced, ..*question });
        if judgement.mode == Mode::Fit || !targets.is_empty() {
            best = Some((Plan { judgement, pod_sets: reduced }, targets));
            high = middle;
        } else {
            // Fewer pods can lack something else than all of them.
            let Waits { needs, any, freed, places, .. } = judgement.waits;
            full.waits.freed.extend(needs.into_keys().chain(freed));
            full.waits.any.extend(any);
            full.waits.places.extend(places);
            low = middle + 1;
        }
    }
    best.unwrap_or((Plan { judgement: full, pod_sets }, Vec::new()))
}

/// Pod sets with a part of the pods that they can do without taken off.
fn reduced(pod_sets: &[PodSet], fewer: &[i32], part: i32, total: i32) -> Arc<[PodSet]> {
    let set = |(set, less): (&PodSet, &i32)| {
        let off = i64::from(*less) * i64::from(part) / i64::from(total.max(1));
        let count = set.count.saturating_sub(i32::try_from(off).unwrap_or(i32::MAX));
        PodSet { count, ..set.clone() }
    };
    pod_sets.iter().zip(fewer).map(set).collect()
}

/// Judges from the cursor on. A search that went on behind the first flavor and comes to the end without success starts over
/// once, so that what is waited for concerns all flavors; one that was interrupted goes on from there, as if it had just begun.
fn judge_once(field: &mut Field, question: &Question) -> (Judgement, Vec<Target>) {
    let cursor = question.fresh_cursor(field);
    let (judgement, targets) = judge_from(field, &Question { cursor, ..*question });
    let found = judgement.mode == Mode::Fit || !targets.is_empty();
    let Some(before) = cursor.filter(|_| !found && judgement.cursor.is_none()) else {
        return (judgement, targets);
    };
    let (judgement, targets) = judge_from(field, &Question { cursor: None, ..*question });
    let cursor = judgement.cursor.filter(|_| before.interrupted);
    (Judgement { cursor, ..judgement }, targets)
}

fn judge_from(field: &mut Field, question: &Question) -> (Judgement, Vec<Target>) {
    let mut judgement = assign(field, question);
    topology::place(field, question, &mut judgement);
    if !judgement.mode.needs_room() {
        return (judgement, Vec::new());
    }
    let asker = question.asker();
    let targets = field.targets(&Preemptor {
        queue: asker.queue,
        priority: asker.priority,
        queued_since: asker.queued_since,
        usage: &judgement.usage,
        short: &judgement.short,
        parts: &judgement.stand.parts,
    });
    (judgement, targets)
}
