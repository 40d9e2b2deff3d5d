//! The lists of pages of the dashboard: they agree, and little code has to know all pages, because the file of a page says what
//! it is.

use crate::fixtures::manifests::root;
use crate::fixtures::recorded_pages::PAGES;
use regex::Regex;
use sluice::dashboard::PageQuestion;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs;
use std::path::Path;

/// Addresses that lead to other pages, and have no value.
const REDIRECTS: [&str; 1] = ["/jobs/nlp-train/job/llama-ft"];

fn text_of(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

/// Names and texts of the sources in a folder, without those in folders of it.
fn sources(folder: &str) -> Vec<(String, String)> {
    let files = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let sources = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let name = |path: &Path| path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
    sources.map(|path| (name(path.as_path()), fs::read_to_string(&path).unwrap())).collect()
}

/// The name of the type of a struct, or of the variant of an enum.
pub(crate) fn name_of(value: &dyn Debug) -> String {
    let text = format!("{value:?}");
    text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap().to_owned()
}

fn all_addresses() -> impl Iterator<Item = &'static str> {
    PAGES.iter().map(|page| page.address).chain(REDIRECTS)
}

#[test]
fn each_page_has_a_recorded_value() {
    let page = Regex::new(r"(?m)^impl Page for (\w+) \{$").unwrap();
    let texts = sources("views/src/dashboard");
    let found = texts.iter().flat_map(|(_, text)| page.captures_iter(text));
    let pages: BTreeSet<String> = found.map(|found| found[1].to_owned()).collect();
    let recorded: BTreeSet<String> =
        PAGES.iter().map(|page| name_of(&page.with(page.value().unwrap()).unwrap())).collect();
    assert_eq!(recorded, pages);
}

/// The names of all questions.
pub(crate) fn questions() -> BTreeSet<String> {
    let text = text_of("views/src/dashboard/question.rs");
    let (_, variants) = text.split_once("pub enum PageQuestion {\n").unwrap();
    let (variants, _) = variants.split_once("\n}").unwrap();
    let variant = Regex::new(r"(?m)^    (\w+)\(").unwrap();
    variant.captures_iter(variants).map(|found| found[1].to_owned()).collect()
}

#[test]
fn each_question_is_asked_by_an_address() {
    let mut asked = BTreeSet::new();
    for address in all_addresses() {
        let (question, _) = PageQuestion::parse(address).unwrap();
        assert_eq!(question.address(), address);
        assert_eq!(PageQuestion::parse(&question.address()).unwrap().0, question, "{address}");
        asked.insert(name_of(&question));
    }
    assert_eq!(asked, questions());
}

#[test]
fn each_page_is_documented() {
    let text = text_of("docs/dashboard.md");
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `/")).collect();
    for address in all_addresses() {
        let first = address.split(['/', '?']).nth(1).unwrap();
        let (alone, with_name) = (format!("`/{first}`"), format!("`/{first}/"));
        let is_documented = rows.iter().any(|row| row.contains(&alone) || row.contains(&with_name));
        assert!(is_documented, "docs/dashboard.md has no row of {address}");
    }
}

/// Beside `question.rs`, which reads addresses, and the answers in `cli`, of which each page needs one. Objects name the page that
/// explains them, and the rights to a change are reviewed for the page that asks about changes.
#[test]
fn only_suggestions_objects_and_changes_name_pages() {
    let variant = Regex::new(r"\bPageQuestion::[A-Z]").unwrap();
    let folders = ["views/src/dashboard", "views/src/dashboard/build", "src/server/dashboard"];
    let files = folders.iter().flat_map(|folder| sources(folder));
    let files = files.filter(|(file, _)| !file.ends_with("dashboard/question.rs"));
    let matching: Vec<String> =
        files.filter(|(_, text)| variant.is_match(text)).map(|(file, _)| file).collect();
    let expected = [
        "views/src/dashboard/object.rs",
        "views/src/dashboard/build/similar.rs",
        "src/server/dashboard/changes.rs",
    ];
    assert_eq!(matching, expected);
}

/// `pages.rs` checks that they exist.
#[test]
fn the_steps_for_a_page_name_all_lists() {
    let text = text_of("docs/develop.md");
    let (_, steps) = text.split_once("### A page of the dashboard\n").unwrap();
    let (steps, _) = steps.split_once("\n### ").unwrap();
    let file = Regex::new(r"`((?:cli|dashboard|docs|tests)/[\w./]*)`").unwrap();
    let named: BTreeSet<&str> =
        file.captures_iter(steps).map(|found| found.get(1).unwrap().as_str()).collect();
    for list in [
        "cli/manager/dashboard.rs",
        "dashboard/build/similar.rs",
        "dashboard/frame.rs",
        "dashboard/mod.rs",
        "dashboard/page.rs",
        "dashboard/question.rs",
        "dashboard/templates",
        "docs/dashboard.md",
        "tests/dashboard/recorded_pages.rs",
        "tests/dashboard/tenant_routes.rs",
    ] {
        assert!(named.contains(list), "docs/develop.md does not name {list}");
    }
}
