//! Looking inside a running manager: dumps that replay, the debug endpoints, the log level, and SIGUSR2.

use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use sluice_e2e::bench::webhooks::ca_bundle;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::kubeconfig;
use sluice_e2e::objects::text;
use sluice_e2e::process::output_with_input;
use sluice_e2e::wait::eventually;
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

/// Value of an environment variable of the Jobs; must not be in a dump.
const SECRET: &str = "hunter2";
/// Exit code of `dump` if a resource cannot be read.
const INCOMPLETE_EXIT_CODE: i32 = 3;

/// A dump of running, pending, finished and preempting workloads replays as the cluster itself, also from standard input;
/// it has no environment; a user without permission on pods gets an error that names them.
pub(crate) async fn dump_replays_cluster(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    create_workloads(fixture).await?;
    dump_and_replay(cluster, |report| check_outcome(report, fixture)).await?;
    let (file, configuration) = dump_files(cluster)?;
    ensure!(!fs::read_to_string(&file)?.contains(SECRET), "the dump has the environment");
    check_missing_permission(cluster, fixture, &configuration, &file).await?;
    fixture.force_delete_pods("victim")
}

/// Returns the file of the dump, and the configuration of the manager.
fn dump_files(cluster: &Cluster) -> Result<(String, String)> {
    let path = |name: &str| -> Result<String> {
        let path = cluster.plane.folder().join(name);
        Ok(path.to_str().context("not UTF-8")?.to_owned())
    };
    Ok((path("dump.yaml")?, path("manager.yaml")?))
}

/// Waits until a dump of the cluster has the same outcome after ten minutes as `simulate --from-cluster` at its time, from its file and
/// from standard input, and the outcome passes the check; returns the report.
pub(crate) async fn dump_and_replay(
    cluster: &Cluster,
    check: impl Fn(&Value) -> Result<()>,
) -> Result<Value> {
    let (file, configuration) = dump_files(cluster)?;
    let admin = cluster.plane.admin_kubeconfig();
    let of_cluster =
        ["--kubeconfig", admin.to_str().context("not UTF-8")?, "--config", configuration.as_str()];
    let program = cluster.manager()?.settings().program.clone();
    let sluice = |arguments: &[&str], input: &str| {
        output_with_input(Command::new(&program).args(arguments), &arguments.join(" "), input)
    };
    let simulated = ["--output", "json", "--until", "10m"];
    // Statuses of queues may still be written: then both differ, and are read again.
    eventually("the dump and the cluster have the same outcome", async || {
        sluice(&[&["dump", "-o", file.as_str()][..], &of_cluster].concat(), "")?;
        let dump = fs::read_to_string(&file)?;
        let time =
            dump.lines().find_map(|line| line.strip_prefix("time: ")).context("no time")?.trim_matches('"');
        let from_cluster = ["simulate", "--from-cluster", "--now", time];
        let expected = sluice(&[&from_cluster[..], &of_cluster, &simulated].concat(), "")?;
        for (path, input) in [(file.as_str(), ""), ("-", dump.as_str())] {
            let replayed = sluice(&[&["simulate", path][..], &simulated].concat(), input)?;
            ensure!(replayed == expected, "{path}: {replayed}\nis not\n{expected}");
        }
        let report = serde_json::from_str(&expected)?;
        check(&report)?;
        Ok(report)
    })
    .await
}

/// Creates a finished, a running, a pending and a preempting Job.
async fn create_workloads(fixture: &Fixture) -> Result<()> {
    let policy = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    fixture.create_queue("main", "", &[("cpu", "2", None)], policy).await?;
    fixture.create_queue("full", "", &[("cpu", "1", None)], json!({})).await?;
    let high = fixture.create_priority_class("high", 100).await?;
    let containers = |cpu: &str| {
        json!([{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}},
            "env": [{"name": "TOKEN", "value": SECRET}], "args": [SECRET]}])
    };
    let job = |name: &str, queue: &str, cpu: &str| {
        fixture.job(name, queue, cpu).pod_spec("containers", containers(cpu))
    };
    fixture.submit(job("finished", "full", "1")).await?;
    fixture.wait_until_running("finished").await?;
    fixture.finish_job("finished").await?;
    fixture.submit(job("running", "full", "1")).await?;
    fixture.wait_until_running("running").await?;
    fixture.submit(job("pending", "full", "1")).await?;
    fixture.wait_until_pending("pending", "WaitingForQuota").await?;
    // Its pod still ends after the simulated time.
    let victim = job("victim", "main", "2").pod_annotation("sluice.dev/terminate-after", "3600s");
    fixture.submit(victim).await?;
    fixture.wait_until_running("victim").await?;
    fixture.submit(job("preemptor", "main", "2").priority(&high)).await?;
    fixture.wait_until_pending("preemptor", "WaitingForPreemptedWorkloads").await?;
    fixture.wait_for_condition("victim", "Evicted", "True", "Preempted").await
}

fn check_outcome(report: &Value, fixture: &Fixture) -> Result<()> {
    let names = |list: &str| -> Vec<&str> {
        report[list].as_array().into_iter().flatten().map(|row| text(row, "/job")).collect()
    };
    let own = |name: &str| format!("{}/{name}", fixture.name);
    for (list, name) in [
        ("admitted", "running"),
        ("admitted", "victim"),
        ("pending", "preemptor"),
        ("pending", "pending"),
        ("finished", "finished"),
    ] {
        ensure!(names(list).contains(&own(name).as_str()), "{name} is not {list}: {report}");
    }
    Ok(())
}

/// An account that may list everything but pods gets a dump without pods, with an error that names them.
async fn check_missing_permission(
    cluster: &Cluster,
    fixture: &Fixture,
    configuration: &str,
    file: &str,
) -> Result<()> {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": fixture.own_name("dump")},
        "rules": [
            {"apiGroups": ["kueue.x-k8s.io", "batch", "node.k8s.io", "scheduling.k8s.io", "autoscaling.x-k8s.io"],
                "resources": ["*"], "verbs": ["list"]},
            {"apiGroups": [""], "resources": ["namespaces", "limitranges", "nodes", "podtemplates"], "verbs": ["list"]},
        ],
    });
    apply(fixture, &role)?;
    fixture.kubectl.run(&["create", "-n", &fixture.name, "serviceaccount", "dumper"])?;
    bind(fixture, "dumper", &fixture.own_name("dump"))?;
    let credentials = cluster.plane.service_account(cluster.plane.server(), &fixture.name, "dumper").await?;
    let kubeconfig = cluster.plane.folder().join("dumper.kubeconfig");
    credentials.write(&kubeconfig)?;
    let program = &cluster.manager()?.settings().program;
    eventually("only pods are missing", async || {
        let output = Command::new(program)
            .args(["dump", "--config", configuration, "-o", file, "--kubeconfig"])
            .arg(&kubeconfig)
            .output()?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(INCOMPLETE_EXIT_CODE), "{}: {errors}", output.status);
        ensure!(
            errors.lines().count() == 1 && errors.contains("pods: skipped: pods is forbidden"),
            "{errors}"
        );
        Ok(())
    })
    .await?;
    let output = Command::new(program).args(["simulate", file]).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(errors.contains("pods: not in the dump"), "{errors}");
    ensure!(output.status.code() == Some(INCOMPLETE_EXIT_CODE), "{}", output.status);
    fixture.kubectl.run(&["delete", "clusterrolebinding,clusterrole", "-l", "sluice-e2e=debugging"]).map(drop)
}

fn apply(fixture: &Fixture, object: &Value) -> Result<()> {
    let mut object = object.clone();
    object["metadata"]["labels"] = json!({"sluice-e2e": "debugging"});
    fixture.kubectl.apply(&object.to_string()).map(drop)
}

/// Binds a ClusterRole to a service account of the case.
fn bind(fixture: &Fixture, account: &str, role: &str) -> Result<()> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": fixture.own_name(account)},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": fixture.name}],
    });
    apply(fixture, &binding)
}

/// The debug endpoints of a manager with a client's token.
struct DebugClient {
    client: kube::Client,
    token: String,
}

impl DebugClient {
    async fn new(cluster: &Cluster, namespace: &str, account: &str) -> Result<Self> {
        let port = cluster.manager()?.metrics_port();
        let ca = ca_bundle(cluster).await?;
        let client = kubeconfig::anonymous(&format!("https://127.0.0.1:{port}"), &ca)?;
        let token = kubeconfig::token(cluster.objects.client(), namespace, account).await?;
        Ok(Self { client, token })
    }

    async fn call(&self, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
        let request = http::Request::builder().method(method).uri(path);
        let request = match self.token.as_str() {
            "" => request,
            token => request.header("authorization", format!("Bearer {token}")),
        };
        let response = self.client.send(request.body(Body::from(body.as_bytes().to_vec()))?).await?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await?.to_bytes();
        Ok((code, String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// Only a token with the shipped role reads the state and sets the log level; SIGUSR2 logs the queues at every level.
pub(crate) async fn state_level_and_queues(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    fixture.submit(fixture.job("running", "main", "1")).await?;
    fixture.wait_until_running("running").await?;
    fixture.submit(fixture.job("waiting", "main", "1")).await?;
    fixture.wait_until_pending("waiting", "WaitingForQuota").await?;
    fixture.kubectl.run(&["create", "-n", &fixture.name, "serviceaccount", "debugger"])?;
    bind(fixture, "debugger", "kueue-debug")?;
    let permitted = DebugClient::new(cluster, &fixture.name, "debugger").await?;
    let refused = DebugClient::new(cluster, &fixture.name, "default").await?;
    let anonymous = DebugClient { client: permitted.client.clone(), token: String::new() };
    check_state(cluster, &permitted).await?;
    let paths = [
        ("GET", "/debug/state"),
        ("GET", "/debug/history"),
        ("GET", "/debug/log-level"),
        ("PUT", "/debug/log-level"),
    ];
    for (method, path) in paths {
        let (code, message) = refused.call(method, path, "debug").await?;
        ensure!(code == 403 && message.contains(path), "{method} {path}: {code} {message}");
        let (code, message) = anonymous.call(method, path, "debug").await?;
        ensure!(code == 401, "{method} {path} without a token: {code} {message}");
    }
    check_history(&permitted, &fixture.name).await?;
    check_log_level(cluster, &permitted).await?;
    check_queue_dump(cluster, fixture).await?;
    let (code, level) = permitted.call("PUT", "/debug/log-level", "info").await?;
    ensure!((code, level.as_str()) == (200, "info\n"), "{code} {level}");
    fixture.kubectl.run(&["delete", "clusterrolebinding", "-l", "sluice-e2e=debugging"]).map(drop)
}

/// The running Job is in the usage of its namespace.
async fn check_history(permitted: &DebugClient, namespace: &str) -> Result<()> {
    eventually("the history has the Job", async || {
        let (code, body) = permitted.call("GET", "/debug/history", "").await?;
        ensure!(code == 200, "{code}: {body}");
        let history: Value = serde_json::from_str(&body)?;
        let rows = history["usageByNamespace"]["items"].as_array().context("no usage")?;
        let row = rows.iter().find(|row| row["group"] == namespace && row["resource"] == "cpu");
        let row = row.with_context(|| format!("{rows:?}"))?;
        ensure!(row["jobs"] == 1 && row["used"]["hours"].as_f64() > Some(0.0), "{row}");
        let recorded = &history["usageByNamespace"]["recorded"];
        ensure!(recorded["from"].is_string() && recorded["drift"] == 0, "{recorded}");
        Ok(())
    })
    .await
}

async fn check_state(cluster: &Cluster, permitted: &DebugClient) -> Result<()> {
    let pid = cluster.manager()?.process().identity().pid;
    eventually("the state is complete", async || {
        let (code, body) = permitted.call("GET", "/debug/state", "").await?;
        ensure!(code == 200, "{code}: {body}");
        let state: Value = serde_json::from_str(&body)?;
        ensure!(state["leadership"]["mayWrite"] == true && state["core"]["leading"] == true, "{state}");
        ensure!(text(&state, "/leadership/holder").contains(&format!("_{pid}-")), "{}", state["leadership"]);
        let watches = state["watches"].as_array().context("no watches")?;
        ensure!(watches.iter().any(|watch| watch["resource"] == "workloads"), "{watches:?}");
        for watch in watches {
            ensure!(watch["synced"] == true && watch["silentSeconds"].as_f64().is_some(), "{watch}");
        }
        ensure!(state["snapshot"]["version"].as_u64() > Some(0), "{}", state["snapshot"]);
        ensure!(
            state["heartbeats"]["core"].as_f64().is_some_and(|age| age < 10.0),
            "{}",
            state["heartbeats"]
        );
        for list in ["writeQueue", "inFlightWrites", "failedWrites"] {
            ensure!(state["core"][list]["total"].as_u64().is_some(), "{list}: {}", state["core"]);
        }
        ensure!(state["core"]["timers"]["next"]["total"].as_u64().is_some(), "{}", state["core"]);
        ensure!(state["missingPermissions"]["total"] == 0, "{}", state["missingPermissions"]);
        Ok(())
    })
    .await
}

async fn check_log_level(cluster: &Cluster, permitted: &DebugClient) -> Result<()> {
    let (code, message) = permitted.call("PUT", "/debug/log-level", "loud").await?;
    ensure!(code == 400 && message.contains("loud"), "{code} {message}");
    let level = permitted.call("GET", "/debug/log-level", "").await?;
    ensure!(level == (200, "info\n".to_owned()), "{level:?}");
    // A client that does not speak TLS is logged at the level debug.
    let handshake_failures = async || -> Result<usize> {
        let mut connection = TcpStream::connect(("127.0.0.1", cluster.manager()?.metrics_port()))?;
        connection.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        Ok(fs::read_to_string(cluster.manager()?.log())?.matches("TLS handshake failed").count())
    };
    ensure!(handshake_failures().await? == 0, "a debug line at the level info");
    // As Kueue writes the level debug.
    let level = permitted.call("PUT", "/debug/log-level", "4").await?;
    ensure!(level == (200, "debug\n".to_owned()), "{level:?}");
    eventually("a debug line is logged", async || {
        ensure!(handshake_failures().await? > 0, "none");
        Ok(())
    })
    .await?;
    let level = permitted.call("PUT", "/debug/log-level", "error").await?;
    ensure!(level == (200, "error\n".to_owned()), "{level:?}");
    Ok(())
}

async fn check_queue_dump(cluster: &Cluster, fixture: &Fixture) -> Result<()> {
    let manager = cluster.manager()?;
    let workload = async |job: &str| -> Result<String> {
        let workload = fixture.workload(job).await?;
        Ok(format!("{}/{}", fixture.name, text(&workload, "/metadata/name")))
    };
    let (running, waiting) = (workload("running").await?, workload("waiting").await?);
    let queue = fixture.own_name("main");
    manager.process().identity().signal("USR2");
    eventually("the queues are logged", async || {
        let lines = dump_lines(manager.log())?;
        ensure!(lines.first().is_some_and(|line| line["message"] == "Started dump"), "{lines:?}");
        ensure!(lines.last().is_some_and(|line| line["message"] == "Ended dump"), "{lines:?}");
        let of_queue = |message: &str| {
            lines.iter().find(|line| line["message"] == message && line["clusterQueue"] == queue.as_str())
        };
        let usage = of_queue("Found ClusterQueue").context("no usage")?;
        let flavor = fixture.own_name("any");
        ensure!(usage["workloads"] == running.as_str() && usage["admitted"] == 1, "{usage}");
        ensure!(usage["usage"] == format!("{flavor}/cpu=1").as_str(), "{usage}");
        let pending =
            of_queue("Found pending and inadmissible workloads in ClusterQueue").context("no queue")?;
        ensure!(pending["pending"] == "" && pending["inadmissible"] == waiting.as_str(), "{pending}");
        Ok(())
    })
    .await?;
    manager.process().check()
}

/// Returns the log lines of the dump of the queues.
fn dump_lines(log: &Path) -> Result<Vec<Value>> {
    let log = fs::read_to_string(log)?;
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(lines.filter(|line| line["target"] == "sluice::dump").collect())
}
