//! The environment of one case: its own namespace and unique names for its cluster-scoped objects.

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
    /// Client with administrator rights.
    pub(crate) objects: ObjectClient,
    pub(crate) kubectl: Kubectl,
    /// Namespace of the case, and name prefix of its cluster-scoped objects.
    pub(crate) name: String,
    created: RefCell<Vec<(Kind, String)>>,
}

impl Fixture {
    pub(crate) fn new(cluster: &Cluster, case: &str) -> Self {
        Self::on(&cluster.objects, &cluster.kubectl, case)
    }

    /// Returns the environment of a case that has a control plane of its own.
    pub(crate) fn on(objects: &ObjectClient, kubectl: &Kubectl, case: &str) -> Self {
        let name = case.rsplit("::").next().unwrap_or(case).replace('_', "-");
        Self {
            objects: objects.clone(),
            kubectl: kubectl.clone(),
            name: name.chars().take(40).collect::<String>().trim_end_matches('-').to_owned(),
            created: RefCell::default(),
        }
    }

    /// Creates the namespace and the flavor "any".
    pub(crate) async fn prepare(&self) -> Result<()> {
        self.create_namespace(&self.name, &json!({})).await?;
        self.create_flavor("any", json!({})).await.map(drop)
    }

    /// Deletes everything the case created, in the order that finalizers require.
    pub(crate) async fn clean_up(&self) -> Result<()> {
        let created = self.created.take();
        let namespaces: Vec<&String> =
            created.iter().filter(|object| object.0 == Kind::NAMESPACE).map(|object| &object.1).collect();
        for namespace in namespaces {
            for kind in [Kind::JOB, Kind::WORKLOAD] {
                for object in self.objects.list(kind, namespace, "").await? {
                    let name = text(&object, "/metadata/name");
                    self.objects.delete(kind, namespace, name, PropagationPolicy::Background).await?;
                }
            }
            eventually(format!("the workloads in {namespace} are deleted"), async || {
                let left = self.objects.list(Kind::WORKLOAD, namespace, "").await?;
                ensure!(left.is_empty(), "{} still exist", left.len());
                Ok(())
            })
            .await?;
        }
        for (kind, name) in created.iter().rev() {
            self.objects.delete(*kind, "", name, PropagationPolicy::Background).await?;
        }
        // The manager still removes finalizers. A later case that counts its writes must not see these.
        for (kind, name) in created.iter().filter(|(kind, _)| *kind != Kind::NAMESPACE) {
            eventually(format!("{} {name} is deleted", kind.resource()), async || {
                let left = self.objects.get(*kind, "", name).await?;
                ensure!(left.is_none(), "{left:?}");
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Prefixes a name with the case's name, which makes it unique.
    pub(crate) fn own_name(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    async fn create_and_track(&self, kind: Kind, body: Value) -> Result<String> {
        let name = text(&body, "/metadata/name").to_owned();
        self.objects.create(kind, &body).await.with_context(|| body.to_string())?;
        self.created.borrow_mut().push((kind, name.clone()));
        Ok(name)
    }

    /// Creates a namespace and waits for its default service account.
    pub(crate) async fn create_namespace(&self, name: &str, labels: &Value) -> Result<()> {
        self.create_and_track(Kind::NAMESPACE, json!({"metadata": {"name": name, "labels": labels}})).await?;
        eventually("the default service account exists", async || {
            self.objects.must_get(Kind::SERVICE_ACCOUNT, name, "default").await.map(drop)
        })
        .await
    }

    /// Creates a flavor; returns its full name.
    pub(crate) async fn create_flavor(&self, name: &str, spec: Value) -> Result<String> {
        self.create_and_track(Kind::FLAVOR, json!({"metadata": {"name": self.own_name(name)}, "spec": spec}))
            .await
    }

    /// Creates a priority class; returns its full name.
    pub(crate) async fn create_priority_class(&self, name: &str, value: i32) -> Result<String> {
        self.create_and_track(
            Kind::PRIORITY_CLASS,
            json!({"metadata": {"name": self.own_name(name)}, "value": value}),
        )
        .await
    }

    /// Creates a cohort with flavor "any"; returns its full name.
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

    /// Creates a `ClusterQueue` with flavor "any" and these `spec` fields, and a `LocalQueue` of the same short name;
    /// returns the full name of the ClusterQueue.
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
        let full_name = self.create_and_track(Kind::CLUSTER_QUEUE, body).await?;
        self.objects.create(Kind::LOCAL_QUEUE, &objects::local_queue(&self.name, name, &full_name)).await?;
        Ok(full_name)
    }

    /// Creates a cluster-scoped object that `clean_up` deletes.
    pub(crate) async fn create_tracked(&self, kind: Kind, body: Value) -> Result<String> {
        self.create_and_track(kind, body).await
    }

    /// Builds a Job with one pod that requests only CPU and runs until `finish_job`.
    pub(crate) fn job(&self, name: &str, queue: &str, cpu: &str) -> Job {
        Job::new(&self.name, name, queue, &[("cpu", cpu)])
    }

    pub(crate) async fn submit(&self, job: Job) -> Result<()> {
        self.objects.create(Kind::JOB, job.body()).await?;
        Ok(())
    }

    /// Returns the Workload of a Job; an error unless there is exactly one.
    pub(crate) async fn workload(&self, job: &str) -> Result<Value> {
        let job = self.objects.must_get(Kind::JOB, &self.name, job).await?;
        let selector = format!("kueue.x-k8s.io/job-uid={}", text(&job, "/metadata/uid"));
        let found = self.objects.list(Kind::WORKLOAD, &self.name, &selector).await?;
        ensure!(found.len() <= 1, "{} has {} Workloads", text(&job, "/metadata/name"), found.len());
        found.into_iter().next().with_context(|| format!("{} has no Workload", text(&job, "/metadata/name")))
    }

    /// Returns the pods of a Job.
    pub(crate) async fn pods(&self, job: &str) -> Result<Vec<Value>> {
        Ok(self.objects.list(Kind::POD, &self.name, &format!("job-name={job}")).await?)
    }

    /// Waits until a Job is admitted and all its pods are ready.
    pub(crate) async fn wait_until_running(&self, job: &str) -> Result<()> {
        eventually(format!("{job} is running"), async || {
            let workload = self.workload(job).await?;
            expect_condition(&workload, "QuotaReserved", "True", "QuotaReserved")?;
            expect_condition(&workload, "Admitted", "True", "Admitted")?;
            let object = self.objects.must_get(Kind::JOB, &self.name, job).await?;
            ensure!(object["spec"]["suspend"] == json!(false), "{job} is suspended");
            let expected = number(&object, "/spec/parallelism");
            ensure!(number(&object, "/status/ready") == expected, "not all pods are ready");
            // The Job's status counts deleted pods until its controller has seen the deletion.
            let is_ready = |pod: &&Value| {
                pod["metadata"]["deletionTimestamp"].is_null() && condition_is_true(pod, "Ready")
            };
            let ready = self.pods(job).await?.iter().filter(is_ready).count();
            ensure!(i64::try_from(ready)? == expected, "{ready} pods are ready");
            Ok(())
        })
        .await
    }

    /// Like `wait_until_running`, and waits until the Workload has PodsReady=True; once finished it would never get it.
    pub(crate) async fn wait_until_running_and_reported(&self, job: &str) -> Result<()> {
        self.wait_until_running(job).await?;
        self.wait_for_condition(job, "PodsReady", "True", "Started").await
    }

    /// Waits until a Job's Workload reports this pending reason ("" for any), and checks that the Job has no pod.
    pub(crate) async fn wait_until_pending(&self, job: &str, reason: &str) -> Result<()> {
        eventually(format!("{job} is pending: {reason}"), async || {
            expect_condition(&self.workload(job).await?, "QuotaReserved", "False", reason)
        })
        .await?;
        self.check_pending(job).await
    }

    /// Checks that a Job has neither quota nor a pod now.
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

    /// Checks that no event in the namespace has this reason.
    pub(crate) async fn expect_no_warning_of(&self, reason: &str) -> Result<()> {
        let events = self.objects.list(Kind::EVENT, &self.name, "").await?;
        let warnings: Vec<&str> = events
            .iter()
            .filter(|event| text(event, "/reason") == reason)
            .map(|event| text(event, "/note"))
            .collect();
        ensure!(warnings.is_empty(), "{} events {reason}: {warnings:?}", warnings.len());
        Ok(())
    }

    /// Makes the pods of a Job succeed and waits until its Workload has finished.
    pub(crate) async fn finish_job(&self, job: &str) -> Result<()> {
        for pod in self.pods(job).await? {
            let patch = json!({"metadata": {"annotations": {"sluice.dev/run-for": "0s"}}});
            self.objects.merge(Kind::POD, &self.name, text(&pod, "/metadata/name"), &patch).await?;
        }
        self.wait_until_finished(job, "Succeeded").await
    }

    /// Waits until the Workload of a Job has finished with this reason.
    pub(crate) async fn wait_until_finished(&self, job: &str, reason: &str) -> Result<()> {
        eventually(format!("{job} has finished"), async || {
            expect_condition(&self.workload(job).await?, "Finished", "True", reason)
        })
        .await
    }

    /// Waits until the status of a `ClusterQueue` shows these counts of pending, reserving and admitted workloads, and
    /// these totals of reserved resources.
    pub(crate) async fn wait_for_queue_counts(
        &self,
        queue: &str,
        counts: (i64, i64, i64),
        total: &[(&str, &str)],
    ) -> Result<()> {
        eventually(format!("{queue} counts {counts:?} and reserves {total:?}"), async || {
            let object = self.objects.must_get(Kind::CLUSTER_QUEUE, "", &self.own_name(queue)).await?;
            let found = (
                number(&object, "/status/pendingWorkloads"),
                number(&object, "/status/reservingWorkloads"),
                number(&object, "/status/admittedWorkloads"),
            );
            ensure!(found == counts, "{queue} counts {found:?}");
            let resources =
                object.pointer("/status/flavorsReservation/0/resources").and_then(Value::as_array);
            for (resource, amount) in total {
                let entry =
                    resources.and_then(|all| all.iter().find(|entry| text(entry, "/name") == *resource));
                let reserved = entry.map_or("nothing", |entry| text(entry, "/total"));
                ensure!(reserved == *amount, "{queue} reserves {reserved} {resource}");
            }
            Ok(())
        })
        .await
    }

    /// Waits until the status of a `ClusterQueue` shows this much reserved CPU of its only flavor.
    pub(crate) async fn wait_for_cpu_usage(&self, queue: &str, cpu: &str) -> Result<()> {
        eventually(format!("{queue} reserves {cpu} CPU"), async || {
            let object = self.objects.must_get(Kind::CLUSTER_QUEUE, "", &self.own_name(queue)).await?;
            let reserved = text(&object, "/status/flavorsReservation/0/resources/0/total").to_owned();
            ensure!(reserved == cpu, "{queue} reserves {reserved}");
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

    /// Force-deletes a Job's pods, as if their node were gone.
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

    /// Waits until a `ClusterQueue` has Active=True.
    pub(crate) async fn wait_until_queue_active(&self, queue: &str) -> Result<()> {
        eventually(format!("{queue} is active"), async || {
            let object = self.objects.must_get(Kind::CLUSTER_QUEUE, "", &self.own_name(queue)).await?;
            let found = condition(&object, "Active");
            if found.status == "True" { Ok(()) } else { bail!("{}: {}", found.reason, found.message) }
        })
        .await
    }
}

/// Returns the server's message if it refused the request with this code, otherwise an error.
pub(crate) fn expect_refused<T>(outcome: kube::Result<T>, code: u16) -> Result<String> {
    match outcome {
        Ok(_) => bail!("the request was accepted"),
        Err(kube::Error::Api(status)) if status.code == code => Ok(status.message.clone()),
        Err(error) => bail!("the request failed with another error: {error}"),
    }
}
