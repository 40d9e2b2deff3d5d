//! Reviews of elastic Jobs.

use super::owners::{foreign, view, with_foreign_kind};
use super::{Cluster, asked, errors, queued};
use crate::admission::in_process::admit_object;
use crate::admission::{AdmissionSettings, ReviewContext};
use serde_json::{Value, json};

fn elastic() -> Value {
    let mut job = queued("lq");
    job["metadata"]["annotations"]["kueue.x-k8s.io/elastic-job"] = json!("true");
    job
}

#[test]
fn malformed_elastic_job_topology_is_one_error() {
    let (cluster, settings) = (Cluster::default(), AdmissionSettings::default());
    for (key, value, kind) in [
        ("podset-required-topology", "not a label!", "Invalid value"),
        ("podset-preferred-topology", "a/b/c", "Invalid value"),
        ("podset-required-topology", "cloud.com/rack", "Forbidden"),
    ] {
        let mut job = elastic();
        job["spec"]["template"]["metadata"]["annotations"][format!("kueue.x-k8s.io/{key}")] = json!(value);
        let errors = errors(&asked("/validate-batch-v1-job", &job, None, &cluster, &settings));
        let topology: Vec<&String> = errors.iter().filter(|error| error.contains("topology")).collect();
        assert_eq!(topology.len(), 1, "{errors:?}");
        assert!(topology[0].contains(kind), "{errors:?}");
    }
}

/// Every elastic Job gets the gate. One that nothing would take the gate from is told so, or gets none.
#[test]
fn elastic_job_gets_gate() {
    let cluster = Cluster { queues: vec!["lq"], ..Cluster::default() };
    let settings = AdmissionSettings::default();
    let ctx = ReviewContext { objects: &cluster, settings: &settings };
    let admitted = |job: Value| admit_object(("batch", "Job"), job, None, |_| Ok(()), &ctx).unwrap();
    let own = json!({"name": "example.com/own"});
    let gate = json!({"name": "kueue.x-k8s.io/elastic-job"});
    let mut gated = elastic();
    gated["spec"]["template"]["spec"]["schedulingGates"] = json!([own]);
    let mut again = gated.clone();
    again["spec"]["template"]["spec"]["schedulingGates"] = json!([gate]);
    let mut unqueued = elastic();
    unqueued["metadata"]["labels"] = json!({});
    for (job, gates, suspended, warned) in [
        (elastic(), json!([gate]), json!(true), false),
        (gated, json!([own, gate]), json!(true), false),
        (again, json!([gate]), json!(true), false),
        (unqueued, json!([gate]), json!(false), true),
        (queued("lq"), Value::Null, json!(true), false),
    ] {
        let (job, warnings) = admitted(job);
        assert_eq!(job["spec"]["template"]["spec"]["schedulingGates"], gates);
        assert_eq!(job["spec"]["suspend"], suspended);
        assert_eq!(warnings.iter().any(|text| text.contains("elastic-job")), warned, "{warnings:?}");
    }
    let settings = with_foreign_kind();
    let owner = foreign("o");
    let cluster = Cluster { owners: [view("o", Some("lq"), None)].into(), ..cluster };
    let ctx = ReviewContext { objects: &cluster, settings: &settings };
    let mut child = elastic();
    child["metadata"]["ownerReferences"] = json!([{"apiVersion": owner.api_version, "kind": owner.kind,
        "name": owner.name, "uid": owner.uid, "controller": true}]);
    let (child, _) = admit_object(("batch", "Job"), child, None, |_| Ok(()), &ctx).unwrap();
    assert_eq!(child["spec"]["template"]["spec"].get("schedulingGates"), None, "its owner is not elastic");
}
