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
    /// Pointers to texts of its value that are names, or have names in them: tests replace them by the longest ones.
    pub(crate) names: &'static [&'static str],
    json: &'static str,
    read: fn(Value) -> serde_json::Result<Box<dyn Page>>,
}

macro_rules! row {
    ($name:literal, $address:literal, $read:expr, $names:expr) => {
        RecordedPage {
            name: $name,
            address: $address,
            names: &$names,
            json: include_str!(concat!($name, ".json")),
            read: $read,
        }
    };
}

/// All recorded pages. Of several with one path, the first also answers questions with another query.
pub(crate) static PAGES: [RecordedPage; 21] = [
    row!(
        "overview",
        "/",
        page::<Overview>,
        [
            "/clusterQueues/0/metadata/name",
            "/cohorts/0/metadata/name",
            "/findings/0/message",
            "/lending/0/borrower",
        ]
    ),
    row!(
        "cluster_queue",
        "/clusterqueues/nlp",
        page::<ClusterQueuePage>,
        [
            "/clusterQueue/metadata/name",
            "/path/0/name",
            "/next/0/metadata/name",
            "/localQueues/0/metadata/namespace",
            "/localQueues/0/metadata/name",
            "/largest/0/metadata/name",
        ]
    ),
    row!(
        "workload",
        "/workloads/nlp-train/job-llama-ft-7c2-4b1d9",
        workload,
        [
            "/metadata/name",
            "/message",
            "/job/name",
            "/clusterQueue",
            "/blockers/0/node",
            "/options/0/detail",
            "/ahead/first/0/name",
            "/checks/0/name",
            "/checks/0/message",
            "/history/0/text",
        ]
    ),
    row!(
        "workload_when",
        "/workloads/nlp-train/job-llama-ft-7c2-4b1d9?when=1",
        workload,
        [
            "/metadata/name",
            "/estimate/refused",
            "/estimate/mustEnd/0",
            "/estimate/unknown/0",
            "/estimate/notes/0",
        ]
    ),
    row!(
        "workload_before",
        "/workloads/nlp-train/job-llama-ft-7c2-4b1d9?before=job-mt-eval-0c1f2",
        workload,
        ["/before/workload", "/before/other", "/before/factors/0/workload", "/before/factors/0/other"]
    ),
    row!(
        "workload_running",
        "/workloads/rank/job-ranker-daily-77ac2",
        workload,
        ["/job/name", "/localQueue", "/admission/podSets/0/name"]
    ),
    row!(
        "pending",
        "/pending",
        page::<PendingPage>,
        ["/items/0/metadata/name", "/items/1/clusterQueue", "/items/2/firstBlocker/node", "/items/3/reason"]
    ),
    row!(
        "pending_empty",
        "/pending?cq=vision&reason=TopologyPlacementFailed",
        page::<PendingPage>,
        ["/clusterQueues/0", "/namespaces/0"]
    ),
    row!(
        "admitted",
        "/admitted",
        page::<WorkloadListPage>,
        ["/items/0/metadata/name", "/items/0/clusterQueue", "/clusterQueues/0"]
    ),
    row!(
        "finished",
        "/finished?ns=nlp-train",
        page::<WorkloadListPage>,
        ["/items/0/metadata/name", "/items/0/message"]
    ),
    row!(
        "namespace",
        "/namespaces/nlp-train",
        page::<NamespacePage>,
        ["/localQueues/0/clusterQueue", "/workloads/0/metadata/name"]
    ),
    row!(
        "mine",
        "/mine",
        page::<MinePage>,
        [
            "/workloads/pending/items/0/metadata/name",
            "/localQueues/0/metadata/name",
            "/history/preemptions/0/preemptor/clusterQueue",
        ]
    ),
    row!("flavors", "/flavors", page::<FlavorPage>, ["/items/0/metadata/name"]),
    row!(
        "flavor",
        "/flavors/h100-80g",
        page::<FlavorPage>,
        [
            "/items/0/metadata/name",
            "/map/blocks/0/name",
            "/map/blocks/0/rows/0/name",
            "/map/blocks/0/rows/0/cells/0/name",
            "/map/blocks/0/rows/0/cells/0/workloads/0/name",
            "/clusterQueues/0",
        ]
    ),
    row!(
        "preemptions",
        "/preemptions",
        page::<PreemptionPage>,
        ["/items/0/victim/name", "/items/0/preemptor/namespace", "/matrix/0/victimClusterQueue"]
    ),
    row!("preemptions_empty", "/preemptions?cq=vision", page::<PreemptionPage>, ["/source/replica"]),
    row!("usage", "/usage?since=7d", page::<UsagePage>, ["/items/0/group", "/items/1/resource"]),
    row!(
        "audit",
        "/audit",
        page::<AuditPage>,
        ["/items/0/object/name", "/items/0/message", "/items/0/consequence", "/items/0/correction"]
    ),
    row!(
        "what_if",
        "/what-if?add=2&like=h1&for=1h",
        page::<WhatIfPage>,
        [
            "/query/like",
            "/answer/workloads/0/job",
            "/answer/workloads/0/with/preemptedBy",
            "/answer/workloads/1/with/blockedBy",
            "/answer/flavors/0/flavor",
            "/answer/staysStuck/0/job",
            "/answer/notes/0",
        ]
    ),
    row!(
        "what_if_tenant",
        "/what-if?ns=nlp-train&priority=job%2Fllama-ft-7c2%3Deval",
        page::<WhatIfPage>,
        ["/query/priority", "/answer/workloads/0/job", "/answer/staysStuck/0/job"]
    ),
    row!(
        "what_if_refused",
        "/what-if?ns=nlp-train&drain=h1",
        page::<WhatIfPage>,
        ["/query/drain", "/refused"]
    ),
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
