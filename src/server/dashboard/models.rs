//! Where the values of pages come from.

use std::pin::Pin;

use crate::dashboard::{
    AuditPage, ClusterQueuePage, FlavorPage, Freshness, NamespacePage, Overview, PendingPage, PreemptionPage,
    Question, UsagePage, WorkloadListPage,
};
use crate::visibility::access::Access;
use crate::visibility::views::{Answer, Verdict};

/// The value of a page.
#[derive(Clone, Debug)]
pub enum Value {
    /// Of the start page, or of the subtree of a cohort.
    Overview(Box<Overview>),
    /// Of a ClusterQueue.
    ClusterQueue(Box<ClusterQueuePage>),
    /// Of a Workload, with the cohorts of its ClusterQueue from the root.
    Workload(Box<Answer<Verdict>>, Vec<String>),
    /// Of a list of pending workloads.
    Pending(Box<PendingPage>),
    /// Of a list of workloads that are not pending.
    Workloads(Box<WorkloadListPage>),
    /// Of flavors.
    Flavors(Box<FlavorPage>),
    /// Of findings.
    Audit(Box<AuditPage>),
    /// Of preemptions.
    Preemptions(Box<PreemptionPage>),
    /// Of usage.
    Usage(Box<UsagePage>),
    /// Of a namespace.
    Namespace(Box<NamespacePage>),
    /// Another page answers.
    Elsewhere(Question),
}

/// Why a page has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// There is no such object, or none that the viewer may see.
    NotFound {
        /// What there is not, as a sentence.
        text: String,
        /// Objects with similar names.
        similar: Vec<(String, Question)>,
    },
    /// The lists are not complete.
    NotSynced {
        /// What is waited for, as a sentence.
        progress: String,
    },
    /// The question cannot be read; the text names the parameter.
    Invalid(String),
    /// Too many questions.
    TooMany,
}

/// A value that is on its way.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Value, Unanswered>> + Send + 'a>>;

/// Makes the values of pages. The access is that of the viewer; the rights of this process decide nothing.
pub trait Models: Send + Sync + 'static {
    /// Returns replica and number of the state from which values are made.
    fn version(&self) -> (String, u64);

    /// Returns how fresh that state is.
    fn freshness(&self) -> Freshness;

    /// Answers a question with what the viewer may see.
    fn answer(&self, question: Question, access: Access) -> Answering<'_>;
}
