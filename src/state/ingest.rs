//! Taking objects in: each replaces what was known of it, and marks what may need a step because of it.

use super::decode::groups_of;
use super::fair_sharing::past_usage;
use super::interface::{Effect, Event, Kind};
use super::records::{
    CheckRecord, ClusterQueueRecord, CohortRecord, FlavorRecord, LocalQueueRecord, Meta, OwnerRecord,
    WorkloadRecord,
};
use super::{Item, State};
use crate::api::reason::ConditionType;
use crate::api::v1beta2::{self, WorkloadStatus};
use crate::api::{ObjectKey, names};
use crate::jobs::{JobView, KINDS};
use crate::lifecycle::conditions;
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

/// Whether version `new` is older than version `known` of the same object: an echo that a write has overtaken.
fn is_older(new: &str, known: &str) -> bool {
    matches!((new.parse::<u64>(), known.parse::<u64>()), (Ok(new), Ok(known)) if new < known)
}

fn text<'a>(metadata: Option<&'a Value>, field: &str) -> &'a str {
    metadata.and_then(|metadata| metadata.get(field)?.as_str()).unwrap_or_default()
}

impl State {
    /// Takes an object in. One that cannot be read counts as absent, with an event that says so.
    pub(super) fn ingest(&mut self, kind: Kind, object: Value) {
        self.ingest_answer(kind, object, None);
    }

    /// The same with the answer to a write of ours. One that leaves spec and status out says that they are what was foretold.
    pub(super) fn ingest_answer(&mut self, kind: Kind, object: Value, written: Option<Arc<WorkloadStatus>>) {
        let metadata = object.get("metadata");
        let key = ObjectKey {
            namespace: self.templates.word(text(metadata, "namespace")),
            name: Arc::from(text(metadata, "name")),
        };
        if let Some(seen) = self.relisting.get_mut(&kind) {
            seen.insert(key.clone());
        }
        let version = text(metadata, "resourceVersion");
        let uid = text(metadata, "uid");
        let same = |(u, v): (&str, &str)| {
            *u == *uid && (is_older(version, v) || self.is_echo(kind, &key, v == version && !v.is_empty()))
        };
        let stale = self.known(kind, &key).is_some_and(same);
        if stale || self.tombstones.holds(uid) {
            return;
        }
        // The last finalizer of a deleted object went: so did the object.
        let finalizers = metadata.and_then(|metadata| metadata.get("finalizers")?.as_array());
        let deleted = metadata.is_some_and(|metadata| metadata.get("deletionTimestamp").is_some());
        if kind == Kind::Workload && deleted && finalizers.is_none_or(Vec::is_empty) {
            self.bury(kind, &key, Some(uid));
            return;
        }
        let uid = uid.to_owned();
        if let Err(problem) = self.take(kind, &key, object, written) {
            self.remove(kind, &key, None);
            self.tell_unreadable(kind, key, &uid, &problem);
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
    pub(super) fn known(&self, kind: Kind, key: &ObjectKey) -> Option<(&str, &str)> {
        let meta = match kind {
            Kind::Workload => &self.workloads.get(key)?.meta,
            Kind::ClusterQueue => &self.cluster_queues.get(&key.name)?.meta,
            Kind::LocalQueue => &self.local_queues.get(key)?.meta,
            Kind::Cohort => &self.cohorts.get(&key.name)?.meta,
            Kind::ResourceFlavor => &self.flavors.get(&key.name)?.meta,
            Kind::AdmissionCheck => &self.checks.get(&key.name)?.meta,
            Kind::Topology => self.topologies.get(&key.name)?,
            Kind::ProvisioningRequest => return self.provisioning.known(key),
            Kind::Node => return self.nodes.known(&key.name),
            Kind::Pod => return self.pods.known(key),
            Kind::Job(index) => {
                let job = self.jobs.get(&(index, key.clone()))?;
                return Some((&job.uid, &job.resource_version));
            }
            _ => return None,
        };
        Some((&meta.uid, &meta.resource_version))
    }

    fn tell_unreadable(&mut self, kind: Kind, key: ObjectKey, uid: &str, problem: &str) {
        let note = format!("{} cannot be read: {problem}", kind.resource().kind);
        if self.unreadable.insert((kind, key.clone()), note.clone()).as_deref() == Some(note.as_str())
            || !self.leading
        {
            return;
        }
        let event =
            Event { kind, key, uid: uid.to_owned(), warning: true, reason: "Unreadable".to_owned(), note };
        self.effects.push(Effect::Event(event));
    }

    fn take(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        raw: Value,
        written: Option<Arc<WorkloadStatus>>,
    ) -> Result<(), String> {
        let name = &key.name;
        let object = &raw;
        match kind {
            Kind::Namespace => self.take_namespace(&read::<Namespace>(object)?.metadata),
            Kind::LimitRange => {
                self.limit_ranges.insert(key.clone(), read::<LimitRange>(object)?);
                self.limits_changed(&key.namespace);
            }
            Kind::RuntimeClass => {
                let overhead =
                    read::<RuntimeClass>(object)?.overhead.and_then(|o| o.pod_fixed).unwrap_or_default();
                self.templates.forget_requests();
                if self.runtime_classes.insert(name.clone(), overhead).is_none() {
                    self.requests_changed(None);
                }
            }
            Kind::PriorityClass => {
                let class = read::<PriorityClass>(object)?;
                self.priority_classes
                    .insert(name.clone(), (class.value, class.global_default.unwrap_or(false)));
            }
            Kind::WorkloadPriorityClass => {
                let value = read::<v1beta2::WorkloadPriorityClass>(object)?.value;
                if self.workload_priority_classes.insert(name.clone(), value) != Some(value) {
                    self.priorities_changed(name);
                }
                self.published.config_changed();
            }
            Kind::ResourceFlavor => self.take_flavor(read(object)?),
            Kind::Topology => {
                let topology: v1beta2::Topology = read(object)?;
                self.topologies.insert(name.clone(), Meta::of(&topology.metadata));
                let levels = topology.spec.levels.iter().map(|level| Arc::from(level.node_label.as_str()));
                self.engine.set_topology(name, Some(levels.collect()));
                self.dirty.insert(Item::Topology(name.clone()));
                self.all_cluster_queues_changed();
            }
            Kind::AdmissionCheck => self.take_check(read(object)?),
            Kind::Cohort => self.take_cohort(read(object)?),
            Kind::ClusterQueue => self.take_cluster_queue(read(object)?),
            Kind::LocalQueue => self.take_local_queue(read(object)?),
            Kind::Workload => self.take_workload(key, raw, written)?,
            Kind::ProvisioningRequestConfig => {
                let config = read::<v1beta2::ProvisioningRequestConfig>(object)?;
                self.take_provisioning_config(name, config.spec);
            }
            Kind::ProvisioningRequest => self.take_provisioning_request(key, object)?,
            Kind::PodTemplate => self.take_pod_template(key, &read::<PodTemplate>(object)?.metadata),
            Kind::Node => self.take_node(name, read(object)?),
            Kind::Pod => self.take_pod(key, read(object)?),
            Kind::Job(index) => {
                let decoder = KINDS.get(index).ok_or("unknown job kind")?;
                let before = self.jobs.get(&(index, key.clone())).map(AsRef::as_ref);
                let mut view = decoder.decode_after(object, before).map_err(|e| e.to_string())?;
                self.apply_gates(&mut view, object);
                self.templates.share_views(&mut view.pod_sets);
                self.raw.insert((kind, key.clone()), raw);
                self.take_job(index, view);
            }
        }
        Ok(())
    }

    /// What a job says by means of a feature that is off does not count.
    fn apply_gates(&self, view: &mut JobView, object: &Value) {
        let gates = &self.settings.gates;
        if !gates.admission_gated_by {
            view.gated_by = None;
        }
        if !gates.identifier_annotations {
            let labels = object.pointer("/metadata/labels");
            let label = labels.and_then(|labels| labels.get(names::PREBUILT_WORKLOAD)?.as_str());
            view.prebuilt_workload = label.filter(|name| !name.is_empty()).map(Arc::from);
        }
    }

    fn take_namespace(&mut self, meta: &ObjectMeta) {
        let name: Arc<str> = Arc::from(meta.name.as_deref().unwrap_or_default());
        let labels = meta.labels.clone().unwrap_or_default();
        if self.namespaces.get(&name).is_some_and(|known| **known == labels) {
            return;
        }
        self.engine.set_namespace(&name, Some(labels.clone()));
        self.namespaces.insert(name.clone(), Arc::new(labels));
        let jobs = self.jobs.keys().filter(|(_, key)| key.namespace == name).cloned();
        self.dirty.extend(jobs.map(|(kind, key)| Item::Job(kind, key)));
        self.published.config_changed();
    }

    fn take_flavor(&mut self, object: v1beta2::ResourceFlavor) {
        let meta = Meta::of(&object.metadata);
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
        self.dirty.insert(Item::Flavor(name));
        if fresh || changed {
            self.all_cluster_queues_changed();
        }
    }

    fn take_check(&mut self, object: v1beta2::AdmissionCheck) {
        let meta = Meta::of(&object.metadata);
        let name = meta.key.name.clone();
        self.checks.insert(name.clone(), CheckRecord { meta, object });
        self.dirty.insert(Item::Check(name));
        self.all_cluster_queues_changed();
    }

    fn take_cohort(&mut self, object: v1beta2::Cohort) {
        let meta = Meta::of(&object.metadata);
        let name = meta.key.name.clone();
        self.dirty.insert(Item::Cohort(name.clone()));
        if let Some(known) = self.cohorts.get_mut(&name).filter(|known| known.object.spec == object.spec) {
            *known = CohortRecord { meta, object };
            return;
        }
        let spec = &object.spec;
        self.engine.set_cohort(
            &name,
            Some(Cohort {
                parent: spec.parent_name.as_deref().map(Arc::from),
                groups: groups_of(&spec.resource_groups),
                weight: spec.fair_sharing.as_ref().and_then(v1beta2::FairSharing::number),
            }),
        );
        self.cohorts.insert(name, CohortRecord { meta, object });
        self.all_cluster_queues_changed();
    }

    fn take_cluster_queue(&mut self, object: v1beta2::ClusterQueue) {
        let meta = Meta::of(&object.metadata);
        let name = meta.key.name.clone();
        let before =
            self.cluster_queues.insert(name.clone(), ClusterQueueRecord { meta: meta.clone(), object });
        let after = self.cluster_queues.get(&name).map(|r| &r.object.spec);
        let changed =
            before.as_ref().is_none_or(|b| Some(&b.object.spec) != after || b.meta.deleting != meta.deleting);
        self.dirty.insert(Item::ClusterQueue(name.clone()));
        if changed {
            self.configure_cluster_queue(&name);
            self.cluster_queue_changed(&name);
            self.references_changed();
            self.published.config_changed();
        }
    }

    fn take_local_queue(&mut self, object: v1beta2::LocalQueue) {
        let meta = Meta::of(&object.metadata);
        let key = meta.key.clone();
        if let Some(cluster_queue) = object.spec.cluster_queue.as_deref() {
            self.queues_by_cluster_queue.entry(Arc::from(cluster_queue)).or_default().insert(key.clone());
        }
        let deleting = meta.deleting;
        let spec = object.spec.clone();
        self.engine.set_local_queue(&key, Some(past_usage(&object)));
        let before = self.local_queues.insert(key.clone(), LocalQueueRecord { meta, object });
        self.dirty.insert(Item::LocalQueue(key.clone()));
        if before.is_none_or(|b| b.object.spec != spec || b.meta.deleting != deleting) {
            self.local_queue_changed(&key);
            self.published.config_changed();
        }
    }

    fn take_workload(
        &mut self,
        key: &ObjectKey,
        raw: Value,
        written: Option<Arc<WorkloadStatus>>,
    ) -> Result<(), String> {
        let object = &raw;
        let answers = written.is_some();
        let newer = self.workloads.get(key).cloned();
        let newer =
            newer.map(|record| record.newer(object, written, &mut self.templates)).transpose()?.flatten();
        let fresh = newer.is_none();
        if fresh && answers && object.get("spec").is_none() {
            // The watch tells of it as a whole.
            return Ok(());
        }
        let mut record = newer.map_or_else(|| WorkloadRecord::decode(object, &mut self.templates), Ok)?;
        if conditions::is_true(&record.status, ConditionType::Finished) {
            record.pods = Arc::default();
            record.effective = Arc::default();
        } else if fresh {
            record.effective = self.shared_effective(&record);
        }
        record.meta.key = self.workloads.get_key_value(key).map_or(key, |(known, _)| known).clone();
        if !self.settings.gates.admission_gated_by {
            record.gated = false;
            record.gated_by = None;
        }
        self.unindex_workload(key);
        if let Some(owner) = &record.owner {
            let owned =
                self.workloads_by_owner.entry(owner.uid.clone()).or_insert_with(|| Vec::with_capacity(1));
            if let Err(place) = owned.binary_search(key) {
                owned.insert(place, key.clone());
            }
        }
        let finished = conditions::is_true(&record.status, ConditionType::Finished);
        if let Some(queue) = record.local_queue().filter(|_| !finished) {
            self.workloads_by_queue.entry(queue).or_default().insert(key.clone());
        }
        if !record.status.admission_checks.is_empty() {
            self.raw.insert((Kind::Workload, key.clone()), raw);
        }
        let owner = record.owner.clone();
        self.workloads.insert(key.clone(), Arc::new(record));
        self.slim_ended(key);
        self.footing_changed(key);
        self.external_owner_changed(&key.namespace, owner.as_deref());
        self.workload_changed(key, owner.as_ref().map(|owner| &owner.uid));
        Ok(())
    }

    fn take_job(&mut self, kind: usize, view: JobView) {
        let id = (kind, view.key.clone());
        if let Some(before) = self.jobs.get(&id).filter(|before| before.uid != view.uid) {
            let uid = before.uid.clone();
            self.job_by_uid.remove(&uid);
            self.owner_changed(&uid);
        }
        self.job_by_uid.insert(view.uid.clone(), id.clone());
        let uid = view.uid.clone();
        self.published.job(kind, &view);
        self.jobs.insert(id.clone(), Arc::new(view));
        self.dirty.insert(Item::Job(id.0, id.1));
        self.owner_changed(&uid);
    }

    /// An object that another controller queues for us is known by the Workload that it owns.
    pub(super) fn external_owner_changed(&mut self, namespace: &Arc<str>, owner: Option<&OwnerRecord>) {
        let Some(owner) = owner.filter(|o| self.settings.is_external(o.group(), &o.kind)) else {
            return;
        };
        let queued = self.workloads_by_owner.contains_key(&owner.uid);
        self.published.external_owner(namespace, owner, queued);
    }

    pub(super) fn unindex_workload(&mut self, key: &ObjectKey) {
        let Some(record) = self.workloads.get(key) else {
            return;
        };
        let owner = record.owner.as_ref().map(|o| o.uid.clone());
        let queue = record.local_queue();
        if let Some(uid) = owner
            && let Some(owned) = self.workloads_by_owner.get_mut(&uid)
        {
            owned.retain(|known| known != key);
            if owned.is_empty() {
                self.workloads_by_owner.remove(&uid);
            }
        }
        if let Some(queue) = queue {
            take_from(&mut self.workloads_by_queue, &queue, key);
        }
    }

    /// Marks a Workload, its job, and its queues.
    pub(super) fn workload_changed(&mut self, key: &ObjectKey, owner: Option<&Arc<str>>) {
        self.dirty.insert(Item::Workload(key.clone()));
        if let Some((kind, job)) = owner.and_then(|uid| self.job_by_uid.get(uid)) {
            self.dirty.insert(Item::Job(*kind, job.clone()));
        }
    }

    pub(super) fn owner_changed(&mut self, uid: &Arc<str>) {
        if let Some(keys) = self.workloads_by_owner.get(uid) {
            self.dirty.extend(keys.iter().cloned().map(Item::Workload));
        }
    }

    pub(super) fn local_queue_changed(&mut self, key: &ObjectKey) {
        self.dirty.insert(Item::LocalQueue(key.clone()));
        if let Some(keys) = self.workloads_by_queue.get(key) {
            self.dirty.extend(keys.iter().cloned().map(Item::Workload));
        }
    }

    pub(super) fn cluster_queue_changed(&mut self, name: &Arc<str>) {
        self.dirty.insert(Item::ClusterQueue(name.clone()));
        for key in self.queues_by_cluster_queue.get(name).cloned().unwrap_or_default() {
            self.local_queue_changed(&key);
        }
    }

    /// Flavors, checks and topologies look again whether a ClusterQueue still refers to them.
    pub(super) fn references_changed(&mut self) {
        let flavors =
            self.flavors.values().filter(|r| r.meta.deleting).map(|r| Item::Flavor(r.meta.key.name.clone()));
        let checks =
            self.checks.values().filter(|r| r.meta.deleting).map(|r| Item::Check(r.meta.key.name.clone()));
        self.dirty.extend(flavors.chain(checks).collect::<Vec<_>>());
    }

    /// Something that makes ClusterQueues active or not has changed: only those that change wake their workloads.
    pub(super) fn all_cluster_queues_changed(&mut self) {
        for name in self.cluster_queues.keys().cloned().collect::<Vec<_>>() {
            if self.configure_cluster_queue(&name) {
                self.cluster_queue_changed(&name);
            }
        }
        self.references_changed();
    }

    pub(super) fn limits_changed(&mut self, namespace: &Arc<str>) {
        let start = ObjectKey { namespace: namespace.clone(), name: Arc::from("") };
        let ranges = self.limit_ranges.range(start..).take_while(|(key, _)| key.namespace == *namespace);
        let summary = LimitRangeSummary::new(ranges.map(|(_, range)| range));
        self.limits.insert(namespace.clone(), summary);
        self.requests_changed(Some(namespace));
    }

    /// LimitRanges of a namespace or runtime classes have changed.
    pub(super) fn requests_changed(&mut self, namespace: Option<&Arc<str>>) {
        self.templates.forget_requests();
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
            let effective = self.shared_effective(&Arc::clone(record));
            if let Some(record) = self.workloads.get_mut(&key) {
                Arc::make_mut(record).effective = effective;
            }
            self.dirty.insert(Item::Workload(key));
        }
    }

    fn priorities_changed(&mut self, class: &str) {
        let jobs = self.jobs.iter().filter(|(_, view)| view.priority_class.as_deref() == Some(class));
        self.dirty.extend(jobs.map(|((kind, key), _)| Item::Job(*kind, key.clone())).collect::<Vec<_>>());
        let workloads = self.workloads.iter().filter(|(_, r)| {
            r.priority_class.as_ref().is_some_and(|c| c.kind == "WorkloadPriorityClass" && c.name == class)
        });
        self.dirty.extend(workloads.map(|(key, _)| Item::Workload(key.clone())).collect::<Vec<_>>());
    }
}

/// Takes a key out of an index; an entry without keys goes.
pub(super) fn take_from<K: Ord>(index: &mut BTreeMap<K, BTreeSet<ObjectKey>>, entry: &K, key: &ObjectKey) {
    if let Some(keys) = index.get_mut(entry) {
        keys.remove(key);
        if keys.is_empty() {
            index.remove(entry);
        }
    }
}

fn read<T: DeserializeOwned>(object: &Value) -> Result<T, String> {
    T::deserialize(object).map_err(|e| e.to_string())
}
