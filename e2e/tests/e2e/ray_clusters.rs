//! Elastic RayClusters. The case plays KubeRay: it makes pods from the templates of the cluster, and deletes those beyond its size.

use crate::elastic_jobs::{GATE, QUOTA, check_revisions, is_gated};
use crate::fixture::Fixture;
use crate::history::History;
use crate::job_kinds::AllKinds;
use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, text};
use sluice_e2e::wait::eventually;

const CLUSTER: Kind = Kind::new("ray.io", "v1", "RayCluster", "rayclusters");
const NAME: &str = "grows";
/// Number of pods of another Job in the queue.
const OTHERS: i64 = 2;
const RESIZES: usize = 100;
/// Numbers of workers, in turn. Beside the head and the other Job, at most 5 have quota.
const SIZES: [i64; 7] = [5, 1, 7, 3, 0, 6, 2];

/// A RayCluster is resized a hundred times, sometimes beyond the quota, mostly before all pods of the last size have started or
/// ended. In each revision that the API server had, Workloads are charged no more than the quota, and no more pods of the cluster
/// are ungated than it is charged for.
pub(crate) async fn cluster_grows_and_shrinks_a_hundred_times(
    cluster: &mut Cluster,
    fixture: &Fixture,
) -> Result<()> {
    let installed = AllKinds::install(cluster, fixture).await?;
    fixture.create_queue("main", "", &[("cpu", "8", None)], json!({})).await?;
    let workloads = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    let pods = History::start(&fixture.objects, Kind::POD, &fixture.name).await?;
    fixture.submit(fixture.job("other", "main", "1").pods(2)).await?;
    fixture.wait_until_running("other").await?;
    fixture.objects.create(CLUSTER, &ray_cluster(&fixture.name)).await?;
    let started = eventually("the cluster is started", async || {
        let cluster = fixture.objects.must_get(CLUSTER, &fixture.name, NAME).await?;
        ensure!(cluster["spec"]["suspend"] == json!(false), "it is suspended");
        Ok(cluster)
    })
    .await?;
    let mut operator = Operator { fixture, cluster: started, made: 0 };
    operator.wait_until_settled(1).await?;
    let ready = json!({"status": {"state": "ready"}});
    fixture.objects.merge_status(CLUSTER, &fixture.name, NAME, &ready).await?;
    for (step, workers) in SIZES.iter().copied().cycle().take(RESIZES).enumerate() {
        operator.resize(workers).await?;
        operator.play().await?;
        if step % SIZES.len() == 3 {
            operator.wait_until_settled(workers).await?;
        }
    }
    operator.resize(5).await?;
    operator.wait_until_settled(5).await?;
    fixture.wait_for_queue_counts("main", (0, 2, 2), &[("cpu", "8")]).await?;
    // With the cluster its Workloads go at once, while the garbage collector ends the pods.
    let seen = check_revisions(&workloads.revisions()?, &pods.revisions()?, NAME)?;
    ensure!(seen == QUOTA - OTHERS, "at most {seen} pods were seen to run");
    let background = PropagationPolicy::Background;
    fixture.objects.delete(CLUSTER, &fixture.name, NAME, background).await?;
    fixture.wait_for_queue_counts("main", (0, 1, 1), &[("cpu", "2")]).await?;
    installed.remove(cluster, fixture).await
}

fn ray_cluster(namespace: &str) -> Value {
    let template = json!({"spec": {"terminationGracePeriodSeconds": 0, "containers": [
        {"name": "ray", "image": "registry.example/ray:1", "resources": {"requests": {"cpu": "1"}}}]}});
    json!({
        "metadata": {"name": NAME, "namespace": namespace, "annotations": {GATE: "true"},
            "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {
            "headGroupSpec": {"rayStartParams": {}, "template": template},
            "workerGroupSpecs": [{"groupName": "workers", "replicas": 1, "minReplicas": 0, "maxReplicas": 9,
                "rayStartParams": {}, "template": template}],
        },
    })
}

/// The operator of the cluster.
struct Operator<'a> {
    fixture: &'a Fixture,
    /// The cluster as it was started, in its present size.
    cluster: Value,
    /// Number of workers made so far.
    made: usize,
}

impl Operator<'_> {
    async fn resize(&mut self, workers: i64) -> Result<()> {
        let groups = &mut self.cluster["spec"]["workerGroupSpecs"];
        groups[0]["replicas"] = json!(workers);
        let patch = json!({"spec": {"workerGroupSpecs": groups}});
        self.fixture.objects.merge(CLUSTER, &self.fixture.name, NAME, &patch).await?;
        Ok(())
    }

    /// Returns the pods that are not being deleted, the head first, then workers in the order in which they were made.
    async fn pods(&self) -> Result<Vec<Value>> {
        let mut pods = self.fixture.objects.list(Kind::POD, &self.fixture.name, "ray=true").await?;
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        Ok(pods)
    }

    /// Makes the pods that are missing, or deletes the newest beyond the size.
    async fn play(&mut self) -> Result<()> {
        let group = &self.cluster["spec"]["workerGroupSpecs"][0];
        let replicas = usize::try_from(group["replicas"].as_i64().context("no replicas")?)?;
        let pods = self.pods().await?;
        if pods.is_empty() {
            self.make("head", &self.cluster["spec"]["headGroupSpec"]["template"]).await?;
        }
        let workers: Vec<&str> = pods.iter().skip(1).map(|pod| text(pod, "/metadata/name")).collect();
        for _ in workers.len()..replicas {
            self.made += 1;
            let name = format!("worker-{:03}", self.made);
            self.make(&name, &group["template"]).await?;
        }
        for name in workers.iter().skip(replicas) {
            let namespace = &self.fixture.name;
            self.fixture.objects.delete(Kind::POD, namespace, name, PropagationPolicy::Background).await?;
        }
        Ok(())
    }

    async fn make(&self, name: &str, template: &Value) -> Result<()> {
        let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["namespace"] = json!(self.fixture.name);
        pod["metadata"]["labels"]["ray"] = json!("true");
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": NAME,
            "uid": self.cluster["metadata"]["uid"], "controller": true}]);
        self.fixture.objects.create(Kind::POD, &pod).await?;
        Ok(())
    }

    /// Waits until all pods have their quota.
    async fn wait_until_settled(&mut self, workers: i64) -> Result<()> {
        let size = usize::try_from(workers + 1)?;
        eventually(format!("{size} pods of the cluster have quota"), async || {
            self.play().await?;
            let pods = self.pods().await?;
            let gated = pods.iter().filter(|pod| is_gated(pod)).count();
            ensure!((pods.len(), gated) == (size, 0), "{} pods, {gated} gated", pods.len());
            Ok(())
        })
        .await
    }
}
