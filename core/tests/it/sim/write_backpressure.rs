//! More decisions than writes: the core decides only slightly ahead of what it can write.

use super::laws::reserved_cpu;
use super::world::World;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::reconciler::{CoreSettings, Delta, Effect, Reconciler, Write, WriteLimits, WriteResult};
use std::collections::VecDeque;

/// Limit of in-flight status writes.
const MAX_IN_FLIGHT: usize = 2;
const QUOTA: i64 = 50;
const PRIORITY: i32 = 9;

/// A leading core, a server that answers one write after the other, and the unanswered writes.
struct SaturatedServer {
    world: World,
    core: Reconciler,
    unanswered: VecDeque<Write>,
    now: Timestamp,
}

impl SaturatedServer {
    fn start() -> Self {
        let settings = CoreSettings {
            writes: WriteLimits {
                max_in_flight_status_writes: Some(MAX_IN_FLIGHT),
                ..WriteLimits::default()
            },
            ..CoreSettings::default()
        };
        let world = World::with_queue(&settings, QUOTA);
        let mut server =
            Self { core: Reconciler::new(settings), unanswered: VecDeque::new(), now: world.now, world };
        server.world.harness.server.watch_events.clear();
        let deltas = server.world.harness.server.list(Kind::all());
        server.feed(deltas);
        server.feed([Delta::Leading(true)]);
        server
    }

    fn feed(&mut self, deltas: impl IntoIterator<Item = Delta>) {
        for delta in deltas {
            self.now += SignedDuration::from_millis(1);
            for effect in self.core.apply(delta, self.now) {
                if let Effect::Write(write) = effect {
                    self.unanswered.push_back(write);
                }
            }
        }
        let in_flight = self.unanswered.iter().filter(|write| is_status_of_workload(write)).count();
        // A write of a pending reason may be in flight in addition.
        assert!(in_flight <= MAX_IN_FLIGHT + 1, "{in_flight} writes are in flight");
    }

    fn submit(&mut self, name: &str, cpu: i64, priority: i32) {
        let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}});
        let sets = json!([{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]);
        let spec = json!({"queueName": "a", "active": true, "priority": priority, "podSets": sets});
        let object = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec});
        self.world.harness.server.create(Kind::Workload, object, self.now).expect("a new name");
        self.deliver_watch();
    }

    fn deliver_watch(&mut self) {
        let deltas: Vec<Delta> = self.world.harness.server.watch_events.drain(..).collect();
        self.feed(deltas);
    }

    /// Answers the oldest write. Returns the workload's name if it was an admission.
    fn answer_oldest_write(&mut self) -> Option<String> {
        let write = self.unanswered.pop_front()?;
        let (id, kind, key) = (write.id, write.kind, write.key.clone());
        let admits = write.status.as_ref().is_some_and(|status| status.admission.is_some());
        let outcome = self.world.harness.server.write(write, self.now);
        self.feed([Delta::Written(WriteResult { id, kind, key: key.clone(), outcome })]);
        self.deliver_watch();
        admits.then(|| key.name.to_string())
    }

    /// CPUs granted by the core, whether written or not.
    fn decided_usage(&mut self) -> i64 {
        self.now += SignedDuration::from_secs(1);
        self.feed([Delta::Tick]);
        let snapshot = self.core.snapshot();
        let by_fr = &snapshot.queues.cluster_queues["a"].usage_by_flavor_resource;
        by_fr.values().map(|node| i64::try_from(node.usage.to_i128() / 1000).unwrap()).sum()
    }
}

fn is_status_of_workload(write: &Write) -> bool {
    write.kind == Kind::Workload && write.subresource == Some("status")
}

#[test]
fn unwritten_admissions_are_bounded_by_write_limit() {
    let mut server = SaturatedServer::start();
    for n in 0..QUOTA {
        server.submit(&format!("w{n:02}"), 1, 0);
    }
    // Admissions in flight, and as many that wait for a slot.
    let max_ahead = i64::try_from(2 * MAX_IN_FLIGHT).unwrap();
    let mut written = 0;
    while written < 10 {
        let ahead = server.decided_usage() - reserved_cpu(&server.world);
        assert!((1..=max_ahead).contains(&ahead), "{ahead} admissions are decided and not written");
        written += usize::from(server.answer_oldest_write().is_some());
    }
    // If all of them had been granted quota, none would be left, and the urgent workload would have to preempt.
    server.submit("urgent", QUOTA - 10 - max_ahead, PRIORITY);
    let next: Vec<String> = (0..8 * MAX_IN_FLIGHT)
        .filter_map(|_| server.answer_oldest_write())
        .take(1 + 2 * MAX_IN_FLIGHT)
        .collect();
    assert!(next.iter().any(|name| name == "urgent"), "{next:?}");
    while !server.unanswered.is_empty() {
        server.answer_oldest_write();
    }
    assert_eq!(reserved_cpu(&server.world), QUOTA, "all quota is granted in the end");
    let evicted = |w: &&Value| super::world::condition(w, "Evicted").is_some();
    assert_eq!(server.world.harness.server.all(Kind::Workload).filter(evicted).count(), 0);
}
