//! The cryptography of TLS: one provider for clients, servers and certificates.
//!
//! Invariant: no other module names a provider; with two providers rustls panics at the first connection.

use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// Returns the suites, curves and signatures that connections may use. Signatures include P-521, as in Go's TLS.
#[must_use]
pub fn provider() -> CryptoProvider {
    aws_lc_rs::default_provider()
}

/// Makes it the provider of the process; must come before the first use of TLS. Later calls change nothing.
pub fn install() {
    // It fails if a provider is installed already, which is the same one.
    let _ = provider().install_default();
}
