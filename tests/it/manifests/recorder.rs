//! `config/history`: what records history reads, keeps one file on one volume, and answers and asks the manager alone.

use crate::fixtures::manifests::{of_the_manager, only_object, root, texts};
use crate::manifests::kustomize::{build_with, objects};
use serde_json::{Value, json};
use std::fs;

const FOLDER: &str = "config/history";

fn pod() -> Value {
    only_object(FOLDER, "Deployment")["spec"]["template"].take()
}

/// Returns the value of an argument of the first container of a pod.
fn argument(pod: &Value, flag: &str) -> Option<String> {
    let arguments = texts(&pod["spec"]["containers"][0]["args"]);
    arguments.iter().find_map(|argument| Some(argument.strip_prefix(flag)?.strip_prefix('=')?.to_owned()))
}

/// Two processes cannot write one file, and the volume is at one node: the old pod ends before the new one starts.
#[test]
fn one_hardened_process_writes_the_volume() {
    let deployment = only_object(FOLDER, "Deployment");
    assert_eq!(deployment["spec"]["replicas"], 1);
    assert_eq!(deployment["spec"]["strategy"], json!({"type": "Recreate"}));
    let (pod, manager) = (pod(), of_the_manager("Deployment")["spec"]["template"].take());
    let (container, other) = (&pod["spec"]["containers"][0], &manager["spec"]["containers"][0]);
    assert_eq!(container["securityContext"], other["securityContext"]);
    let mut context = pod["spec"]["securityContext"].clone();
    let group = context.as_object_mut().unwrap().shift_remove("fsGroup");
    assert_eq!(context, manager["spec"]["securityContext"]);
    assert_eq!(group.as_ref(), Some(&context["runAsGroup"]), "the process may write the volume");
    let file = argument(&pod, "--history-record").unwrap();
    let mounts = container["volumeMounts"].as_array().unwrap();
    let writable: Vec<&Value> = mounts.iter().filter(|mount| mount["readOnly"] != true).collect();
    let [mount] = writable[..] else { panic!("{writable:?}") };
    assert!(file.starts_with(&format!("{}/", mount["mountPath"].as_str().unwrap())), "{file}");
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
    let claim = only_object(FOLDER, "PersistentVolumeClaim");
    assert_eq!(volume["persistentVolumeClaim"]["claimName"], claim["metadata"]["name"]);
    assert_eq!(claim["spec"]["accessModes"], json!(["ReadWriteOnce"]));
    assert!(claim["spec"].get("storageClassName").is_none(), "the cluster's default");
}

/// The address of the manager is the Service, which leads to the port that only the manager's pods reach, and the recorder accepts the
/// tokens of the manager's account.
#[test]
fn the_manager_alone_asks() {
    let (pod, manager) = (pod(), of_the_manager("Deployment")["spec"]["template"].take());
    let caller = argument(&pod, "--leader-caller").unwrap();
    assert_eq!(Value::from(caller), manager["spec"]["serviceAccountName"]);
    let service = only_object(FOLDER, "Service");
    assert_eq!(service["spec"]["selector"], pod["metadata"]["labels"]);
    let port = &service["spec"]["ports"][0];
    let ports = pod["spec"]["containers"][0]["ports"].as_array().unwrap();
    let target = ports.iter().find(|served| served["name"] == port["targetPort"]).unwrap();
    assert_eq!(target["containerPort"], 8082, "the default port of the visibility API");
    let text = fs::read_to_string(root().join(FOLDER).join("kustomization.yaml")).unwrap();
    let address =
        format!("--history-address={}:{}", service["metadata"]["name"].as_str().unwrap(), port["port"]);
    assert!(text.contains(&address), "{address}");
    let policy = &only_object(FOLDER, "NetworkPolicy")["spec"];
    assert_eq!(policy["podSelector"]["matchLabels"], pod["metadata"]["labels"]);
    let selected = &of_the_manager("Deployment")["spec"]["selector"];
    let rules = policy["ingress"].as_array().unwrap();
    let names: Vec<&Value> = rules.iter().map(|rule| &rule["ports"][0]["port"]).collect();
    assert_eq!(names, ["visibility", "metrics"]);
    assert_eq!(rules[0]["from"], json!([{ "podSelector": selected }]));
    assert_eq!(rules[1], of_the_manager("NetworkPolicy")["spec"]["ingress"][1]);
    let outgoing: Vec<&Value> =
        policy["egress"].as_array().unwrap().iter().map(|rule| &rule["ports"][0]["port"]).collect();
    assert_eq!(outgoing, [443, 53, 8082]);
    assert_eq!(policy["egress"][2]["to"], json!([{ "podSelector": selected }]));
}

/// At its start it asks the Service of the manager, with a token for such questions alone, and the manager accepts its account.
#[test]
fn it_asks_the_manager_for_what_it_missed() {
    let (pod, manager) = (pod(), of_the_manager("Deployment")["spec"]["template"].take());
    let address = argument(&pod, "--history-source").unwrap();
    let text = fs::read_to_string(root().join("config/visibility/service.yaml")).unwrap();
    let service: Value = serde_saphyr::from_str(&text).unwrap();
    let port = &service["spec"]["ports"][0];
    assert_eq!(address, format!("{}:{}", service["metadata"]["name"].as_str().unwrap(), port["port"]));
    let token = |pod: &Value| {
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        volumes.iter().find(|volume| volume["name"] == "leader-token").unwrap().clone()
    };
    assert_eq!(token(&pod), token(&manager));
    let kustomization = fs::read_to_string(root().join(FOLDER).join("kustomization.yaml")).unwrap();
    let account = pod["spec"]["serviceAccountName"].as_str().unwrap();
    assert!(kustomization.contains(&format!("value: --leader-caller={account}\n")), "{account}");
}

/// The commands of docs/history.md select by labels, and name the kind of every object but the claim, which stays.
#[test]
fn documented_commands_delete_all_but_the_claim() {
    let page = fs::read_to_string(root().join("docs/history.md")).unwrap();
    let selector = "-l app.kubernetes.io/name=kueue,app.kubernetes.io/component=history";
    let commands = page.lines().filter(|line| line.contains(" delete ") && line.ends_with(selector));
    let kinds: Vec<&str> = commands
        .flat_map(|line| line.split_once(" delete ").unwrap().1.split(' ').next().unwrap().split(','))
        .collect();
    let mut found = 0;
    for name in ["deployment", "role", "service", "network_policy", "volume_claim"] {
        let text = fs::read_to_string(root().join(FOLDER).join(format!("{name}.yaml"))).unwrap();
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        for object in objects {
            let labels = json!({"app.kubernetes.io/name": "kueue", "app.kubernetes.io/component": "history"});
            assert_eq!(object["metadata"]["labels"], labels, "{object}");
            let kind = object["kind"].as_str().unwrap().to_lowercase();
            assert_eq!(kinds.contains(&kind.as_str()), kind != "persistentvolumeclaim", "{kind}");
            found += 1;
        }
    }
    assert!(found > 8);
    let claim = only_object(FOLDER, "PersistentVolumeClaim");
    let command = format!("delete persistentvolumeclaim {}\n", claim["metadata"]["name"].as_str().unwrap());
    assert!(page.contains(&command), "{command}");
}

/// docs/flags.md has the flags of the program: `page_of_flags_is_up_to_date`.
#[test]
fn the_program_has_the_flags() {
    let page = fs::read_to_string(root().join("docs/flags.md")).unwrap();
    let kustomization = fs::read_to_string(root().join(FOLDER).join("kustomization.yaml")).unwrap();
    let pod = pod();
    let arguments = texts(&pod["spec"]["containers"][0]["args"]).into_iter();
    let patched = kustomization.lines().filter_map(|line| line.trim().strip_prefix("value: "));
    let flags: Vec<&str> = arguments.chain(patched).collect();
    assert_eq!(flags.len(), 12);
    for flag in flags {
        let (name, _) = flag.split_once('=').unwrap();
        assert!(page.contains(&format!("| `{name}=")), "{flag}");
    }
}

/// With webhooks of their own or without, the manager may reach the recorder, metrics of both are found by one Service, and what is for
/// processes that serve webhooks is not added to the others.
#[test]
fn it_renders_beside_other_components() {
    for (name, certificates) in
        [("history", &["self-managed"][..]), ("history-split", &["../config/split", "self-managed"][..])]
    {
        let components = ["dashboard", "history", "v1beta1", "network-policy/api-server-addresses"];
        // The rule of webhooks belongs to other pods with ../split.
        let components = if certificates.len() == 1 { &components[..] } else { &components[..3] };
        let Some(text) = build_with(name, components, certificates, &[]) else { return };
        let deployments = objects(&text, "Deployment");
        let named = |wanted: &str| deployments.iter().find(|object| object["metadata"]["name"] == wanted);
        let (manager, recorder) =
            (named("kueue-controller-manager").unwrap(), named("kueue-history").unwrap());
        let address = argument(&manager["spec"]["template"], "--history-address").unwrap();
        assert_eq!(address, "kueue-history:8082", "{name}");
        let labels = &recorder["spec"]["template"]["metadata"]["labels"];
        let policies = objects(&text, "NetworkPolicy");
        let policy = policies.iter().find(|p| p["metadata"]["name"] == "kueue-controller-manager").unwrap();
        let egress = policy["spec"]["egress"].as_array().unwrap();
        let to_recorder =
            egress.iter().find(|rule| rule["to"][0]["podSelector"]["matchLabels"] == *labels).unwrap();
        assert_eq!(to_recorder["ports"], json!([{"port": 8082, "protocol": "TCP"}]), "{name}");
        for object in [&objects(&text, "PersistentVolumeClaim")[0], recorder] {
            assert_eq!(object["metadata"]["namespace"], manager["metadata"]["namespace"], "{name}");
        }
        let services = objects(&text, "Service");
        let of_metrics = "kueue-controller-manager-metrics-service";
        let metrics = services.iter().find(|service| service["metadata"]["name"] == of_metrics).unwrap();
        assert_eq!(metrics["spec"]["selector"], json!({"app.kubernetes.io/name": "kueue"}), "{name}");
        for deployment in &deployments {
            let part = &deployment["metadata"]["labels"]["app.kubernetes.io/component"];
            let serves_reviews = ["controller", "webhooks"].iter().any(|served| part == served);
            let converts = argument(&deployment["spec"]["template"], "--conversion-service").is_some();
            assert_eq!(converts, serves_reviews, "{name}: {part}");
        }
    }
}

/// Only the processes that serve webhooks ask their clients for certificates.
#[test]
fn authorities_of_webhook_clients_are_not_for_readers() {
    let components = ["dashboard", "history", "webhooks/client-ca"];
    let Some(text) = build_with("history-client-ca", &components, &["self-managed"], &[]) else { return };
    let deployments = objects(&text, "Deployment");
    assert_eq!(deployments.len(), 3);
    for deployment in deployments {
        let is_manager = deployment["metadata"]["name"] == "kueue-controller-manager";
        assert_eq!(deployment.to_string().contains("webhook-client-ca"), is_manager, "{deployment}");
    }
}
