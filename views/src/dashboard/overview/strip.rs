//! All flavor-resources of the start page in one table: a row for each node of the tree, a small bar for each flavor-resource.
//!
//! Invariant: it has at most `MAX_CELLS` cells, and fewer above a tree of many rows, which would make the page too long. Of a larger tree
//! only the cohorts are shown, and the page says so.

use super::MAX_ROWS;
use super::flavor_resources::{Key, Sums};
use super::nodes::Node;
use crate::dashboard::bar::Bar;
use crate::dashboard::links::Links;
use crate::dashboard::text;
use crate::visibility::views::QuotaView;
use std::collections::{BTreeMap, BTreeSet};

/// Most cells.
const MAX_CELLS: usize = 240;
/// Most cells above the longest tree.
const MIN_CELLS: usize = 32;
/// Bytes of the cells and the rows of the tree together: what a page of 150 kB has beside the rest.
const BYTES: usize = 135_000;
/// Bytes of a cell, and of a row of the tree.
const CELL_BYTES: usize = 170;
const ROW_BYTES: usize = 260;
/// Most columns.
const MAX_COLUMNS: usize = 8;

/// The table; without columns it is not shown.
#[derive(Default)]
pub(super) struct Strip {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<StripRow>,
    /// What is left out, as a sentence; empty for nothing.
    pub(super) left_out: &'static str,
}

pub(super) struct Column {
    pub(super) flavor: String,
    pub(super) resource: String,
    /// The page with the tree of this flavor-resource.
    pub(super) href: String,
    pub(super) current: bool,
}

pub(super) struct StripRow {
    pub(super) depth: usize,
    pub(super) is_cohort: bool,
    pub(super) name: String,
    pub(super) href: String,
    pub(super) cells: Vec<Option<Cell>>,
}

pub(super) struct Cell {
    pub(super) bar: Bar,
    pub(super) used: String,
    pub(super) nominal: String,
}

impl Cell {
    fn of(quota: &QuotaView) -> Self {
        Self {
            bar: Bar::of(quota, ""),
            used: text::amount(&quota.used),
            nominal: text::amount(&quota.nominal),
        }
    }
}

/// Returns the table. A single flavor-resource needs none: the tree below shows it.
pub(super) fn strip(
    nodes: &[(usize, Node<'_>)],
    (known, chosen): (&BTreeMap<Key, Sums>, Option<&Key>),
    (path, links): (&str, &Links),
) -> Strip {
    let keys = shown_keys(known, chosen);
    if keys.len() < 2 {
        return Strip::default();
    }
    let with_quota = |(depth, node): &(usize, Node<'_>)| {
        let cells: Vec<Option<Cell>> =
            keys.iter().map(|(flavor, resource)| node.quota(flavor, resource).map(Cell::of)).collect();
        cells.iter().any(Option::is_some).then(|| StripRow {
            depth: *depth,
            is_cohort: node.is_cohort(),
            name: node.name().to_owned(),
            href: node.href(links),
            cells,
        })
    };
    let most_rows = most_cells(nodes.len()) / keys.len().max(1);
    let is_large = nodes.len() > most_rows;
    let shown = nodes.iter().filter(|(_, node)| !is_large || node.is_cohort());
    let mut rows: Vec<StripRow> = shown.filter_map(with_quota).take(most_rows.saturating_add(1)).collect();
    if rows.is_empty() {
        return Strip::default();
    }
    let is_cut = rows.len() > most_rows;
    rows.truncate(most_rows);
    let column = |(flavor, resource): &Key| Column {
        href: links.with_query(path, &[("fr", &format!("{flavor}:{resource}"))]),
        current: chosen.is_some_and(|chosen| (&chosen.0, &chosen.1) == (flavor, resource)),
        flavor: flavor.clone(),
        resource: resource.clone(),
    };
    let left_out = match (is_large, is_cut, known.len() > keys.len()) {
        (false, _, false) => "",
        (true, false, false) => "The cohorts are shown; ClusterQueues are in the table below.",
        (true, true, false) => "The first cohorts are shown; all are in the table below.",
        (false, _, true) => "The flavor-resources in most demand are shown; all can be chosen below.",
        (true, false, true) => "The cohorts and the flavor-resources in most demand are shown.",
        (true, true, true) => "The first cohorts and the flavor-resources in most demand are shown.",
    };
    Strip { columns: keys.iter().map(column).collect(), rows, left_out }
}

/// Returns the most cells above a tree with this many nodes.
fn most_cells(nodes: usize) -> usize {
    let tree = nodes.min(MAX_ROWS).saturating_mul(ROW_BYTES);
    (BYTES.saturating_sub(tree) / CELL_BYTES).clamp(MIN_CELLS, MAX_CELLS)
}

/// Returns the flavor-resources of the columns by name: all, or the chosen one and the ones in most demand.
fn shown_keys(known: &BTreeMap<Key, Sums>, chosen: Option<&Key>) -> BTreeSet<Key> {
    let mut ranked: Vec<(&Key, &Sums)> = known.iter().collect();
    ranked.sort_by(|&(key, a), &(other, b)| {
        let is_chosen = |key: &Key| Some(key) == chosen;
        is_chosen(other).cmp(&is_chosen(key)).then_with(|| b.cmp_by_demand(a))
    });
    ranked.into_iter().take(MAX_COLUMNS).map(|(key, _)| key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::data::Overview;
    use crate::dashboard::overview::flavor_resources::flavor_resources;
    use crate::dashboard::overview::nodes::nodes;
    use crate::visibility::views::{ClusterQueueView, CohortView, ViewMetadata};

    fn named(name: &str) -> ViewMetadata {
        ViewMetadata { name: name.to_owned(), ..ViewMetadata::default() }
    }

    /// Cohorts, of which the first has ClusterQueues, each with a quota of the same flavors.
    fn tree(cohorts: usize, queues: usize, flavors: usize) -> Overview {
        let quota: Vec<QuotaView> = (0..flavors)
            .map(|number| QuotaView {
                flavor: format!("f{number:02}"),
                resource: "gpu".to_owned(),
                ..QuotaView::default()
            })
            .collect();
        let queue = |number: usize| ClusterQueueView {
            metadata: named(&format!("q{number}")),
            cohort: "ai".to_owned(),
            quota: quota.clone(),
            ..ClusterQueueView::default()
        };
        Overview {
            cohorts: (0..cohorts)
                .map(|number| CohortView {
                    metadata: named(&if number == 0 { "ai".to_owned() } else { format!("c{number}") }),
                    quota: quota.clone(),
                    ..CohortView::default()
                })
                .collect(),
            cluster_queues: (0..queues).map(queue).collect(),
            ..Overview::default()
        }
    }

    #[test]
    fn a_strip_is_bounded_and_says_what_it_leaves_out() {
        for (cohorts, queues, flavors, columns, rows, says) in [
            (1, 3, 1, 0, 0, ""),
            (1, 3, 2, 2, 4, ""),
            (1, 100, 2, 2, 101, ""),
            (1, 500, 2, 2, 1, "The cohorts are shown"),
            (100, 400, 2, 2, MIN_CELLS / 2, "The first cohorts are shown"),
            (1, 3, 30, MAX_COLUMNS, 4, "The flavor-resources in most demand"),
            (1, 500, 30, MAX_COLUMNS, 1, "The cohorts and the flavor-resources"),
            (
                100,
                400,
                30,
                MAX_COLUMNS,
                MIN_CELLS / MAX_COLUMNS,
                "The first cohorts and the flavor-resources",
            ),
        ] {
            let data = tree(cohorts, queues, flavors);
            let known = flavor_resources(&data);
            let chosen = known.keys().next_back();
            let strip = strip(&nodes(&data), (&known, chosen), ("/", &Links::default()));
            assert_eq!(
                (strip.columns.len(), strip.rows.len()),
                (columns, rows),
                "{cohorts} {queues} {flavors}"
            );
            assert!(strip.left_out.starts_with(says) && strip.left_out.is_empty() == says.is_empty());
            let current = strip.columns.iter().filter(|column| column.current).count();
            assert_eq!(current, usize::from(columns > 0), "the chosen one is always shown");
        }
    }
}
