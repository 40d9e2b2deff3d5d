//! Where one case plays: a namespace of its own, and names for its queues that nobody else has.

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::kubectl::Kubectl;
use sluice_e2e::objects::{
    self, Job, Kind, ObjectClient, condition, condition_is_true, expect_condition, number, text,
};
use sluice_e2e::wait::eventually;
use std::cell::RefCell;

/// (resource, nominal quota, borrowing limit).
pub(crate) type QuotaSpec<'a> = &'a [(&'a str, &'a str, Option<&'a str>)];

/// One case's namespace, queues and helpers.
pub(crate) struct Fixture {
    /// May do everything.
    pub(crate) objects: ObjectClient,
    pub(crate) kubectl: Kubectl,
    /// Its namespace, and the prefix of what has none.
    pub(crate) name: String,
    created: RefCell<Vec<(Kind, String)>>,
}

impl Fixture {
    pub(crate) fn new(cluster: &Cluster, case: &str) -> Self {
        let name = case.rsplit("::").next().unwrap_or(case).replace('_', "-");
        Self {
            objects: cluster.objects.clone(),
            kubectl: cluster.kubectl.clone(),
            name: name.chars().take(40).collect::<String>().trim_end_matches('-').to_owned(),
            created: RefCell::default(),
        }
    }

    /// Makes the namespace and the flavor "any".
    pub(crate) async fn prepare(&self) -> Result<()> {
        self.create_namespace(&self.name, &json!({})).await?;
        self.create_flavor("any", json!({})).await.map(drop)
    }

    /// Takes everything away again, in the order that finalizers want.
    pub(crate) async fn clean_up(&self) -> Result<()> {
        let made = self.created.take();
        let namespaces: Vec<&String> = made.iter().filter(|m| m.0 == Kind::NAMESPACE).map(|m| &m.1).collect();
        for namespace in namespaces {
            for kind in [Kind::JOB, Kind::WORKLOAD] {
                for object in self.objects.list(kind, namespace, "").await? {
                    let name = text(&object, "/metadata/name");
                    self.objects.delete(kind, namespace, name, PropagationPolicy::Background).await?;
                }
            }
            eventually(format!("the workloads in {namespace} go"), async || {
                let left = self.objects.list(Kind::WORKLOAD, namespace, "").await?;
                ensure!(left.is_empty(), "{} are left", left.len());
                Ok(())
            })
            .await?;
        }
        for (kind, name) in made.into_iter().rev() {
            self.objects.delete(kind, "", &name, PropagationPolicy::Background).await?;
        }
        Ok(())
    }

    /// A name in this case's own range.
    pub(crate) fn own_name(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    async fn create_and_track(&self, kind: Kind, body: Value) -> Result<String> {
        let name = text(&body, "/metadata/name").to_owned();
        self.objects.create(kind, &body).await.with_context(|| body.to_string())?;
        self.created.borrow_mut().push((kind, name.clone()));
        Ok(name)
    }

    /// A further namespace; usable when it has its default service account.
    pub(crate) async fn create_namespace(&self, name: &str, labels: &Value) -> Result<()> {
        self.create_and_track(Kind::NAMESPACE, json!({"metadata": {"name": name, "labels": labels}})).await?;
        eventually("the default service account", async || {
            self.objects.must_get(Kind::SERVICE_ACCOUNT, name, "default").await.map(drop)
        })
        .await
    }

    /// A flavor; returns its full name.
    pub(crate) async fn create_flavor(&self, name: &str, spec: Value) -> Result<String> {
        self.create_and_track(Kind::FLAVOR, json!({"metadata": {"name": self.own_name(name)}, "spec": spec}))
            .await
    }

    /// A priority class; returns its full name.
    pub(crate) async fn create_priority_class(&self, name: &str, value: i32) -> Result<String> {
        self.create_and_track(
            Kind::PRIORITY_CLASS,
            json!({"metadata": {"name": self.own_name(name)}, "value": value}),
        )
        .await
    }

    /// A cohort of flavor "any"; returns its full name.
    pub(crate) async fn create_cohort(
        &self,
        name: &str,
        parent: &str,
        quota: QuotaSpec<'_>,
    ) -> Result<String> {
        self.create_and_track(
            Kind::COHORT,
            objects::cohort(&self.own_name(name), parent, &self.own_name("any"), quota),
        )
        .await
    }

    /// A `ClusterQueue` of flavor "any" and a `LocalQueue` of the same short name; fields of `spec` are set on the former.
    pub(crate) async fn create_queue(
        &self,
        name: &str,
        cohort: &str,
        quota: QuotaSpec<'_>,
        spec: Value,
    ) -> Result<String> {
        let mut body = objects::cluster_queue(&self.own_name(name), cohort, &self.own_name("any"), quota);
        for (field, value) in spec.as_object().into_iter().flatten() {
            body["spec"][field] = value.clone();
        }
        let full = self.create_and_track(Kind::CLUSTER_QUEUE, body).await?;
        self.objects.create(Kind::LOCAL_QUEUE, &objects::local_queue(&self.name, name, &full)).await?;
        Ok(full)
    }

    /// A cluster-scoped object that is taken away in the end.
    pub(crate) async fn create_tracked(&self, kind: Kind, body: Value) -> Result<String> {
        self.create_and_track(kind, body).await
    }

    /// A Job of one pod that asks for CPU only and runs until told to end.
    pub(crate) fn job(&self, name: &str, queue: &str, cpu: &str) -> Job {
        Job::new(&self.name, name, queue, &[("cpu", cpu)])
    }

    /// Creates a Job.
    pub(crate) async fn submit(&self, job: Job) -> Result<()> {
        self.objects.create(Kind::JOB, job.body()).await?;
        Ok(())
    }

    /// The Workload of a Job.
    pub(crate) async fn workload(&self, job: &str) -> Result<Value> {
        let job = self.objects.must_get(Kind::JOB, &self.name, job).await?;
        let selector = format!("kueue.x-k8s.io/job-uid={}", text(&job, "/metadata/uid"));
        let found = self.objects.list(Kind::WORKLOAD, &self.name, &selector).await?;
        ensure!(found.len() <= 1, "{} has {} Workloads", text(&job, "/metadata/name"), found.len());
        found.into_iter().next().with_context(|| format!("{} has no Workload", text(&job, "/metadata/name")))
    }

    /// The pods of a Job.
    pub(crate) async fn pods(&self, job: &str) -> Result<Vec<Value>> {
        Ok(self.objects.list(Kind::POD, &self.name, &format!("job-name={job}")).await?)
    }

    /// Waits until a Job is admitted and all its pods are ready.
    pub(crate) async fn wait_until_running(&self, job: &str) -> Result<()> {
        eventually(format!("{job} runs"), async || {
            let workload = self.workload(job).await?;
            expect_condition(&workload, "QuotaReserved", "True", "QuotaReserved")?;
            expect_condition(&workload, "Admitted", "True", "Admitted")?;
            let object = self.objects.must_get(Kind::JOB, &self.name, job).await?;
            ensure!(object["spec"]["suspend"] == json!(false), "it is suspended");
            let wanted = number(&object, "/spec/parallelism");
            ensure!(number(&object, "/status/ready") == wanted, "not all pods are ready");
            // The Job goes on counting pods that were taken away until its controller has seen it.
            let stays = |pod: &&Value| {
                pod["metadata"]["deletionTimestamp"].is_null() && condition_is_true(pod, "Ready")
            };
            let ready = self.pods(job).await?.iter().filter(stays).count();
            ensure!(i64::try_from(ready)? == wanted, "{ready} pods are ready");
            Ok(())
        })
        .await
    }

    /// The same, and its Workload says so: at its end nobody would make up for it.
    pub(crate) async fn wait_until_running_and_reported(&self, job: &str) -> Result<()> {
        self.wait_until_running(job).await?;
        self.wait_for_condition(job, "PodsReady", "True", "Started").await
    }

    /// Waits until a Job is told why it waits, and checks that it has no pod.
    pub(crate) async fn wait_until_pending(&self, job: &str, reason: &str) -> Result<()> {
        eventually(format!("{job} waits: {reason}"), async || {
            expect_condition(&self.workload(job).await?, "QuotaReserved", "False", reason)
        })
        .await?;
        self.check_pending(job).await
    }

    /// Checks that a Job has neither quota nor a pod at this moment.
    pub(crate) async fn check_pending(&self, job: &str) -> Result<()> {
        let workload = self.workload(job).await?;
        ensure!(
            !condition_is_true(&workload, "QuotaReserved") && !condition_is_true(&workload, "Admitted"),
            "{job} has quota"
        );
        let object = self.objects.must_get(Kind::JOB, &self.name, job).await?;
        ensure!(object["spec"]["suspend"] == json!(true), "{job} is not suspended");
        let pods = self.pods(job).await?.len();
        ensure!(pods == 0, "{job} has {pods} pods");
        Ok(())
    }

    /// Lets the pods of a Job end with success.
    pub(crate) async fn finish_job(&self, job: &str) -> Result<()> {
        for pod in self.pods(job).await? {
            let patch = json!({"metadata": {"annotations": {"sluice.dev/run-for": "0s"}}});
            self.objects.merge(Kind::POD, &self.name, text(&pod, "/metadata/name"), &patch).await?;
        }
        self.wait_until_finished(job, "Succeeded").await
    }

    /// Waits until the Workload of a Job has finished.
    pub(crate) async fn wait_until_finished(&self, job: &str, reason: &str) -> Result<()> {
        eventually(format!("{job} has finished"), async || {
            expect_condition(&self.workload(job).await?, "Finished", "True", reason)
        })
        .await
    }

    /// Waits until the status of a `ClusterQueue` counts so many pending, reserving and admitted workloads, and holds
    /// as many resources as `total` says.
    pub(crate) async fn wait_for_queue_counts(
        &self,
        queue: &str,
        counts: (i64, i64, i64),
        total: &[(&str, &str)],
    ) -> Result<()> {
        eventually(format!("{queue} counts {counts:?} and holds {total:?}"), async || {
            let object = self.objects.must_get(Kind::CLUSTER_QUEUE, "", &self.own_name(queue)).await?;
            let found = (
                number(&object, "/status/pendingWorkloads"),
                number(&object, "/status/reservingWorkloads"),
                number(&object, "/status/admittedWorkloads"),
            );
            ensure!(found == counts, "it counts {found:?}");
            let resources =
                object.pointer("/status/flavorsReservation/0/resources").and_then(Value::as_array);
            for (resource, amount) in total {
                let entry =
                    resources.and_then(|all| all.iter().find(|entry| text(entry, "/name") == *resource));
                let held = entry.map_or("nothing", |entry| text(entry, "/total"));
                ensure!(held == *amount, "it holds {held} {resource}");
            }
            Ok(())
        })
        .await
    }

    /// Waits until a `ClusterQueue` holds so much CPU of its only flavor, as its status says.
    pub(crate) async fn wait_for_cpu_usage(&self, queue: &str, cpu: &str) -> Result<()> {
        eventually(format!("{queue} holds {cpu} CPU"), async || {
            let object = self.objects.must_get(Kind::CLUSTER_QUEUE, "", &self.own_name(queue)).await?;
            let held = text(&object, "/status/flavorsReservation/0/resources/0/total").to_owned();
            ensure!(held == cpu, "it holds {held}");
            Ok(())
        })
        .await
    }

    /// Sets fields of an object's spec.
    pub(crate) async fn set_spec(&self, kind: Kind, namespace: &str, name: &str, spec: Value) -> Result<()> {
        self.objects.merge(kind, namespace, name, &json!({"spec": spec})).await?;
        Ok(())
    }

    /// Sets fields of the spec of a Job's Workload.
    pub(crate) async fn set_workload_spec(&self, job: &str, spec: Value) -> Result<()> {
        let workload = self.workload(job).await?;
        self.set_spec(Kind::WORKLOAD, &self.name, text(&workload, "/metadata/name"), spec).await
    }

    /// Waits for a condition of a Job's Workload.
    pub(crate) async fn wait_for_condition(
        &self,
        job: &str,
        kind: &str,
        status: &str,
        reason: &str,
    ) -> Result<()> {
        eventually(format!("{job} has {kind}={status} ({reason})"), async || {
            expect_condition(&self.workload(job).await?, kind, status, reason)
        })
        .await
    }

    /// Removes a Job's pods as if their node were gone.
    pub(crate) fn force_delete_pods(&self, job: &str) -> Result<()> {
        self.kubectl
            .run(&[
                "delete",
                "pods",
                "-n",
                &self.name,
                "-l",
                &format!("job-name={job}"),
                "--force",
                "--grace-period=0",
            ])
            .map(drop)
    }

    /// Waits until the conditions of a `ClusterQueue` say that it is active.
    pub(crate) async fn wait_until_queue_active(&self, queue: &str) -> Result<()> {
        eventually(format!("{queue} is active"), async || {
            let object = self.objects.must_get(Kind::CLUSTER_QUEUE, "", &self.own_name(queue)).await?;
            let found = condition(&object, "Active");
            if found.status == "True" { Ok(()) } else { bail!("{}: {}", found.reason, found.message) }
        })
        .await
    }
}

/// An error unless the server refused with this code; its message is returned.
pub(crate) fn expect_refused<T>(outcome: kube::Result<T>, code: u16) -> Result<String> {
    match outcome {
        Ok(_) => bail!("it was accepted"),
        Err(kube::Error::Api(status)) if status.code == code => Ok(status.message.clone()),
        Err(error) => bail!("it was refused otherwise: {error}"),
    }
}
