//! Jobs that run and get other roles: they are stopped, and the roles that are left are restored by their names.

use crate::fixtures::every_job_kind::{sample, server_of_all_kinds};
use crate::fixtures::job_server::{JobServer, kind};
use serde_json::{Value, json};
use sluice_core::api::names;
use sluice_core::cache::Kind;
use sluice_core::frameworks::framework;

/// Adds a copy of a role, as it was before the start, to an array of roles.
fn add(job: &mut Value, submitted: &Value, list: &str, name: &str) {
    let mut role = submitted.pointer(list).unwrap()[0].clone();
    *role.pointer_mut(name).unwrap() = json!("other");
    job.pointer_mut(list).unwrap().as_array_mut().unwrap().push(role);
}

type Edit = fn(&mut Value, &Value);

const EDITS: &[(&str, &str, Edit)] = &[
    ("ray.io", "RayCluster", |job, submitted| add(job, submitted, "/spec/workerGroupSpecs", "/groupName")),
    ("ray.io", "RayCluster", |job, _| job["spec"]["workerGroupSpecs"] = json!([])),
    ("ray.io", "RayJob", |job, submitted| {
        add(job, submitted, "/spec/rayClusterSpec/workerGroupSpecs", "/groupName");
    }),
    ("kubeflow.org", "PyTorchJob", |job, _| {
        job["spec"]["pytorchReplicaSpecs"].as_object_mut().unwrap().remove("Master");
    }),
    ("jobset.x-k8s.io", "JobSet", |job, submitted| add(job, submitted, "/spec/replicatedJobs", "/name")),
    ("workload.codeflare.dev", "AppWrapper", |job, submitted| {
        add(job, submitted, "/spec/components", "/template/metadata/name");
    }),
];

/// Returns a manager that has started the sample of a kind, and the sample.
fn started(group: &str, name: &str) -> (JobServer, Value) {
    let row = framework(group, name).unwrap();
    let mut server = server_of_all_kinds(|_, _| {});
    server.submit(row, sample(row, "lq")).unwrap();
    (server, sample(row, "lq"))
}

/// Returns the names and pod templates of the pod sets of a Workload. A stop may leave empty metadata.
fn templates(workload: &Value) -> Vec<(Value, Value)> {
    let template = |set: &Value| {
        let mut template = set["template"].clone();
        let is_empty = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
        if template["metadata"].as_object().is_some_and(|metadata| metadata.values().all(is_empty)) {
            template.as_object_mut().unwrap().remove("metadata");
        }
        (set["name"].clone(), template)
    };
    workload["spec"]["podSets"].as_array().unwrap().iter().map(template).collect()
}

#[test]
fn roles_are_restored_beside_those_that_came_or_went() {
    for (position, (group, name, edit)) in EDITS.iter().enumerate() {
        let case = format!("{position} {name}");
        let (mut server, submitted) = started(group, name);
        let jobs = kind(group, name);
        let first = server.workload_name();
        let before = server.get(Kind::Workload, &first).unwrap().clone();
        let object = name.to_lowercase();
        assert!(server.get(jobs, &object).unwrap()["spec"].to_string().contains(names::WORKLOAD_ANNOTATION));
        server.edit(jobs, &object, |job| edit(job, &submitted));
        // It is stopped, restored, and queued and started again as it is now.
        assert!(server.holds_quota(), "{case}");
        let second = server.workload_name();
        let after = server.get(Kind::Workload, &second).unwrap();
        assert_ne!(before["spec"]["podSets"], after["spec"]["podSets"], "{case}");
        let known = templates(&before);
        let kept: Vec<_> = templates(after).into_iter().filter(|(name, _)| name != "other").collect();
        assert!(!kept.is_empty(), "{case}");
        for (name, template) in kept {
            // A pod set of an AppWrapper is named by its position.
            let same = known.iter().find(|(known, _)| *known == name).unwrap_or(&known[0]);
            assert_eq!(template, same.1, "{case}: {name}");
        }
    }
}

/// A job that is suspended and changed at once is not started by the Workload that it had: that would be an error that ends it.
#[test]
fn job_that_gets_a_role_while_it_is_suspended_is_queued_again() {
    for (position, (group, name, edit)) in EDITS.iter().enumerate() {
        let case = format!("{position} {name}");
        let (mut server, submitted) = started(group, name);
        let suspend = framework(group, name).unwrap().fields.suspend.unwrap();
        server.edit(kind(group, name), &name.to_lowercase(), |job| {
            edit(job, &submitted);
            let (parent, field) = suspend.rsplit_once('/').unwrap();
            job.pointer_mut(parent).unwrap()[field] = json!(true);
        });
        assert_eq!(server.condition("Finished"), None, "{case}");
        assert!(server.holds_quota(), "{case}");
    }
}
