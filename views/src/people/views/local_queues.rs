//! Text of `list localqueue`.

use super::Look;
use super::workloads::or_dash;
use crate::people::text_table::{Narrow, Side, TextTable, Tone};
use crate::visibility::views::LocalQueueView;

/// Returns the table. It shows the resources that the queue's own workloads use.
pub fn local_queues(rows: &[LocalQueueView], namespaces: bool, look: Look) -> String {
    let mut columns = vec![
        ("NAME", Side::Left),
        ("CLUSTERQUEUE", Side::Left),
        ("ACTIVE", Side::Left),
        ("PENDING", Side::Right),
        ("ADMITTED", Side::Right),
        ("USED", Side::Left),
    ];
    if namespaces {
        columns.insert(0, ("NAMESPACE", Side::Left));
    }
    let mut table = TextTable::new(columns);
    let constant: &'static [&'static str] =
        if rows.iter().all(|row| row.active) { &["ACTIVE", "CLUSTERQUEUE"] } else { &["CLUSTERQUEUE"] };
    table.when_narrow(Narrow { constant, optional: &["ADMITTED"], ..Narrow::default() });
    for row in rows {
        let used = row.quota.iter().filter(|quota| quota.used.value != "0");
        let used: Vec<String> =
            used.map(|quota| format!("{} {} {}", quota.used.value, quota.resource, quota.flavor)).collect();
        let mut cells = vec![
            row.metadata.name.clone(),
            row.cluster_queue.clone(),
            if row.active { "True" } else { "False" }.to_owned(),
            row.pending.total.to_string(),
            row.admitted.to_string(),
            or_dash(&used.join(", ")),
        ];
        if namespaces {
            cells.insert(0, row.metadata.namespace.clone());
        }
        table.push_toned(cells, usize::from(namespaces) + 2, if row.active { Tone::Good } else { Tone::Bad });
    }
    look.show(&table)
}
