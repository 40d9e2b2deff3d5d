//! The folder that `KUBEBUILDER_ASSETS` names: envtest's variable. It may hold any of the programs of a control plane; each is asked for
//! its version, because a case that passes with another one shows nothing.

use crate::paths;
use anyhow::{Context as _, Result, bail, ensure};
use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const VARIABLE: &str = "KUBEBUILDER_ASSETS";
/// A program that is asked for its version answers within a second, also on a machine that builds.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a program is asked for its version.
struct Question {
    program: &'static str,
    arguments: &'static [&'static str],
    /// What its answer has before the version.
    words: &'static str,
}

const fn question(
    program: &'static str,
    arguments: &'static [&'static str],
    words: &'static str,
) -> Question {
    Question { program, arguments, words }
}

/// The programs that the folder may hold.
const QUESTIONS: [Question; 6] = [
    question("etcd", &["--version"], "etcd Version: "),
    question("kube-apiserver", &["--version"], "Kubernetes "),
    question("kube-controller-manager", &["--version"], "Kubernetes "),
    question("kube-scheduler", &["--version"], "Kubernetes "),
    question("kubectl", &["version", "--client"], "Client Version: "),
    question("kwok", &["--version"], "kwok version "),
];

/// The folder, if the variable is set.
pub(crate) struct Assets {
    folder: Option<PathBuf>,
}

impl Assets {
    /// Reads the variable. A path that is not absolute is one in the repository, wherever this runs.
    pub(crate) fn from_environment() -> Result<Self> {
        let value = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
        let folder = value.map(|value| paths::root().join(value));
        if let Some(folder) = &folder {
            ensure!(folder.is_dir(), "{VARIABLE}: {} is no folder", folder.display());
        }
        Ok(Self { folder })
    }

    /// Returns the path of a program of the folder.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        let known = QUESTIONS.iter().any(|question| question.program == name);
        let path = self.folder.as_ref().filter(|_| known)?.join(name);
        // A link that leads nowhere is refused when it is asked, and not passed over.
        path.symlink_metadata().is_ok().then_some(path)
    }

    /// Refuses the programs of the folder that are not of these versions, given as (program, version), such as v3.7.3.
    pub(crate) fn check(&self, wanted: &[(&str, String)]) -> Result<()> {
        /// Programs that were asked: each control plane of a process would ask again.
        static ASKED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
        let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wrong = Vec::new();
        for (name, version) in wanted {
            let question = QUESTIONS.iter().find(|question| question.program == *name);
            let (Some(question), Some(path)) = (question, self.path(name)) else { continue };
            if asked.contains(&path) {
                continue;
            }
            match question.ask(&path).and_then(|answer| question.judge(&answer, version)) {
                Ok(()) => {
                    asked.insert(path);
                }
                Err(error) => wrong.push(format!("  {}: {error:#}", path.display())),
            }
        }
        ensure!(
            wrong.is_empty(),
            "{VARIABLE} has programs that cannot be used:\n{}\nReplace them, or take them out of the folder: what it lacks is built.",
            wrong.join("\n")
        );
        Ok(())
    }
}

impl Question {
    /// Runs the program and returns its standard output.
    fn ask(&self, path: &Path) -> Result<String> {
        self.ask_for(path, PATIENCE)
    }

    fn ask_for(&self, path: &Path, patience: Duration) -> Result<String> {
        let mut command = Command::new(path);
        command.args(self.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("cannot be run")?;
        let mut stdout = child.stdout.take().context("no standard output")?;
        let (sender, output) = mpsc::channel();
        // Not waited for: what the program has started may hold its output open.
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stdout.read_to_end(&mut bytes);
            let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
        });
        let deadline = Instant::now() + patience;
        while child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                bail!("does not answer `{}` within {} s", self.arguments.join(" "), patience.as_secs());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(output.recv_timeout(patience).unwrap_or_default())
    }

    /// Refuses an answer that has another version.
    fn judge(&self, answer: &str, wanted: &str) -> Result<()> {
        let said = answer.lines().find_map(|line| line.strip_prefix(self.words)?.split_whitespace().next());
        let Some(version) = said else {
            let first = answer.lines().next().unwrap_or_default();
            bail!("answers {first:?} and not \"{}{wanted}\"", self.words);
        };
        ensure!(
            version.trim_start_matches('v') == wanted.trim_start_matches('v'),
            "is {version}, {wanted} is needed"
        );
        Ok(())
    }
}
