//! The value of a list of pending workloads: filters of the address, counts that the queues keep, and a bounded search.

use super::{all, choices, number, queues_that_exist, selector, sum_needing_change, sum_reasons};
use crate::dashboard::data::{PendingPage, PendingQuery};
use crate::dashboard::question::DEFAULT_ROWS;
use crate::dashboard::text;
use crate::resources::{Quantity, to_f64};
use crate::snapshot::Snapshot;
use crate::visibility::access::Access;
use crate::visibility::page::{ModelError, PageQuery};
use crate::visibility::pending_list::{ListOrder, pending_workloads};
use crate::visibility::queue_views::{cluster_queues, local_queues, without_queue};
use crate::visibility::selector::is_pending_reason;
use crate::visibility::views::{ListMetadata, ReasonCount, Source, WorkloadView};
use crate::visibility::workloads::WorkloadQuery;

/// Most rows that a search passes over for one page.
const MAX_SEARCHED: usize = 4_000;

/// What a search asks for beside the queue.
struct Search {
    /// Least amount of a resource.
    min: Option<(String, f64)>,
    /// Part of the name.
    name: String,
    /// A label.
    label: Option<(String, String)>,
}

impl Search {
    fn of(query: &PendingQuery) -> Result<Self, ModelError> {
        let label =
            query.q.split_once('=').map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()));
        let min = match query.min.split_once('=') {
            _ if query.min.is_empty() => None,
            Some((resource, amount)) => {
                let amount = amount.trim();
                let parsed = Quantity::parse(amount)
                    .map_err(|error| ModelError::Invalid(format!("min: {amount:?} is no amount: {error}")))?;
                Some((resource.trim().to_owned(), to_f64(parsed.milli().into()) / 1_000.0))
            }
            None => return Err(ModelError::Invalid(format!("min: {:?} is not RESOURCE=AMOUNT", query.min))),
        };
        let name = if label.is_some() { String::new() } else { query.q.to_lowercase() };
        Ok(Self { min, name, label })
    }

    fn is_empty(&self) -> bool {
        self.min.is_none() && self.name.is_empty() && self.label.is_none()
    }

    fn matches(&self, view: &WorkloadView) -> bool {
        let labels = &view.metadata.labels;
        let enough = |(resource, least): &(String, f64)| {
            let needs = view.needs.iter().filter(|need| need.resource == *resource);
            needs.filter_map(|need| text::value(&need.amount)).any(|amount| amount >= *least)
        };
        let job = view.job.as_ref().map_or("", |job| job.name.as_str());
        let named =
            [view.metadata.name.as_str(), job].iter().any(|name| name.to_lowercase().contains(&self.name));
        named
            && self.min.as_ref().is_none_or(enough)
            && self.label.as_ref().is_none_or(|(key, value)| labels.get(key) == Some(value))
    }
}

/// Returns the value of a page of pending workloads.
///
/// # Errors
/// The lists are not complete, or a part of the question cannot be read.
pub fn pending_page(
    snapshot: &Snapshot,
    access: &Access,
    (query, source): (&PendingQuery, Source),
) -> Result<PendingPage, ModelError> {
    let search = Search::of(query)?;
    let order = ListOrder::parse(&query.sort).map_err(|text| ModelError::Invalid(format!("sort: {text}")))?;
    let rows =
        usize::try_from(if query.limit == 0 { DEFAULT_ROWS } else { query.limit }).unwrap_or(usize::MAX);
    let namespace = Some(query.namespace.clone()).filter(|name| !name.is_empty());
    let mut asked = WorkloadQuery {
        namespace,
        selector: selector(&[
            ("status", "pending"),
            ("clusterQueue", &query.cluster_queue),
            ("localQueue", &query.local_queue),
            ("reason", &query.reason),
        ])?,
        page: PageQuery { limit: rows, continue_token: query.after.clone() },
    };
    let (mut items, mut searched) = (Vec::new(), 0_usize);
    let metadata: ListMetadata = loop {
        let (found, metadata) = pending_workloads(snapshot, access, &asked, order)?;
        searched = searched.saturating_add(found.len());
        items.extend(found.into_iter().filter(|view| search.matches(view)));
        let enough = items.len() >= rows || searched >= MAX_SEARCHED || search.is_empty();
        if enough || metadata.continue_token.is_empty() {
            break metadata;
        }
        asked.page.continue_token.clone_from(&metadata.continue_token);
    };
    let is_cut = !search.is_empty() && !metadata.continue_token.is_empty();
    let counts = Counts::of(snapshot, access, query)?;
    let (cluster_queues, namespaces) = choices(snapshot, access);
    let by_queue = query.namespace.is_empty() && query.cluster_queue.is_empty();
    let queue_count = (by_queue && access.sees_everything())
        .then(|| number(snapshot.pending.cluster_queues_from("").count()));
    Ok(PendingPage {
        query: query.clone(),
        queue_count,
        metadata: if search.is_empty() {
            metadata
        } else {
            ListMetadata { remaining_item_count: None, ..metadata }
        },
        items,
        total: counts.total,
        waiting: counts
            .reasons
            .iter()
            .map(|row| row.count)
            .sum::<u64>()
            .saturating_sub(sum_needing_change(&counts.reasons)),
        needs_change: sum_needing_change(&counts.reasons),
        reasons: counts.reasons,
        cluster_queues,
        namespaces,
        searched: is_cut.then(|| number(searched)),
        source,
        partial: false,
    })
}

/// Counts that the queues keep, of the queues that are asked for.
struct Counts {
    total: Option<u64>,
    reasons: Vec<ReasonCount>,
}

impl Counts {
    fn of(snapshot: &Snapshot, access: &Access, query: &PendingQuery) -> Result<Self, ModelError> {
        if query.namespace.is_empty() && query.cluster_queue.is_empty() && access.sees_everything() {
            let reasons = snapshot.workloads.pending_by_reason().map(|summary| ReasonCount {
                reason: summary.reason.as_str().to_owned(),
                count: number(summary.count),
            });
            let reasons = sum_reasons(reasons.collect::<Vec<_>>().iter());
            return Ok(Self { total: Some(reasons.iter().map(|row| row.count).sum()), reasons });
        }
        if query.namespace.is_empty() {
            let mut queues = all(|page| cluster_queues(snapshot, access, page))?;
            queues
                .retain(|queue| query.cluster_queue.is_empty() || queue.metadata.name == query.cluster_queue);
            let lost = match &*query.cluster_queue {
                "" => without_queue(snapshot, access, None),
                _ => Vec::new(),
            };
            let total = queues.iter().map(|queue| queue.pending.total);
            let total = total.chain(lost.iter().map(|row| row.count)).sum();
            let reasons = pending_reasons(queues.iter().flat_map(|queue| &queue.reasons).chain(&lost));
            return Ok(Self { total: Some(total), reasons });
        }
        let mut queues = all(|page| local_queues(snapshot, access, (Some(&query.namespace), page)))?;
        queues.retain(|queue| {
            (query.cluster_queue.is_empty() || queue.cluster_queue == query.cluster_queue)
                && (query.local_queue.is_empty() || queue.metadata.name == query.local_queue)
        });
        let is_whole = query.cluster_queue.is_empty() && query.local_queue.is_empty();
        let lost =
            if is_whole { without_queue(snapshot, access, Some(&query.namespace)) } else { Vec::new() };
        let total = queues.iter().map(|queue| queue.pending.total);
        let total = total.chain(lost.iter().map(|row| row.count)).sum();
        let reasons = pending_reasons(queues_that_exist(snapshot, &queues).chain(&lost));
        Ok(Self { total: Some(total), reasons })
    }
}

/// Adds up counts of pending workloads by reason: those that have quota and wait for checks are in no list of pending ones.
fn pending_reasons<'a>(counts: impl Iterator<Item = &'a ReasonCount>) -> Vec<ReasonCount> {
    sum_reasons(counts.filter(|row| is_pending_reason(&row.reason)))
}
