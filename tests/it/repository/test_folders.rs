//! The folders of the integration tests: fixtures contain no tests, and each test has a name of its own.
//!
//! Fixtures are compiled into several test binaries, and a test in one of them would run in each.

use crate::fixtures::root;
use crate::repository::layering::all;
use regex::Regex;
use std::collections::BTreeSet;
use std::fs;

/// The folders of the integration tests, each of one binary.
const BINARIES: [&str; 2] = ["core/tests/it", "tests/it"];
/// Folders whose sources other binaries include: `tests/dashboard` is that of pages and of requests for them.
const FIXTURES: [&str; 3] = ["core/tests/it/fixtures", "tests/it/fixtures", "tests/dashboard"];
/// What makes a function a test.
const TEST: &str = r"#\[(?:\w+::)*test\b|\bproptest!";

#[test]
fn fixtures_contain_no_tests() {
    let test = Regex::new(TEST).unwrap();
    let mut wrong = Vec::new();
    for folder in FIXTURES {
        let files = all(&[folder]);
        assert!(!files.is_empty(), "{folder} has no sources");
        wrong.extend(files.into_iter().filter(|(_, text)| test.is_match(text)).map(|(file, _)| file));
    }
    assert!(wrong.is_empty(), "tests belong to the folder of their subject: {wrong:?}");
}

#[test]
fn attributes_and_laws_are_tests() {
    let test = Regex::new(TEST).unwrap();
    for line in ["#[test]", "#[tokio::test(start_paused = true)]", "proptest! {"] {
        assert!(test.is_match(line), "{line}");
    }
    for line in ["#[cfg(not(test))]", "use proptest::prelude::*;", "#[testing]"] {
        assert!(!test.is_match(line), "{line}");
    }
}

/// The module of a test is part of its name.
#[test]
fn binaries_share_no_folder_of_tests() {
    let [core, rest] = BINARIES.map(|folder| {
        let text = fs::read_to_string(root().join(folder).join("main.rs")).unwrap();
        let modules = text.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
        modules.map(str::to_owned).collect::<BTreeSet<String>>()
    });
    let shared: Vec<&str> = core.intersection(&rest).map(String::as_str).collect();
    assert_eq!(shared, ["fixtures"]);
}
