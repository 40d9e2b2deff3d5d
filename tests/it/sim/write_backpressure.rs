//! More to write than can be written: decisions are taken not much further ahead than that.

use super::laws::reserved_cpu;
use super::world::World;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice::state::{CoreSettings, Delta, Effect, Kind, Reconciler, Write, WriteResult};
use std::collections::VecDeque;

/// Writes at a time.
const MAX_IN_FLIGHT: usize = 2;
const QUOTA: i64 = 50;
const PRIORITY: i32 = 9;

/// A leading core, a server that answers one write after the other, and what was not answered yet.
struct SaturatedServer {
    world: World,
    state: Reconciler,
    unanswered: VecDeque<Write>,
    now: Timestamp,
}

impl SaturatedServer {
    fn start() -> Self {
        let settings =
            CoreSettings { max_in_flight_status_writes: Some(MAX_IN_FLIGHT), ..CoreSettings::default() };
        let world = World::with_queue(&settings, QUOTA);
        let mut rush =
            Self { state: Reconciler::new(settings), unanswered: VecDeque::new(), now: world.now, world };
        rush.world.server.watch_events.clear();
        let all = rush.world.server.list();
        rush.feed(all);
        rush.feed([Delta::Leading(true)]);
        rush
    }

    fn feed(&mut self, deltas: impl IntoIterator<Item = Delta>) {
        for delta in deltas {
            self.now += SignedDuration::from_millis(1);
            for effect in self.state.apply(delta, self.now) {
                if let Effect::Write(write) = effect {
                    self.unanswered.push_back(write);
                }
            }
        }
        let under_way = self.unanswered.iter().filter(|write| is_status_of_workload(write)).count();
        // One that explains may be under way besides.
        assert!(under_way <= MAX_IN_FLIGHT + 1, "{under_way} writes are under way");
    }

    fn submit(&mut self, name: &str, cpu: i64, priority: i32) {
        let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}});
        let sets = json!([{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]);
        let spec = json!({"queueName": "a", "active": true, "priority": priority, "podSets": sets});
        let object = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec});
        self.world.server.create(Kind::Workload, object, self.now).expect("a new name");
        self.deliver_watch();
    }

    fn deliver_watch(&mut self) {
        let seen: Vec<Delta> = self.world.server.watch_events.drain(..).collect();
        self.feed(seen);
    }

    /// The server answers the oldest write.
    fn answer_oldest_write(&mut self) -> Option<String> {
        let write = self.unanswered.pop_front()?;
        let (id, kind, key) = (write.id, write.kind, write.key.clone());
        let admits = write.status.as_ref().is_some_and(|status| status.admission.is_some());
        let outcome = self.world.server.write(write, self.now);
        self.feed([Delta::Written(WriteResult { id, kind, key: key.clone(), outcome })]);
        self.deliver_watch();
        admits.then(|| key.name.to_string())
    }

    /// Quota that is given, written or not.
    fn decided_usage(&mut self) -> i64 {
        self.now += SignedDuration::from_secs(1);
        self.feed([Delta::Tick]);
        let snapshot = self.state.snapshot();
        let cells = &snapshot.queues.cluster_queues["a"].usage_by_flavor_resource;
        cells.values().map(|cell| i64::try_from(cell.usage.to_i128() / 1000).unwrap()).sum()
    }
}

fn is_status_of_workload(write: &Write) -> bool {
    write.kind == Kind::Workload && write.subresource == Some("status")
}

#[test]
fn unwritten_admissions_are_bounded_by_write_limit() {
    let mut rush = SaturatedServer::start();
    for n in 0..QUOTA {
        rush.submit(&format!("w{n:02}"), 1, 0);
    }
    // Those that are being written, and as many in line.
    let most = i64::try_from(2 * MAX_IN_FLIGHT).unwrap();
    let mut written = 0;
    while written < 10 {
        let ahead = rush.decided_usage() - reserved_cpu(&rush.world);
        assert!((1..=most).contains(&ahead), "{ahead} are given quota and not written");
        written += usize::from(rush.answer_oldest_write().is_some());
    }
    // Had all of them been given quota, there would be none left, and somebody would have to go.
    rush.submit("urgent", QUOTA - 10 - most, PRIORITY);
    let next: Vec<String> = (0..8 * MAX_IN_FLIGHT)
        .filter_map(|_| rush.answer_oldest_write())
        .take(1 + 2 * MAX_IN_FLIGHT)
        .collect();
    assert!(next.iter().any(|name| name == "urgent"), "{next:?}");
    while !rush.unanswered.is_empty() {
        rush.answer_oldest_write();
    }
    assert_eq!(reserved_cpu(&rush.world), QUOTA, "in the end all of it is given");
    let evicted = |w: &&Value| super::world::condition(w, "Evicted").is_some();
    assert_eq!(rush.world.server.all(Kind::Workload).filter(evicted).count(), 0);
}
