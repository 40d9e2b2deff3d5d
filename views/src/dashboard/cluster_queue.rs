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
use crate::resources::Quantity;
use crate::visibility::views::{AmountView, QuotaView, WorkloadView};
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
    /// Command that asks about more quota, and the page that asks it; both empty for a ClusterQueue without a quota that is a number
    /// above 0, unless its first workloads lack some.
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
    let tried = changed_quota(data);
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

/// Returns the question about more nominal quota: with what the first of the next workloads lacks that lacks some, else twice the quota
/// that the charts show.
fn changed_quota(data: &ClusterQueuePage) -> Option<WhatIfQuery> {
    let name = &data.cluster_queue.metadata.name;
    let of_next = data.next.iter().filter_map(|row| lacking(row, &data.cluster_queue.quota));
    let doubled = shown_quota(data).map(|quota| (quota, &quota.nominal));
    of_next.chain(doubled).find_map(|(quota, more)| {
        let more = Quantity::parse(&more.value).ok().filter(|more| more.sign() > 0)?;
        // A quota without a limit is no number.
        let nominal = Quantity::parse(&quota.nominal.value).ok()?.plus(&more).canonical();
        let quota = format!("{name}:{}:{}={nominal}", quota.flavor, quota.resource);
        Some(WhatIfQuery { quota, ..WhatIfQuery::default() })
    })
}

/// Returns a quota of the ClusterQueue that a pending workload waits for, and what it lacks of it.
fn lacking<'a>(row: &'a WorkloadView, quotas: &'a [QuotaView]) -> Option<(&'a QuotaView, &'a AmountView)> {
    let blocker = row.first_blocker.as_ref()?;
    let missing = blocker.missing.as_ref()?;
    let same = |quota: &&QuotaView| quota.flavor == blocker.flavor && quota.resource == blocker.resource;
    quotas.iter().find(same).map(|quota| (quota, missing))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::views::{BlockerView, ClusterQueueView, ViewMetadata};

    fn amount(value: &str) -> AmountView {
        AmountView { value: value.to_owned(), number: None }
    }

    /// The quota that is asked about is never the one that the ClusterQueue has.
    #[test]
    fn the_command_asks_for_more_quota() {
        for (nominal, missing, asked) in [
            ("128", Some("8"), Some("136")),
            ("32Ti", Some("6Ti"), Some("38Ti")),
            ("0", Some("500m"), Some("500m")),
            ("4", Some("0"), Some("8")),
            ("4", None, Some("8")),
            ("1500m", None, Some("3")),
            ("0", None, None),
            ("unlimited", None, None),
            ("unlimited", Some("8"), None),
        ] {
            let (flavor, resource) = ("f".to_owned(), "cpu".to_owned());
            let quota = QuotaView {
                flavor: flavor.clone(),
                resource: resource.clone(),
                nominal: amount(nominal),
                ..QuotaView::default()
            };
            let blocker =
                BlockerView { flavor, resource, missing: missing.map(amount), ..BlockerView::default() };
            let metadata = ViewMetadata { name: "cq".to_owned(), ..ViewMetadata::default() };
            let data = ClusterQueuePage {
                cluster_queue: ClusterQueueView {
                    metadata,
                    quota: vec![quota],
                    ..ClusterQueueView::default()
                },
                next: vec![WorkloadView { first_blocker: Some(blocker), ..WorkloadView::default() }],
                ..ClusterQueuePage::default()
            };
            let found = changed_quota(&data).map(|query| query.command());
            let command = asked.map(|quantity| format!("sluice what-if --quota cq:f:cpu={quantity}"));
            assert_eq!(found, command, "{nominal} {missing:?}");
        }
    }
}
