//! The demo, part one: Jobs and a pod group in two levels of queues. Prints which run, which are pending and why, and checks each
//! claim.
//!
//! The pod group is in `demo_group`, part two is `demo_racks`. The `interrupt` test matches three of the printed lines.

use crate::cluster::{Cluster, ClusterOptions};
use crate::control_plane::ControlPlane;
use crate::objects::{Job, Kind, condition, condition_is_true, number, text};
use crate::process::output_with_input;
use crate::wait::eventually;
use crate::{demo_group, demo_racks};
use JobState::{Finished, NeverFits, Pending, Running};
use anyhow::{Result, bail, ensure};
use serde_json::Value;
use std::process::Command;
use std::time::Instant;

pub(crate) const NAMESPACE: &str = "demo";
/// Jobs in the order of the table: name, queue, priority class, CPU, memory.
const JOBS: [(&str, &str, &str, &str, &str); 6] = [
    ("survey", "physics", "low", "3", "2Gi"),
    ("model", "physics", "low", "3", "2Gi"),
    ("genome", "biology", "low", "2", "1Gi"),
    ("draft", "physics", "low", "3", "1Gi"),
    ("paper", "physics", "high", "3", "1Gi"),
    ("giant", "physics", "high", "100", "1Gi"),
];

/// State of a Job that the demo claims and checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobState {
    /// Admitted, and its pod is ready.
    Running,
    /// Waits for quota and has no pod.
    Pending,
    /// Requests more than the maximum quota and has no pod.
    NeverFits,
    /// Job and Workload are finished.
    Finished,
}

/// Runs the demo. An error names the claim that failed.
pub async fn run() -> Result<()> {
    let begun = Instant::now();
    println!(
        "Sluice demo: a real control plane on this machine, two levels of queues, two racks, eight Jobs, a pod group.\n"
    );
    println!("starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler, KWOK and sluice");
    let cluster = Cluster::start(&ClusterOptions::shown(), &ControlPlane::temporary_folder()).await?;
    println!("  ready after {:.1} s, on {}\n", begun.elapsed().as_secs_f64(), cluster.plane.server());
    let outcome = async {
        scenario(&cluster).await?;
        demo_racks::scenario(&cluster).await?;
        say_why(&cluster)
    }
    .await;
    if outcome.is_err() {
        println!("\nlast log lines of sluice:\n{}", crate::process::tail(cluster.manager()?.log(), 20));
    }
    outcome?;
    drop(cluster);
    println!("Every step was checked; no process is left running. {:.1} s.", begun.elapsed().as_secs_f64());
    Ok(())
}

async fn scenario(cluster: &Cluster) -> Result<()> {
    println!("$ kubectl apply -f e2e/demo.yaml");
    cluster.kubectl.apply(include_str!("../demo.yaml"))?;
    eventually("the queues are active", async || {
        for name in ["physics", "biology"] {
            crate::objects::expect_condition(
                &cluster.objects.must_get(Kind::CLUSTER_QUEUE, "", name).await?,
                "Active",
                "True",
                "",
            )?;
        }
        Ok(())
    })
    .await?;
    println!("  cohort research: 2 CPU shared by its queues");
    println!("    physics: 4 CPU nominal quota, so at most 6");
    println!("    biology: 2 CPU nominal quota, lends none\n");

    chapter("1. Three Jobs fit. physics uses 6 CPU: 4 nominal and the 2 shared ones of research.");
    submit(cluster, "survey model genome")?;
    check(cluster, &[("survey", Running), ("model", Running), ("genome", Running)]).await?;

    chapter(
        "2. physics is full. A low-priority Job stays pending, then a high-priority one, and one that exceeds all quota.",
    );
    submit(cluster, "draft")?;
    check(cluster, &[("draft", Pending)]).await?;
    submit(cluster, "paper giant")?;
    let all = [
        ("survey", Running),
        ("model", Running),
        ("genome", Running),
        ("draft", Pending),
        ("paper", Pending),
        ("giant", NeverFits),
    ];
    check(cluster, &all).await?;

    chapter(
        "3. survey finishes. The high-priority Job starts, although the low-priority one was created first.",
    );
    finish(cluster, "survey")?;
    let all = [
        ("survey", Finished),
        ("model", Running),
        ("genome", Running),
        ("draft", Pending),
        ("paper", Running),
        ("giant", NeverFits),
    ];
    check(cluster, &all).await?;

    chapter(
        "4. model finishes, and the low-priority Job starts. The Job that can never fit blocks no other Job.",
    );
    finish(cluster, "model")?;
    let all = [
        ("model", Finished),
        ("genome", Running),
        ("draft", Running),
        ("paper", Running),
        ("giant", NeverFits),
    ];
    check(cluster, &all).await?;
    demo_group::scenario(cluster).await?;

    eventually("the queues report their counts", async || {
        let expected = [
            (Kind::CLUSTER_QUEUE, "", "physics", [1, 2, 2]),
            (Kind::CLUSTER_QUEUE, "", "biology", [0, 1, 1]),
            (Kind::LOCAL_QUEUE, NAMESPACE, "physics", [1, 2, 2]),
            (Kind::LOCAL_QUEUE, NAMESPACE, "biology", [0, 1, 1]),
        ];
        for (kind, namespace, name, want) in expected {
            let queue = cluster.objects.must_get(kind, namespace, name).await?;
            let fields = ["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"];
            let found = fields.map(|field| number(&queue, &format!("/status/{field}")));
            ensure!(found == want, "{name} reports {fields:?} = {found:?}, expected {want:?}");
        }
        Ok(())
    })
    .await?;
    for columns in ["clusterqueues", "localqueues -n demo", "workloads -n demo"] {
        println!("$ kubectl get {columns}");
        let arguments: Vec<&str> = ["get"].into_iter().chain(columns.split(' ')).collect();
        println!("{}", cluster.kubectl.run(&arguments)?);
    }
    Ok(())
}

/// Asks why the Job that is still pending waits.
fn say_why(cluster: &Cluster) -> Result<()> {
    chapter("10. giant is still pending. One command says why:");
    println!("$ sluice why job/giant -n {NAMESPACE}\n");
    let mut command = Command::new(&cluster.manager()?.settings().program);
    command.args(["why", "job/giant", "-n", NAMESPACE]).env("KUBECONFIG", cluster.plane.admin_kubeconfig());
    let answer = output_with_input(&mut command, "sluice why", "")?;
    println!("{answer}");
    ensure!(answer.contains("can never be admitted: request 100 > 6"), "why says nothing of the quota");
    Ok(())
}

pub(crate) fn chapter(title: &str) {
    println!("{title}");
}

/// Creates Jobs with kubectl, as a user would.
fn submit(cluster: &Cluster, names: &str) -> Result<()> {
    println!("$ kubectl create -f {}.yaml", names.replace(' ', ".yaml -f "));
    for name in names.split(' ') {
        let Some((_, queue, class, cpu, memory)) = JOBS.iter().find(|job| job.0 == name) else {
            bail!("no Job {name}")
        };
        let job = Job::new(NAMESPACE, name, queue, &[("cpu", cpu), ("memory", memory)]).priority(class);
        create(cluster, &job)?;
    }
    Ok(())
}

pub(crate) fn create(cluster: &Cluster, job: &Job) -> Result<()> {
    let mut body = job.body().clone();
    body["apiVersion"] = "batch/v1".into();
    body["kind"] = "Job".into();
    cluster.kubectl.run_with(&["create", "-f", "-"], &body.to_string()).map(drop)
}

/// Makes a Job's pods succeed: KWOK completes a pod after the run time in this annotation.
pub(crate) fn finish(cluster: &Cluster, name: &str) -> Result<()> {
    let selector = format!("job-name={name}");
    cluster
        .kubectl
        .run(&["annotate", "pods", "-n", NAMESPACE, "-l", &selector, "sluice.dev/run-for=0s"])
        .map(drop)
}

async fn check(cluster: &Cluster, claims: &[(&str, JobState)]) -> Result<()> {
    eventually("the Jobs reach the claimed states", async || {
        for (name, claim) in claims {
            let found = job_state(cluster, name).await?;
            ensure!(found == *claim, "{name} is {found:?}, expected {claim:?}");
        }
        Ok(())
    })
    .await?;
    print_table(cluster).await
}

pub(crate) async fn workload(cluster: &Cluster, job: &Value) -> Result<Option<Value>> {
    let selector = format!("kueue.x-k8s.io/job-uid={}", text(job, "/metadata/uid"));
    Ok(cluster.objects.list(Kind::WORKLOAD, NAMESPACE, &selector).await?.into_iter().next())
}

async fn job_state(cluster: &Cluster, name: &str) -> Result<JobState> {
    let job = cluster.objects.must_get(Kind::JOB, NAMESPACE, name).await?;
    let Some(workload) = workload(cluster, &job).await? else { bail!("{name} has no Workload yet") };
    let pods = cluster.objects.list(Kind::POD, NAMESPACE, &format!("job-name={name}")).await?.len();
    if condition_is_true(&job, "Complete") && condition_is_true(&workload, "Finished") {
        return Ok(JobState::Finished);
    }
    if condition_is_true(&workload, "Admitted") {
        ensure!(number(&job, "/status/ready") == 1, "{name} is admitted, but its pod is not ready yet");
        return Ok(JobState::Running);
    }
    ensure!(pods == 0, "{name} is pending, but has {pods} pods");
    match condition(&workload, "QuotaReserved").reason.as_str() {
        "WaitingForQuota" => Ok(JobState::Pending),
        "ExceedsMaxQuota" => Ok(JobState::NeverFits),
        reason => bail!("{name} was not evaluated yet ({reason})"),
    }
}

async fn print_table(cluster: &Cluster) -> Result<()> {
    println!(
        "\n  {:8} {:8} {:8} {:>4} {:>6}  {:12} WHY",
        "JOB", "QUEUE", "PRIORITY", "CPU", "MEMORY", "STATE"
    );
    for (name, queue, class, cpu, memory) in JOBS {
        let Some(job) = cluster.objects.get(Kind::JOB, NAMESPACE, name).await? else {
            continue;
        };
        let Some(workload) = workload(cluster, &job).await? else {
            continue;
        };
        let (state, why) = match job_state(cluster, name).await? {
            JobState::Running => {
                ("running", format!("quota in {}", text(&workload, "/status/admission/clusterQueue")))
            }
            JobState::Pending => ("pending", condition(&workload, "QuotaReserved").message),
            JobState::NeverFits => ("never fits", condition(&workload, "QuotaReserved").message),
            JobState::Finished => ("finished", condition(&workload, "Finished").message),
        };
        println!("  {name:8} {queue:8} {class:8} {cpu:>4} {memory:>6}  {state:12} {why}");
    }
    println!();
    Ok(())
}
