//! The TLS listener on loopback: certificates replaced under connections, limits, slow clients, drain.
#![expect(clippy::disallowed_methods, reason = "the test runs both sides of the connection")]

use crate::fixtures::client_certificates::Authority;
use axum::Router;
use jiff::Timestamp;
use rcgen::ExtendedKeyUsagePurpose;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ClientConfig, NamedGroup, RootCertStore, SupportedProtocolVersion};
use serde_json::json;
use sluice::api::config::Tls;
use sluice::kube::certificates::ServingCertificate;
use sluice::kube::cryptography;
use sluice::kube::pki::{self, PemPair};
use sluice::metrics::counters::ReviewMetrics;
use sluice::server::listener::{Listener, ListenerLimits, ListenerStop};
use sluice::server::webhooks::{self, MAX_BODY_BYTES};
use sluice::server::{tls, webhooks::Review};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::{TlsConnector, client::TlsStream};

const YEAR: Duration = Duration::from_hours(365 * 24);

fn authority() -> PemPair {
    pki::new_ca(Timestamp::now(), YEAR).unwrap()
}

fn store_leaf(serving: &ServingCertificate, authority: &PemPair) {
    let now = Timestamp::now();
    let until = pki::certificates(authority.certificate.as_bytes())[0].info.not_after;
    let names = vec!["svc.ns.svc".to_owned(), "127.0.0.1".to_owned()];
    let leaf = pki::new_leaf(authority, until, &names, now, YEAR / 4).unwrap();
    let (chain, key) = (leaf.certificate.as_bytes(), leaf.key.as_bytes());
    let loaded = pki::load(chain, key, Some(authority.certificate.as_bytes()), &names, now).unwrap();
    assert!(loaded.leaf.names_complete);
    serving.store(loaded.key);
}

/// A CA, and a serving certificate that it issued.
fn ca_and_serving_certificate() -> (PemPair, Arc<ServingCertificate>) {
    cryptography::install();
    let (authority, serving) = (authority(), Arc::new(ServingCertificate::default()));
    store_leaf(&serving, &authority);
    (authority, serving)
}

async fn serve(
    router: Router,
    serving: &Arc<ServingCertificate>,
    limits: ListenerLimits,
) -> (SocketAddr, watch::Sender<bool>, tokio::task::JoinHandle<()>) {
    serve_with(router, serving, limits, None).await
}

async fn serve_with(
    router: Router,
    serving: &Arc<ServingCertificate>,
    limits: ListenerLimits,
    options: Option<&Tls>,
) -> (SocketAddr, watch::Sender<bool>, tokio::task::JoinHandle<()>) {
    cryptography::install();
    let (stop, stopped) = watch::channel(false);
    let config = tls::server_config(Arc::clone(serving), options).unwrap();
    let listener = Listener::bind("test", vec!["127.0.0.1:0".parse().unwrap()], Some(config), router, limits)
        .await
        .unwrap();
    let address = listener.address().unwrap();
    let task = tokio::spawn(listener.run(ListenerStop { retiring: stopped.clone(), stop: stopped }));
    (address, stop, task)
}

async fn connect(address: SocketAddr, trusted: &[&PemPair]) -> std::io::Result<TlsStream<TcpStream>> {
    connect_by(address, trusted, rustls::ALL_VERSIONS).await
}

async fn connect_by(
    address: SocketAddr,
    trusted: &[&PemPair],
    versions: &[&'static SupportedProtocolVersion],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for authority in trusted {
        roots.add(CertificateDer::from_pem_slice(authority.certificate.as_bytes()).unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_protocol_versions(versions)
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await
}

async fn post(stream: &mut TlsStream<TcpStream>, path: &str, body: &[u8]) -> String {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    read(stream).await
}

async fn read(stream: &mut TlsStream<TcpStream>) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.contains("\r\n\r\n") || !text.contains('}') {
        let count = stream.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            break;
        }
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    text
}

fn echo_router() -> Router {
    let review: Review =
        Arc::new(|path, request| json!({"path": path, "uid": request.pointer("/request/uid")}));
    webhooks::router(review, ReviewMetrics::default())
}

#[tokio::test]
async fn certificate_is_replaced_without_new_listener() {
    cryptography::install();
    let (old, new) = (authority(), authority());
    let serving = Arc::new(ServingCertificate::default());
    let (address, _stop, _task) = serve(echo_router(), &serving, ListenerLimits::default()).await;
    assert!(connect(address, &[&old]).await.is_err(), "no certificate yet");
    store_leaf(&serving, &old);
    let mut open_connection = connect(address, &[&old]).await.unwrap();
    assert!(connect(address, &[&new]).await.is_err());
    store_leaf(&serving, &new);
    assert!(connect(address, &[&new]).await.is_ok());
    assert!(connect(address, &[&old]).await.is_err());
    assert!(connect(address, &[&old, &new]).await.is_ok());
    let answer = post(&mut open_connection, "/mutate-x", br#"{"request":{"uid":"u1"}}"#).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(r#""uid":"u1""#), "{answer}");
    assert!(answer.contains(r#""path":"/mutate-x""#), "{answer}");
}

#[tokio::test]
async fn tls_options_follow_configuration() {
    let (authority, serving) = ca_and_serving_certificate();
    let latest = Tls { min_version: "VersionTLS13".to_owned(), ..Tls::default() };
    let (address, _stop, _task) =
        serve_with(echo_router(), &serving, ListenerLimits::default(), Some(&latest)).await;
    assert!(connect_by(address, &[&authority], &[&TLS12]).await.is_err());
    assert!(connect_by(address, &[&authority], &[&TLS13]).await.is_ok());
    let chosen = Tls {
        cipher_suites: vec!["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384".to_owned()],
        curve_preferences: vec![json!("CurveP384")],
        ..Tls::default()
    };
    let (address, _stop, _task) =
        serve_with(echo_router(), &serving, ListenerLimits::default(), Some(&chosen)).await;
    let stream = connect_by(address, &[&authority], &[&TLS12]).await.unwrap();
    let session = stream.get_ref().1;
    let suite = session.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(suite, CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384);
    assert_eq!(session.negotiated_key_exchange_group().unwrap().name(), NamedGroup::secp384r1);
    let foreign =
        Tls { cipher_suites: vec!["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned()], ..Tls::default() };
    let (address, _stop, _task) =
        serve_with(echo_router(), &serving, ListenerLimits::default(), Some(&foreign)).await;
    assert!(connect_by(address, &[&authority], &[&TLS12]).await.is_err(), "the certificate is ECDSA");
    assert!(connect_by(address, &[&authority], &[&TLS13]).await.is_ok());
}

/// cert-manager issues them with `size: 521`.
#[tokio::test]
async fn keys_on_p521_are_served() {
    cryptography::install();
    let authority = Authority::new("issuer");
    let names = ["svc.ns.svc", "127.0.0.1"];
    let (certificate, key) = authority.client("webhooks", &names, ExtendedKeyUsagePurpose::ServerAuth);
    let issuer = PemPair { certificate: authority.pem(), key: String::new() };
    let loaded = pki::load(
        certificate.as_bytes(),
        key.as_bytes(),
        Some(issuer.certificate.as_bytes()),
        &names.map(str::to_owned),
        Timestamp::now(),
    )
    .unwrap();
    let serving = Arc::new(ServingCertificate::default());
    serving.store(loaded.key);
    let (address, _stop, _task) = serve(echo_router(), &serving, ListenerLimits::default()).await;
    for version in [&TLS12, &TLS13] {
        connect_by(address, &[&issuer], &[version]).await.unwrap();
    }
}

/// The answer to a conversion is not that of an admission, and may be large.
#[tokio::test]
async fn conversions_are_answered() {
    let (authority, serving) = ca_and_serving_certificate();
    let (address, _stop, _task) = serve(echo_router(), &serving, ListenerLimits::default()).await;
    for (ballast, count) in [(10, 2), (1 << 20, 3), (0, 30_000)] {
        let object = json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Cohort", "metadata": {"name": "c"},
            "spec": {"ballast": "x".repeat(ballast)}});
        let objects: Vec<&serde_json::Value> = (0..count).map(|_| &object).collect();
        let request = json!({"uid": "u1", "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": objects});
        let mut stream = connect(address, &[&authority]).await.unwrap();
        let answer = post(&mut stream, "/convert", json!({"request": request}).to_string().as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let mut body = body.as_bytes().to_vec();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut rest = vec![0; length.parse::<usize>().unwrap() - body.len()];
        stream.read_exact(&mut rest).await.unwrap();
        body.extend(rest);
        let review: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(review["response"]["result"]["status"], "Success");
        let converted = review["response"]["convertedObjects"].as_array().unwrap();
        assert_eq!(converted.len(), count);
        assert!(converted.iter().all(|object| object["apiVersion"] == "kueue.x-k8s.io/v1beta2"));
    }
    let mut stream = connect(address, &[&authority]).await.unwrap();
    let answer = post(&mut stream, "/convert", b"{").await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}

#[tokio::test]
async fn oversized_bodies_are_refused() {
    let (authority, serving) = ca_and_serving_certificate();
    let (address, _stop, _task) = serve(echo_router(), &serving, ListenerLimits::default()).await;
    // Declared too large: refused before it is sent.
    let mut stream = connect(address, &[&authority]).await.unwrap();
    let head = format!(
        "POST /x HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        MAX_BODY_BYTES + 1
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = read(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // Of unknown length: refused once it is too large.
    let mut stream = connect(address, &[&authority]).await.unwrap();
    let head =
        "POST /x HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = vec![b' '; 1 << 20];
    for _ in 0..9 {
        let framed = [format!("{:x}\r\n", chunk.len()).as_bytes(), &chunk, b"\r\n"].concat();
        if stream.write_all(&framed).await.is_err() {
            break;
        }
    }
    let answer = read(&mut stream).await;
    // A client that needs longer than the body timeout is refused with 408.
    let refused = ["HTTP/1.1 413", "HTTP/1.1 408"].iter().any(|status| answer.starts_with(status));
    assert!(answer.is_empty() || refused, "{answer}");
    // Exactly at the limit, and then a body that is not JSON.
    let mut padded = br#"{"request":{"uid":"big"}}"#.to_vec();
    padded.resize(MAX_BODY_BYTES, b' ');
    let mut stream = connect(address, &[&authority]).await.unwrap();
    let answer = post(&mut stream, "/x", &padded).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("big"), "{answer}");
    let answer = post(&mut stream, "/x", b"{").await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains(r#""kind":"Status""#), "{answer}");
}

#[tokio::test]
async fn slow_clients_do_not_delay_others() {
    let (authority, serving) = ca_and_serving_certificate();
    let limits = ListenerLimits {
        handshake_timeout: Duration::from_millis(300),
        header_timeout: Duration::from_millis(300),
        ..ListenerLimits::default()
    };
    let (address, _stop, _task) = serve(echo_router(), &serving, limits).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut slow = connect(address, &[&authority]).await.unwrap();
    slow.write_all(b"POST /x HTTP/1.1\r\nhost:").await.unwrap();
    let start = Instant::now();
    let mut stream = connect(address, &[&authority]).await.unwrap();
    let answer = post(&mut stream, "/x", br#"{"request":{"uid":"quick"}}"#).await;
    assert!(answer.contains("quick"), "{answer}");
    assert!(start.elapsed() < Duration::from_millis(250), "{:?}", start.elapsed());
    // Silent connections are closed.
    let mut byte = [0];
    let ended = tokio::time::timeout(Duration::from_secs(3), silent[0].read(&mut byte)).await.unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)));
    let ended = tokio::time::timeout(Duration::from_secs(3), slow.read(&mut byte)).await;
    assert!(ended.is_ok(), "a connection with incomplete headers is closed");
}

#[tokio::test]
async fn idle_connection_stays_usable() {
    let (authority, serving) = ca_and_serving_certificate();
    let (address, _stop, _task) = serve(echo_router(), &serving, ListenerLimits::default()).await;
    let mut stream = connect(address, &[&authority]).await.unwrap();
    for uid in ["first", "second"] {
        let answer = post(&mut stream, "/x", json!({"request": {"uid": uid}}).to_string().as_bytes()).await;
        assert!(answer.contains(uid), "{answer}");
        tokio::time::sleep(Duration::from_millis(2_500)).await;
    }
    assert!(
        ListenerLimits::default().header_timeout > Duration::from_secs(90),
        "longer than clients keep idle connections"
    );
}

#[tokio::test]
async fn drain_finishes_requests_then_stops() {
    let (authority, serving) = ca_and_serving_certificate();
    let slow = Router::new().fallback(async || {
        tokio::time::sleep(Duration::from_millis(400)).await;
        axum::Json(json!({"done": true}))
    });
    let limits = ListenerLimits { drain_timeout: Duration::from_secs(2), ..ListenerLimits::default() };
    let (address, stop, task) = serve(slow, &serving, limits).await;
    let idle = connect(address, &[&authority]).await.unwrap();
    let mut busy = connect(address, &[&authority]).await.unwrap();
    let request = tokio::spawn(async move { post(&mut busy, "/x", b"{}").await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    stop.send_replace(true);
    let answer = request.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    tokio::time::timeout(Duration::from_secs(3), task).await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "the port is closed");
    drop(idle);
}
