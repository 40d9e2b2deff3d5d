//! UIDs of objects that are gone. An answer or a read that was under way when its object went must not bring it back.

use std::collections::{BTreeSet, VecDeque};

/// How many are remembered: far more than can be under way.
const MAX_TOMBSTONES: usize = 4096;

/// The last objects that went.
#[derive(Clone, Debug, Default)]
pub(super) struct Tombstones {
    order: VecDeque<String>,
    uids: BTreeSet<String>,
}

impl Tombstones {
    pub(super) fn insert(&mut self, uid: &str) {
        if uid.is_empty() || !self.uids.insert(uid.to_owned()) {
            return;
        }
        self.order.push_back(uid.to_owned());
        if self.order.len() > MAX_TOMBSTONES
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }
}
