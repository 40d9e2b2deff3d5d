//! Requests of pod sets to a ClusterQueue, and sums of usage by flavor-resource.

use super::compiled::CompiledClusterQueue;
use crate::queue::PodSet;
use crate::quota::{FlavorResourceId, Usage};
use crate::resources::Amount;
use std::sync::Arc;

/// Indexes of pod sets by group, in the order of the groups' first members.
pub(super) fn pod_set_groups(pod_sets: &[PodSet]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(Option<&Arc<str>>, Vec<usize>)> = Vec::with_capacity(pod_sets.len());
    for (index, set) in pod_sets.iter().enumerate() {
        let existing =
            groups.iter_mut().find(|(group, _)| set.group.is_some() && *group == set.group.as_ref());
        match existing {
            Some((_, members)) => members.push(index),
            None => groups.push((set.group.as_ref(), vec![index])),
        }
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

/// Total requests of several pod sets, sorted by resource name.
pub(super) fn requests_by_resource<'a>(
    pod_sets: &'a [PodSet],
    members: &[usize],
    queue: &'a CompiledClusterQueue,
) -> Vec<(&'a Arc<str>, Amount)> {
    let mut sums: Vec<(&Arc<str>, Amount)> = Vec::new();
    for set in members.iter().filter_map(|index| pod_sets.get(*index)) {
        for (resource, amount) in total_requests(set, queue) {
            match sums.binary_search_by_key(&resource, |(known, _)| *known) {
                Ok(index) => {
                    if let Some((_, sum)) = sums.get_mut(index) {
                        *sum = sum.plus(amount);
                    }
                }
                Err(index) => sums.insert(index, (resource, amount)),
            }
        }
    }
    sums
}

/// Requests of all pods of a set; includes their number if the ClusterQueue has quota for `pods`.
pub(super) fn total_requests<'a>(
    set: &'a PodSet,
    queue: &'a CompiledClusterQueue,
) -> impl Iterator<Item = (&'a Arc<str>, Amount)> {
    let count = i64::from(set.count.max(0));
    let pods =
        queue.groups.iter().flat_map(|group| &group.covered_resources).find(|covered| &***covered == "pods");
    let requests = set.requests.iter().filter(move |(resource, _)| pods != Some(*resource));
    requests
        .map(move |(resource, amount)| (resource, (*amount).max(Amount::ZERO).times(count)))
        .chain(pods.map(|pods| (pods, Amount::new(count))))
}

/// Adds to the usage of a flavor-resource.
pub(super) fn add_usage(usage: &mut Usage, fr: FlavorResourceId, amount: i128) {
    match usage.binary_search_by_key(&fr, |(known, _)| *known) {
        Ok(index) => {
            if let Some((_, sum)) = usage.get_mut(index) {
                *sum += amount;
            }
        }
        Err(index) => usage.insert(index, (fr, amount)),
    }
}

pub(super) fn usage_of(usage: &Usage, fr: FlavorResourceId) -> i128 {
    let index = usage.binary_search_by_key(&fr, |(known, _)| *known);
    index.ok().and_then(|index| usage.get(index)).map_or(0, |(_, amount)| *amount)
}
