//! Text of `audit`: findings as a table, and findings in full.
//!
//! Invariant: equal findings of several objects are one row, as on the page; only CSV has a row for each, because a program reads it.

use super::Look;
use crate::people::text_table::{Side, TextTable, Tone, printable};
use crate::visibility::findings::{FindingGroup, grouped};
use crate::visibility::views::{Finding, FindingObject, OptionNumber, Severity, WorkloadClass};

/// Returns the table of findings, and a line that counts them one by one.
pub fn audit(findings: &[Finding], look: Look) -> String {
    if findings.is_empty() && !look.csv {
        return "0 errors, 0 warnings, 0 notes.\n".to_owned();
    }
    let codes = ["SEVERITY", "CHECK"].map(|heading| (heading, Side::Whole));
    let texts = ["OBJECT", "FINDING"].map(|heading| (heading, Side::Left));
    let mut table = TextTable::new(codes.into_iter().chain(texts));
    // The findings of a check begin alike.
    table.wrap_last();
    let row = |finding: &Finding, objects: String, text: String| {
        [finding.severity.as_str().to_owned(), finding.check.as_str().to_owned(), objects, text]
    };
    if look.csv {
        for finding in findings {
            table.push(row(finding, object(&finding.object), finding.message.clone()));
        }
        return look.show(&table);
    }
    for group in grouped(findings) {
        let (objects, text) = objects_and_text(&group);
        table.push_toned(row(group.first, objects, text), 0, tone(group.first.severity));
    }
    let count = |severity: Severity, noun: &str| {
        let number = findings.iter().filter(|finding| finding.severity == severity).count();
        if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
    };
    format!(
        "{}{}, {}, {}. How to correct one: sluice audit --check CODE\n",
        look.show(&table),
        count(Severity::Error, "error"),
        count(Severity::Warning, "warning"),
        count(Severity::Note, "note")
    )
}

/// Returns the object of a finding and its message, or the number of the objects and a sentence with their names.
fn objects_and_text(group: &FindingGroup<'_>) -> (String, String) {
    let first = &group.first.object;
    if group.others.is_empty() {
        return (object(first), group.first.message.clone());
    }
    (format!("{} {}", group.others.len().saturating_add(1), short_kind(&first.kind)), group.sentence())
}

/// Returns findings in full: evidence, consequence and correction; equal ones of several objects as one.
pub fn findings_in_full(findings: &[Finding], look: Look) -> String {
    grouped(findings).iter().map(|group| in_full(group, look)).collect::<Vec<_>>().join("\n")
}

fn in_full(group: &FindingGroup<'_>, look: Look) -> String {
    let finding = group.first;
    let severity = finding.severity.as_str();
    let severity = if look.color { tone(finding.severity).paint(severity) } else { severity.to_owned() };
    let (objects, text) = objects_and_text(group);
    let mut lines = vec![format!("{severity} {} {objects}: {}", finding.check.as_str(), printable(&text))];
    let (command, advice) = group.command_and_advice();
    let classes: Vec<String> = group
        .findings()
        .map(|finding| workloads(&finding.workloads))
        .filter(|text| !text.is_empty())
        .collect();
    let parts = [
        ("Says", finding.check.describe().to_owned()),
        ("Evidence", evidence(group)),
        ("Of", classes.join(", ")),
        ("Leads to", finding.consequence.clone()),
        ("Run", command),
        ("Correct", advice),
    ];
    lines.extend(
        parts
            .iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(label, text)| format!("  {label:8}   {}", printable(text))),
    );
    lines.join("\n") + "\n"
}

/// Returns the numbers of a finding, `limit 16, workloads 27`, or of each object of equal findings, with its name.
fn evidence(group: &FindingGroup<'_>) -> String {
    let number = |number: &OptionNumber| match number {
        OptionNumber::Count(count) => count.to_string(),
        OptionNumber::Amount(amount) => amount.value.clone(),
    };
    let of_finding = |finding: &Finding| {
        let numbers: Vec<String> =
            finding.evidence.iter().map(|(name, value)| format!("{name} {}", number(value))).collect();
        let numbers = numbers.join(", ");
        if group.others.is_empty() || numbers.is_empty() {
            return numbers;
        }
        format!("{}: {numbers}", finding.object.full_name())
    };
    group.findings().map(of_finding).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
}

/// `ns/a, ns/b and 2 like it`.
fn workloads(classes: &[WorkloadClass]) -> String {
    let class = |class: &WorkloadClass| {
        let (namespace, first) = (&class.namespace, &class.first);
        match class.count {
            0 | 1 => format!("{namespace}/{first}"),
            count => format!("{namespace}/{first} and {} like it", count - 1),
        }
    };
    classes.iter().map(class).collect::<Vec<_>>().join(", ")
}

const fn tone(severity: Severity) -> Tone {
    match severity {
        Severity::Error => Tone::Bad,
        Severity::Warning => Tone::Waiting,
        Severity::Note => Tone::Plain,
    }
}

/// Returns `cq/NAME`, or `KIND/NAMESPACE/NAME` with the kind's short name.
fn object(object: &FindingObject) -> String {
    format!("{}/{}", short_kind(&object.kind), object.full_name())
}

/// Returns the short name of a kind, as verbs take it.
fn short_kind(kind: &str) -> String {
    match kind {
        "ClusterQueue" => "cq".to_owned(),
        "LocalQueue" => "lq".to_owned(),
        "ResourceFlavor" => "rf".to_owned(),
        "Namespace" => "ns".to_owned(),
        "Workload" => "wl".to_owned(),
        other => other.to_lowercase(),
    }
}
