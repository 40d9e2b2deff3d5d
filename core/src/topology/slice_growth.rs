//! Growth of an elastic job: places the pods that a slice has beyond those of the slice that it replaces.
//!
//! Invariants: pods that run keep their domains, also on nodes that have failed: those are replaced as in any other workload.
//! The replaced slice is part of current and projected usage meanwhile.

use super::leaf_capacity::CapacityView;
use super::place::{PlacementRequest, PlacementResult, TasPodSetRequest, placement_levels};
use super::pod_requirements::Placement;
use super::tas_cache::TasCache;
use super::{PlacementError, TasGates};

impl TasCache {
    /// Places the pods that a pod set has beyond those that are placed already. If there are more of these than the pod set has
    /// pods, the last ones are dropped.
    pub(super) fn place_added_pods(
        &mut self,
        pod_set: &TasPodSetRequest,
        before: &Placement,
        view: CapacityView,
        gates: TasGates,
    ) -> Result<PlacementResult, PlacementError> {
        let all = PlacementRequest::new(pod_set, None);
        if !self.has_domains_of(&pod_set.flavor, before) {
            // Placed again, pods that run would be charged to other domains than their own.
            return Err(PlacementError::ChangedDomains);
        }
        let added = all.count - i64::from(before.pod_count());
        if added <= 0 {
            return Ok(PlacementResult { workers: before.cut_to(pod_set.count, |_| 0), leader: None });
        }
        // The other views count the replaced slice.
        let is_empty = matches!(view, CapacityView::Empty | CapacityView::Released);
        let kept = is_empty.then(|| self.footprint(&[pod_set.occupancy(before.clone())]));
        if let Some(kept) = &kept {
            self.leaf_capacities.simulate_usage(kept, 1);
        }
        let result = self.place_request(&PlacementRequest { count: added, ..all }, view, gates);
        if let Some(kept) = &kept {
            self.leaf_capacities.simulate_usage(kept, -1);
        }
        let PlacementResult { workers, leader } = result?;
        Ok(PlacementResult { workers: before.clone().with_added(workers.domains), leader })
    }

    /// Returns whether the domains of a placement are still those of a topology: its levels may have changed. A host stays a
    /// domain even without nodes.
    fn has_domains_of(&mut self, flavor: &str, placement: &Placement) -> bool {
        let Some(tree) = self.trees.get_mut(flavor) else { return false };
        let layout = tree.layout();
        let exists = |values| layout.paths.contains(values);
        *placement.levels == *placement_levels(tree)
            && (tree.is_by_host() || placement.domains.iter().all(|(values, _)| exists(values)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        DomainPath, FlavorSpec, HOSTNAME_LABEL, NodeSpec, PodRequirements, PodSetPlacementError,
        PriorPlacement,
    };
    use super::*;
    use crate::resources::{Amount, Requests, UsageLayer};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    /// Pods by domain: `a/n1` or `n1`.
    type Pods<'a> = &'a [(&'a str, i32)];

    fn requests(entries: &[(&str, i64)]) -> Requests {
        entries.iter().map(|(name, amount)| (Arc::from(*name), Amount::new(*amount))).collect()
    }

    /// `HOST` stands for the label of hosts, which has a slash.
    fn path(text: &str) -> DomainPath {
        text.split('/').map(|word| Arc::from(if word == "HOST" { HOSTNAME_LABEL } else { word })).collect()
    }

    /// Nodes with room for these numbers of pods, each in the rack of its name's first letter.
    fn cluster(levels: &str, nodes: &[(&str, i64)]) -> TasCache {
        let mut cluster = TasCache::default();
        cluster.set_topology("t", Some(path(levels)));
        let flavor =
            FlavorSpec { node_labels: BTreeMap::new(), tolerations: Vec::new(), topology: Arc::from("t") };
        cluster.set_flavor("f", Some(flavor));
        for (name, room) in nodes {
            let labels = [("rack", &name[..1]), (HOSTNAME_LABEL, *name)];
            let spec = NodeSpec {
                labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
                taints: Vec::new(),
                usable: true,
                allocatable: requests(&[("cpu", *room), ("pods", 99)]),
            };
            cluster.set_node(name, Some(spec));
        }
        cluster
    }

    fn placement(levels: &str, pods: Pods<'_>) -> Placement {
        let domains = pods.iter().map(|(values, pods)| (path(values), *pods)).collect();
        Placement { levels: path(levels), domains }
    }

    /// Charges a slice with pods, and places a larger one.
    fn grow(
        cluster: &mut TasCache,
        before: &Placement,
        count: i32,
        view: CapacityView,
    ) -> Result<Placement, PodSetPlacementError> {
        let pods =
            Arc::new(PodRequirements { requests: requests(&[("cpu", 1)]), ..PodRequirements::default() });
        let pod_set = TasPodSetRequest {
            flavor: Arc::from("f"),
            pods,
            count,
            group: None,
            name: Arc::from("main"),
            prior: PriorPlacement::OfSlice(before.clone()),
        };
        let usage = cluster.footprint(&[pod_set.occupancy(before.clone())]);
        cluster.shift_usage(&usage, 1, UsageLayer::Current);
        cluster.shift_usage(&usage, 1, UsageLayer::Projected);
        let placements = cluster.place_all(&[pod_set], view, TasGates::default());
        assert!(cluster.equals_recount(std::iter::once(&usage)), "nothing stays simulated");
        placements.map(|mut all| all.remove(0))
    }

    #[test]
    fn pods_are_added_beside_the_others() {
        let nodes = [("a1", 2), ("a2", 2), ("b1", 3)];
        for (before, count, after) in [
            (&[("a1", 2)][..], 3, &[("a1", 2), ("a2", 1)][..]),
            (&[("a1", 1)], 2, &[("a1", 2)]),
            (&[("b1", 1)], 4, &[("a1", 2), ("a2", 1), ("b1", 1)]),
            (&[("a1", 2), ("b1", 1)], 7, &[("a1", 2), ("a2", 2), ("b1", 3)]),
            (&[("a1", 2), ("b1", 1)], 3, &[("a1", 2), ("b1", 1)]),
            (&[("a1", 2), ("b1", 1)], 1, &[("a1", 1)]),
            // The node is gone.
            (&[("a9", 2)], 3, &[("a1", 1), ("a9", 2)]),
        ] {
            let mut cluster = cluster("rack/HOST", &nodes);
            let before = placement("HOST", before);
            let grown = grow(&mut cluster, &before, count, CapacityView::Projected);
            assert_eq!(grown.unwrap(), placement("HOST", after), "{before:?} to {count}");
        }
    }

    #[test]
    fn empty_nodes_have_the_pods_that_stay() {
        let before = placement("HOST", &[("a1", 2)]);
        for view in
            [CapacityView::Empty, CapacityView::Released, CapacityView::Projected, CapacityView::AvailableNow]
        {
            let grow_to = |count| grow(&mut cluster("HOST", &[("a1", 2), ("a2", 2)]), &before, count, view);
            assert!(grow_to(4).is_ok(), "{view:?}");
            assert!(grow_to(5).is_err(), "{view:?}");
        }
    }

    #[test]
    fn slice_does_not_grow_when_its_domains_are_gone() {
        let before = placement("rack", &[("b", 1)]);
        let grow_in_racks = |before: &Placement| {
            let mut cluster = cluster("rack", &[("a1", 2), ("b1", 2)]);
            grow(&mut cluster, before, 2, CapacityView::Projected)
        };
        assert_eq!(grow_in_racks(&before).unwrap(), placement("rack", &[("b", 2)]));
        for (levels, before) in
            [("rack", &[("c", 1)][..]), ("zone/rack", &[("z/a", 1)]), ("HOST", &[("a1", 1)])]
        {
            let error = grow_in_racks(&placement(levels, before)).unwrap_err().error;
            assert_eq!(error, PlacementError::ChangedDomains, "{before:?}");
        }
    }
}
