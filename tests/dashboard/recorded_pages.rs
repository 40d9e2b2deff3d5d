//! The pages that tests show: for each a row with its address, and its value beside this file. Tests of the library, of the
//! server and in a browser read this table.

use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice::dashboard::{
    AuditPage, ClusterQueuePage, FlavorPage, MinePage, NamespacePage, Overview, Page, PageQuestion,
    PendingPage, PreemptionPage, UsagePage, WhatIfPage, WorkloadListPage, WorkloadPage,
};

/// A page with a recorded value.
pub(crate) struct RecordedPage {
    /// Name of its files: `NAME.json` is its value, `golden/NAME.html` the expected page.
    pub(crate) name: &'static str,
    /// Path and query below the path prefix.
    pub(crate) address: &'static str,
    json: &'static str,
    read: fn(Value) -> serde_json::Result<Box<dyn Page>>,
}

macro_rules! row {
    ($name:literal, $address:literal, $read:expr) => {
        RecordedPage {
            name: $name,
            address: $address,
            json: include_str!(concat!($name, ".json")),
            read: $read,
        }
    };
}

/// All recorded pages. Of several with one path, the first also answers questions with another query.
pub(crate) static PAGES: [RecordedPage; 19] = [
    row!("overview", "/", page::<Overview>),
    row!("cluster_queue", "/clusterqueues/nlp", page::<ClusterQueuePage>),
    row!("workload", "/workloads/nlp-train/job-llama-ft-7c2-4b1d9", workload),
    row!("workload_when", "/workloads/nlp-train/job-llama-ft-7c2-4b1d9?when=1", workload),
    row!("workload_before", "/workloads/nlp-train/job-llama-ft-7c2-4b1d9?before=job-mt-eval-0c1f2", workload),
    row!("workload_running", "/workloads/rank/job-ranker-daily-77ac2", workload),
    row!("pending", "/pending", page::<PendingPage>),
    row!("pending_empty", "/pending?cq=vision&reason=TopologyPlacementFailed", page::<PendingPage>),
    row!("admitted", "/admitted", page::<WorkloadListPage>),
    row!("finished", "/finished?ns=nlp-train", page::<WorkloadListPage>),
    row!("namespace", "/namespaces/nlp-train", page::<NamespacePage>),
    row!("mine", "/mine", page::<MinePage>),
    row!("flavors", "/flavors", page::<FlavorPage>),
    row!("flavor", "/flavors/h100-80g", page::<FlavorPage>),
    row!("preemptions", "/preemptions", page::<PreemptionPage>),
    row!("preemptions_empty", "/preemptions?cq=vision", page::<PreemptionPage>),
    row!("usage", "/usage?since=7d", page::<UsagePage>),
    row!("audit", "/audit", page::<AuditPage>),
    row!("what_if", "/what-if?add=2&like=h1&for=1h", page::<WhatIfPage>),
];

/// Reads a page whose JSON is its whole value.
fn page<T: Page + DeserializeOwned + 'static>(value: Value) -> serde_json::Result<Box<dyn Page>> {
    let page: T = serde_json::from_value(value)?;
    Ok(Box::new(page))
}

/// Reads the page of a Workload, whose JSON lacks the cohorts.
fn workload(value: Value) -> serde_json::Result<Box<dyn Page>> {
    let cohorts = vec!["ai".to_owned(), "research".to_owned()];
    Ok(Box::new(WorkloadPage { answer: serde_json::from_value(value)?, cohorts }))
}

/// Returns the path of an address without its query.
fn path(address: &str) -> &str {
    address.split_once('?').map_or(address, |(path, _)| path)
}

/// Returns the page that answers a question: the one of its address, or the first one of its path.
pub(crate) fn answering(question: &PageQuestion) -> Option<&'static RecordedPage> {
    let address = question.address();
    let same = PAGES.iter().find(|page| page.address == address);
    same.or_else(|| PAGES.iter().find(|page| path(page.address) == path(&address)))
}

impl RecordedPage {
    /// Returns the recorded value.
    pub(crate) fn value(&self) -> serde_json::Result<Value> {
        serde_json::from_str(self.json)
    }

    /// Returns this page with another value; fails if the value is none of this page.
    pub(crate) fn with(&self, value: Value) -> serde_json::Result<Box<dyn Page>> {
        (self.read)(value)
    }
}
