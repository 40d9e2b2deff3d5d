//! Interning: equal values of many objects are kept in memory once. Workloads of one template share all values derived
//! from it, and Workloads of one queue often have equal statuses. A value whose digest is already known is not decoded
//! again.

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Weak};

/// Truncated SHA-256 of a value. Equal digests count as equal values.
pub(crate) type Digest = [u8; 16];

/// Minimum number of entries at which a sweep removes the entries of dropped values.
const MIN_SWEEP_THRESHOLD: usize = 64;

/// Values by their digest, or by a key that determines them. The references are weak: a sweep removes the entries of
/// dropped values.
#[derive(Debug)]
pub(crate) struct WeakInterner<T: ?Sized, K = Digest> {
    values: BTreeMap<K, Weak<T>>,
    /// Number of entries at which the next sweep runs.
    sweep_threshold: usize,
}

impl<T: ?Sized, K> Default for WeakInterner<T, K> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), sweep_threshold: MIN_SWEEP_THRESHOLD }
    }
}

impl<T: ?Sized, K: Ord> WeakInterner<T, K> {
    /// Returns the value of this key if it is still in use.
    pub(crate) fn find(&self, key: &K) -> Option<Arc<T>> {
        self.values.get(key).and_then(Weak::upgrade)
    }

    /// Adds a value that can be found as long as it is in use elsewhere.
    pub(crate) fn insert(&mut self, key: K, value: &Arc<T>) {
        self.values.insert(key, Arc::downgrade(value));
        if self.values.len() >= self.sweep_threshold {
            self.values.retain(|_, value| value.strong_count() > 0);
            // A weak reference keeps the memory of a dropped value allocated until the next sweep, hence a small
            // factor.
            self.sweep_threshold = (self.values.len() + self.values.len() / 2).max(MIN_SWEEP_THRESHOLD);
        }
    }

    /// Removes all entries. The values stay valid where they are in use.
    pub(crate) fn clear(&mut self) {
        self.values.clear();
    }
}

impl<T: Debug + ?Sized> WeakInterner<T> {
    /// Returns the interned value equal to `value`. Values are compared by their debug output, which contains every
    /// field in a fixed order.
    pub(crate) fn intern(&mut self, value: Arc<T>) -> Arc<T> {
        let digest = truncate_hash(&Sha256::digest(format!("{value:?}")).into());
        if let Some(known) = self.find(&digest) {
            return known;
        }
        self.insert(digest, &value);
        value
    }
}

/// Strings that occur in many objects: names of namespaces, queues and kinds.
#[derive(Debug, Default)]
pub(crate) struct StringInterner {
    values: BTreeSet<Arc<str>>,
    sweep_threshold: usize,
}

impl StringInterner {
    /// Returns the interned string equal to `text`.
    pub(crate) fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.values.get(text) {
            return Arc::clone(known);
        }
        if self.values.len() >= self.sweep_threshold {
            self.values.retain(|word| Arc::strong_count(word) > 1);
            self.sweep_threshold = self.values.len().saturating_mul(2).max(MIN_SWEEP_THRESHOLD);
        }
        let word: Arc<str> = Arc::from(text);
        self.values.insert(Arc::clone(&word));
        word
    }
}

/// Returns the digest of a part of an object. The same content in another order has another digest; its only effect is
/// that the value is not shared.
pub(crate) fn digest(value: &Value) -> Digest {
    let mut hash = Sha256::new();
    hash_value(&mut hash, value);
    truncate_hash(&hash.finalize().into())
}

/// Returns the digest of a part of an object that is still JSON text.
pub(crate) fn digest_of_text(part: &str) -> Digest {
    let mut hash = Sha256::new();
    hash_text(&mut hash, 7, part);
    truncate_hash(&hash.finalize().into())
}

fn truncate_hash(whole: &[u8; 32]) -> Digest {
    whole.first_chunk().copied().unwrap_or_default()
}

/// Hashes a value in an encoding in which different values have different bytes.
fn hash_value(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Null => hash.update([0]),
        Value::Bool(truth) => hash.update([1, u8::from(*truth)]),
        Value::Number(number) => hash_text(hash, 2, &number.to_string()),
        Value::String(string) => hash_text(hash, 3, string),
        Value::Array(items) => {
            hash.update([4]);
            hash.update(items.len().to_le_bytes());
            for item in items {
                hash_value(hash, item);
            }
        }
        Value::Object(fields) => {
            hash.update([5]);
            hash.update(fields.len().to_le_bytes());
            for (name, field) in fields {
                hash_text(hash, 6, name);
                hash_value(hash, field);
            }
        }
    }
}

fn hash_text(hash: &mut Sha256, kind: u8, text: &str) {
    hash.update([kind]);
    hash.update(text.len().to_le_bytes());
    hash.update(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_values_are_shared_and_unused_dropped() {
        let mut shared: WeakInterner<[String]> = WeakInterner::default();
        let make = |text: &str| Arc::from([text.to_owned()]);
        let first = shared.intern(make("a"));
        assert!(Arc::ptr_eq(&first, &shared.intern(make("a"))));
        assert!(!Arc::ptr_eq(&first, &shared.intern(make("b"))));
        for n in 0..1000 {
            shared.intern(make(&n.to_string()));
        }
        assert!(shared.values.len() < 70, "{}", shared.values.len());
        assert!(Arc::ptr_eq(&first, &shared.intern(make("a"))));
    }

    #[test]
    fn equal_strings_are_shared_and_unused_dropped() {
        let mut words = StringInterner::default();
        let first = words.intern("a");
        assert!(Arc::ptr_eq(&first, &words.intern("a")));
        for n in 0..1000 {
            words.intern(&n.to_string());
        }
        assert!(words.values.len() < 70, "{}", words.values.len());
        assert!(Arc::ptr_eq(&first, &words.intern("a")));
    }

    #[test]
    fn digests_distinguish_contents() {
        let different = [
            json!(null),
            json!([]),
            json!({}),
            json!(""),
            json!("1"),
            json!(1),
            json!(1.5),
            json!(true),
            json!([[1], 2]),
            json!([1, [2]]),
            json!(["ab", "c"]),
            json!(["a", "bc"]),
            json!({"a": "b"}),
            json!(["a", "b"]),
            json!({"a": {"b": 1}, "c": 2}),
            json!({"a": {"b": 1, "c": 2}}),
        ];
        let digests: BTreeSet<Digest> = different.iter().map(digest).collect();
        assert_eq!(digests.len(), different.len());
        assert_eq!(digest(&json!({"a": [1, "b"]})), digest(&json!({"a": [1, "b"]})));
    }
}
