//! Lines of verdicts that are wrong as soon as one number of them is: from objects as a cluster has them.

use crate::fixtures::offline_objects::{kueue, meta, queues, workload};
use serde_json::{Value, json};
use sluice::reconciler::CoreSettings;
use sluice::visibility::access::Access;
use sluice::visibility::offline::OfflineState;
use sluice::visibility::page::ModelError;
use sluice::visibility::questions::{VerdictQuestion, WorkloadName};
use sluice::visibility::views::{BlockerKindView, ChangeKind, SourceKind, Verdict};

fn question(name: &str) -> VerdictQuestion {
    let workload = WorkloadName::parse(name, "ns");
    VerdictQuestion { access: Access::everything(), workload, before: None, queue: None, priority: None }
}

fn why(objects: Vec<Value>, name: &str) -> Verdict {
    let now = "2027-01-15T09:00:00Z".parse().unwrap();
    OfflineState::load(CoreSettings::default(), objects, (SourceKind::File, now))
        .verdict(&question(name))
        .unwrap()
}

fn line(verdict: &Verdict, kind: ChangeKind) -> &str {
    &verdict.options.iter().find(|option| option.kind == kind).unwrap().detail
}

/// The borrowing limit of a ClusterQueue of one flavor.
fn borrowing_limit<'a>(objects: &'a mut [Value], queue: &str) -> &'a mut Value {
    let is_queue =
        |object: &&mut Value| object["kind"] == "ClusterQueue" && object["metadata"]["name"] == queue;
    let object = objects.iter_mut().find(is_queue).unwrap();
    &mut object["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"]
}

/// Of cpu there is enough for the workload, but not for the one ahead as well; of gpu it lacks all itself.
#[test]
fn wait_names_the_resource_that_the_workload_lacks_itself() {
    const GPU: &str = "example.com/gpu";
    let quotas = [json!({"name": "cpu", "nominalQuota": 4}), json!({"name": GPU, "nominalQuota": 1})];
    let flavors = json!([{"name": "f", "resources": quotas}]);
    let groups = json!([{"coveredResources": ["cpu", GPU], "flavors": flavors}]);
    let mut objects = queues(&[("q", 4, json!({"resourceGroups": groups, "cohortName": null}))]);
    let with_requests = |mut workload: Value, cpu: &str| {
        let requests = json!({"cpu": cpu, GPU: "1"});
        workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"] =
            requests.clone();
        if let Some(assigned) = workload.pointer_mut("/status/admission/podSetAssignments/0") {
            assigned["flavors"][GPU] = json!("f");
            assigned["resourceUsage"] = requests;
        }
        workload
    };
    objects.extend([
        with_requests(workload("runs", "q", &[1], true), "2"),
        with_requests(workload("a-head", "q", &[1], false), "1"),
        with_requests(workload("small", "q", &[1], false), "2"),
    ]);
    let found = why(objects, "small");
    assert_eq!(
        line(&found, ChangeKind::Wait),
        "2 example.com/gpu of q must be released, 1 of it for the 1 ahead; 1 workload uses 1"
    );
}

/// Quota that would be enough counts of other ClusterQueues only what they may take of it: within their borrowing limits, and of pods
/// that the flavor suits.
#[test]
fn quota_for_others_is_bounded_by_what_they_may_borrow() {
    let flavor = |name: &str, quota: &str| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": quota}]});
    let two = json!([{"coveredResources": ["cpu"], "flavors": [flavor("g", "4"), flavor("f", "0")]}]);
    let mut objects = queues(&[
        ("q", 4, json!({})),
        ("limited", 2, json!({})),
        ("closed", 2, json!({})),
        ("picks", 0, json!({"resourceGroups": two})),
        ("stopped", 0, json!({"stopPolicy": "Hold"})),
    ]);
    objects[1]["spec"] = json!({"nodeLabels": {"pool": "f"}});
    objects.push(kueue("ResourceFlavor", "g", "", &json!({"nodeLabels": {"pool": "g"}})));
    *borrowing_limit(&mut objects, "limited") = json!("3");
    *borrowing_limit(&mut objects, "closed") = json!("0");
    for (name, queue, pods) in [("a", "q", 4), ("b", "limited", 2), ("c", "closed", 2)] {
        objects.push(workload(name, queue, &[pods], true));
    }
    objects.extend((0..10).map(|index| workload(&format!("many-{index}"), "limited", &[2], false)));
    // It can never be admitted, whatever quota is added elsewhere.
    objects.push(workload("large", "closed", &[100], false));
    objects.push(workload("held", "stopped", &[30], false));
    let mut picks = workload("selects", "picks", &[3], false);
    picks["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = json!({"pool": "g"});
    objects.push(picks);
    objects.push(workload("mine", "q", &[2], false));
    assert_eq!(
        line(&why(objects.clone(), "mine"), ChangeKind::Quota),
        "2 would be enough for it alone; workloads of other ClusterQueues may borrow 3: a nominal quota of 5 at Cohort c would be enough"
    );
    // What others borrow does not count against the limit of the own ClusterQueue.
    objects.extend(queues(&[("lends", 20, json!({}))]).split_off(2));
    *borrowing_limit(&mut objects, "q") = json!("1");
    objects.push(workload("d", "q", &[1], true));
    assert_eq!(
        line(&why(objects, "mine"), ChangeKind::Quota),
        "a borrowing limit of 3 at ClusterQueue q would be enough"
    );
}

#[test]
fn candidates_that_have_enough_are_not_called_too_few() {
    let mut objects = queues(&[
        ("lends", 4, json!({})),
        ("borrows", 0, json!({})),
        ("small", 1, json!({"preemption": {"reclaimWithinCohort": "Any"}})),
    ]);
    let small =
        |object: &&mut Value| object["kind"] == "ClusterQueue" && object["metadata"]["name"] == "small";
    let small = objects.iter_mut().find(small).unwrap();
    small["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"] = json!("0");
    objects.extend([
        workload("a", "borrows", &[4], true),
        workload("b", "small", &[1], true),
        workload("c", "small", &[1], false),
    ]);
    let found = why(objects, "c");
    assert_eq!(line(&found, ChangeKind::Wait), "1 cpu of small must be released; 1 workload uses 1");
    assert_eq!(
        line(&found, ChangeKind::Preempt),
        "with it, small uses 1 more than its nominal quota, and reclaims only up to it"
    );
}

#[test]
fn each_pod_set_has_its_own_amounts() {
    let mut objects = queues(&[("q", 9, json!({}))]);
    objects.push(workload("w", "q", &[1, 5], true));
    let found = why(objects, "w");
    let sets = &found.admission.as_ref().unwrap().pod_sets;
    let amounts: Vec<&str> = sets.iter().map(|set| &*set.resources[0].amount.value).collect();
    assert_eq!(amounts, ["1", "5"]);
    let events: Vec<&str> = found.history.iter().map(|entry| &*entry.event).collect();
    assert_eq!(events, ["Created", "QuotaReserved", "Admitted"], "in the same second");
}

#[test]
fn pods_that_do_not_run_are_said_of_an_admitted_workload() {
    let owner =
        || json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-j", "controller": true}]);
    let pod = |name: &str, gates: Value, conditions: Value| {
        let mut metadata = meta(name, "ns");
        metadata["annotations"] = json!({"kueue.x-k8s.io/workload": "w"});
        metadata["labels"] = json!({"kueue.x-k8s.io/podset": "set-0"});
        metadata["ownerReferences"] = owner();
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"schedulingGates": gates, "containers": [{"name": "c", "image": "x"}]},
            "status": {"phase": "Pending", "conditions": conditions}})
    };
    let refused = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}]);
    for (pods, expected) in [
        (vec![pod("p", json!([]), json!([]))], None),
        (
            vec![pod("p", json!([]), refused.clone())],
            Some((
                BlockerKindView::Unschedulable,
                "Admitted, but no node takes pod p: 0/3 nodes are available",
            )),
        ),
        (
            vec![pod("p", json!([{"name": "example.com/license"}]), json!([]))],
            Some((
                BlockerKindView::PodGate,
                "Admitted, but scheduling gates of other controllers (example.com/license) hold pod p",
            )),
        ),
    ] {
        let mut objects = queues(&[("q", 9, json!({}))]);
        let mut admitted = workload("w", "q", &[1], true);
        admitted["metadata"]["ownerReferences"] = owner();
        objects.push(admitted);
        objects.extend(pods);
        let found = why(objects, "w");
        let blocked = found.blockers.first().map(|blocker| (blocker.kind, &*blocker.text));
        assert_eq!(blocked, expected);
        assert!(found.admission.is_some());
    }
}

/// Pods that have ended are not read: their number is that of the Workload. A pod without the name of a pod set belongs to none.
#[test]
fn pods_of_a_running_workload_are_counted_by_state_and_node() {
    let owner =
        || json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-j", "controller": true}]);
    let pod = |name: &str, set: &str, (phase, node): (&str, &str)| {
        let mut metadata = meta(name, "ns");
        metadata["annotations"] = json!({"kueue.x-k8s.io/workload": "w"});
        metadata["labels"] = json!({"kueue.x-k8s.io/podset": set});
        metadata["ownerReferences"] = owner();
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "x"}]}, "status": {"phase": phase}})
    };
    let mut objects = queues(&[("q", 9, json!({}))]);
    let mut admitted = workload("w", "q", &[1, 5], true);
    admitted["metadata"]["ownerReferences"] = owner();
    admitted["status"]["reclaimablePods"] = json!([{"name": "set-1", "count": 2}]);
    objects.push(admitted);
    let without_pods = why(objects.clone(), "w").admission.unwrap();
    assert!(without_pods.pod_sets.iter().all(|set| set.states.is_none()), "no pod was read");
    objects.extend([
        pod("a", "set-0", ("Running", "n1")),
        pod("b", "set-1", ("Pending", "n1")),
        pod("c", "set-1", ("Pending", "")),
        pod("d", "set-1", ("Running", "n2")),
        pod("e", "set-1", ("Running", "n2")),
        pod("f", "set-1", ("Succeeded", "n2")),
        pod("g", "other", ("Running", "n3")),
    ]);
    let admission = why(objects, "w").admission.unwrap();
    let found: Vec<Value> =
        admission.pod_sets.iter().map(|set| json!({"states": set.states, "nodes": set.nodes})).collect();
    assert_eq!(
        found,
        [
            json!({"states": {"running": 1, "pending": 0, "ended": 0}, "nodes": {"n1": 1}}),
            json!({"states": {"running": 2, "pending": 2, "ended": 2}, "nodes": {"n1": 1, "n2": 2}}),
        ]
    );
}

/// Members of a group name no Workload while they wait for their gate. One that has ended is still known, and is counted by the Workload.
#[test]
fn members_of_a_group_are_counted_once() {
    let pod = |name: &str, phase: &str, more: Value| {
        let mut metadata = meta(name, "ns");
        metadata["labels"] = json!({"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/pod-group-name": "g",
            "kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/podset": "set-0"});
        metadata["annotations"] =
            json!({"kueue.x-k8s.io/pod-group-total-count": "3", "kueue.x-k8s.io/role-hash": "set-0"});
        if phase == "Running" {
            metadata["annotations"]["kueue.x-k8s.io/workload"] = json!("g");
        }
        let mut spec = json!({"containers": [{"name": "c", "image": "x"}]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}})
    };
    let mut group = workload("g", "q", &[3], true);
    group["metadata"]["annotations"] = json!({"kueue.x-k8s.io/is-group-workload": "true"});
    group["status"]["reclaimablePods"] = json!([{"name": "set-0", "count": 1}]);
    let mut objects = queues(&[("q", 9, json!({}))]);
    objects.extend([
        group,
        pod("a", "Running", json!({"nodeName": "n1"})),
        pod("b", "Pending", json!({"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]})),
        pod("c", "Succeeded", json!({"nodeName": "n1"})),
    ]);
    let mut settings = CoreSettings::default();
    settings.frameworks.insert("pod".to_owned());
    let now = "2027-01-15T09:00:00Z".parse().unwrap();
    let mut state = OfflineState::load(settings, objects, (SourceKind::File, now));
    let admission = state.verdict(&question("g")).unwrap().admission.unwrap();
    let states = admission.pod_sets[0].states.unwrap();
    assert_eq!((states.running, states.pending, states.ended), (1, 1, 1));
    assert_eq!(json!(admission.pod_sets[0].nodes), json!({"n1": 1}));
    assert_eq!(states.words(), "1 running, 1 pending, 1 ended");
}

#[test]
fn a_workload_is_not_compared_with_itself() {
    let mut objects = queues(&[("q", 1, json!({}))]);
    objects.push(workload("w", "q", &[2], false));
    let now = "2027-01-15T09:00:00Z".parse().unwrap();
    let mut state = OfflineState::load(CoreSettings::default(), objects, (SourceKind::File, now));
    let mut asked = question("w");
    asked.before = Some(WorkloadName::parse("w", "ns"));
    let refused = ModelError::Invalid("before: \"ns/w\" is the workload itself".to_owned());
    assert_eq!(state.verdict(&asked), Err(refused));
}
