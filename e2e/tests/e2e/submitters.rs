//! The accounts of jobs behind a real API server: the shipped manifests with `--record-submitter`. Users create jobs, the webhooks record
//! their names, and the command line lists what a user submitted.

use crate::fixture::Fixture;
use crate::shipped_manifests::{Installation, check_support};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::binaries::{self, Build};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{self, Job, Kind, text};
use sluice_e2e::wait::eventually;
use std::collections::BTreeSet;
use std::process::Command;

const ANNOTATION: &str = "sluice.dev/submitter";
const TEAM: &str = "team";
const OTHER: &str = "other";
/// An account whose requests may say the submitter.
const TRUSTED: &str = "ci";

/// The name is that of the account whatever the request says, unless a trusted account says another one; no other account changes it; each
/// user lists its own jobs where it may read, and no others.
pub(crate) async fn users_list_what_they_submitted(_: &mut Cluster, _: &Fixture) -> Result<()> {
    check_support()?;
    let (mut installation, mut manifests) = Installation::prepare("submitters", &[]).await?;
    let outcome = async {
        record_submitters(&mut manifests)?;
        installation.install(manifests).await?;
        check(&installation).await
    }
    .await;
    installation.report(outcome).await
}

/// Adds the flags to the manager of the manifests.
fn record_submitters(manifests: &mut [Value]) -> Result<()> {
    let manager = manifests.iter_mut().find(|object| object["kind"] == "Deployment");
    let container = manager.and_then(|object| object.pointer_mut("/spec/template/spec/containers/0"));
    let args = container.and_then(|container| container["args"].as_array_mut()).context("no arguments")?;
    args.extend([json!("--record-submitter"), json!(format!("--submitter-trusted={TRUSTED}"))]);
    Ok(())
}

async fn check(installation: &Installation) -> Result<()> {
    fill(installation).await?;
    names_are_recorded(installation).await?;
    names_do_not_change(installation)?;
    users_list_their_own(installation).await
}

/// Two users and a trusted account share a namespace, and a third user has another one.
async fn fill(installation: &Installation) -> Result<()> {
    let objects = &installation.objects;
    objects.create(Kind::FLAVOR, &json!({"metadata": {"name": "any"}})).await?;
    objects
        .create(Kind::CLUSTER_QUEUE, &objects::cluster_queue("cq", "", "any", &[("cpu", "2", None)]))
        .await?;
    for (namespace, users) in [(TEAM, vec!["ann", "bob", TRUSTED]), (OTHER, vec!["eve"])] {
        objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": namespace}})).await?;
        objects.create(Kind::LOCAL_QUEUE, &objects::local_queue(namespace, "lq", "cq")).await?;
        for user in users {
            let binding = ["create", "rolebinding", user, "--clusterrole=edit", "-n", namespace];
            installation.kubectl.run(&[&binding[..], &[&format!("--user={user}")]].concat())?;
        }
    }
    Ok(())
}

/// Creates a job as a user, with an annotation if the request is to say a submitter.
async fn submit(
    installation: &Installation,
    user: &str,
    namespace: &str,
    name: &str,
    said: &str,
) -> Result<()> {
    let mut body = Job::new(namespace, name, "lq", &[("cpu", "1")]).body().clone();
    // No node takes the pods.
    body["spec"]["template"]["spec"]["nodeSelector"] = json!({"example.com/none": "here"});
    body["apiVersion"] = json!("batch/v1");
    body["kind"] = json!("Job");
    if !said.is_empty() {
        body["metadata"]["annotations"] = json!({ANNOTATION: said});
    }
    eventually(format!("{user} may create {name}"), async || {
        let as_user = format!("--as={user}");
        installation.kubectl.run_with(&["create", "-f", "-", &as_user], &body.to_string())
    })
    .await?;
    Ok(())
}

async fn names_are_recorded(installation: &Installation) -> Result<()> {
    for (user, namespace, name, said, recorded) in [
        ("ann", TEAM, "ann-1", "", "ann"),
        ("ann", TEAM, "ann-2", "bob", "ann"),
        ("bob", TEAM, "bob-1", "", "bob"),
        (TRUSTED, TEAM, "of-pipeline", "ann", "ann"),
        ("eve", OTHER, "eve-1", "ann", "eve"),
    ] {
        submit(installation, user, namespace, name, said).await?;
        let job = installation.objects.must_get(Kind::JOB, namespace, name).await?;
        let found = job["metadata"]["annotations"][ANNOTATION].as_str();
        ensure!(found == Some(recorded), "{name} of {user}: {found:?}");
        eventually(format!("the Workload of {name} names {recorded}"), async || {
            let workloads = installation.objects.list(Kind::WORKLOAD, namespace, "").await?;
            let owned = |w: &&Value| w["metadata"]["ownerReferences"][0]["name"] == name;
            let workload = workloads.iter().find(owned).context("no Workload")?;
            ensure!(workload["metadata"]["annotations"][ANNOTATION] == recorded, "{}", workload["metadata"]);
            Ok(())
        })
        .await?;
    }
    Ok(())
}

fn names_do_not_change(installation: &Installation) -> Result<()> {
    let change = |user: &str, value: &str| {
        let patch = json!({"metadata": {"annotations": {ANNOTATION: value}}}).to_string();
        let as_user = format!("--as={user}");
        installation.kubectl.run(&[
            "-n",
            TEAM,
            "patch",
            "job",
            "ann-1",
            "--type=merge",
            "-p",
            &patch,
            &as_user,
        ])
    };
    for user in ["bob", "ann"] {
        let refused = change(user, "bob").err().with_context(|| format!("{user} changes the submitter"))?;
        ensure!(format!("{refused:#}").contains(ANNOTATION), "{refused:#}");
    }
    let label = ["-n", TEAM, "label", "job", "ann-1", "other=change", "--as=bob"];
    installation.kubectl.run(&label).context("another change is allowed")?;
    Ok(())
}

/// Runs `sluice list workload --mine` as a user; returns the exit status, the jobs that are listed, and the errors.
fn list(
    installation: &Installation,
    user: &str,
    namespace: &str,
) -> Result<(Option<i32>, BTreeSet<String>, String)> {
    let mut command = Command::new(binaries::sluice(Build::Dev)?);
    command.args(["list", "workload", "--mine", "-o", "json", "--views", "-n", namespace, "--as", user]);
    command.arg("--kubeconfig").arg(installation.plane.admin_kubeconfig());
    let output = command.output().context("cannot run sluice")?;
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let items = rows["items"].as_array().into_iter().flatten();
    let jobs = items.map(|row| text(row, "/job/name").to_owned()).collect();
    Ok((output.status.code(), jobs, String::from_utf8_lossy(&output.stderr).into_owned()))
}

async fn users_list_their_own(installation: &Installation) -> Result<()> {
    // The controller that aggregates the roles may be later than the installation.
    eventually("users list what they submitted", async || {
        for (user, namespace, expected) in [
            ("ann", TEAM, vec!["ann-1", "ann-2", "of-pipeline"]),
            ("bob", TEAM, vec!["bob-1"]),
            (TRUSTED, TEAM, vec![]),
            ("eve", OTHER, vec!["eve-1"]),
        ] {
            let (code, jobs, errors) = list(installation, user, namespace)?;
            let expected: BTreeSet<String> = expected.into_iter().map(str::to_owned).collect();
            ensure!(code == Some(0) && jobs == expected, "{user}: {code:?} {jobs:?} {errors}");
        }
        Ok(())
    })
    .await?;
    for (user, namespace) in [("eve", TEAM), ("ann", OTHER)] {
        let (code, jobs, errors) = list(installation, user, namespace)?;
        ensure!(
            code != Some(0) && jobs.is_empty() && errors.contains("orbidden"),
            "{user}: {code:?} {jobs:?} {errors}"
        );
    }
    Ok(())
}
