//! Records: of each object, the fields that decisions and writes need.

use crate::api::decoding::DecodeError;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::{
    AdmissionCheck, ClusterQueue, Cohort, GatePosition, LocalQueue, PodSetRequest, PodSetTopologyRequest,
    PreemptionGate, PriorityClassRef, ResourceFlavor, WorkloadStatus,
};
use crate::api::{ObjectKey, OwnerRecord, names};
use crate::cache::interned_templates::{InternedTemplates, Labels};
use crate::cache::interner::Digest;
use crate::cache::workload_annotations::WorkloadAnnotations;
use crate::cache::workload_object::{RawFieldRef, WorkloadObject};
use crate::frameworks::{PodSetInfo, TemplateFingerprint};
use crate::lifecycle::carried::{self, Carried};
use crate::lifecycle::{backoff, conditions, reservation};
use crate::resources::{Requests, first_excess, format_quantity};
use crate::scheduler::{self, RequeueOrder};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Metadata of an object that every write needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.uid`; another object of the same name has another one.
    pub uid: Arc<str>,
    pub(crate) resource_version: String,
    pub(crate) generation: i64,
    /// `metadata.creationTimestamp`, on the API server's clock.
    pub created: Timestamp,
    /// When its deletion was asked for.
    pub(crate) deletion: Option<Timestamp>,
    /// All finalizers of the object: a patch that adds or removes ours must repeat the others.
    pub(crate) finalizers: Arc<[String]>,
}

impl Meta {
    pub(crate) fn from_object_meta(meta: &ObjectMeta) -> Self {
        Self {
            key: ObjectKey::new(
                meta.namespace.as_deref().unwrap_or_default(),
                meta.name.as_deref().unwrap_or_default(),
            ),
            uid: Arc::from(meta.uid.as_deref().unwrap_or_default()),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            generation: meta.generation.unwrap_or_default(),
            created: meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0),
            deletion: meta.deletion_timestamp.as_ref().map(|time| time.0),
            finalizers: Arc::from(meta.finalizers.as_deref().unwrap_or_default()),
        }
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.deletion.is_some()
    }

    pub(crate) fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|f| f == names::RESOURCE_IN_USE_FINALIZER)
    }
}

/// A pod set of a Workload: the fields of its pod template that decisions need, and a fingerprint of the template.
#[derive(Clone, Debug)]
pub(crate) struct PodSetRecord {
    pub(crate) name: Arc<str>,
    pub(crate) count: i32,
    pub(crate) min_count: Option<i32>,
    pub(crate) spec: Arc<PodSpec>,
    pub(crate) template_fingerprint: TemplateFingerprint,
    pub(crate) topology: Option<Box<PodSetTopologyRequest>>,
}

/// The pod sets of a Workload. Workloads with equal `spec.podSets` share one value.
#[derive(Debug, Default)]
pub(crate) struct PodSets {
    /// Digest of `spec.podSets`.
    pub(crate) digest: Digest,
    pub(crate) sets: Box<[PodSetRecord]>,
    /// Pod template fields as they were before a start changed them; a stop restores these.
    pub(crate) originals: Box<[PodSetInfo]>,
}

/// What the cache keeps of a Workload.
#[derive(Clone, Debug)]
pub struct WorkloadRecord {
    /// Name, UID, version and times.
    pub meta: Meta,
    /// The job: the controlling owner, or the first member of a pod group.
    pub owner: Option<Arc<OwnerRecord>>,
    /// The owners besides `owner`: members of a pod group, as a rule.
    pub(crate) other_owners: Arc<[Arc<OwnerRecord>]>,
    pub(crate) job_uid: Option<Arc<str>>,
    /// The labels but that with the UID of the job, which Workloads of one kind of job would not share.
    pub labels: Arc<Labels>,
    /// Name of the LocalQueue in the namespace of the Workload.
    pub queue_name: Option<Arc<str>>,
    /// As the spec has it, without the boost.
    pub(crate) priority: i32,
    /// The class that gave the priority.
    pub priority_class: Option<Arc<PriorityClassRef>>,
    /// `spec.active`: false while the Workload is deactivated.
    pub active: bool,
    /// `spec.maximumExecutionTimeSeconds`: how long the Workload may be admitted.
    pub max_execution_seconds: Option<i32>,
    pub(crate) pods: Arc<PodSets>,
    /// Names of the preemption gates: the Workload must not preempt until all are open.
    pub(crate) preemption_gates: Box<[String]>,
    /// The annotations that decide something.
    pub annotations: WorkloadAnnotations,
    /// Conditions, admission and checks.
    pub status: Arc<WorkloadStatus>,
    /// Requests after LimitRanges, RuntimeClass overhead and resource transformations, and why they are invalid.
    pub effective_requests: Arc<EffectiveRequests>,
}

/// How far a victim is queued behind its preemptor: the times of both may be the same second.
const BEHIND_PREEMPTOR: SignedDuration = SignedDuration::from_millis(1);

/// Requests that the scheduler charges.
#[derive(Clone, Debug, Default)]
pub struct EffectiveRequests {
    /// What is charged for each pod set; `None` if the requests are invalid.
    pub pod_sets: Option<Arc<[scheduler::PodSet]>>,
    /// Totals of the requests, for `status.resourceRequests`.
    pub(crate) status_requests: Arc<[PodSetRequest]>,
    pub(crate) misconfiguration: Option<String>,
}

/// The spec of a Workload without its pod sets, which are decoded separately.
#[derive(Default, Deserialize)]
#[serde(rename = "WorkloadSpec", rename_all = "camelCase", default)]
struct SpecWithoutPodSets {
    queue_name: Option<String>,
    priority_class_ref: Option<PriorityClassRef>,
    priority: Option<i32>,
    active: Option<bool>,
    maximum_execution_time_seconds: Option<i32>,
    preemption_gates: Vec<PreemptionGate>,
}

/// Keys by which a Workload is found.
#[derive(PartialEq, Eq)]
pub(crate) struct IndexKeys<'a> {
    /// UID of its owner.
    pub(crate) owner: Option<&'a Arc<str>>,
    /// Its LocalQueue, unless it has finished.
    pub(crate) local_queue: Option<ObjectKey>,
    /// The slice that it replaces.
    pub(crate) replaces: Option<&'a ObjectKey>,
    /// The first slice that it names, unless it has finished.
    pub(crate) chain: Option<ObjectKey>,
}

impl WorkloadRecord {
    /// Decodes a Workload and interns the parts that are equal in many Workloads.
    ///
    /// # Errors
    /// If the spec or the status cannot be decoded.
    pub fn decode(object: &WorkloadObject, templates: &mut InternedTemplates) -> Result<Self, DecodeError> {
        let spec: SpecWithoutPodSets =
            object.spec().map(RawFieldRef::decode).transpose()?.unwrap_or_default();
        let pods = templates.intern_pods(object.spec().map(RawFieldRef::pod_sets).transpose()?.flatten())?;
        let record = Self {
            meta: Meta::from_object_meta(&object.metadata),
            owner: None,
            other_owners: Arc::default(),
            job_uid: None,
            labels: Arc::default(),
            queue_name: spec.queue_name.map(|name| templates.intern_name(&name)),
            priority: spec.priority.unwrap_or(0),
            priority_class: spec.priority_class_ref.map(|class| templates.intern_priority_class(class)),
            active: spec.active.unwrap_or(true),
            max_execution_seconds: spec.maximum_execution_time_seconds,
            pods,
            preemption_gates: spec.preemption_gates.into_iter().map(|gate| gate.name).collect(),
            annotations: WorkloadAnnotations::default(),
            status: templates.intern_status(object.status())?,
            effective_requests: Arc::default(),
        };
        Ok(record.with_annotations(&object.metadata, templates))
    }

    /// Decodes a later version of the same Workload with the same spec: only metadata and status are decoded. If the
    /// object has no status, `written` is used, the status that a write of ours set.
    ///
    /// Returns `None` if the whole object must be decoded: the UID or the generation differs, the generation is
    /// unknown, or the condition `Finished` was removed: the pod sets were dropped when the Workload finished.
    ///
    /// # Errors
    /// If the status cannot be decoded.
    pub(crate) fn decode_newer(
        &self,
        object: &WorkloadObject,
        written: Option<Arc<WorkloadStatus>>,
        templates: &mut InternedTemplates,
    ) -> Result<Option<Self>, DecodeError> {
        let meta = Meta::from_object_meta(&object.metadata);
        if meta.uid != self.meta.uid || meta.generation != self.meta.generation || meta.generation == 0 {
            return Ok(None);
        }
        let status = match written.filter(|_| object.status().is_none()) {
            Some(status) => status,
            None => templates.intern_status(object.status())?,
        };
        let finished = |status: &WorkloadStatus| conditions::is_true(status, ConditionType::Finished);
        if finished(&self.status) && !finished(&status) {
            return Ok(None);
        }
        let meta = Meta { uid: Arc::clone(&self.meta.uid), ..meta };
        Ok(Some(Self { meta, status, ..self.clone() }.with_annotations(&object.metadata, templates)))
    }

    /// Sets the fields that are decoded from owner references, labels and annotations.
    fn with_annotations(mut self, metadata: &ObjectMeta, templates: &mut InternedTemplates) -> Self {
        let empty = BTreeMap::new();
        let annotations = metadata.annotations.as_ref().unwrap_or(&empty);
        let labels = metadata.labels.as_ref().unwrap_or(&empty);
        self.meta.finalizers = templates.intern_finalizers(self.meta.finalizers);
        self.owner = OwnerRecord::from_object_meta(metadata)
            .map(|owner| templates.intern_owner(owner, self.owner.take()));
        self.other_owners = self.other_owners_of(metadata, templates);
        self.job_uid = labels.get(names::JOB_UID_LABEL).map(|uid| {
            let owner = self.owner.as_ref().filter(|owner| *owner.uid == **uid);
            owner.map_or_else(|| Arc::from(uid.as_str()), |owner| Arc::clone(&owner.uid))
        });
        let others = labels.iter().filter(|(key, _)| *key != names::JOB_UID_LABEL);
        let others = others.map(|(key, value)| (key.clone(), value.clone())).collect();
        self.labels = templates.intern_labels(others, &self.labels);
        let carried = annotations.get(names::CARRIED_ANNOTATION);
        let carried: Option<Carried> = carried.and_then(|text| serde_json::from_str(text).ok());
        if let Some(carried) = carried.as_ref().filter(|_| carried::is_fresh(&self.status)) {
            carried.apply(Arc::make_mut(&mut self.status));
        }
        let carried_from = carried.map(|carried| carried.from.into());
        self.annotations = WorkloadAnnotations { carried_from, ..WorkloadAnnotations::of(metadata) };
        self
    }

    /// Returns whether it was made for objects that existed then: the label with the UID of a job says so, or that the Workload of a
    /// group, which gets quota when its pods exist, holds some, and has the finalizer with which such Workloads are made.
    pub(crate) fn is_made_for_objects(&self) -> bool {
        let of_pods = || {
            self.annotations.is_pod_group
                && self.meta.has_finalizer()
                && reservation::holds_quota(&self.status)
        };
        self.job_uid.is_some() || of_pods()
    }

    /// Returns its labels, all of them.
    pub fn all_labels(&self) -> Labels {
        let uid = self.job_uid.iter().map(|uid| (names::JOB_UID_LABEL.to_owned(), uid.to_string()));
        self.labels.iter().map(|(key, value)| (key.clone(), value.clone())).chain(uid).collect()
    }

    /// Returns the priority by which it is ordered, preempts and is preempted.
    pub fn effective_priority(&self) -> i64 {
        i64::from(self.priority).saturating_add(i64::from(self.annotations.priority_boost))
    }

    /// Returns the time by which it is ordered in its queue: that of an eviction by an admission check, by a PodsReady timeout,
    /// or for a preemptor that borrowed, as the order says, else its creation.
    pub fn queued_since(&self, order: RequeueOrder) -> Timestamp {
        let evicted = conditions::true_since(&self.status, ConditionType::Evicted);
        let preempted = conditions::true_since(&self.status, ConditionType::Preempted);
        let reason = |kind| conditions::reason(&self.status, kind);
        match (evicted, reason(ConditionType::Evicted), preempted, reason(ConditionType::Preempted)) {
            (Some(at), "PodsReadyTimeout", ..) if !order.by_creation => at,
            (Some(at), "AdmissionCheck", ..) => at,
            (.., Some(at), "InCohortReclaimWhileBorrowing") if order.behind_borrowing_preemptor => {
                backoff::after(at, BEHIND_PREEMPTOR)
            }
            _ => self.meta.created,
        }
    }

    /// Returns the pod sets; empty if the Workload has finished.
    pub(crate) fn pod_sets(&self) -> &[PodSetRecord] {
        &self.pods.sets
    }

    /// Returns the pod template fields as they were before a start, which a stop restores.
    pub(crate) fn originals(&self) -> &[PodSetInfo] {
        &self.pods.originals
    }

    /// Returns whether a gate prevents preemption. A gate that the status does not list is closed.
    pub(crate) fn is_preemption_gated(&self) -> bool {
        let open = |gate: &String| {
            let states = &self.status.preemption_gates;
            states.iter().any(|state| state.name == *gate && state.position == GatePosition::Open)
        };
        !self.preemption_gates.iter().all(open)
    }

    /// Returns in what a pod that was changed while it waited asks for more than its pod set is charged, for messages. Nothing
    /// is known of a pod set without valid requests.
    pub(crate) fn excess_of_pod(&self, pod_set: &str, requests: &Requests) -> Option<String> {
        let sets = self.effective_requests.pod_sets.as_deref()?;
        let asked = &sets.iter().find(|set| *set.name == *pod_set)?.pod_requirements.requests;
        let (resource, has, set) = first_excess(requests, asked)?;
        let text = |amount| format_quantity(resource, amount);
        Some(format!(
            "The pod requests {} of {resource}, and pod set {pod_set} of Workload {} {}: it waits; to go on, delete it, so \
             that it is made again",
            text(has),
            self.meta.key,
            text(set)
        ))
    }

    /// Returns the UIDs of all owners.
    pub(crate) fn owner_uids(&self) -> impl Iterator<Item = &Arc<str>> {
        self.owner.iter().chain(&*self.other_owners).map(|owner| &owner.uid)
    }

    /// Returns the owners besides the first; the known ones as long as they are the same.
    fn other_owners_of(
        &self,
        meta: &ObjectMeta,
        templates: &mut InternedTemplates,
    ) -> Arc<[Arc<OwnerRecord>]> {
        let owners = || {
            let others = meta.owner_references.as_deref().unwrap_or_default().iter();
            others.filter(|other| self.owner.as_deref().is_none_or(|owner| *owner.uid != *other.uid))
        };
        let same = |(other, known): (&OwnerReference, &Arc<OwnerRecord>)| known.is_named_by(other);
        if owners().count() == self.other_owners.len() && owners().zip(&*self.other_owners).all(same) {
            return Arc::clone(&self.other_owners);
        }
        owners().map(|other| templates.intern_owner(OwnerRecord::from_reference(other), None)).collect()
    }

    /// Returns the key by which the pods of the Workload name it: that of the first of the slices that take over from one another,
    /// or its own.
    pub(crate) fn chain_key(&self) -> ObjectKey {
        let Some(name) = &self.annotations.chain else { return self.meta.key.clone() };
        ObjectKey { namespace: self.meta.key.namespace.clone(), name: Arc::clone(name) }
    }

    /// Returns whether the Workload holds quota that it does not have to release.
    pub(crate) fn keeps_quota(&self) -> bool {
        reservation::holds_quota(&self.status)
            && !conditions::is_true(&self.status, ConditionType::Evicted)
            && !self.meta.is_deleting()
    }

    /// Returns what it has counted about its job, if the next Workload of that depends on it.
    pub(crate) fn carried(&self, now: Timestamp) -> Option<Carried> {
        Carried::of(&self.meta.uid, &self.status, self.max_execution_seconds, now)
    }

    /// Returns whether it was made to take over from the Workload with this UID.
    pub(crate) fn carries_from(&self, uid: &str) -> bool {
        self.annotations.carried_from.as_deref() == Some(uid)
    }

    /// Returns the index keys of the Workload.
    pub(crate) fn index_keys(&self) -> IndexKeys<'_> {
        let unfinished = !conditions::is_true(&self.status, ConditionType::Finished);
        IndexKeys {
            owner: self.owner.as_ref().map(|owner| &owner.uid),
            local_queue: self.local_queue().filter(|_| unfinished),
            replaces: self.annotations.replaces.as_deref(),
            chain: self.annotations.chain.as_ref().filter(|_| unfinished).map(|_| self.chain_key()),
        }
    }

    /// Returns whether the job of the Workload may run now.
    pub(crate) fn may_run(&self) -> bool {
        let is_true = |kind| conditions::is_true(&self.status, kind);
        is_true(ConditionType::Admitted)
            && !is_true(ConditionType::Evicted)
            && !is_true(ConditionType::Finished)
            && !self.meta.is_deleting()
    }

    /// Returns whether the pods of the Workload may exist, held by their gates.
    pub(crate) fn may_wait_gated(&self) -> bool {
        let is_true = |kind| conditions::is_true(&self.status, kind);
        !is_true(ConditionType::Evicted) && !is_true(ConditionType::Finished) && !self.meta.is_deleting()
    }

    /// Returns the key of the LocalQueue that the Workload names.
    pub fn local_queue(&self) -> Option<ObjectKey> {
        Some(ObjectKey { namespace: self.meta.key.namespace.clone(), name: self.queue_name.clone()? })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ClusterQueueRecord {
    pub(crate) meta: Meta,
    pub(crate) object: ClusterQueue,
}

#[derive(Clone, Debug)]
pub(crate) struct LocalQueueRecord {
    pub(crate) meta: Meta,
    pub(crate) object: LocalQueue,
}

#[derive(Clone, Debug)]
pub(crate) struct CohortRecord {
    pub(crate) meta: Meta,
    pub(crate) object: Cohort,
}

#[derive(Clone, Debug)]
pub(crate) struct FlavorRecord {
    pub(crate) meta: Meta,
    pub(crate) object: ResourceFlavor,
}

/// A Topology: of its spec, only the levels.
#[derive(Clone, Debug)]
pub(crate) struct TopologyRecord {
    pub(crate) meta: Meta,
    /// Node label of each level, from the root to the leaves.
    pub(crate) levels: Arc<[Arc<str>]>,
}

/// A MultiKueueCluster: of its status, only the conditions.
#[derive(Clone, Debug)]
pub(crate) struct MultiKueueClusterRecord {
    pub(crate) meta: Meta,
    pub(crate) conditions: Vec<Condition>,
}

#[derive(Clone, Debug)]
pub(crate) struct CheckRecord {
    pub(crate) meta: Meta,
    pub(crate) object: AdmissionCheck,
}
