//! AdmissionChecks of this manager's controllers, and MultiKueueClusters: whether they are active.
//!
//! Invariant: no workload gets or keeps quota while it waits for a check that no controller will ever set.

use crate::api::ObjectKey;
use crate::api::names::{MULTIKUEUE_CONTROLLER, PROVISIONING_REQUEST_CONTROLLER};
use crate::api::reason::ConditionType;
use crate::api::v1beta2::{AdmissionCheckState, CheckState};
use crate::cache::Kind;
use crate::cache::records::{CheckRecord, Meta, WorkloadRecord};
use crate::lifecycle::conditions::{self, to_api_time};
use crate::reconciler::Reconciler;
use crate::reconciler::messages::Verb;
use crate::reconciler::queues::status::{ActiveCondition, set_active_condition};
use crate::reconciler::writes::in_flight::WriteRequest;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};
use std::sync::Arc;

/// Condition reason of objects that are accepted but have no effect.
const NOT_SUPPORTED: &str = "NotSupported";
/// Why MultiKueue checks are inactive.
const MULTIKUEUE_NOT_SUPPORTED: &str = "jobs are not sent to other clusters by this version";
/// Why provisioning checks are inactive.
const PROVISIONING_OFF: &str = "ProvisioningRequests are switched off (--provisioning-requests=false)";

impl Reconciler {
    /// Returns whether a check is active, so that workloads may wait for it. A check that this manager will never set is not,
    /// even if an earlier manager has set its condition: no job would ever run.
    pub(crate) fn check_is_active(&self, name: &str) -> bool {
        let is_active = |check: &CheckRecord| {
            check.object.status.conditions.iter().any(|c| c.type_ == "Active" && c.status == "True")
        };
        self.cache.check(name).is_some_and(|check| self.never_set(check).is_none() && is_active(check))
    }

    /// Returns why this manager never sets a check, although it belongs to one of its controllers.
    fn never_set(&self, check: &CheckRecord) -> Option<&'static str> {
        match check.object.spec.controller_name.as_str() {
            MULTIKUEUE_CONTROLLER => Some(MULTIKUEUE_NOT_SUPPORTED),
            PROVISIONING_REQUEST_CONTROLLER if !self.settings.gates.provisioning_requests => {
                Some(PROVISIONING_OFF)
            }
            _ => None,
        }
    }

    /// Returns why these checks make a ClusterQueue inactive, as text for its condition.
    pub(crate) fn inactive_checks(&self, checks: &[&str]) -> Option<String> {
        let inactive: Vec<&str> = checks.iter().copied().filter(|name| !self.check_is_active(name)).collect();
        let never_set = |name: &str| self.cache.check(name).and_then(|check| self.never_set(check));
        let explained = [MULTIKUEUE_NOT_SUPPORTED, PROVISIONING_OFF].map(|reason| {
            let names = inactive.iter().copied().filter(|name| never_set(name) == Some(reason));
            let names: Vec<&str> = names.collect();
            if names.is_empty() { String::new() } else { format!(" ({}: {reason})", names.join(", ")) }
        });
        let why = explained.concat();
        let names = inactive.join(", ");
        (!inactive.is_empty()).then(|| format!("references inactive AdmissionCheck(s): {names}{why}"))
    }

    /// Sets the condition of a MultiKueueCluster: this manager does not connect to it.
    pub(crate) fn step_multikueue_cluster(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some(record) = self.cache.multikueue_cluster(name).filter(|record| !record.meta.deleting) else {
            return;
        };
        let mut conditions = record.conditions.clone();
        let inactive =
            ActiveCondition { active: false, reason: NOT_SUPPORTED, message: MULTIKUEUE_NOT_SUPPORTED };
        set_active_condition(&mut conditions, inactive, record.meta.generation, now);
        if conditions != record.conditions {
            let body = status_patch(&record.meta, &conditions);
            let key = ObjectKey::cluster(name);
            let request = WriteRequest::new(Kind::MultiKueueCluster, key, Verb::Merge, body);
            self.writes.start(request.of_status(), now);
        }
    }

    /// Returns the status of a check of this manager's controllers, as a merge patch; `None` if it is up to date.
    pub(crate) fn own_check_status(&self, name: &str, now: Timestamp) -> Option<Value> {
        let record = self.cache.check(name).filter(|record| !record.meta.deleting)?;
        let (active, reason, message) = match record.object.spec.controller_name.as_str() {
            PROVISIONING_REQUEST_CONTROLLER if !self.settings.gates.provisioning_requests => {
                (false, NOT_SUPPORTED, PROVISIONING_OFF.to_owned())
            }
            PROVISIONING_REQUEST_CONTROLLER => self.provisioning_check_activity(name),
            MULTIKUEUE_CONTROLLER => (false, NOT_SUPPORTED, unsupported_settings(record)),
            _ => return None,
        };
        let mut conditions = record.object.status.conditions.clone();
        let condition = ActiveCondition { active, reason, message: &message };
        set_active_condition(&mut conditions, condition, record.meta.generation, now);
        (conditions != record.object.status.conditions).then(|| status_patch(&record.meta, &conditions))
    }

    /// Returns the states of the checks that this manager never sets and a Workload with quota waits for, set to `Retry`: this
    /// evicts the Workload and releases its quota.
    pub(crate) fn never_set_check_states(
        &self,
        record: &WorkloadRecord,
        now: Timestamp,
    ) -> Vec<AdmissionCheckState> {
        let waits = conditions::is_true(&record.status, ConditionType::QuotaReserved)
            && !conditions::is_true(&record.status, ConditionType::Admitted)
            && !conditions::is_true(&record.status, ConditionType::Evicted);
        let checks =
            record.status.admission_checks.iter().filter(|check| waits && check.state == CheckState::Pending);
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

fn status_patch(meta: &Meta, conditions: &[Condition]) -> Value {
    json!({
        "metadata": {"resourceVersion": meta.resource_version},
        "status": {"conditions": conditions},
    })
}

/// Returns a message that names the settings of a check that have no effect.
fn unsupported_settings(check: &CheckRecord) -> String {
    let parameters = check.object.spec.parameters.as_ref();
    let suffix = parameters
        .map(|to| format!(": {} {}, its clusters and its quotaManagement have no effect", to.kind, to.name));
    format!("{MULTIKUEUE_NOT_SUPPORTED}{}", suffix.unwrap_or_default())
}
