//! What the core keeps of each object: enough to decide, and no more.

use super::shared::Shared;
use crate::api::v1beta2::{
    AdmissionCheck, ClusterQueue, Cohort, GatePosition, LocalQueue, PodSetRequest, PodSetTopologyRequest,
    PriorityClassRef, ResourceFlavor, Workload, WorkloadStatus,
};
use crate::api::{ObjectKey, names};
use crate::jobs::{PodSetInfo, PodSetView, Shape, TemplateInfo, pod_set_infos, pod_set_shape};
use crate::lifecycle::provisioning::PARAMETER_PREFIX;
use crate::scheduler::{self, Variant};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Identity and version that every write needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) key: ObjectKey,
    pub(super) uid: Arc<str>,
    pub(super) resource_version: String,
    pub(super) generation: i64,
    pub(super) created: Timestamp,
    pub(super) deleting: bool,
    /// Finalizers of the object, ours and others'.
    pub(super) finalizers: Vec<String>,
}

impl Meta {
    pub(super) fn of(meta: &ObjectMeta) -> Self {
        Self {
            key: ObjectKey::new(
                meta.namespace.as_deref().unwrap_or_default(),
                meta.name.as_deref().unwrap_or_default(),
            ),
            uid: Arc::from(meta.uid.as_deref().unwrap_or_default()),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            created: meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0),
            deleting: meta.deletion_timestamp.is_some(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
        }
    }

    pub(super) fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|f| f == names::RESOURCE_IN_USE_FINALIZER)
    }
}

/// The controller of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnerRecord {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: Arc<str>,
}

impl OwnerRecord {
    /// API group of the owner.
    pub(super) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// The controller among the owners; of a Workload the first owner when none is marked so.
    pub(super) fn of(meta: &ObjectMeta) -> Option<Self> {
        let owners = meta.owner_references.as_deref().unwrap_or_default();
        let owner = owners.iter().find(|o| o.controller == Some(true)).or_else(|| owners.first())?;
        Some(Self {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            uid: Arc::from(owner.uid.as_str()),
        })
    }
}

/// A pod set of a Workload.
#[derive(Clone, Debug)]
pub(super) struct PodSetRecord {
    pub(super) name: Arc<str>,
    pub(super) count: i32,
    pub(super) min_count: Option<i32>,
    pub(super) spec: Arc<PodSpec>,
    pub(super) shape: Shape,
    pub(super) topology: Option<Box<PodSetTopologyRequest>>,
}

/// A Workload.
#[derive(Clone, Debug)]
pub(super) struct WorkloadRecord {
    pub(super) meta: Meta,
    pub(super) owner: Option<OwnerRecord>,
    pub(super) job_uid: Option<Arc<str>>,
    pub(super) gated: bool,
    pub(super) gated_by: Option<String>,
    pub(super) queue_name: Option<Arc<str>>,
    pub(super) priority: i32,
    pub(super) priority_class: Option<PriorityClassRef>,
    pub(super) active: bool,
    pub(super) max_execution_seconds: Option<i32>,
    pub(super) pod_sets: Vec<PodSetRecord>,
    /// Templates as they were before a start, for the restore.
    pub(super) originals: Vec<PodSetInfo>,
    /// Names of the gates that keep it from preempting until they open.
    pub(super) preemption_gates: Vec<String>,
    /// What it is one of several alternatives of.
    pub(super) variant: Option<Arc<Variant>>,
    /// Annotations that are handed on to ProvisioningRequests.
    pub(super) parameters: BTreeMap<String, String>,
    /// The slice that it takes over from.
    pub(super) replaces: Option<Box<ObjectKey>>,
    pub(super) status: Box<WorkloadStatus>,
    /// Requests after LimitRanges, overhead and transformations, and why they are not valid.
    pub(super) effective: Effective,
}

/// Requests as the scheduler sees them.
#[derive(Clone, Debug, Default)]
pub(super) struct Effective {
    pub(super) pod_sets: Option<Arc<[scheduler::PodSet]>>,
    /// Their totals, as the status shows them.
    pub(super) shown: Arc<[PodSetRequest]>,
    pub(super) misconfigured: Option<String>,
}

impl WorkloadRecord {
    /// Reads a Workload.
    ///
    /// # Errors
    /// Names what cannot be read.
    pub(super) fn decode(object: &Value, templates: &mut Templates) -> Result<Self, String> {
        let workload = Workload::deserialize(object).map_err(|e| e.to_string())?;
        let raw = object.pointer("/spec/podSets").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let annotations = workload.metadata.annotations.clone().unwrap_or_default();
        let gated_by =
            annotations.get(names::ADMISSION_GATED_BY_ANNOTATION).filter(|v| !v.is_empty()).cloned();
        let meta = Meta::of(&workload.metadata);
        let owner = OwnerRecord::of(&workload.metadata);
        let job_uid = workload.job_uid().map(Arc::from);
        let (variant, replaces) = (variant_of(&workload.metadata), replaced_by(&workload.metadata));
        let spec = workload.spec;
        let active = spec.is_active();
        let pod_sets = spec
            .pod_sets
            .into_iter()
            .zip(raw)
            .map(|(set, raw)| PodSetRecord {
                name: Arc::from(set.name),
                count: set.count,
                min_count: set.min_count,
                spec: templates.specs.intern(Arc::new(slim(set.template.spec.unwrap_or_default()))),
                shape: pod_set_shape(raw),
                topology: set.topology_request.map(Box::new),
            })
            .collect();
        Ok(Self {
            meta,
            owner,
            job_uid,
            gated: gated_by.is_some(),
            gated_by,
            queue_name: spec.queue_name.map(Arc::from),
            priority: spec.priority.unwrap_or(0),
            priority_class: spec.priority_class_ref,
            active,
            max_execution_seconds: spec.maximum_execution_time_seconds,
            pod_sets,
            originals: templates.share_infos(pod_set_infos(raw).map_err(|e| e.to_string())?),
            preemption_gates: spec.preemption_gates.into_iter().map(|gate| gate.name).collect(),
            variant,
            parameters: parameters_of(&annotations),
            replaces,
            status: Box::new(workload.status),
            effective: Effective::default(),
        })
    }

    /// A later version of the same Workload whose spec has not changed: only metadata and status are read again, and the
    /// status only if it is there or not known to have been written.
    ///
    /// # Errors
    /// Names what cannot be read.
    pub(super) fn newer(
        &self,
        object: &Value,
        written: Option<Box<WorkloadStatus>>,
    ) -> Result<Option<Self>, String> {
        let nothing = Value::Object(serde_json::Map::new());
        let part = |name: &str| object.get(name).unwrap_or(&nothing);
        let metadata = ObjectMeta::deserialize(part("metadata")).map_err(|e| e.to_string())?;
        let meta = Meta::of(&metadata);
        if meta.uid != self.meta.uid || meta.generation != self.meta.generation || meta.generation == 0 {
            return Ok(None);
        }
        let status = match written.filter(|_| object.get("status").is_none()) {
            Some(status) => status,
            None => Box::new(WorkloadStatus::deserialize(part("status")).map_err(|e| e.to_string())?),
        };
        let nothing = BTreeMap::new();
        let annotations = metadata.annotations.as_ref().unwrap_or(&nothing);
        let gated_by =
            annotations.get(names::ADMISSION_GATED_BY_ANNOTATION).filter(|v| !v.is_empty()).cloned();
        let labels = metadata.labels.as_ref().unwrap_or(&nothing);
        Ok(Some(Self {
            meta,
            owner: OwnerRecord::of(&metadata),
            job_uid: labels.get(names::JOB_UID_LABEL).map(|uid| Arc::from(uid.as_str())),
            gated: gated_by.is_some(),
            gated_by,
            variant: variant_of(&metadata),
            parameters: parameters_of(annotations),
            replaces: replaced_by(&metadata),
            status,
            queue_name: self.queue_name.clone(),
            priority: self.priority,
            priority_class: self.priority_class.clone(),
            active: self.active,
            max_execution_seconds: self.max_execution_seconds,
            pod_sets: self.pod_sets.clone(),
            originals: self.originals.clone(),
            preemption_gates: self.preemption_gates.clone(),
            effective: self.effective.clone(),
        }))
    }

    /// Whether a gate keeps it from preempting; one that nobody has opened is closed.
    pub(super) fn is_gated(&self) -> bool {
        let open = |gate: &String| {
            let states = &self.status.preemption_gates;
            states.iter().any(|state| state.name == *gate && state.position == GatePosition::Open)
        };
        !self.preemption_gates.iter().all(open)
    }

    /// Key of its LocalQueue.
    pub(super) fn local_queue(&self) -> Option<ObjectKey> {
        Some(ObjectKey { namespace: self.meta.key.namespace.clone(), name: self.queue_name.clone()? })
    }
}

/// Annotations that are handed on to ProvisioningRequests.
fn parameters_of(annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let ours = |name: &&String| name.starts_with(PARAMETER_PREFIX);
    annotations
        .iter()
        .filter(|(name, _)| ours(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// What the annotations say that the Workload is a variant of.
fn variant_of(meta: &ObjectMeta) -> Option<Arc<Variant>> {
    let flavors = meta.annotations.as_ref()?.get(names::ALLOWED_FLAVORS_ANNOTATION)?;
    let owner = OwnerRecord::of(meta).filter(|owner| owner.kind == "Workload")?;
    Some(Arc::new(Variant {
        parent: Arc::from(owner.name),
        flavors: flavors.split(',').map(str::trim).filter(|f| !f.is_empty()).map(Arc::from).collect(),
    }))
}

/// The slice that the annotations say it takes over from.
fn replaced_by(meta: &ObjectMeta) -> Option<Box<ObjectKey>> {
    let text = meta.annotations.as_ref()?.get(names::SLICE_REPLACEMENT_FOR_ANNOTATION)?;
    let (namespace, name) = text.split_once('/')?;
    Some(Box::new(ObjectKey::new(namespace, name)))
}

/// Parts of Workloads and jobs that follow from pod templates, each kept once however many objects share it.
#[derive(Debug, Default)]
pub(super) struct Templates {
    /// Pod specs without what no decision needs.
    specs: Shared<PodSpec>,
    /// What a start adds to and a stop restores.
    infos: Shared<TemplateInfo>,
    /// Requests as the scheduler sees them.
    pod_sets: Shared<[scheduler::PodSet]>,
    /// The same as the status shows them.
    shown: Shared<[PodSetRequest]>,
}

impl Templates {
    /// The same pod sets of a job, sharing their templates.
    pub(super) fn share_views(&mut self, sets: &mut [PodSetView]) {
        for set in sets {
            set.template = self.infos.intern(set.template.clone());
        }
    }

    fn share_infos(&mut self, mut infos: Vec<PodSetInfo>) -> Vec<PodSetInfo> {
        for info in &mut infos {
            info.template = self.infos.intern(info.template.clone());
        }
        infos
    }

    /// The same requests, shared.
    pub(super) fn share_requests(&mut self, mut effective: Effective) -> Effective {
        effective.pod_sets = effective.pod_sets.map(|sets| self.pod_sets.intern(sets));
        effective.shown = self.shown.intern(effective.shown);
        effective
    }
}

/// Keeps what requests, flavors and limits depend on.
fn slim(spec: PodSpec) -> PodSpec {
    let containers = |list: Vec<k8s_openapi::api::core::v1::Container>| {
        list.into_iter()
            .map(|c| k8s_openapi::api::core::v1::Container {
                name: c.name,
                resources: c.resources,
                restart_policy: c.restart_policy,
                ..Default::default()
            })
            .collect::<Vec<_>>()
    };
    PodSpec {
        containers: containers(spec.containers),
        init_containers: spec.init_containers.map(containers),
        node_selector: spec.node_selector,
        affinity: spec.affinity,
        tolerations: spec.tolerations,
        overhead: spec.overhead,
        resources: spec.resources,
        runtime_class_name: spec.runtime_class_name,
        priority_class_name: spec.priority_class_name,
        ..Default::default()
    }
}

/// A ClusterQueue.
#[derive(Clone, Debug)]
pub(super) struct ClusterQueueRecord {
    pub(super) meta: Meta,
    pub(super) object: ClusterQueue,
}

/// A LocalQueue.
#[derive(Clone, Debug)]
pub(super) struct LocalQueueRecord {
    pub(super) meta: Meta,
    pub(super) object: LocalQueue,
}

/// A Cohort.
#[derive(Clone, Debug)]
pub(super) struct CohortRecord {
    pub(super) meta: Meta,
    pub(super) object: Cohort,
}

/// A ResourceFlavor.
#[derive(Clone, Debug)]
pub(super) struct FlavorRecord {
    pub(super) meta: Meta,
    pub(super) object: ResourceFlavor,
}

/// An AdmissionCheck.
#[derive(Clone, Debug)]
pub(super) struct CheckRecord {
    pub(super) meta: Meta,
    pub(super) object: AdmissionCheck,
}
