//! Findings: configurations that cannot work as written, from the published state and from facts that the core has beside it.
//!
//! Invariants: a finding exists only while the state shows the problem; the finding of a namespace names objects of that
//! namespace only, and findings about workloads have a form for each of their namespaces; findings are ordered by check and
//! object; the audit costs one pass over the groups of workloads that decisions treat alike, for all checks together.

mod asymmetric;
mod examined;
mod flavors;
mod groups;
mod idle;
mod jobs;
mod queues;
mod starved;
mod stuck;
mod unusable;
mod workloads;

pub use groups::{FindingGroup, grouped};

use super::access::Access;
use super::flavors::QuotaSums;
use super::page::ModelError;
use super::quota::PublishedQuota;
use super::views::{Check, Finding, FindingCounts, FindingObject, OptionNumber, Severity, ViewMetadata};
use super::workload_row::Rows;
use crate::api::ObjectKey;
use crate::snapshot::{AuditFacts, Snapshot};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// The readers and the subject of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For readers of the cluster, about all objects of the cluster.
    Cluster,
    /// For readers of the cluster, about the workloads of each namespace, with all details.
    NamespacesInFull,
    /// For readers of namespaces, about the workloads of each namespace, without what they may not see.
    Namespaces,
}

impl Form {
    /// All forms.
    pub const ALL: [Self; 3] = [Self::Cluster, Self::NamespacesInFull, Self::Namespaces];

    /// Returns the form of a question for a namespace, or for the cluster.
    pub const fn of(access: &Access, namespace: Option<&str>) -> Self {
        match (access.cluster, namespace) {
            (true, None) => Self::Cluster,
            (true, Some(_)) => Self::NamespacesInFull,
            (false, _) => Self::Namespaces,
        }
    }

    /// Returns whether findings about workloads are split by their namespaces, instead of being about objects of the cluster.
    fn is_by_namespace(self) -> bool {
        self != Self::Cluster
    }

    /// Returns whether findings have all details: names and amounts of the cluster, and corrections for its administrators.
    fn is_in_full(self) -> bool {
        self != Self::Namespaces
    }
}

/// Returns the findings from the snapshot alone, without nodes and jobs.
///
/// # Errors
/// If the lists are not complete.
pub fn findings(
    snapshot: &Snapshot,
    access: &Access,
    namespace: Option<&str>,
) -> Result<Vec<Finding>, ModelError> {
    audit((snapshot, None), access, (namespace, snapshot.published_at.unwrap_or_default()))
}

/// Returns the findings about objects that the reader may see; of one namespace if it is given.
///
/// # Errors
/// If the lists are not complete.
pub fn audit(
    (snapshot, facts): (&Snapshot, Option<&AuditFacts>),
    access: &Access,
    (namespace, now): (Option<&str>, Timestamp),
) -> Result<Vec<Finding>, ModelError> {
    let mut found = audit_in(snapshot, facts, access, Form::of(access, namespace), now)?;
    let visible = |finding: &Finding| match &*finding.metadata.namespace {
        "" => access.cluster,
        of_object => access.sees(of_object) && namespace.is_none_or(|namespace| namespace == of_object),
    };
    found.retain(visible);
    Ok(found)
}

/// Returns the findings of a form for all of its readers. Each reader may see only a part of them.
///
/// # Errors
/// If the lists are not complete.
pub fn audit_for_all(
    (snapshot, facts): (&Snapshot, &AuditFacts),
    form: Form,
    now: Timestamp,
) -> Result<Vec<Finding>, ModelError> {
    let access = Access { cluster: form.is_in_full(), all_namespaces: true, ..Access::default() };
    audit_in(snapshot, Some(facts), &access, form, now)
}

fn audit_in(
    snapshot: &Snapshot,
    facts: Option<&AuditFacts>,
    access: &Access,
    form: Form,
    now: Timestamp,
) -> Result<Vec<Finding>, ModelError> {
    if !snapshot.synced {
        return Err(ModelError::NotSynced);
    }
    let audit = Audit::of(snapshot, facts, access, (form, now));
    let mut found = Vec::new();
    audit.workloads(&mut found);
    audit.local_queues(&mut found);
    audit.stopped_queues(&mut found);
    audit.inactive_queues(&mut found);
    audit.excluded_queues(&mut found);
    audit.blocked_queues(&mut found);
    audit.cluster_queues(&mut found);
    audit.cohorts(&mut found);
    audit.starved(&mut found);
    audit.asymmetric(&mut found);
    if let Some(facts) = facts {
        audit.flavors(facts, &mut found);
        audit.jobs(facts, &mut found);
        audit.idle(facts, &mut found);
    }
    found.retain(|finding| !form.is_by_namespace() || !finding.metadata.namespace.is_empty());
    found.sort_by(|a, b| (a.check, &a.object).cmp(&(b.check, &b.object)));
    Ok(found)
}

/// Returns the number of workloads that an audit examines: one for each group that it treats alike, and each of a group in which the
/// position of a workload decides what keeps it.
pub fn examined(snapshot: &Snapshot) -> usize {
    let everything = Access::everything();
    let now = snapshot.published_at.unwrap_or_default();
    Audit::of(snapshot, None, &everything, (Form::Cluster, now)).examined().len()
}

/// Counts findings by severity.
pub fn count(findings: &[Finding]) -> FindingCounts {
    let of = |severity: Severity| {
        u64::try_from(findings.iter().filter(|finding| finding.severity == severity).count())
            .unwrap_or(u64::MAX)
    };
    FindingCounts { errors: of(Severity::Error), warnings: of(Severity::Warning), notes: of(Severity::Note) }
}

/// The input of an audit.
struct Audit<'a> {
    snapshot: &'a Snapshot,
    facts: Option<&'a AuditFacts>,
    quota: PublishedQuota<'a>,
    sums: QuotaSums,
    rows: Rows<'a>,
    form: Form,
    now: Timestamp,
}

impl<'a> Audit<'a> {
    fn of(
        snapshot: &'a Snapshot,
        facts: Option<&'a AuditFacts>,
        access: &'a Access,
        (form, now): (Form, Timestamp),
    ) -> Self {
        Self {
            snapshot,
            facts,
            quota: PublishedQuota::of(snapshot),
            sums: QuotaSums::of(snapshot),
            rows: Rows::of(snapshot, access),
            form,
            now,
        }
    }
}

impl Audit<'_> {
    /// Returns a correction that users of a namespace can make; readers of the cluster get another one beside it.
    fn correction(&self, of_user: &str, of_administrator: &str) -> String {
        if self.form.is_in_full() { format!("{of_user}, or {of_administrator}") } else { of_user.to_owned() }
    }
}

/// The texts and numbers of a finding.
#[derive(Default)]
struct Said {
    message: String,
    evidence: BTreeMap<String, OptionNumber>,
    consequence: &'static str,
    correction: String,
}

impl Said {
    /// Adds a number that the message is based on.
    fn with(mut self, name: &str, number: impl Into<OptionNumber>) -> Self {
        self.evidence.insert(name.to_owned(), number.into());
        self
    }
}

fn finding(check: Check, (kind, key): (&str, &ObjectKey), said: Said) -> Finding {
    let (namespace, name) = (key.namespace.to_string(), key.name.to_string());
    Finding {
        metadata: ViewMetadata {
            name: format!("{}.{}.{name}", check.as_str(), kind.to_ascii_lowercase()),
            namespace: namespace.clone(),
            ..ViewMetadata::default()
        },
        check,
        severity: check.severity(),
        object: FindingObject { kind: kind.to_owned(), namespace, name },
        message: said.message,
        evidence: said.evidence,
        workloads: Vec::new(),
        consequence: said.consequence.to_owned(),
        correction: said.correction,
    }
}

/// Returns a finding about a namespace, for readers of the namespace. `part` keeps findings of one check about one namespace
/// apart.
fn finding_in_namespace(check: Check, (namespace, part): (&str, &str), said: Said) -> Finding {
    let mut found = finding(check, ("Namespace", &ObjectKey::cluster(namespace)), said);
    namespace.clone_into(&mut found.metadata.namespace);
    found.metadata.name = format!("{}.{part}", check.as_str()).to_ascii_lowercase();
    found
}

/// Formats the name that was probably meant: `; NAME?`.
fn meant(similar: Option<&str>) -> String {
    similar.map(|name| format!("; {name}?")).unwrap_or_default()
}

fn number(count: usize) -> OptionNumber {
    OptionNumber::Count(u64::try_from(count).unwrap_or(u64::MAX))
}

/// `1 workload`, `2 workloads`.
fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Formats a verb for its subject: `names` after one thing, `name` after several.
fn verb(count: usize, plural: &str) -> String {
    if count == 1 { format!("{plural}s") } else { plural.to_owned() }
}

/// Returns the name of a resource without its domain.
fn word(resource: &str) -> &str {
    resource.rsplit('/').next().unwrap_or(resource)
}
