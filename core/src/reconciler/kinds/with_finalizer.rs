//! ResourceFlavors, Topologies, AdmissionChecks and MultiKueueClusters: what ClusterQueues refer to.

use super::{NextWrite, Stored};
use crate::api::decoding::{DecodeError, decode};
use crate::api::{ObjectKey, v1beta2};
use crate::cache::{Ingested, Kind};
use crate::reconciler::queues::{activity, admission_checks};
use crate::reconciler::writes::request::WriteRequest;
use crate::reconciler::{ReconcileKey, Reconciler};
use crate::scheduler::Flavor;
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;

pub(super) struct Flavors;

impl Stored for Flavors {
    fn store(&self, core: &mut Reconciler, _: &ObjectKey, object: &Value) -> Result<(), DecodeError> {
        let Ingested { key: name, changed } = core.cache.ingest_flavor(decode(object)?);
        core.work_queue.add(ReconcileKey::named(Self::KIND, &name));
        core.snapshot_builder.mark_references_stale();
        if changed {
            let flavor = core.cache.flavor(&name).map(|record| &record.object.spec).map(|spec| Flavor {
                node_labels: spec.node_labels.clone(),
                node_taints: spec.node_taints.clone(),
                tolerations: spec.tolerations.clone(),
                topology_name: spec.topology_name.as_deref().map(Arc::from),
            });
            core.engine.set_flavor(&name, flavor);
            core.reconfigure_cluster_queues();
        }
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        if core.cache.remove_flavor(&key.name) {
            core.snapshot_builder.mark_references_stale();
            core.engine.set_flavor(&key.name, None);
            core.reconfigure_cluster_queues();
        }
    }
}

impl NextWrite for Flavors {
    const KIND: Kind = Kind::ResourceFlavor;
    type Object = v1beta2::ResourceFlavor;

    fn next_write(&self, core: &Reconciler, key: &ObjectKey, _: Timestamp) -> Option<WriteRequest> {
        activity::flavor_write(&key.name, &core.cache)
    }
}

pub(super) struct Topologies;

impl Stored for Topologies {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, object: &Value) -> Result<(), DecodeError> {
        let topology: v1beta2::Topology = decode(object)?;
        core.cache.ingest_topology(&key.name, &topology);
        let levels = core.cache.topology(&key.name).map(|record| record.levels.clone());
        core.engine.set_topology(&key.name, levels);
        core.work_queue.add(ReconcileKey::Object(Self::KIND, key.clone()));
        core.reconfigure_cluster_queues();
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        core.cache.remove_topology(&key.name);
        core.engine.set_topology(&key.name, None);
        core.reconfigure_cluster_queues();
    }
}

impl NextWrite for Topologies {
    const KIND: Kind = Kind::Topology;
    type Object = v1beta2::Topology;

    fn next_write(&self, core: &Reconciler, key: &ObjectKey, _: Timestamp) -> Option<WriteRequest> {
        activity::topology_write(&key.name, &core.cache)
    }
}

pub(super) struct Checks;

impl Stored for Checks {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, object: &Value) -> Result<(), DecodeError> {
        core.cache.ingest_check(decode(object)?);
        core.work_queue.add(ReconcileKey::Object(Self::KIND, key.clone()));
        core.reconfigure_cluster_queues();
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        core.cache.remove_check(&key.name);
        core.reconfigure_cluster_queues();
    }
}

impl NextWrite for Checks {
    const KIND: Kind = Kind::AdmissionCheck;
    type Object = v1beta2::AdmissionCheck;

    fn next_write(&self, core: &Reconciler, key: &ObjectKey, now: Timestamp) -> Option<WriteRequest> {
        activity::check_write(&key.name, core.admission_checks(), now)
    }
}

pub(super) struct MultiKueueClusters;

impl Stored for MultiKueueClusters {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, object: &Value) -> Result<(), DecodeError> {
        core.cache.ingest_multikueue_cluster(decode(object)?);
        core.work_queue.add(ReconcileKey::Object(Self::KIND, key.clone()));
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        core.cache.remove_multikueue_cluster(&key.name);
    }
}

impl NextWrite for MultiKueueClusters {
    const KIND: Kind = Kind::MultiKueueCluster;
    type Object = v1beta2::MultiKueueCluster;

    fn next_write(&self, core: &Reconciler, key: &ObjectKey, now: Timestamp) -> Option<WriteRequest> {
        admission_checks::multikueue_cluster_write(&key.name, &core.cache, now)
    }
}
