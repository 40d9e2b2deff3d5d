//! Entries of objects that count for a while only.
//!
//! Invariants: there are never more entries than twice the number that were current at the last removal, or [`MIN_SWEPT`]; an
//! insertion looks at two others on average at most, even if no entry expires, as in a burst of writes within one second.

use std::collections::BTreeMap;

/// Number of entries below which expired ones are kept.
const MIN_SWEPT: usize = 2_048;

/// Entries by object, of which expired ones are removed when there are twice as many entries as the last removal left.
#[derive(Clone, Debug)]
pub(crate) struct Expiring<K, V> {
    entries: BTreeMap<K, V>,
    /// Number of entries at which expired ones are removed next.
    sweep_at: usize,
}

impl<K, V> Default for Expiring<K, V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), sweep_at: MIN_SWEPT }
    }
}

impl<K: Ord, V> Expiring<K, V> {
    /// Returns an entry, which may have expired.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    /// The same to change it.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key)
    }

    /// Inserts or replaces an entry. Other entries that are not current are removed when enough may have expired.
    pub(crate) fn insert(&mut self, key: K, value: V, mut is_current: impl FnMut(&V) -> bool) {
        if self.entries.len() >= self.sweep_at {
            self.entries.retain(|_, known| is_current(known));
            self.sweep_at = self.entries.len().saturating_mul(2).max(MIN_SWEPT);
        }
        self.entries.insert(key, value);
    }

    pub(crate) fn remove(&mut self, key: &K) {
        self.entries.remove(key);
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insertion_looks_at_two_others_on_average() {
        let mut entries = Expiring::default();
        let mut looked_at = 0_u32;
        for key in 0..100_000_u32 {
            entries.insert(key, (), |()| {
                looked_at += 1;
                true
            });
        }
        assert!(looked_at <= 200_000, "{looked_at}");
    }

    #[test]
    fn expired_entries_go_when_the_others_have_doubled() {
        let mut entries = Expiring::default();
        for second in 0..100_000_u32 {
            entries.insert(second, second, |known| known + 10 >= second);
            assert!(entries.entries.len() <= MIN_SWEPT, "{second}: {}", entries.entries.len());
        }
        assert!(entries.get(&99_999).is_some() && entries.get(&0).is_none());
        entries.clear();
        assert!(entries.get(&99_999).is_none());
    }
}
