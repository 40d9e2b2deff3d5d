//! Findings about LocalQueues whose new workloads would not be admitted although both queues are active: the namespace is excluded, or a
//! workload that can never be admitted is before them.
//!
//! Invariant: they do not depend on workloads that wait in the LocalQueue, so that users learn of it before they submit one.

use super::{Audit, Said, finding, number};
use crate::quota::NodeRef;
use crate::visibility::queue_state::{blocked, excludes};
use crate::visibility::views::{Check, Finding};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Audit<'_> {
    /// Finds LocalQueues whose namespace their ClusterQueue excludes.
    pub(super) fn excluded_queues(&self, found: &mut Vec<Finding>) {
        let mut selecting: BTreeMap<&str, bool> = BTreeMap::new();
        for (key, queue) in &self.snapshot.queues.local_queues {
            let name = &queue.cluster_queue;
            if !excludes(self.snapshot, name, &key.namespace) {
                continue;
            }
            // Of a ClusterQueue that selects no namespace, readers of the cluster get one finding about that ClusterQueue.
            let selects_any = *selecting.entry(name).or_insert_with(|| self.selects_any(name));
            if !selects_any && !self.form.is_by_namespace() {
                continue;
            }
            let namespace = &key.namespace;
            let said = Said {
                message: format!(
                    "the namespaceSelector of its ClusterQueue {name} does not match namespace {namespace}"
                ),
                consequence: "none of its workloads is admitted",
                correction: self.of_administrator(format!(
                    "kubectl edit clusterqueue {name}; change spec.namespaceSelector, or the labels of namespace {namespace}"
                )),
                ..Said::default()
            };
            let said = said.with("pending", number(queue.pending.total()));
            found.push(finding(Check::LocalQueueExcluded, ("LocalQueue", key), said));
        }
    }

    /// Finds LocalQueues whose new workloads would be behind one that can never be admitted, by namespace. Queues with stuck workloads
    /// have findings about these.
    pub(super) fn blocked_queues(&self, found: &mut Vec<Finding>) {
        let queues = &self.snapshot.queues;
        for (key, queue) in queues.local_queues.iter().filter(|_| self.form.is_by_namespace()) {
            let name = &queue.cluster_queue;
            let is_said = queues.standings.get(name).is_some_and(|known| known.stuck.contains_key(key));
            if is_said || !queue.active || excludes(self.snapshot, name, &key.namespace) {
                continue;
            }
            let Some(behind) = blocked(self.snapshot, key, name) else { continue };
            let (tenant, node) = (self.tenant(&key.namespace), NodeRef::ClusterQueue(Arc::clone(name)));
            let text = behind.sentence(name, &self.rows_for(tenant.as_ref()).reader(&node));
            let said = Said {
                message: format!("a new workload of priority 0 would be stuck: {text}"),
                consequence: "waiting does not admit it",
                correction: self.unblocks(name),
                ..Said::default()
            };
            let said = said.with("pending", number(queue.pending.total()));
            found.push(finding(Check::LocalQueueBlocked, ("LocalQueue", key), said));
        }
    }
}
