//! Replays recorded lives of jobs. A life that is listed as a deviation waits for a state that does not come. These are played beside the
//! others, by a run of the checker that waits for less long. The others are played by two runs: each compares on one core.
//!
//! Invariants: each life is played once; a listed one that is as recorded fails the run.

use crate::process::outcome_and_output;
use anyhow::{Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use tokio::process::Command;

/// Seconds after which a state counts as not reached: as many as a loaded machine may need.
const TIMEOUT: &str = "60";
/// The same for lives that are listed. One that takes longer differs, as it should.
const LISTED_TIMEOUT: &str = "10";
/// Lives at a time of one run: they mostly wait.
const AT_A_TIME: &str = "8";
/// The same for the run of those that are listed.
const LISTED_AT_A_TIME: &str = "4";

/// Lives that are played, by their suites.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Lives {
    folder: PathBuf,
    /// Names that are not listed.
    as_recorded: BTreeMap<String, Vec<String>>,
    /// Names that are listed as deviations.
    listed: BTreeMap<String, Vec<String>>,
}

impl Lives {
    /// Returns no lives of suites in this folder.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, ..Self::default() }
    }

    /// Adds a suite with the names of its lives. `deviations` has a line for each that is listed: suite, name and reason, with tabs
    /// between.
    pub(crate) fn add(&mut self, suite: &str, names: Vec<String>, deviations: &str) {
        let listed: BTreeSet<&str> = deviations.lines().filter_map(|line| line.split('\t').nth(1)).collect();
        let (listed, as_recorded): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|name| listed.contains(name.as_str()));
        for (lives, names) in [(&mut self.listed, listed), (&mut self.as_recorded, as_recorded)] {
            if !names.is_empty() {
                lives.insert(suite.to_owned(), names);
            }
        }
    }

    /// Returns options of the checker that plays these of the lives.
    fn options(&self, lives: &BTreeMap<String, Vec<String>>) -> Vec<OsString> {
        let mut options: Vec<OsString> = vec!["--cases".into(), self.folder.clone().into()];
        for (suite, names) in lives {
            options.extend(["--kind".into(), suite.into()]);
            options.extend(names.iter().flat_map(|name| [OsString::from("--only"), name.into()]));
        }
        options
    }

    /// Plays all lives; `checker` makes a run of the checker, and `show` is the number of differences to show per suite. An error if a
    /// life is not as recorded, or is listed and as recorded.
    pub(crate) async fn play(&self, checker: impl Fn() -> Result<Command>, show: u32) -> Result<()> {
        let half = |first: usize| {
            let suites = self.as_recorded.iter().skip(first).step_by(2);
            suites.map(|(suite, names)| (suite.clone(), names.clone())).collect::<BTreeMap<_, _>>()
        };
        let [first, second] = [half(0), half(1)];
        let (first, second, listed) = tokio::join!(
            self.play_as_recorded(&first, &checker, show),
            self.play_as_recorded(&second, &checker, show),
            self.play_listed(&checker)
        );
        first.and(second).and(listed)
    }

    async fn play_as_recorded(
        &self,
        lives: &BTreeMap<String, Vec<String>>,
        checker: impl Fn() -> Result<Command>,
        show: u32,
    ) -> Result<()> {
        if lives.is_empty() {
            return Ok(());
        }
        let mut command = checker()?;
        command.args(self.options(lives)).args(["--timeout", TIMEOUT, "--jobs", AT_A_TIME]);
        command.args(["--show", &show.to_string()]);
        let (succeeded, printed) = outcome_and_output(&mut command).await?;
        print!("{printed}");
        ensure!(succeeded, "a life is not as recorded");
        Ok(())
    }

    async fn play_listed(&self, checker: impl Fn() -> Result<Command>) -> Result<()> {
        if self.listed.is_empty() {
            return Ok(());
        }
        let mut command = checker()?;
        command.args(self.options(&self.listed));
        command.args(["--timeout", LISTED_TIMEOUT, "--jobs", LISTED_AT_A_TIME]);
        // Each that differs is named.
        command.args(["--show", &u32::MAX.to_string()]);
        let (_, printed) = outcome_and_output(&mut command).await?;
        let count = expect_all_differ(&self.listed, &printed)?;
        println!("{count} lives that are listed as deviations differ");
        Ok(())
    }
}

/// Returns the number of listed lives, all of which the checker printed as different; an error if it did not.
fn expect_all_differ(listed: &BTreeMap<String, Vec<String>>, printed: &str) -> Result<usize> {
    let name = |line: &str| Some(line.strip_prefix("--- ")?.split_once(", step ")?.0.to_owned());
    let different: BTreeSet<String> = printed.lines().filter_map(name).collect();
    let names = || listed.iter().flat_map(|(suite, names)| names.iter().map(move |name| (suite, name)));
    let ended = format!("0 passed, {} failed", names().count());
    if printed.lines().next_back() == Some(ended.as_str()) {
        return Ok(different.len());
    }
    let same = names().filter(|(_, name)| !different.contains(*name));
    let same: Vec<String> = same.map(|(suite, name)| format!("{suite}: {name}")).collect();
    bail!("listed as deviations, but as recorded or not played: {}\n{printed}", same.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lives() -> Lives {
        let mut lives = Lives::new("jobs".into());
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        lives.add("job", names(&["jb0", "jb1", "jb2"]), "job\tjb1\twhy\n");
        lives.add("pod", names(&["po0"]), "");
        lives.add("tfjob", names(&["tf0", "tf1"]), "tfjob\ttf0\ta\ntfjob\ttf1\tb\n");
        lives
    }

    #[test]
    fn each_life_is_played_once() {
        let lives = lives();
        let words = |options: Vec<OsString>| {
            options.iter().map(|word| word.to_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            words(lives.options(&lives.as_recorded)),
            "--cases jobs --kind job --only jb0 --only jb2 --kind pod --only po0"
        );
        assert_eq!(
            words(lives.options(&lives.listed)),
            "--cases jobs --kind job --only jb1 --kind tfjob --only tf0 --only tf1"
        );
    }

    #[test]
    fn listed_lives_must_differ() {
        let listed = lives().listed;
        let head = "kind                   scenarios    passed    failed\n";
        let differ = |name: &str| format!("--- {name}, step 2 of 3: quota\n  /Job/a: want 1, got 2\n");
        let printed = [head, &differ("jb1"), &differ("tf0"), &differ("tf1"), "0 passed, 3 failed\n"].concat();
        assert_eq!(expect_all_differ(&listed, &printed).unwrap(), 3);
        let printed = [head, &differ("jb1"), &differ("tf1"), "1 passed, 2 failed\n"].concat();
        let error = expect_all_differ(&listed, &printed).unwrap_err().to_string();
        assert!(error.contains("as recorded or not played: tfjob: tf0\n"), "{error}");
        for ended in ["0 passed, 0 failed, 3 SKIPPED\n", ""] {
            expect_all_differ(&listed, &[head, ended].concat()).unwrap_err();
        }
    }
}
