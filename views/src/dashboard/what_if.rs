//! The page about a change: a form, and what starts earlier or later, is evicted, or stays stuck.
//!
//! Invariants: the page works without a script and has no updates, because an answer costs a simulation; times are shown inside a
//! `<time>` that names them.

use super::frame::{Frame, Request, Scope, Section};
use super::links::Links;
use super::page::{AddressedPage, Page, given};
use super::text::grouped;
use super::what_if_query::{PATH, WhatIfQuery};
use crate::simulate::{ComparedAmounts, ComparedWorkload, Comparison, Fate, Totals, WorkloadRef};
use crate::visibility::views::Source;
use askama::Template;
use serde::{Deserialize, Serialize};

/// Most workloads of the page.
const MAX_ROWS: usize = 200;

/// The page about a change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIfPage {
    /// What was asked for.
    pub query: WhatIfQuery,
    /// The answer; absent for a question without a change, or one that is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Comparison>,
    /// Why there is no answer, as a sentence; empty if there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub refused: String,
    /// Replica and time of the page. The objects are read when the question is asked.
    pub source: Source,
}

#[derive(Template)]
#[template(path = "what_if.html", config = "src/dashboard/askama.toml")]
struct WhatIfTemplate<'a> {
    frame: Frame,
    query: &'a WhatIfQuery,
    action: String,
    /// Whether the form has nodes, quotas and queues.
    whole: bool,
    /// Namespace that the reader cannot change; empty for a reader of the cluster.
    namespace: &'a str,
    refused: &'a str,
    answer: Option<Answer<'a>>,
    command: String,
}

struct Answer<'a> {
    totals: Vec<TotalRow>,
    rows: Vec<Row>,
    more: bool,
    /// How many workloads the JSON of the page has.
    in_json: String,
    stuck: Vec<Named>,
    flavors: &'a [ComparedAmounts],
    notes: &'a [String],
    assumptions: &'a [String],
}

struct TotalRow {
    name: &'static str,
    without: usize,
    with: usize,
}

struct Row {
    workload: Named,
    effect: &'static str,
    without: Vec<Part>,
    with: Vec<Part>,
    blocked_by: String,
}

/// A workload and the address of its page.
struct Named {
    name: String,
    href: String,
}

/// A part of a fate: words, a time, words.
struct Part {
    words: String,
    /// Duration since the start of the run, in ISO 8601; empty for none.
    at: String,
    shown: String,
    rest: String,
}

impl AddressedPage for WhatIfQuery {
    fn href(&self, links: &Links) -> String {
        self.address(links)
    }

    fn namespace(&self) -> Option<&str> {
        given(&self.namespace)
    }

    fn subject(&self) -> String {
        match given(&self.namespace) {
            None => "what a change does to the cluster".to_owned(),
            Some(namespace) => format!("what a change does to the jobs of namespace {namespace}"),
        }
    }

    fn asks_core(&self) -> bool {
        self.has_change()
    }

    fn is_live(&self) -> bool {
        false
    }
}

impl Page for WhatIfPage {
    fn html(&self, request: &Request) -> askama::Result<String> {
        render(request, self)
    }

    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}

/// Renders the page.
fn render(request: &Request, data: &WhatIfPage) -> askama::Result<String> {
    let links = &request.links;
    let frame = Frame::of(request, "What if", Section::WhatIf, (&data.source, false));
    let namespace = request.scope.namespace();
    WhatIfTemplate {
        frame: Frame { events: String::new(), ..frame },
        query: &data.query,
        action: links.to(PATH),
        whole: request.scope == Scope::Cluster,
        namespace,
        refused: &data.refused,
        answer: data.answer.as_ref().map(|answer| shown(answer, request)),
        command: data.query.command(),
    }
    .render()
}

fn shown<'a>(answer: &'a Comparison, request: &Request) -> Answer<'a> {
    let links = &request.links;
    let both = answer.without.as_ref().zip(answer.with.as_ref());
    Answer {
        // Sums over all namespaces are for readers of the cluster alone.
        totals: both.filter(|_| request.scope == Scope::Cluster).map(totals).unwrap_or_default(),
        rows: answer.workloads.iter().take(MAX_ROWS).map(|compared| row(compared, links)).collect(),
        more: answer.workloads.len() > MAX_ROWS,
        in_json: in_json(answer),
        stuck: answer.stays_stuck.iter().map(|workload| named(workload, links)).collect(),
        flavors: &answer.flavors,
        notes: &answer.notes,
        assumptions: &answer.assumptions,
    }
}

/// Returns how many of the workloads the answer has.
fn in_json(answer: &Comparison) -> String {
    let kept = answer.workloads.len();
    match answer.more_workloads {
        0 => "all".to_owned(),
        more => {
            let number = |number: usize| grouped(&number.to_string());
            format!("{} of {}", number(kept), number(kept.saturating_add(more)))
        }
    }
}

fn totals((without, with): (&Totals, &Totals)) -> Vec<TotalRow> {
    let row = |name: &'static str, count: fn(&Totals) -> usize| TotalRow {
        name,
        without: count(without),
        with: count(with),
    };
    vec![
        row("Admitted", |totals| totals.admitted),
        row("Evicted", |totals| totals.evicted),
        row("Preempted, of these", |totals| totals.preempted),
        row("Finished", |totals| totals.finished),
        row("Pending at the end", |totals| totals.pending),
        row("Stuck, of these", |totals| totals.stuck),
    ]
}

fn row(compared: &ComparedWorkload, links: &Links) -> Row {
    Row {
        workload: named(&compared.workload, links),
        effect: compared.effect.as_str(),
        without: parts(&compared.without),
        with: parts(&compared.with),
        blocked_by: compared.with.blocked_by.clone(),
    }
}

fn named(workload: &WorkloadRef, links: &Links) -> Named {
    let (namespace, name) = workload.workload.split_once('/').unwrap_or(("", &workload.workload));
    Named { name: workload.display_name().to_owned(), href: links.workload(namespace, name) }
}

fn parts(fate: &Fate) -> Vec<Part> {
    let parts = fate.parts().into_iter().enumerate().map(|(index, part)| Part {
        words: format!("{}{}", if index == 0 { "" } else { ", again " }, part.words),
        at: part.seconds.map_or_else(String::new, |seconds| format!("PT{seconds:?}S")),
        shown: part.time(),
        rest: part.rest,
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_that_are_left_out_are_counted() {
        let workloads = vec![ComparedWorkload::default(); 201];
        for (more, said) in
            [(0, "the JSON of this page has all."), (1_800, "the JSON of this page has 201 of 2,001.")]
        {
            let answer =
                Comparison { workloads: workloads.clone(), more_workloads: more, ..Comparison::default() };
            let page = WhatIfPage { answer: Some(answer), ..WhatIfPage::default() };
            let html = page.html(&Request::default()).unwrap();
            assert!(html.contains(said), "{html}");
        }
    }
}
