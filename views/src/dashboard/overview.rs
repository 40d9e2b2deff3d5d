//! The start page: key facts, all flavor-resources in a strip, the tree of cohorts with quota bars for one of them, reasons,
//! findings.
//!
//! Invariants: the tree has at most 500 rows; of a larger one the deeper rows are left out, and the page says so. With 500 rows of
//! ordinary names a page has at most 150 kB: each byte of a row is there 500 times.

mod flavor_resources;
mod nodes;
mod strip;

use self::flavor_resources::{Key, Sums, flavor_resources, lenders, most_in_demand, queues_with};
use self::nodes::{Node, nodes};
use self::strip::{Strip, strip};
use super::audit::FindingRow;
use super::bar::Bar;
use super::chart::{self, Chart};
use super::data::{Overview, OverviewQuery};
use super::frame::{Frame, Request, Section};
use super::links::Links;
use super::marks::{self, Shape, Tag};
use super::page::{AddressedPage, Page, given};
use super::text::{self, Moment};
use crate::visibility::findings::grouped;
use crate::visibility::selector::{is_pending_reason, needs_change};
use crate::visibility::views::{FindingCounts, LineReport, QuotaView, ReasonCount};
use askama::Template;
use std::collections::BTreeMap;

/// Most rows of the tree.
const MAX_ROWS: usize = 500;
/// Most rows whose bars have a label. Of a longer tree, labels are a fifth of the page, and the cells beside them have their numbers.
const MAX_LABELLED: usize = 100;
/// Depth of the rows that are kept in a larger tree.
const KEPT_DEPTH: usize = 2;
/// Most findings; equal ones of several objects are one.
const MAX_FINDINGS: usize = 3;

#[derive(Template)]
#[template(path = "overview.html", config = "src/dashboard/askama.toml")]
struct OverviewTemplate<'a> {
    frame: Frame,
    data: &'a Overview,
    heading: String,
    lede: String,
    facts: Facts,
    rates: Rates,
    flavors: Flavors,
    strip: Strip,
    rows: Vec<TreeRow>,
    is_cut: bool,
    /// The pairs of lender and borrower; empty if nothing is borrowed.
    lenders: String,
    reasons: Vec<ReasonRow>,
    findings: Vec<FindingRow>,
    audit: String,
}

/// Key facts beside the rates.
struct Facts {
    pending: String,
    needs_change: String,
    admitted: String,
    in_use: String,
    /// Since when the longest pending workload waits.
    oldest: Moment,
    /// Addresses of the lists of pending workloads and of workloads with quota.
    lists: (String, String),
    /// Number of errors, its noun, and the numbers of warnings and notes in words; absent without an audit.
    findings: Option<(String, String, String)>,
    /// Number of all key facts, and whether findings are one of them.
    count: usize,
    has_findings: bool,
}

/// Admissions and evictions a minute.
struct Rates {
    admissions: String,
    evictions: String,
    day: Option<Day>,
    chart: Option<Chart>,
    period: String,
}

/// Sums of the last 24 hours, in words.
struct Day {
    /// `24 h`, or the start of the recording if that is later.
    period: String,
    wait: Moment,
    wait_p99: Moment,
    evictions: String,
    preempted: String,
    /// Evictions that were no preemptions, by reason.
    others: String,
    preemptions: String,
}

/// The flavor-resources to choose from.
struct Flavors {
    action: String,
    options: Vec<FlavorOption>,
    /// `nvidia.com/gpu in flavor h100-80g`; empty without any quota.
    chosen: String,
    note: String,
}

struct FlavorOption {
    value: String,
    words: String,
    selected: bool,
}

struct TreeRow {
    depth: usize,
    is_cohort: bool,
    name: String,
    href: String,
    bar: Bar,
    used: String,
    nominal: String,
    borrowed: String,
    borrowed_is_zero: bool,
    limit: String,
    lent: String,
    lent_is_zero: bool,
    pending: String,
    pending_href: String,
    share: String,
}

struct ReasonRow {
    tag: Tag,
    href: String,
    /// Width of the bar, in percent of the most frequent reason.
    width: String,
    count: String,
    oldest: Moment,
}

impl AddressedPage for OverviewQuery {
    fn href(&self, links: &Links) -> String {
        let path = match given(&self.cohort) {
            None => "/".to_owned(),
            Some(cohort) => Links::default().cohort(cohort),
        };
        links.with_query(&path, &[("fr", &self.fr)])
    }

    fn subject(&self) -> String {
        match given(&self.cohort) {
            None => "the overview of the cluster".to_owned(),
            Some(cohort) => format!("Cohort {cohort}"),
        }
    }
}

impl Page for Overview {
    fn html(&self, request: &Request) -> askama::Result<String> {
        render(request, self)
    }

    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}

/// Renders the start page, with the tree of the flavor-resource that is asked for, or of the one in most demand.
fn render(request: &Request, data: &Overview) -> askama::Result<String> {
    let known = flavor_resources(data);
    let chosen = data.fr.split_once(':').map(|(f, r)| (f.to_owned(), r.to_owned()));
    let chosen = chosen.filter(|key| known.contains_key(key)).or_else(|| most_in_demand(&known));
    let all = nodes(data);
    let (rows, is_cut) = tree(&all, chosen.as_ref(), &request.links);
    let rate = |rate: Option<f64>| rate.map(chart::number).unwrap_or_default();
    let decisions = data.manager.as_ref().and_then(|manager| manager.decisions.as_ref());
    let heading = if data.cohort.is_empty() { "Overview".to_owned() } else { data.cohort.clone() };
    let path = if data.cohort.is_empty() { "/".to_owned() } else { Links::default().cohort(&data.cohort) };
    let action = request.links.to(&path);
    let rates = Rates {
        admissions: rate(decisions.and_then(|decisions| decisions.admissions_per_minute)),
        evictions: rate(decisions.and_then(|decisions| decisions.evictions_per_minute)),
        day: data.trend.as_ref().and_then(|trend| day(trend, &request.links)),
        chart: data.trend.as_ref().and_then(chart::admissions),
        period: data.trend.as_ref().map(|trend| chart::period(&trend.recorded)).unwrap_or_default(),
    };
    // If all other facts are present, findings are only shown below.
    let has_findings = rates.admissions.is_empty() || rates.day.is_none();
    let evictions = if rates.day.is_some() { 2 } else { usize::from(!rates.evictions.is_empty()) };
    let fact_count = 2 + usize::from(has_findings) + usize::from(!rates.admissions.is_empty()) + evictions;
    OverviewTemplate {
        frame: Frame::of(request, &heading, Section::Overview, (&data.source, data.partial)),
        lede: lede(data),
        heading,
        facts: Facts {
            pending: text::count(data.pending),
            needs_change: text::changes(data.needs_change),
            findings: data.finding_counts.as_ref().map(finding_words),
            admitted: text::count(data.admitted),
            in_use: in_use(data, chosen.as_ref()),
            oldest: Moment::ago(data.numbers.oldest.values().min().copied(), request.now),
            lists: (
                request.links.with_query("/pending", &[("cohort", &data.cohort)]),
                request.links.to("/admitted"),
            ),
            count: fact_count,
            has_findings,
        },
        rates,
        flavors: flavors(action, &known, (data, chosen.as_ref())),
        strip: strip(&all, (&known, chosen.as_ref()), (&path, &request.links)),
        rows,
        is_cut,
        lenders: chosen.as_ref().map(|key| lenders(data, key)).unwrap_or_default(),
        reasons: reasons(data, request),
        findings: findings(data, request),
        audit: request.links.to("/audit"),
        data,
    }
    .render()
}

/// Returns the number of errors with its noun, and the numbers of warnings and notes.
fn finding_words(counts: &FindingCounts) -> (String, String, String) {
    let noun = if counts.errors == 1 { "error" } else { "errors" };
    let others =
        format!("{}, {}", text::counted(counts.warnings, "warning"), text::counted(counts.notes, "note"));
    (text::count(counts.errors), noun.to_owned(), others)
}

fn findings(data: &Overview, request: &Request) -> Vec<FindingRow> {
    let groups = grouped(&data.findings).into_iter().take(MAX_FINDINGS);
    groups.map(|group| FindingRow::of(&group, request, "")).collect()
}

fn flavors(
    action: String,
    known: &BTreeMap<Key, Sums>,
    (data, chosen): (&Overview, Option<&Key>),
) -> Flavors {
    let option = |key: &Key| FlavorOption {
        value: format!("{}:{}", key.0, key.1),
        words: format!("{} in {}", key.1, key.0),
        selected: Some(key) == chosen,
    };
    Flavors {
        action,
        options: known.keys().map(option).collect(),
        chosen: chosen.map(|(flavor, resource)| format!("{resource} in flavor {flavor}")).unwrap_or_default(),
        note: chosen.map(|key| queues_with(data, key)).unwrap_or_default(),
    }
}

fn lede(data: &Overview) -> String {
    let queues = text::counted(data.numbers.cluster_queue_count, "ClusterQueue");
    let cohorts = text::counted(data.numbers.cohort_count, "cohort");
    let pending = match (data.pending, data.needs_change) {
        (0, _) => "Nothing is pending.".to_owned(),
        (pending, 0) => format!("All {} wait for capacity.", text::counted(pending, "pending workload")),
        (pending, change) => format!(
            "{} of {} {} a change; the others wait for capacity.",
            text::count(change),
            text::counted(pending, "pending workload"),
            if change == 1 { "needs" } else { "need" }
        ),
    };
    let heads = match data.numbers.waiting_heads {
        0 => "Nothing that fits is waiting.".to_owned(),
        1 => "1 head fits and is not admitted yet.".to_owned(),
        heads => format!("{} heads fit and are not admitted yet.", text::count(heads)),
    };
    format!("{queues} in {cohorts}. {pending} {heads}")
}

/// Returns the usage of the chosen flavor-resource, if one tree has all of its quota.
fn in_use(data: &Overview, chosen: Option<&Key>) -> String {
    let Some((flavor, resource)) = chosen else { return String::new() };
    let is_chosen = |quota: &&QuotaView| quota.flavor == *flavor && quota.resource == *resource;
    let cohorts = data.cohorts.iter().filter(|cohort| cohort.parent.is_empty());
    let alone = data.cluster_queues.iter().filter(|queue| queue.cohort.is_empty());
    let quotas = cohorts.map(|cohort| &cohort.quota).chain(alone.map(|queue| &queue.quota));
    let roots: Vec<&QuotaView> = quotas.filter_map(|quotas| quotas.iter().find(is_chosen)).collect();
    let [only] = roots.as_slice() else { return String::new() };
    format!("{} of {} {resource} in {flavor} in use", text::amount(&only.used), text::amount(&only.nominal))
}

/// Returns the rows of the nodes that have the flavor-resource, and whether deeper ones are left out.
fn tree(nodes: &[(usize, Node<'_>)], chosen: Option<&Key>, links: &Links) -> (Vec<TreeRow>, bool) {
    let Some((flavor, resource)) = chosen else { return (Vec::new(), false) };
    let row = |(depth, node): &(usize, Node<'_>)| {
        Some(tree_row(*depth, *node, (node.quota(flavor, resource)?, links)))
    };
    let mut rows: Vec<TreeRow> = nodes.iter().filter_map(row).collect();
    let is_cut = rows.len() > MAX_ROWS;
    if is_cut {
        rows.retain(|row| row.depth <= KEPT_DEPTH);
        rows.truncate(MAX_ROWS);
    }
    if rows.len() > MAX_LABELLED {
        for row in &mut rows {
            // Colour alone says in the cells that a limit is exceeded.
            if !row.bar.above_limit {
                row.bar.label.clear();
            }
        }
    }
    (rows, is_cut)
}

fn tree_row(depth: usize, node: Node<'_>, (quota, links): (&QuotaView, &Links)) -> TreeRow {
    let (in_cohort, lent) = (quota.lent.is_some(), quota.lent.as_ref());
    TreeRow {
        depth,
        is_cohort: node.is_cohort(),
        name: node.name().to_owned(),
        href: node.href(links),
        bar: Bar::of(quota, ""),
        used: text::amount(&quota.used),
        nominal: text::amount(&quota.nominal),
        borrowed: if in_cohort { text::amount(&quota.borrowed) } else { text::NONE.to_owned() },
        borrowed_is_zero: !in_cohort || text::is_zero(&quota.borrowed),
        limit: quota.borrowing_limit.as_ref().map(text::amount).unwrap_or_default(),
        lent: lent.map_or_else(|| text::NONE.to_owned(), text::amount),
        lent_is_zero: lent.is_none_or(text::is_zero),
        pending: text::count(node.pending()),
        pending_href: node.pending_href(links),
        share: node
            .share()
            .map_or_else(|| text::NONE.to_owned(), |share| text::grouped(&share.value.to_string())),
    }
}

/// Returns the sums of the last 24 hours in words.
fn day(trend: &LineReport, links: &Links) -> Option<Day> {
    let day = trend.day.as_ref()?;
    let wait = |seconds: Option<i64>| seconds.map_or_else(Moment::default, Moment::lasting);
    let is_preemption = |row: &&ReasonCount| row.reason == marks::PREEMPTED;
    let preempted = day.evictions_by_reason.iter().find(is_preemption).map_or(0, |row| row.count);
    let others = day.evictions_by_reason.iter().filter(|row| !is_preemption(row));
    let others: Vec<String> =
        others.map(|row| format!("{}\u{a0}{}", text::count(row.count), row.reason)).collect();
    Some(Day {
        period: match day.from {
            Some(from) if !trend.recorded.complete => format!("since {}", from.strftime("%H:%M")),
            _ => "24 h".to_owned(),
        },
        wait: wait(day.wait_p50_seconds),
        wait_p99: wait(day.wait_p99_seconds),
        evictions: text::count(day.evictions),
        preempted: if preempted > 0 { text::count(preempted) } else { String::new() },
        others: others.join(", "),
        preemptions: links.to("/preemptions"),
    })
}

fn reasons(data: &Overview, request: &Request) -> Vec<ReasonRow> {
    let (counts, links) = (&data.reasons, &request.links);
    let most = counts.iter().map(|row| row.count).max().unwrap_or(1).max(1);
    let row = |row: &ReasonCount| ReasonRow {
        tag: Tag::of_reason(&row.reason),
        href: if is_pending_reason(&row.reason) {
            links.with_query("/pending", &[("reason", &row.reason)])
        } else {
            String::new()
        },
        // At least as wide as can be seen.
        width: format!(
            "{}.{}",
            (row.count * 1_000 / most).max(4) / 10,
            (row.count * 1_000 / most).max(4) % 10
        ),
        count: text::count(row.count),
        oldest: Moment::ago(data.numbers.oldest.get(&row.reason).copied(), request.now),
    };
    let mut ordered: Vec<&ReasonCount> = counts.iter().filter(|row| row.count > 0).collect();
    ordered.sort_by_key(|row| (needs_change(&row.reason), std::cmp::Reverse(row.count), row.reason.clone()));
    ordered.into_iter().map(row).collect()
}
