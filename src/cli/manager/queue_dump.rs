//! Logs the queues on SIGUSR2, with the messages of Kueue's manager.
//!
//! Invariants: a line names a bounded number of workloads, and so does a list, which ends with the number of omitted workloads;
//! the lines are logged at every log level.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::core_queries::{self, CoreQuery};
use super::logs::DUMP_TARGET;
use crate::api::ObjectKey;
use crate::quota::{FlavorResource, NodeUsage};
use crate::resources::{Amount, format_quantity};
use crate::snapshot::{ClusterQueueListing, Excerpt, QueueListing};

/// Maximum time to wait for the core.
const CORE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of names in a line: about 12 kB.
const NAMES_PER_LINE: usize = 100;

/// Logs the queues at each SIGUSR2. Ends only with an error.
pub(super) async fn run(queries: mpsc::Sender<CoreQuery>) -> anyhow::Result<()> {
    let mut signals = signal(SignalKind::user_defined2())?;
    while signals.recv().await.is_some() {
        let listing = core_queries::ask(&queries, CoreQuery::ListQueues);
        let Ok(Some(listing)) = tokio::time::timeout(CORE_TIMEOUT, listing).await else {
            tracing::error!("cannot dump the queues: the core does not answer");
            continue;
        };
        // Not on a thread that serves watches: a slow reader of the logs would delay them.
        tokio::task::spawn_blocking(move || log(&listing)).await?;
    }
    Ok(())
}

fn log(listing: &QueueListing) {
    tracing::info!(target: DUMP_TARGET, "Started dump");
    for queue in &listing.cluster_queues {
        log_usage(queue);
    }
    for (cohort, usage) in &listing.cohorts {
        tracing::info!(
            target: DUMP_TARGET,
            cohort = &**cohort,
            resources = amounts(usage, |node| node.subtree_quota),
            usage = amounts(usage, |node| node.usage),
            "Found cohort"
        );
    }
    for queue in &listing.cluster_queues {
        log_pending(queue);
    }
    tracing::info!(target: DUMP_TARGET, "Ended dump");
}

fn log_usage(queue: &ClusterQueueListing) {
    for line in lines(&queue.workloads) {
        tracing::info!(
            target: DUMP_TARGET,
            clusterQueue = &*queue.name,
            cohort = queue.cohort.as_deref().unwrap_or("<none>"),
            active = queue.active,
            quota = amounts(&queue.usage, |node| node.limits.nominal),
            usage = amounts(&queue.usage, |node| node.usage),
            reserving = queue.workloads.total,
            admitted = queue.admitted,
            workloads = line.names,
            omitted = line.omitted,
            "Found ClusterQueue"
        );
    }
}

fn log_pending(queue: &ClusterQueueListing) {
    let (pending, inadmissible) = (lines(&queue.pending), lines(&queue.inadmissible));
    for number in 0..pending.len().max(inadmissible.len()) {
        let names = |lines: &[Line]| lines.get(number).map(|line| line.names.clone()).unwrap_or_default();
        let omitted = |lines: &[Line]| lines.get(number).map_or(0, |line| line.omitted);
        tracing::info!(
            target: DUMP_TARGET,
            clusterQueue = &*queue.name,
            pending = names(&pending),
            pendingTotal = queue.pending.total,
            pendingOmitted = omitted(&pending),
            inadmissible = names(&inadmissible),
            inadmissibleTotal = queue.inadmissible.total,
            inadmissibleOmitted = omitted(&inadmissible),
            waiting = queue.waiting,
            "Found pending and inadmissible workloads in ClusterQueue"
        );
    }
}

/// The part of a list that is logged in one line.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    names: String,
    /// Number of workloads that no line names; in the last line only.
    omitted: usize,
}

/// Splits a list into lines; an empty list has one.
fn lines(list: &Excerpt<ObjectKey>) -> Vec<Line> {
    let chunks = list.first.chunks(NAMES_PER_LINE);
    let joined = chunks.map(|keys| keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    let mut lines: Vec<Line> = joined.map(|names| Line { names, omitted: 0 }).collect();
    if lines.is_empty() {
        lines.push(Line { names: String::new(), omitted: 0 });
    }
    if let Some(last) = lines.last_mut() {
        last.omitted = list.more;
    }
    lines
}

/// Formats amounts as `flavor/resource=quantity`.
fn amounts(usage: &BTreeMap<FlavorResource, NodeUsage>, amount: impl Fn(&NodeUsage) -> Amount) -> String {
    let mut text = String::new();
    for (fr, node) in usage {
        let separator = if text.is_empty() { "" } else { " " };
        // Writing to a String does not fail.
        let _ = write!(
            text,
            "{separator}{}/{}={}",
            fr.flavor,
            fr.resource,
            format_quantity(&fr.resource, amount(node))
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_split_and_omissions_are_counted() {
        let keys = |count: usize| (0..count).map(|number| ObjectKey::new("ns", &format!("w{number}")));
        let sizes = |count, limit| {
            let lines = lines(&Excerpt::of(keys(count), limit));
            lines.iter().map(|line| (line.names.split_whitespace().count(), line.omitted)).collect::<Vec<_>>()
        };
        assert_eq!(sizes(0, 1_000), [(0, 0)]);
        assert_eq!(sizes(2, 1_000), [(2, 0)]);
        assert_eq!(sizes(150, 1_000), [(100, 0), (50, 0)]);
        assert_eq!(sizes(500, 120), [(100, 0), (20, 380)]);
        assert_eq!(lines(&Excerpt::of(keys(2), 9))[0].names, "ns/w0 ns/w1");
    }
}
