//! Events of the writes with which a Workload follows its Job.

use super::events_and_observations::{job, key};
use crate::fixtures::leading_core::JOB;
use crate::fixtures::queue_cluster::Cluster;
use serde_json::json;
use sluice_core::cache::Kind;
use sluice_core::reconciler::CoreSettings;

/// A Job that waits changes its size: its Workload follows, and an event of the Job says so.
#[test]
fn updating_waiting_workload_emits_event() {
    let mut cluster = Cluster::new(CoreSettings::default());
    cluster.act_then_wait(1, |cluster| cluster.create(JOB, job("j", 3, "")));
    let name = cluster.only_workload()["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(cluster.event_notes(JOB, "UpdatedWorkload"), [""; 0]);
    cluster.act_then_wait(1, |cluster| {
        cluster.server.edit(JOB, &key("j"), |job| {
            job["spec"]["parallelism"] = json!(4);
            job["spec"]["completions"] = json!(4);
        });
    });
    assert_eq!(cluster.only_workload()["spec"]["podSets"][0]["count"], 4);
    let expected = format!("Updated not matching Workload for suspended job: ns/{name}");
    assert_eq!(cluster.event_notes(JOB, "UpdatedWorkload"), [expected], "{:#?}", cluster.events);
}

/// A Workload whose owner a user removed gets it back, and an event of the Workload says so.
#[test]
fn adding_owner_emits_event() {
    let mut cluster = Cluster::new(CoreSettings::default());
    cluster.act_then_wait(1, |cluster| cluster.create(JOB, job("j", 1, "")));
    let workload_key = sluice_core::simulate::fake_api_server::key_of(&cluster.only_workload());
    let owners = cluster.only_workload()["metadata"]["ownerReferences"].clone();
    cluster.act_then_wait(1, |cluster| {
        cluster.server.edit(Kind::Workload, &workload_key, |workload| {
            workload["metadata"]["ownerReferences"] = json!([]);
        });
    });
    assert_eq!(cluster.only_workload()["metadata"]["ownerReferences"], owners);
    let notes = cluster.event_notes(Kind::Workload, "OwnerReferencesAdded");
    assert_eq!(notes, ["Added 1 owner reference(s)"], "{:#?}", cluster.events);
}
