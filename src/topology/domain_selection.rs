//! Which domains pods go to: first at the level that was asked for, then down to the narrowest.
//!
//! Invariant: what is given to a domain never exceeds what was counted for it, and ties go by the values of the domains.

use super::counts::{DomainFit, DomainFits};
use super::placement_params::{ConstraintMode, PlacementParams};
use super::tree::DomainLayout;
use super::{PlacementError, TasGates, balance};
use std::cmp::Reverse;

/// Units that a domain is given, and whether the leader goes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DomainAssignment {
    pub(super) domain: usize,
    pub(super) units: i64,
    pub(super) has_leader: bool,
}

/// A choice under way.
#[derive(Clone, Copy)]
pub(super) struct DomainSelection<'a> {
    pub(super) layout: &'a DomainLayout,
    pub(super) fits: &'a DomainFits,
    pub(super) params: &'a PlacementParams,
    pub(super) has_leader: bool,
}

impl DomainSelection<'_> {
    /// Chooses the narrowest domains for so many pods: balanced where that is asked for and possible, or else by the usual
    /// rules.
    pub(super) fn select_leaves(
        &self,
        pods: i64,
        rules: TasGates,
    ) -> Result<Vec<DomainAssignment>, PlacementError> {
        let balanced = rules.balanced_placement && self.params.mode == ConstraintMode::Preferred;
        let shares = if balanced { balance::select_balanced(self, pods) } else { None };
        shares.map_or_else(|| self.select_leaves_unbalanced(pods), Ok)
    }

    /// Chooses domains for so many pods and goes down to the narrowest: shares in pods.
    fn select_leaves_unbalanced(&self, pods: i64) -> Result<Vec<DomainAssignment>, PlacementError> {
        let need = pods / self.params.slice_size;
        let (level, chosen) = self.select_at_level(self.params.level, need)?;
        self.descend_to_leaves(level, chosen, need)
            .ok_or(PlacementError::InsufficientCapacity { fit: 0, requested: need })
    }

    /// Domains at a level or, where that is enough, at a wider one.
    fn select_at_level(
        &self,
        level: usize,
        need: i64,
    ) -> Result<(usize, Vec<DomainAssignment>), PlacementError> {
        let width = self.layout.domain_count(level);
        if width == 0 {
            return Err(PlacementError::NoDomains(level));
        }
        if let Some(domain) = self.best_single_domain(level, need) {
            return Ok((level, vec![DomainAssignment { domain, units: need, has_leader: self.has_leader }]));
        }
        match self.params.mode {
            ConstraintMode::Required => {
                let most = |domain| self.fits.get(level, domain);
                let leaders = (0..width).map(most).filter(|count| count.fits_leader || !self.has_leader);
                Err(PlacementError::InsufficientCapacity {
                    fit: leaders.map(|c| c.slices_with_leader).max().unwrap_or(0),
                    requested: need,
                })
            }
            ConstraintMode::Preferred if level > 0 => self.select_at_level(level - 1, need),
            ConstraintMode::Preferred | ConstraintMode::Unconstrained => {
                let shares = self.fill_domains(level, (0..width).collect(), need, self.has_leader);
                Ok((
                    level,
                    shares.map_err(|fit| PlacementError::InsufficientCapacity { fit, requested: need })?,
                ))
            }
        }
    }

    /// The one domain that suffices and is the best of those that do. By best fit none is taken while the one that comes
    /// first does not suffice, unless it must be one: pods rather go to several domains that they prefer.
    fn best_single_domain(&self, level: usize, need: i64) -> Option<usize> {
        let all = self.fits.level(level);
        let suffices =
            |count: &DomainFit| (count.fits_leader || !self.has_leader) && count.slices_with_leader >= need;
        if !all.iter().any(suffices) {
            return None;
        }
        if self.params.best_fit && self.params.mode != ConstraintMode::Required {
            let key = |count: &&DomainFit| {
                (self.has_leader && count.fits_leader, count.score, count.slices_with_leader)
            };
            let first = all.iter().max_by_key(key);
            if first.is_some_and(|count| count.slices_with_leader < need) {
                return None;
            }
        }
        let domains = all.iter().enumerate().filter(|(_, count)| suffices(count));
        let best = domains.min_by_key(|(domain, count)| {
            (Reverse(count.score), count.slices_with_leader, count.pods_with_leader, *domain)
        });
        best.map(|(domain, _)| domain)
    }

    /// Sorts domains as they are to be filled.
    fn sort_domains(&self, level: usize, domains: &mut [usize], leader: bool) {
        let best_fit = self.params.best_fit;
        domains.sort_by_cached_key(|domain| {
            let count = self.fits.get(level, *domain);
            let (slices, pods) = slices_and_pods(&count, leader);
            // Inside a slice the domains with the least room come first.
            let slices = if level > self.params.slice_level { 0 } else { slices };
            let slices = if best_fit { -slices } else { slices };
            (Reverse(leader && count.fits_leader), Reverse(count.score), slices, pods, *domain)
        });
    }

    /// Fills domains one after the other; the error is how much would fit.
    pub(super) fn fill_domains(
        &self,
        level: usize,
        mut pool: Vec<usize>,
        need: i64,
        leader: bool,
    ) -> Result<Vec<DomainAssignment>, i64> {
        let (mut shares, mut rest) = (Vec::new(), need);
        if leader {
            self.sort_domains(level, &mut pool, true);
            let host = self.leader_domain(level, &pool, need).ok_or(0)?;
            let units = self.fits.get(level, host).slices_with_leader.min(rest);
            shares.push(DomainAssignment { domain: host, units, has_leader: true });
            rest -= units;
            pool.retain(|domain| *domain != host);
        }
        let slices = |domain: &usize| self.fits.get(level, *domain).slices;
        pool.retain(|domain| slices(domain) > 0);
        let all = pool.iter().fold(0_i64, |sum, domain| sum.saturating_add(slices(domain)));
        if all < rest {
            return Err(need - rest + all);
        }
        self.sort_domains(level, &mut pool, false);
        for (at, domain) in pool.iter().enumerate() {
            if rest <= 0 {
                break;
            }
            let slices = slices(domain);
            if self.params.best_fit && slices >= rest {
                let left = pool.get(at..).unwrap_or_default();
                let tightest = self.tightest_fit(level, left, rest).unwrap_or(*domain);
                shares.push(DomainAssignment { domain: tightest, units: rest, has_leader: false });
                rest = 0;
                break;
            }
            let units = slices.min(rest);
            shares.push(DomainAssignment { domain: *domain, units, has_leader: false });
            rest -= units;
        }
        if rest > 0 { Err(need - rest) } else { Ok(shares) }
    }

    /// The first domain of a sorted pool that can take the leader without making the rest too little.
    fn leader_domain(&self, level: usize, pool: &[usize], need: i64) -> Option<usize> {
        let count = |domain: &usize| self.fits.get(level, *domain);
        let total = pool.iter().fold(0_i64, |sum, domain| sum.saturating_add(count(domain).slices));
        let able = |domain: &&usize| count(domain).fits_leader;
        let enough = |domain: &&usize| {
            let count = count(domain);
            total - count.slices + count.slices_with_leader >= need
        };
        let first = pool.iter().filter(able).find(enough).or_else(|| pool.iter().find(able))?;
        let whole = |domain: &&usize| able(domain) && count(domain).slices_with_leader >= need;
        if !self.params.best_fit || !whole(&first) {
            return Some(*first);
        }
        let key = |domain: &&usize| (Reverse(count(domain).score), count(domain).slices_with_leader);
        pool.iter().filter(whole).min_by_key(key).copied()
    }

    /// Of domains in order the smallest that suffices.
    fn tightest_fit(&self, level: usize, domains: &[usize], need: i64) -> Option<usize> {
        let count = |domain: &usize| self.fits.get(level, *domain);
        let enough = |domain: &&usize| count(domain).slices >= need;
        let key = |domain: &&usize| (Reverse(count(domain).score), count(domain).slices);
        domains.iter().filter(enough).min_by_key(key).copied()
    }

    /// Goes down from domains of a level to the narrowest; shares come in slices and leave in pods.
    pub(super) fn descend_to_leaves(
        &self,
        from: usize,
        mut shares: Vec<DomainAssignment>,
        need: i64,
    ) -> Option<Vec<DomainAssignment>> {
        let lowest = self.layout.levels.len().saturating_sub(1);
        for level in from..self.params.slice_level.min(lowest) {
            let mut pool = Vec::new();
            for share in &shares {
                pool.extend(self.layout.domain(level, share.domain)?.children.clone());
            }
            shares = self.fill_domains(level + 1, pool, need, self.has_leader).ok()?;
        }
        for share in &mut shares {
            share.units *= self.params.slice_size;
        }
        for level in from.max(self.params.slice_level)..lowest {
            shares = self.split_among_children(level, &shares)?;
        }
        Some(shares)
    }

    /// Splits what each domain has among its children.
    pub(super) fn split_among_children(
        &self,
        level: usize,
        shares: &[DomainAssignment],
    ) -> Option<Vec<DomainAssignment>> {
        let unit = self.params.inner_slice_sizes.get(level + 1).copied().unwrap_or(1).max(1);
        let mut below = Vec::with_capacity(shares.len());
        for share in shares {
            let children = self.layout.domain(level, share.domain)?.children.clone();
            let parts = self
                .fill_domains(level + 1, children.collect(), share.units / unit, share.has_leader)
                .ok()?;
            below.extend(parts.into_iter().map(|part| DomainAssignment { units: part.units * unit, ..part }));
        }
        Some(below)
    }
}

fn slices_and_pods(count: &DomainFit, leader: bool) -> (i64, i64) {
    if leader { (count.slices_with_leader, count.pods_with_leader) } else { (count.slices, count.pods) }
}
