//! A kubelet for one node: runs the pods that the scheduler assigns to it, as their specs say.
//!
//! It exists to run the shipped Deployment: containers get exactly their arguments, environment, volumes, limits and
//! probes. Pods have one container without init containers or hooks; anything else is an error in the kubelet's log.
//!
//! Invariants: a pod that is not ready leaves its EndpointSlices; a container whose liveness probe fails is restarted; a
//! deleted pod gets SIGTERM and its grace period; everything stops with the kubelet.

mod container;
pub mod network;
mod pod;
mod probe;
mod volumes;

use crate::objects::{Kind, ObjectClient, text};
use crate::process::ProcessGuard;
use anyhow::{Context as _, Result};
use kube::api::ListParams;
use network::PodNetwork;
use pod::{PodRunner, remove_when_deleted};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Label of nodes with a kubelet; KWOK leaves them alone.
pub const NODE_LABEL: &str = "e2e.sluice.dev/kubelet";
/// Interval at which pods are listed and looked at.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// Settings of a kubelet.
pub struct KubeletSettings {
    /// Name of its node.
    pub node: String,
    /// Folder for containers and volumes.
    pub folder: PathBuf,
    /// Root folders by image reference.
    pub images: BTreeMap<String, PathBuf>,
    /// Port of the API server on 127.0.0.1.
    pub api_port: u16,
}

/// State shared by the tasks of all pods.
struct NodeContext {
    objects: ObjectClient,
    settings: KubeletSettings,
    network: PodNetwork,
    guard: ProcessGuard,
    /// Incremented to have all tokens replaced.
    token_generation: watch::Receiver<u64>,
    /// Process of the container by pod name.
    pids: Mutex<BTreeMap<String, u32>>,
    errors: Mutex<Vec<String>>,
}

impl NodeContext {
    fn report(&self, pod: &str, error: &anyhow::Error) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.push(format!("pod {pod}: {error:#}"));
    }
}

/// A running kubelet. Dropping it stops all containers.
pub struct Kubelet {
    context: Arc<NodeContext>,
    token_generation: watch::Sender<u64>,
    task: tokio::task::JoinHandle<()>,
}

impl Kubelet {
    /// Registers the node and starts to run its pods.
    pub async fn start(objects: &ObjectClient, settings: KubeletSettings) -> Result<Self> {
        let network = PodNetwork::open(settings.api_port).await?;
        register_node(objects, &settings.node).await?;
        let (token_generation, generation) = watch::channel(0);
        let context = Arc::new(NodeContext {
            objects: objects.clone(),
            settings,
            network,
            guard: ProcessGuard::start()?,
            token_generation: generation,
            pids: Mutex::default(),
            errors: Mutex::default(),
        });
        let task = tokio::spawn(run(Arc::clone(&context)));
        Ok(Self { context, token_generation, task })
    }

    /// Requests new tokens for all pods, as a kubelet does before a token expires.
    pub fn rotate_tokens(&self) {
        self.token_generation.send_modify(|generation| *generation += 1);
    }

    /// Returns the pid of the program in the container of a pod.
    pub fn pid(&self, pod: &str) -> Result<u32> {
        let pids = self.context.pids.lock().unwrap_or_else(PoisonError::into_inner);
        pids.get(pod).copied().with_context(|| format!("pod {pod} has no container"))
    }

    /// Returns the folder of a pod: its volumes, the root of its container and its log.
    pub fn pod_folder(&self, pod: &str) -> PathBuf {
        self.context.settings.folder.join(pod)
    }

    /// Returns an error if a pod could not be run.
    pub fn check(&self) -> Result<()> {
        let errors = self.context.errors.lock().unwrap_or_else(PoisonError::into_inner);
        anyhow::ensure!(errors.is_empty(), "{}", errors.join("\n"));
        Ok(())
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Registers a node that is ready. Its status is never refreshed: the controllers wait a day for it.
async fn register_node(objects: &ObjectClient, name: &str) -> Result<()> {
    let labels = json!({NODE_LABEL: "", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"});
    objects.create(Kind::NODE, &json!({"metadata": {"name": name, "labels": labels}})).await?;
    let resources = json!({"cpu": "64", "memory": "64Gi", "pods": "110"});
    let now = jiff::Timestamp::now();
    let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
        "lastHeartbeatTime": format!("{now:.0}"), "lastTransitionTime": format!("{now:.0}")});
    let status = json!({"status": {"capacity": resources, "allocatable": resources, "conditions": [ready]}});
    objects.merge_status(Kind::NODE, "", name, &status).await?;
    // A new node has this taint until its controller has seen the status.
    objects.merge(Kind::NODE, "", name, &json!({"spec": {"taints": null}})).await?;
    Ok(())
}

/// Returns whether the API server says that an object does not exist.
fn is_missing(error: &anyhow::Error) -> bool {
    matches!(failed_call(error), Some(kube::Error::Api(status)) if status.code == 404)
}

/// Returns whether the API server does not answer, as while it restarts.
fn is_outage(error: &anyhow::Error) -> bool {
    failed_call(error).is_some_and(|call| match call {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        _ => true,
    })
}

fn failed_call(error: &anyhow::Error) -> Option<&kube::Error> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

async fn run(context: Arc<NodeContext>) {
    let mut runners = JoinSet::new();
    let mut known: BTreeMap<String, watch::Sender<Option<Value>>> = BTreeMap::new();
    loop {
        tokio::time::sleep(SYNC_INTERVAL).await;
        while runners.try_join_next().is_some() {}
        let params = ListParams::default().fields(&format!("spec.nodeName={}", context.settings.node));
        // The API server may be restarting; pods are looked at again.
        let Ok(pods) = context.objects.api(Kind::POD, "").list(&params).await else { continue };
        let pods = pods.items.iter().filter_map(|pod| serde_json::to_value(pod).ok());
        let pods: BTreeMap<String, Value> =
            pods.map(|pod| (text(&pod, "/metadata/uid").to_owned(), pod)).collect();
        known.retain(|uid, sender| {
            if !pods.contains_key(uid) {
                sender.send_replace(None);
            }
            pods.contains_key(uid)
        });
        for (uid, pod) in pods {
            if let Some(sender) = known.get(&uid) {
                sender.send_replace(Some(pod));
                continue;
            }
            let (sender, mut updates) = watch::channel(Some(pod.clone()));
            known.insert(uid, sender);
            let context = Arc::clone(&context);
            runners.spawn(async move {
                let name = text(&pod, "/metadata/name").to_owned();
                if let Err(error) = PodRunner::run(&context, pod, &mut updates).await {
                    context.report(&name, &error);
                    // Otherwise its namespace would never end.
                    if let Err(error) = remove_when_deleted(&context, updates).await {
                        context.report(&name, &error);
                    }
                }
                context.pids.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
            });
        }
    }
}
