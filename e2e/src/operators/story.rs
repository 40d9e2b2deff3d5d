//! The story of one kind: of two equal jobs, of which only one fits into the quota, the second has the higher priority.

use super::revisions::Recording;
use crate::cluster::Cluster;
use crate::objects::{self, Kind, ObjectClient, condition, condition_is_true, expect_condition, text};
use crate::paths;
use crate::wait::within;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice::frameworks::served;
use std::fs;
use std::time::Duration;

/// Names of the jobs, which are those of their priority classes too.
const LOW: &str = "low";
const HIGH: &str = "high";
const QUEUE: &str = "main";
/// How long a pod takes to end once it is deleted: long enough that quota is missed if it is released before.
const ENDING: &str = "2s";
/// For each step of an operator, on a machine that does other work.
const TIMEOUT: Duration = Duration::from_mins(2);

/// A kind and what its jobs are.
pub(super) struct Story {
    pub(super) kind: Kind,
    /// Name of its sample in `config/samples`, and of the story's namespace.
    pub(super) sample: &'static str,
    /// The operators it needs, in the order in which they start.
    pub(super) operators: &'static [&'static str],
    /// Pods of a job of the sample.
    pods: usize,
    /// CPU of these pods, in thousandths.
    cpu: i64,
    end: End,
}

/// How a job ends.
enum End {
    /// By the end of its pods whose names contain this.
    Pods(&'static str),
}

/// All stories.
pub(super) const STORIES: [Story; 1] = [Story {
    kind: Kind::new("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
    sample: "jobset",
    operators: &["jobset"],
    pods: 3,
    cpu: 2500,
    end: End::Pods(""),
}];

impl Story {
    /// Returns whether the table of frameworks serves the kind.
    pub(super) fn is_served(&self) -> bool {
        served().any(|row| row.gvk.group == self.kind.group && row.gvk.kind == self.kind.singular)
    }

    /// Runs the story and checks all revisions, also those of a story that does not come to its end. Returns what was seen.
    pub(super) async fn run(&self, cluster: &Cluster) -> Result<String> {
        let stage = Stage { story: self, objects: &cluster.objects };
        stage.prepare().await?;
        let recording = Recording::start(&cluster.objects, self.sample).await?;
        let outcome = stage.play().await;
        let seen = recording.check(self.cpu);
        match (outcome, seen) {
            (Ok(()), seen) => Ok(seen?.to_string()),
            (Err(error), Ok(seen)) => Err(error.context(format!("the revisions are right ({seen})"))),
            (Err(error), Err(wrong)) => Err(error.context(format!("{wrong:#}"))),
        }
    }
}

/// The namespace of a story.
struct Stage<'a> {
    story: &'a Story,
    objects: &'a ObjectClient,
}

impl Stage<'_> {
    fn namespace(&self) -> &'static str {
        self.story.sample
    }

    /// Makes the namespace, and queues with quota for one job.
    async fn prepare(&self) -> Result<()> {
        let (objects, name) = (self.objects, self.namespace());
        objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": name}})).await?;
        objects.create(Kind::FLAVOR, &json!({"metadata": {"name": name}})).await?;
        let cpu = format!("{}m", self.story.cpu);
        let mut queue =
            objects::cluster_queue(name, "", name, &[("cpu", &cpu, None), ("memory", "1Ti", None)]);
        queue["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
        objects.create(Kind::CLUSTER_QUEUE, &queue).await?;
        objects.create(Kind::LOCAL_QUEUE, &objects::local_queue(name, QUEUE, name)).await?;
        for (class, value) in [(LOW, 1), (HIGH, 2)] {
            let class = json!({"metadata": {"name": format!("{name}-{class}")}, "value": value});
            objects.create(Kind::PRIORITY_CLASS, &class).await?;
        }
        self.eventually("the default service account exists", async || {
            objects.must_get(Kind::SERVICE_ACCOUNT, name, "default").await.map(drop)
        })
        .await
    }

    async fn play(&self) -> Result<()> {
        self.create(LOW).await?;
        self.wait_until_running(LOW).await?;
        self.create(HIGH).await?;
        self.wait_until_running(HIGH).await?;
        self.expect_preempted(LOW).await?;
        self.end(HIGH).await?;
        self.wait_until_running(LOW).await?;
        self.end(LOW).await?;
        self.wait_until_quota_is_free().await
    }

    async fn eventually<T>(&self, what: &str, probe: impl AsyncFnMut() -> Result<T>) -> Result<T> {
        within(TIMEOUT, what, probe).await
    }

    /// Creates a job from the sample.
    async fn create(&self, job: &str) -> Result<()> {
        let file = format!("config/samples/{}.yaml", self.story.sample);
        let sample = fs::read_to_string(paths::root().join(&file)).with_context(|| file.clone())?;
        let mut object: Value = serde_saphyr::from_str(&sample)?;
        end_slowly(&mut object);
        let class = format!("{}-{job}", self.namespace());
        object["metadata"] = json!({"name": job, "namespace": self.namespace(),
            "labels": {"kueue.x-k8s.io/queue-name": QUEUE, "kueue.x-k8s.io/priority-class": class}});
        self.objects.create(self.story.kind, &object).await.context(file)?;
        Ok(())
    }

    /// Returns the Workloads of a job, by their names.
    async fn workloads(&self, job: &str) -> Result<Vec<Value>> {
        let mut all = self.objects.list(Kind::WORKLOAD, self.namespace(), "").await?;
        all.retain(|workload| text(workload, "/metadata/name").contains(&format!("-{job}-")));
        Ok(all)
    }

    /// Returns the pods of a job, by their names.
    async fn pods(&self, job: &str) -> Result<Vec<Value>> {
        let mut all = self.objects.list(Kind::POD, self.namespace(), "").await?;
        all.retain(|pod| text(pod, "/metadata/name").starts_with(&format!("{job}-")));
        Ok(all)
    }

    /// Waits until a job is admitted and has all its pods and no others, and they are ready.
    async fn wait_until_running(&self, job: &str) -> Result<()> {
        let expected = self.story.pods;
        self.eventually(&format!("{job} runs"), async || {
            let workloads = self.workloads(job).await?;
            ensure!(!workloads.is_empty(), "it has no Workload");
            for workload in &workloads {
                expect_condition(workload, "Admitted", "True", "Admitted")?;
            }
            let pods = self.pods(job).await?;
            let ready = pods.iter().filter(|pod| condition_is_true(pod, "Ready")).count();
            ensure!((pods.len(), ready) == (expected, expected), "of {} pods {ready} are ready", pods.len());
            Ok(())
        })
        .await
    }

    async fn expect_preempted(&self, job: &str) -> Result<()> {
        for workload in self.workloads(job).await? {
            let evicted = condition(&workload, "Evicted");
            ensure!(evicted.reason == "Preempted", "{job} was not preempted: {evicted:?}");
        }
        let pods = self.pods(job).await?;
        let running = pods.iter().filter(|pod| pod["spec"].get("schedulingGates").is_none()).count();
        ensure!(running == 0, "{job} has {running} pods beside the preemptor");
        Ok(())
    }

    /// Ends a job, and waits until its Workload has finished or is gone.
    async fn end(&self, job: &str) -> Result<()> {
        match self.story.end {
            End::Pods(part) => {
                let patch = json!({"metadata": {"annotations": {"sluice.dev/run-for": "0s"}}});
                for pod in self.pods(job).await? {
                    let name = text(&pod, "/metadata/name");
                    if name.contains(part) {
                        self.objects.merge(Kind::POD, self.namespace(), name, &patch).await?;
                    }
                }
                self.eventually(&format!("{job} has finished"), async || {
                    for workload in self.workloads(job).await? {
                        expect_condition(&workload, "Finished", "True", "Succeeded")?;
                    }
                    Ok(())
                })
                .await
            }
        }
    }

    async fn wait_until_quota_is_free(&self) -> Result<()> {
        self.eventually("the quota is free", async || {
            let queue = self.objects.must_get(Kind::CLUSTER_QUEUE, "", self.namespace()).await?;
            let used = queue.pointer("/status/flavorsReservation/0/resources").and_then(Value::as_array);
            for resource in used.context("the queue has no usage")? {
                ensure!(text(resource, "/total") == "0", "{resource} is reserved");
            }
            Ok(())
        })
        .await
    }
}

/// Annotates each pod template in a manifest so that its pods take time to end.
fn end_slowly(value: &mut Value) {
    if value["spec"]["containers"].is_array() {
        value["metadata"]["annotations"]["sluice.dev/terminate-after"] = ENDING.into();
        return;
    }
    match value {
        Value::Object(fields) => fields.values_mut().for_each(end_slowly),
        Value::Array(items) => items.iter_mut().for_each(end_slowly),
        _ => {}
    }
}
