//! The served certificate, and whether the API server accepts it.
//!
//! Invariants: a replica counts as verified only while there is at least one webhook, and every webhook of the published
//! configurations accepts the served certificate under the host name that it dials; an accepted certificate is never
//! replaced by one that the webhooks do not accept.

use std::sync::Arc;

use ::kube::api::DynamicObject;
use arc_swap::{ArcSwap, ArcSwapOption};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use rustls::sign::CertifiedKey;
use serde_json::Value;

use super::pki::{self, Certificate, VerificationError};
use super::webhook_ownership::{ForeignConfiguration, ServiceName};
use crate::metrics::certificates::CertificateStatus;

/// Why webhooks cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReadyReason {
    /// There is no serving certificate.
    #[error("no serving certificate: {0}")]
    NoCertificate(String),
    /// The configurations have not been read.
    #[error("webhook configurations not read yet")]
    ConfigurationsNotRead,
    /// There is no webhook, so the API server would not send any review.
    #[error("no webhook is configured: {mutating} and {validating} are missing or have no webhooks")]
    NoWebhooks {
        /// Name of the MutatingWebhookConfiguration.
        mutating: String,
        /// Name of the ValidatingWebhookConfiguration.
        validating: String,
    },
    /// The API server sends reviews to another manager.
    #[error("{foreign}, not to that of this manager, {own}: it does nothing until they are its own")]
    BelongsToOther {
        /// A configuration of the other manager.
        foreign: ForeignConfiguration,
        /// Service of this manager.
        own: ServiceName,
    },
    /// The API server rejects the served certificate.
    #[error("caBundle of webhook {webhook} does not trust the serving certificate: {refusal}")]
    CertificateRejected {
        /// Name of the webhook.
        webhook: String,
        /// Reason of the rejection.
        refusal: VerificationError,
    },
}

/// The served certificate. Written by the certificates task, read by the TLS stack, the readiness probe and the metrics.
#[derive(Debug)]
pub struct ServingCertificate {
    key: ArcSwapOption<CertifiedKey>,
    not_ready_reason: ArcSwapOption<NotReadyReason>,
    status: ArcSwap<CertificateStatus>,
}

impl Default for ServingCertificate {
    fn default() -> Self {
        let reason = NotReadyReason::NoCertificate("its Secret has not been read yet".to_owned());
        Self {
            key: ArcSwapOption::empty(),
            not_ready_reason: ArcSwapOption::from_pointee(reason),
            status: ArcSwap::default(),
        }
    }
}

impl ServingCertificate {
    /// Returns the certificate with its key, if there is one.
    pub fn key(&self) -> Option<Arc<CertifiedKey>> {
        self.key.load_full()
    }

    /// Replaces the served certificate.
    pub fn store(&self, key: Arc<CertifiedKey>) {
        self.key.store(Some(key));
    }

    /// Returns why the API server does not accept the certificate; `None` if all webhooks accept it.
    pub fn not_ready_reason(&self) -> Option<Arc<NotReadyReason>> {
        self.not_ready_reason.load_full()
    }

    /// Sets reason and metrics. Logs a change of the reason.
    pub(super) fn update_status(&self, reason: Option<NotReadyReason>, status: CertificateStatus) {
        let previous = self.not_ready_reason.load_full();
        if previous.as_deref() != reason.as_ref() {
            if let Some(reason) = &reason {
                tracing::warn!(%reason, "webhooks are not ready");
            } else {
                tracing::info!("all webhooks trust the serving certificate");
            }
            self.not_ready_reason.store(reason.map(Arc::new));
        }
        self.status.store(Arc::new(status));
    }

    /// Returns the values for metrics.
    pub fn status(&self) -> CertificateStatus {
        **self.status.load()
    }
}

/// A webhook as the API server calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookTarget {
    /// Name of the webhook.
    pub webhook: String,
    /// Host name that the certificate must have.
    pub host: String,
    /// CAs that the API server trusts for this webhook.
    pub bundle: Vec<Certificate>,
}

/// Returns the webhooks of a configuration.
pub fn targets(configuration: &DynamicObject) -> Vec<WebhookTarget> {
    let webhooks = configuration.data.get("webhooks").and_then(Value::as_array);
    webhooks.into_iter().flatten().map(|webhook| target(text(webhook, "/name").to_owned(), webhook)).collect()
}

/// Returns the webhook that converts the objects of a definition, unless it is behind a Service other than these.
pub fn conversion_target<'a>(
    name: &str,
    definition: &DynamicObject,
    mut own: impl Iterator<Item = &'a ServiceName>,
) -> Option<WebhookTarget> {
    let conversion = definition.data.pointer("/spec/conversion")?;
    let webhook = conversion.get("webhook").filter(|_| text(conversion, "/strategy") == "Webhook")?;
    let service = webhook.pointer("/clientConfig/service").map(|_| {
        let field = |name: &str| text(webhook, &format!("/clientConfig/service/{name}")).to_owned();
        ServiceName { namespace: field("namespace"), name: field("name") }
    });
    let is_own = service.is_none_or(|service| own.any(|own| *own == service));
    is_own.then(|| target(format!("conversion of {name}"), webhook))
}

fn target(name: String, webhook: &Value) -> WebhookTarget {
    WebhookTarget { webhook: name, host: host(webhook), bundle: bundle(webhook) }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn bundle(webhook: &Value) -> Vec<Certificate> {
    let bytes = webhook.pointer("/clientConfig/caBundle").cloned();
    let bytes = bytes.and_then(|value| serde_json::from_value::<ByteString>(value).ok());
    bytes.map(|bytes| pki::certificates(&bytes.0)).unwrap_or_default()
}

/// Returns the dialed host: a Service by its name in its namespace, a URL by its host.
fn host(webhook: &Value) -> String {
    if webhook.pointer("/clientConfig/service").is_some() {
        let field = |name: &str| text(webhook, &format!("/clientConfig/service/{name}"));
        return format!("{}.{}.svc", field("name"), field("namespace"));
    }
    let url = text(webhook, "/clientConfig/url").parse::<http::Uri>().unwrap_or_default();
    let host = url.host().unwrap_or_default();
    host.trim_start_matches('[').trim_end_matches(']').to_owned()
}

/// Returns an error for the first webhook that does not accept the certificate. Each combination of bundle and host is
/// verified once, because most webhooks share it.
pub fn verify_targets(
    targets: &[WebhookTarget],
    key: &CertifiedKey,
    now: Timestamp,
) -> Result<(), NotReadyReason> {
    let mut verified: Vec<&WebhookTarget> = Vec::new();
    for target in targets {
        if verified.iter().any(|other| other.host == target.host && other.bundle == target.bundle) {
            continue;
        }
        pki::verify(&target.bundle, key, &target.host, now).map_err(|refusal| {
            NotReadyReason::CertificateRejected { webhook: target.webhook.clone(), refusal }
        })?;
        verified.push(target);
    }
    Ok(())
}

/// Returns whether `candidate` may replace the served certificate: false while the webhooks accept only the served one.
pub fn may_replace(
    targets: &[WebhookTarget],
    served: &CertifiedKey,
    candidate: &CertifiedKey,
    now: Timestamp,
) -> bool {
    verify_targets(targets, candidate, now).is_ok() || verify_targets(targets, served, now).is_err()
}
