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
use super::pki::{self, Certificate, Loaded, PkiError};
use super::server_clock::ServerClock;
use super::serving::{self, Obstacle, Target};
use super::watch::{WatchSettings, follow_one};
use crate::lifecycle::certificates::{Fingerprint, Leaf, Observed, Settings as Rotation, Step, step};
use crate::view::certificates::Shown;

pub use super::serving::Serving;

mod rotation;

/// Field manager of the bundles.
const MANAGER: &str = "sluice-certificates";
/// Longest pause between two checks. An expired certificate counts as verified for at most this long.
const LOOK: Duration = Duration::from_secs(1);

/// Where certificates are and who makes them.
#[derive(Clone, Debug)]
pub struct CertificateSettings {
    /// Namespace of the Secrets.
    pub namespace: String,
    /// Secret with the serving certificate.
    pub serving_secret: String,
    /// Secret with the authority and its key.
    pub authority_secret: String,
    /// MutatingWebhookConfiguration.
    pub mutating: String,
    /// ValidatingWebhookConfiguration.
    pub validating: String,
    /// Names that the serving certificate bears.
    pub names: Vec<String>,
    /// Folder with the serving certificate, instead of the Secret.
    pub folder: Option<PathBuf>,
    /// Who writes.
    pub mode: Mode,
    /// Durations of the rotation.
    pub rotation: Rotation,
}

/// Who makes certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
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
enum Slot {
    Serving,
    Authority,
    Mutating,
    Validating,
}

const TARGETS: [Slot; 2] = [Slot::Mutating, Slot::Validating];

/// The task. Ends only when it cannot watch any more.
pub async fn run(
    client: Client,
    caller: Caller,
    settings: CertificateSettings,
    watch: WatchSettings,
    serving: Arc<Serving>,
    clock: Arc<ServerClock>,
) {
    let (sender, mut seen) = mpsc::channel(16);
    let mut watches = tokio::task::JoinSet::new();
    for slot in settings.slots() {
        if let Some(folder) = settings.folder.clone().filter(|_| slot == Slot::Serving) {
            watches.spawn(certificate_folder::follow(folder, certificate_folder::LOOK, sender.clone(), slot));
            continue;
        }
        let (api, name) = settings.api(slot, &client);
        watches.spawn(follow_one(api, name, watch, sender.clone(), slot));
    }
    drop(sender);
    let mut desk = Desk::new(caller, settings, serving, clock);
    let mut pause = LOOK;
    loop {
        tokio::select! {
            update = seen.recv() => {
                let Some((slot, object)) = update else { return };
                desk.take(slot, object);
            }
            // None ends by itself: one that panicked would leave an object unseen for ever.
            Some(_) = watches.join_next() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = desk.advance(desk.clock.now()).await;
    }
}

impl CertificateSettings {
    fn slots(&self) -> Vec<Slot> {
        let mut slots = vec![Slot::Serving, Slot::Mutating, Slot::Validating];
        if self.mode == Mode::SelfManaged {
            slots.push(Slot::Authority);
        }
        slots
    }

    fn name(&self, slot: Slot) -> &str {
        match slot {
            Slot::Serving => &self.serving_secret,
            Slot::Authority => &self.authority_secret,
            Slot::Mutating => &self.mutating,
            Slot::Validating => &self.validating,
        }
    }

    fn api(&self, slot: Slot, client: &Client) -> (Api<DynamicObject>, String) {
        let name = self.name(slot).to_owned();
        let of = |group, kind, plural| {
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
        };
        let api = match slot {
            Slot::Serving | Slot::Authority => {
                Api::namespaced_with(client.clone(), &self.namespace, &of("", "Secret", "secrets"))
            }
            Slot::Mutating | Slot::Validating => {
                let resource = of(REGISTRATION, slot.configuration().0, slot.configuration().1);
                Api::all_with(client.clone(), &resource)
            }
        };
        (api, name)
    }

    fn path(&self, slot: Slot) -> String {
        let name = self.name(slot);
        match slot {
            Slot::Serving | Slot::Authority => format!("{}/{name}", self.secrets()),
            Slot::Mutating | Slot::Validating => {
                format!("/apis/{REGISTRATION}/v1/{}/{name}", slot.configuration().1)
            }
        }
    }

    fn secrets(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets", self.namespace)
    }
}

const REGISTRATION: &str = "admissionregistration.k8s.io";

impl Slot {
    fn configuration(self) -> (&'static str, &'static str) {
        if self == Slot::Mutating {
            ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
        } else {
            ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
        }
    }
}

/// What the task knows.
struct Desk {
    caller: Caller,
    settings: CertificateSettings,
    serving: Arc<Serving>,
    clock: Arc<ServerClock>,
    /// The latest state of each object that has been seen or found absent.
    objects: BTreeMap<Slot, Option<DynamicObject>>,
    /// The webhooks of each configuration that exists.
    targets: BTreeMap<Slot, Vec<Target>>,
    /// The certificate in the serving Secret, or why it cannot be used.
    found: Result<Loaded, PkiError>,
    /// Since when all bundles carry this authority.
    published: Option<(Fingerprint, Timestamp)>,
}

impl Desk {
    fn new(
        caller: Caller,
        settings: CertificateSettings,
        serving: Arc<Serving>,
        clock: Arc<ServerClock>,
    ) -> Self {
        let (objects, targets) = (BTreeMap::new(), BTreeMap::new());
        let found = Err(PkiError::Lacks("tls.crt"));
        Self { caller, settings, serving, clock, objects, targets, found, published: None }
    }

    fn take(&mut self, slot: Slot, object: Option<DynamicObject>) {
        if TARGETS.contains(&slot) {
            self.targets.insert(slot, object.as_ref().map(serving::targets).unwrap_or_default());
        }
        self.objects.insert(slot, object);
        if slot == Slot::Serving {
            self.read(self.clock.now());
        }
    }

    /// Reads what the serving Secret holds.
    fn read(&mut self, now: Timestamp) {
        let data = self.secret(Slot::Serving);
        let part =
            |name: &str| data.get(name).map(|bytes| bytes.0.as_slice()).filter(|bytes| !bytes.is_empty());
        self.found = match (part("tls.crt"), part("tls.key")) {
            (Some(chain), Some(key)) => pki::load(chain, key, part("ca.crt"), &self.settings.names, now),
            (None, _) => Err(PkiError::Lacks("tls.crt")),
            (_, None) => Err(PkiError::Lacks("tls.key")),
        };
        let secret = &self.settings.serving_secret;
        match &self.found {
            Ok(found) if !found.leaf.names_complete => {
                let missing: Vec<&String> =
                    self.settings.names.iter().filter(|name| !pki::bears(&found.key, name)).collect();
                tracing::warn!(secret, ?missing, "the serving certificate lacks names");
            }
            Err(error) if !matches!(error, PkiError::Lacks(_)) => {
                tracing::error!(secret, %error, "serving certificate refused; the old one stays");
            }
            _ => {}
        }
    }

    /// Serves the certificate in the Secret, unless the webhooks accept the served one and not the one in the Secret. Returns
    /// whether it was held back.
    fn choose(&mut self, now: Timestamp) -> bool {
        if matches!(&self.found, Err(PkiError::Expired { from, until }) if *from <= now && now < *until) {
            // Its time may have come since it was read.
            self.read(now);
        }
        let Ok(found) = &self.found else {
            return false;
        };
        let served = self.serving.key();
        if served.as_ref().is_some_and(|served| served.cert == found.key.cert) {
            return false;
        }
        let targets = self.all_targets();
        let held = served.is_some_and(|served| !serving::may_replace(&targets, &served, &found.key, now));
        if !held {
            tracing::info!(until = %found.leaf.until, "serving certificate loaded");
            self.serving.store(Arc::clone(&found.key));
        }
        held
    }

    fn all_targets(&self) -> Vec<Target> {
        self.targets.values().flatten().cloned().collect()
    }

    fn secret(&self, slot: Slot) -> BTreeMap<String, ByteString> {
        let object = self.objects.get(&slot).and_then(Option::as_ref);
        object
            .and_then(|object| object.clone().try_parse::<Secret>().ok())
            .and_then(|secret| secret.data)
            .unwrap_or_default()
    }

    /// Makes all steps that are due; how long to wait for the next look.
    async fn advance(&mut self, now: Timestamp) -> Duration {
        let complete = self.settings.slots().iter().all(|slot| self.objects.contains_key(slot));
        if self.settings.mode == Mode::SelfManaged && complete {
            // More steps in a row than there are kinds of steps would be a quarrel with someone else.
            for _ in 0..8 {
                let observed = self.observe(now);
                let next = step(&observed, &self.settings.rotation, now);
                if let Step::Wait(until) = next {
                    self.judge(now);
                    let pause = Duration::try_from(until.duration_since(now)).unwrap_or_default();
                    return pause.clamp(Duration::from_millis(100), LOOK);
                }
                tracing::info!(step = ?next, "certificates");
                if let Err(error) = self.perform(next, &observed, now).await {
                    tracing::warn!(%error, "certificates");
                    self.judge(now);
                    return Duration::from_secs(1);
                }
            }
        }
        self.judge(now);
        LOOK
    }

    /// Chooses the served certificate, and reports whether every webhook accepts it.
    fn judge(&mut self, now: Timestamp) {
        let held_back = self.choose(now);
        let obstacle = self.obstacle(now);
        let served = self.serving.key();
        let certificate = served.as_ref().and_then(|key| pki::served(key));
        let authority = served.as_ref().and_then(|key| self.behind(key, now));
        let shown = Shown {
            serving_until: certificate.map(|certificate| certificate.authority.until),
            authority_until: authority.map(|authority| authority.authority.until),
            verified: obstacle.is_none(),
            held_back,
        };
        self.serving.report(obstacle, shown);
    }

    fn obstacle(&self, now: Timestamp) -> Option<Obstacle> {
        let Some(key) = self.serving.key() else {
            let CertificateSettings { namespace, serving_secret, .. } = &self.settings;
            let secret = format!("Secret {namespace}/{serving_secret}");
            return Some(Obstacle::NoCertificate(match (self.objects.get(&Slot::Serving), &self.found) {
                (None, _) => format!("{secret} has not been read yet"),
                (Some(None), _) => format!("{secret} does not exist"),
                (Some(Some(_)), Err(error)) => format!("{secret}: {error}"),
                (Some(Some(_)), Ok(_)) => format!("{secret} is not served yet"),
            }));
        };
        if !TARGETS.iter().all(|slot| self.objects.contains_key(slot)) {
            return Some(Obstacle::Unread);
        }
        let targets = self.all_targets();
        if targets.is_empty() {
            let CertificateSettings { mutating, validating, .. } = self.settings.clone();
            return Some(Obstacle::NoWebhooks { mutating, validating });
        }
        serving::accepted(&targets, &key, now).err()
    }

    /// The published authority that signed the served certificate.
    fn behind(&self, key: &CertifiedKey, now: Timestamp) -> Option<Certificate> {
        let all = self.targets.values().flatten().flat_map(|target| &target.bundle);
        let distinct: BTreeMap<&Fingerprint, &Certificate> =
            all.map(|known| (&known.authority.fingerprint, known)).collect();
        let behind = distinct.into_values().filter(|known| pki::trusts([*known], key, now));
        behind.max_by_key(|known| known.authority.until).cloned()
    }

    fn observe(&mut self, now: Timestamp) -> Observed {
        let authority = self.secret(Slot::Authority);
        let read =
            |part: &str| authority.get(part).and_then(|pem| pki::certificates(&pem.0).into_iter().next());
        let current = read("ca.crt").filter(|_| authority.get("ca.key").is_some_and(|key| !key.0.is_empty()));
        let bundles: Vec<BTreeSet<Fingerprint>> = TARGETS
            .iter()
            .filter_map(|slot| self.targets.get(slot))
            .flatten()
            .map(|target| fingerprints(&target.bundle))
            .collect();
        let current = current.map(|certificate| certificate.authority);
        self.published = current.as_ref().map(|current| &current.fingerprint).and_then(|fingerprint| {
            let everywhere = bundles.iter().all(|bundle| bundle.contains(fingerprint));
            let known = self.published.take().filter(|(known, _)| known == fingerprint);
            everywhere.then(|| known.unwrap_or_else(|| (fingerprint.clone(), now)))
        });
        Observed {
            current,
            previous: read("previous.crt").map(|certificate| certificate.authority),
            leaf: self.usable(),
            bundles,
            published_since: self.published.as_ref().map(|(_, since)| *since),
        }
    }

    /// The certificate in the Secret, unless no review could succeed with it: it lacks a name that a webhook dials and that a
    /// certificate made here would bear. It is then replaced without waiting for the overlap.
    fn usable(&self) -> Option<Leaf> {
        let found = self.found.as_ref().ok()?;
        let mut dialled = self.targets.values().flatten().map(|target| &target.host);
        let useless = dialled.any(|host| self.settings.names.contains(host) && !pki::bears(&found.key, host));
        (!useless).then(|| found.leaf.clone())
    }
}

fn fingerprints(bundle: &[Certificate]) -> BTreeSet<Fingerprint> {
    bundle.iter().map(|known| known.authority.fingerprint.clone()).collect()
}
