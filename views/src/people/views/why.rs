//! `why`: the verdict first, its numbers second, then the flavors, then what would have to change.

use super::amount::{ResourceNames, amount};
use super::time::{at, since};
use super::workloads::{node, or_dash};
use super::{Look, comparison::comparison, estimate};
use crate::people::sentence::capitalized;
use crate::people::text_table::{Narrow, Side, TextTable, Tone, printable};
use crate::visibility::views::{
    AdmissionView, Answer, BlockerKindView, BlockerView, ChangeKind, HistoryEntry, PodSetAdmission, Role,
    Source, SourceKind, Verdict, WorkloadState,
};
use std::fmt::Write as _;

/// Returns the text of a verdict; with `all` also the message of the condition.
pub fn why(answer: &Answer<Verdict>, all: bool, look: Look) -> String {
    let verdict = &answer.view;
    let mut text = String::new();
    if let Some(before) = &verdict.before {
        text.push_str(&comparison(before, look));
    } else {
        text.push_str(&printable(&headline(verdict, look)));
        text.push('\n');
        let lead = numbers(verdict).unwrap_or_default();
        if !lead.is_empty() {
            text.push_str(&printable(&lead));
            text.push('\n');
        }
        let table = if verdict.admission.is_some() {
            admission_table(verdict, look)
        } else {
            blocker_table(verdict, &lead, look)
        };
        if !table.is_empty() {
            let _ = write!(text, "\n{table}");
        }
        let lines = lines(verdict, all, look);
        if !lines.is_empty() {
            let width = lines.iter().map(|(label, _)| label.chars().count()).max().unwrap_or_default();
            text.push('\n');
            for (label, line) in lines {
                let _ = writeln!(text, "{label:width$}   {}", printable(&line));
            }
        }
    }
    let _ = writeln!(text, "\n{}", origin(&answer.source, answer.partial, look));
    text
}

fn headline(verdict: &Verdict, look: Look) -> String {
    let row = &verdict.workload;
    let name = format!("{}/{}", row.metadata.namespace, row.metadata.name);
    let time = since(row.since, look);
    // A reason that only repeats the state is left out.
    let says_more = !row.reason.is_empty() && row.reason != row.state.as_str();
    let reason = if says_more { format!(": {}", row.reason) } else { String::new() };
    match row.state {
        WorkloadState::Pending => format!("{name} has been pending for {time}{reason}"),
        WorkloadState::QuotaReserved => {
            format!(
                "{name} has had quota in ClusterQueue {} for {time} and waits for its checks{reason}",
                or_dash(&row.cluster_queue)
            )
        }
        WorkloadState::Admitted => {
            format!("{name} has been admitted in ClusterQueue {} for {time}", or_dash(&row.cluster_queue))
        }
        WorkloadState::Evicted => format!("{name} has been stopping for {time}{reason}"),
        WorkloadState::Finished => format!("{name} finished {time} ago{reason}"),
    }
}

/// Returns what a Workload that can never be admitted lacks: `request 64 > 16 at ClusterQueue interns`.
pub fn never_fits(verdict: &Verdict) -> Option<String> {
    let blocker = verdict.blockers.iter().find(|blocker| blocker.kind == BlockerKindView::NeverFits);
    let blocker = blocker.filter(|_| verdict.never_fits)?;
    let named = !blocker.node.is_empty() && blocker.requested.is_some();
    Some(if named {
        let (requested, limit) = (amount(blocker.requested.as_ref()), amount(blocker.limit.as_ref()));
        format!("request {requested} > {limit} at {}", node(&blocker.node))
    } else {
        blocker.text.clone()
    })
}

/// Returns the first blocker as a sentence.
fn numbers(verdict: &Verdict) -> Option<String> {
    if !verdict.obstacle.is_empty() {
        return Some(sentence(&verdict.obstacle));
    }
    let Some(blocker) = verdict.main_blocker() else {
        // If quota does not decide, only the condition explains the wait.
        let says = verdict.workload.message.trim_end_matches('.');
        let shown = verdict.workload.state == WorkloadState::Pending && !says.is_empty();
        return shown.then(|| sentence(says));
    };
    let value = |amount: &Option<_>| super::amount::amount(amount.as_ref());
    let flavor = if blocker.flavor.is_empty() { String::new() } else { format!(" in {}", blocker.flavor) };
    let named = !blocker.resource.is_empty() && !blocker.node.is_empty() && blocker.requested.is_some();
    match blocker.kind {
        BlockerKindView::NeverFits if verdict.never_fits && named && blocker.limit.is_none() => {
            Some(format!(
                "It can never be admitted: it requests more of {} than {} can have.",
                blocker.resource,
                node(&blocker.node)
            ))
        }
        BlockerKindView::NeverFits if verdict.never_fits && named => Some(format!(
            "It can never be admitted: request {} > {}, the most of {} that {} can have.",
            value(&blocker.requested),
            value(&blocker.limit),
            blocker.resource,
            node(&blocker.node)
        )),
        BlockerKindView::InUse if named => Some(format!(
            "It needs {} {}{flavor}. {} may still use {}: {} {} missing.",
            value(&blocker.requested),
            blocker.resource,
            node(&blocker.node),
            value(&blocker.available),
            value(&blocker.missing),
            if value(&blocker.missing) == "1" { "is" } else { "are" }
        )),
        _ if blocker.text.is_empty() => None,
        _ if verdict.never_fits => Some(format!(
            "It can never be admitted as it is: {}.",
            shortened(blocker.text.trim_end_matches('.'))
        )),
        _ => Some(sentence(blocker.text.trim_end_matches('.'))),
    }
}

/// Most characters of an object's text in one line.
const SHOWN: usize = 2_000;

/// Returns the text, cut to `SHOWN` characters.
pub(in crate::people) fn shortened(text: &str) -> String {
    let length = text.chars().count();
    if length <= SHOWN {
        return text.to_owned();
    }
    let start: String = text.chars().take(SHOWN).collect();
    format!("{start}... ({} more characters: -o json)", length - SHOWN)
}

/// Returns a text as a sentence.
fn sentence(text: &str) -> String {
    format!("{}.", capitalized(&shortened(text)))
}

fn result(kind: BlockerKindView) -> (&'static str, Tone) {
    match kind {
        BlockerKindView::NeverFits => ("never fits", Tone::Bad),
        BlockerKindView::InUse => ("in use", Tone::Waiting),
        BlockerKindView::Undeclared => ("undeclared", Tone::Bad),
        BlockerKindView::NodesInUse => ("nodes in use", Tone::Waiting),
        BlockerKindView::Mismatch => ("mismatch", Tone::Bad),
        BlockerKindView::Behind => ("behind", Tone::Waiting),
        BlockerKindView::Next => ("next", Tone::Waiting),
        BlockerKindView::Fits => ("fits", Tone::Good),
        BlockerKindView::PodGate => ("pod gate", Tone::Bad),
        BlockerKindView::Unschedulable => ("unschedulable", Tone::Bad),
    }
}

/// Returns the blockers as rows, except one that only repeats `lead`, the sentence above the table.
fn blocker_table(verdict: &Verdict, lead: &str, look: Look) -> String {
    let (blockers, next, fits) = (verdict.blockers.iter(), verdict.next.iter(), verdict.fits.iter());
    let rows: Vec<(BlockerKindView, &BlockerView)> = blockers
        .map(|row| (row.kind, row))
        .chain(next.map(|row| (BlockerKindView::Next, row)))
        .chain(fits.map(|row| (BlockerKindView::Fits, row)))
        .filter(|(_, row)| {
            row.requested.is_some() || row.text.is_empty() || sentence(row.text.trim_end_matches('.')) != lead
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let first = rows.first().map(|(_, row)| row.pod_set.as_str()).unwrap_or_default();
    let several = rows.iter().any(|(_, row)| row.pod_set != first);
    let mut columns = vec![("FLAVOR", Side::Left), ("RESOURCE", Side::Left), ("RESULT", Side::Whole)];
    columns.extend([("REQUEST", Side::Right), ("AVAILABLE", Side::Right), ("LIMIT", Side::Right)]);
    columns.extend([("AT", Side::Left), ("MISSING", Side::Right)]);
    if several {
        columns.insert(0, ("POD SET", Side::Left));
    }
    let mut table = TextTable::new(columns);
    // What is missing is what a change has to add; the other numbers lead to it.
    table.when_narrow(Narrow { optional: &["LIMIT", "AVAILABLE", "REQUEST"], ..Narrow::default() });
    table.wrap_last();
    for (kind, row) in rows {
        let (word, tone) = result(kind);
        let pod_set = several.then(|| or_dash(&row.pod_set));
        let start =
            pod_set.into_iter().chain([or_dash(&row.flavor), or_dash(&row.resource), word.to_owned()]);
        if row.requested.is_none() && row.available.is_none() && !row.text.is_empty() {
            table.push_text(start, &shortened(&row.text));
            continue;
        }
        let is_fit = kind == BlockerKindView::Fits;
        let cells = start.chain([
            amount(row.requested.as_ref()),
            amount(row.available.as_ref()),
            amount(row.limit.as_ref()),
            if is_fit { "-".to_owned() } else { node(&row.node) },
            if is_fit { "-".to_owned() } else { amount(row.missing.as_ref()) },
        ]);
        table.push_toned(cells, 2 + usize::from(several), tone);
    }
    look.show(&table)
}

/// Returns where the pods of a pod set are, with their number: domains of its topology, or nodes.
fn places(pod_set: &PodSetAdmission) -> impl Iterator<Item = (&String, &u64)> {
    pod_set.domains.iter().chain(&pod_set.nodes)
}

/// Returns what the pods of a Workload do: `3 running, 1 pending`, of each pod set if it has several.
fn pod_states(admission: &AdmissionView) -> Option<String> {
    let has_several = admission.pod_sets.len() > 1;
    let of_set = |pod_set: &PodSetAdmission| {
        let words = pod_set.states?.words();
        Some(if has_several { format!("{}: {words}", pod_set.name) } else { words })
    };
    let states: Vec<String> = admission.pod_sets.iter().filter_map(of_set).collect();
    (!states.is_empty()).then(|| states.join("; "))
}

fn admission_table(verdict: &Verdict, look: Look) -> String {
    let Some(admission) = &verdict.admission else { return String::new() };
    let mut table = TextTable::new([
        ("POD SET", Side::Left),
        ("PODS", Side::Right),
        ("RESOURCE", Side::Left),
        ("AMOUNT", Side::Right),
        ("FLAVOR", Side::Left),
        ("WHERE", Side::Left),
    ]);
    table.wrap_last();
    for pod_set in &admission.pod_sets {
        let places: Vec<String> = places(pod_set).map(|(place, pods)| format!("{place} ({pods})")).collect();
        for (number, need) in pod_set.resources.iter().enumerate() {
            let (name, pods, places) = match number {
                0 => (pod_set.name.clone(), pod_set.count.to_string(), or_dash(&places.join(", "))),
                _ => (String::new(), String::new(), String::new()),
            };
            table.push([
                name,
                pods,
                need.resource.clone(),
                need.amount.value.clone(),
                or_dash(&need.flavor),
                places,
            ]);
        }
    }
    if table.is_empty() { String::new() } else { look.show(&table) }
}

/// Returns an entry of the history as a line: `preempted at 13:02:11 by a workload of ClusterQueue ranking
/// (InCohortReclamation)`.
fn happened(entry: &HistoryEntry, look: Look) -> String {
    let time = at(entry.time, look);
    let says_more = !entry.reason.is_empty() && entry.reason != entry.event;
    let reason = if says_more { format!(" ({})", entry.reason) } else { String::new() };
    match entry.text.split_once(" by ") {
        Some((word, by)) => format!("{word} at {time} by {by}{reason}"),
        None if entry.text.is_empty() => format!("{} at {time}{reason}", entry.event),
        None => format!("{} at {time}{reason}: {}", entry.event, entry.text),
    }
}

/// Returns the lines below the table, each with its label.
fn lines(verdict: &Verdict, all: bool, look: Look) -> Vec<(&'static str, String)> {
    let row = &verdict.workload;
    let mut lines: Vec<(&'static str, String)> = Vec::new();
    if let Some(position) = &row.position {
        let class =
            if row.priority_class.is_empty() { String::new() } else { format!(" ({})", row.priority_class) };
        lines.push((
            "Position",
            format!(
                "{} of {} in {}, {} of {} in LocalQueue {}; priority {}{class}",
                position.cluster_queue,
                position.of,
                row.cluster_queue,
                position.local_queue,
                position.of_local_queue,
                row.local_queue,
                row.priority
            ),
        ));
    }
    lines.extend(ahead(verdict).map(|line| ("Ahead", line)));
    for option in &verdict.options {
        let label = option.kind.label();
        let no = if !option.possible && option.kind == ChangeKind::Preempt { "no: " } else { "" };
        lines.push((label, format!("{no}{}", option.detail)));
    }
    for check in &verdict.checks {
        let time = check.since.map(|time| format!(" since {}", at(time, look))).unwrap_or_default();
        let message =
            if check.message.is_empty() { String::new() } else { format!(": {}", shortened(&check.message)) };
        lines.push(("Check", format!("{} is {}{time}{message}", check.name, check.state)));
    }
    if let Some(admission) = &verdict.admission {
        lines.extend(pod_states(admission).map(|states| ("Pods", states)));
        lines.extend(admission.ends_by.map(|time| ("Ends by", at(time, look))));
        lines.extend(
            admission.borrows.then(|| {
                ("Borrows", "it uses quota beyond the nominal quota of its ClusterQueue".to_owned())
            }),
        );
        lines.extend(admission.preemptible_by.iter().map(|text| ("Preempt", text.clone())));
    }
    lines.extend(verdict.estimate.iter().flat_map(|estimate| estimate::lines(estimate, look)));
    // The first line has the present wait; earlier waits are shown on request.
    let shown = verdict.history.iter().filter(|entry| all || !entry.is_of_queue());
    lines.extend(shown.map(|entry| ("History", happened(entry, look))));
    lines.extend(verdict.history_since.map(|time| {
        (
            "Recorded",
            format!("by this replica since {}; of earlier evictions only the last is known", at(time, look)),
        )
    }));
    if all && !row.message.is_empty() {
        lines.push(("Message", shortened(&row.message)));
    }
    lines
}

fn ahead(verdict: &Verdict) -> Option<String> {
    let ahead = verdict.ahead.as_ref().filter(|ahead| ahead.count > 0)?;
    let names = ResourceNames::of(
        ahead.first.iter().flat_map(|row| row.needs.iter().map(|need| need.resource.as_str())),
    );
    let own = &verdict.workload.metadata.namespace;
    let first = ahead.first.first().map(|row| row.priority);
    // A priority that all share is shown once.
    let shared = first.filter(|first| ahead.first.iter().all(|row| row.priority == *first));
    let mut parts: Vec<String> = Vec::new();
    for row in &ahead.first {
        let name =
            if row.namespace == *own { row.name.clone() } else { format!("{}/{}", row.namespace, row.name) };
        let priority = if shared.is_some() { String::new() } else { format!(", priority {}", row.priority) };
        parts.push(format!("{name} ({}{priority})", names.need(&row.needs)));
    }
    let shown = u64::try_from(ahead.first.len()).unwrap_or(u64::MAX);
    let rest = ahead.count.saturating_sub(shown);
    if rest > 0 {
        let what = if ahead.hidden == rest { "in other namespaces" } else { "more" };
        parts.push(format!("{rest} {what}"));
    }
    let priority = shared.filter(|_| rest == 0).map(|priority| format!(": priority {priority}"));
    Some(parts.join(", ") + &priority.unwrap_or_default())
}

/// Returns the line about the origin of an answer.
fn origin(source: &Source, partial: bool, look: Look) -> String {
    let time = source.time.map(|time| format!("State of {}, ", at(time, look))).unwrap_or_default();
    let from = match (source.kind, source.role) {
        (SourceKind::Manager, Some(Role::Leader)) => "from the leader".to_owned(),
        (SourceKind::Manager, _) => format!("from replica {}", or_dash(&source.replica)),
        (SourceKind::Cluster, _) => "computed here from the cluster's objects".to_owned(),
        (SourceKind::File, _) => format!("computed here from {}", source.replica),
    };
    let of = match source.kind {
        SourceKind::File => format!(" --source {}", source.replica),
        SourceKind::Manager | SourceKind::Cluster => String::new(),
    };
    let missing = if partial { " A part of the answer is missing." } else { "" };
    let origin = sentence(&format!("{time}{from}"));
    printable(&format!("{origin}{missing} Try a change: sluice what-if{of}"))
}
