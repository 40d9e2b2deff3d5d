//! Which domains pods go to: first at the level that was asked for, then down to the narrowest.
//!
//! Invariant: what is given to a domain never exceeds what was counted for it, and ties go by the values of the domains.

use super::counts::{Count, Counts};
use super::terms::{Mode, Terms};
use super::tree::Shape;
use super::{Refusal, Rules, balance};
use std::cmp::Reverse;

/// Units that a domain is given, and whether the leader goes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) domain: usize,
    pub(super) units: i64,
    pub(super) leader: bool,
}

/// A choice under way.
#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    pub(super) shape: &'a Shape,
    pub(super) counts: &'a Counts,
    pub(super) terms: &'a Terms,
    pub(super) has_leader: bool,
}

impl Choice<'_> {
    /// Chooses the narrowest domains for so many pods: balanced where that is asked for and possible, or else by the usual
    /// rules.
    pub(super) fn make(&self, pods: i64, rules: Rules) -> Result<Vec<Share>, Refusal> {
        let balanced = rules.balanced && self.terms.mode == Mode::Preferred;
        let shares = if balanced { balance::run(self, pods) } else { None };
        shares.map_or_else(|| self.run(pods), Ok)
    }

    /// Chooses domains for so many pods and goes down to the narrowest: shares in pods.
    fn run(&self, pods: i64) -> Result<Vec<Share>, Refusal> {
        let need = pods / self.terms.slice_size;
        let (level, chosen) = self.choose(self.terms.level, need)?;
        self.descend(level, chosen, need).ok_or(Refusal::TooFew { fit: 0, of: need })
    }

    /// Domains at a level or, where that is enough, at a wider one.
    fn choose(&self, level: usize, need: i64) -> Result<(usize, Vec<Share>), Refusal> {
        let width = self.shape.width(level);
        if width == 0 {
            return Err(Refusal::NoDomains(level));
        }
        if let Some(domain) = self.alone(level, need) {
            return Ok((level, vec![Share { domain, units: need, leader: self.has_leader }]));
        }
        match self.terms.mode {
            Mode::Required => {
                let most = |domain| self.counts.get(level, domain);
                let leaders = (0..width).map(most).filter(|count| count.leader || !self.has_leader);
                Err(Refusal::TooFew {
                    fit: leaders.map(|c| c.slices_with_leader).max().unwrap_or(0),
                    of: need,
                })
            }
            Mode::Preferred if level > 0 => self.choose(level - 1, need),
            Mode::Preferred | Mode::Unconstrained => {
                let shares = self.take(level, (0..width).collect(), need, self.has_leader);
                Ok((level, shares.map_err(|fit| Refusal::TooFew { fit, of: need })?))
            }
        }
    }

    /// The one domain that suffices and is the best of those that do. By best fit none is taken while the one that comes
    /// first does not suffice, unless it must be one: pods rather go to several domains that they prefer.
    fn alone(&self, level: usize, need: i64) -> Option<usize> {
        let all = self.counts.level(level);
        let suffices = |count: &Count| (count.leader || !self.has_leader) && count.slices_with_leader >= need;
        if !all.iter().any(suffices) {
            return None;
        }
        if self.terms.best_fit && self.terms.mode != Mode::Required {
            let key =
                |count: &&Count| (self.has_leader && count.leader, count.score, count.slices_with_leader);
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
    fn sort(&self, level: usize, domains: &mut [usize], leader: bool) {
        let best_fit = self.terms.best_fit;
        domains.sort_by_cached_key(|domain| {
            let count = self.counts.get(level, *domain);
            let (slices, pods) = amounts(&count, leader);
            // Inside a slice the domains with the least room come first.
            let slices = if level > self.terms.slice_level { 0 } else { slices };
            let slices = if best_fit { -slices } else { slices };
            (Reverse(leader && count.leader), Reverse(count.score), slices, pods, *domain)
        });
    }

    /// Fills domains one after the other; the error is how much would fit.
    pub(super) fn take(
        &self,
        level: usize,
        mut pool: Vec<usize>,
        need: i64,
        leader: bool,
    ) -> Result<Vec<Share>, i64> {
        let (mut shares, mut rest) = (Vec::new(), need);
        if leader {
            self.sort(level, &mut pool, true);
            let host = self.host_of_leader(level, &pool, need).ok_or(0)?;
            let units = self.counts.get(level, host).slices_with_leader.min(rest);
            shares.push(Share { domain: host, units, leader: true });
            rest -= units;
            pool.retain(|domain| *domain != host);
        }
        let slices = |domain: &usize| self.counts.get(level, *domain).slices;
        pool.retain(|domain| slices(domain) > 0);
        let all = pool.iter().fold(0_i64, |sum, domain| sum.saturating_add(slices(domain)));
        if all < rest {
            return Err(need - rest + all);
        }
        self.sort(level, &mut pool, false);
        for (at, domain) in pool.iter().enumerate() {
            if rest <= 0 {
                break;
            }
            let slices = slices(domain);
            if self.terms.best_fit && slices >= rest {
                let left = pool.get(at..).unwrap_or_default();
                let tightest = self.tightest(level, left, rest).unwrap_or(*domain);
                shares.push(Share { domain: tightest, units: rest, leader: false });
                rest = 0;
                break;
            }
            let units = slices.min(rest);
            shares.push(Share { domain: *domain, units, leader: false });
            rest -= units;
        }
        if rest > 0 { Err(need - rest) } else { Ok(shares) }
    }

    /// The first domain of a sorted pool that can take the leader without making the rest too little.
    fn host_of_leader(&self, level: usize, pool: &[usize], need: i64) -> Option<usize> {
        let count = |domain: &usize| self.counts.get(level, *domain);
        let total = pool.iter().fold(0_i64, |sum, domain| sum.saturating_add(count(domain).slices));
        let able = |domain: &&usize| count(domain).leader;
        let enough = |domain: &&usize| {
            let count = count(domain);
            total - count.slices + count.slices_with_leader >= need
        };
        let first = pool.iter().filter(able).find(enough).or_else(|| pool.iter().find(able))?;
        let whole = |domain: &&usize| able(domain) && count(domain).slices_with_leader >= need;
        if !self.terms.best_fit || !whole(&first) {
            return Some(*first);
        }
        let key = |domain: &&usize| (Reverse(count(domain).score), count(domain).slices_with_leader);
        pool.iter().filter(whole).min_by_key(key).copied()
    }

    /// Of domains in order the smallest that suffices.
    fn tightest(&self, level: usize, domains: &[usize], need: i64) -> Option<usize> {
        let count = |domain: &usize| self.counts.get(level, *domain);
        let enough = |domain: &&usize| count(domain).slices >= need;
        let key = |domain: &&usize| (Reverse(count(domain).score), count(domain).slices);
        domains.iter().filter(enough).min_by_key(key).copied()
    }

    /// Goes down from domains of a level to the narrowest; shares come in slices and leave in pods.
    pub(super) fn descend(&self, from: usize, mut shares: Vec<Share>, need: i64) -> Option<Vec<Share>> {
        let lowest = self.shape.levels.len().saturating_sub(1);
        for level in from..self.terms.slice_level.min(lowest) {
            let mut pool = Vec::new();
            for share in &shares {
                pool.extend(self.shape.domain(level, share.domain)?.children.clone());
            }
            shares = self.take(level + 1, pool, need, self.has_leader).ok()?;
        }
        for share in &mut shares {
            share.units *= self.terms.slice_size;
        }
        for level in from.max(self.terms.slice_level)..lowest {
            shares = self.split(level, &shares)?;
        }
        Some(shares)
    }

    /// Splits what each domain has among its children.
    pub(super) fn split(&self, level: usize, shares: &[Share]) -> Option<Vec<Share>> {
        let unit = self.terms.units.get(level + 1).copied().unwrap_or(1).max(1);
        let mut below = Vec::with_capacity(shares.len());
        for share in shares {
            let children = self.shape.domain(level, share.domain)?.children.clone();
            let parts = self.take(level + 1, children.collect(), share.units / unit, share.leader).ok()?;
            below.extend(parts.into_iter().map(|part| Share { units: part.units * unit, ..part }));
        }
        Some(below)
    }
}

fn amounts(count: &Count, leader: bool) -> (i64, i64) {
    if leader { (count.slices_with_leader, count.pods_with_leader) } else { (count.slices, count.pods) }
}
