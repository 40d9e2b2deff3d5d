//! A Workload without a reservation: where it belongs, and what is said of why it waits.
//!
//! Precedence: what keeps it from being judged at all comes before the scheduler's verdict; neither is invented where
//! nothing is known.

use super::facts::{Facts, Notice, Owner, Place, QueueFact};
use super::workload::Draft;
use super::{conditions, reservation};
use crate::api::reason::{ConditionType, PendingReason};
use crate::api::v1beta2::WorkloadStatus;
use std::sync::Arc;

/// Reasons that hold only as long as what they name stands in the way.
const OBSTACLES: [PendingReason; 4] = [
    PendingReason::Suspended,
    PendingReason::Misconfigured,
    PendingReason::Deactivated,
    PendingReason::AdmissionGated,
];
/// What is said when an obstacle is gone and the scheduler has not judged yet.
const EVALUATION: &str = "The workload is waiting to be evaluated";

/// Whether nothing is new but the words for why it waits.
pub fn only_explains(old: &WorkloadStatus, new: &WorkloadStatus) -> bool {
    let words = [ConditionType::QuotaReserved, ConditionType::Admitted];
    let rest = |status: &WorkloadStatus| {
        let mut status = status.clone();
        status.conditions.retain(|condition| words.iter().all(|kind| kind.as_str() != condition.type_));
        status.resource_requests = Arc::default();
        status
    };
    words.iter().all(|kind| !conditions::is_true(old, *kind)) && rest(old) == rest(new)
}

impl Draft<'_> {
    /// Says why a workload without a reservation waits, and where.
    pub(super) fn pending(&mut self, facts: &Facts<'_>) -> Place {
        let place = self.place(facts);
        if place == Place::Out && self.subject.active && self.is_on_hold() {
            return place;
        }
        let obstacle = self.obstacle(facts);
        let known = conditions::find(&self.status, ConditionType::QuotaReserved).is_some();
        let said =
            obstacle.or_else(|| facts.verdict.clone().filter(|_| place == Place::Queued)).or_else(|| {
                (known && self.says_obstacle())
                    .then(|| (PendingReason::PendingEvaluation, EVALUATION.to_owned()))
            });
        let Some((reason, message)) = said else {
            return place;
        };
        let before = conditions::find(&self.status, ConditionType::QuotaReserved)
            .map(|c| (c.reason.clone(), c.message.clone()));
        let generation = self.subject.generation;
        if place == Place::Queued {
            reservation::wait(&mut self.status, reason, &message, generation, self.now);
        } else {
            reservation::unreserve(&mut self.status, reason, &message, generation, self.now);
        }
        if before != Some((reason.as_str().to_owned(), message.clone())) {
            self.status.resource_requests = Arc::clone(&facts.requests);
            self.notices.push(Notice::Pending(reason, message));
        }
        place
    }

    /// Where a workload without a reservation belongs.
    fn place(&self, facts: &Facts<'_>) -> Place {
        let closed = matches!(facts.local_queue, QueueFact::Missing | QueueFact::Stopped(_))
            || facts.cluster_queue == QueueFact::Missing;
        // A Workload whose job is gone is about to be collected.
        let orphan = facts.owner == Owner::Gone;
        if !self.subject.active || self.subject.gated || closed || orphan || self.is_on_hold() {
            return Place::Out;
        }
        let backoff = self.status.requeue_state.as_ref().and_then(|s| s.requeue_at.as_ref());
        let held = conditions::is_false(&self.status, ConditionType::Requeued)
            || backoff.is_some_and(|at| at.0 > self.now)
            || facts.misconfigured.is_some();
        if held { Place::Waiting } else { Place::Queued }
    }

    fn is_on_hold(&self) -> bool {
        conditions::is_false(&self.status, ConditionType::QuotaReserved)
            && conditions::reason(&self.status, ConditionType::QuotaReserved)
                == PendingReason::OnHold.as_str()
    }

    /// Whether the reason that stands is an obstacle, which is gone by now.
    fn says_obstacle(&self) -> bool {
        let reason = conditions::reason(&self.status, ConditionType::QuotaReserved);
        OBSTACLES.iter().any(|obstacle| obstacle.as_str() == reason)
    }

    /// What keeps the workload from being judged by the scheduler at all.
    fn obstacle(&self, facts: &Facts<'_>) -> Option<(PendingReason, String)> {
        if !self.subject.active {
            return Some((PendingReason::Deactivated, "The workload is deactivated".to_owned()));
        }
        let (local, cluster) = facts.queues;
        let suspended = |m: String| Some((PendingReason::Suspended, m));
        let misconfigured = |m: String| Some((PendingReason::Misconfigured, m));
        match (&facts.local_queue, &facts.cluster_queue) {
            (QueueFact::Missing, _) => return misconfigured(format!("LocalQueue {local} doesn't exist")),
            (QueueFact::Stopped(_) | QueueFact::Inactive(_), _) => {
                return suspended(format!("LocalQueue {local} is inactive"));
            }
            (QueueFact::Open, QueueFact::Missing) => {
                return misconfigured(format!("ClusterQueue {cluster} doesn't exist"));
            }
            (QueueFact::Open, QueueFact::Stopped(_)) => {
                return suspended(format!("ClusterQueue {cluster} is stopped"));
            }
            (QueueFact::Open, QueueFact::Inactive(why)) => {
                return suspended(format!("ClusterQueue {cluster} is inactive: {why}"));
            }
            (QueueFact::Open, QueueFact::Open) => {}
        }
        if let Some(message) = &facts.misconfigured {
            return misconfigured(message.clone());
        }
        if self.subject.gated {
            return Some((
                PendingReason::AdmissionGated,
                "The workload is held back by admission gates".to_owned(),
            ));
        }
        None
    }
}
