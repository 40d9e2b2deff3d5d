//! Two installations in two namespaces of one cluster. Their Leases differ; the webhook configurations decide which one acts.

use crate::cases::note;
use crate::fixture::Fixture;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use sluice_e2e::audit::AuditCursor;
use sluice_e2e::binaries::{self, Build};
use sluice_e2e::cluster::{Cluster, wait_for_webhooks};
use sluice_e2e::control_plane::{ControlPlane, Extent};
use sluice_e2e::install::{self, ACCOUNT, NAMESPACE};
use sluice_e2e::kubectl::Kubectl;
use sluice_e2e::manager::{LEASE_NAME, Manager, ManagerSettings};
use sluice_e2e::objects::{self, Job, Kind, ObjectClient, text};
use sluice_e2e::process;
use sluice_e2e::wait::eventually;
use std::fs;
use std::time::Duration;

const SECOND: &str = "batch-queues";
const SERVICE: &str = "kueue-webhook-service";
/// Longer than several retries of an election, a list and a rotation step.
const IDLE: Duration = Duration::from_secs(6);
const CONFIGURATIONS: [(Kind, &str); 2] = [
    (Kind::MUTATING_WEBHOOKS, "kueue-mutating-webhook-configuration"),
    (Kind::VALIDATING_WEBHOOKS, "kueue-validating-webhook-configuration"),
];

/// A control plane with two installations.
struct Two {
    objects: ObjectClient,
    kubectl: Kubectl,
    plane: ControlPlane,
    /// Ports of the webhooks, of the first and of the second.
    ports: [u16; 2],
}

/// The manager whose Service the webhook configurations name acts. The other one holds no Lease, writes nothing, is not ready
/// and says why, with the same names and with others. When the first is uninstalled and the configurations name the second,
/// that one leads; it ends when they are taken back.
pub(crate) async fn webhook_configurations_decide(_: &mut Cluster, _: &Fixture) -> Result<()> {
    let two = Two::install().await?;
    two.point_webhooks_at(NAMESPACE)?;
    let first = two.start("first", NAMESPACE, &[]).await?;
    first.wait_until_ready().await?;
    wait_for_webhooks(&two.objects).await?;
    two.create_queue().await?;
    two.run_job("one").await.context("the first manager")?;

    let mut audit = AuditCursor::from_end(&two.plane.audit_log())?;
    let own_names = [
        "--mutating-webhook-configuration=own-mutating-webhook-configuration",
        "--validating-webhook-configuration=own-validating-webhook-configuration",
    ];
    let other_names = two.start("other-names", SECOND, &own_names).await?;
    two.check_waiting(&other_names).await.context("a second manager with names of its own")?;
    other_names.terminate();
    let second = two.start("second", SECOND, &[]).await?;
    two.check_waiting(&second).await.context("a second manager with the same names")?;
    two.check_not_ready(&second, &format!("sends reviews to Service {NAMESPACE}/{SERVICE}")).await?;
    let account = format!("system:serviceaccount:{SECOND}:{ACCOUNT}");
    let writes = audit.new_writes_by(&account)?;
    // With names of its own it issues the certificate of its own webhooks, which would otherwise refuse all Jobs.
    let others: Vec<_> =
        writes.iter().filter(|write| !["secrets", "configmaps"].contains(&write.resource.as_str())).collect();
    ensure!(others.is_empty(), "the second manager wrote: {others:?}");
    two.run_job("two").await.context("the first manager beside a second")?;

    // The first is uninstalled as documented: its configurations first, while it runs.
    for (kind, name) in CONFIGURATIONS {
        two.objects.delete(kind, "", name, kube::api::PropagationPolicy::Background).await?;
    }
    tokio::time::sleep(IDLE).await;
    ensure!(two.holder(SECOND).await?.is_empty(), "the second leads although the first still runs");
    first.terminate();
    two.point_webhooks_at(SECOND)?;
    let begun = std::time::Instant::now();
    second.wait_until_ready().await?;
    wait_for_webhooks(&two.objects).await?;
    two.run_job("three").await.context("the second manager, alone")?;
    note(format_args!("the second leads {:.1} s after it owns the webhooks", begun.elapsed().as_secs_f64()));

    two.point_webhooks_at(NAMESPACE)?;
    eventually("the second ends", async || {
        ensure!(second.process().check().is_err(), "it still runs");
        Ok(())
    })
    .await?;
    let log = fs::read_to_string(second.log())?;
    ensure!(log.contains("this one stops acting"), "the log does not say why");
    ensure!(two.holder(SECOND).await?.is_empty(), "the Lease is not released");
    let restarted = two.start("restarted", SECOND, &[]).await?;
    two.check_waiting(&restarted).await.context("restarted after the webhooks were taken back")
}

impl Two {
    async fn install() -> Result<Self> {
        let folder = ControlPlane::temporary_folder().with_extension("two");
        let plane = ControlPlane::start(Extent::Full, &folder).await?;
        let objects = ObjectClient::new(plane.admin().await?);
        let kubectl = Kubectl::new(&plane.binaries.path("kubectl"), &plane.admin_kubeconfig());
        let [first, second] = process::free_ports(2)?[..] else { bail!("expected two ports") };
        let all = install::manifests(&kubectl)?;
        install::install_all(&kubectl, &objects, first, all.clone()).await?;
        let two = Self { objects, kubectl, plane, ports: [first, second] };
        // The roles exist; the second has bindings of its own. Its webhook configurations have the names of the first one's.
        let kinds = ["Role", "RoleBinding", "ServiceAccount", "ClusterRoleBinding", "Secret", "Namespace"];
        let in_second =
            all.into_iter().filter(|object| kinds.contains(&text(object, "/kind"))).map(|object| {
                let moved = object.to_string().replace(NAMESPACE, SECOND);
                let mut moved: Value = serde_json::from_str(&moved)?;
                if moved["kind"] == "ClusterRoleBinding" {
                    moved["metadata"]["name"] = format!("second-{}", text(&object, "/metadata/name")).into();
                }
                Ok(moved)
            });
        let in_second: Vec<Value> = in_second.collect::<Result<_>>()?;
        let (namespace, others): (Vec<_>, Vec<_>) =
            in_second.into_iter().partition(|object| object["kind"] == "Namespace");
        install::apply(&two.kubectl, &namespace)?;
        install::apply(&two.kubectl, &others)?;
        two.let_read_configurations()?;
        Ok(two)
    }

    /// With names of its own, a manager also reads configurations of these names, as the chart's roles allow.
    fn let_read_configurations(&self) -> Result<()> {
        let rule = |resource: &str, name: &str| {
            json!({"apiGroups": ["admissionregistration.k8s.io"], "resources": [resource],
                "resourceNames": [name], "verbs": ["get", "list", "watch"]})
        };
        let rules = [
            rule("mutatingwebhookconfigurations", "own-mutating-webhook-configuration"),
            rule("validatingwebhookconfigurations", "own-validating-webhook-configuration"),
        ];
        let subject = json!({"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SECOND});
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "own-webhooks"}, "rules": rules});
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "own-webhooks"}, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "own-webhooks"}});
        install::apply(&self.kubectl, &[role, binding])
    }

    /// Applies the webhook configurations of the installation in a namespace. The API server cannot reach a Service here: a further
    /// webhook, for objects that do not exist, names it, and the others are called by URL.
    fn point_webhooks_at(&self, namespace: &str) -> Result<()> {
        let port = self.ports[usize::from(namespace == SECOND)];
        let kinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
        let mut all = Vec::new();
        for object in install::manifests(&self.kubectl)? {
            if !kinds.contains(&text(&object, "/kind")) {
                continue;
            }
            let moved: Value = serde_json::from_str(&object.to_string().replace(NAMESPACE, namespace))?;
            let mut owner = moved["webhooks"][0].clone();
            owner["name"] = "owner.e2e.sluice.dev".into();
            owner["rules"] = json!([{"apiGroups": ["unused.example"], "apiVersions": ["*"],
                "operations": ["CREATE"], "resources": ["*"]}]);
            let mut moved = install::dial_locally(moved, port);
            moved["webhooks"].as_array_mut().context("no webhooks")?.push(owner);
            all.push(moved);
        }
        ensure!(all.len() == 2, "{} configurations", all.len());
        install::apply(&self.kubectl, &all)
    }

    async fn start(&self, name: &str, namespace: &str, flags: &[&str]) -> Result<Manager> {
        let flags = flags.iter().chain(&["--metrics-insecure"]).map(|flag| (*flag).to_owned()).collect();
        let settings = ManagerSettings {
            name: name.to_owned(),
            program: binaries::sluice(Build::Dev)?,
            webhook_port: self.ports[usize::from(namespace == SECOND)],
            configuration: json!({"leaderElection": {"leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "1s"}}),
            flags,
            api_server_url: None,
            namespace: namespace.to_owned(),
        };
        Manager::start(&self.plane, &settings).await
    }

    /// Returns the holder of the Lease of a namespace; empty if there is none.
    async fn holder(&self, namespace: &str) -> Result<String> {
        let lease = self.objects.get(Kind::LEASE, namespace, LEASE_NAME).await?;
        Ok(lease.map(|lease| text(&lease, "/spec/holderIdentity").to_owned()).unwrap_or_default())
    }

    /// Checks that a manager of the second installation does not lead, and says in log and metrics why.
    async fn check_waiting(&self, manager: &Manager) -> Result<()> {
        for (_, name) in CONFIGURATIONS {
            let line = format!("sluice_foreign_webhook_configuration{{configuration=\"{name}\"}} 1");
            eventually(format!("metrics show {line}"), async || {
                let page = manager.metrics().await?;
                ensure!(page.lines().any(|shown| shown == line), "line not found");
                Ok(())
            })
            .await?;
        }
        tokio::time::sleep(IDLE).await;
        manager.process().check()?;
        let metrics = manager.metrics().await?;
        ensure!(metrics.lines().any(|line| line == "sluice_leader 0"), "it leads");
        ensure!(self.holder(SECOND).await?.is_empty(), "it holds a Lease");
        let log = fs::read_to_string(manager.log())?;
        let count = log.matches("webhook configuration belongs to another manager").count();
        ensure!(count == 2, "{count} lines about the two configurations");
        Ok(())
    }

    async fn check_not_ready(&self, manager: &Manager, words: &str) -> Result<()> {
        let Err(error) = manager.is_ready().await else { bail!("it is ready") };
        let reason = format!("{error:#}");
        ensure!(reason.contains(words), "{reason}");
        Ok(())
    }

    async fn create_queue(&self) -> Result<()> {
        self.objects.create(Kind::FLAVOR, &json!({"metadata": {"name": "any"}})).await?;
        self.objects.create(Kind::NODE, &json!({"metadata": {"name": "node-1"}})).await?;
        let body = objects::cluster_queue("main", "", "any", &[("cpu", "1", None)]);
        self.objects.create(Kind::CLUSTER_QUEUE, &body).await?;
        self.objects.create(Kind::LOCAL_QUEUE, &objects::local_queue("default", "main", "main")).await?;
        Ok(())
    }

    /// A Job is suspended by a webhook, started, and finishes.
    async fn run_job(&self, name: &str) -> Result<()> {
        let job = Job::new("default", name, "main", &[("cpu", "1")]).runs_for("1s");
        let created = self.objects.create(Kind::JOB, job.body()).await?;
        ensure!(created["spec"]["suspend"] == true, "the Job was not suspended");
        eventually(format!("{name} has finished"), async || {
            let job = self.objects.must_get(Kind::JOB, "default", name).await?;
            ensure!(objects::condition_is_true(&job, "Complete"), "{}", job["status"]);
            Ok(())
        })
        .await
    }
}
