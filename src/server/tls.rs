//! TLS of the listeners. The serving certificate and the CAs of client certificates are looked up at each handshake, so
//! changes need no restart.

use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};

use super::client_verifier::WebhookClientVerifier;
use crate::api::config::Tls;
use crate::kube::certificates::ServingCertificate;

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

/// Builds the same configuration; with `verifier`, clients must present a certificate.
///
/// # Errors
/// The configuration leaves no TLS version or suite to negotiate.
pub fn server_config_with_clients(
    serving: Arc<ServingCertificate>,
    options: Option<&Tls>,
    verifier: Option<Arc<WebhookClientVerifier>>,
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

/// Restricts suites and curves to the configured ones. TLS 1.3 suites are always allowed; curves keep the configured order.
fn crypto_provider(options: &Tls) -> CryptoProvider {
    let mut provider = ring::default_provider();
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
