//! Text of `list clusterqueue`.

use super::amount::{amount, number};
use super::quota_bar::quota_bar;
use super::workloads::or_dash;
use super::{FlavorResource, Look, one_below_the_other};
use crate::people::text_table::{Narrow, Side, TextTable, Tone};
use crate::visibility::views::{ClusterQueueView, QuotaView};

/// Returns the flavor-resource with the highest usage relative to its quota, over all queues; `None` if no queue has a quota.
pub fn default_flavor_resource<'a>(
    quotas: impl IntoIterator<Item = &'a QuotaView>,
) -> Option<FlavorResource> {
    let mut highest: Option<((f64, f64), &QuotaView)> = None;
    for quota in quotas {
        let nominal = number(&quota.nominal);
        let use_of = if nominal > 0.0 { number(&quota.used) / nominal } else { number(&quota.used) };
        // Of equally full flavor-resources, the one that is borrowed most.
        let use_of = (use_of, number(&quota.borrowed));
        let is_higher =
            |most: (f64, f64)| use_of.0.total_cmp(&most.0).then(use_of.1.total_cmp(&most.1)).is_gt();
        if highest.is_none_or(|(most, _)| is_higher(most)) {
            highest = Some((use_of, quota));
        }
    }
    highest
        .map(|(_, quota)| FlavorResource { flavor: quota.flavor.clone(), resource: quota.resource.clone() })
}

/// Returns the flavor-resources of quotas, each once, in their order.
pub fn flavor_resources<'a>(quotas: impl IntoIterator<Item = &'a QuotaView>) -> Vec<FlavorResource> {
    let mut found: Vec<FlavorResource> = Vec::new();
    for quota in quotas {
        let is_same =
            |known: &FlavorResource| known.flavor == quota.flavor && known.resource == quota.resource;
        if !found.iter().any(is_same) {
            found.push(FlavorResource { flavor: quota.flavor.clone(), resource: quota.resource.clone() });
        }
    }
    found
}

/// Returns the quota of a flavor-resource.
pub(super) fn quota_of<'a>(quotas: &'a [QuotaView], wanted: &FlavorResource) -> Option<&'a QuotaView> {
    quotas.iter().find(|quota| quota.flavor == wanted.flavor && quota.resource == wanted.resource)
}

/// Returns the borrowed amount, with the limit if there is one.
pub(super) fn borrowed(quota: &QuotaView) -> String {
    let borrowed = amount(Some(&quota.borrowed));
    match &quota.borrowing_limit {
        Some(limit) => format!("{borrowed}/{}", limit.value),
        None => borrowed,
    }
}

/// In place of the quota of a node that has none of the flavor-resource: `-` would look like 0.
pub(super) const NO_QUOTA: &str = "none";

/// Returns a table for each of the flavor-resources.
pub fn cluster_queue_tables(rows: &[ClusterQueueView], shown: &[FlavorResource], look: Look) -> String {
    one_below_the_other(shown, look, |shown, look| cluster_queues(rows, shown, look))
}

/// Returns the table, with a bar of one flavor-resource.
pub fn cluster_queues(rows: &[ClusterQueueView], shown: Option<&FlavorResource>, look: Look) -> String {
    let heading = shown.map(|shown| format!("{} {}", shown.resource, shown.flavor)).unwrap_or_default();
    let mut columns = vec![
        ("NAME", Side::Left),
        ("COHORT", Side::Left),
        ("ACTIVE", Side::Left),
        ("PENDING", Side::Right),
        ("ADMITTED", Side::Right),
    ];
    let has_bar = shown.is_some() && !look.csv;
    if has_bar {
        columns.push((heading.as_str(), Side::Whole));
    }
    if shown.is_some() {
        columns.push(("BORROWED", Side::Right));
    }
    if look.wide {
        columns.extend([
            ("USED", Side::Right),
            ("NOMINAL", Side::Right),
            ("RESOURCE", Side::Left),
            ("STRATEGY", Side::Left),
            ("REASON", Side::Left),
        ]);
    }
    let mut table = TextTable::new(columns);
    let constant: &'static [&'static str] =
        if rows.iter().all(|row| row.active) { &["ACTIVE", "COHORT"] } else { &["COHORT"] };
    let optional = &["ADMITTED", "COHORT", "BORROWED"];
    table.when_narrow(Narrow { constant, optional, ..Narrow::default() });
    for row in rows {
        let mut cells = vec![
            row.metadata.name.clone(),
            or_dash(&row.cohort),
            if row.active { "True" } else { "False" }.to_owned(),
            row.pending.total.to_string(),
            row.admitted.to_string(),
        ];
        let quota = shown.and_then(|shown| quota_of(&row.quota, shown));
        if has_bar {
            cells.push(quota.map_or_else(|| NO_QUOTA.to_owned(), |quota| quota_bar(quota, look.utf8)));
        }
        if shown.is_some() {
            cells.push(quota.map_or_else(|| "-".to_owned(), borrowed));
        }
        if look.wide {
            cells.extend([
                amount(quota.map(|quota| &quota.used)),
                quota.map_or_else(|| NO_QUOTA.to_owned(), |quota| amount(Some(&quota.nominal))),
                or_dash(&heading),
                or_dash(&row.queueing_strategy),
                or_dash(&row.reason),
            ]);
        }
        table.push_toned(cells, 2, if row.active { Tone::Good } else { Tone::Bad });
    }
    look.show(&table)
}
