//! The scripted load: two queues in one cohort, with known numbers of admissions, pending workloads, evictions and
//! finished workloads.

use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::objects::{self, Job, Kind, ObjectClient, condition_is_true, expect_condition, number, text};
use sluice_e2e::wait::eventually;

pub(crate) const NAMESPACE: &str = "metrics";
const FLAVOR: &str = "any";
pub(crate) const COHORT: &str = "org";

/// The queues and Jobs of the load.
pub(crate) struct Load {
    objects: ObjectClient,
}

impl Load {
    /// Creates the queues: red has 4 CPU and preempts, blue has 3; none borrows.
    pub(crate) async fn prepare(objects: ObjectClient) -> Result<Self> {
        objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": NAMESPACE}})).await?;
        objects.create(Kind::FLAVOR, &json!({"metadata": {"name": FLAVOR}, "spec": {}})).await?;
        for (name, value) in [("low", 1), ("high", 2)] {
            objects
                .create(Kind::PRIORITY_CLASS, &json!({"metadata": {"name": name}, "value": value}))
                .await?;
        }
        objects.create(Kind::COHORT, &objects::cohort(COHORT, "", FLAVOR, &[])).await?;
        for (name, cpu, preemption) in [("red", "4", "LowerPriority"), ("blue", "3", "Never")] {
            let mut queue = objects::cluster_queue(name, COHORT, FLAVOR, &[("cpu", cpu, Some("0"))]);
            queue["spec"]["preemption"] = json!({"withinClusterQueue": preemption});
            objects.create(Kind::CLUSTER_QUEUE, &queue).await?;
            objects.create(Kind::LOCAL_QUEUE, &objects::local_queue(NAMESPACE, name, name)).await?;
        }
        let load = Self { objects };
        eventually("the namespace has its service account", async || {
            load.objects.must_get(Kind::SERVICE_ACCOUNT, NAMESPACE, "default").await.map(drop)
        })
        .await?;
        for queue in ["red", "blue"] {
            load.wait_for_counts(queue, (0, 0, 0)).await?;
        }
        Ok(load)
    }

    /// Causes each kind of event once, so that each counter exists before the load, and deletes everything. Prometheus
    /// counts no increase from nothing to the first value.
    pub(crate) async fn warm_up(&self) -> Result<()> {
        self.submit("first", "red", "low", "4").await?;
        self.wait_until_running("first").await?;
        self.submit("second", "red", "high", "4").await?;
        self.wait_until_running("second").await?;
        self.finish("second").await?;
        self.wait_until_running("first").await?;
        self.deactivate("first").await?;
        for (name, queue) in [("third", "red"), ("fourth", "blue")] {
            self.submit(name, queue, "low", "1").await?;
            self.wait_until_running(name).await?;
            self.finish(name).await?;
        }
        self.delete_all().await
    }

    /// The measured load. In red: 4 Jobs run, 2 wait; one with high priority preempts one; one finishes, one is
    /// deactivated, and each time the next is admitted: 7 admissions, 2 evictions, 1 finished, 4 admitted, 1 pending. In
    /// blue: 2 admitted, 2 pending, one of which never fits.
    pub(crate) async fn run(&self) -> Result<()> {
        for name in ["red-1", "red-2", "red-3", "red-4"] {
            self.submit(name, "red", "low", "1").await?;
            self.wait_until_running(name).await?;
        }
        for name in ["red-5", "red-6"] {
            self.submit(name, "red", "low", "1").await?;
        }
        self.wait_for_counts("red", (2, 4, 4)).await?;
        self.submit("red-high", "red", "high", "1").await?;
        self.wait_until_running("red-high").await?;
        self.wait_for_counts("red", (3, 4, 4)).await?;
        let running = self.running_low_jobs().await?;
        let [to_finish, to_deactivate, _] = &running[..] else {
            anyhow::bail!("{running:?} are running");
        };
        self.finish(to_finish).await?;
        self.wait_for_counts("red", (2, 4, 4)).await?;
        self.deactivate(to_deactivate).await?;
        self.wait_for_counts("red", (1, 4, 4)).await?;
        for (name, cpu) in [("blue-1", "1"), ("blue-2", "1")] {
            self.submit(name, "blue", "low", cpu).await?;
            self.wait_until_running(name).await?;
        }
        self.submit("blue-3", "blue", "low", "2").await?;
        self.submit("blue-4", "blue", "low", "9").await?;
        self.wait_for_counts("blue", (2, 2, 2)).await?;
        eventually("the reasons of blue's pending Jobs are written", async || {
            expect_condition(&self.workload("blue-3").await?, "QuotaReserved", "False", "WaitingForQuota")?;
            expect_condition(&self.workload("blue-4").await?, "QuotaReserved", "False", "ExceedsMaxQuota")
        })
        .await
    }

    /// Creates a Job with one pod.
    pub(crate) async fn submit(&self, name: &str, queue: &str, class: &str, cpu: &str) -> Result<()> {
        let job = Job::new(NAMESPACE, name, queue, &[("cpu", cpu)]).priority(class);
        self.objects.create(Kind::JOB, job.body()).await.with_context(|| name.to_owned())?;
        Ok(())
    }

    /// Creates Jobs of one CPU with low priority.
    pub(crate) async fn submit_backlog(&self, queue: &str, jobs: usize) -> Result<()> {
        for number in 1..=jobs {
            self.submit(&format!("backlog-{number}"), queue, "low", "1").await?;
        }
        Ok(())
    }

    /// Waits until a Job is admitted and its pod is ready, and the Workload reports it.
    pub(crate) async fn wait_until_running(&self, name: &str) -> Result<()> {
        eventually(format!("{name} is running"), async || {
            let workload = self.workload(name).await?;
            expect_condition(&workload, "Admitted", "True", "")?;
            expect_condition(&workload, "PodsReady", "True", "")?;
            let job = self.objects.must_get(Kind::JOB, NAMESPACE, name).await?;
            ensure!(number(&job, "/status/ready") == 1, "its pod is not ready");
            Ok(())
        })
        .await
    }

    async fn workload(&self, job: &str) -> Result<Value> {
        let job = self.objects.must_get(Kind::JOB, NAMESPACE, job).await?;
        let selector = format!("kueue.x-k8s.io/job-uid={}", text(&job, "/metadata/uid"));
        self.objects
            .list(Kind::WORKLOAD, NAMESPACE, &selector)
            .await?
            .into_iter()
            .next()
            .context("no Workload")
    }

    /// Names of the running Jobs with low priority.
    async fn running_low_jobs(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for job in self.objects.list(Kind::JOB, NAMESPACE, "kueue.x-k8s.io/priority-class=low").await? {
            let name = text(&job, "/metadata/name").to_owned();
            if condition_is_true(&self.workload(&name).await?, "Admitted") {
                self.wait_until_running(&name).await?;
                names.push(name);
            }
        }
        Ok(names)
    }

    pub(crate) async fn finish(&self, job: &str) -> Result<()> {
        for pod in self.objects.list(Kind::POD, NAMESPACE, &format!("job-name={job}")).await? {
            let patch = json!({"metadata": {"annotations": {"sluice.dev/run-for": "0s"}}});
            self.objects.merge(Kind::POD, NAMESPACE, text(&pod, "/metadata/name"), &patch).await?;
        }
        eventually(format!("{job} has finished"), async || {
            expect_condition(&self.workload(job).await?, "Finished", "True", "Succeeded")
        })
        .await
    }

    async fn deactivate(&self, job: &str) -> Result<()> {
        let workload = self.workload(job).await?;
        let name = text(&workload, "/metadata/name");
        self.objects.merge(Kind::WORKLOAD, NAMESPACE, name, &json!({"spec": {"active": false}})).await?;
        eventually(format!("{job} has no quota"), async || {
            expect_condition(&self.workload(job).await?, "QuotaReserved", "False", "Deactivated")
        })
        .await
    }

    /// Deletes all Jobs and waits until their Workloads are gone.
    pub(crate) async fn delete_all(&self) -> Result<()> {
        for job in self.objects.list(Kind::JOB, NAMESPACE, "").await? {
            let name = text(&job, "/metadata/name");
            self.objects.delete(Kind::JOB, NAMESPACE, name, PropagationPolicy::Background).await?;
        }
        eventually("the Workloads are deleted", async || {
            let left = self.objects.list(Kind::WORKLOAD, NAMESPACE, "").await?.len();
            ensure!(left == 0, "{left} still exist");
            Ok(())
        })
        .await?;
        for queue in ["red", "blue"] {
            self.wait_for_counts(queue, (0, 0, 0)).await?;
        }
        Ok(())
    }

    /// Waits until the status of a ClusterQueue shows these numbers of pending, reserving and admitted workloads.
    pub(crate) async fn wait_for_counts(&self, queue: &str, counts: (i64, i64, i64)) -> Result<()> {
        eventually(format!("{queue} counts {counts:?}"), async || {
            let object = self.objects.must_get(Kind::CLUSTER_QUEUE, "", queue).await?;
            expect_condition(&object, "Active", "True", "")?;
            let found = ["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"]
                .map(|field| number(&object, &format!("/status/{field}")));
            ensure!(found == [counts.0, counts.1, counts.2], "it counts {found:?}");
            Ok(())
        })
        .await
    }
}
