//! The defaults that the API server sets in the pod template of a Job, but not in that of a Workload.
//!
//! Invariant: a template and its copy with any of these defaults set are equal once both are without them.

use serde_json::{Map, Value};

/// Name of the pod spec as the holder of its fields.
pub(super) const POD_SPEC: &str = "podSpec";

/// Default texts: the field that holds the object, or the list of it; the field; the value.
const TEXTS: [(&str, &str, &str); 22] = [
    (POD_SPEC, "dnsPolicy", "ClusterFirst"),
    (POD_SPEC, "restartPolicy", "Always"),
    (POD_SPEC, "schedulerName", "default-scheduler"),
    ("containers", "terminationMessagePath", "/dev/termination-log"),
    ("containers", "terminationMessagePolicy", "File"),
    ("initContainers", "terminationMessagePath", "/dev/termination-log"),
    ("initContainers", "terminationMessagePolicy", "File"),
    ("ports", "protocol", "TCP"),
    ("httpGet", "path", "/"),
    ("httpGet", "scheme", "HTTP"),
    ("fieldRef", "apiVersion", "v1"),
    ("resourceFieldRef", "divisor", "0"),
    // The spec of the claim of an ephemeral volume.
    ("spec", "volumeMode", "Filesystem"),
    ("iscsi", "iscsiInterface", "default"),
    ("rbd", "pool", "rbd"),
    ("rbd", "user", "admin"),
    ("rbd", "keyring", "/etc/ceph/keyring"),
    ("azureDisk", "cachingMode", "ReadWrite"),
    ("azureDisk", "fsType", "ext4"),
    ("azureDisk", "kind", "Shared"),
    ("scaleIO", "storageMode", "ThinProvisioned"),
    ("scaleIO", "fsType", "xfs"),
];

/// Default numbers, in the same notation.
const NUMBERS: [(&str, &str, i64); 18] = [
    (POD_SPEC, "terminationGracePeriodSeconds", 30),
    ("livenessProbe", "timeoutSeconds", 1),
    ("livenessProbe", "periodSeconds", 10),
    ("livenessProbe", "successThreshold", 1),
    ("livenessProbe", "failureThreshold", 3),
    ("readinessProbe", "timeoutSeconds", 1),
    ("readinessProbe", "periodSeconds", 10),
    ("readinessProbe", "successThreshold", 1),
    ("readinessProbe", "failureThreshold", 3),
    ("startupProbe", "timeoutSeconds", 1),
    ("startupProbe", "periodSeconds", 10),
    ("startupProbe", "successThreshold", 1),
    ("startupProbe", "failureThreshold", 3),
    ("secret", "defaultMode", 420),
    ("configMap", "defaultMode", 420),
    ("downwardAPI", "defaultMode", 420),
    ("projected", "defaultMode", 420),
    ("serviceAccountToken", "expirationSeconds", 3600),
];

/// Fields that the server drops when they are 0, because it then sets a default or knows no difference.
const DROPPED_ZEROS: [&str; 6] = [
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
    "hostPort",
];
/// Fields that the server drops when they are false, or sets to false.
const DROPPED_FALSES: [&str; 7] =
    ["hostNetwork", "hostPID", "hostIPC", "stdin", "stdinOnce", "tty", "readOnly"];

/// Returns whether a field of the object that `holder` holds has the value that the API server would give it.
pub(super) fn is_default(holder: &str, object: &Map<String, Value>, name: &str, value: &Value) -> bool {
    match value {
        // The server drops empty texts.
        Value::String(text) if text.is_empty() => true,
        Value::String(text) => {
            TEXTS.contains(&(holder, name, text.as_str()))
                || default_pull_policy(holder, object, name) == Some(text.as_str())
        }
        Value::Number(number) => number.as_i64().is_some_and(|number| {
            NUMBERS.contains(&(holder, name, number)) || (number == 0 && DROPPED_ZEROS.contains(&name))
        }),
        Value::Bool(false) => {
            DROPPED_FALSES.contains(&name) || (holder == "fileKeyRef" && name == "optional")
        }
        _ => false,
    }
}

/// Returns the default of a field that says when an image is pulled; `None` if the field is another one.
fn default_pull_policy(holder: &str, object: &Map<String, Value>, name: &str) -> Option<&'static str> {
    let image = match (holder, name) {
        ("containers" | "initContainers", "imagePullPolicy") => "image",
        ("image", "pullPolicy") => "reference",
        _ => return None,
    };
    let image = object.get(image).and_then(Value::as_str).unwrap_or_default();
    let (path, digest) = image.split_once('@').map_or((image, None), |(path, digest)| (path, Some(digest)));
    // A colon before the last slash separates a port.
    let last = path.rsplit('/').next().unwrap_or(path);
    let latest = match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => digest.is_none(),
    };
    Some(if latest { "Always" } else { "IfNotPresent" })
}
