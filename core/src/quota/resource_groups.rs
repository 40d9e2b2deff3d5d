//! Configured quotas: resource groups, their flavors in order, and limits per flavor-resource.

use super::FlavorResource;
use crate::resources::Amount;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Limits of one flavor-resource at one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// Quota of the node.
    pub nominal: Amount,
    /// Maximum usage above the subtree quota; absent means no limit.
    pub borrowing_limit: Option<Amount>,
    /// Maximum of the subtree quota that other nodes may use; absent means all.
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

/// Resources that one flavor always provides together, and the flavors in order of preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceGroup {
    /// Names of the resources that the flavors provide.
    pub covered_resources: Vec<Arc<str>>,
    /// Flavors in the order in which they are tried.
    pub flavors: Vec<FlavorQuotas>,
}

impl ResourceGroup {
    /// Returns a group of these flavors; the first one names the covered resources.
    pub fn from_flavors(flavors: Vec<FlavorQuotas>) -> Self {
        let covered = flavors.first().map(|f| f.limits.keys().cloned().collect()).unwrap_or_default();
        Self { covered_resources: covered, flavors }
    }
}

/// All limits of a node by flavor-resource.
pub(super) fn limits_of(groups: &[ResourceGroup]) -> BTreeMap<FlavorResource, QuotaLimits> {
    let flavors = groups.iter().flat_map(|g| &g.flavors);
    flavors
        .flat_map(|f| {
            let fr_of =
                |r: &Arc<str>| FlavorResource { flavor: Arc::clone(&f.name), resource: Arc::clone(r) };
            f.limits.iter().map(move |(r, l)| (fr_of(r), *l))
        })
        .collect()
}
