//! A second pass: a workload that holds its quota is given places on nodes that it could not be given before, or others
//! instead of nodes that have failed.
//!
//! Invariants: only one that holds its quota, as the same object, and is neither on its way out nor asked to go is ever
//! taken (I13), and that is looked at when its turn comes; quota is not asked for again, and of places only those that it
//! does not have yet; two workloads never take the same place in one cycle. Victims are chosen as if the workload came now
//! and asked for what it holds: a second pass has no right that a first pass would not have.

use super::config::Charge;
use super::cycle::Turn;
use super::decision::{Assignment, Decision, Outcome, PreemptionReason, Topology};
use super::earmarks::Earmark;
use super::engine::Engine;
use super::fit::{Asker, Mode};
use super::ledger::Holder;
use super::preemption::{Preemptor, Target};
use super::topology::{Portion, Stand};
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::api::v1beta2::ReclaimPolicy;
use crate::queue::{Verdict, Workload};
use crate::quota::{Layer, PairId, Usage};
use crate::topology::{Footprint, Part, Refused, View};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A workload that holds quota and is due for a second pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Again {
    /// The workload with its pods as they are to be placed: what checks add to them is in.
    pub workload: Workload,
    /// What it was granted.
    pub granted: Assignment,
    /// Nodes of its assignment that have failed.
    pub unhealthy: Vec<String>,
    /// Whether it is a pod that cannot move: it keeps the place that it has.
    pub pinned: bool,
}

/// What was found for one of them.
enum Found {
    /// Places for all of its pods.
    Places(Stand),
    /// Places once these are gone.
    Evictions(Stand, Vec<Target>),
    /// None.
    Nothing(Unplaced),
}

/// A pass that found neither places nor victims.
#[derive(Default)]
struct Unplaced {
    why: String,
    /// The places of empty nodes that it was judged with, where victims could have helped.
    wanted: Option<Arc<Footprint>>,
}

impl From<&str> for Found {
    fn from(why: &str) -> Self {
        Self::Nothing(Unplaced { why: why.to_owned(), wanted: None })
    }
}

impl Engine {
    /// Has a workload that holds quota judged in the next cycle.
    pub fn second_pass(&mut self, again: Again) {
        self.due.insert(again.workload.key.clone(), again);
    }

    /// Judges those that are due, as things stand at the start of a cycle.
    pub(super) fn judge_due(&mut self) -> Vec<(Again, Option<FoundAgain>)> {
        let mut due: Vec<Again> = std::mem::take(&mut self.due).into_values().collect();
        due.sort_by_key(|again| {
            let workload = &again.workload;
            (Reverse(workload.priority), workload.queued_since, workload.key.clone())
        });
        due.into_iter()
            .map(|again| {
                let found = self.holder_of(&again).map(|holder| FoundAgain(self.find_again(&again, &holder)));
                (again, found)
            })
            .collect()
    }

    /// What the workload holds, if it still is the one that was meant and stays.
    fn holder_of(&self, again: &Again) -> Option<Arc<Holder>> {
        let holder = self.holders.get(&again.workload.key)?;
        let same = holder.charge.uid == again.workload.uid
            && holder.charge.cluster_queue == again.granted.cluster_queue;
        let stays = !holder.charge.evicted && !holder.leaves();
        (same && stays).then(|| Arc::clone(holder))
    }

    fn find_again(&mut self, again: &Again, holder: &Holder) -> Found {
        if let Some(obstacle) = &again.workload.obstacle {
            return Found::from(&*obstacle.to_string());
        }
        if self.inactive_reason(&holder.charge.cluster_queue).is_some() {
            return Found::from("the ClusterQueue is inactive");
        }
        let mut stand = self.parts_of(again);
        if stand.parts.is_empty() {
            return Found::Places(stand);
        }
        let rules = self.settings.gates.placement;
        self.without(&self.kept_for(&holder.key), Layer::Planned, |engine| {
            match engine.topology.place_soonest(&stand.parts, rules) {
                Ok(placements) => {
                    stand.set_placements(placements);
                    Found::Places(stand)
                }
                Err(refused) if !again.unhealthy.is_empty() => {
                    engine.nothing(&stand, &refused, View::Planned)
                }
                Err(_) => engine.find_with_evictions(again, holder, stand),
            }
        })
    }

    fn nothing(&mut self, stand: &Stand, (at, refusal): &Refused, view: View) -> Found {
        let rules = self.settings.gates.placement;
        let part = stand.parts.get(*at);
        let why = part.map(|part| self.topology.explain(part, refusal, view, rules)).unwrap_or_default();
        Found::Nothing(Unplaced { why, wanted: None })
    }

    /// Whether the pods would have places if others went.
    fn find_with_evictions(&mut self, again: &Again, holder: &Holder, mut stand: Stand) -> Found {
        let rules = self.settings.gates.placement;
        match self.topology.place_all(&stand.parts, View::Empty, rules) {
            Err(refused) => return self.nothing(&stand, &refused, View::Empty),
            Ok(placements) => stand.set_placements(placements),
        }
        let Some(targets) = self.victims_for(again, holder, &stand.parts) else {
            return Found::from("the ClusterQueue is gone");
        };
        if targets.is_empty() {
            let found = match self.topology.place_all(&stand.parts, View::Planned, rules) {
                Err(refused) => self.nothing(&stand, &refused, View::Planned),
                Ok(_) => Found::from(""),
            };
            let wanted = Some(stand.footprint(&mut self.topology));
            return match found {
                Found::Nothing(unplaced) => Found::Nothing(Unplaced { wanted, ..unplaced }),
                other => other,
            };
        }
        let place = |engine: &mut Self| engine.topology.place_all(&stand.parts, View::Planned, rules);
        let placements = self.without(&Portion::of(&targets), Layer::Planned, place);
        stand.set_placements(placements.unwrap_or_default());
        Found::Evictions(stand, targets)
    }

    /// Workloads that must go for the pods to have places; none if there is no such choice, and no answer if the queue is
    /// gone. What the workload holds is taken out and asked for again. Left in, or not asked for, it would make a queue that
    /// borrows look like one that takes back its own, and victims would go that the queue's policy protects.
    fn victims_for(&mut self, again: &Again, holder: &Holder, parts: &[Part]) -> Option<Vec<Target>> {
        let own = Portion { node: holder.node, usage: holder.usage.clone(), stand: Arc::default() };
        self.without(&[own], Layer::Planned, |engine| {
            let mut short = engine.placed_pairs(holder, parts);
            let (mut field, queue, _) = engine.field(&holder.charge.cluster_queue, &holder.key)?;
            // A workload whose priority was raised would be its own victim.
            let mut barred = field.barred.cloned().unwrap_or_default();
            barred.insert(holder.key.clone());
            field.barred = Some(&barred);
            let (priority, queued_since) = (again.workload.priority, again.workload.queued_since);
            let asker = Asker { queue, priority, queued_since };
            for (pair, need) in &holder.usage {
                match field.grade(&asker, *pair, *need).mode {
                    Mode::NoFit => return Some(Vec::new()),
                    mode if mode.needs_room() && !short.contains(pair) => short.push(*pair),
                    _ => {}
                }
            }
            let usage = &holder.usage;
            Some(field.targets(&Preemptor { queue, priority, queued_since, usage, short: &short, parts }))
        })
    }

    /// What the workload holds of the flavors on whose nodes it needs places.
    fn placed_pairs(&self, holder: &Holder, parts: &[Part]) -> Vec<PairId> {
        let flavors: BTreeSet<&Arc<str>> = parts.iter().map(|part| &part.flavor).collect();
        let placed =
            |pair: &PairId| self.tree.pair_name(*pair).is_some_and(|name| flavors.contains(&name.flavor));
        holder.usage.iter().map(|(pair, _)| *pair).filter(placed).collect()
    }

    /// Pods that lack a place.
    fn parts_of(&self, again: &Again) -> Stand {
        let mut stand = Stand::default();
        let elsewhere =
            self.queues.get(&again.granted.cluster_queue).is_some_and(|q| q.config.placed_elsewhere);
        for (at, granted) in again.granted.pod_sets.iter().enumerate() {
            let sets = &again.workload.pod_sets;
            let Some(set) = sets.iter().find(|set| set.name == granted.name) else { continue };
            let topology =
                |name: &&Arc<str>| self.flavors.get(*name).is_some_and(|f| f.topology_name.is_some());
            let Some(flavor) = granted.flavors.values().find(topology) else { continue };
            let (keeps, group) = match &granted.topology {
                Topology::Delayed if !elsewhere => (None, set.group.clone()),
                Topology::Placed(placement)
                    if !again.pinned && again.unhealthy.iter().any(|node| placement.names_host(node)) =>
                {
                    (Some((placement.clone(), again.unhealthy.clone())), None)
                }
                _ => continue,
            };
            stand.members.push(at);
            let (flavor, pods) = (Arc::clone(flavor), Arc::clone(&set.pods));
            stand.parts.push(Part { flavor, pods, count: granted.count, group, keeps });
        }
        stand
    }

    /// Carries out what was found, unless somebody of this cycle was faster.
    pub(super) fn process_due(
        &mut self,
        again: &Again,
        found: FoundAgain,
        turn: &mut Turn,
    ) -> Option<Decision> {
        let holder = self.holder_of(again)?;
        let stale = match &found.0 {
            Found::Places(stand) => !self.has_places(stand, &holder.key),
            Found::Evictions(_, targets) => targets.iter().any(|t| turn.victims.contains(t.key())),
            Found::Nothing(_) => false,
        };
        let found = if stale { self.find_again(again, &holder) } else { found.0 };
        let outcome = match found {
            Found::Places(stand) => self.settle_places(again, &holder, &stand, turn),
            Found::Evictions(stand, targets)
                if !targets.iter().any(|target| turn.victims.contains(target.key())) =>
            {
                self.make_room(&holder, &stand, &targets, turn)
            }
            Found::Evictions(..) => unplaced("others of this cycle evict the same workloads"),
            Found::Nothing(Unplaced { why, .. })
                if !again.unhealthy.is_empty() && self.settings.gates.fail_fast =>
            {
                Outcome::NodesFailed(Arc::from(format!(
                    "Workload was evicted as there was no replacement for unhealthy node(s): {}{}{why}",
                    again.unhealthy.join(", "),
                    if why.is_empty() { "" } else { "; " },
                )))
            }
            Found::Nothing(Unplaced { why, wanted }) => {
                if let Some(wanted) = wanted {
                    self.keep_places(&holder, wanted, turn);
                }
                unplaced(&why)
            }
        };
        Some(Decision { key: holder.key.clone(), uid: Arc::clone(&holder.charge.uid), outcome })
    }

    /// Keeps the places that a pass waits for from the rest of its cycle: a workload that is judged after it would take what
    /// is left there, and be evicted for it later. A queue that may take everything back keeps nothing.
    fn keep_places(&mut self, holder: &Holder, wanted: Arc<Footprint>, turn: &mut Turn) {
        if self.reclaim_policy(&holder.charge.cluster_queue) == ReclaimPolicy::Any {
            return;
        }
        let kept = Portion { node: holder.node, usage: Usage::new(), stand: wanted };
        self.shift(&kept, 1, Layer::Planned);
        turn.reserved.push(kept);
        turn.kept_for_passes = true;
    }

    /// Whether the places that were found are still free in the plan.
    fn has_places(&mut self, stand: &Stand, key: &ObjectKey) -> bool {
        let wanted = stand.footprint(&mut self.topology);
        let free = |engine: &mut Self| engine.topology.can_take(&wanted, Layer::Planned);
        self.without(&self.kept_for(key), Layer::Planned, free)
    }

    /// Gives the places, if they are free in fact.
    fn settle_places(&mut self, again: &Again, holder: &Holder, stand: &Stand, turn: &mut Turn) -> Outcome {
        let wanted = stand.footprint(&mut self.topology);
        if !self.topology.can_take(&wanted, Layer::Held) {
            return unplaced("The places are being freed by workloads that were preempted");
        }
        let mut granted = again.granted.clone();
        for (at, set) in granted.pod_sets.iter_mut().enumerate() {
            if let placed @ Topology::Placed(_) = stand.of(at) {
                set.topology = placed;
            }
        }
        let mut topology = stand.occupancies();
        topology.extend(self.unmoved(again, stand));
        let charge = Charge { topology, ..(*holder.charge).clone() };
        // What it holds moves when the cycle is over: until then nobody counts on the places that it leaves, where pods may
        // still be ending, nor on those that it was just given.
        self.topology.shift(&wanted, 1, Layer::Held);
        self.topology.shift(&wanted, 1, Layer::Planned);
        turn.placed.push((holder.key.clone(), charge, wanted));
        Outcome::Placed(granted)
    }

    /// Has those that were given places hold them.
    pub(super) fn confirm_places(&mut self, placed: Vec<(ObjectKey, Charge, Arc<Footprint>)>) {
        for (key, charge, places) in placed {
            self.topology.shift(&places, -1, Layer::Held);
            self.topology.shift(&places, -1, Layer::Planned);
            self.charge(&key, charge);
        }
    }

    /// Places of pod sets that stay where they are.
    fn unmoved(&self, again: &Again, stand: &Stand) -> Vec<crate::topology::Occupancy> {
        let mut all = Vec::new();
        for (at, granted) in again.granted.pod_sets.iter().enumerate() {
            let set = again.workload.pod_sets.iter().find(|set| set.name == granted.name);
            let (Topology::Placed(placement), Some(set)) = (&granted.topology, set) else { continue };
            if stand.members.contains(&at) {
                continue;
            }
            let topology =
                |name: &&Arc<str>| self.flavors.get(*name).is_some_and(|f| f.topology_name.is_some());
            let flavors: BTreeSet<&Arc<str>> = granted.flavors.values().filter(topology).collect();
            all.extend(flavors.into_iter().map(|flavor| crate::topology::Occupancy {
                flavor: Arc::clone(flavor),
                placement: placement.clone(),
                each: set.pods.requests.clone(),
            }));
        }
        all
    }

    /// Decides that others must go, and keeps the places.
    fn make_room(&mut self, holder: &Holder, stand: &Stand, targets: &[Target], turn: &mut Turn) -> Outcome {
        turn.victims.extend(targets.iter().map(|target| target.key().clone()));
        let text = format!("Pending the preemption of {} workload(s)", targets.len());
        let verdict = Arc::new(Verdict::plain(PendingReason::WaitingForPreemptedWorkloads, &text));
        let old = self.cancel_earmark(&holder.key);
        let since = old.as_ref().map_or(turn.now, |old| old.since);
        let before = old.map(|old| old.victims).unwrap_or_default();
        let fresh: BTreeMap<ObjectKey, PreemptionReason> =
            targets.iter().map(|target| (target.key().clone(), target.reason)).collect();
        let earmark = Earmark {
            node: holder.node,
            usage: Usage::new(),
            stand: stand.footprint(&mut self.topology),
            since,
            victims: before.into_iter().chain(fresh).collect(),
            verdict: Arc::clone(&verdict),
        };
        self.earmark(&holder.key, earmark);
        let victims = targets.iter().filter_map(|target| self.preemption_of(target.key()));
        Outcome::Preempting(verdict, victims.map(|preemption| preemption.victim).collect())
    }
}

/// What was found, to be carried out later in the same cycle.
pub(super) struct FoundAgain(Found);

fn unplaced(why: &str) -> Outcome {
    Outcome::Unplaced(Arc::new(Verdict::plain(PendingReason::TopologyPlacementFailed, why)))
}
