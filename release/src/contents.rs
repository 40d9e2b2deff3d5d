//! Every file of the image: the program, the libraries that it needs, the three files by which glibc finds users and hosts,
//! and licence texts. There is no shell and no package manager.

use crate::libraries::{Requirements, System};
use crate::licenses;
use anyhow::{Context as _, Result};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

/// The numeric user and group of the process. A number, because Kubernetes checks `runAsNonRoot` only against a number.
pub const USER: &str = "65532:65532";
/// The program.
pub const PROGRAM: &str = "/sluice";
/// A link to the program: Kueue's Deployments run this path.
pub const KUEUE_PROGRAM: &str = "/manager";
/// Links to the program by which it is a plugin of kubectl, kueuectl, or their completion.
pub const PLUGINS: [&str; 5] =
    ["/kubectl-sluice", "/kubectl-kueue", "/kueuectl", "/kubectl_complete-sluice", "/kubectl_complete-kueue"];

const PASSWD: &str = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nnonroot:x:65532:\n";
/// Without this file glibc looks up hosts by DNS first and ignores /etc/hosts for some names.
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files dns\n";

const FOLDER_MODE: u32 = 0o755;
/// Permissions of a program.
pub const PROGRAM_MODE: u32 = 0o755;
/// Permissions of a file that is only read.
pub const FILE_MODE: u32 = 0o644;

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A folder.
    Folder,
    /// A file with these bytes.
    File(Vec<u8>),
    /// A symbolic link to this path.
    Link(String),
}

/// A file, link or folder of the image. It belongs to root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path without leading slash.
    pub path: String,
    /// Permissions.
    pub mode: u32,
    /// What it is.
    pub content: Content,
}

impl Entry {
    /// A file.
    pub fn file(path: &str, mode: u32, bytes: Vec<u8>) -> Self {
        Self { path: path.trim_start_matches('/').to_owned(), mode, content: Content::File(bytes) }
    }

    /// A folder.
    pub fn folder(path: &str) -> Self {
        Self { path: path.trim_start_matches('/').to_owned(), mode: FOLDER_MODE, content: Content::Folder }
    }

    /// The bytes of a file; none of a folder or a link.
    pub fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::File(bytes) => bytes,
            Content::Folder | Content::Link(_) => &[],
        }
    }

    /// A symbolic link to a path.
    pub fn link(path: &str, target: &str) -> Self {
        let path = path.trim_start_matches('/').to_owned();
        Self { path, mode: 0o777, content: Content::Link(target.to_owned()) }
    }
}

/// The files of the image. They change at different times, so that each part is a layer of its own.
#[derive(Debug)]
pub struct Contents {
    /// Libraries, their licences, and accounts.
    pub system: Vec<Entry>,
    /// The program and its licences.
    pub program: Vec<Entry>,
}

impl Contents {
    /// Collects the files for a program that was built from the checkout `root`.
    pub fn collect(
        program: &Path,
        root: &Path,
        requirements: &Requirements,
        debian: &dyn System,
    ) -> Result<Self> {
        let bytes = fs::read(program).with_context(|| program.display().to_string())?;
        let libraries = requirements.libraries.iter();
        let mut system: Vec<Entry> = libraries
            .map(|library| Entry::file(&library.path, PROGRAM_MODE, library.bytes.clone()))
            .collect();
        for (path, text) in [("etc/passwd", PASSWD), ("etc/group", GROUP), ("etc/nsswitch.conf", NSSWITCH)] {
            system.push(Entry::file(path, FILE_MODE, text.as_bytes().to_vec()));
        }
        system.extend(licenses::of_packages(&requirements.packages(), debian)?);
        let mut program = vec![Entry::file(PROGRAM, PROGRAM_MODE, bytes)];
        let links = std::iter::once(KUEUE_PROGRAM).chain(PLUGINS);
        program.extend(links.map(|path| Entry::link(path, PROGRAM.trim_start_matches('/'))));
        program.extend(licenses::of_program(root, requirements.architecture)?);
        Ok(Self { system, program })
    }

    /// Writes the files below a folder, for a container builder that copies it.
    pub fn write(&self, folder: &Path) -> Result<()> {
        for entry in self.system.iter().chain(&self.program) {
            let path = folder.join(&entry.path);
            write_entry(&path, entry).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}

fn write_entry(path: &Path, entry: &Entry) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match &entry.content {
        Content::Folder => fs::create_dir_all(path)?,
        Content::Link(target) => symlink(target, path)?,
        Content::File(bytes) => {
            fs::write(path, bytes)?;
            fs::set_permissions(path, fs::Permissions::from_mode(entry.mode))?;
        }
    }
    Ok(())
}
