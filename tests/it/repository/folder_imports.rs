//! Folders of integration tests import nothing from one another: what several use is in `fixtures`. Otherwise a change of one test
//! would break another one on a different subject.

use crate::fixtures::root;
use regex::Regex;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Folders of the test binaries: a module of each is a folder.
const BINARIES: [&str; 2] = ["core/tests/it", "tests/it"];
/// The folder that the others use.
const SHARED: &str = "fixtures";

/// Returns the sources below a folder, in the order of their paths.
fn sources(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let own = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    own.chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

/// Returns the folders of a binary that a line names. `depth` is the number of modules from the root to that of the line.
fn used_folders(line: &str, depth: usize) -> Vec<String> {
    static TEXT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#""(?:\\.|[^"\\])*""#).unwrap());
    static IMPORT: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\b(crate::|(?:super::)+)(\w+|\{)").unwrap());
    let line = TEXT.replace_all(line, "");
    let code = line.split("//").next().unwrap_or_default();
    let reaches_root = |start: &str| start == "crate::" || start.matches("super::").count() >= depth;
    let found = IMPORT.captures_iter(code).filter(|found| reaches_root(&found[1]));
    found.map(|found| found[2].to_owned()).collect()
}

#[test]
fn paths_from_the_root_are_seen() {
    let cases = [
        ("use crate::views::tenants::core;", 2, "views"),
        ("use crate::{fixtures, views};", 2, "{"),
        ("use super::super::views;", 2, "views"),
        ("use super::super::plane::Plane;", 3, ""),
        ("let page = crate::views::page(crate::fixtures::root());", 2, "views fixtures"),
        (r#"Regex::new(r"\bcrate::cli"); // crate::views"#, 2, ""),
    ];
    for (line, depth, expected) in cases {
        assert_eq!(used_folders(line, depth).join(" "), expected, "{line}");
    }
}

#[test]
fn folders_of_tests_share_fixtures_alone() {
    let (mut wrong, mut sharing) = (Vec::new(), BTreeSet::new());
    for binary in BINARIES {
        for file in sources(&root().join(binary)) {
            let below = file.strip_prefix(root().join(binary)).unwrap().with_extension("");
            let modules: Vec<&str> =
                below.iter().map(|part| part.to_str().unwrap()).filter(|part| *part != "mod").collect();
            let own = modules[0];
            for (number, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
                for folder in used_folders(line, modules.len()) {
                    if folder == SHARED {
                        sharing.insert((binary, own.to_owned()));
                    } else if folder != own {
                        wrong.push(format!("{}:{} uses {folder}", file.display(), number + 1));
                    }
                }
            }
        }
    }
    assert!(sharing.len() > 10, "few folders use {SHARED}: {sharing:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
