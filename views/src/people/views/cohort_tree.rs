//! Text of `tree cohort`.

use super::amount::amount;
use super::cluster_queues::{NO_QUOTA, borrowed, quota_of};
use super::{FlavorResource, Look, line_above, one_below_the_other};
use crate::people::text_table::{Narrow, Side, TextTable};
use crate::visibility::views::{ClusterQueueView, CohortView, QuotaView, ShareView};
use std::collections::BTreeSet;

/// Cohorts and ClusterQueues by name.
#[derive(Clone, Copy, Debug)]
pub struct Forest<'a> {
    /// The cohorts.
    pub cohorts: &'a [CohortView],
    /// The ClusterQueues.
    pub queues: &'a [ClusterQueueView],
}

/// A node of the forest, with its position in the drawing.
pub(super) struct TreeNode<'a> {
    /// Line-drawing characters in front of the name.
    pub(super) lead: String,
    pub(super) name: &'a str,
    pub(super) quota: &'a [QuotaView],
    pub(super) share: Option<&'a ShareView>,
    pub(super) pending: u64,
    pub(super) is_root: bool,
}

impl<'a> Forest<'a> {
    /// Returns the names of the cohorts without a parent.
    pub(super) fn roots(&self) -> Vec<&'a str> {
        let is_root = |cohort: &&CohortView| cohort.parent.is_empty();
        self.cohorts.iter().filter(is_root).map(|cohort| cohort.metadata.name.as_str()).collect()
    }

    /// Returns the cohort and the nodes below it, at most `depth` levels.
    pub(super) fn nodes(&self, root: &str, depth: Option<usize>, utf8: bool) -> Vec<TreeNode<'a>> {
        let mut walk = Walk { forest: *self, utf8, seen: BTreeSet::new(), nodes: Vec::new() };
        walk.add(root, "", "", depth);
        walk.nodes
    }
}

/// A walk from a cohort down.
struct Walk<'a> {
    forest: Forest<'a>,
    utf8: bool,
    seen: BTreeSet<&'a str>,
    nodes: Vec<TreeNode<'a>>,
}

impl Walk<'_> {
    /// Adds a cohort and the nodes below it. `lead` precedes its name, `below` the lines below it.
    fn add(&mut self, name: &str, lead: &str, below: &str, depth: Option<usize>) {
        let Forest { cohorts, queues } = self.forest;
        let Some(cohort) = cohorts.iter().find(|cohort| cohort.metadata.name == name) else { return };
        // The walk over cohorts whose parents form a cycle stops at the first cohort that is seen twice.
        if !self.seen.insert(&cohort.metadata.name) {
            return;
        }
        self.nodes.push(TreeNode {
            lead: lead.to_owned(),
            name: &cohort.metadata.name,
            quota: &cohort.quota,
            share: cohort.share.as_ref(),
            pending: cohort.pending,
            is_root: cohort.parent.is_empty(),
        });
        if depth == Some(0) {
            return;
        }
        let depth = depth.map(|depth| depth - 1);
        let (branch, last, line) =
            if self.utf8 { ("├─ ", "└─ ", "│  ") } else { ("|- ", "`- ", "|  ") };
        let count = cohort.cohorts.len() + cohort.cluster_queues.len();
        for (number, child) in cohort.cohorts.iter().chain(&cohort.cluster_queues).enumerate() {
            let is_last = number + 1 == count;
            let lead = format!("{below}{}", if is_last { last } else { branch });
            let below = format!("{below}{}", if is_last { "   " } else { line });
            if number < cohort.cohorts.len() {
                self.add(child, &lead, &below, depth);
            } else if let Some(queue) = queues.iter().find(|queue| queue.metadata.name == *child) {
                self.nodes.push(TreeNode {
                    lead,
                    name: &queue.metadata.name,
                    quota: &queue.quota,
                    share: queue.share.as_ref(),
                    pending: queue.pending.total,
                    is_root: false,
                });
            }
        }
    }
}

/// Returns the tables of a cohort's tree, or of all if `root` is none, one for each of the flavor-resources; and the cycles in the
/// tree, a line each.
pub fn cohort_trees(
    root: Option<&str>,
    forest: Forest<'_>,
    shown: &[FlavorResource],
    depth: Option<usize>,
    look: Look,
) -> (String, Vec<String>) {
    let text = one_below_the_other(shown, look, |shown, look| cohort_tree(root, forest, shown, depth, look));
    (text, cycles(forest.cohorts))
}

/// Returns the table of a cohort's tree, or of all if `root` is none, below the name of the flavor-resource that it shows.
pub fn cohort_tree(
    root: Option<&str>,
    forest: Forest<'_>,
    shown: Option<&FlavorResource>,
    depth: Option<usize>,
    look: Look,
) -> String {
    let roots = root.map_or_else(|| forest.roots(), |root| vec![root]);
    let headings = ["NOMINAL", "USED", "BORROWED", "LENT", "LIMIT", "SHARE", "PENDING"];
    let columns = std::iter::once(("NODE", Side::Left)).chain(headings.map(|heading| (heading, Side::Right)));
    let mut table = TextTable::new(columns);
    let (constant, optional) = (&["SHARE"], &["LIMIT", "SHARE", "LENT"]);
    table.when_narrow(Narrow { constant, optional, ..Narrow::default() });
    for node in roots.iter().flat_map(|root| forest.nodes(root, depth, look.utf8)) {
        let quota = shown.and_then(|shown| quota_of(node.quota, shown));
        let of_tree = |text: String| if node.is_root { "-".to_owned() } else { text };
        let of = |field: fn(&QuotaView) -> String| quota.map_or_else(|| "-".to_owned(), field);
        table.push([
            format!("{}{}", node.lead, node.name),
            quota.map_or_else(|| NO_QUOTA.to_owned(), |quota| amount(Some(&quota.nominal))),
            of(|quota| amount(Some(&quota.used))),
            of_tree(of(borrowed)),
            of_tree(of(|quota| amount(quota.lent.as_ref()))),
            of(|quota| amount(Some(&quota.limit))),
            node.share.map_or_else(|| "-".to_owned(), |share| share.value.to_string()),
            node.pending.to_string(),
        ]);
    }
    line_above(shown, look) + &look.show(&table)
}

/// Returns the cycles of cohorts, each once, from its first name.
pub fn cycles(cohorts: &[CohortView]) -> Vec<String> {
    let parent = |name: &str| {
        cohorts.iter().find(|cohort| cohort.metadata.name == name).map(|cohort| cohort.parent.as_str())
    };
    let mut found = Vec::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for cohort in cohorts.iter().filter(|cohort| cohort.cycle) {
        let mut path: Vec<&str> = Vec::new();
        let mut name = cohort.metadata.name.as_str();
        while !path.contains(&name) && !seen.contains(name) {
            path.push(name);
            match parent(name) {
                Some(next) if !next.is_empty() => name = next,
                _ => break,
            }
        }
        seen.extend(&path);
        if let Some(start) = path
            .iter()
            .position(|known| *known == name)
            .filter(|_| path.len() > 1 || parent(name) == Some(name))
        {
            let members: Vec<&str> = path.iter().skip(start).copied().chain([name]).collect();
            found.push(format!("! cycle: {}", members.join(" -> ")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::views::ViewMetadata;

    fn cohort(name: &str, parent: &str, cohorts: &[&str]) -> CohortView {
        CohortView {
            metadata: ViewMetadata { name: name.to_owned(), ..ViewMetadata::default() },
            parent: parent.to_owned(),
            cohorts: cohorts.iter().map(|&name| name.to_owned()).collect(),
            cycle: true,
            ..CohortView::default()
        }
    }

    #[test]
    fn cycles_end_and_are_named_once() {
        let cohorts = [
            cohort("a", "b", &["b"]),
            cohort("b", "a", &["a"]),
            cohort("self", "self", &["self"]),
            cohort("below", "a", &[]),
        ];
        assert_eq!(cycles(&cohorts), ["! cycle: a -> b -> a", "! cycle: self -> self"]);
        let forest = Forest { cohorts: &cohorts, queues: &[] };
        assert_eq!(forest.nodes("a", None, true).len(), 2);
        assert_eq!(forest.nodes("a", Some(0), true).len(), 1);
        assert_eq!(forest.nodes("none", None, true).len(), 0);
    }
}
