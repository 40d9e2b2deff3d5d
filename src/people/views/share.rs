//! `share`.

use super::amount::amount;
use super::cluster_queues::quota_of;
use super::cohort_tree::Forest;
use super::workloads::or_dash;
use super::{FlavorResource, Look};
use crate::people::text_table::{Side, TextTable};

/// Returns the shares of a cohort's tree, or of all if `root` is none; the first line says whether fair sharing is on.
pub fn share(root: Option<&str>, forest: Forest<'_>, shown: Option<&FlavorResource>, look: Look) -> String {
    let Forest { cohorts, queues } = forest;
    let shares = cohorts.iter().map(|cohort| &cohort.share).chain(queues.iter().map(|queue| &queue.share));
    let Some(first) = shares.flatten().next() else {
        return "fair sharing: off; workloads are ordered by borrowing, priority and time\n".to_owned();
    };
    let mut columns = vec![("NAME", Side::Left), ("WEIGHT", Side::Right)];
    if shown.is_some() {
        columns.extend([("NOMINAL", Side::Right), ("USED", Side::Right), ("BORROWED", Side::Right)]);
    }
    columns.extend([("DOMINANT RESOURCE", Side::Left), ("SHARE", Side::Right), ("NEXT", Side::Right)]);
    let mut table = TextTable::new(columns);
    let roots = root.map_or_else(|| forest.roots(), |root| vec![root]);
    for node in roots.iter().flat_map(|root| forest.nodes(root, None, look.utf8)) {
        let share = node.share;
        let mut cells = vec![
            format!("{}{}", node.lead, node.name),
            share.map_or_else(|| "-".to_owned(), |share| share.weight.clone()),
        ];
        if let Some(shown) = shown {
            let quota = quota_of(node.quota, shown);
            cells.extend([
                amount(quota.map(|quota| &quota.nominal)),
                amount(quota.map(|quota| &quota.used)),
                amount(quota.map(|quota| &quota.borrowed)),
            ]);
        }
        cells.extend([
            or_dash(share.and_then(|share| share.dominant_resource.as_deref()).unwrap_or_default()),
            share.map_or_else(|| "-".to_owned(), |share| share.value.to_string()),
            share.and_then(|share| share.next).map(|next| next.to_string()).unwrap_or_default(),
        ]);
        table.push(cells);
    }
    let strategies = match first.strategies.as_slice() {
        [] => String::new(),
        strategies => format!("; preemption strategies {}", strategies.join(", ")),
    };
    format!("fair sharing: on{strategies}\n\n{}", table.painted(look.headings, look.width, look.color))
}
