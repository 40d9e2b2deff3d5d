//! Warns about objects that name a queue and whose kind is configured, but not served by this version: they run without
//! quota, which their users would otherwise learn only from the manager's log.
//!
//! Invariants: only metadata is read, and only of objects with the queue label; each object gets one event while it exists;
//! neither a missing definition nor a missing permission ends a watch, delays another one or affects readiness.

use std::collections::BTreeSet;
use std::sync::Arc;

use ::kube::core::metadata::PartialObjectMeta;
use ::kube::core::{ApiResource, DynamicObject, ObjectMeta};
use ::kube::runtime::watcher::{self, watcher};
use ::kube::{Api, Client, Resource as _};
use futures::StreamExt;
use futures::future::join_all;
use tokio::sync::{Notify, mpsc};

use super::watch::{WatchSettings, api_resource, backoff, is_not_served};
use crate::api::ObjectKey;
use crate::api::names::QUEUE_NAME_LABEL;
use crate::cache::Kind;
use crate::frameworks::{JobKind, ManagedKinds, Management, OwnerRef, served};
use crate::reconciler::{CoreSettings, Event, EventType};

/// Reason of the events.
pub const FRAMEWORK_NOT_SERVED: &str = "FrameworkNotServed";

/// The task that watches these kinds.
pub struct UnservedFrameworks {
    /// Client of the watches.
    pub client: Client,
    /// The kinds.
    pub kinds: Vec<JobKind>,
    /// Settings of the core, which say by which owners an object has quota.
    pub core: CoreSettings,
    /// Settings of the watches.
    pub watch: WatchSettings,
    /// Receives the events.
    pub events: mpsc::UnboundedSender<Event>,
    /// Notified when a watch is forbidden.
    pub recheck: Arc<Notify>,
}

impl UnservedFrameworks {
    /// Watches all kinds. Never returns if there is one.
    pub async fn run(self) {
        join_all(self.kinds.iter().map(|kind| self.watch_kind(*kind))).await;
    }

    async fn watch_kind(&self, kind: JobKind) {
        let resource: ApiResource = api_resource(&Kind::Job(kind).resource());
        let api = Api::<PartialObjectMeta<DynamicObject>>::all_with(self.client.clone(), &resource);
        let config = watcher::Config::default()
            .labels(QUEUE_NAME_LABEL)
            .page_size(self.watch.page_size)
            .timeout(u32::try_from(self.watch.timeout.as_secs()).unwrap_or(60));
        let mut stream = watcher(api, config).boxed();
        let mut reported = Reported::default();
        let (mut failures, mut forbidden) = (0_u32, false);
        while let Some(item) = stream.next().await {
            let event = match item {
                Ok(event) => event,
                Err(error) => {
                    if is_forbidden(&error) {
                        self.recheck.notify_one();
                        if !std::mem::replace(&mut forbidden, true) {
                            tracing::warn!(kind = kind.gvk.kind, %error, "no events on objects that run without quota");
                        }
                    } else if is_not_served(&error) {
                        tracing::debug!(kind = kind.gvk.kind, "not served by the API server");
                    } else {
                        tracing::warn!(kind = kind.gvk.kind, %error, "watch failed, retrying");
                    }
                    failures = failures.saturating_add(1);
                    tokio::time::sleep(backoff(&self.watch, failures)).await;
                    continue;
                }
            };
            // The watcher emits Init before it contacts the server, so it proves nothing.
            if !matches!(event, watcher::Event::Init) {
                (failures, forbidden) = (0, false);
            }
            if let Some(meta) = reported.observe(event)
                && let Some(event) = warning(kind, &meta, &self.core.managed())
                && self.events.send(event).is_err()
            {
                return;
            }
        }
    }
}

/// UIDs of existing objects that were reported.
#[derive(Default)]
struct Reported {
    uids: BTreeSet<String>,
    /// UIDs of the list that is being read.
    listed: BTreeSet<String>,
}

impl Reported {
    /// Returns the metadata of an object that is seen for the first time.
    fn observe(&mut self, event: watcher::Event<PartialObjectMeta<DynamicObject>>) -> Option<ObjectMeta> {
        match event {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitDone => self.uids = std::mem::take(&mut self.listed),
            watcher::Event::Delete(object) => {
                self.uids.remove(object.meta().uid.as_ref()?);
            }
            watcher::Event::InitApply(object) => {
                let uid = object.meta().uid.clone()?;
                self.listed.insert(uid.clone());
                return self.uids.insert(uid).then_some(object.metadata);
            }
            watcher::Event::Apply(object) => {
                return self.uids.insert(object.meta().uid.clone()?).then_some(object.metadata);
            }
        }
        None
    }
}

/// Returns the warning about an object of a kind that is not served, unless it names no queue, is being deleted, or an
/// owner has its quota.
fn warning(kind: JobKind, meta: &ObjectMeta, managed: &ManagedKinds<'_>) -> Option<Event> {
    let queue = meta.labels.as_ref()?.get(QUEUE_NAME_LABEL)?;
    let owner = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    let has_quota = owner.is_some_and(|owner| {
        let owner = OwnerRef {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        };
        let management = managed.owner_management(&owner, (kind.gvk.group, kind.gvk.kind));
        matches!(management, Management::Internal | Management::External)
    });
    if queue.is_empty() || meta.deletion_timestamp.is_some() || has_quota {
        return None;
    }
    let name = kind.gvk.kind;
    let served: Vec<String> =
        served().map(|row| format!("{} {}", row.gvk.api_version(), row.gvk.kind)).collect();
    let note = format!(
        "this version serves no {name} ({}), although integrations.frameworks lists it: the {name} runs without quota \
         admission, whatever its label {QUEUE_NAME_LABEL} says. Run work that needs quota as a {}, or remove the label",
        kind.row().name,
        served.join(" or a ")
    );
    Some(Event {
        kind: Kind::Job(kind),
        key: ObjectKey::new(meta.namespace.as_deref()?, meta.name.as_deref()?),
        uid: meta.uid.clone()?,
        event_type: EventType::Warning,
        reason: FRAMEWORK_NOT_SERVED.to_owned(),
        note,
        once: true,
    })
}

fn is_forbidden(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(::kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(::kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.code == 403,
        _ => false,
    }
}
