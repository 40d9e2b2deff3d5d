//! Ungating: the time from an admission to the last gate gone, of pod groups and of a JobSet whose pods have a topology, beside
//! bare patches of as many pods by one client.
//!
//! All pods exist before they are admitted, so that nothing but ungating is measured. The bare patches change the same fields, with
//! as many requests at once as the manager has. Nothing else runs on the control plane: no pod is scheduled.

use super::api_server_only::ApiServerOnly;
use super::gate_watch::PassedWatch;
use super::racks;
use super::scenario::to_f64;
use crate::definitions;
use crate::kubectl::Kubectl;
use crate::manager::Manager;
use crate::objects::{Kind, ObjectClient, cluster_queue, local_queue, text};
use crate::process::ProcessUsage;
use crate::wait::within;
use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const JOB_SET: Kind = Kind::new("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets");
const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
/// Namespaces of the pods. Flavor, ClusterQueue and LocalQueue of each have the same name.
const GROUPS: &str = "groups";
const TOPOLOGY: &str = "topology";
const BARE: &str = "bare";
/// Concurrent requests: those of the manager.
const CLIENTS: usize = 16;
const TIMEOUT: Duration = Duration::from_mins(15);
/// Pods for which there is a node. Each has one CPU of its 96.
const PODS_PER_NODE: usize = 64;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Amounts {
    /// Number of pod groups.
    pub groups: usize,
    /// Pods of each.
    pub size: usize,
    /// Jobs of the JobSet.
    pub jobs: usize,
    /// Pods of each.
    pub job_size: usize,
    /// `clientConnection.qps` of the manager; negative: no limit. `None` is that of the shipped configuration.
    pub qps: Option<f64>,
}

/// One measurement.
#[derive(Clone, Debug)]
pub struct Ungating {
    /// From the admission of each Workload to the last gate of its pods gone, ascending.
    pub units: Vec<Duration>,
    /// From the admission of its Workload to the gate of each pod gone, ascending.
    pub pods: Vec<Duration>,
    /// From the first admission to the last gate gone.
    pub whole: Duration,
    /// The same pods by bare patches.
    pub bare: Duration,
    /// CPU time of the manager.
    pub cpu: Duration,
}

/// Runs both measurements and prints them; returns that of the groups and that of the JobSet. `controller` is the binary to measure.
pub async fn run(
    amounts: &Amounts,
    controller: Option<PathBuf>,
    folder: &Path,
) -> Result<(Ungating, Ungating)> {
    let mut configuration =
        json!({"integrations": {"frameworks": ["batch/job", "pod", "jobset.x-k8s.io/jobset"]}});
    if let Some(qps) = amounts.qps {
        configuration["clientConnection"] = json!({"qps": qps});
    }
    let cluster = ApiServerOnly::start(controller, folder, configuration).await?;
    let kubectl = Kubectl::new(&cluster.plane.binaries.path("kubectl"), &cluster.plane.admin_kubeconfig());
    definitions::permissive(&kubectl, &cluster.objects, JOB_SET).await?;
    let manager = Manager::start(&cluster.plane, &cluster.settings).await?;
    manager.wait_until_ready().await?;
    crate::cluster::wait_for_webhooks(&cluster.objects).await?;
    let bench = Bench { objects: &cluster.objects, manager: &manager };
    bench.objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": BARE}})).await?;
    let all = (amounts.groups * amounts.size, amounts.jobs * amounts.job_size);
    racks::create_nodes(bench.objects, all.1.div_ceil(PODS_PER_NODE)).await?;

    bench.create_queue(GROUPS, json!({})).await?;
    bench.create_groups(amounts).await?;
    let groups = bench.measure(GROUPS, all.0, amounts.groups, group_of).await?;
    let title = format!("{} pod groups of {}", amounts.groups, amounts.size);
    groups.print(&title);

    bench.create_queue(TOPOLOGY, racks::flavor()).await?;
    let workload = bench.create_job_set(amounts).await?;
    let job_set = bench.measure(TOPOLOGY, all.1, 1, move |_| workload.clone()).await?;
    job_set.print(&format!("a JobSet of {} Jobs of {} pods with a topology", amounts.jobs, amounts.job_size));
    manager.terminate();
    Ok((groups, job_set))
}

/// Returns the group of a pod, which is the name of its Workload.
fn group_of(pod: &str) -> String {
    pod.rsplit_once('-').map_or(pod, |(group, _)| group).to_owned()
}

impl Ungating {
    /// Returns how much longer it takes than the bare patches.
    pub fn ratio(&self) -> f64 {
        self.whole.as_secs_f64() / self.bare.as_secs_f64().max(f64::EPSILON)
    }

    fn print(&self, title: &str) {
        let seconds = |time: Duration| time.as_secs_f64();
        let at = |times: &[Duration], percent: usize| {
            let index = (times.len() * percent / 100).min(times.len().saturating_sub(1));
            seconds(times.get(index).copied().unwrap_or_default())
        };
        let rate = to_f64(self.pods.len()) / seconds(self.whole).max(f64::EPSILON);
        println!("{title}, {} pods", self.pods.len());
        println!(
            "  admission to last gate: p50 {:8.3} s, p99 {:8.3} s",
            at(&self.units, 50),
            at(&self.units, 99)
        );
        println!(
            "  admission to each gate: p50 {:8.3} s, p99 {:8.3} s",
            at(&self.pods, 50),
            at(&self.pods, 99)
        );
        println!("  first admission to last gate: {:8.3} s, {rate:.0} pods a second", seconds(self.whole));
        println!("  bare patches by one client:   {:8.3} s, ratio {:.2}", seconds(self.bare), self.ratio());
        println!("  sluice: CPU                   {:8.3} s", seconds(self.cpu));
    }
}

struct Bench<'a> {
    objects: &'a ObjectClient,
    manager: &'a Manager,
}

impl Bench<'_> {
    /// Creates a namespace with a queue that admits nothing yet.
    async fn create_queue(&self, name: &str, flavor: Value) -> Result<()> {
        self.objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": name}})).await?;
        self.objects.create(Kind::FLAVOR, &json!({"metadata": {"name": name}, "spec": flavor})).await?;
        let mut queue = cluster_queue(name, "", name, &[("cpu", "1000000", None)]);
        queue["spec"]["stopPolicy"] = json!("Hold");
        self.objects.create(Kind::CLUSTER_QUEUE, &queue).await?;
        self.objects.create(Kind::LOCAL_QUEUE, &local_queue(name, name, name)).await?;
        Ok(())
    }

    async fn create_pods(&self, pods: impl Iterator<Item = Value>) -> Result<()> {
        stream::iter(pods)
            .map(async |pod| self.objects.create(Kind::POD, &pod).await.map(drop))
            .buffer_unordered(CLIENTS)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(())
    }

    async fn create_groups(&self, amounts: &Amounts) -> Result<()> {
        let size = amounts.size;
        let pods = (0..amounts.groups).flat_map(|group| (0..size).map(move |member| (group, member)));
        self.create_pods(pods.map(|(group, member)| {
            let group = format!("group-{group}");
            let mut pod = pod(GROUPS, &format!("{group}-{member}"));
            pod["metadata"]["labels"] = json!({QUEUE_LABEL: GROUPS, "kueue.x-k8s.io/pod-group-name": group});
            let total = size.to_string();
            pod["metadata"]["annotations"] = json!({"kueue.x-k8s.io/pod-group-total-count": total});
            pod
        }))
        .await
    }

    /// Creates a JobSet, and the Jobs and pods that its controller would create; returns the name of its Workload.
    async fn create_job_set(&self, amounts: &Amounts) -> Result<String> {
        let spec = json!({"parallelism": amounts.job_size, "completions": amounts.job_size,
            "completionMode": "Indexed", "template": {
                "metadata": {"annotations": racks::preferred_topology()}, "spec": pod("", "")["spec"]}});
        let body = json!({
            "metadata": {"namespace": TOPOLOGY, "name": "job-set", "labels": {QUEUE_LABEL: TOPOLOGY}},
            "spec": {"suspend": true, "replicatedJobs": [
                {"name": "workers", "replicas": amounts.jobs, "template": {"spec": spec}}]},
        });
        let created = self.objects.create(JOB_SET, &body).await?;
        let workload = within(TIMEOUT, "the Workload of the JobSet", async || {
            let found = self.objects.list(Kind::WORKLOAD, TOPOLOGY, "").await?;
            Ok(text(found.first().context("there is none")?, "/metadata/name").to_owned())
        })
        .await?;
        for index in 0..amounts.jobs {
            let owned_by = owner(&created, "jobset.x-k8s.io/v1alpha2", "JobSet");
            let name = format!("job-set-workers-{index}");
            let mut suspended = spec.clone();
            suspended["suspend"] = json!(true);
            let job = json!({"metadata": {"namespace": TOPOLOGY, "name": name, "ownerReferences": [owned_by]},
                "spec": suspended});
            let job = self.objects.create(Kind::JOB, &job).await?;
            let pods = (0..amounts.job_size).map(|completion| {
                let mut pod = pod(TOPOLOGY, &format!("{name}-{completion}"));
                pod["metadata"]["ownerReferences"] = json!([owner(&job, "batch/v1", "Job")]);
                pod["metadata"]["annotations"] = json!({"kueue.x-k8s.io/workload": workload});
                pod["metadata"]["labels"] = json!({
                    "kueue.x-k8s.io/podset": "workers", "jobset.sigs.k8s.io/job-index": index.to_string(),
                    "batch.kubernetes.io/job-completion-index": completion.to_string(),
                });
                pod["spec"]["schedulingGates"] = json!([{"name": "kueue.x-k8s.io/topology"}]);
                pod
            });
            self.create_pods(pods).await?;
        }
        Ok(workload)
    }

    /// Lets a queue admit its Workloads, and measures until no pod has a gate. `workload_of` returns the Workload of a pod.
    async fn measure(
        &self,
        queue: &str,
        pods: usize,
        workloads: usize,
        workload_of: impl Fn(&str) -> String,
    ) -> Result<Ungating> {
        within(TIMEOUT, format!("{workloads} Workloads wait"), async || {
            let found = self.objects.list(Kind::WORKLOAD, queue, "").await?.len();
            ensure!(found == workloads, "there are {found}");
            Ok(())
        })
        .await?;
        let admissions = PassedWatch::admissions(self.objects, queue).await?;
        let ungated = PassedWatch::ungated_pods(self.objects, queue).await?;
        let pid = self.manager.process().identity().pid;
        let before = ProcessUsage::of_process(pid)?;
        let released = json!({"spec": {"stopPolicy": "None"}});
        self.objects.merge(Kind::CLUSTER_QUEUE, "", queue, &released).await?;
        within(TIMEOUT, format!("{pods} pods have no gate"), async || {
            let count = ungated.times()?.len();
            ensure!(count == pods, "{count} have none");
            Ok(())
        })
        .await?;
        let after = ProcessUsage::of_process(pid)?;
        let (admitted, ungated) = (admissions.times()?, ungated.times()?);
        let mut last = std::collections::BTreeMap::new();
        let mut times = Vec::new();
        for (pod, time) in &ungated {
            let workload = workload_of(pod);
            let start = admitted.get(&workload).with_context(|| format!("{workload} was not admitted"))?;
            let took = time.saturating_duration_since(*start);
            times.push(took);
            let longest = last.entry(workload).or_insert(took);
            *longest = took.max(*longest);
        }
        times.sort_unstable();
        let mut units: Vec<Duration> = last.into_values().collect();
        units.sort_unstable();
        let first = admitted.values().min().context("nothing was admitted")?;
        let end = ungated.values().max().context("no pod was ungated")?;
        Ok(Ungating {
            units,
            pods: times,
            whole: end.saturating_duration_since(*first),
            bare: self.patch_bare_pods(queue, pods).await?,
            cpu: after.cpu.saturating_sub(before.cpu),
        })
    }

    /// Returns how long one client takes to remove the gates of as many pods, which no controller has to do with.
    async fn patch_bare_pods(&self, prefix: &str, count: usize) -> Result<Duration> {
        let name = |number: usize| format!("{prefix}-{number}");
        self.create_pods((0..count).map(|number| {
            let mut pod = pod(BARE, &name(number));
            pod["spec"]["schedulingGates"] = json!([{"name": "example.com/bare"}]);
            pod
        }))
        .await?;
        let patch =
            json!({"spec": {"schedulingGates": [], "nodeSelector": {"kubernetes.io/hostname": "node"}}});
        let begun = Instant::now();
        stream::iter(0..count)
            .map(async |number| self.objects.merge(Kind::POD, BARE, &name(number), &patch).await.map(drop))
            .buffer_unordered(CLIENTS)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(begun.elapsed())
    }
}

fn owner(object: &Value, version: &str, kind: &str) -> Value {
    json!({"apiVersion": version, "kind": kind, "name": object["metadata"]["name"], "uid": object["metadata"]["uid"],
        "controller": true})
}

fn pod(namespace: &str, name: &str) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"restartPolicy": "Never", "containers": [
            {"name": "main", "image": "work:1", "resources": {"requests": {"cpu": "1"}}}]},
    })
}
