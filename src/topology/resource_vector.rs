//! Amounts by resource number: exact, and of any sign.

use crate::resources::{Amount, Requests};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Amounts by the number of the resource; what is not there is nothing.
pub(super) type ResourceVector = Vec<i128>;

/// Amounts of some resources, by number.
pub(super) type SparseVector = Vec<(usize, i128)>;

/// Numbers of resources.
#[derive(Clone, Debug, Default)]
pub(super) struct ResourceNames {
    index_by_name: BTreeMap<Arc<str>, usize>,
    names: Vec<Arc<str>>,
}

/// The resource that counts the pods of a node.
pub(super) const PODS: &str = "pods";

impl ResourceNames {
    pub(super) fn index(&mut self, name: &Arc<str>) -> usize {
        if let Some(number) = self.index_by_name.get(name) {
            return *number;
        }
        let number = self.names.len();
        self.names.push(Arc::clone(name));
        self.index_by_name.insert(Arc::clone(name), number);
        number
    }

    pub(super) fn name(&self, number: usize) -> &str {
        self.names.get(number).map_or("", |name| name)
    }

    /// Requests by number, as they are.
    pub(super) fn sparse(&mut self, requests: &Requests) -> SparseVector {
        requests.iter().map(|(name, amount)| (self.index(name), amount.to_i128())).collect()
    }

    /// What one pod takes of a node: its requests and one place.
    pub(super) fn pod_requests(&mut self, requests: &Requests) -> SparseVector {
        let own = requests.iter().filter(|(name, amount)| ***name != *PODS && **amount > Amount::ZERO);
        let mut parts: SparseVector =
            own.map(|(name, amount)| (self.index(name), amount.to_i128())).collect();
        parts.push((self.index(&Arc::from(PODS)), 1));
        parts
    }
}

/// Adds so many times the parts.
pub(super) fn add_scaled(to: &mut ResourceVector, parts: &[(usize, i128)], times: i128) {
    let width = parts.iter().map(|(number, _)| number + 1).max().unwrap_or(0);
    if to.len() < width {
        to.resize(width, 0);
    }
    // What is tried out comes and goes once: products of wide numbers would be most of its cost.
    match times {
        1 => add_each(to, parts, |amount| amount),
        -1 => add_each(to, parts, |amount| -amount),
        _ => add_each(to, parts, |amount| amount * times),
    }
}

fn add_each(to: &mut ResourceVector, parts: &[(usize, i128)], of: impl Fn(i128) -> i128) {
    for (number, amount) in parts {
        if let Some(sum) = to.get_mut(*number) {
            *sum += of(*amount);
        }
    }
}

pub(super) fn amount_at(vector: &[i128], number: usize) -> i128 {
    vector.get(number).copied().unwrap_or(0)
}

pub(super) fn is_zero(vector: &[i128]) -> bool {
    vector.iter().all(|amount| *amount == 0)
}

/// How often `need` goes into `free`; nothing goes into what is negative, whatever else is free.
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

/// The same as long as it is less than `most`; `most` otherwise. It is seldom less, and to find that out takes no division.
pub(super) fn fit_count_up_to(most: i64, free: i128, need: i128) -> i64 {
    let all =
        i64::try_from(need).ok().filter(|need| *need > 0).map(|need| i128::from(need) * i128::from(most));
    if all.is_some_and(|all| (0..=free).contains(&all)) { most } else { fit_count(free, need).min(most) }
}
