//! Addresses of requests.

use std::fmt::Write as _;

/// Encodes a text as a value of a query or a segment of a path.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_characters_are_encoded() {
        assert_eq!(encoded("a=b,c!=d/é"), "a%3Db%2Cc%21%3Dd%2F%C3%A9");
        assert_eq!(encoded("plain-name_1.x~"), "plain-name_1.x~");
    }
}
