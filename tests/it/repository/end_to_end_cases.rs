//! The table of end-to-end cases, their documentation and the tiers agree: a case that is in no table would silently not run, and
//! `make test` would silently not cover a behaviour.

use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Sections of `e2e/README.md` of which the core covers each row.
const COVERED_SECTIONS: [&str; 2] = ["Jobs and queues", "Topology-aware scheduling and second passes"];

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

fn captures(pattern: &str, text: &str) -> BTreeSet<String> {
    Regex::new(pattern).unwrap().captures_iter(text).map(|found| found[1].to_owned()).collect()
}

/// Returns the names of all cases with their tiers.
fn cases() -> BTreeMap<String, String> {
    let row = Regex::new(r"(?m)^ +((?:Core|Full|Soak|Older)[\w +]*), +\w+, +\d+, (\w+::\w+);$").unwrap();
    let source = read("e2e/tests/e2e/cases.rs");
    row.captures_iter(&source).map(|found| (found[2].to_owned(), found[1].to_owned())).collect()
}

fn documented(text: &str) -> BTreeSet<String> {
    captures(r"`(\w+::\w+)`", text)
}

#[test]
fn each_case_is_in_both_tables() {
    let (cases, source) = (cases(), read("e2e/tests/e2e/cases.rs"));
    assert!(cases.len() > 80, "{} cases found", cases.len());
    assert_eq!(
        captures(r"(?m), (\w+::\w+);$", &source),
        cases.keys().cloned().collect(),
        "rows not understood"
    );
    assert_eq!(documented(&read("e2e/README.md")), cases.keys().cloned().collect());
}

#[test]
fn each_case_function_is_in_the_table() {
    let mut functions = BTreeSet::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/tests/e2e")).unwrap() {
        let path = entry.unwrap().path();
        let module = path.file_stem().unwrap().to_string_lossy().into_owned();
        // A case is a public function of a cluster and a fixture, in this order.
        let pattern =
            r"pub\(crate\) async fn (\w+)\(\s*\w+: &(?:mut )?Cluster,\s*\w+: &Fixture,?\s*\) -> Result<\(\)>";
        let found = captures(pattern, &fs::read_to_string(&path).unwrap());
        functions.extend(found.into_iter().map(|function| format!("{module}::{function}")));
    }
    assert_eq!(functions, cases().into_keys().collect());
}

#[test]
fn core_covers_each_daily_behaviour() {
    let (cases, readme) = (cases(), read("e2e/README.md"));
    for title in COVERED_SECTIONS {
        let section = readme.split("\n## ").find_map(|section| section.strip_prefix(title)).unwrap();
        let rows: Vec<&str> = section.lines().filter(|line| !documented(line).is_empty()).collect();
        assert!(rows.len() > 5, "{title}: {} rows", rows.len());
        for row in rows {
            let is_core = |case: &String| cases[case].starts_with("Core");
            assert!(documented(row).iter().any(is_core), "{title}: no case of the core covers: {row}");
        }
    }
}
