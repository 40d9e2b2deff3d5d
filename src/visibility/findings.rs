//! Findings: configurations that cannot do what they say, from the published state.
//!
//! Invariants: a finding is there only if the state shows it, and goes with it; the finding of a namespace names its objects alone;
//! findings come in the order of their checks and objects.

use super::access::Access;
use super::page::ModelError;
use super::quota::PublishedQuota;
use super::views::{
    Check, Finding, FindingCounts, FindingObject, OptionNumber, Severity, ViewMetadata, WorkloadState,
};
use super::workload_row::{Rows, reason_of, state_of};
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::quota::NodeRef;
use crate::snapshot::Snapshot;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reasons of inactive ClusterQueues that end without a change of a configuration.
const PASSING: [&str; 2] = ["Stopped", "Terminating"];
/// Most edits by which names are similar.
const MAX_EDITS: usize = 2;
/// Longest name that is compared for similarity.
const MAX_NAME: usize = 253;

/// Returns the findings about objects that the reader may see, those of one namespace if it is given.
///
/// # Errors
/// The lists are not complete.
pub fn findings(
    snapshot: &Snapshot,
    access: &Access,
    namespace: Option<&str>,
) -> Result<Vec<Finding>, ModelError> {
    if !snapshot.synced {
        return Err(ModelError::NotSynced);
    }
    let audit = Audit { snapshot, quota: PublishedQuota::of(snapshot), rows: Rows::of(snapshot, access) };
    let mut found = Vec::new();
    audit.workloads(&mut found);
    audit.local_queues(&mut found);
    audit.cluster_queues(&mut found);
    audit.cohorts(&mut found);
    let visible = |finding: &Finding| match &*finding.object.namespace {
        "" => access.cluster && namespace.is_none(),
        of_object => access.sees(of_object) && namespace.is_none_or(|namespace| namespace == of_object),
    };
    found.retain(visible);
    found.sort_by(|a, b| (a.check, &a.object).cmp(&(b.check, &b.object)));
    Ok(found)
}

/// Counts findings by severity.
pub fn count(findings: &[Finding]) -> FindingCounts {
    let of = |severity: Severity| {
        u64::try_from(findings.iter().filter(|finding| finding.severity == severity).count())
            .unwrap_or(u64::MAX)
    };
    FindingCounts { errors: of(Severity::Error), warnings: of(Severity::Warning), notes: of(Severity::Note) }
}

struct Audit<'a> {
    snapshot: &'a Snapshot,
    quota: PublishedQuota<'a>,
    rows: Rows<'a>,
}

/// What is said of an object.
#[derive(Default)]
struct Said {
    message: String,
    evidence: BTreeMap<String, OptionNumber>,
    consequence: &'static str,
    correction: String,
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
        consequence: said.consequence.to_owned(),
        correction: said.correction,
    }
}

/// Returns a name among others that differs by few letters.
fn similar<'a>(name: &str, others: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = others.filter(|other| *other != name).map(|other| (edits(name, other), other));
    near.filter(|(edits, _)| *edits <= MAX_EDITS).min().map(|(_, other)| other)
}

/// Number of letters to insert, remove or replace; more than `MAX_EDITS` if the lengths say so.
fn edits(a: &str, b: &str) -> usize {
    if a.len().abs_diff(b.len()) > MAX_EDITS || a.len().max(b.len()) > MAX_NAME {
        return MAX_EDITS.saturating_add(1);
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (index, letter) in a.chars().enumerate() {
        let mut diagonal = index;
        let mut left = index.saturating_add(1);
        for (other, above) in b.iter().zip(row.iter_mut().skip(1)) {
            let replaced = diagonal.saturating_add(usize::from(letter != *other));
            diagonal = *above;
            left = replaced.min(left.saturating_add(1)).min(above.saturating_add(1));
            *above = left;
        }
        if let Some(first) = row.first_mut() {
            *first = index.saturating_add(1);
        }
    }
    row.last().copied().unwrap_or_default()
}

fn suffix(similar: Option<&str>) -> String {
    similar.map(|name| format!("; similar: {name}")).unwrap_or_default()
}

fn number(count: usize) -> OptionNumber {
    OptionNumber::Count(u64::try_from(count).unwrap_or(u64::MAX))
}

impl Audit<'_> {
    /// Workloads that can never be admitted, by ClusterQueue, and those whose LocalQueue does not exist, by its name.
    fn workloads(&self, found: &mut Vec<Finding>) {
        let mut never: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        let mut missing: BTreeMap<ObjectKey, usize> = BTreeMap::new();
        let known = &self.snapshot.references.local_queues;
        for record in self.snapshot.workloads.starting_at(0) {
            let state = state_of(record);
            if state != WorkloadState::Pending {
                continue;
            }
            if let Some(queue) = record.local_queue().filter(|queue| !known.contains_key(queue)) {
                *missing.entry(queue).or_default() += 1;
            }
            if reason_of(record, state) == PendingReason::ExceedsMaxQuota.as_str() {
                *never.entry(self.rows.cluster_queue(record)).or_default() += 1;
            }
        }
        for (queue, workloads) in never {
            let said = Said {
                message: format!(
                    "{workloads} workloads request more than ClusterQueue {queue} can ever have"
                ),
                evidence: BTreeMap::from([("workloads".to_owned(), number(workloads))]),
                consequence: "they wait without end",
                correction: format!(
                    "kubectl get workloadviews -A --field-selector clusterQueue={queue},reason=ExceedsMaxQuota"
                ),
            };
            found.push(finding(
                Check::WorkloadNeverFits,
                ("ClusterQueue", &ObjectKey::cluster(&queue)),
                said,
            ));
        }
        for (queue, workloads) in missing {
            let (namespace, name) = (&queue.namespace, &queue.name);
            let of_namespace = known.range(ObjectKey::new(namespace, "")..);
            let of_namespace = of_namespace.take_while(|(key, _)| key.namespace == *namespace);
            let similar = similar(name, of_namespace.map(|(key, _)| &*key.name));
            let said = Said {
                message: format!(
                    "{workloads} workloads name LocalQueue {name}, which does not exist{}",
                    suffix(similar)
                ),
                evidence: BTreeMap::from([("workloads".to_owned(), number(workloads))]),
                consequence: "they wait until there is one",
                correction: format!("sluice create localqueue {name} -n {namespace} -c CLUSTERQUEUE"),
            };
            found.push(finding(Check::LocalQueueMissing, ("LocalQueue", &queue), said));
        }
    }

    fn local_queues(&self, found: &mut Vec<Finding>) {
        let queues = &self.snapshot.queues;
        for (key, queue) in &queues.local_queues {
            let name = &queue.cluster_queue;
            if queues.cluster_queues.contains_key(name) {
                continue;
            }
            // Names of ClusterQueues are not for readers of a namespace.
            let names = queues.cluster_queues.keys().filter(|_| self.rows.access.cluster).map(AsRef::as_ref);
            let said = Said {
                message: format!(
                    "it names ClusterQueue {name}, which does not exist{}",
                    suffix(similar(name, names))
                ),
                consequence: "its workloads wait until there is one",
                correction: format!(
                    "delete LocalQueue {}/{} and create it with another ClusterQueue",
                    key.namespace, key.name
                ),
                ..Said::default()
            };
            found.push(finding(Check::LocalQueueOrphan, ("LocalQueue", key), said));
        }
    }

    fn cluster_queues(&self, found: &mut Vec<Finding>) {
        let queues = &self.snapshot.queues;
        let mut reached: BTreeMap<&str, usize> = BTreeMap::new();
        for queue in queues.local_queues.values() {
            *reached.entry(&queue.cluster_queue).or_default() += 1;
        }
        for (name, queue) in &queues.cluster_queues {
            let key = ObjectKey::cluster(name);
            let object = ("ClusterQueue", &key);
            let facts = self.quota.facts.cluster_queues.get(name);
            if facts.is_some_and(|facts| facts.order.is_empty()) {
                let message = "it has no resource groups".to_owned();
                let said = Said {
                    message,
                    consequence: "no workload that requests anything is admitted",
                    ..Said::default()
                };
                found.push(finding(Check::ClusterQueueNoFlavor, object, said));
            }
            if let Some(inactive) =
                queues.inactive.get(name).filter(|inactive| !PASSING.contains(&&*inactive.reason))
            {
                let said = Said {
                    message: format!("it is inactive: {}", inactive.message),
                    consequence: "none of its workloads is admitted",
                    ..Said::default()
                };
                found.push(finding(Check::ClusterQueueInactive, object, said));
            }
            if !reached.contains_key(&**name) {
                let said = Said {
                    message: "no LocalQueue names it".to_owned(),
                    consequence: "no workload gets into it",
                    correction: format!("sluice create localqueue NAME -n NAMESPACE -c {name}"),
                    ..Said::default()
                };
                found.push(finding(Check::ClusterQueueUnreachable, object, said));
            }
            if queue.parent.is_none() {
                self.limits_without_cohort(name, object, found);
            }
        }
    }

    /// Limits between a queue and its cohort where there is no cohort.
    fn limits_without_cohort(&self, name: &Arc<str>, object: (&str, &ObjectKey), found: &mut Vec<Finding>) {
        let node = NodeRef::ClusterQueue(Arc::clone(name));
        let facts = self.quota.facts.cluster_queues.get(name);
        let order = facts.map(|facts| facts.order.as_slice()).unwrap_or_default();
        let limits = |fr| self.quota.usage(&node, fr).limits;
        let lends = order.iter().any(|fr| limits(fr).lending_limit.is_some());
        let borrows = order.iter().any(|fr| limits(fr).borrowing_limit.is_some());
        for (check, is_set, word) in
            [(Check::LendingUseless, lends, "lending"), (Check::BorrowingUseless, borrows, "borrowing")]
        {
            if is_set {
                let message = format!("it has a {word} limit and no cohort");
                let said = Said { message, consequence: "the limit has no effect", ..Said::default() };
                found.push(finding(check, object, said));
            }
        }
    }

    fn cohorts(&self, found: &mut Vec<Finding>) {
        let queues = &self.snapshot.queues;
        let mut members: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        for (name, queue) in &queues.cluster_queues {
            if let Some(parent) = &queue.parent {
                members.entry(parent).or_default().push(("ClusterQueue", name));
            }
        }
        for (name, cohort) in &queues.cohorts {
            if let Some(parent) = &cohort.parent {
                members.entry(parent).or_default().push(("Cohort", name));
            }
        }
        for name in queues.cohorts.keys() {
            let key = ObjectKey::cluster(name);
            if self.quota.path(&NodeRef::Cohort(Arc::clone(name))).is_none() {
                let said = Said {
                    message: "its parents form a cycle".to_owned(),
                    consequence: "no workload below it is admitted",
                    ..Said::default()
                };
                found.push(finding(Check::CohortCycle, ("Cohort", &key), said));
            }
            let has_object = self.quota.facts.cohorts.contains_key(name);
            let of_cohort = members.get(&**name).map(Vec::as_slice).unwrap_or_default();
            let similar = similar(name, queues.cohorts.keys().map(AsRef::as_ref));
            if let ([(kind, member)], false, Some(similar)) = (of_cohort, has_object, similar) {
                let said = Said {
                    message: format!("Cohort {name} has no other member; similar: {similar}"),
                    consequence: "it can borrow from no one",
                    correction: format!("name cohort {similar} in {kind} {member}"),
                    ..Said::default()
                };
                found.push(finding(Check::CohortSingleMember, (kind, &ObjectKey::cluster(member)), said));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_differ_by_two_letters_at_most() {
        for (a, b, expected) in [
            ("research", "reserach", 2),
            ("a", "a", 0),
            ("a", "", 1),
            ("abc", "xyz", 3),
            ("night", "nights", 1),
        ] {
            assert_eq!(edits(a, b), expected, "{a} {b}");
            assert_eq!(edits(b, a), expected, "{b} {a}");
        }
        assert_eq!(edits("a", "abcdef"), 3);
        assert_eq!(similar("nigth", ["night", "day", "nigth"].into_iter()), Some("night"));
        assert_eq!(similar("night", ["day"].into_iter()), None);
    }
}
