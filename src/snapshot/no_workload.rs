//! Why a job has no Workload.

/// Why a job has no Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoWorkload {
    /// One word, as events have it.
    pub reason: String,
    /// The cause, as the end of a sentence without a full stop.
    pub message: String,
}

/// A job by the words that a user gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobName {
    /// Its namespace.
    pub namespace: String,
    /// Its kind in any case: `job`, `RayCluster`.
    pub kind: String,
    /// Its name.
    pub name: String,
}
