//! What is submitted: queues in cohorts and three classes of Workloads, each arriving at its own pace; in one scenario their
//! pods are placed on nodes.

use super::racks;
use crate::objects::{Kind, ObjectClient, local_queue};
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
pub struct WorkloadClass {
    /// Its name.
    pub name: &'static str,
    /// Higher goes first.
    pub priority: i32,
    /// What each asks for.
    pub cpu: u32,
    /// Its pods, which share that.
    pub pods: u32,
    /// How long each runs once it is admitted.
    pub run_time: Duration,
    /// How long after the one before it each is created.
    pub interval: Duration,
    /// How many there are in each queue.
    pub count: usize,
}

/// A whole load.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Whether pods are placed on nodes.
    pub uses_topology: bool,
    /// Cohorts.
    pub cohorts: usize,
    /// ClusterQueues in each.
    pub queues: usize,
    /// What arrives in each queue.
    pub classes: [WorkloadClass; 3],
}

impl Scenario {
    /// By its name.
    pub fn by_name(name: &str) -> Result<Self> {
        let (cohorts, queues, counts, runs, every) = match name {
            "baseline" | "tas" => (5, 6, [350, 100, 50], [200, 500, 1000], [100, 500, 1200]),
            "large" => (10, 100, [35, 11, 4], [150, 350, 700], [60, 300, 700]),
            other => bail!("no scenario {other:?}: there are baseline, large and tas"),
        };
        let placed = name == "tas";
        let class = |at: usize, name, priority, cpu| WorkloadClass {
            name,
            priority,
            cpu,
            pods: if placed { 2 << at } else { 1 },
            run_time: Duration::from_millis(runs[at]),
            interval: Duration::from_millis(every[at]),
            count: counts[at],
        };
        let classes = [class(0, "small", 50, 1), class(1, "medium", 100, 5), class(2, "large", 200, 20)];
        Ok(Self { name: name.to_owned(), uses_topology: placed, cohorts, queues, classes })
    }

    /// The same with so many times fewer workloads, at least one of each class in each queue.
    #[must_use]
    pub fn scaled_down(mut self, by: usize) -> Self {
        for class in &mut self.classes {
            class.count = (class.count / by.max(1)).max(1);
        }
        self
    }

    /// How many workloads there are in all.
    pub fn total_workloads(&self) -> usize {
        self.cohorts * self.queues * self.classes.iter().map(|class| class.count).sum::<usize>()
    }

    /// CPU of all queues.
    pub fn total_quota(&self) -> f64 {
        f64::from(NOMINAL) * to_f64(self.cohorts * self.queues)
    }

    /// CPU seconds of all workloads.
    pub fn total_cpu_seconds(&self) -> f64 {
        let queue =
            self.classes.iter().map(|c| f64::from(c.cpu) * c.run_time.as_secs_f64() * to_f64(c.count));
        queue.sum::<f64>() * to_f64(self.cohorts * self.queues)
    }

    /// No schedule ends earlier: the quota must do the work, and the last of a class must arrive and run.
    pub fn min_seconds_by_quota(&self) -> f64 {
        let arrives =
            |c: &WorkloadClass| c.interval.as_secs_f64() * to_f64(c.count - 1) + c.run_time.as_secs_f64();
        self.classes.iter().map(arrives).fold(self.total_cpu_seconds() / self.total_quota(), f64::max)
    }

    /// The names of all queues.
    pub fn queue_names(&self) -> Vec<String> {
        let cohort = |c: usize| (0..self.queues).map(move |q| format!("q-{c}-{q}"));
        (0..self.cohorts).flat_map(cohort).collect()
    }

    /// Makes flavor, namespace and queues.
    pub async fn make_queues(&self, objects: &ObjectClient) -> Result<()> {
        objects.create(Kind::NAMESPACE, &json!({"metadata": {"name": NAMESPACE}})).await?;
        if self.uses_topology {
            racks::create_nodes(objects, NODES).await?;
        }
        let flavor = if self.uses_topology { racks::flavor() } else { json!({}) };
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
pub fn to_f64(number: usize) -> f64 {
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
    pub fn workload(&self, name: &str, queue: &str, class: &WorkloadClass, number: usize) -> Value {
        let milli = class.cpu * 1000 / class.pods;
        let mut set = json!({
            "name": "main", "count": class.pods, "template": {"spec": {"restartPolicy": "Never", "containers": [
                {"name": "c", "image": "work:1", "resources": {"requests": {"cpu": format!("{milli}m")}}},
            ]}},
        });
        if self.uses_topology {
            set["topologyRequest"] = racks::topology_request(number);
        }
        json!({
            "metadata": {"namespace": NAMESPACE, "name": name},
            "spec": {"queueName": queue, "priority": class.priority, "podSets": [set]},
        })
    }

    /// What an admission sets in the status.
    pub fn admission(&self, queue: &str, class: &WorkloadClass) -> Value {
        let mut set = json!({
            "name": "main", "count": class.pods, "flavors": {"cpu": FLAVOR},
            "resourceUsage": {"cpu": class.cpu.to_string()},
        });
        if self.uses_topology {
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
