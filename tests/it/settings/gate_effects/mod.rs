//! Every feature gate that can be switched has an effect: one input is played with the gate on and off, and the outcomes, a
//! decision, an answer or a write, differ as its row states. Settings come from a configuration, as in a manager.

mod played;
mod simulated;

use sluice::api::config::{self, Configuration};
use sluice::cli::manager::config_mapping;
use sluice::frameworks::known_frameworks;
use sluice::reconciler::CoreSettings;
use std::collections::BTreeSet;

/// A gate, an input, and its outcomes.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) gate: &'static str,
    /// Sections of the configuration besides the gates.
    pub(crate) sections: &'static str,
    /// Plays the input, and returns the outcome.
    pub(crate) play: fn(&Configuration) -> String,
    pub(crate) enabled: &'static str,
    pub(crate) disabled: &'static str,
}

impl Row {
    /// A row that needs no other settings.
    pub(crate) const ALONE: Self =
        Self { gate: "", sections: "", play: |_| String::new(), enabled: "", disabled: "" };

    /// A row whose outcome is the setting that the gate decides.
    const SETTING: Self = Self { enabled: "true", disabled: "false", ..Self::ALONE };

    fn outcome(&self, enabled: bool) -> String {
        let Self { gate, sections, .. } = self;
        let text = format!(
            "apiVersion: {}\nkind: Configuration\nfeatureGates: {{{gate}: {enabled}}}\n{sections}\n",
            config::API_VERSION
        );
        (self.play)(&config::parse(&text, &known_frameworks()).unwrap().configuration)
    }
}

/// Settings of a manager with this configuration.
pub(crate) fn core_settings(configuration: &Configuration) -> CoreSettings {
    config_mapping::core_settings(configuration, "sluice-system")
}

/// Gates that decide one setting of the core, whose effect `laws::gates` and `sim::gates` of its tests show: the setting.
const REACHED: [Row; 5] = [
    Row {
        gate: "CleanupProvisioningRequestsOnEviction",
        play: |configuration| {
            core_settings(configuration).gates.cleanup_provisioning_requests_on_eviction.to_string()
        },
        ..Row::SETTING
    },
    Row {
        gate: "FlavorFungibilityPreserveScanProgress",
        play: |configuration| core_settings(configuration).engine.gates.preserve_scan_progress.to_string(),
        ..Row::SETTING
    },
    Row {
        gate: "RecomputeAssignmentUponPreemptionTargetsOverlap",
        play: |configuration| core_settings(configuration).engine.gates.recompute_on_overlap.to_string(),
        ..Row::SETTING
    },
    Row {
        gate: "TASRecomputeAssignmentWithinSchedulingCycle",
        play: |configuration| core_settings(configuration).engine.gates.recompute_topology.to_string(),
        ..Row::SETTING
    },
    Row {
        gate: "TASReplaceNodeDueToNotReadyOverFixedTime",
        play: |configuration| {
            core_settings(configuration).gates.node_failures.unwrap().not_ready_over_fixed_time.to_string()
        },
        ..Row::SETTING
    },
];

fn rows() -> impl Iterator<Item = Row> {
    played::ROWS.into_iter().chain(REACHED)
}

#[test]
fn outcomes_differ_as_stated() {
    for row in rows() {
        assert_ne!(row.enabled, row.disabled, "{}", row.gate);
        assert_eq!(row.outcome(true), row.enabled, "{} is on", row.gate);
        assert_eq!(row.outcome(false), row.disabled, "{} is off", row.gate);
    }
}

#[test]
fn each_switchable_gate_has_a_row() {
    let page = config::feature_gates_page();
    let mut switchable = BTreeSet::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if cells.get(5) == Some(&"switchable") {
            switchable.insert(cells[1].to_owned());
        }
    }
    assert!(switchable.len() > 40, "{switchable:?}");
    let mut played: Vec<String> = rows().map(|row| row.gate.to_owned()).collect();
    played.extend(simulated::gates());
    let distinct: BTreeSet<String> = played.iter().cloned().collect();
    assert_eq!(distinct, switchable);
    assert_eq!(distinct.len(), played.len(), "a gate has two rows: {played:?}");
}
