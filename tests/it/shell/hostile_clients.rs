//! Listeners under hostile clients: silent, slow and too many connections, cancelled requests, large bodies, reviews that panic.
#![expect(clippy::disallowed_methods, reason = "the test runs both sides of the connection")]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use serde_json::{Value, json};
use sluice::metrics::counters::{Counters, ReviewMetrics};
use sluice::metrics::model::MetricFamilies;
use sluice::server::listener::{Listener, ListenerLimits, ListenerStop};
use sluice::server::webhooks::{self, MAX_BODY_BYTES, Review, SMALL_BODY_BYTES};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;

const FAMILIES: MetricFamilies = MetricFamilies {
    cluster_queue_resources: false,
    local_queues: false,
    cohorts: false,
    creation_latency: false,
};

async fn serve(
    addresses: &[&str],
    router: Router,
    limits: ListenerLimits,
) -> (SocketAddr, watch::Sender<bool>) {
    let (stop, stopped) = watch::channel(false);
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    let listener = Listener::bind("test", addresses, None, router, limits).await.unwrap();
    let address = listener.address().unwrap();
    tokio::spawn(listener.run(ListenerStop { retiring: stopped.clone(), stop: stopped }));
    (address, stop)
}

fn health_router() -> Router {
    Router::new().route("/livez", get(async || "fine"))
}

/// A connection from one of the loopback addresses of this machine.
async fn connect_from(last: u8, port: u16) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(IpAddr::from([127, 0, 0, last]), 0)).unwrap();
    socket.connect(SocketAddr::from(([127, 0, 0, 1], port))).await.unwrap()
}

async fn send_and_read(stream: &mut TcpStream, text: &str) -> String {
    // A closed connection shows in the response.
    let _ = stream.write_all(text.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

async fn is_healthy(last: u8, port: u16) -> bool {
    let mut stream = connect_from(last, port).await;
    let answer =
        send_and_read(&mut stream, "GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    answer.starts_with("HTTP/1.1 200") && answer.ends_with("fine")
}

/// Connections that send nothing, part of a head, part of a body, or the start of HTTP/2: a good client is served whatever the
/// others send and from wherever, its own address included; all hostile connections are closed.
#[tokio::test]
async fn hostile_connections_do_not_block_good_clients() {
    let limits = ListenerLimits {
        max_connections: 64,
        max_connections_per_peer: 16,
        first_request_timeout: Duration::from_secs(2),
        ..ListenerLimits::default()
    };
    let (address, _stop) = serve(&["127.0.0.1:0"], health_router(), limits).await;
    let opening = [
        "",
        "GET /livez HTTP/1.1\r\nhost:",
        "POST /livez HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nx",
        "PRI * HTTP/2.0\r\n\r\n",
    ];
    let mut hostile = Vec::new();
    for number in 0..400_usize {
        let mut stream = connect_from(u8::try_from(2 + number % 20).unwrap(), address.port()).await;
        // The connection may be closed already.
        let _ = stream.write_all(opening[number % opening.len()].as_bytes()).await;
        hostile.push(stream);
        if number % 50 == 49 {
            assert!(
                is_healthy(2, address.port()).await && is_healthy(200, address.port()).await,
                "after {number}"
            );
        }
    }
    for mut stream in hostile {
        // Whatever the response, the connection ends.
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_mins(1), stream.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "the connection was not closed");
    }
    assert!(is_healthy(2, address.port()).await);
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Requests that are cancelled as soon as they are sent cost the client nothing, and the server a task each: after a few of them
/// the connection ends with `ENHANCE_YOUR_CALM`, and other clients are served meanwhile.
#[tokio::test]
async fn connection_of_cancelled_requests_is_ended() {
    const REQUESTS: u32 = 20_000;
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const END_STREAM_AND_HEADERS: u8 = 5;
    /// GOAWAY with the error code 11, behind the number of the last stream.
    const GOAWAY: [u8; 2] = [7, 0];
    let (address, _stop) = serve(&["127.0.0.1:0"], health_router(), ListenerLimits::default()).await;
    let stream = connect_from(30, address.port()).await;
    let (mut reader, mut writer) = stream.into_split();
    let flood = tokio::spawn(async move {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(SETTINGS, 0, 0, &[]));
        for number in 0..REQUESTS {
            // GET and http by their numbers, the path and the authority x as texts.
            let headers = [b"\x82\x86\x04\x06/livez".as_slice(), b"\x01\x01x"].concat();
            bytes.extend(frame(HEADERS, END_STREAM_AND_HEADERS, 2 * number + 1, &headers));
            bytes.extend(frame(RST_STREAM, 0, 2 * number + 1, &8_u32.to_be_bytes()));
        }
        // The connection ends before all are sent.
        let _ = writer.write_all(&bytes).await;
    });
    assert!(is_healthy(31, address.port()).await, "another client is not served");
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(Duration::from_mins(1), reader.read_to_end(&mut answer)).await;
    assert!(ended.is_ok(), "the connection was not closed");
    let goaway = answer.windows(17).find(|bytes| bytes[3..5] == GOAWAY && bytes[5..9] == [0; 4]);
    let code = goaway.map(|bytes| u32::from_be_bytes(bytes[13..17].try_into().unwrap()));
    assert_eq!(code, Some(11), "{answer:?}");
    flood.await.unwrap();
    assert!(is_healthy(30, address.port()).await && is_healthy(31, address.port()).await);
}

/// A request that waits to be accepted with a flood of connections behind it is read before the flood takes its slot.
#[tokio::test]
async fn request_that_waited_to_be_accepted_is_answered() {
    const SLOTS: usize = 32;
    let limits = ListenerLimits {
        max_connections: SLOTS,
        max_connections_per_peer: SLOTS,
        ..ListenerLimits::default()
    };
    let (address, _stop) = serve(&["127.0.0.1:0"], health_router(), limits).await;
    // Nothing below is awaited, so that the listener finds all connections at once.
    let mut good = std::net::TcpStream::connect(address).unwrap();
    std::io::Write::write_all(&mut good, b"GET /livez HTTP/1.0\r\nhost: x\r\n\r\n").unwrap();
    let silent: Vec<_> = (0..4 * SLOTS).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    good.set_nonblocking(true).unwrap();
    let mut answer = Vec::new();
    TcpStream::from_std(good).unwrap().read_to_end(&mut answer).await.unwrap();
    assert!(answer.ends_with(b"fine"), "{}", String::from_utf8_lossy(&answer));
    drop(silent);
}

#[tokio::test]
async fn port_only_address_binds_both_families() {
    let (address, _stop) = serve(&["[::]:0", "0.0.0.0:0"], health_router(), ListenerLimits::default()).await;
    assert!(is_healthy(1, address.port()).await);
    if !address.is_ipv6() {
        println!("skipped: this machine has no IPv6");
        return;
    }
    let mut stream = TcpStream::connect(("::1", address.port())).await.unwrap();
    let answer =
        send_and_read(&mut stream, "GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(answer.ends_with("fine"), "{answer}");
    // An address that this machine lacks is skipped.
    let (address, _stop) =
        serve(&["192.0.2.1:0", "127.0.0.1:0"], health_router(), ListenerLimits::default()).await;
    assert_eq!(address.ip(), IpAddr::from([127, 0, 0, 1]));
}

fn request_head(length: usize) -> String {
    format!(
        "POST /validate-batch-v1-job?timeout=2s HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

async fn post(port: u16, body: &str) -> String {
    let mut stream = connect_from(1, port).await;
    send_and_read(&mut stream, &format!("{}{body}", request_head(body.len()))).await
}

fn review_counters() -> (Counters, ReviewMetrics) {
    let counters = Counters::new("test", FAMILIES);
    let reviews = counters.reviews();
    (counters, reviews)
}

#[tokio::test]
async fn panicking_review_is_answered_and_counted() {
    let review: Review = Arc::new(|_, request| {
        let uid = request.pointer("/request/uid").and_then(|uid| uid.as_str()).unwrap_or_default();
        assert_ne!(uid, "bad", "on purpose");
        json!({"uid": uid})
    });
    let (counters, reviews) = review_counters();
    let (address, _stop) =
        serve(&["127.0.0.1:0"], webhooks::router(review, reviews), ListenerLimits::default()).await;
    let large = |uid: &str| {
        format!("{{\"request\":{{\"uid\":\"{uid}\"}},\"pad\":\"{}\"}}", "x".repeat(SMALL_BODY_BYTES))
    };
    for body in [r#"{"request":{"uid":"bad"}}"#.to_owned(), large("bad")] {
        let answer = post(address.port(), &body).await;
        assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    }
    for body in [r#"{"request":{"uid":"good"}}"#.to_owned(), large("good")] {
        let answer = post(address.port(), &body).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("good"), "{answer}");
    }
    let page = counters.render().unwrap();
    assert!(page.contains(r#"sluice_reviews_refused_total{reason="panicked"} 2"#), "{page}");
    assert!(page.contains("sluice_reviews_in_flight 0"), "{page}");
}

/// A review whose answer depends on an object that is not known yet is repeated until it is.
#[tokio::test]
async fn review_waits_for_an_object_that_the_watch_delivers() {
    let count = Arc::new(AtomicUsize::new(0));
    let known_after = 3;
    let reviewed = Arc::clone(&count);
    let review: Review = Arc::new(move |_, request| {
        let never = request.pointer("/request/uid").is_some_and(|uid| uid == "never");
        let known = reviewed.fetch_add(1, Ordering::Relaxed) + 1 >= known_after && !never;
        let details = if known { Value::Null } else { json!({"retryAfterSeconds": 1}) };
        json!({"response": {"allowed": known, "status": {"details": details}}})
    });
    let (_, reviews) = review_counters();
    let (address, _stop) =
        serve(&["127.0.0.1:0"], webhooks::router(review, reviews), ListenerLimits::default()).await;
    let answer = post(address.port(), r#"{"request":{"uid":"soon"}}"#).await;
    assert!(answer.contains(r#""allowed":true"#), "{answer}");
    assert_eq!(count.swap(0, Ordering::Relaxed), known_after);
    let answer = post(address.port(), r#"{"request":{"uid":"never"}}"#).await;
    assert!(answer.contains(r#""allowed":false"#), "{answer}");
    assert!(count.load(Ordering::Relaxed) < 10, "it ends long before the timeout of the caller");
}

/// Incomplete large bodies use up the capacity for large bodies: further large reviews wait until their timeout, but small
/// reviews pass.
#[tokio::test]
async fn small_reviews_overtake_waiting_large_reviews() {
    let review: Review = Arc::new(|_, request| json!({"uid": request.pointer("/request/uid")}));
    let (counters, reviews) = review_counters();
    let (address, _stop) =
        serve(&["127.0.0.1:0"], webhooks::router(review, reviews), ListenerLimits::default()).await;
    let mut slow = Vec::new();
    for _ in 0..4 {
        let mut stream = connect_from(2, address.port()).await;
        stream
            .write_all(request_head(MAX_BODY_BYTES).replace("timeout=2s", "timeout=10s").as_bytes())
            .await
            .unwrap();
        slow.push(stream);
    }
    let large =
        format!("{{\"request\":{{\"uid\":\"big\"}},\"pad\":\"{}\"}}", "x".repeat(MAX_BODY_BYTES - 64));
    let port = address.port();
    let waiting = tokio::spawn(async move { post(port, &large).await });
    for _ in 0..50 {
        let answer = post(port, r#"{"request":{"uid":"small"}}"#).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("small"), "{answer}");
    }
    let answer = waiting.await.unwrap();
    // The refusal may arrive while the client still writes: then the client sees only the end of the connection.
    assert!(answer.starts_with("HTTP/1.1 503") || answer.is_empty(), "{answer}");
    let page = counters.render().unwrap();
    assert!(page.contains(r#"sluice_reviews_refused_total{reason="busy"} "#), "{page}");
    drop(slow);
    let large =
        format!("{{\"request\":{{\"uid\":\"big\"}},\"pad\":\"{}\"}}", "x".repeat(MAX_BODY_BYTES - 64));
    let mut answer = String::new();
    for _ in 0..20 {
        answer = post(port, &large).await;
        if answer.contains("big") {
            return;
        }
    }
    panic!("large reviews never pass again: {answer}");
}
