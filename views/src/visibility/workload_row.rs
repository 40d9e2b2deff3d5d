//! A Workload as a row, from its object and the published state.
//!
//! Invariant: a row is the same on every replica that has received the same objects.

use super::access::Access;
use super::amounts::{amount_view, plain_amount_view};
use super::blocker_text::{self, BlockerText, QuotaBlockerText};
use super::quota::PublishedQuota;
use super::selector::SelectedFields;
use super::views::{
    BlockerKindView, BlockerView, JobView, Need, Position, ViewMetadata, WorkloadState, WorkloadView,
};
use crate::api::ObjectKey;
use crate::api::reason::{ConditionType, PendingReason};
use crate::cache::records::WorkloadRecord;
use crate::cache::state_index::{granted, pending_since};
use crate::lifecycle::{conditions, reservation};
use crate::queue::Workload;
use crate::quota::{FlavorResource, NodeRef};
use crate::resources::{self, Quantity, to_f64};
use crate::scheduler::Obstacle;
use crate::snapshot::Snapshot;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The input of rows.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) access: &'a Access,
    pub(super) quota: PublishedQuota<'a>,
}

/// Returns the state of a Workload.
pub(super) fn state_of(record: &WorkloadRecord) -> WorkloadState {
    let is_true = |kind| conditions::is_true(&record.status, kind);
    if is_true(ConditionType::Finished) {
        WorkloadState::Finished
    } else if !reservation::holds_quota(&record.status) {
        WorkloadState::Pending
    } else if is_true(ConditionType::Evicted) {
        WorkloadState::Evicted
    } else if is_true(ConditionType::Admitted) {
        WorkloadState::Admitted
    } else {
        WorkloadState::QuotaReserved
    }
}

/// Returns the condition that explains the state of a Workload.
const fn condition_of(state: WorkloadState) -> ConditionType {
    match state {
        WorkloadState::Pending | WorkloadState::QuotaReserved => ConditionType::QuotaReserved,
        WorkloadState::Admitted => ConditionType::Admitted,
        WorkloadState::Evicted => ConditionType::Evicted,
        WorkloadState::Finished => ConditionType::Finished,
    }
}

/// Returns the reason of a Workload's state.
pub(super) fn reason_of(record: &WorkloadRecord, state: WorkloadState) -> &str {
    match conditions::reason(&record.status, condition_of(state)) {
        "" if state == WorkloadState::Pending => PendingReason::PendingEvaluation.as_str(),
        reason => reason,
    }
}

impl<'a> Rows<'a> {
    pub(super) fn of(snapshot: &'a Snapshot, access: &'a Access) -> Self {
        Self { snapshot, access, quota: PublishedQuota::of(snapshot) }
    }

    /// Returns whether a ClusterQueue admits workloads.
    pub(super) fn is_active(self, cluster_queue: &str) -> bool {
        !self.snapshot.queues.inactive.contains_key(cluster_queue)
    }

    /// Returns the ClusterQueue in which a Workload holds quota, or else that of its LocalQueue; empty without one.
    pub(super) fn cluster_queue(self, record: &WorkloadRecord) -> Arc<str> {
        let admission = record.status.admission.as_ref();
        if let Some(admission) =
            admission.filter(|_| conditions::is_true(&record.status, ConditionType::QuotaReserved))
        {
            return Arc::from(admission.cluster_queue.as_str());
        }
        let key = record.local_queue();
        let queue = key.and_then(|key| self.snapshot.references.local_queues.get(&key));
        queue.map_or_else(|| Arc::from(""), |queue| Arc::clone(&queue.cluster_queue))
    }

    /// Returns the fields that selectors read.
    pub(super) fn selected_fields<'r>(
        self,
        record: &'r WorkloadRecord,
        cluster_queue: &'r Arc<str>,
        needs_standing: bool,
    ) -> SelectedFields<'r> {
        let state = state_of(record);
        let standing = if needs_standing {
            self.standing_in(record, cluster_queue, state)
        } else {
            (reason_of(record, state), false)
        };
        SelectedFields {
            is_stuck: standing.1,
            namespace: &record.meta.key.namespace,
            name: &record.meta.key.name,
            cluster_queue,
            local_queue: record.queue_name.as_deref().unwrap_or_default(),
            state,
            reason: standing.0,
            priority: record.effective_priority(),
            job: record.owner.as_ref().map_or(("", ""), |owner| (&*owner.kind, &*owner.name)),
        }
    }

    /// Returns the order key of a Workload in its queue.
    pub(super) fn order_of(self, record: &WorkloadRecord, cluster_queue: &Arc<str>) -> Option<Workload> {
        Some(Workload {
            key: record.meta.key.clone(),
            uid: Arc::clone(&record.meta.uid),
            cluster_queue: Arc::clone(cluster_queue),
            local_queue: record.queue_name.clone()?,
            priority: record.effective_priority(),
            queued_since: record.queued_since(self.quota.facts.requeue_order),
            ..Workload::default()
        })
    }

    /// Returns the position of a pending Workload.
    fn position(self, record: &WorkloadRecord, cluster_queue: &Arc<str>) -> Option<Position> {
        let order = self.order_of(record, cluster_queue)?;
        let (in_cluster_queue, in_local_queue) = self.snapshot.pending.position(&order)?;
        let local = ObjectKey { namespace: order.key.namespace, name: order.local_queue };
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        Some(Position {
            cluster_queue: count(in_cluster_queue.saturating_add(1)),
            local_queue: count(in_local_queue.saturating_add(1)),
            of: count(self.snapshot.pending.len(cluster_queue)),
            of_local_queue: count(self.snapshot.pending.local_len(cluster_queue, &local)),
        })
    }

    /// Returns the position that a Workload would have in a LocalQueue of its namespace with a priority.
    pub(super) fn position_in(
        self,
        record: &WorkloadRecord,
        cluster_queue: &Arc<str>,
        local_queue: &Arc<str>,
        priority: i64,
    ) -> Option<Position> {
        let (pending, own_queue) = (&self.snapshot.pending, self.cluster_queue(record));
        let own = self.order_of(record, &own_queue)?;
        let there = Workload {
            cluster_queue: Arc::clone(cluster_queue),
            local_queue: Arc::clone(local_queue),
            priority,
            ..own.clone()
        };
        let key = ObjectKey { namespace: Arc::clone(&own.key.namespace), name: Arc::clone(local_queue) };
        let now = pending.position(&own);
        // In its present place it is before itself.
        let same_queue = now.filter(|_| own.cluster_queue == there.cluster_queue);
        let same_local = same_queue.filter(|_| own.local_queue == there.local_queue);
        let place = |up_to: usize, own: Option<usize>| {
            let before = own.filter(|own| *own < up_to).map_or(up_to, |_| up_to.saturating_sub(1));
            u64::try_from(before.saturating_add(1)).unwrap_or(u64::MAX)
        };
        let all = |length: usize, is_in: bool| {
            u64::try_from(length.saturating_add(usize::from(!is_in))).unwrap_or(u64::MAX)
        };
        Some(Position {
            cluster_queue: place(pending.up_to(&there), same_queue.map(|(own, _)| own)),
            local_queue: place(pending.local_up_to(&there), same_local.map(|(_, own)| own)),
            of: all(pending.len(cluster_queue), same_queue.is_some()),
            of_local_queue: all(pending.local_len(cluster_queue, &key), same_local.is_some()),
        })
    }

    /// Returns the row of a Workload that the reader may see.
    pub(super) fn row(self, record: &WorkloadRecord) -> WorkloadView {
        let (state, cluster_queue) = (state_of(record), self.cluster_queue(record));
        let condition = conditions::find(&record.status, condition_of(state));
        let is_pending = state == WorkloadState::Pending;
        let message = condition.map_or("", |condition| condition.message.as_str());
        let obstacle = self.obstacle(record, &cluster_queue, state);
        let (reason, stuck) = Self::said_of(&obstacle, record, state);
        // The condition may still have the blocker from before an object kept the workload out.
        let said = match &obstacle {
            Obstacle::Object(verdict) if reason != reason_of(record, state) => Some(verdict.to_string()),
            _ => None,
        };
        let is_read = is_pending && said.is_none();
        let of_message = || is_read.then(|| self.first_blocker(message, record, &cluster_queue)).flatten();
        let node = NodeRef::ClusterQueue(Arc::clone(&cluster_queue));
        let blocker = self.obstacle_blocker(&obstacle, &node).or_else(of_message);
        WorkloadView {
            metadata: ViewMetadata {
                namespace: record.meta.key.namespace.to_string(),
                name: record.meta.key.name.to_string(),
                uid: record.meta.uid.to_string(),
                creation_timestamp: Some(record.meta.created),
                labels: (*record.labels).clone(),
            },
            job: record.owner.as_ref().map(|owner| JobView {
                api_version: owner.api_version.to_string(),
                kind: owner.kind.to_string(),
                name: owner.name.to_string(),
                uid: owner.uid.to_string(),
            }),
            local_queue: record.queue_name.as_deref().unwrap_or_default().to_owned(),
            priority: record.effective_priority(),
            priority_class: record
                .priority_class
                .as_ref()
                .map(|class| class.name.clone())
                .unwrap_or_default(),
            boost: record.annotations.priority_boost.into(),
            since: Some(Self::since(record, state)),
            position: is_pending.then(|| self.position(record, &cluster_queue)).flatten(),
            needs: self.needs(record, &cluster_queue),
            reason: reason.to_owned(),
            stuck,
            message: said.unwrap_or_else(|| self.visible_text(message)),
            first_blocker: blocker,
            cluster_queue: cluster_queue.to_string(),
            state,
        }
    }

    /// Returns a message without the name of a workload of another namespace. The message about the head of a StrictFIFO queue
    /// has one.
    fn visible_text(self, message: &str) -> String {
        let Some((before, rest)) = message.split_once("behind ") else { return message.to_owned() };
        let Some((key, after)) = rest.split_once(" in the StrictFIFO ") else { return message.to_owned() };
        let foreign = key.split_once('/').is_some_and(|(namespace, _)| !self.access.sees(namespace));
        let name = if foreign { "a workload of another namespace" } else { key };
        format!("{before}behind {name} in the StrictFIFO {after}")
    }

    /// Returns since when a Workload is in its state.
    pub(super) fn since(record: &WorkloadRecord, state: WorkloadState) -> Timestamp {
        let at = |kind| conditions::true_since(&record.status, kind);
        match state {
            WorkloadState::Pending => pending_since(record),
            other => at(condition_of(other)).unwrap_or(record.meta.created),
        }
    }

    /// Returns the requests of a Workload, or its granted amounts; the resource with the largest part of its limit first. Without limits, as
    /// in a queue that does not exist, devices decide: CPU and memory come with them.
    pub(super) fn needs(self, record: &WorkloadRecord, cluster_queue: &Arc<str>) -> Vec<Need> {
        self.needs_by_part(record, cluster_queue).into_iter().map(|(_, need)| need).collect()
    }

    /// Returns the largest part of a limit that a Workload requests or has, and the amount.
    pub(super) fn largest_part(self, record: &WorkloadRecord, cluster_queue: &Arc<str>) -> (f64, f64) {
        let needs = self.needs_by_part(record, cluster_queue);
        let amount = |need: &Need| need.amount.number.as_ref().and_then(serde_json::Number::as_f64);
        needs.first().map_or((0.0, 0.0), |(part, need)| (*part, amount(need).unwrap_or(f64::MAX)))
    }

    fn needs_by_part(self, record: &WorkloadRecord, cluster_queue: &Arc<str>) -> Vec<(f64, Need)> {
        let node = NodeRef::ClusterQueue(Arc::clone(cluster_queue));
        let mut needs: Vec<(f64, Need)> = Vec::new();
        match record.status.admission.as_ref().filter(|_| reservation::holds_quota(&record.status)) {
            Some(admission) => {
                for (fr, amount) in granted(admission) {
                    let part = self.part_of_limit(&node, &fr, amount);
                    let amount = amount_view(&self.quota.facts.units, &node, &fr, amount);
                    let (resource, flavor) = (fr.resource.to_string(), fr.flavor.to_string());
                    needs.push((part, Need { resource, amount, flavor }));
                }
            }
            None => {
                for (resource, amount) in total_requests(record) {
                    let fr = self.first_flavor(cluster_queue, &resource);
                    let part = fr.as_ref().map_or(0.0, |fr| self.part_of_limit(&node, fr, amount));
                    let view = match &fr {
                        Some(fr) => amount_view(&self.quota.facts.units, &node, fr, amount),
                        None => plain_amount_view(&resource, amount),
                    };
                    needs.push((
                        part,
                        Need { resource: resource.to_string(), amount: view, flavor: String::new() },
                    ));
                }
            }
        }
        let place = |need: &Need| (!need.resource.contains('/'), need.resource.clone(), need.flavor.clone());
        needs.sort_by(|(a, x), (b, y)| b.total_cmp(a).then_with(|| place(x).cmp(&place(y))));
        needs
    }

    /// Returns the requests of the pods of a pending Workload.
    pub(super) fn needs_of(record: &WorkloadRecord) -> BTreeMap<Arc<str>, i128> {
        total_requests(record)
    }

    fn first_flavor(self, cluster_queue: &str, resource: &str) -> Option<FlavorResource> {
        let facts = self.quota.facts.cluster_queues.get(cluster_queue)?;
        facts.order.iter().find(|fr| *fr.resource == *resource).cloned()
    }

    /// Returns an amount as a part of the maximum that a ClusterQueue can have of a flavor-resource.
    fn part_of_limit(self, node: &NodeRef, fr: &FlavorResource, amount: i128) -> f64 {
        let limit = self.quota.headroom(node, fr).0.potential;
        if limit > 0 { to_f64(amount) / to_f64(limit) } else { f64::MAX }
    }

    /// Returns the first blocker in a message, with the present amounts of all pod sets that need the same quota.
    fn first_blocker(
        self,
        message: &str,
        record: &WorkloadRecord,
        cluster_queue: &Arc<str>,
    ) -> Option<BlockerView> {
        match blocker_text::first_blocker(message)? {
            BlockerText::Undeclared { resource } => Some(BlockerView {
                kind: BlockerKindView::Undeclared,
                resource: resource.to_owned(),
                text: format!("resource {resource} unavailable in ClusterQueue"),
                ..BlockerView::default()
            }),
            BlockerText::Quota(blocker) => self.quota_blocker(&blocker, record, cluster_queue),
        }
    }

    fn quota_blocker(
        self,
        blocker: &QuotaBlockerText<'_>,
        record: &WorkloadRecord,
        cluster_queue: &Arc<str>,
    ) -> Option<BlockerView> {
        let queue = NodeRef::ClusterQueue(Arc::clone(cluster_queue));
        let fr = FlavorResource::new(blocker.flavor, blocker.resource);
        let request = resources::amount(&fr.resource, &Quantity::parse(blocker.request).ok()?).to_i128();
        let later =
            if blocker.never_fits { 0 } else { self.later_request(record, &queue, &fr, blocker.pod_set) };
        let request = request.saturating_add(later);
        let (headroom, _) = self.quota.headroom(&queue, &fr);
        let available = if blocker.never_fits { headroom.potential } else { headroom.available }.max(0);
        let amount = |amount: i128| Some(amount_view(&self.quota.facts.units, &queue, &fr, amount));
        let limit = self.quota.node_limit(&blocker.node, &fr);
        Some(BlockerView {
            kind: if blocker.never_fits { BlockerKindView::NeverFits } else { BlockerKindView::InUse },
            flavor: fr.flavor.to_string(),
            resource: fr.resource.to_string(),
            node: node_text(&blocker.node),
            requested: amount(request),
            available: amount(available),
            limit: limit.filter(|_| self.access.sees_sums()),
            missing: amount((request - available).max(0)),
            text: blocker.text.to_owned(),
            ..BlockerView::default()
        })
    }
}

/// Returns the requests of all pods of a Workload together.
fn total_requests(record: &WorkloadRecord) -> BTreeMap<Arc<str>, i128> {
    let mut total: BTreeMap<Arc<str>, i128> = BTreeMap::new();
    for set in record.effective_requests.pod_sets.iter().flat_map(|sets| sets.iter()) {
        for (resource, amount) in &set.requests {
            let sum = total.entry(Arc::clone(resource)).or_default();
            *sum = sum.saturating_add(amount.to_i128().saturating_mul(set.count.into()));
        }
    }
    total
}

/// Returns a node as blockers name it: `ClusterQueue/name` or `Cohort/name`.
pub(super) fn node_text(node: &NodeRef) -> String {
    match node {
        NodeRef::ClusterQueue(name) => format!("ClusterQueue/{name}"),
        NodeRef::Cohort(name) => format!("Cohort/{name}"),
    }
}
