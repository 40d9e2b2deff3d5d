//! The compressed form of placements in objects: slices of domains whose values share prefix and suffix.

use super::pod_requirements::{DomainPath, Placement};
use crate::api::v1beta2::{
    TopologyAssignment, TopologyAssignmentIndividualValues, TopologyAssignmentPodCounts,
    TopologyAssignmentSlice, TopologyAssignmentValues,
};
use std::sync::Arc;

/// Maximum number of domains in one slice.
const MAX_DOMAINS_PER_SLICE: usize = 1000;
/// Maximum number of slices that the schema accepts.
const MAX_SLICES: usize = 1000;

/// Compresses a placement.
pub fn encode(placement: &Placement) -> TopologyAssignment {
    TopologyAssignment {
        levels: placement.levels.iter().map(ToString::to_string).collect(),
        slices: split_into_slices(&placement.domains)
            .into_iter()
            .map(|slice| encode_slice(slice, placement.levels.len()))
            .collect(),
    }
}

/// Splits domains into runs whose last values differ only in their trailing number; into runs of equal length where these
/// would be too many.
fn split_into_slices(domains: &[(DomainPath, i32)]) -> Vec<&[(DomainPath, i32)]> {
    let stem = |(values, _): &(DomainPath, i32)| values.last().map(|value| stem(value).to_owned());
    let by_stem = domains.chunk_by(|a, b| stem(a) == stem(b));
    let slices: Vec<_> = by_stem.flat_map(|group| group.chunks(MAX_DOMAINS_PER_SLICE)).collect();
    if slices.len() > MAX_SLICES { domains.chunks(MAX_DOMAINS_PER_SLICE).collect() } else { slices }
}

/// Strips the trailing digits.
fn stem(value: &str) -> &str {
    value.trim_end_matches(|c: char| c.is_ascii_digit())
}

fn encode_slice(domains: &[(DomainPath, i32)], depth: usize) -> TopologyAssignmentSlice {
    let level = |level: usize| {
        let values: Vec<&str> =
            domains.iter().map(|(values, _)| values.get(level).map_or("", |value| value)).collect();
        encode_values(&values)
    };
    let counts: Vec<i32> = domains.iter().map(|(_, pods)| *pods).collect();
    let same = counts.first().filter(|first| counts.iter().all(|count| count == *first)).copied();
    TopologyAssignmentSlice {
        domain_count: i32::try_from(domains.len()).unwrap_or(i32::MAX),
        values_per_level: (0..depth).map(level).collect(),
        pod_counts: TopologyAssignmentPodCounts {
            universal: same,
            individual: if same.is_some() { Vec::new() } else { counts },
        },
    }
}

fn encode_values(values: &[&str]) -> TopologyAssignmentValues {
    let Some(first) = values.first() else {
        return TopologyAssignmentValues::default();
    };
    if values.iter().all(|value| value == first) {
        return TopologyAssignmentValues { universal: Some((*first).to_owned()), individual: None };
    }
    let prefix = values.iter().fold(*first, |prefix, value| common_prefix(prefix, value));
    let rests: Vec<&str> = values.iter().map(|value| value.strip_prefix(prefix).unwrap_or(value)).collect();
    let suffix = rests.iter().skip(1).fold(rests.first().copied().unwrap_or_default(), |suffix, rest| {
        let common = suffix.chars().rev().zip(rest.chars().rev()).take_while(|(a, b)| a == b);
        let length: usize = common.map(|(a, _)| a.len_utf8()).sum();
        suffix.get(suffix.len() - length..).unwrap_or_default()
    });
    let root = |rest: &&str| rest.strip_suffix(suffix).unwrap_or(rest).to_owned();
    let non_empty = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let individual = TopologyAssignmentIndividualValues {
        prefix: non_empty(prefix),
        suffix: non_empty(suffix),
        roots: rests.iter().map(root).collect(),
    };
    TopologyAssignmentValues { universal: None, individual: Some(individual) }
}

fn common_prefix<'a>(a: &'a str, b: &str) -> &'a str {
    let length: usize = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum();
    a.get(..length).unwrap_or_default()
}

/// Expands any valid compressed form. `None` if it is inconsistent.
pub fn decode(assignment: &TopologyAssignment) -> Option<Placement> {
    let levels: DomainPath = assignment.levels.iter().map(|level| Arc::from(level.as_str())).collect();
    let mut domains = Vec::new();
    for slice in &assignment.slices {
        // Several domains must differ in some level. Without this check a large count alone would allocate that many domains.
        if slice.domain_count > 1 && slice.values_per_level.iter().all(|values| values.individual.is_none()) {
            return None;
        }
        for index in 0..usize::try_from(slice.domain_count).ok()? {
            let values = slice.values_per_level.iter().map(|values| value_at(values, index));
            let values = values.collect::<Option<Vec<Arc<str>>>>()?;
            if values.len() != levels.len() {
                return None;
            }
            let counts = &slice.pod_counts;
            let pods = counts.universal.or_else(|| counts.individual.get(index).copied())?;
            domains.push((Arc::from(values), pods));
        }
    }
    Some(Placement { levels, domains })
}

fn value_at(values: &TopologyAssignmentValues, index: usize) -> Option<Arc<str>> {
    match (&values.individual, &values.universal) {
        (Some(individual), _) => {
            let root = individual.roots.get(index)?;
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            Some(Arc::from(format!("{}{root}{}", text(&individual.prefix), text(&individual.suffix))))
        }
        (None, Some(universal)) => Some(Arc::from(universal.as_str())),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(domains: &[(&[&str], i32)]) -> Placement {
        let path = |values: &[&str]| values.iter().map(|value| Arc::from(*value)).collect::<DomainPath>();
        Placement {
            levels: path(&["rack", "kubernetes.io/hostname"]),
            domains: domains.iter().map(|(values, pods)| (path(values), *pods)).collect(),
        }
    }

    #[test]
    fn encoding_round_trips() {
        let cases: &[&[(&[&str], i32)]] = &[
            &[],
            &[(&["r1", "a-1.x"], 2)],
            &[(&["r1", "node-1.x"], 2), (&["r1", "node-12.x"], 2), (&["r2", "node-3.x"], 1)],
            &[(&["r", "n1"], 1), (&["r", "n11"], 1), (&["r", "m1"], 3), (&["s", "m"], 1)],
            &[(&["é1", "aé"], 1), (&["è1", "aè"], 2)],
        ];
        for case in cases {
            let placement = placement(case);
            assert_eq!(decode(&encode(&placement)), Some(placement));
        }
    }

    #[test]
    fn common_parts_are_encoded_once() {
        let encoded = encode(&placement(&[(&["r1", "node-1"], 1), (&["r1", "node-2"], 1)]));
        let slice = &encoded.slices[0];
        assert_eq!((encoded.slices.len(), slice.domain_count), (1, 2));
        assert_eq!(slice.values_per_level[0].universal.as_deref(), Some("r1"));
        let hosts = slice.values_per_level[1].individual.as_ref().unwrap();
        assert_eq!(
            (hosts.prefix.as_deref(), &hosts.roots[..]),
            (Some("node-"), &["1".into(), "2".into()][..])
        );
        assert_eq!(slice.pod_counts.universal, Some(1));
    }

    #[test]
    fn names_without_common_stem_take_no_more_slices_than_the_schema_accepts() {
        let hosts: Vec<String> = (0..1500).map(|number| format!("{number}.example")).collect();
        let paths: Vec<[&str; 2]> = hosts.iter().map(|host| ["r", host.as_str()]).collect();
        let domains: Vec<(&[&str], i32)> = paths.iter().map(|path| (&path[..], 1)).collect();
        let placement = placement(&domains);
        let encoded = encode(&placement);
        assert_eq!(encoded.slices.len(), 2);
        assert_eq!(decode(&encoded), Some(placement));
    }

    #[test]
    fn contradictory_encoding_is_rejected() {
        let two = encode(&placement(&[(&["r1", "n1"], 1), (&["r2", "n2"], 2)]));
        let one = encode(&placement(&[(&["r1", "n1"], 1)]));
        for (encoded, count) in [(&two, 3), (&two, i32::MAX), (&two, -1), (&one, 2), (&one, i32::MAX)] {
            let mut invalid = encoded.clone();
            invalid.slices[0].domain_count = count;
            assert_eq!(decode(&invalid), None, "{count} domains");
        }
    }
}
