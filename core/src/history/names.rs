//! Numbers for names that occur in many places: ClusterQueues, priority classes and flavor-resources.
//!
//! Invariant: a name keeps its number. There are few names, and none is dropped.

use super::record::Amounts;
use crate::quota::FlavorResource;
use crate::resources::Amount;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Names with their numbers, and values that records share.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    texts: BTreeSet<Arc<str>>,
    queues: Numbers<Arc<str>>,
    flavor_resources: Numbers<FlavorResource>,
    amounts: BTreeSet<Amounts>,
}

#[derive(Clone, Debug)]
struct Numbers<T> {
    numbers: BTreeMap<T, u32>,
    values: Vec<T>,
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self { numbers: BTreeMap::new(), values: Vec::new() }
    }
}

impl<T: Ord + Clone> Numbers<T> {
    fn number(&mut self, value: &T) -> u32 {
        if let Some(number) = self.numbers.get(value) {
            return *number;
        }
        let number = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        self.values.push(value.clone());
        self.numbers.insert(value.clone(), number);
        number
    }

    fn value(&self, number: u32) -> Option<&T> {
        self.values.get(usize::try_from(number).ok()?)
    }
}

impl Names {
    /// Returns the shared text.
    pub(super) fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = Arc::from(text);
        self.texts.insert(Arc::clone(&new));
        new
    }

    /// Returns the number of a ClusterQueue.
    pub(super) fn queue(&mut self, name: &Arc<str>) -> u32 {
        self.queues.number(name)
    }

    /// Returns the name of a ClusterQueue.
    pub(super) fn queue_name(&self, number: u32) -> Arc<str> {
        self.queues.value(number).cloned().unwrap_or_default()
    }

    /// Returns the names of all ClusterQueues: the position of each is its number.
    pub(super) fn queues(&self) -> Vec<Arc<str>> {
        self.queues.values.clone()
    }

    /// Returns the number of a flavor-resource.
    pub(super) fn flavor_resource(&mut self, fr: &FlavorResource) -> u32 {
        self.flavor_resources.number(fr)
    }

    /// Returns all flavor-resources: the position of each is its number.
    pub(super) fn flavor_resources(&self) -> &[FlavorResource] {
        &self.flavor_resources.values
    }

    /// Returns amounts with numbers; equal ones are shared.
    pub(super) fn amounts(&mut self, usage: &BTreeMap<FlavorResource, Amount>) -> Amounts {
        let mut amounts: Vec<(u32, i64)> =
            usage.iter().map(|(fr, amount)| (self.flavor_resources.number(fr), amount.get())).collect();
        amounts.sort_unstable();
        if let Some(known) = self.amounts.get(&*amounts) {
            return Arc::clone(known);
        }
        let amounts: Amounts = Arc::from(amounts);
        self.amounts.insert(Arc::clone(&amounts));
        amounts
    }

    /// Drops amounts to which nothing else refers.
    pub(super) fn sweep(&mut self) {
        self.amounts.retain(|amounts| Arc::strong_count(amounts) > 1);
    }

    /// Returns the bytes of the shared amounts and names.
    pub(super) fn bytes(&self) -> usize {
        const SLOT: usize = 48;
        let amounts: usize =
            self.amounts.iter().map(|amounts| size_of_val(&**amounts).saturating_add(SLOT)).sum();
        let names = self.texts.iter().chain(&self.queues.values);
        let names: usize = names.map(|name| name.len().saturating_add(2 * SLOT)).sum();
        amounts.saturating_add(names)
    }
}
