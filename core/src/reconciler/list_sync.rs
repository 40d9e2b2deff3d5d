//! The watched kinds, and whether their first lists are complete.
//!
//! Invariant: before all lists are complete nothing is decided (I17).

use crate::cache::Kind;
use std::collections::BTreeSet;

/// Progress of the first lists.
#[derive(Clone, Debug)]
pub(crate) struct ListSync {
    kinds: Vec<Kind>,
    /// Kinds whose first list is not complete. Empty for nearly all of the process's life, so that asking costs nothing.
    unlisted: BTreeSet<Kind>,
}

impl ListSync {
    pub(crate) fn new(kinds: Vec<Kind>) -> Self {
        let unlisted = kinds.iter().copied().collect();
        Self { kinds, unlisted }
    }

    /// Returns the watched kinds.
    pub(crate) fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// Records that the first list of a kind is complete.
    pub(crate) fn mark_listed(&mut self, kind: Kind) {
        self.unlisted.remove(&kind);
    }

    /// Returns whether the first lists of all kinds are complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.unlisted.is_empty()
    }

    /// Returns whether the lists that webhooks need are complete.
    pub(crate) fn is_complete_for_webhooks(&self) -> bool {
        !self.unlisted.iter().any(|kind| kind.is_used_by_webhooks())
    }
}
