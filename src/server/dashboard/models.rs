//! The interface to the source of page values.

use std::pin::Pin;

use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::dashboard::{Freshness, Page, PageQuestion};
use crate::visibility::access::Access;

/// The answer to the question of a page.
#[derive(Debug)]
pub enum Value {
    /// The value of the page.
    Page(Box<dyn Page>),
    /// Address of the page that has the answer.
    Redirect(Box<PageQuestion>),
}

impl Value {
    /// Returns the value of a page as an answer.
    pub fn page(page: impl Page + 'static) -> Self {
        Self::Page(Box::new(page))
    }
}

/// Why a page has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoValue {
    /// There is no such object, or none that the viewer may see.
    NotFound {
        /// The missing object, as a sentence.
        text: String,
        /// Objects with similar names.
        similar: Vec<(String, PageQuestion)>,
    },
    /// The lists are not complete.
    NotSynced {
        /// The missing lists, as a sentence.
        progress: String,
    },
    /// A parameter is invalid; the text names it.
    Invalid(String),
    /// The viewer lacks a right to what it asks about; the sentence names it.
    Forbidden(String),
    /// The viewer asks too often, or too many questions wait.
    TooMany,
}

/// A value that is being made.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Value, NoValue>> + Send + 'a>>;

/// Makes the values of pages. The access is that of the viewer; the rights of this process do not matter.
pub trait Models: Send + Sync + 'static {
    /// Returns replica and version of the state from which values are made.
    fn version(&self) -> (String, u64);

    /// Returns how fresh that state is.
    fn freshness(&self) -> Freshness;

    /// Returns whether the submitters of workloads are known, so that there is a page of what a viewer submitted.
    fn reads_submitters(&self) -> bool {
        false
    }

    /// Returns a few namespaces with workloads that a user submitted. A right of the user is reviewed in each before it shows anything.
    fn own_namespaces(&self, _user: &str) -> Vec<String> {
        Vec::new()
    }

    /// Returns kind and name of the job of a Workload; `None` for one without a job, or that is not known. Only a viewer of its namespace
    /// asks for it.
    fn job_of(&self, _workload: &ObjectKey) -> Option<(Kind, String)> {
        None
    }

    /// Answers a question, limited to what the viewer may see. Work that takes long is counted by the name of the user.
    fn answer(&self, question: PageQuestion, access: Access, user: String) -> Answering<'_>;
}
