//! Workflows of plain pods, as Argo Workflows makes them: the case plays the engine. It creates the pods of a step when those of the
//! step before have succeeded, and a new pod for one that failed; it knows nothing of quota.

use crate::cases::note;
use crate::fixture::Fixture;
use crate::history::{History, is_deleted, revision};
use crate::pod_groups::is_gated;
use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition_is_true, number, text};
use sluice_e2e::wait::within;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const QUEUE: &str = "main";
/// CPUs of the queue. Each pod requests one.
const QUOTA: i64 = 3;
/// Parallel pods of a step.
const FAN_OUT: usize = 12;
/// For one step, while the others have the quota.
const TIMEOUT: Duration = Duration::from_mins(3);

/// What starts together.
#[derive(Clone, Copy)]
enum Step {
    /// Pods that start one by one, as there is quota.
    Pods(usize),
    /// The same, of which the first one fails.
    FailsOnce(usize),
    /// Pods that start together or not at all.
    Group(usize),
}

/// Three workflows share a queue with quota for three pods: two with two fan-outs of twelve, one whose fan-outs are pod groups.
/// All end. At no revision that the API server had is more charged than the quota, or runs a pod that is not charged.
pub(crate) async fn three_workflows_share_small_quota(
    cluster: &mut Cluster,
    fixture: &Fixture,
) -> Result<()> {
    let integrations = json!({"integrations": {"frameworks": ["batch/job", "pod"]}});
    let before = cluster.reconfigure(&integrations).await?;
    fixture.create_queue(QUEUE, "", &[("cpu", &QUOTA.to_string(), None)], json!({})).await?;
    let workloads = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    let pods = History::start(&fixture.objects, Kind::POD, &fixture.name).await?;
    let group = Step::Group(usize::try_from(QUOTA)?);
    let trained = [group, Step::Pods(1), group];
    tokio::try_join!(
        run(fixture, "render", &[Step::Pods(FAN_OUT), Step::Pods(1), Step::Pods(FAN_OUT)]),
        run(fixture, "sweep", &[Step::FailsOnce(FAN_OUT), Step::Pods(1), Step::Pods(FAN_OUT)]),
        run(fixture, "train", &trained),
    )?;
    fixture.wait_for_queue_counts(QUEUE, (0, 0, 0), &[("cpu", "0")]).await?;
    let most = check_revisions(&workloads.revisions()?, &pods.revisions()?)?;
    ensure!(most == QUOTA, "at most {most} of {QUOTA} CPUs were in use");
    cluster.reconfigure(&before).await?;
    Ok(())
}

/// Runs the steps of a workflow, one after the other.
async fn run(fixture: &Fixture, name: &str, steps: &[Step]) -> Result<()> {
    // Any object that no controller queues may own the pods.
    let workflow = json!({"metadata": {"name": name, "namespace": fixture.name}});
    let workflow = fixture.objects.create(Kind::CONFIG_MAP, &workflow).await?;
    for (index, step) in steps.iter().enumerate() {
        let step_name = format!("{name}-{index}");
        let (Step::Pods(count) | Step::FailsOnce(count) | Step::Group(count)) = *step;
        for number in 0..count {
            let mut pod = pod(&workflow, &step_name, &format!("{step_name}-{number}"));
            match step {
                Step::Pods(_) => {}
                Step::FailsOnce(_) if number > 0 => {}
                Step::FailsOnce(_) => pod["metadata"]["annotations"]["sluice.dev/exit-code"] = json!("1"),
                Step::Group(_) => {
                    pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = json!(step_name);
                    let total = json!(count.to_string());
                    pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = total;
                }
            }
            fixture.objects.create(Kind::POD, &pod).await?;
        }
        let failed = within(TIMEOUT, format!("all pods of {step_name} end"), async || {
            let pods = fixture.objects.list(Kind::POD, &fixture.name, &format!("step={step_name}")).await?;
            let failed = pods.iter().filter(|pod| text(pod, "/status/phase") == "Failed").count();
            let succeeded = pods.iter().filter(|pod| text(pod, "/status/phase") == "Succeeded").count();
            if failed > 0 && pods.len() == count {
                let again = pod(&workflow, &step_name, &format!("{step_name}-again"));
                fixture.objects.create(Kind::POD, &again).await?;
            }
            ensure!(succeeded == count, "{succeeded} of {count} have succeeded, {failed} failed");
            Ok(failed)
        })
        .await?;
        ensure!(failed == usize::from(matches!(step, Step::FailsOnce(_))), "{failed} pods failed");
        note(format!("step {step_name} has ended"));
    }
    Ok(())
}

/// A pod of a step: the label with the queue is all that the engine adds for quota.
fn pod(workflow: &Value, step: &str, name: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": workflow["metadata"]["namespace"],
            "labels": {"kueue.x-k8s.io/queue-name": QUEUE, "step": step},
            "annotations": {"sluice.dev/run-for": "500ms"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "controller": true,
                "name": workflow["metadata"]["name"], "uid": workflow["metadata"]["uid"]}],
        },
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.example/step:1",
            "resources": {"requests": {"cpu": "1"}}}]},
    })
}

/// Checks every revision of Workloads and pods: no more is charged than the quota, and no more pods run than are charged. Returns
/// the most that was charged.
fn check_revisions(workloads: &[Value], pods: &[Value]) -> Result<i64> {
    let mut all = Vec::new();
    for object in workloads.iter().chain(pods) {
        all.push((revision(object)?, object));
    }
    all.sort_by_key(|(revision, _)| *revision);
    let (mut known_workloads, mut known_pods) = (BTreeMap::new(), BTreeMap::new());
    let mut most = 0;
    for (revision, object) in all {
        let known =
            if object["spec"].get("podSets").is_some() { &mut known_workloads } else { &mut known_pods };
        let name = text(object, "/metadata/name");
        if is_deleted(object) {
            known.remove(name);
        } else {
            known.insert(name, object);
        }
        let holds = |workload: &&&Value| {
            condition_is_true(workload, "QuotaReserved") && !condition_is_true(workload, "Finished")
        };
        let ended = |pod: &Value| ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"));
        let ended_pods: BTreeSet<&str> = known_pods
            .values()
            .filter(|pod: &&&Value| ended(pod))
            .map(|pod| text(pod, "/metadata/uid"))
            .collect();
        // The quota of a pod that has ended is free before its Workload says so.
        let needed = |workload: &Value| {
            let owners = workload["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let free = owners.filter(|owner| ended_pods.contains(text(owner, "/uid"))).count();
            Ok::<_, anyhow::Error>(number(workload, "/spec/podSets/0/count") - i64::try_from(free)?)
        };
        let mut charged = 0;
        for workload in known_workloads.values().filter(holds) {
            charged += needed(workload)?;
        }
        let runs = |pod: &&&Value| !is_gated(pod) && !ended(pod);
        let running = i64::try_from(known_pods.values().filter(runs).count())?;
        if charged > QUOTA || running > charged {
            bail!("at revision {revision} {charged} CPUs of {QUOTA} are charged and {running} pods run");
        }
        most = most.max(charged);
    }
    Ok(most)
}
