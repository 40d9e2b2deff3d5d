//! Queued objects that say how many pods they have, or what these request, in a way that their controllers refuse or that contradicts
//! itself: they are refused by the name of the field; objects in no queue are left to their controllers.

use crate::fixtures::job_server::JobServer;
use serde_json::{Value, json};
use sluice_core::frameworks::{Framework, framework};

/// Asserts that objects are refused with these parts of a message, in a queue alone; without any, that they are taken.
fn check(row: &'static Framework, spec: &Value, parts: &[&str]) {
    let server = JobServer::new(&[row.name], "4");
    let object =
        |labels: Value| json!({"metadata": {"name": "j", "namespace": "ns", "labels": labels}, "spec": spec});
    let queued = object(json!({"kueue.x-k8s.io/queue-name": "lq"}));
    let answer = server.admit(row, queued.clone(), None);
    match answer {
        Ok(_) => assert!(parts.is_empty(), "{spec} is taken"),
        Err(message) => {
            assert!(
                !parts.is_empty() && parts.iter().all(|part| message.contains(part)),
                "{spec}: {message}"
            );
        }
    }
    assert!(server.admit(row, object(json!({})), None).is_ok(), "{spec} in no queue");
    // One that an earlier version took can be changed elsewhere.
    let mut changed = queued.clone();
    changed["metadata"]["labels"]["x"] = json!("y");
    let answer = server.admit(row, changed, Some(&queued));
    assert!(answer.is_ok() || parts.contains(&"fixed number"), "{spec}: {answer:?}");
}

fn template() -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}})
}

/// Returns the spec of a cluster with a group of workers that has these fields.
fn cluster(fields: &Value) -> Value {
    let mut group = json!({"groupName": "g", "template": template()});
    group.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"headGroupSpec": {"template": template()}, "workerGroupSpecs": [group]})
}

#[test]
fn limits_of_ray_workers() {
    let cases = [
        (json!({"minReplicas": 1, "maxReplicas": 1}), vec![]),
        (json!({"numOfHosts": 0}), vec![]),
        (json!({"replicas": 9, "maxReplicas": 3}), vec![]),
        (
            json!({"minReplicas": 4, "maxReplicas": 3}),
            vec![".maxReplicas: Invalid value: 3", "at least 4", "minReplicas"],
        ),
        (json!({"minReplicas": -1}), vec![".minReplicas: Invalid value: -1", "at least 0"]),
        (json!({"maxReplicas": -1}), vec![".maxReplicas: Invalid value: -1"]),
        (json!({"replicas": -2}), vec![".replicas: Invalid value: -2"]),
    ];
    let kinds = [
        ("RayCluster", "", json!({})),
        ("RayJob", "/rayClusterSpec", json!({"entrypoint": "x", "shutdownAfterJobFinishes": true})),
        ("RayService", "/rayClusterConfig", json!({})),
    ];
    for (kind, place, others) in &kinds {
        let group = format!("spec{}.workerGroupSpecs[0]", place.replace('/', "."));
        for (fields, parts) in &cases {
            let mut spec = others.clone();
            match place.strip_prefix('/') {
                Some(field) => spec[field] = cluster(fields),
                None => spec = cluster(fields),
            }
            let of_group = |part: &&str| {
                if part.starts_with('.') { format!("{group}{part}") } else { (*part).to_owned() }
            };
            let parts: Vec<String> = parts.iter().map(of_group).collect();
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            check(framework("ray.io", kind).unwrap(), &spec, &parts);
        }
    }
    // The AppWrapper around a cluster has no such field: it is charged by the larger limit.
    let wrapper = framework("workload.codeflare.dev", "AppWrapper").unwrap();
    for (fields, _) in &cases {
        let wrapped = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "c"}, "spec": cluster(fields)});
        check(wrapper, &json!({"components": [{"template": wrapped}]}), &[]);
    }
}

#[test]
fn surge_of_a_leader_worker_set() {
    let row = framework("leaderworkerset.x-k8s.io", "LeaderWorkerSet").unwrap();
    for field in ["maxSurge", "maxUnavailable"] {
        for (value, taken) in [
            (json!(1), true),
            (json!("50%"), true),
            (json!("150%"), true),
            (json!("abc%"), false),
            (json!("2"), false),
            (json!(-1), false),
            (json!("-1%"), false),
        ] {
            let mut config = json!({"maxSurge": 0, "maxUnavailable": 1});
            config[field] = value;
            let spec = json!({"replicas": 2, "rolloutStrategy": {"rollingUpdateConfiguration": config},
                "leaderWorkerTemplate": {"size": 1, "workerTemplate": template()}});
            let path = format!("spec.rolloutStrategy.rollingUpdateConfiguration.{field}: Invalid value");
            check(row, &spec, (!taken).then_some(&*path).as_slice());
        }
    }
}

#[test]
fn texts_of_a_spark_application() {
    let row = framework("sparkoperator.k8s.io", "SparkApplication").unwrap();
    let spec = json!({"type": "Scala", "mode": "cluster", "sparkVersion": "4.0.0",
        "mainApplicationFile": "local:///a.jar", "driver": {"coreRequest": "1"}, "executor": {"instances": 1}});
    let dynamic = "spark.dynamicAllocation.enabled";
    for (setting, value, taken) in [
        (dynamic, "false", true),
        (dynamic, " False ", true),
        ("spark.memory.offHeap.enabled", "TRUE", true),
        ("spark.memory.offHeap.enabled", "yes", false),
        ("spark.memory.offHeap.size", "8G", true),
        ("spark.memory.offHeap.size", "8GiB", false),
        ("spark.executor.memory", "4G", true),
        ("spark.executor.memory", "4.5g", false),
        ("spark.executor.cores", " 2 ", true),
        ("spark.executor.cores", "500m", false),
        ("spark.executor.instances", "two", false),
        ("spark.kubernetes.memoryOverheadFactor", "0.2f", true),
        ("spark.kubernetes.memoryOverheadFactor", "20%", false),
        ("spark.driver.resource.gpu.amount", "2", true),
        ("spark.driver.resource.gpu.amount", "two", false),
        ("spark.executor.resource.example.com/fpga.amount", "1.5", false),
        ("spark.executor.resource.gpu.amount", "", false),
        ("spark.task.resource.gpu.amount", "0.5", true),
    ] {
        let mut spec = spec.clone();
        spec["sparkConf"] = json!({setting: value});
        let path = format!("spec.sparkConf[{setting}]: Invalid value: {value:?}");
        check(row, &spec, (!taken).then_some(&*path).as_slice());
    }
    // No setting that is charged takes one of these.
    let settings =
        row.hooks.review_fields().iter().filter_map(|field| field.pointer().strip_prefix("/spec/sparkConf/"));
    let settings: Vec<&str> = settings.collect();
    assert!(settings.len() > 20, "{settings:?}");
    for setting in settings {
        for value in ["", "?", "1 g", "0x10", "NaN", "-1"] {
            let mut spec = spec.clone();
            spec["sparkConf"] = json!({setting: value});
            check(row, &spec, &[&format!("spec.sparkConf[{setting}]: Invalid value: {value:?}")]);
        }
    }
    for value in ["true", "True", "TRUE", " true ", "1", "t", "T"] {
        for setting in [dynamic, "spark.streaming.dynamicAllocation.enabled"] {
            let mut spec = spec.clone();
            spec["sparkConf"] = json!({setting: value});
            check(
                row,
                &spec,
                &[&format!("spec.sparkConf[{setting}]: Invalid value: {value:?}"), "fixed number"],
            );
        }
    }
    for (field, value, taken) in [
        ("memory", "4G", true),
        ("memory", "4.5g", false),
        ("memory", "", false),
        ("memoryOverhead", "", false),
        ("memoryOverhead", "1GB", true),
        ("memoryOverhead", "-1g", false),
        ("memoryLimit", "4.5g", true),
        ("coreRequest", "1500m", true),
        ("coreRequest", "many", false),
        ("coreRequest", "-1.5", false),
    ] {
        let mut spec = spec.clone();
        spec["executor"][field] = json!(value);
        let path = format!("spec.executor.{field}: Invalid value: {value:?}");
        check(row, &spec, (!taken).then_some(&*path).as_slice());
    }
}

/// The operator passes an empty text on, and Spark or the API server refuses it, as it does a negative amount.
#[test]
fn empty_and_negative_amounts_of_a_spark_application() {
    let row = framework("sparkoperator.k8s.io", "SparkApplication").unwrap();
    let metadata = json!({"name": "j", "namespace": "ns", "uid": "u"});
    let spec = json!({"type": "Scala", "mode": "cluster", "sparkVersion": "4.0.0",
        "mainApplicationFile": "local:///a.jar", "driver": {}, "executor": {}});
    let object = json!({"metadata": metadata, "spec": spec});
    let with = |pointer: &str, value: Value| {
        let mut object = object.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value;
        let path = pointer.trim_start_matches('/').replace('/', ".");
        (object, path)
    };
    let amount = |pointer: &&str| {
        !pointer.contains("sparkConf") && (pointer.contains("core") || pointer.contains("emory"))
    };
    let fields = row.hooks.review_fields().iter();
    let amounts: Vec<&str> = fields.filter_map(|field| Some(field.pointer()).filter(amount)).collect();
    assert_eq!(amounts.len(), 11, "{amounts:?}");
    for pointer in amounts {
        for value in ["", "-1", "?", "1 g"] {
            let (object, path) = with(pointer, json!(value));
            check(row, &object["spec"], &[&format!("{path}: Invalid value: {value:?}")]);
        }
    }
    for pointer in ["/spec/executor/cores", "/spec/driver/cores", "/spec/executor/instances"] {
        let (object, path) = with(pointer, json!(-1));
        let error = row.decode(&object).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{path}: ")), "{error}");
    }
}
