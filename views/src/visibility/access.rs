//! Access of a reader. Every view is built with it, so that a view contains only what its reader may see.
//!
//! Invariants: nothing is visible by default; the access of a query is sent along to the process that answers it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The part of the cluster that a reader may see.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    /// Whether the reader sees the whole cluster, that is, may list ClusterQueues.
    pub cluster: bool,
    /// Whether the reader sees the workloads of all namespaces.
    pub all_namespaces: bool,
    /// Namespaces whose workloads the reader sees.
    pub namespaces: BTreeSet<String>,
    /// Detail of shared queues for a reader that does not see the cluster.
    pub tenant_detail: TenantDetail,
}

/// Detail of shared queues for readers of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TenantDetail {
    /// Sums of the queue, limits and available amounts.
    #[default]
    Sums,
    /// Only own usage and available amounts.
    None,
}

impl TenantDetail {
    /// Reads the setting.
    ///
    /// # Errors
    /// If the text is neither `sums` nor `none`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "sums" => Ok(Self::Sums),
            "none" => Ok(Self::None),
            other => Err(format!("unknown tenant detail {other:?}: use sums or none")),
        }
    }
}

impl Access {
    /// Returns access to everything.
    pub fn everything() -> Self {
        Self { cluster: true, all_namespaces: true, ..Self::default() }
    }

    /// Returns access to one namespace.
    pub fn to_namespace(namespace: &str, tenant_detail: TenantDetail) -> Self {
        Self { namespaces: [namespace.to_owned()].into(), tenant_detail, ..Self::default() }
    }

    /// Returns whether the names of workloads of a namespace may be shown.
    pub fn sees(&self, namespace: &str) -> bool {
        self.cluster || self.all_namespaces || self.namespaces.contains(namespace)
    }

    /// Returns whether the workloads of all namespaces may be shown.
    pub const fn sees_everything(&self) -> bool {
        self.cluster || self.all_namespaces
    }

    /// Returns the namespaces whose workloads may be listed, of one namespace if the question names it; `None` for all. A list reads
    /// these alone, so that neither a row nor the place where a page ends depends on a workload of another namespace.
    pub(super) fn listed<'a>(&'a self, asked: Option<&'a str>) -> Option<Vec<&'a str>> {
        match asked {
            Some(namespace) => Some(if self.sees(namespace) { vec![namespace] } else { Vec::new() }),
            None if self.sees_everything() => None,
            None => Some(self.namespaces.iter().map(String::as_str).collect()),
        }
    }

    /// Returns whether limits and sums of shared queues may be shown.
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
        assert_eq!((one.listed(None), one.listed(Some("a"))), (Some(vec!["a"]), Some(vec!["a"])));
        assert_eq!((one.listed(Some("b")), nothing.listed(None)), (Some(vec![]), Some(vec![])));
        assert_eq!(Access::everything().listed(None), None);
        assert_eq!(Access::everything().listed(Some("b")), Some(vec!["b"]));
    }
}
