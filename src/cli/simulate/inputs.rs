//! Manifests from files, folders and standard input. A file in a folder that cannot be read is a problem of its own; a
//! path of the command line that is not there is an error.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;

use crate::simulate::{Manifests, Problem, SourceLocation};

/// Ends of the names of files that are read from folders.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// Reads what a path of the command line stands for.
pub(super) fn read(path: &Path, namespace: &str, manifests: &mut Manifests) -> anyhow::Result<()> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).context("standard input")?;
        parse_manifest("standard input", bytes, namespace, manifests);
        return Ok(());
    }
    let name = path.display().to_string();
    if !path.is_dir() {
        let bytes = std::fs::read(path).with_context(|| name.clone())?;
        parse_manifest(&name, bytes, namespace, manifests);
        return Ok(());
    }
    for file in manifest_files(path).with_context(|| name.clone())? {
        let name = file.display().to_string();
        match read_regular_file(&file) {
            Ok(bytes) => parse_manifest(&name, bytes, namespace, manifests),
            Err(error) => manifests.problems.push(problem(&name, 1, error.to_string())),
        }
    }
    Ok(())
}

fn parse_manifest(name: &str, bytes: Vec<u8>, namespace: &str, manifests: &mut Manifests) {
    match String::from_utf8(bytes) {
        Ok(text) => manifests.parse(name, text.trim_start_matches('\u{feff}'), namespace),
        Err(error) => {
            let good = error.utf8_error().valid_up_to();
            let line = error.as_bytes().iter().take(good).filter(|byte| **byte == b'\n').count();
            manifests.problems.push(problem(name, line.saturating_add(1), "not UTF-8".to_owned()));
        }
    }
}

fn problem(file: &str, line: usize, reason: String) -> Problem {
    Problem { location: SourceLocation { file: Arc::from(file), line }, subject: String::new(), reason }
}

/// A pipe that somebody left in a folder would never end.
fn read_regular_file(file: &Path) -> std::io::Result<Vec<u8>> {
    if std::fs::metadata(file)?.is_file() {
        std::fs::read(file)
    } else {
        Err(std::io::Error::other("not a regular file"))
    }
}

/// The manifests in a folder and the folders in it, by name.
fn manifest_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            // A link to a folder is not followed: it may lead back.
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| EXTENSIONS.iter().any(|known| end == *known)) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
