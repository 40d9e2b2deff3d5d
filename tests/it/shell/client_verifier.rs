//! Webhook clients that must present a certificate: handshakes against the TLS configuration alone.
#![expect(clippy::disallowed_methods, reason = "the test runs both sides of the connection")]

use crate::fixtures::client_certificates::{Authority, Identity, client_config};
use jiff::Timestamp;
use rcgen::ExtendedKeyUsagePurpose;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use sluice::kube::certificates::ServingCertificate;
use sluice::kube::pki;
use sluice::server::client_verifier::WebhookClientVerifier;
use sluice::server::tls;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const YEAR: Duration = Duration::from_hours(365 * 24);

/// A server that requires client certificates, and the CA of its own certificate.
struct TlsServer {
    config: Arc<ServerConfig>,
    ca_pem: String,
}

impl TlsServer {
    fn new(verifier: Option<Arc<WebhookClientVerifier>>) -> Self {
        sluice::kube::cryptography::install();
        let (now, serving) = (Timestamp::now(), Arc::new(ServingCertificate::default()));
        let authority = pki::new_ca(now, YEAR).unwrap();
        let names = ["svc.ns.svc".to_owned()];
        let leaf = pki::new_leaf(&authority, Timestamp::MAX, &names, now, YEAR / 2).unwrap();
        let loaded = pki::load(leaf.certificate.as_bytes(), leaf.key.as_bytes(), None, &names, now).unwrap();
        serving.store(loaded.key);
        Self {
            config: tls::server_config_with_clients(
                serving,
                None,
                verifier.map(|verifier| -> Arc<dyn ClientCertVerifier> { verifier }),
            )
            .unwrap(),
            ca_pem: authority.certificate,
        }
    }

    /// Whether the server accepts a client with this certificate, the same by both versions of TLS. Handshakes run to the end.
    fn accepts(&self, client: Option<&Identity>) -> bool {
        let accepts_version = |version| self.accepts_by(client, version);
        let (old, new) = (accepts_version(&rustls::version::TLS12), accepts_version(&rustls::version::TLS13));
        assert_eq!(old, new, "TLS 1.2 and 1.3 differ");
        new
    }

    fn accepts_by(
        &self,
        client: Option<&Identity>,
        version: &'static rustls::SupportedProtocolVersion,
    ) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.ca_pem.as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_protocol_versions(&[version]).with_root_certificates(roots);
        let config = client_config(builder, client);
        let name = ServerName::try_from("svc.ns.svc").unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut server = ServerConnection::new(Arc::clone(&self.config)).unwrap();
        for _ in 0..10 {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut wire.as_slice()).unwrap();
            if server.process_new_packets().is_err() {
                return false;
            }
            let mut wire = Vec::new();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut wire.as_slice()).unwrap();
            client.process_new_packets().unwrap();
        }
        !server.is_handshaking() && !client.is_handshaking()
    }
}

fn temporary_file(name: &str, text: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("callers-{name}-{}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn only_trusted_client_certificates_are_accepted() {
    let (ours, foreign) = (Authority::new("ours"), Authority::new("foreign"));
    let path = temporary_file("authorities", &ours.pem());
    let server = TlsServer::new(Some(WebhookClientVerifier::read(&path, Vec::new()).unwrap()));
    assert!(server.accepts(Some(&ours.user("kube-apiserver"))));
    assert!(!server.accepts(None));
    assert!(!server.accepts(Some(&foreign.user("kube-apiserver"))));
    let serving_only = ours.client("kube-apiserver", &[], ExtendedKeyUsagePurpose::ServerAuth);
    assert!(!server.accepts(Some(&serving_only)), "a serving certificate is no client certificate");
    assert!(TlsServer::new(None).accepts(None), "without a CA file every client is accepted");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn only_listed_client_names_are_accepted() {
    let ours = Authority::new("ours");
    let path = temporary_file("names", &ours.pem());
    let names = vec!["kube-apiserver".to_owned(), "api.example.org".to_owned()];
    let server = TlsServer::new(Some(WebhookClientVerifier::read(&path, names).unwrap()));
    assert!(server.accepts(Some(&ours.user("kube-apiserver"))));
    assert!(!server.accepts(Some(&ours.user("system:node:n1"))));
    let alternative = ours.client("x", &["api.example.org"], ExtendedKeyUsagePurpose::ClientAuth);
    assert!(server.accepts(Some(&alternative)));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn ca_file_reload_ignores_invalid_content() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let path = temporary_file("again", &old.pem());
    let verifier = WebhookClientVerifier::read(&path, Vec::new()).unwrap();
    let server = TlsServer::new(Some(Arc::clone(&verifier)));
    assert!(!verifier.reload().unwrap(), "the file has not changed");
    for invalid in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        std::fs::write(&path, invalid).unwrap();
        let error = verifier.reload().unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
        assert!(server.accepts(Some(&old.user("a"))));
        assert!(WebhookClientVerifier::read(&path, Vec::new()).is_err(), "{invalid:?}");
    }
    std::fs::write(&path, format!("{}{}", old.pem(), new.pem())).unwrap();
    assert!(verifier.reload().unwrap());
    assert!(server.accepts(Some(&old.user("a"))) && server.accepts(Some(&new.user("a"))));
    std::fs::write(&path, new.pem()).unwrap();
    assert!(verifier.reload().unwrap());
    assert!(!server.accepts(Some(&old.user("a"))) && server.accepts(Some(&new.user("a"))));
    std::fs::remove_file(&path).unwrap();
    assert!(verifier.reload().is_err());
    assert!(server.accepts(Some(&new.user("a"))));
}
