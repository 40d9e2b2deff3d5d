//! Whether a Workload fits beside pods that others run on its nodes, with and without quota.

use crate::fixtures::offline_objects::{kueue, meta, workload};
use crate::views::obstacles::{audited, nodes, one_host, rows, why};
use serde_json::{Value, json};
use sluice::visibility::views::BlockerKindView;

/// The nodes, each with a pod of one CPU of a Workload with quota of a queue without a topology, and a Workload that needs an empty node.
/// `change` is applied to these Workloads and pods.
fn nodes_of_two_queues(change: fn(&mut Value)) -> Vec<Value> {
    let mut objects = nodes();
    objects.push(kueue("ResourceFlavor", "plain", "", &json!({})));
    let flavors = json!([{"name": "plain", "resources": [{"name": "cpu", "nominalQuota": 4}]}]);
    let spec = json!({"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]});
    objects.push(kueue("ClusterQueue", "p", "", &spec));
    objects.push(kueue("LocalQueue", "p", "ns", &json!({"clusterQueue": "p"})));
    for node in ["n1", "n2"] {
        let name = format!("runs-{node}");
        let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": format!("u-job-{node}"),
            "controller": true}]);
        let mut runs = workload(&name, "p", &[1], true);
        runs["status"]["admission"]["podSetAssignments"][0]["flavors"]["cpu"] = json!("plain");
        runs["metadata"]["ownerReferences"] = owner.clone();
        let mut metadata = meta(&format!("pod-{node}"), "ns");
        metadata["annotations"] = json!({"kueue.x-k8s.io/workload": name});
        metadata["labels"] = json!({"kueue.x-k8s.io/podset": "set-0"});
        metadata["ownerReferences"] = owner;
        let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"nodeName": node, "containers": [container]}, "status": {"phase": "Running"}});
        for mut object in [runs, pod] {
            change(&mut object);
            objects.push(object);
        }
    }
    objects.push(one_host("large", 1, "4"));
    objects
}

fn add_condition(object: &mut Value, kind: &str) {
    let condition = json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": "2027-01-15T08:30:00Z"});
    object["status"]["conditions"].as_array_mut().unwrap().push(condition);
}

fn in_no_queue(object: &mut Value) {
    if object["kind"] == "Pod" {
        object["metadata"]["annotations"] = json!({});
    }
}

/// Changes an object of a case.
type Edit = fn(&mut Value);

/// All that holds quota ends with its pods, in whichever queue it is; pods in no queue stay, whatever they say.
#[test]
fn pods_of_other_queues_keep_no_node_from_being_empty() {
    let cases: [(&str, bool, Edit); 6] = [
        ("of Workloads with quota", false, |_| {}),
        ("of Workloads that wait for quota", true, |object| {
            if object["kind"] == "Workload" {
                object["status"] = json!({});
            }
        }),
        ("of Workloads that have finished", true, |object| {
            if object["kind"] == "Workload" {
                add_condition(object, "Finished");
            }
        }),
        ("that name a Workload of others", true, |object| {
            if object["kind"] == "Pod" {
                object["metadata"]["ownerReferences"][0]["uid"] = json!("u-other");
            }
        }),
        ("in no queue", true, in_no_queue),
        ("in no queue that are being deleted", false, |object| {
            in_no_queue(object);
            if object["kind"] == "Pod" {
                object["metadata"]["deletionTimestamp"] = json!("2027-01-15T09:00:30Z");
            }
        }),
    ];
    for (pods, stays, change) in cases {
        let objects = nodes_of_two_queues(change);
        let found = why(&objects, "large");
        assert_eq!((found.never_fits, found.workload.stuck), (stays, stays), "pods {pods}: {found:?}");
        let obstacle = if stays {
            "It can never be admitted: a pod asks for 4 cpu, the largest node of f has 3 beside pods that hold no quota"
        } else {
            ""
        };
        assert_eq!(found.obstacle, obstacle, "pods {pods}");
        let in_use = found.blockers.iter().any(|blocker| blocker.kind == BlockerKindView::NodesInUse);
        assert_eq!(in_use, !stays, "pods {pods}: {:?}", found.blockers);
        assert_eq!(rows(&objects, "reason=stuck").contains_key("large"), stays, "pods {pods}");
        assert_eq!(audited(&objects, "workload-never-fits").is_empty(), !stays, "pods {pods}");
    }
}

/// Pods that stay are named where they use what the pods of a Workload ask for.
#[test]
fn pods_without_quota_are_named_where_they_matter() {
    let cases: [(&str, Edit, i32, &str); 3] = [
        ("that end", |_| {}, 4, ""),
        ("in no queue", in_no_queue, 3, " beside pods that hold no quota"),
        (
            "in no queue that request another resource",
            |object| {
                in_no_queue(object);
                if object["kind"] == "Pod" {
                    object["spec"]["containers"][0]["resources"]["requests"] = json!({"example.com/x": "1"});
                }
            },
            4,
            "",
        ),
    ];
    for (pods, change, has, beside) in cases {
        let mut objects = nodes_of_two_queues(change);
        objects.push(one_host("larger", 1, "5"));
        let expected = format!(
            "It can never be admitted: a pod asks for 5 cpu, the largest node of f has {has}{beside}"
        );
        assert_eq!(why(&objects, "larger").obstacle, expected, "pods {pods}");
    }
    let mut objects = nodes_of_two_queues(in_no_queue);
    objects.push(one_host("many", 5, "1"));
    assert_eq!(
        why(&objects, "many").obstacle,
        "It can never be admitted: 5 pods within one kubernetes.io/hostname of f; the largest takes 3 beside pods that hold no quota. \
         Within one rack it fits"
    );
}
