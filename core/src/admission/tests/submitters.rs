//! Reviews of a manager that records the accounts of new objects.

use super::super::SubmitterSettings;
use super::super::review::{answer, path_for_kind, rules_of};
use super::*;
use crate::api::names::{MAX_SUBMITTER_BYTES, SUBMITTER_ANNOTATION};
use crate::api::partial::{ValueBudget, read_projection};
use crate::frameworks::{Framework, REPLICA_SET, framework, frameworks};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";
const ANN: &str = "ann@example.com";
const CI: &str = "system:serviceaccount:ci:runner";

fn recording() -> AdmissionSettings {
    let trusted = [CI.to_owned()].into();
    let submitter = Some(SubmitterSettings { trusted, namespace: "kueue-system".to_owned() });
    AdmissionSettings { submitter, passing: [REPLICA_SET].into(), ..AdmissionSettings::default() }
}

/// Asks a rule of a kind as a user, with the review decoded as a whole and in part.
fn ask(
    row: &'static Framework,
    mutating: bool,
    (object, old): (&Value, Option<&Value>),
    (user, settings): (&str, &AdmissionSettings),
    cluster: &Cluster,
) -> ReviewResponse {
    let [default, validate] = rules_of(row);
    let rule: &'static _ = Box::leak(Box::new(if mutating { default } else { validate }));
    let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
    let request = json!({"request": {"uid": "u-1", "operation": operation, "namespace": "ns", "object": object,
        "oldObject": old, "userInfo": {"username": user, "groups": ["system:authenticated"]}}});
    let ctx = ReviewContext { objects: cluster, settings };
    let response = answer(rule, &request["request"], &ctx);
    let read =
        read_projection(&rule.projection, &ValueBudget::new(10_000), request.to_string().as_bytes()).unwrap();
    assert_eq!(answer(rule, &read["request"], &ctx), response, "{request}");
    response
}

/// Returns an object as its mutating webhook changes it, and the warnings.
fn patched(object: &Value, response: ReviewResponse) -> (Value, Vec<String>) {
    let ReviewResponse::Allowed { patch, warnings } = response else { panic!("{response:?}") };
    let operations: json_patch::Patch = serde_json::from_value(Value::Array(patch)).unwrap();
    let mut object = object.clone();
    json_patch::patch(&mut object, &operations).unwrap();
    (object, warnings)
}

fn created(row: &'static Framework, object: &Value, user: &str) -> (Value, Vec<String>) {
    let (cluster, settings) = (Cluster::default(), recording());
    let first = patched(object, ask(row, true, (object, None), (user, &settings), &cluster));
    let (again, _) = patched(&first.0, ask(row, true, (&first.0, None), (user, &settings), &cluster));
    assert_eq!(again, first.0, "a second call changes nothing");
    first
}

fn submitter(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][SUBMITTER_ANNOTATION].as_str()
}

/// An object of a kind with nothing but metadata and an empty spec.
fn object_of(row: &Framework, queue: &str, said: &str) -> Value {
    let mut object = json!({"apiVersion": row.gvk.api_version(), "kind": row.gvk.kind,
        "metadata": {"name": "x", "namespace": "ns", "labels": {}, "annotations": {}}, "spec": {}});
    if row.is_pod() {
        object["spec"] = json!({"containers": [{"name": "c", "image": "x"}]});
    }
    if !queue.is_empty() {
        object["metadata"]["labels"][QUEUE] = json!(queue);
    }
    if !said.is_empty() {
        object["metadata"]["annotations"][SUBMITTER_ANNOTATION] = json!(said);
    }
    object
}

/// Every kind that a queue can hold, pods included: who created it is recorded, whatever the request says.
#[test]
fn accounts_of_all_kinds_are_recorded() {
    for row in frameworks() {
        // What the request says, its user, and what is stored.
        for (said, user, stored) in
            [("", ANN, ANN), ("bob", ANN, ANN), ("bob", CI, "bob"), ("", CI, CI), ("", " ünï ", "ünï")]
        {
            let (object, warnings) = created(row, &object_of(row, "q", said), user);
            assert_eq!(submitter(&object), Some(stored), "{}: {said:?} by {user}", row.name);
            assert!(warnings.iter().all(|text| !text.contains(SUBMITTER_ANNOTATION)), "{warnings:?}");
        }
        // Without a queue no account is recorded, and no other one kept: the object may be managed all the same.
        for (said, user, stored) in [("", ANN, None), ("bob", ANN, Some("")), ("bob", CI, Some("bob"))] {
            let (object, _) = created(row, &object_of(row, "", said), user);
            assert_eq!(submitter(&object), stored, "{} without a queue: {said:?} by {user}", row.name);
        }
    }
}

/// Without the option each answer is that of a request without a user.
#[test]
fn nothing_is_recorded_without_the_option() {
    let (cluster, off) = (Cluster::default(), AdmissionSettings::default());
    for row in frameworks() {
        for (queue, said) in [("q", ""), ("q", "bob"), ("", "bob")] {
            let (object, other) = (object_of(row, queue, said), object_of(row, queue, "eve"));
            for mutating in [true, false] {
                for old in [None, Some(&other)] {
                    let of = |user: &str| ask(row, mutating, (&object, old), (user, &off), &cluster);
                    assert_eq!(of(ANN), of(""), "{}", row.name);
                }
            }
            let response = ask(row, true, (&object, None), (ANN, &off), &cluster);
            let (object, _) = patched(&object, response);
            assert_eq!(submitter(&object).unwrap_or_default(), said, "{}", row.name);
        }
    }
}

/// An object below a managed owner counts as its owner's, and one that only says so does not; neither keeps what its request says.
#[test]
fn objects_of_an_owner_have_no_account() {
    let job = framework("batch", "Job").unwrap();
    let owned_by = |(api_version, kind, uid): (&str, &str, &str), said: &str| {
        let mut object = object_of(job, "q", said);
        object["metadata"]["ownerReferences"] = json!([{"apiVersion": api_version, "kind": kind, "name": "above",
            "uid": uid, "controller": true}]);
        object
    };
    let (set, own) = ("jobset.x-k8s.io/v1alpha2", "above-1");
    for (owner, queue, said, user, recorded) in [
        ((set, "JobSet", own), "q", "", ANN, None),
        ((set, "JobSet", own), "q", "bob", ANN, Some("")),
        ((set, "JobSet", own), "q", "bob", CI, Some("bob")),
        // It has a Workload of its own.
        ((set, "JobSet", own), "", "", ANN, None),
        ((set, "JobSet", own), "", "bob", ANN, Some("")),
        ((set, "JobSet", "above-2"), "q", "bob", ANN, Some("")),
        (("batch/v1", "CronJob", own), "q", "bob", ANN, Some(ANN)),
        (("batch/v1", "Job", own), "q", "bob", ANN, Some(ANN)),
        (("example.com/v1", "Foo", own), "q", "bob", ANN, Some(ANN)),
    ] {
        let above = OwnerView {
            uid: own.to_owned(),
            queue_name: Some(queue.to_owned()),
            submitter: Some("bob".into()),
            ..OwnerView::default()
        };
        let cluster = Cluster { owners: [("above".to_owned(), above)].into(), ..Cluster::default() };
        let object = owned_by(owner, said);
        let response = ask(job, true, (&object, None), (user, &recording()), &cluster);
        let (object, _) = patched(&object, response);
        assert_eq!(submitter(&object), recorded, "{owner:?} in {queue:?}: {said:?} by {user}");
    }
}

/// The pods of a Deployment have Workloads of their own, which are those of its submitter.
#[test]
fn templates_name_the_submitter_of_their_object() {
    let deployment = framework("apps", "Deployment").unwrap();
    let mut object = object_of(deployment, "q", "");
    let metadata = json!({"annotations": {SUBMITTER_ANNOTATION: "bob"}});
    object["spec"] = json!({"template": {"metadata": metadata, "spec": {"containers": []}}});
    let in_template =
        |object: &Value| object["spec"]["template"]["metadata"]["annotations"][SUBMITTER_ANNOTATION].clone();
    let (stored, _) = created(deployment, &object, ANN);
    assert_eq!((submitter(&stored), in_template(&stored)), (Some(ANN), json!(ANN)));
    // Another user changes the template later.
    let mut changed = stored.clone();
    changed["spec"]["template"]["metadata"]["annotations"][SUBMITTER_ANNOTATION] = json!("bob");
    let (cluster, settings) = (Cluster::default(), recording());
    let response = ask(deployment, true, (&changed, Some(&stored)), ("eve", &settings), &cluster);
    assert_eq!(in_template(&patched(&changed, response).0), json!(ANN));
    // One that is marked for another kind is not managed, and its pods are.
    let mut other = object_of(deployment, "q", "bob");
    other["spec"]["template"] =
        json!({"metadata": {"annotations": {PARENT: "statefulset"}}, "spec": {"containers": []}});
    assert_eq!(submitter(&created(deployment, &other, ANN).0), Some(""));
}

/// Its pods have the name that is recorded in it, whatever they say, and which account creates them.
#[test]
fn pods_of_a_deployment_name_its_submitter() {
    const CONTROLLER: &str = "system:serviceaccount:kube-system:replicaset-controller";
    let row = framework("", "Pod").unwrap();
    let reference = |api_version: &str, kind: &str, name: &str, uid: &str| OwnerRef {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
    };
    let view = |uid: &str, queue: &str, controller: Option<OwnerRef>, submitter: Option<&str>| OwnerView {
        uid: uid.to_owned(),
        queue_name: Some(queue.to_owned()),
        controller,
        submitter: submitter.map(Into::into),
        ..OwnerView::default()
    };
    let below = |uid: &str| Some(reference("apps/v1", "Deployment", "d", uid));
    let other = Some(reference("apps/v1", "Deployment", "unqueued", "u-1"));
    let gone = Some(reference("apps/v1", "Deployment", "gone", "g-1"));
    let owners = [
        ("d", view("d-1", "q", None, Some(ANN))),
        ("unqueued", view("u-1", "", None, Some("bob"))),
        ("r", view("r-1", "", below("d-1"), None)),
        ("stale", view("s-1", "", below("d-2"), None)),
        ("of-unqueued", view("o-1", "", other, None)),
        ("of-gone", view("l-1", "", gone, None)),
        ("plain", view("p-1", "", None, None)),
        ("job", view("j-1", "q", None, Some("bob"))),
    ];
    let owners = owners.map(|(name, view)| (name.to_owned(), view)).into();
    let (cluster, settings) = (Cluster { owners, ..Cluster::default() }, recording());
    let set = ("apps/v1", "ReplicaSet");
    for ((api_version, kind), name, uid, said, user, recorded) in [
        (set, "r", "r-1", ANN, CONTROLLER, Some(Some(ANN))),
        (set, "r", "r-1", "", CONTROLLER, Some(Some(ANN))),
        (set, "r", "r-1", "bob", "eve", Some(Some(ANN))),
        (set, "r", "r-1", "bob", CI, Some(Some("bob"))),
        // What the request refers to is not stored, or in no queue.
        (set, "r", "r-2", "bob", "eve", Some(Some(""))),
        (set, "stale", "s-1", "bob", "eve", Some(Some(""))),
        (set, "of-unqueued", "o-1", "bob", "eve", Some(Some(""))),
        (set, "plain", "p-1", "bob", "eve", Some(Some(""))),
        (set, "plain", "p-1", "", CONTROLLER, Some(None)),
        (("batch/v1", "Job"), "job", "j-1", "bob", "eve", Some(Some(""))),
        // It may be so new that it is not known.
        (set, "none", "n-1", "bob", "eve", None),
        (set, "of-gone", "l-1", "bob", "eve", None),
        (set, "none", "n-1", "", CONTROLLER, Some(None)),
    ] {
        let mut pod = object_of(row, "q", said);
        pod["metadata"]["annotations"][PARENT] = json!("deployment");
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}]);
        let found = match ask(row, true, (&pod, None), (user, &settings), &cluster) {
            ReviewResponse::NotYet(_) => None,
            response => Some(submitter(&patched(&pod, response).0).map(str::to_owned)),
        };
        let recorded = recorded.map(|name| name.map(str::to_owned));
        assert_eq!(found, recorded, "{kind} {name} {uid}: {said:?} by {user}");
    }
    let mut marked = object_of(row, "q", "bob");
    marked["metadata"]["annotations"][PARENT] = json!("deployment");
    assert_eq!(submitter(&created(row, &marked, ANN).0), Some(ANN), "it only says that it is one");
}

/// A user can give a pod the gate of admission, so that it is started wherever it is.
#[test]
fn pods_that_are_left_alone_keep_no_name() {
    let row = framework("", "Pod").unwrap();
    let settings = recording();
    let system = [("kubernetes.io/metadata.name".to_owned(), "kube-system".to_owned())];
    let unselected = Cluster { labels: system.into(), ..Cluster::default() };
    let job = OwnerView { uid: "j-1".to_owned(), queue_name: Some("q".to_owned()), ..OwnerView::default() };
    let queued = Cluster { owners: [("j".to_owned(), job)].into(), ..Cluster::default() };
    let plain = object_of(row, "q", "bob");
    let mut owned = plain.clone();
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j-1", "controller": true}]);
    let disabled = AdmissionSettings { frameworks: ["deployment".to_owned()].into(), ..recording() };
    for (pod, cluster, settings, recorded) in [
        (&plain, &unselected, &settings, ANN),
        (&owned, &queued, &settings, ""),
        (&plain, &queued, &disabled, ANN),
    ] {
        let (changed, _) = patched(pod, ask(row, true, (pod, None), (ANN, settings), cluster));
        assert_eq!(submitter(&changed), Some(recorded));
        assert!(changed["spec"].get("schedulingGates").is_none(), "{changed}");
    }
}

#[test]
fn a_recorded_account_is_not_changed() {
    let (cluster, settings) = (Cluster::default(), recording());
    for row in frameworks() {
        let refused = |(queue, said): (&str, &str), (before, was): (&str, &str), user: &str| {
            let (new, old) = (object_of(row, queue, said), object_of(row, before, was));
            match ask(row, false, (&new, Some(&old)), (user, &settings), &cluster) {
                ReviewResponse::Denied(text) => text.contains(SUBMITTER_ANNOTATION),
                _ => false,
            }
        };
        for (new, old, user, expected) in [
            (("q", ANN), ("q", ANN), "eve", false),
            (("q", "eve"), ("q", ANN), "eve", true),
            (("q", ""), ("q", ANN), ANN, true),
            (("q", "eve"), ("q", ""), "eve", true),
            (("q", "bob"), ("q", ANN), CI, false),
            // An object that joins a queue later names the account that puts it there, or none.
            (("q", "bob"), ("", "bob"), "eve", true),
            (("q", "eve"), ("", "bob"), "eve", false),
            (("q", ""), ("", ""), "eve", false),
        ] {
            assert_eq!(refused(new, old, user), expected, "{}: {old:?} to {new:?} by {user}", row.name);
        }
    }
}

/// A Workload that no job has is recorded as well; one of a job belongs to the job.
#[test]
fn accounts_of_workloads_are_recorded() {
    let (cluster, settings) = (Cluster::default(), recording());
    let ask = |object: &Value, old: Option<&Value>, user: &str, mutating: bool| {
        let path = path_for_kind("kueue.x-k8s.io", "Workload", mutating).unwrap();
        let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
        let request = json!({"request": {"uid": "u-1", "operation": operation, "namespace": "ns", "object": object,
            "oldObject": old, "userInfo": {"username": user}}});
        let read = read_heavy(path, request.to_string().as_bytes()).unwrap();
        evaluate(path, &read["request"], &ReviewContext { objects: &cluster, settings: &settings })
    };
    let mut workload = subject();
    workload["metadata"]["annotations"] = json!({SUBMITTER_ANNOTATION: "bob"});
    let (stored, _) = patched(&workload, ask(&workload, None, ANN, true));
    assert_eq!(submitter(&stored), Some(ANN));
    let refusal = ask(&workload, Some(&stored), ANN, false);
    assert!(
        matches!(&refusal, ReviewResponse::Denied(text) if text.contains(SUBMITTER_ANNOTATION)),
        "{refusal:?}"
    );
    // A label puts no Workload in a queue.
    let (mut unlabelled, mut labelled) = (stored.clone(), stored);
    unlabelled["metadata"]["labels"] = json!({});
    labelled["metadata"]["labels"] = json!({QUEUE: "q"});
    labelled["metadata"]["annotations"][SUBMITTER_ANNOTATION] = json!("eve");
    let refusal = ask(&labelled, Some(&unlabelled), "eve", false);
    assert!(
        matches!(&refusal, ReviewResponse::Denied(text) if text.contains(SUBMITTER_ANNOTATION)),
        "{refusal:?}"
    );
    for owner in [
        json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p-1"}),
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j-1", "controller": true}),
    ] {
        workload["metadata"]["ownerReferences"] = json!([owner]);
        for (user, recorded) in [
            ("system:serviceaccount:kueue-system:kueue-controller-manager", "bob"),
            (CI, "bob"),
            (ANN, ""),
            ("", ""),
            ("system:serviceaccount:team:kueue-controller-manager", ""),
            ("system:serviceaccount:kueue-system", ""),
            ("kueue-system:kueue-controller-manager", ""),
        ] {
            let (stored, _) = patched(&workload, ask(&workload, None, user, true));
            assert_eq!(submitter(&stored), Some(recorded), "{owner} by {user}");
        }
    }
}

/// Names are texts of any kind up to a bound.
#[test]
fn long_and_odd_names_are_kept_or_left_out() {
    let row = framework("batch", "Job").unwrap();
    let odd = format!("https://login/\r\n<b>&\"'\u{202e}{}", "é".repeat(495));
    assert!((990..=MAX_SUBMITTER_BYTES).contains(&odd.len()), "{}", odd.len());
    assert_eq!(submitter(&created(row, &object_of(row, "q", ""), &odd).0), Some(odd.as_str()));
    let long = "a".repeat(MAX_SUBMITTER_BYTES + 1);
    let (object, warnings) = created(row, &object_of(row, "q", ""), &long);
    assert_eq!(submitter(&object), None);
    assert!(warnings.iter().any(|text| text.contains("1025 bytes") && text.len() < 300), "{warnings:?}");
    let (object, _) = created(row, &object_of(row, "q", "bob"), &long);
    assert_eq!(submitter(&object), Some(""), "the request names no other account");
}
