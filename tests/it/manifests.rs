//! The shipped manifests: every reference resolves, no right is broader than needed, no webhook can hold the cluster up.

use serde_json::Value;
use sluice::api::config;
use std::fs;
use std::path::{Path, PathBuf};

const TREES: [&str; 3] = ["config", "webhook-certs", "crds"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files() -> Vec<PathBuf> {
    let mut open: Vec<PathBuf> = TREES.iter().map(|tree| root().join(tree)).collect();
    let mut files = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|e| e == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    serde_saphyr::from_multiple(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn objects(kind: &str) -> Vec<(PathBuf, Value)> {
    let all =
        files().into_iter().flat_map(|path| documents(&path).into_iter().map(move |o| (path.clone(), o)));
    all.filter(|(_, object)| object["kind"] == kind).collect()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().map(|v| v.as_str().unwrap()).collect()
}

#[test]
fn every_file_is_an_object_and_is_used() {
    let mut referenced = Vec::new();
    for path in files() {
        let folder = path.parent().unwrap();
        for object in documents(&path) {
            assert!(object["kind"].is_string() && object["apiVersion"].is_string(), "{}", path.display());
            if !path.ends_with("kustomization.yaml") {
                continue;
            }
            let generated = object["configMapGenerator"]
                .as_array()
                .into_iter()
                .flatten()
                .flat_map(|g| texts(&g["files"]));
            for entry in
                texts(&object["resources"]).into_iter().chain(texts(&object["components"])).chain(generated)
            {
                let target = folder.join(entry);
                let target = if target.is_dir() { target.join("kustomization.yaml") } else { target };
                let found = target.canonicalize();
                referenced.push(found.unwrap_or_else(|e| panic!("{}: {entry}: {e}", path.display())));
            }
        }
    }
    // Entry points, alternatives, and the Job that is created rather than applied.
    let roots = [
        "config/default/kustomization.yaml",
        "config/samples/kustomization.yaml",
        "config/samples/job.yaml",
        "config/webhooks/manage-all-jobs/kustomization.yaml",
        "webhook-certs/cert-manager/kustomization.yaml",
    ];
    for path in files() {
        let known = roots.iter().any(|r| path.ends_with(r));
        assert!(
            known || referenced.contains(&path.canonicalize().unwrap()),
            "{} is not used",
            path.display()
        );
    }
}

#[test]
fn rights_are_named() {
    let mut seen = 0;
    for kind in ["ClusterRole", "Role"] {
        for (path, role) in objects(kind) {
            for rule in role["rules"].as_array().unwrap() {
                seen += 1;
                for part in ["apiGroups", "resources", "verbs", "nonResourceURLs"] {
                    assert!(
                        texts(&rule[part]).iter().all(|t| !t.contains('*')),
                        "{}: {rule}",
                        path.display()
                    );
                }
                let resources = texts(&rule["resources"]);
                if resources.contains(&"secrets") {
                    assert_eq!(
                        (kind, &role["metadata"]["namespace"]),
                        ("Role", &Value::from("kueue-system"))
                    );
                }
                let shared = [
                    "customresourcedefinitions",
                    "mutatingwebhookconfigurations",
                    "validatingwebhookconfigurations",
                ];
                if resources.iter().any(|r| shared.contains(r)) {
                    assert!(!texts(&rule["resourceNames"]).is_empty(), "{}: {rule}", path.display());
                }
            }
        }
    }
    assert!(seen > 30);
}

#[test]
fn editors_and_viewers_are_aggregated() {
    let roles = objects("ClusterRole");
    for kind in ["clusterqueue", "cohort", "localqueue", "resourceflavor", "topology", "workload", "job"] {
        for side in ["editor", "viewer"] {
            let name = format!("kueue-{kind}-{side}-role");
            let (_, role) = roles.iter().find(|(_, r)| r["metadata"]["name"] == name.as_str()).expect(&name);
            let labels = &role["metadata"]["labels"];
            assert_eq!(labels["rbac.kueue.x-k8s.io/batch-admin"], "true", "{name}");
            let user = kind == "job" || (side == "viewer" && ["localqueue", "workload"].contains(&kind));
            assert_eq!(labels.get("rbac.kueue.x-k8s.io/batch-user").is_some(), user, "{name}");
            let admin = labels.get("rbac.authorization.k8s.io/aggregate-to-admin").is_some();
            assert_eq!(admin, side == "viewer", "{name}");
        }
    }
}

#[test]
fn webhooks_are_bounded() {
    let mut names = Vec::new();
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let found = objects(kind);
        assert_eq!(found.len(), 1);
        for webhook in found[0].1["webhooks"].as_array().unwrap() {
            check_webhook(webhook, kind.starts_with('M'));
            names.push(webhook["name"].as_str().unwrap().to_owned());
        }
    }
    let component = documents(&root().join("config/webhooks/manage-all-jobs/kustomization.yaml"));
    for patch in component[0]["patches"].as_array().unwrap() {
        let operations: Value = serde_saphyr::from_str(patch["patch"].as_str().unwrap()).unwrap();
        let mutating = patch["target"]["kind"] == "MutatingWebhookConfiguration";
        check_webhook(&operations[0]["value"], mutating);
        assert_eq!(operations[0]["value"]["failurePolicy"], "Fail");
    }
    let expected = [
        "mjob.kb.io",
        "mjob-default-queue.kb.io",
        "mworkload.kb.io",
        "mclusterqueue.kb.io",
        "mresourceflavor.kb.io",
        "vjob.kb.io",
        "vjob-no-queue.kb.io",
        "vworkload.kb.io",
        "vclusterqueue.kb.io",
        "vcohort.kb.io",
        "vresourceflavor.kb.io",
    ];
    assert_eq!(names, expected);
}

fn check_webhook(webhook: &Value, mutating: bool) {
    let name = webhook["name"].as_str().unwrap();
    assert!((1..=3).contains(&webhook["timeoutSeconds"].as_u64().unwrap()), "{name}");
    assert_eq!(webhook["sideEffects"], "None", "{name}");
    assert_eq!(webhook["clientConfig"]["service"]["name"], "kueue-webhook-service", "{name}");
    assert_eq!(webhook["reinvocationPolicy"].is_string(), mutating, "{name}");
    let conditions = webhook["matchConditions"].as_array().unwrap();
    assert!(
        conditions.iter().any(|c| c["expression"].as_str().unwrap().contains("deletionTimestamp")),
        "{name}"
    );
    let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap();
    assert!(path.starts_with(if mutating { "/mutate-" } else { "/validate-" }), "{name}");
    for rule in webhook["rules"].as_array().unwrap() {
        let jobs = texts(&rule["resources"]).contains(&"jobs");
        let excluded = texts(&webhook["namespaceSelector"]["matchExpressions"][0]["values"]);
        assert_eq!(excluded, if jobs { vec!["kube-system", "kueue-system"] } else { vec![] }, "{name}");
        let open = name.contains("default-queue") || name.contains("no-queue");
        assert_eq!(webhook["failurePolicy"], if open { "Ignore" } else { "Fail" }, "{name}");
    }
}

#[test]
fn the_shipped_configuration_loads_without_warnings() {
    let text = fs::read_to_string(root().join("config/manager/controller_manager_config.yaml")).unwrap();
    assert_eq!(config::parse(&text).unwrap().warnings, Vec::<String>::new());
}

#[test]
fn the_manager_is_hardened_and_doubled() {
    let deployments = objects("Deployment");
    let spec = &deployments[0].1["spec"];
    assert_eq!(spec["replicas"], 2);
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    let container = &pod["containers"][0]["securityContext"];
    assert_eq!(container["readOnlyRootFilesystem"], true);
    assert_eq!(container["allowPrivilegeEscalation"], false);
    assert_eq!(texts(&container["capabilities"]["drop"]), ["ALL"]);
}
