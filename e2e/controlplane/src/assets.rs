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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::modules;
    use std::fs;

    /// A folder that is removed on drop.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = paths::target().join("tmp").join(format!("assets-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        /// Adds a program that runs these lines of shell. Another process writes it, because a file that a thread of this one has open
        /// cannot be run.
        fn program(&self, name: &str, lines: &str) -> PathBuf {
            let path = self.0.join(name);
            let write = r#"printf '#!/bin/sh\n%s\n' "$1" > "$0" && chmod +x "$0""#;
            let status = Command::new("sh").args(["-c", write]).arg(&path).arg(lines).status();
            assert!(status.unwrap().success());
            path
        }

        fn check(&self, wanted: &[(&str, &str)]) -> Result<()> {
            let wanted: Vec<(&str, String)> =
                wanted.iter().map(|(name, version)| (*name, (*version).to_owned())).collect();
            Assets { folder: Some(self.0.clone()) }.check(&wanted)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn programs_of_the_pinned_versions_are_taken() {
        let folder = Folder::new("right");
        folder.program("etcd", "echo 'etcd Version: 3.7.3'; echo 'Git SHA: 1'");
        folder.program("kube-apiserver", r#"[ "$*" = --version ] && echo Kubernetes v1.36.3"#);
        let kubectl =
            r#"[ "$*" = 'version --client' ] && echo Client Version: v1.36.3; echo Kustomize Version: v5"#;
        folder.program("kubectl", kubectl);
        folder.program("kwok", "echo 'kwok version v0.7.0 go1.26.8 (linux/amd64)'; echo warning >&2");
        let kubernetes = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"];
        let mut wanted = vec![("etcd", "v3.7.3"), ("kwok", "v0.7.0")];
        wanted.extend(kubernetes.map(|name| (name, "v1.36.3")));
        folder.check(&wanted).unwrap();
        let assets = Assets { folder: Some(folder.0.clone()) };
        assert_eq!(assets.path("etcd"), Some(folder.0.join("etcd")));
        assert_eq!(assets.path("kube-scheduler"), None);
    }

    #[test]
    fn each_wrong_program_is_named_with_both_versions() {
        let folder = Folder::new("wrong");
        let etcd = folder.program("etcd", "echo etcd Version: 3.5.0");
        let server = folder.program("kube-apiserver", "echo Kubernetes v1.36.30");
        let scheduler = folder.program("kube-scheduler", "echo kube-scheduler: bad flag; exit 1");
        let kubectl = folder.program("kubectl", "echo Client Version: v1.36.3-vendor.1");
        let manager = folder.0.join("kube-controller-manager");
        std::os::unix::fs::symlink("/no/such/program", &manager).unwrap();
        fs::write(folder.0.join("kwok"), "not a program").unwrap();
        let kubernetes = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"];
        let mut wanted = vec![("etcd", "v3.7.3"), ("kwok", "v0.7.0")];
        wanted.extend(kubernetes.map(|name| (name, "v1.36.3")));
        let text = folder.check(&wanted).unwrap_err().to_string();
        for (path, words) in [
            (etcd, "is 3.5.0, v3.7.3 is needed"),
            (server, "is v1.36.30, v1.36.3 is needed"),
            (manager, "cannot be run: No such file"),
            (scheduler, r#"answers "kube-scheduler: bad flag" and not "Kubernetes v1.36.3""#),
            (kubectl, "is v1.36.3-vendor.1, v1.36.3 is needed"),
            (folder.0.join("kwok"), "cannot be run: Permission denied"),
        ] {
            assert!(text.contains(&format!("{}: {words}", path.display())), "{words}\n{text}");
        }
        assert!(text.contains("KUBEBUILDER_ASSETS"), "{text}");
        // A program that was replaced is asked again.
        folder.program("etcd", "echo etcd Version: 3.7.3");
        folder.check(&[("etcd", "v3.7.3")]).unwrap();
    }

    #[test]
    fn a_program_that_does_not_end_is_refused() {
        let folder = Folder::new("endless");
        let path = folder.program("kwok", "echo kwok version v0.7.0; sleep 60");
        let question = QUESTIONS.iter().find(|question| question.program == "kwok").unwrap();
        let begun = Instant::now();
        let error = question.ask_for(&path, Duration::from_secs(1)).unwrap_err();
        assert_eq!(error.to_string(), "does not answer `--version` within 1 s");
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    }

    #[test]
    fn other_programs_are_not_taken() {
        let folder = Folder::new("others");
        folder.program("helm", "echo v4.0.0");
        assert_eq!(Assets { folder: Some(folder.0.clone()) }.path("helm"), None);
    }

    #[test]
    fn built_programs_say_what_they_are_asked_for() {
        for module in modules(None).unwrap() {
            for question in QUESTIONS.iter().filter(|question| module.builds(question.program)) {
                let path = module.output().join(question.program);
                let stamp = fs::read_to_string(path.with_extension("stamp")).unwrap_or_default();
                if !path.is_file() || stamp != module.stamp().unwrap() {
                    println!("skipped: {} is not built", question.program);
                    continue;
                }
                let answer = question.ask(&path).unwrap();
                question.judge(&answer, &module.version().unwrap()).unwrap();
            }
        }
    }

    #[test]
    fn readme_shows_each_program_and_its_pinned_version() {
        let readme = fs::read_to_string(paths::root().join("README.md")).unwrap();
        for module in modules(None).unwrap() {
            for question in QUESTIONS.iter().filter(|question| module.builds(question.program)) {
                let version = module.version().unwrap();
                let row = readme.lines().find(|line| {
                    line.starts_with('|') && line.contains(question.program) && line.contains(&version)
                });
                assert!(row.is_some_and(|row| row.contains("https://")), "{} {version}", question.program);
            }
        }
    }
}
