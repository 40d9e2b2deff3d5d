//! ProvisioningRequests of Workloads: made when quota is reserved, judged by what the autoscaler answers, taken away when
//! they serve no longer.
//!
//! Invariants: the current attempt of a check has at most one request, owned by the Workload; its pod templates are owned
//! by the request; every delete carries the version that it was decided on.

use crate::api::ObjectKey;
use crate::api::names;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::{
    AdmissionCheckState, CheckState, PodSetMergePolicy, ProvisioningRequestConfigSpec,
};
use crate::cache::Kind;
use crate::cache::records::{Meta, OwnerRecord, WorkloadRecord};
use crate::lifecycle::provisioning::{
    self, CheckInput, ProvisioningOutcome, ProvisioningPodSet, RequestCondition,
};
use crate::lifecycle::{conditions, reservation};
use crate::reconciler::job::start::apply_template_info;
use crate::reconciler::messages::{Effect, Verb};
use crate::reconciler::workload::events::workload_event;
use crate::reconciler::workload::step::delete_options;
use crate::reconciler::writes::in_flight::WriteRequest;
use crate::reconciler::{ReconcileKey, Reconciler};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A ProvisioningRequest, as far as it counts.
#[derive(Clone, Debug)]
struct RequestRecord {
    meta: Meta,
    owner: Option<(Arc<str>, ObjectKey)>,
    spec: RequestSpec,
    status: RequestStatus,
}

#[derive(Deserialize)]
struct RequestObject {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: RequestSpec,
    #[serde(default)]
    status: RequestStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RequestSpec {
    provisioning_class_name: String,
    parameters: BTreeMap<String, String>,
    pod_sets: Vec<RequestPodSet>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RequestPodSet {
    pod_template_ref: TemplateReference,
    count: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct TemplateReference {
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RequestStatus {
    conditions: Vec<Condition>,
    provisioning_class_details: BTreeMap<String, String>,
}

/// Everything around ProvisioningRequests.
#[derive(Clone, Debug, Default)]
pub(in crate::reconciler) struct Provisioning {
    configs: BTreeMap<Arc<str>, ProvisioningRequestConfigSpec>,
    requests: BTreeMap<ObjectKey, RequestRecord>,
    /// Requests by the UID of the Workload that owns them.
    by_workload: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
    /// Owners of pod templates.
    template_owners: BTreeMap<ObjectKey, Arc<str>>,
}

/// A check of this controller on a Workload, with what its current attempt asks for.
struct ProvisioningAttempt<'a> {
    state: &'a AdmissionCheckState,
    config: Option<&'a ProvisioningRequestConfigSpec>,
    name: String,
    entries: Vec<(String, i32)>,
}

impl Provisioning {
    /// UID and version that are known of a request.
    pub(in crate::reconciler) fn known_version(&self, key: &ObjectKey) -> Option<(&str, &str)> {
        let meta = &self.requests.get(key)?.meta;
        Some((&meta.uid, &meta.resource_version))
    }

    /// Keys of a kind.
    pub(in crate::reconciler) fn keys(&self, kind: Kind) -> Vec<ObjectKey> {
        match kind {
            Kind::ProvisioningRequest => self.requests.keys().cloned().collect(),
            Kind::PodTemplate => self.template_owners.keys().cloned().collect(),
            _ => self.configs.keys().map(|name| ObjectKey::cluster(name)).collect(),
        }
    }
}

impl Reconciler {
    pub(in crate::reconciler) fn ingest_provisioning_config(
        &mut self,
        name: &Arc<str>,
        spec: ProvisioningRequestConfigSpec,
    ) {
        if self.provisioning.configs.insert(Arc::clone(name), spec.clone()) != Some(spec) {
            self.mark_provisioning_users();
        }
    }

    pub(in crate::reconciler) fn remove_provisioning_config(&mut self, name: &str) {
        if self.provisioning.configs.remove(name).is_some() {
            self.mark_provisioning_users();
        }
    }

    fn mark_provisioning_users(&mut self) {
        self.dirty.extend(self.admission_checks.keys().cloned().map(ReconcileKey::Check));
        let holding = self.workloads.iter().filter(|(_, record)| reservation::holds_quota(&record.status));
        self.dirty.extend(holding.map(|(key, _)| ReconcileKey::Workload(key.clone())).collect::<Vec<_>>());
    }

    pub(in crate::reconciler) fn ingest_provisioning_request(
        &mut self,
        key: &ObjectKey,
        object: &Value,
    ) -> Result<(), String> {
        let read = RequestObject::deserialize(object).map_err(|error| error.to_string())?;
        let owner = OwnerRecord::from_object_meta(&read.metadata).filter(|owner| *owner.kind == *"Workload");
        let owner = owner.map(|owner| (owner.uid, ObjectKey::new(&key.namespace, &owner.name)));
        self.remove_provisioning_request(key);
        if let Some((uid, _)) = &owner {
            self.provisioning.by_workload.entry(uid.clone()).or_default().insert(key.clone());
        }
        let meta = Meta::from_object_meta(&read.metadata);
        let record = RequestRecord { meta, owner, spec: read.spec, status: read.status };
        self.provisioning.requests.insert(key.clone(), record);
        self.mark_owner_of_request(key);
        Ok(())
    }

    pub(in crate::reconciler) fn remove_provisioning_request(&mut self, key: &ObjectKey) {
        self.mark_owner_of_request(key);
        let record = self.provisioning.requests.remove(key);
        if let Some((uid, _)) = record.and_then(|record| record.owner) {
            crate::reconciler::ingest::remove_from_index(&mut self.provisioning.by_workload, &uid, key);
        }
    }

    fn mark_owner_of_request(&mut self, key: &ObjectKey) {
        let owner = self.provisioning.requests.get(key).and_then(|record| record.owner.clone());
        if let Some((_, workload)) = owner {
            self.dirty.insert(ReconcileKey::Workload(workload));
        }
    }

    pub(in crate::reconciler) fn ingest_pod_template(&mut self, key: &ObjectKey, metadata: &ObjectMeta) {
        let owner =
            OwnerRecord::from_object_meta(metadata).filter(|owner| *owner.kind == *"ProvisioningRequest");
        match owner {
            Some(owner) => drop(self.provisioning.template_owners.insert(key.clone(), owner.uid)),
            None => self.remove_pod_template(key),
        }
    }

    pub(in crate::reconciler) fn remove_pod_template(&mut self, key: &ObjectKey) {
        self.provisioning.template_owners.remove(key);
    }

    /// Whether a check is of this controller.
    fn is_provisioning_check(&self, check: &str) -> bool {
        self.admission_checks
            .get(check)
            .is_some_and(|check| check.object.spec.controller_name == provisioning::CONTROLLER)
    }

    /// The configuration that a check of this controller refers to, if it exists.
    fn provisioning_config(&self, check: &str) -> Option<&ProvisioningRequestConfigSpec> {
        let spec = &self.admission_checks.get(check)?.object.spec;
        let parameters =
            spec.parameters.as_ref().filter(|reference| reference.kind == "ProvisioningRequestConfig");
        self.provisioning.configs.get(parameters?.name.as_str())
    }

    /// Whether a check of this controller is active, with reason and message.
    pub(in crate::reconciler) fn provisioning_check_activity(
        &self,
        name: &str,
    ) -> (bool, &'static str, String) {
        let (active, reason, message) = if self.provisioning_config(name).is_some() {
            (true, "Active", "The admission check is active")
        } else {
            let message = "The admission check refers to no ProvisioningRequestConfig that exists";
            (false, "BadParametersRef", message)
        };
        (active, reason, message.to_owned())
    }

    /// Checks of this controller on a Workload that holds quota and is not on its way out.
    fn provisioning_attempts<'a>(&'a self, record: &'a WorkloadRecord) -> Vec<ProvisioningAttempt<'a>> {
        let holds = reservation::holds_quota(&record.status)
            && !conditions::is_true(&record.status, ConditionType::Evicted);
        if !holds || record.status.admission_checks.is_empty() {
            return Vec::new();
        }
        let ask = |state: &'a AdmissionCheckState| {
            let config = self.provisioning_config(&state.name);
            let policy = config.and_then(|config| config.pod_set_merge_policy);
            let needs = provisioning_pod_sets(record, policy);
            let entries =
                config.map(|config| provisioning::request_pod_sets(config, &needs)).unwrap_or_default();
            let attempt = provisioning::attempt(state);
            let name = provisioning::request_name(&record.meta.key.name, &state.name, attempt);
            ProvisioningAttempt { state, config, name, entries }
        };
        let checks = record.status.admission_checks.iter();
        checks.filter(|state| self.is_provisioning_check(&state.name)).map(ask).collect()
    }

    /// States of the checks of this controller that are not what they should be by the answers so far.
    pub(in crate::reconciler) fn provisioning_check_states(
        &self,
        record: &WorkloadRecord,
        now: Timestamp,
    ) -> Vec<AdmissionCheckState> {
        let admitted = conditions::is_true(&record.status, ConditionType::Admitted);
        let judge = |asked: ProvisioningAttempt<'_>| {
            let request = self.current_provisioning_request(record, &asked);
            let seen = request.map(|request| provisioning::ProvisioningRequestView {
                name: &asked.name,
                class: &request.spec.provisioning_class_name,
                outcome: request.outcome(admitted),
                details: &request.status.provisioning_class_details,
            });
            let ProvisioningAttempt { state, config, entries, .. } = &asked;
            let (config, request, active) = (*config, seen.as_ref(), record.active);
            provisioning::next_check_state(CheckInput { state, config, entries, request, active }, now)
        };
        self.provisioning_attempts(record).into_iter().filter_map(judge).collect()
    }

    /// The request of the current attempt, as long as it asks for what is needed.
    fn current_provisioning_request(
        &self,
        record: &WorkloadRecord,
        asked: &ProvisioningAttempt<'_>,
    ) -> Option<&RequestRecord> {
        let key =
            ObjectKey { namespace: record.meta.key.namespace.clone(), name: Arc::from(asked.name.as_str()) };
        let request = self.provisioning.requests.get(&key)?;
        let ours = request.owner.as_ref().is_some_and(|(uid, _)| *uid == record.meta.uid);
        let fits = asked.state.state == CheckState::Ready || request.matches_attempt(record, asked);
        Some(request).filter(|_| ours && fits)
    }

    /// Sends the next write around the requests of a Workload: what is not needed goes, what is needed is made.
    pub(in crate::reconciler) fn step_provisioning(&mut self, key: &ObjectKey, now: Timestamp) {
        let Some(record) = self.workloads.get(key).cloned() else { return };
        let asked = self.provisioning_attempts(&record);
        let owned = self.provisioning.by_workload.get(&record.meta.uid);
        if asked.is_empty() && owned.is_none() {
            return;
        }
        let evicted = conditions::is_true(&record.status, ConditionType::Evicted);
        let kept = evicted && !self.settings.gates.cleanup_provisioning_requests_on_eviction;
        let wanted: BTreeSet<ObjectKey> = asked
            .iter()
            .filter(|asked| !asked.entries.is_empty())
            .filter_map(|asked| Some(self.current_provisioning_request(&record, asked)?.meta.key.clone()))
            .collect();
        let stale: Vec<Meta> = owned
            .into_iter()
            .flatten()
            .filter(|request| !kept && !wanted.contains(*request))
            .filter_map(|request| Some(self.provisioning.requests.get(request)?.meta.clone()))
            .filter(|meta| !meta.deleting)
            .collect();
        let mut writes: Vec<(Kind, ObjectKey, Verb, Value)> = stale
            .into_iter()
            .map(|meta| (Kind::ProvisioningRequest, meta.key.clone(), Verb::Delete, delete_options(&meta)))
            .collect();
        let raw = (Kind::Workload, key.clone());
        let mut lacking = false;
        for asked in asked.iter().filter(|asked| asked.state.state == CheckState::Pending) {
            let Some(config) = asked.config.filter(|_| !asked.entries.is_empty()) else { continue };
            match self.current_provisioning_request(&record, asked) {
                None => writes.push(create_request_write(&record, asked, config)),
                Some(request) => {
                    let templates = asked.entries.iter().map(|(set, _)| (set, request.template_key(set)));
                    let missing: Vec<(String, ObjectKey)> = templates
                        .filter(|(_, template)| !self.provisioning.template_owners.contains_key(template))
                        .map(|(set, template)| (set.clone(), template))
                        .collect();
                    lacking |= !missing.is_empty() && !self.raw_objects.contains_key(&raw);
                    for (set, template) in missing {
                        let body = self.template_body(&record, request, &set, &template);
                        writes.extend(body.map(|body| (Kind::PodTemplate, template, Verb::Create, body)));
                    }
                }
            }
        }
        if lacking {
            self.effects.push(Effect::Refetch { kind: Kind::Workload, key: key.clone() });
        }
        for (kind, target, verb, body) in writes {
            self.send_on_behalf_of_workload(key, kind, target, verb, body, now);
        }
    }

    fn send_on_behalf_of_workload(
        &mut self,
        workload: &ObjectKey,
        kind: Kind,
        key: ObjectKey,
        verb: Verb,
        body: Value,
        now: Timestamp,
    ) {
        let item = ReconcileKey::Workload(workload.clone());
        if self.in_flight_writes.may_write(kind, &key, now) {
            let creates = (kind, verb) == (Kind::ProvisioningRequest, Verb::Create);
            let told = self.workloads.get(workload).filter(|_| creates).map(|record| {
                let note = format!("Created ProvisioningRequest: \"{}\"", key.name);
                workload_event(record, false, "ProvisioningRequestCreated", note)
            });
            self.start_write(WriteRequest {
                on_behalf_of: Some(item),
                effects: told.into_iter().collect(),
                ..WriteRequest::new(kind, key, verb, body)
            });
        } else if let Some(until) =
            self.in_flight_writes.backoff_until(kind, &key).filter(|until| *until > now)
        {
            self.timers.wake(item, until);
        }
    }

    /// The pod template of an entry: that of the Workload with what its flavors add.
    fn template_body(
        &self,
        record: &WorkloadRecord,
        request: &RequestRecord,
        pod_set: &str,
        key: &ObjectKey,
    ) -> Option<Value> {
        let raw = self.raw_objects.get(&(Kind::Workload, record.meta.key.clone()))?;
        let sets = raw.pointer("/spec/podSets").and_then(Value::as_array)?;
        let set = sets.iter().find(|set| set.get("name").and_then(Value::as_str) == Some(pod_set))?;
        let mut template = set.get("template").cloned()?;
        let infos = self.granted_pod_set_infos(record).ok()??;
        let info = infos.iter().find(|info| *info.name == *pod_set)?;
        apply_template_info(&mut template, &info.template);
        Some(json!({
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": owned_metadata(Kind::ProvisioningRequest, &request.meta, key),
            "template": template,
        }))
    }
}

impl RequestRecord {
    fn outcome(&self, admitted: bool) -> ProvisioningOutcome {
        let conditions = &self.status.conditions;
        let said: Vec<_> = conditions
            .iter()
            .map(|c| RequestCondition { kind: &c.type_, holds: c.status == "True", message: &c.message })
            .collect();
        ProvisioningOutcome::from_conditions(&said, admitted)
    }

    fn template_key(&self, pod_set: &str) -> ObjectKey {
        let name = provisioning::template_name(&self.meta.key.name, pod_set);
        ObjectKey { namespace: self.meta.key.namespace.clone(), name: Arc::from(name) }
    }

    /// Whether the request is the one that would be made now.
    fn matches_attempt(&self, record: &WorkloadRecord, asked: &ProvisioningAttempt<'_>) -> bool {
        let Some(config) = asked.config else { return false };
        let entry = |(set, count): &(String, i32)| RequestPodSet {
            pod_template_ref: TemplateReference { name: provisioning::template_name(&asked.name, set) },
            count: *count,
        };
        let entries: Vec<RequestPodSet> = asked.entries.iter().map(entry).collect();
        !self.meta.deleting
            && self.spec.provisioning_class_name == config.provisioning_class_name
            && self.spec.parameters == provisioning::parameters(config, &record.provisioning_parameters)
            && self.spec.pod_sets == entries
    }
}

/// What the pod sets of a Workload ask for with the counts that were granted.
fn provisioning_pod_sets(
    record: &WorkloadRecord,
    policy: Option<PodSetMergePolicy>,
) -> Vec<ProvisioningPodSet> {
    let granted = |name: &str| {
        let admission = record.status.admission.as_ref()?;
        admission.pod_set_assignments.iter().find(|set| set.name == name)?.count
    };
    let need = |set: &crate::cache::records::PodSetRecord| {
        let containers = set.spec.containers.iter().chain(set.spec.init_containers.iter().flatten());
        let asked = containers.filter_map(|c| c.resources.as_ref()?.requests.as_ref());
        let resources: BTreeSet<&String> = asked.flat_map(BTreeMap::keys).collect();
        ProvisioningPodSet {
            name: set.name.to_string(),
            count: granted(&set.name).unwrap_or(set.count),
            resources: resources.into_iter().cloned().collect(),
            merge_key: match policy {
                None => String::new(),
                Some(PodSetMergePolicy::IdenticalPodTemplates) => format!("{:?}", set.template_fingerprint),
                Some(PodSetMergePolicy::IdenticalWorkloadSchedulingRequirements) => {
                    provisioning::digest(&serde_json::to_vec(&*set.spec).unwrap_or_default())
                }
            },
        }
    };
    record.pod_sets().iter().map(need).collect()
}

/// Metadata of an object that is made for another and goes with it.
fn owned_metadata(kind: Kind, owner: &Meta, key: &ObjectKey) -> Value {
    let resource = kind.resource();
    json!({
        "name": key.name,
        "namespace": key.namespace,
        "labels": {names::MANAGED_LABEL: "true"},
        "ownerReferences": [{
            "apiVersion": resource.api_version(),
            "kind": resource.kind,
            "name": owner.key.name,
            "uid": owner.uid,
            "controller": true,
        }],
    })
}

/// The write that makes the request of an attempt.
fn create_request_write(
    record: &WorkloadRecord,
    asked: &ProvisioningAttempt<'_>,
    config: &ProvisioningRequestConfigSpec,
) -> (Kind, ObjectKey, Verb, Value) {
    let key =
        ObjectKey { namespace: record.meta.key.namespace.clone(), name: Arc::from(asked.name.as_str()) };
    let entry = |(set, count): &(String, i32)| json!({"podTemplateRef": {"name": provisioning::template_name(&asked.name, set)}, "count": count});
    let body = json!({
        "apiVersion": Kind::ProvisioningRequest.resource().api_version(),
        "kind": "ProvisioningRequest",
        "metadata": owned_metadata(Kind::Workload, &record.meta, &key),
        "spec": {
            "provisioningClassName": config.provisioning_class_name,
            "parameters": provisioning::parameters(config, &record.provisioning_parameters),
            "podSets": asked.entries.iter().map(entry).collect::<Vec<_>>(),
        },
    });
    (Kind::ProvisioningRequest, key, Verb::Create, body)
}
