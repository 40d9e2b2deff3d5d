//! The accept loop below every listener.
//!
//! Invariants: accepting never waits for a client: handshake and connection run in a task of their own, with a
//! timeout for handshake and headers; the number of connections is bounded; on stop no connection is accepted, those
//! under way are asked to end and cut off after the drain time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Limits of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For a TLS handshake.
    pub handshake: Duration,
    /// For the headers of an HTTP/1 request, from the answer to the one before on. Longer than clients keep connections that
    /// they do not use: what they write to one that was closed meanwhile is lost.
    pub headers: Duration,
    /// Connections at a time.
    pub connections: usize,
    /// For connections under way at the end.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            // Clients in Go keep idle connections for 90 s.
            headers: Duration::from_secs(100),
            connections: 2048,
            drain: Duration::from_secs(20),
        }
    }
}

/// A bound port with what answers on it.
pub struct Listener {
    name: &'static str,
    socket: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    router: Router,
    limits: Limits,
}

impl Listener {
    /// Binds the address.
    pub async fn bind(
        name: &'static str,
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        router: Router,
        limits: Limits,
    ) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await?;
        tracing::info!(listener = name, address = %socket.local_addr()?, tls = tls.is_some(), "listening");
        Ok(Self { name, socket, tls, router, limits })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until `stop`, then drains.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let seats = Arc::new(Semaphore::new(self.limits.connections));
        let graceful = GracefulShutdown::new();
        let tls = self.tls.map(TlsAcceptor::from);
        let mut connections = JoinSet::new();
        loop {
            let (stream, seat) = tokio::select! {
                accepted = accept(&self.socket, &seats, self.name) => accepted,
                Some(_) = connections.join_next() => continue,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            let router = self.router.clone();
            let connection = Connection { router, limits: self.limits, watcher: graceful.watcher(), seat };
            connections.spawn(connection.serve(stream, tls.clone(), stop.clone()));
        }
        drop(self.socket);
        if tokio::time::timeout(self.limits.drain, graceful.shutdown()).await.is_err() {
            tracing::warn!(listener = self.name, left = connections.len(), "drain cut off");
        }
        connections.shutdown().await;
    }
}

/// The next connection with a seat for it. Errors of `accept` (such as too many open files) are waited out.
async fn accept(
    socket: &TcpListener,
    seats: &Arc<Semaphore>,
    name: &str,
) -> (TcpStream, OwnedSemaphorePermit) {
    loop {
        // The seat comes first: what finds none waits in the kernel's queue, not in memory of ours.
        let Ok(seat) = Arc::clone(seats).acquire_owned().await else {
            std::future::pending::<()>().await;
            continue;
        };
        match socket.accept().await {
            Ok((stream, _)) => return (stream, seat),
            Err(error) => {
                tracing::warn!(listener = name, %error, "accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

struct Connection {
    router: Router,
    limits: Limits,
    watcher: Watcher,
    seat: OwnedSemaphorePermit,
}

impl Connection {
    async fn serve(self, stream: TcpStream, tls: Option<TlsAcceptor>, mut stop: watch::Receiver<bool>) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "nodelay");
        }
        let Some(tls) = tls else {
            return self.http(stream).await;
        };
        let handshake = tokio::select! {
            handshake = tokio::time::timeout(self.limits.handshake, tls.accept(stream)) => handshake,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        match handshake {
            Ok(Ok(stream)) => self.http(stream).await,
            Ok(Err(error)) => tracing::debug!(%error, "handshake"),
            Err(_) => tracing::debug!("handshake took too long"),
        }
    }

    async fn http(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(self.limits.headers);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(256)
            .max_pending_accept_reset_streams(20)
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(10));
        let service = TowerToHyperService::new(self.router);
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        if let Err(error) = self.watcher.watch(connection).await {
            tracing::debug!(error = %error, "connection");
        }
        drop(self.seat);
    }
}
