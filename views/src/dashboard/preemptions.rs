//! The page of preemptions: preemptors and victims, reasons, and the latest ones.
//!
//! Invariants: a number in the matrix is a link to its rows; for a workload that the viewer may not see, the page has only its
//! ClusterQueue.

use super::chart;
use super::frame::{Frame, Request, Section};
use super::links::{Links, in_form};
use super::marks::{Shape, Tag};
use super::page::{AddressedPage, Page, given};
use super::text::{self, Moment};
use crate::history::OTHERS;
use crate::visibility::history::{csv, workload_text};
use crate::visibility::views::{
    Answer, HistoryWorkload, HoursOf, PreemptionReport, PreemptionSumView, PreemptionView, WorkloadState,
};
use askama::Template;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Most rows by reason.
const MAX_REASONS: usize = 20;

/// Parameters of the page of preemptions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PreemptionFilter {
    /// Name of the ClusterQueue of victim or preemptor; empty for all.
    #[serde(rename = "cq")]
    pub cluster_queue: String,
    /// Name of the ClusterQueue of the preemptor; empty for all.
    #[serde(rename = "by")]
    pub preemptor_queue: String,
    /// Name of the ClusterQueue of the victim; empty for all.
    #[serde(rename = "of")]
    pub victim_queue: String,
    /// Namespace of the victims; empty for all.
    #[serde(rename = "ns")]
    pub namespace: String,
    /// The token of the page before; empty for the first page.
    pub after: String,
    /// Most rows.
    pub limit: u64,
}

/// Present state of a victim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VictimNow {
    /// State of the Workload.
    pub state: WorkloadState,
    /// Its position in its ClusterQueue, if it is queued; 1 is the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Seconds from the eviction until it was admitted again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted_after_seconds: Option<i64>,
}

/// The page of preemptions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PreemptionPage {
    /// What was asked for.
    pub query: PreemptionFilter,
    /// Present state of the victims, by UID; victims that no longer exist have no entry.
    #[serde(default)]
    pub now: BTreeMap<String, VictimNow>,
    /// The preemptions with their sums.
    #[serde(flatten)]
    pub answer: Answer<PreemptionReport>,
}

#[derive(Template)]
#[template(path = "preemptions.html", config = "src/dashboard/askama.toml")]
struct PreemptionTemplate<'a> {
    frame: Frame,
    query: &'a PreemptionFilter,
    lede: String,
    period: String,
    /// The filters in words; empty without one.
    selected: String,
    /// The columns of the matrix.
    victims: Vec<Side>,
    matrix: Vec<MatrixRow>,
    /// Resources of the hours, for headings.
    resources: Vec<String>,
    reasons: Vec<ReasonRow>,
    rows: Vec<Row>,
    all: String,
    paging: Paging,
}

/// Links to the first and the next page, and the numbers of rows kept and left.
struct Paging {
    kept: String,
    csv: String,
    clock: String,
    first: String,
    /// Empty on the last page.
    next: String,
    left: String,
}

/// A ClusterQueue beside the matrix.
struct Side {
    name: String,
    /// Address of the ClusterQueue's preemptions; empty for unknown ClusterQueues and for the rest.
    href: String,
}

struct MatrixRow {
    side: Side,
    cells: Vec<Cell>,
    sum: String,
}

struct Cell {
    class: &'static str,
    count: String,
    /// Address of the list of the counted preemptions; empty if the count is 0.
    href: String,
}

struct ReasonRow {
    reason: String,
    count: String,
    hours: Vec<String>,
}

struct Row {
    id: String,
    time: Moment,
    namespace: String,
    name: String,
    href: String,
    preemptor: Preemptor,
    reason: String,
    priority: String,
    by: String,
    amounts: String,
    ran: Moment,
    released: Moment,
    is_held: bool,
    now: Now,
}

/// Present state of a victim, in words.
struct Now {
    /// Absent if the victim no longer exists.
    tag: Option<Tag>,
    /// How long it took to be admitted again.
    after: Moment,
}

#[derive(Default)]
struct Preemptor {
    namespace: String,
    name: String,
    /// Address of the preemptor's page; empty if the viewer may not see the preemptor.
    href: String,
}

/// Returns the address of the page.
fn href(links: &Links, query: &PreemptionFilter) -> String {
    let limit = if query.limit == 0 { String::new() } else { query.limit.to_string() };
    let pairs = [
        ("cq", query.cluster_queue.as_str()),
        ("by", &query.preemptor_queue),
        ("of", &query.victim_queue),
        ("ns", &query.namespace),
        ("limit", &limit),
        ("after", &query.after),
    ];
    links.with_query("/preemptions", &pairs)
}

impl AddressedPage for PreemptionFilter {
    fn href(&self, links: &Links) -> String {
        href(links, self)
    }

    fn namespace(&self) -> Option<&str> {
        given(&self.namespace)
    }

    fn subject(&self) -> String {
        match given(&self.namespace) {
            None => "the preemptions of all namespaces".to_owned(),
            Some(namespace) => format!("preemptions of namespace {namespace}"),
        }
    }
}

impl Page for PreemptionPage {
    fn html(&self, request: &Request) -> askama::Result<String> {
        render(request, self)
    }

    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    fn csv(&self) -> Option<String> {
        Some(csv::preemptions(&self.answer.view))
    }
}

/// Renders the page of preemptions.
fn render(request: &Request, data: &PreemptionPage) -> askama::Result<String> {
    let (report, links, query) = (&data.answer.view, &request.links, &data.query);
    let lost = resources(report);
    let to = |change: &dyn Fn(&mut PreemptionFilter)| {
        let mut other = query.clone();
        change(&mut other);
        href(links, &other)
    };
    let first = to(&|query| query.after.clear());
    let token = &report.metadata.continue_token;
    let left = report.metadata.remaining_item_count;
    let (victims, matrix) = matrix(report, query, links);
    PreemptionTemplate {
        frame: Frame::of(
            request,
            "Preemptions",
            Section::Preemptions,
            (&data.answer.source, data.answer.partial),
        ),
        query,
        selected: selected(query),
        lede: lede(report),
        period: chart::period(&report.recorded),
        victims,
        matrix,
        reasons: report.by_reason.iter().take(MAX_REASONS).map(|sum| reason_row(sum, &lost)).collect(),
        resources: lost.iter().map(|resource| short(resource)).collect(),
        rows: report
            .items
            .iter()
            .map(|item| row(item, data.now.get(&item.victim.uid), (links, request.now)))
            .collect(),
        all: to(&|query| {
            *query = PreemptionFilter { namespace: query.namespace.clone(), ..PreemptionFilter::default() }
        }),
        paging: Paging {
            kept: kept(report),
            csv: in_form(&first, "csv"),
            clock: text::clock(data.answer.source.time.unwrap_or(request.now)),
            next: if token.is_empty() { String::new() } else { to(&|query| query.after.clone_from(token)) },
            left: left.map(|left| format!("{} more", text::count(left))).unwrap_or_default(),
            first,
        },
    }
    .render()
}

/// Returns the resources that victims lost, the first ones by name.
fn resources(report: &PreemptionReport) -> Vec<String> {
    let all: BTreeSet<&str> = report.lost.iter().map(|lost| lost.resource.as_str()).collect();
    // Devices such as GPUs first: users ask for them, and CPU and memory come with them.
    let devices: Vec<&str> = all.iter().copied().filter(|name| name.contains('/')).collect();
    let chosen = if devices.is_empty() { all.into_iter().collect() } else { devices };
    chosen.into_iter().take(2).map(str::to_owned).collect()
}

fn lost_of<'a>(sum: &'a PreemptionSumView, resource: &str) -> Option<&'a HoursOf> {
    sum.lost.iter().find(|lost| lost.resource == resource)
}

fn lede(report: &PreemptionReport) -> String {
    if report.recorded.from.is_none() {
        return "Nothing is recorded: the manager runs with --history-ring=0, or has just started."
            .to_owned();
    }
    if report.total == 0 {
        return format!("No workload was preempted ({}).", chart::period(&report.recorded));
    }
    let most = report.matrix.iter().max_by_key(|sum| sum.count);
    let most = most.filter(|most| report.total > 1 && !most.preemptor_cluster_queue.is_empty()).map(|most| {
        let (by, of) = (&most.preemptor_cluster_queue, &most.victim_cluster_queue);
        let pair = if by == of { format!("within {of}") } else { format!("{by} taking from {of}") };
        format!(" {} were {pair}.", text::count(most.count))
    });
    let took = resources(report).into_iter().next().and_then(|resource| {
        let lost = report.lost.iter().find(|lost| lost.resource == resource)?;
        let (hours, word) = (text::grouped(&lost.hours.text), short(&resource));
        Some(format!(" took {hours} {word} hours of work from their victims"))
    });
    let period = match report.recorded.from {
        Some(from) if !report.recorded.complete => format!("since {}", from.strftime("%H:%M")),
        _ => "in the last 24 hours".to_owned(),
    };
    let (total, took) = (text::count(report.total), took.unwrap_or_default());
    format!("{total} {period}{took}.{}", most.unwrap_or_default())
}

/// Returns the name of a resource without its domain; abbreviations in capitals.
fn short(resource: &str) -> String {
    match resource.rsplit('/').next().unwrap_or(resource) {
        name @ ("gpu" | "cpu" | "tpu") => name.to_uppercase(),
        name => name.to_owned(),
    }
}

/// Returns the filters in words; empty if all preemptions are shown.
fn selected(query: &PreemptionFilter) -> String {
    let (by, of) = (&query.preemptor_queue, &query.victim_queue);
    let pair = match (by.is_empty(), of.is_empty()) {
        (true, true) => String::new(),
        (false, true) => format!("By ClusterQueue {by}."),
        (true, false) => format!("Victims of ClusterQueue {of}."),
        (false, false) => format!("By ClusterQueue {by}, victims of ClusterQueue {of}."),
    };
    let either = match query.cluster_queue.as_str() {
        "" => String::new(),
        name => format!("Of ClusterQueue {name}."),
    };
    [either, pair].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns the matrix: the columns, and the rows.
fn matrix(report: &PreemptionReport, query: &PreemptionFilter, links: &Links) -> (Vec<Side>, Vec<MatrixRow>) {
    let sums = &report.matrix;
    let to = |by: &str, of: &str| {
        let with = PreemptionFilter {
            preemptor_queue: by.to_owned(),
            victim_queue: of.to_owned(),
            after: String::new(),
            ..query.clone()
        };
        href(links, &with)
    };
    let side = |name: &str, address: String| match name {
        "" => Side { name: "unknown".to_owned(), href: String::new() },
        // The row or column for the rest of a large matrix has no page.
        OTHERS => Side { name: "others".to_owned(), href: String::new() },
        name => Side { name: name.to_owned(), href: address },
    };
    let is_queue = |name: &str| !name.is_empty() && name != OTHERS;
    let victims: BTreeSet<&str> = sums.iter().map(|sum| sum.victim_cluster_queue.as_str()).collect();
    let mut rows: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    for sum in sums {
        rows.entry(&sum.preemptor_cluster_queue).or_default().insert(&sum.victim_cluster_queue, sum.count);
    }
    let most = sums.iter().map(|sum| sum.count).max().unwrap_or_default();
    let matrix = rows.into_iter().map(|(name, counts)| MatrixRow {
        side: side(name, to(name, "")),
        cells: victims
            .iter()
            .map(|victim| {
                let count = counts.get(victim).copied().unwrap_or_default();
                let has_rows = count > 0 && is_queue(name) && is_queue(victim);
                Cell { href: if has_rows { to(name, victim) } else { String::new() }, ..cell(count, most) }
            })
            .collect(),
        sum: text::count(counts.values().sum()),
    });
    let matrix = matrix.collect();
    (victims.iter().map(|name| side(name, to("", name))).collect(), matrix)
}

fn cell(count: u64, most: u64) -> Cell {
    // Four shades, by the part of the greatest count.
    let shade = count.saturating_mul(4).checked_div(most).unwrap_or_default();
    let class = match (count, shade) {
        (0, _) => "h0",
        (_, 0 | 1) => "h1",
        (_, 2) => "h2",
        (_, 3) => "h3",
        _ => "h4",
    };
    let count = if count == 0 { "·".to_owned() } else { text::count(count) };
    Cell { class, count, href: String::new() }
}

fn reason_row(sum: &PreemptionSumView, resources: &[String]) -> ReasonRow {
    let hours = |resource: &String| {
        lost_of(sum, resource).map_or_else(|| text::NONE.to_owned(), |lost| text::grouped(&lost.hours.text))
    };
    ReasonRow {
        reason: if sum.reason.is_empty() { "not known".to_owned() } else { sum.reason.clone() },
        count: text::count(sum.count),
        hours: resources.iter().map(hours).collect(),
    }
}

/// Returns the present state of a victim in words.
fn now_of(victim: Option<&VictimNow>) -> Now {
    let Some(victim) = victim else { return Now { tag: None, after: Moment::default() } };
    let tag = match (victim.state, victim.position) {
        (WorkloadState::Evicted, _) => Tag::new(Shape::Waits, "terminating"),
        (WorkloadState::Pending, Some(position)) => {
            Tag::new(Shape::Waits, &format!("pending, position {}", text::count(position)))
        }
        (WorkloadState::Pending, None) => Tag::new(Shape::Waits, "pending"),
        (WorkloadState::Admitted, _) if victim.admitted_after_seconds.is_some() => {
            Tag::new(Shape::Runs, "admitted again after")
        }
        (state, _) => Tag::of_state(state),
    };
    let after = victim.admitted_after_seconds.filter(|_| victim.state == WorkloadState::Admitted);
    Now { tag: Some(tag), after: after.map_or_else(Moment::default, Moment::lasting) }
}

fn row(item: &PreemptionView, victim: Option<&VictimNow>, (links, now): (&Links, Timestamp)) -> Row {
    let duration = |seconds: Option<i64>| seconds.map_or_else(Moment::default, Moment::lasting);
    let amounts = item
        .amounts
        .iter()
        .map(|amount| format!("{} {}", text::amount(&amount.amount), short(&amount.resource)));
    let priority = |workload: Option<&HistoryWorkload>| {
        let priority = workload.and_then(|workload| workload.priority);
        priority.map(|priority| text::grouped(&priority.to_string())).unwrap_or_default()
    };
    Row {
        id: format!("p-{}-{}", item.victim.uid, item.metadata.name.rsplit('.').next().unwrap_or_default()),
        time: item.time.map(|time| Moment::clock_on(time, now)).unwrap_or_default(),
        namespace: item.victim.namespace.clone(),
        name: item.victim.name.clone(),
        href: links.workload(&item.victim.namespace, &item.victim.name),
        preemptor: item.preemptor.as_ref().map(|known| preemptor(known, links)).unwrap_or_default(),
        reason: item.reason.clone(),
        priority: priority(Some(&item.victim)),
        by: priority(item.preemptor.as_ref()),
        amounts: amounts.collect::<Vec<_>>().join(", "),
        ran: duration(item.ran_seconds),
        released: duration(item.released_seconds),
        is_held: item.released_seconds.is_none() && !item.seeded,
        now: now_of(victim),
    }
}

fn preemptor(known: &HistoryWorkload, links: &Links) -> Preemptor {
    if known.name.is_empty() {
        return Preemptor { name: workload_text(known), ..Preemptor::default() };
    }
    Preemptor {
        namespace: known.namespace.clone(),
        name: known.name.clone(),
        href: links.workload(&known.namespace, &known.name),
    }
}

/// Returns how many preemptions are kept, and since when.
fn kept(report: &PreemptionReport) -> String {
    let Some(from) = report.recorded.from else { return String::new() };
    let number = text::counted(report.total, "preemption");
    format!("{number} recorded since {} UTC", from.strftime("%Y-%m-%d %H:%M"))
}
