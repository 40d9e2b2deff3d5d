//! What follows from pod templates and from words that come again and again: kept once, however many objects share it.

use crate::api::reason::ConditionType;
use crate::api::v1beta2::{PodSet, PodSetRequest, PriorityClassRef, WorkloadStatus};
use crate::cache::interner::{Digest, StringInterner, WeakInterner};
use crate::cache::records::{EffectiveRequests, OwnerRecord, PodSetRecord, PodSets};
use crate::cache::workload_object::RawFieldRef;
use crate::frameworks::{PodSetInfo, PodSetView, TemplateInfo, pod_set_fingerprint, pod_set_infos};
use crate::scheduler;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde_json::Value;
use std::sync::Arc;

/// Parts of Workloads and jobs, each kept once.
#[derive(Debug, Default)]
pub(crate) struct InternedTemplates {
    /// Pods of Workloads, by what the objects say of them.
    pods: WeakInterner<PodSets>,
    /// Statuses of Workloads, by what the objects say.
    statuses: WeakInterner<WorkloadStatus>,
    /// What is kept of them when the Workload has finished.
    finished_statuses: WeakInterner<WorkloadStatus>,
    /// Pod specs without what no decision needs.
    specs: WeakInterner<PodSpec>,
    /// What a start adds to and a stop restores.
    infos: WeakInterner<TemplateInfo>,
    /// Requests of pods in a namespace.
    requests: WeakInterner<EffectiveRequests, (Arc<str>, Digest)>,
    /// Requests as the scheduler sees them.
    pod_sets: WeakInterner<[scheduler::PodSet]>,
    /// The same as the status shows them.
    status_requests: WeakInterner<[PodSetRequest]>,
    classes: WeakInterner<PriorityClassRef>,
    names: StringInterner,
    /// The finalizers that were read last: mostly those of the next as well.
    finalizers: Arc<[String]>,
}

impl InternedTemplates {
    /// A name that many objects give.
    pub(crate) fn intern_name(&mut self, text: &str) -> Arc<str> {
        self.names.intern(text)
    }

    pub(crate) fn intern_priority_class(&mut self, class: PriorityClassRef) -> Arc<PriorityClassRef> {
        self.classes.intern(Arc::new(class))
    }

    pub(crate) fn intern_finalizers(&mut self, finalizers: Arc<[String]>) -> Arc<[String]> {
        if self.finalizers != finalizers {
            self.finalizers = finalizers;
        }
        Arc::clone(&self.finalizers)
    }

    /// An owner, or the one that was known if it is the same.
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

    /// The status of a Workload.
    ///
    /// # Errors
    /// Names what cannot be read.
    pub(crate) fn intern_status(
        &mut self,
        part: Option<RawFieldRef<'_>>,
    ) -> Result<Arc<WorkloadStatus>, String> {
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

    /// The status of a Workload that has finished, without what takes room: of its conditions that one is kept, and nothing of
    /// what it was granted. No status is written to it any more.
    pub(crate) fn intern_finished_status(&mut self, status: Arc<WorkloadStatus>) -> Arc<WorkloadStatus> {
        let mut slim = Arc::unwrap_or_clone(status);
        slim.conditions.retain(|condition| condition.type_ == ConditionType::Finished.as_str());
        slim.conditions.shrink_to_fit();
        slim.admission = None;
        slim.resource_requests = Arc::default();
        self.finished_statuses.intern(Arc::new(slim))
    }

    /// The pods of a Workload.
    ///
    /// # Errors
    /// Names what cannot be read.
    pub(crate) fn intern_pods(&mut self, part: Option<RawFieldRef<'_>>) -> Result<Arc<PodSets>, String> {
        let Some(part) = part else { return Ok(Arc::default()) };
        let digest = part.digest();
        if let Some(known) = self.pods.find(&digest) {
            return Ok(known);
        }
        let read: Vec<PodSet> = part.decode()?;
        let raw = part.to_value()?;
        let raw = raw.as_array().map_or(&[][..], Vec::as_slice);
        let sets = read.into_iter().zip(raw).map(|(set, raw)| self.intern_pod_set(set, raw)).collect();
        let originals = self.intern_pod_set_infos(pod_set_infos(raw).map_err(|e| e.to_string())?);
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

    /// The same pod sets of a job, sharing their templates.
    pub(crate) fn intern_pod_set_views(&mut self, sets: &mut [PodSetView]) {
        for set in sets {
            set.template = self.infos.intern(set.template.clone());
        }
    }

    fn intern_pod_set_infos(&mut self, mut infos: Vec<PodSetInfo>) -> Vec<PodSetInfo> {
        for info in &mut infos {
            info.template = self.infos.intern(info.template.clone());
        }
        infos
    }

    /// What was found before for these pods in a namespace.
    pub(crate) fn find_requests(
        &self,
        namespace: &Arc<str>,
        pods: &PodSets,
    ) -> Option<Arc<EffectiveRequests>> {
        self.requests.find(&(Arc::clone(namespace), pods.digest))
    }

    /// Keeps what was found for these pods in a namespace.
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

    /// Something that requests follow from, beside the pods, has changed.
    pub(crate) fn clear_requests(&mut self) {
        self.requests.clear();
    }
}

/// Keeps what requests, flavors and limits depend on.
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
