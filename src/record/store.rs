//! The file: tables and transactions. All calls of the database are here.
//!
//! Invariants: a transaction lands as a whole or not at all; a record with a known key changes nothing, and a completed record
//! replaces itself; a file that cannot be read is moved aside, never deleted; one process owns the file from its start to its
//! end, and a commit follows on one that it knows.

mod attribution;
mod disk;
mod exports;
#[cfg(test)]
pub(super) mod faults;
mod opening;
mod purge;
mod reading;
mod retention;

use super::changes::{Changes, NewRecord};
use super::periods::{HOUR, Sums, day_of};
use super::rows::{OpenRow, RecordRow};
use crate::visibility::history::PurgedRows;
use jiff::Timestamp;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use attribution::attribute;
use disk::LockedFile;
pub use opening::OpenError;
pub(super) use opening::is_damage;
use opening::{guarded, set_aside};
use purge::purge;
pub(super) use reading::Reading;
pub(super) use retention::{KEEP_DAYS, KEEP_HOURS};
use retention::{MAX_BYTES, bound_times, drop_old};

/// Records by kind, time and key.
const RECORDS: TableDefinition<'_, (u8, i64, &str), &[u8]> = TableDefinition::new("records");
/// Times of the records of a workload, by its UID and their keys.
const BY_WORKLOAD: TableDefinition<'_, (&str, &str), (u8, i64)> = TableDefinition::new("by_workload");
/// Open runs by UID.
const OPEN: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("open");
/// Sums by hour and group.
const HOURS: TableDefinition<'_, (i64, &str), &[u8]> = TableDefinition::new("rollup_hour");
/// Sums by day and group.
const DAYS: TableDefinition<'_, (i64, &str), &[u8]> = TableDefinition::new("rollup_day");
/// Gaps by their start.
const GAPS: TableDefinition<'_, i64, &[u8]> = TableDefinition::new("gaps");
/// The format, the times from and until which it records, and the last closed hour.
const META: TableDefinition<'_, &str, i64> = TableDefinition::new("meta");

/// Number of the last commit, in `META`.
const COMMITS: &str = "commits";
/// Process that made the last commit, in `META`.
const WRITER: &str = "writer";
/// Memory for pages of the file, in bytes. The default of the database exceeds the memory limit of the process.
const CACHE_BYTES: usize = 32 << 20;
/// Time from which on records are stored, in `META`.
const RECORDS_FROM: &str = "recordsFrom";
/// Time from which on sums by hour are stored, in `META`.
const HOURS_FROM: &str = "hoursFrom";
/// Time from which on sums by day are stored, in `META`.
const DAYS_FROM: &str = "daysFrom";
/// Whether more rows must be dropped, in `META`.
const DROPPING: &str = "dropping";
/// Bytes of the records, in `META`.
const BYTES: &str = "recordBytes";
/// Number of this format.
const FORMAT: i64 = 1;

/// Why a transaction failed.
pub(super) type StoreError = redb::Error;

/// The file of a record.
pub(super) struct Store {
    /// The open database; `None` after a failed write, until it can be opened again.
    database: Option<Database>,
    file: LockedFile,
    path: PathBuf,
}

/// Name of a commit: no two processes make the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CommitId {
    /// Number of the commit in the file.
    pub(super) number: i64,
    /// Number of the process that made it.
    pub(super) writer: i64,
}

/// Times of a record, in milliseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// When it began to record.
    pub(super) from: Option<i64>,
    /// Time until which it is complete.
    pub(super) until: Option<i64>,
    /// End of the last hour whose borrowed parts are known.
    pub(super) closed: Option<i64>,
    /// Time from which on records are stored; `None` if none was dropped.
    pub(super) records_from: Option<i64>,
    /// Time from which on sums by hour are stored; `None` if none was dropped.
    pub(super) hours_from: Option<i64>,
    /// Time from which on sums by day are stored; `None` if none was dropped.
    pub(super) days_from: Option<i64>,
}

/// Name and times of a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommitAt {
    /// Name of the commit.
    pub(super) id: CommitId,
    /// Time of the commit, in milliseconds since the epoch.
    pub(super) now: i64,
    /// Time until which all events are known; `None` if it is not known now.
    pub(super) until: Option<i64>,
}

/// What a transaction did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Committed {
    /// Number of records whose key was known with other content.
    pub(super) conflicts: u64,
    /// Rows that lost their names.
    pub(super) purged: PurgedRows,
}

/// Content of a file that its recorder keeps in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    pub(super) runs: Vec<OpenRow>,
    pub(super) times: Times,
    pub(super) last: CommitId,
}

impl Store {
    /// Opens a file, or creates it. A damaged file is moved aside.
    ///
    /// # Errors
    /// If the file is open in another process, has a later format, or cannot be written.
    pub(super) fn open(path: &Path, now: Timestamp) -> Result<(Self, Contents), OpenError> {
        match Self::open_and_read(path) {
            Err(OpenError::Damaged { reason, .. }) if path.exists() => {
                set_aside(path, now, &reason)?;
                Self::open_and_read(path)
            }
            opened => opened,
        }
    }

    fn open_and_read(path: &Path) -> Result<(Self, Contents), OpenError> {
        let file = guarded(path, || Ok(LockedFile::open(path)?))?;
        let database = Some(open_database(&file, path)?);
        let mut store = Self { database, file, path: path.to_owned() };
        let contents = guarded(path, || {
            let runs = store.open_runs()?;
            let reading = store.reading()?;
            Ok(Contents { runs, times: reading.times()?, last: reading.last_commit()? })
        })?;
        store.file.note_known();
        Ok((store, contents))
    }

    /// Moves the damaged file aside.
    pub(super) fn set_aside(&mut self, now: Timestamp, reason: &str) -> Result<(), OpenError> {
        self.close();
        set_aside(&self.path, now, reason)
    }

    /// Returns whether the file still belongs to this process: it is the file at its path, in the state of the last commit.
    pub(super) fn is_own(&self) -> Result<bool, StoreError> {
        // A failed write may have changed the header: the last commit is compared when the database is open again.
        Ok(self.file.is_own(self.database.is_some())?)
    }

    /// Writes nothing more to the file, which belongs to another process now.
    pub(super) fn give_up(&self) {
        self.file.give_up();
    }

    /// Opens the database again, if it is not open. Returns the last commit in it if it was opened.
    pub(super) fn reopen(&mut self) -> Result<Option<CommitId>, OpenError> {
        if self.database.is_some() {
            return Ok(None);
        }
        let database = open_database(&self.file, &self.path)?;
        let last = guarded(&self.path, || Reading(database.begin_read()?).last_commit())?;
        self.database = Some(database);
        self.file.note_known();
        Ok(Some(last))
    }

    /// Closes the database, and keeps the file: after a failed write the database refuses all calls until it is opened again.
    pub(super) fn close(&mut self) {
        self.database = None;
    }

    fn database(&self) -> Result<&Database, StoreError> {
        self.database.as_ref().ok_or(redb::Error::PreviousIo)
    }

    /// Returns whether the database is open, so that a commit need not settle what became of a failed one.
    pub(super) const fn is_open(&self) -> bool {
        self.database.is_some()
    }

    /// Commits changes.
    pub(super) fn commit(&mut self, changes: &Changes, at: CommitAt) -> Result<Committed, StoreError> {
        let mut write = self.database()?.begin_write()?;
        // After a kill the file is ready immediately, whatever its size.
        write.set_quick_repair(true);
        let mut sums = changes.sums.clone();
        let conflicts = put_records(&write, &changes.records, &mut sums)?;
        {
            let mut open = write.open_table(OPEN)?;
            for (uid, run) in &changes.runs {
                match run {
                    Some(run) => drop(open.insert(&**uid, &*json(run))?),
                    None => drop(open.remove(&**uid)?),
                }
            }
        }
        add_sums(&write, &sums)?;
        for (start, queues) in &changes.hours {
            attribute(&write, *start, queues)?;
        }
        let purged = changes.purge.as_ref().map(|namespace| purge(&write, namespace, at.now)).transpose()?;
        if let Some(gap) = &changes.gap {
            write.open_table(GAPS)?.insert(gap.start.as_millisecond(), &*json(gap))?;
        }
        let dropping = write.open_table(META)?.get(DROPPING)?.is_some_and(|more| more.value() != 0);
        if dropping || !changes.hours.is_empty() {
            let more = drop_old(&write, at.now, MAX_BYTES)?;
            write.open_table(META)?.insert(DROPPING, i64::from(more))?;
        }
        if changes.began {
            bound_times(&write, at.now)?;
        }
        {
            let mut meta = write.open_table(META)?;
            if meta.get("from")?.is_none() {
                meta.insert("from", at.now)?;
            }
            if let Some(until) = at.until {
                meta.insert("until", until)?;
            }
            meta.insert(COMMITS, at.id.number)?;
            meta.insert(WRITER, at.id.writer)?;
            if let Some((start, _)) = changes.hours.last() {
                meta.insert("closed", start.saturating_add(HOUR))?;
            }
        }
        write.commit()?;
        self.file.note_known();
        Ok(Committed { conflicts, purged: purged.unwrap_or_default() })
    }

    fn open_runs(&self) -> Result<Vec<OpenRow>, StoreError> {
        let read = self.database()?.begin_read()?;
        let table = read.open_table(OPEN)?;
        let mut all = Vec::new();
        for row in table.iter()? {
            all.extend(parsed::<OpenRow>(row?.1.value()));
        }
        Ok(all)
    }

    /// Returns a reading of the last commit.
    pub(super) fn reading(&self) -> Result<Reading, StoreError> {
        Ok(Reading(self.database()?.begin_read()?))
    }
}

fn open_database(file: &LockedFile, path: &Path) -> Result<Database, OpenError> {
    let database = guarded(path, || Ok(file.database()?))?;
    match guarded(path, || prepare(&database))? {
        FORMAT => Ok(database),
        found => Err(OpenError::Later { path: path.to_owned(), found }),
    }
}

/// Creates the tables. Returns the format of the file.
fn prepare(database: &Database) -> Result<i64, StoreError> {
    let mut write = database.begin_write()?;
    write.set_quick_repair(true);
    let found = {
        let mut meta = write.open_table(META)?;
        let found = meta.get("format")?.map(|format| format.value());
        if found.is_none() {
            meta.insert("format", FORMAT)?;
        }
        found.unwrap_or(FORMAT)
    };
    write.open_table(RECORDS)?;
    write.open_table(BY_WORKLOAD)?;
    write.open_table(OPEN)?;
    write.open_table(HOURS)?;
    write.open_table(DAYS)?;
    write.open_table(GAPS)?;
    if found == FORMAT {
        write.commit()?;
    }
    Ok(found)
}

/// Returns the number by which kinds are ordered.
fn number_of(kind: &str) -> u8 {
    match kind {
        "segment" => 0,
        "wait" => 1,
        "eviction" => 2,
        "finish" => 3,
        _ => 4,
    }
}

fn json(row: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(row).unwrap_or_default()
}

/// Reads a row. An unreadable row is left out and logged.
pub(super) fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes)
        .inspect_err(|error| tracing::warn!(%error, "a row of the history cannot be read"))
        .ok()
}

/// Writes records, and adds the numbers of new ones to `sums`. Returns the number of records whose key was known with other
/// content.
fn put_records(
    write: &WriteTransaction,
    records: &[NewRecord],
    sums: &mut BTreeMap<(i64, String), Sums>,
) -> Result<u64, StoreError> {
    let mut table = write.open_table(RECORDS)?;
    let mut index = write.open_table(BY_WORKLOAD)?;
    let (mut conflicts, mut added) = (0_u64, 0_i64);
    let mut is_new = true;
    for NewRecord { row, adds, with_previous } in records {
        if *with_previous && !is_new {
            continue;
        }
        let (kind, time) = (number_of(&row.record), row.time.as_millisecond());
        let (uid, key) = (&*row.workload.uid, row.key());
        let known = index.get((uid, &*key))?.map(|at| at.value());
        let full_key = format!("{uid}/{key}");
        is_new = known.is_none();
        if let Some((known_kind, known_time)) = known {
            let known = table.get((known_kind, known_time, &*full_key))?;
            let known = known.and_then(|known| parsed::<RecordRow>(known.value()));
            // The first lists after a start show again what was recorded before.
            // One that lost its names does not get them back.
            let is_purged = known.as_ref().is_some_and(|known| known.purged);
            if row.origin.seeded || is_purged || known.as_ref() == Some(row) {
                continue;
            }
            let completed = known.is_some_and(|known| known.released.is_none() && known.time == row.time);
            // Another process may have observed other reasons: what fills a gap contradicts nothing, and completes evictions only.
            if !completed || row.origin.filled && row.released.is_none() {
                conflicts = conflicts.saturating_add(u64::from(!row.origin.filled));
                continue;
            }
        } else {
            index.insert((uid, &*key), (kind, time))?;
            for (at, change) in adds {
                sums.entry(at.clone()).or_default().add(change);
            }
        }
        let value = json(row);
        added = added.saturating_add(bytes_of(&full_key, &value));
        let replaced = table.insert((kind, time, &*full_key), &*value)?;
        let replaced = replaced.map_or(0, |before| bytes_of(&full_key, before.value()));
        added = added.saturating_sub(replaced);
    }
    add_bytes(write, added)?;
    Ok(conflicts)
}

/// Returns the bytes of a record, with its entry in the index.
fn bytes_of(key: &str, value: &[u8]) -> i64 {
    i64::try_from(key.len().saturating_mul(2).saturating_add(value.len()).saturating_add(32))
        .unwrap_or(i64::MAX)
}

/// Returns the bytes of all records after a change.
fn add_bytes(write: &WriteTransaction, change: i64) -> Result<i64, StoreError> {
    let mut meta = write.open_table(META)?;
    let known = meta.get(BYTES)?.map_or(0, |bytes| bytes.value());
    let bytes = known.saturating_add(change).max(0);
    meta.insert(BYTES, bytes)?;
    Ok(bytes)
}

/// Adds to the sums of hours and of their days.
fn add_sums(write: &WriteTransaction, sums: &BTreeMap<(i64, String), Sums>) -> Result<(), StoreError> {
    let mut days: BTreeMap<(i64, &str), Sums> = BTreeMap::new();
    for ((hour, group), change) in sums {
        days.entry((day_of(*hour), group)).or_default().add(change);
    }
    let hours = sums.iter().map(|((hour, group), change)| ((*hour, &**group), change));
    add_to(write, HOURS, hours)?;
    add_to(write, DAYS, days.iter().map(|(key, change)| (*key, change)))
}

fn add_to<'a>(
    write: &WriteTransaction,
    table: TableDefinition<'_, (i64, &'static str), &'static [u8]>,
    changes: impl Iterator<Item = ((i64, &'a str), &'a Sums)>,
) -> Result<(), StoreError> {
    let mut table = write.open_table(table)?;
    for (key, change) in changes.filter(|(_, change)| **change != Sums::default()) {
        let known = table.get(key)?.and_then(|row| parsed::<Sums>(row.value()));
        let mut sums = known.unwrap_or_default();
        sums.add(change);
        table.insert(key, &*json(&sums))?;
    }
    Ok(())
}
