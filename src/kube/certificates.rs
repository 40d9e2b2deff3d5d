//! Serving certificates: from the Secret to the TLS stack, and in self-managed mode their rotation.
//!
//! Every replica reads; any replica may write, guarded by create-only and resourceVersion. A Secret that cannot be
//! served, or that the webhooks do not accept, changes nothing: the old certificate stays. Certificates are made and judged
//! by the API server's time. The bundles of the webhook configurations are written by
//! server-side apply under a field manager of its own, which owns nothing else in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::kube::api::DynamicObject;
use ::kube::core::{ApiResource, GroupVersionKind};
use ::kube::{Api, Client};
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
use crate::lifecycle::certificates::{
    CertificateStep, Fingerprint, Leaf, Observed, RotationSettings as Rotation, next_step,
};
use crate::view::certificates::CertificateStatus;

pub use super::serving_certificate::ServingCertificate;

mod rotation;

/// Field manager of the bundles.
const FIELD_MANAGER: &str = "sluice-certificates";
/// Longest pause between two checks. An expired certificate counts as verified for at most this long.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Where certificates are and who makes them.
#[derive(Clone, Debug)]
pub struct CertificateSettings {
    /// Namespace of the Secrets.
    pub namespace: String,
    /// Secret with the serving certificate.
    pub serving_secret: String,
    /// Secret with the authority and its key.
    pub ca_secret: String,
    /// MutatingWebhookConfiguration.
    pub mutating: String,
    /// ValidatingWebhookConfiguration.
    pub validating: String,
    /// Names that the serving certificate bears.
    pub names: Vec<String>,
    /// Folder with the serving certificate, instead of the Secret.
    pub folder: Option<PathBuf>,
    /// Who writes.
    pub mode: CertificateMode,
    /// Durations of the rotation.
    pub rotation: Rotation,
}

/// Who makes certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateMode {
    /// We do.
    SelfManaged,
    /// Somebody else, such as cert-manager: we only read.
    External,
}

/// Why a step could not be made.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error("{what}: {error}")]
    Call { what: &'static str, error: CallError },
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("the authority's key is missing")]
    NoKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ManagedObject {
    Serving,
    Ca,
    Mutating,
    Validating,
}

const WEBHOOK_OBJECTS: [ManagedObject; 2] = [ManagedObject::Mutating, ManagedObject::Validating];

/// The task. Ends only when it cannot watch any more.
pub async fn run(
    client: Client,
    caller: Caller,
    settings: CertificateSettings,
    watch: WatchSettings,
    serving: Arc<ServingCertificate>,
    clock: Arc<ServerClock>,
) {
    let (sender, mut seen) = mpsc::channel(16);
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
    let mut desk = CertificateController::new(caller, settings, serving, clock);
    let mut pause = CHECK_INTERVAL;
    loop {
        tokio::select! {
            update = seen.recv() => {
                let Some((slot, object)) = update else { return };
                desk.update_object(slot, object);
            }
            // None ends by itself: one that panicked would leave an object unseen for ever.
            Some(_) = watches.join_next() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = desk.reconcile(desk.clock.now()).await;
    }
}

impl CertificateSettings {
    fn watched_objects(&self) -> Vec<ManagedObject> {
        let mut slots = vec![ManagedObject::Serving, ManagedObject::Mutating, ManagedObject::Validating];
        if self.mode == CertificateMode::SelfManaged {
            slots.push(ManagedObject::Ca);
        }
        slots
    }

    fn name(&self, slot: ManagedObject) -> &str {
        match slot {
            ManagedObject::Serving => &self.serving_secret,
            ManagedObject::Ca => &self.ca_secret,
            ManagedObject::Mutating => &self.mutating,
            ManagedObject::Validating => &self.validating,
        }
    }

    fn api(&self, slot: ManagedObject, client: &Client) -> (Api<DynamicObject>, String) {
        let name = self.name(slot).to_owned();
        let of = |group, kind, plural| {
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
        };
        let api = match slot {
            ManagedObject::Serving | ManagedObject::Ca => {
                Api::namespaced_with(client.clone(), &self.namespace, &of("", "Secret", "secrets"))
            }
            ManagedObject::Mutating | ManagedObject::Validating => {
                let resource = of(REGISTRATION, slot.kind_and_plural().0, slot.kind_and_plural().1);
                Api::all_with(client.clone(), &resource)
            }
        };
        (api, name)
    }

    fn path(&self, slot: ManagedObject) -> String {
        let name = self.name(slot);
        match slot {
            ManagedObject::Serving | ManagedObject::Ca => format!("{}/{name}", self.secrets_path()),
            ManagedObject::Mutating | ManagedObject::Validating => {
                format!("/apis/{REGISTRATION}/v1/{}/{name}", slot.kind_and_plural().1)
            }
        }
    }

    fn secrets_path(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets", self.namespace)
    }
}

const REGISTRATION: &str = "admissionregistration.k8s.io";

impl ManagedObject {
    fn kind_and_plural(self) -> (&'static str, &'static str) {
        if self == ManagedObject::Mutating {
            ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
        } else {
            ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
        }
    }
}

/// What the task knows.
struct CertificateController {
    caller: Caller,
    settings: CertificateSettings,
    serving: Arc<ServingCertificate>,
    clock: Arc<ServerClock>,
    /// The latest state of each object that has been seen or found absent.
    objects: BTreeMap<ManagedObject, Option<DynamicObject>>,
    /// The webhooks of each configuration that exists.
    targets: BTreeMap<ManagedObject, Vec<WebhookTarget>>,
    /// The certificate in the serving Secret, or why it cannot be used.
    loaded: Result<LoadedCertificate, PkiError>,
    /// Since when all bundles carry this authority.
    published_ca: Option<(Fingerprint, Timestamp)>,
}

impl CertificateController {
    fn new(
        caller: Caller,
        settings: CertificateSettings,
        serving: Arc<ServingCertificate>,
        clock: Arc<ServerClock>,
    ) -> Self {
        let (objects, targets) = (BTreeMap::new(), BTreeMap::new());
        let found = Err(PkiError::MissingEntry("tls.crt"));
        Self { caller, settings, serving, clock, objects, targets, loaded: found, published_ca: None }
    }

    fn update_object(&mut self, slot: ManagedObject, object: Option<DynamicObject>) {
        if WEBHOOK_OBJECTS.contains(&slot) {
            self.targets.insert(slot, object.as_ref().map(serving_certificate::targets).unwrap_or_default());
        }
        self.objects.insert(slot, object);
        if slot == ManagedObject::Serving {
            self.load_serving_secret(self.clock.now());
        }
    }

    /// Reads what the serving Secret holds.
    fn load_serving_secret(&mut self, now: Timestamp) {
        let data = self.secret_data(ManagedObject::Serving);
        let part =
            |name: &str| data.get(name).map(|bytes| bytes.0.as_slice()).filter(|bytes| !bytes.is_empty());
        self.loaded = match (part("tls.crt"), part("tls.key")) {
            (Some(chain), Some(key)) => pki::load(chain, key, part("ca.crt"), &self.settings.names, now),
            (None, _) => Err(PkiError::MissingEntry("tls.crt")),
            (_, None) => Err(PkiError::MissingEntry("tls.key")),
        };
        let secret = &self.settings.serving_secret;
        match &self.loaded {
            Ok(found) if !found.leaf.names_complete => {
                let missing: Vec<&String> =
                    self.settings.names.iter().filter(|name| !pki::has_san(&found.key, name)).collect();
                tracing::warn!(secret, ?missing, "the serving certificate lacks names");
            }
            Err(error) if !matches!(error, PkiError::MissingEntry(_)) => {
                tracing::error!(secret, %error, "serving certificate refused; the old one stays");
            }
            _ => {}
        }
    }

    /// Serves the certificate in the Secret, unless the webhooks accept the served one and not the one in the Secret. Returns
    /// whether it was held back.
    fn select_certificate(&mut self, now: Timestamp) -> bool {
        if matches!(&self.loaded, Err(PkiError::Expired { from, until }) if *from <= now && now < *until) {
            // Its time may have come since it was read.
            self.load_serving_secret(now);
        }
        let Ok(found) = &self.loaded else {
            return false;
        };
        let served = self.serving.key();
        if served.as_ref().is_some_and(|served| served.cert == found.key.cert) {
            return false;
        }
        let targets = self.all_targets();
        let held = served
            .is_some_and(|served| !serving_certificate::may_replace(&targets, &served, &found.key, now));
        if !held {
            tracing::info!(until = %found.leaf.not_after, "serving certificate loaded");
            self.serving.store(Arc::clone(&found.key));
        }
        held
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

    /// Makes all steps that are due; how long to wait for the next look.
    async fn reconcile(&mut self, now: Timestamp) -> Duration {
        let complete = self.settings.watched_objects().iter().all(|slot| self.objects.contains_key(slot));
        if self.settings.mode == CertificateMode::SelfManaged && complete {
            // More steps in a row than there are kinds of steps would be a quarrel with someone else.
            for _ in 0..8 {
                let observed = self.observed_state(now);
                let next = next_step(&observed, &self.settings.rotation, now);
                if let CertificateStep::Wait(until) = next {
                    self.update_status(now);
                    let pause = Duration::try_from(until.duration_since(now)).unwrap_or_default();
                    return pause.clamp(Duration::from_millis(100), CHECK_INTERVAL);
                }
                tracing::info!(step = ?next, "certificates");
                if let Err(error) = self.execute_step(next, &observed, now).await {
                    tracing::warn!(%error, "certificates");
                    self.update_status(now);
                    return Duration::from_secs(1);
                }
            }
        }
        self.update_status(now);
        CHECK_INTERVAL
    }

    /// Chooses the served certificate, and reports whether every webhook accepts it.
    fn update_status(&mut self, now: Timestamp) {
        let held_back = self.select_certificate(now);
        let obstacle = self.not_ready_reason(now);
        let served = self.serving.key();
        let certificate = served.as_ref().and_then(|key| pki::leaf_certificate(key));
        let authority = served.as_ref().and_then(|key| self.signing_ca(key, now));
        let shown = CertificateStatus {
            serving_until: certificate.map(|certificate| certificate.info.not_after),
            ca_until: authority.map(|authority| authority.info.not_after),
            verified: obstacle.is_none(),
            held_back,
        };
        self.serving.update_status(obstacle, shown);
    }

    fn not_ready_reason(&self, now: Timestamp) -> Option<NotReadyReason> {
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
        let targets = self.all_targets();
        if targets.is_empty() {
            let CertificateSettings { mutating, validating, .. } = self.settings.clone();
            return Some(NotReadyReason::NoWebhooks { mutating, validating });
        }
        serving_certificate::verify_targets(&targets, &key, now).err()
    }

    /// The published authority that signed the served certificate.
    fn signing_ca(&self, key: &CertifiedKey, now: Timestamp) -> Option<Certificate> {
        let all = self.targets.values().flatten().flat_map(|target| &target.bundle);
        let distinct: BTreeMap<&Fingerprint, &Certificate> =
            all.map(|known| (&known.info.fingerprint, known)).collect();
        let behind = distinct.into_values().filter(|known| pki::trusts([*known], key, now));
        behind.max_by_key(|known| known.info.not_after).cloned()
    }

    fn observed_state(&mut self, now: Timestamp) -> Observed {
        let authority = self.secret_data(ManagedObject::Ca);
        let read =
            |part: &str| authority.get(part).and_then(|pem| pki::certificates(&pem.0).into_iter().next());
        let current = read("ca.crt").filter(|_| authority.get("ca.key").is_some_and(|key| !key.0.is_empty()));
        let bundles: Vec<BTreeSet<Fingerprint>> = WEBHOOK_OBJECTS
            .iter()
            .filter_map(|slot| self.targets.get(slot))
            .flatten()
            .map(|target| fingerprints(&target.bundle))
            .collect();
        let current = current.map(|certificate| certificate.info);
        self.published_ca = current.as_ref().map(|current| &current.fingerprint).and_then(|fingerprint| {
            let everywhere = bundles.iter().all(|bundle| bundle.contains(fingerprint));
            let known = self.published_ca.take().filter(|(known, _)| known == fingerprint);
            everywhere.then(|| known.unwrap_or_else(|| (fingerprint.clone(), now)))
        });
        Observed {
            current,
            previous: read("previous.crt").map(|certificate| certificate.info),
            leaf: self.usable_leaf(),
            bundles,
            published_since: self.published_ca.as_ref().map(|(_, since)| *since),
        }
    }

    /// The certificate in the Secret, unless no review could succeed with it: it lacks a name that a webhook dials and that a
    /// certificate made here would bear. It is then replaced without waiting for the overlap.
    fn usable_leaf(&self) -> Option<Leaf> {
        let found = self.loaded.as_ref().ok()?;
        let mut dialled = self.targets.values().flatten().map(|target| &target.host);
        let useless =
            dialled.any(|host| self.settings.names.contains(host) && !pki::has_san(&found.key, host));
        (!useless).then(|| found.leaf.clone())
    }
}

fn fingerprints(bundle: &[Certificate]) -> BTreeSet<Fingerprint> {
    bundle.iter().map(|known| known.info.fingerprint.clone()).collect()
}
