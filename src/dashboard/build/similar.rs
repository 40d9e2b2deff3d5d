//! What a page says about an object that does not exist: objects whose names are like it.
//!
//! Invariant: only names that the viewer may see are compared, so that none of another tenant is suggested.

use crate::api::{ObjectKey, similar};
use crate::dashboard::flavors::FlavorQuery;
use crate::dashboard::question::Question;
use crate::snapshot::Snapshot;
use crate::visibility::access::Access;

/// Most workloads of a namespace whose names are compared.
const MAX_COMPARED: usize = 2_000;

/// Returns the names that are like the wanted one, with the questions about them.
fn like<'a>(
    wanted: &str,
    known: impl IntoIterator<Item = &'a str>,
    question: impl Fn(&str) -> Question,
) -> Vec<(String, Question)> {
    let found = similar::names(&wanted.to_lowercase(), known);
    found.into_iter().map(|name| (name.to_owned(), question(name))).collect()
}

/// Returns objects whose names are like that of the object that was asked for, as far as the viewer may see them.
pub fn similar(snapshot: &Snapshot, access: &Access, question: &Question) -> Vec<(String, Question)> {
    let (queues, cohorts) = (&snapshot.queues.cluster_queues, &snapshot.queues.cohorts);
    match question {
        Question::ClusterQueue(wanted) if access.cluster => {
            like(wanted, queues.keys().map(AsRef::as_ref), |name| Question::ClusterQueue(name.to_owned()))
        }
        Question::Cohort { name: wanted, .. } if access.cluster => {
            let question = |name: &str| Question::Cohort { name: name.to_owned(), fr: String::new() };
            like(wanted, cohorts.keys().map(AsRef::as_ref), question)
        }
        Question::Flavors(query) if access.cluster => {
            let known = snapshot.facts.flavors.keys().map(AsRef::as_ref);
            let question =
                |name: &str| Question::Flavors(FlavorQuery { flavor: name.to_owned(), ..query.clone() });
            like(&query.flavor, known, question)
        }
        Question::Namespace(wanted) => {
            let known = snapshot.references.namespaces.keys().map(AsRef::as_ref);
            let visible = known.filter(|name| access.sees(name));
            like(wanted, visible, |name| Question::Namespace(name.to_owned()))
        }
        Question::Workload(namespace, wanted) if access.sees(namespace) => {
            let index = &snapshot.workloads;
            let all = index.starting_at(index.up_to(&ObjectKey::new(namespace, ""))).take(MAX_COMPARED);
            let names = all.take_while(|record| *record.meta.key.namespace == **namespace);
            let question = |name: &str| Question::Workload(namespace.clone(), name.to_owned());
            like(wanted, names.map(|record| &*record.meta.key.name), question)
        }
        Question::Job(namespace, kind, wanted) if access.sees(namespace) => {
            let index = &snapshot.workloads;
            let all = index.starting_at(index.up_to(&ObjectKey::new(namespace, ""))).take(MAX_COMPARED);
            let records = all.take_while(|record| *record.meta.key.namespace == **namespace);
            let is_kind = |known: &str| known.eq_ignore_ascii_case(kind.split('.').next().unwrap_or(kind));
            let jobs = records.filter_map(|record| record.owner.as_ref()).filter(|job| is_kind(&job.kind));
            let question = |name: &str| Question::Job(namespace.clone(), kind.clone(), name.to_owned());
            like(wanted, jobs.map(|job| &*job.name), question)
        }
        _ => Vec::new(),
    }
}
