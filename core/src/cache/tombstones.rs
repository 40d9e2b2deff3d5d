//! UIDs of deleted objects. A response or a read that was in flight when its object was deleted must not bring the
//! object back.

use std::collections::{BTreeSet, VecDeque};

/// Maximum number of UIDs: far more than calls can be in flight.
const MAX_TOMBSTONES: usize = 4096;

/// UIDs of the objects that were deleted last.
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
