//! Runs kubectl with a kubeconfig.

use crate::process::output_with_input;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

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
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments);
        output_with_input(&mut command, &format!("kubectl {}", arguments.join(" ")), input)
    }

    /// Applies the objects of a YAML document.
    pub fn apply(&self, yaml: &str) -> Result<String> {
        self.run_with(&["apply", "-f", "-"], yaml)
    }
}
