//! The crates that are linked into the program, for its features and target: cargo's own list.

use crate::build;
use crate::command;
use crate::libraries::Architecture;
use anyhow::{Context as _, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Name of the program's own crate.
pub const APPLICATION: &str = "sluice";

/// Name and version of a crate.
pub type CrateId = (String, String);

/// A crate that is linked into the program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crate {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its licence as an SPDX expression; empty if it names none.
    pub license: String,
}

/// Crates, and what each depends on.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CrateGraph {
    /// The crates.
    pub crates: BTreeMap<CrateId, Crate>,
    /// Dependencies of those that have any.
    pub edges: BTreeMap<CrateId, BTreeSet<CrateId>>,
}

impl CrateGraph {
    /// Lists the crates of the program in a checkout.
    pub fn read(root: &Path, architecture: Architecture) -> Result<Self> {
        let mut command = build::cargo(root);
        command.args(["tree", "--locked", "--package", APPLICATION]).args([
            "--edges=normal,no-proc-macro",
            "--prefix=depth",
            "--format= {p}|{l}",
            "--target",
            architecture.rust_target(),
        ]);
        Self::parse(&command::output(&mut command)?)
    }

    /// Parses lines of `cargo tree`: depth, name, version with "v", and the licence after "|". A crate that was listed
    /// before ends with "(*)" and without its dependencies.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut graph = Self::default();
        let mut path: Vec<(String, String)> = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let read = || {
                let (depth, rest) = line.split_once(' ')?;
                let (package, license) = rest.trim_end_matches(" (*)").split_once('|')?;
                let mut words = package.split(' ');
                let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
                Some((depth.parse::<usize>().ok()?, name.to_owned(), version.to_owned(), license.to_owned()))
            };
            let (depth, name, version, license) =
                read().with_context(|| format!("cannot read the line {line:?} of cargo tree"))?;
            let key = (name.clone(), version.clone());
            path.truncate(depth);
            if let Some(parent) = path.last() {
                graph.edges.entry(parent.clone()).or_default().insert(key.clone());
            }
            path.push(key.clone());
            // Two forms of the same choice: the older one is no SPDX expression.
            let license = license.replace('/', " OR ");
            graph.crates.entry(key).or_insert(Crate { name, version, license });
        }
        ensure!(!graph.crates.is_empty(), "cargo tree listed no crate");
        Ok(graph)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const TREE: &str = "0 sluice v0.1.0 (/src/sluice)|Apache-2.0\n1 a v1.0.0|MIT/Apache-2.0\n2 c v3.0.0|MIT\n1 b v2.0.0|\n2 c v3.0.0|MIT (*)\n1 sluice-core v0.1.0 (/src/sluice/core)|Apache-2.0\n";

    fn key(name: &str, version: &str) -> (String, String) {
        (name.to_owned(), version.to_owned())
    }

    #[test]
    fn tree_is_read_with_its_edges() {
        let graph = CrateGraph::parse(TREE).unwrap();
        assert_eq!(graph.crates.len(), 5);
        assert_eq!(graph.crates[&key("a", "1.0.0")].license, "MIT OR Apache-2.0");
        let edges = |name, version| graph.edges[&key(name, version)].clone();
        let own = key("sluice-core", "0.1.0");
        assert_eq!(edges("sluice", "0.1.0"), BTreeSet::from([key("a", "1.0.0"), key("b", "2.0.0"), own]));
        assert_eq!(edges("a", "1.0.0"), BTreeSet::from([key("c", "3.0.0")]));
        assert_eq!(edges("b", "2.0.0"), BTreeSet::from([key("c", "3.0.0")]));
        assert!(CrateGraph::parse("nonsense").unwrap_err().to_string().contains("nonsense"));
    }
}
