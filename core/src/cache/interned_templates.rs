//! Interned parts of Workloads and jobs: values derived from pod templates, statuses, and strings that occur in many
//! objects.

use crate::api::OwnerRecord;
use crate::api::decoding::DecodeError;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::{PodSet, PodSetRequest, PriorityClassRef, WorkloadStatus};
use crate::cache::interner::{Digest, StringInterner, WeakInterner};
use crate::cache::records::{EffectiveRequests, PodSetRecord, PodSets};
use crate::cache::workload_object::RawFieldRef;
use crate::frameworks::{PodSetInfo, PodSetView, TemplateInfo, pod_set_fingerprint, pod_set_infos};
use crate::lifecycle::carried;
use crate::scheduler;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Labels of an object.
pub(crate) type Labels = BTreeMap<String, String>;

/// Interned parts of Workloads and jobs.
#[derive(Debug, Default)]
pub struct InternedTemplates {
    /// Pod sets of Workloads, by the digest of `spec.podSets`.
    pods: WeakInterner<PodSets>,
    /// Statuses of Workloads, by the digest of `status`.
    statuses: WeakInterner<WorkloadStatus>,
    /// Reduced statuses of finished Workloads.
    finished_statuses: WeakInterner<WorkloadStatus>,
    /// Pod specs reduced to the fields that decisions need.
    specs: WeakInterner<PodSpec>,
    /// Pod template fields that a start changes and a stop restores.
    infos: WeakInterner<TemplateInfo>,
    /// Effective requests, by namespace and digest of `spec.podSets`.
    requests: WeakInterner<EffectiveRequests, (Arc<str>, Digest)>,
    /// Requests that the scheduler charges.
    pod_sets: WeakInterner<[scheduler::PodSet]>,
    /// Requests as `status.resourceRequests` shows them.
    status_requests: WeakInterner<[PodSetRequest]>,
    classes: WeakInterner<PriorityClassRef>,
    labels: WeakInterner<Labels>,
    names: StringInterner,
    /// Finalizers of the Workload decoded last: the next one usually has the same.
    finalizers: Arc<[String]>,
}

impl InternedTemplates {
    pub(crate) fn intern_name(&mut self, text: &str) -> Arc<str> {
        self.names.intern(text)
    }

    pub(crate) fn intern_priority_class(&mut self, class: PriorityClassRef) -> Arc<PriorityClassRef> {
        self.classes.intern(Arc::new(class))
    }

    /// Returns `known` if it equals the labels, otherwise interned labels.
    pub(crate) fn intern_labels(&mut self, labels: Labels, known: &Arc<Labels>) -> Arc<Labels> {
        if **known == labels { Arc::clone(known) } else { self.labels.intern(Arc::new(labels)) }
    }

    pub(crate) fn intern_finalizers(&mut self, finalizers: Arc<[String]>) -> Arc<[String]> {
        if self.finalizers != finalizers {
            self.finalizers = finalizers;
        }
        Arc::clone(&self.finalizers)
    }

    /// Returns `known` if it equals `owner`, otherwise `owner` with interned strings.
    pub(crate) fn intern_owner(
        &mut self,
        owner: OwnerRecord,
        known: Option<Arc<OwnerRecord>>,
    ) -> Arc<OwnerRecord> {
        known.filter(|known| **known == owner).unwrap_or_else(|| {
            let (api_version, kind) = (self.intern_name(&owner.api_version), self.intern_name(&owner.kind));
            Arc::new(OwnerRecord { api_version, kind, ..owner })
        })
    }

    /// Returns the status of a Workload. Decodes it only if its digest is unknown.
    ///
    /// # Errors
    /// If the status cannot be decoded.
    pub(crate) fn intern_status(
        &mut self,
        part: Option<RawFieldRef<'_>>,
    ) -> Result<Arc<WorkloadStatus>, DecodeError> {
        let digest = part.map(RawFieldRef::digest).unwrap_or_default();
        if let Some(known) = self.statuses.find(&digest) {
            return Ok(known);
        }
        let mut status: WorkloadStatus = part.map(RawFieldRef::decode).transpose()?.unwrap_or_default();
        status.resource_requests = self.status_requests.intern(status.resource_requests);
        let status = Arc::new(status);
        self.statuses.insert(digest, &status);
        Ok(status)
    }

    /// Returns the status of a finished Workload reduced to the condition `Finished` and what a next Workload of its job takes over,
    /// to save memory. Nothing else of it is needed, because the status of a finished Workload is never written again.
    pub(crate) fn intern_finished_status(
        &mut self,
        status: Arc<WorkloadStatus>,
        execution_limit: Option<i32>,
    ) -> Arc<WorkloadStatus> {
        let mut reduced = Arc::unwrap_or_clone(status);
        carried::count_last_admission(&mut reduced, execution_limit);
        reduced.conditions.retain(|condition| condition.type_ == ConditionType::Finished.as_str());
        reduced.conditions.shrink_to_fit();
        reduced.admission = None;
        reduced.resource_requests = Arc::default();
        self.finished_statuses.intern(Arc::new(reduced))
    }

    /// Returns the pod sets of a Workload. Decodes them only if their digest is unknown.
    ///
    /// # Errors
    /// If the pod sets cannot be decoded.
    pub(crate) fn intern_pods(&mut self, part: Option<RawFieldRef<'_>>) -> Result<Arc<PodSets>, DecodeError> {
        let Some(part) = part else { return Ok(Arc::default()) };
        let digest = part.digest();
        if let Some(known) = self.pods.find(&digest) {
            return Ok(known);
        }
        let decoded: Vec<PodSet> = part.decode()?;
        let raw = part.to_value()?;
        let raw = raw.as_array().map_or(&[][..], Vec::as_slice);
        let sets = decoded.into_iter().zip(raw).map(|(set, raw)| self.intern_pod_set(set, raw)).collect();
        let originals = self.intern_pod_set_infos(pod_set_infos(raw)?);
        let pods = Arc::new(PodSets { digest, sets, originals: originals.into_boxed_slice() });
        self.pods.insert(digest, &pods);
        Ok(pods)
    }

    fn intern_pod_set(&mut self, set: PodSet, raw: &Value) -> PodSetRecord {
        PodSetRecord {
            name: Arc::from(set.name),
            count: set.count,
            min_count: set.min_count,
            spec: self.specs.intern(Arc::new(strip_pod_spec(set.template.spec.unwrap_or_default()))),
            template_fingerprint: pod_set_fingerprint(raw),
            topology: set.topology_request.map(Box::new),
        }
    }

    /// Replaces the templates of a job's pod sets by interned ones.
    pub(crate) fn intern_pod_set_views(&mut self, sets: &mut [PodSetView]) {
        for set in sets {
            set.template = self.infos.intern(set.template.clone());
            set.pointer = self.intern_name(&set.pointer);
        }
    }

    fn intern_pod_set_infos(&mut self, mut infos: Vec<PodSetInfo>) -> Vec<PodSetInfo> {
        for info in &mut infos {
            info.template = self.infos.intern(info.template.clone());
        }
        infos
    }

    /// Returns the effective requests computed before for these pod sets in a namespace.
    pub(crate) fn find_requests(
        &self,
        namespace: &Arc<str>,
        pods: &PodSets,
    ) -> Option<Arc<EffectiveRequests>> {
        self.requests.find(&(Arc::clone(namespace), pods.digest))
    }

    /// Stores the effective requests of these pod sets in a namespace. Returns the interned value.
    pub(crate) fn insert_requests(
        &mut self,
        namespace: &Arc<str>,
        pods: &PodSets,
        mut effective: EffectiveRequests,
    ) -> Arc<EffectiveRequests> {
        effective.pod_sets = effective.pod_sets.map(|sets| self.pod_sets.intern(sets));
        effective.status_requests = self.status_requests.intern(effective.status_requests);
        let effective = Arc::new(effective);
        self.requests.insert((Arc::clone(namespace), pods.digest), &effective);
        effective
    }

    /// Removes all effective requests: an input other than the pod sets has changed.
    pub(crate) fn clear_requests(&mut self) {
        self.requests.clear();
    }
}

/// Keeps the fields that requests, flavor assignment and limits depend on.
fn strip_pod_spec(spec: PodSpec) -> PodSpec {
    let containers = |list: Vec<Container>| {
        list.into_iter()
            .map(|c| Container {
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
        resource_claims: spec.resource_claims,
        runtime_class_name: spec.runtime_class_name,
        priority_class_name: spec.priority_class_name,
        ..Default::default()
    }
}
