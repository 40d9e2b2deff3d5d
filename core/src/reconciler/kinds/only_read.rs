//! Kinds that decisions read: their objects get no steps.

use super::Stored;
use crate::api::decoding::{DecodeError, decode};
use crate::api::{ObjectKey, v1beta2};
use crate::reconciler::{ReconcileKey, Reconciler};
use k8s_openapi::api::core::v1::{LimitRange, Namespace, PodTemplate};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::Value;

pub(super) struct Namespaces;

impl Stored for Namespaces {
    fn store(&self, core: &mut Reconciler, _: &ObjectKey, object: &Value) -> Result<(), DecodeError> {
        let namespace: Namespace = decode(object)?;
        let Some(name) = core.cache.ingest_namespace(&namespace.metadata) else { return Ok(()) };
        core.engine.set_namespace(&name, core.cache.namespace_labels(&name).cloned());
        let jobs = core.cache.jobs().filter(|((_, key), _)| key.namespace == name);
        let units = jobs.flat_map(|((kind, key), _)| core.units().units_of_job_with_pods(*kind, key));
        // Pods that have ended before their namespace is seen to be deleted are released now.
        let deleting = core.cache.is_namespace_deleting(&name);
        let of_pods = core.cache.units().filter(|unit| deleting && unit.key.namespace == name).cloned();
        let units = units.chain(of_pods);
        let units: Vec<ReconcileKey> = units.map(ReconcileKey::Unit).collect();
        core.work_queue.add_all(units);
        core.snapshot_builder.mark_references_stale();
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        core.cache.remove_namespace(&key.name);
        core.engine.set_namespace(&key.name, None);
        core.snapshot_builder.mark_references_stale();
    }
}

pub(super) struct LimitRanges;

impl Stored for LimitRanges {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, object: &Value) -> Result<(), DecodeError> {
        let workloads = core.cache.ingest_limit_range(key, decode::<LimitRange>(object)?);
        core.mark_workloads_and_jobs(workloads);
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        let workloads = core.cache.remove_limit_range(key);
        core.mark_workloads_and_jobs(workloads);
    }
}

pub(super) struct RuntimeClasses;

impl Stored for RuntimeClasses {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, object: &Value) -> Result<(), DecodeError> {
        let overhead = decode::<RuntimeClass>(object)?.overhead.and_then(|o| o.pod_fixed);
        let workloads = core.cache.ingest_runtime_class(&key.name, overhead.unwrap_or_default());
        core.mark_workloads_and_jobs(workloads);
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        let workloads = core.cache.remove_runtime_class(&key.name);
        core.mark_workloads_and_jobs(workloads);
    }
}

pub(super) struct PriorityClasses;

impl Stored for PriorityClasses {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, object: &Value) -> Result<(), DecodeError> {
        let class = decode::<PriorityClass>(object)?;
        let default = class.global_default.unwrap_or(false);
        core.cache.ingest_priority_class(&key.name, class.value, default);
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        core.cache.remove_priority_class(&key.name);
    }
}

pub(super) struct WorkloadPriorityClasses;

impl Stored for WorkloadPriorityClasses {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, object: &Value) -> Result<(), DecodeError> {
        let value = decode::<v1beta2::WorkloadPriorityClass>(object)?.value;
        if core.cache.ingest_workload_priority_class(&key.name, value) {
            core.mark_users_of_priority_class(&key.name);
        }
        core.snapshot_builder.mark_references_stale();
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        core.cache.remove_workload_priority_class(&key.name);
        core.snapshot_builder.mark_references_stale();
    }
}

pub(super) struct ProvisioningRequestConfigs;

impl Stored for ProvisioningRequestConfigs {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, object: &Value) -> Result<(), DecodeError> {
        let config = decode::<v1beta2::ProvisioningRequestConfig>(object)?;
        if core.cache.set_provisioning_config(&key.name, Some(config.spec)) {
            core.mark_provisioning_users();
        }
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        if core.cache.set_provisioning_config(&key.name, None) {
            core.mark_provisioning_users();
        }
    }
}

pub(super) struct ProvisioningRequests;

impl Stored for ProvisioningRequests {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, object: &Value) -> Result<(), DecodeError> {
        let workloads = core.cache.ingest_provisioning_request(key, object)?;
        core.mark_workloads(workloads);
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        let workload = core.cache.remove_provisioning_request(key);
        core.mark_workloads(workload);
    }
}

pub(super) struct PodTemplates;

impl Stored for PodTemplates {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, object: &Value) -> Result<(), DecodeError> {
        core.cache.ingest_pod_template(key, &decode::<PodTemplate>(object)?.metadata);
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        core.cache.remove_pod_template(key);
    }
}

pub(super) struct Nodes;

impl Stored for Nodes {
    fn store(&self, core: &mut Reconciler, key: &ObjectKey, object: &Value) -> Result<(), DecodeError> {
        let (spec, workloads) = core.cache.ingest_node(&key.name, decode(object)?);
        core.engine.set_node(&key.name, Some(spec));
        core.mark_workloads_and_pods(workloads);
        Ok(())
    }

    fn remove(&self, core: &mut Reconciler, key: &ObjectKey) {
        let workloads = core.cache.remove_node(&key.name);
        core.engine.set_node(&key.name, None);
        core.mark_workloads_and_pods(workloads);
    }
}
