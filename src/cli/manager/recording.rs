//! The process that keeps the durable record: opens the file, commits the core's entries, and reports its delay.
//!
//! Invariants: the core never waits for the disk; nothing is committed before the first lists are complete, so that the end of
//! the former process's recording is kept until then; while the file cannot be written, a bounded number of entries waits, and
//! beyond it this process restarts from the contents of the file.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::oneshot;

use super::leader_questions::heard_until;
use crate::history::Entry;
use crate::kube::server_clock::ServerClock;
use crate::kube::watch_status::WatchStatuses;
use crate::metrics::record::RecordStats;
use crate::record::{CommitError, Left, OpenError, Recorder};

/// Longest time from an entry to its commit, while the file can be written.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between commits without entries, which move the end of the recorded time.
const IDLE_INTERVAL: Duration = Duration::from_secs(30);
/// Pause after a failed commit, and between attempts to open the file.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Interval between two heartbeats while the file cannot be opened.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(250);
/// Longest time from an event to its entry, while watches are not silent.
const MAX_DELAY: SignedDuration = SignedDuration::from_secs(2);
/// Entries after which a commit begins at once.
const MAX_COMMIT: usize = 1_000;
/// Most entries that wait.
const MAX_WAITING: usize = 20_000;

/// The record of this process.
pub(super) struct Recording {
    pub(super) recorder: Recorder,
    /// The API server's clock, so that a wrong clock of this node does not end retention periods.
    clock: Arc<ServerClock>,
    /// Whether the first lists are committed, so that answers are complete.
    began: AtomicBool,
    /// When the oldest entry that is not committed was observed, in milliseconds since the epoch; 0 if there is none.
    waiting_since: AtomicI64,
}

/// Result of the thread that commits.
pub(super) type End = oneshot::Receiver<anyhow::Result<()>>;

/// Opens the file of the record. While another process holds it, or it cannot be written, waits and calls `beat`.
///
/// # Errors
/// The file is of a later version.
pub(super) async fn open(
    path: &Path,
    clock: Arc<ServerClock>,
    beat: impl Fn(),
) -> anyhow::Result<(Arc<Recording>, Left)> {
    let mut logged = String::new();
    loop {
        // Opening a large file may take long, so a thread of its own does it while heartbeats continue.
        let file = path.to_owned();
        let mut opening = tokio::task::spawn_blocking(move || Recorder::open(&file, Timestamp::now()));
        let opened = loop {
            tokio::select! {
                opened = &mut opening => break opened.context("record")?,
                () = tokio::time::sleep(HEARTBEAT_INTERVAL) => beat(),
            }
        };
        match opened {
            Ok((recorder, left)) => {
                tracing::info!(file = %path.display(), open_runs = left.runs.len(), until = ?left.until, "record opened");
                let (began, waiting_since) = (AtomicBool::new(false), AtomicI64::new(0));
                return Ok((Arc::new(Recording { recorder, clock, began, waiting_since }), left));
            }
            Err(error @ OpenError::Later { .. }) => return Err(error.into()),
            Err(error) => {
                let text = error.to_string();
                if text != logged {
                    tracing::warn!(error = text, "the record cannot be opened, trying again");
                    logged = text;
                }
            }
        }
        let again = Instant::now() + RETRY_INTERVAL;
        while Instant::now() < again {
            beat();
            tokio::time::sleep(HEARTBEAT_INTERVAL).await;
        }
    }
}

impl Recording {
    /// Returns whether the first lists are in the record.
    pub(super) fn has_begun(&self) -> bool {
        self.began.load(Ordering::Relaxed)
    }

    /// Returns numbers for metrics.
    pub(super) fn stats(&self) -> RecordStats {
        let (stats, since) = (self.recorder.stats(), self.waiting_since.load(Ordering::Relaxed));
        let lag = if since == 0 { 0 } else { self.clock.now().as_millisecond().saturating_sub(since).max(0) };
        RecordStats {
            bytes: stats.bytes,
            conflicts: stats.conflicts,
            gap_milliseconds: stats.gap_milliseconds,
            lag_milliseconds: u64::try_from(lag).unwrap_or(0),
        }
    }

    /// Starts the thread that commits received entries. The receiver gets its result: no error if it ended after the core with
    /// all entries committed.
    pub(super) fn start(
        self: Arc<Self>,
        watches: WatchStatuses,
    ) -> std::io::Result<(Sender<Vec<Entry>>, End)> {
        let (sender, entries) = mpsc::channel();
        let (ended, end) = oneshot::channel();
        std::thread::Builder::new().name("record".to_owned()).spawn(move || {
            let writer = Writer {
                recording: self,
                entries,
                watches,
                waiting: Vec::new(),
                committed_at: Instant::now(),
                retry_at: None,
                overflowed: false,
            };
            // The receiver is dropped only when the process ends.
            let _ = ended.send(writer.run());
        })?;
        Ok((sender, end))
    }
}

/// Commits entries.
struct Writer {
    recording: Arc<Recording>,
    entries: Receiver<Vec<Entry>>,
    watches: WatchStatuses,
    /// Entries that are not committed.
    waiting: Vec<Entry>,
    committed_at: Instant,
    /// Time of the next attempt after a failed commit.
    retry_at: Option<Instant>,
    /// Whether entries were dropped.
    overflowed: bool,
}

impl Writer {
    fn run(mut self) -> anyhow::Result<()> {
        loop {
            let ended = match self.entries.recv_timeout(COMMIT_INTERVAL) {
                Ok(entries) => {
                    self.take(entries);
                    false
                }
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => true,
            };
            self.commit_if_due(ended)?;
            if ended {
                return Ok(());
            }
        }
    }

    fn take(&mut self, mut entries: Vec<Entry>) {
        if self.waiting.is_empty() {
            let now = self.recording.clock.now().as_millisecond();
            self.recording.waiting_since.store(now, Ordering::Relaxed);
        }
        self.waiting.append(&mut entries);
        // Before the first lists are complete, all their entries wait; their number is bounded by the number of objects.
        if self.recording.has_begun() && self.retry_at.is_some() && self.waiting.len() > MAX_WAITING {
            self.waiting.clear();
            self.overflowed = true;
        }
    }

    fn commit_if_due(&mut self, ended: bool) -> anyhow::Result<()> {
        // The commit of the first lists sets `began`.
        let lists = |entry: &Entry| matches!(entry, Entry::Began { .. });
        if !self.recording.has_begun() && !self.waiting.iter().any(lists) {
            return Ok(());
        }
        if self.retry_at.is_some_and(|at| Instant::now() < at && !ended) {
            return Ok(());
        }
        let since = self.committed_at.elapsed();
        let due = ended
            || self.retry_at.is_some()
            || since >= if self.waiting.is_empty() { IDLE_INTERVAL } else { COMMIT_INTERVAL }
            || self.waiting.len() >= MAX_COMMIT;
        if !due {
            return Ok(());
        }
        // While a watch is silent, this process may lack changes that have happened already.
        let now = self.recording.clock.now();
        let heard = heard_until(&self.watches).and_then(|_| now.checked_sub(MAX_DELAY).ok());
        if heard.is_none() && self.waiting.is_empty() {
            return Ok(());
        }
        if self.overflowed {
            // The end of the recorded time must not move beyond dropped entries. Opening the file again shows whether it can be
            // written.
            bail!(
                "entries were dropped while the record could not be written: starting again from what it has"
            );
        }
        self.committed_at = Instant::now();
        match self.recording.recorder.commit(&self.waiting, now, heard) {
            Ok(()) => {
                self.recording.began.store(true, Ordering::Relaxed);
                if self.retry_at.take().is_some() {
                    tracing::info!(entries = self.waiting.len(), "the record is written again");
                }
                self.waiting.clear();
                self.recording.waiting_since.store(0, Ordering::Relaxed);
            }
            Err(CommitError::Damaged(reason)) => {
                self.recording.recorder.set_aside(Timestamp::now(), &reason).context("record")?;
                bail!("the record is damaged, and a new one begins: {reason}");
            }
            Err(error @ CommitError::Lost) => bail!("{error}: starting again from what it has"),
            Err(error) => {
                if self.retry_at.is_none() {
                    tracing::error!(%error, waiting = self.waiting.len(), "the record cannot be written");
                }
                self.retry_at = Some(Instant::now() + RETRY_INTERVAL);
            }
        }
        Ok(())
    }
}

/// Waits until the thread that commits has ended.
///
/// # Errors
/// It failed, or panicked.
pub(super) async fn ended(end: End) -> anyhow::Result<()> {
    match end.await {
        Ok(outcome) => outcome.context("record"),
        Err(_) => bail!("the thread that writes the record panicked"),
    }
}
