//! Flavor assignment: which flavor each pod set gets for each resource, or what stands in the way.
//!
//! Pod sets of one group are judged together, each resource group is given by one flavor, and what earlier pod sets take
//! counts for later ones. Nothing is charged here.

use super::config::{ClusterQueue, EngineSettings, Flavor, Undeclared};
use super::decision::{Assignment, PodSetAssignment};
use super::fit::{Grade, Mode, grade};
use super::matching::mismatch;
use crate::api::reason::PendingReason;
use crate::queue::{Blocker, BlockerKind, Claim, Cursor, PodSet, Verdict, Waits, Workload};
use crate::quota::{FlavorResource, ResourceGroup, Tree};
use crate::resources::{Amount, Requests};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What judging looks at beside the workload.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) settings: &'a EngineSettings,
    pub(super) tree: &'a Tree,
    pub(super) flavors: &'a BTreeMap<Arc<str>, Flavor>,
    pub(super) name: &'a Arc<str>,
    pub(super) queue: &'a ClusterQueue,
    pub(super) cycle: u64,
}

/// What a head could take now.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) assignment: Assignment,
    pub(super) usage: BTreeMap<FlavorResource, i128>,
    /// Highest level that quota is borrowed from; 0 without borrowing.
    pub(super) borrows: u32,
    /// Where to go on if somebody else is faster.
    pub(super) cursor: Option<Cursor>,
}

/// What a head could not take.
#[derive(Clone, Debug)]
pub(super) struct Short {
    pub(super) verdict: Verdict,
    pub(super) waits: Waits,
    /// What it would keep from others; only if evictions could make it fit.
    pub(super) claim: Option<Claim>,
    /// Whether it is passed over even at the head of a StrictFIFO queue.
    pub(super) aside: bool,
}

/// Assigns flavors, from the cursor on; a search that began behind the first flavor and finds nothing starts over.
pub(super) fn assign(
    context: &Context,
    workload: &Workload,
    cursor: Option<&Cursor>,
) -> Result<Plan, Box<Short>> {
    let generation = context.tree.generation(context.name);
    let fresh = |c: &&Cursor| c.cycle + 1 >= context.cycle || c.generation == generation;
    let cursor = cursor.filter(fresh);
    let first = Search::new(context, cursor).run(workload);
    if first.is_err() && cursor.is_some() { Search::new(context, None).run(workload) } else { first }
}

/// The flavor found for a resource group.
struct Choice {
    index: usize,
    grade: Grade,
    needs: Vec<(FlavorResource, i128)>,
}

struct Search<'a> {
    context: &'a Context<'a>,
    cursor: Option<&'a Cursor>,
    usage: BTreeMap<FlavorResource, i128>,
    worst: Mode,
    borrows: u32,
    tried: BTreeMap<(Arc<str>, Arc<str>), usize>,
    blockers: Vec<Blocker>,
    waits: Waits,
    /// Pairs of groups that were settled while another flavor was possible.
    settled: Vec<FlavorResource>,
    assigned: BTreeMap<usize, PodSetAssignment>,
}

impl<'a> Search<'a> {
    fn new(context: &'a Context<'a>, cursor: Option<&'a Cursor>) -> Self {
        let waits = Waits { tree: context.tree.root(context.name).cloned(), ..Waits::default() };
        Self {
            context,
            cursor,
            usage: BTreeMap::new(),
            worst: Mode::Fit,
            borrows: 0,
            tried: BTreeMap::new(),
            blockers: Vec::new(),
            waits,
            settled: Vec::new(),
            assigned: BTreeMap::new(),
        }
    }

    fn run(mut self, workload: &Workload) -> Result<Plan, Box<Short>> {
        for members in groups(&workload.pod_sets) {
            if let Err(reason) = self.pod_sets(&members) {
                return Err(Box::new(self.short(reason, false)));
            }
        }
        if self.worst != Mode::Fit {
            return Err(Box::new(self.short(PendingReason::WaitingForQuota, true)));
        }
        let cursor = Cursor {
            cycle: self.context.cycle,
            generation: self.context.tree.generation(self.context.name),
            tried: self.tried,
        };
        Ok(Plan {
            assignment: Assignment {
                cluster_queue: Arc::clone(self.context.name),
                pod_sets: self.assigned.into_values().collect(),
            },
            usage: self.usage,
            borrows: self.borrows,
            cursor: Some(cursor).filter(|cursor| !cursor.tried.is_empty()),
        })
    }

    fn short(self, reason: PendingReason, complete: bool) -> Short {
        let verdict = Verdict { reason, blockers: self.blockers, text: Arc::from("") };
        let claim = complete.then_some(Claim { usage: self.usage, borrows: self.borrows });
        Short { verdict, waits: self.waits, claim, aside: false }
    }

    /// Judges pod sets that share their flavors.
    fn pod_sets(&mut self, members: &[(usize, &PodSet)]) -> Result<(), PendingReason> {
        let counts_pods = self.context.queue.groups.iter().any(|group| group.covers("pods"));
        let requests: Vec<Requests> = members.iter().map(|(_, set)| totals(set, counts_pods)).collect();
        let mut sum = Requests::new();
        for (resource, amount) in requests.iter().flatten() {
            let total = sum.entry(Arc::clone(resource)).or_default();
            *total = total.plus(*amount);
        }
        let mut flavors: BTreeMap<Arc<str>, Arc<str>> = BTreeMap::new();
        for (resource, amount) in &sum {
            if flavors.contains_key(resource) {
                continue;
            }
            let Some(group) = self.context.queue.groups.iter().find(|group| group.covers(resource)) else {
                if *amount == Amount::ZERO || self.context.settings.undeclared == Undeclared::Ignore {
                    continue;
                }
                self.blockers.push(plain_blocker(members, "", resource, BlockerKind::Undeclared));
                return Err(PendingReason::NoMatchingFlavor);
            };
            let wanted: Requests =
                sum.iter().filter(|(r, _)| group.covers(r)).map(|(r, a)| (Arc::clone(r), *a)).collect();
            let flavor = self.flavor_of(group, members, &wanted)?;
            flavors.extend(wanted.into_keys().map(|resource| (resource, Arc::clone(&flavor))));
        }
        for ((index, set), usage) in members.iter().zip(requests) {
            let has_flavor = |(r, a): (Arc<str>, Amount)| flavors.contains_key(&r).then_some((r, a));
            let usage: Requests = usage.into_iter().filter_map(has_flavor).collect();
            let flavors =
                usage.keys().filter_map(|r| Some((Arc::clone(r), Arc::clone(flavors.get(r)?)))).collect();
            self.assigned.insert(
                *index,
                PodSetAssignment { name: Arc::clone(&set.name), count: set.count, flavors, usage },
            );
        }
        Ok(())
    }

    /// The best flavor of a resource group; it takes part in the assignment from here on.
    fn flavor_of(
        &mut self,
        group: &ResourceGroup,
        members: &[(usize, &PodSet)],
        wanted: &Requests,
    ) -> Result<Arc<str>, PendingReason> {
        let first = members.first().map(|(_, set)| Arc::clone(&set.name)).unwrap_or_default();
        let slot = |resource: &Arc<str>| (Arc::clone(&first), Arc::clone(resource));
        let start = wanted.keys().find_map(|r| self.cursor?.tried.get(&slot(r))).map_or(0, |index| index + 1);
        let fungibility = &self.context.queue.fungibility;
        let mut best: Option<Choice> = None;
        let (mut last, mut severity) = (0, PendingReason::NoMatchingFlavor);
        let (mut blockers, mut needs) = (Vec::new(), Vec::new());
        for (index, flavor) in group.flavors.iter().enumerate().skip(start) {
            last = index;
            if let Some(why) = self.mismatch(&flavor.name, members) {
                let kind = BlockerKind::Mismatch(Arc::from(why));
                blockers.push(plain_blocker(members, &flavor.name, "", kind));
                continue;
            }
            let (choice, found) = self.try_flavor(index, &flavor.name, members, wanted);
            if let Some(need) = found.first().map(|b| FlavorResource::new(&b.flavor, &b.resource)) {
                needs.extend(choice.needs.iter().filter(|(pair, _)| *pair == need).cloned());
            }
            severity = if found.is_empty() { severity } else { milder(severity, &found) };
            blockers.extend(found);
            let stop = !choice.grade.try_next(fungibility);
            let better = best.as_ref().is_none_or(|best| choice.grade.preferred_over(best.grade));
            if choice.grade.mode != Mode::NoFit && (stop || better) {
                best = Some(choice);
            }
            if stop {
                break;
            }
        }
        self.settle(group, wanted, best.as_ref(), needs, blockers);
        let best = best.ok_or(severity)?;
        if last + 1 < group.flavors.len() {
            self.tried.extend(wanted.keys().map(|resource| (slot(resource), last)));
        }
        self.worst = self.worst.min(best.grade.mode);
        self.borrows = self.borrows.max(best.grade.level);
        let chosen = group.flavors.get(best.index).map(|flavor| Arc::clone(&flavor.name)).unwrap_or_default();
        for (pair, _) in best.needs {
            let amount = wanted.get(&pair.resource).map_or(0, |amount| amount.wide());
            *self.usage.entry(pair).or_default() += amount;
        }
        Ok(chosen)
    }

    /// Notes what the workload waits for: the first group that does not fit, and any change where an earlier group might
    /// choose otherwise.
    fn settle(
        &mut self,
        group: &ResourceGroup,
        wanted: &Requests,
        best: Option<&Choice>,
        needs: Vec<(FlavorResource, i128)>,
        blockers: Vec<Blocker>,
    ) {
        let fits = best.is_some_and(|best| best.grade.mode == Mode::Fit);
        let pairs = || {
            let of = |f: &Arc<str>, r: &Arc<str>| FlavorResource {
                flavor: Arc::clone(f),
                resource: Arc::clone(r),
            };
            group.flavors.iter().flat_map(move |f| wanted.keys().map(move |r| of(&f.name, r)))
        };
        if fits {
            if group.flavors.len() > 1 {
                self.settled.extend(pairs());
            }
            return;
        }
        if self.worst == Mode::Fit {
            self.waits.needs.extend(needs);
            if !self.settled.is_empty() {
                self.waits.any.extend(self.settled.drain(..).chain(pairs()));
            }
        }
        self.blockers.extend(blockers);
    }

    /// Grades every resource of a flavor; the worst is the flavor's grade.
    fn try_flavor(
        &self,
        index: usize,
        flavor: &Arc<str>,
        members: &[(usize, &PodSet)],
        wanted: &Requests,
    ) -> (Choice, Vec<Blocker>) {
        let names = joined(members);
        let (mut worst, mut needs, mut blockers) = (None, Vec::new(), Vec::new());
        for (resource, amount) in wanted {
            let pair = FlavorResource { flavor: Arc::clone(flavor), resource: Arc::clone(resource) };
            let need = self.usage.get(&pair).copied().unwrap_or(0) + amount.wide();
            let path = self.context.tree.path(self.context.name, &pair);
            let preemption = &self.context.queue.preemption;
            let (found, blocker) = path.map_or((Grade { mode: Mode::NoFit, level: 0 }, None), |path| {
                grade(&path, need, preemption, &names, &pair)
            });
            blockers.extend(blocker);
            needs.push((pair, need));
            if worst.is_none_or(|worst: Grade| worst.preferred_over(found)) {
                worst = Some(found);
            }
        }
        (Choice { index, grade: worst.unwrap_or(Grade::BEST), needs }, blockers)
    }

    fn mismatch(&self, name: &Arc<str>, members: &[(usize, &PodSet)]) -> Option<String> {
        let Some(flavor) = self.context.flavors.get(name) else {
            return Some(format!("flavor {name} not found"));
        };
        if flavor.topology_name.is_some() && !self.all_topology() {
            return Some(format!("flavor {name} supports only topology-aware scheduling"));
        }
        members.iter().find_map(|(_, set)| mismatch(name, flavor, set))
    }

    fn all_topology(&self) -> bool {
        let mut names = self.context.queue.groups.iter().flat_map(|group| &group.flavors);
        names.all(|f| self.context.flavors.get(&f.name).is_some_and(|f| f.topology_name.is_some()))
    }
}

/// The milder of a reason and what the blockers of one flavor amount to: the best alternative names the reason.
fn milder(reason: PendingReason, blockers: &[Blocker]) -> PendingReason {
    let never = blockers.iter().any(|blocker| blocker.kind == BlockerKind::NeverFits);
    reason.max(if never { PendingReason::ExceedsMaxQuota } else { PendingReason::WaitingForQuota })
}

/// Pod sets in the order of their groups' first members.
fn groups(pod_sets: &[PodSet]) -> Vec<Vec<(usize, &PodSet)>> {
    let mut groups: Vec<Vec<(usize, &PodSet)>> = Vec::new();
    for (index, set) in pod_sets.iter().enumerate() {
        let same = |members: &&mut Vec<(usize, &PodSet)>| {
            set.group.is_some() && members.first().is_some_and(|(_, first)| first.group == set.group)
        };
        match groups.iter_mut().find(same) {
            Some(members) => members.push((index, set)),
            None => groups.push(vec![(index, set)]),
        }
    }
    groups
}

/// What all pods of a set ask for.
fn totals(set: &PodSet, counts_pods: bool) -> Requests {
    let count = i64::from(set.count.max(0));
    let total = |(r, a): (&Arc<str>, &Amount)| (Arc::clone(r), (*a).max(Amount::ZERO).times(count));
    let mut totals: Requests = set.requests.iter().map(total).collect();
    if counts_pods {
        totals.insert(Arc::from("pods"), Amount::new(count));
    }
    totals
}

fn joined(members: &[(usize, &PodSet)]) -> Arc<str> {
    match members {
        [(_, set)] => Arc::clone(&set.name),
        _ => Arc::from(members.iter().map(|(_, set)| &*set.name).collect::<Vec<_>>().join(", ")),
    }
}

fn plain_blocker(members: &[(usize, &PodSet)], flavor: &str, resource: &str, kind: BlockerKind) -> Blocker {
    Blocker {
        pod_set: joined(members),
        flavor: Arc::from(flavor),
        resource: Arc::from(resource),
        node: None,
        need: Amount::ZERO,
        have: Amount::ZERO,
        limit: Amount::ZERO,
        kind,
    }
}
