//! What an AppWrapper is charged for, how its start and stop are written, and which field an error names.

use super::super::related::Beside;
use super::super::{JobPatch, PodSetInfo, TemplateInfo, pod_set_infos};
use super::*;
use crate::resources::{default_requests, pod_quantities};
use std::sync::Arc;

fn template(label: &str) -> Value {
    json!({"metadata": {"labels": {"of": label}}, "spec": {"containers": [
        {"name": "c", "image": "i", "env": [{"name": "A"}], "resources": {"requests": {"cpu": "1"}}}]}})
}

fn wrapper(components: &Value) -> Value {
    json!({"metadata": {"name": "w", "uid": "u", "resourceVersion": "7"}, "spec": {"suspend": true, "components": components}})
}

fn sets(job: &Value) -> Result<Vec<Value>, JobError> {
    let PodSets::Known(sets) = ROW.pod_sets_with(job, Beside::NOTHING)? else { panic!("{job}") };
    Ok(sets)
}

fn object(api: &str, kind: &str, spec: &Value) -> Value {
    json!({"template": {"apiVersion": api, "kind": kind, "spec": spec}})
}

#[test]
fn paths_are_pointers() {
    for (path, pointer) in [
        ("template", Some("")),
        ("template.spec.template", Some("/spec/template")),
        ("template.spec.groups[1].template", Some("/spec/groups/1/template")),
        ("template[0][1]", Some("/0/1")),
        ("template.a/b", Some("/a~1b")),
        ("spec.template", None),
        ("templates", None),
        ("template.", None),
        ("template[x]", None),
        ("template[1", None),
    ] {
        assert_eq!(pointer_of(path).as_deref(), pointer, "{path}");
    }
}

#[test]
fn kinds_that_the_controller_knows_are_read() {
    let role = json!({"name": "r", "replicas": 2, "template": {"spec": {"parallelism": 3, "completions": 2, "template": template("set")}}});
    let master = json!({"Master": {"template": template("master")}, "Worker": {"replicas": 4, "template": template("worker")}});
    let job = wrapper(&json!([
        object("batch/v1", "Job", &json!({"parallelism": 3, "completions": 2, "template": template("job")})),
        object("jobset.x-k8s.io/v1alpha2", "JobSet", &json!({"replicatedJobs": [role]})),
        object("kubeflow.org/v1", "PyTorchJob", &json!({"pytorchReplicaSpecs": master})),
        object("apps/v1", "Deployment", &json!({"replicas": 5, "template": template("deployment")})),
        {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"of": "pod"}}, "spec": template("")["spec"]}},
        object("v1", "ConfigMap", &json!({})),
    ]));
    let sets = sets(&job).unwrap();
    let shown: Vec<String> = sets
        .iter()
        .map(|set| {
            let of = set["template"]["metadata"]["labels"]["of"].as_str().unwrap();
            format!("{} {of} {}", set["name"].as_str().unwrap(), set["count"])
        })
        .collect();
    assert_eq!(
        shown,
        ["w-0 job 2", "w-1 set 4", "w-2 master 1", "w-3 worker 4", "w-4 deployment 5", "w-5 pod 1"]
    );
    let request = json!({"podIndexLabel": "batch.kubernetes.io/job-completion-index",
        "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index", "subGroupCount": 2});
    assert_eq!((&sets[1]["topologyRequest"], &sets[4]["topologyRequest"]), (&request, &Value::Null));
    let spec = &sets[0]["template"]["spec"];
    assert_eq!((&spec["restartPolicy"], &spec["containers"][0]["env"]), (&json!("Always"), &Value::Null));
}

/// What the status says goes before what is declared, and that before what is found.
#[test]
fn declared_pod_sets_go_before_found_ones() {
    let mut component = object("example.com/v1", "Train", &json!({"groups": [template("a"), template("b")]}));
    component["podSets"] = json!([{"path": "template.spec.groups[1]", "replicas": 3,
        "annotations": {INDEX_LABEL: "i", GROUP_LABEL: "g", GROUP_COUNT: "x"}}]);
    let mut job = wrapper(&json!([component]));
    let set = sets(&job).unwrap().remove(0);
    assert_eq!((&set["count"], &set["template"]["metadata"]["labels"]["of"]), (&json!(3), &json!("b")));
    assert_eq!(set["topologyRequest"], json!({"podIndexLabel": "i"}));
    job["status"]["componentStatus"] = json!([{"podSets": [{"path": "template.spec.groups[0]"}]}]);
    let set = sets(&job).unwrap().remove(0);
    assert_eq!((&set["count"], &set["template"]["metadata"]["labels"]["of"]), (&json!(1), &json!("a")));
    job["status"] = json!({});
    job["spec"]["components"][0]["podSets"][0]["path"] = json!("template.spec.groups[7]");
    assert!(sets(&job).unwrap_err().to_string().starts_with("spec.components[0].podSets[0].path"));
}

/// The controller writes `replicas` of Ray workers into the status, and KubeRay makes as many pods as its row says.
#[test]
fn listed_counts_are_raised_to_those_of_the_row() {
    let group = |fields: Value| {
        let mut group = json!({"groupName": "g", "template": template("worker")});
        group.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        group
    };
    let cluster =
        |group: Value| json!({"headGroupSpec": {"template": template("head")}, "workerGroupSpecs": [group]});
    for (fields, listed, count) in [
        (json!({"replicas": 0, "minReplicas": 6}), 0, 6),
        (json!({"replicas": 2, "numOfHosts": 2}), 2, 4),
        (json!({"minReplicas": 3}), 1, 3),
        (json!({"replicas": 5, "maxReplicas": 3}), 5, 5),
        (json!({"replicas": 3}), 3, 3),
    ] {
        let spec = cluster(group(fields.clone()));
        for (kind, spec, at) in [
            ("RayCluster", spec.clone(), "template.spec"),
            ("RayJob", json!({"rayClusterSpec": spec}), "template.spec.rayClusterSpec"),
        ] {
            let sets_of = json!([{"path": format!("{at}.headGroupSpec.template"), "replicas": 1},
                {"path": format!("{at}.workerGroupSpecs[0].template"), "replicas": listed}]);
            let mut declared = object("ray.io/v1", kind, &spec);
            let mut in_status = wrapper(&json!([declared.clone()]));
            in_status["status"]["componentStatus"] = json!([{"podSets": sets_of}]);
            declared["podSets"] = sets_of;
            for job in [in_status, wrapper(&json!([declared]))] {
                let charged = |job: &Value| -> Vec<i64> {
                    sets(job).unwrap().iter().map(|set| set["count"].as_i64().unwrap()).collect()
                };
                assert_eq!(charged(&job), [1, count], "{kind} {fields}");
                // Earlier versions charged what is listed.
                let former = AppWrapper.as_charged_before(&job);
                assert_eq!(former.is_some(), count > listed, "{kind} {fields}");
                assert_eq!(charged(&former.unwrap_or(job)), [1, listed], "{kind} {fields}");
            }
        }
    }
    let mut job =
        wrapper(&json!([object("ray.io/v1", "RayCluster", &cluster(group(json!({"replicas": "x"}))))]));
    job["status"]["componentStatus"] = json!([{"podSets": []}]);
    let error = sets(&job).unwrap_err().to_string();
    assert!(error.starts_with("spec.components[0].template.spec.workerGroupSpecs[0].replicas"), "{error}");
}

/// An error says where in the wrapper the faulty field is, declared or wrapped.
#[test]
fn errors_name_the_field_by_its_whole_path() {
    let declared = |set: &Value| {
        let mut component = object("example.com/v1", "Train", &json!({"groups": [template("a")]}));
        component["podSets"] = json!([{"path": "template.spec.groups[0]"}, set]);
        component
    };
    for (component, path) in [
        (declared(&json!({"path": "template.spec", "replicas": -1})), "podSets[1].replicas"),
        (declared(&json!({"path": 7})), "podSets[1].path"),
        (declared(&json!({"path": "elsewhere"})), "podSets[1].path"),
        (object("apps/v1", "Deployment", &json!({"replicas": -1})), "template.spec.replicas"),
        (object("batch/v1", "Job", &json!({"parallelism": -1})), "template.spec.parallelism"),
    ] {
        let error = sets(&wrapper(&json!([{}, component]))).unwrap_err().to_string();
        assert!(error.starts_with(&format!("spec.components[1].{path}: ")), "{error}");
    }
}

/// What a pod is charged for is the same beside a wrapper and in it.
#[test]
fn wrapped_pods_are_charged_as_in_their_own_kind() {
    let sized =
        |name: &str, cpu: &str| json!({"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}}});
    let mut sidecar = sized("sidecar", "2");
    sidecar["restartPolicy"] = json!("Always");
    let mut claiming = sized("c", "1");
    claiming["resources"]["claims"] = json!([{"name": "gpu"}]);
    let claims = json!([{"name": "gpu", "resourceClaimTemplateName": "gpus"}]);
    let extended =
        json!({"name": "c", "image": "i", "resources": {"limits": {"example.com/gpu": "3", "cpu": "1500m"}}});
    for (spec, cpu) in [
        (json!({"containers": [sized("c", "1")], "initContainers": [sized("first", "5")]}), "5"),
        (json!({"containers": [sized("c", "1")], "initContainers": [sidecar, sized("first", "5")]}), "7"),
        (json!({"containers": [sized("c", "1")], "resources": {"requests": {"cpu": "6"}}}), "6"),
        (json!({"containers": [sized("c", "1")], "overhead": {"cpu": "250m"}}), "1250m"),
        (json!({"containers": [claiming], "resourceClaims": claims}), "1"),
        (json!({"containers": [extended]}), "1500m"),
    ] {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "uid": "u"},
            "spec": {"suspend": true, "template": {"spec": spec}}});
        let row = framework("batch", "Job").unwrap();
        let mut own = row.pod_sets(&job).unwrap().remove(0);
        let mut wrapped = sets(&wrapper(&json!([{"template": job}]))).unwrap().remove(0);
        let charge = |set: &mut Value| {
            let mut template = set["template"].take();
            let mut spec = template["spec"].take();
            let claims = spec["resourceClaims"].take();
            let mut spec = serde_json::from_value(spec).unwrap();
            default_requests(&mut spec);
            let quantities = pod_quantities(&spec);
            (quantities.get("cpu").unwrap().to_string(), quantities.len(), claims)
        };
        let charged = charge(&mut own);
        assert_eq!(charge(&mut wrapped), charged, "{spec}");
        assert_eq!(charged.0, cpu, "{spec}");
    }
}

#[test]
fn start_lists_what_it_adds_and_stop_removes_the_list() {
    let before = wrapper(&json!([
        object("v1", "ConfigMap", &json!({})),
        object("batch/v1", "Job", &json!({"template": template("job")})),
    ]));
    let mut job = before.clone();
    let apply = |job: &mut Value, patches: &[JobPatch]| {
        for patch in patches {
            let operations: json_patch::Patch = serde_json::from_value(patch.at_version("7")).unwrap();
            json_patch::patch(job, &operations).unwrap();
        }
    };
    let originals = pod_set_infos(&sets(&job).unwrap()).unwrap();
    let mut added = TemplateInfo::default();
    added.node_selector.insert("zone".to_owned(), "z".to_owned());
    let grant = |info: &PodSetInfo| PodSetInfo { template: Arc::new(added.clone()), ..info.clone() };
    let grants: Vec<PodSetInfo> = originals.iter().map(grant).collect();
    let start = ROW.run_patch(&ROW.decode(&job).unwrap(), &grants).unwrap();
    apply(&mut job, &start);
    let listed = json!([{"labels": {"kueue.x-k8s.io/podset": "w-0"}, "nodeSelector": {"zone": "z"}}]);
    assert_eq!(job["spec"]["components"][1]["podSetInfos"], listed);
    assert_eq!(job["spec"]["components"][0].get("podSetInfos"), None);
    let running = ROW.decode(&job).unwrap();
    assert!(!running.suspended && ROW.run_patch(&running, &grants).unwrap().is_empty());
    apply(&mut job, &ROW.stop_patches(&running, &originals));
    assert_eq!(job, before);
    let stopped = ROW.decode(&job).unwrap();
    assert!(ROW.stop_patches(&stopped, &originals).is_empty());
}
