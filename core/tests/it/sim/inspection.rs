//! What the core answers about its inner state: the writes that are really in flight, and queues with bounded lists.

use super::laws::job;
use super::world::World;
use crate::fixtures::leading_core::JOB;
use sluice_core::reconciler::CoreSettings;
use sluice_core::snapshot::Excerpt;

fn names(list: &Excerpt<sluice_core::api::ObjectKey>) -> Vec<&str> {
    list.first.iter().map(|key| &*key.name).collect()
}

#[test]
fn writes_in_flight_are_named_until_their_result_arrives() {
    let mut world = World::with_queue(&CoreSettings::default(), 2);
    world.jobs_never_end = true;
    for number in 0..4 {
        world.create(JOB, job(&format!("j{number}"), "a", 1));
    }
    let (mut most, mut status_writes) = (0, 0);
    for _ in 0..3_000 {
        world.step();
        let inspection = world.harness.core.inspect(2, world.now);
        let sent = &inspection.in_flight_writes;
        assert!(sent.first.len() <= 2 && sent.total == sent.first.len() + sent.more, "{sent:?}");
        assert!(sent.first.is_sorted_by(|first, next| first.age_seconds >= next.age_seconds), "{sent:?}");
        status_writes +=
            sent.first.iter().filter(|w| w.resource == "workloads/status" && w.verb == "apply").count();
        most = most.max(sent.total);
        assert!(inspection.timers.next.first.is_sorted_by_key(|timer| timer.due), "{:?}", inspection.timers);
        let counted: usize = inspection.timers.by_kind.values().map(|kind| kind.count).sum();
        assert_eq!(counted, inspection.timers.next.total);
    }
    assert!(most > 0 && status_writes > 0, "no write was seen in flight");
    assert!(world.run_until_idle(20_000));
    let inspection = world.harness.core.inspect(100, world.now);
    assert!(inspection.leading && inspection.synced);
    assert_eq!((inspection.in_flight_writes.total, inspection.write_queue.total), (0, 0), "{inspection:?}");
    assert_eq!((inspection.failed_writes.total, inspection.assumed_admissions), (0, 0), "{inspection:?}");
}

#[test]
fn queues_are_listed_in_order_with_bounded_names() {
    let mut world = World::with_queue(&CoreSettings::default(), 2);
    world.jobs_never_end = true;
    for number in 0..5 {
        world.create(JOB, job(&format!("j{number}"), "a", 1));
        // Creation times have whole seconds.
        world.now = world.now.checked_add(jiff::SignedDuration::from_secs(1)).unwrap();
    }
    assert!(world.run_until_idle(20_000));
    let all = world.harness.core.list_queues(10);
    let [queue] = &all.cluster_queues[..] else { panic!("{all:?}") };
    assert_eq!((&*queue.name, queue.active, queue.admitted, queue.waiting), ("a", true, 2, 0));
    let mut order = names(&queue.pending);
    order.extend(names(&queue.inadmissible));
    assert_eq!((queue.workloads.total, order.len()), (2, 3));
    assert!(
        order.iter().zip(["job-j2", "job-j3", "job-j4"]).all(|(name, job)| name.starts_with(job)),
        "{order:?}"
    );
    let (_, cpu) = queue.usage.first_key_value().unwrap();
    assert_eq!(cpu.usage.get(), 2_000);
    let cut = &world.harness.core.list_queues(1).cluster_queues[0];
    assert_eq!((cut.workloads.first.len(), cut.workloads.more, cut.workloads.total), (1, 1, 2));
    let parked = &cut.inadmissible;
    assert_eq!((parked.first.len(), parked.more), (parked.total.min(1), parked.total.saturating_sub(1)));
}
