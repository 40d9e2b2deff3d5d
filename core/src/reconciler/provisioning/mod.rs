//! ProvisioningRequests of Workloads: created when quota is reserved, mapped to check states by their outcome, and
//! deleted when no attempt needs them.
//!
//! Invariants: the current attempt of a check has at most one request, owned by the Workload; its pod templates are
//! owned by the request; every delete carries the resourceVersion that it was decided on.

use crate::api::ObjectKey;
use crate::api::names;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::{
    AdmissionCheckState, CheckState, PodSetMergePolicy, ProvisioningRequestConfigSpec,
};
use crate::cache::provisioning::{RequestPodSet, RequestRecord, TemplateReference};
use crate::cache::records::{Meta, PodSetRecord, WorkloadRecord};
use crate::cache::{Cache, Kind};
use crate::lifecycle::provisioning::{
    self, CheckInput, ProvisioningOutcome, ProvisioningPodSet, RequestCondition,
};
use crate::lifecycle::{conditions, reservation};
use crate::reconciler::CoreSettings;
use crate::reconciler::events::workload_event;
use crate::reconciler::messages::Verb;
use crate::reconciler::unit::grants::apply_template_info;
use crate::reconciler::unit::units::Units;
use crate::reconciler::writes::request::{WriteRequest, delete_options};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An admission check of this controller on a Workload, with the request that its current attempt needs.
struct ProvisioningAttempt<'a> {
    state: &'a AdmissionCheckState,
    config: Option<&'a ProvisioningRequestConfigSpec>,
    name: String,
    entries: Vec<(String, i32)>,
}

/// Returns the ProvisioningRequestConfig that a check refers to, if it exists.
pub(crate) fn provisioning_config<'a>(
    cache: &'a Cache,
    check: &str,
) -> Option<&'a ProvisioningRequestConfigSpec> {
    let spec = &cache.check(check)?.object.spec;
    let parameters =
        spec.parameters.as_ref().filter(|reference| reference.kind == "ProvisioningRequestConfig");
    cache.provisioning_config(&parameters?.name)
}

/// Returns whether an admission check belongs to this controller.
fn is_provisioning_check(cache: &Cache, check: &str) -> bool {
    let controller = names::PROVISIONING_REQUEST_CONTROLLER;
    cache.check(check).is_some_and(|check| check.object.spec.controller_name == controller)
}

/// Reads the requests of Workloads and the states of the checks that follow from them.
#[derive(Clone, Copy)]
pub(crate) struct Provisioning<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) settings: &'a CoreSettings,
}

/// The next writes for the requests of a Workload.
#[derive(Default)]
pub(crate) struct ProvisioningWrites {
    pub(crate) requests: Vec<WriteRequest>,
    /// Whether the Workload must be read first: pod templates are made from it.
    pub(crate) needs_raw_workload: bool,
}

impl<'a> Provisioning<'a> {
    /// Returns the attempts for the checks of this controller on a Workload. Empty unless the Workload holds quota and
    /// is not evicted.
    fn attempts(self, record: &'a WorkloadRecord) -> Vec<ProvisioningAttempt<'a>> {
        let holds = reservation::holds_quota(&record.status)
            && !conditions::is_true(&record.status, ConditionType::Evicted);
        let off = !self.settings.gates.provisioning_requests;
        if off || !holds || record.status.admission_checks.is_empty() {
            return Vec::new();
        }
        let to_attempt = |state: &'a AdmissionCheckState| {
            let config = provisioning_config(self.cache, &state.name);
            let policy = config.and_then(|config| config.pod_set_merge_policy);
            let pod_sets = provisioning_pod_sets(record, policy);
            let entries =
                config.map(|config| provisioning::request_pod_sets(config, &pod_sets)).unwrap_or_default();
            let number = provisioning::attempt(state);
            let name = provisioning::request_name(&record.meta.key.name, &state.name, number);
            ProvisioningAttempt { state, config, name, entries }
        };
        let checks = record.status.admission_checks.iter();
        checks.filter(|state| is_provisioning_check(self.cache, &state.name)).map(to_attempt).collect()
    }

    /// Returns new states for the checks of this controller whose present state does not match the outcome of their
    /// request.
    pub(crate) fn check_states(self, record: &'a WorkloadRecord, now: Timestamp) -> Vec<AdmissionCheckState> {
        let admitted = conditions::is_true(&record.status, ConditionType::Admitted);
        let next_state = |attempt: ProvisioningAttempt<'_>| {
            let request = self.current_request(record, &attempt);
            let view = request.map(|request| provisioning::ProvisioningRequestView {
                name: &attempt.name,
                class: &request.spec.provisioning_class_name,
                outcome: request.outcome(admitted),
                details: &request.status.provisioning_class_details,
            });
            let ProvisioningAttempt { state, config, entries, .. } = &attempt;
            let (config, request, active) = (*config, view.as_ref(), record.active);
            provisioning::next_check_state(CheckInput { state, config, entries, request, active }, now)
        };
        self.attempts(record).into_iter().filter_map(next_state).collect()
    }

    /// Returns the request of the current attempt, if the Workload owns it, it is not being deleted, and it matches the attempt.
    /// The request of a Ready check need not match.
    fn current_request(
        self,
        record: &WorkloadRecord,
        attempt: &ProvisioningAttempt<'_>,
    ) -> Option<&'a RequestRecord> {
        let name = Arc::from(attempt.name.as_str());
        let key = ObjectKey { namespace: record.meta.key.namespace.clone(), name };
        let request = self.cache.provisioning_request(&key)?;
        let owned = request.owner.as_ref().is_some_and(|(uid, _)| *uid == record.meta.uid);
        let fits = attempt.state.state == CheckState::Ready || request.matches_attempt(record, attempt);
        // A request that is being deleted belongs to an earlier reservation; the next one may have its name.
        Some(request).filter(|request| owned && fits && !request.meta.is_deleting())
    }

    /// Returns the next writes for the requests of a Workload: deletes stale requests, and creates missing requests and pod
    /// templates.
    pub(crate) fn next_writes(self, key: &ObjectKey) -> ProvisioningWrites {
        let mut next = ProvisioningWrites::default();
        let Some(record) = self.cache.workload(key) else { return next };
        let attempts = self.attempts(record);
        let owned: Vec<&RequestRecord> = self.cache.provisioning_requests_of(&record.meta.uid).collect();
        if attempts.is_empty() && owned.is_empty() {
            return next;
        }
        next.requests = self.stale_request_deletions(record, &attempts, &owned);
        for attempt in attempts.iter().filter(|attempt| attempt.state.state == CheckState::Pending) {
            let Some(config) = attempt.config.filter(|_| !attempt.entries.is_empty()) else { continue };
            match self.current_request(record, attempt) {
                None => next.requests.push(create_request_write(record, attempt, config)),
                Some(request) => {
                    let templates = attempt.entries.iter().map(|(set, _)| (set, request.template_key(set)));
                    let missing: Vec<_> =
                        templates.filter(|(_, template)| !self.cache.has_pod_template(template)).collect();
                    next.needs_raw_workload |=
                        !missing.is_empty() && self.cache.raw_object(Kind::Workload, key).is_none();
                    for (set, template) in missing {
                        let body = self.template_body(record, request, set, &template);
                        next.requests.extend(
                            body.map(|body| {
                                WriteRequest::new(Kind::PodTemplate, template, Verb::Create, body)
                            }),
                        );
                    }
                }
            }
        }
        next
    }

    /// Returns the deletes of requests that no current attempt needs. After an eviction there are none unless the
    /// feature gate enables them.
    fn stale_request_deletions(
        self,
        record: &WorkloadRecord,
        attempts: &[ProvisioningAttempt<'_>],
        owned: &[&RequestRecord],
    ) -> Vec<WriteRequest> {
        let evicted = conditions::is_true(&record.status, ConditionType::Evicted);
        if evicted && !self.settings.gates.cleanup_provisioning_requests_on_eviction {
            return Vec::new();
        }
        let wanted: BTreeSet<&ObjectKey> = attempts
            .iter()
            .filter(|attempt| !attempt.entries.is_empty())
            .filter_map(|attempt| Some(&self.current_request(record, attempt)?.meta.key))
            .collect();
        let stale = owned.iter().map(|request| &request.meta);
        stale
            .filter(|meta| !wanted.contains(&meta.key) && !meta.is_deleting())
            .map(|meta| {
                let options = delete_options(meta);
                WriteRequest::new(Kind::ProvisioningRequest, meta.key.clone(), Verb::Delete, options)
            })
            .collect()
    }

    /// Returns the pod template for an entry of a request: the template of the pod set with what the admission adds.
    /// `None` if the raw Workload is not cached or the additions are not available.
    fn template_body(
        self,
        record: &WorkloadRecord,
        request: &RequestRecord,
        pod_set: &str,
        key: &ObjectKey,
    ) -> Option<Value> {
        let raw = self.cache.raw_object(Kind::Workload, &record.meta.key)?;
        let sets = raw.pointer("/spec/podSets").and_then(Value::as_array)?;
        let set = sets.iter().find(|set| set.get("name").and_then(Value::as_str) == Some(pod_set))?;
        let mut template = set.get("template").cloned()?;
        let infos =
            Units { cache: self.cache, settings: self.settings }.granted_pod_set_infos(record).ok()??;
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
        let reported: Vec<_> = conditions
            .iter()
            .map(|c| RequestCondition { kind: &c.type_, holds: c.status == "True", message: &c.message })
            .collect();
        ProvisioningOutcome::from_conditions(&reported, admitted)
    }

    fn template_key(&self, pod_set: &str) -> ObjectKey {
        let name = provisioning::template_name(&self.meta.key.name, pod_set);
        ObjectKey { namespace: self.meta.key.namespace.clone(), name: Arc::from(name) }
    }

    /// Returns whether the request equals the one that the attempt would create now.
    fn matches_attempt(&self, record: &WorkloadRecord, attempt: &ProvisioningAttempt<'_>) -> bool {
        let Some(config) = attempt.config else { return false };
        let entry = |(set, count): &(String, i32)| RequestPodSet {
            pod_template_ref: TemplateReference { name: provisioning::template_name(&attempt.name, set) },
            count: *count,
        };
        let entries: Vec<RequestPodSet> = attempt.entries.iter().map(entry).collect();
        !self.meta.is_deleting()
            && self.spec.provisioning_class_name == config.provisioning_class_name
            && self.spec.parameters
                == provisioning::parameters(config, &record.annotations.provisioning_parameters)
            && self.spec.pod_sets == entries
    }
}

/// Returns the pod sets of a Workload with their granted counts and requested resources. Pod sets with the same merge
/// key may share an entry of the request.
fn provisioning_pod_sets(
    record: &WorkloadRecord,
    policy: Option<PodSetMergePolicy>,
) -> Vec<ProvisioningPodSet> {
    let granted = |name: &str| {
        let admission = record.status.admission.as_ref()?;
        admission.pod_set_assignments.iter().find(|set| set.name == name)?.count
    };
    let to_pod_set = |set: &PodSetRecord| {
        let containers = set.spec.containers.iter().chain(set.spec.init_containers.iter().flatten());
        let requests = containers.filter_map(|c| c.resources.as_ref()?.requests.as_ref());
        let resources: BTreeSet<&String> = requests.flat_map(BTreeMap::keys).collect();
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
    record.pod_sets().iter().map(to_pod_set).collect()
}

/// Returns the metadata of an object that is controlled by another and garbage-collected with it.
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

/// Returns the write that creates the request of an attempt.
fn create_request_write(
    record: &WorkloadRecord,
    attempt: &ProvisioningAttempt<'_>,
    config: &ProvisioningRequestConfigSpec,
) -> WriteRequest {
    let name = attempt.name.as_str();
    let key = ObjectKey { namespace: record.meta.key.namespace.clone(), name: Arc::from(name) };
    let entry = |(set, count): &(String, i32)| {
        let template = provisioning::template_name(name, set);
        json!({"podTemplateRef": {"name": template}, "count": count})
    };
    let body = json!({
        "apiVersion": Kind::ProvisioningRequest.resource().api_version(),
        "kind": "ProvisioningRequest",
        "metadata": owned_metadata(Kind::Workload, &record.meta, &key),
        "spec": {
            "provisioningClassName": config.provisioning_class_name,
            "parameters": provisioning::parameters(config, &record.annotations.provisioning_parameters),
            "podSets": attempt.entries.iter().map(entry).collect::<Vec<_>>(),
        },
    });
    let note = format!("Created ProvisioningRequest: \"{name}\"");
    let created = workload_event(record, "ProvisioningRequestCreated", note);
    WriteRequest::new(Kind::ProvisioningRequest, key, Verb::Create, body).with_effects(vec![created])
}
