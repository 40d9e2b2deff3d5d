//! Recorded lives played through the reconciler, on a fake API server: admission, quota, queues and priorities are decided
//! here, not read from the recording. Each scenario is played three times: without faults, with a conflict before each second
//! write, and with a manager that is killed after each write.
//!
//! Compared at each step, once nothing is left to do: every Workload, Pod and job with the fields that recordings show. The
//! test does what webhooks, the API server's defaulting, the garbage collector and the ReplicaSet controller do.

mod acts;
mod compare;
mod plane;

use super::{playable, scenarios, text};
use plane::{Fault, Plane};
use serde_json::Value;
use sluice::frameworks::{JobKind, framework};

/// Plays a scenario. Returns the number of steps, or the first difference.
fn play(kind: JobKind, scenario: &Value, fault: Fault) -> Result<usize, String> {
    let name = text(&scenario["name"]);
    let mut plane = Plane::new(kind, &format!("RUN-{name}"), fault);
    let steps = scenario["steps"].as_array().unwrap();
    for (number, step) in steps.iter().enumerate() {
        let acts = step["acts"].as_array().unwrap();
        for (act, code) in acts.iter().zip(step["expect"]["codes"].as_array().unwrap()) {
            // What a webhook refuses is compared elsewhere.
            if code.as_u64() < Some(300) {
                plane.act(act);
            }
        }
        plane.settle();
        let note = format!("{name} step {number}, {fault:?}: {}", text(&step["note"]));
        compare::compare(&mut plane, &step["expect"]["state"])
            .map_err(|problem| format!("{note}\n{problem}"))?;
    }
    Ok(steps.len())
}

fn play_all(recording: &str, (group, kind): (&str, &str), not_played: &[(&str, &str)]) {
    let Some(scenarios) = scenarios(recording) else { return };
    let kind = JobKind::new(framework(group, kind).expect("a row"));
    let (mut played, mut steps, mut differences) = (0, 0, Vec::new());
    for scenario in playable(&scenarios, not_played) {
        for fault in [Fault::None, Fault::Conflicts, Fault::Kills] {
            match play(kind, scenario, fault) {
                Ok(number) => steps += number,
                Err(difference) => differences.push(difference),
            }
        }
        played += 1;
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
    println!("{recording}: {played} of {} scenarios reconciled, {steps} steps", scenarios.len());
    assert!(played > 5);
}

#[test]
fn job_sets_are_reconciled_as_recorded() {
    // The same holds for batch/v1 Jobs, see tests/jobs-deviations.tsv, but for the first.
    let not_played = [
        ("-workload-deleted", "a Workload that is deleted keeps its quota until its pods have stopped"),
        (
            "-prebuilt",
            "a prebuilt Workload may lack what the API server defaults; PodsReady is written earlier",
        ),
        ("-metadata-pending", "a Workload follows the labels and node selector of a job that waits"),
    ];
    play_all("jobset", ("jobset.x-k8s.io", "JobSet"), &not_played);
}

#[test]
fn pods_are_reconciled_as_recorded() {
    play_all("pod", ("", "Pod"), &[("-owned", "the pod belongs to a Job")]);
}

#[test]
fn pod_groups_are_reconciled_as_recorded() {
    play_all("pod-group", ("", "Pod"), &[]);
}

#[test]
fn deployments_are_reconciled_as_recorded() {
    play_all("deployment", ("apps", "Deployment"), &[]);
}
