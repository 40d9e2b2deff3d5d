//! A TCP balancer in place of a Service: one port in front of the managers' webhook ports. A backend that refuses
//! connections is skipped; removing a backend cuts its connections.

use anyhow::Result;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinHandle};

/// A running balancer; its port is closed when dropped.
pub struct Balancer {
    port: u16,
    backends: Arc<Mutex<Backends>>,
    task: JoinHandle<()>,
}

/// Backend ports in round-robin order, and the connections to each.
#[derive(Default)]
struct Backends {
    ports: Vec<u16>,
    connections: Vec<(u16, AbortHandle)>,
}

impl Balancer {
    /// Opens a port without backends.
    pub async fn open(port: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let backends = Arc::new(Mutex::new(Backends::default()));
        let task = tokio::spawn(serve(listener, Arc::clone(&backends)));
        Ok(Self { port, backends, task })
    }

    /// Returns its port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Replaces the backends; cuts connections to removed ones.
    pub fn set_backends(&self, ports: Vec<u16>) {
        let mut backends = self.backends.lock().unwrap_or_else(PoisonError::into_inner);
        backends.connections.retain(|(port, connection)| {
            let stays = ports.contains(port) && !connection.is_finished();
            if !stays {
                connection.abort();
            }
            stays
        });
        backends.ports = ports;
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, backends: Arc<Mutex<Backends>>) {
    loop {
        if let Ok((front, _)) = listener.accept().await {
            let ports = {
                let mut all = backends.lock().unwrap_or_else(PoisonError::into_inner);
                if !all.ports.is_empty() {
                    all.ports.rotate_left(1);
                }
                all.ports.clone()
            };
            tokio::spawn(forward(front, ports, Arc::clone(&backends)));
        }
    }
}

async fn forward(mut front: TcpStream, ports: Vec<u16>, backends: Arc<Mutex<Backends>>) {
    for port in ports {
        if let Ok(mut back) = TcpStream::connect(("127.0.0.1", port)).await {
            // Either side may close at any time; the error is irrelevant.
            let copy = tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut front, &mut back).await;
            });
            let mut all = backends.lock().unwrap_or_else(PoisonError::into_inner);
            all.connections.push((port, copy.abort_handle()));
            return;
        }
    }
}
