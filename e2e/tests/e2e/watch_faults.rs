//! Watch events that are dropped, duplicated, delayed, replaced by 410 Gone, or withheld by a stalled stream, at each
//! step of a Job's life and of its queues' that matters. `SLUICE_CELL=word` runs the cells whose names contain the word.

use crate::fixture::Fixture;
use crate::history::History;
use crate::lost_writes::{EndState, end_state};
use crate::queue_life;
use anyhow::{Context as _, Result, bail, ensure};
use futures::stream::{self, StreamExt as _};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::{Manager, ManagerSettings};
use sluice_e2e::objects::{self, Kind, condition_is_true, text};
use sluice_e2e::proxy::Proxy;
use sluice_e2e::wait::{eventually, scaled_duration};
use sluice_e2e::watch_faults::EventFault;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Watch timeout and relist period are at most a tenth of their defaults.
const FLAGS: [&str; 3] = ["--metrics-insecure", "--watch-timeout=2s", "--relist-period=15s"];
/// Attempts per cell. If a relist delivers the change instead of the event, no fault is injected, and the scenario is
/// repeated.
const ATTEMPTS: usize = 4;
/// Concurrent scenarios.
const PARALLEL_SCENARIOS: usize = 10;
const HOST: &str = "kubernetes.io/hostname";
const LABEL: &str = "e2e.example/cell";
/// Delay relative to the events of other watches; a tenth of it outside soak runs.
const DELAY: Duration = Duration::from_secs(20);

const EVENT_FAULTS: [(&str, EventFault); 5] = [
    ("dropped", EventFault::Dropped),
    ("doubled", EventFault::Duplicated),
    ("late", EventFault::Delayed(DELAY)),
    ("gone", EventFault::Expired),
    ("stalled", EventFault::Stalled),
];

/// Returns whether the event's object is in the state that selects the event.
pub(crate) type EventPredicate = fn(&Value) -> bool;
/// Name, end of the watch's path, event type, and required state of the object.
pub(crate) type Event = (&'static str, &'static str, &'static str, EventPredicate);

const EVENTS: [Event; 12] = [
    ("job-added", "/jobs", "ADDED", |_| true),
    ("job-ended", "/jobs", "MODIFIED", |job| condition_is_true(job, "Complete")),
    ("job-deleted", "/jobs", "DELETED", |_| true),
    ("workload-added", "/workloads", "ADDED", |_| true),
    ("workload-stopped", "/workloads", "MODIFIED", |workload| workload["spec"]["active"] == false),
    ("workload-deleted", "/workloads", "DELETED", |_| true),
    ("pod-added", "/pods", "ADDED", |_| true),
    ("pod-bound", "/pods", "MODIFIED", |pod| pod["spec"]["nodeName"].is_string()),
    ("pod-deleted", "/pods", "DELETED", |_| true),
    ("node-added", "/nodes", "ADDED", |_| true),
    ("node-ready", "/nodes", "MODIFIED", |node| condition_is_true(node, "Ready")),
    ("node-deleted", "/nodes", "DELETED", |_| true),
];

/// An event of a scenario, and what becomes of it.
struct Cell {
    name: String,
    path: &'static str,
    kind: &'static str,
    predicate: EventPredicate,
    fault: EventFault,
    scenario: Scenario,
}

/// What happens in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// Jobs, their pods and their node come, change and go.
    Jobs,
    /// Queues, their cohort and their flavor come, change and go.
    Queues,
}

/// Each event is dropped, duplicated, delayed, replaced by 410 Gone, or withheld by a stream that stalls without an
/// error, while other watches continue: end state and counts are as without faults, and no queue ever exceeds its
/// quota.
pub(crate) async fn lost_late_duplicate_events(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let cells = events().flat_map(|event| EVENT_FAULTS.iter().map(move |fault| cell(event, *fault)));
    run_cells(cluster, fixture, cells.collect()).await
}

/// The same with one fault for each event, in turn.
pub(crate) async fn one_fault_for_each_event(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let cells = events().zip(EVENT_FAULTS.iter().cycle()).map(|(event, fault)| cell(event, *fault));
    run_cells(cluster, fixture, cells.collect()).await
}

fn events() -> impl Iterator<Item = (Event, Scenario)> {
    let of_jobs = EVENTS.into_iter().map(|event| (event, Scenario::Jobs));
    of_jobs.chain(queue_life::EVENTS.into_iter().map(|event| (event, Scenario::Queues)))
}

fn cell((event, scenario): (Event, Scenario), (name, fault): (&str, EventFault)) -> Cell {
    let (of_event, path, kind, predicate) = event;
    let late = matches!(fault, EventFault::Delayed(_));
    let fault = if late { EventFault::Delayed(scaled_duration(DELAY)) } else { fault };
    Cell { name: format!("{of_event}-{name}"), path, kind, predicate, fault, scenario }
}

async fn run_cells(cluster: &mut Cluster, fixture: &Fixture, mut cells: Vec<Cell>) -> Result<()> {
    let word = std::env::var("SLUICE_CELL").unwrap_or_default();
    cells.retain(|cell| cell.name.contains(&word));
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    let proxy = Proxy::open(&cluster.plane).await?;
    let flags = FLAGS.map(str::to_owned).to_vec();
    let settings = ManagerSettings { api_server_url: Some(proxy.url()), flags, ..old.settings().clone() };
    let manager = Manager::start(&cluster.plane, &settings).await?;
    manager.wait_until_ready().await?;
    cluster.wait_for_webhooks().await?;
    let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    create_bystanders(fixture).await?;

    let matrix = async {
        let expected = scenario(fixture, &manager, "calm", None).await?;
        queue_life::play(fixture, "calm-queues").await.context("queues without faults")?;
        let failures: Vec<String> = stream::iter(&cells)
            .map(async |cell| {
                let run = run_cell(fixture, &manager, &proxy, cell, &expected);
                run.await.err().map(|error| format!("{}: {error:#}", cell.name))
            })
            .buffer_unordered(PARALLEL_SCENARIOS)
            .filter_map(async |failure| failure)
            .collect()
            .await;
        ensure!(failures.is_empty(), "{}\nend state without faults: {expected:#?}", failures.join("\n"));
        anyhow::Ok(())
    };
    tokio::select! {
        outcome = matrix => outcome?,
        outcome = touch_bystanders(fixture) => outcome?,
    }
    check_usage(&history.revisions()?, &cells)?;

    manager.terminate();
    let direct = Manager::start(&cluster.plane, old.settings()).await?;
    direct.wait_until_ready().await?;
    cluster.put_manager(direct);
    cluster.wait_for_webhooks().await
}

async fn run_cell(
    fixture: &Fixture,
    manager: &Manager,
    proxy: &Proxy,
    cell: &Cell,
    expected: &EndState,
) -> Result<()> {
    for attempt in 1..=ATTEMPTS {
        let name = format!("{}-{attempt}", cell.name);
        let handle = proxy.inject_watch_fault(fault_once(name.clone(), cell));
        match cell.scenario {
            Scenario::Jobs => _ = scenario(fixture, manager, &name, Some(expected)).await?,
            Scenario::Queues => queue_life::play(fixture, &name).await?,
        }
        if handle.injected_faults() == 1 {
            return Ok(());
        }
    }
    bail!("no matching event in {ATTEMPTS} attempts")
}

/// Each queue of a Job's life has room for one Workload; those of the queues' lives never use more than their trees have.
fn check_usage(revisions: &[Value], cells: &[Cell]) -> Result<()> {
    let has = |revision: &Value, scenario: Scenario| {
        let queue = text(revision, "/status/admission/clusterQueue");
        let of_queues =
            queue_life::EVENTS.iter().any(|event| queue.contains(event.0)) || queue.contains("calm-queues");
        revision.is_null() || of_queues == (scenario == Scenario::Queues)
    };
    for (scenario, capacity) in [(Scenario::Jobs, 1), (Scenario::Queues, queue_life::MOST_JOBS)] {
        let of_scenario: Vec<Value> =
            revisions.iter().filter(|revision| has(revision, scenario)).cloned().collect();
        let peak = max_reserved(&of_scenario, capacity)?;
        let played = cells.is_empty() || cells.iter().any(|cell| cell.scenario == scenario);
        ensure!(peak == capacity || !played, "at most {peak} workloads of a queue had quota at once");
    }
    Ok(())
}

/// Returns a policy that applies the fault to the first matching event of a cell.
fn fault_once(
    name: String,
    cell: &Cell,
) -> impl FnMut(&sluice_e2e::proxy::Call, &Value) -> EventFault + Send + use<> {
    let Cell { path, kind, predicate, fault, .. } = *cell;
    let mut done = false;
    move |call, event| {
        let object = &event["object"];
        let selected = !done
            && call.path.ends_with(path)
            && text(event, "/type") == kind
            && text(object, "/metadata/name").contains(&name)
            && predicate(object);
        done |= selected;
        if selected { fault } else { EventFault::Pass }
    }
}

/// Runs three Jobs in a queue for one, on their own node. The first is deactivated by its user and runs again after the
/// second has finished. Both and the node are deleted; the third runs on a new node of the same name. Returns the state
/// before the deletion.
async fn scenario(
    fixture: &Fixture,
    manager: &Manager,
    cell: &str,
    expected: Option<&EndState>,
) -> Result<EndState> {
    let (next, last) = (format!("next-{cell}"), format!("last-{cell}"));
    create_queue_and_node(fixture, cell).await?;
    fixture.submit(fixture.job(cell, cell, "1")).await?;
    fixture.wait_until_running(cell).await?;
    fixture.submit(fixture.job(&next, cell, "1")).await?;
    fixture.wait_until_pending(&next, "WaitingForQuota").await?;
    fixture.set_workload_spec(cell, json!({"active": false})).await?;
    fixture.wait_until_running(&next).await?;
    fixture.wait_until_pending(cell, "Deactivated").await?;
    fixture.set_workload_spec(cell, json!({"active": true})).await?;
    fixture.finish_job(&next).await?;
    fixture.wait_until_running_and_reported(cell).await?;
    fixture.finish_job(cell).await?;
    fixture.wait_for_queue_counts(cell, (0, 0, 0), &[("cpu", "0")]).await?;
    let end = eventually("the end state is as without faults", async || {
        let end = end_state(fixture, manager, cell).await?.without_placement();
        ensure!(end.is_counted(), "counters are missing: {end:?}");
        ensure!(expected.is_none_or(|expected| *expected == end), "the end state is {end:#?}");
        Ok(end)
    })
    .await?;
    for job in [cell, &next] {
        fixture.objects.delete(Kind::JOB, &fixture.name, job, PropagationPolicy::Background).await?;
    }
    wait_until_gone(fixture, Kind::WORKLOAD, &fixture.name, cell).await?;
    fixture.objects.delete(Kind::NODE, "", &fixture.own_name(cell), PropagationPolicy::Background).await?;
    wait_until_gone(fixture, Kind::NODE, "", &fixture.own_name(cell)).await?;
    fixture.objects.create(Kind::NODE, &node(fixture, cell)).await?;
    fixture.submit(fixture.job(&last, cell, "1")).await?;
    fixture.wait_until_running(&last).await?;
    fixture.finish_job(&last).await?;
    fixture.wait_for_queue_counts(cell, (0, 0, 0), &[("cpu", "0")]).await?;
    Ok(end)
}

/// Creates a queue for one workload and its node, which no other pod tolerates.
async fn create_queue_and_node(fixture: &Fixture, cell: &str) -> Result<()> {
    let name = fixture.own_name(cell);
    fixture.create_tracked(Kind::NODE, node(fixture, cell)).await?;
    let levels = json!([{"nodeLabel": HOST}]);
    fixture
        .create_tracked(Kind::TOPOLOGY, json!({"metadata": {"name": name}, "spec": {"levels": levels}}))
        .await?;
    let toleration = json!({"key": LABEL, "operator": "Exists"});
    let spec = json!({"nodeLabels": {LABEL: name}, "tolerations": [toleration], "topologyName": name});
    fixture.create_flavor(cell, spec).await?;
    let body = objects::cluster_queue(&name, "", &name, &[("cpu", "1", None)]);
    fixture.create_tracked(Kind::CLUSTER_QUEUE, body).await?;
    fixture.objects.create(Kind::LOCAL_QUEUE, &objects::local_queue(&fixture.name, cell, &name)).await?;
    Ok(())
}

fn node(fixture: &Fixture, cell: &str) -> Value {
    let name = fixture.own_name(cell);
    let capacity = json!({"cpu": "1", "memory": "8Gi", "pods": "20"});
    let taint = json!({"key": LABEL, "value": name, "effect": "NoSchedule"});
    json!({
        "metadata": {"name": name, "labels": {LABEL: name, HOST: name}}, "spec": {"taints": [taint]},
        "status": {"capacity": capacity, "allocatable": capacity},
    })
}

pub(crate) async fn wait_until_gone(
    fixture: &Fixture,
    kind: Kind,
    namespace: &str,
    part: &str,
) -> Result<()> {
    eventually(format!("{part} is deleted"), async || {
        let all = fixture.objects.list(kind, namespace, "").await?;
        let left = all.iter().find(|object| text(object, "/metadata/name").contains(part));
        ensure!(left.is_none(), "{left:?} still exists");
        Ok(())
    })
    .await
}

const BYSTANDERS: [(Kind, bool); 8] = [
    (Kind::JOB, true),
    (Kind::WORKLOAD, true),
    (Kind::POD, true),
    (Kind::LOCAL_QUEUE, true),
    (Kind::NODE, false),
    (Kind::CLUSTER_QUEUE, false),
    (Kind::COHORT, false),
    (Kind::FLAVOR, false),
];

/// Creates one object of each watched kind that no scenario uses.
async fn create_bystanders(fixture: &Fixture) -> Result<()> {
    let name = fixture.own_name("other");
    let metadata = json!({"namespace": fixture.name, "name": name});
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "work:1"}]});
    let job = json!({"metadata": metadata, "spec": {"suspend": true, "template": {"spec": pod}}});
    fixture.objects.create(Kind::JOB, &job).await?;
    let sets = json!([{"name": "main", "count": 1, "template": {"spec": pod}}]);
    let workload = json!({"metadata": metadata, "spec": {"queueName": "none", "podSets": sets}});
    fixture.objects.create(Kind::WORKLOAD, &workload).await?;
    let mut gated = json!({"metadata": metadata, "spec": pod});
    gated["spec"]["schedulingGates"] = json!([{"name": "e2e.example/never"}]);
    fixture.objects.create(Kind::POD, &gated).await?;
    fixture
        .create_tracked(Kind::NODE, json!({"metadata": {"name": name}, "spec": {"unschedulable": true}}))
        .await?;
    fixture.create_tracked(Kind::FLAVOR, json!({"metadata": {"name": name}})).await?;
    fixture.create_tracked(Kind::COHORT, objects::cohort(&name, "", &name, &[])).await?;
    let queue = objects::cluster_queue(&name, "", &name, &[("cpu", "1", None)]);
    fixture.create_tracked(Kind::CLUSTER_QUEUE, queue).await?;
    fixture.objects.create(Kind::LOCAL_QUEUE, &objects::local_queue(&fixture.name, &name, &name)).await?;
    Ok(())
}

/// Changes the bystanders until dropped, so that each dropped event is followed by a later one and is never sent again.
async fn touch_bystanders(fixture: &Fixture) -> Result<()> {
    let name = fixture.own_name("other");
    for round in 0_u64.. {
        for (kind, is_namespaced) in BYSTANDERS {
            let namespace = if is_namespaced { &fixture.name } else { "" };
            let patch = json!({"metadata": {"annotations": {"e2e.example/round": round.to_string()}}});
            fixture.objects.merge(kind, namespace, &name, &patch).await?;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Returns the maximum number of workloads with quota in one queue at any revision. An error if it exceeds `capacity`.
pub(crate) fn max_reserved(revisions: &[Value], capacity: usize) -> Result<usize> {
    let mut reserving: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut peak = 0;
    for object in revisions {
        if object.is_null() {
            // A relist: all stored objects follow.
            reserving.clear();
            continue;
        }
        let name = text(object, "/metadata/name");
        for names in reserving.values_mut() {
            names.remove(name);
        }
        let deleting = !object["metadata"]["deletionTimestamp"].is_null();
        if condition_is_true(object, "QuotaReserved") && !condition_is_true(object, "Finished") && !deleting {
            let names = reserving.entry(text(object, "/status/admission/clusterQueue")).or_default();
            names.insert(name);
            let revision = text(object, "/metadata/resourceVersion");
            ensure!(names.len() <= capacity, "{names:?} have quota at revision {revision}");
            peak = peak.max(names.len());
        }
    }
    Ok(peak)
}
