//! Workloads as their watch decodes them, in part: the core decides on them as on whole objects.

use crate::fixtures::leading_core::{Core, JOB, condition, job, reserving_workload};
use serde_json::{Value, json};
use sluice::cache::Kind;
use sluice::kube::workload::PartialWorkload;
use sluice::reconciler::{CoreSettings, Delta};

/// What a core does, and what it publishes, when it gets an admitted Workload in this form.
fn outcome(form: fn(Value) -> Delta) -> String {
    let mut core = Core::new(CoreSettings::default());
    core.put(JOB, job("j"));
    let admitted = ["QuotaReserved", "Admitted"].map(|kind| condition(kind, "True", "x"));
    let object = core.with_server_metadata(Kind::Workload, reserving_workload("j", &admitted));
    let effects = core.feed(form(object));
    format!("{effects:#?}\n{:?}", core.state.snapshot().queues.cluster_queues)
}

#[test]
fn workload_from_its_watch_is_like_a_whole_object() {
    let whole = outcome(|object| Delta::Applied { kind: Kind::Workload, object });
    let partial = outcome(|mut object| {
        object["apiVersion"] = json!("kueue.x-k8s.io/v1beta2");
        object["kind"] = json!("Workload");
        object["metadata"]["managedFields"] = json!([{"manager": "m", "fieldsV1": {"f:status": {}}}]);
        serde_json::from_str::<PartialWorkload>(&object.to_string()).unwrap().into()
    });
    assert!(whole.contains("Write"), "{whole}");
    assert_eq!(partial, whole);
}
