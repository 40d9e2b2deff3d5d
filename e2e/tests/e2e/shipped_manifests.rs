//! The shipped manifests as they are, on a control plane of their own: a kubelet runs the Deployment's pods, and the API
//! server calls the webhooks through their Service, at the addresses in its EndpointSlices.

use crate::cases::{NotRun, note};
use crate::fixture::Fixture;
use crate::image;
use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::EvictParams;
use serde_json::{Value, json};
use sluice_e2e::cluster::{Cluster, wait_for_webhooks};
use sluice_e2e::control_plane::{ControlPlane, Extent};
use sluice_e2e::install::{self, NAMESPACE};
use sluice_e2e::kubeconfig::{client_without_retries, token_id};
use sluice_e2e::kubectl::Kubectl;
use sluice_e2e::kubelet::{Kubelet, KubeletSettings, network};
use sluice_e2e::objects::{self, Job, Kind, ObjectClient, condition_is_true, number, text};
use sluice_e2e::process::tail;
use sluice_e2e::wait::{eventually, within};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time for a Deployment to replace its pods.
const ROLLOUT_TIMEOUT: Duration = Duration::from_mins(2);
/// The client reads its token file at least this often, with a margin.
const TOKEN_RELOAD: Duration = Duration::from_mins(3);
/// Another reference to the same image.
const OTHER_IMAGE: &str = "sluice:other";
pub(crate) const TAINT: &str = "e2e.sluice.dev/simulated";
const WEBHOOK_SERVICE: &str = "kueue-webhook-service";
const WORK: &str = "work";

/// The installed manifests on their own control plane.
pub(crate) struct Installation {
    // Dropped first: the containers are clients of the control plane.
    pub(crate) kubelet: Kubelet,
    pub(crate) objects: ObjectClient,
    pub(crate) kubectl: Kubectl,
    pub(crate) plane: ControlPlane,
    /// Names of the Deployments, and the container image.
    deployments: Vec<String>,
    image: String,
}

/// The Deployment starts as rendered; its replicas admit a Job, are confined, restarted and taken out of the Service by
/// their probes, follow a rotated token, and are replaced and evicted without a failed create. So are they when the webhooks
/// become a Deployment of their own.
pub(crate) async fn deployment_runs_as_rendered(_: &mut Cluster, _: &Fixture) -> Result<()> {
    run_installed("default", &[]).await
}

/// The same with webhooks and controller as two Deployments.
pub(crate) async fn split_deployments_run_as_rendered(_: &mut Cluster, _: &Fixture) -> Result<()> {
    run_installed("split", &["split"]).await
}

async fn run_installed(name: &str, components: &[&str]) -> Result<()> {
    check_support()?;
    let (mut installation, manifests) = Installation::prepare(name, components).await?;
    let mut outcome = installation.install(manifests).await;
    if outcome.is_ok() {
        outcome = installation.check_all().await;
    }
    if outcome.is_ok() && components.is_empty() {
        outcome = installation.split_under_load().await;
    }
    installation.report(outcome).await
}

/// An error `NotRun` where this machine cannot run the kubelet or pack the image.
pub(crate) fn check_support() -> Result<()> {
    if let Some(reason) = network::unsupported() {
        return Err(NotRun::because(format_args!("this machine forbids network namespaces: {reason}")));
    }
    image::check_packing()
}

impl Installation {
    /// Starts a control plane with a kubelet. Returns the objects of a kustomization, none of which is installed yet.
    pub(crate) async fn prepare(name: &str, components: &[&str]) -> Result<(Self, Vec<Value>)> {
        let mut installation = Self::with_images(name, |folder| {
            image::unpack_image(folder)?;
            Ok(BTreeMap::from([(OTHER_IMAGE.to_owned(), folder.to_owned())]))
        })
        .await?;
        let all = install::manifests_with(&installation.kubectl, components)?;
        installation.expect(&all)?;
        Ok((installation, all))
    }

    /// Starts a control plane with a kubelet that has these images by their references, and Sluice's own; `unpack` writes that into
    /// the folder and returns the others.
    pub(crate) async fn with_images(
        name: &str,
        unpack: impl FnOnce(&Path) -> Result<BTreeMap<String, PathBuf>>,
    ) -> Result<Self> {
        let folder = ControlPlane::temporary_folder().with_extension(format!("manifests-{name}"));
        let plane = ControlPlane::start(Extent::Full, &folder).await?;
        let objects = ObjectClient::new(plane.admin().await?);
        let kubectl = Kubectl::new(&plane.binaries.path("kubectl"), &plane.admin_kubeconfig());
        let (deployments, image) = deployments_of(&install::manifests(&kubectl)?)?;
        let root = folder.join("image");
        let mut images = unpack(&root)?;
        images.insert(image.clone(), root);
        let settings = KubeletSettings {
            node: "worker".to_owned(),
            folder: folder.join("pods"),
            images,
            api_port: plane.server().rsplit(':').next().context("no port")?.parse()?,
        };
        let kubelet = Kubelet::start(&objects, settings).await?;
        let taint = json!([{"key": TAINT, "effect": "NoSchedule"}]);
        let simulated =
            json!({"metadata": {"name": "simulated", "labels": {TAINT: ""}}, "spec": {"taints": taint}});
        objects.create(Kind::NODE, &simulated).await?;
        Ok(Self { kubelet, objects, kubectl, plane, deployments, image })
    }

    /// Waits from now on for the Deployments of these manifests.
    fn expect(&mut self, all: &[Value]) -> Result<()> {
        let (deployments, image) = deployments_of(all)?;
        ensure!(image == self.image, "another image: {image}");
        self.deployments = deployments;
        Ok(())
    }

    /// Applies all objects of a kustomization and waits until its Deployments are available.
    pub(crate) async fn install(&self, all: Vec<Value>) -> Result<()> {
        install::install_unchanged(&self.kubectl, &self.objects, all).await?;
        self.wait_for_rollout("start").await?;
        wait_for_webhooks(&self.objects).await
    }

    /// Keeps the logs of a failed case, and prints their ends.
    pub(crate) async fn report(&mut self, outcome: Result<()>) -> Result<()> {
        if outcome.is_err() {
            self.plane.keep_folder();
            for pod in self.pods().await.unwrap_or_default() {
                let name = text(&pod, "/metadata/name");
                let log = self.kubelet.pod_folder(name).join("log");
                note(format_args!("pod {name}: {}\n{}", pod["status"]["conditions"], tail(&log, 15)));
            }
        }
        outcome
    }

    async fn check_all(&self) -> Result<()> {
        self.admit_job().await?;
        self.check_confinement().await?;
        self.rotate_tokens().await?;
        self.stop_answering().await?;
        self.replace_under_load().await?;
        self.kubelet.check()
    }

    /// Returns the pods of the Deployments that are not being deleted.
    pub(crate) async fn pods(&self) -> Result<Vec<Value>> {
        let mut pods = self.objects.list(Kind::POD, NAMESPACE, "app.kubernetes.io/name=kueue").await?;
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        Ok(pods)
    }

    /// Returns the addresses that the webhook Service sends requests to.
    async fn endpoints(&self) -> Result<BTreeSet<String>> {
        let selector = format!("kubernetes.io/service-name={WEBHOOK_SERVICE}");
        let slices = self.objects.list(Kind::ENDPOINT_SLICE, NAMESPACE, &selector).await?;
        let endpoints = slices.iter().flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
        let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true);
        Ok(ready.map(|endpoint| text(endpoint, "/addresses/0").to_owned()).collect())
    }

    /// Waits until all Deployments run their newest template only, with all replicas available.
    async fn wait_for_rollout(&self, what: &str) -> Result<()> {
        within(ROLLOUT_TIMEOUT, format!("{what}: the Deployments are available"), async || {
            self.kubelet.check()?;
            for name in &self.deployments {
                let deployment = self.objects.must_get(Kind::DEPLOYMENT, NAMESPACE, name).await?;
                let count = |field: &str| number(&deployment, &format!("/status/{field}"));
                let replicas = number(&deployment, "/spec/replicas");
                ensure!(
                    count("observedGeneration") == number(&deployment, "/metadata/generation")
                        && count("updatedReplicas") == replicas
                        && count("replicas") == replicas
                        && count("availableReplicas") == replicas,
                    "{name}: {}",
                    deployment["status"]
                );
            }
            Ok(())
        })
        .await
    }

    /// A Job is suspended, admitted and finished.
    async fn admit_job(&self) -> Result<()> {
        self.objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": WORK}})).await?;
        self.objects.create(Kind::FLAVOR, &json!({"metadata": {"name": "any"}})).await?;
        for (queue, cpu) in [("open", "1"), ("closed", "0")] {
            let body = objects::cluster_queue(queue, "", "any", &[("cpu", cpu, None)]);
            self.objects.create(Kind::CLUSTER_QUEUE, &body).await?;
            self.objects.create(Kind::LOCAL_QUEUE, &objects::local_queue(WORK, queue, queue)).await?;
        }
        let tolerations = json!([{"key": TAINT, "operator": "Exists"}]);
        let job = Job::new(WORK, "sample", "open", &[("cpu", "1")]).runs_for("1s");
        let created = self.objects.create(Kind::JOB, job.pod_spec("tolerations", tolerations).body()).await?;
        ensure!(created["spec"]["suspend"] == true, "the Job was not suspended: {}", created["spec"]);
        eventually("the Job has finished", async || {
            let job = self.objects.must_get(Kind::JOB, WORK, "sample").await?;
            ensure!(condition_is_true(&job, "Complete"), "{}", job["status"]);
            Ok(())
        })
        .await
    }

    /// The processes run as the pods say: user, capabilities, arguments, memory limit, a root that is read-only.
    async fn check_confinement(&self) -> Result<()> {
        for pod in self.pods().await? {
            let pid = self.kubelet.pid(text(&pod, "/metadata/name"))?;
            let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
            let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            ensure!(field("Uid:") == Some("65532\t65532\t65532\t65532"), "{:?}", field("Uid:"));
            ensure!(field("CapEff:") == Some("0000000000000000"), "{:?}", field("CapEff:"));
            ensure!(field("CapBnd:") == Some("0000000000000000"), "{:?}", field("CapBnd:"));
            ensure!(field("CapPrm:") == Some("0000000000000000"), "{:?}", field("CapPrm:"));
            ensure!(field("NoNewPrivs:") == Some("1"), "{:?}", field("NoNewPrivs:"));
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline"))?;
            let line: Vec<&str> = line.trim_end_matches('\0').split('\0').collect();
            let container = &pod["spec"]["containers"][0];
            let words = ["command", "args"].map(|field| container[field].as_array().into_iter().flatten());
            let words: Vec<&Value> = words.into_iter().flatten().collect();
            ensure!(json!(line) == json!(words), "the process is {line:?}, not {words:?}");
            let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo"))?;
            let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/")).context("no root")?;
            ensure!(root.split(' ').nth(5).is_some_and(|options| options.starts_with("ro")), "{root}");
        }
        Ok(())
    }

    /// Replaces the tokens. Waits until the API server has seen each, in requests of the manager.
    async fn rotate_tokens(&self) -> Result<()> {
        let before = self.token_ids().await?;
        self.kubelet.rotate_tokens();
        let after = eventually("the tokens are replaced", async || {
            let after = self.token_ids().await?;
            ensure!(after.is_disjoint(&before), "{after:?}");
            Ok(after)
        })
        .await?;
        let begun = Instant::now();
        within(TOKEN_RELOAD, "the new tokens are used", async || {
            let log = fs::read_to_string(self.plane.audit_log())?;
            // The credential of a request; the request that issued the token names it otherwise.
            let is_unused = |id: &&String| !log.contains(&format!(r#"["JTI={id}"]"#));
            let unused: Vec<&String> = after.iter().filter(is_unused).collect();
            ensure!(unused.is_empty(), "not used: {unused:?}");
            Ok(())
        })
        .await?;
        note(format_args!("rotated tokens were in use after {} s", begun.elapsed().as_secs()));
        Ok(())
    }

    /// Returns the ids of the mounted tokens that are for the API server.
    async fn token_ids(&self) -> Result<BTreeSet<String>> {
        let mut ids = BTreeSet::new();
        for pod in self.pods().await? {
            let volumes = self.kubelet.pod_folder(text(&pod, "/metadata/name")).join("volumes");
            for volume in fs::read_dir(volumes)? {
                let volume = volume?;
                let token = volume.path().join("token");
                if volume.file_name().to_string_lossy().starts_with("kube-api-access-") && token.exists() {
                    ids.insert(token_id(&fs::read_to_string(token)?)?);
                }
            }
        }
        Ok(ids)
    }

    /// A replica that hangs leaves the Service, is restarted by its liveness probe, and comes back.
    async fn stop_answering(&self) -> Result<()> {
        let all = self.endpoints().await?;
        ensure!(all.len() == 2, "endpoints: {all:?}");
        let pods = self.pods().await?;
        let pod =
            pods.iter().find(|pod| all.contains(text(pod, "/status/podIP"))).context("no pod serves")?;
        let (name, address) = (text(pod, "/metadata/name"), text(pod, "/status/podIP"));
        let begun = Instant::now();
        let stopped = Command::new("kill").args(["-STOP", &self.kubelet.pid(name)?.to_string()]).status()?;
        ensure!(stopped.success(), "cannot stop the process");
        eventually("the replica that hangs leaves the Service", async || {
            let endpoints = self.endpoints().await?;
            ensure!(!endpoints.contains(address) && !endpoints.is_empty(), "{endpoints:?}");
            Ok(())
        })
        .await?;
        let left = begun.elapsed();
        eventually("the replica is restarted and serves again", async || {
            self.kubelet.check()?;
            let pod = self.objects.must_get(Kind::POD, NAMESPACE, name).await?;
            ensure!(number(&pod, "/status/containerStatuses/0/restartCount") == 1, "{}", pod["status"]);
            ensure!(self.endpoints().await? == all, "{}", pod["status"]);
            Ok(())
        })
        .await?;
        note(format_args!(
            "a replica that hangs: out of the Service after {:.0} s, serving again after {:.0} s",
            left.as_secs_f64(),
            begun.elapsed().as_secs_f64()
        ));
        Ok(())
    }

    /// Rolling update, rollback and eviction while Jobs are created; no create fails.
    async fn replace_under_load(&self) -> Result<()> {
        let load = Load::start(&self.objects, "replaced");
        let mut mixed = false;
        for (what, image) in [("update", OTHER_IMAGE), ("rollback", self.image.as_str())] {
            for name in &self.deployments {
                let deployment = format!("deployment/{name}");
                if what == "update" {
                    let image = format!("*={image}");
                    self.kubectl.run(&["-n", NAMESPACE, "set", "image", &deployment, &image])?;
                } else {
                    self.kubectl.run(&["-n", NAMESPACE, "rollout", "undo", &deployment])?;
                }
            }
            let mut rollout = Box::pin(self.wait_for_rollout(what));
            loop {
                tokio::select! {
                    outcome = &mut rollout => break outcome?,
                    () = tokio::time::sleep(Duration::from_millis(100)) => {}
                }
                mixed |= self.runs_both_images().await?;
            }
        }
        ensure!(mixed, "the versions never ran beside each other");
        self.evict_one_of_two().await?;
        load.stop().await
    }

    /// Makes the webhooks a Deployment of their own while Jobs are created; no create fails.
    async fn split_under_load(&mut self) -> Result<()> {
        let all = install::manifests_with(&self.kubectl, &["split"])?;
        let load = Load::start(&self.objects, "split");
        install::install_unchanged(&self.kubectl, &self.objects, all).await?;
        self.deployments.push("kueue-webhooks".to_owned());
        self.wait_for_rollout("split").await?;
        eventually("the Service has only pods of the other Deployment", async || {
            let selector = "app.kubernetes.io/component=webhooks";
            let pods = self.objects.list(Kind::POD, NAMESPACE, selector).await?;
            let addresses = pods.iter().map(|pod| text(pod, "/status/podIP").to_owned());
            let (addresses, endpoints) = (addresses.collect::<BTreeSet<_>>(), self.endpoints().await?);
            ensure!(endpoints.len() == 2 && endpoints == addresses, "{endpoints:?}, pods {addresses:?}");
            Ok(())
        })
        .await?;
        load.stop().await?;
        self.kubelet.check()
    }

    async fn runs_both_images(&self) -> Result<bool> {
        let pods = self.pods().await?;
        let ready = pods.iter().filter(|pod| condition_is_true(pod, "Ready"));
        let images: BTreeSet<&str> = ready.map(|pod| text(pod, "/spec/containers/0/image")).collect();
        Ok(images.len() == 2)
    }

    /// The disruption budget permits the eviction of one replica and refuses the other until it is replaced.
    async fn evict_one_of_two(&self) -> Result<()> {
        eventually("the budget counts the new pods", async || {
            for budget in self.objects.list(Kind::DISRUPTION_BUDGET, NAMESPACE, "").await? {
                let allowed = number(&budget, "/status/disruptionsAllowed");
                ensure!(allowed == 1 && number(&budget, "/status/expectedPods") == 2, "{}", budget["status"]);
            }
            Ok(())
        })
        .await?;
        let all = self.endpoints().await?;
        let mut pods = self.pods().await?;
        pods.retain(|pod| all.contains(text(pod, "/status/podIP")));
        let [first, second] = &pods[..] else { bail!("{} pods serve", pods.len()) };
        let client = client_without_retries(&self.plane.admin_kubeconfig()).await?;
        let api = Api::<Pod>::namespaced(client, NAMESPACE);
        let evict = async |pod: &Value| api.evict(text(pod, "/metadata/name"), &EvictParams::default()).await;
        evict(first).await.context("the first eviction was refused")?;
        match evict(second).await {
            Err(kube::Error::Api(status)) if status.code == 429 => {}
            outcome => bail!("the second eviction was not refused: {outcome:?}"),
        }
        self.wait_for_rollout("eviction").await
    }
}

/// Returns the names of the Deployments, and their image.
fn deployments_of(all: &[Value]) -> Result<(Vec<String>, String)> {
    let found = all.iter().filter(|object| text(object, "/kind") == "Deployment");
    let deployments: Vec<String> = found.clone().map(|d| text(d, "/metadata/name").to_owned()).collect();
    let images: BTreeSet<&str> = found.map(|d| text(d, "/spec/template/spec/containers/0/image")).collect();
    ensure!(images.len() == 1, "several images: {images:?}");
    Ok((deployments, images.first().copied().context("no Deployment")?.to_owned()))
}

/// Returns the number of creates per second while pods are replaced: with the unoptimized build of tests two cores bear fewer than
/// with an optimized one, which `SLUICE_BIN` names.
fn creates_per_second() -> u32 {
    if std::env::var_os("SLUICE_BIN").is_some() { 50 } else { 5 }
}

/// Creates Jobs at a fixed rate, each in a task of its own.
struct Load {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Vec<tokio::task::JoinHandle<kube::Result<Value>>>>,
}

impl Load {
    /// `prefix` is that of the names of the Jobs.
    fn start(objects: &ObjectClient, prefix: &'static str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, objects) = (Arc::clone(&stop), objects.clone());
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_secs(1) / creates_per_second());
            let mut creates = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                ticks.tick().await;
                let (objects, name) = (objects.clone(), format!("{prefix}-{}", creates.len()));
                creates.push(tokio::spawn(async move {
                    let job = Job::new(WORK, &name, "closed", &[("cpu", "1")]);
                    objects.create(Kind::JOB, job.body()).await
                }));
            }
            creates
        });
        Self { stop, task }
    }

    /// Ends the load; an error if a create failed.
    async fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let creates = self.task.await?;
        let count = creates.len();
        let mut failures = Vec::new();
        for create in creates {
            match create.await? {
                Ok(job) if job["spec"]["suspend"] == true => {}
                Ok(job) => failures.push(format!("{} is not suspended", text(&job, "/metadata/name"))),
                Err(error) => failures.push(error.to_string()),
            }
        }
        ensure!(
            failures.is_empty(),
            "{} of {count} creates failed: {}",
            failures.len(),
            failures.iter().take(3).cloned().collect::<Vec<_>>().join("; ")
        );
        note(format_args!("{count} creates at {} a second, none failed", creates_per_second()));
        Ok(())
    }
}
