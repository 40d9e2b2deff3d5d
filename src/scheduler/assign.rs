//! Flavor assignment: which flavor each pod set gets for each resource, or what stands in the way.
//!
//! Pod sets of one group are judged together, each resource group is given by one flavor, and what earlier pod sets take
//! counts for later ones. Nothing is charged here; evictions are only tried out.

use super::compiled::{Group, Queue};
use super::config::{Flavor, Undeclared};
use super::decision::{Assignment, PodSetAssignment};
use super::fit::{Asker, Grade, Mode};
use super::ledger::Holder;
use super::matching::mismatch;
use super::preemption::Field;
use super::topology::{self, Stand};
use crate::api::reason::PendingReason;
use crate::queue::{Blocker, BlockerKind, Cursor, PodSet, Waits, Workload};
use crate::quota::{PairId, Usage};
use crate::resources::{Amount, Requests};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What judging looks at beside quota.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) workload: &'a Workload,
    /// Its pod sets, perhaps with fewer pods than it asks for.
    pub(super) pod_sets: &'a [PodSet],
    pub(super) queue: &'a Queue,
    pub(super) flavors: &'a BTreeMap<Arc<str>, Flavor>,
    pub(super) cursor: Option<&'a Cursor>,
    /// Flavors found before, to which the search is bound.
    pub(super) bound: Option<&'a [Pick]>,
    /// The slice that the workload takes over from: it keeps its flavors.
    pub(super) replaced: Option<&'a Holder>,
    pub(super) cycle: u64,
}

impl Question<'_> {
    pub(super) fn asker(&self) -> Asker<'_> {
        let workload = self.workload;
        Asker { queue: self.queue, priority: workload.priority, queued_since: workload.queued_since }
    }
}

/// Flavors of pod sets that share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Pick {
    /// Places of the pod sets.
    pub(super) members: Vec<usize>,
    /// Flavor by resource group, both by place.
    pub(super) flavors: Vec<(usize, usize)>,
}

/// What was found for a workload.
#[derive(Clone, Debug)]
pub(super) struct Judgement {
    /// The worst of all its parts.
    pub(super) mode: Mode,
    pub(super) picks: Vec<Pick>,
    pub(super) usage: Usage,
    /// Where somebody would have to go.
    pub(super) short: Vec<PairId>,
    /// Highest level that quota is borrowed from; 0 without borrowing.
    pub(super) borrows: u32,
    /// Where to go on if somebody else is faster.
    pub(super) cursor: Option<Cursor>,
    pub(super) reason: PendingReason,
    pub(super) blockers: Vec<Blocker>,
    pub(super) waits: Waits,
    /// Where the pods go.
    pub(super) stand: Stand,
}

/// Assigns flavors, from the cursor on.
pub(super) fn assign(field: &mut Field, question: &Question) -> Judgement {
    Search::new(field, *question).run()
}

impl Question<'_> {
    /// The cursor, unless it is out of date.
    pub(super) fn fresh_cursor(&self, field: &Field) -> Option<&Cursor> {
        let generation = field.tree.generation(self.queue.node);
        let preserve = field.settings.gates.preserve_scan_progress;
        self.cursor.filter(|c| (preserve && c.cycle + 1 >= self.cycle) || c.generation == generation)
    }
}

/// A requested resource of a group: its place among the covered, and how much.
type Wanted = (usize, Amount);

/// The flavor found for a resource group.
struct Choice {
    index: usize,
    grade: Grade,
    needs: Vec<(PairId, i128, Grade)>,
}

impl Choice {
    /// The worst of its parts. The grade by which flavors are compared may be another's: one that borrows more.
    fn mode(&self) -> Mode {
        self.needs.iter().map(|(_, _, grade)| grade.mode).min().unwrap_or(Mode::Fit)
    }
}

struct Search<'a, 'f> {
    field: &'a mut Field<'f>,
    question: Question<'a>,
    found: Judgement,
    tried: BTreeMap<(Arc<str>, Arc<str>), usize>,
    /// Pairs of groups that were settled while another flavor was possible.
    settled: Vec<PairId>,
}

impl<'a, 'f> Search<'a, 'f> {
    fn new(field: &'a mut Field<'f>, question: Question<'a>) -> Self {
        let tree = field.tree.root(question.queue.node);
        let found = Judgement {
            mode: Mode::Fit,
            picks: Vec::new(),
            usage: Usage::new(),
            short: Vec::new(),
            borrows: 0,
            cursor: None,
            reason: PendingReason::WaitingForQuota,
            blockers: Vec::new(),
            waits: Waits { tree: Some(tree), ..Waits::default() },
            stand: Stand::default(),
        };
        Self { field, question, found, tried: BTreeMap::new(), settled: Vec::new() }
    }

    fn run(mut self) -> Judgement {
        for members in groups(self.question.pod_sets) {
            let first = members.first().and_then(|at| self.question.pod_sets.get(*at)).map(|set| &set.name);
            if let Err(reason) = self.pod_sets(members) {
                (self.found.mode, self.found.reason) = (Mode::NoFit, reason);
                // Pod sets without flavors leave no place to go on from.
                self.tried.retain(|(set, _), _| Some(set) != first);
                break;
            }
        }
        self.found.cursor = self.cursor();
        self.found
    }

    /// Where the search goes on, if there is anything left that was not tried.
    fn cursor(&mut self) -> Option<Cursor> {
        let queue = self.question.queue;
        let rounds = self.question.cursor.map_or(0, |cursor| cursor.rounds) + 1;
        let most: usize = queue.groups.iter().map(|group| group.flavors.len()).sum();
        (!self.tried.is_empty() && rounds <= most).then(|| Cursor {
            tried: std::mem::take(&mut self.tried),
            rounds,
            interrupted: self.question.cursor.is_some_and(|cursor| cursor.interrupted),
            cycle: self.question.cycle,
            generation: self.field.tree.generation(queue.node),
        })
    }

    /// Judges pod sets that share their flavors.
    fn pod_sets(&mut self, members: Vec<usize>) -> Result<(), PendingReason> {
        let queue = self.question.queue;
        let sum = sums(self.question.pod_sets, &members, queue);
        let mut pick = Pick { members, flavors: Vec::new() };
        // The last by name first, as Kueue does: the first group that fails names the reason.
        for (resource, amount) in sum.iter().rev() {
            let Some(group) = queue.groups.iter().position(|group| group.position(resource).is_some()) else {
                if *amount == Amount::ZERO || self.field.settings.undeclared == Undeclared::Ignore {
                    continue;
                }
                let blocker = plain_blocker(&self.names(&pick), "", resource, BlockerKind::Undeclared);
                self.found.blockers.push(blocker);
                return Err(PendingReason::NoMatchingFlavor);
            };
            if pick.flavors.iter().all(|(known, _)| *known != group) {
                let flavor = self.flavor_of(group, &pick, &sum)?;
                pick.flavors.push((group, flavor));
            }
        }
        self.found.picks.push(pick);
        Ok(())
    }

    fn names(&self, pick: &Pick) -> Arc<str> {
        let sets = pick.members.iter().filter_map(|at| self.question.pod_sets.get(*at));
        if let (Some(first), [_]) = (sets.clone().next(), &*pick.members) {
            return Arc::clone(&first.name);
        }
        Arc::from(sets.map(|set| &*set.name).collect::<Vec<_>>().join(", "))
    }

    /// The best flavor of a resource group; it takes part in the assignment from here on.
    fn flavor_of(
        &mut self,
        at: usize,
        pick: &Pick,
        sum: &[(&Arc<str>, Amount)],
    ) -> Result<usize, PendingReason> {
        let queue = self.question.queue;
        let Some(group) = queue.groups.get(at) else {
            return Err(PendingReason::NoMatchingFlavor);
        };
        let place = |(resource, amount): &(&Arc<str>, Amount)| Some((group.position(resource)?, *amount));
        let wanted: Vec<Wanted> = sum.iter().filter_map(place).collect();
        let fungibility = &queue.config.fungibility;
        let scans = self.field.settings.gates.flavor_fungibility;
        let mut best: Option<Choice> = None;
        let (mut last, mut severity) = (0, PendingReason::NoMatchingFlavor);
        let (mut blockers, mut needs) = (Vec::new(), Vec::new());
        let start = self.start(group, pick, &wanted);
        for (index, flavor) in group.flavors.iter().enumerate().skip(start) {
            if !self.may_use(pick, at, index) {
                continue;
            }
            last = index;
            if let Some(why) = self.mismatch(&flavor.name, group, pick) {
                let kind = BlockerKind::Mismatch(Arc::from(why));
                blockers.push(plain_blocker(&self.names(pick), &flavor.name, "", kind));
                continue;
            }
            let choice = self.try_flavor(index, group, &wanted);
            let unfit = choice.needs.iter().filter(|(_, _, grade)| grade.mode != Mode::Fit);
            let found: Vec<Blocker> = unfit
                .map(|(pair, need, _)| {
                    self.field.blocker(&self.question.asker(), *pair, *need, &self.names(pick))
                })
                .collect();
            let first = choice.needs.iter().find(|(_, _, grade)| grade.mode != Mode::Fit);
            needs.extend(first.map(|(pair, need, _)| (*pair, *need)));
            severity = if found.is_empty() { severity } else { milder(severity, &found) };
            blockers.extend(found);
            let stop =
                if scans { !choice.grade.try_next(fungibility) } else { choice.grade.mode == Mode::Fit };
            let better = best.as_ref().is_none_or(|best| {
                if scans {
                    choice.grade.preferred_over(best.grade, fungibility)
                } else {
                    choice.grade.mode > best.grade.mode
                }
            });
            if choice.grade.mode != Mode::NoFit && (stop || better) {
                best = Some(choice);
            }
            if stop {
                break;
            }
        }
        self.settle(group, &wanted, best.as_ref(), needs, blockers);
        let best = best.ok_or(severity)?;
        if last + 1 < group.flavors.len() {
            let slots: Vec<_> = wanted.iter().filter_map(|(at, _)| self.slot(group, pick, *at)).collect();
            self.tried.extend(slots.into_iter().map(|slot| (slot, last)));
        }
        self.take(&best, &wanted);
        Ok(best.index)
    }

    /// Makes a choice part of the assignment.
    fn take(&mut self, best: &Choice, wanted: &[Wanted]) {
        self.found.mode = self.found.mode.min(best.mode());
        for ((pair, _, grade), (_, amount)) in best.needs.iter().zip(wanted) {
            self.found.borrows = self.found.borrows.max(grade.level);
            add(&mut self.found.usage, *pair, amount.wide());
            if grade.mode.needs_room() && !self.found.short.contains(pair) {
                self.found.short.push(*pair);
            }
        }
    }

    fn slot(&self, group: &Group, pick: &Pick, position: usize) -> Option<(Arc<str>, Arc<str>)> {
        let first = self.question.pod_sets.get(*pick.members.first()?)?;
        Some((Arc::clone(&first.name), Arc::clone(group.covered.get(position)?)))
    }

    /// Where the search over the flavors of a group begins.
    fn start(&self, group: &Group, pick: &Pick, wanted: &[Wanted]) -> usize {
        let Some(cursor) = self.question.cursor else {
            return 0;
        };
        let mut slots = wanted.iter().filter_map(|(at, _)| self.slot(group, pick, *at));
        slots.find_map(|slot| cursor.tried.get(&slot)).map_or(0, |index| index + 1)
    }

    /// Whether the search is free to use a flavor.
    fn may_use(&self, pick: &Pick, group: usize, flavor: usize) -> bool {
        let variant = self.question.workload.variant.as_ref();
        let name = self.question.queue.groups.get(group).and_then(|g| g.flavors.get(flavor)).map(|f| &f.name);
        if variant.is_some_and(|variant| name.is_none_or(|name| !variant.flavors.contains(name))) {
            return false;
        }
        if let Some(old) = self.question.replaced
            && !old.charge.usage.keys().any(|pair| Some(&pair.flavor) == name)
        {
            return false;
        }
        let Some(bound) = self.question.bound else {
            return true;
        };
        let same = bound.iter().find(|other| other.members == pick.members);
        same.is_some_and(|other| other.flavors.contains(&(group, flavor)))
    }

    /// Notes what the workload waits for: the first group that does not fit, and any change where an earlier group might
    /// choose otherwise, where others who may be evicted come and go, or where room is kept from others only as long as
    /// evictions could help: that may end when others use more.
    fn settle(
        &mut self,
        group: &Group,
        wanted: &[Wanted],
        best: Option<&Choice>,
        needs: Vec<(PairId, i128)>,
        blockers: Vec<Blocker>,
    ) {
        let fits = best.is_some_and(|best| best.mode() == Mode::Fit);
        let flavors = &group.flavors;
        let pairs = || flavors.iter().flat_map(|f| wanted.iter().filter_map(|(at, _)| f.pair(*at)));
        if fits {
            if group.flavors.len() > 1 {
                self.settled.extend(pairs());
            }
            return;
        }
        if self.found.mode == Mode::Fit {
            self.found.waits.needs.extend(needs);
            if !self.settled.is_empty() {
                self.found.waits.any.extend(self.settled.drain(..).chain(pairs()));
            }
        }
        if self.question.queue.may_preempt() {
            self.found.waits.freed.extend(pairs());
        }
        if self.question.queue.keeps_room() && best.is_some_and(|best| best.mode().needs_room()) {
            self.found.waits.any.extend(pairs());
        }
        self.found.blockers.extend(blockers);
    }

    /// Grades every resource of a flavor; the worst is the flavor's grade.
    fn try_flavor(&mut self, index: usize, group: &Group, wanted: &[Wanted]) -> Choice {
        let fungibility = &self.question.queue.config.fungibility;
        let mut choice = Choice { index, grade: Grade::BEST, needs: Vec::with_capacity(wanted.len()) };
        let mut worst: Option<Grade> = None;
        for (position, amount) in wanted {
            let Some(pair) = group.flavors.get(index).and_then(|flavor| flavor.pair(*position)) else {
                continue;
            };
            let need = of(&self.found.usage, pair) + amount.wide();
            let found = self.field.grade(&self.question.asker(), pair, need);
            choice.needs.push((pair, need, found));
            if worst.is_none_or(|worst| worst.preferred_over(found, fungibility)) {
                worst = Some(found);
            }
        }
        choice.grade = worst.unwrap_or(Grade::BEST);
        choice
    }

    fn mismatch(&self, name: &Arc<str>, group: &Group, pick: &Pick) -> Option<String> {
        let Some(flavor) = self.question.flavors.get(name) else {
            return Some(format!("flavor {name} not found"));
        };
        let sets = pick.members.iter().filter_map(|at| self.question.pod_sets.get(*at));
        if let Some(why) = topology::mismatch(self.field, &self.question, name, group, sets) {
            return Some(why);
        }
        let mut sets = pick.members.iter().filter_map(|at| self.question.pod_sets.get(*at));
        sets.find_map(|set| mismatch(name, flavor, &set.pods))
    }
}

impl Judgement {
    /// The assignment as the workload is given it.
    pub(super) fn assignment(&self, queue: &Queue, name: &Arc<str>, pod_sets: &[PodSet]) -> Assignment {
        let mut assigned: Vec<(usize, PodSetAssignment)> = Vec::with_capacity(pod_sets.len());
        for pick in &self.picks {
            for at in &pick.members {
                let Some(set) = pod_sets.get(*at) else { continue };
                let (mut flavors, mut usage) = (BTreeMap::new(), Requests::new());
                for (resource, amount) in totals(set, queue) {
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
                let topology = self.stand.of(*at);
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
fn milder(reason: PendingReason, blockers: &[Blocker]) -> PendingReason {
    let never = blockers.iter().any(|blocker| blocker.kind == BlockerKind::NeverFits);
    reason.max(if never { PendingReason::ExceedsMaxQuota } else { PendingReason::WaitingForQuota })
}

/// Places of pod sets that are judged together, in the order of their first members.
fn groups(pod_sets: &[PodSet]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(Option<&Arc<str>>, Vec<usize>)> = Vec::with_capacity(pod_sets.len());
    for (at, set) in pod_sets.iter().enumerate() {
        let same = groups.iter_mut().find(|(group, _)| set.group.is_some() && *group == set.group.as_ref());
        match same {
            Some((_, members)) => members.push(at),
            None => groups.push((set.group.as_ref(), vec![at])),
        }
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

/// What pod sets ask for together, by name of the resource.
fn sums<'a>(pod_sets: &'a [PodSet], members: &[usize], queue: &'a Queue) -> Vec<(&'a Arc<str>, Amount)> {
    let mut sums: Vec<(&Arc<str>, Amount)> = Vec::new();
    for set in members.iter().filter_map(|at| pod_sets.get(*at)) {
        for (resource, amount) in totals(set, queue) {
            match sums.binary_search_by_key(&resource, |(known, _)| *known) {
                Ok(at) => {
                    if let Some((_, sum)) = sums.get_mut(at) {
                        *sum = sum.plus(amount);
                    }
                }
                Err(at) => sums.insert(at, (resource, amount)),
            }
        }
    }
    sums
}

/// What all pods of a set ask for; their number counts too where the queue has a quota for it.
fn totals<'a>(set: &'a PodSet, queue: &'a Queue) -> impl Iterator<Item = (&'a Arc<str>, Amount)> {
    let count = i64::from(set.count.max(0));
    let pods = queue.groups.iter().flat_map(|group| &group.covered).find(|covered| &***covered == "pods");
    let own = set.requests.iter().filter(move |(resource, _)| pods != Some(*resource));
    own.map(move |(resource, amount)| (resource, (*amount).max(Amount::ZERO).times(count)))
        .chain(pods.map(|pods| (pods, Amount::new(count))))
}

/// Adds to the usage of a pair.
pub(super) fn add(usage: &mut Usage, pair: PairId, amount: i128) {
    match usage.binary_search_by_key(&pair, |(known, _)| *known) {
        Ok(at) => {
            if let Some((_, sum)) = usage.get_mut(at) {
                *sum += amount;
            }
        }
        Err(at) => usage.insert(at, (pair, amount)),
    }
}

fn of(usage: &Usage, pair: PairId) -> i128 {
    let at = usage.binary_search_by_key(&pair, |(known, _)| *known);
    at.ok().and_then(|at| usage.get(at)).map_or(0, |(_, amount)| *amount)
}

pub(super) fn plain_blocker(pod_set: &Arc<str>, flavor: &str, resource: &str, kind: BlockerKind) -> Blocker {
    Blocker {
        pod_set: Arc::clone(pod_set),
        flavor: Arc::from(flavor),
        resource: Arc::from(resource),
        node: None,
        need: Amount::ZERO,
        have: Amount::ZERO,
        limit: Amount::ZERO,
        kind,
    }
}
