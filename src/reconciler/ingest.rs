//! Taking objects in: each replaces what was known of it, and marks what may need a step because of it.

use crate::api::v1beta2::{self, WorkloadStatus};
use crate::api::{ObjectKey, names};
use crate::cache::Kind;
use crate::cache::kinds::to_resource_groups;
use crate::cache::records::{
    CheckRecord, ClusterQueueRecord, CohortRecord, FlavorRecord, LocalQueueRecord, Meta, WorkloadRecord,
};
use crate::cache::workload_object::WorkloadObject;
use crate::frameworks::{FRAMEWORKS, JobView};
use crate::reconciler::messages::{Effect, Event};
use crate::reconciler::queues::fair_sharing::to_afs_local_queue;
use crate::reconciler::{ReconcileKey, Reconciler};
use crate::resources::limit_range::LimitRangeSummary;
use crate::scheduler::{Cohort, Flavor};
use k8s_openapi::api::core::v1::{LimitRange, Namespace, PodTemplate};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An object that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::reconciler) struct UnreadableObject {
    pub(in crate::reconciler) uid: String,
    pub(in crate::reconciler) problem: String,
}

impl UnreadableObject {
    pub(in crate::reconciler) fn event(&self, kind: Kind, key: ObjectKey) -> Event {
        Event {
            kind,
            key,
            uid: self.uid.clone(),
            warning: true,
            reason: "Unreadable".to_owned(),
            note: self.problem.clone(),
        }
    }
}

/// Whether version `new` is older than version `known` of the same object: an echo that a write has overtaken.
fn is_older(new: &str, known: &str) -> bool {
    matches!((new.parse::<u64>(), known.parse::<u64>()), (Ok(new), Ok(known)) if new < known)
}

fn text_field<'a>(metadata: Option<&'a Value>, field: &str) -> &'a str {
    metadata.and_then(|metadata| metadata.get(field)?.as_str()).unwrap_or_default()
}

/// What tells whether an object has to be taken in.
pub(in crate::reconciler) struct ObjectIdentity<'a> {
    pub(in crate::reconciler) namespace: &'a str,
    pub(in crate::reconciler) name: &'a str,
    pub(in crate::reconciler) uid: &'a str,
    pub(in crate::reconciler) version: &'a str,
    /// Whether somebody has asked for its deletion.
    pub(in crate::reconciler) deleting: bool,
    /// Whether nobody holds its deletion up.
    pub(in crate::reconciler) has_no_finalizers: bool,
}

impl Reconciler {
    /// Takes an object in, from a watch or as the answer to a write of ours. One that cannot be read counts as absent, with an
    /// event that says so. An answer that leaves spec and status out says that they are what was foretold.
    pub(in crate::reconciler) fn ingest(
        &mut self,
        kind: Kind,
        object: Value,
        written: Option<Arc<WorkloadStatus>>,
    ) {
        let metadata = object.get("metadata");
        let finalizers = metadata.and_then(|metadata| metadata.get("finalizers")?.as_array());
        let identity = ObjectIdentity {
            namespace: text_field(metadata, "namespace"),
            name: text_field(metadata, "name"),
            uid: text_field(metadata, "uid"),
            version: text_field(metadata, "resourceVersion"),
            deleting: metadata.is_some_and(|metadata| metadata.get("deletionTimestamp").is_some()),
            has_no_finalizers: finalizers.is_none_or(Vec::is_empty),
        };
        if let Some(key) = self.accept_version(kind, &identity) {
            let uid = identity.uid.to_owned();
            let taken = self.ingest_object(kind, &key, object, written);
            self.record_decode_result(kind, key, &uid, taken);
        }
    }

    /// The key of an object that has to be taken in; None of what is known, has been overtaken or is gone.
    pub(in crate::reconciler) fn accept_version(
        &mut self,
        kind: Kind,
        identity: &ObjectIdentity<'_>,
    ) -> Option<ObjectKey> {
        let ObjectIdentity { uid, version, .. } = *identity;
        let key = ObjectKey {
            namespace: self.interned.intern_name(identity.namespace),
            name: Arc::from(identity.name),
        };
        if let Some(seen) = self.relisted_keys.get_mut(&kind) {
            seen.insert(key.clone());
        }
        let same = |(u, v): (&str, &str)| {
            *u == *uid && (is_older(version, v) || self.is_echo(kind, &key, v == version && !v.is_empty()))
        };
        let stale = self.known_version(kind, &key).is_some_and(same);
        if stale || self.tombstones.contains(uid) {
            return None;
        }
        // The last finalizer of a deleted object went: so did the object.
        if kind == Kind::Workload && identity.deleting && identity.has_no_finalizers {
            self.record_deletion(kind, &key, Some(uid));
            return None;
        }
        Some(key)
    }

    /// Notes whether an object could be read.
    pub(in crate::reconciler) fn record_decode_result(
        &mut self,
        kind: Kind,
        key: ObjectKey,
        uid: &str,
        taken: Result<(), String>,
    ) {
        if let Err(problem) = taken {
            self.remove(kind, &key, None);
            self.report_unreadable(kind, key, uid, &problem);
        } else {
            self.unreadable.remove(&(kind, key));
        }
    }

    /// Whether what comes is an object just as it is known: the watch repeats the answer to a write. Pod templates of a Workload
    /// with admission checks are read from what comes.
    fn is_echo(&self, kind: Kind, key: &ObjectKey, same: bool) -> bool {
        let told = |record: &Arc<WorkloadRecord>| record.status.admission_checks.is_empty();
        same && match kind {
            Kind::Workload => self.workloads.get(key).is_some_and(told),
            Kind::ClusterQueue | Kind::LocalQueue => true,
            _ => false,
        }
    }

    /// UID and version that are known of an object whose writes can overtake its watch.
    pub(in crate::reconciler) fn known_version(&self, kind: Kind, key: &ObjectKey) -> Option<(&str, &str)> {
        let meta = match kind {
            Kind::Workload => &self.workloads.get(key)?.meta,
            Kind::ClusterQueue => &self.cluster_queues.get(&key.name)?.meta,
            Kind::LocalQueue => &self.local_queues.get(key)?.meta,
            Kind::Cohort => &self.cohorts.get(&key.name)?.meta,
            Kind::ResourceFlavor => &self.flavors.get(&key.name)?.meta,
            Kind::AdmissionCheck => &self.admission_checks.get(&key.name)?.meta,
            Kind::MultiKueueCluster => &self.multikueue_clusters.get(&key.name)?.meta,
            Kind::Topology => self.topologies.get(&key.name)?,
            Kind::ProvisioningRequest => return self.provisioning.known_version(key),
            Kind::Node => return self.nodes.known_version(&key.name),
            Kind::Pod => return self.pods.known_version(key),
            Kind::Job(index) => {
                let job = self.jobs.get(&(index, key.clone()))?;
                return Some((&job.uid, &job.resource_version));
            }
            _ => return None,
        };
        Some((&meta.uid, &meta.resource_version))
    }

    /// Remembers what cannot be read, and tells of it once.
    fn report_unreadable(&mut self, kind: Kind, key: ObjectKey, uid: &str, problem: &str) {
        let unreadable = UnreadableObject {
            uid: uid.to_owned(),
            problem: format!("{} cannot be read: {problem}", kind.resource().kind),
        };
        let event = unreadable.event(kind, key.clone());
        let known = self.unreadable.insert((kind, key), unreadable.clone());
        if known.as_ref() != Some(&unreadable) && self.leading {
            self.effects.push(Effect::Event(event));
        }
    }

    /// A new leader read everything before it led, and the one before may have died with its events unsent.
    pub(in crate::reconciler) fn report_all_unreadable(&mut self) {
        let all = self.unreadable.iter();
        let events = all.map(|((kind, key), unreadable)| unreadable.event(*kind, key.clone()));
        self.effects.extend(events.map(Effect::Event));
    }

    fn ingest_object(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        raw: Value,
        written: Option<Arc<WorkloadStatus>>,
    ) -> Result<(), String> {
        let name = &key.name;
        let object = &raw;
        match kind {
            Kind::Namespace => self.ingest_namespace(&decode_value::<Namespace>(object)?.metadata),
            Kind::LimitRange => {
                self.limit_ranges.insert(key.clone(), decode_value::<LimitRange>(object)?);
                self.update_limit_range_summary(&key.namespace);
            }
            Kind::RuntimeClass => {
                let overhead = decode_value::<RuntimeClass>(object)?
                    .overhead
                    .and_then(|o| o.pod_fixed)
                    .unwrap_or_default();
                self.interned.clear_requests();
                if self.runtime_classes.insert(name.clone(), overhead).is_none() {
                    self.recompute_requests(None);
                }
            }
            Kind::PriorityClass => {
                let class = decode_value::<PriorityClass>(object)?;
                self.priority_classes
                    .insert(name.clone(), (class.value, class.global_default.unwrap_or(false)));
            }
            Kind::WorkloadPriorityClass => {
                let value = decode_value::<v1beta2::WorkloadPriorityClass>(object)?.value;
                if self.workload_priority_classes.insert(name.clone(), value) != Some(value) {
                    self.mark_users_of_priority_class(name);
                }
                self.snapshot_builder.mark_references_stale();
            }
            Kind::ResourceFlavor => self.ingest_flavor(decode_value(object)?),
            Kind::Topology => {
                let topology: v1beta2::Topology = decode_value(object)?;
                self.topologies.insert(name.clone(), Meta::from_object_meta(&topology.metadata));
                let levels = topology.spec.levels.iter().map(|level| Arc::from(level.node_label.as_str()));
                self.engine.set_topology(name, Some(levels.collect()));
                self.dirty.insert(ReconcileKey::Topology(name.clone()));
                self.reconfigure_cluster_queues();
            }
            Kind::AdmissionCheck => self.ingest_check(decode_value(object)?),
            Kind::MultiKueueCluster => self.ingest_multikueue_cluster(decode_value(object)?),
            Kind::Cohort => self.ingest_cohort(decode_value(object)?),
            Kind::ClusterQueue => self.ingest_cluster_queue(decode_value(object)?),
            Kind::LocalQueue => self.ingest_local_queue(decode_value(object)?),
            Kind::Workload => {
                self.ingest_accepted_workload(key, &WorkloadObject::from_value(raw)?, written)?;
            }
            Kind::ProvisioningRequestConfig => {
                let config = decode_value::<v1beta2::ProvisioningRequestConfig>(object)?;
                self.ingest_provisioning_config(name, config.spec);
            }
            Kind::ProvisioningRequest => self.ingest_provisioning_request(key, object)?,
            Kind::PodTemplate => {
                self.ingest_pod_template(key, &decode_value::<PodTemplate>(object)?.metadata);
            }
            Kind::Node => self.ingest_node(name, decode_value(object)?),
            Kind::Pod => self.ingest_pod(key, decode_value(object)?),
            Kind::Job(index) => {
                let decoder = FRAMEWORKS.get(index).ok_or("unknown job kind")?;
                let before = self.jobs.get(&(index, key.clone())).map(AsRef::as_ref);
                let mut view = decoder.decode_after(object, before).map_err(|e| e.to_string())?;
                self.apply_feature_gates(&mut view, object);
                self.interned.intern_pod_set_views(&mut view.pod_sets);
                self.raw_objects.insert((kind, key.clone()), raw);
                self.ingest_job(index, view);
            }
        }
        Ok(())
    }

    /// What a job says by means of a feature that is off does not count.
    fn apply_feature_gates(&self, view: &mut JobView, object: &Value) {
        let gates = &self.settings.gates;
        if !gates.admission_gated_by {
            view.gated_by = None;
        }
        view.elastic &= gates.elastic_jobs;
        if !gates.identifier_annotations {
            let labels = object.pointer("/metadata/labels");
            let label = labels.and_then(|labels| labels.get(names::PREBUILT_WORKLOAD)?.as_str());
            view.prebuilt_workload = label.filter(|name| !name.is_empty()).map(Arc::from);
        }
    }

    fn ingest_namespace(&mut self, meta: &ObjectMeta) {
        let name: Arc<str> = Arc::from(meta.name.as_deref().unwrap_or_default());
        let labels = meta.labels.clone().unwrap_or_default();
        if self.namespaces.get(&name).is_some_and(|known| **known == labels) {
            return;
        }
        self.engine.set_namespace(&name, Some(labels.clone()));
        self.namespaces.insert(name.clone(), Arc::new(labels));
        let jobs = self.jobs.keys().filter(|(_, key)| key.namespace == name).cloned();
        self.dirty.extend(jobs.map(|(kind, key)| ReconcileKey::Job(kind, key)));
        self.snapshot_builder.mark_references_stale();
    }

    fn ingest_flavor(&mut self, object: v1beta2::ResourceFlavor) {
        let meta = Meta::from_object_meta(&object.metadata);
        let name = meta.key.name.clone();
        let changed = self.flavors.get(&name).is_none_or(|known| known.object.spec != object.spec);
        if changed {
            let spec = &object.spec;
            self.engine.set_flavor(
                &name,
                Some(Flavor {
                    node_labels: spec.node_labels.clone(),
                    node_taints: spec.node_taints.clone(),
                    tolerations: spec.tolerations.clone(),
                    topology_name: spec.topology_name.as_deref().map(Arc::from),
                }),
            );
        }
        let fresh = self.flavors.insert(name.clone(), FlavorRecord { meta, object }).is_none();
        self.dirty.insert(ReconcileKey::Flavor(name));
        if fresh || changed {
            self.reconfigure_cluster_queues();
        }
    }

    fn ingest_check(&mut self, object: v1beta2::AdmissionCheck) {
        let meta = Meta::from_object_meta(&object.metadata);
        let name = meta.key.name.clone();
        self.admission_checks.insert(name.clone(), CheckRecord { meta, object });
        self.dirty.insert(ReconcileKey::Check(name));
        self.reconfigure_cluster_queues();
    }

    fn ingest_cohort(&mut self, object: v1beta2::Cohort) {
        let meta = Meta::from_object_meta(&object.metadata);
        let name = meta.key.name.clone();
        self.dirty.insert(ReconcileKey::Cohort(name.clone()));
        if let Some(known) = self.cohorts.get_mut(&name).filter(|known| known.object.spec == object.spec) {
            *known = CohortRecord { meta, object };
            return;
        }
        let spec = &object.spec;
        self.engine.set_cohort(
            &name,
            Some(Cohort {
                parent: spec.parent_name.as_deref().map(Arc::from),
                groups: to_resource_groups(&spec.resource_groups),
                weight: spec.fair_sharing.as_ref().and_then(v1beta2::FairSharing::number),
            }),
        );
        self.cohorts.insert(name, CohortRecord { meta, object });
        self.reconfigure_cluster_queues();
    }

    fn ingest_cluster_queue(&mut self, object: v1beta2::ClusterQueue) {
        let meta = Meta::from_object_meta(&object.metadata);
        let name = meta.key.name.clone();
        let before =
            self.cluster_queues.insert(name.clone(), ClusterQueueRecord { meta: meta.clone(), object });
        let after = self.cluster_queues.get(&name).map(|r| &r.object.spec);
        let changed =
            before.as_ref().is_none_or(|b| Some(&b.object.spec) != after || b.meta.deleting != meta.deleting);
        self.dirty.insert(ReconcileKey::ClusterQueue(name.clone()));
        if changed {
            self.configure_cluster_queue(&name);
            self.mark_cluster_queue_and_workloads(&name);
            self.mark_deleting_references();
            self.snapshot_builder.mark_references_stale();
        }
    }

    fn ingest_local_queue(&mut self, object: v1beta2::LocalQueue) {
        let meta = Meta::from_object_meta(&object.metadata);
        let key = meta.key.clone();
        if let Some(cluster_queue) = object.spec.cluster_queue.as_deref() {
            self.queues_by_cluster_queue.entry(Arc::from(cluster_queue)).or_default().insert(key.clone());
        }
        let deleting = meta.deleting;
        let spec = object.spec.clone();
        self.engine.set_local_queue(&key, Some(to_afs_local_queue(&object)));
        let before = self.local_queues.insert(key.clone(), LocalQueueRecord { meta, object });
        self.dirty.insert(ReconcileKey::LocalQueue(key.clone()));
        if before.is_none_or(|b| b.object.spec != spec || b.meta.deleting != deleting) {
            self.mark_local_queue_and_workloads(&key);
            self.snapshot_builder.mark_references_stale();
        }
    }

    fn ingest_job(&mut self, kind: usize, view: JobView) {
        let id = (kind, view.key.clone());
        if let Some(before) = self.jobs.get(&id).filter(|before| before.uid != view.uid) {
            let uid = before.uid.clone();
            self.job_by_uid.remove(&uid);
            self.mark_owner_and_workloads(&uid);
        }
        self.job_by_uid.insert(view.uid.clone(), id.clone());
        let uid = view.uid.clone();
        self.snapshot_builder.set_job(kind, &view);
        self.jobs.insert(id.clone(), Arc::new(view));
        self.dirty.insert(ReconcileKey::Job(id.0, id.1));
        self.mark_owner_and_workloads(&uid);
    }

    pub(in crate::reconciler) fn mark_local_queue_and_workloads(&mut self, key: &ObjectKey) {
        self.dirty.insert(ReconcileKey::LocalQueue(key.clone()));
        if let Some(keys) = self.workloads_by_queue.get(key) {
            self.dirty.extend(keys.iter().cloned().map(ReconcileKey::Workload));
        }
    }

    pub(in crate::reconciler) fn mark_cluster_queue_and_workloads(&mut self, name: &Arc<str>) {
        self.dirty.insert(ReconcileKey::ClusterQueue(name.clone()));
        for key in self.queues_by_cluster_queue.get(name).cloned().unwrap_or_default() {
            self.mark_local_queue_and_workloads(&key);
        }
    }

    /// Flavors, checks and topologies look again whether a ClusterQueue still refers to them.
    pub(in crate::reconciler) fn mark_deleting_references(&mut self) {
        let flavors = self
            .flavors
            .values()
            .filter(|r| r.meta.deleting)
            .map(|r| ReconcileKey::Flavor(r.meta.key.name.clone()));
        let checks = self
            .admission_checks
            .values()
            .filter(|r| r.meta.deleting)
            .map(|r| ReconcileKey::Check(r.meta.key.name.clone()));
        self.dirty.extend(flavors.chain(checks).collect::<Vec<_>>());
    }

    /// Something that makes ClusterQueues active or not has changed: only those that change wake their workloads.
    pub(in crate::reconciler) fn reconfigure_cluster_queues(&mut self) {
        for name in self.cluster_queues.keys().cloned().collect::<Vec<_>>() {
            if self.configure_cluster_queue(&name) {
                self.mark_cluster_queue_and_workloads(&name);
            }
        }
        self.mark_deleting_references();
    }

    pub(in crate::reconciler) fn update_limit_range_summary(&mut self, namespace: &Arc<str>) {
        let start = ObjectKey { namespace: namespace.clone(), name: Arc::from("") };
        let ranges = self.limit_ranges.range(start..).take_while(|(key, _)| key.namespace == *namespace);
        let summary = LimitRangeSummary::new(ranges.map(|(_, range)| range));
        self.limit_range_summaries.insert(namespace.clone(), summary);
        self.recompute_requests(Some(namespace));
    }

    /// LimitRanges of a namespace or runtime classes have changed.
    pub(in crate::reconciler) fn recompute_requests(&mut self, namespace: Option<&Arc<str>>) {
        self.interned.clear_requests();
        let keys: Vec<ObjectKey> = self
            .workloads
            .keys()
            .filter(|k| namespace.is_none_or(|ns| k.namespace == *ns))
            .cloned()
            .collect();
        for key in keys {
            let Some(record) = self.workloads.get(&key) else {
                continue;
            };
            let effective = self.interned_requests(&Arc::clone(record));
            if let Some(record) = self.workloads.get_mut(&key) {
                Arc::make_mut(record).effective_requests = effective;
            }
            self.dirty.insert(ReconcileKey::Workload(key));
        }
    }

    fn mark_users_of_priority_class(&mut self, class: &str) {
        let jobs = self.jobs.iter().filter(|(_, view)| view.priority_class.as_deref() == Some(class));
        self.dirty
            .extend(jobs.map(|((kind, key), _)| ReconcileKey::Job(*kind, key.clone())).collect::<Vec<_>>());
        let workloads = self.workloads.iter().filter(|(_, r)| {
            r.priority_class.as_ref().is_some_and(|c| c.kind == "WorkloadPriorityClass" && c.name == class)
        });
        self.dirty.extend(workloads.map(|(key, _)| ReconcileKey::Workload(key.clone())).collect::<Vec<_>>());
    }
}

/// Takes a key out of an index; an entry without keys goes.
pub(in crate::reconciler) fn remove_from_index<K: Ord>(
    index: &mut BTreeMap<K, BTreeSet<ObjectKey>>,
    entry: &K,
    key: &ObjectKey,
) {
    if let Some(keys) = index.get_mut(entry) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(entry);
        }
    }
}

fn decode_value<T: DeserializeOwned>(object: &Value) -> Result<T, String> {
    T::deserialize(object).map_err(|e| e.to_string())
}
