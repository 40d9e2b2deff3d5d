//! Amounts of resources: what pods ask for and what quotas give.
//!
//! Invariant: values are exact until they become an `Amount`, which rounds up and never wraps.

mod amount;

pub use amount::Amount;

use std::collections::BTreeMap;
use std::sync::Arc;

/// Amounts by resource name.
pub type Requests = BTreeMap<Arc<str>, Amount>;
