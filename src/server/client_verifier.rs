//! Client certificates of webhook callers, verified against configured authorities.
//!
//! Invariants: authorities are always set, since an unusable file changes nothing; each connection is verified against the
//! authorities at its handshake, and no session is resumed past a change of authorities.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use x509_parser::extensions::GeneralName;

/// Pause between two reads of the file. Volumes change by renaming, so the content is compared.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Why the authorities cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientCaError {
    /// The file cannot be read.
    #[error("client CA {path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It holds something else than certificates, or nothing.
    #[error("client CA {path}: {problem}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

/// The authorities as they are now.
struct TrustedCas {
    text: Vec<u8>,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// Judges the certificates of clients.
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
    /// Reads the authorities. Where names are given, a client's certificate must bear one of them.
    pub fn read(path: &Path, names: Vec<String>) -> Result<Arc<Self>, ClientCaError> {
        let known = ArcSwap::from_pointee(load_trusted(path, read_file(path)?)?);
        Ok(Arc::new(Self { path: path.to_owned(), names, trusted: known }))
    }

    /// Reads the file again. Returns whether the authorities changed.
    pub fn reload(&self) -> Result<bool, ClientCaError> {
        let text = read_file(&self.path)?;
        if text == self.trusted.load().text {
            return Ok(false);
        }
        self.trusted.store(Arc::new(load_trusted(&self.path, text)?));
        Ok(true)
    }

    /// Reads the file again at intervals. An error is logged once; the authorities stay.
    pub async fn watch_file(self: Arc<Self>) {
        let mut logged = None;
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            match self.reload() {
                Ok(changed) => {
                    logged = None;
                    if changed {
                        tracing::info!(path = %self.path.display(), "new authorities of the webhooks' callers");
                    }
                }
                Err(error) => {
                    let words = error.to_string();
                    if logged.as_ref() != Some(&words) {
                        tracing::error!(%error, "the authorities before stay");
                        logged = Some(words);
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
    let wrong = |problem: String| ClientCaError::Content { path: path.to_owned(), problem };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("it holds no certificate in PEM".to_owned()));
    }
    let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    Ok(TrustedCas { text, verifier: verifier.map_err(|error| wrong(error.to_string()))? })
}

/// The common name and the DNS names of a certificate.
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
    /// No hints: they could change under a handshake, and clients that have one certificate show it without.
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
