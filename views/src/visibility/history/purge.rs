//! Removal of a namespace's names from the durable record.
//!
//! Invariants: only a reader of the cluster may ask for it, whose right the server has reviewed; sums stay.

use super::question::ReadRecord;
use super::{HistorySource, export};
use crate::visibility::access::Access;
use crate::visibility::page::ModelError;
use crate::visibility::views::PurgeReport;
use serde::{Deserialize, Serialize};

/// Namespace and name in rows whose names were removed. No object can have it.
pub const PURGED: &str = "(purged)";
/// Most characters of the name of a namespace.
const MAX_NAME: usize = 63;

/// Whose names are removed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PurgeTopic {
    /// The namespace.
    pub namespace: String,
    /// Whether rows are only counted.
    #[serde(default)]
    pub dry_run: bool,
}

/// Rows of a record that have names of a namespace, or have lost them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgedRows {
    /// Records of its workloads, and records of preemptions by them.
    pub records: u64,
    /// Sums by hour and by day.
    pub sums: u64,
    /// Runs of its workloads that have not ended. They keep their names.
    pub running: u64,
}

impl PurgeTopic {
    /// Returns the topic of a namespace.
    ///
    /// # Errors
    /// If the text is no name of a namespace.
    pub fn of(namespace: &str, dry_run: bool) -> Result<Self, String> {
        let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_name = namespace.len() <= MAX_NAME
            && namespace.starts_with(is_letter)
            && namespace.ends_with(is_letter)
            && namespace.chars().all(|c| is_letter(c) || c == '-');
        if is_name {
            Ok(Self { namespace: namespace.to_owned(), dry_run })
        } else {
            Err(format!("{namespace:?} is no name of a namespace"))
        }
    }
}

impl HistorySource<'_> {
    /// Removes the names of a namespace from a durable record, or counts the rows that have them.
    ///
    /// # Errors
    /// If the reader may not see the cluster, there is no record, or it cannot be written now.
    pub fn purge(
        &self,
        topic: &PurgeTopic,
        access: &Access,
        record: Option<&dyn ReadRecord>,
    ) -> Result<PurgeReport, ModelError> {
        if !access.cluster {
            return Err(ModelError::Invalid("only readers of the cluster may purge its record".to_owned()));
        }
        // The question may come from another process.
        let topic = PurgeTopic::of(&topic.namespace, topic.dry_run).map_err(ModelError::Invalid)?;
        let record = record.ok_or_else(|| ModelError::Invalid(export::NO_RECORD.to_owned()))?;
        let PurgedRows { records, sums, running } = record.purge(&topic, self.now)?;
        Ok(PurgeReport { records, sums, running, recorded: self.recorded((None, self.now), None) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_namespaces_are_taken() {
        for name in ["a", "nlp-train", "0", &"x".repeat(63)] {
            assert!(PurgeTopic::of(name, false).is_ok(), "{name}");
        }
        for name in ["", "-a", "a-", "A", "a.b", "a/b", PURGED, "a\nb", "\u{e9}", &"x".repeat(64)] {
            assert!(PurgeTopic::of(name, false).is_err(), "{name}");
        }
    }
}
