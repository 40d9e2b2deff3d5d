//! Answers from the history of the last 24 hours, and from a durable record: preemptions, usage and lines of charts.
//!
//! Invariants: an answer has the time from which on it is complete; of a workload that the reader may not see, it has the
//! ClusterQueue alone; usage of shared queues is for readers of the cluster.

pub mod csv;
pub mod export;
mod lines;
mod own;
mod period;
mod prices;
mod purge;
mod question;
mod recorded_runs;
mod records;
mod replicas;
mod steps;
mod tables;
mod timeline;

pub use export::{ExportTopic, Rollup};
pub use lines::lines;
pub use own::OwnTopic;
pub use period::since;
pub use prices::{Bill, Prices};
pub use purge::{PURGED, PurgeTopic, PurgedRows};
pub use question::{
    HistoryAnswer, HistoryQuestion, HistoryState, HistoryTopic, LineTopic, PERIOD, PreemptionTopic,
    ReadRecord, UsageTopic,
};
pub use recorded_runs::ended_runs;
pub use records::{RecordReport, RecordTopic};
pub use replicas::{REPORT_INTERVAL, RingReport, RingStarts};
pub use steps::resource_rank;
pub use tables::workload_text;
pub use timeline::{add_evictions, add_waits};

use super::access::Access;
use super::amounts::plain_amount_view;
use super::page::{ModelError, PageQuery, QueuedKey, RowKey, token};
use super::views::{
    FlavorUsage, HistoryAmount, HistoryWorkload, HoursOf, HoursView, JobView, ListMetadata, PreemptionReport,
    PreemptionSumView, PreemptionView, Recorded, UsageReport, UsageView, ViewMetadata,
};
use crate::history::{
    FlavorHours, Gap, HistoryView, PreemptionQuery, PreemptionRecord, PreemptionSum, PreemptionSums,
    Preemptor, Record, StepSum, Usage, UsageGroup, UsageQuery, UsageRow,
};
use crate::quota::FlavorResource;
use crate::resources::{to_f64, units_per_whole};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of rows of usage.
const MAX_ROWS: usize = 10_000;
/// Number of bytes of the unit in which amounts of memory are shown.
const GIBIBYTE: f64 = 1_073_741_824.0;
/// Name of the list in a continue token.
const PREEMPTIONS: &str = "preemptions";

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
            gaps: Vec::new(),
        }
    }

    fn named(&self, fr: u32) -> Option<&FlavorResource> {
        self.history.flavor_resources.get(usize::try_from(fr).ok()?)
    }

    /// Returns a page of preemptions, the newest first, with the sums of all that match. Preemptions whose victim the reader may
    /// not see are left out.
    ///
    /// # Errors
    /// If the token of the page belongs to another list.
    pub fn preemptions(
        &self,
        query: &PreemptionQuery<'_>,
        page: &PageQuery,
        access: &Access,
    ) -> Result<PreemptionReport, ModelError> {
        let after = page.after(PREEMPTIONS)?;
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
        let skipped = after.map_or(0, |key| found.partition_point(|found| is_up_to(found, &key)));
        let rows = found.get(skipped..).unwrap_or_default();
        let shown = rows.get(..page.limit).unwrap_or(rows);
        let left = rows.len().saturating_sub(shown.len());
        let last = shown.last().filter(|_| left > 0);
        Ok(PreemptionReport {
            metadata: ListMetadata {
                continue_token: last.map(|last| token(PREEMPTIONS, row_key(last))).unwrap_or_default(),
                remaining_item_count: last.map(|_| number(left)),
            },
            items: shown.iter().map(|found| self.preemption_view(found, access)).collect(),
            total: number(found.len()),
            lost: self.sum_view(&sums.total).lost,
            by_reason: sums.by_reason.iter().map(of_reason).collect(),
            by_preemptor: sums
                .by_preemptor()
                .iter()
                .map(|(preemptor, sum)| PreemptionSumView {
                    preemptor_cluster_queue: preemptor.to_string(),
                    ..self.sum_view(sum)
                })
                .collect(),
            matrix: sums.matrix.iter().map(of_pair).collect(),
            recorded: self.recorded((query.since, self.now), self.history.records_from()),
        })
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
                amount: plain_amount_view(&fr.resource, (*amount).into()),
            })
        };
        let seconds = |milliseconds: i64| milliseconds.div_euclid(1_000);
        PreemptionView {
            metadata: ViewMetadata {
                namespace: record.workload.key.namespace.to_string(),
                name: row_name(record),
                ..ViewMetadata::default()
            },
            time: Timestamp::from_millisecond(eviction.at).ok(),
            victim: victim_view(record),
            preemptor: found.preemption.preemptor.as_ref().map(|p| preemptor_view(p, access)),
            reason: found.preemption.reason.to_string(),
            amounts: amounts.iter().filter_map(amount).collect(),
            ran_seconds: found.ran().map(seconds),
            released_seconds: eviction.released.map(|at| seconds(at.saturating_sub(eviction.at).max(0))),
            borrowed: eviction.borrowed,
            seeded: record.seeded,
            filled: record.filled,
        }
    }

    /// Returns usage in a period.
    ///
    /// # Errors
    /// If the reader may not see the usage, or if there are too many rows; the text names the remedy.
    pub fn usage(&self, query: &UsageQuery<'_>, access: &Access) -> Result<UsageReport, String> {
        check_usage_access(query, access)?;
        let (asked, day_ago) = (query.from, question::day_before(self.now));
        let query = &UsageQuery { from: asked.max(day_ago), ..query.clone() };
        let by_series = matches!(query.by, UsageGroup::Queue | UsageGroup::Cohort | UsageGroup::Flavor);
        let exact = by_series && query.namespace.is_none();
        let kept_from = self.history.from.map(|from| from.max(day_ago));
        let mut recorded = self.recorded((Some(asked), query.until), kept_from);
        // Ended runs are read from records.
        recorded.complete &= exact || self.history.records_from().is_some_and(|from| from <= query.from);
        let attribution = if exact { "" } else { ATTRIBUTION };
        report(query, access, &self.history.usage(query), recorded, attribution)
    }

    /// Returns what the resource of a query was used in the steps of its period, also by the groups asked for. The right to see its usage
    /// is checked before.
    fn course(
        &self,
        query: &UsageQuery<'_>,
        steps: &[(Timestamp, Timestamp)],
        groups: &[&str],
    ) -> Vec<Option<StepSum>> {
        let day_ago = question::day_before(self.now);
        let kept: Vec<(Timestamp, Timestamp)> =
            steps.iter().map(|(from, until)| ((*from).max(day_ago), *until)).collect();
        self.history.course(query, &kept, groups)
    }

    /// Returns usage in a period from a durable record, from full hour to full hour.
    ///
    /// # Errors
    /// As `usage`, or if the record cannot be read.
    pub fn recorded_usage(
        &self,
        query: &UsageQuery<'_>,
        access: &Access,
        record: &dyn ReadRecord,
    ) -> Result<UsageReport, ModelError> {
        check_usage_access(query, access).map_err(ModelError::Invalid)?;
        let found = record.usage(query, self.history, self.now).ok_or(ModelError::Unavailable)?;
        let recorded = Recorded {
            from: found.usage.from,
            complete: found.recorded_from.is_some_and(|from| from <= query.from)
                && !found.gaps.iter().any(Gap::is_lossy),
            gaps: shown(found.gaps, access),
            ..self.recorded((Some(query.from), found.until), found.recorded_from)
        };
        let attribution = format!("{ATTRIBUTION}; waits: to the bounds of a histogram");
        report(query, access, &found.usage, recorded, &attribution).map_err(ModelError::Invalid)
    }
}

impl PreemptionReport {
    fn with_gaps(mut self, gaps: Vec<Gap>, access: &Access) -> Self {
        self.recorded.complete &= !gaps.iter().any(Gap::is_lossy);
        self.recorded.gaps = shown(gaps, access);
        self
    }
}

/// Returns gaps for a reader. The number of runs that ended in a gap is a sum over all tenants, which only some readers may see.
fn shown(mut gaps: Vec<Gap>, access: &Access) -> Vec<Gap> {
    if !access.cluster {
        for gap in &mut gaps {
            gap.unknown_ends = 0;
        }
    }
    gaps
}

/// Rule by which borrowed hours are attributed to workloads.
const ATTRIBUTION: &str = "borrowed: in proportion to the use of the ClusterQueue in each hour";

fn check_usage_access(query: &UsageQuery<'_>, access: &Access) -> Result<(), String> {
    let sees_all = access.cluster || access.all_namespaces;
    if query.namespace.map_or(sees_all, |namespace| access.sees(namespace)) {
        return Ok(());
    }
    Err("usage of the whole cluster is for readers of the cluster: use -n NAMESPACE".to_owned())
}

fn report(
    query: &UsageQuery<'_>,
    access: &Access,
    usage: &Usage,
    recorded: Recorded,
    attribution: &str,
) -> Result<UsageReport, String> {
    if usage.rows.len() > MAX_ROWS {
        let rows = usage.rows.len();
        return Err(format!("{rows} rows, at most {MAX_ROWS}: narrow it with -n, --by or --since"));
    }
    let hidden = !access.sees_sums();
    let view = |row: &UsageRow| {
        let mut view = usage_view(row);
        query.namespace.unwrap_or_default().clone_into(&mut view.metadata.namespace);
        if hidden {
            view.borrowed = HoursView::default();
            for flavor in &mut view.flavors {
                flavor.borrowed = HoursView::default();
            }
        }
        view
    };
    Ok(UsageReport {
        metadata: ListMetadata::default(),
        by: query.by.as_str().to_owned(),
        items: usage.rows.iter().map(view).collect(),
        sums: usage.sums.iter().map(view).collect(),
        recorded,
        attribution: attribution.to_owned(),
        steps: Vec::new(),
    })
}

/// Returns the key of a preemption in the order of the list.
fn row_key(found: &PreemptionRecord<'_>) -> RowKey {
    let record = found.record;
    RowKey {
        namespace: record.workload.key.namespace.to_string(),
        name: row_name(record),
        queued: Some(QueuedKey {
            priority: i64::from(record.key.attempt),
            since: Timestamp::from_millisecond(found.eviction.at).unwrap_or_default(),
            uid: record.key.uid.to_string(),
            local_queue: String::new(),
            cluster_queue: String::new(),
        }),
        waiting: None,
        size: None,
    }
}

/// Returns whether a preemption is at or before this key, in the order that every replica has.
fn is_up_to(found: &PreemptionRecord<'_>, key: &RowKey) -> bool {
    let Some(last) = &key.queued else { return false };
    let attempt = i64::from(found.record.key.attempt);
    let at = (last.since.as_millisecond(), found.eviction.at);
    (at.0, &*found.record.key.uid, last.priority) <= (at.1, &*last.uid, attempt)
}

/// Returns the name of a preemption: name of the victim, and number of its earlier evictions.
fn row_name(record: &Record) -> String {
    format!("{}.{}", record.workload.key.name, record.key.attempt)
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn victim_view(record: &Record) -> HistoryWorkload {
    let workload = &record.workload;
    let job = |(kind, name): &(Arc<str>, Arc<str>)| JobView {
        kind: kind.to_string(),
        name: name.to_string(),
        ..JobView::default()
    };
    HistoryWorkload {
        namespace: workload.key.namespace.to_string(),
        name: workload.key.name.to_string(),
        uid: record.key.uid.to_string(),
        job: workload.job.as_ref().map(job),
        cluster_queue: workload.cluster_queue.to_string(),
        // The conditions of an earlier eviction do not say which priority the victim had; the present one may be another.
        priority: (!record.seeded).then_some(workload.priority),
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
        uid: String::new(),
        job: None,
        cluster_queue,
        priority: preemptor.priority,
    }
}

fn usage_view(row: &UsageRow) -> UsageView {
    let seconds = |milliseconds: i64| milliseconds.div_euclid(1_000);
    let of_flavor = |hours: &FlavorHours| FlavorUsage {
        flavor: hours.flavor.to_string(),
        used: hours_view(&row.resource, hours.used),
        borrowed: hours_view(&row.resource, hours.borrowed),
        lost: hours_view(&row.resource, hours.lost),
    };
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
        flavors: row.flavors.iter().map(of_flavor).collect(),
    }
}

/// Returns units × milliseconds of a resource as hours.
fn hours_view(resource: &str, time: i128) -> HoursView {
    let whole = i128::from(units_per_whole(resource)).saturating_mul(3_600_000).max(1);
    let (hours, rest) = (time.div_euclid(whole), time.rem_euclid(whole));
    let hours = to_f64(hours) + to_f64(rest) / to_f64(whole);
    HoursView { unit_milliseconds: time.to_string(), hours, text: hours_text(resource, hours) }
}

/// Returns whether amounts of a resource are bytes.
pub fn is_bytes(resource: &str) -> bool {
    resource == "memory" || resource == "ephemeral-storage" || resource.starts_with("hugepages-")
}

/// Formats hours with no, one or three decimals, fewer the larger they are; bytes in gibibytes.
fn hours_text(resource: &str, hours: f64) -> String {
    let (number, unit) = if is_bytes(resource) { (hours / GIBIBYTE, "Gi") } else { (hours, "") };
    match number.abs() {
        size if size <= f64::EPSILON || size >= 100.0 => format!("{number:.0}{unit}"),
        size if size >= 1.0 => format!("{number:.1}{unit}"),
        _ => format!("{number:.3}{unit}"),
    }
}

#[cfg(test)]
mod tests;
