//! Text of `share`.

use super::amount::amount;
use super::cluster_queues::quota_of;
use super::cohort_tree::Forest;
use super::workloads::or_dash;
use super::{FlavorResource, Look, line_above};
use crate::people::text_table::{Narrow, Side, TextTable};
use crate::visibility::views::LocalQueueView;

/// Returns the shares of a cohort's tree, or of all if `root` is none; the first line says whether fair sharing is on.
pub fn share(root: Option<&str>, forest: Forest<'_>, shown: Option<&FlavorResource>, look: Look) -> String {
    let Forest { cohorts, queues } = forest;
    let shares = cohorts.iter().map(|cohort| &cohort.share).chain(queues.iter().map(|queue| &queue.share));
    let first = shares.flatten().next();
    let mut columns = vec![("NAME", Side::Left)];
    if first.is_some() {
        columns.push(("WEIGHT", Side::Right));
    }
    if shown.is_some() {
        columns.extend([("NOMINAL", Side::Right), ("USED", Side::Right), ("BORROWED", Side::Right)]);
    }
    if first.is_some() {
        columns.extend([("DOMINANT RESOURCE", Side::Left), ("SHARE", Side::Right), ("NEXT", Side::Right)]);
    }
    let mut table = TextTable::new(columns);
    table.when_narrow(Narrow { optional: &["NOMINAL", "BORROWED", "USED"], ..Narrow::default() });
    let roots = root.map_or_else(|| forest.roots(), |root| vec![root]);
    for node in roots.iter().flat_map(|root| forest.nodes(root, None, look.utf8)) {
        let share = node.share;
        let mut cells = vec![format!("{}{}", node.lead, node.name)];
        if first.is_some() {
            cells.push(share.map_or_else(|| "-".to_owned(), |share| share.weight.clone()));
        }
        if let Some(shown) = shown {
            let quota = quota_of(node.quota, shown);
            cells.extend([
                amount(quota.map(|quota| &quota.nominal)),
                amount(quota.map(|quota| &quota.used)),
                amount(quota.map(|quota| &quota.borrowed)),
            ]);
        }
        if first.is_none() {
            table.push(cells);
            continue;
        }
        cells.extend([
            or_dash(share.and_then(|share| share.dominant_resource.as_deref()).unwrap_or_default()),
            share.map_or_else(|| "-".to_owned(), |share| share.value.to_string()),
            share.and_then(|share| share.next).map(|next| next.to_string()).unwrap_or_default(),
        ]);
        table.push(cells);
    }
    let says = match first.map(|share| share.strategies.as_slice()) {
        None => "off; workloads are ordered by borrowing, priority and time".to_owned(),
        Some([]) => "on".to_owned(),
        Some(strategies) => format!("on; preemption strategies {}", strategies.join(", ")),
    };
    if table.is_empty() {
        return format!("fair sharing: {says}\n");
    }
    format!("fair sharing: {says}\n\n{}{}", line_above(shown, look), look.show(&table))
}

/// Returns the past usage of LocalQueues, by which admission fair sharing orders their workloads: the least first, unknown
/// usage last.
pub fn local_shares(queues: &[LocalQueueView], look: Look) -> String {
    if !queues.iter().any(|queue| queue.by_past_usage || queue.past_usage.is_some()) {
        return "admission fair sharing: off; LocalQueues of one ClusterQueue are not distinguished\n"
            .to_owned();
    }
    let columns = ["NAMESPACE", "NAME", "CLUSTERQUEUE"].map(|heading| (heading, Side::Left));
    let mut table =
        TextTable::new(columns.into_iter().chain([("PAST USAGE", Side::Right), ("PENDING", Side::Right)]));
    let mut ordered: Vec<&LocalQueueView> = queues.iter().collect();
    let by_usage = |a: &LocalQueueView, b: &LocalQueueView| match (a.past_usage, b.past_usage) {
        (Some(a), Some(b)) => a.order(b),
        (a, b) => a.is_none().cmp(&b.is_none()),
    };
    ordered.sort_by(|a, b| a.cluster_queue.cmp(&b.cluster_queue).then_with(|| by_usage(a, b)));
    for queue in ordered {
        table.push([
            queue.metadata.namespace.clone(),
            queue.metadata.name.clone(),
            or_dash(&queue.cluster_queue),
            queue.past_usage.map_or_else(|| "-".to_owned(), |usage| usage.to_string()),
            queue.pending.total.to_string(),
        ]);
    }
    format!("admission fair sharing: on\n\n{}", look.show(&table))
}
