//! The page of a Workload: why it has its state, which changes would admit it, and its history.
//!
//! Invariant: it shows only what the verdict contains; a part that the verdict lacks is absent.

use super::flavor_rows::{FlavorRow, flavor_rows};
use super::flavors::FlavorQuery;
use super::frame::{Frame, Request, Scope, Section};
use super::links::{Links, encode};
use super::marks::{self, Shape, Tag};
use super::page::{AddressedPage, Page};
use super::rows::Crumb;
use super::text::{self, Moment};
use super::verdict_sentence::{Piece, sentence};
use super::workload_before::{BeforeQuery, ComparedPart};
use super::workload_commands::Commands;
use crate::people::views::{when, when_details};
use crate::snapshot::JobName;
use crate::visibility::questions::WorkloadName;
use crate::visibility::views::{
    Ahead, Answer, ChangeKind, ChangeOption, CheckView, HistoryEntry, PodSetAdmission, Verdict, WorkloadState,
};
use askama::Template;
use jiff::Timestamp;

/// The page of a Workload.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadPage {
    /// The verdict of the Workload; this alone is the JSON form of the page.
    pub answer: Answer<Verdict>,
    /// The cohorts of its ClusterQueue from the root, as far as the viewer sees them.
    pub cohorts: Vec<String>,
}

#[derive(Template)]
#[template(path = "workload.html", config = "src/dashboard/askama.toml")]
struct WorkloadTemplate<'a> {
    frame: Frame,
    crumbs: Vec<Crumb>,
    head: Head<'a>,
    verdict: VerdictPart<'a>,
    flavors: Vec<FlavorRow>,
    options: Vec<OptionRow>,
    estimate: EstimatePart,
    compared: Option<ComparedPart>,
    ahead: AheadPart,
    pod_sets: Vec<PodSetRow>,
    history: Vec<HistoryRow>,
    /// Since when waits and evictions are recorded, if that is after the creation.
    history_since: Option<Moment>,
    checks: Vec<CheckRow>,
    commands: Commands,
}

/// The name of the Workload and the line below it.
struct Head<'a> {
    namespace: &'a str,
    name: &'a str,
    state: Tag,
    since: Moment,
    facts: Vec<String>,
    job: String,
}

/// The verdict, as the page shows it.
struct VerdictPart<'a> {
    needs_change: bool,
    sentence: Vec<Piece>,
    reason: &'a str,
    message: &'a str,
}

struct OptionRow {
    kind: &'static str,
    detail: String,
}

/// When the Workload may be admitted, or the link that asks for it.
struct EstimatePart {
    /// Address of the same page with the estimate; empty if there is nothing to ask.
    href: String,
    /// The estimate as a sentence; empty without one.
    text: String,
    details: Vec<String>,
}

/// The workloads ahead.
#[derive(Default)]
struct AheadPart {
    rows: Vec<AheadRow>,
    note: String,
    /// Address that compares it with another one; empty for a workload that is in no queue.
    compare: String,
}

struct AheadRow {
    name: String,
    href: String,
    /// The page that says why it is ahead.
    why: String,
    needs: String,
    priority: String,
    /// Whether it can never run as it is.
    stuck: bool,
}

struct PodSetRow {
    name: String,
    count: String,
    /// What the pods do: `3 running, 1 pending`; empty if that is not known.
    states: String,
    resources: Vec<GrantedRow>,
    /// Domains of the topology, or nodes, with their pods.
    places: Vec<(String, String)>,
}

/// An amount of a resource, with its flavor and the page of that.
struct GrantedRow {
    amount: String,
    flavor: String,
    href: String,
}

struct HistoryRow {
    time: Moment,
    event: String,
    reason: String,
    text: String,
    /// The workload at the end of the text, and its page; empty without one that the viewer may see.
    by: String,
    by_href: String,
    ends_a_run: bool,
    is_last: bool,
}

struct CheckRow {
    name: String,
    tag: Tag,
    message: String,
}

impl AddressedPage for WorkloadName {
    fn href(&self, links: &Links) -> String {
        links.workload(&self.namespace, &self.name)
    }

    fn namespace(&self) -> Option<&str> {
        Some(&self.namespace)
    }

    fn subject(&self) -> String {
        format!("workloads of namespace {}", self.namespace)
    }

    fn object(&self) -> String {
        format!("Workload {} in namespace {}", self.name, self.namespace)
    }

    fn asks_core(&self) -> bool {
        true
    }
}

/// The page of a Workload, with an estimate of when it may be admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhenQuery {
    /// The Workload.
    pub workload: WorkloadName,
}

impl AddressedPage for WhenQuery {
    fn href(&self, links: &Links) -> String {
        format!("{}?when=1", self.workload.href(links))
    }

    fn namespace(&self) -> Option<&str> {
        AddressedPage::namespace(&self.workload)
    }

    fn subject(&self) -> String {
        self.workload.subject()
    }

    fn object(&self) -> String {
        self.workload.object()
    }

    fn asks_core(&self) -> bool {
        true
    }
}

/// The address of a job redirects to the page of its Workload.
impl AddressedPage for JobName {
    fn href(&self, links: &Links) -> String {
        let path = [&self.namespace, &self.kind, &self.name].map(|part| encode(part));
        links.to(&format!("/jobs/{}", path.join("/")))
    }

    fn namespace(&self) -> Option<&str> {
        Some(&self.namespace)
    }

    fn subject(&self) -> String {
        format!("workloads of namespace {}", self.namespace)
    }

    fn object(&self) -> String {
        format!("Workload of {}/{} in namespace {}", self.kind, self.name, self.namespace)
    }
}

impl Page for WorkloadPage {
    fn html(&self, request: &Request) -> askama::Result<String> {
        render(request, self)
    }

    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&self.answer)
    }
}

/// Renders the page of a Workload.
fn render(request: &Request, data: &WorkloadPage) -> askama::Result<String> {
    let (answer, links) = (&data.answer, &request.links);
    let verdict = &answer.view;
    let row = &verdict.workload;
    let (namespace, name) = (row.metadata.namespace.as_str(), row.metadata.name.as_str());
    let job = row.job.as_ref();
    WorkloadTemplate {
        frame: Frame::of(request, name, Section::None, (&answer.source, answer.partial)),
        crumbs: crumbs(request, verdict, &data.cohorts),
        head: Head {
            namespace,
            name,
            state: Tag::of_state(row.state),
            since: Moment::ago(row.since, request.now),
            facts: facts(verdict),
            job: job.map(|job| format!("{} {}", job.kind, job.name)).unwrap_or_default(),
        },
        verdict: VerdictPart {
            needs_change: row.stuck || verdict.never_fits,
            sentence: sentence(verdict),
            reason: &row.reason,
            message: &row.message,
        },
        flavors: flavor_rows(verdict, links, request.scope == Scope::Cluster),
        options: verdict.options.iter().map(option).collect(),
        estimate: estimate_part(verdict, request),
        compared: verdict.before.as_ref().map(|compared| ComparedPart::of(compared, request.now)),
        ahead: verdict.ahead.as_ref().map(|ahead| ahead_part(ahead, (verdict, links))).unwrap_or_default(),
        pod_sets: verdict
            .admission
            .iter()
            .flat_map(|admission| &admission.pod_sets)
            .map(|set| pod_set(set, request))
            .collect(),
        history: history(&verdict.history, links, request.now),
        history_since: verdict.history_since.map(|time| Moment::clock_on(time, request.now)),
        checks: verdict.checks.iter().map(check).collect(),
        commands: Commands::of(verdict, request),
    }
    .render()
}

/// Returns the estimate. It is not replaced while the page is shown: it was computed once, when the page was opened.
fn estimate_part(verdict: &Verdict, request: &Request) -> EstimatePart {
    let row = &verdict.workload;
    let Some(estimate) = &verdict.estimate else {
        let (namespace, name) = (row.metadata.namespace.clone(), row.metadata.name.clone());
        let page = WhenQuery { workload: WorkloadName { namespace, name } };
        let is_asked = row.state == WorkloadState::Pending && !verdict.never_fits && !row.stuck;
        let href = if is_asked { page.href(&request.links) } else { String::new() };
        return EstimatePart { href, text: String::new(), details: Vec::new() };
    };
    EstimatePart {
        href: String::new(),
        text: text::sentence(&when(estimate, request.now)),
        details: when_details(estimate).iter().map(|detail| text::sentence(detail)).collect(),
    }
}

fn crumbs(request: &Request, verdict: &Verdict, cohorts: &[String]) -> Vec<Crumb> {
    let (row, links) = (&verdict.workload, &request.links);
    let namespace = &row.metadata.namespace;
    let mut crumbs = Vec::new();
    if request.scope == Scope::Cluster {
        crumbs.extend(cohorts.iter().map(|name| Crumb::new(name, links.cohort(name))));
        if !row.cluster_queue.is_empty() {
            crumbs.push(Crumb::new(&row.cluster_queue, links.cluster_queue(&row.cluster_queue)));
        }
    }
    crumbs.push(Crumb::new(namespace, links.namespace(namespace)));
    if !row.local_queue.is_empty() {
        let list = links.with_query("/pending", &[("ns", namespace), ("lq", &row.local_queue)]);
        crumbs.push(Crumb::new(&row.local_queue, list));
    }
    crumbs
}

/// Returns the facts in the line below the name.
fn facts(verdict: &Verdict) -> Vec<String> {
    let row = &verdict.workload;
    let mut facts = Vec::new();
    if let Some(position) = &row.position {
        facts.push(format!(
            "position {} of {} in {}, {} of {} in its LocalQueue",
            text::count(position.cluster_queue),
            text::count(position.of),
            row.cluster_queue,
            text::count(position.local_queue),
            text::count(position.of_local_queue)
        ));
    }
    let class =
        if row.priority_class.is_empty() { String::new() } else { format!(" ({})", row.priority_class) };
    facts.push(format!("priority {}{class}", text::grouped(&row.priority.to_string())));
    facts
}

fn option(option: &ChangeOption) -> OptionRow {
    let kind = option.kind.label();
    // Occupants of nodes are a fact, not a possible change.
    let is_change = option.kind != ChangeKind::Topology;
    let possible = if option.possible || !is_change { "" } else { "Not possible: " };
    OptionRow { kind, detail: text::sentence(&format!("{possible}{}", option.detail)) }
}

fn ahead_part(ahead: &Ahead, (verdict, links): (&Verdict, &Links)) -> AheadPart {
    let own = &verdict.workload.metadata;
    let workload = WorkloadName { namespace: own.namespace.clone(), name: own.name.clone() };
    let before = |row: &crate::visibility::views::AheadRow| BeforeQuery {
        workload: workload.clone(),
        other: WorkloadName { namespace: row.namespace.clone(), name: row.name.clone() },
    };
    let row = |row: &crate::visibility::views::AheadRow| AheadRow {
        name: format!("{}/{}", row.namespace, row.name),
        href: links.workload(&row.namespace, &row.name),
        why: before(row).href(links),
        needs: marks::need(&row.needs),
        priority: text::grouped(&row.priority.to_string()),
        stuck: row.stuck,
    };
    AheadPart {
        rows: ahead.first.iter().map(row).collect(),
        note: ahead_note(ahead, verdict),
        compare: workload.href(links),
    }
}

fn ahead_note(ahead: &Ahead, verdict: &Verdict) -> String {
    let mut parts = Vec::new();
    match ahead.count {
        0 => parts.push("It is the first.".to_owned()),
        number => parts.push(format!("{} ahead.", text::counted(number, "workload"))),
    }
    match (ahead.stuck, ahead.more) {
        (0, _) => {}
        (stuck, false) => {
            let runnable = ahead.count.saturating_sub(stuck);
            parts.push(format!("{} of {} ahead can run.", text::count(runnable), text::count(ahead.count)));
        }
        (stuck, true) => parts.push(format!("At least {} of them can never run.", text::count(stuck))),
    }
    if ahead.hidden > 0 {
        parts.push(format!("{} ahead in other namespaces.", text::counted(ahead.hidden, "workload")));
    }
    if verdict.queueing_strategy == "BestEffortFIFO" {
        parts.push("BestEffortFIFO: a workload behind it may be admitted first if it fits.".to_owned());
    }
    parts.join(" ")
}

fn pod_set(pod_set: &PodSetAdmission, request: &Request) -> PodSetRow {
    let namespace = request.scope.namespace();
    let resource = |need: &crate::visibility::views::Need| GrantedRow {
        amount: format!("{} {}", text::amount(&need.amount), need.resource),
        flavor: need.flavor.clone(),
        href: FlavorQuery {
            flavor: need.flavor.clone(),
            namespace: namespace.to_owned(),
            ..FlavorQuery::default()
        }
        .href(&request.links),
    };
    PodSetRow {
        name: pod_set.name.clone(),
        count: text::counted(pod_set.count, "pod"),
        resources: pod_set.resources.iter().map(resource).collect(),
        states: pod_set.states.map(|states| states.words()).unwrap_or_default(),
        places: pod_set
            .domains
            .iter()
            .chain(&pod_set.nodes)
            .map(|(domain, pods)| (domain.replace('/', " / "), text::counted(*pods, "pod")))
            .collect(),
    }
}

fn history(entries: &[HistoryEntry], links: &Links, now: Timestamp) -> Vec<HistoryRow> {
    let last = entries.len();
    let row = |(number, entry): (usize, &HistoryEntry)| {
        let (text, by, by_href) = with_link(entry, links);
        HistoryRow {
            time: Moment::clock_on(entry.time, now),
            event: entry.event.clone(),
            // A reason that only repeats the event is left out.
            reason: if entry.reason == entry.event { String::new() } else { entry.reason.clone() },
            text,
            by,
            by_href,
            ends_a_run: matches!(entry.event.as_str(), "Preempted" | "Evicted"),
            is_last: number + 1 == last,
        }
    };
    entries.iter().enumerate().map(row).collect()
}

/// Returns the text of an entry up to the workload that it names last, that name, and its page.
fn with_link(entry: &HistoryEntry, links: &Links) -> (String, String, String) {
    let named = entry.by.as_ref().and_then(|by| {
        let name = format!("{}/{}", by.namespace, by.name);
        let text = entry.text.strip_suffix(&name)?.to_owned();
        Some((text, name, links.workload(&by.namespace, &by.name)))
    });
    named.unwrap_or_else(|| (entry.text.clone(), String::new(), String::new()))
}

fn check(check: &CheckView) -> CheckRow {
    let shape = match check.state.as_str() {
        "Ready" => Shape::Good,
        "Rejected" => Shape::NeedsChange,
        "Retry" => Shape::Warning,
        _ => Shape::Waits,
    };
    CheckRow { name: check.name.clone(), tag: Tag::new(shape, &check.state), message: check.message.clone() }
}
