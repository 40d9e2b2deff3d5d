//! The history of the last 24 hours behind a real API server, with two replicas of the shipped manifests: a workload is preempted, and
//! administrators, tenants and the command line ask what happened, before and after replicas restart.

use crate::cases::note;
use crate::fixture::Fixture;
use crate::shipped_manifests::{Installation, check_support};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::binaries::{self, Build};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::NAMESPACE;
use sluice_e2e::manager::LEASE_NAME;
use sluice_e2e::objects::{self, Job, Kind, condition_is_true, text};
use sluice_e2e::wait::eventually;
use std::process::Command;
use std::time::Instant;

const VIEWS: &str = "/apis/visibility.sluice.dev/v1alpha1";
const VICTIM: &str = "tenant-a";
const PREEMPTOR: &str = "tenant-b";
const DEPLOYMENT: &str = "deployment/kueue-controller-manager";
/// A part of the period was not recorded.
const INCOMPLETE: i32 = 3;

/// Preemptions and hours come from the replica that began first, whichever is asked; a tenant sees of another one the ClusterQueue
/// alone; the restart of one replica changes no answer, that of both moves the start, and the last eviction is known from its Workload.
pub(crate) async fn replicas_tell_what_happened(_: &mut Cluster, _: &Fixture) -> Result<()> {
    check_support()?;
    let (mut installation, manifests) = Installation::prepare("history", &[]).await?;
    let outcome = async {
        installation.install(manifests).await?;
        check(&installation).await
    }
    .await;
    installation.report(outcome).await
}

async fn check(installation: &Installation) -> Result<()> {
    preempt(installation).await?;
    let first = every_replica_answers(installation, None).await?;
    rights_decide(installation).await?;
    command_line_answers(installation)?;
    let other = restart(installation, |name| name != first.replica).await?;
    let again = every_replica_answers(installation, None).await?;
    ensure!((&again.from, &again.replica) == (&first.from, &first.replica), "{other} restarted: {again:?}");
    leader_is_killed(installation, &first).await?;
    installation.kubectl.run(&[
        "-n",
        NAMESPACE,
        "delete",
        "pods",
        "-l",
        "app.kubernetes.io/component=controller",
    ])?;
    let begun_again = every_replica_answers(installation, Some(true)).await?;
    ensure!(begun_again.from > first.from, "{begun_again:?} is not after {first:?}");
    Ok(())
}

fn get(installation: &Installation, path: &str, more: &[&str]) -> Result<Value> {
    let path = format!("{VIEWS}{path}");
    let arguments = [&["get", "--raw", path.as_str()], more].concat();
    Ok(serde_json::from_str(&installation.kubectl.run(&arguments)?)?)
}

/// The first tenant borrows what the second one reclaims.
async fn preempt(installation: &Installation) -> Result<()> {
    let objects = &installation.objects;
    objects.create(Kind::FLAVOR, &json!({"metadata": {"name": "any"}})).await?;
    for tenant in [VICTIM, PREEMPTOR] {
        objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": tenant}})).await?;
        let name = format!("cq-{tenant}");
        let mut queue = objects::cluster_queue(&name, "both", "any", &[("cpu", "2", None)]);
        queue["spec"]["preemption"] = json!({"reclaimWithinCohort": "Any"});
        objects.create(Kind::CLUSTER_QUEUE, &queue).await?;
        objects.create(Kind::LOCAL_QUEUE, &objects::local_queue(tenant, "lq", &name)).await?;
        let binding = ["create", "rolebinding", tenant, "--clusterrole=kueue-batch-user-role", "-n", tenant];
        installation.kubectl.run(&[&binding[..], &[&format!("--user=user-of-{tenant}")]].concat())?;
    }
    let admin = ["create", "clusterrolebinding", "ops", "--clusterrole=kueue-batch-admin-role", "--user=ops"];
    installation.kubectl.run(&admin)?;
    for (tenant, cpus, evicted) in [(VICTIM, "3", false), (PREEMPTOR, "2", true)] {
        let job = Job::new(tenant, &format!("job-of-{tenant}"), "lq", &[("cpu", cpus)]);
        // No node takes the pods, so that those of the victim end without a kubelet.
        let mut body = job.body().clone();
        body["spec"]["template"]["spec"]["nodeSelector"] = json!({"example.com/none": "here"});
        objects.create(Kind::JOB, &body).await?;
        eventually(format!("{tenant} has quota"), async || {
            let workloads = objects.list(Kind::WORKLOAD, tenant, "").await?;
            let workload = workloads.first().context("no Workload")?;
            ensure!(condition_is_true(workload, "QuotaReserved"), "{}", workload["status"]);
            if evicted {
                let victims = objects.list(Kind::WORKLOAD, VICTIM, "").await?;
                let victim = victims.first().context("no victim")?;
                ensure!(condition_is_true(victim, "Evicted"), "{}", victim["status"]);
                ensure!(!condition_is_true(victim, "QuotaReserved"), "{}", victim["status"]);
            }
            Ok(())
        })
        .await?;
        // Times of conditions have whole seconds: the victim runs for some.
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    }
    Ok(())
}

/// Which replica answered, and since when it records.
#[derive(Debug)]
struct Recorded {
    from: String,
    replica: String,
}

/// Asks until each of many answers, by whichever replica, is that of one history. With `seeded` the preemption was before its start.
async fn every_replica_answers(installation: &Installation, seeded: Option<bool>) -> Result<Recorded> {
    let begun = Instant::now();
    let recorded = eventually("every replica answers from one history", async || {
        let mut recorded: Option<(Value, Value)> = None;
        for _ in 0..8 {
            let list = get(installation, "/preemptions?since=24h", &[])?;
            ensure!(list.get("partial").is_none(), "{list}");
            let [row] = list["items"].as_array().context("no list")?.as_slice() else {
                anyhow::bail!("{list}");
            };
            ensure!(row["victim"]["namespace"] == VICTIM && row["reason"] == "InCohortReclamation", "{row}");
            ensure!(row["preemptor"]["namespace"] == PREEMPTOR, "{row}");
            ensure!(row["preemptor"]["clusterQueue"] == "cq-tenant-b", "{row}");
            let seeds = row.get("seeded").and_then(Value::as_bool);
            ensure!(seeds == seeded, "{row}");
            if seeded.is_none() {
                ensure!(row["ranSeconds"].as_i64().is_some_and(|ran| ran >= 2), "{row}");
                ensure!(row["amounts"][0]["amount"]["value"] == "3" && row["borrowed"] == true, "{row}");
                ensure!(row["releasedSeconds"].is_i64(), "{row}");
            }
            let found = (list["recorded"]["from"].clone(), list["recorded"]["replica"].clone());
            ensure!(list["recorded"]["drift"] == 0 && list["recorded"]["complete"] == false, "{list}");
            ensure!(recorded.as_ref().is_none_or(|before| *before == found), "{found:?} after {recorded:?}");
            recorded = Some(found);
        }
        recorded.context("no answer")
    })
    .await?;
    note(format_args!("one history after {:.0} s", begun.elapsed().as_secs_f64()));
    let of = |value: Value| value.as_str().unwrap_or_default().to_owned();
    Ok(Recorded { from: of(recorded.0), replica: of(recorded.1) })
}

/// A tenant sees own victims and hours, of others the ClusterQueue; an administrator sees all.
async fn rights_decide(installation: &Installation) -> Result<()> {
    let (victim, preemptor) = ("--as=user-of-tenant-a", "--as=user-of-tenant-b");
    let own = |namespace: &str, resource: &str| format!("/namespaces/{namespace}/{resource}");
    eventually("the roles of the history are aggregated", async || {
        let list = get(installation, &own(VICTIM, "preemptions"), &[victim])?;
        ensure!(list["items"][0]["preemptor"] == json!({"clusterQueue": "cq-tenant-b"}), "{list}");
        ensure!(!list.to_string().contains("job-of-tenant-b"), "{list}");
        let list = get(installation, &own(PREEMPTOR, "preemptions"), &[preemptor])?;
        ensure!(list["items"].as_array().is_some_and(Vec::is_empty) && list["total"] == 0, "{list}");
        let hours = get(installation, &own(VICTIM, "usagereports"), &[victim])?;
        ensure!(hours["items"][0]["group"] == "tenant-a/lq" && hours["by"] == "localqueue", "{hours}");
        ensure!(hours["items"][0]["lost"]["unitMilliseconds"] != "0", "{hours}");
        let hours = get(installation, "/clusterusagereports?by=cohort", &["--as=ops"])?;
        ensure!(hours["items"][0]["group"] == "both" && hours["items"][0]["jobs"] == 2, "{hours}");
        Ok(())
    })
    .await?;
    for (user, path) in [
        (victim, "/clusterusagereports".to_owned()),
        (victim, "/preemptions".to_owned()),
        (victim, "/usagereports".to_owned()),
        (victim, own(PREEMPTOR, "preemptions")),
        (victim, own(PREEMPTOR, "usagereports")),
        (victim, "/clusterusagerecords".to_owned()),
        (victim, "/usagerecords".to_owned()),
        (victim, own(PREEMPTOR, "usagerecords")),
        ("--as=eve", own(VICTIM, "preemptions")),
    ] {
        let refused = get(installation, &path, &[user]).map(|answer| answer.to_string());
        let error = refused.err().with_context(|| format!("{user} sees {path}"))?;
        ensure!(format!("{error:#}").contains("orbidden"), "{user}, {path}: {error:#}");
    }
    // kubectl reads what the API server knows of the group at that moment, which a replica that is slow to answer delays.
    let table = eventually("kubectl knows the resource", async || {
        installation.kubectl.run(&["get", "preemptions", "-A"])
    })
    .await?;
    ensure!(table.contains("RELEASED") && table.contains("tenant-b/job-job-of-tenant-b"), "{table}");
    let table = installation.kubectl.run(&["get", "clusterusagereports"])?;
    ensure!(table.contains("WAIT P99") && table.contains("cq-tenant-a"), "{table}");
    Ok(())
}

/// Runs the command line; returns its exit status and both outputs.
fn sluice(installation: &Installation, arguments: &[&str]) -> Result<(Option<i32>, String, String)> {
    let mut command = Command::new(binaries::sluice(Build::Dev)?);
    command.args(arguments).arg("--kubeconfig").arg(installation.plane.admin_kubeconfig());
    let output = command.output().context("cannot run sluice")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
}

fn command_line_answers(installation: &Installation) -> Result<()> {
    let list = ["list", "preemption", "-A"];
    let (status, out, err) = sluice(installation, &[&list[..], &["--since", "24h"]].concat())?;
    ensure!(status == Some(INCOMPLETE), "{status:?} {out} {err}");
    // Without a period of its own the command lists what is recorded.
    let (status, recorded, _) = sluice(installation, &list)?;
    ensure!(status == Some(0) && recorded.lines().count() == out.lines().count(), "{status:?} {recorded}");
    let (heading, row) = out.split_once('\n').context("no rows")?;
    let heading: Vec<&str> = heading.split_whitespace().collect();
    let expected =
        ["TIME", "NAMESPACE", "VICTIM", "PREEMPTOR", "REASON", "PRIORITY", "AMOUNT", "RAN", "RELEASED"];
    ensure!(heading == expected, "{out}");
    ensure!(row.contains("tenant-b/job-job-of-tenant-b") && row.contains("3 cpu"), "{out}");
    ensure!(err.contains("Recorded since"), "{err}");
    for (more, words) in [
        (&["--resource", "cpu"][..], &["QUEUE", "CPU HOURS", "cq-tenant-a", "sum", "Recorded since"][..]),
        (&["--by", "namespace", "--resource=cpu"], &["NAMESPACE", "tenant-a", "tenant-b", "Recorded since"]),
        (&["-n", VICTIM], &["LOCALQUEUE", "tenant-a/lq"]),
        (&["--by", "cohort", "-o", "csv"], &["group,resource,jobs", "\nboth,cpu,2,"]),
    ] {
        let arguments = [&["usage", "--since", "24h"], more].concat();
        let (status, out, err) = sluice(installation, &arguments)?;
        ensure!(status == Some(INCOMPLETE), "{arguments:?}: {status:?} {out} {err}");
        for word in words {
            ensure!(out.contains(word), "{arguments:?}: {word:?} is not in {out} {err}");
        }
    }
    let (status, out, err) = sluice(installation, &["usage", "--since", "2s", "-o", "json"])?;
    let report: Value = serde_json::from_str(&out)?;
    ensure!(status == Some(0) && report["recorded"]["complete"] == true, "{status:?} {report} {err}");
    let (status, _, err) = sluice(installation, &["usage", "--by", "quue"])?;
    ensure!(status == Some(2) && err.contains("quue"), "{status:?} {err}");
    let (status, out, err) = sluice(installation, &["usage", "export", "--since", "1h"])?;
    ensure!(
        status == Some(1) && out.is_empty() && err.contains("history.enabled"),
        "no process keeps a record: {status:?} {out} {err}"
    );
    let name = installation.kubectl.run(&["get", "workloads", "-n", VICTIM, "-o=name"])?;
    let name = name.trim().rsplit('/').next().context("no Workload")?.to_owned();
    let (_, out, err) = sluice(installation, &["why", &name, "-n", VICTIM])?;
    let line = out.lines().find(|line| line.starts_with("History") && line.contains("preempted at"));
    ensure!(line.is_some_and(|line| line.contains("by tenant-b/job-job-of-tenant-b")), "{out} {err}");
    Ok(())
}

/// Deletes the pod of a replica and waits until there are two again. Returns its name.
async fn restart(installation: &Installation, which: impl Fn(&str) -> bool) -> Result<String> {
    let pods = installation.pods().await?;
    let names: Vec<&str> = pods.iter().map(|pod| text(pod, "/metadata/name")).collect();
    let name = names.iter().find(|name| which(name)).with_context(|| format!("of {names:?}"))?;
    installation.kubectl.run(&["-n", NAMESPACE, "delete", "pod", name])?;
    installation.kubectl.run(&["-n", NAMESPACE, "rollout", "status", DEPLOYMENT, "--timeout=60s"])?;
    Ok((*name).to_owned())
}

/// The leader is killed: an answer may be from a history that begins later, and says so, until the next leader knows the others.
async fn leader_is_killed(installation: &Installation, first: &Recorded) -> Result<()> {
    let lease = installation.objects.must_get(Kind::LEASE, NAMESPACE, LEASE_NAME).await?;
    let (leader, _) = text(&lease, "/spec/holderIdentity").rsplit_once('_').context("no replica leads")?;
    let pid = installation.kubelet.pid(leader)?.to_string();
    ensure!(Command::new("kill").args(["-KILL", &pid]).status()?.success(), "cannot kill the leader");
    let killed = Instant::now();
    let mut partial = 0;
    eventually("the answers are complete again", async || {
        for _ in 0..8 {
            let list = get(installation, "/preemptions", &[])?;
            let is_partial = list["partial"] == true;
            partial += usize::from(is_partial);
            // The history that began first may have ended with the leader.
            let is_first = list["recorded"]["from"] == first.from.as_str() || leader == first.replica;
            ensure!(is_partial || is_first, "an answer of another history that does not say so: {list}");
            ensure!(!is_partial, "{list}");
        }
        Ok(())
    })
    .await?;
    let seconds = killed.elapsed().as_secs_f64();
    note(format_args!("leader killed: answers were complete after {seconds:.0} s, {partial} were partial"));
    Ok(())
}
