//! Runs kubectl with a kubeconfig.

use anyhow::{Context as _, Result, bail};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A kubectl binary and the kubeconfig of one user.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// Uses this binary and kubeconfig.
    pub fn new(program: &Path, kubeconfig: &Path) -> Self {
        Self { program: program.to_owned(), kubeconfig: kubeconfig.to_owned() }
    }

    /// Runs kubectl and returns its standard output. Fails with its standard error if it exits with an error.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        self.run_with(arguments, "")
    }

    /// Like `run`, with `input` on standard input.
    pub fn run_with(&self, arguments: &[&str], input: &str) -> Result<String> {
        let mut child = Command::new(&self.program)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| self.program.display().to_string())?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("kubectl {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Applies the objects of a YAML document.
    pub fn apply(&self, yaml: &str) -> Result<String> {
        self.run_with(&["apply", "-f", "-"], yaml)
    }
}
