//! Text of `audit`: findings as a table, and one finding in full.

use super::Look;
use crate::people::text_table::{Side, TextTable, Tone, printable};
use crate::visibility::views::{Finding, FindingObject, OptionNumber, Severity, WorkloadClass};

/// Returns the table of findings, and a line that counts them.
pub fn audit(findings: &[Finding], look: Look) -> String {
    if findings.is_empty() {
        return "0 errors, 0 warnings, 0 notes.\n".to_owned();
    }
    let headings = ["SEVERITY", "CHECK", "OBJECT", "FINDING"];
    let mut table = TextTable::new(headings.map(|heading| (heading, Side::Left)));
    for finding in findings {
        let cells = [
            finding.severity.as_str().to_owned(),
            finding.check.as_str().to_owned(),
            object(&finding.object),
            finding.message.clone(),
        ];
        table.push_toned(cells, 0, tone(finding.severity));
    }
    if look.csv {
        return look.show(&table);
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

/// Returns a finding in full: evidence, consequence and correction.
pub fn finding(finding: &Finding, look: Look) -> String {
    let severity = finding.severity.as_str();
    let severity = if look.color { tone(finding.severity).paint(severity) } else { severity.to_owned() };
    let mut lines = vec![format!(
        "{severity} {} {}: {}",
        finding.check.as_str(),
        object(&finding.object),
        printable(&finding.message)
    )];
    let number = |number: &OptionNumber| match number {
        OptionNumber::Count(count) => count.to_string(),
        OptionNumber::Amount(amount) => amount.value.clone(),
    };
    let evidence: Vec<String> =
        finding.evidence.iter().map(|(name, value)| format!("{name} {}", number(value))).collect();
    let (command, advice) = finding.command_and_advice();
    let parts = [
        ("Says", finding.check.describe().to_owned()),
        ("Evidence", evidence.join(", ")),
        ("Of", workloads(&finding.workloads)),
        ("Leads to", finding.consequence.clone()),
        ("Run", command.to_owned()),
        ("Correct", advice.to_owned()),
    ];
    lines.extend(
        parts
            .iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(label, text)| format!("  {label:8}   {}", printable(text))),
    );
    lines.join("\n") + "\n"
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
    let kind = match object.kind.as_str() {
        "ClusterQueue" => "cq",
        "LocalQueue" => "lq",
        "ResourceFlavor" => "rf",
        "Namespace" => "ns",
        "Workload" => "wl",
        other => return full(&other.to_lowercase(), object),
    };
    full(kind, object)
}

fn full(kind: &str, object: &FindingObject) -> String {
    format!("{kind}/{}", object.full_name())
}
