//! Output of kubectl for the shipped kustomizations. Where no kubectl is built, the tests are skipped with a printed line; where `CI` is
//! set, they fail.

use serde_json::Value;
use sluice::api::crd::v1beta1::CONVERSION_SERVICE;
use sluice::api::v1beta1::CONVERTED;
use sluice::frameworks::frameworks;
use sluice_controlplane::Binaries;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const DEFAULT_NAMESPACE: &str = "kueue-system";
const OTHER_NAMESPACE: &str = "batch-queues";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The kubectl of the end-to-end tests: another version renders other manifests.
fn kubectl() -> Option<PathBuf> {
    let found = Binaries::find("kubectl").unwrap();
    if found.is_none() {
        // A run that checks a change would pass without having rendered anything.
        assert!(std::env::var_os("CI").is_none(), "no kubectl where CI is set: `make tests` builds it");
        println!("skipped: no kubectl; `make tests` builds it");
    }
    found
}

/// A folder that is removed on drop.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// Below the repository, because kustomize accepts only relative paths.
    fn new(name: &str) -> Self {
        let path = root().join("target").join(format!("rendered-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Builds a kustomization on top of `config/default` in another namespace. `certificates` are the components of
/// `config/default`, relative to `webhook-certs`.
fn build(name: &str, components: &[&str], certificates: &[&str]) -> Option<String> {
    build_patched(name, components, certificates, "")
}

/// Like `build`, with further fields of the kustomization.
fn build_patched(name: &str, components: &[&str], certificates: &[&str], fields: &str) -> Option<String> {
    build_changed(name, components, certificates, fields, &[])
}

/// Like `build`, with further files.
pub(crate) fn build_with(
    name: &str,
    components: &[&str],
    certificates: &[&str],
    files: &[(String, String)],
) -> Option<String> {
    build_changed(name, components, certificates, "", files)
}

fn build_changed(
    name: &str,
    components: &[&str],
    certificates: &[&str],
    fields: &str,
    files: &[(String, String)],
) -> Option<String> {
    let program = kubectl()?;
    let folder = TemporaryFolder::new(name);
    // In a copy, because config/default itself selects the certificate component.
    for tree in ["config", "crds", "webhook-certs"] {
        copy_folder(&root().join(tree), &folder.0.join(tree));
    }
    for (path, text) in files {
        let path = folder.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let default = folder.0.join("config/default/kustomization.yaml");
    let text = fs::read_to_string(&default).unwrap();
    let component = "- ../../webhook-certs/self-managed";
    assert!(text.contains(component), "{text}");
    let certificates = certificates.iter().map(|component| format!("- ../../webhook-certs/{component}"));
    let certificates = certificates.collect::<Vec<_>>().join("\n");
    fs::write(&default, text.replace(component, &certificates)).unwrap();
    let overlay = folder.0.join("overlay");
    fs::create_dir_all(&overlay).unwrap();
    let lines: Vec<String> =
        components.iter().map(|component| format!("- ../config/{component}\n")).collect();
    let lines = lines.concat();
    let components = if lines.is_empty() { String::new() } else { format!("components:\n{lines}") };
    let overlaid = format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: {OTHER_NAMESPACE}\nresources:\n- ../config/default\n{components}transformers:\n- ../config/namespace\n{fields}"
    );
    fs::write(overlay.join("kustomization.yaml"), overlaid).unwrap();
    let output = Command::new(program).arg("kustomize").arg(&overlay).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

pub(crate) fn objects(text: &str, kind: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    all.into_iter().filter(|object| object["kind"] == kind).collect()
}

/// Checks that the old namespace occurs nowhere, and that texts unknown to kustomize contain the new one.
fn check_namespace(text: &str) {
    let remaining: Vec<&str> = text.lines().filter(|line| line.contains(DEFAULT_NAMESPACE)).collect();
    assert!(remaining.is_empty(), "{remaining:#?}");
    let account = format!("system:serviceaccount:{OTHER_NAMESPACE}:kueue-controller-manager");
    let mut conditions = 0;
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        for webhook in objects(text, kind)[0]["webhooks"].as_array().unwrap() {
            assert_eq!(webhook["clientConfig"]["service"]["namespace"], OTHER_NAMESPACE);
            let name = webhook["name"].as_str().unwrap();
            if name.contains("job") {
                let excluded = &webhook["namespaceSelector"]["matchExpressions"][0]["values"];
                assert_eq!(excluded, &serde_json::json!(["kube-system", OTHER_NAMESPACE]), "{name}");
            }
            let expressions = webhook["matchConditions"].as_array().unwrap().iter();
            conditions +=
                expressions.filter(|c| c["expression"].as_str().unwrap().contains(&account)).count();
        }
    }
    assert_eq!(conditions, 1, "one condition names the manager's account");
    assert_eq!(objects(text, "Namespace")[0]["metadata"]["name"], OTHER_NAMESPACE);
}

#[test]
fn other_namespace_renders_with_self_managed_certificates() {
    let components = ["webhooks/manage-all-jobs", "network-policy/api-server-ports"];
    let Some(text) = build("self-managed", &components, &["self-managed"]) else { return };
    check_namespace(&text);
    let policies = objects(&text, "NetworkPolicy");
    let ports = policies[0]["spec"]["egress"][0]["ports"].as_array().unwrap();
    let ports: Vec<u64> = ports.iter().map(|port| port["port"].as_u64().unwrap()).collect();
    assert_eq!(ports, [443, 6443, 8443, 16443]);
    let mutating = &objects(&text, "MutatingWebhookConfiguration")[0]["webhooks"];
    let names: Vec<&str> =
        mutating.as_array().unwrap().iter().map(|webhook| webhook["name"].as_str().unwrap()).collect();
    for kind in frameworks().filter(|row| row.is_shipped()).map(|row| row.gvk.kind.to_lowercase()) {
        let has = |name: String| names.contains(&name.as_str());
        let replaced = has(format!("m{kind}-managed.kb.io")) && !has(format!("m{kind}-default-queue.kb.io"));
        assert!(replaced, "{kind}: {names:?}");
    }
    assert_eq!(
        names.len(),
        3 + 2 * frameworks().filter(|row| row.is_shipped()).count(),
        "the other webhooks remain: {names:?}"
    );
}

/// Returns whether a selector by equality selects a pod with these labels.
fn selects(selector: &Value, labels: &Value) -> bool {
    selector.as_object().unwrap().iter().all(|(name, value)| labels[name] == *value)
}

/// The two Deployments differ in name, labels, account, part and ports; the webhook Service selects the pods of one of them.
#[test]
fn split_deployments_differ_in_their_part() {
    let certificates = ["../config/split", "cert-manager"];
    let Some(text) =
        build("split", &["webhooks/client-ca", "network-policy/api-server-ports"], &certificates)
    else {
        return;
    };
    check_namespace(&text);
    let deployments = objects(&text, "Deployment");
    assert_eq!(deployments.len(), 2);
    let mut texts = Vec::new();
    for (name, part, ports) in
        [("kueue-controller-manager", "controller", 3), ("kueue-webhooks", "webhooks", 3)]
    {
        let deployment = deployments.iter().find(|d| d["metadata"]["name"] == name).unwrap();
        let mut spec = deployment["spec"].clone();
        let container = &mut spec["template"]["spec"]["containers"][0];
        let part_flag = Value::from(format!("--component={part}"));
        assert!(container["args"].as_array().unwrap().contains(&part_flag), "{name}");
        let mounts = container["volumeMounts"].to_string();
        for path in ["/tmp/k8s-webhook-server/serving-certs", "/etc/kueue-webhook-client-ca"] {
            assert!(mounts.contains(path), "{name}: {mounts}");
        }
        assert_eq!(container["ports"].as_array().unwrap().len(), ports, "{name}");
        container["ports"] = Value::Null;
        // Only replicas that may lead are asked, and ask.
        assert_eq!(
            container.as_object_mut().unwrap().shift_remove("env").is_some(),
            part == "controller",
            "{name}"
        );
        let is_token = |volume: &Value| volume["name"] == "leader-token";
        let without_token = |volumes: &mut Value| volumes.as_array_mut().unwrap().retain(|v| !is_token(v));
        without_token(&mut container["volumeMounts"]);
        without_token(&mut spec["template"]["spec"]["volumes"]);
        let labels = spec["template"]["metadata"]["labels"].clone();
        spec["template"]["metadata"]["labels"].as_object_mut().unwrap().remove("sluice.dev/serves-webhooks");
        spec["template"]["spec"].as_object_mut().unwrap().remove("priorityClassName").unwrap();
        let spec = spec.to_string().replace(name, "NAME").replace(&format!("component\":\"{part}"), "PART");
        texts.push(spec.replace(&format!("component={part}"), "PART"));
        let selected = &deployment["spec"]["selector"]["matchLabels"];
        let budgets = objects(&text, "PodDisruptionBudget");
        assert!(
            budgets.iter().any(|budget| budget["spec"]["selector"]["matchLabels"] == *selected),
            "{name}"
        );
        let policies = objects(&text, "NetworkPolicy");
        let policy = &policies.iter().find(|policy| policy["metadata"]["name"] == name).unwrap()["spec"];
        assert!(selects(&policy["podSelector"]["matchLabels"], &labels), "{name}");
        assert_eq!(policy["egress"][0]["ports"].as_array().unwrap().len(), 4, "{name}");
        let admits = policy["ingress"].to_string().contains("webhook-server");
        assert_eq!(admits, part == "webhooks", "{name}");
        let services = objects(&text, "Service");
        let service = services.iter().find(|s| s["metadata"]["name"] == "kueue-webhook-service").unwrap();
        assert_eq!(selects(&service["spec"]["selector"], &labels), part == "webhooks", "{name}");
    }
    assert_eq!(texts[0], texts[1]);
}

#[test]
fn other_namespace_renders_with_cert_manager() {
    let Some(text) = build(
        "cert-manager",
        &["network-policy/api-server-addresses", "webhooks/client-ca"],
        &["cert-manager"],
    ) else {
        return;
    };
    check_namespace(&text);
    let certificates = objects(&text, "Certificate");
    let names = certificates.iter().filter_map(|certificate| certificate["spec"]["dnsNames"].as_array());
    let names: Vec<&str> = names.flatten().map(|name| name.as_str().unwrap()).collect();
    for service in [
        "kueue-webhook-service",
        "kueue-controller-manager-metrics-service",
        "kueue-dashboard",
        "kueue-history",
    ] {
        for name in [
            format!("{service}.{OTHER_NAMESPACE}.svc"),
            format!("{service}.{OTHER_NAMESPACE}.svc.cluster.local"),
        ] {
            assert!(names.contains(&&*name), "{name} is not among {names:?}");
        }
    }
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let injected = &objects(&text, kind)[0]["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
        assert_eq!(injected, &format!("{OTHER_NAMESPACE}/kueue-serving-cert"), "{kind}");
    }
    let pod = &objects(&text, "Deployment")[0]["spec"]["template"]["spec"];
    let arguments = pod["containers"][0]["args"].to_string();
    assert!(arguments.contains("--webhook-client-ca=/etc/kueue-webhook-client-ca/ca.crt"), "{arguments}");
    let mounts = pod["containers"][0]["volumeMounts"].to_string();
    assert!(mounts.contains(r#""mountPath":"/etc/kueue-webhook-client-ca""#), "{mounts}");
    let policies = objects(&text, "NetworkPolicy");
    let ingress = &policies[0]["spec"]["ingress"][0];
    assert_eq!(
        (ingress["ports"][0]["port"].as_str(), ingress["from"].as_array().map(Vec::len)),
        (Some("webhook-server"), Some(1))
    );
}

/// Definitions have both versions, API servers dial a Service of its own in the manager's namespace, and with cert-manager nothing
/// of a definition is written by the manager.
#[test]
fn v1beta1_is_served_beside_v1beta2() {
    for (certificates, more) in [("self-managed", ""), ("cert-manager", "/cert-manager")] {
        let components = ["v1beta1", "v1beta1/cert-manager"];
        let components = &components[..if more.is_empty() { 1 } else { 2 }];
        let Some(text) = build("v1beta1", components, &["../config/split", certificates]) else { return };
        check_namespace(&text);
        let mut converted = Vec::new();
        for definition in objects(&text, "CustomResourceDefinition") {
            let name = definition["metadata"]["name"].as_str().unwrap();
            let versions = definition["spec"]["versions"].as_array().unwrap().iter();
            let versions: Vec<(&str, bool)> = versions
                .map(|version| (version["name"].as_str().unwrap(), version["storage"].as_bool().unwrap()))
                .collect();
            assert_eq!(versions, [("v1beta1", false), ("v1beta2", true)], "{name}");
            let client = &definition["spec"]["conversion"]["webhook"]["clientConfig"];
            let is_injected =
                !definition["metadata"]["annotations"]["cert-manager.io/inject-ca-from"].is_null();
            assert_eq!(is_injected, !client.is_null() && !more.is_empty(), "{name}");
            if !client.is_null() {
                assert_eq!(client["service"]["name"], CONVERSION_SERVICE);
                assert_eq!(client["service"]["namespace"], OTHER_NAMESPACE);
                converted.push(name.to_owned());
            }
        }
        converted.sort();
        assert_eq!(converted, CONVERTED);
        let services = objects(&text, "Service");
        let service = services.iter().find(|s| s["metadata"]["name"] == CONVERSION_SERVICE).unwrap();
        let webhooks = services.iter().find(|s| s["metadata"]["name"] == "kueue-webhook-service").unwrap();
        assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
        for field in ["selector", "ports"] {
            assert_eq!(service["spec"][field], webhooks["spec"][field], "{field}");
        }
        for deployment in objects(&text, "Deployment") {
            let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
            assert!(arguments.contains(&format!("--conversion-service={CONVERSION_SERVICE}")), "{arguments}");
        }
        let roles = objects(&text, "ClusterRole");
        let mut verbs = Vec::new();
        for rule in roles.iter().flat_map(|role| role["rules"].as_array().into_iter().flatten()) {
            if rule["resources"] == serde_json::json!(["customresourcedefinitions"]) {
                assert_eq!(rule["resourceNames"], serde_json::json!(CONVERTED));
                verbs.push(rule["verbs"].as_array().unwrap().len());
            }
        }
        verbs.sort_unstable();
        assert_eq!(verbs, if more.is_empty() { [3, 4] } else { [3, 3] });
        let issued = objects(&text, "Certificate");
        let serving = |certificate: &&Value| certificate["metadata"]["name"] == "kueue-serving-cert";
        if let Some(certificate) = issued.iter().find(serving) {
            let names = certificate["spec"]["dnsNames"].to_string();
            assert!(names.contains(&format!("{CONVERSION_SERVICE}.{OTHER_NAMESPACE}.svc")), "{names}");
        }
    }
}

/// API servers find the visibility API at a Service of the controller's pods, verify it, and let it read how they identify
/// themselves. With cert-manager the manager writes no APIService.
#[test]
fn visibility_is_served_by_the_controller() {
    for (name, components, certificates) in [
        ("visibility", &["visibility-flow-control"][..], &["self-managed"][..]),
        ("visibility-split", &[], &["../config/split", "cert-manager"]),
    ] {
        let Some(text) = build(name, components, certificates) else { return };
        check_namespace(&text);
        let services = objects(&text, "Service");
        let service = services.iter().find(|s| s["metadata"]["name"] == "kueue-visibility-server").unwrap();
        assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
        let deployments = objects(&text, "Deployment");
        let serving: Vec<&str> = deployments
            .iter()
            .filter(|d| selects(&service["spec"]["selector"], &d["spec"]["template"]["metadata"]["labels"]))
            .map(|d| d["metadata"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(serving, ["kueue-controller-manager"]);
        let api_services = objects(&text, "APIService");
        let mut names: Vec<&str> =
            api_services.iter().map(|service| service["metadata"]["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "v1alpha1.visibility.sluice.dev",
                "v1beta1.visibility.kueue.x-k8s.io",
                "v1beta2.visibility.kueue.x-k8s.io"
            ]
        );
        let external = certificates.contains(&"cert-manager");
        for api_service in &api_services {
            let spec = &api_service["spec"];
            assert_eq!(spec["service"]["namespace"], OTHER_NAMESPACE);
            assert_eq!((&spec["groupPriorityMinimum"], &spec["versionPriority"]), (&100.into(), &100.into()));
            assert!(spec.get("insecureSkipTLSVerify").is_none(), "{spec}");
            let injected = &api_service["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
            assert_eq!(injected.as_str().is_some(), external, "{api_service}");
        }
        let writes = text.contains("resources:\n  - apiservices\n");
        assert_eq!(writes, !external, "rights on APIServices");
        let bindings = objects(&text, "RoleBinding");
        let reader =
            bindings.iter().find(|b| b["roleRef"]["name"] == "extension-apiserver-authentication-reader");
        let reader = reader.unwrap();
        assert_eq!(reader["metadata"]["namespace"], "kube-system");
        assert_eq!(reader["subjects"][0]["namespace"], OTHER_NAMESPACE);
        let policies = objects(&text, "NetworkPolicy");
        for policy in &policies {
            let open = policy["spec"]["ingress"].to_string().contains(r#""port":"visibility""#);
            assert_eq!(open, policy["metadata"]["name"] == "kueue-controller-manager");
        }
        let schemas = objects(&text, "FlowSchema");
        assert_eq!(schemas.len(), components.len());
        for schema in schemas {
            let level = &objects(&text, "PriorityLevelConfiguration")[0]["metadata"]["name"];
            assert_eq!(schema["spec"]["priorityLevelConfiguration"]["name"], *level);
        }
    }
}

/// Prometheus needs no private key, the account of kube-prometheus gets permissions only by its component, and the metrics can be
/// closed to all namespaces but one.
#[test]
fn metrics_are_opened_by_choice() {
    let from = |text: &str| objects(text, "NetworkPolicy")[0]["spec"]["ingress"][1]["from"].to_string();
    let accounts = |text: &str| -> Vec<Value> {
        let bindings = objects(text, "RoleBinding");
        let subjects = bindings.iter().flat_map(|binding| binding["subjects"].as_array().unwrap());
        subjects.filter(|subject| subject["namespace"] != OTHER_NAMESPACE).cloned().collect()
    };
    let Some(text) = build("metrics", &["prometheus"], &["self-managed"]) else { return };
    assert_eq!(accounts(&text), Vec::<Value>::new());
    assert_eq!(from(&text), r#"[{"namespaceSelector":{"matchLabels":{"metrics":"enabled"}}}]"#);
    let authority =
        &objects(&text, "ServiceMonitor")[0]["spec"]["endpoints"][0]["tlsConfig"]["ca"]["configMap"];
    let maps = objects(&text, "ConfigMap");
    let map = maps.iter().find(|map| map["metadata"]["name"] == authority["name"]).expect("a ConfigMap");
    assert_eq!(map["metadata"]["namespace"], OTHER_NAMESPACE);
    let components = ["prometheus", "prometheus/kube-prometheus", "network-policy/metrics-namespace"];
    let text = build("metrics-choices", &components, &["self-managed"]).unwrap();
    let account =
        serde_json::json!({"kind": "ServiceAccount", "name": "prometheus-k8s", "namespace": "monitoring"});
    assert_eq!(accounts(&text), [account]);
    let monitoring =
        r#"[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"monitoring"}}}]"#;
    assert_eq!(from(&text), monitoring);
}

/// Runbooks and monitors written for Kueue select its pods, and the Service of its metrics, by this label. Selectors of the
/// manifests do not use it: those of the webhooks' pods must not select the controller's.
#[test]
fn label_of_kueues_pods_selects() {
    for components in [&["self-managed"][..], &["../config/split", "self-managed"]] {
        let Some(text) = build("kueue-label", &[], components) else { return };
        let label = |labels: &serde_json::Value| labels["control-plane"] == "controller-manager";
        for deployment in objects(&text, "Deployment") {
            assert!(label(&deployment["metadata"]["labels"]), "{components:?}");
            assert!(label(&deployment["spec"]["template"]["metadata"]["labels"]), "{components:?}");
            assert!(!label(&deployment["spec"]["selector"]["matchLabels"]), "{components:?}");
        }
        let services = objects(&text, "Service");
        let labelled = services.iter().filter(|service| label(&service["metadata"]["labels"]));
        let names: Vec<_> = labelled.map(|service| service["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["kueue-controller-manager-metrics-service"], "{components:?}");
        assert!(services.iter().all(|service| !label(&service["spec"]["selector"])), "{components:?}");
    }
}

/// As administrators of Kueue write it: arguments, port, and a ConfigMap of their own, merged by name and path.
const PATCH_FOR_KUEUE: &str = "patches:
- patch: |
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: kueue-controller-manager, namespace: kueue-system}
    spec:
      template:
        spec:
          containers:
          - name: manager
            args: [--config=/controller_manager_config.yaml, --zap-log-level=5]
            ports:
            - {name: webhook-server, containerPort: 9443, protocol: TCP, hostPort: 9443}
            volumeMounts:
            - {name: manager-config, mountPath: /controller_manager_config.yaml, subPath: own.yaml}
          volumes:
          - {name: manager-config, configMap: {name: own-config}}
";

/// The patch changes the container's fields; it adds none beside them.
#[test]
fn patch_for_kueues_deployment_applies() {
    let Some(text) = build_patched("kueue-patch", &[], &["self-managed"], PATCH_FOR_KUEUE) else { return };
    let unpatched = build("kueue-unpatched", &[], &["self-managed"]).unwrap();
    let pod = |text: &str| objects(text, "Deployment")[0]["spec"]["template"]["spec"].clone();
    let mut expected = pod(&unpatched);
    expected["volumes"][0]["configMap"]["name"] = "own-config".into();
    let container = &mut expected["containers"][0];
    container["args"] = serde_json::json!(["--config=/controller_manager_config.yaml", "--zap-log-level=5"]);
    container["ports"][0]["hostPort"] = 9443.into();
    container["volumeMounts"][0]["subPath"] = "own.yaml".into();
    assert_eq!(pod(&text), expected);
}
