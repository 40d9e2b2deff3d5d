//! What a Service is in a cluster: one port in front of the managers' webhook ports. A backend that takes no connection
//! is passed over.

use anyhow::Result;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The port, open until dropped.
pub struct Balancer {
    port: u16,
    backends: Arc<Mutex<Vec<u16>>>,
    task: JoinHandle<()>,
}

impl Balancer {
    /// Opens a port.
    pub async fn open(port: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let backends = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn(serve(listener, Arc::clone(&backends)));
        Ok(Self { port, backends, task })
    }

    /// Its port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Who answers from now on.
    pub fn set(&self, ports: Vec<u16>) {
        *self.backends.lock().unwrap_or_else(PoisonError::into_inner) = ports;
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, backends: Arc<Mutex<Vec<u16>>>) {
    loop {
        if let Ok((front, _)) = listener.accept().await {
            let ports = {
                let mut all = backends.lock().unwrap_or_else(PoisonError::into_inner);
                if !all.is_empty() {
                    all.rotate_left(1);
                }
                all.clone()
            };
            tokio::spawn(forward(front, ports));
        }
    }
}

async fn forward(mut front: TcpStream, ports: Vec<u16>) {
    for port in ports {
        if let Ok(mut back) = TcpStream::connect(("127.0.0.1", port)).await {
            let _ = tokio::io::copy_bidirectional(&mut front, &mut back).await;
            return;
        }
    }
}
