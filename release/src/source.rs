//! Version, commit and date of the sources. The date is that of the commit, so that the same commit gives the same release.

use crate::command;
use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of the workspace, which is that of this crate as well.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Appended to the commit if files differ from it.
const DIRTY: &str = "-dirty";

/// The sources of a build.
#[derive(Clone, Debug)]
pub struct Source {
    /// The checkout.
    pub root: PathBuf,
    /// Hash of the commit; ends with `-dirty` if files differ from it.
    pub commit: String,
    /// Date of the commit.
    pub date: Timestamp,
    /// Files that differ from the commit, as git lists them.
    pub changed: Vec<String>,
}

impl Source {
    /// Reads the state of a checkout.
    pub fn read(root: &Path) -> Result<Self> {
        let hash = git(root, &["rev-parse", "HEAD"]).context("a build needs a git checkout")?;
        let seconds = git(root, &["log", "-1", "--format=%ct"])?;
        let status = git(root, &["status", "--porcelain"])?;
        let changed: Vec<String> = status.lines().map(str::to_owned).collect();
        let suffix = if changed.is_empty() { "" } else { DIRTY };
        Ok(Self {
            root: root.to_owned(),
            commit: format!("{}{suffix}", hash.trim()),
            date: Timestamp::from_second(seconds.trim().parse()?)?,
            changed,
        })
    }

    /// Returns the date in seconds since 1970.
    pub fn epoch(&self) -> Result<u64> {
        u64::try_from(self.date.as_second()).context("the commit is older than 1970")
    }

    /// Returns an error if files differ from the commit.
    pub fn check_clean(&self) -> Result<()> {
        let changed = &self.changed;
        ensure!(
            changed.is_empty(),
            "a release is built from a commit, but {} files differ from it; commit or remove them:\n{}",
            changed.len(),
            changed.join("\n")
        );
        Ok(())
    }

    /// Returns the tag before this commit that is nearest to it; `None` if there is none.
    pub fn last_tag(&self) -> Option<String> {
        // The commit itself may carry the tag of this release already.
        let found = git(&self.root, &["describe", "--tags", "--abbrev=0", "HEAD^"]).ok()?;
        Some(found.trim().to_owned()).filter(|tag| !tag.is_empty())
    }

    /// Returns the subjects of the commits since a tag, or of all commits, newest first.
    pub fn subjects(&self, since: Option<&str>) -> Result<Vec<String>> {
        let range = since.map_or_else(|| "HEAD".to_owned(), |tag| format!("{tag}..HEAD"));
        let lines = git(&self.root, &["log", "--no-merges", "--format=%s", &range])?;
        Ok(lines.lines().map(str::to_owned).collect())
    }
}

/// Returns an error if a requested version is not that of Cargo.toml.
pub fn check_version(requested: &str) -> Result<()> {
    ensure!(
        requested == VERSION,
        "VERSION is {requested}, but Cargo.toml has version {VERSION}; change one of them"
    );
    Ok(())
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    command::output(Command::new("git").arg("-C").arg(root).args(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Repository(PathBuf);

    impl Repository {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("sluice-source-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            let repository = Self(folder);
            repository.git(&["init", "--quiet"]);
            repository
        }

        fn git(&self, arguments: &[&str]) {
            let identity =
                ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"];
            let mut command = Command::new("git");
            command.arg("-C").arg(&self.0).args(identity).args(arguments);
            let date = "2026-01-02T03:04:05+02:00";
            command::output(command.env("GIT_COMMITTER_DATE", date).env("GIT_AUTHOR_DATE", date)).unwrap();
        }

        fn commit(&self, subject: &str) {
            self.git(&["commit", "--quiet", "--allow-empty", "-m", subject]);
        }

        fn source(&self) -> Source {
            Source::read(&self.0).unwrap()
        }
    }

    impl Drop for Repository {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn date_is_the_commits_in_utc() {
        let repository = Repository::new("date");
        repository.commit("one: first");
        let source = repository.source();
        assert_eq!(source.date.to_string(), "2026-01-02T01:04:05Z");
        assert_eq!(source.epoch().unwrap(), 1_767_315_845);
        assert_eq!(source.commit.len(), 40);
        source.check_clean().unwrap();
    }

    #[test]
    fn changed_file_is_named_and_no_release() {
        let repository = Repository::new("dirty");
        repository.commit("one: first");
        fs::write(repository.0.join("new-file"), "").unwrap();
        let source = repository.source();
        assert!(source.commit.ends_with("-dirty"), "{}", source.commit);
        let message = source.check_clean().unwrap_err().to_string();
        assert!(message.contains("1 files differ") && message.contains("new-file"), "{message}");
    }

    #[test]
    fn subjects_since_last_tag() {
        let repository = Repository::new("tags");
        repository.commit("one: first");
        assert_eq!(repository.source().last_tag(), None);
        assert_eq!(repository.source().subjects(None).unwrap(), ["one: first"]);
        repository.git(&["tag", "v0.0.1"]);
        repository.commit("two: second");
        repository.commit("two: third");
        // The tag of the release itself is not the last release.
        repository.git(&["tag", "v0.0.2"]);
        let source = repository.source();
        assert_eq!(source.last_tag().as_deref(), Some("v0.0.1"));
        assert_eq!(source.subjects(Some("v0.0.1")).unwrap(), ["two: third", "two: second"]);
    }

    #[test]
    fn other_version_is_refused_naming_both() {
        check_version(VERSION).unwrap();
        let message = check_version("99.0.0").unwrap_err().to_string();
        assert!(message.contains("99.0.0") && message.contains(VERSION), "{message}");
    }
}
