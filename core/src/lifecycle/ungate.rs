//! Decides which gated pods leave the topology gate, and for which domains.
//!
//! Invariants: a domain never gets more pods than its granted count, terminating pods included, and all domains
//! together never get more pods than the sum of the granted counts (I22). A pod of rank r goes to the domain that
//! contains slot r; if the ranks are inconsistent, no pod is assigned by rank.

use std::collections::{BTreeMap, BTreeSet};

/// A pod that has not terminated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TasPodState {
    /// Whether the pod has the topology gate.
    pub gated: bool,
    /// Whether the pod has a deletion timestamp.
    pub terminating: bool,
    /// Index of the pod in the order of the pods, if known.
    pub rank: Option<i64>,
    /// Index of the domain that the pod is bound for or runs in.
    pub domain: Option<usize>,
}

/// A domain of the topology assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainSlots {
    /// Granted number of pods.
    pub pods: i32,
    /// Whether pods may be sent to the domain now.
    pub accepts_pods: bool,
}

/// Returns the pods to ungate, as pairs of pod index and domain index. `fits` says whether a pod can be sent to a
/// domain.
pub fn assign_gated_pods(
    pods: &[TasPodState],
    domains: &[DomainSlots],
    fits: impl Fn(usize, usize) -> bool,
) -> Vec<(usize, usize)> {
    let mut given = assign_by_rank(pods, domains).unwrap_or_else(|| assign_greedily(pods, domains, &fits));
    given.retain(|(pod, domain)| {
        domains.get(*domain).is_some_and(|slots| slots.accepts_pods) && fits(*pod, *domain)
    });
    given
}

/// Returns the domains that accept no pods now and would otherwise get gated pods that stay gated.
pub fn domains_waited_for(
    pods: &[TasPodState],
    domains: &[DomainSlots],
    fits: impl Fn(usize, usize) -> bool,
) -> BTreeSet<usize> {
    let given = assign_gated_pods(pods, domains, &fits);
    let open: Vec<DomainSlots> =
        domains.iter().map(|slots| DomainSlots { accepts_pods: true, ..*slots }).collect();
    let would_be_given = assign_gated_pods(pods, &open, &fits);
    if would_be_given.len() <= given.len() {
        return BTreeSet::new();
    }
    let is_closed = |domain: &usize| domains.get(*domain).is_some_and(|slots| !slots.accepts_pods);
    would_be_given.into_iter().map(|(_, domain)| domain).filter(is_closed).collect()
}

/// Assigns each pod to the slot of its rank. Returns `None` if a rank is missing, out of range or duplicate, or if an
/// ungated pod is not in the domain of its rank.
fn assign_by_rank(pods: &[TasPodState], domains: &[DomainSlots]) -> Option<Vec<(usize, usize)>> {
    let ends: Vec<i64> = domains
        .iter()
        .scan(0_i64, |sum, domain| {
            *sum += i64::from(domain.pods.max(0));
            Some(*sum)
        })
        .collect();
    let slot = |rank: Option<i64>| {
        let rank = rank.filter(|rank| *rank >= 0)?;
        Some((rank, ends.partition_point(|end| *end <= rank))).filter(|(_, domain)| *domain < ends.len())
    };
    let (mut waiting, mut used, mut leaving) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    for (at, pod) in pods.iter().enumerate() {
        match (pod.gated, pod.terminating) {
            (true, false) => {
                let (rank, domain) = slot(pod.rank)?;
                if waiting.insert(rank, (at, domain)).is_some() {
                    return None;
                }
            }
            (false, false) => {
                let (rank, domain) = slot(pod.rank)?;
                if pod.domain != Some(domain) || !used.insert(rank) {
                    return None;
                }
            }
            // A terminating pod occupies its slot until it is gone. Without a domain it occupies no slot.
            (false, true) if pod.domain.is_some() => {
                leaving.insert(slot(pod.rank).filter(|(_, domain)| pod.domain == Some(*domain))?.0);
            }
            (_, true) => {}
        }
    }
    if waiting.keys().any(|rank| used.contains(rank)) {
        return None;
    }
    Some(waiting.into_iter().filter(|(rank, _)| !leaving.contains(rank)).map(|(_, given)| given).collect())
}

/// Fills the free slots domain by domain. Ungated pods outside all domains reduce the total.
fn assign_greedily(
    pods: &[TasPodState],
    domains: &[DomainSlots],
    fits: &impl Fn(usize, usize) -> bool,
) -> Vec<(usize, usize)> {
    let ungated = || pods.iter().filter(|pod| !pod.gated);
    let strays = ungated().filter(|pod| pod.domain.is_none() && !pod.terminating).count();
    let mut left: Vec<i64> = domains.iter().map(|domain| i64::from(domain.pods.max(0))).collect();
    for pod in ungated() {
        if let Some(slots) = pod.domain.and_then(|domain| left.get_mut(domain)) {
            *slots -= 1;
        }
    }
    let mut budget = left.iter().sum::<i64>() - i64::try_from(strays).unwrap_or(i64::MAX);
    let mut waiting: Vec<usize> =
        (0..pods.len()).filter(|at| pods.get(*at).is_some_and(|pod| pod.gated && !pod.terminating)).collect();
    waiting.sort_by_key(|at| pods.get(*at).map(|pod| (pod.rank.is_none(), pod.rank)));
    let mut given = Vec::new();
    for (domain, left) in left.iter_mut().enumerate() {
        if !domains.get(domain).is_some_and(|slots| slots.accepts_pods) {
            continue;
        }
        waiting.retain(|at| {
            let assigned = *left > 0 && budget > 0 && fits(*at, domain);
            if assigned {
                (*left, budget) = (*left - 1, budget - 1);
                given.push((*at, domain));
            }
            !assigned
        });
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `g2` is gated with rank 2, `r2@1` is ungated with rank 2 in domain 1, `e2@1` is terminating there; `-` has no
    /// rank.
    fn pod(text: &str) -> TasPodState {
        let (state, rest) = text.split_at(1);
        let (rank, domain) = rest.split_once('@').unwrap_or((rest, ""));
        TasPodState {
            gated: state == "g",
            terminating: state == "e",
            rank: rank.parse().ok(),
            domain: domain.parse().ok(),
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
            // Inconsistent ranks: missing, too large, duplicate, or in another domain.
            ("g- g1", &[1, 1], &[(1, 0), (0, 1)]),
            ("g5 g0", &[1, 1], &[(1, 0), (0, 1)]),
            ("g0 g0 g0", &[1, 1], &[(0, 0), (1, 1)]),
            ("r0@1 g1", &[1, 1], &[(1, 0)]),
            // A terminating pod occupies its slot until it is gone.
            ("e0@0 g0 g1", &[1, 1], &[(2, 1)]),
            ("e0@1 g0 g1", &[1, 1], &[(1, 0)]),
            ("e0 g0 g1", &[1, 1], &[(1, 0), (2, 1)]),
            // An ungated pod outside the domains counts against the total.
            ("r- g1 g2", &[1, 1], &[(1, 0)]),
            ("r- r- g1 g2", &[1, 1], &[]),
            ("g0", &[-3, 0], &[]),
            ("g0", &[], &[]),
        ];
        for (pods, domains, want) in table {
            let pods: Vec<TasPodState> = pods.split(' ').map(pod).collect();
            let domains: Vec<DomainSlots> =
                domains.iter().map(|pods| DomainSlots { pods: *pods, accepts_pods: true }).collect();
            assert_eq!(assign_gated_pods(&pods, &domains, |_, _| true), *want, "{pods:?} {domains:?}");
        }
    }

    #[test]
    fn closed_domains_and_unfit_pods_wait() {
        let domains =
            [DomainSlots { pods: 1, accepts_pods: false }, DomainSlots { pods: 1, accepts_pods: true }];
        assert_eq!(assign_gated_pods(&[pod("g0"), pod("g1")], &domains, |_, _| true), [(1, 1)]);
        let waited = |pods: &[&str]| {
            let pods: Vec<TasPodState> = pods.iter().map(|text| pod(text)).collect();
            domains_waited_for(&pods, &domains, |_, _| true)
        };
        assert_eq!(waited(&["g0", "g1"]), BTreeSet::from([0]));
        assert_eq!(waited(&["g-"]), BTreeSet::new(), "it goes to the open domain");
        assert_eq!(waited(&["r0@0", "g1"]), BTreeSet::new());
        assert_eq!(assign_gated_pods(&[pod("g-"), pod("g-")], &domains, |_, _| true), [(0, 1)]);
        assert_eq!(assign_gated_pods(&[pod("g-"), pod("g-")], &domains, |pod, _| pod == 1), [(1, 1)]);
        assert_eq!(assign_gated_pods(&[pod("g0"), pod("g1")], &domains, |pod, _| pod == 0), []);
    }
}
