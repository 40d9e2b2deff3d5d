//! Watches one kind each and passes deltas to a sink.
//!
//! Invariants: a list is sent as Restarted, Applied…, Synced, so that the core deletes objects missing from it; errors are
//! counted and retried with back-off and never end a watch, so the caller treats a finished task as an error. Managed fields
//! and the last-applied annotation are removed from all objects.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use ::kube::api::DynamicObject;
use ::kube::core::{ApiResource, GroupVersionKind, PartialObjectMeta};
use ::kube::runtime::watcher::{self, Event, watcher};
use ::kube::{Api, Client};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::object::Object;
use super::partial_objects::{Partial, PartialKind, PartialNode, PartialPod};
use super::sink::{DeltaSink, SinkClosed};
use super::watch_status::{WatchHealth, WatchStatuses};
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
    /// Whether only the metadata of the objects is read. They are not managed: while they cannot be read, the core gets
    /// `Unread` and waits for no list.
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

/// The objects that a watch reads.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Kind of the objects.
    pub kind: Kind,
    /// Label selector, such as `a=b,c!=d`; without one all objects are read. An object that stops matching counts as deleted.
    pub labels: Option<String>,
}

/// Watches the selected objects. Returns only when the receiver of the sink is dropped.
pub async fn run_watch<S: DeltaSink>(
    client: Client,
    selection: Selection,
    settings: WatchSettings,
    statuses: WatchStatuses,
    sink: S,
) {
    let kind = selection.kind;
    let client = statuses.with_activity_tracking(client, kind);
    let (resource, health) = (kind.resource(), statuses.health(kind));
    let (dynamic, config) = (api_resource(&resource), watcher_config(&selection, &settings));
    let report = Reporter { kind, resource, health, sink };
    match kind {
        _ if settings.metadata_only => {
            let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client, &dynamic);
            TypedWatch::new(api, config, settings, report).run().await;
        }
        Kind::Node => {
            let api: Api<Partial<PartialNode>> = Api::all(client);
            TypedWatch::new(api, config, settings, report).run().await;
        }
        Kind::Pod if !settings.pods_are_jobs => {
            let api: Api<Partial<PartialPod>> = Api::all(client);
            TypedWatch::new(api, config, settings, report).run().await;
        }
        Kind::Workload => {
            let api: Api<PartialWorkload> = Api::all(client);
            TypedWatch::new(api, config, settings, report).run().await;
        }
        _ => {
            let api: Api<Object> = Api::all_with(client, &dynamic);
            TypedWatch::new(api, config, settings, report).run().await;
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

/// Returns the requests of a watch, with lists in pages.
fn watcher_config(selection: &Selection, settings: &WatchSettings) -> watcher::Config {
    let mut config = watcher::Config::default()
        .page_size(settings.page_size)
        .timeout(u32::try_from(settings.timeout.as_secs()).unwrap_or(60));
    if selection.kind == Kind::Pod && !settings.pods_are_jobs {
        config = config.fields(ACTIVE_PODS_SELECTOR);
    }
    if let Some(labels) = &selection.labels {
        config = config.labels(labels);
    }
    config
}

/// Output of a watch: deltas to its sink, and its state.
struct Reporter<S> {
    kind: Kind,
    resource: ApiResourceInfo,
    health: Arc<WatchHealth>,
    sink: S,
}

impl<S: DeltaSink> Reporter<S> {
    /// Reports that a list or a watch failed.
    async fn send_error(&self, error: &watcher::Error, metadata_only: bool) -> Result<(), SinkClosed> {
        self.health.record_error();
        if metadata_only && (is_forbidden(error) || is_not_served(error)) {
            return self.send_unread(error).await;
        }
        if is_not_served(error) {
            return self.send_not_served().await;
        }
        tracing::warn!(kind = self.resource.kind, %error, "watch failed, retrying");
        Ok(())
    }

    /// Reports that the objects of a kind that is not managed cannot be read.
    async fn send_unread(&self, error: &watcher::Error) -> Result<(), SinkClosed> {
        if !self.health.mark_unread() {
            log_unread(&self.resource, error);
            self.sink.deliver(Delta::Unread { kind: self.kind }).await?;
        }
        self.health.mark_synced();
        Ok(())
    }

    /// Reports that the API server does not serve the kind. An optional kind counts as an empty list.
    async fn send_not_served(&self) -> Result<(), SinkClosed> {
        let kind = self.kind;
        let optional = is_optional_kind(kind);
        if !self.health.mark_not_served() {
            log_not_served(&self.resource, optional);
        }
        if optional {
            if !self.health.synced() {
                self.sink.deliver(Delta::Restarted { kind }).await?;
                self.sink.deliver(Delta::Synced { kind }).await?;
            }
            self.health.mark_synced();
        }
        Ok(())
    }
}

/// A watch of objects of one type.
struct TypedWatch<K, S> {
    api: Api<K>,
    config: watcher::Config,
    settings: WatchSettings,
    report: Reporter<S>,
    events: BoxStream<'static, watcher::Result<Event<K>>>,
    /// Whether streaming lists are tried: not after the server has refused or ended them.
    streaming: bool,
    lists_begun: u32,
    /// Consecutive errors.
    failures: u32,
    /// When the next full list is due; none is before the first list is complete.
    relist_due: Option<Instant>,
}

impl<K: WatchedObject, S: DeltaSink> TypedWatch<K, S> {
    fn new(api: Api<K>, config: watcher::Config, settings: WatchSettings, report: Reporter<S>) -> Self {
        let streaming = settings.streaming_lists;
        let first = if streaming { config.clone().streaming_lists() } else { config.clone() };
        Self {
            events: watcher(api.clone(), first).boxed(),
            api,
            config,
            settings,
            report,
            streaming,
            lists_begun: 0,
            failures: 0,
            relist_due: None,
        }
    }

    /// Runs until the receiver of the sink is dropped.
    async fn run(mut self) {
        loop {
            let Some(next) = poll_until(self.relist_due, self.events.try_next()).await else {
                self.list_in_pages();
                continue;
            };
            let sent = match next {
                Ok(Some(Event::Init)) if self.streaming_lists_fail() => {
                    self.stop_streaming();
                    Ok(())
                }
                Ok(Some(event)) => self.send(event).await,
                Ok(None) => return,
                Err(error) if self.streaming && rejects_streaming_list(&error) => {
                    self.stop_streaming();
                    Ok(())
                }
                Err(error) => self.wait_after(&error).await,
            };
            if sent.is_err() {
                return;
            }
        }
    }

    fn stop_streaming(&mut self) {
        self.streaming = false;
        self.list_in_pages();
    }

    /// Lists all objects again. A paginated list is read from etcd itself, after the watcher's Init has reported its start.
    fn list_in_pages(&mut self) {
        self.relist_due = None;
        self.events = watcher(self.api.clone(), self.config.clone()).boxed();
    }

    /// Returns whether a new streaming list would end early like the previous ones. The server ends a streaming list whose
    /// reader does not keep up with changes.
    fn streaming_lists_fail(&self) -> bool {
        self.streaming && !self.report.health.synced() && self.lists_begun == STREAMING_ATTEMPTS
    }

    async fn send(&mut self, event: Event<K>) -> Result<(), SinkClosed> {
        // The watcher emits Init before it contacts the server, so it proves nothing.
        if matches!(event, Event::Init) {
            self.report.health.list_started();
            self.lists_begun = self.lists_begun.saturating_add(1);
        } else {
            self.failures = 0;
            self.report.health.mark_served();
        }
        let is_end = matches!(event, Event::InitDone);
        let Reporter { kind, resource, health, sink } = &self.report;
        sink.deliver(to_delta(*kind, resource, event)).await?;
        if is_end {
            self.relist_due = Some(Instant::now() + jitter(self.settings.relist_interval));
            health.mark_synced();
            tracing::debug!(kind = resource.kind, "listed");
        }
        Ok(())
    }

    /// Reports an error, and waits before the next attempt.
    async fn wait_after(&mut self, error: &watcher::Error) -> Result<(), SinkClosed> {
        self.report.send_error(error, self.settings.metadata_only).await?;
        if self.report.health.synced() && is_expired_version(error) {
            self.list_in_pages();
        }
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(backoff(&self.settings, self.failures)).await;
        Ok(())
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

/// Logs a missing definition. Most clusters lack some optional definitions, which needs no action.
fn log_not_served(resource: &ApiResourceInfo, optional: bool) {
    let (kind, group) = (resource.kind, resource.group);
    if optional {
        tracing::info!(kind, group, "optional kind is not served by the API server");
    } else {
        tracing::warn!(kind, group, "kind is not served by the API server; waiting for its definition");
    }
}

/// Logs that objects that are not managed cannot be read, so that fewer owners of other objects are known.
fn log_unread(resource: &ApiResourceInfo, error: &watcher::Error) {
    let (kind, group) = (resource.kind, resource.group);
    if is_forbidden(error) {
        tracing::warn!(kind, group, %error, "no right to read this kind: what is queued above its objects is not seen");
    } else {
        tracing::info!(kind, group, "optional kind is not served by the API server");
    }
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
