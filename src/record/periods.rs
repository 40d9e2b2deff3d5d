//! Sums by hour and by day: the groups, the summed values, and the hours of a time.
//!
//! Invariants: amounts of time are exact, in units × milliseconds; each change is added to an hour and to its day, so that the
//! sum of a day equals the sums of its hours.

pub(super) use crate::history::{HOUR, hour_of};

use super::rows::WorkloadRow;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Milliseconds of a day.
pub(super) const DAY: i64 = 24 * HOUR;
/// Separates the names in the key of a group; no name contains it.
const SEPARATOR: char = '\u{1f}';
/// Longest waits of the classes of a histogram, in seconds; the last class has all longer waits.
const WAITS: [i64; 19] = [
    1, 2, 5, 10, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 28_800, 57_600, 86_400, 172_800,
    604_800,
];

/// A group of workloads with a flavor-resource, for amounts, or without, for numbers of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group<'a> {
    pub(super) cluster_queue: &'a str,
    pub(super) local_queue: &'a str,
    pub(super) namespace: &'a str,
    pub(super) priority_class: &'a str,
    pub(super) flavor: &'a str,
    pub(super) resource: &'a str,
}

impl<'a> Group<'a> {
    /// Returns the group of a workload, for numbers of workloads.
    pub(super) fn of(workload: &'a WorkloadRow) -> Self {
        Self {
            cluster_queue: &workload.cluster_queue,
            local_queue: &workload.local_queue,
            namespace: &workload.namespace,
            priority_class: &workload.priority_class,
            flavor: "",
            resource: "",
        }
    }

    /// Returns whether its sums are numbers of workloads, and not amounts.
    pub(super) const fn is_of_workloads(&self) -> bool {
        self.resource.is_empty()
    }

    /// Returns the key of the group.
    pub(super) fn key(&self) -> String {
        let Self { cluster_queue, local_queue, namespace, priority_class, flavor, resource } = self;
        let names = [cluster_queue, local_queue, namespace, priority_class, flavor, resource];
        names.map(|name| (*name).to_owned()).join(&SEPARATOR.to_string())
    }

    /// Reads a key.
    pub(super) fn parse(key: &'a str) -> Option<Self> {
        let mut names = key.split(SEPARATOR);
        let group = Self {
            cluster_queue: names.next()?,
            local_queue: names.next()?,
            namespace: names.next()?,
            priority_class: names.next()?,
            flavor: names.next()?,
            resource: names.next()?,
        };
        names.next().is_none().then_some(group)
    }
}

/// Sums of a group in an hour or a day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Sums {
    /// Used, in units × milliseconds.
    #[serde(skip_serializing_if = "Exact::is_zero")]
    pub(super) used: Exact,
    /// Part of `used` above the nominal quota.
    #[serde(skip_serializing_if = "Exact::is_zero")]
    pub(super) borrowed: Exact,
    /// Part of `used` in runs that a preemption ended in this time.
    #[serde(skip_serializing_if = "Exact::is_zero")]
    pub(super) lost: Exact,
    /// Number of workloads that ended.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) ended: u64,
    /// Number of evictions.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) evicted: u64,
    /// Number of waits that ended with a reservation, by class.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) waits: BTreeMap<u8, u64>,
}

/// An exact amount of time, as text in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Exact(pub(super) i128);

impl Exact {
    const fn is_zero(&self) -> bool {
        self.0 == 0
    }

    pub(super) const fn add(&mut self, other: i128) {
        self.0 = self.0.saturating_add(other);
    }
}

impl Serialize for Exact {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Sums {
    /// Returns whether no time was used or lost.
    pub(super) const fn is_unused(&self) -> bool {
        self.used.is_zero() && self.lost.is_zero()
    }

    /// Returns the borrowed part of the used amount. An end that was observed late reduces the used amount only, not its borrowed part.
    pub(super) fn borrowed_of_used(&self) -> i128 {
        self.borrowed.0.min(self.used.0)
    }

    /// Adds other sums.
    pub(super) fn add(&mut self, other: &Self) {
        self.used.add(other.used.0);
        self.borrowed.add(other.borrowed.0);
        self.lost.add(other.lost.0);
        self.ended = self.ended.saturating_add(other.ended);
        self.evicted = self.evicted.saturating_add(other.evicted);
        for (class, number) in &other.waits {
            let sum = self.waits.entry(*class).or_default();
            *sum = sum.saturating_add(*number);
        }
    }

    /// Returns the sums of a wait of this many milliseconds.
    pub(super) fn of_wait(waited: i64) -> Self {
        let seconds = waited.saturating_add(999).div_euclid(1_000);
        let class = WAITS.partition_point(|longest| *longest < seconds);
        Self { waits: BTreeMap::from([(u8::try_from(class).unwrap_or(u8::MAX), 1)]), ..Self::default() }
    }

    /// Returns the longest wait of a class, in seconds; `None` for the last class.
    pub(super) fn longest(class: u8) -> Option<i64> {
        WAITS.get(usize::from(class)).copied()
    }

    /// Returns the wait at a percentile in milliseconds, rounded up to the longest of its class: at most two and a half times the
    /// true wait.
    pub(super) fn wait(&self, percent: u64) -> Option<i64> {
        let count = self.waits.values().fold(0_u64, |sum, number| sum.saturating_add(*number));
        let rank = count.saturating_mul(percent).div_ceil(100).max(1);
        let mut seen = 0_u64;
        for (class, number) in &self.waits {
            seen = seen.saturating_add(*number);
            if seen >= rank {
                let longest = WAITS.get(usize::from(*class)).or(WAITS.last());
                return longest.map(|seconds| seconds.saturating_mul(1_000));
            }
        }
        None
    }
}

/// Returns the start of the day of a time, in UTC.
pub(super) const fn day_of(time: i64) -> i64 {
    time.saturating_sub(time.rem_euclid(DAY))
}

/// Calls `each` with every hour from `start` to `end` and the milliseconds in it.
pub(super) fn split(start: i64, end: i64, mut each: impl FnMut(i64, i64)) {
    let mut at = start;
    while at < end {
        let next = hour_of(at).saturating_add(HOUR).min(end);
        each(hour_of(at), next.saturating_sub(at));
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_split_at_full_hours() {
        let hours = |start: i64, end: i64| {
            let mut all = Vec::new();
            split(start, end, |hour, time| all.push((hour / HOUR, time)));
            all
        };
        assert_eq!(hours(HOUR - 1, 2 * HOUR + 5), [(0, 1), (1, HOUR), (2, 5)]);
        assert_eq!(hours(5, 5), []);
        assert_eq!(hours(9, 5), []);
        assert_eq!(hours(-1, 1), [(-1, 1), (0, 1)]);
    }

    #[test]
    fn groups_are_read_as_they_were_written() {
        let group = Group {
            cluster_queue: "cq",
            local_queue: "",
            namespace: "ns",
            priority_class: "high",
            flavor: "f",
            resource: "nvidia.com/gpu",
        };
        assert_eq!(Group::parse(&group.key()), Some(group));
        for text in ["", "a", &format!("{}{SEPARATOR}", group.key())] {
            assert_eq!(Group::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn waits_are_rounded_up_to_the_longest_of_their_class() {
        let mut sums = Sums::default();
        assert_eq!(sums.wait(50), None);
        for seconds in [0, 1, 1, 4, 4_000, 10_000_000] {
            sums.add(&Sums::of_wait(seconds * 1_000));
        }
        assert_eq!(
            (sums.wait(50), sums.wait(60), sums.wait(80)),
            (Some(1_000), Some(5_000), Some(7_200_000))
        );
        assert_eq!(sums.wait(99), Some(604_800_000), "the last class has no bound");
    }

    #[test]
    fn sums_are_read_as_they_were_written() {
        let sums = Sums { used: Exact(i128::MAX), ended: 3, ..Sums::of_wait(7) };
        let text = serde_json::to_string(&sums).unwrap();
        assert_eq!(serde_json::from_str::<Sums>(&text).unwrap(), sums, "{text}");
        assert_eq!(serde_json::from_str::<Sums>("{\"later\":1}").unwrap(), Sums::default());
    }
}
