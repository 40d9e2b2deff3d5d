//! The load generator: creates Workloads at the rates of a scenario and simulates the job side. An admitted Workload
//! runs for its run time and is then set Finished; an evicted one gets its admission cleared and is pending again.

use super::scenario::{NAMESPACE, Scenario, WorkloadClass, condition};
use crate::objects::{Kind, ObjectClient};
use anyhow::{Context as _, Result, bail};
use futures::AsyncBufReadExt as _;
use futures::io::Lines;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use kube::api::{ListParams, Patch, PatchParams};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};

/// Concurrent creates.
const MAX_CONCURRENT_CREATES: usize = 32;
/// Concurrent writes of the job side.
const MAX_CONCURRENT_WRITES: usize = 64;

/// A condition; unknown fields are kept for writing it back.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct WatchEvent {
    #[serde(rename = "type")]
    kind: String,
    object: ObservedWorkload,
}

/// The fields of a Workload that the job side reads.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedWorkload {
    metadata: Metadata,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

impl ObservedWorkload {
    /// Returns whether it has this name and is admitted.
    pub fn is_admitted(&self, name: &str) -> bool {
        self.metadata.name == name && self.condition_is_true("Admitted")
    }

    fn condition_is_true(&self, kind: &str) -> bool {
        self.status.conditions.iter().any(|c| c.kind == kind && c.status == "True")
    }
}

type Reader = Pin<Box<dyn futures::AsyncBufRead + Send>>;

/// A watch of all Workload changes since it was started; reopened when the server closes it.
pub struct WorkloadWatch {
    lines: Lines<Reader>,
    objects: ObjectClient,
    position: String,
}

impl WorkloadWatch {
    /// Starts at the current revision.
    pub async fn start(objects: &ObjectClient) -> Result<Self> {
        let list = objects.api(Kind::WORKLOAD, NAMESPACE).list(&ListParams::default()).await?;
        let position = list.metadata.resource_version.unwrap_or_default();
        Ok(Self { lines: open_watch(objects, &position).await?, objects: objects.clone(), position })
    }

    /// Waits for the next change.
    pub async fn next(&mut self) -> Result<ObservedWorkload> {
        loop {
            let Some(line) = self.lines.next().await.transpose()? else {
                self.lines = open_watch(&self.objects, &self.position).await?;
                continue;
            };
            let event: WatchEvent = serde_json::from_str(&line)?;
            if event.kind == "ERROR" {
                bail!("watch expired: changes were lost");
            }
            self.position.clone_from(&event.object.metadata.resource_version);
            if event.kind != "BOOKMARK" {
                return Ok(event.object);
            }
        }
    }
}

async fn open_watch(objects: &ObjectClient, position: &str) -> Result<Lines<Reader>> {
    let path = format!(
        "/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads?watch=true&allowWatchBookmarks=true&resourceVersion={position}"
    );
    let reader = objects.client().request_stream(crate::control_plane::http_get(&path)?).await?;
    let reader: Reader = Box::pin(reader);
    Ok(reader.lines())
}

/// Applies a Workload's status by forced server-side apply.
pub async fn apply_status(objects: &ObjectClient, name: &str, manager: &str, status: &Value) -> Result<()> {
    let body = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"namespace": NAMESPACE, "name": name}, "status": status,
    });
    let params = PatchParams::apply(manager).force();
    objects.api(Kind::WORKLOAD, NAMESPACE).patch_status(name, &params, &Patch::Apply(&body)).await?;
    Ok(())
}

/// Sets a Workload to Finished, as the job side does.
pub async fn finish(objects: &ObjectClient, name: &str) -> Result<()> {
    let status = json!({"conditions": [condition("Finished", "Succeeded", "Job finished successfully")]});
    apply_status(objects, name, "bench", &status).await
}

/// Progress of one workload.
#[derive(Default)]
struct WorkloadProgress {
    class: usize,
    created_at: Option<Instant>,
    /// From creation to first admission.
    time_to_admission: Option<Duration>,
    has_reservation: bool,
    finished: bool,
    evictions: usize,
    running: Option<AbortHandle>,
}

/// Result of a load.
#[derive(Clone, Debug, Default)]
pub struct LoadOutcome {
    /// Time from the first create until all workloads have finished.
    pub wall: Duration,
    /// Times to first admission, by class.
    pub waits: [Vec<Duration>; 3],
    /// CPU seconds of reserved quota.
    pub reserved: f64,
    /// Number of evictions.
    pub evictions: usize,
}

struct LoadState {
    items: BTreeMap<String, WorkloadProgress>,
    finished: usize,
    /// (CPU reserved now, time of the last change, CPU seconds until then).
    reserved_cpu: (f64, Instant, f64),
}

/// A run of a scenario.
pub struct Load {
    scenario: Scenario,
    objects: ObjectClient,
    state: Mutex<LoadState>,
    writes: Semaphore,
}

impl Load {
    /// Creates all workloads and waits until they have finished; prints progress every 10 s. Fails after `timeout`.
    pub async fn run(scenario: &Scenario, objects: &ObjectClient, timeout: Duration) -> Result<LoadOutcome> {
        let begun = Instant::now();
        let state =
            LoadState { items: initial_progress(scenario), finished: 0, reserved_cpu: (0.0, begun, 0.0) };
        let load = Arc::new(Self {
            scenario: scenario.clone(),
            objects: objects.clone(),
            state: Mutex::new(state),
            writes: Semaphore::new(MAX_CONCURRENT_WRITES),
        });
        let mut watch = WorkloadWatch::start(objects).await?;
        let mut creating = tokio::spawn(Arc::clone(&load).create_all());
        let mut created = false;
        let mut progress_timer = tokio::time::interval(Duration::from_secs(10));
        // Dropped at the end, which aborts remaining tasks.
        let mut runs = JoinSet::new();
        while load.state().finished < scenario.total_workloads() {
            tokio::select! {
                observed = watch.next() => load.observe(&observed?, &mut runs),
                outcome = &mut creating, if !created => {
                    outcome??;
                    created = true;
                }
                Some(ended) = runs.join_next(), if !runs.is_empty() => match ended {
                    Err(error) if error.is_cancelled() => {}
                    ended => ended??,
                },
                _ = progress_timer.tick() => {
                    println!("  {:4} s: {} of {} have finished", begun.elapsed().as_secs(), load.state().finished, scenario.total_workloads());
                    if begun.elapsed() > timeout {
                        bail!("load not completed after {} s", timeout.as_secs());
                    }
                }
            }
        }
        let state = load.state();
        let mut outcome =
            LoadOutcome { wall: begun.elapsed(), reserved: state.reserved_cpu.2, ..LoadOutcome::default() };
        for item in state.items.values() {
            outcome.waits[item.class].extend(item.time_to_admission);
            outcome.evictions += item.evictions;
        }
        Ok(outcome)
    }

    fn state(&self) -> MutexGuard<'_, LoadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn create_all(self: Arc<Self>) -> Result<()> {
        let slots = Semaphore::new(MAX_CONCURRENT_CREATES);
        let lanes = self
            .scenario
            .queue_names()
            .into_iter()
            .flat_map(|queue| (0..self.scenario.classes.len()).map(move |class| (queue.clone(), class)));
        let lanes: Vec<_> = lanes.collect();
        let all = lanes.len();
        stream::iter(lanes)
            .map(async |(queue, class)| self.create_class(&slots, &queue, class).await)
            .buffer_unordered(all)
            .try_collect()
            .await
    }

    /// Creates the workloads of one class in one queue, one per interval.
    async fn create_class(&self, slots: &Semaphore, queue: &str, class_index: usize) -> Result<()> {
        let class: &WorkloadClass = &self.scenario.classes[class_index];
        let mut tick = tokio::time::interval(class.interval);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for number in 0..class.count {
            tick.tick().await;
            let name = workload_name(queue, class, number);
            let _slot = slots.acquire().await?;
            if let Some(item) = self.state().items.get_mut(&name) {
                item.created_at = Some(Instant::now());
            }
            self.objects
                .create(Kind::WORKLOAD, &self.scenario.workload(&name, queue, class, number))
                .await
                .with_context(|| name)?;
        }
        Ok(())
    }

    /// Updates the progress of a workload after a change and starts or stops its simulated job.
    fn observe(self: &Arc<Self>, observed: &ObservedWorkload, runs: &mut JoinSet<Result<()>>) {
        let now = Instant::now();
        let name = &observed.metadata.name;
        let mut state = self.state();
        let LoadState { items, finished, reserved_cpu } = &mut *state;
        let Some(item) = items.get_mut(name) else { return };
        let class = &self.scenario.classes[item.class];
        let (reserved, evicted) =
            (observed.condition_is_true("QuotaReserved"), observed.condition_is_true("Evicted"));
        let is_finished = observed.condition_is_true("Finished");
        if item.has_reservation != (reserved && !is_finished) {
            item.has_reservation = !item.has_reservation;
            reserved_cpu.2 += reserved_cpu.0 * (now - reserved_cpu.1).as_secs_f64();
            reserved_cpu.1 = now;
            reserved_cpu.0 += if item.has_reservation { f64::from(class.cpu) } else { -f64::from(class.cpu) };
        }
        if is_finished && !item.finished {
            item.finished = true;
            *finished += 1;
        }
        let is_running = reserved && observed.condition_is_true("Admitted") && !evicted && !is_finished;
        if !is_running {
            // A finished workload's task only waits for its response; aborting it would cost a connection.
            if let Some(running) = item.running.take().filter(|_| !is_finished) {
                running.abort();
            }
            if evicted && reserved && !is_finished {
                item.evictions += 1;
                runs.spawn(Arc::clone(self).release_quota(name.clone(), observed));
            }
            return;
        }
        item.time_to_admission
            .get_or_insert_with(|| item.created_at.map_or(Duration::ZERO, |created_at| now - created_at));
        if item.running.is_none() {
            item.running = Some(runs.spawn(Arc::clone(self).run_workload(name.clone(), class.run_time)));
        }
    }

    async fn run_workload(self: Arc<Self>, name: String, time: Duration) -> Result<()> {
        tokio::time::sleep(time).await;
        let _slot = self.writes.acquire().await?;
        finish(&self.objects, &name).await.with_context(|| format!("{name} cannot finish"))
    }

    /// Clears the admission, as the job side does when the pods have ended. A conflict is ignored: the controller has
    /// already done it, or a newer change follows.
    fn release_quota(
        self: Arc<Self>,
        name: String,
        observed: &ObservedWorkload,
    ) -> impl Future<Output = Result<()>> + Send + use<> {
        let mut conditions = observed.status.conditions.clone();
        for condition in &mut conditions {
            if condition.kind == "QuotaReserved" || condition.kind == "Admitted" {
                "False".clone_into(&mut condition.status);
                condition.rest.insert("reason".to_owned(), "Pending".into());
            }
        }
        let patch = json!({
            "metadata": {"resourceVersion": observed.metadata.resource_version},
            "status": {"admission": null, "conditions": conditions},
        });
        async move {
            let _slot = self.writes.acquire().await?;
            match self.objects.merge_status(Kind::WORKLOAD, NAMESPACE, &name, &patch).await {
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                outcome => Ok(outcome.map(drop)?),
            }
        }
    }
}

fn workload_name(queue: &str, class: &WorkloadClass, number: usize) -> String {
    format!("{queue}-{}-{number}", class.name)
}

fn initial_progress(scenario: &Scenario) -> BTreeMap<String, WorkloadProgress> {
    let mut items = BTreeMap::new();
    for queue in scenario.queue_names() {
        for (class_index, class) in scenario.classes.iter().enumerate() {
            let entry = |number| {
                (
                    workload_name(&queue, class, number),
                    WorkloadProgress { class: class_index, ..WorkloadProgress::default() },
                )
            };
            items.extend((0..class.count).map(entry));
        }
    }
    items
}
