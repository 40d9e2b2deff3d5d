//! Watches one kind each and sends deltas to the core.
//!
//! Invariants: a list is sent as Restarted, Applied…, Synced, so that the core deletes objects missing from it; errors are
//! counted and retried with back-off and never end a watch, so the caller treats a finished task as an error. Managed fields
//! and the last-applied annotation are removed from all objects.

use std::fmt::Debug;
use std::time::Duration;

use ::kube::api::DynamicObject;
use ::kube::core::{ApiResource, GroupVersionKind, PartialObjectMeta};
use ::kube::runtime::watcher::{self, Event, watcher};
use ::kube::{Api, Client};
use futures::{StreamExt, TryStreamExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::object::Object;
use super::partial_objects::{Partial, PartialKind, PartialNode, PartialPod};
use super::watch_status::WatchStatuses;
use super::workload::PartialWorkload;
use crate::api::ObjectKey;
use crate::cache::{ApiResourceInfo, Kind};
use crate::reconciler::Delta;

/// Finished pods use no node capacity and never run again.
const ACTIVE_PODS_SELECTOR: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// Streaming lists that may end before they are complete, until a list in pages is read.
const STREAMING_ATTEMPTS: u32 = 2;

/// Settings of watches.
#[derive(Clone, Copy, Debug)]
pub struct WatchSettings {
    /// Objects per page of a list.
    pub page_size: u32,
    /// Whether to use streaming lists where the server offers them: it encodes objects while they are read.
    pub streaming_lists: bool,
    /// Watch timeout requested from the server; bounds a silent stall.
    pub timeout: Duration,
    /// Upper bound of the time between full lists, which repair lost events. Jitter shortens it by at most half.
    pub relist_interval: Duration,
    /// Delay after the first error.
    pub min_backoff: Duration,
    /// Maximum delay after consecutive errors.
    pub max_backoff: Duration,
    /// Whether pods are jobs: they are read whole then, including ended pods.
    pub pods_are_jobs: bool,
    /// Whether only the metadata of the objects is read. They are not managed: while they cannot be read, the core is told so, and
    /// waits for no list.
    pub metadata_only: bool,
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
            pods_are_jobs: false,
            metadata_only: false,
        }
    }
}

/// Watches one kind. Returns only when the receiver is dropped.
pub async fn run_watch(
    client: Client,
    kind: Kind,
    settings: WatchSettings,
    statuses: WatchStatuses,
    deltas: mpsc::Sender<Delta>,
) {
    let client = statuses.with_activity_tracking(client, kind);
    match kind {
        _ if settings.metadata_only => {
            let api: Api<PartialObjectMeta<DynamicObject>> =
                Api::all_with(client, &api_resource(&kind.resource()));
            run_typed_watch(api, kind, settings, statuses, deltas).await;
        }
        Kind::Node => {
            run_typed_watch(Api::<Partial<PartialNode>>::all(client), kind, settings, statuses, deltas).await;
        }
        Kind::Pod if !settings.pods_are_jobs => {
            run_typed_watch(Api::<Partial<PartialPod>>::all(client), kind, settings, statuses, deltas).await;
        }
        Kind::Workload => {
            run_typed_watch(Api::<PartialWorkload>::all(client), kind, settings, statuses, deltas).await;
        }
        _ => {
            let api: Api<Object> = Api::all_with(client, &api_resource(&kind.resource()));
            run_typed_watch(api, kind, settings, statuses, deltas).await;
        }
    }
}

/// An object type decoded by a watch.
trait WatchedObject: ::kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static {
    /// Converts the object to a delta.
    fn into_delta(self, kind: Kind, resource: &ApiResourceInfo) -> Delta;
}

impl WatchedObject for Object {
    fn into_delta(self, kind: Kind, resource: &ApiResourceInfo) -> Delta {
        Delta::Applied { kind, object: self.with_type_meta(&api_version(resource), resource.kind) }
    }
}

impl<S: PartialKind> WatchedObject for Partial<S> {
    fn into_delta(self, kind: Kind, _: &ApiResourceInfo) -> Delta {
        // Serializing strings, maps and lists to JSON cannot fail.
        Delta::Applied { kind, object: serde_json::to_value(self).unwrap_or_default() }
    }
}

impl WatchedObject for PartialWorkload {
    fn into_delta(self, _: Kind, _: &ApiResourceInfo) -> Delta {
        self.into()
    }
}

impl WatchedObject for PartialObjectMeta<DynamicObject> {
    fn into_delta(mut self, kind: Kind, resource: &ApiResourceInfo) -> Delta {
        // They are large, and nothing reads them.
        (self.metadata.managed_fields, self.metadata.annotations) = (None, None);
        let (version, name) = (api_version(resource), resource.kind);
        Delta::Applied {
            kind,
            object: json!({"apiVersion": version, "kind": name, "metadata": self.metadata}),
        }
    }
}

async fn run_typed_watch<K: WatchedObject>(
    api: Api<K>,
    kind: Kind,
    settings: WatchSettings,
    statuses: WatchStatuses,
    deltas: mpsc::Sender<Delta>,
) {
    let health = statuses.health(kind);
    let resource = &kind.resource();
    let mut config = watcher::Config::default()
        .page_size(settings.page_size)
        .timeout(u32::try_from(settings.timeout.as_secs()).unwrap_or(60));
    if kind == Kind::Pod && !settings.pods_are_jobs {
        config = config.fields(ACTIVE_PODS_SELECTOR);
    }
    let mut streaming = settings.streaming_lists;
    let initial_config = if streaming { config.clone().streaming_lists() } else { config.clone() };
    let mut stream = watcher(api.clone(), initial_config).boxed();
    let mut failures = 0_u32;
    let mut lists_begun = 0_u32;
    // No relist is due before the first list is complete.
    let mut due = None;
    loop {
        let Some(next) = poll_until(due, stream.try_next()).await else {
            // A paginated list is read from etcd itself, after the watcher's Init has told the core that a list begins.
            due = None;
            stream = watcher(api.clone(), config.clone()).boxed();
            continue;
        };
        match next {
            Ok(Some(Event::Init)) if streaming && !health.synced() && lists_begun == STREAMING_ATTEMPTS => {
                // The server ends a streaming list whose reader does not keep up with changes, and would do so again and again.
                streaming = false;
                stream = watcher(api.clone(), config.clone()).boxed();
            }
            Ok(Some(event)) => {
                // The watcher emits Init before it contacts the server, so it proves nothing.
                if matches!(event, Event::Init) {
                    health.list_started();
                    lists_begun = lists_begun.saturating_add(1);
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
            Err(error) if streaming && rejects_streaming_list(&error) => {
                streaming = false;
                stream = watcher(api.clone(), config.clone()).boxed();
            }
            Err(error) => {
                health.record_error();
                if settings.metadata_only && (is_forbidden(&error) || is_not_served(&error)) {
                    if !health.mark_unread() {
                        log_unread(resource, &error);
                        if deltas.send(Delta::Unread { kind }).await.is_err() {
                            return;
                        }
                    }
                    health.mark_synced();
                } else if is_not_served(&error) {
                    let optional = is_optional_kind(kind);
                    if !health.mark_not_served() {
                        log_not_served(resource, optional);
                    }
                    if optional && !health.synced() && send_empty_list(kind, &deltas).await.is_err() {
                        return;
                    }
                    if optional {
                        health.mark_synced();
                    }
                } else {
                    tracing::warn!(kind = resource.kind, %error, "watch failed, retrying");
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

/// Returns whether the resourceVersion expired. A list follows.
fn is_expired_version(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchError(status) if status.code == 410)
}

/// Polls `future` until `due`. Unlike `timeout_at`, also expires if the future is always ready.
async fn poll_until<T>(due: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    match due {
        None => Some(future.await),
        Some(due) if Instant::now() >= due => None,
        Some(due) => tokio::time::timeout_at(due, future).await.ok(),
    }
}

/// Returns whether a kind may be absent, which counts as an empty list: CRDs of job integrations and of the autoscaler
/// belong to other projects, and MultiKueueClusters matter only if jobs are dispatched to one.
fn is_optional_kind(kind: Kind) -> bool {
    matches!(kind, Kind::Job(_) | Kind::Related(_) | Kind::ProvisioningRequest | Kind::MultiKueueCluster)
}

/// Logs a missing definition. Most clusters lack some of the optional ones, which is nothing to act on.
fn log_not_served(resource: &ApiResourceInfo, optional: bool) {
    let (kind, group) = (resource.kind, resource.group);
    if optional {
        tracing::info!(kind, group, "optional kind is not served by the API server");
    } else {
        tracing::warn!(kind, group, "kind is not served by the API server; waiting for its definition");
    }
}

/// Logs that objects which are not managed cannot be read: of what is above other objects, less is seen.
fn log_unread(resource: &ApiResourceInfo, error: &watcher::Error) {
    let (kind, group) = (resource.kind, resource.group);
    if is_forbidden(error) {
        tracing::warn!(kind, group, %error, "no right to read this kind: what is queued above its objects is not seen");
    } else {
        tracing::info!(kind, group, "optional kind is not served by the API server");
    }
}

async fn send_empty_list(
    kind: Kind,
    deltas: &mpsc::Sender<Delta>,
) -> Result<(), mpsc::error::SendError<Delta>> {
    deltas.send(Delta::Restarted { kind }).await?;
    deltas.send(Delta::Synced { kind }).await
}

/// Exponential back-off with jitter, so that watches that failed together do not reconnect together.
pub(super) fn backoff(settings: &WatchSettings, failures: u32) -> Duration {
    let factor = 2_u32.saturating_pow(failures.saturating_sub(1).min(16));
    jitter(settings.min_backoff.saturating_mul(factor).min(settings.max_backoff))
}

/// Returns a random duration between half of `duration` and all of it.
pub(crate) fn jitter(duration: Duration) -> Duration {
    let half = duration / 2;
    half + half.mul_f64(fastrand::f64())
}

/// Returns whether the server does not support streaming lists: it then rejects the request as invalid.
fn rejects_streaming_list(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(::kube::Error::Api(status)) if matches!(status.code, 400 | 422))
}

pub(super) fn is_not_served(error: &watcher::Error) -> bool {
    refusal_code(error) == Some(404)
}

fn is_forbidden(error: &watcher::Error) -> bool {
    refusal_code(error) == Some(403)
}

/// Returns the code with which a list or the start of a watch was refused.
fn refusal_code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(::kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(::kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

pub(super) fn api_resource(resource: &ApiResourceInfo) -> ApiResource {
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
            let or_empty = |field: &Option<String>| field.clone().unwrap_or_default();
            Delta::Deleted {
                kind,
                key: ObjectKey::new(&or_empty(&meta.namespace), &or_empty(&meta.name)),
                uid: or_empty(&meta.uid),
            }
        }
    }
}

/// Returns `group/version`, or the version alone for the core group.
pub fn api_version(resource: &ApiResourceInfo) -> String {
    if resource.group.is_empty() {
        resource.version.to_owned()
    } else {
        format!("{}/{}", resource.group, resource.version)
    }
}

/// Watches the object with one name. Sends its latest state, or `None` while it does not exist, together with `tag`.
pub async fn watch_object<T: Clone>(
    api: Api<DynamicObject>,
    name: String,
    settings: WatchSettings,
    sender: mpsc::Sender<(T, Option<DynamicObject>)>,
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
                tracing::warn!(name, %error, "watch failed, retrying");
                failures = failures.saturating_add(1);
                tokio::time::sleep(backoff(&settings, failures)).await;
                continue;
            }
        };
        failures = 0;
        if sender.send((tag.clone(), state)).await.is_err() {
            return;
        }
    }
}
