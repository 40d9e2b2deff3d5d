//! The load generator: creates Workloads at their pace and plays the job side. On Admitted a workload runs for its time,
//! then it is Finished; on Evicted its admission is cleared, and it waits again.

use super::scenario::{Class, NAMESPACE, Scenario, condition};
use crate::objects::{Kind, Objects};
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
const CREATES: usize = 32;
const WRITES: usize = 64;

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
struct Line {
    #[serde(rename = "type")]
    kind: String,
    object: Seen,
}

/// The little of a Workload that the job side looks at.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Seen {
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

impl Seen {
    /// Whether it is the Workload of this name, and admitted.
    pub fn is_admitted(&self, name: &str) -> bool {
        self.metadata.name == name && self.holds("Admitted")
    }

    fn holds(&self, kind: &str) -> bool {
        self.status.conditions.iter().any(|c| c.kind == kind && c.status == "True")
    }
}

type Reader = Pin<Box<dyn futures::AsyncBufRead + Send>>;

/// All changes of Workloads from its start on.
pub struct Watch {
    lines: Lines<Reader>,
    objects: Objects,
    position: String,
}

impl Watch {
    /// From now on.
    pub async fn start(objects: &Objects) -> Result<Self> {
        let list = objects.api(Kind::WORKLOAD, NAMESPACE).list(&ListParams::default()).await?;
        let position = list.metadata.resource_version.unwrap_or_default();
        Ok(Self { lines: open(objects, &position).await?, objects: objects.clone(), position })
    }

    /// The next change.
    pub async fn next(&mut self) -> Result<Seen> {
        loop {
            let Some(line) = self.lines.next().await.transpose()? else {
                self.lines = open(&self.objects, &self.position).await?;
                continue;
            };
            let line: Line = serde_json::from_str(&line)?;
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

async fn open(objects: &Objects, position: &str) -> Result<Lines<Reader>> {
    let path = format!(
        "/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads?watch=true&allowWatchBookmarks=true&resourceVersion={position}"
    );
    let reader = objects.client().request_stream(crate::plane::http_get(&path)?).await?;
    let reader: Reader = Box::pin(reader);
    Ok(reader.lines())
}

/// A forced server-side apply of a Workload's status.
pub async fn apply_status(objects: &Objects, name: &str, manager: &str, status: &Value) -> Result<()> {
    let body = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"namespace": NAMESPACE, "name": name}, "status": status,
    });
    let params = PatchParams::apply(manager).force();
    objects.api(Kind::WORKLOAD, NAMESPACE).patch_status(name, &params, &Patch::Apply(&body)).await?;
    Ok(())
}

/// The job side says that the job has ended.
pub async fn finish(objects: &Objects, name: &str) -> Result<()> {
    let status = json!({"conditions": [condition("Finished", "Succeeded", "Job finished successfully")]});
    apply_status(objects, name, "bench", &status).await
}

/// One workload on its way.
#[derive(Default)]
struct Item {
    class: usize,
    born: Option<Instant>,
    /// From its creation to its first admission.
    waited: Option<Duration>,
    holds: bool,
    finished: bool,
    evictions: usize,
    running: Option<AbortHandle>,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// From the first create to the last end.
    pub wall: Duration,
    /// Times to the first admission by class.
    pub waits: [Vec<Duration>; 3],
    /// CPU seconds of reservations.
    pub reserved: f64,
    /// Evictions.
    pub evictions: usize,
}

struct Books {
    items: BTreeMap<String, Item>,
    finished: usize,
    /// CPU held now, since when, and CPU seconds until then.
    held: (f64, Instant, f64),
}

/// A run of a scenario.
pub struct Load {
    scenario: Scenario,
    objects: Objects,
    books: Mutex<Books>,
    writes: Semaphore,
}

impl Load {
    /// Creates everything and waits until all has finished. Says now and then how far it is.
    pub async fn run(scenario: &Scenario, objects: &Objects, patience: Duration) -> Result<Outcome> {
        let begun = Instant::now();
        let books = Books { items: names(scenario), finished: 0, held: (0.0, begun, 0.0) };
        let load = Arc::new(Self {
            scenario: scenario.clone(),
            objects: objects.clone(),
            books: Mutex::new(books),
            writes: Semaphore::new(WRITES),
        });
        let mut watch = Watch::start(objects).await?;
        let mut creating = tokio::spawn(Arc::clone(&load).create_all());
        let mut created = false;
        let mut said = tokio::time::interval(Duration::from_secs(10));
        // Dropped at the end, and with it what still runs.
        let mut runs = JoinSet::new();
        while load.books().finished < scenario.total() {
            tokio::select! {
                seen = watch.next() => load.take(&seen?, &mut runs),
                outcome = &mut creating, if !created => {
                    outcome??;
                    created = true;
                }
                Some(ended) = runs.join_next(), if !runs.is_empty() => match ended {
                    Err(error) if error.is_cancelled() => {}
                    ended => ended??,
                },
                _ = said.tick() => {
                    println!("  {:4} s: {} of {} have finished", begun.elapsed().as_secs(), load.books().finished, scenario.total());
                    if begun.elapsed() > patience {
                        bail!("not at its end after {} s", patience.as_secs());
                    }
                }
            }
        }
        let books = load.books();
        let mut outcome = Outcome { wall: begun.elapsed(), reserved: books.held.2, ..Outcome::default() };
        for item in books.items.values() {
            outcome.waits[item.class].extend(item.waited);
            outcome.evictions += item.evictions;
        }
        Ok(outcome)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn create_all(self: Arc<Self>) -> Result<()> {
        let slots = Semaphore::new(CREATES);
        let lanes = self
            .scenario
            .queue_names()
            .into_iter()
            .flat_map(|queue| (0..self.scenario.classes.len()).map(move |class| (queue.clone(), class)));
        let lanes: Vec<_> = lanes.collect();
        let all = lanes.len();
        stream::iter(lanes)
            .map(async |(queue, class)| self.create_lane(&slots, &queue, class).await)
            .buffer_unordered(all)
            .try_collect()
            .await
    }

    /// One class of one queue, one after the other.
    async fn create_lane(&self, slots: &Semaphore, queue: &str, at: usize) -> Result<()> {
        let class: &Class = &self.scenario.classes[at];
        let mut tick = tokio::time::interval(class.every);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for number in 0..class.count {
            tick.tick().await;
            let name = name(queue, class, number);
            let _slot = slots.acquire().await?;
            if let Some(item) = self.books().items.get_mut(&name) {
                item.born = Some(Instant::now());
            }
            self.objects
                .create(Kind::WORKLOAD, &self.scenario.workload(&name, queue, class, number))
                .await
                .with_context(|| name)?;
        }
        Ok(())
    }

    /// What a change of a Workload means for its job.
    fn take(self: &Arc<Self>, seen: &Seen, runs: &mut JoinSet<Result<()>>) {
        let now = Instant::now();
        let name = &seen.metadata.name;
        let mut books = self.books();
        let Books { items, finished, held } = &mut *books;
        let Some(item) = items.get_mut(name) else { return };
        let class = &self.scenario.classes[item.class];
        let (reserved, evicted) = (seen.holds("QuotaReserved"), seen.holds("Evicted"));
        let over = seen.holds("Finished");
        if item.holds != (reserved && !over) {
            item.holds = !item.holds;
            held.2 += held.0 * (now - held.1).as_secs_f64();
            held.1 = now;
            held.0 += if item.holds { f64::from(class.cpu) } else { -f64::from(class.cpu) };
        }
        if over && !item.finished {
            item.finished = true;
            *finished += 1;
        }
        let runs_now = reserved && seen.holds("Admitted") && !evicted && !over;
        if !runs_now {
            // One that has finished waits for nothing but its answer: that would cost a connection.
            if let Some(running) = item.running.take().filter(|_| !over) {
                running.abort();
            }
            if evicted && reserved && !over {
                item.evictions += 1;
                runs.spawn(Arc::clone(self).clear(name.clone(), seen));
            }
            return;
        }
        item.waited.get_or_insert_with(|| item.born.map_or(Duration::ZERO, |born| now - born));
        if item.running.is_none() {
            item.running = Some(runs.spawn(Arc::clone(self).play(name.clone(), class.runs)));
        }
    }

    async fn play(self: Arc<Self>, name: String, time: Duration) -> Result<()> {
        tokio::time::sleep(time).await;
        let _slot = self.writes.acquire().await?;
        finish(&self.objects, &name).await.with_context(|| format!("{name} cannot finish"))
    }

    /// The pods are gone: the quota goes back. A conflict means that somebody else did it, or that a newer change comes.
    fn clear(self: Arc<Self>, name: String, seen: &Seen) -> impl Future<Output = Result<()>> + Send + use<> {
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

fn name(queue: &str, class: &Class, number: usize) -> String {
    format!("{queue}-{}-{number}", class.name)
}

fn names(scenario: &Scenario) -> BTreeMap<String, Item> {
    let mut items = BTreeMap::new();
    for queue in scenario.queue_names() {
        for (at, class) in scenario.classes.iter().enumerate() {
            let of = |number| (name(&queue, class, number), Item { class: at, ..Item::default() });
            items.extend((0..class.count).map(of));
        }
    }
    items
}
