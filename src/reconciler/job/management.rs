//! Which jobs are managed.

use crate::api::names;
use crate::frameworks::JobView;
use crate::reconciler::Reconciler;

impl Reconciler {
    /// Whether the namespace is one whose jobs are managed.
    pub(crate) fn manages_namespace(&self, namespace: &str) -> bool {
        let labels = self.cache.namespace_labels(namespace);
        labels.is_some_and(|labels| crate::api::selector::matches(&self.settings.managed_namespaces, labels))
    }

    /// Whether a job is ours to look after.
    pub(crate) fn manages_job(&self, job: &JobView) -> bool {
        let named = job.queue_name.is_some() || self.settings.manage_jobs_without_queue_name;
        named && !Self::is_managed_by_other_controller(job) && self.manages_namespace(&job.key.namespace)
    }

    /// Whether the job says that a controller which has nothing to do with us runs it.
    pub(crate) fn is_managed_by_other_controller(job: &JobView) -> bool {
        let by = job.managed_by.as_deref();
        by.is_some_and(|by| by != "kubernetes.io/job-controller" && by != names::MULTIKUEUE_CONTROLLER)
    }
}
