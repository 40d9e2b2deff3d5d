//! Addresses of pages. No other code makes addresses; names of objects are percent-encoded.

use std::fmt::Write;

/// Returns the address of a page in another form: `json` or `csv`.
pub(super) fn in_form(address: &str, form: &str) -> String {
    format!("{address}{}o={form}", if address.contains('?') { '&' } else { '?' })
}

/// Encodes text as a part of a path or of a query: all but unreserved characters.
pub fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            // Writing to a string cannot fail.
            _ => write!(encoded, "%{byte:02X}").unwrap_or_default(),
        }
    }
    // Browsers resolve a segment of dots alone as a relative path.
    if encoded.bytes().all(|byte| byte == b'.') { encoded.replace('.', "%2E") } else { encoded }
}

/// The start of all addresses: the path prefix, without a slash at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links(String);

impl Links {
    /// Returns the links below a path prefix.
    ///
    /// # Errors
    /// The prefix is no path of plain segments.
    pub fn below(prefix: &str) -> Result<Self, String> {
        let trimmed = prefix.strip_suffix('/').unwrap_or(prefix);
        let is_plain = |segment: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
            !segment.is_empty() && segment.bytes().all(plain) && segment.bytes().any(|byte| byte != b'.')
        };
        let mut segments = trimmed.split('/');
        if trimmed.is_empty() || (segments.next() == Some("") && segments.all(is_plain)) {
            return Ok(Self(trimmed.to_owned()));
        }
        Err(format!("the path prefix {prefix:?} must be /segment/… of letters, digits, -, ., _ and ~"))
    }

    /// The path prefix; empty for none.
    pub fn prefix(&self) -> &str {
        &self.0
    }

    /// Returns the address of a fixed path, which starts with a slash.
    pub fn to(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }

    /// Returns the page of a ClusterQueue.
    pub fn cluster_queue(&self, name: &str) -> String {
        format!("{}/clusterqueues/{}", self.0, encode(name))
    }

    /// Returns the page of a cohort.
    pub fn cohort(&self, name: &str) -> String {
        format!("{}/cohorts/{}", self.0, encode(name))
    }

    /// Returns the page of a ResourceFlavor.
    pub fn flavor(&self, name: &str) -> String {
        format!("{}/flavors/{}", self.0, encode(name))
    }

    /// Returns the page of a Workload.
    pub fn workload(&self, namespace: &str, name: &str) -> String {
        format!("{}/workloads/{}/{}", self.0, encode(namespace), encode(name))
    }

    /// Returns the page of a namespace.
    pub fn namespace(&self, name: &str) -> String {
        format!("{}/namespaces/{}", self.0, encode(name))
    }

    /// Returns a page with a query. Pairs without a value are left out.
    pub fn with_query(&self, path: &str, pairs: &[(&str, &str)]) -> String {
        let set = pairs.iter().filter(|(_, value)| !value.is_empty());
        let query: Vec<String> = set.map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let start = self.to(path);
        if query.is_empty() { start } else { format!("{start}?{}", query.join("&")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded() {
        let links = Links::below("/a/b/").unwrap();
        assert_eq!(links.workload("ns", "a/b?c&\"<ü"), "/a/b/workloads/ns/a%2Fb%3Fc%26%22%3C%C3%BC");
        assert_eq!(links.cluster_queue(".."), "/a/b/clusterqueues/%2E%2E");
        let query = links.with_query("/pending", &[("cq", "a b"), ("ns", ""), ("q", "x=y")]);
        assert_eq!(query, "/a/b/pending?cq=a%20b&q=x%3Dy");
        assert_eq!(Links::default().to("/pending"), "/pending");
    }

    #[test]
    fn prefixes_are_plain_paths() {
        for prefix in ["", "/", "/sluice", "/a/b", "/a.b/"] {
            Links::below(prefix).unwrap();
        }
        for prefix in
            ["sluice", "//", "//evil.example", "/a//b", "/a b", "/..", "/a?b", "/a;b", "/\"", "https://a"]
        {
            let error = Links::below(prefix).map(|links| links.0);
            assert!(error.is_err(), "{prefix:?}: {error:?}");
        }
    }
}
