//! The visibility API of a manager that runs as a process: its Service has no pods, but an address of this machine.
//!
//! Invariant: the APIServices are installed only where the API server can reach that address; one that points at nothing would keep
//! every namespace from being deleted.

use crate::install::{NAMESPACE, apply};
use crate::kubectl::Kubectl;
use crate::manager::VISIBILITY_FLAG;
use crate::objects::{Kind, ObjectClient, condition, condition_is_true, text};
use crate::process::free_ports;
use crate::wait::eventually;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr, UdpSocket};

const SERVICE: &str = "kueue-visibility-server";
const API_SERVICE: Kind = Kind::new("apiregistration.k8s.io", "v1", "APIService", "apiservices");

/// Where a manager serves the API.
pub(crate) struct VisibilityEndpoint(SocketAddr);

impl VisibilityEndpoint {
    /// Chooses a free port; `None` without an address that an EndpointSlice may have, which excludes loopback.
    pub(crate) fn choose() -> Result<Option<Self>> {
        // Nothing is sent: connecting selects the address of the default route. The target is reserved for documentation.
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        let address =
            socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()).map(|local| local.ip());
        let usable = |address: &IpAddr| !address.is_loopback() && !address.is_unspecified();
        let Some(address) = address.ok().filter(usable) else { return Ok(None) };
        let port = free_ports(1)?.first().copied().context("no port")?;
        Ok(Some(Self(SocketAddr::new(address, port))))
    }

    /// Returns the flag with which the manager serves there.
    pub(crate) fn flag(&self) -> String {
        format!("{VISIBILITY_FLAG}={}", self.0)
    }

    /// Returns the flag with which the manager serves there and at the loopback address, where its leader is asked by other processes.
    pub(crate) fn flag_on_all(&self) -> String {
        format!("{VISIBILITY_FLAG}=0.0.0.0:{}", self.0.port())
    }

    /// Removes the APIServices of these manifests: the next manager does not serve there.
    pub(crate) fn remove(kubectl: &Kubectl, manifests: &[Value]) -> Result<()> {
        for service in manifests.iter().filter(|object| text(object, "/kind") == "APIService") {
            kubectl.run(&["delete", "apiservice", text(service, "/metadata/name")])?;
        }
        Ok(())
    }

    /// Applies Service and APIServices of these manifests, and waits until the API server reaches the manager.
    pub(crate) async fn install(
        &self,
        kubectl: &Kubectl,
        objects: &ObjectClient,
        manifests: &[Value],
    ) -> Result<()> {
        let is_service = |object: &&Value| text(object, "/metadata/name") == SERVICE;
        let mut service = manifests.iter().find(is_service).context("no Service")?.clone();
        if let Some(spec) = service["spec"].as_object_mut() {
            spec.remove("selector");
        }
        let port = &service["spec"]["ports"][0];
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"namespace": NAMESPACE, "name": SERVICE, "labels": {"kubernetes.io/service-name": SERVICE}},
            "endpoints": [{"addresses": [self.0.ip().to_string()], "conditions": {"ready": true}}],
            "ports": [{"name": port["name"], "port": self.0.port(), "protocol": "TCP"}],
        });
        let api_services: Vec<Value> =
            manifests.iter().filter(|object| text(object, "/kind") == "APIService").cloned().collect();
        apply(kubectl, &[vec![service, slice], api_services.clone()].concat())?;
        eventually("the API server reaches the visibility API", async || {
            for found in &api_services {
                let name = text(found, "/metadata/name");
                let found = objects.must_get(API_SERVICE, "", name).await?;
                ensure!(
                    condition_is_true(&found, "Available"),
                    "{name}: {}",
                    condition(&found, "Available").message
                );
            }
            Ok(())
        })
        .await
    }
}
