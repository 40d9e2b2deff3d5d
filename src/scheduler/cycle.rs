//! One cycle: heads, nomination, order, processing.
//!
//! Every head gets exactly one outcome; processing maps heads to outcomes and cannot end early. Decisions are taken in the
//! plan, and quota is given only when it is free in fact as well.

use super::config::Charge;
use super::decision::{Decision, Outcome, PreemptionReason};
use super::engine::Engine;
use super::lineup::Lineup;
use super::nominate::{Entry, Found, Plan, Short, found};
use super::observed::Recomputation;
use super::preemption::Target;
use super::topology::Portion;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::api::v1beta2::{QueueingStrategy, ReclaimPolicy};
use crate::queue::{Claim, Cursor, Parked, Verdict, Waits, Workload};
use crate::quota::{Layer, NodeId, PairId, Usage};
use crate::resources::Amount;
use crate::topology::{Footprint, View};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a plan lacks.
#[derive(Default)]
pub(super) struct Lacking {
    /// Quota.
    pub(super) pairs: BTreeSet<PairId>,
    /// Whether somebody else has the places on nodes.
    pub(super) places: bool,
}

impl Lacking {
    pub(super) fn is_empty(&self) -> bool {
        self.pairs.is_empty() && !self.places
    }

    fn only_places(&self) -> bool {
        self.pairs.is_empty() && self.places
    }
}

/// What has happened in this cycle so far.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) now: Timestamp,
    /// Claims in the plan, to be undone at the end.
    pub(super) reserved: Vec<Portion>,
    /// Trees whose next cycle starts from something else than this one.
    moved: BTreeSet<NodeId>,
    /// Trees with claims of blocked heads.
    claims: BTreeMap<NodeId, BTreeSet<Arc<str>>>,
    /// Trees where more is free in the plan than at the start of this cycle.
    eased: BTreeSet<NodeId>,
    /// Those who must go since this cycle.
    pub(super) victims: BTreeSet<ObjectKey>,
    /// Whether second passes keep places on nodes for the rest of this cycle, in whichever trees their queues are.
    pub(super) kept_for_passes: bool,
    /// Those that were given places in a second pass, with what they hold then and what of it is new.
    pub(super) placed: Vec<(ObjectKey, Charge, Arc<Footprint>)>,
}

impl Engine {
    /// Judges one head of every ClusterQueue. Those admitted hold their quota from then on.
    pub fn cycle(&mut self, now: Timestamp) -> Vec<Decision> {
        self.cycle_of(usize::MAX, now)
    }

    /// The same for so many heads: those of the most urgent trees, each with all of its heads, so that more may be judged.
    /// The others wait for a later cycle as they stand. Second passes are never among them.
    pub fn cycle_of(&mut self, heads: usize, now: Timestamp) -> Vec<Decision> {
        self.cycles += 1;
        self.expire_earmarks(now);
        if heads > 0 && self.pending.ready().is_empty() {
            self.pending.wake_doubtful();
        }
        let due = self.judge_due();
        let entries = self.nominees(heads);
        let entries = entries.into_iter().map(|entry| self.park_if_short(entry)).collect();
        let mut lineup = Lineup::new(entries, &self.settings, &self.tree);
        let mut turn = Turn { now, ..Turn::default() };
        let mut decisions = Vec::new();
        for (again, found) in due {
            decisions.extend(found.and_then(|found| self.process_due(&again, found, &mut turn)));
        }
        while let Some(entry) = self.next_in_line(&mut lineup, &turn) {
            decisions.extend(self.process(entry, &mut turn));
        }
        for taken in turn.reserved {
            self.shift(&taken, -1, Layer::Planned);
        }
        self.confirm_places(turn.placed);
        self.observed.end_cycle();
        decisions
    }

    fn next_in_line(&mut self, lineup: &mut Lineup, turn: &Turn) -> Option<Entry> {
        let holders = turn.victims.iter().filter_map(|key| self.holders.get(key));
        let leaving = holders.filter(|holder| holder.leaves_for.is_some()).cloned();
        lineup.next(&mut self.tree, &self.settings, leaving)
    }

    /// Parks the class of a head that does not fit, before anything of this cycle is charged: what is charged later may be
    /// what it waits for. Where nothing was ever kept for it, that is: a head that loses what was kept is judged again.
    fn park_if_short(&mut self, entry: Entry) -> Entry {
        match entry.found {
            Found::Short(short) if !self.earmarks.contains_key(&entry.workload.key) => {
                let found = self.park(&entry.queue, entry.class, *short);
                Entry { found, ..entry }
            }
            found => Entry { found, ..entry },
        }
    }

    fn park(&mut self, queue: &Arc<str>, class: crate::queue::ClassId, short: Short) -> Found {
        let Short { verdict, waits, claim, aside, cursor } = short;
        let verdict = Arc::new(verdict);
        let claim = claim.filter(|_| self.reclaim_policy(queue) != ReclaimPolicy::Any);
        if cursor.is_some() {
            self.pending.go_on(queue, class, &verdict, cursor);
            return Found::Parked(verdict, claim);
        }
        let parked = Parked { aside, claim: claim.clone(), waits };
        self.pending.park(queue, class, &verdict, parked);
        Found::Parked(verdict, claim)
    }

    fn process(&mut self, mut entry: Entry, turn: &mut Turn) -> Option<Decision> {
        let found = std::mem::replace(&mut entry.found, Found::Claims(Claim::default()));
        let judged = matches!(found, Found::Fits(_) | Found::Preempts(..));
        if let Some(outcome) = judged.then(|| self.yields_to_sibling(&entry)).flatten() {
            let (key, uid) = (entry.workload.key.clone(), Arc::clone(&entry.workload.uid));
            return Some(Decision { key, uid, outcome });
        }
        let kept = self.earmarks.get(entry.key()).map(|kept| kept.usage.clone());
        let outcome = match found {
            Found::Claims(claim) => {
                self.claim(&entry, &claim, turn);
                return None;
            }
            Found::Parked(verdict, claim) => {
                if let Some(claim) = claim {
                    self.claim(&entry, &claim, turn);
                }
                Outcome::Pending(verdict)
            }
            Found::Short(_) => self.give_up(&entry, turn),
            Found::Fits(plan) => self.process_fit(&entry, *plan, turn),
            Found::Preempts(plan, targets) => self.process_preemption(&entry, *plan, targets, false, turn),
        };
        // It gave room up, or went elsewhere.
        if kept.is_some_and(|kept| self.takes_in_plan(entry.key()) != Some(&kept)) {
            turn.eased.insert(self.root_of(&entry));
        }
        let (key, uid) = (entry.workload.key.clone(), Arc::clone(&entry.workload.uid));
        Some(Decision { key, uid, outcome })
    }

    /// What a workload takes in the plan: what it holds, or what is kept for it.
    fn takes_in_plan(&self, key: &ObjectKey) -> Option<&Usage> {
        let holder = self.holders.get(key).map(|holder| &holder.usage);
        holder.or_else(|| self.earmarks.get(key).map(|kept| &kept.usage))
    }

    /// What was kept for a workload no longer serves it: it is judged again without.
    fn give_up(&mut self, entry: &Entry, turn: &mut Turn) -> Outcome {
        let root = self.root_of(entry);
        if turn.moved.contains(&root) {
            // It was judged before that: two who give up for each other in turn would never come to an end.
            self.pending.keep(&entry.queue, entry.class, None);
            return skipped("Workload no longer fits after processing another workload");
        }
        self.cancel_earmark(entry.key());
        turn.moved.insert(root);
        skipped("What was kept for the workload no longer serves it")
    }

    fn process_fit(&mut self, entry: &Entry, mut plan: Plan, turn: &mut Turn) -> Outcome {
        let mut short = self.short_in_plan(entry, &plan, &[], turn);
        if short.only_places() && self.settings.gates.recompute_topology {
            if !self.find_other_places(entry, &mut plan, &[]) {
                return self.process_again(entry, plan, turn);
            }
            short = Lacking::default();
        }
        if short.is_empty() {
            match self.migration(entry) {
                Some(Ok(sibling)) => return self.preempt(entry, &plan, &[sibling], turn),
                Some(Err(outcome)) => return outcome,
                None => {}
            }
            let mut lacking = self.lacking(entry, &plan, &[], Layer::Held);
            // What others of this cycle took is free in the plan, but there may be places that are free in fact.
            if lacking.only_places() && self.find_other_places(entry, &mut plan, &[]) {
                lacking = self.lacking(entry, &plan, &[], Layer::Held);
            }
            return self.admit_or_wait(entry, &plan, lacking, turn);
        }
        self.pass_over(entry, plan, short, turn)
    }

    /// Another head of this cycle was faster; or, if none was, blocked heads keep the quota.
    fn pass_over(&mut self, entry: &Entry, plan: Plan, short: Lacking, turn: &mut Turn) -> Outcome {
        let root = self.root_of(entry);
        let passing = short.places && turn.kept_for_passes;
        if turn.moved.contains(&root) || passing || self.earmarks.contains_key(entry.key()) {
            let cursor = plan.judgement.cursor.map(|cursor| Cursor { interrupted: true, ..cursor });
            self.pending.keep(&entry.queue, entry.class, cursor);
            return skipped("Workload no longer fits after processing another workload");
        }
        let claims = turn.claims.get(&root).cloned().unwrap_or_default();
        let names: Vec<&str> = claims.iter().map(|name| &**name).collect();
        let text = format!("the quota is kept for the head of ClusterQueue {}", names.join(", "));
        let verdict = Arc::new(Verdict::plain(PendingReason::WaitingForQuota, &text));
        let waits = Waits { tree: Some(root), any: short.pairs, claims, ..Waits::default() };
        let parked = Parked { aside: false, claim: None, waits };
        self.pending.park(&entry.queue, entry.class, &verdict, parked);
        Outcome::Pending(verdict)
    }

    fn process_preemption(
        &mut self,
        entry: &Entry,
        mut plan: Plan,
        mut targets: Vec<Target>,
        again: bool,
        turn: &mut Turn,
    ) -> Outcome {
        let overlaps = targets.iter().any(|target| turn.victims.contains(target.key()));
        // What others of this cycle have freed may make some of the targets needless.
        let eased = turn.eased.contains(&self.root_of(entry));
        let recomputes = overlaps && self.settings.gates.recompute_on_overlap;
        if eased || recomputes {
            let picks = std::mem::take(&mut plan.judgement.picks);
            let again = self.judge(&entry.queue, &entry.workload, None, Some(&picks));
            let Some((judged, victims)) = again else {
                return skipped("The ClusterQueue is gone");
            };
            let found = found(judged, victims, &mut self.topology);
            if recomputes {
                self.observe_recomputation(entry, &found, turn);
            }
            match found {
                Found::Fits(plan) => {
                    turn.moved.insert(self.root_of(entry));
                    let lacking = self.lacking(entry, &plan, &[], Layer::Held);
                    return self.wait_for_room(entry, &plan, lacking, turn.now);
                }
                Found::Preempts(judged, victims) => (plan, targets) = (*judged, victims),
                Found::Short(short) => return self.short_after_all(entry, *short, turn),
                Found::Parked(..) | Found::Claims(_) => return skipped(""),
            }
        } else if overlaps {
            self.observed.skip(&entry.queue);
            self.pending.keep(&entry.queue, entry.class, None);
            return skipped("Workload has overlapping preemption targets with another workload");
        }
        if entry.workload.gated {
            return self.park_gated(entry, plan);
        }
        let mut short = self.short_in_plan(entry, &plan, &targets, turn);
        if short.only_places() && self.settings.gates.recompute_topology && !again {
            if !self.find_other_places(entry, &mut plan, &targets) {
                return self.process_again(entry, plan, turn);
            }
            short = Lacking::default();
        }
        if !short.is_empty() {
            self.observed.skip(&entry.queue);
            return self.pass_over(entry, plan, short, turn);
        }
        turn.moved.insert(self.root_of(entry));
        self.preempt(entry, &plan, &targets, turn)
    }

    fn observe_recomputation(&mut self, entry: &Entry, found: &Found, turn: &Turn) {
        let result = match found {
            Found::Fits(_) => Recomputation::DeferredFit,
            Found::Preempts(plan, targets) if self.short_in_plan(entry, plan, targets, turn).is_empty() => {
                Recomputation::NewTargets
            }
            _ => Recomputation::Skipped,
        };
        self.observed.recomputed(&entry.queue, result);
    }

    /// Gives quota if nothing of it is lacking in fact; keeps it otherwise.
    fn admit_or_wait(&mut self, entry: &Entry, plan: &Plan, lacking: Lacking, turn: &mut Turn) -> Outcome {
        turn.moved.insert(self.root_of(entry));
        if lacking.is_empty() {
            return self.admit_in_turn(entry, plan);
        }
        self.wait_for_room(entry, plan, lacking, turn.now)
    }

    /// Looks for other places, with the same flavors and the same victims, as others of this cycle took those of the plan.
    fn find_other_places(&mut self, entry: &Entry, plan: &mut Plan, targets: &[Target]) -> bool {
        let mut gone = self.own_in_plan(&entry.workload);
        gone.extend(Portion::of(targets));
        let (parts, rules) = (&plan.judgement.stand.parts, self.settings.gates.placement);
        let found = self.without(&gone, Layer::Planned, |engine| {
            if targets.is_empty() {
                engine.topology.place_soonest(parts, rules)
            } else {
                engine.topology.place_all(parts, View::Planned, rules)
            }
        });
        found.map(|placements| plan.judgement.stand.set_placements(placements)).is_ok()
    }

    /// With the same flavors there are no other places beside what others of this cycle took: it is judged again.
    fn process_again(&mut self, entry: &Entry, mut plan: Plan, turn: &mut Turn) -> Outcome {
        let picks = std::mem::take(&mut plan.judgement.picks);
        let Some((judged, victims)) = self.judge(&entry.queue, &entry.workload, None, Some(&picks)) else {
            return skipped("The ClusterQueue is gone");
        };
        match found(judged, victims, &mut self.topology) {
            Found::Fits(plan) => {
                let lacking = self.lacking(entry, &plan, &[], Layer::Held);
                self.admit_or_wait(entry, &plan, lacking, turn)
            }
            Found::Preempts(plan, targets) => self.process_preemption(entry, *plan, targets, true, turn),
            Found::Short(short) => self.short_after_all(entry, *short, turn),
            Found::Parked(..) | Found::Claims(_) => skipped(""),
        }
    }

    fn short_after_all(&mut self, entry: &Entry, short: Short, turn: &mut Turn) -> Outcome {
        if self.earmarks.contains_key(entry.key()) {
            return self.give_up(entry, turn);
        }
        if turn.kept_for_passes && !short.waits.places.is_empty() {
            // The places are kept for this cycle alone: a parked head would not be woken when they are free again.
            self.pending.keep(&entry.queue, entry.class, None);
            return skipped("The places are kept for a workload that holds its quota and waits for them");
        }
        match self.park(&entry.queue, entry.class, short) {
            Found::Parked(verdict, claim) => {
                if let Some(claim) = claim {
                    self.claim(entry, &claim, turn);
                }
                Outcome::Pending(verdict)
            }
            _ => skipped(""),
        }
    }

    /// A closed gate keeps the workload from preempting; it waits for the gate, or for quota without.
    fn park_gated(&mut self, entry: &Entry, plan: Plan) -> Outcome {
        let text = "Workload requires preemption, but it's gated";
        let verdict = Arc::new(Verdict::plain(PendingReason::AdmissionGated, text));
        let parked = Parked { aside: false, claim: None, waits: plan.judgement.waits };
        self.pending.park(&entry.queue, entry.class, &verdict, parked);
        Outcome::Gated(verdict)
    }

    /// Decides that the targets must go, and keeps what they free.
    fn preempt(&mut self, entry: &Entry, plan: &Plan, targets: &[Target], turn: &mut Turn) -> Outcome {
        turn.victims.extend(targets.iter().map(|target| target.key().clone()));
        let root = self.root_of(entry);
        for target in targets {
            self.taken.insert(root, entry.key(), target.key());
        }
        let migrates = targets.iter().any(|target| target.reason == PreemptionReason::FlavorMigration);
        let what = if migrates { "migration" } else { "preemption" };
        let text = format!("Pending the {what} of {} workload(s)", targets.len());
        let verdict = Arc::new(Verdict {
            reason: PendingReason::WaitingForPreemptedWorkloads,
            blockers: plan.judgement.blockers.clone(),
            text: Arc::from(text),
        });
        let victims = targets.iter().map(|target| (target.key().clone(), target.reason)).collect();
        let lacking = self.lacking(entry, plan, &[], Layer::Held);
        let verdict = self.keep_room(entry, plan, lacking, verdict, victims, turn.now);
        let victims = targets.iter().filter_map(|target| self.preemption_of(target.key()));
        Outcome::Preempting(verdict, victims.map(|preemption| preemption.victim).collect())
    }

    /// What of a plan there is no room for. Claims of blocked heads do not count against one for whom room is kept: it came
    /// first, and would try again for ever.
    fn short_in_plan(&mut self, entry: &Entry, plan: &Plan, targets: &[Target], turn: &Turn) -> Lacking {
        let claims: &[Portion] = if self.earmarks.contains_key(entry.key()) { &turn.reserved } else { &[] };
        self.without(claims, Layer::Planned, |engine| engine.lacking(entry, plan, targets, Layer::Planned))
    }

    /// What of a plan could not be had, with targets gone and without what the workload has itself already.
    pub(super) fn lacking(
        &mut self,
        entry: &Entry,
        plan: &Plan,
        targets: &[Target],
        layer: Layer,
    ) -> Lacking {
        let (node, usage) = (entry.node, &plan.judgement.usage);
        let mut gone = match layer {
            Layer::Planned => self.own_in_plan(&entry.workload),
            Layer::Held => self.replaced(&entry.workload).map(Portion::by).into_iter().collect(),
        };
        gone.extend(Portion::of(targets));
        self.without(&gone, layer, |engine| {
            let free = |pair: PairId| engine.tree.available(node, pair, layer).max(0);
            let pairs =
                usage.iter().filter(|(pair, need)| *need > free(*pair)).map(|(pair, _)| *pair).collect();
            let stand = plan.judgement.stand.footprint(&mut engine.topology);
            Lacking { pairs, places: !engine.topology.can_take(&stand, layer) }
        })
    }

    fn replaced(&self, workload: &Workload) -> Option<&super::ledger::Holder> {
        workload.replaces.as_ref().and_then(|old| self.holders.get(old)).map(|holder| &**holder)
    }

    /// What stands in the plan for the workload itself: room kept for it, and the slice that it takes over from.
    pub(super) fn own_in_plan(&self, workload: &Workload) -> Vec<Portion> {
        let old = self.replaced(workload).filter(|old| !old.leaves());
        self.kept_for(&workload.key).into_iter().chain(old.map(Portion::by)).collect()
    }

    /// Charges an assignment.
    pub(super) fn admit(&mut self, workload: &Workload, plan: &Plan) -> Outcome {
        let queue = self.queues.get(&workload.cluster_queue);
        let assignment =
            queue.map(|queue| plan.judgement.assignment(queue, &workload.cluster_queue, &plan.pod_sets));
        let Some(assignment) = assignment else {
            return skipped("The ClusterQueue is gone");
        };
        // Sums beyond what an amount can say count as unlimited.
        let held = |(pair, amount): &(PairId, i128)| (*pair, Amount::from_wide(*amount).wide());
        let usage: Usage = plan.judgement.usage.iter().map(held).collect();
        let charge = Charge {
            cluster_queue: Arc::clone(&workload.cluster_queue),
            usage: self.tree.named(usage.iter().copied()),
            uid: Arc::clone(&workload.uid),
            local_queue: Arc::clone(&workload.local_queue),
            priority: workload.priority,
            reserved_at: None,
            evicted: false,
            deactivated: false,
            queued_since: workload.queued_since,
            variant: workload.variant.clone(),
            topology: plan.judgement.stand.occupancies(),
        };
        if let Some(old) = &workload.replaces {
            self.release(&old.clone());
        }
        self.penalise(workload, &charge);
        self.charge_usage(&workload.key, charge, usage);
        Outcome::Admitted(assignment)
    }

    /// Keeps what a head that waits for evictions could claim from the others of this cycle; of a queue in debt, nothing.
    fn claim(&mut self, entry: &Entry, claim: &Claim, turn: &mut Turn) {
        let (node, root) = (entry.node, self.root_of(entry));
        let amount = |(pair, need): &(PairId, i128)| {
            let own = self.tree.nominal(node, *pair) - self.tree.used(node, *pair, Layer::Planned);
            let amount = match (claim.borrows, self.tree.borrowing_limit(node, *pair)) {
                (0, _) => (*need).min(own),
                (_, None) => *need,
                (_, Some(limit)) => (*need).min(own + limit),
            };
            (*pair, amount.max(0))
        };
        let usage: Usage = claim.usage.iter().map(amount).collect();
        let taken = Portion { node, usage, stand: Arc::clone(&claim.stand) };
        self.shift(&taken, 1, Layer::Planned);
        turn.reserved.push(taken);
        if self.strategy(&entry.queue) == QueueingStrategy::StrictFIFO {
            turn.claims.entry(root).or_default().insert(Arc::clone(&entry.queue));
        } else {
            turn.moved.insert(root);
        }
    }

    pub(super) fn root_of(&self, entry: &Entry) -> NodeId {
        self.tree.root(entry.node)
    }

    /// Root of the tree that a queue is in.
    pub(super) fn root(&self, queue: &str) -> Option<NodeId> {
        self.queues.get(queue).map(|queue| self.tree.root(queue.node))
    }

    fn strategy(&self, queue: &str) -> QueueingStrategy {
        self.queues.get(queue).map(|queue| queue.config.strategy).unwrap_or_default()
    }

    pub(super) fn reclaim_policy(&self, queue: &str) -> ReclaimPolicy {
        self.queues
            .get(queue)
            .and_then(|queue| queue.config.preemption.reclaim_within_cohort)
            .unwrap_or_default()
    }
}

pub(super) fn skipped(text: &str) -> Outcome {
    Outcome::Skipped(Arc::new(Verdict::plain(PendingReason::WaitingForQuota, text)))
}
