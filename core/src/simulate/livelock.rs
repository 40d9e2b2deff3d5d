//! Livelock detection: stops a simulation after too many evictions, or too many instants with writes, without progress.
//!
//! Progress is a finished run or a new object; both are finite in number. Bounding the evictions and instants between
//! two of them bounds the simulation.

use super::timeline::{TimelineEntry, TimelineEventKind};

/// Maximum number of evictions without progress: this many for each object, plus `BASE_EVICTIONS`.
const EVICTIONS_PER_OBJECT: usize = 4;
const BASE_EVICTIONS: usize = 100;
/// Maximum number of instants with writes without progress, for each allowed eviction.
const MAX_INSTANTS_PER_EVICTION: usize = 100;

/// Counts since the last progress.
#[derive(Debug, Default)]
pub(super) struct LivelockDetector {
    /// Number of timeline entries that are already counted.
    seen_entries: usize,
    evictions: usize,
    instants: usize,
}

impl LivelockDetector {
    /// Records progress.
    pub(super) fn reset(&mut self) {
        (self.evictions, self.instants) = (0, 0);
    }

    /// Counts the new timeline entries of an instant. Returns whether the limits for `objects` objects are still met.
    pub(super) fn within_limits(&mut self, history: &[TimelineEntry], objects: usize) -> bool {
        self.instants = self.instants.saturating_add(1);
        for entry in history.iter().skip(self.seen_entries) {
            match entry.event {
                TimelineEventKind::Finished => self.reset(),
                TimelineEventKind::Evicted | TimelineEventKind::Preempted => {
                    self.evictions = self.evictions.saturating_add(1);
                }
                _ => {}
            }
        }
        self.seen_entries = history.len();
        let max_evictions = objects.saturating_mul(EVICTIONS_PER_OBJECT).saturating_add(BASE_EVICTIONS);
        self.evictions < max_evictions
            && self.instants < max_evictions.saturating_mul(MAX_INSTANTS_PER_EVICTION)
    }
}
