//! UIDs of objects that are gone. An answer or a read that was under way when its object went must not bring it back.

use std::collections::{BTreeSet, VecDeque};

/// How many are remembered: far more than can be under way.
const KEPT: usize = 4096;

/// The last objects that went.
#[derive(Clone, Debug, Default)]
pub(super) struct Tombstones {
    order: VecDeque<String>,
    gone: BTreeSet<String>,
}

impl Tombstones {
    pub(super) fn bury(&mut self, uid: &str) {
        if uid.is_empty() || !self.gone.insert(uid.to_owned()) {
            return;
        }
        self.order.push_back(uid.to_owned());
        if self.order.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.gone.remove(&oldest);
        }
    }

    pub(super) fn holds(&self, uid: &str) -> bool {
        self.gone.contains(uid)
    }
}
