//! Exact signed amounts, indexed by resource.

use crate::resources::{Amount, Requests};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Amounts by resource index; missing entries are 0.
pub(super) type ResourceVector = Vec<i128>;

/// Amounts of some resources, as (resource index, amount).
pub(super) type SparseVector = Vec<(usize, i128)>;

/// Assigns indexes to resource names.
#[derive(Clone, Debug, Default)]
pub(super) struct ResourceNames {
    index_by_name: BTreeMap<Arc<str>, usize>,
    names: Vec<Arc<str>>,
}

/// The resource that limits the number of pods of a node.
pub(super) const PODS: &str = "pods";

impl ResourceNames {
    pub(super) fn index(&mut self, name: &Arc<str>) -> usize {
        if let Some(index) = self.index_by_name.get(name) {
            return *index;
        }
        let index = self.names.len();
        self.names.push(Arc::clone(name));
        self.index_by_name.insert(Arc::clone(name), index);
        index
    }

    /// Returns the index of a name that is known.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.index_by_name.get(name).copied()
    }

    pub(super) fn name(&self, index: usize) -> &str {
        self.names.get(index).map_or("", |name| name)
    }

    /// Converts requests unchanged.
    pub(super) fn sparse(&mut self, requests: &Requests) -> SparseVector {
        requests.iter().map(|(name, amount)| (self.index(name), amount.to_i128())).collect()
    }

    /// Returns the usage of one pod on a node: its positive requests and 1 of `pods`.
    pub(super) fn pod_requests(&mut self, requests: &Requests) -> SparseVector {
        let requested = requests.iter().filter(|(name, amount)| ***name != *PODS && **amount > Amount::ZERO);
        let mut amounts: SparseVector =
            requested.map(|(name, amount)| (self.index(name), amount.to_i128())).collect();
        amounts.push((self.index(&Arc::from(PODS)), 1));
        amounts
    }
}

/// Adds `factor` times the amounts.
pub(super) fn add_scaled(sum: &mut ResourceVector, amounts: &[(usize, i128)], factor: i128) {
    let length = amounts.iter().map(|(resource, _)| resource + 1).max().unwrap_or(0);
    if sum.len() < length {
        sum.resize(length, 0);
    }
    // Simulated usage uses 1 and -1; 128-bit multiplications would dominate its cost.
    match factor {
        1 => add_each(sum, amounts, |amount| amount),
        -1 => add_each(sum, amounts, |amount| -amount),
        _ => add_each(sum, amounts, |amount| amount * factor),
    }
}

fn add_each(vector: &mut ResourceVector, amounts: &[(usize, i128)], scale: impl Fn(i128) -> i128) {
    for (resource, amount) in amounts {
        if let Some(sum) = vector.get_mut(*resource) {
            *sum += scale(*amount);
        }
    }
}

pub(super) fn amount_at(vector: &[i128], resource: usize) -> i128 {
    vector.get(resource).copied().unwrap_or(0)
}

/// Returns the amounts that are not 0.
pub(super) fn to_sparse(vector: &[i128]) -> SparseVector {
    vector.iter().copied().enumerate().filter(|(_, amount)| *amount != 0).collect()
}

pub(super) fn is_zero(vector: &[i128]) -> bool {
    vector.iter().all(|amount| *amount == 0)
}

/// Returns how often `need` fits into `free`: 0 if `free` is negative, `i64::MAX` if nothing is needed.
pub(super) fn fit_count(free: i128, need: i128) -> i64 {
    if need <= 0 {
        return i64::MAX;
    }
    if free < need {
        return 0;
    }
    match (u64::try_from(free), u64::try_from(need)) {
        (Ok(free), Ok(need)) => i64::try_from(free / need).unwrap_or(i64::MAX),
        _ => i64::try_from(free / need).unwrap_or(i64::MAX),
    }
}

/// Returns `fit_count`, at most `limit`. The limit usually applies, and that check takes no division.
pub(super) fn fit_count_up_to(limit: i64, free: i128, need: i128) -> i64 {
    let total =
        i64::try_from(need).ok().filter(|need| *need > 0).map(|need| i128::from(need) * i128::from(limit));
    if total.is_some_and(|total| (0..=free).contains(&total)) {
        limit
    } else {
        fit_count(free, need).min(limit)
    }
}
