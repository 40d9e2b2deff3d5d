//! The annotations of a Workload that decide something.

use crate::api::{ObjectKey, OwnerRecord, names};
use crate::lifecycle::provisioning::PARAMETER_PREFIX;
use crate::scheduler::Variant;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Decoded annotations of a Workload.
#[derive(Clone, Debug, Default)]
pub struct WorkloadAnnotations {
    /// Controllers that gate the admission.
    pub(crate) admission_gated_by: Option<String>,
    /// What a controller adds to the priority.
    pub priority_boost: i32,
    /// Set if the Workload is a variant of a parent Workload (concurrent admission).
    pub(crate) variant: Option<Arc<Variant>>,
    /// Parameters for the ProvisioningRequests of the Workload.
    pub(crate) provisioning_parameters: BTreeMap<String, String>,
    /// The workload slice that this Workload replaces.
    pub(crate) replaces: Option<Box<ObjectKey>>,
    /// Whether the Workload is that of a pod group.
    pub(crate) is_pod_group: bool,
    /// Whether the Workload is a slice of an elastic job.
    pub(crate) is_slice: bool,
    /// UID of the Workload of the same job from which it takes over what was counted.
    pub(crate) carried_from: Option<Box<str>>,
    /// Name of the first of the slices that take over from one another, if the Workload names it.
    pub(crate) chain: Option<Arc<str>>,
    /// Name of the user that submitted the Workload or its job, if submitters are read. It grants nothing: lists compare it with their
    /// reader.
    pub submitter: Option<Arc<str>>,
}

impl WorkloadAnnotations {
    /// Decodes annotations. `carried_from` and `submitter` are not set: one is decoded with the status, and the settings have the key of
    /// the other.
    pub(super) fn of(metadata: &ObjectMeta) -> Self {
        let empty = BTreeMap::new();
        let annotations = metadata.annotations.as_ref().unwrap_or(&empty);
        let gated_by = annotations.get(names::ADMISSION_GATED_BY_ANNOTATION).filter(|v| !v.is_empty());
        Self {
            carried_from: None,
            admission_gated_by: gated_by.cloned(),
            priority_boost: priority_boost_of(annotations),
            variant: variant_of(metadata),
            provisioning_parameters: provisioning_parameters_of(annotations),
            replaces: replaced_slice_of(metadata),
            is_slice: annotations.get(names::ELASTIC_JOB_ANNOTATION).is_some_and(|v| v == "true"),
            chain: annotations.get(names::SLICE_NAME_ANNOTATION).map(|name| Arc::from(name.as_str())),
            is_pod_group: annotations.get(names::GROUP_WORKLOAD_ANNOTATION).is_some_and(|v| v == "true"),
            submitter: None,
        }
    }
}

/// Returns the priority boost of the annotation; 0 without one, or if it is no whole number of 32 bits, which the webhook refuses.
fn priority_boost_of(annotations: &BTreeMap<String, String>) -> i32 {
    annotations.get(names::PRIORITY_BOOST_ANNOTATION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// Returns the annotations that are copied to ProvisioningRequests.
fn provisioning_parameters_of(annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_parameter = |name: &&String| name.starts_with(PARAMETER_PREFIX);
    annotations
        .iter()
        .filter(|(name, _)| is_parameter(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Returns the parent and the allowed flavors if the Workload is a variant.
fn variant_of(meta: &ObjectMeta) -> Option<Arc<Variant>> {
    let flavors = meta.annotations.as_ref()?.get(names::ALLOWED_FLAVORS_ANNOTATION)?;
    let owner = OwnerRecord::from_object_meta(meta).filter(|owner| *owner.kind == *"Workload")?;
    Some(Arc::new(Variant {
        parent: owner.name,
        flavors: flavors.split(',').map(str::trim).filter(|f| !f.is_empty()).map(Arc::from).collect(),
    }))
}

/// Returns the key of the workload slice that the Workload replaces, if its annotation names one.
fn replaced_slice_of(meta: &ObjectMeta) -> Option<Box<ObjectKey>> {
    let text = meta.annotations.as_ref()?.get(names::SLICE_REPLACEMENT_FOR_ANNOTATION)?;
    let (namespace, name) = text.split_once('/')?;
    Some(Box::new(ObjectKey::new(namespace, name)))
}
