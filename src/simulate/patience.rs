//! When to give up on what would never end.
//!
//! Every run that ends and every object that comes is progress, and there are only so many of them. What happens between two
//! of them is bounded here: so many evictions, or so many moments at which something was written at all.

use super::timeline::{Entry, Happening};

/// Evictions for each object of the cluster, and beside these, for which it lasts.
const FOR_EACH: usize = 4;
const BESIDE: usize = 100;
/// Moments at which something is written, for each eviction.
const MOMENTS: usize = 100;

/// What has happened since the last progress.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Entries of the history that are counted.
    seen: usize,
    evictions: usize,
    moments: usize,
}

impl Patience {
    /// Something new has come.
    pub(super) fn renew(&mut self) {
        (self.evictions, self.moments) = (0, 0);
    }

    /// Takes note of what happened at one moment; says whether there is patience left in a cluster of so many objects.
    pub(super) fn lasts(&mut self, history: &[Entry], objects: usize) -> bool {
        self.moments = self.moments.saturating_add(1);
        for entry in history.iter().skip(self.seen) {
            match entry.event {
                Happening::Finished => self.renew(),
                Happening::Evicted | Happening::Preempted => {
                    self.evictions = self.evictions.saturating_add(1);
                }
                _ => {}
            }
        }
        self.seen = history.len();
        let most = objects.saturating_mul(FOR_EACH).saturating_add(BESIDE);
        self.evictions < most && self.moments < most.saturating_mul(MOMENTS)
    }
}
