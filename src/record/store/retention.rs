//! What is dropped: records, sums and gaps that are too old, and records that are too many.
//!
//! Invariants: sums outlive the records that they were made of; one transaction drops a bounded number of records; the space of what is
//! dropped is used again.

use super::{
    BY_WORKLOAD, BYTES, DAYS, GAPS, HOURS, META, RECORDS, RECORDS_FROM, StoreError, add_bytes, bytes_of,
};
use crate::record::periods::DAY;
use redb::{ReadableTable, WriteTransaction};

/// How long records are kept, in milliseconds.
const KEEP_RECORDS: i64 = 31 * DAY;
/// How long sums by hour are kept.
pub(in crate::record) const KEEP_HOURS: i64 = 100 * DAY;
/// How long sums by day are kept.
pub(in crate::record) const KEEP_DAYS: i64 = 3 * 365 * DAY;
/// Most bytes of records, beyond which the oldest day goes first. With the pages of the tree and the sums the file takes half as much
/// again, at most 8 GiB.
pub(super) const MAX_BYTES: i64 = 5 << 30;
/// Most rows that one transaction drops, so that none takes long.
const MAX_DROPPED: usize = 20_000;

/// Drops what is too old, up to a number of rows, and the oldest day of records if they take more than `limit` bytes: pages that are
/// freed are used again, and the file does not grow.
/// Returns whether there is more to drop.
pub(super) fn drop_old(write: &WriteTransaction, now: i64, limit: i64) -> Result<bool, StoreError> {
    let mut before = now.saturating_sub(KEEP_RECORDS);
    let bytes = write.open_table(META)?.get(BYTES)?.map_or(0, |bytes| bytes.value());
    if bytes > limit
        && let Some(oldest) = oldest_record(write)?
    {
        before = before.max(oldest.saturating_add(DAY));
    }
    let mut records = write.open_table(RECORDS)?;
    let mut index = write.open_table(BY_WORKLOAD)?;
    let (mut freed, mut more) = (0_i64, false);
    for kind in 0..=4_u8 {
        let mut old = Vec::new();
        for row in records.range((kind, i64::MIN, "")..(kind, before, ""))?.take(MAX_DROPPED) {
            let row = row?;
            let (_, time, key) = row.0.value();
            freed = freed.saturating_add(bytes_of(key, row.1.value()));
            old.push((time, key.to_owned()));
        }
        more |= old.len() >= MAX_DROPPED;
        for (time, key) in old {
            records.remove((kind, time, &*key))?;
            if let Some((uid, rest)) = key.split_once('/') {
                index.remove((uid, rest))?;
            }
        }
    }
    let left = add_bytes(write, freed.saturating_neg())?;
    note_kept(write, before)?;
    for (definition, kept) in [(HOURS, KEEP_HOURS), (DAYS, KEEP_DAYS)] {
        let mut table = write.open_table(definition)?;
        table.retain_in((i64::MIN, "")..(now.saturating_sub(kept), ""), |_, _| false)?;
    }
    write.open_table(GAPS)?.retain_in(..now.saturating_sub(KEEP_DAYS), |_, _| false)?;
    Ok(more || left > limit && freed > 0)
}

/// Notes since when records are complete.
fn note_kept(write: &WriteTransaction, before: i64) -> Result<(), StoreError> {
    let mut meta = write.open_table(META)?;
    let known = meta.get(RECORDS_FROM)?.map_or(i64::MIN, |from| from.value());
    meta.insert(RECORDS_FROM, known.max(before))?;
    Ok(())
}

/// Returns the time of the oldest record.
fn oldest_record(write: &WriteTransaction) -> Result<Option<i64>, StoreError> {
    let records = write.open_table(RECORDS)?;
    let mut oldest = None;
    for kind in 0..=4_u8 {
        if let Some(row) = records.range((kind, i64::MIN, "")..(kind.saturating_add(1), i64::MIN, ""))?.next()
        {
            let (_, time, _) = row?.0.value();
            oldest = Some(oldest.map_or(time, |known: i64| known.min(time)));
        }
    }
    Ok(oldest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::RecordKind;
    use crate::record::changes::{Changes, NewRecord};
    use crate::record::rows::{RecordRow, timestamp};
    use crate::record::store::{CommitAt, Store};
    use jiff::Timestamp;
    use std::sync::Arc;

    fn record(uid: &str, time: i64) -> NewRecord {
        let mut row =
            RecordRow { record: Arc::from("finish"), time: timestamp(time), ..RecordRow::default() };
        row.workload.uid = Arc::from(uid);
        NewRecord { row, adds: Vec::new() }
    }

    fn at(day: i64, number: i64) -> CommitAt {
        CommitAt { number, now: day * DAY, until: Some(day * DAY) }
    }

    fn kept(store: &Store) -> usize {
        let mut kept = 0;
        let count = |_| {
            kept += 1;
            true
        };
        store.reading().unwrap().newest_records(RecordKind::Finish, i64::MIN, count).unwrap();
        kept
    }

    #[test]
    fn old_records_go_by_age_and_by_size() {
        let path = std::env::temp_dir().join(format!("sluice-store-{}.redb", std::process::id()));
        let (store, _) = Store::open(&path, Timestamp::UNIX_EPOCH).unwrap();
        let records = (0..40).map(|day| record(&format!("uid-{day}"), day * DAY)).collect();
        store.commit(&Changes { records, ..Changes::default() }, at(40, 1)).unwrap();
        assert_eq!(kept(&store), 40, "nothing is dropped before an hour ends");
        let hour = || Changes { hours: vec![(40 * DAY, Vec::new())], ..Changes::default() };
        store.commit(&hour(), at(40, 2)).unwrap();
        assert_eq!(kept(&store), 31);
        let times = store.reading().unwrap().times().unwrap();
        assert_eq!(times.records_from, Some(9 * DAY), "since when records are complete");
        let write = store.database().unwrap().begin_write().unwrap();
        drop_old(&write, 40 * DAY, 0).unwrap();
        write.commit().unwrap();
        assert_eq!(kept(&store), 30, "too large: the oldest day goes");
        store.commit(&hour(), at(400, 3)).unwrap();
        let write = store.database().unwrap().begin_write().unwrap();
        assert!(
            write.open_table(BY_WORKLOAD).unwrap().iter().unwrap().next().is_none(),
            "nor is its index kept"
        );
        drop(write);
        std::fs::remove_file(path).unwrap();
    }
}
