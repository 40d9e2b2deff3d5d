//! Text of `list workload`.

use super::Look;
use super::amount::ResourceNames;
use super::time::since;
use crate::people::text_table::{Narrow, Side, TextTable, Tone};
use crate::visibility::views::{BlockerView, ViewMetadata, WorkloadState, WorkloadView};

/// Returns the table. `namespaces` adds the namespace of each row.
pub fn workloads(rows: &[WorkloadView], namespaces: bool, look: Look) -> String {
    let resources = rows.iter().flat_map(|row| row.needs.iter().map(|need| need.resource.as_str()));
    let names = ResourceNames::of(resources);
    let waits = rows.iter().filter(|row| row.state == WorkloadState::Pending).count();
    let time = match waits {
        0 if !rows.is_empty() => "RUN",
        waits if waits == rows.len() => "WAIT",
        _ => "WAIT/RUN",
    };
    let mut columns = vec![
        ("NAME", Side::Left),
        ("STATE", Side::Left),
        (time, Side::Right),
        ("POS", Side::Right),
        ("PRIO", Side::Right),
        ("NEEDS", Side::Right),
        ("REASON", Side::Left),
    ];
    if namespaces {
        columns.insert(0, ("NAMESPACE", Side::Left));
    }
    if look.wide {
        let more = ["JOB", "LOCALQUEUE", "CLUSTERQUEUE", "FLAVOR", "AGE", "BLOCKED BY"];
        columns.extend(more.map(|heading| (heading, Side::Left)));
    }
    if look.labels {
        columns.push(("LABELS", Side::Left));
    }
    let mut table = TextTable::new(columns);
    // WAIT says that all are pending, so that their state may be omitted. The reason is kept: it is what users read a list for.
    let constant: &'static [&'static str] = if time == "WAIT" { &["PRIO", "STATE"] } else { &["PRIO"] };
    table.when_narrow(Narrow { last: Some("NEEDS"), constant, optional: &["PRIO", "NEEDS"] });
    for row in rows {
        let mut cells = vec![
            row.metadata.name.clone(),
            row.state.as_str().to_owned(),
            since(row.since, look),
            row.position.map_or_else(|| "-".to_owned(), |position| position.cluster_queue.to_string()),
            row.priority.to_string(),
            names.need(&row.needs),
            // A reason that only repeats the state is left out.
            or_dash(if row.reason == row.state.as_str() { "" } else { &row.reason }),
        ];
        if namespaces {
            cells.insert(0, row.metadata.namespace.clone());
        }
        if look.wide {
            cells.extend(wide(row, look));
        }
        if look.labels {
            cells.push(label_text(&row.metadata));
        }
        table.push_toned(cells, usize::from(namespaces) + 1, tone(row.state));
    }
    look.show(&table)
}

/// Returns labels as kubectl prints them.
pub(super) fn label_text(metadata: &ViewMetadata) -> String {
    let labels: Vec<String> = metadata.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if labels.is_empty() { "<none>".to_owned() } else { labels.join(",") }
}

fn wide(row: &WorkloadView, look: Look) -> [String; 6] {
    let job = row.job.as_ref().map(|job| format!("{}/{}", job.kind.to_lowercase(), job.name));
    let mut flavors: Vec<&str> =
        row.needs.iter().map(|need| need.flavor.as_str()).filter(|flavor| !flavor.is_empty()).collect();
    flavors.dedup();
    [
        job.unwrap_or_else(|| "-".to_owned()),
        or_dash(&row.local_queue),
        or_dash(&row.cluster_queue),
        or_dash(&flavors.join(",")),
        since(row.metadata.creation_timestamp, look),
        row.first_blocker.as_ref().map_or_else(|| or_dash(row.pending_message()), blocked_by),
    ]
}

/// Returns a blocker in one line.
pub(in crate::people) fn blocked_by(blocker: &BlockerView) -> String {
    match &blocker.missing {
        Some(missing) if !blocker.resource.is_empty() => {
            format!("{} {} missing at {}", missing.value, blocker.resource, node(&blocker.node))
        }
        _ => or_dash(&blocker.text),
    }
}

/// Returns a node of the quota tree: `ClusterQueue nlp` for `ClusterQueue/nlp`.
pub(super) fn node(text: &str) -> String {
    or_dash(&text.replacen('/', " ", 1))
}

pub(super) fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

const fn tone(state: WorkloadState) -> Tone {
    match state {
        WorkloadState::Pending | WorkloadState::QuotaReserved => Tone::Waiting,
        WorkloadState::Admitted => Tone::Good,
        WorkloadState::Evicted => Tone::Bad,
        WorkloadState::Finished => Tone::Plain,
    }
}
