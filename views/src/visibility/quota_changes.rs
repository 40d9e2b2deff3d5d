//! Quota that would have to be released or raised for a pending Workload, after the workloads before it are served.
//!
//! Invariants: a quota that "would be enough" admits the Workload and the workloads before it; a reader that may not see sums
//! gets only the amounts that the Workload itself lacks.

use super::amounts::amount_view;
use super::quota::Children;
use super::verdict::Asked;
use super::views::{AmountView, ChangeKind, ChangeOption, OptionNumber};
use crate::quota::{FlavorResource, NodeRef};
use crate::scheduler::{Explanation, QuotaNeed};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Asked<'_> {
    /// Describes the quota that must be released for the Workload and the ones before it.
    pub(super) fn wait(&self, explanation: &Explanation) -> Option<ChangeOption> {
        // What it lacks itself is named before what would be short behind the workloads ahead only.
        let lacking = explanation.needs.iter().filter(|need| need.lacks() > 0);
        let need = lacking.min_by_key(|need| need.requested <= need.available)?;
        let (node, _) = self.quota().limits(&self.queue, &need.fr).into_iter().next()?;
        let resource = &need.fr.resource;
        let units = &self.quota().facts.units;
        let amount = |amount: i128| amount_view(units, &self.queue, &need.fr, amount);
        let sees_sums = self.rows.access.sees_sums();
        let ahead = if sees_sums { need.ahead } else { 0 };
        let own = need.requested.saturating_sub(need.available);
        let released = own.saturating_add(ahead);
        if released <= 0 {
            // Of what workloads ahead need, a reader without sums learns nothing.
            return None;
        }
        let missing = amount(released);
        let mut detail = format!("{} {resource} of {} must be released", missing.value, node.as_str());
        let mut numbers = BTreeMap::from([("missing".to_owned(), OptionNumber::Amount(missing))]);
        if ahead > 0 {
            detail = format!("{detail}, {}", self.for_workloads_ahead(need, ahead.min(released)));
            numbers.insert("ahead".to_owned(), OptionNumber::Amount(amount(ahead)));
        } else if need.ahead > 0 {
            detail = format!("{detail}, after what the workloads ahead need");
        }
        if sees_sums {
            let workloads = u64::try_from(explanation.users).unwrap_or(u64::MAX);
            let used = amount(self.used_below(&node, &need.fr));
            let (words, verb) = if workloads == 1 { ("workload", "uses") } else { ("workloads", "use") };
            detail = format!("{detail}; {workloads} {words} {verb} {}", used.value);
            numbers.insert("workloads".to_owned(), OptionNumber::Count(workloads));
            numbers.insert("used".to_owned(), OptionNumber::Amount(used));
        }
        Some(ChangeOption { kind: ChangeKind::Wait, possible: true, detail, numbers })
    }

    /// Formats the part for the workloads before it: `4 of it for the 2 ahead`.
    fn for_workloads_ahead(&self, need: &QuotaNeed, amount: i128) -> String {
        let amount = amount_view(&self.quota().facts.units, &self.queue, &need.fr, amount);
        format!("{} of it for the {} ahead", amount.value, need.ahead_count)
    }

    /// Returns the usage of all ClusterQueues below a node.
    fn used_below(&self, node: &NodeRef, fr: &FlavorResource) -> i128 {
        let queues = &self.rows.snapshot.queues;
        let mut used = 0;
        let mut add = |name: &Arc<str>| {
            let usage =
                queues.cluster_queues.get(name).and_then(|queue| queue.usage_by_flavor_resource.get(fr));
            used += usage.map_or(0, |usage| usage.usage.to_i128());
        };
        match node {
            NodeRef::ClusterQueue(name) => add(name),
            NodeRef::Cohort(name) => Children::of(queues).each_leaf(name, add),
        }
        used
    }

    /// Describes the limits that would have to be raised: the one that binds, and the own nominal quota if others bind behind it.
    pub(super) fn raise_quota(&self, explanation: &Explanation) -> Vec<ChangeOption> {
        let short: Vec<&QuotaNeed> = explanation.needs.iter().filter(|need| need.lacks() > 0).collect();
        if short.is_empty() || !self.rows.access.sees_sums() {
            return Vec::new();
        }
        let mut options = Vec::new();
        if let [need] = &short[..] {
            let limits = self.quota().limits(&self.queue, &need.fr).into_iter();
            let mut bound = limits.filter(|(node, available)| *available < need.total_at(node));
            let Some((node, available)) = bound.next() else { return options };
            let (claim, numbers) = self.raised_limit(&node, need, available);
            let Some((above, left)) = bound.next() else {
                let before = self.taken_before(&node, need, available);
                let detail = format!("{before}{claim} would be enough{}", rooms(explanation));
                return vec![ChangeOption { kind: ChangeKind::Quota, possible: true, detail, numbers }];
            };
            let left = amount_view(&self.quota().facts.units, &self.queue, &need.fr, left.max(0));
            let detail = format!("{claim} is not enough alone: {above} can provide {}", left.value);
            options.push(ChangeOption { kind: ChangeKind::Quota, possible: false, detail, numbers });
        }
        options.extend(self.raise_own(&short, explanation));
        options
    }

    /// Describes the nominal quota of the own ClusterQueue that would be enough, whatever binds above.
    fn raise_own(&self, short: &[&QuotaNeed], explanation: &Explanation) -> Option<ChangeOption> {
        let units = &self.quota().facts.units;
        let first = *short.first()?;
        let raised = |need: &QuotaNeed| {
            let nominal = self.quota().usage(&self.queue, &need.fr).limits.nominal.to_i128();
            amount_view(units, &self.queue, &need.fr, nominal.saturating_add(need.lacks()))
        };
        let word = |need: &&QuotaNeed| format!("{}{}", raised(need).value, self.of_what(&need.fr));
        let words: Vec<String> = short.iter().map(word).collect();
        let ahead = short.iter().find(|need| need.ahead > 0);
        let ahead =
            ahead.map(|need| format!(", {}", self.for_workloads_ahead(need, need.ahead))).unwrap_or_default();
        let detail = format!(
            "a nominal quota of {} at {} would be enough{ahead}{}",
            words.join(" and of "),
            self.queue,
            rooms(explanation)
        );
        let numbers = numbers(raised(first), amount_view(units, &self.queue, &first.fr, first.lacks()));
        Some(ChangeOption { kind: ChangeKind::Quota, possible: true, detail, numbers })
    }

    /// Formats the limit of a node with the missing amount added: `a nominal quota of 10 of cpu in f at ClusterQueue q`.
    fn raised_limit(
        &self,
        node: &NodeRef,
        need: &QuotaNeed,
        available: i128,
    ) -> (String, BTreeMap<String, OptionNumber>) {
        let (field, limit) = self.limit_of(node, &need.fr);
        let missing = need.total_at(node).saturating_sub(available);
        let amount =
            |node: &NodeRef, amount: i128| amount_view(&self.quota().facts.units, node, &need.fr, amount);
        let new = amount(node, limit.saturating_add(missing));
        let claim = format!("a {field} of {}{} at {node}", new.value, self.of_what(&need.fr));
        (claim, numbers(new, amount(&self.queue, missing)))
    }

    /// Formats the quota that is meant, if the ClusterQueue has several: ` of cpu in f`.
    fn of_what(&self, fr: &FlavorResource) -> String {
        let facts = self.quota().facts.cluster_queues.get(self.queue.as_str());
        let is_one = facts.is_some_and(|facts| facts.order.len() == 1);
        if is_one { String::new() } else { format!(" of {} in {}", fr.resource, fr.flavor) }
    }

    fn limit_of(&self, node: &NodeRef, fr: &FlavorResource) -> (&'static str, i128) {
        let usage = self.quota().usage(node, fr);
        let is_root = self.quota().path(node).is_some_and(|path| path.len() == 1);
        match usage.limits.borrowing_limit.filter(|_| !is_root) {
            Some(limit) => ("borrowing limit", limit.to_i128()),
            None => ("nominal quota", usage.limits.nominal.to_i128()),
        }
    }

    /// Formats what is taken before the Workload: `6 would be enough for it alone; the 2 ahead take 4 first: `.
    fn taken_before(&self, node: &NodeRef, need: &QuotaNeed, available: i128) -> String {
        let others = need.others_at(node);
        if need.ahead <= 0 && others <= 0 {
            return String::new();
        }
        let amount = |amount: i128| amount_view(&self.quota().facts.units, node, &need.fr, amount).value;
        let own = need.requested.saturating_sub(available);
        let alone = self.limit_of(node, &need.fr).1.saturating_add(own);
        let mut text = String::new();
        if own > 0 {
            text = format!("{} would be enough for it alone; ", amount(alone));
        }
        let mut takers = Vec::new();
        if need.ahead > 0 {
            let verb = if need.ahead_count == 1 { "takes" } else { "take" };
            takers.push(format!("the {} ahead {verb} {} first", need.ahead_count, amount(need.ahead)));
        }
        if others > 0 {
            takers.push(format!("workloads of other ClusterQueues may borrow {}", amount(others)));
        }
        format!("{text}{}: ", takers.join(", and "))
    }
}

fn rooms(explanation: &Explanation) -> String {
    let flavors = &explanation.flavors_with_nodes;
    if flavors.is_empty() {
        String::new()
    } else {
        format!(", if nodes of {} have room", flavors.join(" and of "))
    }
}

fn numbers(value: AmountView, missing: AmountView) -> BTreeMap<String, OptionNumber> {
    BTreeMap::from([
        ("value".to_owned(), OptionNumber::Amount(value)),
        ("missing".to_owned(), OptionNumber::Amount(missing)),
    ])
}
