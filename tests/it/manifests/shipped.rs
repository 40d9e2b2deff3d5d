//! The shipped manifests: every reference resolves, no rule has a wildcard, and no webhook can block the cluster.

use crate::fixtures::manifests::{documents, files, objects, of_the_manager, root, texts};
use serde_json::{Value, json};
use sluice::admission::kinds_open_without_queue;
use sluice::api::config;
use sluice::frameworks::{frameworks, known_frameworks};
use std::fs;

#[test]
fn every_manifest_is_valid_and_referenced() {
    let mut referenced = Vec::new();
    for path in files() {
        let folder = path.parent().unwrap();
        for object in documents(&path) {
            if let Some(operations) = object.as_array() {
                // A patch of the component of v1beta1.
                assert!(operations.iter().all(|operation| operation["op"] == "add"), "{}", path.display());
                continue;
            }
            assert!(object["kind"].is_string() && object["apiVersion"].is_string(), "{}", path.display());
            if !path.ends_with("kustomization.yaml") {
                continue;
            }
            let generated = object["configMapGenerator"]
                .as_array()
                .into_iter()
                .flatten()
                .flat_map(|g| texts(&g["files"]));
            let listed = ["resources", "components", "transformers"].map(|field| texts(&object[field]));
            let patches = object["patches"].as_array().into_iter().flatten();
            let patches = patches.filter_map(|patch| patch["path"].as_str());
            for entry in listed.into_iter().flatten().chain(generated).chain(patches) {
                let target = folder.join(entry);
                let target = if target.is_dir() { target.join("kustomization.yaml") } else { target };
                let resolved = target.canonicalize();
                referenced.push(resolved.unwrap_or_else(|e| panic!("{}: {entry}: {e}", path.display())));
            }
        }
    }
    // Samples of jobs are created rather than applied.
    let samples: Vec<String> =
        frameworks().map(|row| format!("config/samples/{}.yaml", row.gvk.kind.to_lowercase())).collect();
    // Entry points and alternatives.
    let roots = [
        "config/default/kustomization.yaml",
        "config/samples/kustomization.yaml",
        "config/split/kustomization.yaml",
        "config/dashboard/kustomization.yaml",
        "config/history/kustomization.yaml",
        "config/v1beta1/kustomization.yaml",
        "config/visibility-flow-control/kustomization.yaml",
        "config/v1beta1/cert-manager/kustomization.yaml",
        "config/webhooks/client-ca/kustomization.yaml",
        "config/webhooks/default-queue/kustomization.yaml",
        "config/webhooks/manage-all-jobs/kustomization.yaml",
        "config/network-policy/api-server-addresses/kustomization.yaml",
        "config/network-policy/api-server-ports/kustomization.yaml",
        "config/network-policy/metrics-namespace/kustomization.yaml",
        "config/prometheus/kustomization.yaml",
        "config/prometheus/kube-prometheus/kustomization.yaml",
        "config/rbac/retention/kustomization.yaml",
        "config/rbac/without-provisioning/kustomization.yaml",
        "config/rbac/without-topology/kustomization.yaml",
        "webhook-certs/cert-manager/kustomization.yaml",
    ];
    for path in files() {
        // Components of kinds, files that describe kinds, and what samples read are chosen by an administrator.
        let chosen = ["config/frameworks/", "config/samples/framework-file/", "config/samples/related/"];
        let component = path.to_str().is_some_and(|path| chosen.iter().any(|folder| path.contains(folder)));
        let known =
            component || roots.iter().any(|r| path.ends_with(r)) || samples.iter().any(|s| path.ends_with(s));
        assert!(
            known || referenced.contains(&path.canonicalize().unwrap()),
            "{} is not used",
            path.display()
        );
    }
}

#[test]
fn rbac_rules_contain_no_wildcards() {
    let mut seen = 0;
    for kind in ["ClusterRole", "Role"] {
        for (path, role) in objects(kind) {
            // Rules of an aggregated role belong to the aggregating controller.
            let rules = role["rules"].as_array();
            assert!(rules.is_some() != role["aggregationRule"].is_object(), "{}", path.display());
            for rule in rules.into_iter().flatten() {
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
fn webhooks_have_timeouts_and_failure_policies() {
    let mut names = Vec::new();
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let configurations = objects(kind);
        assert_eq!(configurations.len(), 1);
        for webhook in configurations[0].1["webhooks"].as_array().unwrap() {
            check_webhook(webhook, kind.starts_with('M'));
            names.push(webhook["name"].as_str().unwrap().to_owned());
        }
    }
    let component = documents(&root().join("config/webhooks/manage-all-jobs/kustomization.yaml"));
    let mut replaced = Vec::new();
    for patch in component[0]["patches"].as_array().unwrap() {
        let operations: Value = serde_saphyr::from_str(patch["patch"].as_str().unwrap()).unwrap();
        if patch["target"].is_null() {
            for webhook in operations["webhooks"].as_array().unwrap() {
                assert_eq!(webhook["$patch"], "delete");
                replaced.push(webhook["name"].as_str().unwrap().to_owned());
            }
            continue;
        }
        let mutating = patch["target"]["kind"] == "MutatingWebhookConfiguration";
        check_webhook(&operations[0]["value"], mutating);
        assert_eq!(operations[0]["value"]["failurePolicy"], "Fail");
    }
    // Otherwise both the fail-open and the fail-closed entry would review the same Job. Pods have no fail-open entry.
    let of_jobs = |prefix: &'static str, suffixes: &'static [&'static str]| {
        let kinds = frameworks().filter(|row| row.is_shipped());
        kinds.flat_map(move |row| {
            let kind = row.gvk.kind.to_lowercase();
            let suffixes = suffixes.iter().filter(move |suffix| !row.is_pod() || suffix.is_empty());
            suffixes.map(move |suffix| format!("{prefix}{kind}{suffix}.kb.io"))
        })
    };
    let unqueued = of_jobs("m", &["-default-queue"]).chain(of_jobs("v", &["-no-queue"]));
    assert_eq!(replaced, unqueued.collect::<Vec<_>>());
    let named = |names: &'static [&'static str]| names.iter().map(|name| format!("{name}.kb.io"));
    let expected = of_jobs("m", &["", "-default-queue"])
        .chain(named(&["mworkload", "mclusterqueue", "mresourceflavor"]))
        .chain(of_jobs("v", &["", "-no-queue"]))
        .chain(named(&["vworkload", "vclusterqueue", "vcohort", "vresourceflavor"]));
    assert_eq!(names, expected.collect::<Vec<_>>());
}

/// As shipped, no pod without a queue waits for the manager. With the component, it waits for two seconds at most and then starts.
#[test]
fn pods_without_a_queue_do_not_wait() {
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let (_, configuration) = objects(kind).remove(0);
        let of_pods = |entry: &&Value| texts(&entry["rules"][0]["resources"]) == ["pods"];
        let entries: Vec<&Value> =
            configuration["webhooks"].as_array().unwrap().iter().filter(of_pods).collect();
        assert_eq!(entries.len(), 1, "{kind}");
        let conditions = entries[0]["matchConditions"].as_array().unwrap().iter();
        let names: Vec<&str> = conditions.map(|condition| condition["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["not-deleting", "queue-named"]);
    }
    let component = documents(&root().join("config/webhooks/default-queue/kustomization.yaml"));
    let patches = component[0]["patches"].as_array().unwrap();
    assert_eq!(patches.len(), 2);
    for patch in patches {
        let operations: Value = serde_saphyr::from_str(patch["patch"].as_str().unwrap()).unwrap();
        assert_eq!(operations.as_array().unwrap().len(), 1);
        let entry = &operations[0]["value"];
        assert_eq!((&entry["failurePolicy"], &entry["timeoutSeconds"]), (&json!("Ignore"), &json!(2)));
        assert_eq!(texts(&entry["rules"][0]["resources"]), ["pods"]);
        assert_eq!(entry["matchConditions"][1]["name"], "no-queue-named");
    }
}

/// As shipped, jobs without a queue start while no manager answers; with the component, none does.
#[test]
fn manage_all_jobs_component_holds_unqueued_jobs() {
    let component = documents(&root().join("config/webhooks/manage-all-jobs/kustomization.yaml"));
    let patches = component[0]["patches"].as_array().unwrap();
    let kinds: Vec<_> = frameworks().filter(|row| row.is_shipped()).collect();
    for (kind, mutating) in
        [("MutatingWebhookConfiguration", true), ("ValidatingWebhookConfiguration", false)]
    {
        let (_, mut object) = objects(kind).remove(0);
        assert_eq!(kinds_open_without_queue(Some(&object), mutating, &kinds).len(), kinds.len(), "{kind}");
        let patch =
            patches.iter().find(|patch| patch["target"]["kind"] == kind).expect("a patch adds an entry");
        let operations: Value = serde_saphyr::from_str(patch["patch"].as_str().unwrap()).unwrap();
        let added = operations.as_array().unwrap().iter().map(|operation| operation["value"].clone());
        object["webhooks"].as_array_mut().unwrap().extend(added);
        assert!(kinds_open_without_queue(Some(&object), mutating, &kinds).is_empty(), "{kind}");
    }
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
        let jobs = frameworks().any(|row| texts(&rule["resources"]).contains(&row.gvk.plural));
        let excluded = texts(&webhook["namespaceSelector"]["matchExpressions"][0]["values"]);
        assert_eq!(excluded, if jobs { vec!["kube-system", "kueue-system"] } else { vec![] }, "{name}");
        let open = name.contains("default-queue") || name.contains("no-queue");
        assert_eq!(webhook["failurePolicy"], if open { "Ignore" } else { "Fail" }, "{name}");
    }
}

#[test]
fn shipped_configuration_loads_without_warnings() {
    let text = fs::read_to_string(root().join("config/manager/controller_manager_config.yaml")).unwrap();
    assert_eq!(config::parse(&text, &known_frameworks()).unwrap().warnings, Vec::<String>::new());
}

/// Program, arguments, mount and port names are those of Kueue's Deployment, for which patches and tools are written.
#[test]
fn deployments_match_kueues_form_and_the_configuration() {
    const FILE: &str = "controller_manager_config.yaml";
    const FOLDER: &str = "/etc/kueue-manager-config";
    let text = fs::read_to_string(root().join("config/manager").join(FILE)).unwrap();
    let configuration = config::parse(&text, &known_frameworks()).unwrap().configuration;
    let mut deployments = objects("Deployment");
    // The dashboard and the record of history are none of Kueue's.
    let others = ["config/samples", "config/dashboard", "config/history"];
    deployments.retain(|(path, _)| others.iter().all(|folder| !path.starts_with(root().join(folder))));
    assert_eq!(deployments.len(), 2);
    for (path, deployment) in deployments {
        let path = path.display();
        let pod = &deployment["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(texts(&container["command"]), ["/manager"], "{path}");
        let arguments = texts(&container["args"]);
        let expected =
            [&format!("--config=/{FILE}"), "--shutdown-delay=15s", &format!("--config-dir={FOLDER}")];
        assert_eq!(arguments[..3], expected, "{path}");
        let part = (deployment["metadata"]["name"] == "kueue-webhooks").then_some("--component=webhooks");
        assert_eq!(arguments[3..], part.into_iter().collect::<Vec<_>>(), "{path}");
        let mount = &container["volumeMounts"][0];
        let mount = ["name", "mountPath", "subPath"].map(|field| mount[field].as_str().unwrap());
        assert_eq!(mount, ["manager-config", &format!("/{FILE}"), FILE], "{path}");
        // By subPath the file never changes; the folder does.
        let folder = json!({"name": "manager-config", "mountPath": FOLDER, "readOnly": true});
        assert_eq!(container["volumeMounts"][1], folder, "{path}");
        let volume = json!({"name": "manager-config", "configMap": {"name": "kueue-manager-config"}});
        assert_eq!(pod["volumes"][0], volume, "{path}");
        // The manager ends 25 s after the signal at the latest.
        assert_eq!(pod["terminationGracePeriodSeconds"], 30, "{path}");
        let port = |name: &str| {
            let ports = container["ports"].as_array().unwrap();
            ports.iter().find(|port| port["name"] == name).unwrap()["containerPort"].to_string()
        };
        assert_eq!(port("webhook-server"), configuration.webhook.port.to_string(), "{path}");
        assert_eq!(format!(":{}", port("metrics")), configuration.metrics.bind_address, "{path}");
        if part.is_none() {
            let visibility = configuration.visibility_server.bind_port;
            assert_eq!(port("visibility"), visibility.to_string(), "{path}");
        }
        assert_eq!(format!(":{}", port("health")), configuration.health.health_probe_bind_address, "{path}");
        let probe = |name: &str| container[name]["httpGet"]["path"].as_str().unwrap().trim_start_matches('/');
        assert_eq!(probe("readinessProbe"), configuration.health.readiness_endpoint_name, "{path}");
        assert_eq!(probe("livenessProbe"), configuration.health.liveness_endpoint_name, "{path}");
    }
}

#[test]
fn manager_is_hardened_and_replicated() {
    let deployment = of_the_manager("Deployment");
    let spec = &deployment["spec"];
    assert_eq!(spec["replicas"], 2);
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    let container = &pod["containers"][0]["securityContext"];
    assert_eq!(container["readOnlyRootFilesystem"], true);
    assert_eq!(container["allowPrivilegeEscalation"], false);
    assert_eq!(texts(&container["capabilities"]["drop"]), ["ALL"]);
}

/// The dashboard never leads and writes nothing; it asks the leader by a token of its own, and the leader knows its account.
#[test]
fn dashboard_is_hardened_and_asks_the_leader() {
    let mut objects = objects("Deployment");
    objects.retain(|(path, _)| path.starts_with(root().join("config/dashboard")));
    let pod = &objects[0].1["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(texts(&container["securityContext"]["capabilities"]["drop"]), ["ALL"]);
    assert!(texts(&container["args"]).contains(&"--component=dashboard"));
    let manager = of_the_manager("Deployment");
    let token = |pod: &Value| {
        let volumes = pod["volumes"].as_array().unwrap();
        volumes.iter().find(|volume| volume["name"] == "leader-token").unwrap().clone()
    };
    assert_eq!(token(pod), token(&manager["spec"]["template"]["spec"]));
    let text = fs::read_to_string(root().join("config/dashboard/kustomization.yaml")).unwrap();
    let account = pod["serviceAccountName"].as_str().unwrap();
    assert!(text.contains(&format!("--leader-caller={account}")), "{account}");
}

/// Probes come from the node, which policies do not restrict: a port opened for them would be open to every pod.
#[test]
fn network_policy_opens_only_what_clients_call() {
    let policy = of_the_manager("NetworkPolicy")["spec"].take();
    let rules = policy["ingress"].as_array().unwrap();
    let ports: Vec<&str> = rules.iter().map(|rule| rule["ports"][0]["port"].as_str().unwrap()).collect();
    assert_eq!(ports, ["webhook-server", "metrics", "visibility"]);
    assert!(rules.iter().all(|rule| rule["ports"].as_array().unwrap().len() == 1));
    assert_eq!(rules[1]["from"][0]["namespaceSelector"]["matchLabels"]["metrics"], "enabled");
    let egress = policy["egress"].as_array().unwrap();
    let ports = |entry: &Value| entry["ports"][0]["port"].as_u64().unwrap();
    // The components add to the first entry.
    assert_eq!(egress.iter().map(ports).collect::<Vec<_>>(), [443, 53, 8082]);
}
