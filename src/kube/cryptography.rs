//! The cryptography that TLS is built on: one provider for clients, servers and certificates.
//!
//! Invariant: nothing else names the provider; with two of them rustls panics at the first connection.

use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// Returns the suites, curves and signatures that connections may use. Signatures include P-521, as those of Go's TLS do.
#[must_use]
pub fn provider() -> CryptoProvider {
    aws_lc_rs::default_provider()
}

/// Makes it the provider of the process; must come before the first use of TLS. Later calls change nothing.
pub fn install() {
    // It fails where there is one already, which is this one.
    let _ = provider().install_default();
}
