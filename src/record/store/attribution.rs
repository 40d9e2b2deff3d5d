//! Borrowed usage of ClusterQueues, attributed to the groups that used them.
//!
//! Invariant: the parts of the groups of a ClusterQueue are in proportion to their usage in the hour.

use super::{HOURS, StoreError, add_sums, parsed};
use crate::history::{PARTS, QueueHour};
use crate::record::periods::{Group, HOUR, Sums};
use redb::{ReadableTable, WriteTransaction};
use std::collections::BTreeMap;

/// Gives each group its part of the borrowed usage of its ClusterQueue in an hour, in proportion to its usage.
pub(super) fn attribute(write: &WriteTransaction, hour: i64, queues: &[QueueHour]) -> Result<(), StoreError> {
    let mut parts: BTreeMap<(&str, &str, &str), i128> = BTreeMap::new();
    for queue in queues.iter().filter(|queue| queue.borrowed > 0 && queue.used > 0) {
        let fr = &queue.flavor_resource;
        let part = queue.borrowed.min(queue.used).saturating_mul(PARTS).checked_div(queue.used).unwrap_or(0);
        parts.insert((&queue.cluster_queue, &fr.flavor, &fr.resource), part);
    }
    let mut found = BTreeMap::new();
    if !parts.is_empty() {
        let table = write.open_table(HOURS)?;
        for row in table.range((hour, "")..(hour.saturating_add(HOUR), ""))? {
            let (key, value) = row?;
            let (_, text) = key.value();
            let (Some(group), Some(sums)) = (Group::parse(text), parsed::<Sums>(value.value())) else {
                continue;
            };
            if let Some(part) = parts.get(&(group.cluster_queue, group.flavor, group.resource)) {
                let borrowed = sums.used.0.saturating_mul(*part).checked_div(PARTS).unwrap_or(0);
                let mut change = Sums::default();
                change.borrowed.add(borrowed.saturating_sub(sums.borrowed.0));
                found.insert((hour, text.to_owned()), change);
            }
        }
    }
    add_sums(write, &found)
}
