//! The page of a namespace: its LocalQueues with state and quota, and its pending workloads, without other tenants.
//!
//! Invariants: a LocalQueue is one row, however many flavor-resources it has, so that no count is read twice; only an active
//! queue has an available amount.

use super::bar::Bar;
use super::data::NamespacePage;
use super::frame::{Frame, Request, Section};
use super::links::Links;
use super::marks::{Shape, Tag};
use super::page::{AddressedPage, Page};
use super::rows::WorkloadRow;
use super::text;
use crate::visibility::views::{LocalQueueView, LocalQuotaView, state_in_words};
use askama::Template;

/// Most LocalQueues of a page; each takes some 0.5 kB, and as much for each flavor-resource.
const MAX_QUEUES: usize = 100;

/// Address of the page of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceQuery {
    /// Name of the namespace.
    pub name: String,
}

#[derive(Template)]
#[template(path = "namespace.html", config = "src/dashboard/askama.toml")]
struct NamespaceTemplate<'a> {
    frame: Frame,
    name: &'a str,
    pending: String,
    needs_change: String,
    pending_href: String,
    admitted: String,
    admitted_href: String,
    queues: Vec<QueueRow>,
    /// Whether LocalQueues are left out.
    is_cut: bool,
    workloads: Vec<WorkloadRow>,
}

struct QueueRow {
    /// Whether its workloads may be admitted, and why not.
    state: Tag,
    name: String,
    href: String,
    cluster_queue: String,
    quota: Vec<QuotaLine>,
    pending: String,
    admitted: String,
}

/// A flavor-resource of a LocalQueue.
struct QuotaLine {
    /// `nvidia.com/gpu in h100-80g`.
    name: String,
    /// Sums of the ClusterQueue; absent if the viewer may not see them.
    bar: Option<Bar>,
    used: String,
    /// Empty if the queue is not active.
    available: String,
}

impl AddressedPage for NamespaceQuery {
    fn href(&self, links: &Links) -> String {
        links.namespace(&self.name)
    }

    fn namespace(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn subject(&self) -> String {
        format!("namespace {}", self.name)
    }
}

impl Page for NamespacePage {
    fn html(&self, request: &Request) -> askama::Result<String> {
        render(request, self)
    }

    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}

/// Renders the page of a namespace.
fn render(request: &Request, data: &NamespacePage) -> askama::Result<String> {
    let (links, name) = (&request.links, data.namespace.as_str());
    NamespaceTemplate {
        frame: Frame::of(request, name, Section::Namespace, (&data.source, data.partial)),
        name,
        pending: text::count(data.pending),
        needs_change: text::changes(data.needs_change),
        pending_href: links.with_query("/pending", &[("ns", name)]),
        admitted: text::count(data.admitted),
        admitted_href: links.with_query("/admitted", &[("ns", name)]),
        queues: shown(&data.local_queues).into_iter().map(|queue| queue_row(queue, links)).collect(),
        is_cut: data.local_queues.len() > MAX_QUEUES,
        workloads: WorkloadRow::all(&data.workloads, links, request.now),
    }
    .render()
}

fn state(queue: &LocalQueueView) -> Tag {
    if queue.active {
        return Tag::new(Shape::Good, "active");
    }
    let word = match queue.reason.as_str() {
        "" => "not active".to_owned(),
        reason => state_in_words(reason).map_or_else(|| format!("not active: {reason}"), str::to_owned),
    };
    Tag::new(Shape::NeedsChange, &word)
}

/// Returns the queues by name; of too many, the ones with the most workloads.
fn shown(all: &[LocalQueueView]) -> Vec<&LocalQueueView> {
    let mut shown: Vec<&LocalQueueView> = all.iter().collect();
    shown.sort_by_key(|queue| std::cmp::Reverse(queue.pending.total.saturating_add(queue.admitted)));
    shown.truncate(MAX_QUEUES);
    shown.sort_by_key(|queue| &queue.metadata.name);
    shown
}

fn queue_row(queue: &LocalQueueView, links: &Links) -> QueueRow {
    let line = |quota: &LocalQuotaView| {
        let name = format!("{} in {}", quota.resource, quota.flavor);
        QuotaLine {
            bar: quota.shared.as_ref().map(|shared| Bar::of(shared, &name)),
            used: text::amount(&quota.used),
            available: if queue.active { text::amount(&quota.available) } else { String::new() },
            name,
        }
    };
    let name = &queue.metadata.name;
    QueueRow {
        state: state(queue),
        name: name.clone(),
        href: links.with_query("/pending", &[("ns", &queue.metadata.namespace), ("lq", name)]),
        cluster_queue: queue.cluster_queue.clone(),
        quota: queue.quota.iter().map(line).collect(),
        pending: text::count(queue.pending.total),
        admitted: text::count(queue.admitted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_one_row_with_its_state() {
        let quota = |flavor: &str| LocalQuotaView { flavor: flavor.to_owned(), ..LocalQuotaView::default() };
        for (active, reason, word, available) in [
            (true, "", "active", "0"),
            (false, "", "not active", ""),
            (false, "Stopped", "stopped", ""),
            (false, "ClusterQueueDoesNotExist", "its ClusterQueue does not exist", ""),
            (false, "ClusterQueueStopped", "its ClusterQueue is stopped", ""),
            (false, "NamespaceNotSelected", "its ClusterQueue does not select this namespace", ""),
            (false, "BlockedByWorkload", "behind a workload that can never be admitted", ""),
            (false, "ClusterQueueFlavorNotFound", "not active: ClusterQueueFlavorNotFound", ""),
        ] {
            let mut queue = LocalQueueView {
                active,
                reason: reason.to_owned(),
                quota: vec![quota("a"), quota("b")],
                ..LocalQueueView::default()
            };
            for line in &mut queue.quota {
                line.available.value = "0".to_owned();
            }
            let row = queue_row(&queue, &Links::default());
            assert_eq!((row.state.word.as_str(), row.quota.len()), (word, 2));
            assert!(row.quota.iter().all(|line| line.available == available), "{reason}");
        }
    }
}
