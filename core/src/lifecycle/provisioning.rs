//! The admission check that requests capacity from a cluster autoscaler: computes the state of the check from the
//! outcome of its ProvisioningRequest.
//!
//! Invariants: a Ready check stays Ready unless the request fails, the booking expires before admission, the capacity
//! of an active workload is revoked, or the check becomes inactive. Each attempt has its own request, named by the
//! attempt number, so that the outcome of an earlier attempt is never taken for the current one. Time is an argument.

use super::backoff;
use super::conditions::to_api_time;
use crate::api::v1beta2::{
    AdmissionCheckState, CheckState, PodSetUpdate, ProvisioningRequestConfigSpec,
    ProvisioningRequestRetryStrategy,
};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Prefix of the Workload annotations that become parameters of the request.
pub const PARAMETER_PREFIX: &str = "provreq.kueue.x-k8s.io/";
/// Annotations by which a pod names its ProvisioningRequest. They are never changed.
pub const POD_ANNOTATIONS: [&str; 2] = [CONSUME_ANNOTATION, CLASS_NAME_ANNOTATION];
/// Pod annotation: name of the request whose capacity the pod uses.
const CONSUME_ANNOTATION: &str = "autoscaling.x-k8s.io/consume-provisioning-request";
/// Pod annotation: provisioning class of that request.
const CLASS_NAME_ANNOTATION: &str = "autoscaling.x-k8s.io/provisioning-class-name";
/// Maximum length of an unshortened request name. A longer name is cut to this length and gets 6 more characters: `-`
/// and 5 digits of a digest of the full name.
const MAX_NAME_LENGTH: usize = 246;

/// What the autoscaler has reported so far: the condition with the highest precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProvisioningOutcome {
    /// No condition is True.
    None,
    /// The request is being processed; the message states the expected time, if known.
    Accepted(String),
    /// The capacity is available.
    Provisioned(String),
    /// The request failed.
    Failed(String),
    /// The capacity was booked, but the booking has expired.
    Expired(String),
    /// The capacity was revoked.
    Revoked(String),
}

/// A condition of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestCondition<'a> {
    /// Condition type.
    pub kind: &'a str,
    /// Whether its status is True.
    pub holds: bool,
    /// Human-readable message.
    pub message: &'a str,
}

impl ProvisioningOutcome {
    /// Returns the outcome that conditions report. An expired booking is ignored for an admitted workload.
    pub fn from_conditions(conditions: &[RequestCondition<'_>], admitted: bool) -> Self {
        let said = |kind: &str| {
            let found = conditions.iter().find(|condition| condition.kind == kind);
            found.filter(|condition| condition.holds).map(|condition| condition.message.to_owned())
        };
        let eta = || {
            let found = conditions.iter().find(|condition| condition.kind == "Provisioned");
            found.map(|condition| condition.message.to_owned()).unwrap_or_default()
        };
        let answers = [
            said("Failed").map(Self::Failed),
            said("CapacityRevoked").map(Self::Revoked),
            said("BookingExpired").filter(|_| !admitted).map(Self::Expired),
            said("Provisioned").map(Self::Provisioned),
            said("Accepted").map(|_| Self::Accepted(eta())),
        ];
        answers.into_iter().flatten().next().unwrap_or(Self::None)
    }
}

/// A ProvisioningRequest as stored in the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvisioningRequestView<'a> {
    /// Name of the request.
    pub name: &'a str,
    /// Provisioning class that the request was created with.
    pub class: &'a str,
    /// Outcome reported by the autoscaler.
    pub outcome: ProvisioningOutcome,
    /// Provisioning class details in the status of the request.
    pub details: &'a BTreeMap<String, String>,
}

/// Returns the number of the current attempt, counted from 1.
pub fn attempt(state: &AdmissionCheckState) -> i32 {
    state.retry_count.unwrap_or(0).saturating_add(1)
}

/// Returns the name of the request of an attempt.
pub fn request_name(workload: &str, check: &str, attempt: i32) -> String {
    let whole = format!("{workload}-{check}-{attempt}");
    if whole.len() <= MAX_NAME_LENGTH {
        return whole;
    }
    let head: String = whole.chars().take(MAX_NAME_LENGTH).collect();
    let tail: String = digest(whole.as_bytes()).chars().take(5).collect();
    format!("{head}-{tail}")
}

/// Returns the SHA-256 digest in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Returns the name of the PodTemplate of a pod set in a request.
pub fn template_name(request: &str, pod_set: &str) -> String {
    format!("ppt-{request}-{pod_set}")
}

/// A pod set that may need capacity from the autoscaler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvisioningPodSet {
    /// Name of the pod set.
    pub name: String,
    /// Number of pods.
    pub count: i32,
    /// Names of the resources that a pod requests.
    pub resources: Vec<String>,
    /// Key of the pod template under the merge policy; pod sets with equal keys are merged into one entry.
    pub merge_key: String,
}

/// Returns the entries of a request: name and count of each pod set that requests a managed resource; without managed
/// resources, of each pod set. With a merge policy, pod sets with equal merge keys become one entry under the name of
/// the first.
pub fn request_pod_sets(
    config: &ProvisioningRequestConfigSpec,
    needs: &[ProvisioningPodSet],
) -> Vec<(String, i32)> {
    let managed = |need: &&ProvisioningPodSet| {
        need.count > 0
            && (config.managed_resources.is_empty()
                || need.resources.iter().any(|name| config.managed_resources.contains(name)))
    };
    let mut found: Vec<(&ProvisioningPodSet, i32)> = Vec::new();
    for need in needs.iter().filter(managed) {
        let merges = config.pod_set_merge_policy.is_some();
        match found.iter_mut().find(|(known, _)| merges && known.merge_key == need.merge_key) {
            Some((_, count)) => *count = count.saturating_add(need.count),
            None => found.push((need, need.count)),
        }
    }
    found.into_iter().map(|(need, count)| (need.name.clone(), count)).collect()
}

/// Returns the parameters of a request: the parameters of the configuration, overridden by Workload annotations.
pub fn parameters(
    config: &ProvisioningRequestConfigSpec,
    annotations: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let own = annotations
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(PARAMETER_PREFIX)?.to_owned(), value.clone())));
    config.parameters.clone().into_iter().chain(own).collect()
}

/// What the next state of a check depends on.
#[derive(Clone, Copy, Debug)]
pub struct CheckInput<'a> {
    /// Its state.
    pub state: &'a AdmissionCheckState,
    /// Its configuration; absent if the check is not active.
    pub config: Option<&'a ProvisioningRequestConfigSpec>,
    /// Pod sets of the request, with the number of pods of each.
    pub entries: &'a [(String, i32)],
    /// The request of the current attempt, if it exists.
    pub request: Option<&'a ProvisioningRequestView<'a>>,
    /// Whether the Workload is active.
    pub active: bool,
}

/// Returns the next state of the check, or `None` if it does not change.
pub fn next_check_state(input: CheckInput<'_>, now: Timestamp) -> Option<AdmissionCheckState> {
    let CheckInput { state, config, entries, request, active } = input;
    if matches!(state.state, CheckState::Retry | CheckState::Rejected) {
        return None;
    }
    let mut next = AdmissionCheckState { message: String::new(), ..state.clone() };
    let Some(config) = config else {
        next.state = CheckState::Pending;
        "the check is not active".clone_into(&mut next.message);
        return with_transition_time(state, next, now);
    };
    if entries.is_empty() {
        next.state = CheckState::Ready;
        "the provisioning request is not needed".clone_into(&mut next.message);
        return with_transition_time(state, next, now);
    }
    let request = request?;
    let strategy = config.retry_strategy.clone().unwrap_or_default();
    match &request.outcome {
        ProvisioningOutcome::Failed(message) => apply_failure(&mut next, &strategy, "failure", message),
        ProvisioningOutcome::Expired(message) => {
            apply_failure(&mut next, &strategy, "booking expired", message);
        }
        ProvisioningOutcome::Revoked(message) if active => {
            next.state = CheckState::Rejected;
            next.message.clone_from(message);
        }
        ProvisioningOutcome::Revoked(_) => return None,
        _ if state.state == CheckState::Ready => return None,
        ProvisioningOutcome::Provisioned(message) => {
            next.state = CheckState::Ready;
            next.message.clone_from(message);
            next.pod_set_updates = pod_set_updates(config, entries, request);
        }
        ProvisioningOutcome::Accepted(eta) => {
            next.state = CheckState::Pending;
            next.message.clone_from(eta);
        }
        ProvisioningOutcome::None => next.state = CheckState::Pending,
    }
    with_transition_time(state, next, now)
}

fn apply_failure(
    next: &mut AdmissionCheckState,
    strategy: &ProvisioningRequestRetryStrategy,
    why: &str,
    message: &str,
) {
    let attempt = attempt(next);
    if attempt > strategy.backoff_limit_count.unwrap_or(3) {
        next.state = CheckState::Rejected;
        message.clone_into(&mut next.message);
        return;
    }
    let base = backoff::seconds(strategy.backoff_base_seconds.unwrap_or(60));
    let most = backoff::seconds(strategy.backoff_max_seconds.unwrap_or(1800));
    let wait = backoff::exponential(base, most, attempt.unsigned_abs());
    next.state = CheckState::Retry;
    next.message = format!("Retrying after {why}: {message}");
    next.requeue_after_seconds = Some(i32::try_from(wait.as_secs()).unwrap_or(i32::MAX));
}

fn pod_set_updates(
    config: &ProvisioningRequestConfigSpec,
    entries: &[(String, i32)],
    request: &ProvisioningRequestView<'_>,
) -> Vec<PodSetUpdate> {
    let wanted = config.pod_set_updates.iter().flat_map(|updates| &updates.node_selector);
    let selector: BTreeMap<String, String> = wanted
        .filter_map(|entry| {
            let value = request.details.get(&entry.value_from_provisioning_class_detail)?;
            Some((entry.key.clone(), value.clone()))
        })
        .collect();
    let update = |(name, _): &(String, i32)| PodSetUpdate {
        name: name.clone(),
        annotations: BTreeMap::from([
            (CONSUME_ANNOTATION.to_owned(), request.name.to_owned()),
            (CLASS_NAME_ANNOTATION.to_owned(), request.class.to_owned()),
        ]),
        node_selector: selector.clone(),
        ..PodSetUpdate::default()
    };
    entries.iter().map(update).collect()
}

/// Sets the transition time if the state has changed. Returns the new state, or `None` if it equals the old one.
fn with_transition_time(
    old: &AdmissionCheckState,
    mut new: AdmissionCheckState,
    now: Timestamp,
) -> Option<AdmissionCheckState> {
    if old.state != new.state {
        new.last_transition_time = to_api_time(now);
    }
    (*old != new).then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::v1beta2::{
        PodSetMergePolicy, ProvisioningRequestNodeSelector, ProvisioningRequestPodSetUpdates,
    };

    fn now() -> Timestamp {
        Timestamp::from_second(1_000).unwrap()
    }

    fn pending(retries: Option<i32>) -> AdmissionCheckState {
        AdmissionCheckState {
            name: "check".into(),
            state: CheckState::Pending,
            last_transition_time: to_api_time(Timestamp::UNIX_EPOCH),
            message: String::new(),
            requeue_after_seconds: None,
            retry_count: retries,
            pod_set_updates: Vec::new(),
        }
    }

    fn outcome_of(
        retries: Option<i32>,
        said: &[(&str, bool, &str)],
        admitted: bool,
    ) -> Option<AdmissionCheckState> {
        let config = ProvisioningRequestConfigSpec {
            provisioning_class_name: "class".into(),
            pod_set_updates: Some(ProvisioningRequestPodSetUpdates {
                node_selector: vec![
                    ProvisioningRequestNodeSelector {
                        key: "pool".into(),
                        value_from_provisioning_class_detail: "group".into(),
                    },
                    ProvisioningRequestNodeSelector {
                        key: "zone".into(),
                        value_from_provisioning_class_detail: "absent".into(),
                    },
                ],
            }),
            ..ProvisioningRequestConfigSpec::default()
        };
        let details = BTreeMap::from([("group".to_owned(), "g7".to_owned())]);
        let said =
            said.iter().map(|(kind, holds, message)| RequestCondition { kind, holds: *holds, message });
        let answer = ProvisioningOutcome::from_conditions(&said.collect::<Vec<_>>(), admitted);
        let request =
            ProvisioningRequestView { name: "w-check-1", class: "class", outcome: answer, details: &details };
        let input = CheckInput {
            state: &pending(retries),
            config: Some(&config),
            entries: &[("main".to_owned(), 2)],
            request: Some(&request),
            active: true,
        };
        next_check_state(input, now())
    }

    #[test]
    fn next_check_state_cases() {
        use CheckState::{Pending, Ready, Rejected, Retry};
        type Row<'a> = (Option<i32>, &'a [(&'a str, bool, &'a str)], bool, Option<(CheckState, &'a str)>);
        let table: &[Row<'_>] = &[
            (None, &[], false, None),
            (None, &[("Accepted", true, "")], false, None),
            (
                None,
                &[("Accepted", true, ""), ("Provisioned", false, "in 5 minutes")],
                false,
                Some((Pending, "in 5 minutes")),
            ),
            (None, &[("Accepted", true, ""), ("Provisioned", true, "ok")], false, Some((Ready, "ok"))),
            (
                None,
                &[("Provisioned", true, "ok"), ("Failed", true, "no capacity")],
                false,
                Some((Retry, "Retrying after failure: no capacity")),
            ),
            (Some(3), &[("Failed", true, "no capacity")], false, Some((Rejected, "no capacity"))),
            (
                Some(2),
                &[("Provisioned", true, ""), ("BookingExpired", true, "late")],
                false,
                Some((Retry, "Retrying after booking expired: late")),
            ),
            (
                None,
                &[("Provisioned", true, "ok"), ("BookingExpired", true, "late")],
                true,
                Some((Ready, "ok")),
            ),
            (
                None,
                &[("Provisioned", true, "ok"), ("CapacityRevoked", true, "gone")],
                true,
                Some((Rejected, "gone")),
            ),
        ];
        for (retries, said, admitted, want) in table {
            let found = outcome_of(*retries, said, *admitted);
            let found = found.as_ref().map(|state| (state.state.clone(), state.message.as_str()));
            assert_eq!(found, *want, "{retries:?} {said:?} {admitted}");
        }
    }

    #[test]
    fn retry_wait_doubles_and_ready_sets_podset_updates() {
        for (retries, seconds) in [(None, 60), (Some(1), 120), (Some(2), 240)] {
            let found = outcome_of(retries, &[("Failed", true, "")], false).unwrap();
            assert_eq!(found.requeue_after_seconds, Some(seconds));
            assert_eq!(found.last_transition_time, to_api_time(now()));
        }
        let ready = outcome_of(None, &[("Provisioned", true, "")], false).unwrap();
        let update = ready.pod_set_updates.first().unwrap();
        assert_eq!(update.name, "main");
        assert_eq!(update.annotations.get(CONSUME_ANNOTATION).map(String::as_str), Some("w-check-1"));
        assert_eq!(update.node_selector, BTreeMap::from([("pool".to_owned(), "g7".to_owned())]));
    }

    #[test]
    fn unmanaged_resources_need_no_request() {
        let need = |name: &str, resource: &str| ProvisioningPodSet {
            name: name.into(),
            count: 2,
            resources: vec![resource.into()],
            merge_key: "same".into(),
        };
        let mut config = ProvisioningRequestConfigSpec {
            managed_resources: vec!["gpu".into()],
            ..ProvisioningRequestConfigSpec::default()
        };
        let needs = [need("a", "cpu"), need("b", "gpu"), need("c", "gpu")];
        assert_eq!(request_pod_sets(&config, &needs), [("b".to_owned(), 2), ("c".to_owned(), 2)]);
        config.pod_set_merge_policy = Some(PodSetMergePolicy::IdenticalPodTemplates);
        assert_eq!(request_pod_sets(&config, &needs), [("b".to_owned(), 4)]);
        assert_eq!(request_pod_sets(&config, &needs[..1]), []);
        let state = pending(None);
        let input =
            CheckInput { state: &state, config: Some(&config), entries: &[], request: None, active: true };
        let ready = next_check_state(input, now()).unwrap();
        assert_eq!(
            (ready.state, &*ready.message),
            (CheckState::Ready, "the provisioning request is not needed")
        );
        let idle = next_check_state(CheckInput { config: None, ..input }, now()).unwrap();
        assert_eq!((idle.state, &*idle.message), (CheckState::Pending, "the check is not active"));
    }

    #[test]
    fn long_request_names_end_in_digest() {
        let long = "w".repeat(250);
        let (one, two) = (request_name(&long, "check", 1), request_name(&long, "check", 2));
        assert_eq!((one.len(), two.len()), (252, 252));
        assert_ne!(one, two);
        assert_eq!(request_name("w", "check", 3), "w-check-3");
    }

    #[test]
    fn annotations_override_parameters() {
        let config = ProvisioningRequestConfigSpec {
            parameters: BTreeMap::from([("a".into(), "1".into()), ("b".into(), "2".into())]),
            ..ProvisioningRequestConfigSpec::default()
        };
        let annotations = BTreeMap::from([
            (format!("{PARAMETER_PREFIX}b"), "3".to_owned()),
            ("other".to_owned(), "4".to_owned()),
        ]);
        let want = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "3".to_owned())]);
        assert_eq!(parameters(&config, &annotations), want);
    }
}
