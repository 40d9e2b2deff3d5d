//! Which pods may leave the topology gate, and for which domains.
//!
//! Invariants: a domain never gets more pods than it was granted, pods that are ending included, and all domains together
//! no more than all grants (I22); a pod of rank r goes where the r-th place is, or, when ranks do not add up, nobody goes
//! by rank.

use std::collections::{BTreeMap, BTreeSet};

/// A pod that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TasPodState {
    /// Whether the topology gate is on it.
    pub gated: bool,
    /// Whether its deletion was asked for.
    pub terminating: bool,
    /// Its place in the order of the pods, if it says so.
    pub rank: Option<i64>,
    /// The domain that it is bound for, or stands in.
    pub domain: Option<usize>,
}

/// A domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainSlots {
    /// Pods granted.
    pub pods: i32,
    /// Whether pods may go there now.
    pub accepts_pods: bool,
}

/// Pods that leave the gate, each with its domain; `fits` says whether a pod can be sent to a domain.
pub fn assign_gated_pods(
    pods: &[TasPodState],
    rooms: &[DomainSlots],
    fits: impl Fn(usize, usize) -> bool,
) -> Vec<(usize, usize)> {
    let mut given = assign_by_rank(pods, rooms).unwrap_or_else(|| assign_greedily(pods, rooms, &fits));
    given.retain(|(pod, room)| rooms.get(*room).is_some_and(|room| room.accepts_pods) && fits(*pod, *room));
    given
}

/// Each to the place of its rank; none when a rank is missing, out of range, given twice, or not where its pod is.
fn assign_by_rank(pods: &[TasPodState], rooms: &[DomainSlots]) -> Option<Vec<(usize, usize)>> {
    let ends: Vec<i64> = rooms
        .iter()
        .scan(0_i64, |sum, room| {
            *sum += i64::from(room.pods.max(0));
            Some(*sum)
        })
        .collect();
    let place = |rank: Option<i64>| {
        let rank = rank.filter(|rank| *rank >= 0)?;
        Some((rank, ends.partition_point(|end| *end <= rank))).filter(|(_, room)| *room < ends.len())
    };
    let (mut waiting, mut taken, mut leaving) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    for (at, pod) in pods.iter().enumerate() {
        match (pod.gated, pod.terminating) {
            (true, false) => {
                let (rank, room) = place(pod.rank)?;
                if waiting.insert(rank, (at, room)).is_some() {
                    return None;
                }
            }
            (false, false) => {
                let (rank, room) = place(pod.rank)?;
                if pod.domain != Some(room) || !taken.insert(rank) {
                    return None;
                }
            }
            // The place is free when it has gone; one that stands in no domain takes none.
            (false, true) if pod.domain.is_some() => {
                leaving.insert(place(pod.rank).filter(|(_, room)| pod.domain == Some(*room))?.0);
            }
            (_, true) => {}
        }
    }
    if waiting.keys().any(|rank| taken.contains(rank)) {
        return None;
    }
    Some(waiting.into_iter().filter(|(rank, _)| !leaving.contains(rank)).map(|(_, given)| given).collect())
}

/// Domain by domain as many as are missing there.
fn assign_greedily(
    pods: &[TasPodState],
    rooms: &[DomainSlots],
    fits: &impl Fn(usize, usize) -> bool,
) -> Vec<(usize, usize)> {
    let out = || pods.iter().filter(|pod| !pod.gated);
    let strays = out().filter(|pod| pod.domain.is_none() && !pod.terminating).count();
    let mut left: Vec<i64> = rooms.iter().map(|room| i64::from(room.pods.max(0))).collect();
    for pod in out() {
        if let Some(room) = pod.domain.and_then(|place| left.get_mut(place)) {
            *room -= 1;
        }
    }
    let mut budget = left.iter().sum::<i64>() - i64::try_from(strays).unwrap_or(i64::MAX);
    let mut waiting: Vec<usize> =
        (0..pods.len()).filter(|at| pods.get(*at).is_some_and(|pod| pod.gated && !pod.terminating)).collect();
    waiting.sort_by_key(|at| pods.get(*at).map(|pod| (pod.rank.is_none(), pod.rank)));
    let mut given = Vec::new();
    for (room, left) in left.iter_mut().enumerate() {
        if !rooms.get(room).is_some_and(|room| room.accepts_pods) {
            continue;
        }
        waiting.retain(|at| {
            let goes = *left > 0 && budget > 0 && fits(*at, room);
            if goes {
                (*left, budget) = (*left - 1, budget - 1);
                given.push((*at, room));
            }
            !goes
        });
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `g2` is gated with rank 2, `r2@1` is out with rank 2 in domain 1, `e2@1` is ending there; `-` has no rank.
    fn pod(text: &str) -> TasPodState {
        let (state, rest) = text.split_at(1);
        let (rank, place) = rest.split_once('@').unwrap_or((rest, ""));
        TasPodState {
            gated: state == "g",
            terminating: state == "e",
            rank: rank.parse().ok(),
            domain: place.parse().ok(),
        }
    }

    #[test]
    fn assign_cases() {
        type Row = (&'static str, &'static [i32], &'static [(usize, usize)]);
        let table: &[Row] = &[
            ("g0 g1 g2", &[2, 1], &[(0, 0), (1, 0), (2, 1)]),
            ("g2 g0 g1", &[2, 1], &[(1, 0), (2, 0), (0, 1)]),
            ("g2", &[2, 1], &[(0, 1)]),
            ("r0@0 g2", &[2, 1], &[(1, 1)]),
            // A rank that is missing, too large, given twice, or elsewhere.
            ("g- g1", &[1, 1], &[(1, 0), (0, 1)]),
            ("g5 g0", &[1, 1], &[(1, 0), (0, 1)]),
            ("g0 g0 g0", &[1, 1], &[(0, 0), (1, 1)]),
            ("r0@1 g1", &[1, 1], &[(1, 0)]),
            // A place is free when its pod has gone.
            ("e0@0 g0 g1", &[1, 1], &[(2, 1)]),
            ("e0@1 g0 g1", &[1, 1], &[(1, 0)]),
            ("e0 g0 g1", &[1, 1], &[(1, 0), (2, 1)]),
            // One that stands where it should not counts against the whole.
            ("r- g1 g2", &[1, 1], &[(1, 0)]),
            ("r- r- g1 g2", &[1, 1], &[]),
            ("g0", &[-3, 0], &[]),
            ("g0", &[], &[]),
        ];
        for (pods, rooms, want) in table {
            let pods: Vec<TasPodState> = pods.split(' ').map(pod).collect();
            let rooms: Vec<DomainSlots> =
                rooms.iter().map(|pods| DomainSlots { pods: *pods, accepts_pods: true }).collect();
            assert_eq!(assign_gated_pods(&pods, &rooms, |_, _| true), *want, "{pods:?} {rooms:?}");
        }
    }

    #[test]
    fn closed_domains_and_unfit_pods_wait() {
        let rooms =
            [DomainSlots { pods: 1, accepts_pods: false }, DomainSlots { pods: 1, accepts_pods: true }];
        assert_eq!(assign_gated_pods(&[pod("g0"), pod("g1")], &rooms, |_, _| true), [(1, 1)]);
        assert_eq!(assign_gated_pods(&[pod("g-"), pod("g-")], &rooms, |_, _| true), [(0, 1)]);
        assert_eq!(assign_gated_pods(&[pod("g-"), pod("g-")], &rooms, |pod, _| pod == 1), [(1, 1)]);
        assert_eq!(assign_gated_pods(&[pod("g0"), pod("g1")], &rooms, |pod, _| pod == 0), []);
    }
}
