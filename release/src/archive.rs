//! The archive of the command line, for the machines of users: program, names by which it is a plugin of kubectl, manual pages,
//! completion, keys for k9s, and licence texts.
//!
//! Invariant: pages and scripts are what the program in the archive prints, so that none describes another version.

use crate::command;
use crate::contents::{Content, Entry, FILE_MODE, PLUGINS, PROGRAM, PROGRAM_MODE};
use crate::layer;
use crate::libraries::Architecture;
use crate::licenses;
use crate::source::{Source, VERSION};
use anyhow::{Context as _, Result};
use flate2::read::GzDecoder;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Shells, and the file that each finds its script by.
const COMPLETION: [(&str, &str); 4] =
    [("bash", "sluice.bash"), ("zsh", "_sluice"), ("fish", "sluice.fish"), ("powershell", "sluice.ps1")];
/// Files of the repository that the archive has as they are.
const K9S: [&str; 2] = ["k9s/plugins.yaml", "k9s/views.yaml"];

/// Returns the name of the archive, without its ending, which is also the folder in it.
pub fn stem(architecture: Architecture) -> String {
    format!("sluice-{VERSION}-linux-{}", architecture.oci())
}

/// Packs a program of this machine's architecture as a compressed tar file.
pub fn pack(program: &Path, architecture: Architecture, source: &Source) -> Result<Vec<u8>> {
    let bytes = fs::read(program).with_context(|| program.display().to_string())?;
    let mut entries = vec![Entry::file(PROGRAM, PROGRAM_MODE, bytes)];
    entries.extend(PLUGINS.map(|path| Entry::link(path, PROGRAM.trim_start_matches('/'))));
    entries.extend(manual_pages(program)?);
    for (shell, file) in COMPLETION {
        let script = command::output(Command::new(program).args(["completion", shell]))?;
        entries.push(Entry::file(&format!("completion/{file}"), FILE_MODE, script.into_bytes()));
    }
    for file in K9S {
        let path = source.root.join(file);
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        entries.push(Entry::file(file, FILE_MODE, bytes));
    }
    entries.extend(licenses::of_program(&source.root, architecture)?.into_iter().map(without_folders));
    let folder = stem(architecture);
    for entry in &mut entries {
        entry.path = format!("{folder}/{}", entry.path);
    }
    Ok(layer::pack(&entries, source.epoch()?)?.bytes)
}

/// Unpacks an archive into a folder.
pub fn unpack(bytes: &[u8], folder: &Path) -> Result<()> {
    Ok(tar::Archive::new(GzDecoder::new(bytes)).unpack(folder)?)
}

/// Returns the manual pages that the program writes.
fn manual_pages(program: &Path) -> Result<Vec<Entry>> {
    let folder = std::env::temp_dir().join(format!("sluice-manual-{}", std::process::id()));
    let written = command::output(Command::new(program).args(["man", "--write"]).arg(&folder));
    let pages = written.and_then(|_| read_pages(&folder));
    // Removed also after an error, of which the command names the cause; nothing else is in the folder.
    let _ = fs::remove_dir_all(&folder);
    pages
}

fn read_pages(folder: &Path) -> Result<Vec<Entry>> {
    let mut pages = Vec::new();
    for file in fs::read_dir(folder)? {
        let file = file?;
        let path = format!("man/man1/{}", file.file_name().to_string_lossy());
        pages.push(Entry::file(&path, FILE_MODE, fs::read(file.path())?));
    }
    Ok(pages)
}

/// Puts a licence text beside the program. The image has it where Debian has such texts.
fn without_folders(entry: Entry) -> Entry {
    let path = entry.path.rsplit('/').next().unwrap_or(&entry.path).to_owned();
    debug_assert!(matches!(entry.content, Content::File(_)), "{path} is no file");
    Entry { path, ..entry }
}
