//! Files that pages load: the style sheet, the script and the icon. They are part of the program.
//!
//! Invariant: an address holds the hash of the files' contents, so a browser may cache the file without a limit.

use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::sync::LazyLock;

/// A file that pages load.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// File name, the last segment of the address.
    pub name: &'static str,
    /// Media type of the response.
    pub content_type: &'static str,
    /// Contents, as in the program.
    pub contents: &'static str,
}

/// All files.
pub const ASSETS: [Asset; 3] = [
    Asset {
        name: "sluice.css",
        content_type: "text/css; charset=utf-8",
        contents: include_str!("assets/sluice.css"),
    },
    Asset {
        name: "live.js",
        content_type: "text/javascript; charset=utf-8",
        contents: include_str!("assets/live.js"),
    },
    Asset { name: "icon.svg", content_type: "image/svg+xml", contents: include_str!("assets/icon.svg") },
];

/// Hash of the contents of all files.
static HASH: LazyLock<String> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    for asset in ASSETS {
        hash.update(asset.contents.as_bytes());
    }
    let mut text = String::new();
    for byte in hash.finalize().iter().take(8) {
        // Writing to a string cannot fail.
        write!(text, "{byte:02x}").unwrap_or_default();
    }
    text
});

impl Asset {
    /// Returns a file by the hash and the name in its address.
    pub fn find(hash: &str, name: &str) -> Option<Self> {
        ASSETS.into_iter().find(|asset| hash == *HASH && asset.name == name)
    }
}

/// Returns the path of a file, below the path prefix.
pub(super) fn path(name: &str) -> String {
    format!("/assets/{}/{name}", *HASH)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page shows the first error of the stream at once, without waiting for a longer silence.
    #[test]
    fn script_shows_reconnecting_at_the_first_error() {
        let script = include_str!("assets/live.js");
        let (_, listener) = script.split_once("addEventListener(\"error\", () => {").unwrap();
        assert!(listener.trim_start().starts_with("show(stale, true);"), "before anything else");
        let (_, shown) = script.split_once("const show = (isStale, isLost) => {").unwrap();
        let (shown, _) = shown.split_once("};").unwrap();
        assert!(shown.contains("isLost ? \"Reconnecting\" : \"Live\""), "{shown}");
        // The next message ends it.
        let (_, heard) = script.split_once("const hear = () => {").unwrap();
        assert!(heard.split_once("};").unwrap().0.contains("show(false, false);"));
    }

    #[test]
    fn files_are_found_by_their_address() {
        for asset in ASSETS {
            let path = path(asset.name);
            let mut parts = path.split('/').skip(2);
            let found = Asset::find(parts.next().unwrap(), parts.next().unwrap()).unwrap();
            assert_eq!(found.contents, asset.contents);
            assert!(Asset::find("0000000000000000", asset.name).is_none());
        }
    }

    #[test]
    fn script_stays_small_and_names_no_other_server() {
        let script = ASSETS[1].contents;
        assert!(script.lines().count() <= 100);
        for asset in ASSETS {
            let foreign = asset.contents.replace("http://www.w3.org/2000/svg", "");
            assert!(!foreign.contains("http") && !foreign.contains("@import"), "{}", asset.name);
        }
    }
}
