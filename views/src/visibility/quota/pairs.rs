//! Lent quota as pairs of a lender and a borrower.
//!
//! The engine assigns unused quota to no borrower: all of it below a cohort serves the whole cohort. The pairs are one assignment
//! that adds up. Within a cohort its own lenders serve first, so that quota crosses as few cohorts as possible.
//!
//! Invariants, for each flavor-resource: the pairs of a lender add up to what it lends; the pairs of a ClusterQueue add up to what
//! it borrows, less what the root of its tree uses beyond its quota, which no node lends.

use super::{Children, Lending, PublishedQuota};
use crate::quota::{FlavorResource, NodeRef};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Quota that a ClusterQueue has of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::visibility) struct Pair {
    pub(in crate::visibility) fr: FlavorResource,
    /// The ClusterQueue, or the cohort if it is of the cohort's own quota.
    pub(in crate::visibility) lender: NodeRef,
    /// The ClusterQueue that borrows.
    pub(in crate::visibility) borrower: NodeRef,
    pub(in crate::visibility) amount: i128,
}

/// Nodes with an amount each.
type Amounts = Vec<(NodeRef, i128)>;

/// What the nodes below a cohort borrow from and lend beyond it.
#[derive(Default)]
struct Beyond {
    borrowers: Amounts,
    lenders: Amounts,
}

/// Returns the pairs of all trees, by flavor-resource, lender and borrower. Trees whose parents form a cycle have none.
pub(in crate::visibility) fn pairs(
    quota: PublishedQuota<'_>,
    children: &Children,
    lending: &Lending,
) -> Vec<Pair> {
    let mut found = Vec::new();
    let mut beyond: BTreeMap<(NodeRef, FlavorResource), Beyond> = BTreeMap::new();
    for cohort in bottom_up(quota, children) {
        let node = NodeRef::Cohort(Arc::clone(cohort));
        for fr in quota.usages(&node).into_iter().flatten().map(|(fr, _)| fr) {
            let (mut borrowers, mut lenders) = (Amounts::new(), Amounts::new());
            for child in children.of_cohort(cohort) {
                match child {
                    NodeRef::Cohort(_) => {
                        let below = beyond.remove(&(child.clone(), fr.clone())).unwrap_or_default();
                        borrowers.extend(below.borrowers);
                        lenders.extend(below.lenders);
                    }
                    NodeRef::ClusterQueue(_) => {
                        borrowers.push((child.clone(), quota.usage(child, fr).borrowed(true).to_i128()));
                        lenders.push((child.clone(), lending.lent(child, fr)));
                    }
                }
            }
            lenders.push((node.clone(), lending.own(&node, fr)));
            let served = total(&lenders).saturating_sub(lending.lent(&node, fr));
            let left = serve((borrowers, lenders), served, fr, &mut found);
            beyond.insert((node.clone(), fr.clone()), left);
        }
    }
    found.sort_by(|a, b| (&a.fr, &a.lender, &a.borrower).cmp(&(&b.fr, &b.lender, &b.borrower)));
    found
}

/// Returns the cohorts of trees without a cycle, each after the cohorts below it.
fn bottom_up<'a>(quota: PublishedQuota<'a>, children: &'a Children) -> Vec<&'a Arc<str>> {
    let is_root = |name: &&Arc<str>| quota.parent(&NodeRef::Cohort(Arc::clone(name))).is_none();
    let mut order: Vec<&Arc<str>> = quota.queues.cohorts.keys().filter(is_root).collect();
    let mut next = 0;
    while let Some(name) = order.get(next).copied() {
        let below = children.of_cohort(name).iter();
        order.extend(below.filter_map(|child| match child {
            NodeRef::Cohort(name) => Some(name),
            NodeRef::ClusterQueue(_) => None,
        }));
        next += 1;
    }
    order.reverse();
    order
}

fn total(amounts: &[(NodeRef, i128)]) -> i128 {
    amounts.iter().map(|(_, amount)| *amount).sum()
}

/// Pairs lenders and borrowers in their order until an amount is served. Returns what is left of both.
fn serve(
    (borrowers, lenders): (Amounts, Amounts),
    mut amount: i128,
    fr: &FlavorResource,
    found: &mut Vec<Pair>,
) -> Beyond {
    let (mut borrowers, mut lenders) = (borrowers.into_iter().peekable(), lenders.into_iter().peekable());
    while let (Some((borrower, wanted)), Some((lender, spare))) = (borrowers.peek_mut(), lenders.peek_mut()) {
        let part = amount.min(*wanted).min(*spare).max(0);
        if part > 0 {
            found.push(Pair {
                fr: fr.clone(),
                lender: lender.clone(),
                borrower: borrower.clone(),
                amount: part,
            });
        }
        (*wanted, *spare, amount) = (*wanted - part, *spare - part, amount - part);
        let (is_served, is_spent) = (*wanted <= 0, *spare <= 0);
        if is_served {
            borrowers.next();
        }
        if is_spent {
            lenders.next();
        }
        if amount <= 0 {
            break;
        }
    }
    let is_left = |(_, amount): &(NodeRef, i128)| *amount > 0;
    Beyond { borrowers: borrowers.filter(is_left).collect(), lenders: lenders.filter(is_left).collect() }
}
