//! Selects domains for pods: first at the requested level, then down to the narrowest.
//!
//! Invariants: an assignment never exceeds the counted fit of its domain; ties are broken by the values of the domains.

use super::counts::{DomainFit, DomainFits};
use super::placement_params::{ConstraintMode, PlacementParams};
use super::tree::DomainLayout;
use super::{CapacityShortage, PlacementError, TasGates, balance};
use std::cmp::Reverse;

/// Units assigned to a domain, slices or pods, and whether the leader goes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DomainAssignment {
    pub(super) domain: usize,
    pub(super) units: i64,
    pub(super) has_leader: bool,
}

/// Inputs of a selection.
#[derive(Clone, Copy)]
pub(super) struct DomainSelection<'a> {
    pub(super) layout: &'a DomainLayout,
    pub(super) fits: &'a DomainFits,
    pub(super) params: &'a PlacementParams,
    pub(super) has_leader: bool,
}

impl DomainSelection<'_> {
    /// Selects leaves for `pods` pods: balanced where that is enabled, preferred and possible, else by the regular algorithm.
    pub(super) fn select_leaves(
        &self,
        pods: i64,
        gates: TasGates,
    ) -> Result<Vec<DomainAssignment>, PlacementError> {
        let balanced = gates.balanced_placement && self.params.mode == ConstraintMode::Preferred;
        let assignments = if balanced { balance::select_balanced(self, pods) } else { None };
        assignments.map_or_else(|| self.select_leaves_unbalanced(pods), Ok)
    }

    /// Selects domains at the requested level and descends to the leaves. Units are pods.
    fn select_leaves_unbalanced(&self, pods: i64) -> Result<Vec<DomainAssignment>, PlacementError> {
        let requested = pods / self.params.slice_size;
        let (level, assignments) = self.select_at_level(self.params.level, requested)?;
        self.descend_to_leaves(level, assignments, requested)
            .ok_or_else(|| insufficient_capacity(0, requested))
    }

    /// Selects domains at `level` or, if allowed, at a wider one. Returns the level used.
    fn select_at_level(
        &self,
        level: usize,
        requested: i64,
    ) -> Result<(usize, Vec<DomainAssignment>), PlacementError> {
        let domain_count = self.layout.domain_count(level);
        if domain_count == 0 {
            return Err(PlacementError::NoDomains(level));
        }
        if let Some(domain) = self.best_single_domain(level, requested) {
            return Ok((
                level,
                vec![DomainAssignment { domain, units: requested, has_leader: self.has_leader }],
            ));
        }
        match self.params.mode {
            ConstraintMode::Required => {
                let fits = (0..domain_count).map(|domain| self.fits.get(level, domain));
                let fits = fits.filter(|fit| fit.fits_leader || !self.has_leader);
                let most = fits.map(|fit| fit.slices_with_leader).max().unwrap_or(0);
                Err(insufficient_capacity(most, requested))
            }
            ConstraintMode::Preferred if level > 0 => self.select_at_level(level - 1, requested),
            ConstraintMode::Preferred | ConstraintMode::Unconstrained => {
                let assignments =
                    self.fill_domains(level, (0..domain_count).collect(), requested, self.has_leader);
                Ok((level, assignments.map_err(|fit| insufficient_capacity(fit, requested))?))
            }
        }
    }

    /// Returns the best single domain that suffices. With best fit and no required level it returns `None` while the
    /// top-ranked domain does not suffice: several preferred domains win over one that is less preferred.
    fn best_single_domain(&self, level: usize, requested: i64) -> Option<usize> {
        let all = self.fits.level(level);
        let suffices =
            |fit: &DomainFit| (fit.fits_leader || !self.has_leader) && fit.slices_with_leader >= requested;
        if !all.iter().any(suffices) {
            return None;
        }
        if self.params.best_fit && self.params.mode != ConstraintMode::Required {
            let key =
                |fit: &&DomainFit| (self.has_leader && fit.fits_leader, fit.score, fit.slices_with_leader);
            let first = all.iter().max_by_key(key);
            if first.is_some_and(|fit| fit.slices_with_leader < requested) {
                return None;
            }
        }
        let domains = all.iter().enumerate().filter(|(_, fit)| suffices(fit));
        let best = domains.min_by_key(|(domain, fit)| {
            (Reverse(fit.score), fit.slices_with_leader, fit.pods_with_leader, *domain)
        });
        best.map(|(domain, _)| domain)
    }

    /// Sorts domains by the order in which they are filled.
    fn sort_domains(&self, level: usize, domains: &mut [usize], has_leader: bool) {
        let best_fit = self.params.best_fit;
        domains.sort_by_cached_key(|domain| {
            let fit = self.fits.get(level, *domain);
            let (slices, pods) = slices_and_pods(&fit, has_leader);
            // Within a slice, domains with the least capacity come first.
            let slices = if level > self.params.slice_level { 0 } else { slices };
            let slices = if best_fit { -slices } else { slices };
            (Reverse(has_leader && fit.fits_leader), Reverse(fit.score), slices, pods, *domain)
        });
    }

    /// Fills domains in order. The error is the number of units that fit.
    pub(super) fn fill_domains(
        &self,
        level: usize,
        mut pool: Vec<usize>,
        requested: i64,
        has_leader: bool,
    ) -> Result<Vec<DomainAssignment>, i64> {
        let (mut assignments, mut remaining) = (Vec::new(), requested);
        if has_leader {
            self.sort_domains(level, &mut pool, true);
            let leader_domain = self.leader_domain(level, &pool, requested).ok_or(0)?;
            let units = self.fits.get(level, leader_domain).slices_with_leader.min(remaining);
            assignments.push(DomainAssignment { domain: leader_domain, units, has_leader: true });
            remaining -= units;
            pool.retain(|domain| *domain != leader_domain);
        }
        let slices = |domain: &usize| self.fits.get(level, *domain).slices;
        pool.retain(|domain| slices(domain) > 0);
        let total = pool.iter().fold(0_i64, |sum, domain| sum.saturating_add(slices(domain)));
        if total < remaining {
            return Err(requested - remaining + total);
        }
        self.sort_domains(level, &mut pool, false);
        for (index, domain) in pool.iter().enumerate() {
            if remaining <= 0 {
                break;
            }
            let slices = slices(domain);
            if self.params.best_fit && slices >= remaining {
                let candidates = pool.get(index..).unwrap_or_default();
                let tightest = self.tightest_fit(level, candidates, remaining).unwrap_or(*domain);
                assignments.push(DomainAssignment { domain: tightest, units: remaining, has_leader: false });
                remaining = 0;
                break;
            }
            let units = slices.min(remaining);
            assignments.push(DomainAssignment { domain: *domain, units, has_leader: false });
            remaining -= units;
        }
        if remaining > 0 { Err(requested - remaining) } else { Ok(assignments) }
    }

    /// Returns the domain for the leader: the first of the sorted pool where the remaining capacity still suffices, or the
    /// smallest that fits everything if the first one does (best fit only).
    fn leader_domain(&self, level: usize, pool: &[usize], requested: i64) -> Option<usize> {
        let fit = |domain: &usize| self.fits.get(level, *domain);
        let total = pool.iter().fold(0_i64, |sum, domain| sum.saturating_add(fit(domain).slices));
        let fits_leader = |domain: &&usize| fit(domain).fits_leader;
        let suffices = |domain: &&usize| {
            let fit = fit(domain);
            total - fit.slices + fit.slices_with_leader >= requested
        };
        let first =
            pool.iter().filter(fits_leader).find(suffices).or_else(|| pool.iter().find(fits_leader))?;
        let fits_all = |domain: &&usize| fits_leader(domain) && fit(domain).slices_with_leader >= requested;
        if !self.params.best_fit || !fits_all(&first) {
            return Some(*first);
        }
        let key = |domain: &&usize| (Reverse(fit(domain).score), fit(domain).slices_with_leader);
        pool.iter().filter(fits_all).min_by_key(key).copied()
    }

    /// Returns the smallest of the domains that suffices.
    fn tightest_fit(&self, level: usize, domains: &[usize], requested: i64) -> Option<usize> {
        let fit = |domain: &usize| self.fits.get(level, *domain);
        let suffices = |domain: &&usize| fit(domain).slices >= requested;
        let key = |domain: &&usize| (Reverse(fit(domain).score), fit(domain).slices);
        domains.iter().filter(suffices).min_by_key(key).copied()
    }

    /// Descends from domains of level `from` to the leaves. Units change from slices to pods.
    pub(super) fn descend_to_leaves(
        &self,
        from: usize,
        mut assignments: Vec<DomainAssignment>,
        requested: i64,
    ) -> Option<Vec<DomainAssignment>> {
        let lowest = self.layout.levels.len().saturating_sub(1);
        for level in from..self.params.slice_level.min(lowest) {
            let mut pool = Vec::new();
            for assignment in &assignments {
                pool.extend(self.layout.domain(level, assignment.domain)?.children.clone());
            }
            assignments = self.fill_domains(level + 1, pool, requested, self.has_leader).ok()?;
        }
        for assignment in &mut assignments {
            assignment.units *= self.params.slice_size;
        }
        for level in from.max(self.params.slice_level)..lowest {
            assignments = self.split_among_children(level, &assignments)?;
        }
        Some(assignments)
    }

    /// Splits the assignment of each domain among its children.
    pub(super) fn split_among_children(
        &self,
        level: usize,
        assignments: &[DomainAssignment],
    ) -> Option<Vec<DomainAssignment>> {
        let unit = self.params.inner_slice_sizes.get(level + 1).copied().unwrap_or(1).max(1);
        let mut child_assignments = Vec::with_capacity(assignments.len());
        for assignment in assignments {
            let children = self.layout.domain(level, assignment.domain)?.children.clone();
            let inner = self
                .fill_domains(level + 1, children.collect(), assignment.units / unit, assignment.has_leader)
                .ok()?;
            child_assignments
                .extend(inner.into_iter().map(|part| DomainAssignment { units: part.units * unit, ..part }));
        }
        Some(child_assignments)
    }
}

const fn insufficient_capacity(fit: i64, requested: i64) -> PlacementError {
    PlacementError::InsufficientCapacity(CapacityShortage { fit, requested })
}

fn slices_and_pods(fit: &DomainFit, has_leader: bool) -> (i64, i64) {
    if has_leader { (fit.slices_with_leader, fit.pods_with_leader) } else { (fit.slices, fit.pods) }
}
