//! Rows of workloads and of quotas, as several pages show them.

use super::bar::Bar;
use super::links::Links;
use super::marks::{self, Tag};
use super::text::{self, Moment};
use crate::visibility::views::{QuotaView, WorkloadState, WorkloadView};
use jiff::Timestamp;

/// A workload as a row.
pub(super) struct WorkloadRow {
    /// Id of the row's element.
    pub(super) id: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) href: String,
    pub(super) cluster_queue: String,
    pub(super) cluster_queue_href: String,
    pub(super) local_queue: String,
    pub(super) position: String,
    pub(super) of: String,
    pub(super) priority: String,
    pub(super) since: Moment,
    pub(super) needs: String,
    pub(super) tag: Tag,
    pub(super) blocked_by: String,
}

impl WorkloadRow {
    pub(super) fn of(view: &WorkloadView, links: &Links, now: Timestamp) -> Self {
        let (namespace, name) = (&view.metadata.namespace, &view.metadata.name);
        let position = view.position.as_ref();
        Self {
            id: format!("w-{}", view.metadata.uid),
            namespace: namespace.clone(),
            name: name.clone(),
            href: links.workload(namespace, name),
            cluster_queue: view.cluster_queue.clone(),
            cluster_queue_href: links.cluster_queue(&view.cluster_queue),
            local_queue: view.local_queue.clone(),
            position: position.map_or_else(|| text::NONE.to_owned(), |at| text::count(at.cluster_queue)),
            of: position.map(|at| text::count(at.of)).unwrap_or_default(),
            priority: text::grouped(&view.priority.to_string()),
            since: Moment::ago(view.since, now),
            needs: marks::need(&view.needs),
            // A finished workload may have failed.
            tag: match view.state {
                WorkloadState::Pending => Tag::of_pending(&view.reason, view.stuck),
                WorkloadState::Finished if !view.reason.is_empty() => Tag::of_end(&view.reason),
                state => Tag::of_state(state),
            },
            blocked_by: marks::blocked_by(view),
        }
    }

    pub(super) fn all(views: &[WorkloadView], links: &Links, now: Timestamp) -> Vec<Self> {
        views.iter().map(|view| Self::of(view, links, now)).collect()
    }
}

/// A flavor-resource of a node as a row.
pub(super) struct QuotaRow {
    pub(super) resource: String,
    pub(super) flavor: String,
    pub(super) bar: Bar,
    pub(super) used: String,
    pub(super) nominal: String,
    pub(super) borrowed: String,
    pub(super) borrowed_is_zero: bool,
    pub(super) limit: String,
    pub(super) available: String,
}

impl QuotaRow {
    pub(super) fn of(quota: &QuotaView) -> Self {
        let in_cohort = quota.lent.is_some();
        let limit = quota.borrowing_limit.as_ref().map_or_else(|| "no limit".to_owned(), text::amount);
        Self {
            resource: quota.resource.clone(),
            flavor: quota.flavor.clone(),
            bar: Bar::of(quota, &format!("{} in {}", quota.resource, quota.flavor)),
            used: text::amount(&quota.used),
            nominal: text::amount(&quota.nominal),
            borrowed: if in_cohort { text::amount(&quota.borrowed) } else { text::NONE.to_owned() },
            borrowed_is_zero: !in_cohort || text::is_zero(&quota.borrowed),
            limit: if in_cohort { limit } else { String::new() },
            available: text::amount(&quota.available),
        }
    }
}

/// A link to a page above another one.
pub(super) struct Crumb {
    pub(super) text: String,
    /// Address of the page; empty for plain text.
    pub(super) href: String,
}

impl Crumb {
    pub(super) fn new(text: &str, href: String) -> Self {
        Self { text: text.to_owned(), href }
    }
}
