//! The recorder: takes entries of the history, commits them, and answers from the last commit.
//!
//! Invariants: the open runs in memory equal the rows of the file; an answer sees both as of one commit; entries that were not
//! committed are given again, and a commit that failed but is in the file is not repeated; a commit follows on a commit of this
//! process, or on the one that it found: if another process has committed since, this process ends, because its open runs no
//! longer equal the rows of the file.

use super::changes::Changes;
use super::rows::OpenRow;
use super::runs::OpenRuns;
use super::store::{
    CommitAt, CommitId, Committed, Contents, OpenError, Reading, Store, StoreError, is_damage,
};
use crate::history::{Entry, Gap, HistoryView, RecordKind, RecordedUsage, RunState, StepSum, UsageQuery};
use crate::visibility::history::export::{ExportPage, ExportQuery};
use crate::visibility::history::{PurgeTopic, PurgedRows, ReadRecord};
use crate::visibility::page::ModelError;
use jiff::Timestamp;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of preemptions in an answer, the newest first.
const MAX_PREEMPTIONS: usize = 20_000;

/// Writes the record of one file.
pub struct Recorder {
    path: PathBuf,
    state: Mutex<State>,
    /// Held by the answer that reads the file: answers are made one after another, so that few rows are in memory at once.
    scanning: Mutex<()>,
    conflicts: AtomicU64,
    gap_milliseconds: AtomicU64,
}

/// The file, with its open runs.
struct State {
    store: Store,
    open: OpenRuns,
    /// The last commit.
    last: CommitId,
    /// Number that names this process in its commits.
    writer: i64,
    /// A failed commit that may be in the file nevertheless.
    in_doubt: Option<InDoubt>,
}

#[derive(Clone, Copy, Debug)]
struct InDoubt {
    id: CommitId,
    /// Time of the commit, in milliseconds since the epoch.
    now: i64,
    /// Number of its entries.
    count: usize,
}

/// State that an earlier process left in the file.
#[derive(Clone, Debug, Default)]
pub struct Left {
    /// Runs that had not ended.
    pub runs: Vec<RunState>,
    /// Time until which the earlier process recorded; `None` if there was none.
    pub until: Option<Timestamp>,
}

/// Numbers about a record, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecorderStats {
    /// Size of the file.
    pub bytes: u64,
    /// Number of added records whose key was known with other content.
    pub conflicts: u64,
    /// Milliseconds before the start of this process in which nothing was recorded, and that nothing filled.
    pub gap_milliseconds: u64,
}

impl Recorder {
    /// Opens a file, or creates it.
    ///
    /// # Errors
    /// If the store cannot be opened.
    pub fn open(path: &Path, now: Timestamp) -> Result<(Self, Left), OpenError> {
        let (store, Contents { runs: rows, times, last }) = Store::open(path, now)?;
        let writer = fastrand::i64(1..);
        let runs = rows.iter().map(OpenRow::state).collect();
        let open = OpenRuns::new(rows, times.from, times.until);
        let recorder = Self {
            path: path.to_owned(),
            state: Mutex::new(State { store, open, last, writer, in_doubt: None }),
            scanning: Mutex::default(),
            conflicts: AtomicU64::new(0),
            gap_milliseconds: AtomicU64::new(0),
        };
        let until = times.until.and_then(|until| Timestamp::from_millisecond(until).ok());
        Ok((recorder, Left { runs, until }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits entries, all or none. `until`: the time up to which the entries are complete, if it is known.
    ///
    /// # Errors
    /// If the file cannot be written. The entries must be given again, before later ones.
    pub fn commit(
        &self,
        entries: &[Entry],
        now: Timestamp,
        until: Option<Timestamp>,
    ) -> Result<(), CommitError> {
        let mut state = self.lock();
        let landed = state.settle(entries)?;
        let entries = entries.get(landed..).unwrap_or_default();
        let now = now.as_millisecond();
        let changes = state.open.plan(entries, now);
        let until = until.map(Timestamp::as_millisecond);
        let Committed { conflicts, .. } = state.commit(&changes, now, until, entries.len())?;
        self.conflicts.fetch_add(conflicts, Ordering::Relaxed);
        if let Some(gap) = &changes.gap {
            self.gap_milliseconds.fetch_add(u64::try_from(gap.unfilled()).unwrap_or(0), Ordering::Relaxed);
        }
        state.open.commit(changes, now);
        Ok(())
    }

    /// Removes the names of a namespace, in a commit without entries.
    ///
    /// # Errors
    /// If the file cannot be written, or it is not known yet what became of an earlier commit. Nothing has changed then, or, where the
    /// file failed during the commit, perhaps all of it.
    pub(super) fn purge_names(&self, namespace: &str, now: Timestamp) -> Result<PurgedRows, CommitError> {
        let mut state = self.lock();
        if state.in_doubt.is_some() || !state.store.is_open() || !state.store.is_own()? {
            return Err(CommitError::Failed("the record cannot be written now".to_owned()));
        }
        let now = now.as_millisecond();
        let changes = Changes { purge: Some(Arc::from(namespace)), ..state.open.plan(&[], now) };
        let Committed { purged, .. } = state.commit(&changes, now, None, 0)?;
        state.open.commit(changes, now);
        Ok(purged)
    }

    /// Moves the file aside, because a commit found it damaged. The process must start again.
    ///
    /// # Errors
    /// If the file cannot be moved.
    pub fn set_aside(&self, now: Timestamp, reason: &str) -> Result<(), OpenError> {
        self.lock().store.set_aside(now, reason)
    }

    /// Returns the last commit for reading, and the open runs as of the same commit.
    pub(super) fn reading(&self) -> Result<(Reading, Vec<Arc<OpenRow>>), StoreError> {
        let state = self.lock();
        Ok((state.store.reading()?, state.open.runs()))
    }

    /// Returns a history with the preemptions since a time.
    fn read_preemptions(
        &self,
        history: &HistoryView,
        since: Option<Timestamp>,
    ) -> Result<(HistoryView, Vec<Gap>), StoreError> {
        let reading = self.reading()?.0;
        let mut all = history.clone();
        let mut numbers = all.flavor_resources.clone();
        let mut number = |fr| {
            let known = numbers.iter().position(|known| *known == fr);
            let position = known.unwrap_or_else(|| {
                numbers.push(fr);
                numbers.len().saturating_sub(1)
            });
            u32::try_from(position).unwrap_or(u32::MAX)
        };
        let mut records = Vec::new();
        let start = since.map_or(i64::MIN, Timestamp::as_millisecond);
        reading.newest_records(RecordKind::Eviction, start, |row| {
            let preempted = row.preemption.is_some();
            records.extend(row.eviction(&mut number).filter(|_| preempted).map(Arc::new));
            records.len() < MAX_PREEMPTIONS
        })?;
        records.reverse();
        all.dropped = records.len() >= MAX_PREEMPTIONS;
        all.records = records;
        all.flavor_resources = numbers;
        let times = reading.times()?;
        let from = times.from.max(times.records_from);
        all.from = from.and_then(|from| Timestamp::from_millisecond(from).ok());
        let gaps = reading.gaps(start, i64::MAX)?;
        Ok((all, gaps))
    }

    /// Returns numbers for metrics.
    pub fn stats(&self) -> RecorderStats {
        RecorderStats {
            bytes: std::fs::metadata(&self.path).map_or(0, |found| found.len()),
            conflicts: self.conflicts.load(Ordering::Relaxed),
            gap_milliseconds: self.gap_milliseconds.load(Ordering::Relaxed),
        }
    }
}

/// Why entries are not committed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The content of the file is damaged.
    #[error("{0}")]
    Damaged(String),
    /// The file cannot be written now.
    #[error("{0}")]
    Failed(String),
    /// The file no longer belongs to this process. Nothing is written to it: the process must start again from its content.
    #[error("the file was replaced, or another process has written it")]
    Lost,
}

impl From<StoreError> for CommitError {
    fn from(error: StoreError) -> Self {
        if is_damage(&error) { Self::Damaged(error.to_string()) } else { Self::Failed(error.to_string()) }
    }
}

impl State {
    /// Checks that the file belongs to this process, opens it again after a failed write, and finds out whether the failed commit
    /// is in it. Returns how many of the entries, which begin with the entries of that commit, are in the file.
    fn settle(&mut self, entries: &[Entry]) -> Result<usize, CommitError> {
        if !self.store.is_own()? {
            return Err(CommitError::Lost);
        }
        let reopened = self.store.reopen().map_err(|error| match error {
            OpenError::Damaged { reason, .. } => CommitError::Damaged(reason),
            error => CommitError::Failed(error.to_string()),
        })?;
        let Some(found) = reopened else { return Ok(0) };
        if !self.store.is_own()? {
            return Err(CommitError::Lost);
        }
        let in_doubt = self.in_doubt.take();
        if let Some(InDoubt { id, now, count }) = in_doubt.filter(|in_doubt| in_doubt.id == found) {
            // The plan is the same as before: the open runs have not changed since.
            let changes = self.open.plan(entries.get(..count).unwrap_or_default(), now);
            self.open.commit(changes, now);
            self.last = id;
            return Ok(count);
        }
        if found != self.last {
            self.store.give_up();
            return Err(CommitError::Lost);
        }
        Ok(0)
    }

    fn commit(
        &mut self,
        changes: &Changes,
        now: i64,
        until: Option<i64>,
        count: usize,
    ) -> Result<Committed, CommitError> {
        let id = CommitId { number: self.last.number.saturating_add(1), writer: self.writer };
        let at = CommitAt { id, now, until };
        let store = &mut self.store;
        let outcome = catch_unwind(AssertUnwindSafe(|| store.commit(changes, at)));
        let outcome =
            outcome.unwrap_or_else(|_| Err(redb::Error::Corrupted("a page cannot be read".to_owned())));
        match outcome {
            Ok(committed) => {
                self.last = id;
                Ok(committed)
            }
            Err(error) => {
                self.in_doubt = Some(InDoubt { id, now, count });
                self.store.close();
                Err(error.into())
            }
        }
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl ReadRecord for Recorder {
    fn usage(&self, query: &UsageQuery<'_>, history: &HistoryView, now: Timestamp) -> Option<RecordedUsage> {
        let _scanning = self.scanning.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.read_usage(query, history, now);
        found.inspect_err(|error| tracing::warn!(%error, "the record cannot be read")).ok()
    }

    fn course(
        &self,
        query: &UsageQuery<'_>,
        steps: &[(Timestamp, Timestamp)],
        groups: &[&str],
        (history, now): (&HistoryView, Timestamp),
    ) -> Option<Vec<Option<StepSum>>> {
        let _scanning = self.scanning.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.read_course(query, steps, groups, (history, now));
        found.inspect_err(|error| tracing::warn!(%error, "the record cannot be read")).ok()
    }

    fn preemptions(
        &self,
        history: &HistoryView,
        since: Option<Timestamp>,
    ) -> Option<(HistoryView, Vec<Gap>)> {
        let _scanning = self.scanning.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.read_preemptions(history, since);
        found.inspect_err(|error| tracing::warn!(%error, "the record cannot be read")).ok()
    }

    fn export(&self, query: &ExportQuery<'_>) -> Result<ExportPage, ModelError> {
        let _scanning = self.scanning.lock().unwrap_or_else(PoisonError::into_inner);
        self.read_export(query).unwrap_or_else(|error| {
            tracing::warn!(%error, "the record cannot be read");
            Err(ModelError::Unavailable)
        })
    }

    fn purge(&self, topic: &PurgeTopic, now: Timestamp) -> Result<PurgedRows, ModelError> {
        let _scanning = self.scanning.lock().unwrap_or_else(PoisonError::into_inner);
        let purged = if topic.dry_run {
            let reading = self.reading().map(|(reading, _)| reading);
            reading.and_then(|reading| reading.names_of(&topic.namespace)).map_err(CommitError::from)
        } else {
            self.purge_names(&topic.namespace, now)
        };
        purged.map_err(|error| {
            tracing::warn!(%error, "no names were removed from the record");
            ModelError::Unavailable
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_moved_aside_and_a_locked_one_is_not() {
        let path = std::env::temp_dir().join(format!("sluice-recorder-{}.redb", std::process::id()));
        let at = Timestamp::from_second(5).unwrap();
        std::fs::write(&path, vec![7_u8; 100_000]).unwrap();
        let (recorder, left) = Recorder::open(&path, at).unwrap();
        assert!(left.runs.is_empty() && left.until.is_none());
        assert!(matches!(Recorder::open(&path, at), Err(OpenError::Locked(_))));
        drop(recorder);
        let aside = path.with_extension("redb.damaged-5");
        assert_eq!(std::fs::read(&aside).unwrap(), vec![7_u8; 100_000], "nothing is deleted");
        for path in [path, aside] {
            std::fs::remove_file(path).unwrap();
        }
        let folder = std::env::temp_dir().join("no-such-folder-of-sluice").join("history.redb");
        assert!(matches!(Recorder::open(&folder, at), Err(OpenError::Failed { .. })));
    }
}
