//! Conversions by table. Round trips over random objects are a law in `core/tests/it/laws`.

use super::*;
use crate::api::partial::ReadError;

fn object(kind: &str, version: &str, rest: &Value) -> Value {
    let mut object = json!({
        "apiVersion": format!("kueue.x-k8s.io/{version}"), "kind": kind, "metadata": {"name": "x"},
    });
    object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    object
}

/// Converts spec and status; returns the object without its names.
fn converted(kind: &str, to: Version, rest: &Value) -> Value {
    let from = if to == Version::V1beta1 { "v1beta2" } else { "v1beta1" };
    let mut found = convert(object(kind, from, rest), to).unwrap();
    let fields = found.as_object_mut().unwrap();
    assert_eq!(take(fields, "apiVersion").unwrap(), to.api_version());
    assert_eq!(take(fields, "kind").unwrap(), kind);
    if fields["metadata"] == json!({"name": "x"}) {
        take(fields, "metadata");
    }
    found
}

/// Both forms of the same object.
#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "the forms are written in the call")]
fn both(kind: &str, v1beta1: Value, v1beta2: Value) {
    assert_eq!(converted(kind, Version::V1beta1, &v1beta2), v1beta1, "{kind} of v1beta2");
    assert_eq!(converted(kind, Version::V1beta2, &v1beta1), v1beta2, "{kind} of v1beta1");
}

const COUNTS: [(&str, i32); 3] =
    [("pendingWorkloads", 1), ("reservingWorkloads", 2), ("admittedWorkloads", 3)];

fn with_counts(mut status: Value) -> Value {
    for (count, number) in COUNTS {
        status[count] = number.into();
    }
    status
}

#[test]
fn renamed_fields() {
    both(
        "ClusterQueue",
        json!({"spec": {"stopPolicy": "Hold", "cohort": "team"}, "status": with_counts(json!({}))}),
        json!({"spec": {"stopPolicy": "Hold", "cohortName": "team"}, "status": with_counts(json!({}))}),
    );
    let usage = json!([{"name": "f", "resources": [{"name": "cpu", "total": "1"}]}]);
    both(
        "LocalQueue",
        json!({"spec": {"clusterQueue": "q"}, "status": with_counts(json!({"flavorUsage": usage}))}),
        json!({"spec": {"clusterQueue": "q"}, "status": with_counts(json!({"flavorsUsage": usage}))}),
    );
    both(
        "Workload",
        json!({"spec": {"priority": 1}, "status": {"accumulatedPastExexcutionTimeSeconds": 7}}),
        json!({"spec": {"priority": 1}, "status": {"accumulatedPastExecutionTimeSeconds": 7}}),
    );
}

#[test]
fn kinds_without_differences_keep_all_fields() {
    for kind in ["AdmissionCheck", "MultiKueueConfig", "ResourceFlavor", "Topology", "WorkloadPriorityClass"]
    {
        let rest = json!({"spec": {"a": [1, {"b": null}]}, "value": 3});
        both(kind, rest.clone(), rest);
    }
    let unknown = json!({"spec": {"future": {"x": 1}}, "status": with_counts(json!({"y": [2]})), "more": 1});
    both("ClusterQueue", unknown.clone(), unknown);
}

#[test]
fn v1beta1_forms_of_a_cluster_queue() {
    let spec = json!({
        "admissionChecks": ["a", "b"],
        "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"},
    });
    let status = with_counts(json!({
        "pendingWorkloadsStatus": {"lastChangeTime": "2026-01-01T00:00:00Z"},
        "fairSharing": {"weightedShare": 1, "admissionFairSharingStatus": {"lastUpdate": "2026-01-01T00:00:00Z"}},
    }));
    let found = converted("ClusterQueue", Version::V1beta2, &json!({"spec": spec, "status": status}));
    assert_eq!(
        found,
        json!({
            "spec": {
                "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"},
                "admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]},
            },
            "status": with_counts(json!({"fairSharing": {"weightedShare": 1}})),
        })
    );
}

#[test]
fn queue_without_status_gets_counts() {
    let zeros = json!({"pendingWorkloads": 0, "reservingWorkloads": 0, "admittedWorkloads": 0});
    for (kind, to) in [("ClusterQueue", Version::V1beta1), ("LocalQueue", Version::V1beta2)] {
        assert_eq!(converted(kind, to, &json!({"spec": {}})), json!({"spec": {}, "status": zeros}));
    }
}

#[test]
fn quantities_become_texts() {
    let resource =
        |nominal: Value, future: i32| json!({"name": "cpu", "nominalQuota": nominal, "future": future});
    let queue = |nominal: Value, weight: Value| {
        json!({
            "spec": {"fairSharing": {"weight": weight},
                "resourceGroups": [{"flavors": [{"name": "f", "resources": [resource(nominal, 1)]}]}]},
            "status": {},
        })
    };
    for to in [Version::V1beta1, Version::V1beta2] {
        let found = converted("Cohort", to, &queue(json!(12), json!(1)));
        assert_eq!(found, queue(json!("12"), json!("1")));
    }
    let usage = |cpu: Value| json!({"status": {"admission": {"podSetAssignments": [{"resourceUsage": {"cpu": cpu}}]}}});
    assert_eq!(converted("Workload", Version::V1beta1, &usage(json!(3))), usage(json!("3")));
}

#[test]
fn access_to_clusters() {
    both(
        "MultiKueueCluster",
        json!({"spec": {"kubeConfig": {"location": "l", "locationType": "Path"}}}),
        json!({"spec": {"clusterSource": {"kubeConfig": {"location": "l", "locationType": "Path"}}}}),
    );
    both(
        "MultiKueueCluster",
        json!({"spec": {"kubeConfig": {"location": "", "locationType": ""}, "clusterProfileRef": {"name": "p"}}}),
        json!({"spec": {"clusterSource": {"clusterProfileRef": {"name": "p"}}}}),
    );
}

#[test]
fn priority_classes() {
    for (group, kind, source) in [
        ("kueue.x-k8s.io", "WorkloadPriorityClass", "kueue.x-k8s.io/workloadpriorityclass"),
        ("scheduling.k8s.io", "PriorityClass", "scheduling.k8s.io/priorityclass"),
    ] {
        both(
            "Workload",
            json!({"spec": {"priorityClassSource": source, "priorityClassName": "high"}}),
            json!({"spec": {"priorityClassRef": {"group": group, "kind": kind, "name": "high"}}}),
        );
    }
    for spec in [json!({"priorityClassSource": ""}), json!({"priorityClassName": "no-source"})] {
        let found = converted("Workload", Version::V1beta2, &json!({"spec": spec}));
        assert_eq!(found, json!({"spec": {}}));
    }
}

#[test]
fn topology_assignments() {
    let admission = |assignment: Value| json!({"status": {"admission": {"podSetAssignments": [{"name": "main", "topologyAssignment": assignment}]}}});
    let domains = json!([{"values": ["r1", "n-1"], "count": 2}, {"values": ["r1", "n-2"], "count": 1}]);
    let slice = json!({
        "domainCount": 2,
        "valuesPerLevel": [{"universal": "r1"}, {"individual": {"prefix": "n-", "roots": ["1", "2"]}}],
        "podCounts": {"individual": [2, 1]},
    });
    both(
        "Workload",
        admission(json!({"levels": ["rack", "host"], "domains": domains})),
        admission(json!({"levels": ["rack", "host"], "slices": [slice]})),
    );
    let mut too_many = slice;
    too_many["domainCount"] = 3.into();
    let path = "status.admission.podSetAssignments[0].topologyAssignment";
    let error = |version, assignment: Value, to| {
        convert(object("Workload", version, &admission(assignment)), to).unwrap_err().field
    };
    let odd = json!({"levels": ["rack", "host"], "slices": [too_many]});
    assert_eq!(error("v1beta2", odd, Version::V1beta1), format!("{path}.slices"));
    let odd = json!({"levels": ["host"], "domains": domains});
    assert_eq!(error("v1beta1", odd, Version::V1beta2), format!("{path}.domains[0].values"));
    let odd = json!({"levels": ["host"], "domains": [{"values": ["h"], "count": "many"}]});
    assert_eq!(error("v1beta1", odd, Version::V1beta2), format!("{path}.domains"));
}

/// Values that all domains of a slice share are repeated for each, so that a short slice can become a long list.
#[test]
fn expanded_assignments_have_a_limit() {
    let assignment = |domains: usize| {
        let roots: Vec<String> = (0..domains).map(|domain| domain.to_string()).collect();
        let mut values = vec![json!({"universal": "u"}); 15];
        values.push(json!({"individual": {"roots": roots}}));
        let slice = json!({"domainCount": domains, "valuesPerLevel": values, "podCounts": {"universal": 1}});
        json!({"topologyAssignment": {"levels": vec!["l"; 16], "slices": [slice]}})
    };
    let workload = |domains: usize| {
        let sets = [assignment(domains), assignment(domains)];
        object("Workload", "v1beta2", &json!({"status": {"admission": {"podSetAssignments": sets}}}))
    };
    assert!(convert(workload(10_000), Version::V1beta1).is_ok());
    let error = convert(workload(20_000), Version::V1beta1).unwrap_err();
    assert_eq!(error.field, "status.admission.podSetAssignments[1].topologyAssignment.slices");
    assert!(error.detail.contains("500000 values"), "{error}");
}

/// A Workload of v1beta2 with all that v1beta1 lacks.
fn gated() -> Value {
    json!({
        "spec": {
            "podSets": [
                {"name": "a", "topologyRequest": {"required": "rack",
                    "podsetSliceRequiredTopologyConstraints": [{"topology": "rack", "size": 4}]}},
                {"name": "b"},
            ],
            "preemptionGates": [{"name": "g"}],
        },
        "status": {
            "preemptionGates": [{"name": "g", "position": "Open", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    })
}

#[test]
fn client_of_v1beta1_keeps_what_it_does_not_know() {
    let mut seen = convert(object("Workload", "v1beta2", &gated()), Version::V1beta1).unwrap();
    for text in ["preemptionGates", "podsetSliceRequiredTopologyConstraints"] {
        assert_eq!(seen["spec"].to_string().find(text), None, "{text}");
    }
    assert_eq!(seen["status"].as_object().unwrap().len(), 1);
    seen["spec"]["podSets"][1]["count"] = 5.into();
    let written = convert(seen, Version::V1beta2).unwrap();
    let mut expected = object("Workload", "v1beta2", &gated());
    expected["spec"]["podSets"][1]["count"] = 5.into();
    assert_eq!(written, expected);
}

/// The rights to write spec and status differ: an annotation is part of the first.
#[test]
fn annotation_changes_no_status() {
    let forged = json!({"preemptionGates": [{"name": "g", "position": "Open"}]}).to_string();
    let metadata =
        json!({"metadata": {"name": "x", "annotations": {carried::ANNOTATION: forged}}, "status": {}});
    let found = convert(object("Workload", "v1beta1", &metadata), Version::V1beta2).unwrap();
    assert_eq!(found["status"], json!({}));
}

#[test]
fn annotation_of_same_name_is_kept() {
    for text in ["mine", "{\"preemptionGates\":[1]}"] {
        let mut stored = object("Workload", "v1beta2", &gated());
        stored["metadata"]["annotations"] = json!({carried::ANNOTATION: text});
        let seen = convert(stored.clone(), Version::V1beta1).unwrap();
        assert_eq!(convert(seen, Version::V1beta2).unwrap(), stored);
    }
}

#[test]
fn removed_topology_request_stays_removed() {
    let mut seen = convert(object("Workload", "v1beta2", &gated()), Version::V1beta1).unwrap();
    seen["spec"]["podSets"][0].as_object_mut().unwrap().remove("topologyRequest");
    let written = convert(seen, Version::V1beta2).unwrap();
    assert_eq!(written["spec"]["podSets"][0], json!({"name": "a"}));
}

fn review(wanted: &str, objects: &Value) -> Value {
    let request = json!({"uid": "u", "desiredAPIVersion": wanted, "objects": objects});
    let body =
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request});
    let answer = answer(body.to_string().as_bytes(), MAX_LIGHT_VALUES).unwrap();
    assert_eq!((&answer["apiVersion"], &answer["kind"]), (&body["apiVersion"], &body["kind"]));
    assert_eq!(answer["response"]["uid"], "u");
    answer["response"].clone()
}

#[test]
fn review_converts_each_object_in_order() {
    let objects = json!([
        object("Cohort", "v1beta1", &json!({"spec": {"parentName": "p"}})),
        object("Cohort", "v1beta2", &json!({"spec": {"parentName": "q"}})),
    ]);
    let response = review("kueue.x-k8s.io/v1beta2", &objects);
    assert_eq!(response["result"], json!({"status": "Success"}));
    let parents: Vec<&Value> = response["convertedObjects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| {
            assert_eq!(object["apiVersion"], "kueue.x-k8s.io/v1beta2");
            &object["spec"]["parentName"]
        })
        .collect();
    assert_eq!(parents, ["p", "q"]);
}

#[test]
fn failed_review_names_object_and_field() {
    let mut bad = object(
        "Workload",
        "v1beta1",
        &json!({"status": {"admission": {"podSetAssignments": [
            {"topologyAssignment": {"levels": ["a"], "domains": [{"values": [], "count": 1}]}},
        ]}}}),
    );
    bad["metadata"]["namespace"] = "team".into();
    let good = object("Workload", "v1beta1", &json!({}));
    let response = review("kueue.x-k8s.io/v1beta2", &json!([good, bad]));
    let message = "Workload team/x: status.admission.podSetAssignments[0].topologyAssignment.domains[0].values: \
        0 values for 1 levels";
    assert_eq!(response["result"], json!({"status": "Failure", "message": message}));
    assert_eq!(response.get("convertedObjects"), None);
    for (wanted, objects, found) in [
        ("kueue.x-k8s.io/v1", json!([]), "request.desiredAPIVersion"),
        ("kueue.x-k8s.io/v1beta2", json!({}), "request.objects"),
        ("kueue.x-k8s.io/v1beta2", json!([{"apiVersion": "v1", "kind": "Pod"}]), "apiVersion"),
        ("kueue.x-k8s.io/v1beta2", json!([3]), "not an object"),
        ("kueue.x-k8s.io/v1beta2", json!([object("Pod", "v1beta1", &json!({}))]), "kind"),
    ] {
        let message = review(wanted, &objects)["result"]["message"].to_string();
        assert!(message.contains(found), "{message}");
    }
}

#[test]
fn review_has_a_limit_of_values() {
    let body = json!({"request": {"objects": vec![json!({}); 10]}}).to_string();
    assert!(matches!(answer(body.as_bytes(), 20), Err(ReadError::TooManyValues(_))));
    assert!(matches!(answer(b"no", 20), Err(ReadError::Malformed(_))));
    assert!(answer(body.as_bytes(), MAX_VALUES).is_ok());
}
