//! Serving certificates: from the Secret to the TLS stack, and in self-managed mode their rotation.
//!
//! Every replica reads; any replica may write, guarded by resourceVersion. A Secret that is invalid, or whose certificate the
//! webhooks do not accept, changes nothing: the old certificate stays. Certificates are created and validated by the API
//! server's time. While the configurations belong to another manager, nothing is written. The bundles of the webhook
//! configurations, and of the definitions whose objects are converted, are written under a separate field manager, which then
//! gives up its ownership: an entry with an owned field could not be removed by the server-side apply of the installer. A
//! ConfigMap has the authority without its key, for clients of the metrics, and the APIServices of the visibility API have it
//! too; whether these exist and can be written affects nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::kube::Client;
use ::kube::api::DynamicObject;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use rustls::sign::CertifiedKey;
use tokio::sync::mpsc;

use super::certificate_folder;
use super::client::{CallError, Caller};
use super::pki::{self, Certificate, LoadedCertificate, PkiError};
use super::server_clock::ServerClock;
use super::serving_certificate::{self, NotReadyReason, WebhookTarget};
use super::watch::{WatchSettings, watch_object};
use super::webhook_ownership::{ForeignConfiguration, ServiceName, foreign, owner};
use crate::lifecycle::certificates::{
    CertificateStep, Fingerprint, Leaf, Observed, RotationSettings as Rotation, next_step, trusted,
};
use crate::metrics::certificates::CertificateStatus;

pub use super::serving_certificate::ServingCertificate;

mod objects;
mod rotation;

use objects::{ManagedObject, WEBHOOK_OBJECTS};

/// Field manager of the CA bundles.
const FIELD_MANAGER: &str = "sluice-certificates";
/// Maximum time between two checks. An expired certificate counts as verified for at most this long.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Settings of certificates.
#[derive(Clone, Debug)]
pub struct CertificateSettings {
    /// Namespace of the Secrets.
    pub namespace: String,
    /// Secret with the serving certificate.
    pub serving_secret: String,
    /// Secret with the CA and its key.
    pub ca_secret: String,
    /// ConfigMap with the CA alone.
    pub ca_config_map: String,
    /// Name of the MutatingWebhookConfiguration.
    pub mutating: String,
    /// Name of the ValidatingWebhookConfiguration.
    pub validating: String,
    /// Service of the webhooks.
    pub service: ServiceName,
    /// Service to which the API server sends conversions of v1beta1, if v1beta1 is served.
    pub conversion: Option<ServiceName>,
    /// Service of the visibility API, if this process serves it.
    pub visibility: Option<ServiceName>,
    /// DNS names of the serving certificate of this process.
    pub names: Vec<String>,
    /// Certificates that this process issues for processes that serve no webhooks and may not read the key of the webhooks.
    pub observers: Vec<ObserverCertificate>,
    /// Whether the serving certificate of this process is an observer certificate that another process issues. No webhook is
    /// dialled by its names.
    pub is_observer: bool,
    /// Folder with the serving certificate, used instead of the Secret.
    pub folder: Option<PathBuf>,
    /// Whether this process creates certificates.
    pub mode: CertificateMode,
    /// Durations of the rotation.
    pub rotation: Rotation,
}

/// The certificate of a process that serves no webhooks: the dashboard, or the recorder of history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObserverCertificate {
    /// Secret with the certificate.
    pub secret: String,
    /// DNS names of the certificate.
    pub names: Vec<String>,
}

/// Whether this process creates certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateMode {
    /// This process creates and rotates them.
    SelfManaged,
    /// Another tool such as cert-manager does; this process only reads.
    External,
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error("{what}: {error}")]
    Call { what: &'static str, error: CallError },
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("the CA key is missing")]
    NoKey,
    #[error("Secret {namespace}/{name} does not exist; apply webhook-certs/self-managed")]
    NoSecret { namespace: String, name: String },
}

/// The task that reads and, in self-managed mode, rotates the certificates.
pub struct CertificateTask {
    /// Client for watches.
    pub client: Client,
    /// Client for writes.
    pub caller: Caller,
    /// Settings of certificates.
    pub settings: CertificateSettings,
    /// Settings of watches.
    pub watch: WatchSettings,
    /// Where the certificate is published.
    pub serving: Arc<ServingCertificate>,
    /// The API server's time.
    pub clock: Arc<ServerClock>,
}

impl CertificateTask {
    /// Runs the certificate controller. Returns only if a watch ends.
    pub async fn run(self) {
        let Self { client, caller, settings, watch, serving, clock } = self;
        let (sender, mut updates) = mpsc::channel(16);
        let mut watches = tokio::task::JoinSet::new();
        for slot in settings.watched_objects() {
            if let Some(folder) = settings.folder.clone().filter(|_| slot == ManagedObject::Serving) {
                watches.spawn(certificate_folder::watch_files(
                    folder,
                    certificate_folder::POLL_INTERVAL,
                    sender.clone(),
                    slot,
                ));
                continue;
            }
            let (api, name) = settings.api(slot, &client);
            watches.spawn(watch_object(api, name, watch, sender.clone(), slot));
        }
        drop(sender);
        let mut controller = CertificateController::new(caller, settings, serving, clock);
        let mut delay = CHECK_INTERVAL;
        loop {
            tokio::select! {
                update = updates.recv() => {
                    let Some((slot, object)) = update else { return };
                    controller.update_object(slot, object);
                }
                // Watches never return. If one panicked, its object would never be updated again.
                Some(_) = watches.join_next() => return,
                () = tokio::time::sleep(delay) => {}
            }
            delay = controller.reconcile(controller.clock.now()).await;
        }
    }
}

/// State of the certificate controller.
struct CertificateController {
    caller: Caller,
    settings: CertificateSettings,
    serving: Arc<ServingCertificate>,
    clock: Arc<ServerClock>,
    /// Latest state of each object; `None` if it does not exist, no entry if it is not read yet.
    objects: BTreeMap<ManagedObject, Option<DynamicObject>>,
    /// Webhooks of each existing configuration.
    targets: BTreeMap<ManagedObject, Vec<WebhookTarget>>,
    /// Configurations that belong to another manager.
    foreign: Vec<ForeignConfiguration>,
    /// The certificate in the serving Secret, or why it is invalid.
    loaded: Result<LoadedCertificate, PkiError>,
    /// The current CA and the time since when all bundles contain it.
    published_ca: Option<(Fingerprint, Timestamp)>,
    /// Failed writes on which no certificate depends.
    retries: BTreeMap<ManagedObject, FailedWrite>,
    /// The step that failed last, and why.
    failed: Option<(CertificateStep, String)>,
}

/// A write that failed. It is logged once for each error.
struct FailedWrite {
    /// When it may be repeated.
    retry: Timestamp,
    error: String,
}

impl CertificateController {
    fn new(
        caller: Caller,
        settings: CertificateSettings,
        serving: Arc<ServingCertificate>,
        clock: Arc<ServerClock>,
    ) -> Self {
        let (objects, targets) = (BTreeMap::new(), BTreeMap::new());
        let loaded = Err(PkiError::MissingEntry("tls.crt"));
        let foreign = Vec::new();
        Self {
            caller,
            settings,
            serving,
            clock,
            objects,
            targets,
            foreign,
            loaded,
            published_ca: None,
            retries: BTreeMap::new(),
            failed: None,
        }
    }

    fn update_object(&mut self, slot: ManagedObject, object: Option<DynamicObject>) {
        let object = object.map(|object| slot.used_parts(object));
        if slot.has_bundle() {
            let targets = object.as_ref().map(|object| self.settings.targets(slot, object));
            self.targets.insert(slot, targets.unwrap_or_default());
        }
        self.objects.insert(slot, object);
        if WEBHOOK_OBJECTS.contains(&slot) {
            let owners = WEBHOOK_OBJECTS.map(|slot| {
                let object = self.objects.get(&slot).and_then(Option::as_ref).map(|object| &object.data);
                (self.settings.name(slot).to_owned(), owner(object, &self.settings.service))
            });
            self.foreign = foreign(&self.foreign, &owners);
        }
        if slot == ManagedObject::Serving {
            self.load_serving_secret(self.clock.now());
        }
    }

    /// Loads the certificate from the serving Secret.
    fn load_serving_secret(&mut self, now: Timestamp) {
        self.loaded = self.load_secret(ManagedObject::Serving, &self.settings.names, now);
        let secret = &self.settings.serving_secret;
        match &self.loaded {
            Ok(loaded) if !loaded.leaf.names_complete => {
                let missing: Vec<&String> =
                    self.settings.names.iter().filter(|name| !pki::has_san(&loaded.key, name)).collect();
                tracing::warn!(secret, ?missing, "the serving certificate lacks names (SANs)");
            }
            Err(error) if !matches!(error, PkiError::MissingEntry(_)) => {
                tracing::error!(secret, %error, "new serving certificate is invalid; keeping the current one");
            }
            _ => {}
        }
    }

    /// Loads a certificate that must have these names from a Secret.
    fn load_secret(
        &self,
        slot: ManagedObject,
        names: &[String],
        now: Timestamp,
    ) -> Result<LoadedCertificate, PkiError> {
        let data = self.secret_data(slot);
        let entry =
            |name: &str| data.get(name).map(|bytes| bytes.0.as_slice()).filter(|bytes| !bytes.is_empty());
        match (entry("tls.crt"), entry("tls.key")) {
            (Some(chain), Some(key)) => pki::load(chain, key, entry("ca.crt"), names, now),
            (None, _) => Err(PkiError::MissingEntry("tls.crt")),
            (_, None) => Err(PkiError::MissingEntry("tls.key")),
        }
    }

    /// Serves the certificate in the Secret, unless the webhooks accept the served one but not the new one. Returns whether the
    /// new one was held back for that reason.
    fn select_certificate(&mut self, now: Timestamp) -> bool {
        if matches!(&self.loaded, Err(PkiError::Expired { from, until }) if *from <= now && now < *until) {
            // It may have become valid since it was read.
            self.load_serving_secret(now);
        }
        let Ok(loaded) = &self.loaded else {
            return false;
        };
        let served = self.serving.key();
        if served.as_ref().is_some_and(|served| served.cert == loaded.key.cert) {
            return false;
        }
        let targets = self.all_targets();
        let held_back = served
            .is_some_and(|served| !serving_certificate::may_replace(&targets, &served, &loaded.key, now));
        if !held_back {
            tracing::info!(until = %loaded.leaf.not_after, "serving certificate loaded");
            self.serving.store(Arc::clone(&loaded.key));
        }
        held_back
    }

    fn all_targets(&self) -> Vec<WebhookTarget> {
        self.targets.values().flatten().cloned().collect()
    }

    fn secret_data(&self, slot: ManagedObject) -> BTreeMap<String, ByteString> {
        let object = self.objects.get(&slot).and_then(Option::as_ref);
        object
            .and_then(|object| object.clone().try_parse::<Secret>().ok())
            .and_then(|secret| secret.data)
            .unwrap_or_default()
    }

    /// Executes all due steps. Returns the delay until the next check.
    async fn reconcile(&mut self, now: Timestamp) -> Duration {
        let is_read = |slot: &ManagedObject| slot.is_optional() || self.objects.contains_key(slot);
        let complete = self.settings.watched_objects().iter().all(is_read);
        if self.settings.mode == CertificateMode::SelfManaged && complete && self.foreign.is_empty() {
            // More consecutive steps than there are kinds of steps mean that another writer reverts them.
            for _ in 0..8 {
                let observed = self.observed_state(now);
                let next = next_step(&observed, &self.settings.rotation, now);
                if let CertificateStep::Wait(until) = next {
                    self.failed = None;
                    let trusted = trusted(&observed, now);
                    self.write_ca_config_map(&trusted, now).await;
                    self.write_api_services(&trusted, now).await;
                    self.release_bundles(now).await;
                    self.issue_for_observers(&observed, now).await;
                    self.update_status(now);
                    let delay = Duration::try_from(until.duration_since(now)).unwrap_or_default();
                    return delay.clamp(Duration::from_millis(100), CHECK_INTERVAL);
                }
                let repeats = self.failed.as_ref().is_some_and(|(step, _)| *step == next);
                if !repeats {
                    tracing::info!(step = ?next, "certificate rotation step");
                }
                if let Err(error) = self.execute_step(next.clone(), &observed, now).await {
                    let failed = Some((next, error.to_string()));
                    if self.failed != failed {
                        tracing::warn!(%error, "certificate rotation step failed, retrying");
                    }
                    self.failed = failed;
                    self.update_status(now);
                    return Duration::from_secs(1);
                }
                self.failed = None;
            }
        }
        self.update_status(now);
        CHECK_INTERVAL
    }

    /// Selects the served certificate, and publishes whether every webhook accepts it.
    fn update_status(&mut self, now: Timestamp) {
        let held_back = self.select_certificate(now);
        let reason = self.not_ready_reason(now);
        let served = self.serving.key();
        let certificate = served.as_ref().and_then(|key| pki::leaf_certificate(key));
        let authority = served.as_ref().and_then(|key| self.signing_ca(key, now));
        let status = CertificateStatus {
            serving_until: certificate.map(|certificate| certificate.info.not_after),
            ca_until: authority.map(|authority| authority.info.not_after),
            verified: reason.is_none(),
            held_back,
        };
        self.serving.update_status(reason, status);
    }

    fn not_ready_reason(&self, now: Timestamp) -> Option<NotReadyReason> {
        if let Some(foreign) = self.foreign.first() {
            let (foreign, own) = (foreign.clone(), self.settings.service.clone());
            return Some(NotReadyReason::BelongsToOther { foreign, own });
        }
        let Some(key) = self.serving.key() else {
            let CertificateSettings { namespace, serving_secret, .. } = &self.settings;
            let secret = format!("Secret {namespace}/{serving_secret}");
            return Some(NotReadyReason::NoCertificate(
                match (self.objects.get(&ManagedObject::Serving), &self.loaded) {
                    (None, _) => format!("{secret} has not been read yet"),
                    (Some(None), _) => format!("{secret} does not exist"),
                    (Some(Some(_)), Err(error)) => format!("{secret}: {error}"),
                    (Some(Some(_)), Ok(_)) => format!("{secret} is not served yet"),
                },
            ));
        };
        if !WEBHOOK_OBJECTS.iter().all(|slot| self.objects.contains_key(slot)) {
            return Some(NotReadyReason::ConfigurationsNotRead);
        }
        let of_webhooks = WEBHOOK_OBJECTS.iter().filter_map(|slot| self.targets.get(slot));
        if of_webhooks.flatten().next().is_none() {
            let CertificateSettings { mutating, validating, .. } = self.settings.clone();
            return Some(NotReadyReason::NoWebhooks { mutating, validating });
        }
        serving_certificate::verify_targets(&self.all_targets(), &key, now).err()
    }

    /// Returns the published CA that signed the served certificate.
    fn signing_ca(&self, key: &CertifiedKey, now: Timestamp) -> Option<Certificate> {
        let bundled = self.targets.values().flatten().flat_map(|target| &target.bundle);
        let distinct: BTreeMap<&Fingerprint, &Certificate> =
            bundled.map(|certificate| (&certificate.info.fingerprint, certificate)).collect();
        let signers = distinct.into_values().filter(|certificate| pki::trusts([*certificate], key, now));
        signers.max_by_key(|certificate| certificate.info.not_after).cloned()
    }

    fn observed_state(&mut self, now: Timestamp) -> Observed {
        let ca_data = self.secret_data(ManagedObject::Ca);
        let read =
            |part: &str| ca_data.get(part).and_then(|pem| pki::certificates(&pem.0).into_iter().next());
        let current = read("ca.crt").filter(|_| ca_data.get("ca.key").is_some_and(|key| !key.0.is_empty()));
        let bundles: Vec<BTreeSet<Fingerprint>> =
            self.targets.values().flatten().map(|target| fingerprints(&target.bundle)).collect();
        let current = current.map(|certificate| certificate.info);
        self.published_ca = current.as_ref().map(|current| &current.fingerprint).and_then(|fingerprint| {
            let published_everywhere = bundles.iter().all(|bundle| bundle.contains(fingerprint));
            let published = self.published_ca.take().filter(|(published, _)| published == fingerprint);
            published_everywhere.then(|| published.unwrap_or_else(|| (fingerprint.clone(), now)))
        });
        Observed {
            current,
            previous: read("previous.crt").map(|certificate| certificate.info),
            leaf: self.usable_leaf(),
            bundles,
            published_since: self.published_ca.as_ref().map(|(_, since)| *since),
        }
    }

    /// Returns the certificate in the Secret, unless no review could succeed with it: it lacks a name that a webhook dials and
    /// that a new certificate would have. It is then replaced without waiting for the overlap.
    fn usable_leaf(&self) -> Option<Leaf> {
        let loaded = self.loaded.as_ref().ok()?;
        let mut hosts = self.targets.values().flatten().map(|target| &target.host);
        let unusable =
            hosts.any(|host| self.settings.names.contains(host) && !pki::has_san(&loaded.key, host));
        (!unusable).then(|| loaded.leaf.clone())
    }
}

fn fingerprints(bundle: &[Certificate]) -> BTreeSet<Fingerprint> {
    bundle.iter().map(|certificate| certificate.info.fingerprint.clone()).collect()
}

#[cfg(test)]
mod tests;
