//! Parsing of listen addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Context;

/// Parses `:8081`, `127.0.0.1:8081`, `[::]:8081` or `localhost:8081`; returns `None` for an empty text or `0`. The
/// caller binds the first address that the machine has: a port alone means both address families, or IPv4 if IPv6 is
/// unavailable.
pub(super) async fn parse(what: &str, text: &str) -> anyhow::Result<Option<Vec<SocketAddr>>> {
    if text.is_empty() || text == "0" {
        return Ok(None);
    }
    if let Some(port) = text.strip_prefix(':').filter(|rest| !rest.contains(':')) {
        let port = port.parse().with_context(|| format!("{what}: {text:?}: {port:?} is not a port"))?;
        let all = [IpAddr::from(Ipv6Addr::UNSPECIFIED), Ipv4Addr::UNSPECIFIED.into()];
        return Ok(Some(all.map(|host| SocketAddr::new(host, port)).to_vec()));
    }
    let addresses = tokio::net::lookup_host(text).await.with_context(|| format!("{what}: {text:?}"))?;
    let addresses: Vec<SocketAddr> = addresses.collect();
    anyhow::ensure!(!addresses.is_empty(), "{what}: {text:?} has no address");
    Ok(Some(addresses))
}

/// Joins host and port; puts IPv6 addresses in brackets.
pub(super) fn join(host: &str, port: impl std::fmt::Display) -> String {
    if host.parse::<Ipv6Addr>().is_ok() { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn parse_cases() {
        for (text, addresses) in [
            (":8081", &["[::]:8081", "0.0.0.0:8081"][..]),
            ("[::]:8081", &["[::]:8081"]),
            ("[::1]:8081", &["[::1]:8081"]),
            ("0.0.0.0:8081", &["0.0.0.0:8081"]),
            ("127.0.0.1:8081", &["127.0.0.1:8081"]),
        ] {
            let expected: Vec<SocketAddr> =
                addresses.iter().map(|address| address.parse().unwrap()).collect();
            assert_eq!(parse("x", text).await.unwrap(), Some(expected), "{text}");
        }
        for none in ["", "0"] {
            assert_eq!(parse("x", none).await.unwrap(), None);
        }
        for wrong in [":x", "::", ":70000", "[::]", "1.2.3.4"] {
            assert!(
                parse("health address", wrong).await.unwrap_err().to_string().contains("health address"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn join_cases() {
        for (host, joined) in [
            ("", ":9443"),
            ("::", "[::]:9443"),
            ("::1", "[::1]:9443"),
            ("10.0.0.1", "10.0.0.1:9443"),
            ("[::]", "[::]:9443"),
        ] {
            assert_eq!(join(host, 9443), joined);
        }
    }
}
