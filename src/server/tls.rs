//! TLS of the listeners. The serving certificate and the CAs of client certificates are looked up at each handshake, so
//! changes need no restart.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};

use crate::api::config::Tls;
use crate::kube::certificates::ServingCertificate;
use crate::kube::cryptography;

/// Resolves the current serving certificate.
struct CurrentCertificate(Arc<ServingCertificate>);

impl fmt::Debug for CurrentCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Current")
    }
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.key()
    }
}

/// Builds a TLS configuration without client certificates: by default TLS 1.2 or later, HTTP/2 and HTTP/1.1.
///
/// # Errors
/// The configuration leaves no TLS version or suite to negotiate.
pub fn server_config(
    serving: Arc<ServingCertificate>,
    options: Option<&Tls>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    server_config_with_clients(serving, options, None)
}

/// Builds the same configuration; with `verifier`, clients present a certificate.
///
/// # Errors
/// The configuration leaves no TLS version or suite to negotiate.
pub fn server_config_with_clients(
    serving: Arc<ServingCertificate>,
    options: Option<&Tls>,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let default_options = Tls::default();
    let options = options.unwrap_or(&default_options);
    let versions = if options.requires_tls13() { &[&TLS13][..] } else { &[&TLS13, &TLS12][..] };
    let builder = ServerConfig::builder_with_provider(Arc::new(crypto_provider(options)))
        .with_protocol_versions(versions)?;
    let resolver = Arc::new(CurrentCertificate(serving));
    let mut config = if let Some(verifier) = verifier {
        let mut config = builder.with_client_cert_verifier(verifier).with_cert_resolver(resolver);
        // A resumed session would not be verified again, even after its CA was removed.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config
    } else {
        builder.with_no_client_auth().with_cert_resolver(resolver)
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The certificates that a client presented, its own first. TLS verifies only that the client has the key.
#[derive(Clone, Debug)]
pub struct PeerCertificates(pub Arc<[CertificateDer<'static>]>);

/// Builds the configuration of a port whose clients may present a certificate of any authority: each request is checked against
/// the authorities of that moment (`apis::front_proxy`), so that a client without a valid certificate gets an error of HTTP.
///
/// # Errors
/// The configuration leaves no TLS version or suite to negotiate.
pub fn server_config_with_any_client(
    serving: Arc<ServingCertificate>,
    options: Option<&Tls>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let algorithms = cryptography::provider().signature_verification_algorithms;
    server_config_with_clients(serving, options, Some(Arc::new(AnyClient(algorithms))))
}

/// Verifies only that a client has the key of the certificate that it presents.
#[derive(Debug)]
struct AnyClient(WebPkiSupportedAlgorithms);

impl ClientCertVerifier for AnyClient {
    /// Returns no hints: clients with one certificate send it without.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// Restricts suites and curves to the configured ones. TLS 1.3 suites are always allowed; curves keep the configured order.
fn crypto_provider(options: &Tls) -> CryptoProvider {
    let mut provider = cryptography::provider();
    provider.cipher_suites.retain(|suite| {
        let name = suite.suite().as_str();
        suite.tls13().is_some() || name.is_some_and(|name| options.allows_suite(name))
    });
    let curves = options.curves();
    if !curves.is_empty() {
        let position = |name: Option<&str>| curves.iter().position(|curve| Some(*curve) == name);
        provider.kx_groups.retain(|group| position(group.name().as_str()).is_some());
        provider.kx_groups.sort_by_key(|group| position(group.name().as_str()));
    }
    provider
}
