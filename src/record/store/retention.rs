//! Retention: drops records, sums and gaps that are too old, and records beyond the size limit.
//!
//! Invariants: sums outlive their records; one transaction drops a bounded number of rows; freed space is used again; age is
//! counted from the newest record, not from the clock alone; dropped time does not count as recorded; no time at which recording
//! begins or ends lies ahead.

use super::{
    BY_WORKLOAD, BYTES, DAYS, DAYS_FROM, GAPS, HOURS, HOURS_FROM, META, RECORDS, RECORDS_FROM, StoreError,
    add_bytes, bytes_of, json, parsed,
};
use crate::history::Gap;
use crate::record::periods::DAY;
use jiff::Timestamp;
use redb::{ReadableTable, WriteTransaction};

/// Retention of records, in milliseconds.
const KEEP_RECORDS: i64 = 31 * DAY;
/// Retention of sums by hour, in milliseconds.
pub(in crate::record) const KEEP_HOURS: i64 = 100 * DAY;
/// Retention of sums by day, in milliseconds.
pub(in crate::record) const KEEP_DAYS: i64 = 3 * 365 * DAY;
/// Maximum size of all records, in bytes. Beyond it the oldest day is dropped first. With the pages of the tree and the sums the
/// file takes half as much again, at most 8 GiB.
pub(super) const MAX_BYTES: i64 = 5 << 30;
/// Maximum number of rows that one transaction drops, so that none takes long.
const MAX_DROPPED: usize = 20_000;

/// Drops expired rows, up to a number of rows, and the oldest day of records if they take more than `limit` bytes. Freed pages
/// are used again, so that the file does not grow. Returns whether more rows must be dropped.
pub(super) fn drop_old(write: &WriteTransaction, now: i64, limit: i64) -> Result<bool, StoreError> {
    // A clock that is ahead deletes nothing: retention counts back from the newest record.
    let newest = newest_record(write)?;
    let now = newest.map_or(i64::MIN, |newest| newest.min(now));
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
    note_kept(write, RECORDS_FROM, before)?;
    for (definition, name, kept) in [(HOURS, HOURS_FROM, KEEP_HOURS), (DAYS, DAYS_FROM, KEEP_DAYS)] {
        let before = now.saturating_sub(kept);
        write.open_table(definition)?.retain_in((i64::MIN, "")..(before, ""), |_, _| false)?;
        note_kept(write, name, before)?;
    }
    write.open_table(GAPS)?.retain_in(..now.saturating_sub(KEEP_DAYS), |_, _| false)?;
    Ok(more || left > limit && freed > 0)
}

/// Records from when on records or sums are complete.
fn note_kept(write: &WriteTransaction, name: &str, before: i64) -> Result<(), StoreError> {
    let mut meta = write.open_table(META)?;
    let known = meta.get(name)?.map_or(i64::MIN, |from| from.value());
    meta.insert(name, known.max(before))?;
    Ok(())
}

/// Returns the time of the oldest record.
fn oldest_record(write: &WriteTransaction) -> Result<Option<i64>, StoreError> {
    Ok(ends_of_records(write)?.into_iter().map(|(oldest, _)| oldest).min())
}

/// Returns the time of the newest record.
fn newest_record(write: &WriteTransaction) -> Result<Option<i64>, StoreError> {
    Ok(ends_of_records(write)?.into_iter().map(|(_, newest)| newest).max())
}

/// Returns the times of the oldest and the newest record of each kind.
fn ends_of_records(write: &WriteTransaction) -> Result<Vec<(i64, i64)>, StoreError> {
    let records = write.open_table(RECORDS)?;
    let mut ends = Vec::new();
    for kind in 0..=4_u8 {
        let mut rows = records.range((kind, i64::MIN, "")..(kind.saturating_add(1), i64::MIN, ""))?;
        if let Some(oldest) = rows.next() {
            let (_, oldest, _) = oldest?.0.value();
            let newest = match rows.next_back() {
                Some(newest) => newest?.0.value().1,
                None => oldest,
            };
            ends.push((oldest, newest));
        }
    }
    Ok(ends)
}

/// Brings times that lie ahead, because the clock did when they were written, back to `now`: begin and end of recording, and
/// gaps.
pub(super) fn bound_times(write: &WriteTransaction, now: i64) -> Result<(), StoreError> {
    let mut meta = write.open_table(META)?;
    for name in ["from", "until", "closed", RECORDS_FROM, HOURS_FROM, DAYS_FROM] {
        if meta.get(name)?.is_some_and(|at| at.value() > now) {
            meta.insert(name, now)?;
        }
    }
    let mut gaps = write.open_table(GAPS)?;
    let mut ahead = Vec::new();
    for row in gaps.iter()? {
        let (start, row) = row?;
        ahead.extend(
            parsed::<Gap>(row.value())
                .filter(|gap| gap.end.as_millisecond() > now)
                .map(|gap| (start.value(), gap)),
        );
    }
    for (start, gap) in ahead {
        gaps.remove(start)?;
        if let Some(end) = Timestamp::from_millisecond(now).ok().filter(|_| start < now) {
            gaps.insert(start, &*json(&Gap { end, ..gap }))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::RecordKind;
    use crate::record::changes::{Changes, NewRecord};
    use crate::record::rows::{RecordRow, timestamp};
    use crate::record::store::{CommitAt, CommitId, Store};
    use jiff::Timestamp;
    use std::sync::Arc;

    fn record(uid: &str, time: i64) -> NewRecord {
        let mut row =
            RecordRow { record: Arc::from("finish"), time: timestamp(time), ..RecordRow::default() };
        row.workload.uid = Arc::from(uid);
        NewRecord { row, ..NewRecord::default() }
    }

    fn at(day: i64, number: i64) -> CommitAt {
        CommitAt { id: CommitId { number, writer: 1 }, now: day * DAY, until: Some(day * DAY) }
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
        let (mut store, _) = Store::open(&path, Timestamp::UNIX_EPOCH).unwrap();
        let records = (0..=40).map(|day| record(&format!("uid-{day}"), day * DAY)).collect();
        store.commit(&Changes { records, ..Changes::default() }, at(40, 1)).unwrap();
        assert_eq!(kept(&store), 41, "nothing is dropped before an hour ends");
        let hour = || Changes { hours: vec![(40 * DAY, Vec::new())], ..Changes::default() };
        store.commit(&hour(), at(40, 2)).unwrap();
        assert_eq!(kept(&store), 32);
        let times = store.reading().unwrap().times().unwrap();
        assert_eq!(times.records_from, Some(9 * DAY), "since when records are complete");
        let write = store.database().unwrap().begin_write().unwrap();
        drop_old(&write, 40 * DAY, 0).unwrap();
        write.commit().unwrap();
        assert_eq!(kept(&store), 31, "too large: the oldest day goes");
        store.commit(&hour(), at(4_000, 3)).unwrap();
        assert_eq!(kept(&store), 31, "a clock that is ahead drops nothing");
        let records = vec![record("last", 400 * DAY)];
        store.commit(&Changes { records, ..hour() }, at(400, 4)).unwrap();
        assert_eq!(kept(&store), 1);
        let times = store.reading().unwrap().times().unwrap();
        assert_eq!((times.records_from, times.hours_from), (Some(369 * DAY), Some(300 * DAY)));
        assert_eq!(times.days_from, Some(400 * DAY - KEEP_DAYS));
        let write = store.database().unwrap().begin_write().unwrap();
        let left = write.open_table(BY_WORKLOAD).unwrap().iter().unwrap().count();
        assert_eq!(left, 1, "nor is the index of others kept");
        drop(write);
        std::fs::remove_file(path).unwrap();
    }
}
