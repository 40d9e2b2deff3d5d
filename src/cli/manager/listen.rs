//! Addresses on which a process listens: from its flags, or else from the configuration.
//!
//! Invariant: all served addresses can be bound beside each other. An invalid address of the configuration or of a flag is an
//! error at the start that names the setting, before any port is bound.

use anyhow::bail;

use super::args::ManagerArgs;
use super::component::Component;
use crate::api::config::{Configuration, ListenAddress, taken_twice};
use crate::api::visibility;

/// The addresses of a process; `None` for a server that it does not run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ListenAddresses {
    pub(super) webhook: Option<ListenAddress>,
    pub(super) health: Option<ListenAddress>,
    pub(super) metrics: Option<ListenAddress>,
    pub(super) visibility: Option<ListenAddress>,
    pub(super) dashboard: Option<ListenAddress>,
}

/// An address of the command line; `None` disables the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BindAddress(Option<ListenAddress>);

/// Reads an address of the command line.
pub(super) fn bind_address(text: &str) -> Result<BindAddress, String> {
    ListenAddress::parse(text).map(BindAddress)
}

impl ListenAddresses {
    /// Returns the addresses of a process.
    ///
    /// # Errors
    /// An address of the configuration cannot be read, or two of them cannot be bound beside each other.
    pub(super) fn of(args: &ManagerArgs, configuration: &Configuration) -> anyhow::Result<Self> {
        let component = args.component;
        let visibility = &configuration.visibility_server;
        let visibility_port = u16::try_from(visibility.bind_port).unwrap_or_default();
        // Managers ask the recorder of history on this address, whether or not users are served.
        let serves_visibility = component == Component::History
            || (configuration.gates.enabled(visibility::GATE) && component.reconciles());
        let webhook = &configuration.webhook;
        let at = |host: &str, port: u16| ListenAddress::at(host, port).map(Some);
        let parse = ListenAddress::parse;
        // The configuration, and its paths, are checked when it is loaded.
        let rows = [
            (
                ("--webhook-bind-address", "webhook.port", component.serves_webhooks()),
                args.webhook_bind_address,
                at(&webhook.host, webhook.port),
            ),
            (
                ("--health-bind-address", "health.healthProbeBindAddress", true),
                args.health_bind_address,
                parse(&configuration.health.health_probe_bind_address),
            ),
            (
                ("--visibility-bind-address", "visibilityServer.bindPort", serves_visibility),
                args.visibility_bind_address,
                at(visibility.host(), visibility_port),
            ),
            (("--dashboard-bind-address", "", true), Some(args.dashboard.dashboard_bind_address), Ok(None)),
            (
                ("--metrics-bind-address", "metrics.bindAddress", true),
                args.metrics_bind_address,
                parse(&configuration.metrics.bind_address),
            ),
        ];
        let mut found = [None; 5];
        let mut named = Vec::new();
        for (place, ((flag_name, path, is_served), flag, configured)) in found.iter_mut().zip(rows) {
            let (name, address) = match flag {
                Some(BindAddress(address)) => (flag_name, address),
                None => match configured {
                    Ok(address) => (path, address),
                    Err(reason) => bail!("{path}: {reason}"),
                },
            };
            *place = address.filter(|_| is_served);
            named.extend(place.map(|address| (name, address)));
        }
        if let Some((name, taken)) = taken_twice(&named).first() {
            bail!("{name}: is the address of {taken} as well; one of them could not be listened at");
        }
        let [webhook, health, visibility, dashboard, metrics] = found;
        Ok(Self { webhook, health, metrics, visibility, dashboard })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(flags: &[&str], body: &str) -> Result<ListenAddresses, String> {
        let text = format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{body}\n");
        let loaded = crate::api::config::parse(&text, &[]).unwrap();
        let args = ManagerArgs::parse_line(flags).map_err(|error| error.to_string())?;
        ListenAddresses::of(&args, &loaded.configuration).map_err(|error| error.to_string())
    }

    fn shown(address: Option<ListenAddress>) -> String {
        address.map_or_else(String::new, |address| address.to_string())
    }

    #[test]
    fn flags_come_before_the_configuration() {
        let of = |flags: &[&str], body: &str| {
            let found = listen(flags, body).unwrap();
            [found.webhook, found.health, found.metrics, found.visibility, found.dashboard].map(shown)
        };
        assert_eq!(of(&[], ""), [":9443", ":8081", ":8443", ":8082", ""]);
        let flags =
            ["--metrics-bind-address=0", "--health-bind-address=[::1]:1", "--dashboard-bind-address=:2"];
        assert_eq!(of(&flags, "webhook: {host: '::1'}"), ["[::1]:9443", "[::1]:1", "", ":8082", ":2"]);
        assert_eq!(of(&["--component=webhooks"], "")[3], "", "webhooks serve no users");
        assert_eq!(of(&["--component=controller"], "")[0], "");
        assert_eq!(of(&[], "featureGates: {VisibilityOnDemand: false}")[3], "");
    }

    #[test]
    fn wrong_addresses_and_addresses_that_are_taken_are_named() {
        for flag in [
            "--webhook-bind-address",
            "--health-bind-address",
            "--metrics-bind-address",
            "--visibility-bind-address",
            "--dashboard-bind-address",
        ] {
            let error = listen(&[&format!("{flag}=8443")], "").unwrap_err();
            assert!(error.contains("-bind-address") && error.contains("has no port"), "{flag}: {error}");
        }
        for (flags, named) in [
            (&["--metrics-bind-address=:8081"][..], "--metrics-bind-address: is the address of health."),
            (
                &["--dashboard-bind-address=127.0.0.1:9443"],
                "--dashboard-bind-address: is the address of webhook.",
            ),
            (
                &["--health-bind-address=:1", "--visibility-bind-address=:1"],
                "of --health-bind-address as well",
            ),
        ] {
            let error = listen(flags, "").unwrap_err();
            assert!(error.contains(named), "{flags:?}: {error}");
        }
        assert!(listen(&["--component=webhooks", "--metrics-bind-address=:8082"], "").is_ok());
    }
}
