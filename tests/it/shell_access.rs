//! Rights that are missing are named, asked for again, and found when they are granted.
#![expect(clippy::disallowed_methods, reason = "the other side of the connection runs and waits too")]

use super::shell_executor::client;
use serde_json::json;
use sluice::kube::access::{Missing, Right, check};
use sluice::kube::client::Caller;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn right(verb: &'static str, resource: &str) -> Right {
    Right {
        namespace: Some("here".to_owned()),
        group: "batch".to_owned(),
        resource: resource.to_owned(),
        name: None,
        verb,
    }
}

#[tokio::test]
async fn what_is_missing_is_named_until_it_is_granted() {
    // Of the questions of the first round the second is denied, and the third fails.
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let (client, seen) = client(move |_, _| match count.fetch_add(1, Ordering::SeqCst) {
        1 => (201, json!({"status": {"allowed": false}})),
        2 => {
            (503, json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "X", "code": 503}))
        }
        _ => (201, json!({"status": {"allowed": true}})),
    });
    let missing = Arc::new(Missing::default());
    let rights = vec![right("list", "jobs"), right("patch", "jobs/status"), right("get", "jobs")];
    let caller = Caller::new(client, Duration::from_secs(5));
    let task = tokio::spawn(check(caller, rights, Arc::clone(&missing)));
    while missing.list().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(*missing.list(), ["patch jobs/status of batch in namespace here"]);
    while !missing.list().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(asked.load(Ordering::SeqCst), 5, "what is known is not asked again");
    let (_, uri, _, body) = seen.lock().unwrap()[1].clone();
    assert_eq!(uri, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
    let wanted = json!({"namespace": "here", "group": "batch", "resource": "jobs", "subresource": "status",
        "name": null, "verb": "patch"});
    assert_eq!(body["spec"]["resourceAttributes"], wanted);
    task.abort();
}
