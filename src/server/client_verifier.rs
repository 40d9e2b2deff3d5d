//! Verifies client certificates of webhook callers against configured CAs.
//!
//! Invariants: there are always trusted CAs, because an unusable file changes nothing; each connection is verified against
//! the CAs at its handshake, and no session is resumed after the CAs change.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use x509_parser::extensions::GeneralName;

use crate::kube::cryptography;

/// Time between two reads of the file. Mounted volumes change by renaming, so the content is compared.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Why the CAs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientCaError {
    /// The file cannot be read.
    #[error("client CA {path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        error: std::io::Error,
    },
    /// The file contains no certificate, or an invalid one.
    #[error("client CA {path}: {problem}")]
    Content {
        /// The file.
        path: PathBuf,
        /// The problem found.
        problem: String,
    },
}

/// The current CAs.
struct TrustedCas {
    text: Vec<u8>,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// Verifies client certificates.
pub struct WebhookClientVerifier {
    path: PathBuf,
    names: Vec<String>,
    trusted: ArcSwap<TrustedCas>,
}

impl fmt::Debug for WebhookClientVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers")
            .field("path", &self.path)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl WebhookClientVerifier {
    /// Reads the CAs. If `names` is not empty, a client certificate must have one of them.
    pub fn read(path: &Path, names: Vec<String>) -> Result<Arc<Self>, ClientCaError> {
        let trusted = ArcSwap::from_pointee(load_trusted(path, read_file(path)?)?);
        Ok(Arc::new(Self { path: path.to_owned(), names, trusted }))
    }

    /// Reads the file again. Returns whether the CAs changed.
    pub fn reload(&self) -> Result<bool, ClientCaError> {
        let text = read_file(&self.path)?;
        if text == self.trusted.load().text {
            return Ok(false);
        }
        self.trusted.store(Arc::new(load_trusted(&self.path, text)?));
        Ok(true)
    }

    /// Reads the file periodically. An error is logged once, and the CAs stay.
    pub async fn watch_file(self: Arc<Self>) {
        let mut logged = None;
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            match self.reload() {
                Ok(changed) => {
                    logged = None;
                    if changed {
                        tracing::info!(path = %self.path.display(), "client CA reloaded");
                    }
                }
                Err(error) => {
                    let message = error.to_string();
                    if logged.as_ref() != Some(&message) {
                        tracing::error!(%error, "new client CA is invalid; keeping the current one");
                        logged = Some(message);
                    }
                }
            }
        }
    }

    fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.trusted.load().verifier)
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, ClientCaError> {
    std::fs::read(path).map_err(|error| ClientCaError::File { path: path.to_owned(), error })
}

fn load_trusted(path: &Path, text: Vec<u8>) -> Result<TrustedCas, ClientCaError> {
    let invalid = |problem: String| ClientCaError::Content { path: path.to_owned(), problem };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| invalid(error.to_string()))?;
        roots.add(certificate).map_err(|error| invalid(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(invalid("it holds no certificate in PEM".to_owned()));
    }
    let provider = Arc::new(cryptography::provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    Ok(TrustedCas { text, verifier: verifier.map_err(|error| invalid(error.to_string()))? })
}

/// Returns the common name and the DNS names of a certificate.
fn certificate_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else {
        return Vec::new();
    };
    let common = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let alternative = parsed.subject_alternative_name().ok().flatten();
    let alternative = alternative.into_iter().flat_map(|names| &names.value.general_names);
    let dns = alternative.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(*name),
        _ => None,
    });
    common.chain(dns).map(str::to_owned).collect()
}

impl ClientCertVerifier for WebhookClientVerifier {
    /// Returns no hints: they could change during a handshake, and a client with one certificate sends it without.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.verifier().verify_client_cert(certificate, intermediates, now)?;
        let named = certificate_names(certificate).iter().any(|name| self.names.contains(name));
        if self.names.is_empty() || named {
            return Ok(verified);
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier().verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier().verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier().supported_verify_schemes()
    }
}
