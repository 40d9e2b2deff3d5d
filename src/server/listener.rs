//! The accept loop of every listener.
//!
//! Invariants: accepting never waits for a client: handshake and connection run in their own task, with a timeout for
//! handshake, first request and headers; the number of connections is bounded, in total and per peer, and a new one replaces
//! one without a request to answer; a request that arrived before its connection was accepted is read; kernel and HTTP
//! buffers of a connection are bounded too; while the listener retires, each HTTP/1 response ends its connection, because
//! a client that reuses a connection at the moment of its end loses the request; on stop no connection is accepted, and
//! open ones are asked to end and closed after the drain timeout.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Version};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::connection_slots::{ConnectionActivity, ConnectionSlot, ConnectionSlots, InFlightRequest};
use super::tls::PeerCertificates;

/// Kernel receive buffer of a connection, in bytes. Linux doubles it.
const RECV_BUFFER_BYTES: usize = 128 << 10;
/// HTTP buffers of a connection, in bytes. The head of a request must fit.
const HTTP_BUFFER_BYTES: usize = 64 << 10;
/// Concurrent requests on an HTTP/2 connection; clients open another connection beyond that.
const MAX_CONCURRENT_STREAMS: u32 = 64;
/// Detects within a minute that a peer has vanished.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(30))
    .with_interval(Duration::from_secs(10))
    .with_retries(3);

/// Limits of a listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenerLimits {
    /// Time for a TLS handshake.
    pub handshake_timeout: Duration,
    /// Time from the handshake to the head of the first request.
    pub first_request_timeout: Duration,
    /// Time from the previous response to the headers of the next HTTP/1 request. Longer than clients keep idle connections: a
    /// request written to a connection that the server has just closed is lost.
    pub header_timeout: Duration,
    /// Maximum number of connections.
    pub max_connections: usize,
    /// Maximum number of connections from one peer.
    pub max_connections_per_peer: usize,
    /// Time for open connections to end on stop.
    pub drain_timeout: Duration,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(5),
            first_request_timeout: Duration::from_secs(5),
            // Clients in Go keep idle connections for 90 s.
            header_timeout: Duration::from_secs(100),
            max_connections: 1024,
            // An API server has up to 600 requests in flight, each possibly on its own connection.
            max_connections_per_peer: 640,
            drain_timeout: Duration::from_secs(20),
        }
    }
}

impl ListenerLimits {
    /// Returns the limits for a port with few clients and rare requests.
    #[must_use]
    pub const fn for_low_traffic(self) -> Self {
        Self { max_connections: 128, max_connections_per_peer: 64, ..self }
    }
}

/// The two steps of a shutdown; each becomes true once.
#[derive(Clone, Debug)]
pub struct ListenerStop {
    /// True once clients should use another replica; requests are still answered.
    pub retiring: watch::Receiver<bool>,
    /// True once no connection may be accepted; open ones are drained.
    pub stop: watch::Receiver<bool>,
}

/// A bound port with its router.
pub struct Listener {
    name: &'static str,
    socket: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    router: Router,
    limits: ListenerLimits,
}

impl Listener {
    /// Binds the first address that the machine supports.
    #[expect(clippy::unused_async, reason = "the socket belongs to the runtime that polls this")]
    pub async fn bind(
        name: &'static str,
        addresses: Vec<SocketAddr>,
        tls: Option<Arc<ServerConfig>>,
        router: Router,
        limits: ListenerLimits,
    ) -> io::Result<Self> {
        let socket = TcpListener::from_std(bind_first(&addresses)?)?;
        tracing::info!(listener = name, address = %socket.local_addr()?, tls = tls.is_some(), "listening");
        Ok(Self { name, socket, tls, router, limits })
    }

    /// Returns the bound address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until `stop`, then drains.
    pub async fn run(self, stop: ListenerStop) {
        let ListenerStop { retiring, mut stop } = stop;
        let slots = ConnectionSlots::new(self.limits.max_connections, self.limits.max_connections_per_peer);
        let graceful = GracefulShutdown::new();
        let tls = self.tls.map(TlsAcceptor::from);
        let mut connections = JoinSet::new();
        loop {
            let (stream, peer) = tokio::select! {
                accepted = accept(&self.socket, self.name) => accepted,
                Some(_) = connections.join_next() => continue,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            let Some(slot) = slots.acquire(peer.ip()) else {
                tracing::debug!(listener = self.name, %peer, "connection limit reached");
                continue;
            };
            let number = slot.number();
            let router = self.router.clone();
            let connection = Connection {
                router,
                limits: self.limits,
                watcher: graceful.watcher(),
                retiring: retiring.clone(),
                slot,
            };
            let task = connections.spawn(connection.serve(stream, tls.clone(), stop.clone()));
            slots.attach_task(number, task);
            // Otherwise a backlog of connections takes this slot before the request that waits in its socket is read.
            tokio::task::yield_now().await;
        }
        drop(self.socket);
        if tokio::time::timeout(self.limits.drain_timeout, graceful.shutdown()).await.is_err() {
            tracing::warn!(
                listener = self.name,
                left = connections.len(),
                "drain timeout reached, closing connections"
            );
        }
        connections.shutdown().await;
    }
}

/// Binds the first address that works. A machine may lack IPv6 or IPv4, then the next address is tried.
fn bind_first(addresses: &[SocketAddr]) -> io::Result<std::net::TcpListener> {
    let mut last_error = io::Error::new(io::ErrorKind::AddrNotAvailable, "no address");
    for address in addresses {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
        match bind(*address) {
            Ok(socket) => return Ok(socket),
            Err(error) if is_unavailable_address(&error) => last_error = named(error),
            Err(error) => return Err(named(error)),
        }
    }
    Err(last_error)
}

/// Returns whether the machine lacks the address or its family.
fn is_unavailable_address(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported)
        // EAFNOSUPPORT, which has no `ErrorKind`.
        || error.raw_os_error() == Some(97)
}

fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // The unspecified address accepts both families.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    // Connections inherit these options.
    socket.set_recv_buffer_size(RECV_BUFFER_BYTES)?;
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    Ok(socket.into())
}

/// Returns the next connection. Errors of `accept`, such as too many open files, are retried.
async fn accept(socket: &TcpListener, name: &str) -> (TcpStream, SocketAddr) {
    loop {
        match socket.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(listener = name, %error, "failed to accept connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

struct Connection {
    router: Router,
    limits: ListenerLimits,
    watcher: Watcher,
    retiring: watch::Receiver<bool>,
    slot: ConnectionSlot,
}

impl Connection {
    async fn serve(self, stream: TcpStream, tls: Option<TlsAcceptor>, mut stop: watch::Receiver<bool>) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        let Some(tls) = tls else {
            return self.serve_http(stream, None).await;
        };
        let handshake = tokio::select! {
            handshake = tokio::time::timeout(self.limits.handshake_timeout, tls.accept(stream)) => handshake,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        match handshake {
            Ok(Ok(stream)) => {
                let presented = stream.get_ref().1.peer_certificates();
                let peer = presented.map(|chain| PeerCertificates(chain.iter().cloned().collect()));
                self.serve_http(stream, peer).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake timed out"),
        }
    }

    /// Requests have the certificates of the peer as an extension.
    async fn serve_http(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: Option<PeerCertificates>,
    ) {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.header_timeout)
            .max_buf_size(HTTP_BUFFER_BYTES);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
            .max_pending_accept_reset_streams(20)
            .initial_stream_window_size(u32::try_from(HTTP_BUFFER_BYTES).ok())
            .initial_connection_window_size(u32::try_from(HTTP_BUFFER_BYTES).ok())
            .max_send_buf_size(HTTP_BUFFER_BYTES)
            .max_header_list_size(16 << 10)
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(10));
        let activity = Arc::clone(&self.slot.activity);
        let router = TowerToHyperService::new(self.router);
        let retiring = self.retiring;
        let service = service_fn(move |mut request: Request<Incoming>| {
            if let Some(peer) = &peer {
                request.extensions_mut().insert(peer.clone());
            }
            // HTTP/2 has a message of its own for this, which is sent on stop.
            let retiring = (request.version() < Version::HTTP_2).then(|| retiring.clone());
            let in_flight = InFlightRequest::new(Arc::clone(&activity), request.body().is_end_stream());
            let response =
                router.call(request.map(|body| TrackedBody { body, request: Arc::clone(&in_flight) }));
            async move {
                let mut response = response.await;
                drop(in_flight);
                if let Ok(response) = &mut response
                    && retiring.is_some_and(|retiring| *retiring.borrow())
                {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                response
            }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        // hyper starts its timers only once it has detected the protocol.
        tokio::select! {
            ended = self.watcher.watch(connection) => if let Err(error) = ended {
                tracing::debug!(error = %error, "connection failed");
            },
            () = first_request_timed_out(&self.slot.activity, self.limits.first_request_timeout) => tracing::debug!("no request received in time"),
        }
    }
}

/// Returns after `limit` if there was no request by then, else never.
async fn first_request_timed_out(activity: &ConnectionActivity, limit: Duration) {
    tokio::time::sleep(limit).await;
    if activity.had_request() {
        std::future::pending::<()>().await;
    }
}

/// A request body that records when it has been received completely.
struct TrackedBody {
    body: Incoming,
    request: Arc<InFlightRequest>,
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.request.mark_body_received();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
