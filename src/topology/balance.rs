//! Balanced placement: as few domains as suffice, and about as many slices in each.
//!
//! Among the domains that share a parent at the level above the requested one, those are looked for that give each domain
//! in use the most slices at least. The smallest set that suffices then gets that many slices each, and the rest in order.

use super::counts::{DomainFit, DomainFits};
use super::domain_selection::{DomainAssignment, DomainSelection};
use std::collections::BTreeMap;
use std::ops::Range;

/// What a greedy filling of domains comes to.
struct GreedyFill {
    domain_count: usize,
    /// Slices that the last domain in use could take.
    last_domain_slices: i64,
}

/// A set of domains that a balanced placement could use.
struct DomainSetCandidate {
    threshold: i64,
    domain_count: usize,
    /// At the requested level.
    domains: Vec<usize>,
    /// Those that slices are counted in: the same, or their children.
    slice_domains: Vec<usize>,
    /// What is counted without all other children; none where slices are counted in the domains themselves.
    restricted_fits: Option<DomainFits>,
}

/// Shares of the narrowest domains, if a balanced placement is possible.
pub(super) fn select_balanced(choice: &DomainSelection, pods: i64) -> Option<Vec<DomainAssignment>> {
    let need = pods / choice.params.slice_size;
    let level = choice.params.level;
    let bearing = if choice.params.slice_level > level { level + 1 } else { level };
    let best = sibling_groups(choice, level)
        .into_iter()
        .filter_map(|group| evaluate_group(choice, level, bearing, group, need))
        .reduce(|best, other| {
            let better = (other.threshold, std::cmp::Reverse(other.domain_count))
                > (best.threshold, std::cmp::Reverse(best.domain_count));
            if better { other } else { best }
        })?;
    let mut domains = best.slice_domains;
    if let Some(counts) = &best.restricted_fits {
        let narrowed = DomainSelection { fits: counts, ..*choice };
        let outer =
            optimal_domain_set(&narrowed, level, sort_by_entropy(&narrowed, level, &best.domains), need)?;
        domains.retain(|domain| outer.iter().any(|above| children(choice, level, *above).contains(domain)));
    }
    let chosen = optimal_domain_set(choice, bearing, domains, need)?;
    let shares = distribute_slices(choice, bearing, &chosen, need, best.threshold)?;
    descend_to_leaves(choice, bearing, shares)
}

/// Domains of a level that share a parent.
fn sibling_groups(choice: &DomainSelection, level: usize) -> Vec<Range<usize>> {
    match level.checked_sub(1) {
        None => std::iter::once(0..choice.layout.domain_count(level)).collect(),
        Some(above) => {
            (0..choice.layout.domain_count(above)).map(|parent| children(choice, above, parent)).collect()
        }
    }
}

fn children(choice: &DomainSelection, level: usize, domain: usize) -> Range<usize> {
    choice.layout.domain(level, domain).map_or(0..0, |domain| domain.children.clone())
}

fn evaluate_group(
    choice: &DomainSelection,
    level: usize,
    bearing: usize,
    group: Range<usize>,
    need: i64,
) -> Option<DomainSetCandidate> {
    let domains: Vec<usize> = group.collect();
    let bearers = |domains: &[usize]| -> Vec<usize> {
        if bearing == level {
            return domains.to_vec();
        }
        domains.iter().flat_map(|domain| children(choice, level, *domain)).collect()
    };
    let all = bearers(&domains);
    let filling = evaluate_greedy_fill(choice, bearing, &all, need)?;
    let count = i64::try_from(filling.domain_count).ok()?;
    let threshold = (need / count.max(1)).min(filling.last_domain_slices);
    let enough = |domain: &usize| slice_capacity(choice, bearing, *domain) >= threshold;
    let bearers: Vec<usize> = all.into_iter().filter(enough).collect();
    let filling = evaluate_greedy_fill(choice, bearing, &bearers, need)?.domain_count;
    if threshold <= 0 {
        return None;
    }
    if bearing == level {
        return Some(DomainSetCandidate {
            threshold,
            domain_count: filling,
            domains: bearers.clone(),
            slice_domains: bearers,
            restricted_fits: None,
        });
    }
    let used =
        |domain: &usize| children(choice, level, *domain).any(|child| bearers.binary_search(&child).is_ok());
    let domains: Vec<usize> = domains.into_iter().filter(used).collect();
    let counts = restrict_fits(choice, bearing, &bearers);
    let filling = evaluate_greedy_fill(&DomainSelection { fits: &counts, ..*choice }, level, &domains, need)?
        .domain_count;
    Some(DomainSetCandidate {
        threshold,
        domain_count: filling,
        domains,
        slice_domains: bearers,
        restricted_fits: Some(counts),
    })
}

/// What is counted with no other domains of a level than these, which are in order.
fn restrict_fits(choice: &DomainSelection, level: usize, domains: &[usize]) -> DomainFits {
    let mut counts = choice.fits.clone();
    let dropped =
        (0..choice.layout.domain_count(level)).filter(|domain| domains.binary_search(domain).is_err());
    counts.exclude_domains(choice.layout, level, dropped, choice.params, choice.has_leader);
    counts
}

fn domain_fit(choice: &DomainSelection, level: usize, domain: usize) -> DomainFit {
    choice.fits.get(level, domain)
}

/// Slices that a domain could take, beside a leader where it might have to take that.
fn slice_capacity(choice: &DomainSelection, level: usize, domain: usize) -> i64 {
    let count = domain_fit(choice, level, domain);
    if choice.has_leader && count.fits_leader { count.slices_with_leader } else { count.slices }
}

/// Fills the largest domains first; none if all together do not suffice.
fn evaluate_greedy_fill(
    choice: &DomainSelection,
    level: usize,
    domains: &[usize],
    need: i64,
) -> Option<GreedyFill> {
    let mut sizes: Vec<i64> =
        domains.iter().map(|domain| domain_fit(choice, level, *domain).slices).collect();
    let mut rest = need;
    let mut used = 0;
    if choice.has_leader {
        let able =
            domains.iter().map(|domain| domain_fit(choice, level, *domain)).filter(|count| count.fits_leader);
        let best = able.max_by_key(|count| count.slices_with_leader)?;
        let place = sizes.iter().position(|size| *size == best.slices)?;
        sizes.remove(place);
        rest -= best.slices_with_leader;
        used = 1;
        if rest <= 0 {
            return Some(GreedyFill { domain_count: used, last_domain_slices: best.slices_with_leader });
        }
    }
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    for size in sizes {
        used += 1;
        rest -= size;
        if rest <= 0 {
            return Some(GreedyFill { domain_count: used, last_domain_slices: size });
        }
    }
    None
}

/// Domains in the order of how evenly their children could be filled, the most even first.
fn sort_by_entropy(choice: &DomainSelection, level: usize, domains: &[usize]) -> Vec<usize> {
    let mut ranked: Vec<(f64, usize)> =
        domains.iter().map(|domain| (entropy(choice, level, *domain), *domain)).collect();
    ranked.sort_by(|(x, a), (y, b)| y.total_cmp(x).then(a.cmp(b)));
    ranked.into_iter().map(|(_, domain)| domain).collect()
}

/// Entropy of what the children of a domain could take.
fn entropy(choice: &DomainSelection, level: usize, domain: usize) -> f64 {
    let sizes = children(choice, level, domain).map(|child| slice_capacity(choice, level + 1, child));
    let sizes: Vec<f64> = sizes.filter(|size| *size > 0).map(to_f64).collect();
    let total: f64 = sizes.iter().sum();
    sizes.iter().map(|size| -(size / total) * (size / total).log2()).sum()
}

/// Counts of slices are far below the numbers that a float no longer tells apart.
fn to_f64(count: i64) -> f64 {
    f64::from(i32::try_from(count).unwrap_or(i32::MAX))
}

/// The fewest domains that suffice, and of such sets the one with the least room; the first found stays.
fn optimal_domain_set(
    choice: &DomainSelection,
    level: usize,
    domains: Vec<usize>,
    need: i64,
) -> Option<Vec<usize>> {
    let most = evaluate_greedy_fill(choice, level, &domains, need)?.domain_count;
    // Sets by their size, whether one of them takes the leader, and the room that is still missing: the last choice.
    let mut sets: Vec<BTreeMap<(bool, i64), Vec<usize>>> = vec![BTreeMap::default(); most + 1];
    if let Some(none) = sets.first_mut() {
        none.insert((!choice.has_leader, 0), Vec::new());
    }
    for domain in domains {
        let count = domain_fit(choice, level, domain);
        for size in (0..most).rev() {
            let known: Vec<((bool, i64), Vec<usize>)> =
                sets.get(size).into_iter().flatten().map(|(key, set)| (*key, set.clone())).collect();
            for ((led, room), set) in known {
                let with = |set: &[usize]| set.iter().copied().chain([domain]).collect::<Vec<usize>>();
                let larger = sets.get_mut(size + 1)?;
                larger.entry((led, room + count.slices)).or_insert_with(|| with(&set));
                if !led && count.fits_leader {
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
fn distribute_slices(
    choice: &DomainSelection,
    level: usize,
    domains: &[usize],
    need: i64,
    threshold: i64,
) -> Option<Vec<DomainAssignment>> {
    let able = |domain: &&usize| domain_fit(choice, level, **domain).fits_leader;
    let kept = |domain: &&usize| domain_fit(choice, level, **domain).slices_with_leader >= threshold;
    let leader = domains.iter().filter(able).find(kept).or_else(|| domains.iter().find(able));
    if choice.has_leader && leader.is_none() {
        return None;
    }
    let room = |domain: usize| {
        let count = domain_fit(choice, level, domain);
        if choice.has_leader && leader == Some(&domain) { count.slices_with_leader } else { count.slices }
    };
    let mut rest = need;
    let mut shares = Vec::with_capacity(domains.len());
    for domain in domains {
        let units = threshold.min(room(*domain)).min(rest);
        rest -= units;
        shares.push(DomainAssignment {
            domain: *domain,
            units,
            has_leader: choice.has_leader && leader == Some(domain),
        });
    }
    for share in &mut shares {
        let more = (room(share.domain) - share.units).min(rest);
        share.units += more;
        rest -= more;
    }
    (rest == 0).then_some(shares)
}

/// Goes down from the domains that bear slices, each for itself.
fn descend_to_leaves(
    choice: &DomainSelection,
    from: usize,
    mut shares: Vec<DomainAssignment>,
) -> Option<Vec<DomainAssignment>> {
    let lowest = choice.layout.levels.len().saturating_sub(1);
    for level in from..choice.params.slice_level.min(lowest) {
        let mut below = Vec::new();
        for share in &shares {
            let pool = children(choice, level, share.domain).collect();
            below.extend(choice.fill_domains(level + 1, pool, share.units, share.has_leader).ok()?);
        }
        shares = below;
    }
    for share in &mut shares {
        share.units *= choice.params.slice_size;
    }
    for level in from.max(choice.params.slice_level)..lowest {
        shares = choice.split_among_children(level, &shares)?;
    }
    Some(shares)
}
