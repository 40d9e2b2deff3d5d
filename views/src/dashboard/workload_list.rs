//! Lists of workloads that are not pending: workloads that have quota, and finished ones; the newest first, pages by key.

use super::frame::{Frame, Request, Scope, Section};
use super::links::Links;
use super::marks::Shape;
use super::page::{AddressedPage, Page, given};
use super::pending::{Choice, Paging, choices, selected};
use super::rows::WorkloadRow;
use super::text::{self, Moment};
use crate::visibility::views::{ListMetadata, Source, WorkloadState, WorkloadView};
use askama::Template;
use serde::{Deserialize, Serialize};

/// Which workloads a list has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ListedState {
    /// Workloads that have quota: admitted, waiting for checks, or being stopped.
    #[default]
    Admitted,
    /// Finished workloads.
    Finished,
}

/// Parameters of a page of workloads that are not pending.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadListQuery {
    /// Which workloads.
    pub list: ListedState,
    /// Name of the ClusterQueue; empty for all.
    #[serde(rename = "cq")]
    pub cluster_queue: String,
    /// The namespace; empty for all.
    #[serde(rename = "ns")]
    pub namespace: String,
    /// Name of the LocalQueue, which needs a namespace; empty for all.
    #[serde(rename = "lq")]
    pub local_queue: String,
    /// A part of the name, or a label as `KEY=VALUE`; empty for all.
    pub q: String,
    /// The order key of the last row of the page before; empty for the first page.
    pub after: String,
    /// Most rows.
    pub limit: u64,
}

/// A page of workloads that are not pending.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadListPage {
    /// What was asked for.
    pub query: WorkloadListQuery,
    /// Continue token, and number of the remaining rows.
    pub metadata: ListMetadata,
    /// The rows.
    pub items: Vec<WorkloadView>,
    /// Number of workloads of the list; absent with a filter, or if the viewer does not see all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Names of ClusterQueues to choose from.
    pub cluster_queues: Vec<String>,
    /// Names of namespaces to choose from.
    pub namespaces: Vec<String>,
    /// Number of workloads that were searched, if not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub searched: Option<u64>,
    /// Replica, time and state that the page was made from.
    pub source: Source,
    /// Whether a part is missing or may differ from the leader's.
    #[serde(default)]
    pub partial: bool,
}

#[derive(Template)]
#[template(path = "workload_list.html", config = "src/dashboard/askama.toml")]
struct WorkloadListTemplate<'a> {
    frame: Frame,
    query: &'a WorkloadListQuery,
    heading: &'static str,
    /// Heading of the column with the time.
    time: &'static str,
    /// Heading of the column with amounts; empty without this column, because finished workloads have no amounts.
    amounts: &'static str,
    lede: String,
    action: String,
    states: Vec<StateLink>,
    cluster_queues: Vec<Choice>,
    namespaces: Vec<Choice>,
    rows: Vec<ListedRow>,
    /// Whether the viewer may open the pages of ClusterQueues.
    links_queues: bool,
    paging: Paging,
    empty: String,
}

/// A row, and the detail beside its state.
struct ListedRow {
    row: WorkloadRow,
    detail: String,
}

/// A list of workloads of another state, with the same queue and namespace.
pub(super) struct StateLink {
    pub(super) text: &'static str,
    pub(super) href: String,
    pub(super) current: bool,
}

impl StateLink {
    /// Returns the links of all lists. `None` stands for the list of pending workloads.
    pub(super) fn all(
        links: &Links,
        current: Option<ListedState>,
        (cluster_queue, namespace): (&str, &str),
    ) -> Vec<Self> {
        let states = [
            ("Pending", None),
            ("With quota", Some(ListedState::Admitted)),
            ("Finished", Some(ListedState::Finished)),
        ];
        let link = |(text, state): (&'static str, Option<ListedState>)| Self {
            text,
            href: links.with_query(path(state), &[("cq", cluster_queue), ("ns", namespace)]),
            current: state == current,
        };
        states.map(link).into()
    }
}

const fn path(list: Option<ListedState>) -> &'static str {
    match list {
        None => "/pending",
        Some(ListedState::Admitted) => "/admitted",
        Some(ListedState::Finished) => "/finished",
    }
}

/// Returns the address of a page.
fn href(links: &Links, query: &WorkloadListQuery) -> String {
    let limit = if query.limit == 0 { String::new() } else { query.limit.to_string() };
    let pairs = [
        ("cq", query.cluster_queue.as_str()),
        ("ns", &query.namespace),
        ("lq", &query.local_queue),
        ("q", &query.q),
        ("limit", &limit),
        ("after", &query.after),
    ];
    links.with_query(path(Some(query.list)), &pairs)
}

impl AddressedPage for WorkloadListQuery {
    fn href(&self, links: &Links) -> String {
        href(links, self)
    }

    fn namespace(&self) -> Option<&str> {
        given(&self.namespace)
    }

    fn subject(&self) -> String {
        match given(&self.namespace) {
            None => "the workloads of all namespaces".to_owned(),
            Some(namespace) => format!("workloads of namespace {namespace}"),
        }
    }
}

impl Page for WorkloadListPage {
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

/// Renders a page of workloads that are not pending.
fn render(request: &Request, data: &WorkloadListPage) -> askama::Result<String> {
    let (query, links) = (&data.query, &request.links);
    let (heading, time, amounts) = match query.list {
        ListedState::Admitted => ("Workloads with quota", "For", "Has"),
        ListedState::Finished => ("Finished workloads", "Ended ago", ""),
    };
    let next = match data.metadata.continue_token.as_str() {
        "" => String::new(),
        token => href(links, &WorkloadListQuery { after: token.to_owned(), ..query.clone() }),
    };
    let left = match data.metadata.remaining_item_count {
        Some(left) if !data.items.is_empty() => format!("{} more after these", text::count(left)),
        _ => String::new(),
    };
    let namespaces = if request.scope == Scope::Cluster { &data.namespaces } else { &request.namespaces };
    let row = |view: &WorkloadView| ListedRow {
        row: WorkloadRow::of(view, links, request.now),
        detail: if view.state == WorkloadState::Admitted { String::new() } else { view.message.clone() },
    };
    WorkloadListTemplate {
        frame: Frame::of(request, heading, Section::None, (&data.source, data.partial)),
        query,
        heading,
        time,
        amounts,
        lede: lede(data),
        action: links.to(path(Some(query.list))),
        states: StateLink::all(links, Some(query.list), (&query.cluster_queue, &query.namespace)),
        cluster_queues: choices(&data.cluster_queues, &query.cluster_queue),
        namespaces: choices(namespaces, &query.namespace),
        rows: data.items.iter().map(row).collect(),
        links_queues: request.scope == Scope::Cluster,
        paging: Paging {
            left,
            clock: Moment::clock(data.source.time.unwrap_or(request.now)),
            first: href(links, &WorkloadListQuery { after: String::new(), ..query.clone() }),
            next,
            searched: data.searched.map(text::count).unwrap_or_default(),
        },
        empty: empty_text(query),
    }
    .render()
}

fn lede(data: &WorkloadListPage) -> String {
    let query = &data.query;
    let total = data.total.map(|total| match query.list {
        ListedState::Admitted => format!("{} with quota", text::count(total)),
        ListedState::Finished => format!("{} finished", text::count(total)),
    });
    let mut parts: Vec<String> = total.into_iter().collect();
    parts.extend(selected(&query.cluster_queue, &query.namespace, &query.local_queue));
    parts.push("the newest first".to_owned());
    text::sentence(&parts.join(", "))
}

fn empty_text(query: &WorkloadListQuery) -> String {
    let queue = match query.cluster_queue.as_str() {
        "" => String::new(),
        name => format!(" of ClusterQueue {name}"),
    };
    let state = match query.list {
        ListedState::Admitted => "has quota",
        ListedState::Finished => "that is still stored has finished",
    };
    if query.q.is_empty() {
        format!("No workload{queue} {state}.")
    } else {
        format!("No workload{queue} that matches the filters {state}.")
    }
}
