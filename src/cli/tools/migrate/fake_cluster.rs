//! A cluster in memory for tests of the walk: an API server that stores objects by their paths and stops answering at a chosen
//! call, a user that runs the printed commands, and a run that dies at a chosen write.
//!
//! Invariants: a write stores an object in v1beta2; a kind of which an object is stored in v1beta1 cannot be read while no
//! manager is available, as on a real server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

use super::leftovers::Installation;
use super::managers::tests::{deployment, pod};
use crate::api::crd;
use crate::kube::client::Caller;

pub(super) const NAMESPACE: &str = "kueue-system";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
/// Status of the write at which a run dies.
const KILLED: u16 = 418;
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1";

/// The write at which a run dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Death {
    /// Index of the write, from 0.
    pub(super) write: usize,
    /// Whether that write is stored: the run dies before the response.
    pub(super) stored: bool,
}

/// The calls that get no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outage {
    /// Index of the first call without an answer, from 0.
    pub(super) from: usize,
    /// Number of such calls.
    pub(super) calls: usize,
    /// HTTP status in place of an answer; `None` if the connection breaks.
    pub(super) code: Option<u16>,
    /// Whether writes are stored all the same.
    pub(super) stores: bool,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    /// Paths of objects that are stored in v1beta1.
    old: BTreeSet<String>,
    /// Rights that the user lacks, such as `delete services`.
    denied: BTreeSet<String>,
    writes: Vec<String>,
    /// Rights that the calls so far needed, such as `delete services`.
    used: BTreeSet<String>,
    death: Option<Death>,
    /// Calls so far.
    calls: usize,
    outage: Option<Outage>,
    version: u64,
}

/// A cluster in memory. Clones share it.
#[derive(Clone, Default)]
pub(super) struct FakeCluster(Arc<Mutex<State>>);

impl FakeCluster {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A cluster that an installation runs, with objects that are stored in v1beta1, leftovers, and dead APIServices that only
    /// this installation has. Its owner is Argo CD.
    pub(super) fn run_by(of: Installation) -> Self {
        let cluster = Self::default();
        let argo = json!({"argocd.argoproj.io/tracking-id": "batch:apps/Deployment:q/kueue"});
        let labels = labels(of);
        for (_, mut definition) in crd::definitions().unwrap() {
            let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
            definition["metadata"]["annotations"] = argo.clone();
            // Schemas would take most of the time of each read of the definitions.
            for version in definition["spec"]["versions"].as_array_mut().unwrap() {
                version["schema"] = json!({"openAPIV3Schema": {"properties": {"spec": {"properties": {}}}}});
            }
            definition["status"] = json!({"storedVersions": ["v1beta1", "v1beta2"]});
            cluster.put(&format!("{CRDS}/{name}"), definition);
        }
        for name in ["a", "b", "c"] {
            let path = format!("/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/{name}");
            cluster.put(
                &path,
                json!({"metadata": {"namespace": "team", "name": name}, "spec": {"active": true}}),
            );
            cluster.state().old.insert(path);
        }
        cluster.put("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/cq", json!({"metadata": {"name": "cq"}}));
        cluster.install(of);
        let mut found = cluster.get(&deployment_path()).unwrap();
        found["metadata"]["annotations"] = argo;
        cluster.put(&deployment_path(), found);
        let labelled = |name: &str| json!({"metadata": {"name": name, "labels": labels}});
        for (collection, name) in [
            ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "kueue-old-rolebinding"),
            ("/apis/rbac.authorization.k8s.io/v1/namespaces/kueue-system/rolebindings", "kueue-old"),
            ("/api/v1/namespaces/kueue-system/services", "kueue-visibility-server"),
            ("/apis/policy/v1/namespaces/kueue-system/poddisruptionbudgets", "kueue-old"),
            ("/apis/networking.k8s.io/v1/namespaces/kueue-system/networkpolicies", "kueue-old"),
            ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "kueue-old-role"),
            (API_SERVICES, "v1beta1.visibility.kueue.x-k8s.io"),
            (API_SERVICES, "v1beta2.visibility.kueue.x-k8s.io"),
            (API_SERVICES, "v1alpha1.visibility.sluice.dev"),
        ] {
            if of == Installation::Kueue && name.ends_with(".sluice.dev") {
                continue;
            }
            let mut object = labelled(name);
            if collection.contains("/namespaces/") {
                object["metadata"]["namespace"] = NAMESPACE.into();
            }
            cluster.put(&format!("{collection}/{name}"), object);
        }
        // One object that both installations have applied, and one of a user.
        let shared = json!({"metadata": {"name": "shared", "labels": {
            "app.kubernetes.io/name": "kueue", "app.kubernetes.io/component": "controller", "control-plane": "controller-manager"}}});
        cluster.put("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/shared", shared);
        let own = json!({"metadata": {"name": "own", "labels": {"app.kubernetes.io/name": "kueue"}}});
        cluster.put("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/own", own);
        for kind in ["mutating", "validating"] {
            let entry =
                |name: &str, path: &str| json!({"name": name, "clientConfig": {"service": {"path": path}}});
            let entries = json!([
                entry("mjob.kb.io", "/mutate-batch-v1-job"),
                entry("mfuture.kb.io", "/mutate-future"),
                entry("mjob-default-queue.kb.io", "/mutate-batch-v1-job"),
            ]);
            let name = format!("kueue-{kind}-webhook-configuration");
            let path = format!("{WEBHOOKS}/{kind}webhookconfigurations/{name}");
            cluster.put(&path, json!({"metadata": {"name": name}, "webhooks": entries}));
        }
        cluster
    }

    /// Stores an object as an administrator does.
    pub(super) fn put(&self, path: &str, mut object: Value) {
        let mut state = self.state();
        state.version += 1;
        object["metadata"]["resourceVersion"] = state.version.to_string().into();
        state.objects.insert(path.to_owned(), object);
    }

    pub(super) fn get(&self, path: &str) -> Option<Value> {
        self.state().objects.get(path).cloned()
    }

    /// Removes an object as an administrator does.
    pub(super) fn remove(&self, path: &str) {
        self.state().objects.remove(path);
    }

    pub(super) fn deny(&self, right: &str) {
        self.state().denied = BTreeSet::from([right.to_owned()]);
    }

    /// Returns the writes so far and forgets them; the next run dies as it says.
    pub(super) fn begin_run(&self, death: Option<Death>) -> Vec<String> {
        let mut state = self.state();
        state.death = death;
        std::mem::take(&mut state.writes)
    }

    /// Restarts the count of calls, with the given outage. Returns the number of calls so far.
    pub(super) fn begin_outage(&self, outage: Option<Outage>) -> usize {
        let mut state = self.state();
        state.outage = outage;
        std::mem::take(&mut state.calls)
    }

    /// Returns the rights that the calls so far needed.
    pub(super) fn used_rights(&self) -> BTreeSet<String> {
        self.state().used.clone()
    }

    fn install(&self, of: Installation) {
        let mut found = deployment(of, NAMESPACE, 1);
        found["metadata"]["labels"] = labels(of);
        self.put(&deployment_path(), found);
        let name = format!("{of:?}-pod").to_lowercase();
        let mut found = pod(of, &name);
        found["metadata"]["labels"]["app.kubernetes.io/name"] = "kueue".into();
        found["metadata"]["namespace"] = NAMESPACE.into();
        self.put(&format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}"), found);
        let lease = json!({"metadata": {"name": "c1f6bfd2.kueue.x-k8s.io"}, "spec": {"holderIdentity": format!("{name}_1")}});
        self.put(&format!("{LEASES}/c1f6bfd2.kueue.x-k8s.io"), lease);
    }

    /// Does the user's next step of a replacement. Called after each line that the run prints while it waits.
    pub(super) fn act(&self, new: Installation) {
        let old_pod = format!("/api/v1/namespaces/{NAMESPACE}/pods/{:?}-pod", new.other()).to_lowercase();
        let mut state = self.state();
        let is_new =
            state.objects.get(&deployment_path()).and_then(super::managers::installation_of_deployment)
                == Some(new);
        if !is_new && state.objects.remove(&deployment_path()).is_some() {
            return;
        }
        if state.objects.remove(&old_pod).is_some() {
            return;
        }
        drop(state);
        self.install(new);
    }

    /// Returns all stored objects without resourceVersions, and the paths of objects in v1beta1.
    pub(super) fn content(&self) -> (BTreeMap<String, Value>, BTreeSet<String>) {
        let state = self.state();
        let mut objects = state.objects.clone();
        for object in objects.values_mut() {
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("resourceVersion");
            }
        }
        (objects, state.old.clone())
    }

    /// Returns a client of the cluster.
    pub(super) fn caller(&self) -> Caller {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let cluster = cluster.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body: Value =
                    serde_json::from_slice(&body.collect().await?.to_bytes()).unwrap_or_default();
                let (path, query) =
                    (parts.uri.path().to_owned(), parts.uri.query().unwrap_or_default().to_owned());
                let json_patch = parts
                    .headers
                    .get("content-type")
                    .is_some_and(|kind| kind == "application/json-patch+json");
                let mut state = cluster.state();
                state.used.extend(right_of(&parts.method, &path, &query));
                let outage = state.next_call();
                let answer = match parts.method {
                    Method::GET => state.read(&path, &query),
                    Method::POST => Ok(state.review(&path, &body)),
                    _ if outage.is_some_and(|outage| !outage.stores) => Err(503),
                    method => state.write(&method, &path, &body, json_patch),
                };
                let answer = match outage {
                    None => answer,
                    Some(Outage { code: Some(code), .. }) => Err(code),
                    Some(_) => return Err("the connection was reset".into()),
                };
                let (code, answer) = match answer {
                    Ok(answer) => (200, answer),
                    Err(code) => (
                        code,
                        json!({"kind": "Status", "status": "Failure", "reason": "X", "message": "no", "code": code}),
                    ),
                };
                let response =
                    Response::builder().status(code).body(Body::from(serde_json::to_vec(&answer)?))?;
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response)
            }
        });
        Caller::new(kube::Client::new(service, "default"), Duration::from_secs(30))
    }
}

impl State {
    fn read(&self, path: &str, query: &str) -> Result<Value, u16> {
        if path == "/version" {
            return Ok(json!({}));
        }
        if path == "/apis/kueue.x-k8s.io/v1beta2" {
            let definitions = self.objects.iter().filter(|(path, _)| path.starts_with(CRDS));
            let all: Vec<Value> =
                definitions.map(|(_, found)| json!({"name": found["spec"]["names"]["plural"]})).collect();
            return Ok(json!({"resources": all}));
        }
        if let Some(object) = self.objects.get(path) {
            return Ok(object.clone());
        }
        if query.is_empty() {
            return Err(404);
        }
        let (group, plural) = path.rsplit_once('/').unwrap_or_default();
        let is_in = |candidate: &str| {
            let (collection, _) = candidate.rsplit_once('/').unwrap_or_default();
            collection == path
                || collection.starts_with(&format!("{group}/namespaces/"))
                    && collection.ends_with(&format!("/{plural}"))
        };
        let found: Vec<(&String, &Value)> = self.objects.iter().filter(|(path, _)| is_in(path)).collect();
        let has_manager = self
            .objects
            .get(&deployment_path())
            .is_some_and(|found| found["status"]["availableReplicas"] == 1);
        if !has_manager && found.iter().any(|(path, _)| self.old.contains(*path)) {
            return Err(429);
        }
        let selected = |object: &Value| {
            !query.contains("labelSelector")
                || object["metadata"]["labels"]["app.kubernetes.io/name"] == "kueue"
        };
        let items: Vec<&Value> =
            found.into_iter().map(|(_, object)| object).filter(|object| selected(object)).collect();
        Ok(json!({"items": items}))
    }

    fn review(&self, path: &str, body: &Value) -> Value {
        if path.ends_with("selfsubjectreviews") {
            return json!({"status": {"userInfo": {"username": "ann"}}});
        }
        let attributes = &body["spec"]["resourceAttributes"];
        let text = |field: &str| attributes[field].as_str().unwrap_or_default().to_owned();
        let (group, sub) = (text("group"), text("subresource"));
        let group = if group.is_empty() { group } else { format!(".{group}") };
        let sub = if sub.is_empty() { sub } else { format!("/{sub}") };
        let right = format!("{} {}{group}{sub}", text("verb"), text("resource"));
        json!({"status": {"allowed": !self.denied.contains(&right)}})
    }

    /// Counts a call; returns the outage if it gets no answer.
    fn next_call(&mut self) -> Option<Outage> {
        let number = self.calls;
        self.calls += 1;
        self.outage.filter(|outage| (outage.from..outage.from + outage.calls).contains(&number))
    }

    /// Makes a write, or refuses it in a way that ends the run as if it was killed.
    fn write(&mut self, method: &Method, path: &str, body: &Value, json_patch: bool) -> Result<Value, u16> {
        let dies = self.death.filter(|death| death.write == self.writes.len());
        let stored = if dies.is_none_or(|death| death.stored) {
            Some(self.store(method, path, body, json_patch))
        } else {
            None
        };
        self.writes.push(format!("{method} {path}"));
        match (dies, stored) {
            (None, Some(answer)) => answer,
            _ => Err(KILLED),
        }
    }

    fn store(&mut self, method: &Method, path: &str, body: &Value, json_patch: bool) -> Result<Value, u16> {
        let path = path.strip_suffix("/status").unwrap_or(path);
        if *method == Method::DELETE {
            return self.objects.remove(path).ok_or(404);
        }
        let object = self.objects.get_mut(path).ok_or(404_u16)?;
        if json_patch {
            for operation in body.as_array().into_iter().flatten() {
                let pointer = operation["path"].as_str().unwrap_or_default();
                let value = object.pointer_mut(pointer).ok_or(422_u16)?;
                match operation["op"].as_str() {
                    Some("test") if *value != operation["value"] => return Err(409),
                    Some("replace") => *value = operation["value"].clone(),
                    _ => {}
                }
            }
        } else {
            merge(object, body);
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let answer = object.clone();
        self.old.remove(path);
        Ok(answer)
    }
}

/// Returns the right that a call needs; `None` for discovery and reviews, which all users may call.
fn right_of(method: &Method, path: &str, query: &str) -> Option<String> {
    let verb = match *method {
        Method::GET if query.is_empty() => "get",
        Method::GET => "list",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => return None,
    };
    let (group, rest) = if let Some(rest) = path.strip_prefix("/api/v1/") {
        ("", rest)
    } else {
        let (group, rest) = path.strip_prefix("/apis/")?.split_once('/')?;
        (group, rest.split_once('/')?.1)
    };
    let mut words: Vec<&str> = rest.split('/').collect();
    if words.first() == Some(&"namespaces") && words.len() > 2 {
        words.drain(..2);
    }
    let group = if group.is_empty() { String::new() } else { format!(".{group}") };
    let sub = words.get(2).map(|sub| format!("/{sub}")).unwrap_or_default();
    Some(format!("{verb} {}{group}{sub}", words.first()?))
}

fn deployment_path() -> String {
    format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/kueue-controller-manager")
}

fn labels(of: Installation) -> Value {
    match of {
        Installation::Kueue => {
            json!({"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"})
        }
        Installation::Sluice => {
            json!({"app.kubernetes.io/name": "kueue", "app.kubernetes.io/component": "controller"})
        }
    }
}

fn merge(into: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *into = patch.clone();
        return;
    };
    for (name, value) in fields {
        merge(&mut into[name.as_str()], value);
    }
}
