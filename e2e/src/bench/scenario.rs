//! Benchmark scenarios: queues in cohorts and three classes of Workloads, each with its own arrival rate. The scenario
//! "tas" also uses topology-aware scheduling.

use super::racks;
use crate::objects::{Kind, ObjectClient, local_queue};
use anyhow::{Result, bail};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use std::time::Duration;

/// Namespace of all Workloads.
pub const NAMESPACE: &str = "bench";
const FLAVOR: &str = "any";
/// Nodes in the scenario "tas".
const NODES: usize = 640;
/// CPU nominal quota of each queue.
const NOMINAL: u32 = 20;
/// CPU borrowing limit of each queue.
const BORROWING: u32 = 100;

/// A class of equal Workloads in each queue.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadClass {
    /// Its name.
    pub name: &'static str,
    /// Workload priority.
    pub priority: i32,
    /// CPU of one workload.
    pub cpu: u32,
    /// Pods of one workload, which divide `cpu` evenly.
    pub pods: u32,
    /// Run time after admission.
    pub run_time: Duration,
    /// Time between two creates.
    pub interval: Duration,
    /// Workloads per queue.
    pub count: usize,
}

/// A benchmark scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Whether pods get topology assignments.
    pub uses_topology: bool,
    /// Number of cohorts.
    pub cohorts: usize,
    /// ClusterQueues per cohort.
    pub queues: usize,
    /// Workload classes of each queue.
    pub classes: [WorkloadClass; 3],
}

impl Scenario {
    /// Returns the scenario of this name: baseline, large or tas.
    pub fn by_name(name: &str) -> Result<Self> {
        let (cohorts, queues, counts, runs, intervals) = match name {
            "baseline" | "tas" => (5, 6, [350, 100, 50], [200, 500, 1000], [100, 500, 1200]),
            "large" => (10, 100, [35, 11, 4], [150, 350, 700], [60, 300, 700]),
            other => bail!("unknown scenario {other:?}: expected baseline, large or tas"),
        };
        let uses_topology = name == "tas";
        let class = |index: usize, name, priority, cpu| WorkloadClass {
            name,
            priority,
            cpu,
            pods: if uses_topology { 2 << index } else { 1 },
            run_time: Duration::from_millis(runs[index]),
            interval: Duration::from_millis(intervals[index]),
            count: counts[index],
        };
        let classes = [class(0, "small", 50, 1), class(1, "medium", 100, 5), class(2, "large", 200, 20)];
        Ok(Self { name: name.to_owned(), uses_topology, cohorts, queues, classes })
    }

    /// Divides the number of workloads by `by`, keeping at least one per class and queue.
    #[must_use]
    pub fn scaled_down(mut self, by: usize) -> Self {
        for class in &mut self.classes {
            class.count = (class.count / by.max(1)).max(1);
        }
        self
    }

    /// Returns the total number of workloads.
    pub fn total_workloads(&self) -> usize {
        self.cohorts * self.queues * self.classes.iter().map(|class| class.count).sum::<usize>()
    }

    /// Returns the nominal CPU of all queues.
    pub fn total_quota(&self) -> f64 {
        f64::from(NOMINAL) * to_f64(self.cohorts * self.queues)
    }

    /// Returns the CPU seconds of all workloads.
    pub fn total_cpu_seconds(&self) -> f64 {
        let queue =
            self.classes.iter().map(|c| f64::from(c.cpu) * c.run_time.as_secs_f64() * to_f64(c.count));
        queue.sum::<f64>() * to_f64(self.cohorts * self.queues)
    }

    /// Returns a lower bound of the duration in seconds: total work divided by quota, and arrival plus run time of the
    /// last workload of each class.
    pub fn min_seconds_by_quota(&self) -> f64 {
        let arrives =
            |c: &WorkloadClass| c.interval.as_secs_f64() * to_f64(c.count - 1) + c.run_time.as_secs_f64();
        self.classes.iter().map(arrives).fold(self.total_cpu_seconds() / self.total_quota(), f64::max)
    }

    /// Returns the names of all queues.
    pub fn queue_names(&self) -> Vec<String> {
        let cohort = |c: usize| (0..self.queues).map(move |q| format!("q-{c}-{q}"));
        (0..self.cohorts).flat_map(cohort).collect()
    }

    /// Creates namespace, flavor and queues, and nodes for topology.
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

/// Converts a count to a float.
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
    /// Builds Workload `number` of a class in a queue; it has no job.
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

    /// Builds the `status.admission` of an admitted Workload.
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

/// Builds a condition with status True and the current time.
pub fn condition(kind: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": format!("{:.0}", jiff::Timestamp::now())})
}
