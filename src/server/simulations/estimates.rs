//! When workloads may be admitted.
//!
//! Invariant: an answer has only what its reader may see, whatever was simulated.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use super::objects::FinishedWorkloads;
use super::{Advice, NoSimulation, SimulationSource, Simulator};
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::lifecycle::pods_ready::PodsReadyLimits;
use crate::server::apis::estimates::AskEstimate;
use crate::server::bounded_work::WorkTime;
use crate::simulate::estimate::{EstimateRequest, Refusal, estimate};
use crate::simulate::{KeepGoing, SimulationOptions};
use crate::visibility::access::Access;
use crate::visibility::estimate::{refused, refused_at_once, unanswered, view};
use crate::visibility::views::{Estimate, Verdict};

/// What to do where there is no answer.
const ADVICE: Advice =
    Advice { text: "in a terminal, sluice why --when computes it", command: "sluice why --when" };

/// Computes estimates.
pub struct Estimates {
    pub(super) simulator: Simulator<Estimate>,
}

impl Estimates {
    /// Returns estimates from a cluster.
    pub fn new(source: SimulationSource) -> Self {
        Self { simulator: Simulator::new(source) }
    }

    /// Sets the timeouts of waiting for pods for this and for all answers that share its work, if pods are waited for.
    pub fn set_pods_ready_limits(&self, limits: PodsReadyLimits) {
        self.simulator.cluster.set_pods_ready_limits(limits);
    }
}

impl AskEstimate for Estimates {
    fn estimate(&self, verdict: Verdict, access: Access, user: String) -> BoxFuture<'_, Estimate> {
        Box::pin(async move {
            if let Some(refusal) = refused_at_once(&verdict) {
                return refused(&refusal);
            }
            let metadata = &verdict.workload.metadata;
            let key = format!("{}/{} {}", metadata.namespace, metadata.name, metadata.uid);
            let asked = Asked {
                workload: ObjectKey::new(&metadata.namespace, &metadata.name),
                cluster_queue: verdict.workload.cluster_queue.clone(),
                options: self.simulator.options(),
                access: access.clone(),
            };
            let simulate = move |objects: Vec<(Kind, Value)>, time| asked.estimate(&objects, time);
            let reader = (&access, user.as_str());
            let answer = self.simulator.answer(reader, &key, FinishedWorkloads::Reduced, simulate).await;
            answer.unwrap_or_else(|none| unanswered(&none.with_advice(ADVICE, &access)))
        })
    }
}

/// A question with its reader.
struct Asked {
    workload: ObjectKey,
    cluster_queue: String,
    options: SimulationOptions,
    access: Access,
}

impl Asked {
    /// Estimates from these objects. Runs on the thread of the work.
    fn estimate(&self, objects: &[(Kind, Value)], time: WorkTime) -> Result<Estimate, NoSimulation> {
        let request = EstimateRequest {
            workload: &self.workload,
            objects,
            recorded: &[],
            sees: &|namespace| self.access.sees(namespace),
        };
        let keep_going: KeepGoing = Arc::new(move || time.is_left());
        let found = estimate(&request, &self.options, Some(&keep_going));
        if found.as_ref().is_err_and(|none| none.refusal == Refusal::TooLong) {
            return Err(NoSimulation::TooLong);
        }
        Ok(view(&found, &self.cluster_queue))
    }
}
