//! What readers of the pending order cost, with 100,000 pending workloads of one ClusterQueue in 40 LocalQueues: publishing after a
//! change, a position, and pages as the visibility API answers them.

use super::world::{empty, groups, workload};
use criterion::Criterion;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::json;
use sluice::api::ObjectKey;
use sluice::scheduler::{ClusterQueue, Engine, EngineSettings, Workload};
use sluice::snapshot::{LocalQueueReference, References, Snapshot};
use sluice::visibility::{PageRequest, PendingPage, QueueId};
use std::sync::Arc;

const PENDING: usize = 100_000;
const LOCAL_QUEUES: usize = 40;
const QUEUE: &str = "q";

fn in_one_queue(n: usize) -> Workload {
    let local_queue = Arc::from(format!("lq{}", n % LOCAL_QUEUES));
    Workload { cluster_queue: Arc::from(QUEUE), local_queue, ..workload(n) }
}

fn full() -> Engine {
    let mut engine = empty(EngineSettings::default());
    let queue = ClusterQueue {
        groups: groups(&["spot"], &["cpu", "memory"], 0),
        namespace_selector: Some(LabelSelector::default()),
        ..ClusterQueue::default()
    };
    engine.set_cluster_queue(QUEUE, Some(queue));
    (0..PENDING).for_each(|n| engine.enqueue(in_one_queue(n)));
    engine
}

fn published(engine: &Engine) -> Arc<Snapshot> {
    let reference = LocalQueueReference { cluster_queue: Arc::from(QUEUE), stopped: false, is_remote: false };
    let references = References {
        cluster_queues: [Arc::from(QUEUE)].into(),
        local_queues: [(ObjectKey::new("ns", "lq7"), reference)].into(),
        ..References::default()
    };
    let pending = engine.pending_order().clone();
    Arc::new(Snapshot { synced: true, pending, references: Arc::new(references), ..Snapshot::default() })
}

/// Length of a page as JSON.
fn page(snapshot: &Arc<Snapshot>, queue: &QueueId, offset: usize, limit: usize) -> usize {
    let page = PendingPage::of(Arc::clone(snapshot), queue, PageRequest { offset, limit });
    page.map_or(0, |mut page| json!(page.next_rows(limit)).to_string().len())
}

pub(crate) fn visibility(c: &mut Criterion) {
    let mut group = c.benchmark_group("visibility, 100000 pending");
    let mut engine = full();
    let extra = in_one_queue(PENDING + 7);
    // Each change follows a publication, so that it copies its paths.
    let mut last = engine.pending_order().clone();
    let before = last.copied_nodes();
    let mut changes = 0_u64;
    group.bench_function("publish, enqueue and forget", |b| {
        b.iter(|| {
            engine.enqueue(extra.clone());
            engine.remove_pending(&extra.key);
            engine.take_message_updates(1);
            last = engine.pending_order().clone();
            changes += 2;
        });
    });
    let copied = engine.pending_order().copied_nodes() - before;
    eprintln!("visibility: {} nodes copied by a change", copied / changes.max(1));
    let snapshot = published(&engine);
    let cluster = QueueId::Cluster(Arc::from(QUEUE));
    let local = QueueId::Local(ObjectKey::new("ns", "lq7"));
    group.bench_function("one position in the middle", |b| b.iter(|| page(&snapshot, &local, 1_250, 1)));
    group.bench_function("page of 500 in the middle, ClusterQueue", |b| {
        b.iter(|| page(&snapshot, &cluster, 50_000, 500));
    });
    group.bench_function("page of 500 in the middle, LocalQueue", |b| {
        b.iter(|| page(&snapshot, &local, 1_000, 500));
    });
    group.sample_size(10);
    group.bench_function("all, ClusterQueue", |b| b.iter(|| page(&snapshot, &cluster, 0, PENDING)));
    group.finish();
}
