//! The flavor-resources of the start page: the one that the tree shows, and its pairs of lender and borrower.

use crate::dashboard::data::Overview;
use crate::dashboard::marks;
use crate::dashboard::text;
use crate::visibility::views::LendingPair;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Most lenders that are named, and most borrowers of each.
const MAX_NAMED: usize = 8;

/// Flavor and resource.
pub(super) type Key = (String, String);

/// Sums of a flavor-resource over the ClusterQueues that have it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    nominal: f64,
    used: f64,
    borrowed: f64,
    /// Number of pending workloads of the ClusterQueues, whatever they ask for.
    pending: u64,
}

impl Sums {
    /// Returns an amount as a part of the nominal quota; amounts of different resources have no common unit.
    fn part(self, amount: f64) -> f64 {
        match (amount > 0.0, self.nominal > 0.0) {
            (false, _) => 0.0,
            (true, true) => amount / self.nominal,
            (true, false) => f64::MAX,
        }
    }

    /// Orders by what is borrowed, then by what is pending, then by what is used: what is merely full says little.
    pub(super) fn cmp_by_demand(&self, other: &Self) -> Ordering {
        let borrowed = self.part(self.borrowed).total_cmp(&other.part(other.borrowed));
        let used = || self.part(self.used).total_cmp(&other.part(other.used));
        borrowed.then_with(|| self.pending.cmp(&other.pending)).then_with(used)
    }
}

/// Returns the flavor-resources of all ClusterQueues.
pub(super) fn flavor_resources(data: &Overview) -> BTreeMap<Key, Sums> {
    let mut known: BTreeMap<Key, Sums> = BTreeMap::new();
    for queue in &data.cluster_queues {
        for quota in &queue.quota {
            let sums = known.entry((quota.flavor.clone(), quota.resource.clone())).or_default();
            sums.nominal += text::value(&quota.nominal).unwrap_or(0.0);
            sums.used += text::value(&quota.used).unwrap_or(0.0);
            sums.borrowed += text::value(&quota.borrowed).unwrap_or(0.0);
            sums.pending = sums.pending.saturating_add(queue.pending.total);
        }
    }
    known
}

/// Returns the flavor-resource of which most is borrowed, or else most is pending; of equal ones the first by name.
pub(super) fn most_in_demand(known: &BTreeMap<Key, Sums>) -> Option<Key> {
    let higher = |a: &Sums, b: &Sums| a.cmp_by_demand(b).is_gt();
    let most = known.iter().reduce(|first, next| if higher(next.1, first.1) { next } else { first });
    most.map(|(key, _)| key.clone())
}

/// Returns how many ClusterQueues have a quota of the flavor-resource, if others lack it.
pub(super) fn queues_with(data: &Overview, (flavor, resource): &Key) -> String {
    let numbers = &data.numbers;
    match numbers.cluster_queues_by_flavor_resource.get(&format!("{flavor}:{resource}")) {
        Some(count) if *count < numbers.cluster_queue_count => format!(
            "{} of {} have this flavor-resource",
            text::count(*count),
            text::counted(numbers.cluster_queue_count, "ClusterQueue")
        ),
        _ => String::new(),
    }
}

/// Returns the pairs of a flavor-resource: `nlp 8 and interns 4 from ranking; …`; empty if nothing is borrowed.
pub(super) fn lenders(data: &Overview, (flavor, resource): &Key) -> String {
    let mut by_lender: BTreeMap<&str, Vec<&LendingPair>> = BTreeMap::new();
    for pair in &data.numbers.lending {
        if pair.flavor == *flavor && pair.resource == *resource {
            by_lender.entry(pair.lender.as_str()).or_default().push(pair);
        }
    }
    let is_cut = by_lender.len() > MAX_NAMED;
    let phrase = |(lender, pairs): (&str, Vec<&LendingPair>)| {
        let borrower = |pair: &&LendingPair| format!("{} {}", pair.borrower, text::amount(&pair.amount));
        let mut borrowers: Vec<String> = pairs.iter().take(MAX_NAMED).map(borrower).collect();
        if pairs.len() > MAX_NAMED {
            borrowers.push("others".to_owned());
        }
        format!("{} from {}", text::listed(&borrowers), marks::short_node(lender))
    };
    let mut phrases: Vec<String> = by_lender.into_iter().take(MAX_NAMED).map(phrase).collect();
    if is_cut {
        phrases.push("more from others".to_owned());
    }
    phrases.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::views::{AmountView, ClusterQueueView, PendingView, QuotaView};

    fn amount(value: u64) -> AmountView {
        AmountView { value: value.to_string(), number: Some(value.into()) }
    }

    fn queue(flavor: &str, (nominal, used, borrowed): (u64, u64, u64), pending: u64) -> ClusterQueueView {
        let quota = QuotaView {
            flavor: flavor.to_owned(),
            resource: "gpu".to_owned(),
            nominal: amount(nominal),
            used: amount(used),
            borrowed: amount(borrowed),
            ..QuotaView::default()
        };
        let pending = PendingView { total: pending, ..PendingView::default() };
        ClusterQueueView { quota: vec![quota], pending, ..ClusterQueueView::default() }
    }

    #[test]
    fn what_is_borrowed_is_shown_before_what_is_full() {
        let full = queue("full", (8, 8, 0), 0);
        let borrowed = queue("lent", (8, 4, 1), 0);
        let waited_for = queue("wanted", (8, 1, 0), 3);
        let without_quota = queue("none", (0, 2, 2), 0);
        for (queues, expected) in [
            (vec![], None),
            (vec![full.clone()], Some("full")),
            (vec![full.clone(), waited_for.clone()], Some("wanted")),
            (vec![full.clone(), borrowed.clone(), waited_for], Some("lent")),
            (vec![full, borrowed, without_quota], Some("none")),
        ] {
            let data = Overview { cluster_queues: queues, ..Overview::default() };
            let most = most_in_demand(&flavor_resources(&data));
            assert_eq!(most.as_ref().map(|key| key.0.as_str()), expected);
        }
    }

    #[test]
    fn pairs_are_named_by_lender() {
        let key = ("h100".to_owned(), "gpu".to_owned());
        let pair = |borrower: &str, lender: &str, value: u64| LendingPair {
            flavor: "h100".to_owned(),
            resource: "gpu".to_owned(),
            borrower: borrower.to_owned(),
            lender: lender.to_owned(),
            amount: amount(value),
        };
        let said = |lending: Vec<LendingPair>| {
            let mut data = Overview::default();
            data.numbers.lending = lending;
            lenders(&data, &key)
        };
        assert_eq!(said(Vec::new()), "");
        let pairs = vec![
            pair("nlp", "ClusterQueue/ranking", 8),
            pair("interns", "ClusterQueue/ranking", 4),
            pair("nlp", "Cohort/ai", 1_000),
            LendingPair { flavor: "a100".to_owned(), ..pair("nlp", "ClusterQueue/vision", 2) },
        ];
        assert_eq!(said(pairs), "nlp 8 and interns 4 from ranking; nlp 1,000 from cohort ai");
        let many = (0..20).map(|number| pair("nlp", &format!("ClusterQueue/q{number:02}"), 1)).collect();
        let text = said(many);
        assert!(text.ends_with("nlp 1 from q07; more from others"), "{text}");
    }
}
