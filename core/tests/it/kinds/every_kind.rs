//! Rules that hold for the jobs of every kind: which wait for admission, and which queue they get. Each served row of the table
//! is tried, by its sample.

use crate::fixtures::every_job_kind::{Managed, Namespace, QUEUE, sample, server};
use crate::fixtures::job_server::JobServer;
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::{Framework, JobKind, LabelValue, Role, framework, frameworks, pod_selector};

const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";

/// Returns whether a stored object cannot run: it is suspended, its gate holds it, or its templates are marked.
fn is_held(row: &Framework, object: &Value) -> bool {
    match row.fields.suspend {
        Some(suspend) => object.pointer(suspend) == Some(&json!(true)),
        None if row.is_pod() => {
            object["spec"]["schedulingGates"].to_string().contains("kueue.x-k8s.io/admission")
        }
        None => object["spec"].to_string().contains(PARENT),
    }
}

/// Returns the names of the Workloads that an object owns.
fn workloads_of(server: &JobServer, object: &Value) -> Vec<Value> {
    let owns = |workload: &Value| {
        let owners = workload["metadata"]["ownerReferences"].as_array();
        owners.is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == object["metadata"]["uid"]))
    };
    server.all(Kind::Workload).into_iter().filter(owns).collect()
}

fn stored(server: &JobServer, row: &'static Framework) -> Value {
    let name = row.gvk.kind.to_lowercase();
    server.get(Kind::of_job(JobKind::new(row)), &name).unwrap().clone()
}

/// Returns an owner whose controller creates objects of any kind.
fn owner() -> &'static Framework {
    framework("workload.codeflare.dev", "AppWrapper").unwrap()
}

/// A job waits if it names a queue, or if jobs without a queue are managed in its namespace; a pod only in managed namespaces. Below an
/// object that waits itself, it does not. It gets a Workload in managed namespaces alone.
#[test]
fn which_jobs_wait_for_admission() {
    for managed in [Managed::WithQueue, Managed::All] {
        for namespace in [Namespace::Selected, Namespace::Other] {
            for queue in ["lq", ""] {
                for row in frameworks() {
                    let case = format!("{} {managed:?} {namespace:?} queue {queue:?}", row.name);
                    let selected = namespace == Namespace::Selected;
                    let mut server = server(managed, namespace);
                    server.submit(row, sample(row, queue)).unwrap();
                    let object = stored(&server, row);
                    let asked = !queue.is_empty() || (managed == Managed::All && selected);
                    let expected = asked && (selected || !row.is_pod());
                    // It was started by the manager if it could be.
                    let workloads = workloads_of(&server, &object);
                    let makes = !matches!(row.role, Role::PassThrough);
                    assert_eq!(!workloads.is_empty(), asked && selected && makes, "{case}: {workloads:?}");
                    let starts =
                        !queue.is_empty() && selected && matches!(row.role, Role::Suspended | Role::Pods);
                    assert_eq!(is_held(row, &object), expected && !starts, "{case}: {object}");
                    let said = server.events.iter().any(|event| event.reason == "NamespaceNotSelected");
                    assert_eq!(said, expected && !selected && makes, "{case}: it says why it never runs");
                }
            }
        }
    }
}

/// Kinds whose controllers give their pods no label of the object.
const WITHOUT_LABEL: [&str; 4] = [
    "deployment",
    "leaderworkerset.x-k8s.io/leaderworkerset",
    "statefulset",
    "workload.codeflare.dev/appwrapper",
];

/// The pods of a job are found by the labels that its row names, once the job says their values.
#[test]
fn pods_of_every_kind_are_found_by_labels() {
    for row in frameworks() {
        let mut object = sample(row, "lq");
        for label in row.pods.selector.into_iter().flatten() {
            let LabelValue::Field(pointer) = label.value else { continue };
            let fields = pointer.split('/').skip(1);
            *fields.fold(&mut object, |place, field| &mut place[field]) = json!("");
            assert_eq!(row.pod_selector(&object), None, "{}: {} has no value", row.name, label.key);
            *object.pointer_mut(pointer).unwrap() = json!("x");
        }
        let found = row.pod_selector(&object);
        assert_eq!(found.is_none(), WITHOUT_LABEL.contains(&row.name), "{}: {found:?}", row.name);
        let labels = row.pods.selector.unwrap_or_default();
        assert_eq!(found.is_some(), !labels.is_empty(), "{}: a selector of all pods", row.name);
        object["kind"] = json!(row.gvk.kind);
        object["apiVersion"] = json!(row.gvk.api_version());
        assert_eq!(pod_selector(&object), found, "{}", row.name);
    }
}

/// A job that another controller runs is held if it names a queue, gets no Workload, and an event says why it never starts.
#[test]
fn jobs_of_other_controllers_say_why_they_wait() {
    let by_others = |row: &'static Framework| {
        let field = row.fields.managed_by?.field;
        let mut object = sample(row, "lq");
        let (parent, name) = field.rsplit_once('/')?;
        object.pointer_mut(parent)?[name] = json!("example.com/other");
        let path = field.trim_start_matches('/').replace('/', ".");
        Some((row, object, format!("{path} names another controller, example.com/other")))
    };
    let ray_job = framework("ray.io", "RayJob").unwrap();
    let mut selecting = sample(ray_job, "lq");
    selecting["spec"]["clusterSelector"] = json!({"ray.io/cluster": "c"});
    selecting["spec"].as_object_mut().unwrap().remove("rayClusterSpec");
    let existing = (ray_job, selecting, "it runs on an object that exists already".to_owned());
    for (row, object, cause) in frameworks().filter_map(by_others).chain([existing]) {
        let mut server = server(Managed::WithQueue, Namespace::Selected);
        server.submit(row, object).unwrap();
        let object = stored(&server, row);
        assert!(is_held(row, &object) && workloads_of(&server, &object).is_empty(), "{}", row.name);
        let said = server.events.iter().filter(|event| event.reason == "ManagedByOtherController");
        let notes: Vec<&str> = said.map(|event| event.note.as_str()).collect();
        assert_eq!(notes, [format!("Not managed: it names queue lq, but {cause}")], "{}", row.name);
    }
}

/// Below an object that is managed, a job has no Workload and does not wait for one; it runs with its owner.
#[test]
fn jobs_below_a_managed_object() {
    for managed in [Managed::WithQueue, Managed::All] {
        for (of_owner, of_job) in [("lq", ""), ("lq", "lq"), ("", ""), ("", "lq")] {
            for row in frameworks().filter(|row| row.name != owner().name) {
                let case = format!("{} {managed:?} {of_owner:?} above {of_job:?}", row.name);
                let mut server = server(managed, Namespace::Selected);
                server.submit(owner(), sample(owner(), of_owner)).unwrap();
                let above = stored(&server, owner());
                let mut object = sample(row, of_job);
                object["metadata"]["ownerReferences"] = json!([{"apiVersion": owner().gvk.api_version(),
                    "kind": owner().gvk.kind, "name": above["metadata"]["name"],
                    "uid": above["metadata"]["uid"], "controller": true}]);
                server.submit(row, object).unwrap();
                let object = stored(&server, row);
                let below = !of_owner.is_empty() || managed == Managed::All;
                let waits = !below && !of_job.is_empty();
                let makes = !matches!(row.role, Role::PassThrough);
                assert_eq!(!workloads_of(&server, &object).is_empty(), waits && makes, "{case}");
                let starts = matches!(row.role, Role::Suspended | Role::Pods);
                // The owner is admitted if it is in a queue. Otherwise its children are suspended with it.
                let stopped = below && of_owner.is_empty() && row.role == Role::Suspended;
                assert_eq!(is_held(row, &object), waits && !starts || stopped, "{case}: {object}");
            }
        }
    }
}

/// In a namespace with the LocalQueue `default`, a job without a queue name is queued there, by its webhook.
#[test]
fn default_queue_of_every_kind() {
    for (present, namespace) in
        [(true, Namespace::Selected), (false, Namespace::Selected), (true, Namespace::Other)]
    {
        for row in frameworks() {
            let case = format!("{} {present} {namespace:?}", row.name);
            let mut server = server(Managed::WithQueue, namespace);
            if present {
                server.create(
                    Kind::LocalQueue,
                    json!({"metadata": {"name": "default", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}),
                );
            }
            server.submit(row, sample(row, "")).unwrap();
            let object = stored(&server, row);
            let queued = present && namespace == Namespace::Selected;
            let queue = object["metadata"]["labels"].get(QUEUE).and_then(Value::as_str);
            assert_eq!(queue, queued.then_some("default"), "{case}: {object}");
            let workloads = workloads_of(&server, &object);
            let makes = queued && row.role != Role::PassThrough;
            assert_eq!(!workloads.is_empty(), makes, "{case}");
            for workload in workloads {
                assert_eq!(workload["spec"]["queueName"], "default", "{case}");
                assert!(workload["status"]["admission"].is_object(), "{case}: {workload}");
            }
            server
                .submit(row, {
                    let mut other = sample(row, "lq");
                    other["metadata"]["name"] = json!("other");
                    other
                })
                .unwrap();
            let other = server.get(Kind::of_job(JobKind::new(row)), "other").unwrap();
            assert_eq!(other["metadata"]["labels"][QUEUE], "lq", "{case}: a queue that is named stays");
        }
    }
}

/// A job below more owners than are searched is queued by itself, and an event says so. Its webhook refuses it.
#[test]
fn jobs_nested_too_deep() {
    for row in frameworks().filter(|row| row.role != Role::PassThrough && !row.is_pod()) {
        let mut server = server(Managed::WithQueue, Namespace::Selected);
        let kind = Kind::of_job(JobKind::new(owner()));
        let mut above: Option<Value> = None;
        let below = |mut object: Value, above: Option<&Value>| {
            if let Some(above) = above {
                object["metadata"]["ownerReferences"] = json!([{"apiVersion": owner().gvk.api_version(),
                    "kind": owner().gvk.kind, "name": above["metadata"]["name"],
                    "uid": above["metadata"]["uid"], "controller": true}]);
            }
            object
        };
        for number in 0..11 {
            let mut wrapper = sample(owner(), "");
            wrapper["metadata"]["name"] = json!(format!("wrapper-{number}"));
            server.create(kind, below(wrapper, above.as_ref()));
            above = server.get(kind, &format!("wrapper-{number}")).cloned();
        }
        let job = below(sample(row, "lq"), above.as_ref());
        let refusal = server.admit(row, job.clone(), None).unwrap_err();
        assert!(refusal.starts_with("metadata.ownerReferences: more than 10"), "{}: {refusal}", row.name);
        server.create(Kind::of_job(JobKind::new(row)), job);
        let said: Vec<&str> = server
            .events
            .iter()
            .filter(|event| event.reason == "JobNestingTooDeep" && event.is_warning())
            .map(|event| event.note.as_str())
            .collect();
        let workloads = workloads_of(&server, &stored(&server, row));
        assert_eq!(said.len(), workloads.len(), "{}: {said:?}", row.name);
        assert!(
            !said.is_empty() && said.iter().all(|note| note.contains("more than 10")),
            "{}: {said:?}",
            row.name
        );
    }
}
