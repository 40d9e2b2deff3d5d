//! TLS of the listeners: the certificate is looked up at each handshake, so a new one needs no restart.

use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::kube::certificates::Serving;

/// Answers handshakes with what is served now.
struct Current(Arc<Serving>);

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Current")
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.key()
    }
}

/// TLS 1.2 and later, HTTP/2 and HTTP/1.1, no client certificates.
pub fn config(serving: Arc<Serving>) -> Arc<ServerConfig> {
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Current(serving)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}
