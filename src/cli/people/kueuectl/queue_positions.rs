//! Positions of pending workloads, from the visibility API that Kueue and Sluice serve.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::cli::people::pages::encoded;
use crate::kube::client::{CallError, Caller};

/// Rows of a page.
const PAGE: usize = 1_000;
const NOT_FOUND: u16 = 404;

/// Positions in the LocalQueue by namespace and name.
type Positions = BTreeMap<(String, String), u64>;

/// Positions in ClusterQueues, each read once on demand.
pub(super) struct QueuePositions<'a> {
    caller: &'a Caller,
    /// Workloads of other namespaces are not kept.
    namespace: Option<&'a str>,
    by_queue: BTreeMap<String, Positions>,
}

impl<'a> QueuePositions<'a> {
    pub(super) fn new(caller: &'a Caller, namespace: Option<&'a str>) -> Self {
        Self { caller, namespace, by_queue: BTreeMap::new() }
    }

    /// Returns the position of a workload in its LocalQueue; `None` if the ClusterQueue is unknown, or does not list it.
    pub(super) async fn of(
        &mut self,
        cluster_queue: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<u64>, CallError> {
        if !self.by_queue.contains_key(cluster_queue) {
            let read = self.read(cluster_queue).await?;
            self.by_queue.insert(cluster_queue.to_owned(), read);
        }
        let known = self.by_queue.get(cluster_queue);
        Ok(known.and_then(|known| known.get(&(namespace.to_owned(), name.to_owned())).copied()))
    }

    /// Reads all pages; by default the server answers at most a thousand rows.
    async fn read(&self, cluster_queue: &str) -> Result<Positions, CallError> {
        let queue = encoded(cluster_queue);
        let mut positions = Positions::new();
        for offset in (0_usize..).step_by(PAGE) {
            let path = format!(
                "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/{queue}/pendingworkloads?limit={PAGE}&offset={offset}"
            );
            let page = match self.caller.get(&path).await {
                Ok(page) => page,
                Err(error) if error.code() == Some(NOT_FOUND) => break,
                Err(error) => return Err(error),
            };
            let rows = page.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            for row in rows {
                let text = |field: &str| row.get("metadata")?.get(field)?.as_str().map(str::to_owned);
                let position = row.get("positionInLocalQueue").and_then(Value::as_u64);
                if let (Some(namespace), Some(name), Some(position)) =
                    (text("namespace"), text("name"), position)
                    && self.namespace.is_none_or(|wanted| wanted == namespace)
                {
                    positions.insert((namespace, name), position);
                }
            }
            if rows.len() < PAGE {
                break;
            }
        }
        Ok(positions)
    }
}
