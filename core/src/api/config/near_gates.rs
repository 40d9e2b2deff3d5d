//! Gates that were probably meant by names that are none.
//!
//! Invariant: no gate of Kueue is near another one, unless its name is a part of the other. Later versions of Kueue add gates whose
//! names begin with an earlier one, such as `MultiKueue`: these are not refused.

use crate::api::similar;

/// A shorter text is a part of too many names.
const SHORTEST_PART: usize = 8;
/// Letters that two forms of a word begin with at least.
const SHORTEST_STEM: usize = 4;

/// Returns the known gate that was probably meant: one that is at most two edits away, has the same words in another order, has one
/// word in another form, or contains the name.
pub(super) fn near<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let wanted = name.to_lowercase();
    let lower: Vec<(String, &'a str)> = known.iter().map(|known| (known.to_lowercase(), *known)).collect();
    let equal = lower.iter().map(|(lower, _)| lower.as_str()).find(|lower| *lower == wanted);
    let edited = || similar::nearest(&wanted, lower.iter().map(|(lower, _)| lower.as_str()));
    if let Some(near) = equal.or_else(edited) {
        return lower.iter().find(|(lower, _)| lower == near).map(|(_, known)| *known);
    }
    let own = words(name);
    let of_words = known.iter().copied().find(|known| have_the_same_words(&own, &words(known)));
    let contains = |lower: &str| wanted.len() >= SHORTEST_PART && lower.contains(&wanted);
    let whole = lower.iter().filter(|(lower, _)| contains(lower)).map(|(_, known)| *known);
    of_words.or_else(|| whole.min_by_key(|known| known.len()))
}

/// Returns the longest known gate with whose words a name begins.
pub(super) fn extended<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let own = words(name);
    let begins = |known: &&str| known.len() >= SHORTEST_PART && own.starts_with(&words(known));
    known.iter().copied().filter(begins).max_by_key(|known| known.len())
}

/// Returns the words of a name, in lower case. Abbreviations are words: `TASProfileMixed` has three.
fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut words: Vec<String> = Vec::new();
    let mut after_capital = true;
    for (at, letter) in letters.iter().enumerate() {
        let before_small = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        let begins = letter.is_uppercase() && (!after_capital || before_small);
        match words.last_mut() {
            Some(word) if !begins => word.extend(letter.to_lowercase()),
            _ => words.push(letter.to_lowercase().collect()),
        }
        after_capital = letter.is_uppercase();
    }
    words
}

/// Returns whether names have the same words in another order, or all but one, of which both have a form.
fn have_the_same_words(own: &[String], others: &[String]) -> bool {
    let sorted = |words: &[String]| {
        let mut words = words.to_vec();
        words.sort();
        words
    };
    let mut unequal = own.iter().zip(others).filter(|(own, other)| own != other);
    let one_form = match (unequal.next(), unequal.next()) {
        (Some((own, other)), None) => are_forms_of_a_word(own, other),
        _ => false,
    };
    own.len() == others.len() && own.len() > 1 && (one_form || sorted(own) == sorted(others))
}

fn are_forms_of_a_word(one: &str, other: &str) -> bool {
    let stem = one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    stem >= SHORTEST_STEM && stem * 2 >= one.chars().count().max(other.chars().count())
}

#[cfg(test)]
mod tests {
    use super::super::gate_table::{GATES, RETIRED};
    use super::*;

    fn all() -> Vec<&'static str> {
        GATES.iter().map(|gate| gate.name).chain(RETIRED.iter().map(|retired| retired.name)).collect()
    }

    #[test]
    fn names_that_were_meant() {
        for (name, meant) in [
            ("TopologyAwareScheduler", Some("TopologyAwareScheduling")),
            ("TopologyAwareSchedulling", Some("TopologyAwareScheduling")),
            ("topologyawarescheduling", Some("TopologyAwareScheduling")),
            ("AwareTopologyScheduling", Some("TopologyAwareScheduling")),
            ("TopologyAware", Some("TopologyAwareScheduling")),
            ("ElasticJobs", Some("ElasticJobsViaWorkloadSlices")),
            ("JobsViaWorkloadSlices", Some("ElasticJobsViaWorkloadSlices")),
            ("PartialAdmissions", Some("PartialAdmission")),
            ("TASFailedNodeReplace", Some("TASFailedNodeReplacement")),
            ("TASMixedProfile", Some("TASProfileMixed")),
            // Such a gate may be one of a later version.
            ("MultiKueueSomething", None),
            ("FlavorFungibilityByCost", None),
            ("TASProfileRandomFreeCapacity", None),
            ("ConcurrentPreemption", None),
            ("LocalQueueWeights", None),
            ("TAS", None),
            ("", None),
            ("é", None),
        ] {
            assert_eq!(near(name, &all()), meant, "{name}");
        }
    }

    /// Each gate of the table as if this version did not know it.
    #[test]
    fn no_gate_of_kueue_is_taken_for_another() {
        for gate in all() {
            let others: Vec<&str> = all().into_iter().filter(|other| *other != gate).collect();
            let other = near(gate, &others);
            assert!(other.is_none_or(|other| other.contains(gate)), "{gate}: {other:?}");
        }
    }

    #[test]
    fn extended_names() {
        for (name, gate) in [
            ("MultiKueueSomething", Some("MultiKueue")),
            ("FlavorFungibilityByCost", Some("FlavorFungibility")),
            ("ElasticJobsViaWorkloadSlicesWithTASAndMore", Some("ElasticJobsViaWorkloadSlicesWithTAS")),
            ("MultiKueuesOther", None),
            ("Multi", None),
            ("SomethingFromTheFuture", None),
        ] {
            assert_eq!(extended(name, &all()), gate, "{name}");
        }
    }
}
