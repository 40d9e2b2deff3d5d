//! Where recordings of Kueue are, and how they are read. README.md beside this file lists them.
//!
//! A recording is named by its path in this folder, as `api/job.jsonl.gz`. Recordings that are not part of the repository are in a
//! folder outside it, which most machines do not have. A recording that both have is read from this folder.

use flate2::read::GzDecoder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

/// Environment variable with the folder outside: an absolute path, or one from the root of the repository.
const OUTSIDE: &str = "SLUICE_SHARED";
/// The folder outside unless the variable names one.
const BESIDE_REPOSITORY: &str = "../shared";

/// Folders in which a recording is looked for, this one first. The others may be missing.
fn folders() -> [PathBuf; 3] {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let repository = own.ancestors().nth(2).unwrap_or(own);
    let named = std::env::var_os(OUTSIDE).map_or_else(|| BESIDE_REPOSITORY.into(), PathBuf::from);
    let outside = repository.join(named);
    [own.to_owned(), outside.join("conformance"), outside]
}

/// Returns the first of these folders' files or folders with this name.
fn first_of(folders: &[PathBuf], recording: &str) -> Option<PathBuf> {
    folders.iter().map(|folder| folder.join(recording)).find(|path| path.exists())
}

/// Returns the path of a recording, or `None` if this machine does not have it.
pub fn find(recording: &str) -> Option<PathBuf> {
    first_of(&folders(), recording)
}

/// Returns the path of a recording outside the repository, also of one that this folder has.
pub fn find_outside(recording: &str) -> Option<PathBuf> {
    let [_, outside @ ..] = folders();
    first_of(&outside, recording)
}

/// Returns the path of a recording in the repository, whether it exists or not.
pub fn committed(recording: &str) -> PathBuf {
    let [own, ..] = folders();
    own.join(recording)
}

/// Returns the path of the list of cases of a suite that Sluice decides otherwise on purpose; there is no file if it has none. `folder`
/// is that of the recordings: `cases`, `api` or `jobs`. Each line has suite, case and reason, with tabs between.
pub fn deviations(folder: &str, suite: &str) -> PathBuf {
    committed("deviations").join(folder).join(format!("{suite}.tsv"))
}

/// Returns the files with this folder's name in all folders, by name. Files that cannot be listed are left out.
pub fn files(folder: &str) -> Vec<PathBuf> {
    let mut found = BTreeMap::new();
    for entry in folders().iter().filter_map(|base| base.join(folder).read_dir().ok()).flatten().flatten() {
        found.entry(entry.file_name()).or_insert_with(|| entry.path());
    }
    found.into_values().collect()
}

/// Returns the lines of a compressed recording.
pub fn lines(path: &Path) -> io::Result<Vec<String>> {
    BufReader::new(GzDecoder::new(File::open(path)?)).lines().collect()
}

/// Returns the JSON documents of a compressed recording, one from each line.
pub fn documents(path: &Path) -> io::Result<Vec<Value>> {
    lines(path)?.iter().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_folder_wins() {
        let folders = ["src", "tests/it", "."].map(|folder| committed("../..").join(folder));
        assert_eq!(first_of(&folders, "main.rs"), Some(folders[0].join("main.rs")));
        assert_eq!(first_of(&folders, "fixtures/mod.rs"), Some(folders[1].join("fixtures/mod.rs")));
        assert_eq!(first_of(&folders, "missing.rs"), None);
    }

    #[test]
    fn recordings_are_read_from_this_folder() {
        let path = find("jobs/job.jsonl.gz").unwrap();
        assert_eq!(path, committed("jobs/job.jsonl.gz"));
        assert_eq!(documents(&path).unwrap().len(), 24);
        assert!(files("jobs").contains(&path));
    }
}
