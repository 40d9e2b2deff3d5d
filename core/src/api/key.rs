//! Object keys: namespace and name.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Hash map by object key, for frequent lookups: with thousands of entries a lookup computes one hash, where a tree
/// search would compare a dozen names. The order depends on insertions and removals, so callers must not rely on it.
pub type ByKey<V> = IndexMap<ObjectKey, V>;

/// Namespace and name of an object; the namespace is empty for cluster-scoped kinds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ObjectKey {
    /// The namespace, or empty.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// Key of a namespaced object.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: Arc::from(namespace), name: Arc::from(name) }
    }

    /// Key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        Self::new("", name)
    }
}

/// Orders by namespace, then by name. Interned strings are compared by pointer first, because large maps are searched
/// often.
impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = |a: &Arc<str>, b: &Arc<str>| if Arc::ptr_eq(a, b) { Ordering::Equal } else { a.cmp(b) };
        order(&self.namespace, &other.namespace).then_with(|| order(&self.name, &other.name))
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}
