//! A recorded scenario: configuration, clock and objects before the scheduling cycle.

use crate::api::config::Duration;
use crate::cache::Kind;
use crate::reconciler::{CoreGates, CoreSettings, WriteLimits};
use crate::scheduler::{AdmissionFairSharing, EngineGates, EngineSettings, FairStrategy};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A scenario, one line of input.
#[derive(Clone, Debug, Deserialize)]
pub struct Scenario {
    /// Time of all cycles.
    pub now: Timestamp,
    /// Number of cycles to run.
    #[serde(default = "one")]
    pub cycles: u32,
    /// Settings that differ from the defaults.
    #[serde(default)]
    pub config: ScenarioConfig,
    /// Kubernetes objects with status, as stored in the API server.
    #[serde(default)]
    pub objects: Vec<Value>,
}

/// The part of the configuration on which decisions depend.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScenarioConfig {
    /// Whether preemption-based fair sharing is on.
    fair_sharing: bool,
    /// Strategies of fair sharing in order; both when empty.
    fair_strategies: Vec<String>,
    /// Admission fair sharing.
    admission_fair_sharing: Option<UsageConfig>,
    /// Feature gates that differ from their defaults.
    feature_gates: BTreeMap<String, bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct UsageConfig {
    usage_half_life_time: String,
    usage_sampling_interval: String,
    resource_weights: BTreeMap<String, f64>,
}

const fn one() -> u32 {
    1
}

/// Why a scenario cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError(String);

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScenarioError {}

impl Scenario {
    /// Parses one line.
    pub fn parse(line: &[u8]) -> Result<Self, ScenarioError> {
        serde_json::from_slice(line).map_err(|error| ScenarioError(error.to_string()))
    }

    /// Returns the settings of the core.
    pub(super) fn settings(&self) -> Result<CoreSettings, ScenarioError> {
        let config = &self.config;
        let on = config.feature_gates.get("AdmissionFairSharing").copied().unwrap_or(true);
        let usage = config.admission_fair_sharing.as_ref().filter(|_| on);
        let strategies = config.fair_strategies.iter().map(|name| parse_strategy(name));
        let strategies = strategies.collect::<Result<Vec<_>, _>>()?;
        let engine = EngineSettings {
            fair_sharing: config
                .fair_sharing
                .then(|| if strategies.is_empty() { default_strategies() } else { strategies }),
            admission_fair_sharing: usage.map(UsageConfig::settings).transpose()?,
            gates: engine_gates(&config.feature_gates),
            ..EngineSettings::default()
        };
        let writes = WriteLimits {
            status_writes_per_second: None,
            queue_status_interval: None,
            ..WriteLimits::default()
        };
        // Nodes of a scenario fail by its objects alone: none recovers or fails while it is decided on.
        let priority_boost = config.feature_gates.get("PriorityBoost").copied().unwrap_or(false);
        let gates = CoreGates { node_failures: None, priority_boost, ..CoreGates::default() };
        Ok(CoreSettings { engine, gates, writes, ..CoreSettings::default() })
    }

    /// Returns the objects of kinds on which decisions depend, without references to owners that a scenario does not
    /// contain.
    pub(super) fn known_objects(&self) -> impl Iterator<Item = (Kind, Value)> {
        self.objects.iter().enumerate().filter_map(|(index, object)| {
            let kind = kind_of(object)?;
            let mut object = object.clone();
            if kind == Kind::Workload {
                complete_workload(&mut object, index);
            }
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                // An object without a creation time has the zero time.
                metadata.entry("creationTimestamp").or_insert_with(|| json!(Timestamp::UNIX_EPOCH));
            }
            Some((kind, object))
        })
    }
}

impl UsageConfig {
    fn settings(&self) -> Result<AdmissionFairSharing, ScenarioError> {
        Ok(AdmissionFairSharing {
            half_life: parse_duration("usageHalfLifeTime", &self.usage_half_life_time)?,
            sampling_interval: parse_duration("usageSamplingInterval", &self.usage_sampling_interval)?,
            resource_weights: self
                .resource_weights
                .iter()
                .map(|(r, w)| (Arc::from(r.as_str()), *w))
                .collect(),
        })
    }
}

fn parse_duration(what: &str, text: &str) -> Result<SignedDuration, ScenarioError> {
    let parsed = if text.is_empty() { Some(Duration::default()) } else { Duration::parse(text) };
    let parsed = parsed.ok_or_else(|| ScenarioError(format!("{what}: {text:?} is not a duration")))?;
    Ok(parsed.signed())
}

fn default_strategies() -> Vec<FairStrategy> {
    vec![FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare]
}

fn parse_strategy(name: &str) -> Result<FairStrategy, ScenarioError> {
    match name {
        "LessThanOrEqualToFinalShare" => Ok(FairStrategy::LessThanOrEqualToFinalShare),
        "LessThanInitialShare" => Ok(FairStrategy::LessThanInitialShare),
        other => Err(ScenarioError(format!("fairStrategies: {other:?} is unknown"))),
    }
}

/// Returns the scheduler's gates; gates that do not change decisions are ignored.
fn engine_gates(set: &BTreeMap<String, bool>) -> EngineGates {
    let mut gates = EngineGates::default();
    for (name, value) in set {
        let gate = match name.as_str() {
            "PartialAdmission" => &mut gates.partial_admission,
            "FlavorFungibility" => &mut gates.flavor_fungibility,
            "FlavorFungibilityPreserveScanProgress" => &mut gates.preserve_scan_progress,
            "PrioritySortingWithinCohort" => &mut gates.priority_sorting_within_cohort,
            "FairSharingPreemptWithinNominal" => &mut gates.preempt_within_nominal,
            "FairSharingPrioritizeNonBorrowing" => &mut gates.prioritize_non_borrowing,
            "RecomputeAssignmentUponPreemptionTargetsOverlap" => &mut gates.recompute_on_overlap,
            "ConcurrentAdmission" => &mut gates.concurrent_admission,
            "MultiKueueOrchestratedPreemption" => &mut gates.orchestrated_preemption,
            "ElasticJobsViaWorkloadSlices" => &mut gates.elastic_slices,
            "ElasticJobsViaWorkloadSlicesWithTAS" => &mut gates.elastic_topology,
            "TopologyAwareScheduling" => &mut gates.topology,
            "TASFailedNodeReplacementFailFast" => &mut gates.fail_fast,
            "TASRecomputeAssignmentWithinSchedulingCycle" => &mut gates.recompute_topology,
            "TASProfileMixed" => &mut gates.placement.mixed_profile,
            "TASBalancedPlacement" => &mut gates.placement.balanced_placement,
            "TASRespectNodeAffinityPreferred" => &mut gates.placement.respect_preferred_affinity,
            _ => continue,
        };
        *gate = *value;
    }
    gates
}

/// Returns the kind of an object, if the core watches it.
pub(super) fn kind_of(object: &Value) -> Option<Kind> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    Kind::from_group_kind(group, text("kind"))
}

/// Adds fields that every stored Workload has, and replaces the reference to its job, which is not part of the scenario, by
/// one to an object whose pods never stop: what is evicted keeps its quota. It is one object, so that slices replace each other.
/// A missing UID is generated from the index, so that the order of the objects decides ties.
fn complete_workload(object: &mut Value, index: usize) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            labels.remove(crate::api::names::JOB_UID_LABEL);
        }
        if let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) {
            owners.retain(|owner| owner.get("kind").and_then(Value::as_str) == Some("Workload"));
        }
        let owners = metadata.entry("ownerReferences").or_insert_with(|| json!([]));
        if owners.as_array().is_some_and(Vec::is_empty) {
            let name = "jobs";
            let owner = json!({"apiVersion": "example.com/v1", "kind": "Jobs", "name": name, "uid": name, "controller": true});
            *owners = json!([owner]);
        }
        metadata.entry("uid").or_insert_with(|| json!(format!("{index:08}")));
    }
    let checks = object.pointer_mut("/status/admissionChecks").and_then(Value::as_array_mut);
    for check in checks.into_iter().flatten().filter_map(Value::as_object_mut) {
        check.entry("lastTransitionTime").or_insert_with(|| json!(Timestamp::UNIX_EPOCH));
    }
}
