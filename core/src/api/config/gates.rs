//! Configured feature gates, checked against the table of Kueue's current and retired gates.
//!
//! A gate that is on by default is off while one of its parents is off: a configuration need not name what it cannot have. Kueue refuses
//! such a configuration. A gate that is turned on by name needs its parents.

use super::gate_table::{GATES, Gate, RETIRED, Retired, Support, on_off};
use super::{Problems, near_gates};
use std::collections::BTreeMap;

/// Kubernetes' names for all gates of a stage.
const STAGE_WIDE_GATES: [&str; 2] = ["AllAlpha", "AllBeta"];

/// Configured gates; all others have their default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates(BTreeMap<String, bool>);

impl FeatureGates {
    /// Creates the gates from a configuration; gates that are not listed have their default.
    pub const fn new(configured: BTreeMap<String, bool>) -> Self {
        Self(configured)
    }

    /// Returns whether a gate is on; unknown names are off.
    pub fn enabled(&self, name: &str) -> bool {
        let Some(gate) = Gate::find(name) else { return false };
        let configured = self.0.get(name).copied().filter(|_| gate.support != Support::Locked);
        configured.unwrap_or_else(|| gate.default && self.missing_parents(gate).next().is_none())
    }

    /// Returns the parents of a gate that are off.
    fn missing_parents(&self, gate: &Gate) -> impl Iterator<Item = &'static str> {
        gate.parents.iter().copied().filter(|parent| !self.enabled(parent))
    }
}

/// Returns all names that the tables know.
fn known_names() -> Vec<&'static str> {
    let retired = RETIRED.iter().map(|retired| retired.name);
    GATES.iter().map(|gate| gate.name).chain(retired).chain(STAGE_WIDE_GATES).collect()
}

/// Checks the configured gates. Adds an error for unsupported values, gates that are turned on while a parent is off, and unknown names
/// that resemble a gate. Any other unknown name is probably one of a later version: it has no effect, with a warning, which names the
/// gate that it extends.
pub(super) fn check(configured: &BTreeMap<String, bool>, problems: &mut Problems) -> FeatureGates {
    let gates = FeatureGates(configured.clone());
    let known = known_names();
    for (name, value) in configured {
        let path = format!("featureGates.{name}");
        if let Some(gate) = Gate::find(name) {
            // A gate whose parent is off has no effect, so any value is accepted.
            if *value || gate.parents.iter().all(|parent| gates.enabled(parent)) {
                check_value(gate, *value, &path, problems);
            }
        } else if let Some(retired) = RETIRED.iter().find(|retired| retired.name == name) {
            check_retired(retired, *value, &path, problems);
        } else if STAGE_WIDE_GATES.contains(&name.as_str()) {
            problems.error(&path, "is not supported; name each feature gate");
        } else if let Some(near) = near_gates::near(name, &known) {
            problems.error(&path, &format!("unknown feature gate; was {near} meant?"));
        } else {
            let extended = near_gates::extended(name, &known);
            let hint = extended.map_or_else(String::new, |gate| format!("; similar: {gate}"));
            problems.warn(&path, &format!("{UNKNOWN}{hint}"));
            problems.unknown_gates.push(name.clone());
        }
    }
    for gate in GATES.iter().filter(|gate| gates.enabled(gate.name)) {
        let off: Vec<&str> = gates.missing_parents(gate).collect();
        if !off.is_empty() {
            let text = format!("is on, but needs {}, which is off; set it to false as well", off.join(", "));
            problems.error(&format!("featureGates.{}", gate.name), &text);
        }
    }
    gates
}

/// Warning about a name that is no gate.
const UNKNOWN: &str = "unknown feature gate; it has no effect";

/// Checks the value of a retired gate. A file that Kueue 0.17 or later accepts is not refused for one.
fn check_retired(retired: &Retired, value: bool, path: &str, problems: &mut Problems) {
    match (retired.fixed_value.filter(|fixed| *fixed != value), retired.removed_in) {
        (None, _) => problems.warn(path, "this feature gate is retired and has no effect; remove it"),
        (Some(fixed), Some(version)) => {
            let fixed = on_off(fixed);
            let text =
                format!("has no effect: Kueue {version} has removed this feature gate; it is always {fixed}");
            problems.warn(path, &text);
        }
        (Some(fixed), None) => {
            problems.error(path, &format!("this feature gate is retired; it is always {}", on_off(fixed)));
        }
    }
}

/// Returns why a gate has no effect, or not all of it, or why it is off although its default is on; empty if there is no such reason.
pub(super) fn remark(gate: &Gate, gates: &FeatureGates) -> String {
    let on = gates.enabled(gate.name);
    match gate.support {
        Support::PartiallySupported(missing) | Support::Unsupported(missing) if on => {
            format!("no effect: {missing}")
        }
        _ if !on && gate.default && !gates.0.contains_key(gate.name) => {
            let off: Vec<&str> = gates.missing_parents(gate).collect();
            format!("needs {}, which is off", off.join(", "))
        }
        _ => String::new(),
    }
}

/// Checks one value. The default is always accepted; another value depends on the support of the gate.
fn check_value(gate: &Gate, value: bool, path: &str, problems: &mut Problems) {
    let differs = value != gate.default;
    match gate.support {
        Support::PartiallySupported(missing) | Support::Unsupported(missing) if value && gate.default => {
            problems.warn(path, &format!("has no effect: {missing}"));
        }
        Support::Unsupported(missing) if value => {
            problems.error(path, &format!("cannot be set to true: {missing}"));
        }
        Support::DefaultOnly(why) if differs => {
            problems.error(path, &format!("cannot be set to {value}: {why}"));
        }
        Support::PerformanceOnly if differs => {
            problems.warn(path, "has no effect: performance only");
        }
        Support::Locked if differs => {
            let locked = on_off(gate.default);
            problems.warn(
                path,
                &format!("has no effect: Kueue has locked this feature gate; it is always {locked}"),
            );
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns errors and warnings of a configuration of gates.
    fn found(gates: &[(&str, bool)]) -> (Vec<String>, Vec<String>) {
        let mut problems = Problems::default();
        let configured = gates.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        check(&configured, &mut problems);
        (problems.errors, problems.warnings)
    }

    #[test]
    fn gate_table_is_complete_and_sorted() {
        assert_eq!(GATES.len(), 80);
        assert!(GATES.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(RETIRED.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(RETIRED.iter().all(|retired| Gate::find(retired.name).is_none()));
        assert_eq!(GATES.iter().filter(|gate| gate.support == Support::Locked).count(), 2);
        assert!(!FeatureGates::default().enabled("PriorityBoost"));
        assert!(FeatureGates::default().enabled("PartialAdmission"));
    }

    /// Setting every gate to its default explicitly is not an error.
    #[test]
    fn explicit_defaults_are_accepted() {
        let all: Vec<(&str, bool)> = GATES.iter().map(|gate| (gate.name, gate.default)).collect();
        assert_eq!(found(&all).0, Vec::<String>::new());
        for gate in GATES {
            let parents = gate.parents.iter().map(|parent| Gate::find(parent).unwrap());
            assert!(parents.into_iter().all(|parent| parent.default), "{}", gate.name);
        }
    }

    #[test]
    fn check_cases() {
        let table = [
            ("PartialAdmission", true, 0, 0),
            ("PartialAdmission", false, 0, 0),
            ("SchedulingEquivalenceHashing", false, 1, 0),
            ("TASCacheTopologyTree", true, 0, 0),
            ("TASCacheTopologyTree", false, 0, 1),
            ("VectorizedResourceRequests", false, 0, 1),
            ("MultiKueue", true, 0, 1),
            ("MultiKueue", false, 0, 0),
            ("ElasticJobsViaWorkloadSlices", true, 0, 0),
            ("VisibilityOnDemand", true, 0, 0),
            ("VisibilityOnDemand", false, 0, 0),
            ("ReclaimablePods", false, 0, 0),
            ("DisableWaitForPodsReady", true, 0, 0),
            ("RejectUpdatesToCQWithInvalidOnFlavors", true, 0, 0),
            ("RemoveFinalizersWithStrictPatch", false, 1, 0),
            ("KueueDRARejectWorkloadsWhenDRADisabled", false, 1, 0),
            ("UnadmittedWorkloadsObservability", false, 1, 0),
            ("ConcurrentAdmission", true, 1, 0),
            ("ConcurrentAdmission", false, 0, 0),
            ("TLSOptions", false, 0, 1),
            ("TLSOptions", true, 0, 0),
            ("ManagedJobsNamespaceSelectorAlwaysRespected", false, 0, 1),
            ("PriorityBoost", true, 0, 0),
            ("NoSuchGate", false, 0, 1),
            ("NoSuchGate", true, 0, 1),
            ("PartialAdmision", true, 1, 0),
            ("partialadmission", false, 1, 0),
            ("LendingLimits", false, 1, 0),
            ("allalpha", false, 1, 0),
            ("AllAlpha", false, 1, 0),
            ("LendingLimit", true, 0, 1),
            ("LendingLimit", false, 0, 1),
            ("KeepQuotaForProvReqRetry", true, 1, 0),
            ("KeepQuotaForProvReqRetry", false, 0, 1),
            ("QueueVisibility", true, 0, 1),
            ("DynamicResourceAllocation", true, 0, 1),
        ];
        for (name, value, errors, warnings) in table {
            let problems = found(&[(name, value)]);
            assert_eq!(
                (problems.0.len(), problems.1.len()),
                (errors, warnings),
                "{name}={value}: {problems:?}"
            );
        }
    }

    /// Gates of Kueue 0.17 to 0.19 that later versions have removed or locked never refuse a file, whatever their value.
    #[test]
    fn gates_retired_since_0_17_are_warnings() {
        let removed = RETIRED.iter().filter(|retired| retired.removed_in.is_some()).map(|gate| gate.name);
        let locked = GATES.iter().filter(|gate| gate.support == Support::Locked).map(|gate| gate.name);
        let names: Vec<&str> = removed.chain(locked).collect();
        assert_eq!(names.len(), 17);
        for name in names {
            for value in [true, false] {
                let (errors, warnings) = found(&[(name, value)]);
                assert_eq!(errors, Vec::<String>::new(), "{name}={value}");
                let expected = usize::from(Gate::find(name).is_none_or(|gate| gate.default != value));
                assert_eq!(warnings.len(), expected, "{name}={value}: {warnings:?}");
            }
        }
        let off = FeatureGates::new([("TLSOptions".to_owned(), false)].into());
        assert!(off.enabled("TLSOptions"), "a locked gate keeps its default");
    }

    /// An unknown name is an error that names the gate that was meant, or a gate of a later version, which is off.
    #[test]
    fn unknown_gates_are_typing_errors_or_without_effect() {
        for (name, meant) in [
            ("TopologyAwareSchedulling", "TopologyAwareScheduling"),
            ("topologyAwareScheduling", "TopologyAwareScheduling"),
            ("VisiblityOnDemand", "VisibilityOnDemand"),
            ("MultiKueu", "MultiKueue"),
            ("QueueVisibilty", "QueueVisibility"),
            ("TopologyAwareScheduler", "TopologyAwareScheduling"),
            ("ElasticJobs", "ElasticJobsViaWorkloadSlices"),
        ] {
            let (errors, warnings) = found(&[(name, true)]);
            assert_eq!(errors, [format!("featureGates.{name}: unknown feature gate; was {meant} meant?")]);
            assert!(warnings.is_empty(), "{warnings:?}");
        }
        let (errors, warnings) = found(&[("MultiKueueOfLaterVersions", true)]);
        assert!(errors.is_empty(), "{errors:?}");
        assert!(warnings.iter().any(|warning| warning.ends_with("; similar: MultiKueue")), "{warnings:?}");
        let mut problems = Problems::default();
        let later = [("SchedulingOfLaterVersions".to_owned(), true)].into();
        let gates = check(&later, &mut problems);
        assert_eq!(problems.unknown_gates, ["SchedulingOfLaterVersions"]);
        assert!(!gates.enabled("SchedulingOfLaterVersions"));
    }

    /// For each of Kueue's dependencies: while the parent is off, the child is off by default, and turning it on is an error that names
    /// the parent.
    #[test]
    fn enabled_gate_requires_parent_gates() {
        assert_eq!(GATES.iter().filter(|gate| !gate.parents.is_empty()).count(), 17);
        let below = |parent: &str| -> Vec<(&str, bool)> {
            let children = GATES.iter().filter(|gate| gate.parents.contains(&parent));
            children.map(|gate| (gate.name, false)).collect()
        };
        for gate in GATES {
            for parent in gate.parents {
                let path = format!("featureGates.{}: is on, but needs", gate.name);
                let named = |errors: &[String]| errors.iter().any(|error| error.starts_with(&path));
                assert!(named(&found(&[(parent, false), (gate.name, true)]).0), "{path} {parent}");
                let mut without = below(parent);
                without.push((parent, false));
                let with_children = found(&without).0;
                assert!(!named(&with_children), "{path} {parent}");
                let switchable = Gate::find(parent).unwrap().support == Support::Toggleable;
                assert!(!switchable || with_children.is_empty(), "{path} {parent}: {with_children:?}");
                let mut problems = Problems::default();
                let alone = check(&[((*parent).to_owned(), false)].into(), &mut problems);
                assert!(!named(&problems.errors), "{path} {parent}: {problems:?}");
                assert!(!alone.enabled(gate.name) || alone.enabled(parent), "{}", gate.name);
            }
        }
    }
}
