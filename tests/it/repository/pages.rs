//! The pages as readers meet them: COMPATIBILITY.md lists differences alone, in rows that are read at a glance, links between pages
//! lead somewhere, files that are named exist, and docs/troubleshoot.md has every pending reason.

use crate::fixtures::manifests::root;
use crate::fixtures::packages::PACKAGES;
use regex::Regex;
use sluice::api::reason::PendingReason;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of characters of a row of COMPATIBILITY.md; docs/jobs.md and other pages have what does not fit.
const ROW: usize = 250;
/// Folders whose pages are read: the root, and those of the documentation.
const FOLDERS: [&str; 2] = ["", "docs"];
/// Pages that say in which files something is.
const MAPS: [&str; 4] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/decisions.md", "docs/develop.md"];
/// Folders without sources.
const BUILT: [&str; 4] = [".git", "dist", "e2e/run", "target"];

/// Returns the rows of tables in a page.
fn rows(page: &str) -> impl Iterator<Item = &str> {
    page.lines().filter(|line| line.starts_with('|'))
}

/// Returns the last column of a row, without a page that it refers to.
fn answer(row: &str) -> &str {
    let cells = row.trim_end_matches('|');
    let last = cells.rsplit_once('|').map_or(cells, |(_, last)| last).trim();
    last.split(['(', ':']).next().unwrap_or_default().trim()
}

/// Returns the anchors of a page: its headings as GitHub writes them in addresses.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter_map(|line| line.strip_prefix('#'));
    let is_kept = |letter: &char| letter.is_alphanumeric() || ['-', '_', ' '].contains(letter);
    let anchor = |heading: &str| -> String {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        text.chars().filter(is_kept).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
    };
    headings.map(anchor).collect()
}

/// Returns the pages of the project.
fn pages() -> Vec<PathBuf> {
    let entries = FOLDERS.iter().flat_map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let mut pages: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    pages
}

/// Returns what is wrong with a link of a page: no such file, or no such heading in it.
fn broken(page: &Path, link: &str) -> Option<String> {
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let target = if file.is_empty() { page.to_owned() } else { page.parent().unwrap().join(file) };
    if !target.exists() {
        return Some(format!("{}: {link}: no such file", page.display()));
    }
    let is_page = target.extension().is_some_and(|extension| extension == "md");
    let anchor = anchor.filter(|_| is_page)?;
    let is_found = anchors(&fs::read_to_string(&target).unwrap()).contains(anchor);
    (!is_found).then(|| format!("{}: {link}: no such heading", page.display()))
}

#[test]
fn differences_are_short_and_differ() {
    let page = fs::read_to_string(root().join("COMPATIBILITY.md")).unwrap();
    assert!(rows(&page).count() > 150, "the tables were not found");
    let long: Vec<String> = rows(&page)
        .map(|row| (row.chars().count(), row))
        .filter(|(length, _)| *length > ROW)
        .map(|(length, row)| format!("{length} characters: {row}"))
        .collect();
    assert!(long.is_empty(), "at most {ROW}; the rest belongs to docs/jobs.md:\n{}", long.join("\n"));
    let same: Vec<&str> = rows(&page).filter(|row| answer(row) == "the same").collect();
    assert!(same.is_empty(), "no differences; they belong to docs/troubleshoot.md:\n{}", same.join("\n"));
}

#[test]
fn answers_of_rows_are_read() {
    assert_eq!(answer("| a slice | keeps its finalizer | the same |"), "the same");
    assert_eq!(answer("| a field | removed | the same: it has no place |"), "the same");
    assert_eq!(answer("| a Job | waits | the same ([more](docs/jobs.md#owner)) |"), "the same");
    assert_eq!(answer("| a Job | waits | the same, with an event |"), "the same, with an event");
}

#[test]
fn symptoms_have_every_pending_reason() {
    let page = fs::read_to_string(root().join("docs/troubleshoot.md")).unwrap();
    let symptoms: Vec<&str> = rows(&page).filter_map(|row| row.split('|').nth(1)).collect();
    let is_missing = |reason: &&str| {
        let word = format!("`{reason}`");
        !symptoms.iter().any(|symptom| symptom.contains(&word))
    };
    let missing: Vec<&str> =
        PendingReason::ALL.into_iter().map(PendingReason::as_str).filter(is_missing).collect();
    assert!(missing.is_empty(), "no row of docs/troubleshoot.md begins with {missing:?}");
}

#[test]
fn links_between_pages_lead_somewhere() {
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let links = link.captures_iter(&text).map(|found| found.get(1).unwrap().as_str());
        for link in links.filter(|link| !link.contains("://")) {
            count += 1;
            wrong.extend(broken(&page, link));
        }
    }
    assert!(count > 150, "{count} links found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn anchors_are_those_of_headings() {
    let page = "# Jobs, and `quota`\n\n## Not ready: what then?\ntext\n";
    let expected = ["jobs-and-quota", "not-ready-what-then"].map(str::to_owned);
    assert_eq!(anchors(page), BTreeSet::from(expected));
}

/// Adds the paths of all files below a folder.
fn files(folder: &Path, found: &mut Vec<String>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if BUILT.iter().any(|built| path.ends_with(built)) {
            continue;
        }
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path.to_string_lossy().into_owned());
        }
    }
}

/// Returns the folder in which a path begins: that of the package with its module, or the root of the repository.
fn base_of(path: &str) -> Option<&'static str> {
    let (first, _) = path.split_once('/')?;
    let package = PACKAGES.iter().find(|(_, _, modules)| modules.contains(&first));
    package.map(|(_, folder, _)| *folder).or_else(|| root().join(first).is_dir().then_some(""))
}

/// A path begins with a module or with a folder of the repository. Any other file is in a folder that the page names before.
#[test]
fn paths_that_pages_name_exist() {
    let mut all = Vec::new();
    files(root(), &mut all);
    let word = Regex::new(r"`((?:\.\./)?[A-Za-z0-9_][\w.-]*(?:/[\w.-]*)*)`").unwrap();
    let file = Regex::new(r"\.(?:rs|md|yaml|json|py|toml)$").unwrap();
    let (mut missing, mut count) = (Vec::new(), 0);
    for page in MAPS {
        let text = fs::read_to_string(root().join(page)).unwrap();
        for named in word.captures_iter(&text).map(|found| found.get(1).unwrap().as_str()) {
            let path = named.trim_start_matches("../");
            let exists = match base_of(path) {
                Some(base) => root().join(base).join(path).exists(),
                None if file.is_match(path) => {
                    let end = format!("/{path}");
                    all.iter().any(|file| file.ends_with(&end))
                }
                None => continue,
            };
            count += 1;
            if !exists {
                missing.push(format!("{page}: {named}"));
            }
        }
    }
    assert!(count > 250, "{count} paths are named");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
