//! What a manager keeps of pods that are no jobs, of which clusters have many times more than of managed ones. The memory is
//! measured in a process of its own.
#![expect(clippy::disallowed_methods, reason = "the test measures what events cost, and judges no time")]

use crate::fixtures::job_server::pod;
use crate::fixtures::leading_core::Core;
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::reconciler::{CoreSettings, Effect};
use std::process::Command;
use std::time::Instant;

const OTHERS: usize = 38_000;
const MANAGED: usize = 2_000;
/// Maximum growth of resident memory for each pod that is no job.
const BYTES: usize = 1_200;
/// Set in the process that measures.
const CHILD: &str = "SLUICE_MEASURES_PODS";

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<usize>().ok());
    kib.unwrap_or_default() * 1024
}

/// A pod of a service, as large as those of clusters are: about 5 kB.
fn other(number: usize, phase: &str) -> Value {
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-11-21T10:00:00Z"});
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
    let env: Vec<Value> =
        (0..20).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "v".repeat(100)})).collect();
    json!({
        "metadata": {"name": format!("some-pod-of-a-service-{number}"), "namespace": "ns",
            "labels": {"app": "serve", "pod-template-hash": "5d4f8c7b9"},
            "annotations": {"note": "n".repeat(1_000)},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "serve", "uid": "replicasets-serve",
                "controller": true}]},
        "spec": {"nodeName": format!("node-{}", number % 400), "containers": [{"name": "c", "image": "registry.example.com/serve:1",
            "env": env, "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
        "status": {"phase": phase, "conditions": conditions},
    })
}

/// A cluster of 40,000 pods, of which 2,000 are managed: of each other pod about 1 kB is kept, whatever its size, and its
/// events cause neither writes nor reads.
#[test]
fn little_is_kept_of_other_pods() {
    if std::env::var_os(CHILD).is_none() {
        let (_, folder) = module_path!().split_once("::").unwrap();
        let name = format!("{folder}::little_is_kept_of_other_pods");
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", &name, "--nocapture"]).env(CHILD, "1").output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}");
        // A name that no test has also succeeds.
        assert!(words.contains("bytes each"), "no test is named {name}");
        return eprintln!("{words}");
    }
    let frameworks = ["batch/job", "pod", "deployment", "statefulset"].map(str::to_owned).into();
    let mut core = Core::new(CoreSettings { frameworks, ..CoreSettings::default() });
    let before = resident();
    let mut start = Instant::now();
    let mut spend = |what: &str, events: usize| {
        let each = start.elapsed().as_micros() / u128::try_from(events).unwrap();
        eprintln!("{what}: {each} µs each, without optimization");
        start = Instant::now();
    };
    let feed = |core: &mut Core, phase: &str| {
        for number in 0..OTHERS {
            let effects = core.put(Kind::Pod, other(number, phase));
            let acts = |effect: &Effect| matches!(effect, Effect::Write(_) | Effect::Refetch { .. });
            assert!(!effects.iter().any(acts), "{effects:?}");
        }
    };
    // Nothing is queued above it.
    core.put(Kind::ReplicaSet, json!({"metadata": {"name": "serve", "namespace": "ns"}}));
    feed(&mut core, "Running");
    let each = resident().saturating_sub(before) / OTHERS;
    eprintln!("{OTHERS} pods that are no jobs: {each} bytes each");
    spend("first event", OTHERS);
    assert!(each <= BYTES, "{each} bytes for each pod that is no job");
    assert_eq!(core.state.unit_pod_reads(), 0, "none is read as a member");
    feed(&mut core, "Running");
    spend("an event that changes nothing", OTHERS);
    let with_others = resident();
    for number in 0..MANAGED {
        core.put(Kind::Pod, pod(&format!("p-{number}"), None));
    }
    spend("a managed pod", MANAGED);
    let of_managed = resident().saturating_sub(with_others) / MANAGED;
    eprintln!("{MANAGED} managed pods whose Workloads wait to be made: {of_managed} bytes each");
    assert_eq!(core.state.unit_pod_reads(), u64::try_from(MANAGED).unwrap());
    eprintln!("{} MB resident in all", resident() / 1_000_000);
}
