//! What a cluster holds, read with the user's own rights and never written.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use crate::kube::client::{self, CallError, Caller};
use crate::kube::list::list;
use crate::simulate::{Problem, SourceLocation};
use crate::state::Kind;

/// Longest time for one page of a list.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
const PAGE_SIZE: u32 = 500;
/// HTTP status of a kind that the server does not know.
const NOT_FOUND: u16 = 404;

/// The objects, Workloads last, and the kinds that could not be read.
pub(super) struct ClusterObjects {
    pub(super) objects: Vec<(Kind, Value)>,
    pub(super) problems: Vec<Problem>,
}

/// Lists the kinds that decisions depend on. A kind that may not be read is a problem; a server that gives no answer an error.
pub(super) fn read(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
    kinds: &[Kind],
) -> anyhow::Result<ClusterObjects> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let caller = client::caller_from_kubeconfig(kubeconfig, context, PAGE_TIMEOUT)
            .await
            .context("--from-cluster")?;
        fetch(&caller, kinds).await.context("--from-cluster")
    })
}

async fn fetch(caller: &Caller, kinds: &[Kind]) -> anyhow::Result<ClusterObjects> {
    let mut kinds = kinds.to_vec();
    kinds.sort_by_key(|kind| *kind == Kind::Workload);
    let mut found = ClusterObjects { objects: Vec::new(), problems: Vec::new() };
    for kind in kinds {
        let resource = kind.resource();
        match list(caller, &resource, PAGE_SIZE).await {
            Ok(objects) => found.objects.extend(objects.into_iter().map(|object| (kind, object))),
            // A kind that is not installed has no objects; without queues there is nothing to simulate.
            Err(CallError::Status { code: NOT_FOUND, .. }) if kind != Kind::ClusterQueue => {}
            Err(CallError::Status { message, .. }) => found.problems.push(Problem {
                location: SourceLocation { file: Arc::from("cluster"), line: 0 },
                subject: resource.plural.to_owned(),
                reason: format!("left out: {message}"),
            }),
            Err(error) => return Err(error).with_context(|| resource.plural),
        }
    }
    Ok(found)
}
