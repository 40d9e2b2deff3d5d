//! Findings that say the same about several objects, as one.
//!
//! Invariants: each finding is in one group, groups are in the order of their first findings; findings are equal only if one
//! correction serves all of their objects.

use crate::visibility::views::Finding;
use std::collections::BTreeMap;

/// Most names in a sentence.
const NAMED: usize = 6;
/// Commands that take several names.
const OF_SEVERAL: [&str; 4] = ["kubectl edit ", "kubectl describe ", "kubectl delete ", "kubectl get "];
/// Stands for the name of the object; no name has this character.
const NAME: &str = "\u{0}";

/// A finding, and the findings that are equal except for their objects.
#[derive(Clone, Debug, PartialEq)]
pub struct FindingGroup<'a> {
    /// The first of them.
    pub first: &'a Finding,
    /// The others, in the order of the audit.
    pub others: Vec<&'a Finding>,
}

/// What equal findings have in common: check, kind, message, consequence, command and instruction.
type Common<'a> = (&'static str, &'a str, &'a str, &'a str, String, String);

/// Returns the groups of equal findings.
pub fn grouped(findings: &[Finding]) -> Vec<FindingGroup<'_>> {
    let mut groups: Vec<FindingGroup<'_>> = Vec::new();
    let mut known: BTreeMap<Common<'_>, usize> = BTreeMap::new();
    for finding in findings {
        let at = *known.entry(common(finding)).or_insert(groups.len());
        if let Some(group) = groups.get_mut(at) {
            group.others.push(finding);
        } else {
            groups.push(FindingGroup { first: finding, others: Vec::new() });
        }
    }
    groups
}

fn common(finding: &Finding) -> Common<'_> {
    let (command, advice) = finding.command_and_advice();
    let name = &finding.object.name;
    let takes_several = OF_SEVERAL.iter().any(|start| command.starts_with(start));
    let command = if takes_several { renamed(command, name, NAME) } else { command.to_owned() };
    let (check, kind) = (finding.check.as_str(), finding.object.kind.as_str());
    let (message, consequence) = (finding.message.as_str(), finding.consequence.as_str());
    (check, kind, message, consequence, command, renamed(advice, name, NAME))
}

/// Replaces a name where it is a word of its own.
fn renamed(text: &str, name: &str, other: &str) -> String {
    let word = |word: &str| if word == name { other.to_owned() } else { word.to_owned() };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

impl<'a> FindingGroup<'a> {
    /// Returns the findings.
    pub fn findings(&self) -> impl Iterator<Item = &'a Finding> {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }

    /// Returns the finding as a sentence about its objects, without a full stop: `a100: 276 cpu of quota, 256 on nodes`, or
    /// `interns, night: each lends cpu to nlp`.
    pub fn sentence(&self) -> String {
        let message = self.first.message.as_str();
        let names = self.names();
        match (message.strip_prefix("it "), self.others.is_empty()) {
            (Some(rest), true) => format!("{names} {rest}"),
            (Some(rest), false) => format!("{names}: each {rest}"),
            (None, _) => format!("{names}: {message}"),
        }
    }

    /// Returns the command of the correction for all objects, and further instructions; each may be empty.
    pub fn command_and_advice(&self) -> (String, String) {
        let (_, _, _, _, command, advice) = common(self.first);
        (
            command.replace(NAME, &self.object_names().collect::<Vec<_>>().join(" ")),
            advice.replace(NAME, &self.object_names().collect::<Vec<_>>().join(", ")),
        )
    }

    fn object_names(&self) -> impl Iterator<Item = &'a str> {
        self.findings().map(|finding| finding.object.name.as_str())
    }

    /// Returns the names of the first objects with their namespaces, and whether there are others.
    fn names(&self) -> String {
        let names: Vec<String> =
            self.findings().take(NAMED).map(|finding| finding.object.full_name()).collect();
        let rest = if self.others.len() >= NAMED { " and others" } else { "" };
        format!("{}{rest}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::views::{Check, FindingObject, Severity, ViewMetadata};
    use proptest::prelude::*;

    fn finding(name: &str, message: &str, correction: &str) -> Finding {
        Finding {
            metadata: ViewMetadata::default(),
            check: Check::PreemptionAsymmetric,
            severity: Severity::Note,
            object: FindingObject {
                kind: "ClusterQueue".to_owned(),
                namespace: String::new(),
                name: name.to_owned(),
            },
            message: message.to_owned(),
            evidence: BTreeMap::new(),
            workloads: Vec::new(),
            consequence: String::new(),
            correction: correction.to_owned(),
        }
    }

    fn edit(name: &str) -> Finding {
        let correction = format!("kubectl edit clusterqueue {name}; set spec.preemption.reclaimWithinCohort");
        finding(name, "it lends cpu to nlp", &correction)
    }

    #[test]
    fn equal_findings_are_one_with_one_command() {
        let all = [edit("interns"), finding("a100", "276 cpu of quota, 256 on nodes", ""), edit("night")];
        let groups = grouped(&all);
        let sentences: Vec<String> = groups.iter().map(FindingGroup::sentence).collect();
        assert_eq!(
            sentences,
            ["interns, night: each lends cpu to nlp", "a100: 276 cpu of quota, 256 on nodes"]
        );
        let (command, advice) = groups[0].command_and_advice();
        assert_eq!(command, "kubectl edit clusterqueue interns night");
        assert_eq!(advice, "set spec.preemption.reclaimWithinCohort");
        assert_eq!(grouped(&all[..1])[0].sentence(), "interns lends cpu to nlp");
    }

    #[test]
    fn findings_with_other_corrections_are_apart() {
        let create = |name: &str| finding(name, "it is gone", &format!("sluice create clusterqueue {name}"));
        let all = [create("a"), create("b"), finding("c", "it is gone", ""), finding("d", "it is gone", "")];
        let groups = grouped(&all);
        let sizes: Vec<usize> = groups.iter().map(|group| group.findings().count()).collect();
        assert_eq!(sizes, [1, 1, 2], "this command takes one name");
        let many: Vec<Finding> = (0..9).map(|number| edit(&format!("q{number}"))).collect();
        let said = grouped(&many)[0].sentence();
        assert_eq!(said, "q0, q1, q2, q3, q4, q5 and others: each lends cpu to nlp");
    }

    proptest! {
        #[test]
        fn each_finding_is_in_one_group(drawn in prop::collection::vec(("[a-c]", "[xy]", any::<bool>()), 0..12)) {
            let all: Vec<Finding> = drawn
                .iter()
                .map(|(name, message, has_command)| {
                    let command = if *has_command { format!("kubectl get clusterqueue {name}") } else { String::new() };
                    finding(name, message, &command)
                })
                .collect();
            let groups = grouped(&all);
            let mut seen: Vec<*const Finding> =
                groups.iter().flat_map(FindingGroup::findings).map(std::ptr::from_ref).collect();
            let mut wanted: Vec<*const Finding> = all.iter().map(std::ptr::from_ref).collect();
            seen.sort_unstable();
            wanted.sort_unstable();
            prop_assert_eq!(seen, wanted);
            for group in &groups {
                prop_assert!(group.findings().all(|finding| finding.message == group.first.message));
            }
        }
    }
}
