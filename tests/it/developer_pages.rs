//! The pages for developers: each path that they name exists.

use crate::layering::{PACKAGES, SOURCES, all};
use crate::manifests::root;
use regex::Regex;
use std::fs;

/// Pages of which words in backticks are read.
const PAGES: [&str; 5] =
    ["ARCHITECTURE.md", "CONTRIBUTING.md", "INVARIANTS.md", "docs/decisions.md", "docs/develop.md"];

/// Returns the folder in which a path begins: that of the package with its module, or the root of the repository.
fn base_of(path: &str) -> Option<&'static str> {
    let (first, _) = path.split_once('/')?;
    let package = PACKAGES.iter().find(|(_, _, modules)| modules.contains(&first));
    package.map(|(_, folder, _)| *folder).or_else(|| root().join(first).is_dir().then_some(""))
}

#[test]
fn named_paths_exist() {
    let word = Regex::new(r"`([a-z0-9_][\w.-]*(?:/[\w.-]*)*)`").unwrap();
    let mut sources = all(&SOURCES);
    sources.extend(all(&["tests", "e2e/src", "e2e/tests"]));
    let (mut wrong, mut from_modules) = (Vec::new(), 0);
    for page in PAGES {
        let text = fs::read_to_string(root().join(page)).unwrap();
        for (number, line) in text.lines().enumerate() {
            for path in word.captures_iter(line).map(|found| found.get(1).unwrap().as_str()) {
                let base = base_of(path);
                let exists = match base {
                    Some(base) => root().join(base).join(path).exists(),
                    // Below a folder that the sentence names before.
                    None if path.ends_with(".rs") => {
                        let end = format!("/{path}");
                        sources.iter().any(|(file, _)| file.ends_with(&end))
                    }
                    None => true,
                };
                from_modules += usize::from(base.is_some_and(|base| !base.is_empty()));
                if !exists {
                    wrong.push(format!("{page}:{}: {path}", number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "no such file:\n{}", wrong.join("\n"));
    assert!(from_modules > 100, "{from_modules} paths of modules were found");
}
