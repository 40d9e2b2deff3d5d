//! Lists as CSV, one line a row.
//!
//! Invariant: no cell is read as a formula by a spreadsheet.

use super::text::rfc3339;
use crate::visibility::views::{Finding, FlavorView, WorkloadView};

const HEADER: &str =
    "namespace,name,clusterQueue,localQueue,position,priority,since,resource,amount,reason,message\r\n";

/// Writes workloads.
pub(super) fn workloads(views: &[WorkloadView]) -> String {
    let mut text = HEADER.to_owned();
    for view in views {
        let need = view.needs.first();
        let cells = [
            view.metadata.namespace.clone(),
            view.metadata.name.clone(),
            view.cluster_queue.clone(),
            view.local_queue.clone(),
            view.position.map(|position| position.cluster_queue.to_string()).unwrap_or_default(),
            view.priority.to_string(),
            view.since.map(rfc3339).unwrap_or_default(),
            need.map(|need| need.resource.clone()).unwrap_or_default(),
            need.map(|need| need.amount.value.clone()).unwrap_or_default(),
            view.reason.clone(),
            view.message.clone(),
        ];
        let cells: Vec<String> = cells.iter().map(|text| cell(text)).collect();
        text.push_str(&cells.join(","));
        text.push_str("\r\n");
    }
    text
}

/// Writes flavors, one line for each of their resources.
pub(super) fn flavors(views: &[FlavorView]) -> String {
    let mut text =
        "flavor,nodes,schedulableNodes,resource,schedulable,quota,slack,charged,others,free\r\n".to_owned();
    for view in views {
        let nodes = [view.nodes.total.to_string(), view.nodes.schedulable.to_string()];
        for row in &view.resources {
            let amounts = [&row.schedulable, &row.quota, &row.slack, &row.charged, &row.others, &row.free];
            let start = [&view.metadata.name, &nodes[0], &nodes[1], &row.resource];
            let cells = start.into_iter().chain(amounts.map(|amount| &amount.value));
            text.push_str(&cells.map(|text| cell(text)).collect::<Vec<_>>().join(","));
            text.push_str("\r\n");
        }
    }
    text
}

/// Writes findings.
pub(super) fn findings(found: &[Finding]) -> String {
    let mut text = "severity,check,kind,namespace,name,message,consequence,correction\r\n".to_owned();
    for finding in found {
        let object = &finding.object;
        let cells = [
            finding.severity.as_str(),
            finding.check.as_str(),
            &object.kind,
            &object.namespace,
            &object.name,
            &finding.message,
            &finding.consequence,
            &finding.correction,
        ];
        text.push_str(&cells.map(cell).join(","));
        text.push_str("\r\n");
    }
    text
}

fn cell(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '@', '\t', '\r'])
        || (text.starts_with('-') && text.parse::<f64>().is_err());
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_no_formulas() {
        for (text, expected) in [
            ("plain", "plain"),
            ("a,b", "\"a,b\""),
            ("say \"x\"\n", "\"say \"\"x\"\"\n\""),
            ("=1+2", "'=1+2"),
            ("-3", "-3"),
            ("-cmd", "'-cmd"),
        ] {
            assert_eq!(cell(text), expected);
        }
    }
}
