//! Balanced placement: as few domains as suffice, and about as many slices in each.
//!
//! Among the domains that share a parent at the level above the requested one, those are looked for that give each domain
//! in use the most slices at least. The smallest set that suffices then gets that many slices each, and the rest in order.

use super::choose::{Choice, Share};
use super::counts::{Count, Counts};
use std::collections::BTreeMap;
use std::ops::Range;

/// What a greedy filling of domains comes to.
struct Filling {
    domains: usize,
    /// Slices that the last domain in use could take.
    last: i64,
}

/// A set of domains that a balanced placement could use.
struct Candidate {
    threshold: i64,
    filling: usize,
    /// At the requested level.
    domains: Vec<usize>,
    /// Those that slices are counted in: the same, or their children.
    bearers: Vec<usize>,
    /// What is counted without all other children; none where slices are counted in the domains themselves.
    narrowed: Option<Counts>,
}

/// Shares of the narrowest domains, if a balanced placement is possible.
pub(super) fn run(choice: &Choice, pods: i64) -> Option<Vec<Share>> {
    let need = pods / choice.terms.slice_size;
    let level = choice.terms.level;
    let bearing = if choice.terms.slice_level > level { level + 1 } else { level };
    let best = groups(choice, level)
        .into_iter()
        .filter_map(|group| candidate(choice, level, bearing, group, need))
        .reduce(|best, other| {
            let better = (other.threshold, std::cmp::Reverse(other.filling))
                > (best.threshold, std::cmp::Reverse(best.filling));
            if better { other } else { best }
        })?;
    let mut domains = best.bearers;
    if let Some(counts) = &best.narrowed {
        let narrowed = Choice { counts, ..*choice };
        let outer = fewest(&narrowed, level, by_evenness(&narrowed, level, &best.domains), need)?;
        domains.retain(|domain| outer.iter().any(|above| children(choice, level, *above).contains(domain)));
    }
    let chosen = fewest(choice, bearing, domains, need)?;
    let shares = spread(choice, bearing, &chosen, need, best.threshold)?;
    descend(choice, bearing, shares)
}

/// Domains of a level that share a parent.
fn groups(choice: &Choice, level: usize) -> Vec<Range<usize>> {
    match level.checked_sub(1) {
        None => std::iter::once(0..choice.shape.width(level)).collect(),
        Some(above) => (0..choice.shape.width(above)).map(|parent| children(choice, above, parent)).collect(),
    }
}

fn children(choice: &Choice, level: usize, domain: usize) -> Range<usize> {
    choice.shape.domain(level, domain).map_or(0..0, |domain| domain.children.clone())
}

fn candidate(
    choice: &Choice,
    level: usize,
    bearing: usize,
    group: Range<usize>,
    need: i64,
) -> Option<Candidate> {
    let domains: Vec<usize> = group.collect();
    let bearers = |domains: &[usize]| -> Vec<usize> {
        if bearing == level {
            return domains.to_vec();
        }
        domains.iter().flat_map(|domain| children(choice, level, *domain)).collect()
    };
    let all = bearers(&domains);
    let filling = fill(choice, bearing, &all, need)?;
    let count = i64::try_from(filling.domains).ok()?;
    let threshold = (need / count.max(1)).min(filling.last);
    let enough = |domain: &usize| units(choice, bearing, *domain) >= threshold;
    let bearers: Vec<usize> = all.into_iter().filter(enough).collect();
    let filling = fill(choice, bearing, &bearers, need)?.domains;
    if threshold <= 0 {
        return None;
    }
    if bearing == level {
        return Some(Candidate { threshold, filling, domains: bearers.clone(), bearers, narrowed: None });
    }
    let used =
        |domain: &usize| children(choice, level, *domain).any(|child| bearers.binary_search(&child).is_ok());
    let domains: Vec<usize> = domains.into_iter().filter(used).collect();
    let counts = narrowed(choice, bearing, &bearers);
    let filling = fill(&Choice { counts: &counts, ..*choice }, level, &domains, need)?.domains;
    Some(Candidate { threshold, filling, domains, bearers, narrowed: Some(counts) })
}

/// What is counted with no other domains of a level than these, which are in order.
fn narrowed(choice: &Choice, level: usize, domains: &[usize]) -> Counts {
    let mut counts = choice.counts.clone();
    let dropped = (0..choice.shape.width(level)).filter(|domain| domains.binary_search(domain).is_err());
    counts.leave_out(choice.shape, level, dropped, choice.terms, choice.has_leader);
    counts
}

fn count(choice: &Choice, level: usize, domain: usize) -> Count {
    choice.counts.get(level, domain)
}

/// Slices that a domain could take, beside a leader where it might have to take that.
fn units(choice: &Choice, level: usize, domain: usize) -> i64 {
    let count = count(choice, level, domain);
    if choice.has_leader && count.leader { count.slices_with_leader } else { count.slices }
}

/// Fills the largest domains first; none if all together do not suffice.
fn fill(choice: &Choice, level: usize, domains: &[usize], need: i64) -> Option<Filling> {
    let mut sizes: Vec<i64> = domains.iter().map(|domain| count(choice, level, *domain).slices).collect();
    let mut rest = need;
    let mut used = 0;
    if choice.has_leader {
        let able = domains.iter().map(|domain| count(choice, level, *domain)).filter(|count| count.leader);
        let best = able.max_by_key(|count| count.slices_with_leader)?;
        let place = sizes.iter().position(|size| *size == best.slices)?;
        sizes.remove(place);
        rest -= best.slices_with_leader;
        used = 1;
        if rest <= 0 {
            return Some(Filling { domains: used, last: best.slices_with_leader });
        }
    }
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    for size in sizes {
        used += 1;
        rest -= size;
        if rest <= 0 {
            return Some(Filling { domains: used, last: size });
        }
    }
    None
}

/// Domains in the order of how evenly their children could be filled, the most even first.
fn by_evenness(choice: &Choice, level: usize, domains: &[usize]) -> Vec<usize> {
    let mut ranked: Vec<(f64, usize)> =
        domains.iter().map(|domain| (evenness(choice, level, *domain), *domain)).collect();
    ranked.sort_by(|(x, a), (y, b)| y.total_cmp(x).then(a.cmp(b)));
    ranked.into_iter().map(|(_, domain)| domain).collect()
}

/// Entropy of what the children of a domain could take.
fn evenness(choice: &Choice, level: usize, domain: usize) -> f64 {
    let sizes = children(choice, level, domain).map(|child| units(choice, level + 1, child));
    let sizes: Vec<f64> = sizes.filter(|size| *size > 0).map(number).collect();
    let total: f64 = sizes.iter().sum();
    sizes.iter().map(|size| -(size / total) * (size / total).log2()).sum()
}

/// Counts of slices are far below the numbers that a float no longer tells apart.
fn number(count: i64) -> f64 {
    f64::from(i32::try_from(count).unwrap_or(i32::MAX))
}

/// The fewest domains that suffice, and of such sets the one with the least room; the first found stays.
fn fewest(choice: &Choice, level: usize, domains: Vec<usize>, need: i64) -> Option<Vec<usize>> {
    let most = fill(choice, level, &domains, need)?.domains;
    // Sets by their size, whether one of them takes the leader, and the room that is still missing: the last choice.
    let mut sets: Vec<BTreeMap<(bool, i64), Vec<usize>>> = vec![BTreeMap::default(); most + 1];
    if let Some(none) = sets.first_mut() {
        none.insert((!choice.has_leader, 0), Vec::new());
    }
    for domain in domains {
        let count = count(choice, level, domain);
        for size in (0..most).rev() {
            let known: Vec<((bool, i64), Vec<usize>)> =
                sets.get(size).into_iter().flatten().map(|(key, set)| (*key, set.clone())).collect();
            for ((led, room), set) in known {
                let with = |set: &[usize]| set.iter().copied().chain([domain]).collect::<Vec<usize>>();
                let larger = sets.get_mut(size + 1)?;
                larger.entry((led, room + count.slices)).or_insert_with(|| with(&set));
                if !led && count.leader {
                    larger.entry((true, room + count.slices_with_leader)).or_insert_with(|| with(&set));
                }
            }
        }
    }
    let enough = |sets: &BTreeMap<(bool, i64), Vec<usize>>| {
        sets.range((true, need)..).next().map(|(_, set)| set.clone())
    };
    sets.iter().find_map(enough)
}

/// Gives each domain the threshold and spreads the rest in order.
fn spread(choice: &Choice, level: usize, domains: &[usize], need: i64, threshold: i64) -> Option<Vec<Share>> {
    let able = |domain: &&usize| count(choice, level, **domain).leader;
    let kept = |domain: &&usize| count(choice, level, **domain).slices_with_leader >= threshold;
    let leader = domains.iter().filter(able).find(kept).or_else(|| domains.iter().find(able));
    if choice.has_leader && leader.is_none() {
        return None;
    }
    let room = |domain: usize| {
        let count = count(choice, level, domain);
        if choice.has_leader && leader == Some(&domain) { count.slices_with_leader } else { count.slices }
    };
    let mut rest = need;
    let mut shares = Vec::with_capacity(domains.len());
    for domain in domains {
        let units = threshold.min(room(*domain)).min(rest);
        rest -= units;
        shares.push(Share { domain: *domain, units, leader: choice.has_leader && leader == Some(domain) });
    }
    for share in &mut shares {
        let more = (room(share.domain) - share.units).min(rest);
        share.units += more;
        rest -= more;
    }
    (rest == 0).then_some(shares)
}

/// Goes down from the domains that bear slices, each for itself.
fn descend(choice: &Choice, from: usize, mut shares: Vec<Share>) -> Option<Vec<Share>> {
    let lowest = choice.shape.levels.len().saturating_sub(1);
    for level in from..choice.terms.slice_level.min(lowest) {
        let mut below = Vec::new();
        for share in &shares {
            let pool = children(choice, level, share.domain).collect();
            below.extend(choice.take(level + 1, pool, share.units, share.leader).ok()?);
        }
        shares = below;
    }
    for share in &mut shares {
        share.units *= choice.terms.slice_size;
    }
    for level in from.max(choice.terms.slice_level)..lowest {
        shares = choice.split(level, &shares)?;
    }
    Some(shares)
}
