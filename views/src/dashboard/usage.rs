//! The page of usage: a table of hours by group for each resource, with their borrowed part and the part lost to preemption, and
//! waits; a chart of the scarcest resource over the period, by its largest groups.
//!
//! Invariants: it has at most 200 rows, ordered within a resource by hours; sums and CSV include all rows.

use super::chart::{self, Chart};
use super::frame::{Frame, Request, Section};
use super::links::{Links, in_form};
use super::page::{AddressedPage, Page, given};
use super::text::{self, Moment};
use crate::history::{FilledPart, Gap, UsageGroup};
use crate::visibility::history::{csv, resource_rank};
use crate::visibility::views::{Answer, HoursView, Recorded, UsageReport, UsageView};
use askama::Template;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Most rows of the page.
const MAX_ROWS: usize = 200;
/// Most periods without a recorder that are listed.
const MAX_GAPS: usize = 3;
/// Periods to choose from, as addresses have them; the first is the default.
const PERIODS: [(&str, &str); 4] = [("24h", "day"), ("7d", "week"), ("30d", "month"), ("90d", "quarter")];
/// Width of the drawing of a part, in its own units.
const WIDTH: f64 = 100.0;

/// Parameters of the page of usage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageFilter {
    /// Name of the group; empty for ClusterQueues, in a namespace for LocalQueues.
    pub by: String,
    /// Start of the period: a duration or a time; empty for 24 hours.
    pub since: String,
    /// The resource; empty for all.
    #[serde(rename = "res")]
    pub resource: String,
    /// The namespace whose workloads count; empty for all.
    #[serde(rename = "ns")]
    pub namespace: String,
}

impl UsageFilter {
    /// Returns the group of the query.
    ///
    /// # Errors
    /// If there is no group of the name; the text lists them.
    pub fn group(&self) -> Result<UsageGroup, String> {
        match (self.by.as_str(), self.namespace.is_empty()) {
            ("", true) => Ok(UsageGroup::Queue),
            ("", false) => Ok(UsageGroup::LocalQueue),
            (name, _) => UsageGroup::parse(name),
        }
    }

    /// Returns the start of the period as in the address; `24h` by default.
    pub fn period(&self) -> &str {
        if self.since.is_empty() { PERIODS[0].0 } else { &self.since }
    }
}

/// The page of usage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UsagePage {
    /// What was asked for.
    pub query: UsageFilter,
    /// The usage.
    #[serde(flatten)]
    pub answer: Answer<UsageReport>,
}

#[derive(Template)]
#[template(path = "usage.html", config = "src/dashboard/askama.toml")]
struct UsageTemplate<'a> {
    frame: Frame,
    query: &'a UsageFilter,
    lede: String,
    /// Heading of the column with the group.
    group: &'static str,
    action: String,
    groups: Vec<Choice>,
    periods: Vec<Choice>,
    resources: Vec<Choice>,
    chart: Option<Chart>,
    tables: Vec<ResourceTable>,
    /// Note that there are more rows; empty if all are shown.
    more: &'static str,
    recorded: String,
    attribution: String,
    csv: String,
}

/// Hours of a resource.
struct ResourceTable {
    /// Id of the heading.
    id: String,
    resource: String,
    rows: Vec<Row>,
    sum: Row,
}

struct Choice {
    value: String,
    words: String,
    selected: bool,
}

struct Row {
    name: String,
    /// Class of the part of the chart that has its hours; empty for none.
    class: &'static str,
    /// Address of the group's page; empty if there is none.
    href: String,
    jobs: String,
    hours: String,
    part: Part,
    borrowed: String,
    lost: String,
    wait: Moment,
    wait_p99: Moment,
}

/// The share of a group in the sum, as widths of a drawing.
struct Part {
    used: String,
    /// Width of the part that was not borrowed.
    within: String,
}

/// Returns the address of the page.
fn href(links: &Links, query: &UsageFilter) -> String {
    let pairs = [
        ("by", query.by.as_str()),
        ("since", &query.since),
        ("res", &query.resource),
        ("ns", &query.namespace),
    ];
    links.with_query("/usage", &pairs)
}

impl AddressedPage for UsageFilter {
    fn href(&self, links: &Links) -> String {
        href(links, self)
    }

    fn namespace(&self) -> Option<&str> {
        given(&self.namespace)
    }

    fn subject(&self) -> String {
        match given(&self.namespace) {
            None => "the usage of the cluster".to_owned(),
            Some(namespace) => format!("usage of namespace {namespace}"),
        }
    }
}

impl Page for UsagePage {
    fn html(&self, request: &Request) -> askama::Result<String> {
        render(request, self)
    }

    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    fn csv(&self) -> Option<String> {
        Some(csv::usage(&self.answer.view))
    }
}

/// Renders the page of usage.
fn render(request: &Request, data: &UsagePage) -> askama::Result<String> {
    let (report, query, links) = (&data.answer.view, &data.query, &request.links);
    let group = query.group().unwrap_or(UsageGroup::Queue);
    let mut items: Vec<&UsageView> = report.items.iter().collect();
    items.sort_by(|a, b| {
        let resources = resource_rank(&a.resource).cmp(&resource_rank(&b.resource));
        resources.then(b.used.hours.total_cmp(&a.used.hours)).then(a.group.cmp(&b.group))
    });
    let mut sums: Vec<&UsageView> = report.sums.iter().collect();
    sums.sort_by(|a, b| resource_rank(&a.resource).cmp(&resource_rank(&b.resource)));
    let shown = items.get(..MAX_ROWS).unwrap_or(&items);
    let table = |(number, sum): (usize, &&UsageView)| ResourceTable {
        id: format!("usage-{number}"),
        resource: sum.resource.clone(),
        rows: shown
            .iter()
            .filter(|item| item.resource == sum.resource)
            .map(|item| Row {
                class: chart::class_of(&report.steps, item),
                ..row(item, Some(*sum), group_href(links, group, (item, &query.namespace)))
            })
            .collect(),
        sum: row(sum, None, String::new()),
    };
    UsageTemplate {
        frame: Frame::of(request, "Usage", Section::Usage, (&data.answer.source, data.answer.partial)),
        query,
        lede: lede(report, &sums, query),
        group: heading(group),
        action: links.to("/usage"),
        groups: groups(group, query),
        periods: periods(query),
        resources: resources(&sums, query),
        chart: chart::of_steps(&report.steps),
        tables: sums.iter().enumerate().map(table).collect(),
        more: if items.len() > MAX_ROWS { "The groups with the most hours are shown." } else { "" },
        recorded: recorded(&report.recorded),
        attribution: text::sentence(&report.attribution),
        csv: in_form(&href(links, query), "csv"),
    }
    .render()
}

const fn heading(group: UsageGroup) -> &'static str {
    match group {
        UsageGroup::Queue => "ClusterQueue",
        UsageGroup::Cohort => "Cohort",
        UsageGroup::Namespace => "Namespace",
        UsageGroup::LocalQueue => "LocalQueue",
        UsageGroup::PriorityClass => "Priority class",
        UsageGroup::Flavor => "Flavor",
    }
}

fn groups(chosen: UsageGroup, query: &UsageFilter) -> Vec<Choice> {
    let is_offered = |group: &UsageGroup| query.namespace.is_empty() || *group != UsageGroup::Namespace;
    let choice = |group: UsageGroup| Choice {
        value: group.as_str().to_owned(),
        words: heading(group).to_owned(),
        selected: group == chosen,
    };
    UsageGroup::ALL.into_iter().filter(is_offered).map(choice).collect()
}

fn periods(query: &UsageFilter) -> Vec<Choice> {
    let asked = query.period();
    let choice = |(value, words): &(&str, &str)| Choice {
        value: (*value).to_owned(),
        words: (*words).to_owned(),
        selected: *value == asked,
    };
    let mut all: Vec<Choice> = PERIODS.iter().map(choice).collect();
    if !all.iter().any(|period| period.selected) {
        all.push(Choice { value: asked.to_owned(), words: asked.to_owned(), selected: true });
    }
    all
}

fn resources(sums: &[&UsageView], query: &UsageFilter) -> Vec<Choice> {
    let mut names: Vec<&str> = sums.iter().map(|sum| sum.resource.as_str()).collect();
    if !query.resource.is_empty() && !names.contains(&query.resource.as_str()) {
        names.push(&query.resource);
    }
    let choice = |name: &str| Choice {
        value: name.to_owned(),
        words: name.to_owned(),
        selected: name == query.resource,
    };
    names.into_iter().map(choice).collect()
}

/// Returns the sentence about the usage of the first resource.
fn lede(report: &UsageReport, sums: &[&UsageView], query: &UsageFilter) -> String {
    if report.recorded.from.is_none() {
        return "Nothing is recorded: the manager runs with --history-ring=0, or has just started."
            .to_owned();
    }
    let period = match report.recorded.from {
        Some(from) if !report.recorded.complete => format!("since {} UTC", minute(from)),
        _ => format!("in the last {}", query.period()),
    };
    let Some(sum) = sums.first() else {
        return format!("No workload had quota {period}.");
    };
    let known = |hours: &HoursView| !hours.text.is_empty() && hours.hours.abs() > 0.0;
    let part = |hours: &HoursView, words: &str| {
        known(hours).then(|| format!("{} {words}", text::grouped(&hours.text)))
    };
    let parts: Vec<String> = [part(&sum.borrowed, "borrowed"), part(&sum.lost, "lost to preemption")]
        .into_iter()
        .flatten()
        .collect();
    let parts = if parts.is_empty() { String::new() } else { format!("; {}", parts.join(", ")) };
    format!("{} hours of {} {period}{parts}.", text::grouped(&sum.used.text), sum.resource)
}

/// Returns the page of a group; empty if there is none.
fn group_href(links: &Links, group: UsageGroup, (row, namespace): (&UsageView, &str)) -> String {
    if row.group.is_empty() {
        return String::new();
    }
    match group {
        // In a namespace, pages of shared objects may be closed to the reader.
        UsageGroup::Queue | UsageGroup::Cohort | UsageGroup::Flavor if !namespace.is_empty() => String::new(),
        UsageGroup::Queue => links.cluster_queue(&row.group),
        UsageGroup::Cohort => links.cohort(&row.group),
        UsageGroup::Namespace => links.namespace(&row.group),
        UsageGroup::Flavor => links.flavor(&row.group),
        UsageGroup::LocalQueue => row.group.split_once('/').map_or_else(String::new, |(namespace, name)| {
            links.with_query("/pending", &[("ns", namespace), ("lq", name)])
        }),
        UsageGroup::PriorityClass => String::new(),
    }
}

fn row(view: &UsageView, whole: Option<&UsageView>, href: String) -> Row {
    let hours = |hours: &HoursView| match hours.text.as_str() {
        "" => text::NONE.to_owned(),
        // No hours need no unit.
        _ if hours.hours.abs() <= f64::EPSILON => "0".to_owned(),
        shown => text::grouped(shown),
    };
    let wait = |seconds: Option<i64>| seconds.map_or_else(Moment::default, Moment::lasting);
    Row {
        name: if view.group.is_empty() { text::NONE.to_owned() } else { view.group.clone() },
        class: "",
        href,
        jobs: text::count(view.jobs),
        hours: hours(&view.used),
        part: part(view, whole),
        borrowed: hours(&view.borrowed),
        lost: hours(&view.lost),
        wait: wait(view.wait_p50_seconds),
        wait_p99: wait(view.wait_p99_seconds),
    }
}

fn part(view: &UsageView, whole: Option<&UsageView>) -> Part {
    let all = whole.map_or(0.0, |whole| whole.used.hours);
    let width = |hours: f64| {
        let part = if all > 0.0 { (hours / all).clamp(0.0, 1.0) } else { 0.0 };
        format!("{:.1}", part * WIDTH)
    };
    Part { used: width(view.used.hours), within: width(view.used.hours - view.borrowed.hours) }
}

/// Returns since when usage is recorded, and the periods without a recorder.
fn recorded(recorded: &Recorded) -> String {
    let Some(from) = recorded.from else { return String::new() };
    let mut longest: Vec<&Gap> = recorded.gaps.iter().collect();
    longest.sort_by_key(|gap| (gap.start.as_second() - gap.end.as_second(), gap.start));
    let named: Vec<String> = longest
        .iter()
        .take(MAX_GAPS)
        .map(|gap| {
            let filled =
                |part: FilledPart| format!(" (filled from {} to {})", minute(part.from), minute(part.until));
            let filled = gap.filled.map(filled).unwrap_or_default();
            format!("{} to {}{filled}", minute(gap.start), minute(gap.end))
        })
        .collect();
    let gaps = if named.is_empty() {
        String::new()
    } else {
        format!("; nothing is recorded from {}", named.join(", from "))
    };
    let more = if longest.len() > MAX_GAPS { ", and in shorter times" } else { "" };
    let drift = if recorded.drift > 0 {
        " Reservations and usage differ: see the alert SluiceHistoryDrift."
    } else {
        ""
    };
    format!("Recorded since {} UTC{gaps}{more}.{drift}", minute(from))
}

fn minute(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M").to_string()
}
