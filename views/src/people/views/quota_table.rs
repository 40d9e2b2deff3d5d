//! The whole quota of a node, and of a LocalQueue, for `describe`.

use super::Look;
use super::amount::amount;
use super::cluster_queues::borrowed;
use crate::people::text_table::{Narrow, Side, TextTable};
use crate::visibility::views::{LocalQuotaView, QuotaView};

/// Returns the quota of a ClusterQueue or cohort, a row for each flavor and resource; empty without any.
pub fn quota_table(quotas: &[QuotaView], look: Look) -> String {
    let headings = ["NOMINAL", "USED", "BORROWED", "LENT", "LIMIT", "AVAILABLE"];
    let columns = [("FLAVOR", Side::Left), ("RESOURCE", Side::Left)];
    let mut table = TextTable::new(columns.into_iter().chain(headings.map(|heading| (heading, Side::Right))));
    table.when_narrow(Narrow { optional: &["LENT", "BORROWED", "LIMIT"], ..Narrow::default() });
    for quota in quotas {
        table.push([
            quota.flavor.clone(),
            quota.resource.clone(),
            amount(Some(&quota.nominal)),
            amount(Some(&quota.used)),
            borrowed(quota),
            amount(quota.lent.as_ref()),
            amount(Some(&quota.limit)),
            amount(Some(&quota.available)),
        ]);
    }
    if table.is_empty() { String::new() } else { look.show(&table) }
}

/// Returns the usage of a LocalQueue's workloads, and the quota that its ClusterQueue has left; empty without any quota.
pub fn local_quota_table(quotas: &[LocalQuotaView], look: Look) -> String {
    let columns = [("FLAVOR", Side::Left), ("RESOURCE", Side::Left)];
    let numbers = [("USED", Side::Right), ("AVAILABLE", Side::Right)];
    let mut table = TextTable::new(columns.into_iter().chain(numbers));
    for quota in quotas {
        let cells = [amount(Some(&quota.used)), amount(Some(&quota.available))];
        table.push([quota.flavor.clone(), quota.resource.clone()].into_iter().chain(cells));
    }
    if table.is_empty() { String::new() } else { look.show(&table) }
}
