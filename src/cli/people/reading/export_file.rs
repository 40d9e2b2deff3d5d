//! A file that is written page by page, and continued after an interruption.
//!
//! Invariants: the file gets its name when it is complete, and is `FILE.part` until then; `FILE.part.state` has the length of
//! the complete pages and the token of the next one, and is written after the page that it counts; an existing file is never
//! overwritten.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::visibility::views::Recorded;

/// Progress of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Progress {
    /// Path of the list below the group's version; empty before the first page.
    pub(super) resource: String,
    /// Start of the period.
    pub(super) since: Timestamp,
    /// Token of the next page; empty before the first and after the last.
    pub(super) next: String,
    /// Whether the last page is written.
    pub(super) is_done: bool,
    /// Rows of the complete pages.
    pub(super) rows: u64,
    /// Bytes of the complete pages.
    pub(super) bytes: u64,
    /// Period for which the rows are complete.
    pub(super) recorded: Recorded,
}

/// Flags of an export as given; an empty text for an absent flag.
pub(super) type Parameters = BTreeMap<String, String>;

#[derive(Debug, Serialize, Deserialize)]
struct State {
    parameters: Parameters,
    progress: Progress,
}

/// The file.
#[derive(Debug)]
pub(super) struct ExportFile {
    path: PathBuf,
    part: PathBuf,
    state_path: PathBuf,
    file: File,
    parameters: Parameters,
}

impl ExportFile {
    /// Opens `FILE.part`: a new one, or the part that an export with the same flags left. Returns its progress.
    pub(super) fn open(
        path: &Path,
        parameters: Parameters,
        begin: Progress,
    ) -> anyhow::Result<(Self, Progress)> {
        check_absent(path)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
            bail!("{}: there is no folder {}", path.display(), parent.display());
        }
        let (part, state_path) = (with_suffix(path, ".part"), with_suffix(path, ".part.state"));
        let named = || part.display().to_string();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&part).with_context(named)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("{}: another export writes it", part.display()),
            Err(TryLockError::Error(error)) => return Err(error).with_context(named),
        }
        let length = file.metadata().with_context(named)?.len();
        let progress = match read_state(&state_path)? {
            Some(state) => {
                let files = format!("delete {} and {}", part.display(), state_path.display());
                if let Some(difference) = difference(&state.parameters, &parameters) {
                    bail!("{} was begun with {difference}: use the same flags, or {files}", part.display());
                }
                if length < state.progress.bytes {
                    bail!("{} has less than its complete pages: {files}", part.display());
                }
                state.progress
            }
            None if length == 0 => begin,
            None => bail!(
                "{} exists without {}, which says what it is of: delete it, or name another file",
                part.display(),
                state_path.display()
            ),
        };
        // Text behind the complete pages is an incomplete page.
        file.set_len(progress.bytes).with_context(named)?;
        file.seek(SeekFrom::End(0)).with_context(named)?;
        let opened = Self { path: path.to_owned(), part, state_path, file, parameters };
        opened.save(&progress)?;
        Ok((opened, progress))
    }

    /// Adds a page, which `progress` counts already.
    pub(super) fn write(&mut self, page: &str, progress: &Progress) -> anyhow::Result<()> {
        let written = self.file.write_all(page.as_bytes()).and_then(|()| self.file.sync_data());
        written.with_context(|| self.part.display().to_string())?;
        self.save(progress)
    }

    /// Renames the complete part to the name of the file.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        check_absent(&self.path)?;
        self.file.sync_all().with_context(|| self.part.display().to_string())?;
        std::fs::rename(&self.part, &self.path).with_context(|| self.path.display().to_string())?;
        // The file is complete without the state, so a failure does not matter.
        let _ = std::fs::remove_file(&self.state_path);
        Ok(())
    }

    /// Deletes the files of an export without a page.
    pub(super) fn discard(self) {
        // A file that cannot be deleted is used by the next export.
        let _ = std::fs::remove_file(&self.state_path);
        let _ = std::fs::remove_file(&self.part);
    }

    /// Returns the names of the files that an interrupted export leaves.
    pub(super) fn left(&self) -> (String, String) {
        (self.part.display().to_string(), self.state_path.display().to_string())
    }

    fn save(&self, progress: &Progress) -> anyhow::Result<()> {
        let state = State { parameters: self.parameters.clone(), progress: progress.clone() };
        let text = serde_json::to_string(&state)?;
        let new = with_suffix(&self.state_path, ".new");
        let written = File::create(&new).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_data()
        });
        let renamed = written.and_then(|()| std::fs::rename(&new, &self.state_path));
        renamed.with_context(|| self.state_path.display().to_string())
    }
}

fn check_absent(path: &Path) -> anyhow::Result<()> {
    if path.symlink_metadata().is_ok() {
        bail!("{} exists: name another file, or delete it", path.display());
    }
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn read_state(path: &Path) -> anyhow::Result<Option<State>> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text.with_context(|| path.display().to_string())?,
    };
    let state = serde_json::from_str(&text);
    state.map(Some).with_context(|| format!("{}: it is not the state of an export", path.display()))
}

/// Returns the first flag that differs, as it was and as it is.
fn difference(before: &Parameters, now: &Parameters) -> Option<String> {
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let value = |all: &Parameters, name: &str| all.get(name).filter(|value| !value.is_empty()).cloned();
    let text = |name: &str, value: Option<String>| match value {
        Some(value) => format!("{name} {value}"),
        None => format!("no {name}"),
    };
    names.into_iter().find_map(|name| {
        let (before, now) = (value(before, name), value(now, name));
        (before != now).then(|| format!("{}, not with {}", text(name, before), text(name, now)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("sluice-export-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(&self.0).unwrap();
            let mut names: Vec<String> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn parameters(since: &str) -> Parameters {
        [("--since", since), ("--until", "")].map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    fn open(path: &Path, since: &str) -> anyhow::Result<(ExportFile, Progress)> {
        ExportFile::open(path, parameters(since), Progress::default())
    }

    fn written(progress: &Progress, rows: u64, bytes: u64) -> Progress {
        Progress { rows, bytes, next: format!("after-{rows}"), ..progress.clone() }
    }

    #[test]
    fn interrupted_export_continues_after_the_last_complete_page() {
        let folder = Folder::new("cut");
        let path = folder.0.join("x.jsonl");
        let (mut file, begin) = open(&path, "30d").unwrap();
        file.write("one\n", &written(&begin, 1, 4)).unwrap();
        // Half of a page, which the state does not count.
        file.file.write_all(b"tw").unwrap();
        assert!(open(&path, "30d").unwrap_err().to_string().contains("another export writes it"));
        drop(file);
        let (mut file, progress) = open(&path, "30d").unwrap();
        assert_eq!((progress.rows, progress.next.as_str()), (1, "after-1"));
        file.write("two\n", &written(&progress, 2, 8)).unwrap();
        file.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        assert_eq!(folder.names(), ["x.jsonl"]);
    }

    #[test]
    fn unusable_parts_are_named() {
        let folder = Folder::new("refused");
        let path = folder.0.join("x.jsonl");
        let error = |since: &str| open(&path, since).unwrap_err().to_string();
        let (mut file, begin) = open(&path, "30d").unwrap();
        file.write("one\n", &written(&begin, 1, 4)).unwrap();
        drop(file);
        assert!(error("7d").contains("x.jsonl.part was begun with --since 30d, not with --since 7d"));
        let mut more = parameters("30d");
        more.insert("--until".to_owned(), "1d".to_owned());
        let other = ExportFile::open(&path, more, Progress::default()).unwrap_err().to_string();
        assert!(
            other.contains("with no --until, not with --until 1d: use the same flags, or delete"),
            "{other}"
        );
        std::fs::write(folder.0.join("x.jsonl.part"), "on").unwrap();
        assert!(error("30d").contains("less than its complete pages"));
        std::fs::write(folder.0.join("x.jsonl.part.state"), "x").unwrap();
        assert!(error("30d").contains("not the state of an export"));
        std::fs::remove_file(folder.0.join("x.jsonl.part.state")).unwrap();
        assert!(error("30d").contains("exists without"));
        std::fs::write(&path, "").unwrap();
        assert!(error("30d").contains("x.jsonl exists: name another file"));
        let nowhere = folder.0.join("no/x.jsonl");
        assert!(open(&nowhere, "30d").unwrap_err().to_string().contains("there is no folder"));
    }

    #[test]
    fn nothing_is_left_of_an_export_that_did_not_begin() {
        let folder = Folder::new("nothing");
        open(&folder.0.join("x"), "1d").unwrap().0.discard();
        assert_eq!(folder.names(), Vec::<String>::new());
    }
}
