//! SHA-256 digests as text.

use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// Returns the SHA-256 of bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the SHA-256 of bytes as OCI documents name it.
pub fn oci(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(bytes))
}
