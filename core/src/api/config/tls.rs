//! TLS settings of the servers: versions, cipher suites and curves by Go's names, which Kueue's configuration uses.
//!
//! Invariant: a setting that the TLS stack does not support is an error with its path; none is ignored silently.

use super::{Problems, Tls};
use serde_json::Value;

/// Selectable cipher suites of TLS 1.2.
const SUITES: [&str; 6] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];
/// Cipher suites of TLS 1.3. They may be listed, but as in Go all are always enabled.
const TLS13_SUITES: [&str; 3] =
    ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];
/// Go's older names, without the hash.
const SUITE_ALIASES: [(&str, &str); 2] = [
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
];
/// Curves: Go's name, number, and standard name.
const CURVES: [(&str, u64, &str); 4] = [
    ("CurveP256", 23, "secp256r1"),
    ("CurveP384", 24, "secp384r1"),
    ("X25519", 29, "X25519"),
    ("X25519MLKEM768", 4588, "X25519MLKEM768"),
];

impl Tls {
    /// Returns whether TLS 1.2 is refused.
    pub fn requires_tls13(&self) -> bool {
        self.min_version == "VersionTLS13"
    }

    /// Returns whether a cipher suite of TLS 1.2 may be used.
    pub fn allows_suite(&self, name: &str) -> bool {
        self.cipher_suites.is_empty()
            || self.cipher_suites.iter().any(|listed| full_suite_name(listed) == name)
    }

    /// Returns the standard names of the configured curves, in order; empty means all.
    pub fn curves(&self) -> Vec<&'static str> {
        self.curve_preferences.iter().filter_map(curve).collect()
    }
}

fn full_suite_name(name: &str) -> &str {
    SUITE_ALIASES.iter().find(|(short, _)| *short == name).map_or(name, |(_, full)| full)
}

fn curve(value: &Value) -> Option<&'static str> {
    let entry = CURVES.iter().find(|(name, number, standard)| match value {
        Value::String(text) => text == name || text == standard,
        other => other.as_u64() == Some(*number),
    });
    entry.map(|(_, _, standard)| *standard)
}

/// Adds an error for each unsupported setting.
pub(super) fn check(tls: &Tls, problems: &mut Problems) {
    if !["", "VersionTLS12", "VersionTLS13"].contains(&tls.min_version.as_str()) {
        problems.error("tls.minVersion", "must be VersionTLS12 or VersionTLS13");
    }
    if tls.requires_tls13() && !tls.cipher_suites.is_empty() {
        problems.error("tls.cipherSuites", "cannot be set with VersionTLS13");
    }
    for (index, name) in tls.cipher_suites.iter().enumerate() {
        if !SUITES.contains(&full_suite_name(name)) && !TLS13_SUITES.contains(&name.as_str()) {
            let text = format!("{name} is not supported; there are {}", SUITES.join(", "));
            problems.error(&format!("tls.cipherSuites[{index}]"), &text);
        }
    }
    for (index, value) in tls.curve_preferences.iter().enumerate() {
        if curve(value).is_none() {
            let known = CURVES.map(|(name, number, _)| format!("{name} ({number})")).join(", ");
            let text = format!("{value} is not supported; there are {known}");
            problems.error(&format!("tls.curvePreferences[{index}]"), &text);
        }
    }
}
