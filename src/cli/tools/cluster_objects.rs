//! Reads the objects of a cluster with the user's own permissions; never writes.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use serde_json::Value;

use crate::cache::Kind;
use crate::kube::client::{self, CallError, Caller};
use crate::kube::list::{list, list_path};
use crate::simulate::SkippedResource;

/// Field of the ConfigMap with the manager's configuration.
pub(crate) const CONFIGURATION_FIELD: &str = "controller_manager_config.yaml";
/// Timeout of one page of a list.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
const PAGE_SIZE: u32 = 500;
/// HTTP status for a kind that is not installed.
const NOT_FOUND: u16 = 404;
/// HTTP status for an unknown user: nothing can be read.
const UNAUTHORIZED: u16 = 401;

/// The objects of a cluster, Workloads last, and the kinds that could not be read.
#[derive(Clone)]
pub(crate) struct ClusterObjects {
    pub(crate) objects: Vec<(Kind, Value)>,
    pub(crate) skipped: Vec<SkippedResource>,
}

/// A cluster, read with the user's kubeconfig.
pub(crate) struct ClusterReader {
    caller: Caller,
}

impl ClusterReader {
    /// Reads the kubeconfig; by default the files that kubectl reads.
    pub(super) async fn connect(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Self> {
        Ok(Self { caller: caller(kubeconfig, context).await? })
    }

    /// Reads with this caller.
    pub(crate) fn of(caller: Caller) -> Self {
        Self { caller }
    }

    /// Returns the time at the API server, from which the ages of its objects count; if it does not say it, that of this machine.
    pub(crate) async fn time(&self) -> Timestamp {
        self.caller.server_time().await.unwrap_or_else(Timestamp::now)
    }

    /// Returns the number of objects of a kind; `None` if it cannot be read.
    pub(crate) async fn count(&self, kind: Kind) -> Option<u64> {
        let page = self.caller.get(&format!("{}?limit=1", client::all_path(&kind.resource()))).await.ok()?;
        let first = u64::try_from(page.get("items")?.as_array()?.len()).ok()?;
        let left = page.pointer("/metadata/remainingItemCount").and_then(Value::as_u64).unwrap_or_default();
        Some(first.saturating_add(left))
    }

    /// Like `objects`. If a kind is forbidden in the cluster, its objects in `namespace` are read, and the kind still counts as
    /// skipped.
    pub(crate) async fn objects_of(&self, kinds: &[Kind], namespace: &str) -> anyhow::Result<ClusterObjects> {
        let mut cluster = self.objects(kinds).await?;
        for kind in kinds {
            let resource = kind.resource();
            let is_skipped = cluster.skipped.iter().any(|skipped| skipped.resource == resource.plural);
            if !is_skipped || !resource.namespaced {
                continue;
            }
            let path = client::collection_path(&resource, namespace);
            let Ok(objects) = list_path(&self.caller, &path, "", PAGE_SIZE).await else { continue };
            let typed = |mut object: Value| {
                if let Some(fields) = object.as_object_mut() {
                    fields.insert("apiVersion".to_owned(), resource.api_version().into());
                    fields.insert("kind".to_owned(), resource.kind.into());
                }
                (*kind, object)
            };
            cluster.objects.extend(objects.into_iter().map(typed));
        }
        Ok(cluster)
    }

    /// Lists the kinds on which decisions depend. A forbidden kind is skipped. An unreachable server is an error, and so is a
    /// user that the server does not know.
    pub(crate) async fn objects(&self, kinds: &[Kind]) -> anyhow::Result<ClusterObjects> {
        let mut kinds = kinds.to_vec();
        kinds.sort_by_key(|kind| *kind == Kind::Workload);
        let mut cluster = ClusterObjects { objects: Vec::new(), skipped: Vec::new() };
        for kind in kinds {
            let resource = kind.resource();
            match list(&self.caller, &resource, PAGE_SIZE).await {
                Ok(objects) => cluster.objects.extend(objects.into_iter().map(|object| (kind, object))),
                // A kind that is not installed has no objects; without queues there is nothing to simulate.
                Err(CallError::Status { code: NOT_FOUND, .. }) if kind != Kind::ClusterQueue => {}
                Err(CallError::Status { code, message, .. }) if code != UNAUTHORIZED => {
                    cluster
                        .skipped
                        .push(SkippedResource { resource: resource.plural.to_owned(), reason: message });
                }
                Err(error) => return Err(error).with_context(|| resource.plural),
            }
        }
        Ok(cluster)
    }

    /// Returns a field of the data of a ConfigMap, or the server's message if it cannot be read.
    pub(crate) async fn config_map_field(
        &self,
        namespace: &str,
        name: &str,
        field: &str,
    ) -> anyhow::Result<Result<String, String>> {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
        match self.caller.get(&path).await {
            Ok(object) => {
                let text = object.get("data").and_then(|data| data.get(field)).and_then(Value::as_str);
                Ok(text.map(str::to_owned).ok_or_else(|| format!("it has no field {field:?}")))
            }
            Err(CallError::Status { code, message, .. }) if code != UNAUTHORIZED => Ok(Err(message)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Reads the kubeconfig; by default the files that kubectl reads. Returns the caller of its cluster.
pub(super) async fn caller(kubeconfig: Option<&Path>, context: Option<&str>) -> anyhow::Result<Caller> {
    Ok(client::caller_from_kubeconfig(kubeconfig, context, PAGE_TIMEOUT).await?)
}

/// Runs calls to a cluster on this thread.
pub(crate) fn block_on<T>(calls: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(calls)
}
