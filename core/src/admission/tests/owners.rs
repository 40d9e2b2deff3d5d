//! What owners decide for the objects below them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::{
    AdmissionSettings, OwnerRef, OwnerView, ReviewContext, admit_object, may_change_soon, objects_above,
};
use super::{Cluster, allowed, asked, job, queued};
use crate::frameworks::{Above, AncestryError, Searched};

pub(super) fn owner(name: &str) -> OwnerRef {
    OwnerRef {
        api_version: "batch/v1".into(),
        kind: "Job".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
    }
}

pub(super) fn view(name: &str, queue: Option<&str>, controller: Option<OwnerRef>) -> (String, OwnerView) {
    (
        name.to_owned(),
        OwnerView {
            uid: format!("uid-{name}"),
            queue_name: queue.map(str::to_owned),
            controller,
            ..OwnerView::default()
        },
    )
}

pub(super) fn foreign(name: &str) -> OwnerRef {
    OwnerRef { kind: "Foo".into(), api_version: "example.com/v1".into(), ..owner(name) }
}

/// Returns settings with the external kind Foo.
pub(super) fn with_foreign_kind() -> AdmissionSettings {
    let external = BTreeSet::from([("example.com".to_owned(), "Foo".to_owned())]);
    AdmissionSettings { external_kinds: external, ..AdmissionSettings::default() }
}

fn above(
    owners: Vec<(String, OwnerView)>,
    first: &OwnerRef,
    settings: &AdmissionSettings,
) -> Result<Option<OwnerRef>, AncestryError> {
    let cluster = Cluster { owners: owners.into_iter().collect(), ..Cluster::default() };
    let object = Searched { kind: ("batch", "Job"), uid: "me", names_queue: true, controller: Some(first) };
    let above = objects_above(&ReviewContext { objects: &cluster, settings }, "ns", object);
    above.map(Above::queued)
}

#[test]
fn highest_queued_ancestor_wins_and_cycles_are_errors() {
    let settings = with_foreign_kind();
    let walk = |owners, first| above(owners, &foreign(first), &settings);
    let queued = |name| Ok(Some(foreign(name)));
    let chain = vec![view("a", Some("lq"), Some(foreign("b"))), view("b", Some("lq"), None)];
    assert_eq!(walk(chain, "a"), queued("b"));
    assert_eq!(walk(vec![view("a", None, None)], "a"), Ok(None));
    let cycle = vec![view("a", None, Some(foreign("b"))), view("b", None, Some(foreign("a")))];
    assert!(walk(cycle, "a").unwrap_err().to_string().contains("cycle"));
    let long = (0..20).map(|i| view(&i.to_string(), None, Some(foreign(&(i + 1).to_string())))).collect();
    assert!(walk(long, "0").unwrap_err().to_string().contains("more than 10"));
}

#[test]
fn external_owner_is_found_by_workload() {
    let queued = vec![view("a", Some("lq"), None)];
    let ancestor = Ok(Some(foreign("a")));
    assert_eq!(above(queued.clone(), &foreign("a"), &with_foreign_kind()), ancestor);
    assert_eq!(
        above(vec![], &foreign("a"), &with_foreign_kind()),
        Ok(None),
        "an owner without a Workload is unmanaged"
    );
    assert_eq!(above(queued, &foreign("a"), &AdmissionSettings::default()), Ok(None));
}

/// Defaults a new Job with this controller owner; returns whether it is suspended, and its queue.
fn with_owner(owner: &OwnerRef, queue: &str, settings: &AdmissionSettings) -> (bool, Option<String>) {
    let cluster = Cluster {
        queues: vec!["lq", "default"],
        owners: [view(&owner.name, Some("lq"), None)].into(),
        ..Cluster::default()
    };
    let mut job = if queue.is_empty() { job() } else { queued(queue) };
    job["metadata"]["ownerReferences"] = json!([{"apiVersion": owner.api_version, "kind": owner.kind,
        "name": owner.name, "uid": owner.uid, "controller": true}]);
    let ctx = ReviewContext { objects: &cluster, settings };
    let (job, _) = admit_object(("batch", "Job"), job, None, |_| Ok(()), &ctx).unwrap();
    let queue = job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"].as_str();
    (job["spec"]["suspend"] == true, queue.filter(|name| !name.is_empty()).map(str::to_owned))
}

#[test]
fn owner_reference_does_not_bypass_queue() {
    let set = OwnerRef {
        kind: "JobSet".to_owned(),
        api_version: "jobset.x-k8s.io/v1alpha2".to_owned(),
        ..owner("set")
    };
    let only_jobs = BTreeSet::from(["batch/job".to_owned()]);
    for managing in [false, true] {
        let settings =
            AdmissionSettings { manage_jobs_without_queue_name: managing, ..AdmissionSettings::default() };
        let suspended = |queue: &str| (true, Some(queue.to_owned()));
        // A Job creates no Jobs, so a Job that names a queue is not exempt from it. Without a queue it waits for its owner.
        assert_eq!(with_owner(&owner("parent"), "lq", &settings), suspended("lq"));
        assert_eq!(with_owner(&owner("parent"), "", &settings), (false, None));
        assert_eq!(with_owner(&owner("absent"), "lq", &settings), suspended("lq"));
        // An owner of a kind that is not configured has no effect.
        let settings = AdmissionSettings { frameworks: only_jobs.clone(), ..settings };
        assert_eq!(with_owner(&set, "", &settings), suspended("default"));
        assert_eq!(with_owner(&set, "lq", &settings), suspended("lq"));
    }
}

/// What is in no queue is accepted unchanged, whatever is known of its owner. What is in a queue is refused for a moment if its owner
/// may be delivered soon.
#[test]
fn owners_that_cannot_be_seen() {
    let settings = AdmissionSettings::default();
    let managing = AdmissionSettings { manage_jobs_without_queue_name: true, ..AdmissionSettings::default() };
    let elsewhere = Cluster {
        labels: [("kubernetes.io/metadata.name".to_owned(), "kube-system".to_owned())].into(),
        queues: vec!["default"],
        ..Cluster::default()
    };
    let here = Cluster { queues: vec!["default"], ..Cluster::default() };
    let templated = |kind: &str| {
        json!({"kind": kind, "metadata": {"name": "j", "namespace": "ns", "uid": "j-1", "labels": {}},
            "spec": {"template": {"metadata": {}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}})
    };
    let pod = json!({"kind": "Pod", "metadata": {"name": "j", "namespace": "ns", "uid": "j-1", "labels": {}},
        "spec": {"containers": [{"name": "c", "image": "x"}]}});
    let children = [
        ("/mutate-batch-v1-job", ("batch", "Job"), job()),
        ("/mutate-apps-v1-deployment", ("apps", "Deployment"), templated("Deployment")),
        ("/mutate-apps-v1-statefulset", ("apps", "StatefulSet"), templated("StatefulSet")),
        ("/mutate--v1-pod", ("", "Pod"), pod),
    ];
    let owner = |api_version: &str, kind: &str| json!([{"apiVersion": api_version, "kind": kind, "name": "old", "uid": "o-1", "controller": true}]);
    let current = owner("workload.codeflare.dev/v1beta2", "AppWrapper");
    let others = [
        owner("workload.codeflare.dev/v1beta1", "AppWrapper"),
        owner("kubeflow.org/v1", "MPIJob"),
        owner("ray.io/v1alpha1", "RayCluster"),
    ];
    let patched = |response: &Value| response["response"].get("patch").is_some();
    for (path, kind, object) in children {
        let below = |owner: &Value, queue: Option<&str>| {
            let mut object = object.clone();
            object["metadata"]["ownerReferences"] = owner.clone();
            if let Some(queue) = queue {
                object["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!(queue);
            }
            object
        };
        let answer =
            |object: &Value, old: Option<&Value>, cluster: &Cluster, settings: &AdmissionSettings| {
                let response = asked(path, object, old, cluster, settings);
                (allowed(&response), patched(&response))
            };
        let old = below(&current, None);
        for (cluster, settings) in [(&here, &settings), (&elsewhere, &settings), (&elsewhere, &managing)] {
            let (new, changed) =
                (answer(&old, None, cluster, settings), answer(&old, Some(&old), cluster, settings));
            assert_eq!((new, changed), ((true, false), (true, false)), "{path}: in no queue");
        }
        // In a queue, and the owner may come: refused for a moment, but what is stored stays as it is.
        let queued = below(&current, Some("lq"));
        let refusal = asked(path, &queued, None, &here, &settings);
        assert!(!allowed(&refusal) && may_change_soon(&refusal), "{path}: {refusal}");
        assert_eq!(answer(&queued, Some(&queued), &here, &settings), (true, false), "{path}");
        assert_eq!(answer(&old, None, &here, &managing), (false, false), "{path}");
        // The version of the owner is not read, so nothing more will be known of it.
        for other in &others {
            assert_eq!(
                answer(&below(other, Some("lq")), None, &here, &settings),
                (true, true),
                "{path}: {other}"
            );
            // It gets the queue of its namespace unless the controllers of the kind of its owner create such objects.
            let object = below(other, None);
            let controller = OwnerRef::controller_of(&object).unwrap();
            let owned = settings.managed_kinds().may_own(&controller, kind);
            assert_eq!(answer(&object, None, &here, &settings), (true, !owned), "{path}: {other}");
            assert_eq!(answer(&object, None, &elsewhere, &settings), (true, false), "{path}: {other}");
        }
    }
}
