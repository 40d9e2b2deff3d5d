//! Why a job has no Workload.

/// Why a job has no Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoWorkload {
    /// Reason in CamelCase, as in events.
    pub reason: String,
    /// The cause, as the end of a sentence without a full stop.
    pub message: String,
}

/// A job as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobName {
    /// Namespace of the job.
    pub namespace: String,
    /// Kind in any case: `job`, `RayCluster`.
    pub kind: String,
    /// Name of the job.
    pub name: String,
}
