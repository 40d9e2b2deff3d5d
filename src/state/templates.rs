//! What follows from pod templates and from words that come again and again: kept once, however many objects share it.

use super::records::{Effective, OwnerRecord, PodSetRecord, PodSets};
use super::shared::{Digest, Shared, Words};
use super::workload_object::Part;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::{PodSet, PodSetRequest, PriorityClassRef, WorkloadStatus};
use crate::jobs::{PodSetInfo, PodSetView, TemplateInfo, pod_set_infos, pod_set_shape};
use crate::scheduler;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde_json::Value;
use std::sync::Arc;

/// Parts of Workloads and jobs, each kept once.
#[derive(Debug, Default)]
pub(super) struct Templates {
    /// Pods of Workloads, by what the objects say of them.
    pods: Shared<PodSets>,
    /// Statuses of Workloads, by what the objects say.
    statuses: Shared<WorkloadStatus>,
    /// What is kept of them when the Workload has finished.
    ended: Shared<WorkloadStatus>,
    /// Pod specs without what no decision needs.
    specs: Shared<PodSpec>,
    /// What a start adds to and a stop restores.
    infos: Shared<TemplateInfo>,
    /// Requests of pods in a namespace.
    requests: Shared<Effective, (Arc<str>, Digest)>,
    /// Requests as the scheduler sees them.
    pod_sets: Shared<[scheduler::PodSet]>,
    /// The same as the status shows them.
    shown: Shared<[PodSetRequest]>,
    classes: Shared<PriorityClassRef>,
    words: Words,
    /// The finalizers that were read last: mostly those of the next as well.
    finalizers: Arc<[String]>,
}

impl Templates {
    /// A name that many objects give.
    pub(super) fn word(&mut self, text: &str) -> Arc<str> {
        self.words.find(text)
    }

    pub(super) fn class(&mut self, class: PriorityClassRef) -> Arc<PriorityClassRef> {
        self.classes.intern(Arc::new(class))
    }

    pub(super) fn finalizers(&mut self, finalizers: Arc<[String]>) -> Arc<[String]> {
        if self.finalizers != finalizers {
            self.finalizers = finalizers;
        }
        Arc::clone(&self.finalizers)
    }

    /// An owner, or the one that was known if it is the same.
    pub(super) fn owner(&mut self, owner: OwnerRecord, known: Option<Arc<OwnerRecord>>) -> Arc<OwnerRecord> {
        known.filter(|known| **known == owner).unwrap_or_else(|| {
            let (api_version, kind) = (self.word(&owner.api_version), self.word(&owner.kind));
            Arc::new(OwnerRecord { api_version, kind, ..owner })
        })
    }

    /// The status of a Workload.
    ///
    /// # Errors
    /// Names what cannot be read.
    pub(super) fn status(&mut self, part: Option<Part<'_>>) -> Result<Arc<WorkloadStatus>, String> {
        let digest = part.map(Part::digest).unwrap_or_default();
        if let Some(known) = self.statuses.find(&digest) {
            return Ok(known);
        }
        let mut status: WorkloadStatus = part.map(Part::read).transpose()?.unwrap_or_default();
        status.resource_requests = self.shown.intern(status.resource_requests);
        let status = Arc::new(status);
        self.statuses.keep(digest, &status);
        Ok(status)
    }

    /// The status of a Workload that has finished, without what takes room: of its conditions that one is kept, and nothing of
    /// what it was granted. No status is written to it any more.
    pub(super) fn ended(&mut self, status: Arc<WorkloadStatus>) -> Arc<WorkloadStatus> {
        let mut slim = Arc::unwrap_or_clone(status);
        slim.conditions.retain(|condition| condition.type_ == ConditionType::Finished.as_str());
        slim.conditions.shrink_to_fit();
        slim.admission = None;
        slim.resource_requests = Arc::default();
        self.ended.intern(Arc::new(slim))
    }

    /// The pods of a Workload.
    ///
    /// # Errors
    /// Names what cannot be read.
    pub(super) fn pods(&mut self, part: Option<Part<'_>>) -> Result<Arc<PodSets>, String> {
        let Some(part) = part else { return Ok(Arc::default()) };
        let digest = part.digest();
        if let Some(known) = self.pods.find(&digest) {
            return Ok(known);
        }
        let read: Vec<PodSet> = part.read()?;
        let raw = part.value()?;
        let raw = raw.as_array().map_or(&[][..], Vec::as_slice);
        let sets = read.into_iter().zip(raw).map(|(set, raw)| self.pod_set(set, raw)).collect();
        let originals = self.share_infos(pod_set_infos(raw).map_err(|e| e.to_string())?);
        let pods = Arc::new(PodSets { digest, sets, originals: originals.into_boxed_slice() });
        self.pods.keep(digest, &pods);
        Ok(pods)
    }

    fn pod_set(&mut self, set: PodSet, raw: &Value) -> PodSetRecord {
        PodSetRecord {
            name: Arc::from(set.name),
            count: set.count,
            min_count: set.min_count,
            spec: self.specs.intern(Arc::new(slim(set.template.spec.unwrap_or_default()))),
            shape: pod_set_shape(raw),
            topology: set.topology_request.map(Box::new),
        }
    }

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

    /// What was found before for these pods in a namespace.
    pub(super) fn requests(&self, namespace: &Arc<str>, pods: &PodSets) -> Option<Arc<Effective>> {
        self.requests.find(&(Arc::clone(namespace), pods.digest))
    }

    /// Keeps what was found for these pods in a namespace.
    pub(super) fn keep_requests(
        &mut self,
        namespace: &Arc<str>,
        pods: &PodSets,
        mut effective: Effective,
    ) -> Arc<Effective> {
        effective.pod_sets = effective.pod_sets.map(|sets| self.pod_sets.intern(sets));
        effective.shown = self.shown.intern(effective.shown);
        let effective = Arc::new(effective);
        self.requests.keep((Arc::clone(namespace), pods.digest), &effective);
        effective
    }

    /// Something that requests follow from, beside the pods, has changed.
    pub(super) fn forget_requests(&mut self) {
        self.requests.clear();
    }
}

/// Keeps what requests, flavors and limits depend on.
fn slim(spec: PodSpec) -> PodSpec {
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
