//! A pod template with and without the defaults that the API server sets in a Job's template.

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_core::frameworks::{TemplateFingerprint, pod_set_fingerprint};

/// A template with every default of a Job's template, as the API server stores it.
fn stored() -> Value {
    let probe = json!({"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}});
    let container = |name: &str, image: &str, policy: &str| {
        json!({"name": name, "image": image, "imagePullPolicy": policy,
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "resources": {"requests": {"cpu": "1"}}})
    };
    let mut main = container("main", "registry:5000/app", "Always");
    main["ports"] = json!([{"containerPort": 80, "protocol": "TCP"}]);
    main["env"] = json!([
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName", "apiVersion": "v1"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}}]);
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        main[name] = probe.clone();
    }
    main["lifecycle"] = json!({"preStop": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}}});
    let reference = json!({"path": "name", "fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v1"}});
    json!({
        "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30,
        "restartPolicy": "Always", "securityContext": {}, "serviceAccountName": "robot", "serviceAccount": "robot",
        "initContainers": [container("init", "app:1", "IfNotPresent"), container("pinned", "app@sha256:0", "IfNotPresent")],
        "containers": [main, container("latest", "app:latest", "Always")],
        "volumes": [
            {"name": "none", "emptyDir": {}},
            {"name": "secret", "secret": {"secretName": "s", "defaultMode": 420}},
            {"name": "config", "configMap": {"name": "c", "defaultMode": 420}},
            {"name": "downward", "downwardAPI": {"items": [reference.clone()], "defaultMode": 420}},
            {"name": "host", "hostPath": {"path": "/data", "type": ""}},
            {"name": "token", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
                {"downwardAPI": {"items": [reference]}}]}},
            {"name": "claim", "ephemeral": {"volumeClaimTemplate": {"spec": {
                "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
                "resources": {"requests": {"storage": "1Gi"}}}}}},
            {"name": "iscsi", "iscsi": {"targetPortal": "p", "iqn": "i", "lun": 0, "iscsiInterface": "default"}},
            {"name": "rbd", "rbd": {"monitors": ["m"], "image": "i", "pool": "rbd", "user": "admin",
                "keyring": "/etc/ceph/keyring"}},
            {"name": "azure", "azureDisk": {"diskName": "d", "diskURI": "u", "cachingMode": "ReadWrite",
                "fsType": "ext4", "readOnly": false, "kind": "Shared"}},
            {"name": "scale", "scaleIO": {"gateway": "g", "system": "s", "secretRef": {"name": "n"},
                "storageMode": "ThinProvisioned", "fsType": "xfs"}},
            {"name": "image", "image": {"reference": "model", "pullPolicy": "Always"}},
        ],
    })
}

/// Names of fields that have a default in [`stored`].
const DEFAULTED: [&str; 30] = [
    "apiVersion",
    "cachingMode",
    "defaultMode",
    "divisor",
    "dnsPolicy",
    "emptyDir",
    "expirationSeconds",
    "failureThreshold",
    "fsType",
    "imagePullPolicy",
    "iscsiInterface",
    "keyring",
    "kind",
    "path",
    "periodSeconds",
    "pool",
    "protocol",
    "pullPolicy",
    "readOnly",
    "restartPolicy",
    "schedulerName",
    "scheme",
    "securityContext",
    "serviceAccount",
    "storageMode",
    "successThreshold",
    "terminationGracePeriodSeconds",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "type",
];

/// Returns the pointers to all defaults in a value.
fn default_pointers(at: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let pointer = format!("{at}/{name}");
                let required = name == "path" && !at.ends_with("httpGet");
                if !required && (DEFAULTED.contains(&name.as_str()) || is_other_default(at, name)) {
                    found.push(pointer);
                } else {
                    default_pointers(&pointer, value, found);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                default_pointers(&format!("{at}/{index}"), item, found);
            }
        }
        _ => {}
    }
}

/// Fields whose name has another meaning elsewhere.
fn is_other_default(at: &str, name: &str) -> bool {
    name == "timeoutSeconds" || name == "volumeMode" || (name == "user" && at.ends_with("rbd"))
}

fn remove(value: &mut Value, pointer: &str) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    value.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
}

fn fingerprint(spec: &Value) -> TemplateFingerprint {
    pod_set_fingerprint(&json!({"name": "main", "template": {"spec": spec}}))
}

fn pointers() -> Vec<String> {
    let mut found = Vec::new();
    default_pointers("", &stored(), &mut found);
    found
}

proptest! {
    /// Whichever defaults are missing, the template is the same.
    #[test]
    fn template_without_any_defaults_is_equal(left_out in proptest::collection::vec(any::<bool>(), 80)) {
        let mut spec = stored();
        for (pointer, _) in pointers().iter().zip(left_out).filter(|(_, out)| *out) {
            remove(&mut spec, pointer);
        }
        prop_assert_eq!(fingerprint(&spec), fingerprint(&stored()), "{}", spec);
    }
}

/// Each default alone, all at once, and another value in the place of each.
#[test]
fn other_values_than_defaults_differ() {
    let all = pointers();
    assert!(all.len() > 60 && all.len() < 80, "{all:#?}");
    let mut bare = stored();
    for pointer in &all {
        let mut spec = stored();
        remove(&mut spec, pointer);
        assert_eq!(fingerprint(&spec), fingerprint(&stored()), "{pointer}");
        remove(&mut bare, pointer);
        let mut spec = stored();
        let value = spec.pointer_mut(pointer).unwrap();
        *value = match &*value {
            Value::Number(_) => json!(7),
            Value::Bool(_) => json!(true),
            Value::Object(_) if pointer.ends_with("securityContext") => json!({"runAsUser": 7}),
            Value::Object(_) => json!({"medium": "Memory"}),
            _ if pointer.ends_with("divisor") => json!("1m"),
            _ if pointer.ends_with("ullPolicy") => json!("Never"),
            _ if pointer.ends_with("serviceAccount") => continue,
            _ => json!("Other"),
        };
        assert_ne!(fingerprint(&spec), fingerprint(&stored()), "{pointer}");
    }
    assert_eq!(fingerprint(&bare), fingerprint(&stored()), "{bare}");
}

/// Amounts are compared by value, rounded as the server rounds them.
#[test]
fn amounts_are_compared_by_value() {
    let fingerprint = |cpu: &str, memory: &str| {
        fingerprint(
            &json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}),
        )
    };
    assert_eq!(fingerprint("1", "1Gi"), fingerprint("1000m", "1073741824"));
    assert_eq!(fingerprint("1m", "1k"), fingerprint("500u", "1000"));
    assert_ne!(fingerprint("1", "1Gi"), fingerprint("1001m", "1Gi"));
    assert_ne!(fingerprint("1", "9E"), fingerprint("1", "8E"));
}
