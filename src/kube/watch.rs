//! One watch per kind, as deltas for the core.
//!
//! Invariants: a list is told as Restarted, Applied…, Synced, so that what it lacks is deleted by absence; an error is
//! a value that is counted and waited out, never the end; a task that ends is an error of the caller. Objects lose
//! their managed fields and the last-applied annotation before anyone sees them.

use std::fmt::Debug;
use std::time::Duration;

use ::kube::api::DynamicObject;
use ::kube::core::{ApiResource, GroupVersionKind};
use ::kube::runtime::watcher::{self, Event, watcher};
use ::kube::{Api, Client};
use futures::{StreamExt, TryStreamExt};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::object::Object;
use super::partial_objects::{Partial, PartialKind, PartialNode, PartialPod};
use super::watch_status::WatchStatuses;
use super::workload::PartialWorkload;
use crate::api::ObjectKey;
use crate::state::{ApiResourceInfo, Delta, Kind};

/// Pods that have ended take nothing of their nodes and never come back.
const ACTIVE_PODS_SELECTOR: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// How watches run.
#[derive(Clone, Copy, Debug)]
pub struct WatchSettings {
    /// Objects per page of a list.
    pub page_size: u32,
    /// Whether lists come as streams where the server offers it: it writes them while they are read.
    pub streaming_lists: bool,
    /// A watch is asked to end after this long: the bound on a silent stall.
    pub timeout: Duration,
    /// Everything is listed anew after this long: the bound on an event that never came. No less than half of it.
    pub relist_interval: Duration,
    /// First pause after an error.
    pub min_backoff: Duration,
    /// Longest pause after errors in a row.
    pub max_backoff: Duration,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self {
            page_size: 500,
            streaming_lists: false,
            timeout: Duration::from_mins(1),
            relist_interval: Duration::from_hours(1),
            min_backoff: Duration::from_millis(200),
            max_backoff: Duration::from_secs(10),
        }
    }
}

/// Follows one kind for ever; ends only when nobody listens any more.
pub async fn run_watch(
    client: Client,
    kind: Kind,
    settings: WatchSettings,
    board: WatchStatuses,
    deltas: mpsc::Sender<Delta>,
) {
    let client = board.with_activity_tracking(client, kind);
    match kind {
        Kind::Node => {
            run_typed_watch(Api::<Partial<PartialNode>>::all(client), kind, settings, board, deltas).await;
        }
        Kind::Pod => {
            run_typed_watch(Api::<Partial<PartialPod>>::all(client), kind, settings, board, deltas).await;
        }
        Kind::Workload => {
            run_typed_watch(Api::<PartialWorkload>::all(client), kind, settings, board, deltas).await;
        }
        _ => {
            let api: Api<Object> = Api::all_with(client, &api_resource(&kind.resource()));
            run_typed_watch(api, kind, settings, board, deltas).await;
        }
    }
}

/// An object as a watch reads it.
trait WatchedObject: ::kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static {
    /// The object as the core takes it.
    fn into_delta(self, kind: Kind, resource: &ApiResourceInfo) -> Delta;
}

impl WatchedObject for Object {
    fn into_delta(self, kind: Kind, resource: &ApiResourceInfo) -> Delta {
        Delta::Applied { kind, object: self.with_type_meta(&api_version(resource), resource.kind) }
    }
}

impl<S: PartialKind> WatchedObject for Partial<S> {
    fn into_delta(self, kind: Kind, _: &ApiResourceInfo) -> Delta {
        // Strings, maps and lists can be told as JSON.
        Delta::Applied { kind, object: serde_json::to_value(self).unwrap_or_default() }
    }
}

impl WatchedObject for PartialWorkload {
    fn into_delta(self, _: Kind, _: &ApiResourceInfo) -> Delta {
        self.into()
    }
}

async fn run_typed_watch<K: WatchedObject>(
    api: Api<K>,
    kind: Kind,
    settings: WatchSettings,
    board: WatchStatuses,
    deltas: mpsc::Sender<Delta>,
) {
    let health = board.health(kind);
    let resource = &kind.resource();
    let mut config = watcher::Config::default()
        .page_size(settings.page_size)
        .timeout(u32::try_from(settings.timeout.as_secs()).unwrap_or(60));
    if kind == Kind::Pod {
        config = config.fields(ACTIVE_PODS_SELECTOR);
    }
    let mut streams = settings.streaming_lists;
    let first = if streams { config.clone().streaming_lists() } else { config.clone() };
    let mut stream = watcher(api.clone(), first).boxed();
    let mut failures = 0_u32;
    // Nothing is due before the first list is complete.
    let mut due = None;
    loop {
        let Some(next) = poll_until(due, stream.try_next()).await else {
            // Pages are read from the store itself, after the core has been told that a list begins.
            due = None;
            stream = watcher(api.clone(), config.clone()).boxed();
            continue;
        };
        match next {
            Ok(Some(event)) => {
                // Init is told before the server is asked: it is no answer.
                if matches!(event, Event::Init) {
                    health.list_started();
                } else {
                    failures = 0;
                    health.mark_served();
                }
                let synced = matches!(event, Event::InitDone);
                if deltas.send(to_delta(kind, resource, event)).await.is_err() {
                    return;
                }
                if synced {
                    due = Some(Instant::now() + jitter(settings.relist_interval));
                    health.mark_synced();
                    tracing::debug!(kind = resource.kind, "listed");
                }
            }
            Ok(None) => return,
            Err(error) if streams && rejects_streaming_list(&error) => {
                streams = false;
                stream = watcher(api.clone(), config.clone()).boxed();
            }
            Err(error) => {
                health.record_error();
                if is_not_served(&error) {
                    if !health.mark_not_served() {
                        tracing::warn!(
                            kind = resource.kind,
                            group = resource.group,
                            "not served by the API server; waiting for its definition"
                        );
                    }
                    if is_optional_kind(kind)
                        && !health.synced()
                        && send_empty_list(kind, &deltas).await.is_err()
                    {
                        return;
                    }
                    if is_optional_kind(kind) {
                        health.mark_synced();
                    }
                } else {
                    tracing::warn!(kind = resource.kind, %error, "watch");
                }
                if health.synced() && is_expired_version(&error) {
                    due = None;
                    stream = watcher(api.clone(), config.clone()).boxed();
                }
                failures = failures.saturating_add(1);
                tokio::time::sleep(backoff(&settings, failures)).await;
            }
        }
    }
}

/// The server has forgotten the revision: what follows is a list.
fn is_expired_version(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchError(status) if status.code == 410)
}

/// What a future comes to, unless its time is over, even if it is always ready.
async fn poll_until<T>(due: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match due {
        None => Some(future.await),
        Some(due) if Instant::now() >= due => None,
        Some(due) => tokio::time::timeout_at(due, future).await.ok(),
    }
}

/// Job kinds and the autoscaler's belong to others, and nothing depends on clusters that no job is sent to: their absence is
/// an empty list.
fn is_optional_kind(kind: Kind) -> bool {
    matches!(kind, Kind::Job(_) | Kind::ProvisioningRequest | Kind::MultiKueueCluster)
}

async fn send_empty_list(
    kind: Kind,
    deltas: &mpsc::Sender<Delta>,
) -> Result<(), mpsc::error::SendError<Delta>> {
    deltas.send(Delta::Restarted { kind }).await?;
    deltas.send(Delta::Synced { kind }).await
}

/// Doubling pauses, spread so that watches that failed together do not come back together.
fn backoff(settings: &WatchSettings, failures: u32) -> Duration {
    let factor = 2_u32.saturating_pow(failures.saturating_sub(1).min(16));
    jitter(settings.min_backoff.saturating_mul(factor).min(settings.max_backoff))
}

/// A duration between the half and the whole.
pub(crate) fn jitter(duration: Duration) -> Duration {
    let half = duration / 2;
    half + half.mul_f64(fastrand::f64())
}

/// A server that does not stream lists says that the request is not valid.
fn rejects_streaming_list(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(::kube::Error::Api(status)) if matches!(status.code, 400 | 422))
}

fn is_not_served(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(::kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(::kube::Error::Api(status)) => status.code == 404,
        _ => false,
    }
}

fn api_resource(resource: &ApiResourceInfo) -> ApiResource {
    let kind = GroupVersionKind::gvk(resource.group, resource.version, resource.kind);
    ApiResource::from_gvk_with_plural(&kind, resource.plural)
}

fn to_delta<K: WatchedObject>(kind: Kind, resource: &ApiResourceInfo, event: Event<K>) -> Delta {
    match event {
        Event::Init => Delta::Restarted { kind },
        Event::InitDone => Delta::Synced { kind },
        Event::Apply(object) | Event::InitApply(object) => object.into_delta(kind, resource),
        Event::Delete(object) => {
            let meta = object.meta();
            let text = |field: &Option<String>| field.clone().unwrap_or_default();
            Delta::Deleted {
                kind,
                key: ObjectKey::new(&text(&meta.namespace), &text(&meta.name)),
                uid: text(&meta.uid),
            }
        }
    }
}

/// `group/version`, or the version alone for core.
pub fn api_version(resource: &ApiResourceInfo) -> String {
    if resource.group.is_empty() {
        resource.version.to_owned()
    } else {
        format!("{}/{}", resource.group, resource.version)
    }
}

/// Follows the object of one name: its latest state, or its absence, under a tag of the caller's.
pub async fn watch_object<T: Clone>(
    api: Api<DynamicObject>,
    name: String,
    settings: WatchSettings,
    seen: mpsc::Sender<(T, Option<DynamicObject>)>,
    tag: T,
) {
    let config = watcher::Config::default()
        .fields(&format!("metadata.name={name}"))
        .timeout(u32::try_from(settings.timeout.as_secs()).unwrap_or(60));
    let mut stream = watcher(api, config).boxed();
    let mut failures = 0_u32;
    let mut listed = None;
    while let Some(item) = stream.next().await {
        let state = match item {
            Ok(Event::Init) => {
                listed = None;
                continue;
            }
            Ok(Event::InitApply(object)) => {
                listed = Some(object);
                continue;
            }
            Ok(Event::InitDone) => listed.take(),
            Ok(Event::Apply(object)) => Some(object),
            Ok(Event::Delete(_)) => None,
            Err(error) => {
                tracing::warn!(name, %error, "watch");
                failures = failures.saturating_add(1);
                tokio::time::sleep(backoff(&settings, failures)).await;
                continue;
            }
        };
        failures = 0;
        if seen.send((tag.clone(), state)).await.is_err() {
            return;
        }
    }
}
