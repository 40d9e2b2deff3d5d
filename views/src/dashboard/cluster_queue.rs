//! The page of a ClusterQueue: quota by flavor-resource, the path to the root with the binding node, and the next workloads.

use super::chart::{self, Chart};
use super::data::{ClusterQueuePage, PathNode};
use super::frame::{Frame, Request, Section};
use super::links::Links;
use super::marks::{Shape, Tag};
use super::object::{ObjectKind, ObjectLinks, ObjectName};
use super::page::{AddressedPage, Page};
use super::rows::{Crumb, QuotaRow, WorkloadRow};
use super::text;
use super::what_if_query::WhatIfQuery;
use crate::visibility::views::QuotaView;
use askama::Template;

/// Address of the page of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterQueueQuery {
    /// Name of the ClusterQueue.
    pub name: String,
}

#[derive(Template)]
#[template(path = "cluster_queue.html", config = "src/dashboard/askama.toml")]
struct ClusterQueueTemplate<'a> {
    frame: Frame,
    crumbs: Vec<Crumb>,
    name: &'a str,
    state: Tag,
    strategy: &'a str,
    message: &'a str,
    facts: Facts,
    quotas: Vec<QuotaRow>,
    trend: Trend,
    path_of: String,
    path: Vec<PathRow>,
    next: Vec<WorkloadRow>,
    local_queues: Vec<LocalQueueRow>,
    largest: Vec<WorkloadRow>,
    object: ObjectLinks,
}

/// The last 24 hours.
struct Trend {
    charts: Vec<Chart>,
    period: String,
}

/// Numbers at the top of the page.
struct Facts {
    pending: String,
    pending_href: String,
    /// Address of the list of workloads with quota.
    reserving_href: String,
    reserving: String,
    admitted: String,
    /// Empty without fair sharing.
    share: String,
    weight: String,
    /// Command that asks about another quota, and the page that asks it; both empty for a ClusterQueue without a quota that is
    /// a number.
    what_if: String,
    what_if_href: String,
}

struct PathRow {
    node: String,
    href: String,
    nominal: String,
    used: String,
    limit: String,
    provides: String,
    binds: bool,
}

struct LocalQueueRow {
    namespace: String,
    name: String,
    href: String,
    pending: String,
    admitted: String,
}

impl AddressedPage for ClusterQueueQuery {
    fn href(&self, links: &Links) -> String {
        links.cluster_queue(&self.name)
    }

    fn subject(&self) -> String {
        format!("ClusterQueue {}", self.name)
    }
}

impl Page for ClusterQueuePage {
    fn html(&self, request: &Request) -> askama::Result<String> {
        render(request, self)
    }

    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}

/// Renders the page of a ClusterQueue.
fn render(request: &Request, data: &ClusterQueuePage) -> askama::Result<String> {
    let (queue, links) = (&data.cluster_queue, &request.links);
    let name = queue.metadata.name.as_str();
    let state =
        if queue.active { Tag::new(Shape::Good, "Active") } else { Tag::new(Shape::NeedsChange, "Inactive") };
    let cohorts = data.path.iter().rev().filter(|node| node.kind == "Cohort");
    let mut crumbs: Vec<Crumb> =
        cohorts.map(|node| Crumb::new(&node.name, links.cohort(&node.name))).collect();
    if crumbs.is_empty() && !queue.cohort.is_empty() {
        crumbs.push(Crumb::new(&queue.cohort, links.cohort(&queue.cohort)));
    }
    crumbs.push(Crumb::new("ClusterQueue", String::new()));
    let local_queue = |view: &crate::visibility::views::LocalQueueView| {
        let (namespace, name) = (&view.metadata.namespace, &view.metadata.name);
        LocalQueueRow {
            namespace: namespace.clone(),
            name: name.clone(),
            href: links.with_query("/pending", &[("ns", namespace), ("lq", name)]),
            pending: text::count(view.pending.total),
            admitted: text::count(view.admitted),
        }
    };
    let share = queue.share.as_ref();
    let tried = shown_quota(data).filter(|quota| quota.nominal.value != "unlimited");
    let tried = tried.map(|quota| changed_quota(name, quota));
    ClusterQueueTemplate {
        frame: Frame::of(request, name, Section::None, (&data.source, data.partial)),
        crumbs,
        name,
        state,
        strategy: &queue.queueing_strategy,
        message: if queue.active { "" } else { &queue.message },
        facts: Facts {
            pending: text::count(queue.pending.total),
            pending_href: links.with_query("/pending", &[("cq", name)]),
            reserving_href: links.with_query("/admitted", &[("cq", name)]),
            reserving: text::count(queue.reserving),
            admitted: text::count(queue.admitted),
            share: share.map(|share| text::grouped(&share.value.to_string())).unwrap_or_default(),
            weight: share.map(|share| share.weight.clone()).unwrap_or_default(),
            what_if: tried.as_ref().map(WhatIfQuery::command).unwrap_or_default(),
            what_if_href: tried.map(|query| query.address(links)).unwrap_or_default(),
        },
        quotas: queue.quota.iter().map(QuotaRow::of).collect(),
        trend: Trend {
            charts: data
                .trend
                .as_ref()
                .map(|trend| chart::of_queue(trend, shown_quota(data)))
                .unwrap_or_default(),
            period: data.trend.as_ref().map(|trend| chart::period(&trend.recorded)).unwrap_or_default(),
        },
        path_of: data.path.first().map_or_else(String::new, |node| {
            format!("{} in {}, from the queue to the root", node.quota.resource, node.quota.flavor)
        }),
        path: data.path.iter().map(|node| path_row(node, links)).collect(),
        next: WorkloadRow::all(&data.next, links, request.now),
        local_queues: data.local_queues.iter().map(local_queue).collect(),
        largest: WorkloadRow::all(&data.largest, links, request.now),
        object: ObjectLinks::of(
            &ObjectName { kind: ObjectKind::ClusterQueue, namespace: String::new(), name: name.to_owned() },
            request,
        ),
    }
    .render()
}

/// Returns the question about the quota as it is, to be asked with another amount.
fn changed_quota(name: &str, quota: &QuotaView) -> WhatIfQuery {
    let quota = format!("{name}:{}:{}={}", quota.flavor, quota.resource, quota.nominal.value);
    WhatIfQuery { quota, ..WhatIfQuery::default() }
}

/// Returns the quota that the charts show: that of the path, or the first one.
fn shown_quota(data: &ClusterQueuePage) -> Option<&QuotaView> {
    let of_path = data.path.first().map(|node| (&node.quota.flavor, &node.quota.resource));
    let quotas = &data.cluster_queue.quota;
    let same = |quota: &&QuotaView| of_path == Some((&quota.flavor, &quota.resource));
    quotas.iter().find(same).or_else(|| quotas.first())
}

fn path_row(node: &PathNode, links: &Links) -> PathRow {
    let is_queue = node.kind == "ClusterQueue";
    PathRow {
        node: format!("{} {}", node.kind, node.name),
        href: if is_queue { links.cluster_queue(&node.name) } else { links.cohort(&node.name) },
        nominal: text::amount(&node.quota.nominal),
        used: text::amount(&node.quota.used),
        limit: text::amount(&node.quota.limit),
        provides: text::amount(&node.quota.available),
        binds: node.binds,
    }
}
