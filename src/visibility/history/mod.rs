//! Answers from the history of the last 24 hours: preemptions, usage and lines of charts.
//!
//! Invariants: an answer says since when it is recorded; of a workload that the reader may not see it has the ClusterQueue alone;
//! usage of shared queues is for readers of the cluster.

pub mod csv;
mod lines;

pub use lines::lines;

use super::access::Access;
use super::views::{
    AmountView, HistoryAmount, HistoryWorkload, HoursOf, HoursView, JobView, PreemptionReport,
    PreemptionSumView, PreemptionView, Recorded, UsageReport, UsageView, ViewMetadata,
};
use crate::history::{
    HistoryView, PreemptionQuery, PreemptionRecord, PreemptionSum, PreemptionSums, Preemptor, Subject,
    UsageGroup, UsageQuery, UsageRow,
};
use crate::quota::FlavorResource;
use crate::resources::{Amount, format_quantity, to_f64};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most rows of usage.
const MAX_ROWS: usize = 10_000;
/// Most preemptions of a page.
const MAX_PREEMPTIONS: usize = 500;

/// A history with the replica that recorded it.
#[derive(Clone, Copy, Debug)]
pub struct HistorySource<'a> {
    /// The history.
    pub history: &'a HistoryView,
    /// The replica.
    pub replica: &'a str,
    /// The time of the answer.
    pub now: Timestamp,
}

impl HistorySource<'_> {
    fn recorded(&self, (asked, until): (Option<Timestamp>, Timestamp), from: Option<Timestamp>) -> Recorded {
        let start = from.map(|from| asked.map_or(from, |asked| asked.max(from)));
        Recorded {
            from: start,
            until: Some(until),
            replica: self.replica.to_owned(),
            complete: from.is_some_and(|from| asked.is_some_and(|asked| asked >= from)),
            drift: u64::try_from(self.history.drift).unwrap_or(u64::MAX),
        }
    }

    fn named(&self, fr: u32) -> Option<&FlavorResource> {
        self.history.flavor_resources.get(usize::try_from(fr).ok()?)
    }

    /// Returns preemptions, the newest first, from the one at `offset` on, with the sums of all that match. Those whose victim the
    /// reader may not see are left out.
    pub fn preemptions(
        &self,
        query: &PreemptionQuery<'_>,
        offset: usize,
        access: &Access,
    ) -> PreemptionReport {
        let mut found = self.history.preemptions(query);
        found.retain(|found| access.sees(&found.record.workload.key.namespace));
        let sums = PreemptionSums::of(found.iter().copied());
        let of_reason = |(reason, sum): (&Arc<str>, &PreemptionSum)| PreemptionSumView {
            reason: reason.to_string(),
            ..self.sum_view(sum)
        };
        let of_pair =
            |((preemptor, victim), sum): (&(Arc<str>, Arc<str>), &PreemptionSum)| PreemptionSumView {
                preemptor_cluster_queue: preemptor.to_string(),
                victim_cluster_queue: victim.to_string(),
                ..self.sum_view(sum)
            };
        let page = found.iter().skip(offset).take(MAX_PREEMPTIONS);
        PreemptionReport {
            items: page.map(|found| self.preemption_view(found, access)).collect(),
            total: number(found.len()),
            by_reason: sums.by_reason.iter().map(of_reason).collect(),
            matrix: sums.matrix.iter().map(of_pair).collect(),
            recorded: self.recorded((query.since, self.now), self.history.records_from()),
        }
    }

    fn sum_view(&self, sum: &PreemptionSum) -> PreemptionSumView {
        let mut lost: BTreeMap<&str, i128> = BTreeMap::new();
        for (fr, time) in &sum.lost {
            if let Some(fr) = self.named(*fr) {
                let all = lost.entry(&fr.resource).or_default();
                *all = all.saturating_add(*time);
            }
        }
        let hours = |(resource, time): (&str, i128)| HoursOf {
            resource: resource.to_owned(),
            hours: hours_view(resource, time),
        };
        PreemptionSumView {
            count: number(sum.count),
            lost: lost.into_iter().map(hours).collect(),
            ..PreemptionSumView::default()
        }
    }

    fn preemption_view(&self, found: &PreemptionRecord<'_>, access: &Access) -> PreemptionView {
        let (record, eviction) = (found.record, found.eviction);
        let amounts = eviction.run.as_ref().map_or(&[][..], |run| &run.amounts);
        let amount = |(fr, amount): &(u32, i64)| {
            let fr = self.named(*fr)?;
            Some(HistoryAmount {
                flavor: fr.flavor.to_string(),
                resource: fr.resource.to_string(),
                amount: amount_view(&fr.resource, *amount),
            })
        };
        let seconds = |milliseconds: i64| milliseconds.div_euclid(1_000);
        PreemptionView {
            metadata: ViewMetadata {
                namespace: record.workload.key.namespace.to_string(),
                name: format!("{}.{}", record.workload.key.name, record.key.attempt),
                uid: record.key.uid.to_string(),
                ..ViewMetadata::default()
            },
            time: Timestamp::from_millisecond(eviction.at).ok(),
            victim: victim_view(&record.workload),
            preemptor: found.preemption.preemptor.as_ref().map(|p| preemptor_view(p, access)),
            reason: found.preemption.reason.to_string(),
            amounts: amounts.iter().filter_map(amount).collect(),
            ran_seconds: found.ran().map(seconds),
            released_seconds: eviction.released.map(|at| seconds(at.saturating_sub(eviction.at).max(0))),
            borrowed: eviction.borrowed,
            seeded: record.seeded,
        }
    }

    /// Returns usage in a period.
    ///
    /// # Errors
    /// If the reader may not see what is asked for, or if there are too many rows; the text says what to do.
    pub fn usage(&self, query: &UsageQuery<'_>, access: &Access) -> Result<UsageReport, String> {
        let visible = query.namespace.map_or(access.cluster, |namespace| access.sees(namespace));
        if !visible {
            return Err(
                "usage of the whole cluster is for readers of the cluster: use -n NAMESPACE".to_owned()
            );
        }
        let usage = self.history.usage(query);
        if usage.rows.len() > MAX_ROWS {
            return Err(format!(
                "{} rows, at most {MAX_ROWS}: narrow it with -n, --by or --since",
                usage.rows.len()
            ));
        }
        let by_series = matches!(query.by, UsageGroup::Queue | UsageGroup::Cohort | UsageGroup::Flavor);
        let exact = by_series && query.namespace.is_none();
        let attribution =
            if exact { "" } else { "borrowed: in proportion to the use of the ClusterQueue in each hour" };
        let hidden = !access.sees_sums();
        let view = |row: &UsageRow| {
            let mut view = usage_view(row);
            if hidden {
                view.borrowed = HoursView::default();
            }
            view
        };
        let mut recorded = self.recorded((Some(query.from), query.until), self.history.from);
        // Runs that ended are read from records.
        recorded.complete &= exact || self.history.records_from().is_some_and(|from| from <= query.from);
        Ok(UsageReport {
            by: query.by.as_str().to_owned(),
            items: usage.rows.iter().map(view).collect(),
            sums: usage.sums.iter().map(view).collect(),
            recorded,
            attribution: attribution.to_owned(),
        })
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn victim_view(workload: &Subject) -> HistoryWorkload {
    let job = |(kind, name): &(Arc<str>, Arc<str>)| JobView {
        kind: kind.to_string(),
        name: name.to_string(),
        ..JobView::default()
    };
    HistoryWorkload {
        namespace: workload.key.namespace.to_string(),
        name: workload.key.name.to_string(),
        job: workload.job.as_ref().map(job),
        cluster_queue: workload.cluster_queue.to_string(),
        priority: Some(workload.priority),
    }
}

fn preemptor_view(preemptor: &Preemptor, access: &Access) -> HistoryWorkload {
    let cluster_queue = preemptor.cluster_queue.to_string();
    if !access.sees(&preemptor.key.namespace) {
        return HistoryWorkload { cluster_queue, ..HistoryWorkload::default() };
    }
    HistoryWorkload {
        namespace: preemptor.key.namespace.to_string(),
        name: preemptor.key.name.to_string(),
        job: None,
        cluster_queue,
        priority: Some(preemptor.priority),
    }
}

fn usage_view(row: &UsageRow) -> UsageView {
    let seconds = |milliseconds: i64| milliseconds.div_euclid(1_000);
    UsageView {
        metadata: ViewMetadata { name: format!("{}.{}", row.group, row.resource), ..ViewMetadata::default() },
        group: row.group.clone(),
        resource: row.resource.to_string(),
        jobs: number(row.jobs),
        used: hours_view(&row.resource, row.used),
        borrowed: hours_view(&row.resource, row.borrowed),
        lost: hours_view(&row.resource, row.lost),
        wait_p50_seconds: row.wait_median.map(seconds),
        wait_p99_seconds: row.wait_p99.map(seconds),
    }
}

/// Greatest whole number up to which every reader of JSON has all digits.
const MAX_EXACT: i64 = 1 << 53;

fn amount_view(resource: &str, units: i64) -> AmountView {
    let exact = (-MAX_EXACT..=MAX_EXACT).contains(&units);
    let whole = units_per_whole(resource);
    let number = match units.checked_rem(whole) {
        Some(0) => units.checked_div(whole).map(serde_json::Number::from),
        _ => serde_json::Number::from_f64(to_f64(units.into()) / to_f64(whole.into())),
    };
    AmountView { value: format_quantity(resource, Amount::new(units)), number: number.filter(|_| exact) }
}

/// Returns how many units a core, a byte or a piece has.
fn units_per_whole(resource: &str) -> i64 {
    if resource == "cpu" { 1_000 } else { 1 }
}

/// Returns units × milliseconds of a resource as hours.
fn hours_view(resource: &str, time: i128) -> HoursView {
    let whole = i128::from(units_per_whole(resource)).saturating_mul(3_600_000).max(1);
    let (hours, rest) = (time.div_euclid(whole), time.rem_euclid(whole));
    HoursView { unit_milliseconds: time.to_string(), hours: to_f64(hours) + to_f64(rest) / to_f64(whole) }
}

#[cfg(test)]
mod tests;
