//! What is submitted: queues in cohorts and three classes of Workloads, each arriving at its own pace; in one scenario their
//! pods are placed on nodes.

use super::racks;
use crate::objects::{Kind, Objects, local_queue};
use anyhow::{Result, bail};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use std::time::Duration;

/// Where everything is.
pub const NAMESPACE: &str = "bench";
const FLAVOR: &str = "any";
/// Nodes where pods are placed.
const NODES: usize = 640;
/// What each queue has, and what it may borrow.
const NOMINAL: u32 = 20;
const BORROWING: u32 = 100;

/// Workloads of one size in each queue.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// Its name.
    pub name: &'static str,
    /// Higher goes first.
    pub priority: i32,
    /// What each asks for.
    pub cpu: u32,
    /// Its pods, which share that.
    pub pods: u32,
    /// How long each runs once it is admitted.
    pub runs: Duration,
    /// How long after the one before it each is created.
    pub every: Duration,
    /// How many there are in each queue.
    pub count: usize,
}

/// A whole load.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Whether pods are placed on nodes.
    pub placed: bool,
    /// Cohorts.
    pub cohorts: usize,
    /// ClusterQueues in each.
    pub queues: usize,
    /// What arrives in each queue.
    pub classes: [Class; 3],
}

impl Scenario {
    /// By its name.
    pub fn named(name: &str) -> Result<Self> {
        let (cohorts, queues, counts, runs, every) = match name {
            "baseline" | "tas" => (5, 6, [350, 100, 50], [200, 500, 1000], [100, 500, 1200]),
            "large" => (10, 100, [35, 11, 4], [150, 350, 700], [60, 300, 700]),
            other => bail!("no scenario {other:?}: there are baseline, large and tas"),
        };
        let placed = name == "tas";
        let class = |at: usize, name, priority, cpu| Class {
            name,
            priority,
            cpu,
            pods: if placed { 2 << at } else { 1 },
            runs: Duration::from_millis(runs[at]),
            every: Duration::from_millis(every[at]),
            count: counts[at],
        };
        let classes = [class(0, "small", 50, 1), class(1, "medium", 100, 5), class(2, "large", 200, 20)];
        Ok(Self { name: name.to_owned(), placed, cohorts, queues, classes })
    }

    /// The same with so many times fewer workloads, at least one of each class in each queue.
    #[must_use]
    pub fn divided(mut self, by: usize) -> Self {
        for class in &mut self.classes {
            class.count = (class.count / by.max(1)).max(1);
        }
        self
    }

    /// How many workloads there are in all.
    pub fn total(&self) -> usize {
        self.cohorts * self.queues * self.classes.iter().map(|class| class.count).sum::<usize>()
    }

    /// CPU of all queues.
    pub fn quota(&self) -> f64 {
        f64::from(NOMINAL) * count(self.cohorts * self.queues)
    }

    /// CPU seconds of all workloads.
    pub fn work(&self) -> f64 {
        let queue = self.classes.iter().map(|c| f64::from(c.cpu) * c.runs.as_secs_f64() * count(c.count));
        queue.sum::<f64>() * count(self.cohorts * self.queues)
    }

    /// No schedule ends earlier: the quota must do the work, and the last of a class must arrive and run.
    pub fn quota_floor(&self) -> f64 {
        let arrives = |c: &Class| c.every.as_secs_f64() * count(c.count - 1) + c.runs.as_secs_f64();
        self.classes.iter().map(arrives).fold(self.work() / self.quota(), f64::max)
    }

    /// The names of all queues.
    pub fn queue_names(&self) -> Vec<String> {
        let cohort = |c: usize| (0..self.queues).map(move |q| format!("q-{c}-{q}"));
        (0..self.cohorts).flat_map(cohort).collect()
    }

    /// Makes flavor, namespace and queues.
    pub async fn make_queues(&self, objects: &Objects) -> Result<()> {
        objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": NAMESPACE}})).await?;
        if self.placed {
            racks::make(objects, NODES).await?;
        }
        let flavor = if self.placed { racks::flavor() } else { json!({}) };
        objects.create(Kind::FLAVOR, &json!({"metadata": {"name": FLAVOR}, "spec": flavor})).await?;
        stream::iter(self.queue_names())
            .map(async |queue| {
                let cohort = queue.rsplit_once('-').map_or("", |(cohort, _)| cohort);
                objects.create(Kind::CLUSTER_QUEUE, &cluster_queue(&queue, cohort)).await?;
                objects.create(Kind::LOCAL_QUEUE, &local_queue(NAMESPACE, &queue, &queue)).await?;
                anyhow::Ok(())
            })
            .buffer_unordered(8)
            .try_collect()
            .await
    }
}

/// A count as a number to calculate with.
pub fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

fn cluster_queue(name: &str, cohort: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "cohortName": cohort, "namespaceSelector": {},
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": FLAVOR, "resources": [
            {"name": "cpu", "nominalQuota": NOMINAL, "borrowingLimit": BORROWING},
        ]}]}],
    }})
}

impl Scenario {
    /// A Workload without a job, the so-manieth of its class in a queue.
    pub fn workload(&self, name: &str, queue: &str, class: &Class, number: usize) -> Value {
        let milli = class.cpu * 1000 / class.pods;
        let mut set = json!({
            "name": "main", "count": class.pods, "template": {"spec": {"restartPolicy": "Never", "containers": [
                {"name": "c", "image": "work:1", "resources": {"requests": {"cpu": format!("{milli}m")}}},
            ]}},
        });
        if self.placed {
            set["topologyRequest"] = racks::request(number);
        }
        json!({
            "metadata": {"namespace": NAMESPACE, "name": name},
            "spec": {"queueName": queue, "priority": class.priority, "podSets": [set]},
        })
    }

    /// What an admission sets in the status.
    pub fn admission(&self, queue: &str, class: &Class) -> Value {
        let mut set = json!({
            "name": "main", "count": class.pods, "flavors": {"cpu": FLAVOR},
            "resourceUsage": {"cpu": class.cpu.to_string()},
        });
        if self.placed {
            set["topologyAssignment"] = racks::assignment(class.pods);
        }
        json!({"clusterQueue": queue, "podSetAssignments": [set]})
    }
}

/// A condition that holds from now on.
pub fn condition(kind: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": format!("{:.0}", jiff::Timestamp::now())})
}
