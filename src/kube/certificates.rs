//! Serving certificates: from the Secret to the TLS stack, and in self-managed mode their rotation.
//!
//! Every replica reads; any replica may write, guarded by create-only and resourceVersion. A Secret that cannot be
//! served changes nothing: the old certificate stays. The bundles of the webhook configurations are written by
//! server-side apply under a field manager of its own, which owns nothing else in them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::kube::api::DynamicObject;
use ::kube::core::{ApiResource, GroupVersionKind};
use ::kube::{Api, Client};
use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use rustls::sign::CertifiedKey;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::client::{CallError, Caller, Content};
use super::pki::{self, Certificate, Loaded, Pair, PkiError};
use super::watch::{WatchSettings, follow_one};
use crate::lifecycle::certificates::{Fingerprint, Observed, Settings as Rotation, Step, step};

/// Field manager of the bundles.
const MANAGER: &str = "sluice-certificates";
/// Longest pause between two looks: time passes without any change being seen.
const LOOK: Duration = Duration::from_secs(10);

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

/// What is served now. Written by the certificates task, read by the TLS stack and the readiness probe.
#[derive(Debug, Default)]
pub struct Serving {
    key: ArcSwapOption<CertifiedKey>,
    verified: AtomicBool,
}

impl Serving {
    /// The certificate, once there is one.
    pub fn key(&self) -> Option<Arc<CertifiedKey>> {
        self.key.load_full()
    }

    /// Replaces the certificate.
    pub fn store(&self, key: Arc<CertifiedKey>) {
        self.key.store(Some(key));
    }

    /// Whether the API server, by the published bundles, accepts the certificate.
    pub fn verified(&self) -> bool {
        self.verified.load(Ordering::Acquire)
    }
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
) {
    let (sender, mut seen) = mpsc::channel(16);
    let mut watches = tokio::task::JoinSet::new();
    for slot in settings.slots() {
        let (api, name) = settings.api(slot, &client);
        watches.spawn(follow_one(api, name, watch, sender.clone(), slot));
    }
    drop(sender);
    let mut desk = Desk {
        caller,
        settings,
        serving,
        objects: BTreeMap::new(),
        loaded: None,
        published: None,
    };
    let mut pause = LOOK;
    loop {
        tokio::select! {
            update = seen.recv() => {
                let Some((slot, object)) = update else { return };
                desk.take(slot, object);
            }
            () = tokio::time::sleep(pause) => {}
        }
        pause = desk.advance(Timestamp::now()).await;
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
            (
                "ValidatingWebhookConfiguration",
                "validatingwebhookconfigurations",
            )
        }
    }
}

/// What the task knows.
struct Desk {
    caller: Caller,
    settings: CertificateSettings,
    serving: Arc<Serving>,
    /// The latest state of each object that has been seen or found absent.
    objects: BTreeMap<Slot, Option<DynamicObject>>,
    loaded: Option<Loaded>,
    /// Since when all bundles carry this authority.
    published: Option<(Fingerprint, Timestamp)>,
}

impl Desk {
    fn take(&mut self, slot: Slot, object: Option<DynamicObject>) {
        self.objects.insert(slot, object);
        if slot == Slot::Serving {
            self.load(Timestamp::now());
        }
    }

    /// Serves what the Secret holds, if it can be served.
    fn load(&mut self, now: Timestamp) {
        let data = self.secret(Slot::Serving);
        let part = |name: &str| {
            data.get(name)
                .map(|bytes| bytes.0.as_slice())
                .filter(|bytes| !bytes.is_empty())
        };
        let (Some(chain), Some(key)) = (part("tls.crt"), part("tls.key")) else {
            self.loaded = None;
            return;
        };
        match pki::load(chain, key, part("ca.crt"), &self.settings.names, now) {
            Ok(loaded) => {
                let known = self.serving.key();
                if known.is_none_or(|known| known.cert != loaded.key.cert) {
                    tracing::info!(until = %loaded.leaf.until, "serving certificate loaded");
                    self.serving.store(Arc::clone(&loaded.key));
                }
                self.loaded = Some(loaded);
            }
            Err(error) => {
                tracing::error!(secret = self.settings.serving_secret, %error, "serving certificate refused; the old one stays");
                self.loaded = None;
            }
        }
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
        let complete = self
            .settings
            .slots()
            .iter()
            .all(|slot| self.objects.contains_key(slot));
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

    /// Whether every webhook's bundle accepts what is served.
    fn judge(&self, now: Timestamp) {
        let name = self.settings.names.first().map(String::as_str);
        let verified = self.serving.key().is_some_and(|key| {
            let mut bundles = TARGETS.iter().flat_map(|slot| self.bundles(*slot));
            bundles.all(|(_, bundle)| pki::verifies(&bundle, &key, name, now))
        });
        let seen = TARGETS.iter().all(|slot| self.objects.contains_key(slot));
        if self.serving.verified.swap(verified && seen, Ordering::AcqRel) != (verified && seen) {
            tracing::info!(
                verified,
                "published bundles checked against the serving certificate"
            );
        }
    }

    fn observe(&mut self, now: Timestamp) -> Observed {
        let authority = self.secret(Slot::Authority);
        let read = |part: &str| {
            authority
                .get(part)
                .and_then(|pem| pki::certificates(&pem.0).into_iter().next())
        };
        let current = read("ca.crt").filter(|_| authority.get("ca.key").is_some_and(|key| !key.0.is_empty()));
        let bundles: Vec<BTreeSet<Fingerprint>> = TARGETS
            .iter()
            .flat_map(|slot| self.bundles(*slot))
            .map(|(_, bundle)| {
                bundle
                    .iter()
                    .map(|certificate| certificate.authority.fingerprint.clone())
                    .collect()
            })
            .collect();
        let current = current.map(|certificate| certificate.authority);
        self.published = current
            .as_ref()
            .map(|current| &current.fingerprint)
            .and_then(|fingerprint| {
                let everywhere = bundles.iter().all(|bundle| bundle.contains(fingerprint));
                let known = self.published.take().filter(|(known, _)| known == fingerprint);
                everywhere.then(|| known.unwrap_or_else(|| (fingerprint.clone(), now)))
            });
        Observed {
            current,
            previous: read("previous.crt").map(|certificate| certificate.authority),
            leaf: self.loaded.as_ref().map(|loaded| loaded.leaf.clone()),
            bundles,
            published_since: self.published.as_ref().map(|(_, since)| *since),
        }
    }

    /// Each webhook of a configuration with the certificates in its bundle.
    fn bundles(&self, slot: Slot) -> Vec<(String, Vec<Certificate>)> {
        let object = self.objects.get(&slot).and_then(Option::as_ref);
        let webhooks = object
            .and_then(|object| object.data.get("webhooks"))
            .and_then(Value::as_array);
        let bundle = |webhook: &Value| {
            let bytes = webhook.pointer("/clientConfig/caBundle").cloned();
            let bytes = bytes.and_then(|value| serde_json::from_value::<ByteString>(value).ok());
            bytes.map(|bytes| pki::certificates(&bytes.0)).unwrap_or_default()
        };
        let name = |webhook: &Value| {
            webhook
                .get("name")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        webhooks
            .into_iter()
            .flatten()
            .map(|webhook| (name(webhook), bundle(webhook)))
            .collect()
    }

    async fn perform(&mut self, step: Step, observed: &Observed, now: Timestamp) -> Result<(), StepError> {
        match step {
            Step::NewAuthority => {
                let pair = pki::new_authority(now, self.settings.rotation.authority_lifetime)?;
                let old = self.secret(Slot::Authority).remove("ca.crt");
                let old = old.and_then(|pem| pki::certificates(&pem.0).into_iter().next());
                let old = old.filter(|certificate| certificate.authority.until > now);
                let mut parts = json!({"ca.crt": pair.certificate, "ca.key": pair.key});
                if let (Some(old), Value::Object(fields)) = (old, &mut parts) {
                    fields.insert("previous.crt".into(), old.pem.into());
                }
                self.write_secret(Slot::Authority, json!({"stringData": parts}))
                    .await
            }
            Step::NewLeaf => {
                let authority = self.authority()?;
                let until = observed.current.as_ref().map_or(now, |current| current.until);
                let lifetime = self.settings.rotation.leaf_lifetime;
                let leaf = pki::new_leaf(&authority, until, &self.settings.names, now, lifetime)?;
                let parts = json!({"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": authority.certificate});
                self.write_secret(Slot::Serving, json!({"stringData": parts}))
                    .await
            }
            Step::DropPrevious => {
                self.write_secret(Slot::Authority, json!({"data": {"previous.crt": null}}))
                    .await
            }
            Step::Publish(wanted) => {
                let pem = self.bundle(&wanted);
                for slot in TARGETS {
                    self.publish(slot, &pem, &wanted).await?;
                }
                Ok(())
            }
            Step::Wait(_) => Ok(()),
        }
    }

    fn authority(&self) -> Result<Pair, StepError> {
        let mut parts = self.secret(Slot::Authority);
        let mut text = |part: &str| {
            parts
                .remove(part)
                .and_then(|bytes| String::from_utf8(bytes.0).ok())
        };
        match (text("ca.crt"), text("ca.key")) {
            (Some(certificate), Some(key)) => Ok(Pair { certificate, key }),
            _ => Err(StepError::NoKey),
        }
    }

    /// The wanted certificates as PEM, from wherever they have been seen.
    fn bundle(&self, wanted: &BTreeSet<Fingerprint>) -> String {
        let secret = self.secret(Slot::Authority);
        let stored = ["ca.crt", "previous.crt"]
            .iter()
            .filter_map(|part| secret.get(*part));
        let published = TARGETS
            .iter()
            .flat_map(|slot| self.bundles(*slot))
            .flat_map(|(_, bundle)| bundle);
        let issuer = self.loaded.as_ref().and_then(|loaded| loaded.issuer.clone());
        let all = stored
            .flat_map(|pem| pki::certificates(&pem.0))
            .chain(issuer)
            .chain(published);
        let by_fingerprint: BTreeMap<Fingerprint, String> = all
            .map(|certificate| (certificate.authority.fingerprint, certificate.pem))
            .collect();
        wanted
            .iter()
            .filter_map(|fingerprint| by_fingerprint.get(fingerprint).map(String::as_str))
            .collect()
    }

    async fn publish(
        &mut self,
        slot: Slot,
        pem: &str,
        wanted: &BTreeSet<Fingerprint>,
    ) -> Result<(), StepError> {
        let bundles = self.bundles(slot);
        let carries = |bundle: &[Certificate]| {
            let carried: BTreeSet<_> = bundle
                .iter()
                .map(|known| known.authority.fingerprint.clone())
                .collect();
            carried == *wanted
        };
        let Some(Some(object)) = self.objects.get(&slot) else {
            return Ok(());
        };
        if bundles.iter().all(|(_, bundle)| carries(bundle)) {
            return Ok(());
        }
        let bytes = ByteString(pem.as_bytes().to_vec());
        let webhooks: Vec<Value> = bundles
            .iter()
            .map(|(name, _)| json!({"name": name, "clientConfig": {"caBundle": bytes}}))
            .collect();
        let body = json!({
            "apiVersion": format!("{REGISTRATION}/v1"),
            "kind": slot.configuration().0,
            "metadata": {
                "name": self.settings.name(slot),
                "resourceVersion": object.metadata.resource_version,
            },
            "webhooks": webhooks,
        });
        let path = format!("{}?fieldManager={MANAGER}&force=true", self.settings.path(slot));
        let answer = self
            .caller
            .call(http::Method::PATCH, &path, Content::Apply, Some(&body))
            .await;
        self.settle(slot, answer, "bundle").await
    }

    /// Creates the Secret, or changes it as it was seen.
    async fn write_secret(&mut self, slot: Slot, change: Value) -> Result<(), StepError> {
        let mut body = change;
        let existing = self.objects.get(&slot).and_then(Option::as_ref);
        let version = existing.and_then(|object| object.metadata.resource_version.clone());
        let metadata = json!({"name": self.settings.name(slot), "namespace": self.settings.namespace});
        let Value::Object(fields) = &mut body else {
            return Ok(());
        };
        fields.insert("metadata".into(), metadata);
        let answer = if let Some(version) = version {
            fields.insert("metadata".into(), json!({"resourceVersion": version}));
            self.caller
                .call(
                    http::Method::PATCH,
                    &self.settings.path(slot),
                    Content::Merge,
                    Some(&body),
                )
                .await
        } else {
            fields.insert("apiVersion".into(), "v1".into());
            fields.insert("kind".into(), "Secret".into());
            let type_ = if slot == Slot::Serving {
                "kubernetes.io/tls"
            } else {
                "Opaque"
            };
            fields.insert("type".into(), type_.into());
            self.caller.post(&self.settings.secrets(), &body).await
        };
        self.settle(slot, answer, "secret").await
    }

    /// Takes in the answer to a write. Another replica that was faster is no error: its result is read and the step
    /// is decided again.
    async fn settle(
        &mut self,
        slot: Slot,
        answer: Result<Value, CallError>,
        what: &'static str,
    ) -> Result<(), StepError> {
        let answer = match answer {
            Err(error) if matches!(error.code(), Some(404 | 409)) => self
                .caller
                .get(&self.settings.path(slot))
                .await
                .map(Some)
                .or_else(|error| match error.code() {
                    Some(404) => Ok(None),
                    _ => Err(error),
                }),
            other => other.map(Some),
        };
        let object = answer.map_err(|error| StepError::Call { what, error })?;
        self.take(
            slot,
            object.and_then(|object| serde_json::from_value(object).ok()),
        );
        Ok(())
    }
}
