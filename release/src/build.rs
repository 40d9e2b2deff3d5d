//! Builds the program so that its bytes do not depend on the folders in which it is built.

use crate::command;
use crate::source::Source;
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What separates flags in `CARGO_ENCODED_RUSTFLAGS`.
const FLAG_SEPARATOR: &str = "\u{1f}";
/// The time that a C compiler gives for "now". Not that of the commit, because each new value rebuilds the C libraries.
const C_DATE: &str = "0";
/// Variables that would change the build without being part of the commit.
const REMOVED_VARIABLES: [&str; 5] =
    ["RUSTFLAGS", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET", "CARGO_BUILD_RUSTFLAGS", "RUSTC_WRAPPER"];

/// Builds a release of the program in a target folder and returns its path. The commit and its date go in through the
/// environment.
pub fn program(source: &Source, target: &Path) -> Result<PathBuf> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(&source.root)
        .args(["build", "--release", "--locked", "--package", "sluice", "--bin", "sluice", "--target-dir"])
        .arg(target);
    // `cargo run` sets these; build scripts would see them as a change.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let foreign = ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_PROFILE_"];
        if foreign.iter().any(|prefix| text.starts_with(prefix)) || REMOVED_VARIABLES.contains(&&*text) {
            command.env_remove(&name);
        }
    }
    let renamed = renamed_folders(&source.root, target)?;
    let rust: Vec<String> =
        renamed.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())).collect();
    let c: Vec<String> =
        renamed.iter().map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display())).collect();
    command
        .env("CARGO_ENCODED_RUSTFLAGS", rust.join(FLAG_SEPARATOR))
        .env("CFLAGS", c.join(" "))
        .env("CARGO_INCREMENTAL", "0")
        .env("SOURCE_DATE_EPOCH", C_DATE)
        .env("SLUICE_GIT_COMMIT", &source.commit)
        .env("SLUICE_BUILD_DATE", source.date.to_string());
    command::run(&mut command).context("cannot build sluice")?;
    Ok(target.join("release/sluice"))
}

/// Folders whose paths would be in the program, and their replacements. The last one that matches counts, so the target
/// folder, which may be inside the checkout, comes after it.
fn renamed_folders(root: &Path, target: &Path) -> Result<Vec<(PathBuf, &'static str)>> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    Ok(vec![
        (home.context("neither CARGO_HOME nor HOME is set")?, "/cargo"),
        (root.to_owned(), "/sluice"),
        (target.to_owned(), "/target"),
    ])
}
