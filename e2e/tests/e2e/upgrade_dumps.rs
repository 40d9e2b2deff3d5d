//! What one build has stored is taken over by another, and back: the dumps of `e2e/upgrades`, each on a control plane of its own.

use crate::cases::note;
use crate::fixture::Fixture;
use crate::upgrade_ends;
use crate::upgrade_scene::{self, NAME};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sluice_e2e::audit::{AuditCursor, AuditedRequest};
use sluice_e2e::cluster::{Cluster, ClusterOptions, Stored};
use sluice_e2e::control_plane::ControlPlane;
use sluice_e2e::install::{self, ACCOUNT, ALL_KINDS, NAMESPACE, V1BETA1, dial_locally};
use sluice_e2e::manager::ManagerSettings;
use sluice_e2e::objects::text;
use sluice_e2e::paths;
use sluice_e2e::process::tail;
use sluice_e2e::upgrades::{Dump, Records, folders, unfit_objects};
use sluice_e2e::wait::eventually;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than several rounds of the manager and a check of all objects.
const SETTLED: Duration = Duration::from_secs(6);
/// Names the folder to which a dump is written, after the commit of the build; set by `make upgrade-dump`.
const FOLDER: &str = "SLUICE_UPGRADE_DUMP";
/// Names the folder of the builds that wrote the dumps, each in a folder of its commit; set by `make upgrade`.
const OLDER: &str = "SLUICE_OLDER_BUILDS";
/// Resources that the manager writes for itself: its lease, events, and who trusts its certificate.
const OWN: [&str; 7] = [
    "leases",
    "events",
    "secrets",
    "configmaps",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "customresourcedefinitions",
];

/// Every state can be brought about, written and read again.
pub(crate) async fn states_are_written(_: &mut Cluster, _: &Fixture) -> Result<()> {
    let options = options(upgrade_scene::configuration("10h"), None);
    let mut plane = OwnPlane::start(&Stored::default(), &options).await?;
    let outcome = write(&mut plane.0).await;
    plane.finish(outcome)
}

async fn write(cluster: &mut Cluster) -> Result<()> {
    let fixture = Fixture::new(cluster, NAME);
    fixture.prepare().await?;
    upgrade_scene::build(&fixture, cluster).await?;
    settle(&mut cluster.audit()?).await?;
    Records::read(&cluster.objects, &[NAME]).await?.check_usage()?;
    cluster.take_manager().context("no manager")?.kill();
    let folder = std::env::var_os(FOLDER)
        .map_or_else(|| cluster.plane.folder().join("upgrade-dump"), |folder| paths::root().join(folder));
    let manifests = manifests(cluster)?;
    let name = folder.file_name().context("no name")?.to_string_lossy().into_owned();
    let facts = (name, cluster.plane.kubernetes_version().await?);
    let dump =
        Dump::of_cluster(&cluster.objects, manifests, upgrade_scene::configuration("10h"), facts).await?;
    dump.write(&folder)?;
    let read = Dump::read(&folder)?;
    note(format_args!("{} objects of {}", read.objects_now().len(), read.commit()));
    Ok(())
}

/// This build takes over each kept dump: with the definitions that it was written with, and then with its own. Neither changes
/// anything; then all jobs end, what waits is admitted, and what is stored fits the earlier definitions.
pub(crate) async fn dumps_are_taken_over(_: &mut Cluster, _: &Fixture) -> Result<()> {
    for folder in folders()? {
        let taken = take_over(&folder, Way::ManagerFirst).await;
        taken.with_context(|| format!("{}, the manager first", folder.display()))?;
    }
    Ok(())
}

/// The same with the definitions of this version from the beginning.
pub(crate) async fn dumps_are_taken_over_after_definitions(_: &mut Cluster, _: &Fixture) -> Result<()> {
    for folder in folders()? {
        let taken = take_over(&folder, Way::DefinitionsFirst).await;
        taken.with_context(|| format!("{}, the definitions first", folder.display()))?;
    }
    Ok(())
}

/// The build that wrote a dump and this one replace each other: up with the definitions first and with the manager first, and back
/// in both orders.
pub(crate) async fn older_build_takes_over_again(_: &mut Cluster, _: &Fixture) -> Result<()> {
    let older = std::env::var_os(OLDER).map(|folder| paths::root().join(folder));
    let older = older.with_context(|| format!("{OLDER} names no builds; use `make upgrade`"))?;
    for folder in folders()? {
        let program = older.join(folder.file_name().context("no name")?).join("sluice");
        let back = up_and_back(&folder, &program).await;
        back.with_context(|| format!("{}, up and back", folder.display()))?;
    }
    Ok(())
}

/// What is upgraded first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    ManagerFirst,
    DefinitionsFirst,
}

async fn take_over(folder: &Path, way: Way) -> Result<()> {
    let dump = Dump::read(folder)?;
    let objects = dump.objects_now();
    let definitions = if way == Way::ManagerFirst { dump.definitions() } else { &[] };
    let options = options(dump.configuration().clone(), None);
    let mut plane = OwnPlane::start(&Dump::stored(&objects, definitions)?, &options).await?;
    let outcome = async {
        let cluster = &mut plane.0;
        let mut audit = AuditCursor::from_start(&cluster.plane.audit_log());
        let mut writes = settle(&mut audit).await?;
        compare(cluster, &Records::new(&objects), &writes).await.context("the new manager")?;
        if way == Way::ManagerFirst {
            install_definitions(cluster, &manifests(cluster)?)?;
            writes = settle(&mut audit).await?;
            compare(cluster, &Records::new(&objects), &writes).await.context("the new definitions")?;
        }
        upgrade_ends::begin(cluster).await?;
        let left = end_all(cluster).await?;
        install_definitions(cluster, dump.definitions())?;
        check_fields(cluster, &left).await
    }
    .await;
    plane.finish(outcome)
}

async fn up_and_back(folder: &Path, older: &Path) -> Result<()> {
    let dump = Dump::read(folder)?;
    let objects = dump.objects_now();
    let options = options(dump.configuration().clone(), Some(older.to_owned()));
    let mut plane = OwnPlane::start(&Dump::stored(&objects, dump.definitions())?, &options).await?;
    let outcome = async {
        let cluster = &mut plane.0;
        let mut audit = AuditCursor::from_start(&cluster.plane.audit_log());
        let before = Records::new(&objects);
        let old = cluster.manager()?.settings().clone();
        let new = ManagerSettings {
            name: "newer".to_owned(),
            program: sluice_e2e::binaries::sluice(sluice_e2e::binaries::Build::Dev)?,
            ..old.clone()
        };
        let steps: [(&str, Option<&ManagerSettings>, Option<bool>); 7] = [
            ("the build that wrote the dump", None, None),
            ("up, new definitions first", None, Some(true)),
            ("up, then the new manager", Some(&new), None),
            ("back, the old manager first", Some(&old), None),
            ("back, then the old definitions", None, Some(false)),
            ("up again, the new manager first", Some(&new), None),
            ("up again, then the new definitions", None, Some(true)),
        ];
        for (what, manager, definitions) in steps {
            change(cluster, &dump, manager, definitions).await.context(what)?;
            let writes = settle(&mut audit).await?;
            compare(cluster, &before, &writes).await.context(what)?;
            note(what);
        }
        // The new build works; the old one goes on from there with its own definitions.
        upgrade_ends::begin(cluster).await?;
        settle(&mut audit).await?;
        let left = Records::read(&cluster.objects, &[NAME]).await?;
        left.check_usage()?;
        change(cluster, &dump, None, Some(false)).await?;
        check_fields(cluster, &left).await?;
        change(cluster, &dump, Some(&old), None).await?;
        let writes = settle(&mut audit).await?;
        compare(cluster, &left, &writes).await.context("back, after work of the new manager")?;
        end_all(cluster).await.map(drop)
    }
    .await;
    plane.finish(outcome)
}

/// Replaces the manager, or installs new or old definitions.
async fn change(
    cluster: &mut Cluster,
    dump: &Dump,
    manager: Option<&ManagerSettings>,
    new_definitions: Option<bool>,
) -> Result<()> {
    if let Some(settings) = manager {
        cluster.replace_manager(settings).await?;
    }
    match new_definitions {
        Some(true) => install_definitions(cluster, &manifests(cluster)?),
        Some(false) => install_definitions(cluster, dump.definitions()),
        None => Ok(()),
    }
}

/// Ends all jobs, lets what waits be admitted and end too. Returns what is stored in the end; what is charged is what remains.
async fn end_all(cluster: &Cluster) -> Result<Records> {
    upgrade_ends::finish(cluster).await?;
    // Queues publish their usage within a second.
    eventually("the usage is the sum over the Workloads", async || {
        let left = Records::read(&cluster.objects, &[NAME]).await?;
        left.check_usage().map(|()| left)
    })
    .await
}

/// Waits until the manager has written nothing for some time; returns what it has written since this position.
async fn settle(audit: &mut AuditCursor) -> Result<Vec<AuditedRequest>> {
    let user = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
    let mut all = Vec::new();
    loop {
        tokio::time::sleep(SETTLED).await;
        let mut writes = audit.new_writes_by(&user)?;
        writes.retain(|write| !OWN.contains(&write.resource.as_str()));
        if writes.is_empty() {
            return Ok(all);
        }
        all.extend(writes);
    }
}

/// An error if anything differs from before or was written, or if the usage is not the sum over the Workloads.
async fn compare(cluster: &Cluster, before: &Records, writes: &[AuditedRequest]) -> Result<()> {
    let after = Records::read(&cluster.objects, &[NAME]).await?;
    let changes = before.changes(&after);
    ensure!(changes.is_empty(), "{} changes:\n{}", changes.len(), changes.join("\n"));
    let line = |write: &AuditedRequest| {
        let AuditedRequest { verb, resource, namespace, name, code, .. } = write;
        format!("{verb} {resource} {namespace}/{name}: {code}")
    };
    let lines: Vec<String> = writes.iter().map(line).collect();
    ensure!(lines.is_empty(), "nothing has changed, and the manager wrote:\n{}", lines.join("\n"));
    after.check_usage()
}

/// What is stored fits the definitions that are installed.
async fn check_fields(cluster: &Cluster, stored: &Records) -> Result<()> {
    let refused = unfit_objects(&cluster.objects, |kind| stored.of_kind(kind)).await?;
    ensure!(refused.is_empty(), "{}", refused.join("\n"));
    Ok(())
}

fn manifests(cluster: &Cluster) -> Result<Vec<Value>> {
    install::manifests_with(&cluster.kubectl, &[ALL_KINDS[0], ALL_KINDS[1], V1BETA1.0])
}

fn install_definitions(cluster: &Cluster, manifests: &[Value]) -> Result<()> {
    let port = cluster.webhook_port()?;
    let definitions = manifests.iter().filter(|o| text(o, "/kind") == "CustomResourceDefinition");
    let definitions: Vec<Value> = definitions.map(|object| dial_locally(object.clone(), port)).collect();
    install::apply(&cluster.kubectl, &definitions)
}

fn options(configuration: Value, program: Option<PathBuf>) -> ClusterOptions {
    ClusterOptions {
        configuration,
        program,
        job_kinds: true,
        v1beta1: true,
        nodes: 0,
        ..ClusterOptions::default()
    }
}

/// A control plane beside that of the lane.
struct OwnPlane(Cluster);

impl OwnPlane {
    async fn start(stored: &Stored, options: &ClusterOptions) -> Result<Self> {
        let nodes = if stored.objects.is_empty() { 2 } else { 0 };
        let options = ClusterOptions { nodes, ..options.clone() };
        let folder = ControlPlane::temporary_folder().with_extension("upgrade");
        Ok(Self(Cluster::start_with(stored, &options, &folder).await?))
    }

    /// After a failure, its logs are kept.
    fn finish(mut self, outcome: Result<()>) -> Result<()> {
        if outcome.is_err() {
            if let Ok(manager) = self.0.manager() {
                println!("last log lines of its manager:\n{}", tail(manager.log(), 30));
            }
            println!("logs are in {}", self.0.plane.folder().display());
            self.0.plane.keep_folder();
        }
        outcome
    }
}
