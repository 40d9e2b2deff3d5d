//! Suggestions for the name of an object that does not exist: objects with similar names.
//!
//! Invariant: only names that the viewer may see are compared, so that no name of another tenant is suggested.

use crate::api::{ObjectKey, similar};
use crate::cache::records::WorkloadRecord;
use crate::dashboard::cluster_queue::ClusterQueueQuery;
use crate::dashboard::data::OverviewQuery;
use crate::dashboard::flavors::FlavorQuery;
use crate::dashboard::namespace::NamespaceQuery;
use crate::dashboard::question::PageQuestion;
use crate::snapshot::{JobName, Snapshot};
use crate::visibility::access::Access;
use crate::visibility::questions::WorkloadName;
use std::sync::Arc;

/// Most workloads of a namespace whose names are compared.
const MAX_COMPARED: usize = 2_000;

/// Returns the names that are similar to the wanted one, with their pages.
fn like<'a>(
    wanted: &str,
    known: impl IntoIterator<Item = &'a str>,
    question: impl Fn(&str) -> PageQuestion,
) -> Vec<(String, PageQuestion)> {
    let found = similar::names(&wanted.to_lowercase(), known);
    found.into_iter().map(|name| (name.to_owned(), question(name))).collect()
}

/// Returns the first Workloads of a namespace.
fn compared<'a>(snapshot: &'a Snapshot, namespace: &'a str) -> impl Iterator<Item = &'a Arc<WorkloadRecord>> {
    let index = &snapshot.workloads;
    let all = index.starting_at(index.up_to(&ObjectKey::new(namespace, ""))).take(MAX_COMPARED);
    all.take_while(move |record| *record.meta.key.namespace == *namespace)
}

/// Returns the objects with names similar to that of the requested object, as far as the viewer may see them.
pub fn similar(snapshot: &Snapshot, access: &Access, question: &PageQuestion) -> Vec<(String, PageQuestion)> {
    let (queues, cohorts) = (&snapshot.queues.cluster_queues, &snapshot.queues.cohorts);
    match question {
        PageQuestion::ClusterQueue(wanted) if access.cluster => {
            let question =
                |name: &str| PageQuestion::ClusterQueue(ClusterQueueQuery { name: name.to_owned() });
            like(&wanted.name, queues.keys().map(AsRef::as_ref), question)
        }
        PageQuestion::Overview(wanted) if access.cluster && !wanted.cohort.is_empty() => {
            let question = |name: &str| {
                PageQuestion::Overview(OverviewQuery { cohort: name.to_owned(), ..OverviewQuery::default() })
            };
            like(&wanted.cohort, cohorts.keys().map(AsRef::as_ref), question)
        }
        PageQuestion::Flavors(query) if access.cluster => {
            let known = snapshot.facts.flavors.keys().map(AsRef::as_ref);
            let question =
                |name: &str| PageQuestion::Flavors(FlavorQuery { flavor: name.to_owned(), ..query.clone() });
            like(&query.flavor, known, question)
        }
        PageQuestion::Namespace(wanted) => {
            let known = snapshot.references.namespaces.keys().map(AsRef::as_ref);
            let visible = known.filter(|name| access.sees(name));
            let question = |name: &str| PageQuestion::Namespace(NamespaceQuery { name: name.to_owned() });
            like(&wanted.name, visible, question)
        }
        PageQuestion::Workload(wanted) if access.sees(&wanted.namespace) => {
            let question =
                |name: &str| PageQuestion::Workload(WorkloadName { name: name.to_owned(), ..wanted.clone() });
            let names = compared(snapshot, &wanted.namespace);
            like(&wanted.name, names.map(|record| &*record.meta.key.name), question)
        }
        PageQuestion::Job(wanted) if access.sees(&wanted.namespace) => {
            let kind = wanted.kind.split('.').next().unwrap_or_default();
            let owners = compared(snapshot, &wanted.namespace).filter_map(|record| record.owner.as_ref());
            let jobs = owners.filter(|job| job.kind.eq_ignore_ascii_case(kind));
            let question =
                |name: &str| PageQuestion::Job(JobName { name: name.to_owned(), ..wanted.clone() });
            like(&wanted.name, jobs.map(|job| &*job.name), question)
        }
        _ => Vec::new(),
    }
}
