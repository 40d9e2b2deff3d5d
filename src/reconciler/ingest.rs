//! Received objects: the cache stores each, and the consequences are configured in the scheduler or added to the work
//! queue.

use super::messages::Effect;
use super::{ReconcileKey, Reconciler};
use crate::api::decoding::decode;
use crate::api::{ObjectKey, v1beta2};
use crate::cache::kinds::to_resource_groups;
use crate::cache::{Arrival, Ingested, JobChange, Kind, ObjectIdentity, WorkloadObject};
use crate::frameworks::{JobKind, UnitKey};
use crate::lifecycle::reservation;
use crate::scheduler::{Cohort, Flavor};
use k8s_openapi::api::core::v1::{LimitRange, Namespace, PodTemplate};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::Value;
use std::sync::Arc;

impl Reconciler {
    /// Handles an object from a watch or from the response to a write. An object that cannot be decoded counts as
    /// absent, but a Workload that holds quota keeps it; an event reports the object. `written` is the status that a
    /// write set, if the response may leave spec and status out.
    pub(super) fn ingest(
        &mut self,
        kind: Kind,
        object: Value,
        written: Option<Arc<v1beta2::WorkloadStatus>>,
    ) {
        let identity = ObjectIdentity::of_value(&object);
        if let Some(key) = self.accept(kind, &identity) {
            let uid = identity.uid.to_owned();
            let result = self.store(kind, &key, object, written);
            self.record_decode_result(kind, key, &uid, result);
        }
    }

    /// Like [`Self::ingest`], for a Workload from a watch.
    pub(super) fn ingest_workload(&mut self, object: &WorkloadObject) {
        let identity = ObjectIdentity::of_metadata(&object.metadata);
        if let Some(key) = self.accept(Kind::Workload, &identity) {
            let result = self.store_workload(&key, object, None);
            self.record_decode_result(Kind::Workload, key, identity.uid, result);
        }
    }

    /// Handles the answer to a read: the object, or `None` if it does not exist.
    pub(super) fn handle_read(&mut self, kind: Kind, key: &ObjectKey, object: Option<Value>) {
        match object {
            Some(object) => self.ingest(kind, object, None),
            None => self.record_deletion(kind, key, None),
        }
        if kind == Kind::Workload {
            self.writes.confirm_workload(key, &mut self.work_queue);
        }
    }

    /// Returns the key of an object that must be stored; `None` if it is stale or deleted.
    fn accept(&mut self, kind: Kind, identity: &ObjectIdentity<'_>) -> Option<ObjectKey> {
        match self.cache.check_arrival(kind, identity) {
            Arrival::New(key) => Some(key),
            Arrival::Stale => None,
            Arrival::Deleted(key) => {
                self.record_deletion(kind, &key, Some(identity.uid));
                None
            }
        }
    }

    fn record_decode_result(&mut self, kind: Kind, key: ObjectKey, uid: &str, result: Result<(), String>) {
        let Err(problem) = result else {
            self.warnings.clear_unreadable(kind, key);
            return;
        };
        if !self.keeps_last_readable(kind, &key, uid) {
            self.remove(kind, &key, None);
        }
        let event = self.warnings.record_unreadable(kind, key, uid, &problem);
        self.writes.emit_all(event.filter(|_| self.leading).map(Effect::Event));
    }

    /// Returns whether an object that cannot be decoded counts with its last readable state. A Workload that holds quota
    /// does: its pods run, and without it their quota would be given to other Workloads.
    fn keeps_last_readable(&self, kind: Kind, key: &ObjectKey, uid: &str) -> bool {
        let known = self.cache.workload(key).filter(|_| kind == Kind::Workload);
        known.is_some_and(|record| *record.meta.uid == *uid && reservation::holds_quota(&record.status))
    }

    fn store(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        raw: Value,
        written: Option<Arc<v1beta2::WorkloadStatus>>,
    ) -> Result<(), String> {
        let name = &key.name;
        let object = &raw;
        match kind {
            Kind::Namespace => self.store_namespace(&decode(object)?),
            Kind::LimitRange => {
                let workloads = self.cache.ingest_limit_range(key, decode::<LimitRange>(object)?);
                self.mark_workloads_and_jobs(workloads);
            }
            Kind::RuntimeClass => {
                let overhead = decode::<RuntimeClass>(object)?.overhead.and_then(|o| o.pod_fixed);
                let workloads = self.cache.ingest_runtime_class(name, overhead.unwrap_or_default());
                self.mark_workloads_and_jobs(workloads);
            }
            Kind::PriorityClass => {
                let class = decode::<PriorityClass>(object)?;
                self.cache.ingest_priority_class(name, class.value, class.global_default.unwrap_or(false));
            }
            Kind::WorkloadPriorityClass => {
                let value = decode::<v1beta2::WorkloadPriorityClass>(object)?.value;
                if self.cache.ingest_workload_priority_class(name, value) {
                    self.mark_users_of_priority_class(name);
                }
                self.snapshot_builder.mark_references_stale();
            }
            Kind::ResourceFlavor => self.store_flavor(decode(object)?),
            Kind::Topology => {
                let topology: v1beta2::Topology = decode(object)?;
                self.cache.ingest_topology(name, &topology);
                let levels = self.cache.topology(name).map(|record| record.levels.clone());
                self.engine.set_topology(name, levels);
                self.work_queue.add(ReconcileKey::Topology(name.clone()));
                self.reconfigure_cluster_queues();
            }
            Kind::AdmissionCheck => {
                let name = self.cache.ingest_check(decode(object)?);
                self.work_queue.add(ReconcileKey::Check(name));
                self.reconfigure_cluster_queues();
            }
            Kind::MultiKueueCluster => {
                let name = self.cache.ingest_multikueue_cluster(decode(object)?);
                self.work_queue.add(ReconcileKey::MultiKueueCluster(name));
            }
            Kind::Cohort => self.store_cohort(decode(object)?),
            Kind::ClusterQueue => self.store_cluster_queue(decode(object)?),
            Kind::LocalQueue => self.store_local_queue(decode(object)?),
            Kind::Workload => {
                return self.store_workload(key, &WorkloadObject::from_value(raw)?, written);
            }
            Kind::ProvisioningRequestConfig => {
                let config = decode::<v1beta2::ProvisioningRequestConfig>(object)?;
                if self.cache.set_provisioning_config(name, Some(config.spec)) {
                    self.mark_provisioning_users();
                }
            }
            Kind::ProvisioningRequest => {
                let workloads = self.cache.ingest_provisioning_request(key, object)?;
                self.mark_workloads(workloads);
            }
            Kind::PodTemplate => {
                self.cache.ingest_pod_template(key, &decode::<PodTemplate>(object)?.metadata);
            }
            Kind::Node => {
                let (spec, workloads) = self.cache.ingest_node(name, decode(object)?);
                self.engine.set_node(name, Some(spec));
                self.mark_workloads_and_pods(workloads);
            }
            Kind::Pod => {
                let pod = decode(object)?;
                self.mark_unit_of_pod(key);
                let read = self.cache.ingest_unit_pod(key, object);
                self.mark_unit_of_pod(key);
                let change = self.cache.ingest_pod(key, pod);
                self.follow_pod_change(key, change);
                self.report_unit_pod(key, read.err());
            }
            Kind::Job(kind) => {
                let JobChange { replaced, pods } = self.cache.ingest_job(kind, key, raw)?;
                self.follow_rechecked_pods(pods);
                self.follow_job_change(kind, key, replaced.as_ref());
            }
        }
        Ok(())
    }

    fn store_workload(
        &mut self,
        key: &ObjectKey,
        object: &WorkloadObject,
        written: Option<Arc<v1beta2::WorkloadStatus>>,
    ) -> Result<(), String> {
        if let Some(change) = self.cache.ingest_workload(key, object, written)? {
            self.compact_finished_status(key);
            self.follow_workload_change(key, change);
        }
        Ok(())
    }

    fn store_namespace(&mut self, object: &Namespace) {
        let Some(name) = self.cache.ingest_namespace(&object.metadata) else { return };
        self.engine.set_namespace(&name, self.cache.namespace_labels(&name).cloned());
        let jobs = self.cache.jobs().filter(|((_, key), _)| key.namespace == name);
        self.work_queue
            .add_all(jobs.map(|((kind, key), _)| ReconcileKey::Unit(UnitKey::of_object(*kind, key.clone()))));
        self.snapshot_builder.mark_references_stale();
    }

    fn store_flavor(&mut self, object: v1beta2::ResourceFlavor) {
        let Ingested { key: name, changed } = self.cache.ingest_flavor(object);
        self.work_queue.add(ReconcileKey::Flavor(name.clone()));
        if changed {
            let flavor = self.cache.flavor(&name).map(|record| &record.object.spec).map(|spec| Flavor {
                node_labels: spec.node_labels.clone(),
                node_taints: spec.node_taints.clone(),
                tolerations: spec.tolerations.clone(),
                topology_name: spec.topology_name.as_deref().map(Arc::from),
            });
            self.engine.set_flavor(&name, flavor);
            self.reconfigure_cluster_queues();
        }
    }

    fn store_cohort(&mut self, object: v1beta2::Cohort) {
        let Ingested { key: name, changed } = self.cache.ingest_cohort(object);
        self.work_queue.add(ReconcileKey::Cohort(name.clone()));
        if changed {
            let cohort = self.cache.cohort(&name).map(|record| &record.object).map(|object| Cohort {
                parent: object.spec.parent_name.as_deref().map(Arc::from),
                groups: to_resource_groups(object.quota_groups()),
                weight: object.spec.fair_sharing.as_ref().and_then(v1beta2::FairSharing::number),
            });
            self.engine.set_cohort(&name, cohort);
            self.reconfigure_cluster_queues();
        }
    }

    fn store_cluster_queue(&mut self, object: v1beta2::ClusterQueue) {
        let Ingested { key: name, changed } = self.cache.ingest_cluster_queue(object);
        self.work_queue.add(ReconcileKey::ClusterQueue(name.clone()));
        if changed {
            self.configure_cluster_queue(&name);
            self.mark_cluster_queue_and_workloads(&name);
            self.mark_deleting_references();
            self.snapshot_builder.mark_references_stale();
        }
    }

    fn store_local_queue(&mut self, object: v1beta2::LocalQueue) {
        let Ingested { key, changed } = self.cache.ingest_local_queue(object);
        let queue = self.cache.local_queue(&key);
        let queue = queue.map(|record| super::queues::fair_sharing::to_afs_local_queue(&record.object));
        self.engine.set_local_queue(&key, queue);
        self.work_queue.add(ReconcileKey::LocalQueue(key.clone()));
        if changed {
            self.mark_local_queue_and_workloads(&key);
            self.snapshot_builder.mark_references_stale();
        }
    }

    fn follow_job_change(&mut self, kind: JobKind, key: &ObjectKey, replaced: Option<&Arc<str>>) {
        if let Some(uid) = replaced {
            self.mark_workloads_owned_by(uid);
        }
        self.work_queue.add(ReconcileKey::Unit(UnitKey::of_object(kind, key.clone())));
        let Some(view) = self.cache.job(&(kind, key.clone())) else { return };
        self.snapshot_builder.set_job(kind, view);
        let view = Arc::clone(view);
        self.mark_workloads_of_job(kind, &view);
    }
}
