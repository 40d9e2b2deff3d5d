//! Items in order of their class, and within a class in rounds: each namespace has one item in each round.
//!
//! Invariants: items of one namespace and class keep their order; an item waits for at most two items of each other namespace
//! in its class, and one more for each item of its own namespace that was there before it, however many the others have.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Where an item waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place<C> {
    /// Class of the item.
    pub class: C,
    round: u64,
    sequence: u64,
}

/// The rounds of one class.
#[derive(Clone, Debug, Default)]
struct Rounds {
    current: u64,
    /// Round of the next item of a namespace.
    next: BTreeMap<Arc<str>, u64>,
}

/// Items that wait.
#[derive(Clone, Debug)]
pub struct RoundQueue<C, T> {
    items: BTreeMap<Place<C>, T>,
    /// Rounds of the classes that have items: a namespace has no arrears in a class that has been empty.
    rounds: BTreeMap<C, Rounds>,
    next_sequence: u64,
}

impl<C, T> Default for RoundQueue<C, T> {
    fn default() -> Self {
        Self { items: BTreeMap::new(), rounds: BTreeMap::new(), next_sequence: 0 }
    }
}

impl<C: Copy + Ord, T> RoundQueue<C, T> {
    /// Adds an item after all others of its namespace and class.
    pub fn push(&mut self, class: C, namespace: &Arc<str>, item: T) -> Place<C> {
        let rounds = self.rounds.entry(class).or_default();
        let next = rounds.next.entry(Arc::clone(namespace)).or_default();
        let round = rounds.current.max(*next);
        *next = round.saturating_add(1);
        let place = Place { class, round, sequence: self.next_sequence };
        self.next_sequence = self.next_sequence.saturating_add(1);
        self.items.insert(place, item);
        place
    }

    /// Adds an item again that was taken from this place: it is among the next ones of its class.
    pub fn put_back(&mut self, place: Place<C>, item: T) {
        let round = self.rounds.entry(place.class).or_default().current;
        self.items.insert(Place { round, ..place }, item);
    }

    /// Returns the first place of this class or of a later one.
    pub fn first_from(&self, class: C) -> Option<Place<C>> {
        self.items.range(Place { class, round: 0, sequence: 0 }..).next().map(|(place, _)| *place)
    }

    /// Returns the first place.
    pub fn first(&self) -> Option<Place<C>> {
        self.items.first_key_value().map(|(place, _)| *place)
    }

    /// Removes and returns the first item of a class.
    pub fn take_first(&mut self, class: C) -> Option<(Place<C>, T)> {
        let place = self.first_from(class).filter(|place| place.class == class)?;
        let rounds = self.rounds.entry(class).or_default();
        rounds.current = rounds.current.max(place.round);
        self.remove(place).map(|item| (place, item))
    }

    /// Removes and returns the item at a place, out of turn.
    pub fn remove(&mut self, place: Place<C>) -> Option<T> {
        let item = self.items.remove(&place)?;
        if self.first_from(place.class).is_none_or(|next| next.class != place.class) {
            self.rounds.remove(&place.class);
        }
        Some(item)
    }

    /// Returns the items in order.
    pub fn iter(&self) -> impl Iterator<Item = (Place<C>, &T)> {
        self.items.iter().map(|(place, item)| (*place, item))
    }

    /// Removes all items.
    pub fn clear(&mut self) {
        self.items.clear();
        self.rounds.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn name(number: u8) -> Arc<str> {
        Arc::from(format!("n{number}"))
    }

    /// An item that waits, with the bound of the law.
    struct Item {
        namespace: u8,
        number: usize,
        /// Number of items that may be taken from each other namespace before it.
        bound: usize,
        /// Number of items that were taken since it came, by namespace.
        passed: BTreeMap<u8, usize>,
    }

    proptest! {
        /// In any history: the first class first; within a class and namespace in order of arrival; and no item waits longer
        /// than its bound.
        #[test]
        fn namespaces_take_turns(steps in proptest::collection::vec((0_u8..2, 0_u8..5, 0_u8..5), 1..400)) {
            let mut queue = RoundQueue::default();
            let mut waiting: BTreeMap<u8, Vec<Item>> = BTreeMap::new();
            for (number, (class, namespace, kind)) in steps.into_iter().enumerate() {
                if kind < 3 {
                    queue.push(class, &name(namespace), (namespace, number));
                    let items = waiting.entry(class).or_default();
                    let bound = 2 + items.iter().filter(|item| item.namespace == namespace).count();
                    items.push(Item { namespace, number, bound, passed: BTreeMap::new() });
                    continue;
                }
                let first = waiting.iter().find(|(_, items)| !items.is_empty()).map(|(class, _)| *class);
                prop_assert_eq!(queue.first().map(|place| place.class), first);
                let Some(class) = first else { continue };
                let (place, taken) = queue.take_first(class).unwrap();
                if kind == 4 {
                    queue.put_back(place, taken);
                    prop_assert_eq!(queue.take_first(class).unwrap().1, taken, "nothing passes what is put back");
                }
                let items = waiting.get_mut(&class).unwrap();
                let position = items.iter().position(|item| item.namespace == taken.0).unwrap();
                prop_assert_eq!(items.remove(position).number, taken.1);
                for item in items.iter_mut().filter(|item| item.namespace != taken.0) {
                    let passed = item.passed.entry(taken.0).or_default();
                    *passed += 1;
                    prop_assert!(*passed <= item.bound, "{} of {} pass {}", passed, taken.0, item.number);
                }
            }
            let left: BTreeSet<usize> = queue.iter().map(|(_, (_, number))| *number).collect();
            prop_assert_eq!(left, waiting.into_values().flatten().map(|item| item.number).collect());
        }
    }

    #[test]
    fn namespace_has_no_arrears_after_its_class_was_empty() {
        let mut queue = RoundQueue::default();
        for number in 0..100 {
            queue.push(0, &name(1), number);
        }
        while queue.take_first(0).is_some() {}
        queue.push(0, &name(1), 100);
        queue.push(0, &name(2), 101);
        assert_eq!(queue.take_first(0).map(|(_, number)| number), Some(100));
    }
}
