//! Views of the API as text.
//!
//! Invariants: a text shows only what its view holds; an absent value is `-`, never a zero; lines without content are left out.

mod amount;
mod audit;
mod capacity;
mod cluster_queues;
mod cohort_tree;
mod comparison;
mod estimate;
mod local_queues;
mod preemptions;
mod quota_bar;
mod quota_table;
mod recorded;
mod share;
mod status;
mod time;
mod usage;
mod what_if;
mod why;
mod workloads;

pub use amount::ResourceNames;
pub use audit::{audit, findings_in_full};
pub use capacity::{capacity, capacity_of_each, queue_capacity};
pub use cluster_queues::{cluster_queue_tables, cluster_queues, default_flavor_resource, flavor_resources};
pub use cohort_tree::{Forest, cohort_tree, cohort_trees, cycles};
pub use comparison::comparison;
pub use estimate::{when, when_details};
pub use local_queues::local_queues;
pub use preemptions::preemptions;
pub use quota_table::{local_quota_table, quota_table};
pub use recorded::{conservation, recorded};
pub use share::{local_shares, share};
pub use status::status;
pub(in crate::people) use time::since;
pub use usage::{priced_usage, usage};
pub use what_if::what_if;
pub(in crate::people) use why::shortened;
pub use why::{never_fits, why};
pub(in crate::people) use workloads::blocked_by;
pub use workloads::workloads;

use super::text_table::{TextTable, one_line};
use jiff::Timestamp;
use jiff::tz::Offset;

/// Options for the layout of a text.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Whether characters beyond ASCII may be used.
    pub utf8: bool,
    /// Whether colours may be used.
    pub color: bool,
    /// Width of the terminal, to which tables are fitted unless they have all columns; `None` if there is none.
    pub width: Option<usize>,
    /// Whether tables have headings.
    pub headings: bool,
    /// Whether tables have more columns.
    pub wide: bool,
    /// Whether lists have the labels of objects.
    pub labels: bool,
    /// Whether tables are comma-separated values.
    pub csv: bool,
    /// Current time, to which ages are counted.
    pub now: Timestamp,
    /// Zone of times.
    pub offset: Offset,
}

impl Look {
    /// Returns the same look without headings.
    #[must_use]
    pub(in crate::people) const fn without_headings(self) -> Self {
        Self { headings: false, ..self }
    }

    /// Returns a table as it looks.
    pub(in crate::people) fn show(&self, table: &TextTable) -> String {
        if self.csv {
            return table.csv(self.headings);
        }
        // A table with all columns is printed whole, however long its lines are.
        let width = self.width.filter(|_| !self.wide);
        let text = table.painted(self.headings, width, self.color);
        // The mark of a cut, for terminals that have only ASCII.
        if self.utf8 { text } else { text.replace('…', "~") }
    }
}

/// Returns the line above a table of a flavor-resource: `nvidia.com/gpu in h100`. Empty where tables have no headings.
fn line_above(shown: Option<&FlavorResource>, look: Look) -> String {
    let shown = shown.filter(|_| look.headings);
    let line = shown.map(|shown| one_line(&format!("{} in {}", shown.resource, shown.flavor)) + "\n");
    line.unwrap_or_default()
}

/// Returns the tables of flavor-resources, one below the other; one table without any if there is none. As comma-separated values
/// they have one heading.
fn one_below_the_other(
    shown: &[FlavorResource],
    look: Look,
    table: impl Fn(Option<&FlavorResource>, Look) -> String,
) -> String {
    let Some((first, rest)) = shown.split_first() else { return table(None, look) };
    let (gap, look_of_rest) = if look.csv { ("", look.without_headings()) } else { ("\n", look) };
    let mut text = table(Some(first), look);
    for shown in rest {
        text.push_str(gap);
        text.push_str(&table(Some(shown), look_of_rest));
    }
    text
}

/// A flavor and a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorResource {
    /// The flavor.
    pub flavor: String,
    /// The resource.
    pub resource: String,
}
