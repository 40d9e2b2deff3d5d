//! The events that Kueue does not send: COMPATIBILITY.md lists each, and no other.

use crate::fixtures::manifests::root;
use regex::Regex;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Reasons of Kueue's events that the code names.
const KUEUE: [&str; 25] = [
    "AdmissionCheckRejected",
    "AdmissionCheckUpdated",
    "AdmissionGateCleared",
    "Admitted",
    "CreatedWorkload",
    "Deleted",
    "DeletedWorkload",
    "ErrWorkloadCompose",
    "ExcessPodDeleted",
    "FailedCreate",
    "FinishedWorkload",
    "JobNestingTooDeep",
    "MaximumExecutionTimeExceeded",
    "OwnerReferencesAdded",
    "PodTerminatedByKueue",
    "Preempted",
    "PreemptedWorkload",
    "ProvisioningRequestCreated",
    "QuotaReserved",
    "SecondPassFailed",
    "Started",
    "Stopped",
    "UpdatedAdmissionCheck",
    "UpdatedWorkload",
    "WorkloadNameConflict",
];
/// Modules that send events.
const SENDERS: [&str; 3] = ["core/src/reconciler", "core/src/frameworks", "core/src/lifecycle"];

/// Adds the code of a folder, without tests.
fn code(folder: &Path, text: &mut String) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let is_test = path.file_stem().is_some_and(|name| name == "tests");
        if path.is_dir() && !is_test {
            code(&path, text);
        } else if !is_test && path.extension().is_some_and(|extension| extension == "rs") {
            let file = fs::read_to_string(path).unwrap();
            text.push_str(file.split("#[cfg(test)]").next().unwrap());
        }
    }
}

/// Returns the names in backticks between two texts of COMPATIBILITY.md.
fn documented() -> BTreeSet<String> {
    let page = fs::read_to_string(root().join("COMPATIBILITY.md")).unwrap();
    let (_, list) = page.split_once("events of its own").expect("the page names own events");
    let (list, _) = list.split_once(". ").expect("the list ends with its sentence");
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn own_events_are_listed() {
    let mut text = String::new();
    for folder in SENDERS {
        code(&root().join(folder), &mut text);
    }
    let calls = r#"\b(?:event_on|workload_event|workload_warning|event|report|warn|emit_warning)\([^;"]*?"([A-Z][a-z]+[A-Za-z]*)""#;
    let sent: BTreeSet<String> =
        Regex::new(calls).unwrap().captures_iter(&text).map(|found| found[1].to_owned()).collect();
    assert!(sent.len() > 25, "{sent:?}");
    let documented = documented();
    let known: BTreeSet<String> = KUEUE.map(str::to_owned).into();
    let allowed = &known | &documented;
    let unlisted: Vec<&String> = sent.difference(&allowed).collect();
    assert!(unlisted.is_empty(), "COMPATIBILITY.md lacks own events: {unlisted:?}");
    let unknown: Vec<&String> =
        documented.iter().filter(|name| !text.contains(&format!("\"{name}\""))).collect();
    assert!(unknown.is_empty(), "no code sends: {unknown:?}");
    assert!(known.is_disjoint(&documented));
}
