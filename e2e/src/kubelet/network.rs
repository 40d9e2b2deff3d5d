//! The network of pods: each has a network namespace of its own, joined to this machine by a pair of virtual interfaces.
//!
//! Invariants: nothing is reachable but this machine and other pods; interfaces, namespaces and addresses are removed on drop. The
//! API server dials pods at their addresses, and pods dial it at the address of the Service `kubernetes`, and one another: a replica
//! asks the leader.

use anyhow::{Context as _, Result, bail};
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Address of the Service `kubernetes`, a name of the API server's certificate.
pub(super) const API_SERVICE: &str = "10.96.0.1";
/// This machine, as pods see it.
const HOST: &str = "10.77.0.1";
const POD_PREFIX: &str = "10.77.0";

/// The network of the pods of one node.
pub(super) struct PodNetwork {
    /// Distinguishes the names of concurrent test processes.
    id: u32,
    last: AtomicU8,
    forwarder: JoinHandle<()>,
}

/// A pod's network namespace.
pub(super) struct PodNamespace {
    /// Name of the network namespace.
    pub(super) name: String,
    /// Address of the pod.
    pub(super) address: String,
    interface: String,
}

impl PodNetwork {
    /// Makes the API server, which listens on this loopback port, reachable at the address of its Service.
    pub(super) async fn open(api_port: u16) -> Result<Self> {
        // Left by a killed run, or in use by another one.
        if ip(&["address", "add", &format!("{API_SERVICE}/32"), "dev", "lo"]).is_err() {
            bail!("{API_SERVICE} cannot be added to the loopback interface, or is in use");
        }
        let listener = TcpListener::bind((API_SERVICE, 443)).await;
        let listener = listener.inspect_err(|_| remove_service_address()).context(API_SERVICE)?;
        let forwarder = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(("127.0.0.1", api_port)).await {
                        // Ends with either side; both see the connection closed.
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Ok(Self { id: std::process::id(), last: AtomicU8::new(1), forwarder })
    }

    /// Creates the namespace of a pod.
    pub(super) fn add_pod(&self) -> Result<PodNamespace> {
        let number = self.last.fetch_add(1, Ordering::Relaxed).checked_add(1).context("too many pods")?;
        let pod = PodNamespace {
            name: format!("sluice-e2e-{}-{number}", self.id),
            address: format!("{POD_PREFIX}.{number}"),
            interface: format!("sl{}-{number}", self.id),
        };
        let (name, interface) = (pod.name.as_str(), pod.interface.as_str());
        ip(&["netns", "add", name])?;
        ip(&["link", "add", interface, "type", "veth", "peer", "name", "eth0", "netns", name])?;
        ip(&["address", "add", &format!("{HOST}/32"), "dev", interface])?;
        ip(&["link", "set", interface, "up"])?;
        ip(&["route", "add", &format!("{}/32", pod.address), "dev", interface])?;
        let forwarding = format!("/proc/sys/net/ipv4/conf/{interface}/forwarding");
        fs::write(&forwarding, "1").with_context(|| forwarding.clone())?;
        for arguments in [
            vec!["link", "set", "lo", "up"],
            vec!["address", "add", &format!("{}/32", pod.address), "dev", "eth0"],
            vec!["link", "set", "eth0", "up"],
            vec!["route", "add", &format!("{HOST}/32"), "dev", "eth0"],
            vec!["route", "add", &format!("{POD_PREFIX}.0/24"), "via", HOST, "dev", "eth0"],
            vec!["route", "add", &format!("{API_SERVICE}/32"), "via", HOST, "dev", "eth0"],
        ] {
            ip(&[vec!["-n", name], arguments].concat())?;
        }
        Ok(pod)
    }
}

impl Drop for PodNetwork {
    fn drop(&mut self) {
        self.forwarder.abort();
        remove_service_address();
    }
}

impl Drop for PodNamespace {
    fn drop(&mut self) {
        // Fails if the namespace, and with it the pair, has not been created.
        let _ = ip(&["link", "delete", &self.interface]);
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

/// Returns why this machine does not permit network namespaces, if so.
pub fn unsupported() -> Option<String> {
    let name = format!("sluice-e2e-{}-probe", std::process::id());
    let added = ip(&["netns", "add", &name]);
    let _ = ip(&["netns", "delete", &name]);
    added.err().map(|error| format!("{error:#}"))
}

fn remove_service_address() {
    // Fails if it was never added.
    let _ = ip(&["address", "delete", &format!("{API_SERVICE}/32"), "dev", "lo"]);
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output().context("cannot run ip")?;
    if !output.status.success() {
        bail!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
