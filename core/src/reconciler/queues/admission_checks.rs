//! AdmissionChecks of this manager's controllers, and MultiKueueClusters: whether they are active.
//!
//! Invariant: no workload gets or keeps quota while it waits for a check that no controller will ever set.

use crate::api::names::{MULTIKUEUE_CONTROLLER, PROVISIONING_REQUEST_CONTROLLER};
use crate::api::reason::ConditionType;
use crate::api::v1beta2::{AdmissionCheckState, CheckState};
use crate::cache::records::{CheckRecord, Meta, WorkloadRecord};
use crate::cache::{Cache, Kind};
use crate::lifecycle::conditions::{self, to_api_time};
use crate::reconciler::CoreGates;
use crate::reconciler::messages::Verb;
use crate::reconciler::provisioning::provisioning_config;
use crate::reconciler::queues::status::{ActiveCondition, set_active_condition};
use crate::reconciler::writes::request::WriteRequest;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;
use std::collections::BTreeMap;

/// Condition reason of objects that are accepted but have no effect.
const NOT_SUPPORTED: &str = "NotSupported";
/// Why MultiKueue checks are inactive.
const MULTIKUEUE_NOT_SUPPORTED: &str = "jobs are not sent to other clusters by this version";
/// Why a provisioning check without parameters is inactive.
const NO_PARAMETERS: &str = "The admission check refers to no ProvisioningRequestConfig that exists";
/// Why provisioning checks are inactive.
const PROVISIONING_OFF: &str = "ProvisioningRequests are switched off (--provisioning-requests=false)";

/// AdmissionChecks, with the settings that switch some controllers off.
#[derive(Clone, Copy)]
pub(crate) struct AdmissionChecks<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) gates: &'a CoreGates,
}

impl AdmissionChecks<'_> {
    /// Returns whether a check is active, so that workloads may wait for it. A check that this manager will never set is not
    /// active, even if an earlier manager has set its condition: no job would ever run.
    fn is_active(&self, name: &str) -> bool {
        let is_active = |check: &CheckRecord| {
            check.object.status.conditions.iter().any(|c| c.type_ == "Active" && c.status == "True")
        };
        self.cache.check(name).is_some_and(|check| self.never_set(check).is_none() && is_active(check))
    }

    /// Returns why this manager never sets a check although the check belongs to one of its controllers; `None` if it does.
    fn never_set(&self, check: &CheckRecord) -> Option<&'static str> {
        match check.object.spec.controller_name.as_str() {
            MULTIKUEUE_CONTROLLER => Some(MULTIKUEUE_NOT_SUPPORTED),
            PROVISIONING_REQUEST_CONTROLLER if !self.gates.provisioning_requests => Some(PROVISIONING_OFF),
            _ => None,
        }
    }

    /// Returns why these checks make a ClusterQueue inactive, as text for its condition.
    pub(super) fn inactive_text(&self, checks: &[&str]) -> Option<String> {
        let inactive: Vec<&str> = checks.iter().copied().filter(|name| !self.is_active(name)).collect();
        let never_set = |name: &str| self.cache.check(name).and_then(|check| self.never_set(check));
        let mut explained: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for name in inactive.iter().copied() {
            if let Some(reason) = never_set(name) {
                explained.entry(reason).or_default().push(name);
            }
        }
        let explained = explained.iter().map(|(reason, names)| format!(" ({}: {reason})", names.join(", ")));
        let why = explained.collect::<Vec<_>>().concat();
        let names = inactive.join(", ");
        (!inactive.is_empty()).then(|| format!("references inactive AdmissionCheck(s): {names}{why}"))
    }

    /// Returns the write of the status of a check of this manager's controllers; `None` if it is up to date.
    pub(super) fn own_status_write(&self, name: &str, now: Timestamp) -> Option<WriteRequest> {
        let record = self.cache.check(name).filter(|record| !record.meta.is_deleting())?;
        let message;
        let condition = match record.object.spec.controller_name.as_str() {
            PROVISIONING_REQUEST_CONTROLLER if !self.gates.provisioning_requests => {
                ActiveCondition { active: false, reason: NOT_SUPPORTED, message: PROVISIONING_OFF }
            }
            PROVISIONING_REQUEST_CONTROLLER if provisioning_config(self.cache, name).is_some() => {
                ActiveCondition { active: true, reason: "Active", message: "The admission check is active" }
            }
            PROVISIONING_REQUEST_CONTROLLER => {
                ActiveCondition { active: false, reason: "BadParametersRef", message: NO_PARAMETERS }
            }
            MULTIKUEUE_CONTROLLER => {
                message = unsupported_settings(record);
                ActiveCondition { active: false, reason: NOT_SUPPORTED, message: &message }
            }
            _ => return None,
        };
        let known = &record.object.status.conditions;
        active_condition_write(Kind::AdmissionCheck, &record.meta, known, condition, now)
    }

    /// Returns the states of the checks that this manager never sets and a Workload with quota waits for, set to `Retry`: this
    /// evicts the Workload and releases its quota.
    pub(crate) fn never_set_states(
        &self,
        record: &WorkloadRecord,
        now: Timestamp,
    ) -> Vec<AdmissionCheckState> {
        let waits = conditions::is_true(&record.status, ConditionType::QuotaReserved)
            && !conditions::is_true(&record.status, ConditionType::Admitted)
            && !conditions::is_true(&record.status, ConditionType::Evicted);
        let checks = record.status.admission_checks.iter().filter(|check| waits && check.state.is_waiting());
        let to_retry = |check: &AdmissionCheckState| {
            let reason = self.never_set(self.cache.check(check.name.as_str())?)?;
            Some(AdmissionCheckState {
                state: CheckState::Retry,
                message: reason.to_owned(),
                last_transition_time: to_api_time(now),
                ..check.clone()
            })
        };
        checks.filter_map(to_retry).collect()
    }
}

/// Returns the write that sets the condition of a MultiKueueCluster: this manager does not connect to it.
pub(crate) fn multikueue_cluster_write(name: &str, cache: &Cache, now: Timestamp) -> Option<WriteRequest> {
    let record = cache.multikueue_cluster(name).filter(|record| !record.meta.is_deleting())?;
    let inactive =
        ActiveCondition { active: false, reason: NOT_SUPPORTED, message: MULTIKUEUE_NOT_SUPPORTED };
    active_condition_write(Kind::MultiKueueCluster, &record.meta, &record.conditions, inactive, now)
}

/// Returns the write that sets the condition `Active` of an object with these conditions; `None` if it is set.
fn active_condition_write(
    kind: Kind,
    meta: &Meta,
    known: &[Condition],
    condition: ActiveCondition<'_>,
    now: Timestamp,
) -> Option<WriteRequest> {
    let mut conditions = known.to_vec();
    set_active_condition(&mut conditions, condition, meta.generation, now);
    (*conditions != *known).then(|| {
        let body = json!({
            "metadata": {"resourceVersion": meta.resource_version},
            "status": {"conditions": conditions},
        });
        WriteRequest::new(kind, meta.key.clone(), Verb::Merge, body).of_status()
    })
}

/// Returns a message that names the settings of a check that have no effect.
fn unsupported_settings(check: &CheckRecord) -> String {
    let parameters = check.object.spec.parameters.as_ref();
    let suffix = parameters
        .map(|to| format!(": {} {}, its clusters and its quotaManagement have no effect", to.kind, to.name));
    format!("{MULTIKUEUE_NOT_SUPPORTED}{}", suffix.unwrap_or_default())
}
