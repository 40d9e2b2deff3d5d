//! Addresses at which the manager listens: `:8081`, `127.0.0.1:8081`, `[::]:8081` or `localhost:8081`.
//!
//! Invariant: a text is read without the machine and without a name service, so that what is accepted before a start is accepted by
//! the start. Names of hosts other than `localhost`, and of ports, which Go looks up when it binds them, are therefore refused.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An address with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    host: Host,
    port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    /// All addresses of both families.
    Any,
    Localhost,
    Ip(IpAddr),
}

impl ListenAddress {
    /// Reads an address; an empty text and `0` are none. An error says what is wrong, without the name of the setting.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        if text.is_empty() || text == "0" {
            return Ok(None);
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return Err(format!("{text:?} has no port: write :{text} for a port, or HOST:PORT"));
        };
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if host.contains(':') && bare.is_none() {
            return Err(format!("{text:?} must be HOST:PORT, with an IPv6 address in brackets"));
        }
        let port = port.parse().map_err(|_| {
            let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let rule = if digits { "must be at most 65535" } else { "must be a number" };
            format!("{text:?}: port {port:?} {rule}")
        })?;
        Self::at(host, port).map(Some).map_err(|reason| format!("{text:?}: {reason}"))
    }

    /// Returns the address of a host and a port; an empty host is any.
    pub fn at(host: &str, port: u16) -> Result<Self, String> {
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host = match (host, bare) {
            ("", _) => Host::Any,
            ("localhost", _) => Host::Localhost,
            (_, Some(bare)) => Host::Ip(bare.parse::<Ipv6Addr>().map_err(|_| not_an_address(host))?.into()),
            (_, None) => Host::Ip(host.parse().map_err(|_| not_an_address(host))?),
        };
        Ok(Self { host, port })
    }

    /// Returns the port; 0 is any that is free.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the addresses of which the first that the machine has is bound: a port alone means both families, or IPv4 if IPv6 is
    /// not available.
    pub fn candidates(&self) -> Vec<SocketAddr> {
        let hosts: &[IpAddr] = match &self.host {
            Host::Any => &[IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)],
            Host::Localhost => &[IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)],
            Host::Ip(ip) => &[*ip],
        };
        hosts.iter().map(|host| SocketAddr::new(*host, self.port)).collect()
    }

    /// Returns whether two listeners cannot have these addresses in one network namespace. `[::]` is bound for both families.
    pub fn overlaps(&self, other: &Self) -> bool {
        let covers = |one: IpAddr, other: IpAddr| {
            one == other || (one.is_unspecified() && (one.is_ipv6() || other.is_ipv4()))
        };
        let [one, other_one] = [self, other].map(|address| address.candidates().first().map(SocketAddr::ip));
        let same = one.zip(other_one).is_some_and(|(one, other)| covers(one, other) || covers(other, one));
        self.port != 0 && self.port == other.port && same
    }
}

fn not_an_address(host: &str) -> String {
    format!("host {host:?} must be an IP address or localhost")
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host {
            Host::Any => write!(f, ":{}", self.port),
            Host::Localhost => write!(f, "localhost:{}", self.port),
            Host::Ip(ip) => SocketAddr::new(ip, self.port).fmt(f),
        }
    }
}

/// Returns for each listener after another one with an overlapping address: its name, and that of the other one.
pub fn taken_twice<'a>(listeners: &[(&'a str, ListenAddress)]) -> Vec<(&'a str, &'a str)> {
    let others = listeners.iter().enumerate().filter_map(|(index, (name, address))| {
        let earlier = listeners.iter().take(index).find(|(_, earlier)| earlier.overlaps(address))?;
        Some((*name, earlier.0))
    });
    others.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> ListenAddress {
        ListenAddress::parse(text).unwrap().unwrap()
    }

    #[test]
    fn addresses_are_read_as_they_are_bound() {
        for (text, candidates) in [
            (":8081", &["[::]:8081", "0.0.0.0:8081"][..]),
            ("[::]:8081", &["[::]:8081"]),
            ("[::1]:8081", &["[::1]:8081"]),
            ("0.0.0.0:8081", &["0.0.0.0:8081"]),
            ("127.0.0.1:0", &["127.0.0.1:0"]),
            ("localhost:8081", &["127.0.0.1:8081", "[::1]:8081"]),
        ] {
            let expected: Vec<SocketAddr> =
                candidates.iter().map(|address| address.parse().unwrap()).collect();
            assert_eq!(address(text).candidates(), expected, "{text}");
            assert_eq!(address(&address(text).to_string()), address(text), "{text}");
        }
        for none in ["", "0"] {
            assert_eq!(ListenAddress::parse(none), Ok(None));
        }
        for (text, reason) in [
            ("8443", "\"8443\" has no port: write :8443"),
            ("1.2.3.4", "has no port"),
            (":", "port \"\" must be a number"),
            (":https", "port \"https\" must be a number"),
            (":70000", "must be at most 65535"),
            (":-1", "must be a number"),
            ("::", "IPv6 address in brackets"),
            ("::1:8081", "IPv6 address in brackets"),
            ("[::]", "in brackets"),
            ("[1.2.3.4]:1", "must be an IP address"),
            ("metrics.example:8443", "host \"metrics.example\" must be an IP address or localhost"),
            (" :8443", "must be an IP address"),
            ("http://127.0.0.1:8443", "in brackets"),
        ] {
            let error = ListenAddress::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn hosts_are_read_with_and_without_brackets() {
        for (host, shown) in
            [("", ":9443"), ("::", "[::]:9443"), ("[::1]", "[::1]:9443"), ("10.0.0.1", "10.0.0.1:9443")]
        {
            assert_eq!(ListenAddress::at(host, 9443).unwrap().to_string(), shown);
        }
        for wrong in ["webhook.example", "10.0.0.1:9443", "[10.0.0.1]", "10.0.0", " "] {
            assert!(ListenAddress::at(wrong, 9443).is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_address_cannot_be_bound_twice() {
        for (one, other, overlap) in [
            (":1", ":1", true),
            (":1", "127.0.0.1:1", true),
            (":1", "[::1]:1", true),
            ("[::]:1", "0.0.0.0:1", true),
            ("0.0.0.0:1", "127.0.0.1:1", true),
            ("localhost:1", "127.0.0.1:1", true),
            ("0.0.0.0:1", "[::1]:1", false),
            ("127.0.0.1:1", "127.0.0.2:1", false),
            ("localhost:1", "[::1]:1", false),
            (":1", ":2", false),
            (":0", ":0", false),
        ] {
            let (one, other) = (address(one), address(other));
            assert_eq!((one.overlaps(&other), other.overlaps(&one)), (overlap, overlap), "{one} {other}");
        }
        let all = [("a", address(":1")), ("b", address(":2")), ("c", address("127.0.0.1:1"))];
        assert_eq!(taken_twice(&all), [("c", "a")]);
    }
}
