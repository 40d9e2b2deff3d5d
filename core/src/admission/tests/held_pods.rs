//! Reviews of kinds whose pods are held by gates. Their rules are made from their rows.

use super::super::review::{answer, rules_of};
use super::*;
use crate::api::partial::{ValueBudget, read_projection};
use crate::api::validation::Gates;
use crate::frameworks::{framework, role_hash};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";

/// Settings with all frameworks that have pods of their own enabled.
fn settings() -> AdmissionSettings {
    let names = ["batch/job", "pod", "deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"];
    AdmissionSettings { frameworks: names.map(str::to_owned).into(), ..AdmissionSettings::default() }
}

/// A cluster whose namespace is selected, with these queues.
fn cluster(queues: &[&'static str]) -> Cluster {
    Cluster { queues: queues.to_vec(), ..Cluster::default() }
}

fn cluster_without_selected_namespace() -> Cluster {
    let labels = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), "kube-system".to_owned())]);
    Cluster { labels, ..Cluster::default() }
}

/// Answers a review by the mutating or validating rule of a kind, as decoded by the rule and as a whole.
fn review_of(
    (group, kind): (&str, &str),
    (mutating, object, old): (bool, &Value, Option<&Value>),
    cluster: &Cluster,
    settings: &AdmissionSettings,
) -> ReviewResponse {
    let [default, validate] = rules_of(framework(group, kind).unwrap());
    let rule: &'static _ = Box::leak(Box::new(if mutating { default } else { validate }));
    let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
    let request = json!({"request": {"uid": "u-1", "operation": operation, "namespace": "ns", "object": object, "oldObject": old}});
    let ctx = ReviewContext { objects: cluster, settings };
    let response = answer(rule, &request["request"], &ctx);
    let read =
        read_projection(&rule.projection, &ValueBudget::new(10_000), request.to_string().as_bytes()).unwrap();
    assert_eq!(answer(rule, &read["request"], &ctx), response, "{request}");
    response
}

/// Returns an object after its defaulting, which changes nothing the second time.
fn defaulted(kind: (&str, &str), object: &Value, cluster: &Cluster, settings: &AdmissionSettings) -> Value {
    let apply = |object: &Value| {
        let response = review_of(kind, (true, object, None), cluster, settings);
        let ReviewResponse::Allowed { patch, .. } = response else { panic!("{response:?}") };
        let operations: json_patch::Patch = serde_json::from_value(Value::Array(patch)).unwrap();
        let mut object = object.clone();
        json_patch::patch(&mut object, &operations).unwrap();
        object
    };
    let once = apply(object);
    assert_eq!(apply(&once), once);
    once
}

fn pod(labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "labels": labels, "annotations": {}},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}],
            "schedulingGates": [{"name": "example.com/own"}]}})
}

#[test]
fn pod_of_a_queue_is_held() {
    let (before, kind) = (pod(&json!({QUEUE: "q"})), ("", "Pod"));
    let held = defaulted(kind, &before, &cluster(&["q"]), &settings());
    let gate = |name: &str| json!({ "name": name });
    assert_eq!(
        held["spec"]["schedulingGates"],
        json!([gate("example.com/own"), gate("kueue.x-k8s.io/admission"), gate("kueue.x-k8s.io/topology")])
    );
    assert_eq!(held["metadata"]["finalizers"], json!(["kueue.x-k8s.io/managed"]));
    assert_eq!(held["metadata"]["labels"]["kueue.x-k8s.io/managed"], "true");
    let hash = role_hash(&before["spec"]);
    assert_eq!(held["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"], json!(hash));
    let mut gates = settings();
    gates.gates = Gates::new(BTreeMap::from([("TopologyAwareScheduling".to_owned(), false)]));
    let held = defaulted(kind, &before, &cluster(&["q"]), &gates);
    assert_eq!(held["spec"]["schedulingGates"].as_array().unwrap().len(), 2, "no gate of topologies");
}

#[test]
fn pods_that_do_not_wait_are_left_alone() {
    let (kind, all) = (("", "Pod"), settings());
    let (plain, queued) = (pod(&json!({})), pod(&json!({QUEUE: "q"})));
    assert_eq!(defaulted(kind, &plain, &cluster(&[]), &all), plain);
    let system = cluster_without_selected_namespace();
    assert_eq!(defaulted(kind, &queued, &system, &all), queued, "namespace is not selected");
    let disabled = AdmissionSettings { frameworks: ["batch/job".to_owned()].into(), ..settings() };
    assert_eq!(defaulted(kind, &queued, &cluster(&["q"]), &disabled), queued, "framework is not enabled");
    let mut owned = queued.clone();
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j-1", "controller": true}]);
    let mut owners = cluster(&["q"]);
    let owner = OwnerView { uid: "j-1".to_owned(), queue_name: Some("q".to_owned()), ..OwnerView::default() };
    owners.owners.insert("j".to_owned(), owner);
    assert_eq!(defaulted(kind, &owned, &owners, &all), owned, "its Job is queued in its place");
    let only_deployments = AdmissionSettings { frameworks: ["deployment".to_owned()].into(), ..settings() };
    assert_eq!(
        defaulted(kind, &queued, &cluster(&["q"]), &only_deployments),
        queued,
        "the controller ignores it"
    );
    for (parent, held) in [("deployment", true), ("statefulset", false), ("example.com/own", true)] {
        let mut marked = queued.clone();
        marked["metadata"]["annotations"][PARENT] = json!(parent);
        let changed = defaulted(kind, &marked, &cluster(&["q"]), &only_deployments) != marked;
        assert_eq!(changed, held, "{parent}");
    }
    let held = defaulted(kind, &plain, &cluster(&["default"]), &all);
    assert_eq!(held["metadata"]["labels"][QUEUE], "default");
    assert!(held["spec"]["schedulingGates"].as_array().unwrap().len() > 1);
}

/// A pod that comes right after its namespace: whether the namespace is selected is not known yet.
#[test]
fn pod_in_an_unknown_namespace_is_held() {
    let (kind, plain, queued) = (("", "Pod"), pod(&json!({})), pod(&json!({QUEUE: "q"})));
    let unknown = Cluster { is_namespace_unknown: true, ..cluster(&["q"]) };
    assert_ne!(defaulted(kind, &queued, &unknown, &settings()), queued);
    assert_eq!(defaulted(kind, &plain, &unknown, &settings()), plain);
    let all = AdmissionSettings { manage_jobs_without_queue_name: true, ..settings() };
    let answer = review_of(kind, (true, &plain, None), &unknown, &all);
    assert!(matches!(answer, ReviewResponse::NotYet(message) if message.contains("try again")));
}

/// A user may not choose the role of a pod: another role may request less.
#[test]
fn role_of_a_pod_is_computed() {
    let (hash, kind) = ("kueue.x-k8s.io/role-hash", ("", "Pod"));
    let mut chosen = pod(&json!({QUEUE: "q"}));
    chosen["metadata"]["annotations"][hash] = json!("00000000");
    let held = defaulted(kind, &chosen, &cluster(&["q"]), &settings());
    assert_eq!(held["metadata"]["annotations"][hash], json!(role_hash(&chosen["spec"])));
    let mut changed = held.clone();
    changed["metadata"]["annotations"][hash] = json!("00000000");
    let refused = |old: &Value, new: &Value| {
        review_of(kind, (false, new, Some(old)), &cluster(&["q"]), &settings()) != ReviewResponse::allowed()
    };
    assert!(refused(&held, &changed));
    let marked = |pod: &Value| {
        let mut pod = pod.clone();
        pod["metadata"]["annotations"][PARENT] = json!("statefulset");
        pod
    };
    assert!(
        !refused(&marked(&held), &marked(&changed)),
        "a controller gives roles to the pods of its templates"
    );
}

/// The template was marked where the queue was known, so the pods wait wherever they are, and their parent replaces them.
#[test]
fn pod_of_a_marked_template_is_held_without_a_finalizer() {
    let mut marked = pod(&json!({}));
    marked["metadata"]["annotations"][PARENT] = json!("deployment");
    let held = defaulted(("", "Pod"), &marked, &cluster_without_selected_namespace(), &settings());
    assert!(held["spec"]["schedulingGates"].as_array().unwrap().len() > 1);
    assert_eq!(held["metadata"].get("finalizers"), None);
}

#[test]
fn templates_are_marked_by_the_row() {
    let (class, template) = ("kueue.x-k8s.io/priority-class", json!({"spec": {"containers": []}}));
    let object = |kind: &str, spec: Value| {
        let metadata = json!({"name": "d", "namespace": "ns", "labels": {QUEUE: "q", class: "c"}});
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec})
    };
    let deployment = object("Deployment", json!({ "template": template }));
    let kind = ("apps", "Deployment");
    let marked = defaulted(kind, &deployment, &cluster(&["q"]), &settings());
    let managed = "kueue.x-k8s.io/managed";
    assert_eq!(
        marked["spec"]["template"]["metadata"],
        json!({"annotations": {PARENT: "deployment"}, "labels": {managed: "true", QUEUE: "q", class: "c"}})
    );
    let mut without_queue = deployment.clone();
    without_queue["metadata"]["labels"] = json!({});
    assert_eq!(defaulted(kind, &without_queue, &cluster(&[]), &settings()), without_queue);
    let by_default = defaulted(kind, &without_queue, &cluster(&["default"]), &settings());
    assert_eq!(by_default["spec"]["template"]["metadata"]["labels"][QUEUE], "default");
    let changed = review_of(kind, (true, &deployment, Some(&without_queue)), &cluster(&["q"]), &settings());
    assert!(matches!(changed, ReviewResponse::Allowed { patch, .. } if !patch.is_empty()), "updates as well");

    let set = defaulted(
        ("apps", "StatefulSet"),
        &object("StatefulSet", json!({ "template": template })),
        &cluster(&["q"]),
        &settings(),
    );
    assert_eq!(set["spec"]["template"]["metadata"], json!({"annotations": {PARENT: "statefulset"}}));

    let leader = json!({"leaderWorkerTemplate": {"workerTemplate": template}});
    let group = defaulted(
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
        &object("LeaderWorkerSet", leader),
        &cluster(&["q"]),
        &settings(),
    );
    let templates = group["spec"]["leaderWorkerTemplate"].as_object().unwrap();
    let worker = &templates["workerTemplate"]["metadata"];
    assert_eq!((templates.len(), &worker["labels"]), (1, &json!({QUEUE: "q", class: "c"})));
    assert_eq!(worker["annotations"]["kueue.x-k8s.io/pod-group-serving"], "true");
}

/// The queue may change while nothing runs: while a pod has its gate, and while no pod is ready.
#[test]
fn queue_changes_while_nothing_runs() {
    let allowed = |kind: (&str, &str), object: &Value| {
        let mut other = object.clone();
        other["metadata"]["labels"][QUEUE] = json!("other");
        let request = (false, &other, Some(object));
        review_of(kind, request, &cluster(&["q"]), &settings()) == ReviewResponse::allowed()
    };
    let running = pod(&json!({QUEUE: "q"}));
    let held = defaulted(("", "Pod"), &running, &cluster(&["q"]), &settings());
    assert!(allowed(("", "Pod"), &held) && !allowed(("", "Pod"), &running));
    let mut deployment = json!({"metadata": {"name": "d", "labels": {QUEUE: "q"}}, "spec": {"template": {}}});
    assert!(allowed(("apps", "Deployment"), &deployment));
    deployment["status"] = json!({"readyReplicas": 1});
    assert!(!allowed(("apps", "Deployment"), &deployment));
}

/// The ReplicaSet of a Deployment could create no pod, and only its events would say so.
#[test]
fn deployment_with_contradicting_topologies_is_refused() {
    let (cluster, settings) = (cluster(&[]), settings());
    let deployment = |queue: &str, required: &str| {
        json!({"metadata": {"name": "d", "namespace": "ns", "labels": {QUEUE: queue}},
            "spec": {"template": {"metadata": {"annotations": {
                "kueue.x-k8s.io/podset-preferred-topology": "rack",
                required: "host"}}}}})
    };
    let review =
        |object: &Value| review_of(("apps", "Deployment"), (false, object, None), &cluster, &settings);
    let contradicting = deployment("lq", "kueue.x-k8s.io/podset-required-topology");
    let ReviewResponse::Denied(error) = review(&contradicting) else { panic!("it is accepted") };
    assert!(
        format!("{error:?}").contains("spec.template.metadata.annotations: Invalid value: "),
        "{error:?}"
    );
    assert_eq!(review(&deployment("lq", "example.com/other")), ReviewResponse::allowed());
    let mut unmanaged = contradicting;
    unmanaged["metadata"]["labels"] = json!({});
    assert_eq!(review(&unmanaged), ReviewResponse::allowed());
}
