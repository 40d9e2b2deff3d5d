//! How often the status of a queue is written: at once after a quiet time, and less and less often while it keeps changing.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::simulate::server::Server;
use sluice::state::{Delta, Effect, Kind, Settings, State, WriteResult};

const START: i64 = 1_800_000_000;

/// A leading core, its server, and when the status of its ClusterQueue was written.
struct Cluster {
    state: State,
    server: Server,
    now: Timestamp,
    written: Vec<SignedDuration>,
}

impl Cluster {
    fn new() -> Self {
        let now = Timestamp::from_second(START).unwrap();
        let (state, server) = (State::new(Settings::default()), Server::new(true));
        let mut cluster = Self { state, server, now, written: Vec::new() };
        let groups = json!([{"coveredResources": ["cpu"], "flavors": [
            {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]}]);
        let queue =
            json!({"metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": groups}});
        let local = json!({"metadata": {"name": "lq", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}});
        cluster.make(Kind::Namespace, json!({"metadata": {"name": "ns"}}));
        cluster.make(Kind::ResourceFlavor, json!({"metadata": {"name": "f"}, "spec": {}}));
        cluster.make(Kind::ClusterQueue, queue);
        cluster.make(Kind::LocalQueue, local);
        let mut deltas = cluster.server.list();
        cluster.server.watch.clear();
        deltas.push(Delta::Leading(true));
        cluster.feed(deltas);
        cluster
    }

    fn make(&mut self, kind: Kind, object: Value) {
        self.server.create(kind, object, self.now).expect("a new name");
    }

    /// Feeds the core, and what follows from it.
    fn feed(&mut self, mut deltas: Vec<Delta>) {
        while !deltas.is_empty() {
            let effects = self.state.apply_all(std::mem::take(&mut deltas), self.now);
            for effect in effects {
                let Effect::Write(write) = effect else { continue };
                let (id, kind, key) = (write.id, write.kind, write.key.clone());
                if kind == Kind::ClusterQueue && write.subresource == Some("status") {
                    let start = Timestamp::from_second(START).unwrap();
                    self.written.push(self.now.duration_since(start));
                }
                let outcome = self.server.write(write, self.now);
                deltas.push(Delta::Written(WriteResult { id, kind, key, outcome }));
            }
            deltas.extend(self.server.watch.drain(..));
        }
    }

    /// Lets time pass, a tenth of a second at a time; returns when the status was written meanwhile.
    fn pass(&mut self, tenths: i32, mut each: impl FnMut(&mut Self, i32)) -> Vec<f64> {
        self.written.clear();
        for tenth in 0..tenths {
            each(self, tenth);
            let deltas = self.server.watch.drain(..).chain([Delta::Tick]).collect();
            self.feed(deltas);
            self.now = self.now.checked_add(SignedDuration::from_millis(100)).unwrap();
        }
        self.written.iter().map(SignedDuration::as_secs_f64).collect()
    }

    fn come(&mut self, name: &str) {
        let template = json!({"spec": {"containers": [
            {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
        let spec =
            json!({"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]});
        self.make(Kind::Workload, json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}));
    }

    fn count(&self, field: &str) -> &Value {
        &self.server.get(Kind::ClusterQueue, &ObjectKey::cluster("cq")).unwrap()["status"][field]
    }
}

#[test]
fn a_queue_that_keeps_changing_is_written_less_and_less_often() {
    let mut cluster = Cluster::new();
    cluster.pass(100, |_, _| {});
    let first = cluster.pass(1, |cluster, _| cluster.come("first"));
    assert_eq!(
        (first.len(), cluster.count("pendingWorkloads")),
        (1, &json!(0)),
        "at once after a quiet time"
    );

    let busy = cluster.pass(600, |cluster, tenth| cluster.come(&format!("w{tenth}")));
    let gaps: Vec<f64> = busy.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((0.9..1.15).contains(&(busy[0] - first[0])), "{first:?} {busy:?}");
    assert!((1.9..2.15).contains(&gaps[0]), "{gaps:?}");
    assert!(gaps[1..].iter().all(|gap| (3.9..4.15).contains(gap)), "{gaps:?}");

    let end = cluster.pass(100, |_, _| {});
    assert_eq!(end.len(), 1, "the last state is told, once: {end:?}");
    assert_eq!(
        (cluster.count("pendingWorkloads"), cluster.count("reservingWorkloads")),
        (&json!(599), &json!(2))
    );

    let again = cluster.pass(20, |cluster, tenth| cluster.come(&format!("x{tenth}")));
    assert_eq!(again.len(), 2, "the pause is short again: {again:?}");
}

#[test]
fn whether_a_queue_admits_is_told_at_once() {
    let mut cluster = Cluster::new();
    cluster.pass(200, |cluster, tenth| cluster.come(&format!("w{tenth}")));
    let stopped = cluster.pass(1, |cluster, _| {
        cluster.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("cq"), |queue| {
            queue["spec"]["stopPolicy"] = json!("Hold");
        });
    });
    assert_eq!(stopped.len(), 1, "{stopped:?}");
    assert_eq!(cluster.count("conditions")[0]["status"], "False");
}
