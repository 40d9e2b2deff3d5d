//! Rows of the page of a Workload about flavors: what keeps its pods from each, and which fit.
//!
//! Invariant: an amount that a blocker lacks is empty; the first amount that is missing is marked.

use super::links::Links;
use super::{marks, text};
use crate::visibility::views::{AmountView, BlockerKindView, BlockerView, Verdict};

/// What a flavor has for the pods.
pub(super) struct FlavorRow {
    pub(super) flavor: String,
    pub(super) resource: String,
    pub(super) result: &'static str,
    pub(super) binds: bool,
    /// Text in place of numbers, if there are none.
    pub(super) why: String,
    pub(super) requested: String,
    pub(super) available: String,
    pub(super) limit: String,
    pub(super) at: String,
    pub(super) at_href: String,
    pub(super) missing: String,
}

/// Returns the rows about flavors: blockers, later blockers, flavors that fit, flavors that do not match.
pub(super) fn flavor_rows(verdict: &Verdict, links: &Links, links_nodes: bool) -> Vec<FlavorRow> {
    let (mismatches, blockers): (Vec<_>, Vec<_>) =
        verdict.blockers.iter().partition(|blocker| blocker.kind == BlockerKindView::Mismatch);
    let ordered = blockers.into_iter().chain(&verdict.next).chain(&verdict.fits).chain(mismatches);
    let mut rows: Vec<FlavorRow> = ordered.map(|blocker| flavor_row(blocker, links, links_nodes)).collect();
    if let Some(first) = rows.iter_mut().find(|row| !row.missing.is_empty()) {
        first.binds = true;
    }
    rows
}

fn flavor_row(blocker: &BlockerView, links: &Links, links_nodes: bool) -> FlavorRow {
    let amount = |amount: &Option<AmountView>| amount.as_ref().map(text::amount).unwrap_or_default();
    let has_numbers = blocker.requested.is_some() || blocker.available.is_some();
    FlavorRow {
        flavor: blocker.flavor.clone(),
        resource: blocker.resource.clone(),
        result: marks::result(blocker.kind),
        binds: false,
        why: if has_numbers { String::new() } else { blocker.text.clone() },
        requested: amount(&blocker.requested),
        available: amount(&blocker.available),
        limit: amount(&blocker.limit),
        at: marks::node_words(&blocker.node),
        at_href: if links_nodes { marks::node_href(links, &blocker.node) } else { String::new() },
        missing: amount(&blocker.missing),
    }
}
