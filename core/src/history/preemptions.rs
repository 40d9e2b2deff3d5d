//! Preemptions: a list, the newest first, and sums by reason and by preemptor and victim.
//!
//! Invariant: a sum follows from the same records as the list.

use super::record::{EvictionEvent, Preemption, Record, RecordEvent};
use super::seen::millis;
use super::usage::OTHERS;
use super::view::HistoryView;
use crate::frameworks::submitter_name;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most preemptors and victims of the matrix; the rest is summed.
const MAX_SIDE: usize = 20;

/// Which preemptions are asked for.
#[derive(Clone, Debug, Default)]
pub struct PreemptionQuery<'a> {
    /// Since when; all that are recorded if absent.
    pub since: Option<Timestamp>,
    /// Namespace of the victim.
    pub namespace: Option<&'a str>,
    /// Name of the victim, or of its job.
    pub victim: Option<&'a str>,
    /// Name of the preemptor.
    pub preemptor: Option<&'a str>,
    /// ClusterQueue of the victim or the preemptor.
    pub cluster_queue: Option<&'a str>,
    /// ClusterQueue of the preemptor.
    pub preemptor_queue: Option<&'a str>,
    /// ClusterQueue of the victim.
    pub victim_queue: Option<&'a str>,
    /// Submitter of the victim. Records of a durable record have none.
    pub submitter: Option<&'a str>,
}

/// A preemption.
#[derive(Clone, Copy, Debug)]
pub struct PreemptionRecord<'a> {
    /// The record.
    pub record: &'a Record,
    /// The eviction.
    pub eviction: &'a EvictionEvent,
    /// The preemption.
    pub preemption: &'a Preemption,
}

/// Number of preemptions, and the loss of their victims by number of the flavor-resource: amount × milliseconds that the victims
/// had run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreemptionSum {
    /// Number of preemptions.
    pub count: usize,
    /// Loss by number of the flavor-resource, in units × milliseconds.
    pub lost: BTreeMap<u32, i128>,
}

/// Sums of preemptions: in total, and by group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreemptionSums {
    /// All.
    pub total: PreemptionSum,
    /// By reason.
    pub by_reason: BTreeMap<Arc<str>, PreemptionSum>,
    /// By the ClusterQueues of preemptor (empty if it is not known) and victim; at most 20 of each.
    pub matrix: BTreeMap<(Arc<str>, Arc<str>), PreemptionSum>,
}

impl PreemptionRecord<'_> {
    /// Returns how long the victim had run, in milliseconds, if that is known.
    pub fn ran(&self) -> Option<i64> {
        let run = self.eviction.run.as_ref()?;
        Some(self.eviction.at.saturating_sub(run.start).max(0))
    }

    fn preemptor_queue(&self) -> Arc<str> {
        self.preemption
            .preemptor
            .as_ref()
            .map(|preemptor| Arc::clone(&preemptor.cluster_queue))
            .unwrap_or_default()
    }

    fn matches(&self, query: &PreemptionQuery<'_>) -> bool {
        let (victim, preemptor) = (&self.record.workload, self.preemption.preemptor.as_ref());
        let of_job = |name: &str| victim.job.as_ref().is_some_and(|(_, job)| **job == *name);
        let of_queue = |queue: &str| *victim.cluster_queue == *queue || *self.preemptor_queue() == *queue;
        query.since.is_none_or(|since| self.eviction.at >= millis(since))
            && query.namespace.is_none_or(|namespace| *victim.key.namespace == *namespace)
            && query.victim.is_none_or(|name| *victim.key.name == *name || of_job(name))
            && query.preemptor.is_none_or(|name| preemptor.is_some_and(|p| *p.key.name == *name))
            && query.cluster_queue.is_none_or(of_queue)
            && query.preemptor_queue.is_none_or(|queue| *self.preemptor_queue() == *queue)
            && query.victim_queue.is_none_or(|queue| *victim.cluster_queue == *queue)
            && query.submitter.is_none_or(|name| victim.submitter.as_deref() == Some(submitter_name(name)))
    }
}

impl HistoryView {
    /// Returns the matching preemptions, the newest first. Preemptions of one time are ordered by UID, so that every replica has
    /// the same order.
    pub fn preemptions(&self, query: &PreemptionQuery<'_>) -> Vec<PreemptionRecord<'_>> {
        let mut found: Vec<PreemptionRecord<'_>> = self
            .records
            .iter()
            .rev()
            .filter_map(|record| {
                let RecordEvent::Eviction(eviction) = &record.event else { return None };
                Some(PreemptionRecord { record, eviction, preemption: eviction.preemption.as_deref()? })
            })
            .filter(|found| found.matches(query))
            .collect();
        let order = |found: &PreemptionRecord<'_>| {
            let key = &found.record.key;
            (Reverse(found.eviction.at), Arc::clone(&key.uid), Reverse(key.attempt))
        };
        found.sort_by_cached_key(order);
        found
    }
}

impl PreemptionSums {
    /// Returns the sums of these preemptions.
    pub fn of<'a>(found: impl IntoIterator<Item = PreemptionRecord<'a>>) -> Self {
        let mut sums = Self::default();
        for found in found {
            sums.total.add(&found);
            sums.by_reason.entry(Arc::clone(&found.preemption.reason)).or_default().add(&found);
            let pair = (found.preemptor_queue(), Arc::clone(&found.record.workload.cluster_queue));
            sums.matrix.entry(pair).or_default().add(&found);
        }
        sums.bound_matrix();
        sums
    }

    /// Returns the sums of the rows of the matrix.
    pub fn by_preemptor(&self) -> BTreeMap<Arc<str>, PreemptionSum> {
        let mut sums: BTreeMap<Arc<str>, PreemptionSum> = BTreeMap::new();
        for ((preemptor, _), sum) in &self.matrix {
            sums.entry(Arc::clone(preemptor)).or_default().merge(sum);
        }
        sums
    }

    /// Merges the preemptors and victims beyond the bound of a side into one entry.
    fn bound_matrix(&mut self) {
        let preemptors = self.most(|(preemptor, _)| Arc::clone(preemptor));
        let victims = self.most(|(_, victim)| Arc::clone(victim));
        let others: Arc<str> = Arc::from(OTHERS);
        let bounded = |name: Arc<str>, most: &BTreeSet<Arc<str>>| {
            if most.contains(&name) { name } else { Arc::clone(&others) }
        };
        let mut matrix: BTreeMap<(Arc<str>, Arc<str>), PreemptionSum> = BTreeMap::new();
        for ((preemptor, victim), sum) in std::mem::take(&mut self.matrix) {
            let pair = (bounded(preemptor, &preemptors), bounded(victim, &victims));
            matrix.entry(pair).or_default().merge(&sum);
        }
        self.matrix = matrix;
    }

    /// Returns the names of a side with most preemptions: all, or one less than the bound, which leaves one entry for the rest.
    fn most(&self, side: impl Fn(&(Arc<str>, Arc<str>)) -> Arc<str>) -> BTreeSet<Arc<str>> {
        let mut counts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for (pair, sum) in &self.matrix {
            let count = counts.entry(side(pair)).or_default();
            *count = count.saturating_add(sum.count);
        }
        let keep = if counts.len() > MAX_SIDE { MAX_SIDE.saturating_sub(1) } else { MAX_SIDE };
        let mut ranked: Vec<(usize, Arc<str>)> =
            counts.into_iter().map(|(name, count)| (count, name)).collect();
        ranked.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        ranked.into_iter().take(keep).map(|(_, name)| name).collect()
    }
}

impl PreemptionSum {
    fn add(&mut self, found: &PreemptionRecord<'_>) {
        self.count = self.count.saturating_add(1);
        let Some((run, ran)) = found.eviction.run.as_ref().zip(found.ran()) else { return };
        for (fr, amount) in run.amounts.iter() {
            let lost = self.lost.entry(*fr).or_default();
            *lost = lost.saturating_add(i128::from(*amount).saturating_mul(i128::from(ran)));
        }
    }

    fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        for (fr, lost) in &other.lost {
            let sum = self.lost.entry(*fr).or_default();
            *sum = sum.saturating_add(*lost);
        }
    }
}
