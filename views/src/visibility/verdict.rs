//! Why a Workload is in its state, and what would change that: the explanation of the engine, with names and amounts that the
//! reader may see.
//!
//! Invariants: there is a line only if the engine can show it; workloads of other tenants appear as numbers only; without the
//! engine's explanation the verdict follows the condition.

use super::amounts::{amount_view, limit_view};
use super::before::comparison;
use super::page::ModelError;
use super::questions::VerdictQuestion;
use super::queue_views::strategy_name;
use super::quota::PublishedQuota;
use super::supposed::Supposed;
use super::verdict_facts::{admission, checks, history};
use super::views::{
    Ahead, AheadRow, BlockerKindView, BlockerView, ChangeKind, ChangeOption, HistoryEntry, OptionNumber,
    Verdict, WorkloadState, WorkloadView,
};
use super::workload_row::{Rows, node_text};
use crate::api::ObjectKey;
use crate::api::names;
use crate::cache::records::WorkloadRecord;
use crate::queue::{Blocker, BlockerKind};
use crate::quota::{FlavorResource, NodeRef};
use crate::scheduler::{Explanation, Obstacle, PodsExplanation};
use crate::snapshot::Snapshot;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of workloads ahead that are named.
const MAX_AHEAD: usize = 3;
/// Number of workloads at the front of a queue that are examined for these names.
const MAX_EXAMINED: usize = 100;

/// Returns the verdict on a Workload, with the engine's answer if it is pending and the engine could be asked.
///
/// # Errors
/// If the lists are not complete, the reader may see no Workload of this name, or none to compare with.
pub fn verdict(
    snapshot: &Snapshot,
    question: &VerdictQuestion,
    explanation: Option<&Explanation>,
) -> Result<Verdict, ModelError> {
    if !snapshot.synced {
        return Err(ModelError::NotSynced);
    }
    let (access, key) = (&question.access, question.workload.key());
    let visible = snapshot.workloads.get(&key).filter(|_| access.sees(&key.namespace));
    let record = visible.ok_or(ModelError::NotFound)?;
    let rows = Rows::of(snapshot, access);
    let target = question.target(snapshot)?;
    let is_elsewhere = target.is_some();
    let cluster_queue = target.unwrap_or_else(|| rows.cluster_queue(record));
    let facts = rows.quota.facts.cluster_queues.get(&cluster_queue);
    let mut row = rows.row(record);
    let is_supposed = question.queue.is_some() || question.priority.is_some();
    if is_supposed {
        let queue = question.queue.clone().unwrap_or_else(|| row.local_queue.clone());
        row.priority = question.priority.unwrap_or(row.priority);
        let local_queue: Arc<str> = Arc::from(queue.as_str());
        let is_pending = row.state == WorkloadState::Pending;
        let there = rows.position_in(record, &cluster_queue, &local_queue, row.priority);
        row.position = there.filter(|_| is_pending);
        (row.local_queue, row.cluster_queue) = (queue, cluster_queue.to_string());
    }
    let before = question.before.as_ref().map(|other| comparison(rows, record, &other.key()));
    let mut verdict = Verdict {
        before: before.transpose()?,
        queueing_strategy: facts.map(|facts| strategy_name(facts.strategy).to_owned()).unwrap_or_default(),
        history: history(record),
        checks: checks(record),
        ..Verdict::default()
    };
    if row.state == WorkloadState::Pending {
        let asked = Asked { rows, record, queue: NodeRef::ClusterQueue(Arc::clone(&cluster_queue)) };
        verdict.ahead = asked.ahead(&row);
        match explanation {
            Some(explanation) if explanation.pods.is_none() => {
                asked.explain(explanation, &mut verdict);
            }
            // The condition is about the Workload's own queue.
            _ if is_elsewhere => {}
            _ => {
                let obstacle = rows.obstacle(record, &cluster_queue, row.state);
                verdict.blockers = row.first_blocker.iter().cloned().collect();
                verdict.never_fits = matches!(obstacle, Obstacle::NeverFits(_));
                verdict.obstacle = asked.obstacle(&obstacle);
            }
        }
    } else if row.state != WorkloadState::Finished {
        let pods = explanation.and_then(|explanation| explanation.pods.as_ref());
        verdict.admission = Some(admission(rows, record, &row, pods));
        verdict.blockers.extend(pods.filter(|pods| !pods.text.is_empty()).map(blocked_pods));
    }
    let is_pending = row.state == WorkloadState::Pending;
    let obstacle = explanation.map(|explanation| &explanation.obstacle).filter(|_| is_pending);
    let supposed = Supposed { rows, record, row: &row, is_elsewhere };
    let stays_there =
        is_supposed && is_pending && supposed.add_to(&mut verdict, obstacle.unwrap_or(&Obstacle::None));
    verdict.workload = WorkloadView {
        stuck: stays_there
            || obstacle.map_or(row.stuck && !is_elsewhere, |obstacle| {
                obstacle.stays() || (*obstacle == Obstacle::None && row.stuck && !is_supposed)
            }),
        first_blocker: None,
        reason: explanation
            .filter(|_| row.state == WorkloadState::Pending)
            .and_then(|explanation| explanation.reason)
            .map_or_else(|| row.reason.clone(), |reason| reason.as_str().to_owned()),
        ..row
    };
    verdict.history.extend(waiting(&verdict.workload));
    HistoryEntry::sort(&mut verdict.history);
    Ok(verdict)
}

/// Returns the entry of the wait of a pending Workload; `None` for other states.
fn waiting(row: &WorkloadView) -> Option<HistoryEntry> {
    let time = row.since.filter(|_| row.state == WorkloadState::Pending)?;
    Some(HistoryEntry {
        time,
        event: HistoryEntry::PENDING.to_owned(),
        reason: row.reason.clone(),
        text: String::new(),
        by: None,
    })
}

/// A pending Workload, with the input of its verdict.
pub(super) struct Asked<'a> {
    pub(super) rows: Rows<'a>,
    pub(super) record: &'a WorkloadRecord,
    pub(super) queue: NodeRef,
}

impl Asked<'_> {
    pub(super) fn quota(&self) -> PublishedQuota<'_> {
        self.rows.quota
    }

    /// Adds the explanation of the engine.
    fn explain(&self, explanation: &Explanation, verdict: &mut Verdict) {
        let blockers = &explanation.blockers;
        verdict.never_fits = matches!(explanation.obstacle, Obstacle::NeverFits(_));
        verdict.obstacle = self.obstacle(&explanation.obstacle);
        verdict.blockers = blockers.iter().map(|blocker| self.blocker(blocker)).collect();
        if let Obstacle::Behind(_) = &explanation.obstacle {
            verdict.blockers.push(BlockerView {
                kind: BlockerKindView::Behind,
                node: node_text(&self.queue),
                text: verdict.obstacle.clone(),
                ..BlockerView::default()
            });
        }
        verdict.next = self.next_limits(blockers);
        verdict.fits = self.fits(blockers);
        if explanation.obstacle.stays() {
            verdict.options.extend(self.smaller(explanation).filter(|_| verdict.never_fits));
            verdict
                .options
                .extend(blockers.iter().filter_map(|blocker| self.other_flavor(blocker, blockers)));
            return;
        }
        verdict.options.extend(self.victims(&explanation.victims));
        verdict.options.extend(self.wait(explanation));
        verdict.options.extend(self.preempt(explanation, blockers));
        verdict.options.extend(self.smaller(explanation));
        verdict.options.extend(blockers.iter().filter_map(|blocker| self.other_flavor(blocker, blockers)));
        verdict.options.extend(self.raise_quota(explanation));
        verdict.options.extend(blockers.iter().find_map(|blocker| self.topology(blocker)));
    }

    /// Returns the obstacle as a sentence without its full stop; empty if the blockers and their amounts already show it.
    fn obstacle(&self, obstacle: &Obstacle) -> String {
        match obstacle {
            Obstacle::Object(_) => String::new(),
            Obstacle::NeverFits(never) if never.is_quota() => String::new(),
            _ => obstacle.sentence(self.queue.as_str(), &self.rows.reader(&self.queue)),
        }
    }

    pub(super) fn blocker(&self, blocker: &Blocker) -> BlockerView {
        self.rows.blocker_view(blocker, &self.queue)
    }

    /// Returns the other resources of flavors with quota blockers: resources of which there is enough.
    fn fits(&self, blockers: &[Blocker]) -> Vec<BlockerView> {
        let mut rows = Vec::new();
        for blocker in blockers.iter().filter(|blocker| blocker.kind == BlockerKind::InUse) {
            let sets = self.record.effective_requests.pod_sets.iter().flat_map(|sets| sets.iter());
            let mut requests: BTreeMap<&Arc<str>, i128> = BTreeMap::new();
            for set in sets.filter(|set| blocker.pod_set.split(',').any(|name| *set.name == *name.trim())) {
                for (resource, amount) in &set.requests {
                    let sum = requests.entry(resource).or_default();
                    *sum = sum.saturating_add(amount.to_i128().saturating_mul(set.count.into()));
                }
            }
            for (resource, requested) in requests {
                let fr = FlavorResource::new(&blocker.flavor, resource);
                let is_blocked = blockers.iter().any(|other| {
                    other.pod_set == blocker.pod_set
                        && other.flavor == fr.flavor
                        && other.resource == fr.resource
                });
                let declared = self.quota().declares(&self.queue, &fr);
                let headroom = self.quota().headroom(&self.queue, &fr).0;
                if is_blocked || !declared || headroom.available < requested {
                    continue;
                }
                let units = &self.quota().facts.units;
                let row = BlockerView {
                    kind: BlockerKindView::Fits,
                    pod_set: blocker.pod_set.to_string(),
                    flavor: fr.flavor.to_string(),
                    resource: fr.resource.to_string(),
                    requested: Some(amount_view(units, &self.queue, &fr, requested)),
                    available: Some(limit_view(units, &self.queue, &fr, headroom.available)),
                    limit: Some(limit_view(units, &self.queue, &fr, headroom.potential))
                        .filter(|_| self.rows.access.sees_sums()),
                    ..BlockerView::default()
                };
                if !rows.contains(&row) {
                    rows.push(row);
                }
            }
        }
        rows
    }

    fn ahead(&self, row: &WorkloadView) -> Option<Ahead> {
        let position = row.position?;
        let count = position.cluster_queue.saturating_sub(1);
        let looked_at = usize::try_from(count).unwrap_or(usize::MAX).min(MAX_EXAMINED);
        let snapshot = self.rows.snapshot;
        let (mut first, mut hidden, mut stuck) = (Vec::new(), 0_u64, 0_u64);
        let standing = snapshot.queues.standings.get(self.queue.as_str());
        for before in snapshot.pending.from_position(self.queue.as_str(), 0).take(looked_at) {
            let key = &before.workload.key;
            let stays = standing.is_some_and(|standing| {
                Obstacle::in_queue(standing, before.workload, &snapshot.pending).stays()
            });
            stuck = stuck.saturating_add(u64::from(stays));
            if !self.rows.access.sees(&key.namespace) {
                hidden = hidden.saturating_add(1);
            } else if let Some(record) = snapshot.workloads.get(key).filter(|_| first.len() < MAX_AHEAD) {
                let queue = self.rows.cluster_queue(record);
                first.push(AheadRow {
                    namespace: key.namespace.to_string(),
                    name: key.name.to_string(),
                    priority: before.workload.priority,
                    needs: self.rows.needs(record, &queue),
                    stuck: stays,
                });
            }
        }
        let more = u64::try_from(looked_at).is_ok_and(|looked_at| looked_at < count);
        Some(Ahead { count, first, hidden, stuck, more })
    }

    /// Describes the preemption of victims, if there are any.
    fn victims(&self, victims: &[ObjectKey]) -> Option<ChangeOption> {
        let count = u64::try_from(victims.len()).ok().filter(|count| *count > 0)?;
        let seen = victims.iter().filter(|key| self.rows.access.sees(&key.namespace));
        let mut names: Vec<String> = seen.take(MAX_AHEAD).map(ToString::to_string).collect();
        let rest = victims.len().saturating_sub(names.len());
        if rest > 0 {
            names.push(format!("{rest} more"));
        }
        let noun = if count == 1 { "workload" } else { "workloads" };
        let detail = format!("{count} {noun} would be preempted for it: {}", names.join(", "));
        let numbers = BTreeMap::from([("workloads".to_owned(), OptionNumber::Count(count))]);
        Some(ChangeOption { kind: ChangeKind::Preempt, possible: true, detail, numbers })
    }

    fn preempt(&self, explanation: &Explanation, blockers: &[Blocker]) -> Option<ChangeOption> {
        let chances = explanation.preemption.as_ref()?;
        let option = |detail: String, numbers| {
            Some(ChangeOption { kind: ChangeKind::Preempt, possible: false, detail, numbers })
        };
        if !chances.is_allowed {
            return option(format!("ClusterQueue {} does not preempt", self.queue.as_str()), BTreeMap::new());
        }
        if chances.is_gated {
            return option("a preemption gate of the workload is closed".to_owned(), BTreeMap::new());
        }
        if !self.rows.access.sees_sums() {
            return None;
        }
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let (own, others) = (count(chances.own), count(chances.others));
        let blocker = blockers.iter().find(|blocker| blocker.kind == BlockerKind::InUse)?;
        let fr = FlavorResource::new(&blocker.flavor, &blocker.resource);
        let used = chances.usage.get(&fr).map_or(0, |amount| amount.to_i128());
        let missing = blocker.requested.to_i128() - self.quota().headroom(&self.queue, &fr).0.available;
        // If their quota is enough, the limits outside the candidates, the number of candidates, or the nodes prevent the
        // preemption.
        let outcome = if used < missing { "not enough" } else { "no choice of them makes it fit" };
        let refused =
            (used >= missing && own == 0).then(|| self.reclaim_refused(&fr, blocker.requested.to_i128()));
        let used = amount_view(&self.quota().facts.units, &self.queue, &fr, used);
        let resource = &blocker.resource;
        let detail = match (own.saturating_add(others), refused.flatten()) {
            (0, _) => "no workload may be preempted for it".to_owned(),
            (_, Some(text)) => text,
            (1, None) => format!("1 workload may be preempted and uses {} {resource}: {outcome}", used.value),
            (all, None) => format!(
                "{all} workloads may be preempted and use {} {resource} together: {outcome}",
                used.value
            ),
        };
        let numbers = BTreeMap::from([
            ("own".to_owned(), OptionNumber::Count(own)),
            ("others".to_owned(), OptionNumber::Count(others)),
            ("used".to_owned(), OptionNumber::Amount(used)),
        ]);
        option(detail, numbers)
    }

    /// Describes the Workloads on nodes without free capacity; the blocker itself reports that there is none.
    fn topology(&self, blocker: &Blocker) -> Option<ChangeOption> {
        let BlockerKind::NodesInUse(_) = &blocker.kind else { return None };
        let detail = self.occupants(&blocker.flavor)?;
        Some(ChangeOption { kind: ChangeKind::Topology, possible: false, detail, numbers: BTreeMap::new() })
    }

    /// Returns why the ClusterQueue does not reclaim quota for the Workload: with it, the usage would exceed its nominal quota.
    fn reclaim_refused(&self, fr: &FlavorResource, requested: i128) -> Option<String> {
        let (facts, queue) = (self.quota().facts, self.queue.as_str());
        let policy = &facts.cluster_queues.get(queue)?.preemption;
        let usage = self.quota().usage(&self.queue, fr);
        let nominal = usage.limits.nominal.to_i128();
        let over = usage.usage.to_i128().saturating_add(requested).saturating_sub(nominal);
        if !policy.reclaims_only_nominal() || over <= 0 {
            return None;
        }
        let over = amount_view(&facts.units, &self.queue, fr, over).value;
        Some(format!("with it, {queue} uses {over} more than its nominal quota, and reclaims only up to it"))
    }

    fn smaller(&self, explanation: &Explanation) -> Option<ChangeOption> {
        let fit = explanation.smaller?;
        let count = |number: i64| OptionNumber::Count(u64::try_from(number).unwrap_or(0));
        let is_job = self.record.owner.as_ref().is_some_and(|owner| *owner.kind == *"Job");
        let how = match (fit.allows_partial_admission, is_job) {
            (true, _) => "it allows partial admission, but not so few".to_owned(),
            (false, true) => format!("set {} to allow it", names::JOB_MIN_PARALLELISM_ANNOTATION),
            (false, false) => "its kind would have to ask for fewer".to_owned(),
        };
        let (pods, all) = (fit.pods, fit.of);
        let by = if fit.preempts { ", and others preempted" } else { "" };
        let detail = format!("{pods} of {all} pods would be admitted now{by}; {how}");
        let numbers = BTreeMap::from([("pods".to_owned(), count(pods)), ("of".to_owned(), count(all))]);
        Some(ChangeOption { kind: ChangeKind::Smaller, possible: true, detail, numbers })
    }

    /// Describes the quota of a flavor that does not match the pods, for a resource that blocks them in another flavor: the first
    /// resource of which it has too little, or else the first one.
    fn other_flavor(&self, blocker: &Blocker, all: &[Blocker]) -> Option<ChangeOption> {
        let BlockerKind::Mismatch(text) = &blocker.kind else { return None };
        if blocker.flavor.is_empty() {
            return None;
        }
        let of_set =
            |kind| all.iter().filter(move |other| other.pod_set == blocker.pod_set && other.kind == kind);
        let kinds = [BlockerKind::InUse, BlockerKind::NeverFits];
        let first = kinds.into_iter().find_map(|kind| of_set(kind).next())?;
        let never = first.kind == BlockerKind::NeverFits;
        let has = |wanted: &Blocker| {
            let fr = FlavorResource::new(&blocker.flavor, &wanted.resource);
            let headroom = self.quota().headroom(&self.queue, &fr).0;
            let has = if never { headroom.potential } else { headroom.available }.max(0);
            (fr, has, has >= wanted.requested.to_i128())
        };
        let mut wanted = of_set(first.kind.clone()).filter(|other| other.flavor == first.flavor).map(has);
        let short = wanted.clone().find(|(.., enough)| !enough);
        let (fr, amount, enough) = short.or_else(|| wanted.next())?;
        let amount = limit_view(&self.quota().facts.units, &self.queue, &fr, amount);
        let words = if enough { "enough, but" } else { "not enough, and" };
        let (flavor, resource) = (&fr.flavor, &fr.resource);
        let has = if never {
            format!("can have {} {resource}", amount.value)
        } else {
            format!("has {} {resource} available", amount.value)
        };
        let detail = format!("{flavor} {has}: {words} {text}");
        let numbers = BTreeMap::from([("available".to_owned(), OptionNumber::Amount(amount))]);
        Some(ChangeOption { kind: ChangeKind::Flavor, possible: enough, detail, numbers })
    }
}

/// Returns the blocker that keeps the pods of an admitted workload from running.
fn blocked_pods(blocked: &PodsExplanation) -> BlockerView {
    let kind = if blocked.is_gated { BlockerKindView::PodGate } else { BlockerKindView::Unschedulable };
    BlockerView { kind, text: blocked.text.clone(), ..BlockerView::default() }
}
