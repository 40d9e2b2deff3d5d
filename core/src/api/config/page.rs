//! docs/configure.md: the table of settings as a Markdown page, with the meaning and default of each from the types.

use super::in_force::shown_value;
use super::schema_check::leaves;
use super::setting_table::{self, Setting, Support};
use super::{
    AdmissionFairSharing, Configuration, FairSharing, IncrementalDispatcher, MultiKueue,
    ObjectRetentionPolicies, Tls, WorkloadRetention,
};
use serde_json::Value;
use std::fmt::Write;

/// Returns the page.
pub fn page() -> String {
    // The types always serialize.
    let defaults = serde_json::to_value(all_sections()).unwrap_or_default();
    let mut page = PAGE_HEAD.to_owned();
    for (path, meaning) in leaves() {
        let Some(setting) = setting_table::find(&path) else { continue };
        let default = default_of(setting, &defaults).replace('|', "\\|");
        let meaning = meaning.replace('\n', " ").replace('|', "\\|");
        let (here, change) = (description(setting.support), if setting.live { "at once" } else { "" });
        // Writing to a String does not fail.
        let _ = writeln!(page, "| `{path}` | {default} | {meaning} | {here} | {change} |");
    }
    page
}

/// Returns the defaults of all settings, with the sections that are absent by default.
fn all_sections() -> Configuration {
    let multi_kueue = MultiKueue {
        incremental_dispatcher_config: Some(IncrementalDispatcher::default()),
        ..MultiKueue::default()
    };
    Configuration {
        api_version: super::API_VERSION.to_owned(),
        kind: "Configuration".to_owned(),
        tls: Some(Tls::default()),
        multi_kueue: Some(multi_kueue),
        fair_sharing: Some(FairSharing::default()),
        admission_fair_sharing: Some(AdmissionFairSharing::default()),
        object_retention_policies: Some(ObjectRetentionPolicies {
            workloads: Some(WorkloadRetention::default()),
        }),
        ..Configuration::default()
    }
}

fn default_of(setting: &Setting, defaults: &Value) -> String {
    let value = setting.pointer().and_then(|pointer| defaults.pointer(&pointer).and_then(shown_value));
    let words = || setting.default.map(ToOwned::to_owned);
    value.map(|value| format!("`{value}`")).or_else(words).unwrap_or_default()
}

fn description(support: Support) -> String {
    match support {
        Support::Honoured => "honoured".to_owned(),
        Support::Unless(gate, value) => {
            format!("honoured unless feature gate {gate} is {}", if value { "on" } else { "off" })
        }
        Support::Conditional(otherwise) => format!("honoured; {otherwise}"),
        Support::DefaultOnly(why) => format!("default only: {why}"),
        Support::Ignored(why) => format!("no effect, with a warning: {why}"),
        Support::Refused(why) => format!("refused: {why}"),
    }
}

const PAGE_HEAD: &str = "# Configuration

Written by `make settings` from `core/src/api/config/setting_table.rs` and `types.rs`; a test fails when it is stale.

The manager reads Kueue's configuration file (`config.kueue.x-k8s.io/v1beta2`), which `--config` names. A file has the same meaning as
for Kueue, or is refused with the path of each field that is wrong: an unknown field, a value that is not valid, a setting whose absence
would change scheduling. What else is missing is named in a warning. Before you apply a file:

    sluice config check controller_manager_config.yaml

prints its errors and warnings, then each setting and feature gate with the value that is in force, whether the file sets it, and why
it has no effect if it has none. It exits with 1 if the manager would refuse the file, and for an unknown feature gate, with which the manager
starts if it resembles none. `-` reads standard input, as in
`kubectl -n kueue-system get configmap kueue-manager-config -o jsonpath='{.data.controller_manager_config\\.yaml}' | sluice config check -`.
Pass `--feature-gates` and `--framework-file` as you give them to the manager. [Flags](flags.md) set what Kueue's file does not have,
but for `visibility.userLabel`: Kueue refuses a file with it, so remove it before you go back. [Feature gates](feature-gates.md) have
a page of their own.

Empty text, a zero duration and `null` have the meaning that they have for Kueue. A file without content, as one with comments alone, and one
with several documents are refused: the manager has its defaults only where no file is named. Addresses to listen at are `:PORT`, `HOST:PORT` with an
IP address or `localhost`, or `0` for none; two listeners on one address are refused.

## Changes without a restart

While the manager runs it reads the file again, and changes marked *at once* below are in force within seconds of the update of the
mount, which the kubelet does within about a minute. Any other change is named in a warning of the log and waits for the next start:
what a workload is charged must not depend on when a replica has read the file. A file that would be refused changes nothing. Estimates
and answers to what-if questions of the dashboard are computed with the settings in force, too.

A file that is mounted by `subPath` is never updated in a running pod. The manifests therefore mount the ConfigMap a second time, as a
folder, which `--config-dir` names. The log level is not part of Kueue's file: it is the content of the file `log-level` in that folder,
in the notation of `--log-level`, and comes before the flags. Removing the key brings back the level of the command line.

    kubectl -n kueue-system patch configmap kueue-manager-config --type merge -p '{\"data\": {\"log-level\": \"debug\"}}'

## Files of v1beta1

`config.kueue.x-k8s.io/v1beta1` is read with a warning, as Kueue 0.19 reads it. What differs from the table below:

| Setting of v1beta1 | Meaning |
|---|---|
| `waitForPodsReady.enable` | `false` by default: workloads do not wait for their pods. If it is `true`, `timeout` is `5m` and `blockAdmission` is `true` by default |
| `fairSharing.enable` | `false` by default: no fair sharing. If it is `true`, `preemptionStrategies` are `LessThanOrEqualToFinalShare,LessThanInitialShare` by default |
| `integrations.podOptions` | no effect, with a warning, as in Kueue 0.17 and later: `managedJobsNamespaceSelector` has replaced it |
| `queueVisibility` | no effect, with a warning: Kueue has removed the feature |

It has no `visibilityServer`, `resources.quotaCheckStrategy`, `resources.deviceClassMappings[].sources`, `multiKueue.clusterProfile`,
`multiKueue.incrementalDispatcherConfig`, `metrics.customLabels[].sourceKind` and `metrics.customLabels[].trackedValues`.

## Settings

`[]` in a path is an entry of a list. A default without a value is empty.

| Setting | Default | Meaning | Here | Change |
|---|---|---|---|---|
";
