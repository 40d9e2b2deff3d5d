//! A control plane on a recorded store, Sluice's manifests over Kueue's, and Sluice's manager with Kueue's configuration.

use super::judge::{Cluster, Judgement};
use super::revisions::Revisions;
use super::store::Store;
use crate::binaries::{self, Build};
use crate::control_plane::ControlPlane;
use crate::install::{self, NAMESPACE, V1BETA1, dial_locally};
use crate::kubectl::Kubectl;
use crate::manager::{Manager, ManagerSettings};
use crate::objects::{Kind, ObjectClient, condition_is_true, text};
use crate::process::free_ports;
use crate::wait::{eventually, within};
use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use std::time::Duration;

/// How long a manager works before the cluster is compared.
pub(super) const WORK: Duration = Duration::from_mins(1);
/// Name of Kueue's Deployment, and of Sluice's.
pub(super) const DEPLOYMENT: &str = "kueue-controller-manager";
/// Workloads that never fit, or whose queue admits nothing.
const NEVER: [&str; 6] = ["never", "adhoc-big", "tas-never", "held-", "lqhold-", "nowhere"];

/// A control plane on a store.
pub(super) struct Takeover<'a> {
    // Stops before the control plane.
    pub(super) manager: Option<Manager>,
    pub(super) store: &'a Store,
    pub(super) objects: ObjectClient,
    pub(super) kubectl: Kubectl,
    pub(super) plane: ControlPlane,
}

impl<'a> Takeover<'a> {
    /// Starts a control plane on a store.
    pub(super) async fn start(store: &'a Store) -> Result<Self> {
        let folder = ControlPlane::temporary_folder();
        let plane = ControlPlane::start_on(&store.folder, &folder).await?;
        let objects = ObjectClient::new(plane.admin().await?);
        let kubectl = Kubectl::new(&plane.binaries.path("kubectl"), &plane.admin_kubeconfig());
        Ok(Self { manager: None, store, objects, kubectl, plane })
    }

    /// Keeps the logs of all components.
    pub(super) const fn keep_files(&mut self) {
        self.plane.keep_folder();
    }

    /// Installs Sluice over Kueue and returns what its manager did that it must not do.
    pub(super) async fn and_end_jobs(&mut self) -> Result<Vec<String>> {
        let mut deviations = self.work_with_sluice().await?;
        let after = Cluster::read(&self.objects).await?;
        deviations.extend(self.end_jobs(&after).await?);
        Ok(deviations)
    }

    /// Installs Sluice over Kueue, lets its manager work and judges what has changed.
    pub(super) async fn work_with_sluice(&mut self) -> Result<Vec<String>> {
        let port = free_ports(1)?.first().copied().context("no port")?;
        self.end_lingering_pods().await.context("end pods")?;
        self.delete_deployment().await?;
        self.migrate_until_replaced("to-sluice").await?;
        self.install(port).await.context("install")?;
        self.manager = Some(self.start_manager(port).await.context("start")?);
        // The definitions have their last authority now, so that no watch is cut off; the manager still waits for the lease.
        let revisions = Revisions::start(&self.objects).await.context("watch")?;
        self.migrate_to_the_end("to-sluice").await?;
        println!("{}: Sluice's manager is ready", self.store.name);
        tokio::time::sleep(WORK).await;
        let after = Cluster::read(&self.objects).await?;
        let mut judgement = Judgement::new(self.store, &after);
        judgement.workloads();
        judgement.pods();
        judgement.others();
        revisions.judge(&mut judgement)?;
        Ok(judgement.into_deviations())
    }

    /// Says of the pods that KWOK never ends that they have ended, as their kubelets would. They are deleted and long past their grace
    /// period, so that Kueue and Sluice release the quota; while they use their nodes, what waits for the quota does not fit there.
    async fn end_lingering_pods(&self) -> Result<()> {
        for pod in self.objects.list(Kind::POD, "", "").await? {
            let lingers = !text(&pod, "/metadata/annotations/switch.example.com~1slow-stop").is_empty();
            if lingers && pod["metadata"]["deletionTimestamp"].is_string() {
                let (namespace, name) = (text(&pod, "/metadata/namespace"), text(&pod, "/metadata/name"));
                let ended = json!({"status": {"phase": "Failed"}});
                self.objects.merge_status(Kind::POD, namespace, name, &ended).await?;
            }
        }
        Ok(())
    }

    /// Applies Sluice's manifests over Kueue's, as a user does.
    async fn install(&self, port: u16) -> Result<()> {
        let mut components = self.store.components()?;
        // Kueue's definitions served it, and objects may be stored in it.
        components.push(V1BETA1.0.to_owned());
        let components: Vec<&str> = components.iter().map(String::as_str).collect();
        let all = install::manifests_with(&self.kubectl, &components)?;
        // The configuration is the user's.
        let kept = all.into_iter().filter(|object| text(object, "/metadata/name") != "kueue-manager-config");
        let all: Vec<Value> = kept.map(|object| on_host(dial_locally(object, port))).collect();
        self.apply_all(all).await
    }

    /// Deletes the manager's Deployment, whose selector cannot be changed.
    pub(super) async fn delete_deployment(&self) -> Result<()> {
        let api = &self.objects;
        api.delete(Kind::DEPLOYMENT, NAMESPACE, DEPLOYMENT, PropagationPolicy::Foreground).await?;
        eventually("the Deployment is gone", async || {
            let found = api.get(Kind::DEPLOYMENT, NAMESPACE, DEPLOYMENT).await?;
            ensure!(found.is_none(), "it exists");
            Ok(())
        })
        .await
    }

    /// Applies manifests as a user does: definitions first.
    pub(super) async fn apply_all(&self, all: Vec<Value>) -> Result<()> {
        let is_definition = |object: &Value| text(object, "/kind") == "CustomResourceDefinition";
        let (definitions, others): (Vec<Value>, Vec<Value>) = all.into_iter().partition(is_definition);
        self.apply(&definitions)?;
        for definition in &definitions {
            install::established(&self.objects, text(definition, "/metadata/name")).await?;
        }
        self.apply(&others)
    }

    fn apply(&self, objects: &[Value]) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let arguments = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        self.kubectl.run_with(&arguments, &list.to_string()).map(drop)
    }

    /// Returns the name of a pod of the manager's Deployment, as which the manager takes part in the election.
    pub(super) async fn shadow(&self) -> Result<String> {
        eventually("the Deployment has a pod", async || {
            let pods = self.objects.list(Kind::POD, NAMESPACE, "control-plane=controller-manager").await?;
            let pod = pods.iter().find(|pod| pod["metadata"]["deletionTimestamp"].is_null());
            Ok(text(pod.context("no pod")?, "/metadata/name").to_owned())
        })
        .await
    }

    async fn start_manager(&self, port: u16) -> Result<Manager> {
        let identity = format!("--identity={}_sluice", self.shadow().await?);
        let settings = ManagerSettings {
            name: "sluice".to_owned(),
            program: binaries::sluice(Build::Dev)?,
            webhook_port: port,
            configuration: self.store.configuration()?,
            flags: vec![V1BETA1.1.to_owned(), identity],
            api_server_url: None,
            namespace: NAMESPACE.to_owned(),
        };
        let manager = Manager::start(&self.plane, &settings).await?;
        manager.wait_until_ready().await?;
        Ok(manager)
    }

    /// Ends all running jobs, and those that start in their place; they finish, and everything that can be admitted is. Returns what
    /// is not so.
    pub(super) async fn end_jobs(&self, before: &Cluster) -> Result<Vec<String>> {
        let running: Vec<(String, String)> = before
            .of_kind("Job")
            .filter(|job| !text(job, "/metadata/labels/kueue.x-k8s.io~1queue-name").is_empty())
            .filter(|job| job["spec"]["suspend"] != true)
            .map(|job| (text(job, "/metadata/namespace").to_owned(), text(job, "/metadata/name").to_owned()))
            .collect();
        let ends = async || {
            let after = Cluster::read(&self.objects).await?;
            self.end_pods(&after).await?;
            let late = unfinished(&running, &after).into_iter().chain(waiting(self.store, &after));
            let late: Vec<String> = late.collect();
            ensure!(late.is_empty(), "{}", late.join("\n"));
            Ok(())
        };
        match within(2 * WORK, "jobs end, and what waits is admitted", ends).await {
            Ok(()) => Ok(Vec::new()),
            Err(error) => Ok(format!("{error:#}").lines().map(str::to_owned).collect()),
        }
    }

    /// Has the running pods of jobs and of groups succeed.
    async fn end_pods(&self, cluster: &Cluster) -> Result<()> {
        for pod in cluster.of_kind("Pod").filter(|pod| text(pod, "/status/phase") == "Running") {
            let (namespace, name) = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
            let owner = text(pod, "/metadata/ownerReferences/0/kind");
            let ends = !text(pod, "/metadata/annotations/switch.example.com~1run-for").is_empty();
            if !["", "Job", "Workload"].contains(&owner) || namespace == NAMESPACE || ends {
                continue;
            }
            let patch = json!({"metadata": {"annotations": {"switch.example.com/run-for": "1s"}}});
            self.objects.merge(Kind::POD, namespace, name, &patch).await?;
        }
        Ok(())
    }
}

/// Lets the pods of a Deployment, which KWOK plays, run on the node of the recorded manager, so that they take nothing from jobs.
pub(super) fn on_host(mut object: Value) -> Value {
    if text(&object, "/kind") == "Deployment" {
        let pod = &mut object["spec"]["template"]["spec"];
        pod["nodeSelector"] = json!({"host": "true"});
        pod["tolerations"] = json!([{"key": "host", "operator": "Exists"}]);
    }
    object
}

/// Jobs whose pods have ended and that have not, or whose Workload has not.
fn unfinished(jobs: &[(String, String)], after: &Cluster) -> Vec<String> {
    let mut found = Vec::new();
    for (namespace, name) in jobs {
        let Some(job) = after.get("Job", namespace, name) else { continue };
        // One that was stopped meanwhile starts again later.
        let stopped = job["spec"]["suspend"] == true;
        let ended = condition_is_true(job, "Complete") || condition_is_true(job, "Failed");
        let finished =
            after.workload_of(namespace, name).is_none_or(|workload| condition_is_true(workload, "Finished"));
        if !(stopped || ended && finished) {
            found.push(format!(
                "job {namespace}/{name}: ends when its pods have succeeded, ended: {ended}, its Workload: {finished}"
            ));
        }
    }
    found
}

/// Workloads that waited and still do although there is room.
fn waiting(store: &Store, after: &Cluster) -> Vec<String> {
    let mut found = Vec::new();
    for entry in store.expected["workloads"].as_array().into_iter().flatten() {
        let (namespace, name) = (text(entry, "/namespace"), text(entry, "/name"));
        let never = NEVER.iter().any(|word| name.trim_start_matches("job-").starts_with(word));
        if text(entry, "/after") != "open" || never {
            continue;
        }
        let Some(workload) = after.get("Workload", namespace, name) else { continue };
        if !condition_is_true(workload, "QuotaReserved") {
            let why = crate::objects::condition(workload, "QuotaReserved");
            found.push(format!(
                "workload {namespace}/{name}: admitted when there is room, waits, {}: {}",
                why.reason, why.message
            ));
        }
    }
    found
}
