//! Balanced placement: as few domains as suffice, with about the same number of slices in each.
//!
//! For each group of domains with a common parent, computes the threshold: the largest number of slices that every used
//! domain can take. The best group has the highest threshold, then the fewest domains. Its smallest sufficient set of domains
//! gets the threshold each, and the remaining slices in order.

use super::counts::{DomainFit, DomainFits, SummingRules};
use super::domain_selection::{DomainAssignment, DomainSelection};
use std::collections::BTreeMap;
use std::ops::Range;

/// Result of filling domains greedily.
struct GreedyFill {
    domain_count: usize,
    /// Slices that fit into the last domain used.
    last_domain_slices: i64,
}

/// Domains of one group that a balanced placement could use.
struct DomainSetCandidate {
    threshold: i64,
    domain_count: usize,
    /// Domains at the requested level.
    domains: Vec<usize>,
    /// Domains in which slices are counted: the same, or their children.
    slice_domains: Vec<usize>,
    /// Fits without all other children; `None` if slices are counted in the domains themselves.
    restricted_fits: Option<DomainFits>,
}

/// Assigns pods to leaves, if a balanced placement is possible.
pub(super) fn select_balanced(selection: &DomainSelection, pods: i64) -> Option<Vec<DomainAssignment>> {
    let requested = pods / selection.params.slice_size;
    let level = selection.params.level;
    let counting_level = if selection.params.slice_level > level { level + 1 } else { level };
    let best = sibling_groups(selection, level)
        .into_iter()
        .filter_map(|group| evaluate_group(selection, level, counting_level, group, requested))
        .reduce(|best, other| {
            let better = (other.threshold, std::cmp::Reverse(other.domain_count))
                > (best.threshold, std::cmp::Reverse(best.domain_count));
            if better { other } else { best }
        })?;
    let mut domains = best.slice_domains;
    if let Some(fits) = &best.restricted_fits {
        let restricted = DomainSelection { fits, ..*selection };
        let outer = optimal_domain_set(
            &restricted,
            level,
            sort_by_entropy(&restricted, level, &best.domains),
            requested,
        )?;
        domains
            .retain(|domain| outer.iter().any(|parent| children(selection, level, *parent).contains(domain)));
    }
    let chosen = optimal_domain_set(selection, counting_level, domains, requested)?;
    let assignments = distribute_slices(selection, counting_level, &chosen, requested, best.threshold)?;
    descend_to_leaves(selection, counting_level, assignments)
}

/// Groups the domains of a level by parent.
fn sibling_groups(selection: &DomainSelection, level: usize) -> Vec<Range<usize>> {
    match level.checked_sub(1) {
        None => std::iter::once(0..selection.layout.domain_count(level)).collect(),
        Some(parent_level) => (0..selection.layout.domain_count(parent_level))
            .map(|parent| children(selection, parent_level, parent))
            .collect(),
    }
}

fn children(selection: &DomainSelection, level: usize, domain: usize) -> Range<usize> {
    selection.layout.domain(level, domain).map_or(0..0, |domain| domain.children.clone())
}

fn evaluate_group(
    selection: &DomainSelection,
    level: usize,
    counting_level: usize,
    group: Range<usize>,
    requested: i64,
) -> Option<DomainSetCandidate> {
    let domains: Vec<usize> = group.collect();
    let slice_domains_of = |domains: &[usize]| -> Vec<usize> {
        if counting_level == level {
            return domains.to_vec();
        }
        domains.iter().flat_map(|domain| children(selection, level, *domain)).collect()
    };
    let all_slice_domains = slice_domains_of(&domains);
    let fill = evaluate_greedy_fill(selection, counting_level, &all_slice_domains, requested)?;
    let count = i64::try_from(fill.domain_count).ok()?;
    let threshold = (requested / count.max(1)).min(fill.last_domain_slices);
    let reaches_threshold = |domain: &usize| slice_capacity(selection, counting_level, *domain) >= threshold;
    let slice_domains: Vec<usize> = all_slice_domains.into_iter().filter(reaches_threshold).collect();
    let fill = evaluate_greedy_fill(selection, counting_level, &slice_domains, requested)?.domain_count;
    if threshold <= 0 {
        return None;
    }
    if counting_level == level {
        return Some(DomainSetCandidate {
            threshold,
            domain_count: fill,
            domains: slice_domains.clone(),
            slice_domains,
            restricted_fits: None,
        });
    }
    let has_slice_domain = |domain: &usize| {
        children(selection, level, *domain).any(|child| slice_domains.binary_search(&child).is_ok())
    };
    let domains: Vec<usize> = domains.into_iter().filter(has_slice_domain).collect();
    let fits = restrict_fits(selection, counting_level, &slice_domains);
    let fill =
        evaluate_greedy_fill(&DomainSelection { fits: &fits, ..*selection }, level, &domains, requested)?
            .domain_count;
    Some(DomainSetCandidate {
        threshold,
        domain_count: fill,
        domains,
        slice_domains,
        restricted_fits: Some(fits),
    })
}

/// Returns the fits without any domain of `level` other than `domains`, which are sorted.
fn restrict_fits(selection: &DomainSelection, level: usize, domains: &[usize]) -> DomainFits {
    let mut fits = selection.fits.clone();
    let excluded =
        (0..selection.layout.domain_count(level)).filter(|domain| domains.binary_search(domain).is_err());
    let DomainSelection { layout, params, has_leader, .. } = *selection;
    fits.exclude_domains(SummingRules { layout, params, has_leader }, level, excluded);
    fits
}

fn domain_fit(selection: &DomainSelection, level: usize, domain: usize) -> DomainFit {
    selection.fits.get(level, domain)
}

/// Returns the slices that fit into a domain, beside the leader if it might go there.
fn slice_capacity(selection: &DomainSelection, level: usize, domain: usize) -> i64 {
    let fit = domain_fit(selection, level, domain);
    if selection.has_leader && fit.fits_leader { fit.slices_with_leader } else { fit.slices }
}

/// Fills the largest domains first. `None` if all of them together do not suffice.
fn evaluate_greedy_fill(
    selection: &DomainSelection,
    level: usize,
    domains: &[usize],
    requested: i64,
) -> Option<GreedyFill> {
    let mut sizes: Vec<i64> =
        domains.iter().map(|domain| domain_fit(selection, level, *domain).slices).collect();
    let mut remaining = requested;
    let mut used = 0;
    if selection.has_leader {
        let leader_fits =
            domains.iter().map(|domain| domain_fit(selection, level, *domain)).filter(|fit| fit.fits_leader);
        let best = leader_fits.max_by_key(|fit| fit.slices_with_leader)?;
        let index = sizes.iter().position(|size| *size == best.slices)?;
        sizes.remove(index);
        remaining -= best.slices_with_leader;
        used = 1;
        if remaining <= 0 {
            return Some(GreedyFill { domain_count: used, last_domain_slices: best.slices_with_leader });
        }
    }
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    for size in sizes {
        used += 1;
        remaining -= size;
        if remaining <= 0 {
            return Some(GreedyFill { domain_count: used, last_domain_slices: size });
        }
    }
    None
}

/// Sorts domains by how evenly their children can be filled, most even first.
fn sort_by_entropy(selection: &DomainSelection, level: usize, domains: &[usize]) -> Vec<usize> {
    let mut ranked: Vec<(f64, usize)> =
        domains.iter().map(|domain| (entropy(selection, level, *domain), *domain)).collect();
    ranked.sort_by(|(x, a), (y, b)| y.total_cmp(x).then(a.cmp(b)));
    ranked.into_iter().map(|(_, domain)| domain).collect()
}

/// Returns the entropy of the capacities of the children of a domain.
fn entropy(selection: &DomainSelection, level: usize, domain: usize) -> f64 {
    let sizes = children(selection, level, domain).map(|child| slice_capacity(selection, level + 1, child));
    let sizes: Vec<f64> = sizes.filter(|size| *size > 0).map(to_f64).collect();
    let total: f64 = sizes.iter().sum();
    sizes.iter().map(|size| -(size / total) * (size / total).log2()).sum()
}

/// Slice counts are far below the integers that a float cannot represent exactly.
fn to_f64(count: i64) -> f64 {
    f64::from(i32::try_from(count).unwrap_or(i32::MAX))
}

/// Returns the fewest domains that suffice and, of sets of that size, the one with the least capacity; the first one on ties.
fn optimal_domain_set(
    selection: &DomainSelection,
    level: usize,
    domains: Vec<usize>,
    requested: i64,
) -> Option<Vec<usize>> {
    let max_size = evaluate_greedy_fill(selection, level, &domains, requested)?.domain_count;
    // By size: sets by whether they include a domain for the leader and by the slices that fit.
    let mut sets: Vec<BTreeMap<(bool, i64), Vec<usize>>> = vec![BTreeMap::default(); max_size + 1];
    if let Some(none) = sets.first_mut() {
        none.insert((!selection.has_leader, 0), Vec::new());
    }
    for domain in domains {
        let fit = domain_fit(selection, level, domain);
        for size in (0..max_size).rev() {
            let smaller: Vec<((bool, i64), Vec<usize>)> =
                sets.get(size).into_iter().flatten().map(|(key, set)| (*key, set.clone())).collect();
            for ((has_leader, slices), set) in smaller {
                let with = |set: &[usize]| set.iter().copied().chain([domain]).collect::<Vec<usize>>();
                let larger = sets.get_mut(size + 1)?;
                larger.entry((has_leader, slices + fit.slices)).or_insert_with(|| with(&set));
                if !has_leader && fit.fits_leader {
                    larger.entry((true, slices + fit.slices_with_leader)).or_insert_with(|| with(&set));
                }
            }
        }
    }
    let sufficient = |sets: &BTreeMap<(bool, i64), Vec<usize>>| {
        sets.range((true, requested)..).next().map(|(_, set)| set.clone())
    };
    sets.iter().find_map(sufficient)
}

/// Assigns the threshold to each domain and the remaining slices in order.
fn distribute_slices(
    selection: &DomainSelection,
    level: usize,
    domains: &[usize],
    requested: i64,
    threshold: i64,
) -> Option<Vec<DomainAssignment>> {
    let fits_leader = |domain: &&usize| domain_fit(selection, level, **domain).fits_leader;
    let keeps_threshold =
        |domain: &&usize| domain_fit(selection, level, **domain).slices_with_leader >= threshold;
    let leader =
        domains.iter().filter(fits_leader).find(keeps_threshold).or_else(|| domains.iter().find(fits_leader));
    if selection.has_leader && leader.is_none() {
        return None;
    }
    let slices = |domain: usize| {
        let fit = domain_fit(selection, level, domain);
        if selection.has_leader && leader == Some(&domain) { fit.slices_with_leader } else { fit.slices }
    };
    let mut remaining = requested;
    let mut assignments = Vec::with_capacity(domains.len());
    for domain in domains {
        let units = threshold.min(slices(*domain)).min(remaining);
        remaining -= units;
        assignments.push(DomainAssignment {
            domain: *domain,
            units,
            has_leader: selection.has_leader && leader == Some(domain),
        });
    }
    for assignment in &mut assignments {
        let more = (slices(assignment.domain) - assignment.units).min(remaining);
        assignment.units += more;
        remaining -= more;
    }
    (remaining == 0).then_some(assignments)
}

/// Descends to the leaves, each domain separately.
fn descend_to_leaves(
    selection: &DomainSelection,
    from: usize,
    mut assignments: Vec<DomainAssignment>,
) -> Option<Vec<DomainAssignment>> {
    let lowest = selection.layout.levels.len().saturating_sub(1);
    for level in from..selection.params.slice_level.min(lowest) {
        let mut child_assignments = Vec::new();
        for assignment in &assignments {
            let pool = children(selection, level, assignment.domain).collect();
            child_assignments.extend(
                selection.fill_domains(level + 1, pool, assignment.units, assignment.has_leader).ok()?,
            );
        }
        assignments = child_assignments;
    }
    for assignment in &mut assignments {
        assignment.units *= selection.params.slice_size;
    }
    for level in from.max(selection.params.slice_level)..lowest {
        assignments = selection.split_among_children(level, &assignments)?;
    }
    Some(assignments)
}
