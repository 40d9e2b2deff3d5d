//! Reads manifests from files, directories and standard input. An unreadable file in a directory is a problem; an
//! unreadable path of the command line is an error.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;

use crate::simulate::{Manifests, Problem, SourceLocation};

/// Extensions of files that are read from directories.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// Reads the manifests at a path of the command line; `-` is standard input.
pub(in crate::cli) fn read(path: &Path, namespace: &str, manifests: &mut Manifests) -> anyhow::Result<()> {
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

/// Reads a file unless it is not regular: reading a named pipe could block forever.
fn read_regular_file(file: &Path) -> std::io::Result<Vec<u8>> {
    if std::fs::metadata(file)?.is_file() {
        std::fs::read(file)
    } else {
        Err(std::io::Error::other("not a regular file"))
    }
}

/// Returns the manifest files in a directory and its subdirectories, sorted by path.
fn manifest_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            // Links to directories are not followed, because they may form a cycle.
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| EXTENSIONS.iter().any(|known| end == *known)) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
