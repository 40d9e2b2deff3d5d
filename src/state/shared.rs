//! Values that many objects have alike, kept once: Workloads of one template share what follows from it, and those of one
//! queue say the same in their status. What stands behind a digest that is known is not read a second time.

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Weak};

/// Stands for a content: no two contents are ever met with the same.
pub(super) type Digest = [u8; 16];

/// Fewest values after which the forgotten ones are looked for.
const FEW: usize = 64;

/// Values by their content, or by what they follow from; those that nobody uses any more are forgotten in time.
#[derive(Debug)]
pub(super) struct Shared<T: ?Sized, K = Digest> {
    known: BTreeMap<K, Weak<T>>,
    /// So many are kept before the next look for those that nobody uses.
    enough: usize,
}

impl<T: ?Sized, K> Default for Shared<T, K> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), enough: FEW }
    }
}

impl<T: ?Sized, K: Ord> Shared<T, K> {
    /// The value that is kept under this key.
    pub(super) fn find(&self, key: &K) -> Option<Arc<T>> {
        self.known.get(key).and_then(Weak::upgrade)
    }

    /// Keeps a value under a key for as long as somebody else does.
    pub(super) fn keep(&mut self, key: K, value: &Arc<T>) {
        self.known.insert(key, Arc::downgrade(value));
        if self.known.len() >= self.enough {
            self.known.retain(|_, value| value.strong_count() > 0);
            // What nobody uses still takes its room until then.
            self.enough = (self.known.len() + self.known.len() / 2).max(FEW);
        }
    }

    /// What was kept so far is not to be found any more.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }
}

impl<T: Debug + ?Sized> Shared<T> {
    /// The value that is kept for this one. Debug output names every field, in a fixed order.
    pub(super) fn intern(&mut self, value: Arc<T>) -> Arc<T> {
        let digest = short(&Sha256::digest(format!("{value:?}")).into());
        if let Some(known) = self.find(&digest) {
            return known;
        }
        self.keep(digest, &value);
        value
    }
}

/// Texts that come again and again: names of namespaces, queues and kinds.
#[derive(Debug, Default)]
pub(super) struct Words {
    known: BTreeSet<Arc<str>>,
    enough: usize,
}

impl Words {
    /// The text as it is kept.
    pub(super) fn find(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.known.get(text) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.enough {
            self.known.retain(|word| Arc::strong_count(word) > 1);
            self.enough = self.known.len().saturating_mul(2).max(FEW);
        }
        let word: Arc<str> = Arc::from(text);
        self.known.insert(Arc::clone(&word));
        word
    }
}

/// The digest of a part of an object. The same in another order is another content, and only not shared.
pub(super) fn digest(value: &Value) -> Digest {
    let mut hash = Sha256::new();
    add(&mut hash, value);
    short(&hash.finalize().into())
}

/// The digest of a part of an object that is a text still.
pub(super) fn digest_of_text(part: &str) -> Digest {
    let mut hash = Sha256::new();
    text(&mut hash, 7, part);
    short(&hash.finalize().into())
}

fn short(whole: &[u8; 32]) -> Digest {
    whole.first_chunk().copied().unwrap_or_default()
}

/// Adds a value so that no two values are the same bytes.
fn add(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Null => hash.update([0]),
        Value::Bool(truth) => hash.update([1, u8::from(*truth)]),
        Value::Number(number) => text(hash, 2, &number.to_string()),
        Value::String(string) => text(hash, 3, string),
        Value::Array(items) => {
            hash.update([4]);
            hash.update(items.len().to_le_bytes());
            for item in items {
                add(hash, item);
            }
        }
        Value::Object(fields) => {
            hash.update([5]);
            hash.update(fields.len().to_le_bytes());
            for (name, field) in fields {
                text(hash, 6, name);
                add(hash, field);
            }
        }
    }
}

fn text(hash: &mut Sha256, kind: u8, text: &str) {
    hash.update([kind]);
    hash.update(text.len().to_le_bytes());
    hash.update(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_values_are_one_and_unused_ones_go() {
        let mut shared: Shared<[String]> = Shared::default();
        let make = |text: &str| Arc::from([text.to_owned()]);
        let first = shared.intern(make("a"));
        assert!(Arc::ptr_eq(&first, &shared.intern(make("a"))));
        assert!(!Arc::ptr_eq(&first, &shared.intern(make("b"))));
        for n in 0..1000 {
            shared.intern(make(&n.to_string()));
        }
        assert!(shared.known.len() < 70, "{}", shared.known.len());
        assert!(Arc::ptr_eq(&first, &shared.intern(make("a"))));
    }

    #[test]
    fn words_are_one_and_unused_ones_go() {
        let mut words = Words::default();
        let first = words.find("a");
        assert!(Arc::ptr_eq(&first, &words.find("a")));
        for n in 0..1000 {
            words.find(&n.to_string());
        }
        assert!(words.known.len() < 70, "{}", words.known.len());
        assert!(Arc::ptr_eq(&first, &words.find("a")));
    }

    #[test]
    fn digests_tell_contents_apart() {
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
