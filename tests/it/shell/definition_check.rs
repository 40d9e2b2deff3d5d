//! Fields that the definitions in the cluster lack are reported once they are confirmed, until the definitions have them.
#![expect(clippy::disallowed_methods, reason = "the test runs the server and waits")]

use crate::fixtures::scripted_client::{RecordedRequests, scripted_client};
use serde_json::{Value, json};
use sluice::api::crd;
use sluice::api::crd::served::MissingFields;
use sluice::kube::client::Caller;
use sluice::kube::definition_check;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the scripted server serves.
#[derive(Clone)]
enum Served {
    Unavailable,
    /// No kind of the API group.
    Nothing,
    /// The definitions of this version, without `status.schedulingStats` of Workloads.
    Older,
    /// The definitions of this version.
    Same,
}

fn document(older: bool) -> Value {
    let mut schemas = serde_json::Map::new();
    for (_, definition) in crd::definitions().unwrap() {
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap();
        let mut schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
        schema["x-kubernetes-group-version-kind"] =
            json!([{"group": "kueue.x-k8s.io", "version": "v1beta2", "kind": kind}]);
        if older && kind == "Workload" {
            let fields = schema["properties"]["status"]["properties"].as_object_mut().unwrap();
            assert!(fields.remove("schedulingStats").is_some());
        }
        schemas.insert(kind.to_owned(), schema);
    }
    json!({"components": {"schemas": schemas}})
}

fn answer(served: &Served, uri: &str) -> (u16, Value) {
    let hash = match served {
        Served::Unavailable => return (503, json!({"kind": "Status", "status": "Failure", "code": 503})),
        Served::Nothing => return (200, json!({"paths": {}})),
        Served::Older => "old",
        Served::Same => "new",
    };
    let address = format!("/openapi/v3/apis/kueue.x-k8s.io/v1beta2?hash={hash}");
    if uri == address {
        return (200, document(hash == "old"));
    }
    assert_eq!(uri, "/openapi/v3");
    (200, json!({"paths": {"apis/kueue.x-k8s.io/v1beta2": {"serverRelativeURL": address}}}))
}

/// A check of a scripted server, and what it has reported.
struct RunningCheck {
    served: Arc<Mutex<Served>>,
    requests: RecordedRequests,
    reports: Arc<Mutex<Vec<MissingFields>>>,
}

fn start(served: Served) -> RunningCheck {
    let served = Arc::new(Mutex::new(served));
    let script = Arc::clone(&served);
    let (client, requests) = scripted_client(move |_, uri| answer(&script.lock().unwrap(), uri));
    let reports = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&reports);
    let report = move |missing: &MissingFields| log.lock().unwrap().push(missing.clone());
    tokio::spawn(definition_check::run(Caller::new(client, Duration::from_secs(5)), report));
    RunningCheck { served, requests, reports }
}

#[tokio::test(start_paused = true)]
async fn missing_fields_are_reported_until_defined() {
    let RunningCheck { served, requests, reports } = start(Served::Unavailable);
    let wait = async || tokio::time::sleep(Duration::from_mins(1)).await;
    let expected = MissingFields::from([("workloads", vec!["status.schedulingStats".to_owned()])]);

    for nothing in [Served::Unavailable, Served::Nothing] {
        *served.lock().unwrap() = nothing;
        wait().await;
        assert!(reports.lock().unwrap().is_empty());
    }
    *served.lock().unwrap() = Served::Older;
    wait().await;
    assert_eq!(reports.lock().unwrap().first(), Some(&expected));
    *served.lock().unwrap() = Served::Same;
    wait().await;
    assert_eq!(reports.lock().unwrap().last(), Some(&MissingFields::new()));
    // The definitions are replaced by older ones while the manager runs.
    *served.lock().unwrap() = Served::Older;
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(reports.lock().unwrap().last(), Some(&expected));
    let documents = requests.lock().unwrap().iter().filter(|request| request.1.contains("hash=")).count();
    assert_eq!(documents, 3, "a document is read only after it has changed");
}

/// Definitions that are being installed are published one after the other.
#[tokio::test(start_paused = true)]
async fn fields_missing_for_a_moment_are_not_reported() {
    let RunningCheck { served, reports, .. } = start(Served::Older);
    tokio::time::sleep(Duration::from_secs(1)).await;
    *served.lock().unwrap() = Served::Same;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(*reports.lock().unwrap(), [MissingFields::new()]);
}
