//! The visibility API behind a real API server: the shipped manifests on a control plane of their own with a kubelet. Users ask the API
//! server, which finds a replica by the Service, verifies its certificate and passes on who asks.

use crate::cases::note;
use crate::certificates::{CA_SECRET, SERVING_SECRET, certificate};
use crate::fixture::Fixture;
use crate::shipped_manifests::{Installation, check_support};
use anyhow::{Context as _, Result, ensure};
use kube::config::Config;
use serde_json::{Value, json};
use sluice_e2e::certs::CertificateAuthority;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::NAMESPACE;
use sluice_e2e::kubeconfig::decode_base64;
use sluice_e2e::manager::LEASE_NAME;
use sluice_e2e::objects::{self, Job, Kind, condition, condition_is_true, text};
use sluice_e2e::wait::{eventually, within};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

const API_SERVICE: Kind = Kind::new("apiregistration.k8s.io", "v1", "APIService", "apiservices");
const SERVICES: [&str; 3] = [
    "v1beta1.visibility.kueue.x-k8s.io",
    "v1beta2.visibility.kueue.x-k8s.io",
    "v1alpha1.visibility.sluice.dev",
];
const GROUP: &str = "/apis/visibility.kueue.x-k8s.io";
const OF_CQ: &str = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads";
const OF_LQ: &str = "/apis/visibility.kueue.x-k8s.io/v1beta1/namespaces/team/localqueues/lq/pendingworkloads";
const VIEWS: &str = "/apis/visibility.sluice.dev/v1alpha1";
const TEAM: &str = "team";
const DEPLOYMENT: &str = "deployment/kueue-controller-manager";
/// Most time from the return of a replica to the end of a deleted namespace.
const RETURN: Duration = Duration::from_mins(1);

/// Users with rights get pending workloads with positions, others get none; discovery and OpenAPI are merged; a deleted namespace
/// waits for a replica, and no longer; a replica alone is enough, also one that only follows; a certificate of an earlier installation,
/// without the name of the API's Service, is renewed.
pub(crate) async fn pending_workloads_are_served(_: &mut Cluster, _: &Fixture) -> Result<()> {
    run("visibility", &["visibility-flow-control"]).await
}

/// The same where webhooks and controller are two Deployments: the controller answers.
pub(crate) async fn split_deployments_serve(_: &mut Cluster, _: &Fixture) -> Result<()> {
    run("visibility-split", &["split"]).await
}

async fn run(name: &str, components: &[&str]) -> Result<()> {
    check_support()?;
    let (mut installation, manifests) = Installation::prepare(name, components).await?;
    let outcome = async {
        installation.install(manifests).await?;
        check(&installation).await
    }
    .await;
    installation.report(outcome).await
}

async fn check(installation: &Installation) -> Result<()> {
    wait_until_available(installation, true).await?;
    fill_queues(installation).await?;
    answers_are_right(installation).await?;
    rights_decide(installation)?;
    views_are_shown(installation).await?;
    pages_go_on_at_any_replica(installation).await?;
    the_cluster_is_described(installation).await?;
    rights_decide_on_views(installation).await?;
    discovery_is_merged(installation).await?;
    only_the_api_server_is_heard(installation).await?;
    follower_answers_alone(installation).await?;
    namespaces_wait_for_a_replica(installation).await
}

fn get(installation: &Installation, path: &str, more: &[&str]) -> Result<Value> {
    let arguments = [&["get", "--raw", path], more].concat();
    Ok(serde_json::from_str(&installation.kubectl.run(&arguments)?)?)
}

async fn wait_until_available(installation: &Installation, available: bool) -> Result<()> {
    eventually(format!("the APIServices are available: {available}"), async || {
        for name in SERVICES {
            let service = installation.objects.must_get(API_SERVICE, "", name).await?;
            let found = condition(&service, "Available");
            ensure!(condition_is_true(&service, "Available") == available, "{name}: {}", found.message);
            ensure!(service["spec"].get("insecureSkipTLSVerify").is_none(), "{name} is not verified");
        }
        Ok(())
    })
    .await
}

/// Three Jobs wait in two LocalQueues of one ClusterQueue, the last one with the highest priority.
async fn fill_queues(installation: &Installation) -> Result<()> {
    let objects = &installation.objects;
    objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": TEAM}})).await?;
    objects.create(Kind::FLAVOR, &json!({"metadata": {"name": "any"}})).await?;
    let queue = objects::cluster_queue("cq", "", "any", &[("cpu", "0", None)]);
    objects.create(Kind::CLUSTER_QUEUE, &queue).await?;
    for name in ["lq", "other"] {
        objects.create(Kind::LOCAL_QUEUE, &objects::local_queue(TEAM, name, "cq")).await?;
    }
    let class = Kind::new("kueue.x-k8s.io", "v1beta2", "WorkloadPriorityClass", "workloadpriorityclasses");
    objects.create(class, &json!({"metadata": {"name": "high"}, "value": 7})).await?;
    for (name, queue) in [("first", "lq"), ("second", "other"), ("third", "lq")] {
        let job = Job::new(TEAM, name, queue, &[("cpu", "1")]);
        let job = if name == "third" { job.label("kueue.x-k8s.io/priority-class", "high") } else { job };
        objects.create(Kind::JOB, job.body()).await?;
        eventually("the Job has its Workload", async || {
            let workloads = objects.list(Kind::WORKLOAD, TEAM, "").await?;
            let owned = |w: &Value| w["metadata"]["ownerReferences"][0]["name"] == name;
            ensure!(workloads.iter().any(owned), "{} Workloads", workloads.len());
            Ok(())
        })
        .await?;
        // Creation times have whole seconds.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
    }
    Ok(())
}

/// Name of the Job, LocalQueue, priority and both positions of each item.
fn rows(summary: &Value) -> Vec<Value> {
    let items = summary["items"].as_array().into_iter().flatten();
    let row = |item: &Value| {
        json!([
            item["metadata"]["ownerReferences"][0]["name"],
            item["localQueueName"],
            item["priority"],
            item["positionInClusterQueue"],
            item["positionInLocalQueue"],
        ])
    };
    items.map(row).collect()
}

async fn answers_are_right(installation: &Installation) -> Result<()> {
    let expected = [
        json!(["third", "lq", 7, 0, 0]),
        json!(["first", "lq", 0, 1, 1]),
        json!(["second", "other", 0, 2, 0]),
    ];
    // Any replica answers, and each follows the objects by itself.
    eventually("the pending workloads are listed", async || {
        for _ in 0..8 {
            let found = rows(&get(installation, OF_CQ, &[])?);
            ensure!(found == expected, "{found:?}");
        }
        Ok(())
    })
    .await?;
    let page = rows(&get(installation, &format!("{OF_CQ}?offset=1&limit=1"), &[])?);
    ensure!(page == expected[1..2], "{page:?}");
    let summary = get(installation, OF_LQ, &[])?;
    ensure!(rows(&summary) == expected[..2] && summary["kind"] == "PendingWorkloadsSummary", "{summary}");
    ensure!(summary["apiVersion"] == "visibility.kueue.x-k8s.io/v1beta1", "{summary}");
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let request = http::Request::get(OF_CQ).header("accept", accept).body(Vec::new())?;
    let table: Value = installation.objects.client().request(request).await?;
    ensure!(table["kind"] == "Table" && table["rows"][0]["cells"][3] == 7, "{table}");
    let missing = get(installation, &OF_CQ.replace("/cq/", "/nothing/"), &[]);
    ensure!(
        missing.is_err_and(|error| format!("{error:#}").contains("not found")),
        "an unknown queue is found"
    );
    Ok(())
}

/// A user of the namespace sees its LocalQueue, an admin also the ClusterQueue, others nothing.
fn rights_decide(installation: &Installation) -> Result<()> {
    let (kubectl, user) = (&installation.kubectl, "--user=ann");
    let binding = ["create", "rolebinding", "ann", "--clusterrole=kueue-batch-user-role", user, "-n", TEAM];
    kubectl.run(&binding)?;
    kubectl.run(&[
        "create",
        "clusterrolebinding",
        "ops",
        "--clusterrole=kueue-batch-admin-role",
        "--user=ops",
    ])?;
    for (user, path, allowed) in [
        ("ann", OF_LQ, true),
        ("ann", OF_CQ, false),
        ("ops", OF_LQ, true),
        ("ops", OF_CQ, true),
        ("eve", OF_LQ, false),
        ("eve", OF_CQ, false),
        ("system:anonymous", OF_CQ, false),
    ] {
        let answer = get(installation, path, &["--as", user]);
        match answer {
            Ok(summary) => ensure!(allowed && !rows(&summary).is_empty(), "{user} sees {path}: {summary}"),
            Err(error) => {
                let error = format!("{error:#}");
                ensure!(!allowed && error.contains("orbidden"), "{user}, {path}: {error}");
            }
        }
    }
    Ok(())
}

/// kubectl prints the columns of views by itself, and any replica answers why a workload waits.
async fn views_are_shown(installation: &Installation) -> Result<()> {
    let kubectl = &installation.kubectl;
    eventually("kubectl shows the views", async || {
        let table = kubectl.run(&[
            "get",
            "workloadviews",
            "-A",
            "--field-selector=clusterQueue=cq,status=pending",
        ])?;
        let mut lines = table.lines();
        let heading: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
        ensure!(
            heading == ["NAMESPACE", "NAME", "STATE", "WAIT", "POS", "PRIO", "NEEDS", "REASON"],
            "{table}"
        );
        let rows: Vec<Vec<&str>> = lines.map(|line| line.split_whitespace().collect()).collect();
        let shown: Vec<(&str, &str)> =
            rows.iter().filter_map(|row| Some((*row.get(4)?, *row.get(5)?))).collect();
        ensure!(shown == [("1", "7"), ("2", "0"), ("3", "0")], "{table}");
        Ok(())
    })
    .await?;
    let queues = kubectl.run(&["get", "cqv", "--output=jsonpath={.items[0].pending.total}"])?;
    ensure!(queues == "3", "{queues} pending");
    let names = kubectl.run(&["get", "wlv", "-n", TEAM, "--output=name", "--chunk-size=2"])?;
    ensure!(names.lines().count() == 3, "pages: {names}");
    // The names of Kueue's own kinds keep their meaning.
    let own = kubectl.run(&["get", "workloads", "-n", TEAM, "--output=name"])?;
    ensure!(own.lines().all(|name| name.starts_with("workload.kueue.x-k8s.io/")), "{own}");
    let name = own.lines().next().and_then(|name| name.split('/').nth(1)).context("no Workload")?;
    eventually("every replica answers as the leader", async || {
        for _ in 0..8 {
            let verdict =
                get(installation, &format!("{VIEWS}/namespaces/{TEAM}/workloadviews/{name}/verdict"), &[])?;
            ensure!(verdict["neverFits"] == true, "{verdict}");
            ensure!(verdict["source"]["role"] == "leader" && verdict.get("partial").is_none(), "{verdict}");
        }
        Ok(())
    })
    .await
}

/// A page goes on at another replica, and no view can be watched.
async fn pages_go_on_at_any_replica(installation: &Installation) -> Result<()> {
    let path = format!("{VIEWS}/workloadviews?fieldSelector=clusterQueue%3Dcq%2Cstatus%3Dpending&limit=1");
    eventually("pages go on at another replica", async || {
        let (mut token, mut names, mut replicas) = (String::new(), Vec::new(), BTreeSet::new());
        for _ in 0..4 {
            let page = get(installation, &format!("{path}&continue={token}"), &[])?;
            names
                .extend(page["items"].as_array().into_iter().flatten().map(|row| row["job"]["name"].clone()));
            replicas.insert(text(&page, "/source/replica").to_owned());
            page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
            if token.is_empty() {
                break;
            }
        }
        ensure!(names == ["third", "first", "second"], "{names:?}");
        ensure!(replicas.len() > 1, "only {replicas:?} answered");
        Ok(())
    })
    .await?;
    for resource in ["workloadviews", "clusterqueueviews", "flavorviews", "managerviews"] {
        match get(installation, &format!("{VIEWS}/{resource}?watch=true"), &[]) {
            Ok(answer) => anyhow::bail!("{resource} can be watched: {answer}"),
            Err(error) => ensure!(format!("{error:#}").contains("watch is not supported"), "{error:#}"),
        }
    }
    Ok(())
}

/// Flavors, findings and the state of the manager, as an administrator asks for them.
async fn the_cluster_is_described(installation: &Installation) -> Result<()> {
    let kubectl = &installation.kubectl;
    let flavors = kubectl.run(&["get", "flavorviews", "--output=name"])?;
    ensure!(flavors.trim() == "flavorview.visibility.sluice.dev/any", "{flavors}");
    let flavor = get(installation, &format!("{VIEWS}/flavorviews/any?pod=cpu%3D1&clusterQueue=cq"), &[])?;
    let gang = &flavor["levels"][0];
    ensure!(gang["largestGang"] == 0 && flavor["approximate"] == true, "{flavor}");
    let nodes = installation.objects.list(Kind::NODE, "", "").await?.len();
    ensure!(flavor["nodes"]["total"] == nodes, "{nodes} nodes: {flavor}");
    let findings = get(installation, &format!("{VIEWS}/clusterfindings"), &[])?;
    let found = findings["items"].as_array().into_iter().flatten();
    let never = found.filter(|item| item["check"] == "workload-never-fits").collect::<Vec<_>>();
    ensure!(never.len() == 1 && never[0]["message"] == "3 workloads request 1 cpu, at most 0", "{findings}");
    eventually("the leader says how it is", async || {
        let managers = get(installation, &format!("{VIEWS}/managerviews"), &[])?;
        let leader = &managers["items"][0];
        ensure!(leader["leads"] == true && leader["conditions"] == json!([]), "{managers}");
        ensure!(leader["watches"]["current"] == leader["watches"]["total"], "{managers}");
        ensure!(leader["findings"]["errors"].as_u64() >= Some(1), "{managers}");
        ensure!(leader["decisions"]["admissionsPerMinute"] == 0.0, "{managers}");
        Ok(())
    })
    .await
}

/// A user of the namespace sees its Workloads, an admin all, others nothing.
async fn rights_decide_on_views(installation: &Installation) -> Result<()> {
    let (own, all) = (format!("{VIEWS}/namespaces/{TEAM}/workloadviews"), format!("{VIEWS}/workloadviews"));
    let queues = format!("{VIEWS}/clusterqueueviews");
    // The controller that aggregates the roles may be later than the installation.
    eventually("the roles of views are aggregated", async || {
        for (user, path, allowed) in [
            ("ann", &own, true),
            ("ann", &all, false),
            ("ann", &queues, false),
            ("ops", &own, true),
            ("ops", &all, true),
            ("ops", &queues, true),
            ("eve", &own, false),
            ("system:anonymous", &queues, false),
        ] {
            match get(installation, path, &["--as", user]) {
                Ok(list) => ensure!(allowed && list["items"][0].is_object(), "{user} sees {path}: {list}"),
                Err(error) => {
                    let error = format!("{error:#}");
                    ensure!(!allowed && error.contains("orbidden"), "{user}, {path}: {error}");
                }
            }
        }
        Ok(())
    })
    .await
}

async fn discovery_is_merged(installation: &Installation) -> Result<()> {
    let group = get(installation, GROUP, &[])?;
    ensure!(group["preferredVersion"]["version"] == "v1beta2", "{group}");
    let document = get(installation, &format!("/openapi/v3{GROUP}/v1beta2"), &[])?;
    ensure!(document["paths"].as_object().is_some_and(|paths| paths.len() == 2), "{document}");
    let path = format!("{GROUP}/v1beta1/clusterqueues/{{name}}/pendingworkloads");
    // The API server asks for the documents of others now and then.
    eventually("the documents are merged", async || {
        let merged = get(installation, "/openapi/v2", &[])?;
        ensure!(!merged["paths"][&path].is_null(), "{path} is missing");
        Ok(())
    })
    .await?;
    // The short name means the queues themselves.
    let queues = installation.kubectl.run(&["get", "clusterqueues", "--output=name"])?;
    ensure!(queues.trim() == "clusterqueue.kueue.x-k8s.io/cq", "{queues}");
    Ok(())
}

/// A client that calls a replica itself learns what there is, and nothing of what is in it.
async fn only_the_api_server_is_heard(installation: &Installation) -> Result<()> {
    let name = "kueue-webhook-server-cert-ca-bundle";
    let config_map = Kind::new("", "v1", "ConfigMap", "configmaps");
    let bundle = installation.objects.must_get(config_map, NAMESPACE, name).await?;
    let authority = pem::parse_many(text(&bundle, "/data/ca.crt"))?;
    let pods = installation.pods().await?;
    let serves = |pod: &&Value| pod["metadata"]["labels"]["app.kubernetes.io/component"] == "controller";
    let pod = pods.iter().find(serves).context("no pod of the controller")?;
    let mut config = Config::new(format!("https://{}:8082", text(pod, "/status/podIP")).parse()?);
    config.root_cert = Some(authority.into_iter().map(pem::Pem::into_contents).collect());
    config.tls_server_name = Some("kueue-visibility-server.kueue-system.svc".to_owned());
    let client = kube::Client::try_from(config)?;
    let call = async |path: &str| {
        let request = http::Request::get(path).header("x-remote-user", "admin");
        let request = request.header("x-remote-group", "system:masters").body(Vec::new())?;
        anyhow::Ok(client.request::<Value>(request).await)
    };
    ensure!(call(GROUP).await?.is_ok(), "discovery is not answered");
    for path in [OF_CQ, OF_LQ, &format!("{VIEWS}/workloadviews")] {
        match call(path).await? {
            Err(kube::Error::Api(status)) if status.code == 401 => {}
            other => anyhow::bail!("{path}: {other:?}"),
        }
    }
    // The private path is for tokens of our own accounts for its audience.
    for audience in ["https://kubernetes.default.svc.cluster.local", "leader.visibility.sluice.dev"] {
        let account = if audience.starts_with("leader") { "default" } else { "kueue-controller-manager" };
        let audience = format!("--audience={audience}");
        let token = installation.kubectl.run(&["-n", NAMESPACE, "create", "token", account, &audience])?;
        let request = http::Request::post("/private/questions")
            .header("authorization", format!("Bearer {}", token.trim()))
            .body(b"{}".to_vec())?;
        match client.request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.code == 403 => {}
            other => anyhow::bail!("a token of {account} for {audience}: {other:?}"),
        }
    }
    Ok(())
}

/// While the leader hangs, before its probe restarts it, the follower answers, and a deleted namespace goes.
async fn follower_answers_alone(installation: &Installation) -> Result<()> {
    let lease = installation.objects.must_get(Kind::LEASE, NAMESPACE, LEASE_NAME).await?;
    let (leader, _) = text(&lease, "/spec/holderIdentity").rsplit_once('_').context("no replica leads")?;
    let pid = installation.kubelet.pid(leader)?.to_string();
    let own = installation.kubectl.run(&["get", "workloads", "-n", TEAM, "--output=name"])?;
    let name = own.lines().next().and_then(|name| name.split('/').nth(1)).context("no Workload")?;
    let verdict = format!("{VIEWS}/namespaces/{TEAM}/workloadviews/{name}/verdict");
    let stopped = Command::new("kill").args(["-STOP", &pid]).status()?;
    ensure!(stopped.success(), "cannot stop the leader");
    let begun = Instant::now();
    // Until another one leads, it is asked in vain: the answer says that it may differ. Calls that reach the one that hangs are given up.
    let asked = (0..12).map(async |_| {
        let request = http::Request::get(&verdict).body(Vec::new())?;
        let answer = installation.objects.client().request::<Value>(request);
        anyhow::Ok(tokio::time::timeout(Duration::from_secs(8), answer).await??)
    });
    let answers: Vec<Value> = futures::future::join_all(asked).await.into_iter().flatten().collect();
    let by_follower = answers.iter().filter(|answer| answer["source"]["role"] == "follower");
    ensure!(by_follower.clone().count() > 0, "no follower answered: {answers:?}");
    for answer in by_follower {
        ensure!(answer["partial"] == true, "{answer}");
    }
    eventually("the follower answers alone", async || {
        let pod = installation.objects.must_get(Kind::POD, NAMESPACE, leader).await?;
        ensure!(!condition_is_true(&pod, "Ready"), "the leader is ready");
        for _ in 0..8 {
            get(installation, OF_CQ, &[])?;
        }
        Ok(())
    })
    .await?;
    wait_until_available(installation, true).await?;
    installation.objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": "orphaned"}})).await?;
    let timeout = format!("--timeout={}s", RETURN.as_secs());
    installation.kubectl.run(&["delete", "namespace", "orphaned", &timeout])?;
    note(format_args!("a follower alone: a namespace was gone after {:.0} s", begun.elapsed().as_secs_f64()));
    // Its probe may have restarted it meanwhile.
    let _ = Command::new("kill").args(["-CONT", &pid]).status();
    eventually("the leader's pod is ready again", async || {
        let pod = installation.objects.must_get(Kind::POD, NAMESPACE, leader).await?;
        ensure!(condition_is_true(&pod, "Ready"), "{}", pod["status"]);
        Ok(())
    })
    .await
}

/// An earlier installation issued the certificate for the names of the webhooks alone.
async fn leave_older_certificate(installation: &Installation) -> Result<String> {
    let objects = &installation.objects;
    let secret = objects.must_get(Kind::SECRET, NAMESPACE, CA_SECRET).await?;
    let decoded = |key: &str| anyhow::Ok(String::from_utf8(decode_base64(text(&secret, key))?)?);
    let authority = CertificateAuthority::existing(&decoded("/data/ca.crt")?, &decoded("/data/ca.key")?)?;
    let service = format!("kueue-webhook-service.{NAMESPACE}.svc");
    let pair = authority.server("kueue", &[&service])?;
    let data = json!({"stringData": {"tls.crt": pair.certificate, "tls.key": pair.key}});
    objects.merge(Kind::SECRET, NAMESPACE, SERVING_SECRET, &data).await?;
    certificate(objects).await
}

/// The certificate was issued again, for the visibility API's Service as well.
async fn certificate_is_renewed(installation: &Installation, older: &str) -> Result<()> {
    let renewed = certificate(&installation.objects).await?;
    ensure!(renewed != older, "the older certificate is still there");
    let chain = pem::parse_many(decode_base64(&renewed)?)?;
    let name = format!("kueue-visibility-server.{NAMESPACE}.svc");
    let leaf = chain.first().context("no certificate")?.contents();
    ensure!(leaf.windows(name.len()).any(|window| window == name.as_bytes()), "not for {name}");
    Ok(())
}

/// Without a replica a deleted namespace stays, because the API server cannot say what is in it. It goes soon after one is back.
async fn namespaces_wait_for_a_replica(installation: &Installation) -> Result<()> {
    let (objects, kubectl) = (&installation.objects, &installation.kubectl);
    objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": "doomed"}})).await?;
    kubectl.run(&["-n", NAMESPACE, "scale", DEPLOYMENT, "--replicas=0"])?;
    wait_until_available(installation, false).await?;
    kubectl.run(&["delete", "namespace", "doomed", "--wait=false"])?;
    eventually("the deletion waits for discovery", async || {
        let namespace = objects.must_get(Kind::NAMESPACE, "", "doomed").await?;
        ensure!(
            condition_is_true(&namespace, "NamespaceDeletionDiscoveryFailure"),
            "{}",
            namespace["status"]
        );
        Ok(())
    })
    .await?;
    let older = leave_older_certificate(installation).await?;
    kubectl.run(&["-n", NAMESPACE, "scale", DEPLOYMENT, "--replicas=2"])?;
    wait_until_available(installation, true).await?;
    certificate_is_renewed(installation, &older).await?;
    let returned = Instant::now();
    within(RETURN, "the namespace is gone", async || {
        let namespace = objects.get(Kind::NAMESPACE, "", "doomed").await?;
        ensure!(namespace.is_none(), "{}", namespace.unwrap_or_default()["status"]);
        Ok(())
    })
    .await?;
    note(format_args!(
        "the namespace was gone {:.0} s after a replica was back",
        returned.elapsed().as_secs_f64()
    ));
    Ok(())
}
