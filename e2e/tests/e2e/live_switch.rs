//! The switch from a Kueue that runs, and back, as docs/switch.md says: Kueue's own manager of 0.19.2 in the Deployment of its manifests, or
//! of its chart, on a control plane with a kubelet. The commands that `sluice migrate` prints are run as they are printed.

use crate::fixture::Fixture;
use crate::image::unpack_image;
use crate::migration_run::{Run, printed_components};
use crate::shipped_manifests::{Installation, TAINT, check_support};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::binaries::{self, Binaries, Build};
use sluice_e2e::cluster::{Cluster, wait_for_webhooks};
use sluice_e2e::install::{self, NAMESPACE};
use sluice_e2e::manager::LEASE_NAME;
use sluice_e2e::objects::{self, Job, Kind, condition_is_true, text};
use sluice_e2e::wait::{eventually, within};
use sluice_e2e::{definitions, paths};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The image of Kueue's manifests, and of its chart with the same tag.
const KUEUE_IMAGE: &str = "us-central1-docker.pkg.dev/k8s-staging-images/kueue/kueue:main";
const API_SERVICE: Kind = Kind::new("apiregistration.k8s.io", "v1", "APIService", "apiservices");
const DEPLOYMENT: &str = "kueue-controller-manager";
const TEAM: &str = "team";
/// A manager that waits for a lease of 15 s, and then becomes ready.
pub(crate) const TAKEOVER: Duration = Duration::from_mins(2);
const QUEUES: &str = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads";
/// Configuration of both managers.
const CONFIGURATION: &str = "controller_manager_config.yaml";
/// How long a migration must keep waiting for a manager that runs on.
const PATIENCE: Duration = Duration::from_secs(8);

/// Who installs both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Kubectl,
    /// With this version of helm.
    Helm(&'static str),
}

/// Kueue's manifests are replaced by Sluice's and come back; v1beta1 is dropped meanwhile.
pub(crate) async fn manifests_are_replaced_and_come_back(_: &mut Cluster, _: &Fixture) -> Result<()> {
    run("live", Owner::Kubectl).await
}

/// Kueue's release is upgraded to Sluice's chart, and back.
pub(crate) async fn release_is_upgraded_and_back(_: &mut Cluster, _: &Fixture) -> Result<()> {
    run("live-helm", Owner::Helm("helm")).await
}

/// The same with Helm 3.
pub(crate) async fn release_of_helm_3_is_upgraded_and_back(_: &mut Cluster, _: &Fixture) -> Result<()> {
    run("live-helm3", Owner::Helm("helm3")).await
}

async fn run(name: &str, owner: Owner) -> Result<()> {
    check_support()?;
    let mut live = Live::start(name, owner).await?;
    let outcome = live.there_and_back().await;
    live.installation.report(outcome).await
}

/// Unpacks both images; returns Kueue's.
fn images(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    unpack_image(folder)?;
    let kueue = folder.with_extension("kueue");
    fs::create_dir_all(&kueue)?;
    fs::copy(Binaries::ensure(&["kueue"])?.path("kueue"), kueue.join("manager"))?;
    Ok(BTreeMap::from([(KUEUE_IMAGE.to_owned(), kueue)]))
}

fn kueue_module() -> Result<PathBuf> {
    definitions::module("kueue", "sigs.k8s.io/kueue")
}

/// A cluster that is switched.
pub(crate) struct Live {
    pub(crate) installation: Installation,
    owner: Owner,
    /// Text of Kueue's configuration, which is kept.
    configuration: String,
}

impl Live {
    /// Starts a control plane, on which nothing is installed.
    pub(crate) async fn start(name: &str, owner: Owner) -> Result<Self> {
        let installation = Installation::with_images(name, images).await?;
        Ok(Self { installation, owner, configuration: String::new() })
    }

    async fn there_and_back(&mut self) -> Result<()> {
        self.install_kueue().await.context("install Kueue")?;
        self.fill().await?;
        let pods = self.both_pods().await?;
        self.look_first()?;
        self.to_sluice().await.context("to Sluice")?;
        ensure!(self.running_pods().await? == pods, "pods were replaced on the way to Sluice");
        self.serves("a").await.context("Sluice serves")?;
        if self.owner == Owner::Kubectl {
            self.drop_v1beta1().await.context("v1beta1 is dropped")?;
        }
        self.end_job("b").await?;
        self.wait_until_admitted("a").await?;
        self.create_job("d").await?;
        let pods = self.both_pods().await?;
        self.to_kueue().await.context("to Kueue")?;
        ensure!(self.running_pods().await? == pods, "pods were replaced on the way to Kueue");
        self.serves("d").await.context("Kueue serves")?;
        self.end_job("c").await?;
        self.wait_until_admitted("d").await?;
        self.installation.kubelet.check()
    }

    pub(crate) async fn install_kueue(&mut self) -> Result<()> {
        let module = kueue_module()?;
        let kubectl = &self.installation.kubectl;
        match self.owner {
            Owner::Kubectl => {
                let rendered =
                    kubectl.run(&["kustomize", &module.join("config/default").display().to_string()])?;
                fs::write(self.file("manifests.yaml"), &rendered)?;
                let all: Vec<Value> = serde_saphyr::from_multiple(&rendered).context("Kueue's manifests")?;
                install::install_unchanged(kubectl, &self.installation.objects, all).await?;
            }
            Owner::Helm(_) => {
                let chart = module.join("charts/kueue").display().to_string();
                let image = "controllerManager.manager.image.tag=main";
                let arguments = ["install", "kueue", &chart, "--create-namespace", "--set", image];
                self.helm(&[&arguments[..], &["--namespace", NAMESPACE]].concat())?;
            }
        }
        self.wait_until_available().await?;
        let name = "kueue-manager-config";
        let map = self.installation.objects.must_get(Kind::CONFIG_MAP, NAMESPACE, name).await?;
        map["data"][CONFIGURATION].as_str().context("no configuration")?.clone_into(&mut self.configuration);
        Ok(())
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.installation.plane.folder().join(name)
    }

    pub(crate) async fn wait_until_available(&self) -> Result<()> {
        within(TAKEOVER, "the manager is available", async || {
            self.installation.kubelet.check()?;
            let objects = &self.installation.objects;
            let deployment = objects.must_get(Kind::DEPLOYMENT, NAMESPACE, DEPLOYMENT).await?;
            ensure!(deployment["status"]["availableReplicas"].as_i64() > Some(0), "{}", deployment["status"]);
            Ok(())
        })
        .await?;
        wait_for_webhooks(&self.installation.objects).await
    }

    /// Two Jobs run, the third waits; the queues come from a client of v1beta1.
    pub(crate) async fn fill(&self) -> Result<()> {
        let objects = &self.installation.objects;
        objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": TEAM}})).await?;
        objects.create(Kind::FLAVOR, &json!({"metadata": {"name": "any"}})).await?;
        let queue = objects::cluster_queue("cq", "", "any", &[("cpu", "2", None)]);
        objects.create(Kind::CLUSTER_QUEUE, &queue).await?;
        let old = Kind::new("kueue.x-k8s.io", "v1beta1", "LocalQueue", "localqueues");
        objects.create(old, &objects::local_queue(TEAM, "lq", "cq")).await?;
        for name in ["b", "c"] {
            self.create_job(name).await?;
            self.wait_until_admitted(name).await?;
        }
        self.create_job("a").await
    }

    pub(crate) async fn create_job(&self, name: &str) -> Result<()> {
        let job = Job::new(TEAM, name, "lq", &[("cpu", "1")])
            .pod_spec("tolerations", json!([{"key": TAINT, "operator": "Exists"}]))
            .pod_spec("nodeSelector", json!({TAINT: ""}));
        let created = self.installation.objects.create(Kind::JOB, job.body()).await?;
        ensure!(created["spec"]["suspend"] == true, "Job {name} was not suspended");
        Ok(())
    }

    pub(crate) async fn wait_until_admitted(&self, job: &str) -> Result<()> {
        within(TAKEOVER, format!("Job {job} is admitted"), async || {
            let workloads = self.installation.objects.list(Kind::WORKLOAD, TEAM, "").await?;
            let owned = |w: &&Value| text(w, "/metadata/ownerReferences/0/name") == job;
            let workload = workloads.iter().find(owned).context("no Workload")?;
            ensure!(condition_is_true(workload, "Admitted"), "{}", workload["status"]["conditions"]);
            Ok(())
        })
        .await
    }

    /// Waits until the pods of both admitted Jobs run; returns name and UID of each.
    pub(crate) async fn both_pods(&self) -> Result<BTreeSet<(String, String)>> {
        eventually("both pods run", async || {
            let pods = self.running_pods().await?;
            ensure!(pods.len() == 2, "pods: {pods:?}");
            Ok(pods)
        })
        .await
    }

    /// Returns name and UID of each running pod.
    pub(crate) async fn running_pods(&self) -> Result<BTreeSet<(String, String)>> {
        let pods = self.installation.objects.list(Kind::POD, TEAM, "").await?;
        let running = pods.iter().filter(|pod| text(pod, "/status/phase") == "Running");
        let owned = |pod: &Value, pointer: &str| text(pod, pointer).to_owned();
        Ok(running.map(|pod| (owned(pod, "/metadata/name"), owned(pod, "/metadata/uid"))).collect())
    }

    pub(crate) async fn end_job(&self, name: &str) -> Result<()> {
        let objects = &self.installation.objects;
        for pod in objects.list(Kind::POD, TEAM, &format!("job-name={name}")).await? {
            let patch = json!({"metadata": {"annotations": {"sluice.dev/run-for": "1s"}}});
            objects.merge(Kind::POD, TEAM, text(&pod, "/metadata/name"), &patch).await?;
        }
        within(TAKEOVER, format!("Job {name} is complete"), async || {
            let job = objects.must_get(Kind::JOB, TEAM, name).await?;
            ensure!(condition_is_true(&job, "Complete"), "{}", job["status"]);
            Ok(())
        })
        .await
    }

    /// `check` finds nothing in the way of a Kueue that runs, and a dry run shows the steps.
    fn look_first(&self) -> Result<()> {
        let (code, report) = self.migrate(&["check"])?;
        ensure!(code == Some(0), "check: {code:?}\n{report}");
        let owner = match self.owner {
            Owner::Kubectl => "owner: kubectl",
            Owner::Helm(_) => "owner: Helm, release kueue-system/kueue",
        };
        for part in [
            owner,
            "Kueue's Deployment kueue-controller-manager in kueue-system, available",
            "admitted: 2",
            "pending: 1",
        ] {
            ensure!(report.contains(part), "no {part:?} in\n{report}");
        }
        let (code, steps) = self.migrate(&["to-sluice", "--dry-run"])?;
        ensure!(code == Some(4) && steps.contains("step 7 of 7"), "dry run: {code:?}\n{steps}");
        Ok(())
    }

    pub(crate) fn migrate(&self, arguments: &[&str]) -> Result<(Option<i32>, String)> {
        let output = self.command(arguments)?.output().context("cannot run sluice")?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.code(), String::from_utf8_lossy(&text).into_owned()))
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(binaries::sluice(Build::Dev)?);
        command
            .arg("migrate")
            .args(arguments)
            .arg("--kubeconfig")
            .arg(self.installation.plane.admin_kubeconfig());
        Ok(command)
    }

    async fn to_sluice(&self) -> Result<()> {
        let run = Run::begin(self, "to-sluice").await?;
        let before = self.lease_holder().await?;
        ensure!(!before.is_empty(), "Kueue does not lead");
        if self.owner == Owner::Kubectl {
            self.forget_the_deletion(&run, &before).await?;
        }
        for line in run.commands()? {
            if line.contains("apply") {
                self.apply_sluice(&run)?;
            } else {
                self.execute(&line)?;
            }
        }
        run.wait_until_done().await?;
        let holder = self.lease_holder().await?;
        ensure!(holder != before && !holder.is_empty(), "the Lease is held by {holder:?}, as before");
        Ok(())
    }

    /// A user who applies Sluice's manifests while Kueue's Deployment is there: it is refused, Kueue leads on, and the migration waits.
    async fn forget_the_deletion(&self, run: &Run, holder: &str) -> Result<()> {
        let refused = self.apply_sluice(run).err().map(|error| format!("{error:#}")).unwrap_or_default();
        ensure!(refused.contains("field is immutable"), "the Deployment was replaced: {refused}");
        let renewed = self.renew_time().await?;
        tokio::time::sleep(PATIENCE).await;
        run.process.check()?;
        ensure!(!run.text()?.contains("step 4"), "it went on beside Kueue:\n{}", run.text()?);
        ensure!(self.lease_holder().await? == holder, "Kueue lost the Lease");
        ensure!(self.renew_time().await? != renewed, "Kueue does not renew the Lease");
        Ok(())
    }

    /// Applies Sluice's manifests with the components that are printed and Kueue's configuration, or upgrades the release.
    pub(crate) fn apply_sluice(&self, run: &Run) -> Result<()> {
        let components = printed_components(&run.text()?)?;
        let components: Vec<&str> = components.iter().map(String::as_str).collect();
        let mut all = install::manifests_with(&self.installation.kubectl, &components)?;
        for map in all.iter_mut().filter(|object| text(object, "/metadata/name") == "kueue-manager-config") {
            map["data"][CONFIGURATION] = self.configuration.as_str().into();
        }
        self.apply(&all)
    }

    fn apply(&self, all: &[Value]) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": all});
        let arguments = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        self.installation.kubectl.run_with(&arguments, &list.to_string()).map(drop)
    }

    /// Runs a command as it is printed, with the files that a user has.
    pub(crate) fn execute(&self, line: &str) -> Result<()> {
        let line = line.split("  #").next().unwrap_or(line);
        let (manifests, values) = (self.file("manifests.yaml"), self.file("values.yaml"));
        let is_kueue = line.contains("KUEUE_CHART");
        let chart =
            if is_kueue { kueue_module()?.join("charts/kueue") } else { paths::root().join("charts/sluice") };
        let replaced: Vec<String> = line
            .split_whitespace()
            .map(|word| match word {
                "manifests.yaml" => manifests.display().to_string(),
                "VALUES" => values.display().to_string(),
                "KUEUE_CHART" | "charts/sluice" => chart.display().to_string(),
                word => word.to_owned(),
            })
            .collect();
        let words: Vec<&str> = replaced.iter().map(String::as_str).collect();
        let (program, arguments) = words.split_first().context("an empty command")?;
        match *program {
            "kubectl" => self.installation.kubectl.run(arguments).map(drop),
            "helm" => {
                let mut own = json!({"managerConfig": {"controllerManagerConfigYaml": self.configuration}});
                if is_kueue {
                    own["controllerManager"] = json!({"manager": {"image": {"tag": "main"}}});
                }
                fs::write(&values, own.to_string())?;
                self.helm(arguments)
            }
            other => anyhow::bail!("{other} is not known: {line}"),
        }
    }

    fn helm(&self, arguments: &[&str]) -> Result<()> {
        let Owner::Helm(program) = self.owner else { anyhow::bail!("no helm") };
        let mut command = Command::new(Binaries::ensure(&[program])?.path(program));
        for folder in ["cache", "config", "data"] {
            command.env(format!("HELM_{}_HOME", folder.to_uppercase()), self.file(folder));
        }
        command.env("KUBECONFIG", self.installation.plane.admin_kubeconfig()).args(arguments);
        let output = command.output().context("cannot run helm")?;
        ensure!(output.status.success(), "helm {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    async fn lease_holder(&self) -> Result<String> {
        let lease = self.installation.objects.must_get(Kind::LEASE, NAMESPACE, LEASE_NAME).await?;
        Ok(text(&lease, "/spec/holderIdentity").to_owned())
    }

    async fn renew_time(&self) -> Result<String> {
        let lease = self.installation.objects.must_get(Kind::LEASE, NAMESPACE, LEASE_NAME).await?;
        Ok(text(&lease, "/spec/renewTime").to_owned())
    }

    /// The visibility API lists the waiting Job, v1beta1 is served, and a deleted namespace goes.
    pub(crate) async fn serves(&self, waiting: &str) -> Result<()> {
        let (objects, kubectl) = (&self.installation.objects, &self.installation.kubectl);
        within(TAKEOVER, "the visibility API lists the waiting Job", async || {
            for version in ["v1beta1", "v1beta2"] {
                let name = format!("{version}.visibility.kueue.x-k8s.io");
                let service = objects.must_get(API_SERVICE, "", &name).await?;
                ensure!(condition_is_true(&service, "Available"), "{name}: {}", service["status"]);
            }
            let found = kubectl.run(&["get", "--raw", QUEUES])?;
            ensure!(found.contains(&format!("job-{waiting}-")), "{found}");
            Ok(())
        })
        .await?;
        kubectl.run(&["get", "localqueues.v1beta1.kueue.x-k8s.io", "--namespace", TEAM, "lq"])?;
        objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": "doomed"}})).await?;
        // The API server looks once a minute at what an aggregated API has, and the deletion is tried again ever later.
        kubectl.run(&["delete", "namespace", "doomed", "--timeout=180s"]).map(drop)
    }

    /// The commands of docs/install.md#api-version-v1beta1 after a switch.
    async fn drop_v1beta1(&self) -> Result<()> {
        let (objects, kubectl) = (&self.installation.objects, &self.installation.kubectl);
        let printed = fs::read_to_string(self.file("migrate-to-sluice.log"))?;
        let mut components = printed_components(&printed)?;
        components.retain(|component| component != "v1beta1");
        let components: Vec<&str> = components.iter().map(String::as_str).collect();
        let mut all = install::manifests_with(kubectl, &components)?;
        all.retain(|object| text(object, "/metadata/name") != "kueue-manager-config");
        // Kueue was applied by another field manager, which keeps its part of the conversion.
        for kind in ["clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads"] {
            let none = r#"{"spec": {"conversion": {"strategy": "None", "webhook": null}}}"#;
            kubectl.run(&[
                "patch",
                "crd",
                &format!("{kind}.kueue.x-k8s.io"),
                "--type",
                "merge",
                "-p",
                none,
            ])?;
        }
        self.apply(&all)?;
        kubectl.run(&["-n", NAMESPACE, "rollout", "status", "deployment", DEPLOYMENT, "--timeout=120s"])?;
        kubectl.run(&["-n", NAMESPACE, "delete", "service", "kueue-conversion-service"])?;
        kubectl.run(&["delete", "clusterrolebinding", "kueue-conversion-rolebinding"])?;
        kubectl.run(&["delete", "clusterrole", "kueue-conversion-role"])?;
        for definition in objects.list(Kind::CRD, "", "").await? {
            if text(&definition, "/spec/group") == "kueue.x-k8s.io" {
                let versions = definition["spec"]["versions"].as_array().map(Vec::len);
                ensure!(versions == Some(1), "{}", text(&definition, "/metadata/name"));
            }
        }
        wait_for_webhooks(objects).await?;
        ensure!(objects.list(Kind::WORKLOAD, TEAM, "").await?.len() == 3, "Workloads are missing");
        let (code, report) = self.migrate(&["check"])?;
        ensure!(code == Some(0), "check: {code:?}\n{report}");
        Ok(())
    }

    async fn to_kueue(&self) -> Result<()> {
        let run = Run::begin(self, "to-kueue").await?;
        let before = self.lease_holder().await?;
        for line in run.commands()? {
            self.execute(&line)?;
        }
        run.wait_until_done().await?;
        ensure!(self.lease_holder().await? != before, "Sluice still leads");
        self.wait_until_available().await
    }
}
