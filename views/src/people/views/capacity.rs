//! Text of `capacity`: the pods that fit by flavor and topology level, and what a LocalQueue may use.

use super::Look;
use super::amount::amount;
use super::workloads::or_dash;
use crate::people::text_table::{Narrow, Side, TextTable, printable};
use crate::visibility::views::{FlavorView, JobFitView, Need, QueueCapacityView, state_in_words};
use std::fmt::Write as _;

/// Note about what the counts of pods take into account.
const CHECKED: &str =
    "Checked: requests, taints, node selectors. Not checked: inter-pod affinity, host ports, volumes.";

/// Returns the text of each flavor alone, and once what was asked for, how it was counted and what was checked.
pub fn capacity_of_each(flavors: &[FlavorView], look: Look) -> String {
    let texts: Vec<String> = flavors.iter().map(|flavor| of(std::slice::from_ref(flavor), look)).collect();
    texts.join("\n") + &notes(flavors)
}

/// Returns the notes about counts of pods, a line for each different one with its flavors if there are several, and what was
/// checked; empty if nothing was counted.
fn notes(flavors: &[FlavorView]) -> String {
    let mut counted: Vec<(String, Vec<&str>)> = Vec::new();
    for flavor in flavors.iter().filter(|flavor| !flavor.levels.is_empty()) {
        let says = how_counted(flavor);
        match counted.iter_mut().find(|(known, _)| *known == says) {
            Some((_, names)) => names.push(&flavor.metadata.name),
            None => counted.push((says, vec![flavor.metadata.name.as_str()])),
        }
    }
    if counted.is_empty() {
        return String::new();
    }
    let several = counted.len() > 1;
    let mut text = String::new();
    for (says, names) in counted.iter().filter(|(says, _)| !says.is_empty()) {
        let of = if several { format!("{}: ", names.join(", ")) } else { String::new() };
        let _ = writeln!(text, "{}", printable(&format!("{of}{says}")));
    }
    let _ = writeln!(text, "{CHECKED}");
    text
}

/// Returns what a pod asks for, and whether the count of a flavor is approximate; empty if there is nothing to say.
fn how_counted(flavor: &FlavorView) -> String {
    let pod = needs(&flavor.pod);
    let pod = if pod.is_empty() { String::new() } else { format!("A pod asks for {pod}.") };
    let approximate =
        if flavor.approximate { "Counted by node, without a topology: approximate." } else { "" };
    format!("{pod} {approximate}").trim().to_owned()
}

/// Returns a row for each flavor, by its scarcest resource; of one flavor alone also a row for each level of its topology.
pub fn capacity(flavors: &[FlavorView], look: Look) -> String {
    let is_one = flavors.len() == 1;
    of(flavors, look) + &if is_one { notes(flavors) } else { String::new() }
}

/// Returns what the workloads of a LocalQueue may use: its quota by flavor, and the pods that fit if some were asked for.
pub fn queue_capacity(queue: &QueueCapacityView, look: Look) -> String {
    let headings = [
        ("FLAVOR", Side::Left),
        ("RESOURCE", Side::Left),
        ("YOURS", Side::Right),
        ("AVAILABLE", Side::Right),
    ];
    let mut quotas = TextTable::new(headings);
    let headings = [
        ("FLAVOR", Side::Left),
        ("WITHIN ONE", Side::Left),
        ("LARGEST GANG", Side::Right),
        ("LIMITED BY", Side::Left),
    ];
    let mut levels = TextTable::new(headings);
    let mut counts = false;
    for flavor in &queue.flavors {
        for quota in &flavor.quota {
            // The workloads of a queue that is not active may use nothing.
            let available = if queue.active { amount(Some(&quota.available)) } else { "-".to_owned() };
            let cells = [flavor.flavor.clone(), quota.resource.clone(), amount(Some(&quota.used)), available];
            quotas.push(cells);
        }
        for level in &flavor.levels {
            counts = true;
            let name = if level.level.is_empty() { "anywhere" } else { &level.level };
            levels.push([
                flavor.flavor.clone(),
                name.to_owned(),
                gang(level.largest_gang),
                or_dash(&level.limited_by),
            ]);
        }
    }
    let mut text = look.show(&quotas);
    if counts {
        let _ = write!(text, "\n{}{CHECKED}\n", look.show(&levels));
    }
    if !queue.active {
        let name = printable(&queue.metadata.name);
        let state = state_in_words(&queue.reason).map_or_else(|| or_dash(&queue.reason), str::to_owned);
        let _ = writeln!(text, "LocalQueue {name} is not active: {state}.");
    }
    text
}

/// `1 pod`, `2 pods`.
fn gang(pods: u64) -> String {
    if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") }
}

fn of(flavors: &[FlavorView], look: Look) -> String {
    let mut columns = vec![("FLAVOR", Side::Left)];
    columns.extend(
        ["NODES", "SCHEDULABLE", "QUOTA", "SLACK", "CHARGED", "OTHERS", "FREE"]
            .map(|heading| (heading, Side::Right)),
    );
    columns.push(("RESOURCE", Side::Left));
    let mut table = TextTable::new(columns);
    let optional = &["OTHERS", "SLACK", "CHARGED", "QUOTA"];
    table.when_narrow(Narrow { optional, ..Narrow::default() });
    for flavor in flavors {
        let nodes = format!("{}/{}", flavor.nodes.schedulable, flavor.nodes.total);
        let shown = if flavors.len() == 1 { flavor.resources.len() } else { 1 };
        if flavor.resources.is_empty() {
            let none = std::iter::repeat_n("-".to_owned(), 7);
            table.push([flavor.metadata.name.clone(), nodes.clone()].into_iter().chain(none));
        }
        for resource in flavor.resources.iter().take(shown) {
            let amounts = [
                &resource.schedulable,
                &resource.quota,
                &resource.slack,
                &resource.charged,
                &resource.others,
                &resource.free,
            ];
            let cells = [flavor.metadata.name.clone(), nodes.clone()].into_iter();
            table.push(
                cells.chain(amounts.map(|value| amount(Some(value)))).chain([resource.resource.clone()]),
            );
        }
    }
    let mut text = look.show(&table);
    if let [flavor] = flavors
        && !flavor.levels.is_empty()
    {
        let _ = write!(text, "\n{}", levels(flavor, look));
    }
    if let [FlavorView { job: Some(job), cluster_queue, .. }] = flavors {
        let _ = write!(text, "\n{}", job_fit(job, look));
        if cluster_queue.is_empty() {
            text.push_str("Quota is not counted; -c CLUSTERQUEUE counts it too.\n");
        }
    }
    text
}

fn job_fit(job: &JobFitView, look: Look) -> String {
    let mut table =
        TextTable::new([("POD SET", Side::Left), ("PODS", Side::Right), ("A POD ASKS FOR", Side::Left)]);
    table.wrap_last();
    for set in &job.pod_sets {
        table.push([set.name.clone(), set.count.to_string(), or_dash(&needs(&set.pod))]);
    }
    let (fit, not) = match &job.pod_sets[..] {
        [_] => ("They fit", "They do not fit"),
        _ => ("All together they fit", "All together they do not fit"),
    };
    let verdict = match (job.copies, job.at_least) {
        (0, true) => "Nothing was counted: the time was over".to_owned(),
        (0, false) => format!("{not} now: {}", job.limited_by),
        (copies, true) => format!("{fit} now, and at least {} in all", times(copies)),
        (1, false) => format!("{fit} now, but not twice: {}", job.limited_by),
        (copies, false) => {
            format!("{fit} now, and {} in all; not once more: {}", times(copies), job.limited_by)
        }
    };
    format!("{}{}\n", look.show(&table), printable(&verdict))
}

fn times(number: u64) -> String {
    if number == 1 { "once".to_owned() } else { format!("{number} times") }
}

fn needs(needs: &[Need]) -> String {
    let needs: Vec<String> =
        needs.iter().map(|need| format!("{}={}", need.resource, need.amount.value)).collect();
    needs.join(", ")
}

fn levels(flavor: &FlavorView, look: Look) -> String {
    let mut table = TextTable::new([
        ("WITHIN ONE", Side::Left),
        ("DOMAINS", Side::Right),
        ("MOST FREE", Side::Right),
        ("WHERE", Side::Left),
        ("LARGEST GANG", Side::Right),
        ("LIMITED BY", Side::Left),
    ]);
    table.when_narrow(Narrow { optional: &["DOMAINS", "MOST FREE"], ..Narrow::default() });
    for level in &flavor.levels {
        let more = if level.more > 0 { format!(" (and {} more)", level.more) } else { String::new() };
        let pods = gang(level.largest_gang);
        let name = if level.level.is_empty() { "anywhere" } else { &level.level };
        table.push([
            name.to_owned(),
            level.domains.to_string(),
            amount(Some(&level.most_free)),
            format!("{}{more}", or_dash(&level.location)),
            pods,
            or_dash(&level.limited_by),
        ]);
    }
    look.show(&table)
}
