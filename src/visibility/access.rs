//! What a reader may see. Every view is built with it, so that a view holds nothing else.
//!
//! Invariants: nothing is visible by default; the access of a query travels with it to the process that answers it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What a reader may see.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    /// Whether the reader sees the whole cluster: may list ClusterQueues.
    pub cluster: bool,
    /// Whether the reader sees the workloads of all namespaces.
    pub all_namespaces: bool,
    /// Namespaces whose workloads the reader sees.
    pub namespaces: BTreeSet<String>,
    /// What a reader who does not see the cluster is shown of shared queues.
    pub tenant_detail: TenantDetail,
}

/// What a reader of a namespace is shown of the queues that it shares with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TenantDetail {
    /// Sums of the queue, limits and available amounts.
    #[default]
    Sums,
    /// Own and available amounts alone.
    None,
}

impl TenantDetail {
    /// Reads the setting.
    ///
    /// # Errors
    /// The text is neither `sums` nor `none`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "sums" => Ok(Self::Sums),
            "none" => Ok(Self::None),
            other => Err(format!("unknown tenant detail {other:?}: use sums or none")),
        }
    }
}

impl Access {
    /// Access to everything.
    pub fn everything() -> Self {
        Self { cluster: true, all_namespaces: true, ..Self::default() }
    }

    /// Access to one namespace.
    pub fn to_namespace(namespace: &str, tenant_detail: TenantDetail) -> Self {
        Self { namespaces: [namespace.to_owned()].into(), tenant_detail, ..Self::default() }
    }

    /// Whether the names of workloads of a namespace may be shown.
    pub fn sees(&self, namespace: &str) -> bool {
        self.cluster || self.all_namespaces || self.namespaces.contains(namespace)
    }

    /// Whether the workloads of all namespaces may be shown.
    pub const fn sees_everything(&self) -> bool {
        self.cluster || self.all_namespaces
    }

    /// Whether limits and sums of shared queues may be shown.
    pub fn sees_sums(&self) -> bool {
        self.cluster || self.tenant_detail == TenantDetail::Sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_visible_by_default() {
        let nothing = Access { tenant_detail: TenantDetail::None, ..Access::default() };
        assert!(!nothing.sees("a") && !nothing.sees("") && !nothing.sees_sums());
        let one = Access::to_namespace("a", TenantDetail::Sums);
        assert!(one.sees("a") && !one.sees("b") && one.sees_sums() && !one.cluster);
        assert!(Access::everything().sees("b"));
        assert!(TenantDetail::parse("all").unwrap_err().contains("\"all\""));
    }
}
