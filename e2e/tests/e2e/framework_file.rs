//! A kind of jobs that Sluice knows by a file alone: the sample in `config/samples/framework-file`. The case plays its operator.

use crate::cases::note;
use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice::frameworks::{Framework, NothingRelated, PlayedState, framework_from_file};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::kubectl::Kubectl;
use sluice_e2e::manager::{Manager, ManagerSettings};
use sluice_e2e::objects::{Kind, expect_condition, text};
use sluice_e2e::wait::eventually;
use sluice_e2e::{install, paths};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const API: Kind = Kind::new("example.com", "v1", "Render", "renders");
const QUEUE: &str = "main";
const DEFINITION: &str = "renders.example.com";
const BINDING: Kind =
    Kind::new("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings");

/// A manager that starts with the file is not ready before it has the webhooks and permissions that its command writes. It takes up the
/// kind when its definition comes. A job is suspended by its webhook, queued, admitted, started, stopped and finished; another one
/// waits for its quota; the file of a built-in kind is refused.
pub(crate) async fn kind_of_a_file_is_queued(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let file = folder().join("framework.yaml");
    let row = framework_from_file(&fs::read_to_string(&file)?)?;
    let settings = cluster.manager()?.settings().clone();
    let webhook_port = cluster.webhook_port()?;
    refuses_known_kind(&settings.program, &file)?;
    let with_file = ManagerSettings {
        name: "with-file".to_owned(),
        flags: vec![format!("--framework-file={}", file.display())],
        ..settings.clone()
    };
    cluster.take_manager().context("no manager")?.terminate();
    let manager = Manager::start(&cluster.plane, &with_file).await?;
    eventually("the manager names what the kind lacks", async || {
        let reason = manager.is_ready().await.err().context("it is ready")?.to_string();
        let names = [
            "framework example.com/render lacks an entry in",
            "permission to patch renders",
            "sluice framework manifests",
        ];
        ensure!(names.iter().all(|name| reason.contains(name)), "{reason}");
        Ok(())
    })
    .await?;
    let component = Component::write(&settings.program, &file, &fixture.kubectl)?;
    install::install_all(&fixture.kubectl, &fixture.objects, webhook_port, component.objects.clone()).await?;
    manager.wait_until_ready().await?;
    cluster.put_manager(manager);
    cluster.wait_for_webhooks().await?;
    note("ready with the component");

    // Its definition comes while the manager runs.
    let definition: Value = serde_saphyr::from_str(&fs::read_to_string(folder().join("crd.yaml"))?)?;
    install::apply(&fixture.kubectl, &[definition])?;
    install::established(&fixture.objects, DEFINITION).await?;
    let renders = Renders { row: &row, fixture };
    renders.live_in_a_queue().await?;

    fixture.objects.delete(Kind::CRD, "", DEFINITION, PropagationPolicy::Background).await?;
    component.remove(fixture, webhook_port).await?;
    cluster.take_manager().context("no manager")?.terminate();
    cluster.start_manager(&settings).await
}

fn folder() -> PathBuf {
    paths::root().join("config/samples/framework-file")
}

/// A file for a kind that is built in, and a file with a fault, end the command with the field or the kind.
fn refuses_known_kind(program: &Path, file: &Path) -> Result<()> {
    let text = fs::read_to_string(file)?;
    let job =
        text.replace("group: example.com", "group: jobset.x-k8s.io").replace("kind: Render", "kind: JobSet");
    let faulty = text.replace("suspend: /spec/suspend", "suspend: /suspend");
    let path = paths::root().join("target").join(format!("framework-{}.yaml", std::process::id()));
    for (text, wanted) in [
        (job, "JobSet of group \"jobset.x-k8s.io\" is known as jobset.x-k8s.io/jobset"),
        (faulty, "suspend: \"/suspend\" must be a JSON pointer below /spec"),
    ] {
        fs::write(&path, text)?;
        let output = Command::new(program).args(["framework", "manifests"]).arg(&path).output()?;
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        fs::remove_file(&path)?;
        ensure!(!output.status.success() && message.contains(wanted), "{message}");
    }
    Ok(())
}

/// The component that the command writes.
struct Component {
    /// The objects of `config/default` with the component.
    objects: Vec<Value>,
}

impl Component {
    fn write(program: &Path, file: &Path, kubectl: &Kubectl) -> Result<Self> {
        let name = format!("framework-component-{}", std::process::id());
        let folder = paths::root().join("target").join(&name);
        let output = Command::new(program)
            .args(["framework", "manifests"])
            .arg(file)
            .arg("--write")
            .arg(&folder)
            .output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let objects = install::manifests_with(kubectl, &[&format!("../target/{name}")]);
        fs::remove_dir_all(&folder)?;
        let objects = objects?;
        let deployment =
            objects.iter().find(|object| text(object, "/kind") == "Deployment").context("no Deployment")?;
        let pod = &deployment["spec"]["template"]["spec"];
        let flag = json!("--framework-file=/frameworks/render.example.com.yaml");
        let args = pod["containers"][0]["args"].as_array().context("no arguments")?;
        ensure!(args.contains(&flag), "the manager is not given the file: {args:?}");
        let map = objects
            .iter()
            .find(|object| text(object, "/metadata/name").starts_with("kueue-framework-render"));
        let map = map.context("no ConfigMap with the file")?;
        ensure!(map["data"]["render.example.com.yaml"] == json!(fs::read_to_string(file)?), "{map}");
        let volumes = pod["volumes"].as_array().context("no volumes")?;
        let mounted = volumes.iter().any(|volume| volume["configMap"]["name"] == map["metadata"]["name"]);
        ensure!(mounted, "the ConfigMap is not mounted: {volumes:?}");
        Ok(Self { objects })
    }

    /// Removes what only the component has.
    async fn remove(&self, fixture: &Fixture, webhook_port: u16) -> Result<()> {
        for object in &self.objects {
            let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
            if name.contains("render.example.com") {
                let namespace = text(object, "/metadata/namespace");
                let api = match kind {
                    "ClusterRole" => Kind::CLUSTER_ROLE,
                    "ClusterRoleBinding" => BINDING,
                    _ => Kind::CONFIG_MAP,
                };
                fixture.objects.delete(api, namespace, name, PropagationPolicy::Background).await?;
            }
        }
        // An apply without the component removes its entries: no other field manager owns a part of them.
        install::install(&fixture.kubectl, &fixture.objects, webhook_port).await?;
        for (kind, name) in [
            (Kind::MUTATING_WEBHOOKS, "kueue-mutating-webhook-configuration"),
            (Kind::VALIDATING_WEBHOOKS, "kueue-validating-webhook-configuration"),
        ] {
            let configuration = fixture.objects.must_get(kind, "", name).await?;
            let entries = configuration["webhooks"].as_array().context("no webhooks")?;
            let left = entries.iter().find(|entry| text(entry, "/name").ends_with(".example.com"));
            ensure!(left.is_none(), "{name} still has {left:?}");
        }
        Ok(())
    }
}

/// The jobs of the kind, and their operator.
struct Renders<'a> {
    row: &'a Framework,
    fixture: &'a Fixture,
}

impl Renders<'_> {
    async fn live_in_a_queue(&self) -> Result<()> {
        let fixture = self.fixture;
        let flavor =
            fixture.create_flavor("film", json!({"nodeLabels": {"e2e.example/film": "any"}})).await?;
        let resources = [("cpu", "6"), ("memory", "8Gi")]
            .map(|(name, quota)| json!({"name": name, "nominalQuota": quota}));
        let group = json!({"coveredResources": ["cpu", "memory"], "flavors": [{"name": flavor, "resources": resources}]});
        fixture.create_queue(QUEUE, "", &[], json!({"resourceGroups": [group]})).await?;

        let first = self.create("first").await?;
        self.wait_until_started("first").await?;
        self.bring_to("first", PlayedState::Ready).await?;
        self.create("second").await?;
        fixture.wait_for_queue_counts(QUEUE, (1, 1, 1), &[("cpu", "6")]).await?;
        let changed = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}});
        let refused = fixture.objects.merge(API, &fixture.name, "first", &changed).await;
        let reason = refused.err().context("the queue of a running job was changed")?.to_string();
        ensure!(reason.contains("queue-name") && reason.contains("immutable"), "{reason}");

        // A stop restores the templates; the quota is kept until the operator says that no pod runs.
        let workload = self.workload(&first).await?;
        let inactive = json!({"spec": {"active": false}});
        fixture
            .objects
            .merge(Kind::WORKLOAD, &fixture.name, text(&workload, "/metadata/name"), &inactive)
            .await?;
        eventually("the job is suspended, with its own templates", async || {
            let job = self.get("first").await?;
            ensure!(job["spec"]["suspend"] == true, "it is not suspended");
            let selector = &job["spec"]["crews"][0]["template"]["spec"]["nodeSelector"];
            ensure!(selector.is_null() || selector == &json!({}), "it has {selector}");
            Ok(())
        })
        .await?;
        fixture.wait_for_queue_counts(QUEUE, (1, 1, 1), &[("cpu", "6")]).await?;
        self.bring_to("first", PlayedState::Stopped).await?;
        self.wait_until_started("second").await?;
        self.bring_to("second", PlayedState::Ready).await?;
        let second = text(&self.get("second").await?, "/metadata/uid").to_owned();
        self.bring_to("second", PlayedState::Succeeded).await?;
        eventually("the Workload has finished", async || {
            expect_condition(&self.workload(&second).await?, "Finished", "True", "Succeeded")
        })
        .await?;
        fixture.wait_for_queue_counts(QUEUE, (0, 0, 0), &[("cpu", "0"), ("memory", "0")]).await?;
        for name in ["first", "second"] {
            fixture.objects.delete(API, &fixture.name, name, PropagationPolicy::Background).await?;
        }
        eventually("the Workloads are deleted", async || {
            ensure!(
                self.workload(&first).await.is_err() && self.workload(&second).await.is_err(),
                "a Workload is left"
            );
            Ok(())
        })
        .await
    }

    /// Creates a job that is not suspended; returns its UID.
    async fn create(&self, name: &str) -> Result<String> {
        let mut job: Value = serde_saphyr::from_str(&fs::read_to_string(folder().join("render.yaml"))?)?;
        job["metadata"] = json!({"name": name, "namespace": self.fixture.name, "labels": {"kueue.x-k8s.io/queue-name": QUEUE}});
        let created = self.fixture.objects.create(API, &job).await?;
        ensure!(created["spec"]["suspend"] == true, "its webhook did not suspend it: {created}");
        Ok(text(&created, "/metadata/uid").to_owned())
    }

    async fn wait_until_started(&self, name: &str) -> Result<()> {
        eventually(format!("{name} is started on the nodes of its flavor"), async || {
            let job = self.get(name).await?;
            ensure!(job["spec"]["suspend"] == false, "it is suspended");
            let templates = [&job["spec"]["director"]["template"], &job["spec"]["crews"][1]["template"]];
            for template in templates {
                ensure!(template["spec"]["nodeSelector"]["e2e.example/film"] == "any", "{template}");
            }
            Ok(())
        })
        .await
    }

    async fn get(&self, name: &str) -> Result<Value> {
        self.fixture.objects.must_get(API, &self.fixture.name, name).await
    }

    async fn bring_to(&self, name: &str, state: PlayedState) -> Result<()> {
        let mut job = self.get(name).await?;
        self.row.play(&mut job, &NothingRelated, state, Timestamp::now())?;
        let status = json!({"status": job["status"]});
        self.fixture.objects.merge_status(API, &self.fixture.name, name, &status).await?;
        Ok(())
    }

    async fn workload(&self, uid: &str) -> Result<Value> {
        let selector = format!("kueue.x-k8s.io/job-uid={uid}");
        let found = self.fixture.objects.list(Kind::WORKLOAD, &self.fixture.name, &selector).await?;
        found.into_iter().next().context("it has no Workload")
    }
}
