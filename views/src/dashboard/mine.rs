//! The page of what the viewer submitted: what waits, what runs, what was evicted and by what, what ended, what it used, and what is free
//! for more. It is the start page of a viewer that may not read the overview.
//!
//! Invariant: the name of the viewer comes from the API server's review, never from the address; the page does not show it.

use super::frame::{Frame, Request, Scope, Section};
use super::links::Links;
use super::marks::{self, Shape};
use super::messages::Chooser;
use super::page::{AddressedPage, Page, given};
use super::rows::WorkloadRow;
use super::text::{self, Moment};
use crate::visibility::history::workload_text;
use crate::visibility::own_workloads::{EvictedWorkload, OwnList, OwnWorkloads};
use crate::visibility::views::{LocalQueueView, OwnReport, PreemptionView, Source};
use askama::Template;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Most rows of what is free.
const MAX_FREE: usize = 100;

/// Address of the page, and its viewer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MineQuery {
    /// The namespace; empty for all that the viewer may read.
    #[serde(rename = "ns")]
    pub namespace: String,
    /// Name of the viewer; empty until it is known, and not a part of the address.
    #[serde(skip)]
    pub user: String,
}

/// What the viewer submitted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MinePage {
    /// What was asked for.
    pub query: MineQuery,
    /// The workloads.
    pub workloads: OwnWorkloads,
    /// LocalQueues of the namespaces of the workloads, or of all that the viewer may read.
    pub local_queues: Vec<LocalQueueView>,
    /// Use and preemptions of the last 24 hours; absent if the history does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<OwnReport>,
    /// Replica, time and state that the page was made from.
    pub source: Source,
    /// Whether a part is missing or may differ from the leader's.
    pub partial: bool,
}

#[derive(Template)]
#[template(path = "mine.html", config = "src/dashboard/askama.toml")]
struct MineTemplate {
    frame: Frame,
    lede: String,
    /// For a viewer that may read none of the namespaces in which it has submitted something: the way to one, in place of empty lists.
    chooser: Option<Chooser>,
    pending: String,
    running: String,
    finished: String,
    /// What was used, as `96.0 nvidia.com/gpu`, one for each resource.
    used: Vec<String>,
    /// Since when that is known, or why it is not.
    used_note: String,
    waiting_rows: Vec<WorkloadRow>,
    running_rows: Vec<WorkloadRow>,
    finished_rows: Vec<WorkloadRow>,
    evictions: Vec<EvictionRow>,
    free: Vec<FreeRow>,
    is_cut: bool,
}

/// An eviction of a workload of the viewer.
struct EvictionRow {
    workload: String,
    href: String,
    at: Moment,
    reason: String,
    by: String,
}

/// What a LocalQueue may still use of a flavor-resource.
struct FreeRow {
    queue: String,
    href: String,
    resource: String,
    flavor: String,
    used: String,
    available: String,
}

impl AddressedPage for MineQuery {
    fn href(&self, links: &Links) -> String {
        links.with_query("/mine", &[("ns", &self.namespace)])
    }

    fn namespace(&self) -> Option<&str> {
        given(&self.namespace)
    }

    fn is_of_own_namespaces(&self) -> bool {
        self.namespace.is_empty()
    }

    fn subject(&self) -> String {
        match given(&self.namespace) {
            None => "what you submitted in all namespaces".to_owned(),
            Some(namespace) => format!("what you submitted in namespace {namespace}"),
        }
    }
}

impl Page for MinePage {
    fn html(&self, request: &Request) -> askama::Result<String> {
        render(request, self)
    }

    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}

fn render(request: &Request, data: &MinePage) -> askama::Result<String> {
    let (links, now) = (&request.links, request.now);
    let rows = |list: &OwnList| WorkloadRow::all(&list.items, links, now);
    let free = free_rows(&data.local_queues, links);
    let report = data.history.as_ref();
    let reads_none = request.scope == Scope::Nothing && data.workloads.namespaces.is_empty();
    MineTemplate {
        frame: Frame::of(request, "Mine", Section::Mine, (&data.source, data.partial)),
        lede: match given(&data.query.namespace) {
            None => "What you submitted, in the namespaces that you may read.".to_owned(),
            Some(namespace) => format!("What you submitted in namespace {namespace}."),
        },
        chooser: reads_none.then(|| Chooser::of(request)),
        pending: text::count(data.workloads.pending.total),
        running: text::count(data.workloads.running.total),
        finished: text::count(data.workloads.finished.total),
        used: report.map(used).unwrap_or_default(),
        used_note: used_note(report),
        waiting_rows: rows(&data.workloads.pending),
        running_rows: rows(&data.workloads.running),
        finished_rows: rows(&data.workloads.finished),
        evictions: eviction_rows(data, request),
        is_cut: free.len() > MAX_FREE,
        free: free.into_iter().take(MAX_FREE).collect(),
    }
    .render()
}

fn used(report: &OwnReport) -> Vec<String> {
    report.used.iter().map(|used| format!("{} h of {}", used.hours.text, used.resource)).collect()
}

fn used_note(report: Option<&OwnReport>) -> String {
    match report.map(|report| (&report.recorded, report.jobs)) {
        None => "The history does not answer at present.".to_owned(),
        Some((recorded, jobs)) if recorded.complete => {
            format!("by {} in the last 24 hours", text::counted(jobs, "workload"))
        }
        Some((recorded, jobs)) => match recorded.from {
            Some(from) => format!("by {} since {} UTC", text::counted(jobs, "workload"), text::clock(from)),
            None => "Nothing is recorded.".to_owned(),
        },
    }
}

/// Returns the evictions, the newest first: preemptions of the history, then what conditions say of other evictions.
fn eviction_rows(data: &MinePage, request: &Request) -> Vec<EvictionRow> {
    let (links, now) = (&request.links, request.now);
    let preemptions = data.history.as_ref().map_or(&[][..], |report| &report.preemptions);
    let of_preemption = |item: &PreemptionView| EvictionRow {
        workload: workload_text(&item.victim),
        href: links.workload(&item.victim.namespace, &item.victim.name),
        at: Moment::ago(item.time, now),
        reason: item.reason.clone(),
        by: item.preemptor.as_ref().map_or_else(|| text::NONE.to_owned(), workload_text),
    };
    let known: BTreeSet<&str> = preemptions.iter().map(|item| item.victim.uid.as_str()).collect();
    // An eviction for another reason is none of the preemptions of the history.
    let is_known =
        |row: &&EvictedWorkload| row.reason == marks::PREEMPTED && known.contains(row.uid.as_str());
    let others = data.workloads.evicted.iter().filter(|row| !is_known(row));
    let others = others.map(|row| EvictionRow {
        workload: format!("{}/{}", row.namespace, row.name),
        href: links.workload(&row.namespace, &row.name),
        at: Moment::ago(row.since, now),
        reason: row.reason.clone(),
        by: text::NONE.to_owned(),
    });
    preemptions.iter().map(of_preemption).chain(others).collect()
}

/// Returns what each LocalQueue may still use. A queue that is not active gives nothing.
fn free_rows(queues: &[LocalQueueView], links: &Links) -> Vec<FreeRow> {
    let rows = |queue: &LocalQueueView| {
        let (namespace, name) = (queue.metadata.namespace.clone(), queue.metadata.name.clone());
        let (href, active) = (links.namespace(&namespace), queue.active);
        let quota = queue.quota.clone();
        quota.into_iter().map(move |quota| FreeRow {
            queue: format!("{namespace}/{name}"),
            href: href.clone(),
            used: text::amount(&quota.used),
            available: if active { text::amount(&quota.available) } else { "not active".to_owned() },
            resource: quota.resource,
            flavor: quota.flavor,
        })
    };
    queues.iter().flat_map(rows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::views::HistoryWorkload;

    /// A workload that was preempted, and evicted again after another start, has both evictions.
    #[test]
    fn only_preemptions_repeat_the_history() {
        let evicted = |uid: &str, reason: &str| EvictedWorkload {
            uid: uid.to_owned(),
            reason: reason.to_owned(),
            ..EvictedWorkload::default()
        };
        let victim = HistoryWorkload { uid: "a".to_owned(), ..HistoryWorkload::default() };
        let preemption =
            PreemptionView { victim, reason: "InClusterQueue".to_owned(), ..PreemptionView::default() };
        let shown = |reason: &str| {
            let workloads = OwnWorkloads { evicted: vec![evicted("a", reason)], ..OwnWorkloads::default() };
            let history = Some(OwnReport { preemptions: vec![preemption.clone()], ..OwnReport::default() });
            let page = MinePage { workloads, history, ..MinePage::default() };
            let rows = eviction_rows(&page, &Request::default());
            rows.into_iter().map(|row| row.reason).collect::<Vec<_>>()
        };
        assert_eq!(shown("Preempted"), ["InClusterQueue"]);
        assert_eq!(shown("PodsReadyTimeout"), ["InClusterQueue", "PodsReadyTimeout"]);
    }
}
