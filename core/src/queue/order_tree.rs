//! An ordered set that counts: rank, selection, insertion and removal in O(log n), and copies that share what did not change.
//!
//! A weight-balanced tree of shared nodes. A clone is a pointer; the first change below it copies the nodes on one path.
//! Invariants: each node knows the size and the weight of its subtree; no subtree has more than `DELTA` times the nodes of its
//! sibling, so that the depth is logarithmic for any input.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Most nodes that a subtree may have for each one of its sibling.
const DELTA: u32 = 3;
/// An inner grandchild with this many nodes for each of the outer one needs a double rotation.
const GAMMA: u32 = 2;

/// An entry of the tree, with the number of elements that it stands for.
pub(crate) trait Weighted: Ord + Clone {
    /// Number of elements, at least 1.
    fn weight(&self) -> u32;
}

#[derive(Clone, Debug)]
struct Node<T> {
    item: T,
    /// Number of nodes of the subtree.
    size: u32,
    /// Sum of the weights of the subtree.
    weight: u32,
    left: Link<T>,
    right: Link<T>,
}

type Link<T> = Option<Arc<Node<T>>>;

/// The tree.
#[derive(Clone, Debug)]
pub(crate) struct OrderTree<T> {
    root: Link<T>,
}

impl<T> Default for OrderTree<T> {
    fn default() -> Self {
        Self { root: None }
    }
}

/// Counts the nodes that changes have copied, because a clone of their tree still had them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Copies(pub(crate) u64);

impl Copies {
    /// Returns the node for a change; a shared one is copied.
    fn own<'a, T: Clone>(&mut self, node: &'a mut Arc<Node<T>>) -> &'a mut Node<T> {
        if Arc::get_mut(node).is_none() {
            self.0 = self.0.wrapping_add(1);
        }
        Arc::make_mut(node)
    }
}

fn size<T>(link: Option<&Arc<Node<T>>>) -> u32 {
    link.map_or(0, |node| node.size)
}

fn weight<T>(link: Option<&Arc<Node<T>>>) -> u32 {
    link.map_or(0, |node| node.weight)
}

impl<T: Weighted> Node<T> {
    fn new(item: T, left: Link<T>, right: Link<T>) -> Self {
        let mut node = Self { item, size: 0, weight: 0, left, right };
        node.update();
        node
    }

    fn update(&mut self) {
        self.size = size(self.left.as_ref()).saturating_add(size(self.right.as_ref())).saturating_add(1);
        let below = weight(self.left.as_ref()).saturating_add(weight(self.right.as_ref()));
        self.weight = below.saturating_add(self.item.weight());
    }
}

/// Makes the right child the root of the subtree.
fn rotate_left<T: Weighted>(link: &mut Link<T>, copies: &mut Copies) {
    let Some(mut root) = link.take() else { return };
    let node = copies.own(&mut root);
    let Some(mut right) = node.right.take() else {
        *link = Some(root);
        return;
    };
    let top = copies.own(&mut right);
    node.right = top.left.take();
    node.update();
    top.left = Some(root);
    top.update();
    *link = Some(right);
}

/// Makes the left child the root of the subtree.
fn rotate_right<T: Weighted>(link: &mut Link<T>, copies: &mut Copies) {
    let Some(mut root) = link.take() else { return };
    let node = copies.own(&mut root);
    let Some(mut left) = node.left.take() else {
        *link = Some(root);
        return;
    };
    let top = copies.own(&mut left);
    node.left = top.right.take();
    node.update();
    top.right = Some(root);
    top.update();
    *link = Some(left);
}

/// Restores the balance of a subtree after one insertion or removal below it.
fn balance<T: Weighted>(link: &mut Link<T>, copies: &mut Copies) {
    let Some(root) = link else { return };
    let (left, right) = (size(root.left.as_ref()), size(root.right.as_ref()));
    if left.saturating_add(right) < 2 {
        return;
    }
    if right > left.saturating_mul(DELTA) {
        let node = copies.own(root);
        let child = node.right.as_ref();
        let inner = child.map_or(0, |child| size(child.left.as_ref()));
        let outer = child.map_or(0, |child| size(child.right.as_ref()));
        if inner >= outer.saturating_mul(GAMMA) {
            rotate_right(&mut node.right, copies);
        }
        rotate_left(link, copies);
    } else if left > right.saturating_mul(DELTA) {
        let node = copies.own(root);
        let child = node.left.as_ref();
        let inner = child.map_or(0, |child| size(child.right.as_ref()));
        let outer = child.map_or(0, |child| size(child.left.as_ref()));
        if inner >= outer.saturating_mul(GAMMA) {
            rotate_left(&mut node.left, copies);
        }
        rotate_right(link, copies);
    }
}

/// Returns the item that was replaced, if any.
fn insert_below<T: Weighted>(link: &mut Link<T>, item: T, copies: &mut Copies) -> Option<T> {
    let Some(node) = link else {
        *link = Some(Arc::new(Node::new(item, None, None)));
        return None;
    };
    let node = copies.own(node);
    let replaced = match item.cmp(&node.item) {
        Ordering::Less => insert_below(&mut node.left, item, copies),
        Ordering::Greater => insert_below(&mut node.right, item, copies),
        Ordering::Equal => Some(std::mem::replace(&mut node.item, item)),
    };
    node.update();
    if replaced.is_none() {
        balance(link, copies);
    }
    replaced
}

/// Removes and returns the first item.
fn take_first<T: Weighted>(link: &mut Link<T>, copies: &mut Copies) -> Option<T> {
    let node = copies.own(link.as_mut()?);
    if node.left.is_none() {
        let (item, right) = (node.item.clone(), node.right.take());
        *link = right;
        return Some(item);
    }
    let first = take_first(&mut node.left, copies);
    node.update();
    balance(link, copies);
    first
}

/// Removes an item that the subtree has.
fn remove_below<T: Weighted>(link: &mut Link<T>, item: &T, copies: &mut Copies) -> Option<T> {
    let node = copies.own(link.as_mut()?);
    let removed = match item.cmp(&node.item) {
        Ordering::Less => remove_below(&mut node.left, item, copies),
        Ordering::Greater => remove_below(&mut node.right, item, copies),
        Ordering::Equal => {
            let left = node.left.take();
            let mut right = node.right.take();
            let old = node.item.clone();
            *link = match take_first(&mut right, copies) {
                Some(first) => Some(Arc::new(Node::new(first, left, right))),
                None => left,
            };
            balance(link, copies);
            return Some(old);
        }
    };
    node.update();
    balance(link, copies);
    removed
}

/// Builds a balanced tree of the next `count` items.
fn build<T: Weighted>(items: &mut impl Iterator<Item = T>, count: usize) -> Link<T> {
    if count == 0 {
        return None;
    }
    let left = build(items, count / 2);
    let item = items.next()?;
    let right = build(items, count.saturating_sub(count / 2).saturating_sub(1));
    Some(Arc::new(Node::new(item, left, right)))
}

impl<T: Weighted> OrderTree<T> {
    /// Builds a tree of sorted items without equal ones.
    pub(crate) fn from_sorted(items: Vec<T>) -> Self {
        let count = items.len();
        Self { root: build(&mut items.into_iter(), count) }
    }

    /// Number of items.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(size(self.root.as_ref())).unwrap_or(usize::MAX)
    }

    /// Sum of the weights of all items.
    pub(crate) fn weight(&self) -> u32 {
        weight(self.root.as_ref())
    }

    /// Whether both are the same tree in memory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (&self.root, &other.root) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }

    /// Inserts an item, in place of an equal one. Returns the one that was replaced.
    pub(crate) fn insert(&mut self, item: T, copies: &mut Copies) -> Option<T> {
        insert_below(&mut self.root, item, copies)
    }

    /// Removes and returns the item that is equal to `item`.
    pub(crate) fn remove(&mut self, item: &T, copies: &mut Copies) -> Option<T> {
        // Without it nothing may be copied.
        self.get(|other| item.cmp(other))?;
        remove_below(&mut self.root, item, copies)
    }

    /// Returns the item for which `compare`, called with items, says Equal.
    pub(crate) fn get(&self, compare: impl Fn(&T) -> Ordering) -> Option<&T> {
        let mut link = &self.root;
        while let Some(node) = link {
            match compare(&node.item) {
                Ordering::Less => link = &node.left,
                Ordering::Greater => link = &node.right,
                Ordering::Equal => return Some(&node.item),
            }
        }
        None
    }

    /// Sum of the weights of all items before the one for which `compare` says Equal.
    pub(crate) fn weight_before(&self, compare: impl Fn(&T) -> Ordering) -> u32 {
        let (mut link, mut before) = (&self.root, 0_u32);
        while let Some(node) = link {
            match compare(&node.item) {
                Ordering::Less => link = &node.left,
                Ordering::Equal => return before.saturating_add(weight(node.left.as_ref())),
                Ordering::Greater => {
                    let skipped = weight(node.left.as_ref()).saturating_add(node.item.weight());
                    before = before.saturating_add(skipped);
                    link = &node.right;
                }
            }
        }
        before
    }

    /// Iterates in order from the item that has the element at `offset`; the number says how many of its elements are before
    /// that one.
    pub(crate) fn iter_from(&self, offset: u32) -> (Iter<'_, T>, u32) {
        let (mut link, mut left, mut path) = (&self.root, offset, Vec::new());
        while let Some(node) = link {
            let below = weight(node.left.as_ref());
            if left < below {
                path.push(&**node);
                link = &node.left;
                continue;
            }
            left = left.saturating_sub(below);
            if left < node.item.weight() {
                path.push(&**node);
                return (Iter { path }, left);
            }
            left = left.saturating_sub(node.item.weight());
            link = &node.right;
        }
        (Iter { path: Vec::new() }, 0)
    }

    /// Iterates in order over the items behind the place for which `compare` says Equal, whether or not there is an item.
    pub(crate) fn iter_after(&self, compare: impl Fn(&T) -> Ordering) -> Iter<'_, T> {
        let at_place = self.get(&compare).map_or(0, Weighted::weight);
        self.iter_from(self.weight_before(compare).saturating_add(at_place)).0
    }

    /// Iterates in order.
    pub(crate) fn iter(&self) -> Iter<'_, T> {
        self.iter_from(0).0
    }
}

/// Iterates over the items of several trees in one order. The start costs one look at each, an item the logarithm of their number.
pub(crate) fn merged<'a, T: Ord + 'a>(
    parts: impl IntoIterator<Item = Iter<'a, T>>,
) -> impl Iterator<Item = &'a T> {
    let (mut heads, mut rest) = (BinaryHeap::new(), Vec::new());
    for mut part in parts {
        if let Some(head) = part.next() {
            heads.push(Reverse((head, rest.len())));
            rest.push(part);
        }
    }
    std::iter::from_fn(move || {
        let Reverse((item, index)) = heads.pop()?;
        if let Some(next) = rest.get_mut(index).and_then(Iterator::next) {
            heads.push(Reverse((next, index)));
        }
        Some(item)
    })
}

/// Items in order.
pub(crate) struct Iter<'a, T> {
    /// Nodes whose item and right side are still to come, the next one last.
    path: Vec<&'a Node<T>>,
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        let node = self.path.pop()?;
        let mut link = &node.right;
        while let Some(below) = link {
            self.path.push(below);
            link = &below.left;
        }
        Some(&node.item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A key with a weight.
    #[derive(Clone, Copy, Debug)]
    struct Item(u16, u32);

    impl PartialEq for Item {
        fn eq(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }

    impl Eq for Item {}

    impl PartialOrd for Item {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl Ord for Item {
        fn cmp(&self, other: &Self) -> Ordering {
            self.0.cmp(&other.0)
        }
    }

    impl Weighted for Item {
        fn weight(&self) -> u32 {
            self.1
        }
    }

    /// Depth of a subtree; fails if an invariant does not hold.
    fn checked_depth(link: Option<&Arc<Node<Item>>>) -> u32 {
        let Some(node) = link else { return 0 };
        let (left, right) = (size(node.left.as_ref()), size(node.right.as_ref()));
        assert_eq!(node.size, left + right + 1);
        assert_eq!(node.weight, weight(node.left.as_ref()) + weight(node.right.as_ref()) + node.item.1);
        assert!(
            left + right < 2 || (left <= DELTA * right && right <= DELTA * left),
            "{left} and {right} nodes"
        );
        1 + checked_depth(node.left.as_ref()).max(checked_depth(node.right.as_ref()))
    }

    fn list(tree: &OrderTree<Item>) -> Vec<(u16, u32)> {
        tree.iter().map(|item| (item.0, item.1)).collect()
    }

    proptest! {
        #[test]
        fn any_history_agrees_with_a_sorted_map(
            steps in prop::collection::vec((0_u16..200, 1_u32..4, any::<bool>(), any::<bool>()), 1..400)
        ) {
            let (mut tree, mut map, mut copies) = (OrderTree::default(), BTreeMap::new(), Copies::default());
            let mut kept = Vec::new();
            for (key, weight, insert, keep) in steps {
                if keep {
                    kept.push((tree.clone(), list(&tree)));
                }
                if insert {
                    prop_assert_eq!(tree.insert(Item(key, weight), &mut copies).map(|old| old.1), map.insert(key, weight));
                } else {
                    prop_assert_eq!(tree.remove(&Item(key, 0), &mut copies).map(|old| old.1), map.remove(&key));
                }
                checked_depth(tree.root.as_ref());
                prop_assert_eq!(tree.len(), map.len());
                let mut before = 0;
                for (key, weight) in &map {
                    prop_assert_eq!(tree.weight_before(|item| key.cmp(&item.0)), before);
                    for within in 0..*weight {
                        let (mut from, rest) = tree.iter_from(before + within);
                        prop_assert_eq!((from.next().map(|item| item.0), rest), (Some(*key), within));
                    }
                    before += weight;
                }
                prop_assert_eq!(tree.weight(), before);
                prop_assert!(tree.iter_from(before).0.next().is_none());
                prop_assert_eq!(list(&tree), map.clone().into_iter().collect::<Vec<_>>());
            }
            for (tree, items) in kept {
                prop_assert_eq!(list(&tree), items, "a clone changes with the tree");
            }
        }

        #[test]
        fn a_tree_of_sorted_items_is_balanced(count in 0_u16..2_000) {
            let tree = OrderTree::from_sorted((0..count).map(|key| Item(key, 1)).collect());
            checked_depth(tree.root.as_ref());
            prop_assert_eq!(tree.len(), usize::from(count));
            prop_assert!(tree.iter().map(|item| item.0).eq(0..count));
        }
    }

    #[test]
    fn sorted_input_stays_shallow_and_a_change_copies_one_path() {
        let (mut tree, mut copies) = (OrderTree::default(), Copies::default());
        for key in 0..20_000 {
            tree.insert(Item(key, 1), &mut copies);
        }
        assert_eq!(copies.0, 0, "nothing is copied while the tree has one owner");
        let depth = checked_depth(tree.root.as_ref());
        assert!(depth <= 36, "depth {depth}: more than log(n) / log(4/3)");
        let published = tree.clone();
        tree.insert(Item(30_000, 1), &mut copies);
        assert!((1..=u64::from(depth) + 3).contains(&copies.0), "{} nodes copied", copies.0);
        let first = copies.0;
        tree.insert(Item(30_001, 1), &mut copies);
        assert!(copies.0 - first <= 3, "the path is its own now");
        assert_eq!((published.len(), tree.len()), (20_000, 20_002));
        let before = copies.0;
        assert!(tree.remove(&Item(25_000, 1), &mut copies).is_none());
        assert_eq!(copies.0, before, "removing what is not there copies nothing");
    }
}
