//! A listener that retires before it stops: clients move to another replica without losing a request.
#![expect(clippy::disallowed_methods, reason = "the test runs both sides of the connection")]

use axum::Router;
use axum::routing::get;
use sluice::server::listener::{Listener, ListenerLimits, ListenerStop};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Sends a request on an open connection; returns the response, whose body is "fine".
async fn ask(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut response = String::new();
    while !response.ends_with("fine") {
        let mut part = [0; 1024];
        let length = stream.read(&mut part).await.unwrap();
        assert!(length > 0, "the connection ended after {response:?}");
        response.push_str(std::str::from_utf8(&part[..length]).unwrap());
    }
    response.to_lowercase()
}

/// An HTTP/1 connection that is open already is used once more and then ends; new connections are served likewise.
#[tokio::test]
async fn responses_end_their_connections_while_retiring() {
    let (retire, retiring) = watch::channel(false);
    let (_stop, stop) = watch::channel(false);
    let router = Router::new().route("/livez", get(async || "fine"));
    let addresses = vec!["127.0.0.1:0".parse().unwrap()];
    let listener = Listener::bind("test", addresses, None, router, ListenerLimits::default()).await.unwrap();
    let address = listener.address().unwrap();
    tokio::spawn(listener.run(ListenerStop { retiring, stop }));
    let mut open = TcpStream::connect(address).await.unwrap();
    for _ in 0..2 {
        assert!(!ask(&mut open).await.contains("connection: close"));
    }
    retire.send_replace(true);
    for mut stream in [open, TcpStream::connect(address).await.unwrap()] {
        assert!(ask(&mut stream).await.contains("connection: close"));
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(Duration::from_mins(1), stream.read_to_end(&mut rest)).await;
        assert_eq!(ended.unwrap().unwrap(), 0, "the connection ends after the response");
    }
}

#[tokio::test]
async fn address_that_cannot_be_bound_is_named() {
    let bind = |address: &str| {
        let addresses = vec![address.parse().unwrap()];
        Listener::bind("test", addresses, None, Router::new(), ListenerLimits::default())
    };
    let first = bind("127.0.0.1:0").await.unwrap();
    let taken = first.address().unwrap().to_string();
    let error = bind(&taken).await.err().unwrap();
    assert_eq!(error.to_string(), format!("{taken}: Address already in use (os error 98)"));
    // An address of another machine.
    let error = bind("192.0.2.1:1").await.err().unwrap();
    assert_eq!(error.to_string(), "192.0.2.1:1: Cannot assign requested address (os error 99)");
}
