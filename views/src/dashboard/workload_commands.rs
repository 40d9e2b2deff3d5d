//! The commands on the page of a Workload, with their pages.
//!
//! Invariant: the question about a change changes something of the Workload, and its reader may ask it; of a finished Workload, which no
//! change concerns, there is none.

use super::frame::{Request, Scope};
use super::object::{ObjectKind, ObjectLinks, ObjectName};
use super::what_if_query::WhatIfQuery;
use crate::visibility::views::{Verdict, WorkloadState};

/// The commands for a terminal.
pub(super) struct Commands {
    pub(super) why: String,
    /// The question about a change as a command, which lists the whole cluster: empty in the view of a namespace.
    pub(super) what_if: String,
    /// The page that asks the same; empty without a question.
    pub(super) what_if_href: String,
    pub(super) object: ObjectLinks,
}

impl Commands {
    /// Returns the commands about a Workload.
    pub(super) fn of(verdict: &Verdict, request: &Request) -> Self {
        let row = &verdict.workload;
        let (namespace, name) = (row.metadata.namespace.clone(), row.metadata.name.clone());
        let job = row.job.as_ref().map(|job| format!("{}/{}", job.kind.to_lowercase(), job.name));
        let target = job.clone().unwrap_or_else(|| format!("workload/{name}"));
        let what_if = what_if(verdict, target, &request.scope);
        let sees_cluster = request.scope == Scope::Cluster;
        Self {
            why: format!("sluice why {} -n {namespace}", job.as_ref().unwrap_or(&name)),
            what_if: what_if.as_ref().filter(|_| sees_cluster).map(WhatIfQuery::command).unwrap_or_default(),
            what_if_href: what_if.map(|asked| asked.address(&request.links)).unwrap_or_default(),
            object: ObjectLinks::of(&ObjectName { kind: ObjectKind::Workload, namespace, name }, request),
        }
    }
}

/// Returns the question about a change of the Workload: its stop if it has quota, otherwise a priority with which it would be first. A
/// reader of a namespace asks about its deletion instead: its users choose classes alone, and may not write Workloads.
fn what_if(verdict: &Verdict, target: String, scope: &Scope) -> Option<WhatIfQuery> {
    let namespace = verdict.workload.metadata.namespace.clone();
    let asked = WhatIfQuery { namespace, ..WhatIfQuery::default() };
    if verdict.workload.state == WorkloadState::Finished {
        return None;
    }
    if *scope != Scope::Cluster {
        return Some(WhatIfQuery { delete: target, ..asked });
    }
    if verdict.admission.is_some() {
        return Some(WhatIfQuery { stop: target, ..asked });
    }
    Some(match higher_priority(verdict) {
        Some(priority) => WhatIfQuery { priority: format!("{target}={priority}"), ..asked },
        None => WhatIfQuery { delete: target, ..asked },
    })
}

/// Returns a priority, without the boost, that is above that of the Workload and of the first ones ahead of it; `None` if no priority is.
fn higher_priority(verdict: &Verdict) -> Option<i32> {
    let row = &verdict.workload;
    let ahead = verdict.ahead.iter().flat_map(|ahead| &ahead.first).map(|ahead| ahead.priority);
    let above = ahead.chain([row.priority]).max()?.checked_add(1)?.checked_sub(row.boost)?;
    i32::try_from(above).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::views::{AdmissionView, Ahead, AheadRow, ViewMetadata, WorkloadView};

    fn verdict(state: WorkloadState, (priority, boost): (i64, i64), ahead: &[i64]) -> Verdict {
        let metadata =
            ViewMetadata { namespace: "team".to_owned(), name: "w".to_owned(), ..ViewMetadata::default() };
        let row = |priority: &i64| AheadRow { priority: *priority, ..AheadRow::default() };
        let ahead = Ahead { first: ahead.iter().map(row).collect(), ..Ahead::default() };
        Verdict {
            workload: WorkloadView { metadata, state, priority, boost, ..WorkloadView::default() },
            ahead: Some(ahead),
            admission: (state != WorkloadState::Pending).then(AdmissionView::default),
            ..Verdict::default()
        }
    }

    /// Each command changes what the Workload has, and the page asks the same as the command.
    #[test]
    fn commands_change_something() {
        use WorkloadState::{Admitted, Finished, Pending};
        let highest = i64::from(i32::MAX);
        for (state, priorities, ahead, change) in [
            (Pending, (100, 0), &[200, 150][..], "--priority workload/w=201"),
            (Pending, (100, 0), &[], "--priority workload/w=101"),
            // Ahead for another reason than the priority.
            (Pending, (300, 0), &[200], "--priority workload/w=301"),
            (Pending, (110, 10), &[200], "--priority workload/w=191"),
            (Pending, (highest, 0), &[], "--delete workload/w"),
            (Admitted, (100, 0), &[], "--stop workload/w"),
            (Finished, (100, 0), &[], ""),
        ] {
            let verdict = verdict(state, priorities, ahead);
            let whole = Request { scope: Scope::Cluster, ..Request::default() };
            let shown = Commands::of(&verdict, &whole);
            let command = format!("sluice what-if {change} -n team");
            assert_eq!(shown.what_if, if change.is_empty() { "" } else { command.as_str() });
            assert_eq!(shown.what_if_href.is_empty(), change.is_empty(), "{change}");
            let tenant = Request { scope: Scope::Namespace("team".to_owned()), ..Request::default() };
            let asked = what_if(&verdict, "workload/w".to_owned(), &tenant.scope);
            assert_eq!(asked.is_none(), change.is_empty(), "{change}");
            // No number as a priority, and no command that lists the cluster.
            assert!(asked.is_none_or(|asked| asked.priority.is_empty() && asked.changes(false).is_ok()));
            assert_eq!(Commands::of(&verdict, &tenant).what_if, "");
        }
    }
}
