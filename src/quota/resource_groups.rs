//! Quotas as configured: groups of resources, their flavors in order, and limits per flavor and resource.

use super::FlavorResource;
use crate::resources::Amount;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Quota of one resource of one flavor at one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// What the node owns.
    pub nominal: Amount,
    /// Most that it may use beyond what its subtree owns; absent means no limit.
    pub borrowing_limit: Option<Amount>,
    /// Most of what its subtree owns that others may use; absent means all.
    pub lending_limit: Option<Amount>,
}

/// Quotas of one flavor in a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlavorQuotas {
    /// Name of the ResourceFlavor.
    pub name: Arc<str>,
    /// Limits by resource.
    pub limits: BTreeMap<Arc<str>, QuotaLimits>,
}

/// Resources that are always given by the same flavor, and the flavors in order of preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceGroup {
    /// Names of the resources that the flavors provide.
    pub covered_resources: Vec<Arc<str>>,
    /// Flavors in the order in which they are tried.
    pub flavors: Vec<FlavorQuotas>,
}

impl ResourceGroup {
    /// A group with one flavor after the other; the covered resources are those of the first.
    pub fn from_flavors(flavors: Vec<FlavorQuotas>) -> Self {
        let covered = flavors.first().map(|f| f.limits.keys().cloned().collect()).unwrap_or_default();
        Self { covered_resources: covered, flavors }
    }
}

/// All limits of a node by flavor and resource.
pub(super) fn limits_of(groups: &[ResourceGroup]) -> BTreeMap<FlavorResource, QuotaLimits> {
    let flavors = groups.iter().flat_map(|g| &g.flavors);
    flavors
        .flat_map(|f| {
            let pair = |r: &Arc<str>| FlavorResource { flavor: Arc::clone(&f.name), resource: Arc::clone(r) };
            f.limits.iter().map(move |(r, l)| (pair(r), *l))
        })
        .collect()
}
