//! The page of findings: settings that cannot work or do not do what was meant, each with its correction.
//!
//! Invariants: it has at most 200 findings, equal ones of several objects as one; the counts include all findings that the viewer
//! may see.

use super::frame::{Frame, Request, Scope, Section};
use super::links::Links;
use super::marks::{Shape, Tag};
use super::page::{AddressedPage, Page, given};
use super::rows::Crumb;
use super::text::{self, Moment};
use crate::visibility::access::Access;
use crate::visibility::findings::{FindingGroup, Form, grouped};
use crate::visibility::views::{Check, Finding, FindingCounts, Severity, Source};
use askama::Template;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Most findings of a page.
pub(super) const MAX_FINDINGS: usize = 200;

/// What is asked for on the page of findings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuditQuery {
    /// `error`, `warning` or `note`; empty for all.
    pub severity: String,
    /// Code of a check; empty for all.
    pub check: String,
    /// The namespace whose objects are meant; empty for the cluster.
    #[serde(rename = "ns")]
    pub namespace: String,
}

/// The page of findings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditPage {
    /// What was asked for.
    pub query: AuditQuery,
    /// Number of findings of the cluster or namespace, whatever their severity and check.
    pub counts: FindingCounts,
    /// The findings that were asked for, the first 200.
    pub items: Vec<Finding>,
    /// Number of findings that were asked for.
    pub total: u64,
    /// When the audit read the objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_at: Option<Timestamp>,
    /// Number of ClusterQueues that the audit read, if the viewer sees the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_queue_count: Option<u64>,
    /// Number of workloads that the audit read, if the viewer sees the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_count: Option<u64>,
    /// Replica, time and state that the page was made from.
    pub source: Source,
    /// Whether a part is missing or may differ from the leader's.
    #[serde(default)]
    pub partial: bool,
}

impl AuditQuery {
    /// Returns the form of the audit to read: that of the namespace, if the query names one, else that of the viewer.
    pub fn form(&self, access: &Access) -> Form {
        Form::of(access, Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty()))
    }

    /// Returns whether a finding has the severity and check of the query.
    pub(super) fn selects(&self, finding: &Finding) -> bool {
        (self.severity.is_empty() || finding.severity.as_str() == self.severity)
            && (self.check.is_empty() || finding.check.as_str() == self.check)
    }

    /// Returns an error text if the query names a severity or a check that does not exist.
    pub(super) fn unknown(&self) -> Option<String> {
        let severities = [Severity::Error, Severity::Warning, Severity::Note];
        if !self.severity.is_empty() && severities.iter().all(|known| known.as_str() != self.severity) {
            return Some(format!("severity: {:?} is not error, warning or note", self.severity));
        }
        let is_known = Check::ALL.iter().any(|known| known.as_str() == self.check);
        (!self.check.is_empty() && !is_known).then(|| format!("check: there is no check {:?}", self.check))
    }
}

#[derive(Template)]
#[template(path = "audit.html", config = "src/dashboard/askama.toml")]
struct AuditTemplate<'a> {
    frame: Frame,
    lede: String,
    checked: Moment,
    looked_at: String,
    chips: Vec<Chip>,
    check: &'a str,
    all: String,
    findings: Vec<FindingRow>,
    /// Number of findings that are shown, equal ones counted one by one.
    shown: String,
    /// Number of findings that were asked for, if not all are shown; else empty.
    total: String,
    csv: String,
}

struct Chip {
    text: &'static str,
    count: String,
    href: String,
    current: bool,
}

/// A finding, or equal findings, as pages show them.
pub(super) struct FindingRow {
    pub(super) tag: Tag,
    /// With the names of its objects, without a full stop.
    pub(super) sentence: String,
    pub(super) code: &'static str,
    pub(super) check_href: String,
    /// Kind of the objects.
    pub(super) kind: String,
    /// The objects, with the pages about them.
    pub(super) objects: Vec<Crumb>,
    pub(super) consequence: String,
    /// Command that corrects it; empty for none.
    pub(super) command: String,
    /// Correction as a sentence; empty for none.
    pub(super) advice: String,
}

impl AddressedPage for AuditQuery {
    fn href(&self, links: &Links) -> String {
        href(links, self)
    }

    fn namespace(&self) -> Option<&str> {
        given(&self.namespace)
    }

    fn subject(&self) -> String {
        match given(&self.namespace) {
            None => "the findings of the cluster".to_owned(),
            Some(namespace) => format!("findings of namespace {namespace}"),
        }
    }
}

impl Page for AuditPage {
    fn html(&self, request: &Request) -> askama::Result<String> {
        render(request, self)
    }

    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    fn csv(&self) -> Option<String> {
        Some(super::csv::findings(&self.items))
    }
}

/// Renders the page of findings.
fn render(request: &Request, data: &AuditPage) -> askama::Result<String> {
    let (query, links) = (&data.query, &request.links);
    let shown = data.items.get(..MAX_FINDINGS).unwrap_or(&data.items);
    let is_cut = usize::try_from(data.total).unwrap_or(usize::MAX) > shown.len();
    AuditTemplate {
        frame: Frame::of(request, "Audit", Section::Audit, (&data.source, data.partial)),
        lede: lede(data),
        checked: Moment::ago(data.checked_at, request.now),
        looked_at: looked_at(data),
        chips: chips(data, links),
        check: &query.check,
        all: href(links, &AuditQuery { check: String::new(), ..query.clone() }),
        findings: grouped(shown)
            .iter()
            .map(|group| FindingRow::of(group, request, &query.namespace))
            .collect(),
        shown: text::count(u64::try_from(shown.len()).unwrap_or(u64::MAX)),
        total: if is_cut { text::count(data.total) } else { String::new() },
        csv: with_form(&href(links, query), "csv"),
    }
    .render()
}

/// Returns the address of the page of findings.
fn href(links: &Links, query: &AuditQuery) -> String {
    let pairs =
        [("severity", query.severity.as_str()), ("check", &query.check), ("ns", query.namespace.as_str())];
    links.with_query("/audit", &pairs)
}

/// Returns an address with the form of the answer, `json` or `csv`.
pub(super) fn with_form(address: &str, form: &str) -> String {
    let start = if address.contains('?') { '&' } else { '?' };
    format!("{address}{start}o={form}")
}

fn lede(data: &AuditPage) -> String {
    let counts = &data.counts;
    let all = counts.errors.saturating_add(counts.warnings).saturating_add(counts.notes);
    let of = match data.query.namespace.as_str() {
        "" => "queues, quotas, flavors and workloads".to_owned(),
        namespace => format!("objects of namespace {namespace}"),
    };
    if all == 0 {
        return format!("No findings about {of}.");
    }
    format!("{} about {of}.", text::counted(all, "finding"))
}

fn looked_at(data: &AuditPage) -> String {
    match (data.cluster_queue_count, data.workload_count) {
        (Some(queues), Some(workloads)) => format!(
            "against {} and {}",
            text::counted(queues, "ClusterQueue"),
            text::counted(workloads, "workload")
        ),
        _ => String::new(),
    }
}

fn chips(data: &AuditPage, links: &Links) -> Vec<Chip> {
    let (query, counts) = (&data.query, &data.counts);
    let all = counts.errors.saturating_add(counts.warnings).saturating_add(counts.notes);
    let chip = |(text, severity, count): (&'static str, &str, u64)| Chip {
        text,
        count: text::count(count),
        href: href(links, &AuditQuery { severity: severity.to_owned(), ..query.clone() }),
        current: query.severity == severity,
    };
    let chips = [
        ("All", "", all),
        ("Errors", "error", counts.errors),
        ("Warnings", "warning", counts.warnings),
        ("Notes", "note", counts.notes),
    ];
    chips.into_iter().map(chip).collect()
}

impl FindingRow {
    /// Returns the row of equal findings, with links to what the viewer may see.
    pub(super) fn of(group: &FindingGroup<'_>, request: &Request, namespace: &str) -> Self {
        let finding = group.first;
        let (shape, word) = match finding.severity {
            Severity::Error => (Shape::NeedsChange, "Error"),
            Severity::Warning => (Shape::Warning, "Warning"),
            Severity::Note => (Shape::Note, "Note"),
        };
        let check = AuditQuery {
            check: finding.check.as_str().to_owned(),
            namespace: namespace.to_owned(),
            ..AuditQuery::default()
        };
        let object =
            |finding: &Finding| Crumb::new(&finding.object.full_name(), object_href(finding, request));
        let (command, advice) = group.command_and_advice();
        Self {
            tag: Tag::new(shape, word),
            sentence: group.sentence(),
            code: finding.check.as_str(),
            check_href: href(&request.links, &check),
            kind: finding.object.kind.clone(),
            objects: group.findings().map(object).collect(),
            consequence: finding.consequence.clone(),
            command,
            advice: text::sentence(&advice),
        }
    }
}

/// Returns the page about the object of a finding; for workloads their list.
fn object_href(finding: &Finding, request: &Request) -> String {
    let (links, object) = (&request.links, &finding.object);
    let in_cluster = request.scope == Scope::Cluster;
    match object.kind.as_str() {
        "ClusterQueue" if in_cluster && finding.check == Check::WorkloadNeverFits => {
            links.with_query("/pending", &[("cq", &object.name), ("reason", "ExceedsMaxQuota")])
        }
        "ClusterQueue" if in_cluster => links.cluster_queue(&object.name),
        "Cohort" if in_cluster => links.cohort(&object.name),
        "ResourceFlavor" if in_cluster => links.flavor(&object.name),
        "LocalQueue" => links.with_query("/pending", &[("ns", &object.namespace), ("lq", &object.name)]),
        "Workload" => links.workload(&object.namespace, &object.name),
        "Namespace" => links.namespace(&object.name),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_severities_and_checks_are_asked_for() {
        let query = |severity: &str, check: &str| AuditQuery {
            severity: severity.to_owned(),
            check: check.to_owned(),
            ..AuditQuery::default()
        };
        assert_eq!(query("", "").unknown(), None);
        assert_eq!(query("note", "cohort-cycle").unknown(), None);
        assert_eq!(
            query("bad", "").unknown().as_deref(),
            Some("severity: \"bad\" is not error, warning or note")
        );
        assert_eq!(query("", "x").unknown().as_deref(), Some("check: there is no check \"x\""));
    }
}
