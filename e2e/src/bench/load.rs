//! The load generator: creates Workloads at their pace and plays the job side. On Admitted a workload runs for its time,
//! then it is Finished; on Evicted its admission is cleared, and it waits again.

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

/// Creates at once, and writes of the job side at once.
const MAX_CONCURRENT_CREATES: usize = 32;
const MAX_CONCURRENT_WRITES: usize = 64;

/// A condition as it stands.
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

/// The little of a Workload that the job side looks at.
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
    /// Whether it is the Workload of this name, and admitted.
    pub fn is_admitted(&self, name: &str) -> bool {
        self.metadata.name == name && self.condition_is_true("Admitted")
    }

    fn condition_is_true(&self, kind: &str) -> bool {
        self.status.conditions.iter().any(|c| c.kind == kind && c.status == "True")
    }
}

type Reader = Pin<Box<dyn futures::AsyncBufRead + Send>>;

/// All changes of Workloads from its start on.
pub struct WorkloadWatch {
    lines: Lines<Reader>,
    objects: ObjectClient,
    position: String,
}

impl WorkloadWatch {
    /// From now on.
    pub async fn start(objects: &ObjectClient) -> Result<Self> {
        let list = objects.api(Kind::WORKLOAD, NAMESPACE).list(&ListParams::default()).await?;
        let position = list.metadata.resource_version.unwrap_or_default();
        Ok(Self { lines: open_watch(objects, &position).await?, objects: objects.clone(), position })
    }

    /// The next change.
    pub async fn next(&mut self) -> Result<ObservedWorkload> {
        loop {
            let Some(line) = self.lines.next().await.transpose()? else {
                self.lines = open_watch(&self.objects, &self.position).await?;
                continue;
            };
            let line: WatchEvent = serde_json::from_str(&line)?;
            if line.kind == "ERROR" {
                bail!("the watch lost changes");
            }
            self.position.clone_from(&line.object.metadata.resource_version);
            if line.kind != "BOOKMARK" {
                return Ok(line.object);
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

/// A forced server-side apply of a Workload's status.
pub async fn apply_status(objects: &ObjectClient, name: &str, manager: &str, status: &Value) -> Result<()> {
    let body = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"namespace": NAMESPACE, "name": name}, "status": status,
    });
    let params = PatchParams::apply(manager).force();
    objects.api(Kind::WORKLOAD, NAMESPACE).patch_status(name, &params, &Patch::Apply(&body)).await?;
    Ok(())
}

/// The job side says that the job has ended.
pub async fn finish(objects: &ObjectClient, name: &str) -> Result<()> {
    let status = json!({"conditions": [condition("Finished", "Succeeded", "Job finished successfully")]});
    apply_status(objects, name, "bench", &status).await
}

/// One workload on its way.
#[derive(Default)]
struct WorkloadProgress {
    class: usize,
    created_at: Option<Instant>,
    /// From its creation to its first admission.
    time_to_admission: Option<Duration>,
    has_reservation: bool,
    finished: bool,
    evictions: usize,
    running: Option<AbortHandle>,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct LoadOutcome {
    /// From the first create to the last end.
    pub wall: Duration,
    /// Times to the first admission by class.
    pub waits: [Vec<Duration>; 3],
    /// CPU seconds of reservations.
    pub reserved: f64,
    /// Evictions.
    pub evictions: usize,
}

struct LoadState {
    items: BTreeMap<String, WorkloadProgress>,
    finished: usize,
    /// CPU held now, since when, and CPU seconds until then.
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
    /// Creates everything and waits until all has finished. Says now and then how far it is.
    pub async fn run(scenario: &Scenario, objects: &ObjectClient, patience: Duration) -> Result<LoadOutcome> {
        let begun = Instant::now();
        let books =
            LoadState { items: initial_progress(scenario), finished: 0, reserved_cpu: (0.0, begun, 0.0) };
        let load = Arc::new(Self {
            scenario: scenario.clone(),
            objects: objects.clone(),
            state: Mutex::new(books),
            writes: Semaphore::new(MAX_CONCURRENT_WRITES),
        });
        let mut watch = WorkloadWatch::start(objects).await?;
        let mut creating = tokio::spawn(Arc::clone(&load).create_all());
        let mut created = false;
        let mut said = tokio::time::interval(Duration::from_secs(10));
        // Dropped at the end, and with it what still runs.
        let mut runs = JoinSet::new();
        while load.state().finished < scenario.total_workloads() {
            tokio::select! {
                seen = watch.next() => load.observe(&seen?, &mut runs),
                outcome = &mut creating, if !created => {
                    outcome??;
                    created = true;
                }
                Some(ended) = runs.join_next(), if !runs.is_empty() => match ended {
                    Err(error) if error.is_cancelled() => {}
                    ended => ended??,
                },
                _ = said.tick() => {
                    println!("  {:4} s: {} of {} have finished", begun.elapsed().as_secs(), load.state().finished, scenario.total_workloads());
                    if begun.elapsed() > patience {
                        bail!("not at its end after {} s", patience.as_secs());
                    }
                }
            }
        }
        let books = load.state();
        let mut outcome =
            LoadOutcome { wall: begun.elapsed(), reserved: books.reserved_cpu.2, ..LoadOutcome::default() };
        for item in books.items.values() {
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

    /// One class of one queue, one after the other.
    async fn create_class(&self, slots: &Semaphore, queue: &str, at: usize) -> Result<()> {
        let class: &WorkloadClass = &self.scenario.classes[at];
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

    /// What a change of a Workload means for its job.
    fn observe(self: &Arc<Self>, seen: &ObservedWorkload, runs: &mut JoinSet<Result<()>>) {
        let now = Instant::now();
        let name = &seen.metadata.name;
        let mut books = self.state();
        let LoadState { items, finished, reserved_cpu: held } = &mut *books;
        let Some(item) = items.get_mut(name) else { return };
        let class = &self.scenario.classes[item.class];
        let (reserved, evicted) =
            (seen.condition_is_true("QuotaReserved"), seen.condition_is_true("Evicted"));
        let over = seen.condition_is_true("Finished");
        if item.has_reservation != (reserved && !over) {
            item.has_reservation = !item.has_reservation;
            held.2 += held.0 * (now - held.1).as_secs_f64();
            held.1 = now;
            held.0 += if item.has_reservation { f64::from(class.cpu) } else { -f64::from(class.cpu) };
        }
        if over && !item.finished {
            item.finished = true;
            *finished += 1;
        }
        let runs_now = reserved && seen.condition_is_true("Admitted") && !evicted && !over;
        if !runs_now {
            // One that has finished waits for nothing but its answer: that would cost a connection.
            if let Some(running) = item.running.take().filter(|_| !over) {
                running.abort();
            }
            if evicted && reserved && !over {
                item.evictions += 1;
                runs.spawn(Arc::clone(self).release_quota(name.clone(), seen));
            }
            return;
        }
        item.time_to_admission
            .get_or_insert_with(|| item.created_at.map_or(Duration::ZERO, |born| now - born));
        if item.running.is_none() {
            item.running = Some(runs.spawn(Arc::clone(self).run_workload(name.clone(), class.run_time)));
        }
    }

    async fn run_workload(self: Arc<Self>, name: String, time: Duration) -> Result<()> {
        tokio::time::sleep(time).await;
        let _slot = self.writes.acquire().await?;
        finish(&self.objects, &name).await.with_context(|| format!("{name} cannot finish"))
    }

    /// The pods are gone: the quota goes back. A conflict means that somebody else did it, or that a newer change comes.
    fn release_quota(
        self: Arc<Self>,
        name: String,
        seen: &ObservedWorkload,
    ) -> impl Future<Output = Result<()>> + Send + use<> {
        let mut conditions = seen.status.conditions.clone();
        for condition in &mut conditions {
            if condition.kind == "QuotaReserved" || condition.kind == "Admitted" {
                "False".clone_into(&mut condition.status);
                condition.rest.insert("reason".to_owned(), "Pending".into());
            }
        }
        let patch = json!({
            "metadata": {"resourceVersion": seen.metadata.resource_version},
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
        for (at, class) in scenario.classes.iter().enumerate() {
            let of = |number| {
                (
                    workload_name(&queue, class, number),
                    WorkloadProgress { class: at, ..WorkloadProgress::default() },
                )
            };
            items.extend((0..class.count).map(of));
        }
    }
    items
}
