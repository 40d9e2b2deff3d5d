//! Places on nodes in judging: which pods need one, whether they find one in the plan, and what that means.
//!
//! Nothing is decided here. What a workload holds on nodes moves with its quota, in the same two layers: in fact, and in
//! the plan where victims are gone and those for whom they go are in.

use super::assign::{Judgement, Pick, Question, plain_blocker};
use super::compiled::{Group, Queue};
use super::config::Flavor;
use super::decision::Topology;
use super::earmarks::Earmark;
use super::engine::Engine;
use super::fit::Mode;
use super::ledger::Holder;
use super::preemption::{Field, Target};
use crate::api::reason::PendingReason;
use crate::api::v1beta2::ReclaimPolicy;
use crate::queue::{BlockerKind, PodSet};
use crate::quota::{Layer, NodeId, Usage};
use crate::topology::{
    Cluster, FlavorSpec, Footprint, NodeSpec, Occupancy, Part, Path, Placement, Refused, View,
};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Pods of a workload that need a place, and where they would go.
#[derive(Clone, Debug, Default)]
pub(super) struct Stand {
    pub(super) parts: Vec<Part>,
    /// Place of the pod set of each part.
    pub(super) members: Vec<usize>,
    /// By part, once they were found.
    placements: Vec<Placement>,
    /// Pod sets that get their place later.
    pub(super) delayed: BTreeSet<usize>,
    /// What they take beside what they have already, once somebody asked.
    footprint: OnceCell<Arc<Footprint>>,
}

impl Stand {
    /// Where the pods of a pod set go.
    pub(super) fn of(&self, pod_set: usize) -> Topology {
        let part = self.members.iter().position(|member| *member == pod_set);
        match part.and_then(|part| self.placements.get(part)) {
            Some(placement) => Topology::Placed(placement.clone()),
            None if self.delayed.contains(&pod_set) => Topology::Delayed,
            None => Topology::Free,
        }
    }

    /// What they take on nodes.
    pub(super) fn occupancies(&self) -> Vec<Occupancy> {
        let pairs = self.parts.iter().zip(&self.placements);
        pairs.map(|(part, placement)| part.occupancy(placement.clone())).collect()
    }

    /// Places for all parts were found, or others than before.
    pub(super) fn set_placements(&mut self, placements: Vec<Placement>) {
        (self.placements, self.footprint) = (placements, OnceCell::new());
    }

    /// What they take beside what they have already.
    pub(super) fn footprint(&self, cluster: &mut Cluster) -> Arc<Footprint> {
        let footprint = self.footprint.get_or_init(|| {
            let pairs = self.parts.iter().zip(&self.placements);
            let new = pairs.map(|(part, placement)| part.occupancy(part.newly(placement)));
            Arc::new(cluster.footprint(&new.collect::<Vec<Occupancy>>()))
        });
        Arc::clone(footprint)
    }

    /// Flavors on whose nodes they go.
    pub(super) fn flavors(&self) -> BTreeSet<Arc<str>> {
        self.parts.iter().map(|part| Arc::clone(&part.flavor)).collect()
    }
}

/// Why a flavor does not suit pods for the sake of topology, if so.
pub(super) fn mismatch<'a>(
    field: &Field,
    question: &Question,
    name: &Arc<str>,
    group: &Group,
    mut sets: impl Iterator<Item = &'a PodSet>,
) -> Option<String> {
    if !field.settings.gates.topology {
        return None;
    }
    let has_topology = |name: &str| question.flavors.get(name).is_some_and(|f| f.topology_name.is_some());
    let mut all = question.queue.groups.iter().flat_map(|group| &group.flavors);
    let all_topology = all.all(|flavor| has_topology(&flavor.name));
    let topology = has_topology(name);
    let why = |set: &PodSet| match (set.pods.is_explicit(), topology) {
        (true, true) if field.topology.lacks_level(name, &set.pods) => {
            Some(format!("flavor {name} does not contain the requested level"))
        }
        // A group of resources that no node has is quota alone: where the pods go is no matter of its flavors.
        (true, false) if set.pods.requests.keys().any(|resource| group.position(resource).is_some()) => {
            Some(format!("flavor {name} does not support topology-aware scheduling"))
        }
        (false, true) if !all_topology => {
            Some(format!("flavor {name} supports only topology-aware scheduling"))
        }
        _ => None,
    };
    sets.find_map(why)
}

/// Flavors with a topology that a pod set was given; one without requests has those of its group.
fn flavors_of<'a>(
    pick: &Pick,
    set: &PodSet,
    queue: &'a Queue,
    flavors: &BTreeMap<Arc<str>, Flavor>,
) -> BTreeSet<&'a Arc<str>> {
    let of = |own: bool| {
        let given = pick.flavors.iter().filter_map(|(group, flavor)| {
            let group = queue.groups.get(*group)?;
            let asks = set.requests.keys().any(|resource| group.position(resource).is_some())
                || group.position("pods").is_some();
            (asks || !own).then(|| group.flavors.get(*flavor).map(|flavor| &flavor.name)).flatten()
        });
        let has_topology = |name: &&Arc<str>| flavors.get(*name).is_some_and(|f| f.topology_name.is_some());
        given.filter(has_topology).collect::<BTreeSet<_>>()
    };
    if set.requests.is_empty() { of(false) } else { of(true) }
}

/// The pods of an assignment that need a place.
fn stand_of(question: &Question, picks: &[Pick]) -> Result<Stand, (usize, &'static str)> {
    let mut stand = Stand::default();
    let config = &question.queue.config;
    for pick in picks {
        for at in &pick.members {
            let Some(set) = question.pod_sets.get(*at) else { continue };
            let mut flavors = flavors_of(pick, set, question.queue, question.flavors).into_iter();
            let flavor = match (flavors.next(), flavors.next()) {
                (None, _) if set.pods.is_explicit() => {
                    return Err((*at, "no flavor with a topology assigned"));
                }
                (None, _) => continue,
                (Some(flavor), None) => flavor,
                (Some(_), Some(_)) => return Err((*at, "more than one flavor with a topology assigned")),
            };
            if set.count <= 0 {
                continue;
            }
            if config.placed_elsewhere || config.provisioned_flavors.contains(flavor) {
                stand.delayed.insert(*at);
                continue;
            }
            stand.members.push(*at);
            stand.parts.push(Part {
                flavor: Arc::clone(flavor),
                pods: Arc::clone(&set.pods),
                count: set.count,
                group: set.group.clone(),
                keeps: None,
            });
        }
    }
    Ok(stand)
}

/// Looks for places for the pods of an assignment. Where there are none now, it becomes a matter of evictions; where there
/// would be none without any workload either, it does not fit.
pub(super) fn place(field: &mut Field, question: &Question, judgement: &mut Judgement) {
    if !field.settings.gates.topology || judgement.mode == Mode::NoFit {
        return;
    }
    match stand_of(question, &judgement.picks) {
        Ok(stand) => judgement.stand = stand,
        Err((at, why)) => {
            refuse(question, judgement, at, why);
            (judgement.mode, judgement.reason) = (Mode::NoFit, PendingReason::TopologyPlacementFailed);
        }
    }
    if judgement.stand.parts.is_empty() {
        return;
    }
    let rules = field.settings.gates.placement;
    match field.topology.place_soonest(&judgement.stand.parts, rules) {
        Ok(placements) if judgement.mode == Mode::Fit => {
            judgement.stand.set_placements(placements);
            return;
        }
        // Quota has to come first: what becomes of places meanwhile does not matter.
        Ok(_) => {}
        Err(refused) => {
            if judgement.mode == Mode::Fit {
                explain(field, question, judgement, &refused, View::Planned);
            }
            judgement.waits.places = judgement.stand.flavors();
            if let Err(refused) = field.topology.place_all(&judgement.stand.parts, View::Empty, rules) {
                explain(field, question, judgement, &refused, View::Empty);
                (judgement.mode, judgement.reason) = (Mode::NoFit, PendingReason::TopologyPlacementFailed);
                return;
            }
        }
    }
    judgement.mode = judgement.mode.min(Mode::Preempt);
    let flavors = judgement.stand.flavors();
    for (pair, _) in &judgement.usage {
        let placed = field.tree.pair_name(*pair).is_some_and(|name| flavors.contains(&name.flavor));
        if placed && !judgement.short.contains(pair) {
            judgement.short.push(*pair);
        }
    }
    if question.queue.may_preempt() {
        judgement.waits.freed.extend(judgement.short.iter().copied());
    }
}

/// Notes why there are no places in a view.
fn explain(
    field: &mut Field,
    question: &Question,
    judgement: &mut Judgement,
    (at, refusal): &Refused,
    view: View,
) {
    let Some(part) = judgement.stand.parts.get(*at) else { return };
    let why = field.topology.explain(part, refusal, view, field.settings.gates.placement);
    let member = judgement.stand.members.get(*at).copied().unwrap_or_default();
    refuse(question, judgement, member, &why);
}

fn refuse(question: &Question, judgement: &mut Judgement, pod_set: usize, why: &str) {
    let name = question.pod_sets.get(pod_set).map(|set| Arc::clone(&set.name)).unwrap_or_default();
    let blocker = plain_blocker(&name, "", "", BlockerKind::Mismatch(Arc::from(why)));
    if !judgement.blockers.contains(&blocker) {
        judgement.blockers.push(blocker);
    }
}

/// Quota and places that somebody takes in the plan.
#[derive(Clone, Debug)]
pub(super) struct Portion {
    pub(super) node: NodeId,
    pub(super) usage: Usage,
    pub(super) stand: Arc<Footprint>,
}

impl Portion {
    /// What a holder takes.
    pub(super) fn by(holder: &Holder) -> Self {
        Self { node: holder.node, usage: holder.usage.clone(), stand: Arc::clone(&holder.stand) }
    }

    /// What victims take.
    pub(super) fn of(targets: &[Target]) -> Vec<Self> {
        targets.iter().map(|target| Self::by(&target.holder)).collect()
    }

    /// What is kept for somebody.
    pub(super) fn kept(earmark: &Earmark) -> Self {
        Self { node: earmark.node, usage: earmark.usage.clone(), stand: Arc::clone(&earmark.stand) }
    }
}

impl Engine {
    /// Sets the levels of a Topology, or removes it.
    pub fn set_topology(&mut self, name: &str, levels: Option<Path>) {
        if self.topology.set_topology(name, levels) {
            let users = self.flavors.iter().filter(|(_, f)| f.topology_name.as_deref() == Some(name));
            let users: Vec<Arc<str>> = users.map(|(flavor, _)| Arc::clone(flavor)).collect();
            self.pending.places_changed(&users);
        }
    }

    /// Sets what is known of a node, or removes it.
    pub fn set_node(&mut self, name: &str, node: Option<NodeSpec>) {
        let touched = self.topology.set_node(name, node);
        self.pending.places_changed(&touched);
    }

    /// Sets what a pod takes of a node that no workload with a topology owns, or removes it.
    pub fn set_pod(
        &mut self,
        key: &crate::api::ObjectKey,
        takes: Option<(Arc<str>, crate::resources::Requests)>,
    ) {
        let touched = self.topology.set_pod(key, takes);
        self.pending.places_changed(&touched);
    }

    /// Nodes and what stands on them.
    pub fn topology(&self) -> &Cluster {
        &self.topology
    }

    /// A flavor is known otherwise: so are its nodes.
    pub(super) fn flavor_changed(&mut self, name: &str) {
        let spec = self.flavors.get(name).and_then(|flavor| {
            let topology = flavor.topology_name.clone().filter(|_| self.settings.gates.topology)?;
            let (node_labels, tolerations) = (flavor.node_labels.clone(), flavor.tolerations.clone());
            Some(FlavorSpec { node_labels, tolerations, topology })
        });
        self.topology.set_flavor(name, spec);
    }

    /// Moves what is taken of nodes and wakes those who wait for room there.
    pub(super) fn stand(&mut self, stand: &Footprint, sign: i128, layers: &[Layer]) {
        if stand.is_empty() {
            return;
        }
        for layer in layers {
            self.topology.shift(stand, sign, *layer);
        }
        if sign < 0 {
            let flavors = self.topology.flavors_of(stand);
            self.pending.places_changed(&flavors);
        }
    }

    /// Tries out what somebody takes, or takes it back.
    pub(super) fn shift(&mut self, taken: &Portion, sign: i128, layer: Layer) {
        self.tree.try_out(taken.node, &taken.usage, sign, layer);
        self.topology.shift(&taken.stand, sign, layer);
    }

    /// Asks a question as if these had nothing.
    pub(super) fn without<T>(
        &mut self,
        gone: &[Portion],
        layer: Layer,
        ask: impl FnOnce(&mut Self) -> T,
    ) -> T {
        for taken in gone {
            self.shift(taken, -1, layer);
        }
        let answer = ask(self);
        for taken in gone {
            self.shift(taken, 1, layer);
        }
        answer
    }

    /// Finds the places that pods will have once victims are gone; without any, those that they would claim of empty nodes.
    pub(super) fn reserve(&mut self, queue: &str, judgement: &mut Judgement, targets: &[Target]) {
        // A queue that may take everything back claims nothing.
        let claims = self.reclaim_policy(queue) != ReclaimPolicy::Any;
        let parts = &judgement.stand.parts;
        if !judgement.mode.needs_room() || parts.is_empty() || (targets.is_empty() && !claims) {
            return;
        }
        let rules = self.settings.gates.placement;
        let view = if targets.is_empty() { View::Empty } else { View::Planned };
        let place = |engine: &mut Self| engine.topology.place_all(parts, view, rules);
        if let Ok(placements) = self.without(&Portion::of(targets), Layer::Planned, place) {
            judgement.stand.set_placements(placements);
        }
    }
}
