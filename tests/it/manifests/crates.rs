//! The direction of the packages: what decides and what shows is built without anything that performs I/O, and each package uses
//! those before it alone. Cargo.lock lists what their manifests name, and what that is built from.

use crate::fixtures::manifests::root;
use crate::fixtures::packages::{PACKAGES, PURE};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Packages by which code reaches the network, the terminal or the machine, starts tasks or writes logs.
const IO: [&str; 15] = [
    "axum",
    "crossterm",
    "hyper",
    "kube",
    "kube-client",
    "kube-runtime",
    "procfs",
    "redb",
    "rlimit",
    "rustix",
    "socket2",
    "tokio",
    "tower",
    "tower-http",
    "tracing",
];

/// Returns the packages that each package names, those for its tests included. The versions of a package count as one.
fn locked() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let mut packages: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for block in text.split("[[package]]\n").skip(1) {
        let name = block.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).unwrap();
        let named = block.lines().filter_map(|line| line.strip_prefix(" \"")?.split([' ', '"']).next());
        packages.entry(name.to_owned()).or_default().extend(named.map(str::to_owned));
    }
    packages
}

/// Returns the packages that a package is built from, directly or not.
fn built_from(package: &str) -> BTreeSet<String> {
    let locked = locked();
    let (mut open, mut found) = (vec![package.to_owned()], BTreeSet::new());
    while let Some(name) = open.pop() {
        for named in locked.get(&name).unwrap_or_else(|| panic!("Cargo.lock has no {name}")) {
            if found.insert(named.clone()) {
                open.push(named.clone());
            }
        }
    }
    found
}

#[test]
fn pure_packages_are_built_without_io() {
    for (package, ..) in &PACKAGES[..PURE] {
        let parts = built_from(package);
        let found: Vec<&str> = IO.into_iter().filter(|name| parts.contains(*name)).collect();
        assert!(found.is_empty(), "{package} is built from {found:?}: cargo tree --package {package}");
    }
    // The same names are found where they are expected.
    let shell = built_from("sluice");
    let missing: Vec<&str> = IO.into_iter().filter(|name| !shell.contains(*name)).collect();
    assert!(missing.is_empty(), "the shell is built without {missing:?}");
}

/// A page and a metric show the version of the package that makes them, `--version` and a release that of the program.
#[test]
fn packages_have_one_version() {
    assert_eq!(sluice::metrics::build::VERSION, env!("CARGO_PKG_VERSION"));
    for (_, folder, _) in PACKAGES {
        let manifest = root().join(folder).with_file_name("Cargo.toml");
        let text = fs::read_to_string(&manifest).unwrap();
        let named = |line: &str| text.lines().any(|found| found == line);
        assert!(named("version.workspace = true"), "{}", manifest.display());
        // Otherwise cargo-deny refuses dependencies by path that have no version.
        assert!(named("publish = false"), "{}", manifest.display());
    }
}

#[test]
fn packages_use_only_those_before_them() {
    for (index, (package, ..)) in PACKAGES.iter().enumerate() {
        let parts = built_from(package);
        let used: Vec<&str> =
            PACKAGES.iter().map(|(name, ..)| *name).filter(|name| parts.contains(*name)).collect();
        let before: Vec<&str> = PACKAGES[..index].iter().map(|(name, ..)| *name).collect();
        assert_eq!(used, before, "{package}");
    }
}
