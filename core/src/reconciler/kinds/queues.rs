//! Cohorts, ClusterQueues and LocalQueues.

use super::{NextWrite, QueueSteps, Stored};
use crate::api::decoding::{DecodeError, decode};
use crate::api::{ObjectKey, v1beta2};
use crate::cache::kinds::to_resource_groups;
use crate::cache::{Ingested, Kind};
use crate::reconciler::queues::fair_sharing::to_afs_local_queue;
use crate::reconciler::queues::{QueueKey, activity};
use crate::reconciler::writes::request::WriteRequest;
use crate::reconciler::{ReconcileKey, Reconciler};
use crate::scheduler::Cohort;
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;

pub(super) struct Cohorts;

impl Stored for Cohorts {
    fn store(&self, core: &mut Reconciler, _: &ObjectKey, object: &Value) -> Result<(), DecodeError> {
        let Ingested { key: name, changed } = core.cache.ingest_cohort(decode(object)?);
        core.work_queue.add(ReconcileKey::named(Self::KIND, &name));
        if changed {
            let cohort = core.cache.cohort(&name).map(|record| &record.object).map(|object| Cohort {
                parent: object.spec.parent_name.as_deref().map(Arc::from),
                groups: to_resource_groups(object.quota_groups()),
                weight: object.spec.fair_sharing.as_ref().and_then(v1beta2::FairSharing::number),
            });
            core.engine.set_cohort(&name, cohort);
            core.reconfigure_cluster_queues();
            core.snapshot_builder.mark_references_stale();
        }
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        if core.cache.remove_cohort(&key.name) {
            core.engine.set_cohort(&key.name, None);
            core.reconfigure_cluster_queues();
            core.snapshot_builder.mark_references_stale();
        }
    }
}

impl NextWrite for Cohorts {
    const KIND: Kind = Kind::Cohort;
    type Object = v1beta2::Cohort;

    /// A Cohort has a status alone.
    fn next_write(&self, _: &Reconciler, _: &ObjectKey, _: Timestamp) -> Option<WriteRequest> {
        None
    }
}

impl QueueSteps for Cohorts {
    fn queue_key(&self, key: &ObjectKey) -> QueueKey {
        QueueKey::Cohort(key.name.clone())
    }

    fn update(&self, _: &mut Reconciler, _: &ObjectKey, _: Timestamp) {}
}

pub(super) struct ClusterQueues;

impl Stored for ClusterQueues {
    fn store(&self, core: &mut Reconciler, _: &ObjectKey, object: &Value) -> Result<(), DecodeError> {
        let Ingested { key: name, changed } = core.cache.ingest_cluster_queue(decode(object)?);
        core.work_queue.add(ReconcileKey::named(Self::KIND, &name));
        if changed {
            core.history_feed().follow_quota(&name);
            core.configure_cluster_queue(&name);
            core.mark_cluster_queue_and_workloads(&name);
            core.mark_deleting_references();
            core.snapshot_builder.mark_references_stale();
        }
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        if core.cache.remove_cluster_queue(&key.name) {
            core.history_feed().follow_quota(&key.name);
            core.engine.set_cluster_queue(&key.name, None);
            core.mark_cluster_queue_and_workloads(&key.name);
            core.mark_deleting_references();
            core.snapshot_builder.mark_references_stale();
        }
    }
}

impl NextWrite for ClusterQueues {
    const KIND: Kind = Kind::ClusterQueue;
    type Object = v1beta2::ClusterQueue;

    fn next_write(&self, core: &Reconciler, key: &ObjectKey, _: Timestamp) -> Option<WriteRequest> {
        activity::cluster_queue_write(&key.name, &core.cache, &core.engine)
    }
}

impl QueueSteps for ClusterQueues {
    fn queue_key(&self, key: &ObjectKey) -> QueueKey {
        QueueKey::ClusterQueue(key.name.clone())
    }

    fn update(&self, core: &mut Reconciler, key: &ObjectKey, _: Timestamp) {
        core.configure_cluster_queue(&key.name);
    }
}

pub(super) struct LocalQueues;

impl Stored for LocalQueues {
    fn store(&self, core: &mut Reconciler, _: &ObjectKey, object: &Value) -> Result<(), DecodeError> {
        let Ingested { key, changed } = core.cache.ingest_local_queue(decode(object)?);
        let queue = core.cache.local_queue(&key).map(|record| to_afs_local_queue(&record.object));
        core.engine.set_local_queue(&key, queue);
        core.work_queue.add(ReconcileKey::Object(Self::KIND, key.clone()));
        if changed {
            core.mark_local_queue_and_workloads(&key);
            core.snapshot_builder.mark_references_stale();
        }
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        if core.cache.remove_local_queue(key) {
            core.engine.set_local_queue(key, None);
            core.mark_local_queue_and_workloads(key);
            core.snapshot_builder.mark_references_stale();
        }
    }
}

impl NextWrite for LocalQueues {
    const KIND: Kind = Kind::LocalQueue;
    type Object = v1beta2::LocalQueue;

    /// A LocalQueue has a status alone.
    fn next_write(&self, _: &Reconciler, _: &ObjectKey, _: Timestamp) -> Option<WriteRequest> {
        None
    }

    fn follow_readability(&self, core: &mut Reconciler, key: &ObjectKey) {
        core.mark_local_queue_and_workloads(key);
    }
}

impl QueueSteps for LocalQueues {
    fn queue_key(&self, key: &ObjectKey) -> QueueKey {
        QueueKey::LocalQueue(key.clone())
    }

    fn update(&self, core: &mut Reconciler, key: &ObjectKey, now: Timestamp) {
        core.queue_updates().sample_afs_usage(key, now);
    }
}
