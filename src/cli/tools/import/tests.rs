//! The import against a server in memory.

use super::*;
use http::{Method, Request, Response};
use kube::client::Body;
use std::sync::{Arc, Mutex};

type Writes = Arc<Mutex<Vec<String>>>;

/// A server that has this Workload, or none, and records writes.
fn server(existing: Option<Value>) -> (Caller, Writes) {
    let writes = Writes::default();
    let log = Arc::clone(&writes);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (existing, log) = (existing.clone(), Arc::clone(&log));
        async move {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let refused = method == Method::POST && existing.is_some();
            let (code, answer) = match (method == Method::GET, refused) {
                (true, _) => (200, existing.unwrap_or_default()),
                (_, true) => (
                    409,
                    json!({"kind": "Status", "status": "Failure", "reason": "AlreadyExists", "code": 409}),
                ),
                (false, false) => (200, json!({})),
            };
            if method != Method::GET {
                log.lock().unwrap().push(format!("{method} {path} {code}"));
            }
            let response = Response::builder().status(code).body(Body::from(serde_json::to_vec(&answer)?))?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response)
        }
    });
    (Caller::new(kube::Client::new(service, "default"), CALL_TIMEOUT), writes)
}

fn plan(labels: &[(&str, &str)]) -> Plan {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Plan {
        namespace: "ns".to_owned(),
        pod: "p".to_owned(),
        pod_uid: "u".to_owned(),
        labels: labels.collect(),
        workload: json!({"metadata": {"name": "pod-p-1"}}),
        status: json!({"conditions": []}),
    }
}

async fn import(existing: Option<Value>, labels: &[(&str, &str)]) -> (anyhow::Result<bool>, Vec<String>) {
    let (caller, writes) = server(existing);
    let outcome = Importer { caller: &caller, print: &|_| Ok(()) }.import(&plan(labels)).await;
    let writes = writes.lock().unwrap().clone();
    (outcome, writes)
}

#[tokio::test]
async fn interrupted_import_continues() {
    let pod = "PATCH /api/v1/namespaces/ns/pods/p 200";
    let create = |code: u16| format!("POST /apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads {code}");
    let admit = "PATCH /apis/kueue.x-k8s.io/v1beta2/namespaces/ns/workloads/pod-p-1/status 200";
    let owned = |status: Value| json!({"metadata": {"ownerReferences": [{"uid": "u"}]}, "status": status});
    let (outcome, writes) = import(None, &[("a", "b")]).await;
    assert!(outcome.unwrap());
    assert_eq!(writes, [pod.to_owned(), create(200), admit.to_owned()]);
    // Killed after the Workload was created.
    let (outcome, writes) = import(Some(owned(json!({}))), &[]).await;
    assert!(outcome.unwrap());
    assert_eq!(writes, [create(409), admit.to_owned()]);
    // Done before.
    let (outcome, writes) = import(Some(owned(json!({"admission": {}}))), &[]).await;
    assert!(!outcome.unwrap());
    assert_eq!(writes, [create(409)]);
    let other = json!({"metadata": {"ownerReferences": [{"uid": "other"}]}});
    let error = import(Some(other), &[]).await.0.unwrap_err();
    assert!(error.to_string().contains("pod-p-1 belongs to another object"), "{error}");
}

#[test]
fn failures_are_listed_by_reason() {
    let mut failures = Failures::default();
    for number in 0..7 {
        failures.add("no queue", "ns", &format!("p{number}"));
    }
    failures.add("other", "ns", "x");
    let text = failures.into_result("title").unwrap_err().to_string();
    assert!(text.contains("ns/p0, ns/p1, ns/p2, ns/p3, ns/p4 and 2 more: no queue"), "{text}");
    assert!(text.contains("ns/x: other"), "{text}");
    assert!(Failures::default().into_result("title").is_ok());
}

/// A server of these objects; a collection is the list of the objects below it.
fn cluster(objects: &[(&str, Value)]) -> Caller {
    let objects: BTreeMap<String, Value> =
        objects.iter().map(|(path, object)| ((*path).to_owned(), object.clone())).collect();
    let service = tower::service_fn(move |request: Request<Body>| {
        let found = objects.get(request.uri().path()).cloned();
        async move {
            let missing = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
            let code = if found.is_some() { 200 } else { 404 };
            let body = serde_json::to_vec(&found.unwrap_or(missing))?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(
                Response::builder().status(code).body(Body::from(body))?,
            )
        }
    });
    Caller::new(kube::Client::new(service, "default"), CALL_TIMEOUT)
}

/// A Deployment of a manager whose objects have this prefix, and that mounts its configuration.
fn manager(prefix: &str, selector: &Value, available: u32) -> Value {
    let name = format!("{prefix}-controller-manager");
    let volumes = json!([{"name": "other", "configMap": {"name": "other"}}, {"configMap": {"name": format!("{prefix}-manager-config")}}]);
    json!({
        "metadata": {"namespace": "q", "name": name},
        "spec": {"selector": {"matchLabels": selector}, "template": {"spec": {"volumes": volumes}}},
        "status": {"availableReplicas": available},
    })
}

async fn beside(deployment: Value, map: &str, configuration: &str) -> Result<(), String> {
    let caller = cluster(&[
        ("/apis/apps/v1/deployments", json!({"items": [deployment]})),
        (map, json!({"data": {CONFIGURATION_FIELD: configuration}})),
    ]);
    let importer = Importer { caller: &caller, print: &|_| Ok(()) };
    importer.refuse_beside_manager("kueue-system").await.map_err(|error| error.to_string())
}

/// Each listed kind with gated pods makes the manager stop them, whether or not `pod` is listed; names and labels of a release
/// do not matter.
#[tokio::test]
async fn manager_that_gates_pods_is_named_before_any_write() {
    let sluice = json!({"app.kubernetes.io/name": "own", "app.kubernetes.io/component": "controller"});
    let kueue = json!({"control-plane": "controller-manager"});
    let config =
        |frameworks: &str| format!("kind: Configuration\nintegrations: {{frameworks: [{frameworks}]}}\n");
    for (prefix, selector) in [("kueue", &sluice), ("own", &sluice), ("kueue", &kueue)] {
        let map = format!("/api/v1/namespaces/q/configmaps/{prefix}-manager-config");
        for name in ["pod", "deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"] {
            let text = config(&format!("batch/job, {name}"));
            let error = beside(manager(prefix, selector, 1), &map, &text).await.unwrap_err();
            assert!(
                error.contains(&format!("take {name} out of integrations.frameworks")),
                "{name}: {error}"
            );
            assert_eq!(beside(manager(prefix, selector, 0), &map, &text).await, Ok(()), "it does not run");
        }
        let all = beside(manager(prefix, selector, 1), &map, &config("deployment, pod")).await.unwrap_err();
        assert!(all.contains("pod") && all.contains("deployment"), "{all}");
        assert_eq!(beside(manager(prefix, selector, 1), &map, &config("batch/job")).await, Ok(()));
        let empty = beside(manager(prefix, selector, 1), &map, "").await.unwrap_err();
        assert!(empty.contains("no content"), "{empty}");
    }
    let other = json!({"control-plane": "operator"});
    let map = "/api/v1/namespaces/q/configmaps/kueue-manager-config";
    assert_eq!(beside(manager("kueue", &other, 1), map, &config("pod")).await, Ok(()), "no manager");
}

#[tokio::test]
async fn a_namespace_that_does_not_exist_is_named() {
    let caller = cluster(&[("/api/v1/namespaces/team", json!({"metadata": {"name": "team"}}))]);
    let importer = Importer { caller: &caller, print: &|_| Ok(()) };
    assert!(importer.refuse_unknown("team").await.is_ok());
    let error = importer.refuse_unknown("taem").await.unwrap_err().to_string();
    assert_eq!(error, "namespace taem does not exist");
}

/// A server that records writes, and refuses each whose path ends with `refused` with this answer.
fn refusing(refused: &'static str, code: u16, message: &'static str) -> (Caller, Writes) {
    let writes = Writes::default();
    let log = Arc::clone(&writes);
    let service = tower::service_fn(move |request: Request<Body>| {
        let log = Arc::clone(&log);
        async move {
            log.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
            let failure = json!({"kind": "Status", "status": "Failure", "reason": "R", "message": message,
                "code": code});
            let is_refused = request.uri().path().ends_with(refused);
            let (code, answer) = if is_refused { (code, failure) } else { (200, json!({})) };
            let response = Response::builder().status(code).body(Body::from(serde_json::to_vec(&answer)?))?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response)
        }
    });
    (Caller::new(kube::Client::new(service, "default"), CALL_TIMEOUT), writes)
}

/// What refuses every write is found by a server dry run, whether or not some Deployment is a manager's: a manager may run outside of
/// the cluster, or have its configuration elsewhere.
#[tokio::test]
async fn what_refuses_the_first_writes_is_named_before_any_write() {
    const MANAGED: &str = "admission webhook \"vpod.kb.io\" denied the request: field is immutable";
    for (refused, code, message, parts) in [
        ("/pods/p", 403, MANAGED, vec!["nothing was written", "pod ns/p cannot be labelled", MANAGED]),
        ("/pods/p", 403, "no right", vec!["pod ns/p cannot be labelled", "no right"]),
        ("/pods/p", 500, "failed calling webhook \"vpod.kb.io\"", vec!["failed calling webhook"]),
        ("/workloads", 403, "a policy", vec!["the Workload of pod ns/p cannot be created", "a policy"]),
        // Such a pod or Workload proves nothing.
        ("/pods/p", 404, "", vec![]),
        ("/pods/p", 409, "", vec![]),
        ("/workloads", 409, "", vec![]),
    ] {
        let (caller, writes) = refusing(refused, code, message);
        let outcome = trial::refuse_if_writes_fail(&caller, &[plan(&[("a", "b")])]).await;
        let error = outcome.map_err(|error| format!("{error:#}")).err();
        assert_eq!(error.is_some(), !parts.is_empty(), "{refused} {code}: {error:?}");
        let error = error.unwrap_or_default();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        let all = pod_holding_frameworks().all(|name| error.contains(name));
        assert_eq!(all, message == MANAGED, "{error}");
        let writes = writes.lock().unwrap();
        let are_dry = writes.iter().all(|write| write.ends_with("?dryRun=All"));
        assert!(!writes.is_empty() && are_dry, "{writes:?}");
    }
}

/// One dry run of each kind for a namespace, and none of a label that the pod has.
#[tokio::test]
async fn first_writes_of_each_namespace_are_tried() {
    let of = |name: &str, labels: &[(&str, &str)]| Plan { namespace: name.to_owned(), ..plan(labels) };
    let plans = [of("a", &[]), of("a", &[("x", "y")]), of("a", &[("x", "y")]), of("b", &[("x", "y")])];
    let (caller, writes) = refusing("nothing", 500, "");
    trial::refuse_if_writes_fail(&caller, &plans).await.unwrap();
    let pod = |namespace: &str| format!("PATCH /api/v1/namespaces/{namespace}/pods/p?dryRun=All");
    let workload = |namespace: &str| format!("POST {KUEUE}/namespaces/{namespace}/workloads?dryRun=All");
    assert_eq!(*writes.lock().unwrap(), [workload("a"), pod("a"), pod("b"), workload("b")]);
}
