//! Order of the executor's tasks: one per object at a time unless it bypasses, the most urgent first, namespaces in turns.
//!
//! Tasks wait only while all concurrent calls are in flight. Invariants: a task waits for a bounded number of others: of eight
//! starts four are for the most urgent tasks, at least two for other writes, one for a pending reason and one for the status of
//! a queue, if such wait; within a class each namespace has one task in turn. Starts that a class does not need are used by the
//! most urgent class. Statuses of queues are rate-limited as well. Two tasks of one object in different classes may change
//! places: both are decided on one version, so at most one of them lands.

use std::collections::BTreeMap;
use std::time::Duration;

use super::rate_limit::AdaptiveRateLimiter;
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::reconciler::{Place, RoundQueue, Write, WriteClass};

/// The class that comes first, by number of the start.
const TURNS: [WriteClass; 8] = [
    WriteClass::Quota,
    WriteClass::Other,
    WriteClass::Quota,
    WriteClass::Explanation,
    WriteClass::Quota,
    WriteClass::Other,
    WriteClass::Quota,
    WriteClass::QueueStatus,
];

/// The object that a task is about.
pub type TaskTarget = (Kind, ObjectKey);

/// A task of the executor.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Write an object.
    Write(Write),
    /// Read an object.
    Refetch {
        /// Kind of the object.
        kind: Kind,
        /// Namespace and name of the object.
        key: ObjectKey,
    },
}

impl Task {
    /// Returns the object concerned.
    pub fn target(&self) -> TaskTarget {
        match self {
            Self::Write(write) => (write.kind, write.key.clone()),
            Self::Refetch { kind, key } => (*kind, key.clone()),
        }
    }

    /// Returns the urgency class. A read is urgent, because the object decides whether a job may start.
    const fn class(&self) -> WriteClass {
        match self {
            Self::Write(write) => write.class,
            Self::Refetch { .. } => WriteClass::Quota,
        }
    }
}

/// The next step of the executor.
#[derive(Clone, Debug, PartialEq)]
pub enum NextTask {
    /// Start this task now.
    Start(Task),
    /// Ask again after this time, for the rate limit.
    Wait(Duration),
    /// No task can start before another one finishes or is added.
    Idle,
}

/// Waiting tasks.
#[derive(Debug)]
pub struct TaskQueue {
    /// Tasks of all classes but the statuses of queues.
    waiting: RoundQueue<WriteClass, Task>,
    /// Statuses of queues, oldest first.
    queue_statuses: BTreeMap<u64, Write>,
    /// Keys into `queue_statuses`: a newer write of an object takes the position of the older one.
    positions: BTreeMap<TaskTarget, u64>,
    sequence: u64,
    /// Tasks waiting for the call in flight on their object.
    blocked: BTreeMap<TaskTarget, Vec<(Place<WriteClass>, Task)>>,
    /// Number of calls in flight by object: more than one only if some bypass the others.
    in_flight: BTreeMap<TaskTarget, usize>,
    /// Index into [`TURNS`].
    turn: usize,
    rate_limiter: AdaptiveRateLimiter,
}

impl TaskQueue {
    /// Returns an empty queue with a rate limit for statuses of queues, per second.
    pub fn new(queue_status_rate: f64, now: Duration) -> Self {
        Self {
            waiting: RoundQueue::default(),
            queue_statuses: BTreeMap::new(),
            positions: BTreeMap::new(),
            sequence: 0,
            blocked: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            turn: 0,
            rate_limiter: AdaptiveRateLimiter::new(queue_status_rate, queue_status_rate.max(1.0), now),
        }
    }

    /// Adds a task.
    pub fn push(&mut self, task: Task) {
        match task {
            Task::Write(write) if write.class == WriteClass::QueueStatus => {
                let target = (write.kind, write.key.clone());
                let position = *self.positions.entry(target).or_insert_with(|| {
                    self.sequence = self.sequence.wrapping_add(1);
                    self.sequence
                });
                self.queue_statuses.insert(position, write);
            }
            task => {
                let (_, key) = task.target();
                self.waiting.push(task.class(), &key.namespace, task);
            }
        }
    }

    /// Returns the next task whose object has no call in flight. Under load few statuses of queues start, because they
    /// would slow down the others at the server.
    pub fn next(&mut self, now: Duration, under_load: bool) -> NextTask {
        let first = TURNS.get(self.turn).copied();
        let mut end = NextTask::Idle;
        for class in first.into_iter().chain(WriteClass::ALL) {
            let task = if class == WriteClass::QueueStatus {
                match self.take_queue_status(now, under_load) {
                    Ok(write) => write.map(Task::Write),
                    Err(wait) => {
                        end = NextTask::Wait(wait);
                        None
                    }
                }
            } else {
                self.take(class)
            };
            if let Some(task) = task {
                self.turn = self.turn.saturating_add(1).checked_rem(TURNS.len()).unwrap_or_default();
                let calls = self.in_flight.entry(task.target()).or_default();
                *calls = calls.saturating_add(1);
                return NextTask::Start(task);
            }
        }
        end
    }

    /// Removes and returns the next task of a class. Earlier tasks whose object has a call in flight are set aside until it
    /// ends.
    fn take(&mut self, class: WriteClass) -> Option<Task> {
        while let Some((place, task)) = self.waiting.take_first(class) {
            let target = task.target();
            let bypasses = matches!(&task, Task::Write(write) if write.bypasses_in_flight);
            if bypasses || !self.in_flight.contains_key(&target) {
                return Some(task);
            }
            self.blocked.entry(target).or_default().push((place, task));
        }
        None
    }

    /// Removes and returns the oldest status of a queue without a call in flight, or the time until the rate limit allows it.
    fn take_queue_status(&mut self, now: Duration, under_load: bool) -> Result<Option<Write>, Duration> {
        let next = self
            .queue_statuses
            .iter()
            .find(|(_, write)| !self.in_flight.contains_key(&(write.kind, write.key.clone())));
        let Some(position) = next.map(|(position, _)| *position) else { return Ok(None) };
        if !self.rate_limiter.try_acquire(now, under_load) {
            return Err(self.rate_limiter.time_until_available(under_load));
        }
        let write = self.queue_statuses.remove(&position);
        if let Some(write) = &write {
            self.positions.remove(&(write.kind, write.key.clone()));
        }
        Ok(write)
    }

    /// Records that a call on this object finished, and unblocks its waiting tasks if it was the last one in flight.
    pub fn task_finished(&mut self, target: &TaskTarget) {
        if let Some(calls) = self.in_flight.get_mut(target).filter(|calls| **calls > 1) {
            *calls = calls.saturating_sub(1);
            return;
        }
        self.in_flight.remove(target);
        for (place, task) in self.blocked.remove(target).into_iter().flatten() {
            self.waiting.put_back(place, task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::Verb;
    use proptest::prelude::*;

    fn write(id: u64, name: &str, background: bool) -> Task {
        write_in("ns", id, name, if background { WriteClass::QueueStatus } else { WriteClass::Other })
    }

    fn write_in(namespace: &str, id: u64, name: &str, class: WriteClass) -> Task {
        Task::Write(Write {
            id,
            kind: Kind::Workload,
            key: ObjectKey::new(namespace, name),
            verb: Verb::Merge,
            subresource: None,
            body: serde_json::Value::Null,
            status: None,
            response_metadata_only: false,
            class,
            bypasses_in_flight: false,
        })
    }

    fn id(next: NextTask) -> Option<u64> {
        match next {
            NextTask::Start(Task::Write(write)) => Some(write.id),
            _ => None,
        }
    }

    #[test]
    fn one_task_per_object_runs_in_order() {
        let mut queue = TaskQueue::new(30.0, Duration::ZERO);
        for (number, name) in [(1, "a"), (2, "a"), (3, "b"), (4, "a")] {
            queue.push(write(number, name, false));
        }
        assert_eq!(id(queue.next(Duration::ZERO, false)), Some(1));
        assert_eq!(id(queue.next(Duration::ZERO, false)), Some(3));
        assert_eq!(queue.next(Duration::ZERO, false), NextTask::Idle);
        let target = (Kind::Workload, ObjectKey::new("ns", "a"));
        queue.task_finished(&target);
        assert_eq!(id(queue.next(Duration::ZERO, false)), Some(2));
        queue.task_finished(&target);
        assert_eq!(id(queue.next(Duration::ZERO, false)), Some(4));
    }

    #[test]
    fn bypassing_write_does_not_wait() {
        let mut queue = TaskQueue::new(30.0, Duration::ZERO);
        queue.push(write(1, "a", false));
        let Task::Write(bypassing) = write(2, "a", false) else { panic!("a write") };
        queue.push(Task::Write(Write { bypasses_in_flight: true, ..bypassing }));
        queue.push(write(3, "a", false));
        assert_eq!(id(queue.next(Duration::ZERO, false)), Some(1));
        assert_eq!(id(queue.next(Duration::ZERO, false)), Some(2));
        assert_eq!(queue.next(Duration::ZERO, false), NextTask::Idle);
    }

    #[test]
    fn end_of_bypassing_write_does_not_unblock_others() {
        let mut queue = TaskQueue::new(30.0, Duration::ZERO);
        let target = (Kind::Workload, ObjectKey::new("ns", "a"));
        queue.push(write(1, "a", false));
        let Task::Write(bypassing) = write(2, "a", false) else { panic!("a write") };
        queue.push(Task::Write(Write { bypasses_in_flight: true, ..bypassing }));
        queue.push(write(3, "a", false));
        queue.push(write(4, "a", true));
        assert_eq!(id(queue.next(Duration::ZERO, false)), Some(1));
        assert_eq!(id(queue.next(Duration::ZERO, false)), Some(2));
        assert_eq!(queue.next(Duration::ZERO, false), NextTask::Idle);
        queue.task_finished(&target);
        assert_eq!(queue.next(Duration::ZERO, false), NextTask::Idle, "one of both is still in flight");
        queue.task_finished(&target);
        assert_eq!(id(queue.next(Duration::ZERO, false)), Some(3));
        queue.task_finished(&target);
        assert_eq!(id(queue.next(Duration::ZERO, false)), Some(4));
    }

    #[test]
    fn background_tasks_run_oldest_first_latest_content() {
        let mut queue = TaskQueue::new(1.0, Duration::ZERO);
        for (number, name) in [(1, "a"), (2, "b"), (3, "a")] {
            queue.push(write(number, name, true));
        }
        queue.push(write(9, "c", false));
        assert_eq!(id(queue.next(Duration::ZERO, false)), Some(9), "foreground first");
        assert_eq!(id(queue.next(Duration::ZERO, false)), Some(3), "position of 1, content of 3");
        let NextTask::Wait(wait) = queue.next(Duration::ZERO, false) else {
            panic!("rate limit must be exhausted")
        };
        assert_eq!(id(queue.next(wait, false)), Some(2));
        assert_eq!(queue.next(wait, false), NextTask::Idle);
    }

    #[test]
    fn background_rate_drops_under_load() {
        let mut queue = TaskQueue::new(20.0, Duration::ZERO);
        for number in 0..100 {
            queue.push(write(number, &format!("w{number}"), true));
        }
        let mut sent = |from: u64, under_load: bool| {
            (from..from + 1000)
                .filter(|ms| id(queue.next(Duration::from_millis(*ms), under_load)).is_some())
                .count()
        };
        assert_eq!(sent(0, true), 2, "a burst of 1, then 2 per second");
        assert!((19..=40).contains(&sent(1000, false)));
    }

    const CLASSES: [WriteClass; 3] = [WriteClass::Quota, WriteClass::Other, WriteClass::Explanation];

    #[test]
    fn burst_of_one_namespace_delays_no_admission_of_another() {
        let mut queue = TaskQueue::new(30.0, Duration::ZERO);
        for number in 0..10_000 {
            queue.push(write_in("noisy", number, &format!("w{number}"), WriteClass::Other));
        }
        for number in 10_000..20_000 {
            queue.push(write_in("noisy", number, &format!("w{number}"), WriteClass::Quota));
        }
        let started = |queue: &mut TaskQueue| id(queue.next(Duration::ZERO, true));
        for _ in 0..100 {
            started(&mut queue);
        }
        queue.push(write_in("quiet", 20_000, "admission", WriteClass::Quota));
        queue.push(write_in("quiet", 20_001, "creation", WriteClass::Other));
        queue.push(write_in("quiet", 20_002, "reason", WriteClass::Explanation));
        let first: Vec<u64> = (0..20).filter_map(|_| started(&mut queue)).collect();
        let place = |number: u64| first.iter().position(|id| *id == number);
        assert!(place(20_000).is_some_and(|place| place < 4), "{first:?}");
        assert!(place(20_001).is_some_and(|place| place < 12), "{first:?}");
        assert!(place(20_002).is_some_and(|place| place < 8), "{first:?}");
    }

    #[test]
    fn most_urgent_tasks_start_first_while_calls_are_scarce() {
        let mut queue = TaskQueue::new(1000.0, Duration::ZERO);
        for number in 0..1000 {
            let class = CLASSES[usize::try_from(number % 3).unwrap()];
            queue.push(write_in("ns", number, &format!("w{number}"), class));
            queue.push(write_in("ns", number, &format!("q{number}"), WriteClass::QueueStatus));
        }
        let mut count = BTreeMap::new();
        for _ in 0..80 {
            let NextTask::Start(task) = queue.next(Duration::ZERO, false) else { panic!("tasks wait") };
            *count.entry(task.class()).or_insert(0) += 1;
        }
        assert_eq!(count.into_values().collect::<Vec<_>>(), [40, 20, 10, 10]);
    }

    proptest! {
        /// Each task starts once, none beside a call on its object, and nothing is idle while a task can start.
        #[test]
        fn every_task_starts_once(
            steps in proptest::collection::vec((0_u8..4, 0_u8..3, 0_u8..3, 0_u8..3), 1..300),
        ) {
            let mut queue = TaskQueue::new(30.0, Duration::ZERO);
            let (mut pushed, mut started) = (0_u64, Vec::new());
            let mut running: Vec<TaskTarget> = Vec::new();
            for (kind, namespace, name, class) in steps {
                if kind < 2 {
                    let class = CLASSES[usize::from(class)];
                    queue.push(write_in(&format!("n{namespace}"), pushed, &format!("w{name}"), class));
                    pushed += 1;
                } else if kind == 2 && let NextTask::Start(task) = queue.next(Duration::ZERO, false) {
                    prop_assert!(!running.contains(&task.target()), "{task:?}");
                    running.push(task.target());
                    started.extend(id(NextTask::Start(task)));
                } else if let Some(target) = running.pop() {
                    queue.task_finished(&target);
                }
            }
            loop {
                while let Some(target) = running.pop() {
                    queue.task_finished(&target);
                }
                let NextTask::Start(task) = queue.next(Duration::ZERO, false) else { break };
                running.push(task.target());
                started.extend(id(NextTask::Start(task)));
            }
            started.sort_unstable();
            prop_assert_eq!(started, (0..pushed).collect::<Vec<_>>());
        }

        /// Whatever else waits and comes, a task starts within eight starts for each task of its class that starts before it.
        #[test]
        fn wait_is_bounded(
            before in proptest::collection::vec((0_u8..5, 0_usize..3), 0..200),
            class in 0_usize..3,
        ) {
            let mut queue = TaskQueue::new(30.0, Duration::ZERO);
            let mut number = 0;
            let mut push = |queue: &mut TaskQueue, namespace: &str, class: usize| {
                number += 1;
                queue.push(write_in(namespace, number, &format!("w{number}"), CLASSES[class]));
                number
            };
            for (namespace, class) in &before {
                push(&mut queue, &format!("n{namespace}"), *class);
            }
            let own = push(&mut queue, "own", class);
            let others = before.iter().filter(|(_, other)| *other == class).map(|(namespace, _)| namespace);
            let turns = others.collect::<std::collections::BTreeSet<_>>().len() + 1;
            let mut found = false;
            for _ in 0..turns * TURNS.len() {
                found |= id(queue.next(Duration::ZERO, true)) == Some(own);
                // A stream of urgent writes.
                push(&mut queue, "n0", 0);
                push(&mut queue, "n1", 0);
            }
            prop_assert!(found, "not within {turns} turns");
        }
    }
}
