//! The recordings in the repository are copies of those outside: all of the recorded API answers and lives of jobs, and the decisions
//! that generators made.

use std::fs;
use std::path::Path;

const CHECKERS: [&str; 3] = ["check", "check-api", "check-jobs"];
const FOLDERS: [&str; 3] = ["cases", "api", "jobs"];

/// Compares the bytes of each file, and looks for files outside that should be in the repository.
pub(crate) fn equal_those_outside() {
    let mut names: Vec<String> = CHECKERS.map(str::to_owned).to_vec();
    for folder in FOLDERS {
        let files = sluice_recorded::files(folder);
        names.extend(files.iter().map(|file| format!("{folder}/{}", file_name(file))));
    }
    let mut wrong = Vec::new();
    for name in names.iter().filter(|name| !name.starts_with("cases/") || name.contains("/generated-")) {
        let outside = sluice_recorded::find_outside(name);
        let copy = fs::read(sluice_recorded::committed(name)).ok();
        if outside.is_some_and(|outside| fs::read(outside).ok() != copy) {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "other bytes outside, or not in the repository: {wrong:?}");
}

fn file_name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}
