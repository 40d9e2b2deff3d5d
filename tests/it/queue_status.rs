//! Frequency of ClusterQueue status writes: at once after a quiet time, once a second while the status keeps changing, and less
//! often while the rate limit is exhausted.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::cache::Kind;
use sluice::reconciler::{
    CoreSettings, Delta, Effect, Event, Observation, Reconciler, WriteLimits, WriteOutcome, WriteResult,
};
use sluice::simulate::fake_api_server::FakeApiServer;

const START: i64 = 1_800_000_000;

/// A leading core, its server, the times of ClusterQueue status writes, and what the core emitted.
pub(super) struct Cluster {
    pub(super) core: Reconciler,
    pub(super) server: FakeApiServer,
    pub(super) now: Timestamp,
    /// Writes of this kind are rejected.
    pub(super) rejected_kind: Option<Kind>,
    /// Field of the status of a ClusterQueue that the definition does not have.
    undefined_field: Option<&'static str>,
    status_writes: Vec<SignedDuration>,
    pub(super) events: Vec<Event>,
    pub(super) observed: Vec<Observation>,
}

impl Cluster {
    pub(super) fn new(settings: CoreSettings) -> Self {
        let mut cluster = Self {
            core: Reconciler::new(settings),
            server: FakeApiServer::new(true),
            now: Timestamp::from_second(START).unwrap(),
            rejected_kind: None,
            undefined_field: None,
            status_writes: Vec::new(),
            events: Vec::new(),
            observed: Vec::new(),
        };
        let groups = json!([{"coveredResources": ["cpu"], "flavors": [
            {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]}]);
        let queue =
            json!({"metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": groups}});
        let local = json!({"metadata": {"name": "lq", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}});
        cluster.create(Kind::Namespace, json!({"metadata": {"name": "ns"}}));
        cluster.create(Kind::ResourceFlavor, json!({"metadata": {"name": "f"}, "spec": {}}));
        cluster.create(Kind::ClusterQueue, queue);
        cluster.create(Kind::LocalQueue, local);
        let mut deltas = cluster.server.list(Kind::all());
        cluster.server.watch_events.clear();
        deltas.push(Delta::Leading(true));
        cluster.feed(deltas);
        cluster
    }

    pub(super) fn create(&mut self, kind: Kind, object: Value) {
        self.server.create(kind, object, self.now).expect("a new name");
    }

    /// Feeds deltas, and executes the effects until none are left.
    fn feed(&mut self, mut deltas: Vec<Delta>) {
        while !deltas.is_empty() {
            let effects = self.core.apply_all(std::mem::take(&mut deltas), self.now);
            for effect in effects {
                let mut write = match effect {
                    Effect::Write(write) => write,
                    Effect::Refetch { kind, key } => {
                        let object = self.server.get(kind, &key).cloned();
                        deltas.push(Delta::Read { kind, key, object });
                        continue;
                    }
                    Effect::Event(event) => {
                        self.events.push(event);
                        continue;
                    }
                    Effect::Observe(observation) => {
                        self.observed.push(observation);
                        continue;
                    }
                    Effect::LogWaitingHead { .. } => continue,
                };
                let (id, kind, key) = (write.id, write.kind, write.key.clone());
                if kind == Kind::ClusterQueue && write.subresource == Some("status") {
                    let start = Timestamp::from_second(START).unwrap();
                    self.status_writes.push(self.now.duration_since(start));
                    let fields = write.body["status"].as_object_mut().unwrap();
                    fields.retain(|name, _| Some(name.as_str()) != self.undefined_field);
                }
                let outcome = if self.rejected_kind == Some(kind) {
                    WriteOutcome::Rejected { code: 422, message: "no room".to_owned() }
                } else {
                    self.server.write(write, self.now)
                };
                deltas.push(Delta::Written(WriteResult { id, kind, key, outcome }));
            }
            deltas.extend(self.server.watch_events.drain(..));
        }
    }

    /// Advances in steps of a tenth of a second. Returns the times of the status writes.
    pub(super) fn advance_tenths(&mut self, tenths: i32, mut each: impl FnMut(&mut Self, i32)) -> Vec<f64> {
        self.status_writes.clear();
        for tenth in 0..tenths {
            each(self, tenth);
            let deltas = self.server.watch_events.drain(..).chain([Delta::Tick]).collect();
            self.feed(deltas);
            self.now = self.now.checked_add(SignedDuration::from_millis(100)).unwrap();
        }
        self.status_writes.iter().map(SignedDuration::as_secs_f64).collect()
    }

    fn create_workload(&mut self, name: &str) {
        let template = json!({"spec": {"containers": [
            {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
        let spec =
            json!({"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]});
        self.create(Kind::Workload, json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}));
    }

    fn status_field(&self, field: &str) -> &Value {
        &self.server.get(Kind::ClusterQueue, &ObjectKey::cluster("cq")).unwrap()["status"][field]
    }
}

#[test]
fn status_change_is_written_within_one_second() {
    let mut cluster = Cluster::new(CoreSettings::default());
    cluster.advance_tenths(100, |_, _| {});
    let first = cluster.advance_tenths(1, |cluster, _| cluster.create_workload("first"));
    assert_eq!(
        (first.len(), cluster.status_field("pendingWorkloads")),
        (1, &json!(0)),
        "at once after a quiet time"
    );

    // One workload is created every tenth of a second; two fit in all.
    let mut late = Vec::new();
    let busy = cluster.advance_tenths(600, |cluster, tenth| {
        let number = |field| cluster.status_field(field).as_i64().unwrap_or(0);
        let counted = number("pendingWorkloads") + number("reservingWorkloads");
        let a_second_ago = i64::from(tenth - 9).max(0);
        if counted < a_second_ago {
            late.push((tenth, counted));
        }
        cluster.create_workload(&format!("w{tenth}"));
    });
    assert_eq!(late, [], "workloads older than a second were not counted");
    let gaps: Vec<f64> = busy.windows(2).map(|neighbours| neighbours[1] - neighbours[0]).collect();
    assert!(gaps.iter().all(|gap| (0.9..1.15).contains(gap)), "once a second: {gaps:?}");

    let end = cluster.advance_tenths(100, |_, _| {});
    assert!(end.len() <= 1, "the last state is written at most once: {end:?}");
    assert_eq!(
        (cluster.status_field("pendingWorkloads"), cluster.status_field("reservingWorkloads")),
        (&json!(599), &json!(2))
    );
}

#[test]
fn status_write_waits_when_rate_limit_is_exhausted() {
    // One low-priority status write per second is allowed, and the pending reason of each workload needs one, too.
    let mut cluster = Cluster::new(CoreSettings {
        writes: WriteLimits { status_writes_per_second: Some(1), ..WriteLimits::default() },
        ..CoreSettings::default()
    });
    cluster.advance_tenths(100, |_, _| {});
    let busy = cluster.advance_tenths(600, |cluster, tenth| cluster.create_workload(&format!("w{tenth}")));
    let gaps: Vec<f64> = busy.windows(2).map(|neighbours| neighbours[1] - neighbours[0]).collect();
    assert!(gaps.iter().all(|gap| (0.9..4.15).contains(gap)), "at most four seconds: {gaps:?}");
    assert!(gaps.iter().filter(|gap| **gap > 3.9).count() > gaps.len() / 2, "mostly four seconds: {gaps:?}");
}

/// The server drops a field that the definition does not have: the write succeeds and changes nothing.
#[test]
fn status_that_server_drops_is_not_written_every_second() {
    let mut cluster = Cluster::new(CoreSettings::default());
    cluster.advance_tenths(100, |_, _| {});
    cluster.undefined_field = Some("reservingWorkloads");
    let first = cluster.advance_tenths(1, |cluster, _| cluster.create_workload("first"));
    assert!(first.len() <= 1, "{first:?}");
    let writes = cluster.advance_tenths(3000, |_, _| {});
    assert!(writes.len() < 16, "{} writes in five minutes: {writes:?}", writes.len());
    assert_eq!(cluster.status_field("reservingWorkloads"), &json!(0));
    // The definition is updated.
    cluster.undefined_field = None;
    cluster.advance_tenths(610, |_, _| {});
    assert_eq!(cluster.status_field("reservingWorkloads"), &json!(1));
}

#[test]
fn active_condition_change_is_written_immediately() {
    let mut cluster = Cluster::new(CoreSettings::default());
    cluster.advance_tenths(200, |cluster, tenth| cluster.create_workload(&format!("w{tenth}")));
    let stopped = cluster.advance_tenths(1, |cluster, _| {
        cluster.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("cq"), |queue| {
            queue["spec"]["stopPolicy"] = json!("Hold");
        });
    });
    assert_eq!(stopped.len(), 1, "{stopped:?}");
    assert_eq!(cluster.status_field("conditions")[0]["status"], "False");
}
