//! Objects that break a rule of the webhooks and are stored nevertheless: no webhook answered, or the rule is newer. A change
//! that leaves the faulty part as it is must be possible; a change of that part must repair it.

use serde_json::{Value, json};
use sluice_core::admission::{
    AdmissionSettings, ObjectLookup, OwnerRef, OwnerView, ReadError, ReviewContext, read_heavy, review,
};
use sluice_core::frameworks::{NothingRelated, Related};
use std::collections::BTreeMap;

struct NoObjects(BTreeMap<String, String>);

impl ObjectLookup for NoObjects {
    fn namespace_labels(&self, _: &str) -> Option<&BTreeMap<String, String>> {
        Some(&self.0)
    }
    fn local_queue_exists(&self, _: &str, _: &str) -> bool {
        false
    }
    fn default_priority_class_exists(&self) -> bool {
        false
    }
    fn queue_is_multikueue(&self, _: &str, _: &str) -> bool {
        false
    }
    fn related(&self) -> &dyn Related {
        &NothingRelated
    }
    fn knows_pods(&self) -> bool {
        true
    }

    fn owner(&self, _: &str, _: &OwnerRef) -> Option<OwnerView> {
        None
    }
}

/// Reviews a new object, or a changed one, as the manager does. Returns the message of a refusal.
fn refusal(path: &str, object: &Value, old: Option<&Value>) -> Option<String> {
    let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
    let request = json!({"request": {"uid": "u", "operation": operation, "namespace": "ns", "object": object,
        "oldObject": old}});
    let read: Result<Value, ReadError> = read_heavy(path, request.to_string().as_bytes());
    let (objects, settings) = (NoObjects(BTreeMap::new()), AdmissionSettings::default());
    let answer = review(path, &read.unwrap(), &ReviewContext { objects: &objects, settings: &settings });
    let denied = answer["response"]["allowed"] == json!(false);
    denied.then(|| answer["response"]["status"]["message"].as_str().unwrap_or_default().to_owned())
}

fn workload() -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w", "namespace": "ns"},
        "spec": {"active": true, "podSets": [{"name": "main", "count": 2, "template": {"spec": {"containers": [
            {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}}]}})
}

fn cluster_queue() -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "q"},
        "spec": {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1"}]}]}]}})
}

fn cohort() -> Value {
    let mut cohort = cluster_queue();
    cohort["kind"] = json!("Cohort");
    cohort["spec"].as_object_mut().unwrap().shift_remove("namespaceSelector");
    cohort
}

fn flavor() -> Value {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "f"},
        "spec": {"nodeLabels": {"pool": "a"}}})
}

fn job() -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "j", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}, "annotations": {}},
        "spec": {"parallelism": 2, "completions": 2, "suspend": true,
            "template": {"metadata": {"annotations": {}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}})
}

/// A field with two values that a rule refuses.
struct Fault {
    path: &'static str,
    object: fn() -> Value,
    parent: &'static str,
    field: &'static str,
    values: fn() -> [Value; 2],
}

const VALIDATE: &str = "/validate-kueue-x-k8s-io-v1beta2-";

const FAULTS: [Fault; 12] = [
    Fault {
        path: "workload",
        object: workload,
        parent: "/spec/podSets/0/template/spec/containers/0/resources/requests",
        field: "cpu",
        values: || [json!("-1"), json!("-2")],
    },
    Fault {
        path: "workload",
        object: workload,
        parent: "/spec/podSets/0/template/spec/containers/0/resources/requests",
        field: "pods",
        values: || [json!("1"), json!("-1")],
    },
    Fault {
        path: "workload",
        object: workload,
        parent: "/spec/podSets/0",
        field: "topologyRequest",
        values: || [json!({"podSetSliceSize": 2}), json!({"podSetSliceSize": -1})],
    },
    Fault {
        path: "workload",
        object: workload,
        parent: "",
        field: "status",
        values: || {
            let pods = |name: &str| json!({"reclaimablePods": [{"name": name, "count": 1}]});
            [pods("unknown"), pods("another")]
        },
    },
    Fault {
        path: "clusterqueue",
        object: cluster_queue,
        parent: "/spec/resourceGroups/0/flavors/0/resources/0",
        field: "nominalQuota",
        values: || [json!("-1"), json!("-2")],
    },
    Fault {
        path: "clusterqueue",
        object: cluster_queue,
        parent: "/spec/resourceGroups/0/flavors/0/resources/0",
        field: "borrowingLimit",
        values: || [json!("1"), json!("2")],
    },
    Fault {
        path: "clusterqueue",
        object: cluster_queue,
        parent: "/spec",
        field: "fairSharing",
        values: || [json!({"weight": "-1"}), json!({"weight": "-2"})],
    },
    Fault {
        path: "cohort",
        object: cohort,
        parent: "/spec/resourceGroups/0/flavors/0/resources/0",
        field: "nominalQuota",
        values: || [json!("-1"), json!("-2")],
    },
    Fault {
        path: "resourceflavor",
        object: flavor,
        parent: "/spec",
        field: "nodeLabels",
        values: || [json!({"a b": "c"}), json!({"a  b": "c"})],
    },
    Fault {
        path: "/validate-batch-v1-job",
        object: job,
        parent: "/metadata/labels",
        field: "kueue.x-k8s.io/queue-name",
        values: || [json!("UPPER"), json!("OTHER")],
    },
    Fault {
        path: "/validate-batch-v1-job",
        object: job,
        parent: "/metadata/labels",
        field: "kueue.x-k8s.io/max-exec-time-seconds",
        values: || [json!("soon"), json!("later")],
    },
    Fault {
        path: "/validate-batch-v1-job",
        object: job,
        parent: "/metadata/annotations",
        field: "kueue.x-k8s.io/job-min-parallelism",
        values: || [json!("x"), json!("7")],
    },
];

#[test]
fn stored_faults_do_not_forbid_other_changes() {
    for fault in &FAULTS {
        let path = match fault.path {
            path if path.starts_with('/') => path.to_owned(),
            kind => format!("{VALIDATE}{kind}"),
        };
        let description = format!("{path}: {}", fault.field);
        let with = |value: &Value| {
            let mut object = (fault.object)();
            object.pointer_mut(fault.parent).unwrap()[fault.field] = value.clone();
            object
        };
        let sound = (fault.object)();
        assert_eq!(refusal(&path, &sound, None), None, "{description}");
        let [first, second] = (fault.values)();
        let stored = with(&first);
        assert!(refusal(&path, &stored, None).is_some(), "{description}: created");
        let mut labelled = stored.clone();
        labelled["metadata"]["labels"]["team"] = json!("a");
        assert_eq!(refusal(&path, &labelled, Some(&stored)), None, "{description}: labelled");
        assert_eq!(refusal(&path, &sound, Some(&stored)), None, "{description}: repaired");
        assert!(refusal(&path, &with(&second), Some(&stored)).is_some(), "{description}: changed");
        assert!(refusal(&path, &stored, Some(&sound)).is_some(), "{description}: introduced");
    }
    let mut stored = workload();
    stored["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] =
        json!("-1");
    let mut deactivated = stored.clone();
    deactivated["spec"]["active"] = json!(false);
    assert_eq!(refusal(&format!("{VALIDATE}workload"), &deactivated, Some(&stored)), None);
}
