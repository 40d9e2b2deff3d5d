//! Tests of reviews: property tests (total, same uid, partial decoding is sufficient), and tables for defaulting and
//! validation.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::patch::Patch;
use super::response::ReviewResponse;
use super::review::evaluate;
use super::{
    AdmissionSettings, ObjectLookup, OwnerRef, OwnerView, ReadError, ReviewContext, paths, read_heavy,
    read_light, review,
};
use crate::frameworks::{NothingRelated, Related};

mod elastic;
mod held_pods;
mod owners;
mod slices;
mod submitters;

#[derive(Default)]
struct Cluster {
    labels: BTreeMap<String, String>,
    is_namespace_unknown: bool,
    queues: Vec<&'static str>,
    default_class: bool,
    multikueue: bool,
    owners: BTreeMap<String, OwnerView>,
}

impl ObjectLookup for Cluster {
    fn namespace_labels(&self, _: &str) -> Option<&BTreeMap<String, String>> {
        Some(&self.labels).filter(|_| !self.is_namespace_unknown)
    }
    fn local_queue_exists(&self, _: &str, name: &str) -> bool {
        self.queues.contains(&name)
    }
    fn default_priority_class_exists(&self) -> bool {
        self.default_class
    }
    fn queue_is_multikueue(&self, _: &str, _: &str) -> bool {
        self.multikueue
    }
    fn related(&self) -> &dyn Related {
        &NothingRelated
    }
    fn knows_pods(&self) -> bool {
        true
    }
    fn owner(&self, _: &str, owner: &OwnerRef) -> Option<OwnerView> {
        self.owners.get(&owner.name).cloned()
    }
}

fn asked(
    path: &str,
    object: &Value,
    old: Option<&Value>,
    cluster: &Cluster,
    settings: &AdmissionSettings,
) -> Value {
    let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
    let request = json!({"request": {"uid": "u-1", "operation": operation, "namespace": "ns", "object": object, "oldObject": old}});
    let ctx = ReviewContext { objects: cluster, settings };
    let response = review(path, &request, &ctx);
    let read = read_heavy(path, request.to_string().as_bytes()).unwrap();
    // Partial decoding must not change the response.
    let relevant = |response: &Value| {
        let response = &response["response"];
        [&response["allowed"], &response["patch"], &response["warnings"], &response["status"]["code"]]
            .map(Value::clone)
    };
    assert_eq!(relevant(&review(path, &read, &ctx)), relevant(&response), "{request}");
    response
}

fn job() -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "j", "namespace": "ns", "uid": "j-1", "labels": {}, "annotations": {}},
        "spec": {"parallelism": 3, "completions": 3, "suspend": false, "template": {
            "metadata": {"annotations": {}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}
    })
}

/// A missing quota of a new ClusterQueue is set to 0.
#[test]
fn missing_quota_defaults_to_zero() {
    let resources = |quota: Value| {
        json!({"metadata": {"name": "q"}, "spec": {"resourceGroups": [{"coveredResources": ["cpu", "memory"],
            "flavors": [{"name": "f", "resources": [{"name": "cpu"}, {"name": "memory", "nominalQuota": quota}]}]}]}})
    };
    let path = "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue";
    let pointer = "/spec/resourceGroups/0/flavors/0/resources";
    for (given, expected) in [(json!("2Gi"), json!("2Gi")), (Value::Null, json!("0")), (json!(3), json!(3))] {
        let mut object = resources(given);
        let review = json!({"uid": "u-1", "operation": "CREATE", "object": object});
        let (cluster, settings) = (Cluster::default(), AdmissionSettings::default());
        let context = ReviewContext { objects: &cluster, settings: &settings };
        let ReviewResponse::Allowed { patch, .. } = evaluate(path, &review, &context) else {
            panic!("{review}")
        };
        let operations: json_patch::Patch = serde_json::from_value(json!(patch)).unwrap();
        json_patch::patch(&mut object, &operations).unwrap();
        let defaulted = object.pointer(pointer).unwrap();
        assert_eq!(
            defaulted,
            &json!([{"name": "cpu", "nominalQuota": "0"}, {"name": "memory", "nominalQuota": expected}])
        );
    }
}

fn queued(queue: &str) -> Value {
    let mut job = job();
    job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!(queue);
    job
}

fn allowed(response: &Value) -> bool {
    response["response"]["allowed"] == true
}

#[test]
fn only_managed_jobs_are_suspended() {
    let (cluster, settings) = (Cluster::default(), AdmissionSettings::default());
    let path = "/mutate-batch-v1-job";
    assert!(asked(path, &queued("lq"), None, &cluster, &settings)["response"].get("patch").is_some());
    assert!(asked(path, &job(), None, &cluster, &settings)["response"].get("patch").is_none());
    let managing = AdmissionSettings { manage_jobs_without_queue_name: true, ..settings };
    assert!(asked(path, &job(), None, &cluster, &managing)["response"].get("patch").is_some());
}

#[test]
fn jobs_skip_review_when_framework_is_off() {
    let cluster = Cluster::default();
    let off = AdmissionSettings { frameworks: BTreeSet::new(), ..AdmissionSettings::default() };
    let defaulted = asked("/mutate-batch-v1-job", &queued("lq"), None, &cluster, &off);
    assert!(allowed(&defaulted) && defaulted["response"].get("patch").is_none());
    assert!(allowed(&asked("/validate-batch-v1-job", &queued("Bad_"), None, &cluster, &off)));
    let workload = json!({"metadata": {"name": "w"}, "spec": {"podSets": 3}});
    assert!(!allowed(&asked("/validate-kueue-x-k8s-io-v1beta2-workload", &workload, None, &cluster, &off)));
}

/// Returns the errors in the message of a response.
fn errors(response: &Value) -> Vec<String> {
    let text = response["response"]["status"]["message"].as_str().unwrap_or_default();
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    inner.split(", ").filter(|part| part.contains(": ")).map(str::to_owned).collect()
}

#[test]
fn empty_min_parallelism_equals_absence_on_update() {
    let (cluster, settings) = (Cluster::default(), AdmissionSettings::default());
    let with = |minimum: &str| {
        let mut job = queued("lq");
        job["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"] = json!(minimum);
        job
    };
    let validated =
        |new: &Value, old: Option<&Value>| asked("/validate-batch-v1-job", new, old, &cluster, &settings);
    assert!(!allowed(&validated(&with(""), None)));
    assert!(allowed(&validated(&with(""), Some(&queued("lq")))));
    assert!(allowed(&validated(&queued("lq"), Some(&with("")))));
    assert!(!allowed(&validated(&with(""), Some(&with("2")))));
}

#[test]
fn deletion_is_allowed_and_malformed_review_answered() {
    let (cluster, settings) = (Cluster::default(), AdmissionSettings::default());
    let mut bad = queued("Bad_");
    assert!(!allowed(&asked("/validate-batch-v1-job", &bad, None, &cluster, &settings)));
    bad["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(allowed(&asked("/validate-batch-v1-job", &bad, None, &cluster, &settings)));
    let ctx = ReviewContext { objects: &cluster, settings: &settings };
    for nonsense in [json!(null), json!([]), json!({"request": 3}), json!({"request": {"uid": "x"}})] {
        let response = review("/validate-batch-v1-job", &nonsense, &ctx);
        assert_eq!(response["response"]["status"]["code"], 400, "{nonsense}");
    }
}

#[test]
fn patch_creates_missing_parents() {
    let mut patch = Patch::new(&json!({"spec": null}));
    assert!(patch.set(&["metadata", "labels", "a/b"], json!("x")));
    assert!(patch.append(&["metadata", "finalizers"], json!("f")));
    assert!(patch.append(&["metadata", "finalizers"], json!("g")));
    let expected = json!({"spec": null, "metadata": {"labels": {"a/b": "x"}, "finalizers": ["f", "g"]}});
    assert_eq!(patch.object(), &expected);
    let mut replayed = json!({"spec": null});
    let operations: json_patch::Patch =
        serde_json::from_value(Value::Array(patch.into_operations())).unwrap();
    json_patch::patch(&mut replayed, &operations).unwrap();
    assert_eq!(replayed, expected);
}

#[test]
fn unknown_path_allows_only_foreign_kinds() {
    let (cluster, settings) = (Cluster::default(), AdmissionSettings::default());
    let ctx = ReviewContext { objects: &cluster, settings: &settings };
    let ask = |path: &str, group: &str, kind: &str| {
        let request = json!({"request": {"uid": "u-1", "operation": "CREATE", "namespace": "ns",
            "kind": {"group": group, "version": "v1", "kind": kind}, "object": {"metadata": {"name": "x"}}}});
        let read = read_light(path, request.to_string().as_bytes()).unwrap();
        review(path, &read, &ctx)["response"].clone()
    };
    let foreign = ("/mutate-example-com-v1-foo".to_owned(), "example.com", "Foo");
    let (path, group, kind) = foreign;
    let response = ask(&path, group, kind);
    assert_eq!(response["allowed"], true, "{path}");
    assert!(response["warnings"][0].as_str().unwrap().contains(kind), "{response}");
    for kind in ["Workload", "ClusterQueue", "Cohort", "ResourceFlavor"] {
        let response = ask("/validate-kueue-x-k8s-io-v1beta1-any", "kueue.x-k8s.io", kind);
        assert_eq!(response["allowed"], false, "{kind}");
        assert!(response["status"]["message"].as_str().unwrap().contains(kind), "{response}");
    }
    let nameless = review("/mutate--v1-pod", &json!({"request": {"uid": "u"}}), &ctx);
    assert_eq!(nameless["response"]["status"]["code"], 400);
}

#[test]
fn unvalidated_fields_are_not_decoded() {
    let many: Vec<Value> = (0..105_000).map(|n| json!({"name": format!("E{n}"), "value": "1"})).collect();
    let mut object = queued("lq");
    object["spec"]["template"]["spec"]["containers"][0]["env"] = json!(many);
    let request =
        json!({"request": {"uid": "u", "operation": "UPDATE", "object": object, "oldObject": object}});
    let read = read_light("/validate-batch-v1-job", request.to_string().as_bytes()).unwrap();
    assert!(read.to_string().len() < 2_000, "{} bytes", read.to_string().len());
    let mut object = subject();
    object["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["env"] = json!(many);
    let request =
        json!({"request": {"uid": "u", "operation": "UPDATE", "object": object, "oldObject": object}});
    let path = "/validate-kueue-x-k8s-io-v1beta2-workload";
    let read = read_light(path, request.to_string().as_bytes()).unwrap();
    let (cluster, settings) = (Cluster::default(), AdmissionSettings::default());
    let ctx = ReviewContext { objects: &cluster, settings: &settings };
    let message = review(path, &read, &ctx)["response"].to_string();
    assert!(!message.contains("E104999"), "{message}");
    // Different texts are compared semantically.
    let mut same = object.clone();
    same["spec"]["podSets"][0]["template"]["spec"]["containers"][0] =
        json!({"resources": {"requests": {"cpu": "1000m"}}});
    let mut changed = same.clone();
    changed["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["image"] = json!("other");
    object["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
        .as_object_mut()
        .unwrap()
        .shift_remove("env");
    let refused = |object: &Value, old: &Value| {
        let response = asked(path, object, Some(old), &cluster, &settings)["response"].to_string();
        response.contains("spec.podSets.0: Invalid value")
    };
    assert!(!refused(&same, &object) && refused(&changed, &object));
}

#[test]
fn small_body_does_not_expand_in_memory() {
    for (path, field) in [
        ("/validate-batch-v1-job", "metadata\":{\"labels"),
        ("/validate-kueue-x-k8s-io-v1beta2-workload", "spec\":{\"podSets"),
        ("/validate-kueue-x-k8s-io-v1beta2-clusterqueue", "spec\":{\"resourceGroups"),
    ] {
        for item in ["{\"\":0}", "0", "\"\"", "[]"] {
            let list = format!("[{}0]", format!("{item},").repeat((6 << 20) / (item.len() + 1)));
            let body = format!("{{\"request\":{{\"uid\":\"u\",\"object\":{{\"{field}\":{list}}}}}}}}}");
            match read_heavy(path, body.as_bytes()) {
                Ok(read) => assert!(read.to_string().len() < 1_000, "{path} {item}"),
                Err(error) => {
                    assert!(matches!(error, ReadError::TooManyValues(_)), "{path} {item}: {error:?}");
                }
            }
        }
    }
}

/// Generates any JSON value of small depth.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(vec!["", "x", "-1", "Bad_", "true", "9223372036854775808", "[]", "a/b", "1e30"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,3}", inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

/// Replaces the value at the end of a path; each step selects a child by its index modulo the number of children.
fn mutate(value: &mut Value, steps: &[usize], with: Value) {
    let Some((step, rest)) = steps.split_first() else {
        *value = with;
        return;
    };
    let next = match value {
        Value::Object(map) if !map.is_empty() => {
            let nth = step % map.len();
            map.values_mut().nth(nth)
        }
        Value::Array(items) if !items.is_empty() => {
            let nth = step % items.len();
            items.get_mut(nth)
        }
        _ => None,
    };
    match next {
        Some(next) => mutate(next, rest, with),
        None => *value = with,
    }
}

fn subject() -> Value {
    json!({
        "metadata": {"name": "w", "labels": {"kueue.x-k8s.io/queue-name": "lq"}, "annotations": {"kueue.x-k8s.io/admission-gated-by": "a.io/b"}, "finalizers": []},
        "spec": {
            "suspend": true, "parallelism": 2, "completions": 2,
            "template": {"metadata": {"annotations": {"kueue.x-k8s.io/podset-slice-size": "2"}}, "spec": {"schedulingGates": []}},
            "podSets": [{"name": "main", "count": 2, "minCount": 1, "topologyRequest": {"podSetSliceSize": 1},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}}],
            "cohortName": "c", "parentName": "p", "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
            "fairSharing": {"weight": "1"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1, "lendingLimit": "1"}]}]}],
            "admissionChecksStrategy": {"admissionChecks": [{"name": "c", "onFlavors": ["f"]}]},
            "nodeLabels": {"a": "b"}, "nodeTaints": [{"key": "a", "effect": "NoSchedule"}], "tolerations": [{"key": "a"}]
        },
        "status": {
            "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "count": 2, "resourceUsage": {"cpu": "2"}}]},
            "reclaimablePods": [{"name": "main", "count": 1}],
            "admissionChecks": [{"name": "c", "state": "Ready", "podSetUpdates": [{"name": "main", "labels": {"a": "b"}}]}]
        }
    })
}

proptest! {
    #[test]
    fn i23_reviews_are_total(
        path in prop::sample::select(paths().collect::<Vec<_>>()),
        changes in prop::collection::vec((prop::collection::vec(0_usize..8, 0..8), any_json()), 0..4),
        update in any::<bool>(),
    ) {
        let (cluster, settings) = (Cluster { queues: vec!["default"], default_class: true, multikueue: true, ..Cluster::default() }, AdmissionSettings::default());
        let mut object = subject();
        for (steps, with) in changes {
            mutate(&mut object, &steps, with);
        }
        let old = update.then(subject);
        let response = asked(path, &object, old.as_ref(), &cluster, &settings);
        prop_assert_eq!(&response["response"]["uid"], "u-1");
        prop_assert!(response["response"]["allowed"].is_boolean());
    }
}
