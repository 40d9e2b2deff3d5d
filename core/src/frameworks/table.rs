//! The table of frameworks: every kind of job that Kueue knows, and those that files describe.
//!
//! The table is made once, when it is first read or when rows are added at the start. Invariants: a row has one address as long
//! as the process runs; no two rows have the same group and kind, or the same name. The order of the rows is that of documents and
//! manifests alone.

use super::job_kind::JobKind;
use super::row::{Enabled, Framework};
use super::view::Gvk;
use crate::api::config::KnownFramework;
use std::fmt;
use std::sync::OnceLock;

/// The rows that this version knows without a file. A kind is one line here and one in `mod.rs`, beside its own file.
static BUILT_IN: &[&Framework] = &[
    &super::batch_job::ROW,
    &super::jobset::ROW,
    &super::kubeflow::PYTORCH_JOB,
    &super::kubeflow::TF_JOB,
    &super::kubeflow::XGBOOST_JOB,
    &super::kubeflow::PADDLE_JOB,
    &super::kubeflow::JAX_JOB,
    &super::kubeflow::MPI_JOB,
    &super::train_job::ROW,
    &super::ray::RAY_JOB,
    &super::ray::RAY_CLUSTER,
    &super::ray::RAY_SERVICE,
    &super::pod_group::ROW,
    &super::deployment::ROW,
    &super::pod_group::STATEFUL_SET,
    &super::pod_group::LEADER_WORKER_SET,
    &super::app_wrapper::ROW,
    &super::spark::ROW,
];

impl JobKind {
    /// The kind batch/v1 Job.
    pub const BATCH_JOB: Self = Self::new(&super::batch_job::ROW);
    /// Pods and pod groups.
    pub const POD: Self = Self::new(&super::pod_group::ROW);
}

static TABLE: OnceLock<Table> = OnceLock::new();

/// The rows of the process.
#[derive(Debug)]
struct Table {
    rows: Vec<&'static Framework>,
}

impl Table {
    fn built_in() -> Self {
        Self { rows: BUILT_IN.to_vec() }
    }

    /// Adds a row, which lives as long as the process.
    fn add(&mut self, row: Framework) -> Result<(), TableError> {
        let same = |known: &Framework| {
            (known.gvk.group, known.gvk.kind) == (row.gvk.group, row.gvk.kind) || known.name == row.name
        };
        if let Some(known) = self.rows.iter().find(|known| same(known)) {
            let Gvk { group, kind, .. } = known.gvk;
            return Err(TableError::Known { name: known.name, group, kind });
        }
        self.rows.push(Box::leak(Box::new(row)));
        Ok(())
    }
}

/// Why rows are not added to the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError {
    /// A row has the name, or the group and kind, of another one.
    Known {
        /// Name of the other row.
        name: &'static str,
        /// Its group.
        group: &'static str,
        /// Its kind.
        kind: &'static str,
    },
    /// The table was read before, so what was made from it lacks the rows.
    InUse,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known { name, group, kind } => write!(f, "{kind} of group {group:?} is known as {name}"),
            Self::InUse => f.write_str("the kinds of jobs are in use and cannot be extended"),
        }
    }
}

impl std::error::Error for TableError {}

/// Adds rows to the table. Called at most once, at the start of the process, before the table is read.
///
/// # Errors
/// A row has the name, or the group and kind, of another one; or the table was read before.
pub fn add_frameworks(rows: Vec<Framework>) -> Result<(), TableError> {
    let mut table = Table::built_in();
    rows.into_iter().try_for_each(|row| table.add(row))?;
    TABLE.set(table).map_err(|_| TableError::InUse)
}

fn table() -> &'static Table {
    TABLE.get_or_init(Table::built_in)
}

/// Returns all frameworks: those of Kueue, and the added ones.
pub fn frameworks() -> impl ExactSizeIterator<Item = &'static Framework> {
    table().rows.iter().copied()
}

impl Framework {
    /// Returns whether the shipped configuration enables the kind, and the shipped manifests have its webhooks and permissions.
    pub fn is_shipped(&self) -> bool {
        matches!(self.enabled, Enabled::ByDefault | Enabled::AsShipped)
    }

    /// Returns what gives the kind its webhooks and permissions, or else disables it, for messages.
    pub fn manifests_or_removal(&self) -> String {
        match self.enabled {
            Enabled::ByDefault | Enabled::AsShipped => {
                "apply config/default, or remove it from integrations.frameworks".to_owned()
            }
            Enabled::WhenListed => format!(
                "apply the component config/frameworks/{}, or remove it from integrations.frameworks",
                self.gvk.kind.to_lowercase()
            ),
            Enabled::ByFile => "apply the component that `sluice framework manifests` writes of its file, or start without its \
                 --framework-file"
                .to_owned(),
        }
    }

    /// Returns the name of the kind in names of manifests.
    pub(super) fn manifest_name(&self) -> String {
        let kind = self.gvk.kind.to_lowercase();
        match self.enabled {
            // Other groups have Jobs as well.
            Enabled::ByFile => format!("{kind}.{}", self.gvk.group),
            Enabled::ByDefault | Enabled::AsShipped | Enabled::WhenListed => kind,
        }
    }
}

/// Returns what a configuration may name.
pub fn known_frameworks() -> Vec<KnownFramework> {
    let known = |row: &Framework| {
        let Gvk { group, version, kind, .. } = row.gvk;
        KnownFramework {
            name: row.name,
            kind: format!("{kind}.{version}.{group}"),
            by_default: row.enabled == Enabled::ByDefault,
            by_file: row.enabled == Enabled::ByFile,
            gate: row.flags.gate,
        }
    };
    frameworks().map(known).collect()
}

/// Returns the row of this group and kind.
pub fn framework(group: &str, kind: &str) -> Option<&'static Framework> {
    frameworks().find(|row| (row.gvk.group, row.gvk.kind) == (group, kind))
}

/// Returns the row of this name.
pub fn framework_named(name: &str) -> Option<&'static Framework> {
    frameworks().find(|row| row.name == name)
}

#[cfg(test)]
mod tests {
    use super::super::batch_job;
    use super::*;

    fn row(name: &'static str, kind: &'static str) -> Framework {
        let gvk = Gvk { group: "example.com", version: "v1", kind, plural: "trains" };
        Framework { gvk, name, ..batch_job::ROW }
    }

    #[test]
    fn added_rows_have_names_and_kinds_of_their_own() {
        let mut table = Table::built_in();
        table.add(row("example.com/train", "Train")).unwrap();
        let added = *table.rows.last().unwrap();
        assert!(added.name == "example.com/train" && added.gvk.kind == "Train");
        let known = |name, group, kind| Err(TableError::Known { name, group, kind });
        let train = known("example.com/train", "example.com", "Train");
        assert_eq!(table.add(row("example.com/other", "Train")), train);
        assert_eq!(table.add(row("example.com/train", "Other")), train);
        assert_eq!(table.add(row("batch/job", "Other")), known("batch/job", "batch", "Job"));
        assert_eq!(table.rows.len(), BUILT_IN.len() + 1);
    }

    #[test]
    fn table_in_use_is_not_extended() {
        let before = frameworks().len();
        let added = add_frameworks(vec![row("example.com/train", "Train")]);
        assert_eq!((added, frameworks().len()), (Err(TableError::InUse), before));
        assert!(framework("example.com", "Train").is_none());
    }
}
