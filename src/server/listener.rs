//! The accept loop below every listener.
//!
//! Invariants: accepting never waits for a client: handshake and connection run in a task of their own, with a
//! timeout for handshake, first request and headers; the number of connections is bounded, in all and by peer, and a new
//! one takes the place of one that asks for nothing; what the kernel and the library hold for a connection is bounded as
//! well; on stop no connection is accepted, the ones under way are asked to end and cut off after the drain time.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use hyper::Request;
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

/// Bytes that the kernel keeps for a connection that is not read: it doubles them.
const RECV_BUFFER_BYTES: usize = 128 << 10;
/// Bytes that the library keeps for a connection; the head of a request must fit.
const HTTP_BUFFER_BYTES: usize = 64 << 10;
/// Requests at a time on a connection of HTTP/2; clients open another one then.
const MAX_CONCURRENT_STREAMS: u32 = 64;
/// A peer that is gone without a word is noticed after a minute.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(30))
    .with_interval(Duration::from_secs(10))
    .with_retries(3);

/// Limits of a listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenerLimits {
    /// For a TLS handshake.
    pub handshake_timeout: Duration,
    /// From there to the head of the first request.
    pub first_request_timeout: Duration,
    /// For the headers of an HTTP/1 request, from the answer to the one before on. Longer than clients keep connections that
    /// they do not use: what they write to one that was closed meanwhile is lost.
    pub header_timeout: Duration,
    /// Connections at a time.
    pub max_connections: usize,
    /// Of these, connections from one address.
    pub max_connections_per_peer: usize,
    /// For connections under way at the end.
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
            // An API server has up to 600 requests under way, each on a connection of its own.
            max_connections_per_peer: 640,
            drain_timeout: Duration::from_secs(20),
        }
    }
}

impl ListenerLimits {
    /// For a port that a few clients ask now and then.
    #[must_use]
    pub const fn for_low_traffic(self) -> Self {
        Self { max_connections: 128, max_connections_per_peer: 64, ..self }
    }
}

/// A bound port with what answers on it.
pub struct Listener {
    name: &'static str,
    socket: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    router: Router,
    limits: ListenerLimits,
}

impl Listener {
    /// Binds the first of the addresses that this machine has.
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

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until `stop`, then drains.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let seats = ConnectionSlots::new(self.limits.max_connections, self.limits.max_connections_per_peer);
        let graceful = GracefulShutdown::new();
        let tls = self.tls.map(TlsAcceptor::from);
        let mut connections = JoinSet::new();
        loop {
            let (stream, peer) = tokio::select! {
                accepted = accept(&self.socket, self.name) => accepted,
                Some(_) = connections.join_next() => continue,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            let Some(seat) = seats.acquire(peer.ip()) else {
                tracing::debug!(listener = self.name, %peer, "no seat");
                continue;
            };
            let number = seat.number();
            let router = self.router.clone();
            let connection =
                Connection { router, limits: self.limits, watcher: graceful.watcher(), slot: seat };
            let task = connections.spawn(connection.serve(stream, tls.clone(), stop.clone()));
            seats.attach_task(number, task);
        }
        drop(self.socket);
        if tokio::time::timeout(self.limits.drain_timeout, graceful.shutdown()).await.is_err() {
            tracing::warn!(listener = self.name, left = connections.len(), "drain cut off");
        }
        connections.shutdown().await;
    }
}

/// A machine may lack a family of addresses: the next is tried then.
fn bind_first(addresses: &[SocketAddr]) -> io::Result<std::net::TcpListener> {
    let mut lacking = io::Error::new(io::ErrorKind::AddrNotAvailable, "no address");
    for address in addresses {
        match bind(*address) {
            Ok(socket) => return Ok(socket),
            Err(error) if is_unavailable_address(&error) => lacking = error,
            Err(error) => return Err(error),
        }
    }
    Err(lacking)
}

/// Whether the machine has no such address, or no such family.
fn is_unavailable_address(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported)
        // EAFNOSUPPORT, for which the library has no word.
        || error.raw_os_error() == Some(97)
}

fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // The unspecified address stands for both families.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    // Connections take these over.
    socket.set_recv_buffer_size(RECV_BUFFER_BYTES)?;
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    Ok(socket.into())
}

/// The next connection. Errors of `accept` (such as too many open files) are waited out.
async fn accept(socket: &TcpListener, name: &str) -> (TcpStream, SocketAddr) {
    loop {
        match socket.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(listener = name, %error, "accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

struct Connection {
    router: Router,
    limits: ListenerLimits,
    watcher: Watcher,
    slot: ConnectionSlot,
}

impl Connection {
    async fn serve(self, stream: TcpStream, tls: Option<TlsAcceptor>, mut stop: watch::Receiver<bool>) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "nodelay");
        }
        let Some(tls) = tls else {
            return self.serve_http(stream).await;
        };
        let handshake = tokio::select! {
            handshake = tokio::time::timeout(self.limits.handshake_timeout, tls.accept(stream)) => handshake,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        match handshake {
            Ok(Ok(stream)) => self.serve_http(stream).await,
            Ok(Err(error)) => tracing::debug!(%error, "handshake"),
            Err(_) => tracing::debug!("handshake took too long"),
        }
    }

    async fn serve_http(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
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
        let standing = Arc::clone(&self.slot.activity);
        let router = TowerToHyperService::new(self.router);
        let service = service_fn(move |request: Request<Incoming>| {
            let asked = InFlightRequest::new(Arc::clone(&standing), request.body().is_end_stream());
            let answer = router.call(request.map(|body| TrackedBody { body, request: Arc::clone(&asked) }));
            async move {
                let answer = answer.await;
                drop(asked);
                answer
            }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        // The library has no timer of its own until it knows what is spoken.
        tokio::select! {
            ended = self.watcher.watch(connection) => if let Err(error) = ended {
                tracing::debug!(error = %error, "connection");
            },
            () = first_request_timed_out(&self.slot.activity, self.limits.first_request_timeout) => tracing::debug!("no request came"),
        }
    }
}

/// Ends when no request came in time.
async fn first_request_timed_out(standing: &ConnectionActivity, limit: Duration) {
    tokio::time::sleep(limit).await;
    if standing.had_request() {
        std::future::pending::<()>().await;
    }
}

/// The body of a request, which tells when all of it is there.
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
