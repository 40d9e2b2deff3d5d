//! When to give up on what would never end.
//!
//! Every run that ends and every object that comes is progress, and there are only so many of them. What happens between two
//! of them is bounded here: so many evictions, or so many moments at which something was written at all.

use super::timeline::{TimelineEntry, TimelineEventKind};

/// Evictions for each object of the cluster, and beside these, for which it lasts.
const EVICTIONS_PER_OBJECT: usize = 4;
const BASE_EVICTIONS: usize = 100;
/// Moments at which something is written, for each eviction.
const MAX_INSTANTS_PER_EVICTION: usize = 100;

/// What has happened since the last progress.
#[derive(Debug, Default)]
pub(super) struct LivelockDetector {
    /// Entries of the history that are counted.
    seen_entries: usize,
    evictions: usize,
    instants: usize,
}

impl LivelockDetector {
    /// Something new has come.
    pub(super) fn reset(&mut self) {
        (self.evictions, self.instants) = (0, 0);
    }

    /// Takes note of what happened at one moment; says whether there is patience left in a cluster of so many objects.
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
        let most = objects.saturating_mul(EVICTIONS_PER_OBJECT).saturating_add(BASE_EVICTIONS);
        self.evictions < most && self.instants < most.saturating_mul(MAX_INSTANTS_PER_EVICTION)
    }
}
