//! Compares two pending Workloads, in the order in which the engine compares them.
//!
//! Invariant: within one ClusterQueue the result agrees with the published order.

use super::page::ModelError;
use super::queue_views::strategy_name;
use super::views::{Comparison, Factor, Scope, WorkloadState};
use super::workload_row::{Rows, state_of};
use crate::api::ObjectKey;
use crate::api::v1beta2::QueueingStrategy;
use crate::cache::records::WorkloadRecord;
use crate::queue::Workload;
use crate::quota::{FlavorResource, NodeRef};
use std::cmp::Ordering;
use std::sync::Arc;

/// One of the two Workloads.
struct Compared<'a> {
    record: &'a WorkloadRecord,
    order: Workload,
}

impl Compared<'_> {
    fn local_queue(&self) -> ObjectKey {
        ObjectKey {
            namespace: Arc::clone(&self.order.key.namespace),
            name: Arc::clone(&self.order.local_queue),
        }
    }
}

/// Returns the name of a Workload's priority class.
fn class_of(compared: &Compared<'_>) -> String {
    let class = compared.record.priority_class.as_ref();
    class.map_or_else(|| "-".to_owned(), |class| class.name.clone())
}

/// Compares two pending Workloads.
///
/// # Errors
/// If one of them is not pending in a queue, or the reader may not see the other one.
pub(super) fn comparison(
    rows: Rows<'_>,
    record: &WorkloadRecord,
    other: &ObjectKey,
) -> Result<Comparison, ModelError> {
    let text = format!("{}/{}", other.namespace, other.name);
    let not_found = || ModelError::Invalid(format!("before: workload {text:?} not found"));
    let found = rows.snapshot.workloads.get(other).filter(|_| rows.access.sees(&other.namespace));
    let found = found.ok_or_else(not_found)?;
    if *other == record.meta.key {
        return Err(ModelError::Invalid(format!("before: {text:?} is the workload itself")));
    }
    let compared = |record| {
        let queue = rows.cluster_queue(record);
        let order = rows.order_of(record, &queue).filter(|_| state_of(record) == WorkloadState::Pending);
        let name = &record.meta.key;
        let not_pending = || {
            ModelError::Invalid(format!(
                "before: workload \"{}/{}\" is not pending in a queue",
                name.namespace, name.name
            ))
        };
        order.map(|order| Compared { record, order }).ok_or_else(not_pending)
    };
    let (own, found) = (compared(record)?, compared(found)?);
    Ok(Pair { rows, own, other: found }.compare())
}

/// Two pending Workloads.
struct Pair<'a> {
    rows: Rows<'a>,
    own: Compared<'a>,
    other: Compared<'a>,
}

/// The result of one factor; `Less` means that the other Workload is before.
struct Step {
    factors: Vec<Factor>,
    order: Ordering,
    /// Reason why the first of the two is before.
    because: &'static str,
}

impl Pair<'_> {
    fn compare(&self) -> Comparison {
        let same_queue = self.own.order.cluster_queue == self.other.order.cluster_queue;
        let mut steps = vec![self.queue()];
        if same_queue {
            steps.push(self.past_usage());
        } else {
            steps.extend([self.borrowing(), self.share()]);
        }
        steps.extend([self.priority(), self.since(), self.uid()]);
        let decided = steps.iter().position(|step| step.order != Ordering::Equal);
        let (other_is_before, because) = decided
            .and_then(|index| steps.get(index))
            .map_or((false, "they are the same"), |step| (step.order == Ordering::Less, step.because));
        if let Some(factor) =
            decided.and_then(|index| steps.get_mut(index)).and_then(|step| step.factors.first_mut())
        {
            factor.decides = true;
        }
        let name = |compared: &Compared<'_>| compared.order.key.to_string();
        Comparison {
            workload: name(&self.own),
            other: name(&self.other),
            other_is_before,
            because: because.to_owned(),
            scope: if same_queue { Scope::Queue } else { Scope::Cycle },
            factors: steps.into_iter().flat_map(|step| step.factors).collect(),
            note: self.note(same_queue),
        }
    }

    fn note(&self, same_queue: bool) -> String {
        if !same_queue {
            return "They are in different ClusterQueues: the order holds within one scheduling cycle only"
                .to_owned();
        }
        let facts = self.rows.quota.facts.cluster_queues.get(&self.own.order.cluster_queue);
        match facts.map(|facts| facts.strategy) {
            Some(strategy @ QueueingStrategy::BestEffortFIFO) => {
                format!(
                    "In {} a later workload may still be admitted first if it fits",
                    strategy_name(strategy)
                )
            }
            Some(strategy @ QueueingStrategy::StrictFIFO) => {
                format!(
                    "In {} a head that does not fit blocks the workloads behind it",
                    strategy_name(strategy)
                )
            }
            None => String::new(),
        }
    }

    fn queue(&self) -> Step {
        let factor = Factor {
            name: "ClusterQueue".to_owned(),
            workload: self.own.order.cluster_queue.to_string(),
            other: self.other.order.cluster_queue.to_string(),
            ..Factor::default()
        };
        Step { factors: vec![factor], order: Ordering::Equal, because: "" }
    }

    fn past_usage(&self) -> Step {
        let queue = &self.own.order.cluster_queue;
        let facts = self.rows.quota.facts.cluster_queues.get(queue);
        let counts = facts.is_some_and(|facts| facts.orders_by_past_usage);
        let usage = |compared: &Compared<'_>| {
            let found = self.rows.snapshot.queues.local_queues.get(&compared.local_queue());
            found.and_then(|queue| queue.past_usage).filter(|_| counts).unwrap_or(0.0)
        };
        let (own, other) = (usage(&self.own), usage(&self.other));
        let text = |usage: f64| if counts { format!("{usage:.2}") } else { "off".to_owned() };
        let factor = Factor {
            name: "LocalQueue usage".to_owned(),
            workload: text(own),
            other: text(other),
            note: "admission fair sharing".to_owned(),
            ..Factor::default()
        };
        Step { factors: vec![factor], order: other.total_cmp(&own), because: "its LocalQueue has used less" }
    }

    /// Compares by whether the Workload would borrow: the scheduler takes heads that would not borrow first.
    fn borrowing(&self) -> Step {
        let borrows = |compared: &Compared<'_>| {
            let queue = &compared.order.cluster_queue;
            let node = NodeRef::ClusterQueue(Arc::clone(queue));
            Rows::needs_of(compared.record).into_iter().any(|(resource, amount)| {
                let facts = self.rows.quota.facts.cluster_queues.get(queue);
                let mut flavors =
                    facts.into_iter().flat_map(|facts| &facts.order).filter(|fr| fr.resource == resource);
                let within = |fr: &FlavorResource| {
                    let usage = self.rows.quota.usage(&node, fr);
                    usage.usage.to_i128() + amount <= usage.subtree_quota.to_i128()
                };
                !flavors.any(within)
            })
        };
        let (own, other) = (borrows(&self.own), borrows(&self.other));
        let text = |borrows: bool| if borrows { "yes" } else { "no" }.to_owned();
        let factor = Factor {
            name: "Borrows".to_owned(),
            workload: text(own),
            other: text(other),
            ..Factor::default()
        };
        Step { factors: vec![factor], order: other.cmp(&own), because: "it borrows nothing" }
    }

    fn share(&self) -> Step {
        let is_on = self.rows.quota.facts.fair_sharing.is_some();
        let share = |compared: &Compared<'_>| {
            let queue = self.rows.snapshot.queues.cluster_queues.get(&compared.order.cluster_queue);
            queue.and_then(|queue| queue.weighted_share).filter(|_| is_on).unwrap_or(0)
        };
        let (own, other) = (share(&self.own), share(&self.other));
        let text = |share: i64| if is_on { share.to_string() } else { "off".to_owned() };
        let factor = Factor {
            name: "Share".to_owned(),
            workload: text(own),
            other: text(other),
            note: "fair sharing".to_owned(),
            ..Factor::default()
        };
        Step {
            factors: vec![factor],
            order: other.cmp(&own),
            because: "its ClusterQueue has a smaller share",
        }
    }

    fn priority(&self) -> Step {
        let (own, other) = (self.own.order.priority, self.other.order.priority);
        let part = |name: &str, value: fn(&Compared<'_>) -> String| Factor {
            name: name.to_owned(),
            workload: value(&self.own),
            other: value(&self.other),
            part: true,
            ..Factor::default()
        };
        let factor = Factor {
            name: "Priority".to_owned(),
            workload: own.to_string(),
            other: other.to_string(),
            ..Factor::default()
        };
        let boost = |compared: &Compared<'_>| compared.record.annotations.priority_boost.to_string();
        let factors = vec![factor, part("class", class_of), part("boost", boost)];
        Step { factors, order: own.cmp(&other), because: "its priority is higher" }
    }

    fn since(&self) -> Step {
        let (own, other) = (self.own.order.queued_since, self.other.order.queued_since);
        let factor = Factor {
            name: "Queued since".to_owned(),
            workload: own.to_string(),
            other: other.to_string(),
            ..Factor::default()
        };
        Step { factors: vec![factor], order: other.cmp(&own), because: "it was queued earlier" }
    }

    fn uid(&self) -> Step {
        let (own, other) = (&self.own.order.uid, &self.other.order.uid);
        let factor = Factor {
            name: "UID".to_owned(),
            workload: own.to_string(),
            other: other.to_string(),
            ..Factor::default()
        };
        Step { factors: vec![factor], order: other.cmp(own), because: "its UID is lower" }
    }
}
