//! Quotas as configured: groups of resources, their flavors in order, and limits per flavor and resource.

use super::FlavorResource;
use crate::api::v1beta2 as api;
use crate::resources::{Amount, Quantity, QuantityError, amount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Quota of one resource of one flavor at one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// What the node owns.
    pub nominal: Amount,
    /// Most that it may use beyond what its subtree owns; absent means no limit.
    pub borrowing: Option<Amount>,
    /// Most of what its subtree owns that others may use; absent means all.
    pub lending: Option<Amount>,
}

/// Quotas of one flavor in a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlavorQuotas {
    /// Name of the ResourceFlavor.
    pub name: Arc<str>,
    /// Limits by resource.
    pub limits: BTreeMap<Arc<str>, Limits>,
}

/// Resources that are always given by the same flavor, and the flavors in order of preference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceGroup {
    /// Names of the resources that the flavors provide.
    pub covered: Vec<Arc<str>>,
    /// Flavors in the order in which they are tried.
    pub flavors: Vec<FlavorQuotas>,
}

impl ResourceGroup {
    /// A group with one flavor after the other; the covered resources are those of the first.
    pub fn of(flavors: Vec<FlavorQuotas>) -> Self {
        let covered = flavors.first().map(|f| f.limits.keys().cloned().collect()).unwrap_or_default();
        Self { covered, flavors }
    }

    /// The groups as an object spells them. An object whose quantities cannot be read is refused as a whole.
    pub fn from_api(groups: &[api::ResourceGroup]) -> Result<Vec<Self>, QuantityError> {
        let group = |group: &api::ResourceGroup| {
            let flavors: Result<Vec<FlavorQuotas>, QuantityError> =
                group.flavors.iter().map(flavor).collect();
            let covered = group.covered_resources.iter().map(|name| Arc::from(name.as_str())).collect();
            Ok(Self { covered, flavors: flavors? })
        };
        groups.iter().map(group).collect()
    }
}

fn flavor(flavor: &api::FlavorQuotas) -> Result<FlavorQuotas, QuantityError> {
    let limits = |quota: &api::ResourceQuota| {
        let read = |text: &Text| Quantity::parse(&text.0).map(|quantity| amount(&quota.name, &quantity));
        let limits = Limits {
            nominal: read(&quota.nominal_quota)?,
            borrowing: quota.borrowing_limit.as_ref().map(read).transpose()?,
            lending: quota.lending_limit.as_ref().map(read).transpose()?,
        };
        Ok((Arc::from(quota.name.as_str()), limits))
    };
    let limits: Result<BTreeMap<Arc<str>, Limits>, QuantityError> =
        flavor.resources.iter().map(limits).collect();
    Ok(FlavorQuotas { name: Arc::from(flavor.name.as_str()), limits: limits? })
}

/// All limits of a node by flavor and resource.
pub(super) fn limits_of(groups: &[ResourceGroup]) -> BTreeMap<FlavorResource, Limits> {
    let flavors = groups.iter().flat_map(|g| &g.flavors);
    flavors
        .flat_map(|f| {
            let pair = |r: &Arc<str>| FlavorResource { flavor: Arc::clone(&f.name), resource: Arc::clone(r) };
            f.limits.iter().map(move |(r, l)| (pair(r), *l))
        })
        .collect()
}
