//! Views of objects that another process read: a dump, or a cluster without this API.
//!
//! Invariants: the same core takes the objects as in a manager, and decides nothing; objects of kinds that it does not watch, and
//! unreadable objects, are left out and counted.

use super::page::ModelError;
use super::questions::VerdictQuestion;
use super::verdict::verdict;
use super::views::{Source, SourceKind, Verdict};
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::reconciler::{CoreSettings, Delta, Reconciler, why_no_workload};
use crate::scheduler::{CapacityQuestion, CapacityReport, Explanation, JobPods};
use crate::snapshot::{AuditFacts, JobName, NoWorkload, Snapshot};
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns the capacity of flavors, and what fits, also of a Workload. `keep_going` is asked before each flavor and each copy of
/// the Workload.
pub fn capacity(
    core: &mut Reconciler,
    question: &CapacityQuestion,
    keep_going: &mut dyn FnMut() -> bool,
) -> CapacityReport {
    let pods = |key: &ObjectKey| {
        let pod_sets = Arc::clone(core.workload(key)?.effective_requests.pod_sets.as_ref()?);
        Some(JobPods { workload: key.clone(), pod_sets })
    };
    let job = question.workload.as_ref().and_then(pods);
    let unknown_workload = question.workload.clone().filter(|_| job.is_none());
    if unknown_workload.is_some() {
        return CapacityReport { unknown_workload, ..CapacityReport::default() };
    }
    core.engine_mut().capacity(question, job.as_ref(), keep_going)
}

/// The state that the core computes from objects.
pub struct OfflineState {
    core: Reconciler,
    snapshot: Snapshot,
    source: Source,
    /// Whether the objects include pods: a reader may lack the right to list them.
    has_pods: bool,
    /// Number of objects of kinds that are not watched, by kind.
    pub ignored: BTreeMap<String, usize>,
}

impl OfflineState {
    /// Creates the state from objects with their `apiVersion` and `kind`, as of a time.
    pub fn load(
        settings: CoreSettings,
        objects: impl IntoIterator<Item = Value>,
        (kind, now): (SourceKind, Timestamp),
    ) -> Self {
        let mut core = Reconciler::new(settings);
        let (mut by_kind, mut ignored) = (BTreeMap::<Kind, Vec<Value>>::new(), BTreeMap::new());
        for object in objects {
            let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
            let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
            match Kind::from_group_kind(group, text("kind")).filter(|kind| core.kinds().contains(kind)) {
                Some(kind) => by_kind.entry(kind).or_default().push(object),
                None => *ignored.entry(text("kind").to_owned()).or_default() += 1,
            }
        }
        let has_pods = by_kind.contains_key(&Kind::Pod);
        for kind in core.kinds().to_vec() {
            let objects = by_kind.remove(&kind).unwrap_or_default();
            let applied = objects.into_iter().map(|object| Delta::Applied { kind, object });
            let deltas =
                std::iter::once(Delta::Restarted { kind }).chain(applied).chain([Delta::Synced { kind }]);
            core.apply_all(deltas, now);
        }
        core.apply(Delta::Tick, now);
        let snapshot = Snapshot { published_at: Some(now), ..core.snapshot() };
        let source = Source { kind, time: Some(now), ..Source::default() };
        Self { core, snapshot, source, has_pods, ignored }
    }

    /// Returns the snapshot, from which all models are made.
    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Returns the origin of answers.
    pub fn source(&self) -> Source {
        self.source.clone()
    }

    /// Returns the facts that an audit reads beside the snapshot.
    pub fn audit_facts(&mut self) -> AuditFacts {
        self.core.audit_facts()
    }

    /// Returns why a job has no Workload; `None` if it has one, or nothing keeps it from having one.
    pub fn why_no_workload(&self, job: &JobName) -> Option<NoWorkload> {
        why_no_workload(&self.core, job)
    }

    /// Returns the capacity of flavors, and what fits.
    pub fn capacity(&mut self, question: &CapacityQuestion) -> CapacityReport {
        capacity(&mut self.core, question, &mut || true)
    }

    /// Explains what the pods of a Workload with quota do. Without any pod among the objects nothing is known of their states.
    fn explain_pods(&self, key: &ObjectKey) -> Option<Explanation> {
        let mut explanation = self.core.explain_pods(key)?;
        if let Some(pods) = explanation.pods.as_mut().filter(|_| !self.has_pods) {
            pods.states.clear();
        }
        Some(explanation)
    }

    /// Returns the verdict on a Workload, with the engine's explanation.
    ///
    /// # Errors
    /// If the reader may see no such Workload, or none to compare with, or the queue does not exist.
    pub fn verdict(&mut self, question: &VerdictQuestion) -> Result<Verdict, ModelError> {
        let supposed = question.supposition(&self.snapshot)?;
        let key = question.workload.key();
        let explanation = self.core.engine_mut().explain(&key, &supposed, &mut || true);
        let explanation = explanation.or_else(|| self.explain_pods(&key));
        verdict(&self.snapshot, question, explanation.as_ref())
    }
}
