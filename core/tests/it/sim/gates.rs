//! What feature gates change in the lives of objects.

use super::laws;
use super::provisioning;
use super::topology::{
    ALL_NODES, bind_pods, racks_with_settings, start_job, topology_assignment, wait_until_ungated,
};
use crate::fixtures::leading_core::JOB;
use crate::fixtures::setting_effects::SettingEffect;
use jiff::SignedDuration;
use serde_json::json;
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::reconciler::CoreSettings;

const ROWS: [SettingEffect; 2] = [
    SettingEffect {
        gate: "CleanupProvisioningRequestsOnEviction",
        set: |settings, on| settings.gates.cleanup_provisioning_requests_on_eviction = on,
        play: requests_after_eviction,
        enabled: "0 requests",
        disabled: "1 requests",
    },
    SettingEffect {
        gate: "TASReplaceNodeDueToNotReadyOverFixedTime",
        set: |settings, on| settings.gates.node_failures.as_mut().unwrap().not_ready_over_fixed_time = on,
        play: node_is_replaced_under_running_pod,
        enabled: "replaced: true",
        disabled: "replaced: false",
    },
];

/// A Workload whose ProvisioningRequest is not answered yet is deactivated.
fn requests_after_eviction(settings: &CoreSettings) -> String {
    let mut world = provisioning::cluster_with_provisioning_check(1, &[], settings);
    world.create(JOB, laws::job("j", "a", 1));
    provisioning::run_until(&mut world, |world| provisioning::provisioning_request(world).is_some());
    let workload = world.harness.server.all(Kind::Workload).next().cloned().unwrap();
    let key = ObjectKey::new("ns", workload["metadata"]["name"].as_str().unwrap());
    world.harness.server.edit(Kind::Workload, &key, |workload| workload["spec"]["active"] = json!(false));
    assert!(world.run_until_idle(20_000));
    format!("{} requests", world.harness.server.all(Kind::ProvisioningRequest).count())
}

/// A node is not ready for a minute; the pod on it, which nothing has ended yet, counts as running.
fn node_is_replaced_under_running_pod(settings: &CoreSettings) -> String {
    let mut world = racks_with_settings(1, &ALL_NODES, settings);
    start_job(&mut world, "j", 1, &json!({}));
    wait_until_ungated(&mut world, "j");
    bind_pods(&mut world, "j");
    let first = topology_assignment(&world, "j");
    let host = first.keys().next().unwrap();
    let since = world.timestamp_text();
    world.harness.server.edit(Kind::Node, &ObjectKey::cluster(host), |node| {
        node["status"]["conditions"][0]["status"] = json!("False");
        node["status"]["conditions"][0]["lastTransitionTime"] = json!(since);
    });
    let end = world.now.checked_add(SignedDuration::from_mins(1)).unwrap();
    while world.now < end {
        world.step();
    }
    format!("replaced: {}", topology_assignment(&world, "j") != first)
}

#[test]
fn outcomes_differ_as_stated() {
    for row in &ROWS {
        row.check();
    }
}
