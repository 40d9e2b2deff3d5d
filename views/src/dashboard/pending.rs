//! The list of pending workloads: filters in the address, counts by reason, pages by key.

use super::data::{PendingPage, PendingQuery};
use super::frame::{Frame, Request, Scope, Section};
use super::links::Links;
use super::marks::Shape;
use super::page::{AddressedPage, Page, given};
use super::rows::WorkloadRow;
use super::text::{self, Moment};
use super::workload_list::StateLink;
use crate::visibility::pending_list::ListOrder;
use askama::Template;

#[derive(Template)]
#[template(path = "pending.html", config = "src/dashboard/askama.toml")]
struct PendingTemplate<'a> {
    frame: Frame,
    query: &'a PendingQuery,
    lede: String,
    action: String,
    filters: Filters,
    orders: Vec<Choice>,
    sorted: Sorted,
    states: Vec<StateLink>,
    chips: Vec<Chip>,
    rows: Vec<WorkloadRow>,
    /// Whether the viewer may open the pages of ClusterQueues.
    links_queues: bool,
    paging: Paging,
    empty: String,
    all: String,
}

/// Options of the filters by name; without options a filter is not shown.
struct Filters {
    cluster_queues: Vec<Choice>,
    cohorts: Vec<Choice>,
    namespaces: Vec<Choice>,
    local_queues: Vec<Choice>,
}

impl Filters {
    fn of(request: &Request, data: &PendingPage) -> Self {
        let query = &data.query;
        let in_cluster = request.scope == Scope::Cluster;
        let shown = |names: &[String], chosen: &str| {
            if names.is_empty() && chosen.is_empty() { Vec::new() } else { choices(names, chosen) }
        };
        Self {
            cluster_queues: shown(&data.cluster_queues, &query.cluster_queue),
            cohorts: shown(&data.cohorts, &query.cohort),
            namespaces: choices(
                if in_cluster { &data.namespaces } else { &request.namespaces },
                &query.namespace,
            ),
            local_queues: shown(&data.local_queues, &query.local_queue),
        }
    }
}

/// Links to the first and the next page, and the numbers of rows left and searched.
pub(super) struct Paging {
    /// Number of rows after this page, in words; empty if it is not known.
    pub(super) left: String,
    pub(super) clock: Moment,
    pub(super) first: String,
    /// Empty on the last page.
    pub(super) next: String,
    /// Number of workloads that were searched, in words; empty if all were.
    pub(super) searched: String,
}

/// Value of `aria-sort` by column; empty for columns that do not define the order.
#[derive(Default)]
struct Sorted {
    position: &'static str,
    priority: &'static str,
    wait: &'static str,
    size: &'static str,
}

impl Sorted {
    fn of(order: ListOrder) -> Self {
        match order {
            ListOrder::Position => Self { position: "ascending", ..Self::default() },
            ListOrder::Priority => Self { priority: "descending", ..Self::default() },
            ListOrder::Wait => Self { wait: "descending", ..Self::default() },
            ListOrder::Size => Self { size: "descending", ..Self::default() },
        }
    }
}

/// An option of a select.
pub(super) struct Choice {
    pub(super) value: String,
    pub(super) words: String,
    pub(super) selected: bool,
}

/// A filter by reason.
struct Chip {
    text: String,
    count: String,
    href: String,
    current: bool,
}

impl AddressedPage for PendingQuery {
    fn href(&self, links: &Links) -> String {
        href(links, self)
    }

    fn namespace(&self) -> Option<&str> {
        given(&self.namespace)
    }

    fn subject(&self) -> String {
        match given(&self.namespace) {
            None => "the pending workloads of all namespaces".to_owned(),
            Some(namespace) => format!("workloads of namespace {namespace}"),
        }
    }

    fn object(&self) -> String {
        // Only a cohort that does not exist makes the page absent.
        given(&self.cohort).map_or_else(|| self.subject(), |cohort| format!("Cohort {cohort}"))
    }
}

impl Page for PendingPage {
    fn html(&self, request: &Request) -> askama::Result<String> {
        render(request, self)
    }

    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    fn csv(&self) -> Option<String> {
        Some(super::csv::workloads(&self.items))
    }
}

/// Renders a page of pending workloads.
fn render(request: &Request, data: &PendingPage) -> askama::Result<String> {
    let (query, links) = (&data.query, &request.links);
    let without_page = PendingQuery { after: String::new(), ..query.clone() };
    let next = match data.metadata.continue_token.as_str() {
        "" => String::new(),
        token => href(links, &PendingQuery { after: token.to_owned(), ..query.clone() }),
    };
    let remaining = data.metadata.remaining_item_count;
    let shown = match remaining {
        Some(left) if !data.items.is_empty() => format!("{} more after these", text::count(left)),
        _ => String::new(),
    };
    // `PageAddress::parse` has refused invalid values.
    let order = ListOrder::parse(&query.sort).unwrap_or_default();
    let source_time = data.source.time.unwrap_or(request.now);
    PendingTemplate {
        frame: Frame::of(request, "Pending workloads", Section::Pending, (&data.source, data.partial)),
        query,
        lede: lede(data, order),
        action: links.to("/pending"),
        filters: Filters::of(request, data),
        orders: ListOrder::ALL.map(|one| order_choice(one, order)).into(),
        sorted: Sorted::of(order),
        states: StateLink::all(links, None, (&query.cluster_queue, &query.namespace)),
        chips: chips(data, links),
        rows: WorkloadRow::all(&data.items, links, request.now),
        links_queues: request.scope == Scope::Cluster,
        paging: Paging {
            left: shown,
            clock: Moment::clock(source_time),
            first: href(links, &without_page),
            next,
            searched: data.searched.map(text::count).unwrap_or_default(),
        },
        empty: empty_text(query),
        all: href(
            links,
            &PendingQuery {
                cluster_queue: query.cluster_queue.clone(),
                cohort: query.cohort.clone(),
                namespace: query.namespace.clone(),
                sort: query.sort.clone(),
                ..PendingQuery::default()
            },
        ),
    }
    .render()
}

/// Returns the address of a page of pending workloads.
fn href(links: &Links, query: &PendingQuery) -> String {
    let limit = if query.limit == 0 { String::new() } else { query.limit.to_string() };
    let pairs = [
        ("cq", query.cluster_queue.as_str()),
        ("ns", &query.namespace),
        ("lq", &query.local_queue),
        ("cohort", &query.cohort),
        ("reason", &query.reason),
        ("min", &query.min),
        ("q", &query.q),
        ("sort", &query.sort),
        ("limit", &limit),
        ("after", &query.after),
    ];
    links.with_query("/pending", &pairs)
}

/// Returns the options of a select for one of some names, or all.
pub(super) fn choices(names: &[String], chosen: &str) -> Vec<Choice> {
    let mut all = vec![Choice { value: String::new(), words: "all".to_owned(), selected: chosen.is_empty() }];
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    // The requested name stays chosen, even if there is no such object.
    if !chosen.is_empty() && !names.contains(&chosen) {
        names.push(chosen);
    }
    let choice =
        |name: &str| Choice { value: name.to_owned(), words: name.to_owned(), selected: name == chosen };
    all.extend(names.into_iter().map(choice));
    all
}

fn order_choice(order: ListOrder, chosen: ListOrder) -> Choice {
    let words = match order {
        ListOrder::Position => "queue and position",
        ListOrder::Priority => "priority",
        ListOrder::Wait => "longest wait",
        ListOrder::Size => "largest request",
    };
    // The default needs no parameter.
    let value = if order == ListOrder::default() { "" } else { order.as_str() };
    Choice { value: value.to_owned(), words: words.to_owned(), selected: order == chosen }
}

/// Returns the filters in words; empty filters are left out.
pub(super) fn selected(cluster_queue: &str, namespace: &str, local_queue: &str) -> Vec<String> {
    let all = [("ClusterQueue", cluster_queue), ("namespace", namespace), ("LocalQueue", local_queue)];
    all.iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| format!("{name} {value}")).collect()
}

fn lede(data: &PendingPage, order: ListOrder) -> String {
    let query = &data.query;
    let order = match order {
        ListOrder::Position if query.cluster_queue.is_empty() => "by ClusterQueue and position",
        ListOrder::Position => "by position",
        ListOrder::Priority => "highest priority first",
        ListOrder::Wait => "longest wait first",
        ListOrder::Size => "largest request first",
    };
    let mut parts = Vec::new();
    if let Some(total) = data.total {
        let queues = data.queue_count.filter(|count| *count > 0 && query.cluster_queue.is_empty());
        let queues = queues.map(|count| format!(" in {}", text::counted(count, "ClusterQueue")));
        parts.push(format!("{} pending{}", text::count(total), queues.unwrap_or_default()));
    }
    parts.extend(given(&query.cohort).map(|cohort| format!("cohort {cohort}")));
    parts.extend(selected(&query.cluster_queue, &query.namespace, &query.local_queue));
    parts.push(order.to_owned());
    format!("{}.", parts.join(", "))
}

fn chips(data: &PendingPage, links: &Links) -> Vec<Chip> {
    let query = &data.query;
    let chip = |text: &str, reason: &str, count: Option<u64>| Chip {
        text: text.to_owned(),
        count: count.map(text::count).unwrap_or_default(),
        href: href(links, &PendingQuery { reason: reason.to_owned(), after: String::new(), ..query.clone() }),
        current: query.reason == reason,
    };
    let mut chips = vec![
        chip("All", "", data.total),
        chip("Waits for capacity", "waiting", Some(data.waiting)),
        chip("Needs a change", "stuck", Some(data.needs_change)),
    ];
    let counted = data.reasons.iter().filter(|row| row.count > 0 || row.reason == query.reason);
    chips.extend(counted.map(|row| chip(&row.reason, &row.reason, Some(row.count))));
    chips
}

fn empty_text(query: &PendingQuery) -> String {
    let queue = match (query.cluster_queue.as_str(), query.cohort.as_str()) {
        ("", "") => String::new(),
        ("", cohort) => format!(" below cohort {cohort}"),
        (queue, _) => format!(" of ClusterQueue {queue}"),
    };
    let filtered = !(query.reason.is_empty() && query.min.is_empty() && query.q.is_empty());
    if filtered {
        format!("No workload{queue} matches the filters.")
    } else {
        format!("No workload{queue} is pending.")
    }
}
