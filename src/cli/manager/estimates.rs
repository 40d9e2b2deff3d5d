//! When workloads may be admitted, for pages and for users who may not list the cluster.
//!
//! Invariants: the objects are listed with the rights that the watches of this process need, no others, and an answer has only what its
//! reader may see; at most `AT_ONCE` estimates are computed at once, each for at most `TIME_LIMIT` and of at most `MAX_WORKLOADS` stored
//! Workloads, on a thread of its own; an answer is kept for exactly its access.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::config_mapping;
use super::settings::ManagerSettings;
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::cli::tools::cluster_objects::{ClusterObjects, ClusterReader};
use crate::kube::client::{Caller, Clients};
use crate::kube::server_clock::ServerClock;
use crate::server::apis::estimates::AskEstimate;
use crate::server::shared_answers::SharedAnswers;
use crate::simulate::SimulationOptions;
use crate::simulate::estimate::{Question, Refusal, estimate};
use crate::visibility::access::Access;
use crate::visibility::estimate::{refused, refused_at_once, unanswered, view};
use crate::visibility::views::{Estimate, Verdict};

/// Most estimates that are computed at once.
const AT_ONCE: usize = 2;
/// Longest time that a simulation takes.
const TIME_LIMIT: Duration = Duration::from_secs(3);
/// Most Workloads of the cluster: the memory of a list is proportional to them.
const MAX_WORKLOADS: u64 = 5_000;
/// How long an answer is used.
const ANSWER_TTL: Duration = Duration::from_secs(30);

/// Computes estimates.
pub(super) struct Estimates {
    caller: Caller,
    clock: Arc<ServerClock>,
    options: SimulationOptions,
    answers: SharedAnswers<Estimate>,
    places: Arc<Semaphore>,
}

impl Estimates {
    pub(super) fn new(settings: &ManagerSettings, clients: &Clients) -> Self {
        let (configuration, namespace) = (&settings.configuration, &settings.namespace);
        Self {
            caller: clients.call.clone(),
            clock: Arc::clone(&clients.clock),
            options: SimulationOptions {
                core: config_mapping::core_settings(configuration, namespace),
                admission: settings.admission(),
                start: Timestamp::UNIX_EPOCH,
                run_for: None,
            },
            answers: SharedAnswers::for_time(ANSWER_TTL),
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Lists the objects and simulates. What is not kept for the next question is an error.
    async fn compute(&self, verdict: &Verdict, access: &Access) -> Result<Estimate, Estimate> {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return Err(unanswered("others are being computed: ask again"));
        };
        let reader = ClusterReader::of(self.caller.clone());
        if reader.count(Kind::Workload).await.is_some_and(|count| count > MAX_WORKLOADS) {
            return Ok(unanswered(
                "the cluster has too many workloads for it: in a terminal, sluice why --when computes it",
            ));
        }
        let kinds = self.options.core.kinds();
        let listed = match reader.objects(&kinds).await {
            Ok(ClusterObjects { objects, skipped }) => {
                let is_job = |resource: &str| {
                    kinds
                        .iter()
                        .any(|kind| matches!(kind, Kind::Job(_)) && kind.resource().plural == resource)
                };
                skipped.iter().all(|skipped| is_job(&skipped.resource)).then_some(objects)
            }
            Err(error) => {
                tracing::warn!(%error, "objects for an estimate cannot be listed");
                None
            }
        };
        let objects = listed.ok_or_else(|| unanswered("the objects of the cluster cannot be listed"))?;
        let metadata = &verdict.workload.metadata;
        let simulated = Simulated {
            workload: ObjectKey::new(&metadata.namespace, &metadata.name),
            cluster_queue: verdict.workload.cluster_queue.clone(),
            objects,
            options: SimulationOptions { start: self.clock.now(), ..self.options.clone() },
            access: access.clone(),
            _place: place,
        };
        let (reply, answer) = oneshot::channel();
        // A client that no longer waits needs no answer.
        let work = move || drop(reply.send(simulated.estimate()));
        let failed = || unanswered("it failed");
        std::thread::Builder::new().name("estimate".to_owned()).spawn(work).map_err(|_| failed())?;
        answer.await.map_err(|_| failed())
    }
}

impl AskEstimate for Estimates {
    fn estimate(&self, verdict: Verdict, access: Access) -> BoxFuture<'_, Estimate> {
        Box::pin(async move {
            if let Some(refusal) = refused_at_once(&verdict) {
                return refused(&refusal);
            }
            let metadata = &verdict.workload.metadata;
            // Serializing an access does not fail; if it did, its debug form would be as distinct.
            let seen = serde_json::to_string(&access).unwrap_or_else(|_| format!("{access:?}"));
            let key = format!("{seen} {}/{} {}", metadata.namespace, metadata.name, metadata.uid);
            let answer = self.answers.get(key, self.compute(&verdict, &access)).await;
            answer.unwrap_or_else(|unkept| unkept)
        })
    }
}

/// What a simulation reads. The place is free again when it ends, whether or not the client still waits.
struct Simulated {
    workload: ObjectKey,
    cluster_queue: String,
    objects: Vec<(Kind, Value)>,
    options: SimulationOptions,
    access: Access,
    _place: OwnedSemaphorePermit,
}

impl Simulated {
    fn estimate(&self) -> Estimate {
        let begun = Instant::now();
        let question = Question {
            workload: &self.workload,
            objects: &self.objects,
            recorded: &[],
            sees: &|namespace| self.access.sees(namespace),
        };
        let found = estimate(&question, &self.options, &|| begun.elapsed() < TIME_LIMIT);
        if found.as_ref().is_err_and(|none| none.refusal == Refusal::TooLong) {
            return unanswered(
                "the simulation takes too long for it: in a terminal, sluice why --when takes more time",
            );
        }
        view(&found, &self.cluster_queue)
    }
}
