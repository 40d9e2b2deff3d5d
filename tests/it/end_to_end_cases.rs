//! The end-to-end cases are documented, and the lists in the Makefile select existing ones: a word without a case would be a
//! case that is silently not run.

use regex::Regex;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

fn captures(pattern: &str, text: &str) -> BTreeSet<String> {
    Regex::new(pattern).unwrap().captures_iter(text).map(|found| found[1].to_owned()).collect()
}

fn cases() -> BTreeSet<String> {
    let source = read("e2e/tests/e2e/main.rs");
    let (_, lists) = source.split_once("fn parallel_cases").unwrap();
    captures(r"(?m)^ +(\w+::\w+),$", lists)
}

#[test]
fn each_case_is_in_the_table() {
    assert!(cases().len() > 80, "{} cases found", cases().len());
    assert_eq!(captures(r"`(\w+::\w+)`", &read("e2e/README.md")), cases());
}

#[test]
fn words_of_makefile_select_cases() {
    let (makefile, cases) = (read("Makefile"), cases());
    for list in ["FAULTS", "QUICK"] {
        let words = captures(&format!(r"(?m)^{list} = (.*)$"), &makefile);
        let words: Vec<&str> = words.iter().flat_map(|line| line.split_whitespace()).collect();
        assert!(words.len() > 5, "{list}: {words:?}");
        for word in words {
            assert!(cases.iter().any(|case| case.contains(word)), "{list}: no case contains {word}");
        }
    }
}
