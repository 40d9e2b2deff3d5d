//! Executes the steps of the rotation, as writes to Secrets, webhook configurations and definitions.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Value, json};

use super::{CertificateController, FIELD_MANAGER, FailedWrite, ManagedObject, StepError, fingerprints};
use crate::kube::client::{CallError, Content};
use crate::kube::pki::{self, PemPair};
use crate::kube::serving_certificate::WebhookTarget;
use crate::lifecycle::certificates::{CertificateStep, Fingerprint, Observed, is_observer_due};

/// Delay after a failed write on which no certificate depends.
const RETRY: SignedDuration = SignedDuration::from_mins(1);

/// Label, and its value, of Sluice's APIServices, including APIServices that replaced Kueue's. Kueue's chart sets other values.
const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "controller");

impl CertificateController {
    pub(super) async fn execute_step(
        &mut self,
        step: CertificateStep,
        observed: &Observed,
        now: Timestamp,
    ) -> Result<(), StepError> {
        match step {
            CertificateStep::CreateCa => {
                let ca = pki::new_ca(now, self.settings.rotation.ca_lifetime)?;
                let previous = self.secret_data(ManagedObject::Ca).remove("ca.crt");
                let previous = previous.and_then(|pem| pki::certificates(&pem.0).into_iter().next());
                let previous = previous.filter(|certificate| certificate.info.not_after > now);
                let mut data = json!({"ca.crt": ca.certificate, "ca.key": ca.key});
                if let (Some(previous), Value::Object(fields)) = (previous, &mut data) {
                    fields.insert("previous.crt".into(), previous.pem.into());
                }
                self.write_secret(ManagedObject::Ca, json!({"stringData": data})).await
            }
            CertificateStep::IssueLeaf => {
                let ca_pair = self.ca_pair()?;
                let ca_not_after = observed.current.as_ref().map_or(now, |current| current.not_after);
                let lifetime = self.settings.rotation.leaf_lifetime;
                let leaf = pki::new_leaf(&ca_pair, ca_not_after, &self.settings.names, now, lifetime)?;
                let data =
                    json!({"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": ca_pair.certificate});
                self.write_secret(ManagedObject::Serving, json!({"stringData": data})).await
            }
            CertificateStep::DropPreviousCa => {
                self.write_secret(ManagedObject::Ca, json!({"data": {"previous.crt": null}})).await
            }
            CertificateStep::PublishBundle(wanted) => {
                self.publish_bundles(|_: &WebhookTarget| wanted.clone()).await
            }
            CertificateStep::AddToBundles(wanted) => {
                self.publish_bundles(|target: &WebhookTarget| &wanted | &fingerprints(&target.bundle)).await
            }
            CertificateStep::Wait(_) => Ok(()),
        }
    }

    fn ca_pair(&self) -> Result<PemPair, StepError> {
        let mut data = self.secret_data(ManagedObject::Ca);
        let mut text = |name: &str| data.remove(name).and_then(|bytes| String::from_utf8(bytes.0).ok());
        match (text("ca.crt"), text("ca.key")) {
            (Some(certificate), Some(key)) => Ok(PemPair { certificate, key }),
            _ => Err(StepError::NoKey),
        }
    }

    /// Returns the wanted certificates as PEM, from any object that contains them.
    fn bundle_pem(&self, wanted: &BTreeSet<Fingerprint>) -> String {
        let secret = self.secret_data(ManagedObject::Ca);
        let stored = ["ca.crt", "previous.crt"].iter().filter_map(|key| secret.get(*key));
        let published = self.targets.values().flatten().flat_map(|target| target.bundle.clone());
        let issuer = self.loaded.as_ref().ok().and_then(|loaded| loaded.issuer.clone());
        let all = stored.flat_map(|pem| pki::certificates(&pem.0)).chain(issuer).chain(published);
        let by_fingerprint: BTreeMap<Fingerprint, String> =
            all.map(|certificate| (certificate.info.fingerprint, certificate.pem)).collect();
        wanted.iter().filter_map(|fingerprint| by_fingerprint.get(fingerprint).map(String::as_str)).collect()
    }

    /// Writes the required CAs to each target that has other CAs.
    async fn publish_bundles(
        &mut self,
        wanted: impl Fn(&WebhookTarget) -> BTreeSet<Fingerprint>,
    ) -> Result<(), StepError> {
        for slot in self.settings.bundled_objects() {
            self.publish_bundle(slot, &wanted).await?;
        }
        Ok(())
    }

    async fn publish_bundle(
        &mut self,
        slot: ManagedObject,
        wanted: &impl Fn(&WebhookTarget) -> BTreeSet<Fingerprint>,
    ) -> Result<(), StepError> {
        let targets = self.targets.get(&slot).map(Vec::as_slice).unwrap_or_default();
        let Some(Some(object)) = self.objects.get(&slot) else {
            return Ok(());
        };
        if targets.iter().all(|target| fingerprints(&target.bundle) == wanted(target)) {
            return Ok(());
        }
        let mut encoded: BTreeMap<BTreeSet<Fingerprint>, ByteString> = BTreeMap::new();
        let mut bundle = |target: &WebhookTarget| {
            let wanted = wanted(target);
            let pem = || ByteString(self.bundle_pem(&wanted).into_bytes());
            json!(encoded.entry(wanted.clone()).or_insert_with(pem))
        };
        let (api_version, kind) = slot.type_of_bundled();
        let mut body = json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {
                "name": self.settings.name(slot),
                "resourceVersion": object.metadata.resource_version,
            },
        });
        let path = format!("{}?fieldManager={FIELD_MANAGER}", self.settings.path(slot));
        if let ManagedObject::Definition(_) = slot {
            let bundle = targets.first().map(&mut bundle);
            let conversion = json!({"webhook": {"clientConfig": {"caBundle": bundle}}});
            set(&mut body, "spec", json!({"conversion": conversion}));
            let response = self.caller.call(http::Method::PATCH, &path, Content::Merge, Some(&body)).await;
            return self.handle_response(slot, response, "bundle").await;
        }
        let webhook = |target: &WebhookTarget| json!({"name": target.webhook, "clientConfig": {"caBundle": bundle(target)}});
        set(&mut body, "webhooks", targets.iter().map(webhook).collect());
        let path = format!("{path}&force=true");
        let response = self.caller.call(http::Method::PATCH, &path, Content::Apply, Some(&body)).await;
        self.handle_response(slot, response, "bundle").await
    }

    /// Updates a Secret under the resourceVersion last seen. It is not created: a permission to create Secrets cannot be
    /// restricted to a name.
    async fn write_secret(&mut self, slot: ManagedObject, change: Value) -> Result<(), StepError> {
        let mut body = change;
        let name = self.settings.name(slot);
        let Some(Some(existing)) = self.objects.get(&slot) else {
            let (namespace, name) = (self.settings.namespace.clone(), name.to_owned());
            return Err(StepError::NoSecret { namespace, name });
        };
        let Value::Object(fields) = &mut body else {
            return Ok(());
        };
        fields.insert("metadata".into(), json!({"resourceVersion": existing.metadata.resource_version}));
        let path = self.settings.path(slot);
        let response = self.caller.call(http::Method::PATCH, &path, Content::Merge, Some(&body)).await;
        self.handle_response(slot, response, "secret").await
    }

    /// Writes the authorities of this installation to the ConfigMap, if it exists and has other authorities.
    pub(super) async fn write_ca_config_map(&mut self, trusted: &BTreeSet<Fingerprint>, now: Timestamp) {
        let slot = ManagedObject::CaConfigMap;
        let wanted = self.bundle_pem(trusted);
        let Some(Some(existing)) = self.objects.get(&slot) else { return };
        let is_current = existing.data.pointer("/data/ca.crt").and_then(Value::as_str) == Some(&wanted);
        if wanted.is_empty() || is_current {
            return;
        }
        let version = &existing.metadata.resource_version;
        let body = json!({"metadata": {"resourceVersion": version}, "data": {"ca.crt": wanted}});
        self.write_aside(slot, body, "ConfigMap of the authority", now).await;
    }

    /// Writes the authorities of this installation to the APIServices that name the Service of this manager, belong to no other
    /// installation, and have other authorities or ask for no verification.
    pub(super) async fn write_api_services(&mut self, trusted: &BTreeSet<Fingerprint>, now: Timestamp) {
        let pem = self.bundle_pem(trusted);
        let Some(own) = self.settings.visibility.clone().filter(|_| !pem.is_empty()) else { return };
        for slot in self.settings.api_services() {
            let Some(Some(existing)) = self.objects.get(&slot) else { continue };
            let spec = existing.data.get("spec").unwrap_or(&Value::Null);
            let text = |pointer: &str| spec.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            if (text("/service/namespace"), text("/service/name")) != (&*own.namespace, &*own.name) {
                continue;
            }
            // An APIService of Kueue that replaces this installation while this replica stops asks for no verification, and its
            // manager has another authority.
            let unverified = spec.get("insecureSkipTLSVerify") == Some(&Value::Bool(true));
            let component = existing.metadata.labels.as_ref().and_then(|labels| labels.get(COMPONENT.0));
            if unverified && component.is_none_or(|component| component != COMPONENT.1) {
                continue;
            }
            let bundle = ByteString(pem.as_bytes().to_vec());
            if spec.get("caBundle") == Some(&json!(bundle)) && spec.get("insecureSkipTLSVerify").is_none() {
                continue;
            }
            let version = &existing.metadata.resource_version;
            let spec = json!({"caBundle": bundle, "insecureSkipTLSVerify": null});
            let body = json!({"metadata": {"resourceVersion": version}, "spec": spec});
            self.write_aside(slot, body, "CA bundle of an APIService", now).await;
        }
    }

    /// Issues the certificates of processes that serve no webhooks, where their Secrets exist. Nothing else depends on them.
    pub(super) async fn issue_for_observers(&mut self, observed: &Observed, now: Timestamp) {
        let Some(current) = &observed.current else { return };
        for (place, observer) in self.settings.observers.clone().into_iter().enumerate() {
            let slot = ManagedObject::Observer(place);
            let Some(Some(existing)) = self.objects.get(&slot) else { continue };
            let version = existing.metadata.resource_version.clone();
            let loaded = self.load_secret(slot, &observer.names, now).ok();
            let leaf = loaded.as_ref().map(|loaded| &loaded.leaf);
            if !is_observer_due(leaf, observed, &self.settings.rotation, now) {
                continue;
            }
            let lifetime = self.settings.rotation.leaf_lifetime;
            let issued = self.ca_pair().and_then(|ca| {
                let leaf = pki::new_leaf(&ca, current.not_after, &observer.names, now, lifetime)?;
                Ok(json!({"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": ca.certificate}))
            });
            match issued {
                Ok(data) => {
                    tracing::info!(secret = observer.secret, "certificate issued for another process");
                    let body = json!({"metadata": {"resourceVersion": version}, "stringData": data});
                    self.write_aside(slot, body, "certificate of another process", now).await;
                }
                Err(error) => tracing::warn!(secret = observer.secret, %error, "no certificate was issued"),
            }
        }
    }

    /// Removes this field manager from the webhook configurations and definitions. Where it owns the bundle of an entry, a
    /// server-side apply that no longer has the entry leaves it behind with its bundle alone, and is refused as invalid: a
    /// component that was installed so could not be removed.
    pub(super) async fn release_bundles(&mut self, now: Timestamp) {
        for slot in self.settings.bundled_objects() {
            let Some(Some(existing)) = self.objects.get(&slot) else { continue };
            let managers = existing.metadata.managed_fields.as_deref().unwrap_or_default();
            let is_own = |entry: &ManagedFieldsEntry| entry.manager.as_deref() == Some(FIELD_MANAGER);
            let others: Vec<_> = managers.iter().filter(|entry| !is_own(entry)).collect();
            // The API server would read an empty list as the removal of all owners.
            if others.is_empty() || others.len() == managers.len() {
                continue;
            }
            let version = &existing.metadata.resource_version;
            let body = json!({"metadata": {"resourceVersion": version, "managedFields": others}});
            self.write_aside(slot, body, "ownership of bundles", now).await;
        }
    }

    /// Merges a change on which no certificate depends. A failed write is repeated later, and stops no other step.
    async fn write_aside(&mut self, slot: ManagedObject, body: Value, what: &'static str, now: Timestamp) {
        if self.retries.get(&slot).is_some_and(|failed| now < failed.retry) {
            return;
        }
        let path = self.settings.path(slot);
        let response = self.caller.call(http::Method::PATCH, &path, Content::Merge, Some(&body)).await;
        let outcome = self.handle_response(slot, response, what).await;
        let before = self.retries.remove(&slot);
        if let Err(error) = outcome {
            let failed =
                FailedWrite { retry: now.saturating_add(RETRY).unwrap_or(now), error: error.to_string() };
            if before.is_none_or(|before| before.error != failed.error) {
                tracing::warn!(%error, "write of a certificate object failed; retrying");
            }
            self.retries.insert(slot, failed);
        }
    }

    /// Handles the response to a write. A conflict with another replica is no error: the object is read again and the step is
    /// decided again.
    async fn handle_response(
        &mut self,
        slot: ManagedObject,
        response: Result<Value, CallError>,
        what: &'static str,
    ) -> Result<(), StepError> {
        let response = match response {
            Err(error) if matches!(error.code(), Some(404 | 409)) => {
                self.caller.get(&self.settings.path(slot)).await.map(Some).or_else(|error| {
                    match error.code() {
                        Some(404) => Ok(None),
                        _ => Err(error),
                    }
                })
            }
            other => other.map(Some),
        };
        let object = response.map_err(|error| StepError::Call { what, error })?;
        self.update_object(slot, object.and_then(|object| serde_json::from_value(object).ok()));
        Ok(())
    }
}

fn set(body: &mut Value, field: &str, value: Value) {
    if let Some(fields) = body.as_object_mut() {
        fields.insert(field.to_owned(), value);
    }
}
