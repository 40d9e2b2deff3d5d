//! Answers without a manager: the core of this process takes the objects of a cluster or a file, and the server's own code
//! answers from it, so that every verb gets the same answers as from a manager.
//!
//! Invariants: nothing is decided and nothing is written; the user may see everything that could be read; unread kinds are
//! named on standard error, and the answers are partial.

mod answers;
mod objects;
pub(super) mod simulated;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::kube::Client;
use anyhow::{Context, bail};
use axum::body::Body;
use http::{Request, Response};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Mutex;

use self::answers::Answers;
use self::objects::StoredObjects;
use super::connection::{Connection, Session};
use super::note;
use crate::api::config::LoadedConfiguration;
use crate::cache::Kind;
use crate::cli::manager::{config_mapping, settings};
use crate::cli::tools::cluster_objects::{CONFIGURATION_FIELD, ClusterObjects, ClusterReader};
use crate::cli::tools::simulate::read_manifests;
use crate::kube::client::Caller;
use crate::reconciler::CoreSettings;
use crate::simulate::{Manifests, SkippedResource};
use crate::visibility::offline::OfflineState;
use crate::visibility::views::{Source, SourceKind};

/// Number of Workloads from which on a note says how much is read.
const MANY_WORKLOADS: u64 = 20_000;
/// Approximate size of a Workload in a list, in bytes.
const WORKLOAD_BYTES: u64 = 3_000;
/// Namespace and name of the manager's ConfigMap.
const CONFIG_MAP: (&str, &str) = (settings::DEFAULT_NAMESPACE, "kueue-manager-config");
/// Least age of objects that are read again; less than the interval between two readings of `-w`.
const MIN_AGE: Duration = Duration::from_millis(1_500);
/// Objects are used this many times longer than reading them took.
const COST_FACTOR: u32 = 10;
/// Time limit of an answer of this process.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// The source of answers to requests that are not for the views.
#[derive(Clone)]
enum Objects {
    /// The API server.
    Cluster(Client),
    /// The objects of a file.
    Stored(Arc<StoredObjects>),
}

/// Parts of the objects that could not be read.
#[derive(Clone, Copy, Debug, Default)]
struct Missing {
    /// Any part at all.
    any: bool,
    /// Kinds without which the engine cannot explain why a workload waits.
    decisive: bool,
}

impl Missing {
    fn of<'a>(skipped: impl Iterator<Item = &'a str>) -> Self {
        const DECISIVE: [&str; 6] =
            ["workloads", "clusterqueues", "localqueues", "cohorts", "resourceflavors", "namespaces"];
        skipped.fold(Self::default(), |missing, resource| Self {
            any: true,
            decisive: missing.decisive || DECISIVE.contains(&resource),
        })
    }
}

/// Reads the objects of a cluster; again later for a verb that reads repeatedly.
pub(super) async fn of_cluster(connection: Connection) -> anyhow::Result<Session> {
    let cluster = ClusterReader::of(connection.caller());
    let Connection { client, timeout, namespace, .. } = connection;
    let core = cluster_settings(&cluster).await?;
    if let Some(count) = cluster.count(Kind::Workload).await.filter(|count| *count > MANY_WORKLOADS) {
        let megabytes = count.saturating_mul(WORKLOAD_BYTES) / 1_000_000;
        note(&format!("reading {count} workloads (about {megabytes} MB)..."));
    }
    let begun = Instant::now();
    let (answers, skipped) = read_cluster(&cluster, &core, &namespace).await?;
    if let Some(first) = skipped.first() {
        let names: Vec<&str> = skipped.iter().map(|skipped| skipped.resource.as_str()).collect();
        note(&format!("note: cannot read in the whole cluster: {} ({})", names.join(", "), first.reason));
    }
    let is_partial = !skipped.is_empty();
    let kept = Kept { answers: Arc::new(answers), made: Instant::now(), cost: begun.elapsed() };
    let reading = Reading { cluster, core, namespace: namespace.clone(), kept: Mutex::new(kept) };
    let source = AnswerSource::Cluster(Arc::new(reading));
    Ok(session(source, Objects::Cluster(client), (namespace, timeout, is_partial)))
}

async fn read_cluster(
    cluster: &ClusterReader,
    core: &CoreSettings,
    namespace: &str,
) -> anyhow::Result<(Answers, Vec<SkippedResource>)> {
    let ClusterObjects { objects, skipped } = cluster.objects_of(&core.kinds(), namespace).await?;
    let missing = Missing::of(skipped.iter().map(|skipped| skipped.resource.as_str()));
    let source = Source { kind: SourceKind::Cluster, time: Some(Timestamp::now()), ..Source::default() };
    let state = load(core.clone(), objects.into_iter().map(|(_, object)| object), &source);
    Ok((Answers::new(state, source, missing), skipped))
}

/// The source of answers for the views.
#[derive(Clone)]
enum AnswerSource {
    /// Objects of a cluster, read again when they are old.
    Cluster(Arc<Reading>),
    /// Objects of a file.
    Stored(Arc<Answers>),
}

/// Objects of a cluster, and how to read them again.
struct Reading {
    cluster: ClusterReader,
    core: CoreSettings,
    namespace: String,
    kept: Mutex<Kept>,
}

/// Answers, the time at which their objects were read, and how long that took.
struct Kept {
    answers: Arc<Answers>,
    made: Instant,
    cost: Duration,
}

impl AnswerSource {
    /// Returns the answers. Objects are read again after `COST_FACTOR` times the duration of the last read, and at least
    /// `MIN_AGE`, but not between the pages of a list.
    async fn answers(&self, query: Option<&str>) -> anyhow::Result<Arc<Answers>> {
        let reading = match self {
            Self::Stored(answers) => return Ok(Arc::clone(answers)),
            Self::Cluster(reading) => reading,
        };
        let mut kept = reading.kept.lock().await;
        let is_first = !query.unwrap_or_default().contains("continue=");
        if is_first && kept.made.elapsed() > MIN_AGE.max(kept.cost.saturating_mul(COST_FACTOR)) {
            let begun = Instant::now();
            let (answers, _) = read_cluster(&reading.cluster, &reading.core, &reading.namespace).await?;
            *kept = Kept { answers: Arc::new(answers), made: Instant::now(), cost: begun.elapsed() };
        }
        Ok(Arc::clone(&kept.answers))
    }
}

/// Reads the objects of a file.
pub(super) fn of_file(path: &Path, namespace: String) -> anyhow::Result<Session> {
    let mut manifests = Manifests::default();
    read_manifests(path, &namespace, &mut manifests).context("--source")?;
    let Some(dump) = manifests.dump.take() else {
        bail!("--source {}: no file of sluice dump", path.display());
    };
    for problem in &manifests.problems {
        note(&format!("note: {problem}"));
    }
    // Kinds that the dump lacks make the answers partial too.
    let is_partial = !manifests.problems.is_empty() || !dump.skipped.is_empty();
    let mut missing = Missing::of(dump.skipped.iter().map(|skipped| skipped.resource.as_str()));
    missing.any |= is_partial;
    let loaded = simulated::configuration_of(&dump)?;
    let core = config_mapping::core_settings(&loaded.configuration, settings::DEFAULT_NAMESPACE);
    let replica = path.display().to_string();
    let source = Source { kind: SourceKind::File, replica, time: Some(dump.time), ..Source::default() };
    let objects: Vec<(Kind, Value)> =
        manifests.objects.into_iter().map(|manifest| (manifest.kind, manifest.object)).collect();
    let state = load(core, objects.iter().map(|(_, object)| object.clone()), &source);
    let answers = Answers::new(state, source, missing);
    let stored = Arc::new(StoredObjects::of(objects));
    let answers = AnswerSource::Stored(Arc::new(answers));
    let session = session(answers, Objects::Stored(stored), (namespace, ANSWER_TIMEOUT, is_partial));
    Ok(Session { dump: Some(Box::new(dump)), ..session })
}

fn load(mut core: CoreSettings, objects: impl Iterator<Item = Value>, source: &Source) -> OfflineState {
    // The API server authenticates no user here: a list of what the user submitted is refused, and not empty.
    core.copied.submitter = None;
    let now = source.time.unwrap_or_default();
    OfflineState::load(core, objects, (source.kind, now))
}

/// Returns the settings of the cluster's manager; the built-in ones, with a note, if its configuration cannot be read.
async fn cluster_settings(cluster: &ClusterReader) -> anyhow::Result<CoreSettings> {
    let (loaded, missing) = cluster_configuration(cluster).await?;
    if let Some(reason) = missing {
        note(&format!(
            "note: the manager's configuration is not known ({reason}): taken as the built-in one"
        ));
    }
    Ok(config_mapping::core_settings(&loaded.configuration, settings::DEFAULT_NAMESPACE))
}

/// Returns the configuration of the cluster's manager; the built-in one, with the reason, if it cannot be read.
async fn cluster_configuration(
    cluster: &ClusterReader,
) -> anyhow::Result<(LoadedConfiguration, Option<String>)> {
    let (namespace, name) = CONFIG_MAP;
    Ok(match cluster.config_map_field(namespace, name, CONFIGURATION_FIELD).await? {
        Ok(text) => {
            let what = format!("ConfigMap {namespace}/{name}");
            (settings::checked(&what, settings::document_of(&text, &what, None)?)?, None)
        }
        Err(reason) => (settings::configuration(None, None)?, Some(reason)),
    })
}

/// Returns a session whose requests this process answers.
fn session(
    source: AnswerSource,
    objects: Objects,
    (namespace, timeout, is_partial): (String, Duration, bool),
) -> Session {
    let service = tower::service_fn(move |request: Request<::kube::client::Body>| {
        let (source, objects) = (source.clone(), objects.clone());
        async move { respond(&source, &objects, request).await }
    });
    let client = Client::new(service, namespace.clone());
    Session { caller: Caller::new(client, timeout), namespace, is_partial, dump: None }
}

async fn respond(
    source: &AnswerSource,
    objects: &Objects,
    request: Request<::kube::client::Body>,
) -> Result<Response<Body>, tower::BoxError> {
    if request.uri().path().starts_with(answers::GROUP_PATH) {
        let answers = source.answers(request.uri().query()).await?;
        return Ok(answers.respond(request.map(Body::new)).await);
    }
    match objects {
        Objects::Cluster(client) => Ok(client.send(request).await?.map(Body::new)),
        Objects::Stored(stored) => Ok(stored.respond(request.method(), request.uri())),
    }
}

/// Returns the kinds of objects.
fn kinds(objects: &[(Kind, Value)]) -> BTreeSet<Kind> {
    objects.iter().map(|(kind, _)| *kind).collect()
}
