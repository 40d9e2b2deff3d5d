//! Values that many objects have alike, kept once: Workloads of one template share what follows from it.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Weak};

/// Values by their content; those that nobody uses any more are forgotten in time.
#[derive(Debug)]
pub(super) struct Shared<T: ?Sized> {
    known: BTreeMap<[u8; 32], Weak<T>>,
}

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self { known: BTreeMap::new() }
    }
}

impl<T: Debug + ?Sized> Shared<T> {
    /// The value that is kept for this one. Debug output names every field, in a fixed order.
    pub(super) fn intern(&mut self, value: Arc<T>) -> Arc<T> {
        let digest: [u8; 32] = Sha256::digest(format!("{value:?}")).into();
        if let Some(known) = self.known.get(&digest).and_then(Weak::upgrade) {
            return known;
        }
        self.known.insert(digest, Arc::downgrade(&value));
        if self.known.len().is_power_of_two() {
            self.known.retain(|_, value| value.strong_count() > 0);
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_unused_ones_go() {
        let mut shared: Shared<[String]> = Shared::default();
        let make = |text: &str| Arc::from([text.to_owned()]);
        let first = shared.intern(make("a"));
        assert!(Arc::ptr_eq(&first, &shared.intern(make("a"))));
        assert!(!Arc::ptr_eq(&first, &shared.intern(make("b"))));
        for n in 0..100 {
            shared.intern(make(&n.to_string()));
        }
        assert!(shared.known.len() < 70, "{}", shared.known.len());
    }
}
