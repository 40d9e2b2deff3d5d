//! What pod sets request of a ClusterQueue, and sums of usage by flavor and resource.

use super::compiled::CompiledClusterQueue;
use crate::queue::PodSet;
use crate::quota::{FlavorResourceId, Usage};
use crate::resources::Amount;
use std::sync::Arc;

/// Places of pod sets that are judged together, in the order of their first members.
pub(super) fn pod_set_groups(pod_sets: &[PodSet]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(Option<&Arc<str>>, Vec<usize>)> = Vec::with_capacity(pod_sets.len());
    for (at, set) in pod_sets.iter().enumerate() {
        let same = groups.iter_mut().find(|(group, _)| set.group.is_some() && *group == set.group.as_ref());
        match same {
            Some((_, members)) => members.push(at),
            None => groups.push((set.group.as_ref(), vec![at])),
        }
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

/// What pod sets ask for together, by name of the resource.
pub(super) fn requests_by_resource<'a>(
    pod_sets: &'a [PodSet],
    members: &[usize],
    queue: &'a CompiledClusterQueue,
) -> Vec<(&'a Arc<str>, Amount)> {
    let mut sums: Vec<(&Arc<str>, Amount)> = Vec::new();
    for set in members.iter().filter_map(|at| pod_sets.get(*at)) {
        for (resource, amount) in total_requests(set, queue) {
            match sums.binary_search_by_key(&resource, |(known, _)| *known) {
                Ok(at) => {
                    if let Some((_, sum)) = sums.get_mut(at) {
                        *sum = sum.plus(amount);
                    }
                }
                Err(at) => sums.insert(at, (resource, amount)),
            }
        }
    }
    sums
}

/// What all pods of a set ask for; their number counts too where the queue has a quota for it.
pub(super) fn total_requests<'a>(
    set: &'a PodSet,
    queue: &'a CompiledClusterQueue,
) -> impl Iterator<Item = (&'a Arc<str>, Amount)> {
    let count = i64::from(set.count.max(0));
    let pods =
        queue.groups.iter().flat_map(|group| &group.covered_resources).find(|covered| &***covered == "pods");
    let own = set.requests.iter().filter(move |(resource, _)| pods != Some(*resource));
    own.map(move |(resource, amount)| (resource, (*amount).max(Amount::ZERO).times(count)))
        .chain(pods.map(|pods| (pods, Amount::new(count))))
}

/// Adds to the usage of a pair.
pub(super) fn add_usage(usage: &mut Usage, pair: FlavorResourceId, amount: i128) {
    match usage.binary_search_by_key(&pair, |(known, _)| *known) {
        Ok(at) => {
            if let Some((_, sum)) = usage.get_mut(at) {
                *sum += amount;
            }
        }
        Err(at) => usage.insert(at, (pair, amount)),
    }
}

pub(super) fn usage_of(usage: &Usage, pair: FlavorResourceId) -> i128 {
    let at = usage.binary_search_by_key(&pair, |(known, _)| *known);
    at.ok().and_then(|at| usage.get(at)).map_or(0, |(_, amount)| *amount)
}
