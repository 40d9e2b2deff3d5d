//! Benchmarks of the whole core: memory per pending Workload with its Job, and one event of a Workload by number of pending
//! Workloads; memory of nodes and pods, and a heartbeat.

#![allow(clippy::indexing_slicing, reason = "the JSON objects are built here")]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use jiff::Timestamp;
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::cache::Kind;
use sluice::frameworks::JobKind;
use sluice::reconciler::{CoreSettings, Delta, Effect, Reconciler};

const QUEUES: usize = 30;
const COHORTS: usize = 5;
const JOB: Kind = Kind::Job(JobKind::BATCH_JOB);

/// The core, with the version and time of the next object that it gets.
struct Core {
    state: Reconciler,
    version: u64,
    now: Timestamp,
}

impl Core {
    /// 30 queues in 5 cohorts, without capacity for any workload.
    fn new(leading: bool) -> Self {
        let now = Timestamp::from_second(1_800_000_000).unwrap_or_default();
        let mut core = Self { state: Reconciler::new(CoreSettings::default()), version: 0, now };
        for kind in Kind::all() {
            core.feed(Delta::Restarted { kind });
            core.feed(Delta::Synced { kind });
        }
        core.put(Kind::Namespace, json!({"metadata": {"name": "ns", "labels": {"team": "a"}}}));
        core.put(Kind::ResourceFlavor, json!({"metadata": {"name": "f"}, "spec": {}}));
        let groups = json!([{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "f", "resources": [
            {"name": "cpu", "nominalQuota": "0"}, {"name": "memory", "nominalQuota": "1Gi"}]}]}]);
        for n in 0..QUEUES {
            let spec = json!({"cohortName": format!("c{}", n % COHORTS), "namespaceSelector": {},
                "queueingStrategy": "BestEffortFIFO", "resourceGroups": groups});
            core.put(Kind::ClusterQueue, json!({"metadata": {"name": format!("q{n}")}, "spec": spec}));
            let metadata = json!({"name": format!("q{n}"), "namespace": "ns"});
            core.put(
                Kind::LocalQueue,
                json!({"metadata": metadata, "spec": {"clusterQueue": format!("q{n}")}}),
            );
        }
        core.feed(Delta::Leading(leading));
        core
    }

    fn feed(&mut self, delta: Delta) -> Vec<Effect> {
        self.state.apply(delta, self.now)
    }

    /// Feeds an object as the server would send it.
    fn put(&mut self, kind: Kind, mut object: Value) -> Vec<Effect> {
        self.version += 1;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("{}-uid-of-{name}", kind.resource().plural));
        }
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object["metadata"]["generation"] = json!(1);
        object["metadata"]["creationTimestamp"] = json!("2026-11-21T10:00:00Z");
        self.feed(Delta::Applied { kind, object })
    }

    /// Feeds a Job and its Workload, which has a pending reason already.
    fn pair(&mut self, n: usize) {
        self.put(JOB, job(n));
        self.put(Kind::Workload, workload(n));
    }
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "train", "team": "a"}}, "spec": {
        "restartPolicy": "Never", "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [{"name": "main", "image": "registry.example.com/train:1", "command": ["sleep", "60"],
            "env": [{"name": "MODE", "value": "full"}],
            "resources": {"requests": {"cpu": "1", "memory": "200Mi"}}}]}})
}

fn job(n: usize) -> Value {
    let queue = format!("q{}", n % QUEUES);
    json!({
        "metadata": {"name": format!("train-{n}"), "namespace": "ns",
            "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"parallelism": 1, "completions": 1, "suspend": true, "template": template()},
        "status": {"conditions": [{"type": "Suspended", "status": "True", "reason": "JobSuspended",
            "message": "Job suspended", "lastTransitionTime": "2026-11-21T10:00:00Z"}]},
    })
}

fn workload(n: usize) -> Value {
    let queue = format!("q{}", n % QUEUES);
    let uid = format!("jobs-uid-of-train-{n}");
    json!({
        "metadata": {"name": format!("job-train-{n}-0a1b2"), "namespace": "ns",
            "labels": {"kueue.x-k8s.io/job-uid": uid},
            "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": format!("train-{n}"), "uid": uid,
                "controller": true, "blockOwnerDeletion": true}]},
        "spec": {"active": true, "queueName": queue, "priority": 0,
            "podSets": [{"name": "main", "count": 1, "template": template()}]},
        "status": {
            "conditions": [{"type": "QuotaReserved", "status": "False", "reason": "ExceedsMaxQuota",
                "message": "needs cpu 1 of flavor f, more than the limit 0 of ClusterQueue", "observedGeneration": 1,
                "lastTransitionTime": "2026-11-21T10:00:01Z"}],
            "resourceRequests": [{"name": "main", "resources": {"cpu": "1", "memory": "200Mi"}}]},
    })
}

/// One event of one Workload among many: an annotation changed its version.
fn event(c: &mut Criterion) {
    if !wanted("event") {
        return;
    }
    let mut group = c.benchmark_group("state");
    group.sample_size(20);
    for pending in [1_000, 10_000, 100_000] {
        let mut core = Core::new(true);
        for n in 0..pending {
            core.pair(n);
        }
        group.bench_function(BenchmarkId::new("event of a pending Workload", pending), |b| {
            b.iter(|| core.put(Kind::Workload, workload(pending / 2)));
        });
        group.bench_function(BenchmarkId::new("event of a Job that waits", pending), |b| {
            b.iter(|| core.put(JOB, job(pending / 2)));
        });
        group.bench_function(BenchmarkId::new("Workload comes and goes", pending), |b| {
            b.iter(|| {
                let mut fresh = workload(pending);
                fresh["metadata"]["uid"] = json!(format!("uid-at-{}", core.version));
                core.put(Kind::Workload, fresh);
                let key = ObjectKey::new("ns", &format!("job-train-{pending}-0a1b2"));
                core.feed(Delta::Deleted { kind: Kind::Workload, key, uid: String::new() })
            });
        });
    }
    group.finish();
}

/// Whether this part is to run: `memory`, `finished` or `nodes` on the command line selects that part alone, because memory is
/// measured in a process that has held nothing else.
fn wanted(part: &str) -> bool {
    let mut words =
        std::env::args().skip(1).filter(|word| matches!(word.as_str(), "memory" | "finished" | "nodes"));
    words.next().is_none_or(|word| word == part)
}

/// Resident memory of the process in bytes, or 0 where the system does not report it.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<usize>().ok());
    kib.unwrap_or_default().saturating_mul(1024)
}

/// Prints the memory per Workload, of 15,000 pending ones, alone and with its Job, in a replica without in-flight writes.
fn memory(_: &mut Criterion) {
    if !wanted("memory") {
        return;
    }
    let number = 15_000;
    let mut core = Core::new(false);
    let before = resident();
    for n in 0..number {
        core.put(Kind::Workload, workload(n));
    }
    let workloads = resident();
    for n in 0..number {
        core.put(JOB, job(n));
    }
    let both = resident();
    let each = |from: usize, to: usize| to.saturating_sub(from) / number;
    eprintln!("memory, {number} pending: {} bytes per Workload", each(before, workloads));
    eprintln!("memory, {number} pending: {} bytes per Job", each(workloads, both));
    eprintln!("memory, {number} pending: {} MB resident in all", both >> 20);
    drop(core);
}

/// A finished Workload that was admitted and has no Job.
fn finished(n: usize) -> Value {
    let second = |offset: usize| {
        format!("2026-11-21T1{}:{:02}:{:02}Z", n / 36_000, n / 600 % 60, n / 10 % 50 + offset)
    };
    let condition = |kind: &str, message: &str, offset: usize| {
        json!({"type": kind, "status": "True", "reason": kind, "message": message, "observedGeneration": 1,
            "lastTransitionTime": second(offset)})
    };
    let queue = format!("q{}", n % QUEUES);
    json!({
        "metadata": {"name": format!("{queue}-small-{n}"), "namespace": "ns", "uid": format!("workloads-uid-of-{n}")},
        "spec": {"active": true, "queueName": queue, "priority": 0,
            "podSets": [{"name": "main", "count": 1, "template": template()}]},
        "status": {
            "conditions": [
                condition("QuotaReserved", &format!("Quota reserved in ClusterQueue {queue}"), 1),
                condition("Admitted", "The workload is admitted", 1),
                condition("Finished", "Job finished successfully", 2)],
            "admission": {"clusterQueue": queue, "podSetAssignments": [{"name": "main", "count": 1,
                "flavors": {"cpu": "f", "memory": "f"}, "resourceUsage": {"cpu": "1", "memory": "200Mi"}}]}},
    })
}

/// Prints the memory per Workload, of 50,000 finished ones.
fn memory_of_finished(_: &mut Criterion) {
    if !wanted("finished") {
        return;
    }
    let number = 50_000;
    let mut core = Core::new(false);
    let before = resident();
    for n in 0..number {
        let finished = finished(n);
        let mut running = finished.clone();
        if let Some(conditions) = running["status"]["conditions"].as_array_mut() {
            conditions.truncate(2);
        }
        core.put(Kind::Workload, running);
        core.put(Kind::Workload, finished);
    }
    let each = resident().saturating_sub(before) / number;
    eprintln!("memory, {number} finished: {each} bytes per Workload");
    drop(core);
}

/// A node with labels as cloud providers set them.
fn node(n: usize, beat: usize) -> Value {
    let mut labels = json!({"kubernetes.io/hostname": format!("node-{n}"), "rack": format!("r{}", n / 64),
        "block": format!("b{}", n / 640), "pool": "t"});
    for label in 0..20 {
        labels[format!("cloud.example.com/property-of-the-machine-{label}")] =
            json!(format!("value-{label}"));
    }
    json!({
        "metadata": {"name": format!("node-{n}"), "labels": labels},
        "status": {
            "allocatable": {"cpu": "96", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T10:00:00Z",
                "lastHeartbeatTime": format!("2026-11-21T10:{:02}:00Z", beat % 60)}]},
    })
}

/// A running pod on a node: unmanaged, or of the Workload `owner`.
fn pod(n: usize, nodes: usize, owner: Option<&str>) -> Value {
    let mut pod = json!({
        "metadata": {"name": format!("some-pod-of-services-{n}"), "namespace": "ns", "labels": {"app": "serve"}},
        "spec": {"nodeName": format!("node-{}", n % nodes), "containers": [
            {"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
        "status": {"phase": "Running"},
    });
    if let Some(workload) = owner {
        pod["metadata"]["annotations"] = json!({"kueue.x-k8s.io/workload": workload});
        pod["metadata"]["labels"] = json!({"kueue.x-k8s.io/podset": "main", "batch.kubernetes.io/job-completion-index": n.to_string()});
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": format!("node-{}", n % nodes)});
    }
    pod
}

/// Prints the memory of 4,000 nodes and 40,000 pods, and measures a heartbeat that changes nothing.
fn nodes(c: &mut Criterion) {
    if !wanted("nodes") {
        return;
    }
    let (nodes, pods) = (4_000, 40_000);
    let mut cores = Vec::new();
    for (kind, owner) in [("of others", None), ("of workloads", Some("job-train-0a1b2"))] {
        let mut core = Core::new(false);
        let levels =
            json!([{"nodeLabel": "block"}, {"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]);
        core.put(Kind::Topology, json!({"metadata": {"name": "t"}, "spec": {"levels": levels}}));
        let spec = json!({"nodeLabels": {"pool": "t"}, "topologyName": "t"});
        core.put(Kind::ResourceFlavor, json!({"metadata": {"name": "t"}, "spec": spec}));
        let before = resident();
        for n in 0..nodes {
            core.put(Kind::Node, node(n, 0));
        }
        let with_nodes = resident();
        for n in 0..pods {
            core.put(Kind::Pod, pod(n, nodes, owner));
        }
        let all = resident();
        let each = |from: usize, to: usize, number: usize| to.saturating_sub(from) / number;
        eprintln!("memory, {nodes} nodes: {} bytes each", each(before, with_nodes, nodes));
        eprintln!("memory, {pods} pods {kind}: {} bytes each", each(with_nodes, all, pods));
        eprintln!(
            "memory, {nodes} nodes and {pods} pods {kind}: {} MB",
            all.saturating_sub(before) / 1_000_000
        );
        if owner.is_none() {
            let mut beat = 0;
            c.bench_function("state/nodes: a heartbeat that changes nothing, decoding included", |b| {
                b.iter(|| {
                    beat += 1;
                    core.put(Kind::Node, node(7, beat))
                });
            });
        }
        cores.push(core);
    }
}

criterion_group!(benches, memory, memory_of_finished, nodes, event);
criterion_main!(benches);
