//! Changes that `sluice simulate` makes after the cluster has reached a stable state: files, and single fields.

use std::path::PathBuf;

use anyhow::bail;

use super::inputs;
use crate::simulate::{Changes, Edit, Manifests};

/// Flags that change the simulated cluster. Files come first, then fields in the order of these flags.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("change").multiple(true))]
pub(super) struct ChangeArgs {
    /// Manifests to apply after the simulation has reached a stable state; repeatable. Omitted fields keep their
    /// values.
    #[arg(long, value_name = "PATH", group = "change")]
    then: Vec<PathBuf>,
    /// Set a field of an object: `spec.stopPolicy=Hold cq/nlp`, `spec.fairSharing.weight=2 cohort/ai`; a value is JSON or a
    /// text, null removes the field; repeatable.
    #[arg(long, num_args = 2, value_names = ["FIELD=VALUE", "KIND/NAME"], group = "change")]
    set: Vec<String>,
    /// Set a nominal quota of a ClusterQueue or, with cohort/NAME, of a Cohort; repeatable.
    #[arg(long, value_name = "QUEUE:FLAVOR:RESOURCE=QUANTITY", group = "change", value_parser = quota)]
    quota: Vec<Edit>,
    /// Set a borrowing limit, or remove it with none; repeatable.
    #[arg(long, value_name = "QUEUE:FLAVOR:RESOURCE=QUANTITY", group = "change", value_parser = borrow)]
    borrow: Vec<Edit>,
    /// Set a lending limit, or remove it with none; repeatable.
    #[arg(long, value_name = "QUEUE:FLAVOR:RESOURCE=QUANTITY", group = "change", value_parser = lend)]
    lend: Vec<Edit>,
    /// Remove a node, as after it was drained; repeatable.
    #[arg(long, value_name = "NODE", group = "change", value_parser = drain)]
    drain_node: Vec<Edit>,
    /// Stop a queue and what it runs, a workload or a job: cq/nlp, job/train; repeatable.
    #[arg(long, value_name = "KIND/NAME", group = "change", value_parser = Edit::stopped)]
    stop: Vec<Edit>,
    /// Give a workload or a job another priority: the name of a WorkloadPriorityClass or a number, job/train=300; repeatable.
    #[arg(long, value_name = "KIND/NAME=CLASS", group = "change", value_parser = Edit::reprioritized)]
    priority: Vec<Edit>,
    /// Run twice, without and with the changes, and print what differs.
    #[arg(long, requires = "change")]
    pub(super) compare: bool,
}

fn drain(value: &str) -> Result<Edit, String> {
    Edit::drained_node("--drain-node", value)
}

pub(in crate::cli) fn quota(value: &str) -> Result<Edit, String> {
    Edit::amount("--quota", "nominalQuota", value)
}

pub(in crate::cli) fn borrow(value: &str) -> Result<Edit, String> {
    Edit::amount("--borrow", "borrowingLimit", value)
}

pub(in crate::cli) fn lend(value: &str) -> Result<Edit, String> {
    Edit::amount("--lend", "lendingLimit", value)
}

impl ChangeArgs {
    /// Returns the changes of single fields.
    ///
    /// # Errors
    /// A value of `--set` is malformed, which the parser of one flag cannot detect.
    pub(super) fn edits(&self) -> Result<Vec<Edit>, String> {
        let pairs = self.set.as_chunks::<2>().0;
        let set = pairs.iter().map(|[assignment, object]| {
            Edit::set(assignment, object)
                .map_err(|fault| format!("invalid value '{assignment} {object}' for '--set': {fault}"))
        });
        let mut edits: Vec<Edit> = set.collect::<Result<_, _>>()?;
        for more in [&self.quota, &self.borrow, &self.lend, &self.drain_node, &self.stop, &self.priority] {
            edits.extend(more.iter().cloned());
        }
        Ok(edits)
    }

    /// Reads the files.
    pub(super) fn read(&self, namespace: &str, edits: Vec<Edit>) -> anyhow::Result<Changes> {
        let mut files = Vec::new();
        for path in &self.then {
            let mut change = Manifests::default();
            inputs::read(path, namespace, &mut change)?;
            if change.dump.is_some() {
                bail!("--then {}: a dump is a state to start with, not a change", path.display());
            }
            files.push((path.display().to_string(), change));
        }
        Ok(Changes { files, edits })
    }
}
