//! Room that is kept: what victims free belongs to the workload that they were evicted for.
//!
//! Invariants (I19, I20): in the plan of the quota tree victims are gone and those for whom they go are in, from the
//! decision until the newcomer is admitted, gives up, or has waited too long. Everyone else is judged in the plan, so that
//! nobody takes what is kept and nobody is evicted twice for the same. Earmarks come from decisions of this engine alone,
//! never from conditions found on objects.

use super::cycle::Lacking;
use super::decision::{Outcome, PreemptionReason, Victim};
use super::engine::{Engine, negated};
use super::nominate::{Entry, Plan};
use super::topology::Portion;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::queue::{Parked, Verdict, Waits};
use crate::quota::{FlavorResource, Layer, NodeId, Usage};
use crate::resources::Amount;
use crate::topology::Footprint;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// After so long without success the workload is judged anew, as if nothing had been kept for it.
const PATIENCE: SignedDuration = SignedDuration::from_mins(30);

/// Room that is kept for one workload.
#[derive(Clone, Debug)]
pub(super) struct Earmark {
    pub(super) node: NodeId,
    pub(super) usage: Usage,
    /// Room on nodes.
    pub(super) stand: Arc<Footprint>,
    pub(super) since: Timestamp,
    /// Those who must go for it, and why.
    pub(super) victims: BTreeMap<ObjectKey, PreemptionReason>,
    /// What is said of the workload meanwhile.
    pub(super) verdict: Arc<Verdict>,
}

/// Why a workload that holds quota must go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// The workload that it makes room for.
    pub preemptor: ObjectKey,
    /// The victim with the reason and both paths.
    pub victim: Victim,
}

impl Engine {
    /// Keeps room for a pending workload; its victims are gone in the plan from now on.
    pub(super) fn earmark(&mut self, key: &ObjectKey, earmark: Earmark) {
        // Nothing is free before the victims are gone in fact: only then is there anybody to wake.
        for victim in earmark.victims.keys() {
            let holder = self.holders.set_leaving(victim, Some(key.clone()));
            if let Some(holder) = holder.filter(|holder| !holder.leaves()) {
                self.tree.hold(holder.node, &negated(&holder.usage), &[Layer::Planned]);
                self.topology.shift(&holder.stand, -1, Layer::Planned);
            }
        }
        self.tree.hold(earmark.node, &earmark.usage, &[Layer::Planned]);
        self.topology.shift(&earmark.stand, 1, Layer::Planned);
        self.oldest_earmark = Some(self.oldest_earmark.map_or(earmark.since, |old| old.min(earmark.since)));
        self.earmarks.insert(key.clone(), earmark);
    }

    /// It fits once those are gone who must go already: room is kept, and quota given when it is free in fact.
    pub(super) fn wait_for_room(
        &mut self,
        entry: &Entry,
        plan: &Plan,
        lacking: Lacking,
        now: Timestamp,
    ) -> Outcome {
        let text = "The quota is being freed by workloads that were preempted or deactivated";
        let verdict = Arc::new(Verdict::plain(PendingReason::WaitingForPreemptedWorkloads, text));
        let verdict = self.keep_room(entry, plan, lacking, verdict, BTreeMap::new(), now);
        Outcome::Pending(verdict)
    }

    /// Keeps room for a workload that lacks some of it in fact, beside what is kept for it already.
    pub(super) fn keep_room(
        &mut self,
        entry: &Entry,
        plan: &Plan,
        lacking: Lacking,
        verdict: Arc<Verdict>,
        victims: BTreeMap<ObjectKey, PreemptionReason>,
        now: Timestamp,
    ) -> Arc<Verdict> {
        let Some(node) = self.queues.get(&entry.queue).map(|queue| queue.node) else {
            return verdict;
        };
        let usage = &plan.judgement.usage;
        let stand = plan.judgement.stand.footprint(&mut self.topology);
        let waits = self.until_free(entry, plan, lacking);
        let known = self.earmarks.get(entry.key()).filter(|known| known.node == node);
        if let Some(known) = known.filter(|known| known.usage == *usage && victims.is_empty()) {
            let (verdict, before) = (Arc::clone(&known.verdict), Arc::clone(&known.stand));
            self.move_earmark(entry.key(), &before, stand);
            self.park_until(entry.key(), &verdict, waits);
            return verdict;
        }
        let old = self.cancel_earmark(entry.key());
        let since = old.as_ref().map_or(now, |old| old.since);
        let before = old.map(|old| old.victims).unwrap_or_default();
        let victims = before.into_iter().chain(victims).collect();
        let (usage, verdict_kept) = (usage.clone(), Arc::clone(&verdict));
        let earmark = Earmark { node, usage, stand, since, victims, verdict: verdict_kept };
        self.earmark(entry.key(), earmark);
        self.park_until(entry.key(), &verdict, waits);
        verdict
    }

    /// Keeps other places. Room on nodes stays where it is while it can, and moves to what is free: two who make way for each
    /// other would never come to an end.
    fn move_earmark(&mut self, key: &ObjectKey, before: &Footprint, stand: Arc<Footprint>) {
        if self.topology.can_stay(before, &stand) {
            return;
        }
        self.stand(before, -1, &[Layer::Planned]);
        self.topology.shift(&stand, 1, Layer::Planned);
        if let Some(earmark) = self.earmarks.get_mut(key) {
            earmark.stand = stand;
        }
    }

    /// How one waits for whom room is kept: until what it lacks of it is free in fact, or something is given back where
    /// there are other flavors: it may fit elsewhere before its victims are gone.
    fn until_free(&self, entry: &Entry, plan: &Plan, lacking: Lacking) -> Waits {
        let all = lacking.is_empty();
        let judgement = &plan.judgement;
        let any = if all { judgement.usage.iter().map(|(pair, _)| *pair).collect() } else { lacking.pairs };
        let places = if all || lacking.places { judgement.stand.flavors() } else { BTreeSet::new() };
        let groups = self.queues.get(&entry.queue).into_iter().flat_map(|queue| &queue.groups);
        let choices = groups.filter(|group| group.flavors.len() > 1).flat_map(|group| &group.flavors);
        let freed = choices.flat_map(|flavor| flavor.pairs.iter().copied()).collect();
        Waits { tree: Some(self.root_of(entry)), any, freed, places, ..Waits::default() }
    }

    /// What is kept for a workload, if anything is.
    pub(super) fn kept_for(&self, key: &ObjectKey) -> Vec<Portion> {
        self.earmarks.get(key).map(Portion::kept).into_iter().collect()
    }

    /// Parks a workload by itself.
    fn park_until(&mut self, key: &ObjectKey, verdict: &Arc<Verdict>, waits: Waits) {
        let queue = self.pending.workload(key).map(|workload| Arc::clone(&workload.cluster_queue));
        if let (Some(queue), Some(class)) = (queue, self.pending.single_out(key)) {
            self.pending.park(&queue, class, verdict, Parked { aside: false, claim: None, waits });
        }
    }

    /// Gives up what is kept for a workload. Victims that still hold their quota are in the plan again, unless they leave anyway.
    pub(super) fn cancel_earmark(&mut self, key: &ObjectKey) -> Option<Earmark> {
        let earmark = self.earmarks.remove(key)?;
        self.hold(earmark.node, &negated(&earmark.usage), &[Layer::Planned]);
        self.stand(&earmark.stand, -1, &[Layer::Planned]);
        for victim in earmark.victims.keys() {
            let leaves =
                self.holders.get(victim).is_some_and(|holder| holder.leaves_for.as_ref() == Some(key));
            if let Some(holder) = leaves.then(|| self.holders.set_leaving(victim, None)).flatten() {
                self.taken.remove(key, victim);
                if holder.charge.deactivated {
                    continue;
                }
                self.hold(holder.node, &holder.usage, &[Layer::Planned]);
                self.stand(&holder.stand, 1, &[Layer::Planned]);
            }
        }
        self.pending.rejoin(key);
        Some(earmark)
    }

    /// Nothing is kept for those who wait in a queue that admits nothing.
    pub(super) fn cancel_earmarks_of(&mut self, queue: &str) {
        let of = |key: &&ObjectKey| self.pending.workload(key).is_some_and(|w| *w.cluster_queue == *queue);
        let keys: Vec<ObjectKey> = self.earmarks.keys().filter(of).cloned().collect();
        for key in keys {
            self.cancel_earmark(&key);
        }
    }

    /// Lets go of earmarks that are too old; those workloads are judged anew.
    pub fn expire_earmarks(&mut self, now: Timestamp) {
        if self.next_expiry().is_none_or(|time| time > now) {
            return;
        }
        let old = |earmark: &Earmark| now.duration_since(earmark.since) >= PATIENCE;
        let keys: Vec<ObjectKey> =
            self.earmarks.iter().filter(|(_, earmark)| old(earmark)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.cancel_earmark(&key);
        }
        self.oldest_earmark = self.earmarks.values().map(|earmark| earmark.since).min();
    }

    /// When the next earmark is too old: not later than that.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.oldest_earmark.filter(|_| !self.earmarks.is_empty())?.checked_add(PATIENCE).ok()
    }

    /// Room that is kept: for which workload, of which ClusterQueue, and how much.
    pub fn kept(&self) -> impl Iterator<Item = (&ObjectKey, Arc<str>, BTreeMap<FlavorResource, Amount>)> {
        self.earmarks.iter().map(move |(key, earmark)| {
            let queue = self.tree.name(earmark.node).map(|name| Arc::from(name.as_str()));
            (key, queue.unwrap_or_default(), self.tree.named(earmark.usage.iter().copied()))
        })
    }

    /// For whom and why a workload that holds quota must go.
    pub fn preemption_of(&self, key: &ObjectKey) -> Option<Preemption> {
        let holder = self.holders.get(key)?;
        let preemptor = holder.leaves_for.clone()?;
        let earmark = self.earmarks.get(&preemptor)?;
        let reason = *earmark.victims.get(key)?;
        let victim = Victim {
            key: key.clone(),
            uid: Arc::clone(&holder.charge.uid),
            reason,
            preemptor_path: Arc::from(self.tree.path_of(earmark.node)),
            preemptee_path: Arc::from(self.tree.path_of(holder.node)),
        };
        Some(Preemption { preemptor, victim })
    }
}
