//! The page of a namespace: its LocalQueues with their quota, and its pending workloads, without other tenants.

use super::bar::Bar;
use super::data::NamespacePage;
use super::frame::{Frame, Request, Section};
use super::links::Links;
use super::marks::{Shape, Tag};
use super::page::{AddressedPage, Page};
use super::rows::WorkloadRow;
use super::text;
use crate::visibility::views::{LocalQueueView, LocalQuotaView};
use askama::Template;

/// Most LocalQueues of a page; each takes some 1.1 kB.
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
    name: String,
    href: String,
    cluster_queue: String,
    /// Whether its workloads may be admitted, and why not.
    state: Tag,
    /// `nvidia.com/gpu in h100-80g`; empty for a queue without quota.
    quota: String,
    bar: Option<Bar>,
    used: String,
    available: String,
    pending: String,
    admitted: String,
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
        queues: shown(&data.local_queues).into_iter().flat_map(|queue| queue_rows(queue, links)).collect(),
        is_cut: data.local_queues.len() > MAX_QUEUES,
        workloads: WorkloadRow::all(&data.workloads, links, request.now),
    }
    .render()
}

fn state(queue: &LocalQueueView) -> Tag {
    match (queue.active, queue.reason.as_str()) {
        (true, _) => Tag::new(Shape::Good, "active"),
        (false, "") => Tag::new(Shape::NeedsChange, "not active"),
        (false, reason) => Tag::new(Shape::NeedsChange, &format!("not active: {reason}")),
    }
}

/// Returns the queues by name; of too many, the ones with the most workloads.
fn shown(all: &[LocalQueueView]) -> Vec<&LocalQueueView> {
    let mut shown: Vec<&LocalQueueView> = all.iter().collect();
    shown.sort_by_key(|queue| std::cmp::Reverse(queue.pending.total.saturating_add(queue.admitted)));
    shown.truncate(MAX_QUEUES);
    shown.sort_by_key(|queue| &queue.metadata.name);
    shown
}

/// Returns a row for each flavor-resource of a queue; only the first one has the name.
fn queue_rows(queue: &LocalQueueView, links: &Links) -> Vec<QueueRow> {
    let row = |quota: Option<&LocalQuotaView>| {
        let shared = quota.and_then(|quota| quota.shared.as_ref());
        let name = &queue.metadata.name;
        QueueRow {
            name: name.clone(),
            href: links.with_query("/pending", &[("ns", &queue.metadata.namespace), ("lq", name)]),
            cluster_queue: queue.cluster_queue.clone(),
            state: state(queue),
            quota: quota.map(|quota| format!("{} in {}", quota.resource, quota.flavor)).unwrap_or_default(),
            bar: shared.map(|shared| Bar::of(shared, &format!("ClusterQueue {}", queue.cluster_queue))),
            used: quota.map(|quota| text::amount(&quota.used)).unwrap_or_default(),
            available: quota
                .map(
                    |quota| if queue.active { text::amount(&quota.available) } else { text::NONE.to_owned() },
                )
                .unwrap_or_default(),
            pending: text::count(queue.pending.total),
            admitted: text::count(queue.admitted),
        }
    };
    if queue.quota.is_empty() {
        return vec![row(None)];
    }
    queue.quota.iter().map(|quota| row(Some(quota))).collect()
}
