//! Selection of the jobs that this manager manages.

use super::JobLookup;
use crate::api::names;
use crate::frameworks::{JobKind, JobView};

impl JobLookup<'_> {
    /// Returns whether jobs in a namespace are managed. A namespace that is not cached is not managed.
    pub(crate) fn manages_namespace(self, namespace: &str) -> bool {
        let labels = self.cache.namespace_labels(namespace);
        labels.is_some_and(|labels| crate::api::selector::matches(&self.settings.managed_namespaces, labels))
    }

    /// Returns whether this manager manages a job: the job names a queue (or jobs without queue name are managed), no
    /// other controller manages it, and its namespace is managed.
    pub(crate) fn manages_job(self, kind: JobKind, job: &JobView) -> bool {
        let queued = job.queue_name.is_some() || self.settings.manage_jobs_without_queue_name;
        queued && !is_managed_by_other_controller(kind, job) && self.manages_namespace(&job.key.namespace)
    }
}

/// Returns whether the job names a controller other than that of its kind and MultiKueue.
pub(crate) fn is_managed_by_other_controller(kind: JobKind, job: &JobView) -> bool {
    let built_in = kind.fields.managed_by.map(|field| field.built_in);
    let by = job.managed_by.as_deref();
    by.is_some_and(|by| Some(by) != built_in && by != names::MULTIKUEUE_CONTROLLER)
}
