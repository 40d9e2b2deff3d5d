//! Reads the objects of a cluster with the user's own permissions; never writes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use crate::cache::Kind;
use crate::kube::client::{self, CallError, Caller};
use crate::kube::list::list;
use crate::simulate::{Problem, SourceLocation};

/// Timeout of one page of a list.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
const PAGE_SIZE: u32 = 500;
/// HTTP status for a kind that is not installed.
const NOT_FOUND: u16 = 404;

/// The objects of a cluster, Workloads last, and the kinds that could not be read.
pub(super) struct ClusterObjects {
    pub(super) objects: Vec<(Kind, Value)>,
    pub(super) problems: Vec<Problem>,
}

/// Lists the kinds on which decisions depend. A forbidden kind is a problem; an unreachable server is an error.
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
    let mut cluster = ClusterObjects { objects: Vec::new(), problems: Vec::new() };
    for kind in kinds {
        let resource = kind.resource();
        match list(caller, &resource, PAGE_SIZE).await {
            Ok(objects) => cluster.objects.extend(objects.into_iter().map(|object| (kind, object))),
            // A kind that is not installed has no objects; without queues there is nothing to simulate.
            Err(CallError::Status { code: NOT_FOUND, .. }) if kind != Kind::ClusterQueue => {}
            Err(CallError::Status { message, .. }) => cluster.problems.push(Problem {
                location: SourceLocation { file: Arc::from("cluster"), line: 0 },
                subject: resource.plural.to_owned(),
                reason: format!("skipped: {message}"),
            }),
            Err(error) => return Err(error).with_context(|| resource.plural),
        }
    }
    Ok(cluster)
}
