//! Findings as lists, computed at most once a minute.
//!
//! Invariants: readers that do not see the cluster get findings of a form for such readers; concurrent requests share one
//! computation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::Response;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::Mutex;

use super::{Asked, Refused};
use crate::snapshot::{AuditFacts, JobName, NoWorkload, Snapshot};
use crate::visibility::access::Access;
use crate::visibility::findings::{self, Form};
use crate::visibility::page::ModelError;
use crate::visibility::views::{Finding, FindingCounts, ViewList};

/// How long findings are used.
const FINDINGS_TTL: Duration = Duration::from_mins(1);

/// Asks the core of this process.
pub trait AskAudit: Send + Sync {
    /// Returns the facts that an audit reads beside the snapshot; `None` if too many questions wait.
    fn audit_facts(&self) -> BoxFuture<'static, Option<AuditFacts>>;

    /// Returns why a job has no Workload; `None` if that is not known, or too many questions wait.
    fn why_no_workload(&self, job: JobName) -> BoxFuture<'static, Option<NoWorkload>>;
}

/// The findings of the last audit.
#[derive(Clone)]
pub struct Audit {
    /// Time of the audit.
    pub checked_at: Timestamp,
    /// All findings of the form.
    pub findings: Arc<[Finding]>,
}

/// An audit, and when it was computed.
type Kept = Option<(Instant, Audit)>;

/// The last audits, one of each form.
pub struct AuditCache {
    core: Arc<dyn AskAudit>,
    /// End of the waiting times if it is not now: the time of a dump.
    as_of: Option<Timestamp>,
    kept: Mutex<[Kept; Form::ALL.len()]>,
}

impl AuditCache {
    /// Returns a cache in front of a core.
    pub fn new(core: Arc<dyn AskAudit>) -> Self {
        Self { core, as_of: None, kept: Mutex::default() }
    }

    /// Returns the same cache for a state of the past.
    #[must_use]
    pub fn as_of(self, time: Option<Timestamp>) -> Self {
        Self { as_of: time, ..self }
    }

    /// Returns all findings of a form; the caller removes findings that the reader may not see.
    ///
    /// # Errors
    /// The lists are not complete, or too many questions wait.
    pub async fn get(&self, snapshot: &Arc<Snapshot>, form: Form) -> Result<Audit, ModelError> {
        let mut kept = self.kept.lock().await;
        let slot = Form::ALL.into_iter().zip(&mut *kept).find(|(of, _)| *of == form);
        let (_, slot) = slot.ok_or(ModelError::Unavailable)?;
        if let Some((_, audit)) = slot.as_ref().filter(|(made, _)| made.elapsed() < FINDINGS_TTL) {
            return Ok(audit.clone());
        }
        if !snapshot.synced {
            return Err(ModelError::NotSynced);
        }
        let facts = self.core.audit_facts().await.ok_or(ModelError::TooMany)?;
        let (snapshot, checked_at) = (Arc::clone(snapshot), self.as_of.unwrap_or_else(Timestamp::now));
        // An audit reads all workloads, which takes too long for an async task.
        let found = tokio::task::spawn_blocking(move || {
            findings::audit_for_all((&snapshot, &facts), form, checked_at)
        });
        let found = found.await.map_err(|_| ModelError::Unavailable)??;
        let audit = Audit { checked_at, findings: found.into() };
        *slot = Some((Instant::now(), audit.clone()));
        Ok(audit)
    }

    /// Returns why a job has no Workload, if that is known.
    pub async fn why_no_workload(&self, job: JobName) -> Option<NoWorkload> {
        self.core.why_no_workload(job).await
    }

    /// Counts the findings of the cluster.
    pub async fn counts(&self, snapshot: &Arc<Snapshot>) -> Option<FindingCounts> {
        let audit = self.get(snapshot, Form::Cluster).await.ok()?;
        Some(findings::count(&audit.findings))
    }
}

impl Asked {
    /// Answers with the findings about objects that the user may see.
    pub(super) async fn findings(&self, access: &Access) -> Result<Response, Refused> {
        let (namespace, page) = (&self.request.target.namespace, self.page()?);
        let form = Form::of(access, Some(namespace.as_str()).filter(|namespace| !namespace.is_empty()));
        let audit = self.audits.get(&self.snapshot, form).await;
        let audit = audit.map_err(|error| self.refuse(&error))?;
        let all = audit.findings.iter().filter(|finding| {
            let of_object = &finding.metadata.namespace;
            let asked = namespace.is_empty() || namespace == of_object;
            asked && (access.cluster || (!of_object.is_empty() && access.sees(of_object)))
        });
        let rows = page.rows("findings", all.cloned().collect(), |finding| &finding.metadata);
        let (items, metadata) = rows.map_err(|error| self.refuse(&error))?;
        let list = self.view_list(items, metadata);
        self.send_list(ViewList { checked_at: Some(audit.checked_at), ..list })
    }
}
