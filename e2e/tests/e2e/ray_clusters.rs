//! Elastic RayClusters. The case plays KubeRay: it makes pods from the templates of the cluster, and deletes those beyond its size.

use crate::elastic_jobs::{GATE, QUOTA, check_revisions};
use crate::fixture::Fixture;
use crate::history::History;
use crate::job_kinds::clear;
use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, text};
use sluice_e2e::wait::{eventually, is_soak_run};

const CLUSTER: Kind = Kind::new("ray.io", "v1", "RayCluster", "rayclusters");
const NAME: &str = "grows";
/// Number of pods of another Job in the queue.
const OTHERS: i64 = 2;
/// Label of pods with their group.
const GROUP: &str = "ray.io/group";
const HEAD: &str = "headgroup";
/// Number of resizes; a fourth of it outside soak runs.
const RESIZES: usize = 100;
/// Numbers of workers of both groups, in turn: one shrinks while the other one grows. Beside the head and the other Job, at most 5
/// have quota.
const SIZES: [[i64; 2]; 7] = [[5, 0], [1, 3], [4, 3], [0, 3], [3, 0], [1, 5], [2, 0]];

/// A RayCluster is resized again and again, sometimes beyond the quota, mostly before all pods of the last size have started or
/// ended. In each revision that the API server had, Workloads are charged no more than the quota, and no more pods of the cluster
/// are ungated than it is charged for.
pub(crate) async fn cluster_grows_and_shrinks_many_times(_: &mut Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "8", None)], json!({})).await?;
    let workloads = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    let pods = History::start(&fixture.objects, Kind::POD, &fixture.name).await?;
    fixture.submit(fixture.job("other", "main", "1").pods(2)).await?;
    fixture.wait_until_running("other").await?;
    let mut operator = Operator::start(fixture, &["workers", "others"], &[1, 0]).await?;
    operator.wait_until_settled().await?;
    let ready = json!({"status": {"state": "ready"}});
    fixture.objects.merge_status(CLUSTER, &fixture.name, NAME, &ready).await?;
    let resizes = if is_soak_run() { RESIZES } else { RESIZES / 4 };
    for (step, sizes) in SIZES.iter().copied().cycle().take(resizes).enumerate() {
        operator.resize(&sizes).await?;
        operator.play().await?;
        if step % SIZES.len() == 3 {
            operator.wait_until_settled().await?;
        }
    }
    operator.resize(&[3, 2]).await?;
    operator.wait_until_settled().await?;
    fixture.wait_for_queue_counts("main", (0, 2, 2), &[("cpu", "8")]).await?;
    // With the cluster its Workloads go at once, while the garbage collector ends the pods.
    let seen = check_revisions(&workloads.revisions()?, &pods.revisions()?, NAME)?;
    ensure!(seen == QUOTA - OTHERS, "at most {seen} pods were seen to run");
    operator.delete().await?;
    fixture.wait_for_queue_counts("main", (0, 1, 1), &[("cpu", "2")]).await?;
    clear(fixture).await
}

fn ray_cluster(namespace: &str, groups: &[&str], replicas: &[i64]) -> Value {
    let template = json!({"spec": {"terminationGracePeriodSeconds": 0, "containers": [
        {"name": "ray", "image": "registry.example/ray:1", "resources": {"requests": {"cpu": "1"}}}]}});
    let group = |(name, replicas): (&&str, &i64)| {
        json!({"groupName": name, "replicas": replicas, "minReplicas": 0, "maxReplicas": 9,
            "rayStartParams": {}, "template": template})
    };
    let groups: Vec<Value> = groups.iter().zip(replicas).map(group).collect();
    json!({
        "metadata": {"name": NAME, "namespace": namespace, "annotations": {GATE: "true"},
            "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {"headGroupSpec": {"rayStartParams": {}, "template": template}, "workerGroupSpecs": groups},
    })
}

/// The operator of the cluster.
pub(crate) struct Operator<'a> {
    fixture: &'a Fixture,
    /// The cluster as it was started, in its present size.
    cluster: Value,
    /// Number of workers made so far.
    made: usize,
}

impl<'a> Operator<'a> {
    /// Creates a cluster with these groups and numbers of workers, and waits until it is started.
    pub(crate) async fn start(fixture: &'a Fixture, groups: &[&str], replicas: &[i64]) -> Result<Self> {
        fixture.objects.create(CLUSTER, &ray_cluster(&fixture.name, groups, replicas)).await?;
        let cluster = eventually("the cluster is started", async || {
            let cluster = fixture.objects.must_get(CLUSTER, &fixture.name, NAME).await?;
            ensure!(cluster["spec"]["suspend"] == json!(false), "it is suspended");
            Ok(cluster)
        })
        .await?;
        Ok(Self { fixture, cluster, made: 0 })
    }

    /// Sets the numbers of workers of all groups.
    pub(crate) async fn resize(&mut self, replicas: &[i64]) -> Result<()> {
        let groups = &mut self.cluster["spec"]["workerGroupSpecs"];
        for (index, replicas) in replicas.iter().enumerate() {
            groups[index]["replicas"] = json!(replicas);
        }
        let patch = json!({"spec": {"workerGroupSpecs": groups}});
        self.fixture.objects.merge(CLUSTER, &self.fixture.name, NAME, &patch).await?;
        Ok(())
    }

    /// Returns the pods that are not being deleted, in the order of their names, which is that in which those of a group were made.
    pub(crate) async fn pods(&self) -> Result<Vec<Value>> {
        let mut pods = self.fixture.objects.list(Kind::POD, &self.fixture.name, GROUP).await?;
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        Ok(pods)
    }

    fn groups(&self) -> Result<&Vec<Value>> {
        self.cluster["spec"]["workerGroupSpecs"].as_array().context("no groups")
    }

    /// Makes the pods that are missing, or deletes the newest beyond the size of their group.
    async fn play(&mut self) -> Result<()> {
        let pods = self.pods().await?;
        if pods.is_empty() {
            self.make("head", HEAD, &self.cluster["spec"]["headGroupSpec"]["template"]).await?;
        }
        for group in self.groups()?.clone() {
            let (name, replicas) = (text(&group, "/groupName"), replicas_of(&group)?);
            let workers: Vec<&str> = pods
                .iter()
                .filter(|pod| group_of(pod) == name)
                .map(|pod| text(pod, "/metadata/name"))
                .collect();
            for _ in workers.len()..replicas {
                self.made += 1;
                self.make(&format!("worker-{:03}", self.made), name, &group["template"]).await?;
            }
            for name in workers.iter().skip(replicas) {
                let namespace = &self.fixture.name;
                self.fixture
                    .objects
                    .delete(Kind::POD, namespace, name, PropagationPolicy::Background)
                    .await?;
            }
        }
        Ok(())
    }

    async fn make(&self, name: &str, group: &str, template: &Value) -> Result<()> {
        let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["namespace"] = json!(self.fixture.name);
        pod["metadata"]["labels"][GROUP] = json!(group);
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": NAME,
            "uid": self.cluster["metadata"]["uid"], "controller": true}]);
        self.fixture.objects.create(Kind::POD, &pod).await?;
        Ok(())
    }

    /// Waits until the cluster has all its pods and no others, and none has a gate.
    pub(crate) async fn wait_until_settled(&mut self) -> Result<()> {
        let mut size = 1;
        for group in self.groups()? {
            size += replicas_of(group)?;
        }
        eventually(format!("{size} pods of the cluster have no gate"), async || {
            self.play().await?;
            let pods = self.pods().await?;
            let gated = pods.iter().filter(|pod| pod["spec"].get("schedulingGates").is_some()).count();
            ensure!((pods.len(), gated) == (size, 0), "{} pods, {gated} gated", pods.len());
            Ok(())
        })
        .await
    }

    pub(crate) async fn delete(self) -> Result<()> {
        let background = PropagationPolicy::Background;
        Ok(self.fixture.objects.delete(CLUSTER, &self.fixture.name, NAME, background).await?)
    }
}

fn replicas_of(group: &Value) -> Result<usize> {
    Ok(usize::try_from(group["replicas"].as_i64().context("no replicas")?)?)
}

/// Returns the group that a pod of a cluster is in.
pub(crate) fn group_of(pod: &Value) -> &str {
    pod["metadata"]["labels"][GROUP].as_str().unwrap_or_default()
}
