//! The watched kinds, and whether their first lists are complete.
//!
//! Invariant: before all lists are complete nothing is decided (I17).

use crate::cache::Kind;
use std::collections::BTreeSet;

/// Progress of the first lists.
#[derive(Clone, Debug)]
pub(crate) struct ListSync {
    kinds: Vec<Kind>,
    listed: BTreeSet<Kind>,
}

impl ListSync {
    pub(crate) fn new(kinds: Vec<Kind>) -> Self {
        Self { kinds, listed: BTreeSet::new() }
    }

    /// Returns the watched kinds.
    pub(crate) fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// Records that the first list of a kind is complete.
    pub(crate) fn mark_listed(&mut self, kind: Kind) {
        self.listed.insert(kind);
    }

    /// Returns whether the first lists of all kinds are complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.listed.len() >= self.kinds.len() && self.kinds.iter().all(|kind| self.listed.contains(kind))
    }

    /// Returns whether the lists that webhooks need are complete.
    pub(crate) fn is_complete_for_webhooks(&self) -> bool {
        let mut for_webhooks = self.kinds.iter().filter(|kind| kind.is_used_by_webhooks());
        for_webhooks.all(|kind| self.listed.contains(kind))
    }
}
