//! Removes the names of a namespace from the file.
//!
//! Invariants: amounts, times, ClusterQueues and priority classes stay, so that the sums of queues do not change and still equal
//! their records; a record that lost its names keeps its key, so that the objects of the cluster do not bring the names back;
//! nothing but a part of the rows is in memory at once.

use super::{DAYS, HOURS, OPEN, RECORDS, Reading, StoreError, add_bytes, json, number_of, parsed};
use crate::record::periods::{Group, Sums};
use crate::record::rows::{OpenRow, RecordRow, timestamp};
use crate::visibility::history::{PURGED, PurgedRows};
use redb::{ReadableTable, TableDefinition, WriteTransaction};
use std::ops::Bound;
use std::sync::Arc;

/// Rows that are changed at once.
const CHUNK: usize = 1_000;

/// Removes the names, and records that and when this was done, but not of which namespace.
pub(super) fn purge(write: &WriteTransaction, namespace: &str, at: i64) -> Result<PurgedRows, StoreError> {
    let records = purge_records(write, namespace)?;
    let sums = purge_sums(write, HOURS, namespace)?.saturating_add(purge_sums(write, DAYS, namespace)?);
    let purged = PurgedRows { records, sums, running: running(&write.open_table(OPEN)?, namespace)? };
    if records > 0 || sums > 0 {
        let row = RecordRow {
            record: Arc::from("mark"),
            time: timestamp(at),
            result: Arc::from(format!("Purged {records} records and {sums} sums")),
            ..RecordRow::default()
        };
        let (key, value) = (format!("mark-{at}/{}", row.key()), json(&row));
        write.open_table(RECORDS)?.insert((number_of(&row.record), at, &*key), &*value)?;
        add_bytes(write, super::bytes_of(&key, &value))?;
    }
    Ok(purged)
}

/// Returns the number of changed records.
fn purge_records(write: &WriteTransaction, namespace: &str) -> Result<u64, StoreError> {
    let mut table = write.open_table(RECORDS)?;
    let (mut number, mut added) = (0_u64, 0_i64);
    let mut after: Option<(u8, i64, String)> = None;
    loop {
        let mut found = Vec::new();
        let start = match &after {
            Some((kind, time, key)) => Bound::Excluded((*kind, *time, key.as_str())),
            None => Bound::Unbounded,
        };
        for row in table.range((start, Bound::Unbounded))? {
            let (key, value) = row?;
            if let Some(row) = without_names(value.value(), namespace) {
                let (kind, time, key) = key.value();
                found.push(((kind, time, key.to_owned()), value.value().len(), json(&row)));
            }
            if found.len() >= CHUNK {
                break;
            }
        }
        let is_last = found.len() < CHUNK;
        let last = found.last().map(|(key, ..)| key.clone());
        for ((kind, time, key), length, value) in found {
            number = number.saturating_add(1);
            added = added.saturating_add(length_of(value.len())).saturating_sub(length_of(length));
            table.insert((kind, time, &*key), &*value)?;
        }
        if is_last {
            break;
        }
        after = last;
    }
    drop(table);
    add_bytes(write, added)?;
    Ok(number)
}

fn length_of(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Moves the sums of a namespace to the sums of all purged ones. Returns the number of moved rows.
fn purge_sums(
    write: &WriteTransaction,
    definition: TableDefinition<'_, (i64, &'static str), &'static [u8]>,
    namespace: &str,
) -> Result<u64, StoreError> {
    let mut table = write.open_table(definition)?;
    let mut number = 0_u64;
    let mut after: Option<(i64, String)> = None;
    loop {
        let mut found = Vec::new();
        let start = match &after {
            Some((time, key)) => Bound::Excluded((*time, key.as_str())),
            None => Bound::Unbounded,
        };
        for row in table.range((start, Bound::Unbounded))? {
            let (key, value) = row?;
            let (time, text) = key.value();
            let Some(group) = Group::parse(text).filter(|group| group.namespace == namespace) else {
                continue;
            };
            let moved = Group { namespace: PURGED, local_queue: "", ..group }.key();
            if let Some(sums) = parsed::<Sums>(value.value()) {
                found.push(((time, text.to_owned()), moved, sums));
            }
            if found.len() >= CHUNK {
                break;
            }
        }
        let is_last = found.len() < CHUNK;
        let last = found.last().map(|(key, ..)| key.clone());
        for ((time, key), moved, sums) in found {
            number = number.saturating_add(1);
            table.remove((time, &*key))?;
            let known = table.get((time, &*moved))?.and_then(|row| parsed::<Sums>(row.value()));
            let mut all = known.unwrap_or_default();
            all.add(&sums);
            table.insert((time, &*moved), &*json(&all))?;
        }
        if is_last {
            return Ok(number);
        }
        after = last;
    }
}

/// Returns the row of a record without the names of a namespace; `None` if it has none of them.
fn without_names(value: &[u8], namespace: &str) -> Option<RecordRow> {
    // Most rows are of other namespaces, and reading them takes long.
    let quoted = format!("\"{namespace}\"");
    if !std::str::from_utf8(value).is_ok_and(|text| text.contains(&quoted)) {
        return None;
    }
    let mut row = parsed::<RecordRow>(value)?;
    let mut has_name = false;
    if *row.workload.namespace == *namespace {
        has_name = true;
        let workload = &mut row.workload;
        (workload.namespace, workload.name) = (Arc::from(PURGED), Arc::from(PURGED));
        (workload.job_kind, workload.job) = (Arc::default(), Arc::default());
        workload.local_queue = Arc::default();
    }
    if let Some(preemption) = row.preemption.as_mut().filter(|known| *known.namespace == *namespace) {
        (preemption.namespace, preemption.name) = (Arc::from(PURGED), Arc::from(PURGED));
        preemption.uid = Arc::default();
        has_name = true;
    }
    row.purged |= has_name;
    has_name.then_some(row)
}

/// Returns the number of open runs of a namespace.
fn running(
    open: &impl ReadableTable<&'static str, &'static [u8]>,
    namespace: &str,
) -> Result<u64, StoreError> {
    let mut number = 0_u64;
    for row in open.iter()? {
        let run = parsed::<OpenRow>(row?.1.value());
        number =
            number.saturating_add(u64::from(run.is_some_and(|run| *run.workload.namespace == *namespace)));
    }
    Ok(number)
}

impl Reading {
    /// Returns how many rows have names of a namespace.
    pub(in crate::record) fn names_of(&self, namespace: &str) -> Result<PurgedRows, StoreError> {
        let mut found = PurgedRows::default();
        for row in self.0.open_table(RECORDS)?.iter()? {
            let has_name = without_names(row?.1.value(), namespace).is_some();
            found.records = found.records.saturating_add(u64::from(has_name));
        }
        for definition in [HOURS, DAYS] {
            for row in self.0.open_table(definition)?.iter()? {
                let row = row?;
                let group = Group::parse(row.0.value().1);
                let has_name = group.is_some_and(|group| group.namespace == namespace);
                found.sums = found.sums.saturating_add(u64::from(has_name));
            }
        }
        found.running = running(&self.0.open_table(OPEN)?, namespace)?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::changes::{Changes, NewRecord};
    use crate::record::rows::{PreemptionRow, WorkloadRow};
    use crate::record::store::{CommitAt, CommitId, Store};
    use jiff::Timestamp;

    fn workload(uid: &str, owner: &str) -> WorkloadRow {
        let of = |what: &str| Arc::from(format!("{owner}-{what}"));
        WorkloadRow {
            uid: Arc::from(uid),
            namespace: of("ns"),
            name: of("name"),
            job_kind: Arc::from("Job"),
            job: of("job"),
            local_queue: of("lq"),
            cluster_queue: Arc::from("cq"),
            priority_class: Arc::from("high"),
            priority: 7,
        }
    }

    fn record(number: i64, owner: &str, preemptor: Option<&str>) -> NewRecord {
        let workload = workload(&format!("uid-{number}"), owner);
        let mut sums = Sums::default();
        sums.used.add(number.into());
        let key = Group { flavor: "f", resource: "cpu", ..Group::of(&workload) }.key();
        let preemption = preemptor.map(|owner| PreemptionRow {
            reason: Arc::from("InClusterQueue"),
            uid: Arc::from("uid-of-preemptor"),
            namespace: Arc::from(format!("{owner}-ns")),
            name: Arc::from(format!("{owner}-name")),
            cluster_queue: Arc::from("other"),
            priority: Some(9),
        });
        let row = RecordRow {
            record: Arc::from("eviction"),
            time: timestamp(number),
            workload,
            preemption,
            ..RecordRow::default()
        };
        NewRecord { row, adds: vec![((0, key), sums)], ..NewRecord::default() }
    }

    fn at(number: i64) -> CommitAt {
        CommitAt { id: CommitId { number, writer: 1 }, now: 10_000_000, until: None }
    }

    /// All keys and values with names.
    fn contents(store: &Store) -> Vec<String> {
        let reading = store.reading().unwrap();
        let mut all = Vec::new();
        for row in reading.0.open_table(RECORDS).unwrap().iter().unwrap() {
            let (key, value) = row.unwrap();
            all.push(format!("{} {}", key.value().2, String::from_utf8_lossy(value.value())));
        }
        for definition in [HOURS, DAYS] {
            for row in reading.0.open_table(definition).unwrap().iter().unwrap() {
                let (key, value) = row.unwrap();
                all.push(format!("{} {}", key.value().1, String::from_utf8_lossy(value.value())));
            }
        }
        all
    }

    fn used(store: &Store) -> i128 {
        let mut used = 0;
        store.reading().unwrap().sums(false, i64::MIN, i64::MAX, |_, _, sums| used += sums.used.0).unwrap();
        used
    }

    /// More rows than are changed at once.
    #[test]
    fn no_name_of_the_namespace_is_left_and_the_others_are() {
        let path = std::env::temp_dir().join(format!("sluice-purge-{}.redb", std::process::id()));
        let (mut store, _) = Store::open(&path, Timestamp::UNIX_EPOCH).unwrap();
        let mut records: Vec<NewRecord> = (1..=2_500).map(|number| record(number, "secret", None)).collect();
        records.push(record(2_501, "kept", Some("secret")));
        records.push(record(2_502, "kept", Some("kept")));
        store.commit(&Changes { records: records.clone(), ..Changes::default() }, at(1)).unwrap();
        let (before, counted) = (used(&store), store.reading().unwrap().names_of("secret-ns").unwrap());
        assert_eq!((counted.records, counted.sums, counted.running), (2_501, 2, 0));
        let purge = || Changes { purge: Some(Arc::from("secret-ns")), ..Changes::default() };
        let done = store.commit(&purge(), at(2)).unwrap();
        assert_eq!((done.purged, done.conflicts), (counted, 0));
        assert_eq!(used(&store), before);
        let all = contents(&store);
        assert!(!all.iter().any(|row| row.contains("secret")), "{all:?}");
        let preemptors = all.iter().filter(|row| row.contains("uid-of-preemptor")).count();
        assert_eq!(preemptors, 1, "that of the other namespace");
        assert_eq!(all.iter().filter(|row| row.contains("kept-ns")).count(), 4, "2 records and 2 sums");
        assert!(all.iter().any(|row| row.contains("Purged 2501 records and 2 sums")));
        // The same records, as the first lists show them again.
        let again = Changes { records, ..Changes::default() };
        assert_eq!(store.commit(&again, at(3)).unwrap().conflicts, 0);
        assert!(!contents(&store).iter().any(|row| row.contains("secret")));
        assert_eq!(used(&store), before);
        assert_eq!(store.commit(&purge(), at(4)).unwrap().purged, PurgedRows::default());
        std::fs::remove_file(path).unwrap();
    }
}
