//! Order of the executor's tasks: one per object at a time unless it bypasses, foreground first, background rate-limited.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::rate_limit::AdaptiveRateLimiter;
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::reconciler::Write;

/// The object that a task is about.
pub type TaskTarget = (Kind, ObjectKey);

/// A task of the executor.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// Write an object.
    Write(Write),
    /// Read an object.
    Refetch {
        /// Its kind.
        kind: Kind,
        /// Its key.
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
    foreground: VecDeque<Task>,
    background: BTreeMap<u64, Write>,
    /// Keys into `background`: a newer write of an object takes the position of the older one.
    positions: BTreeMap<TaskTarget, u64>,
    /// Tasks waiting for the call in flight on their object.
    blocked: BTreeMap<TaskTarget, VecDeque<Task>>,
    /// Number of calls in flight by object: more than one only if some bypass the others.
    in_flight: BTreeMap<TaskTarget, usize>,
    sequence: u64,
    rate_limiter: AdaptiveRateLimiter,
}

impl TaskQueue {
    /// Returns an empty queue with a rate limit for background writes, per second.
    pub fn new(background_rate: f64, now: Duration) -> Self {
        Self {
            foreground: VecDeque::new(),
            background: BTreeMap::new(),
            positions: BTreeMap::new(),
            blocked: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            sequence: 0,
            rate_limiter: AdaptiveRateLimiter::new(background_rate, background_rate.max(1.0), now),
        }
    }

    /// Adds a task.
    pub fn push(&mut self, task: Task) {
        match task {
            Task::Write(write) if write.background => {
                let target = (write.kind, write.key.clone());
                let position = *self.positions.entry(target).or_insert_with(|| {
                    self.sequence = self.sequence.wrapping_add(1);
                    self.sequence
                });
                self.background.insert(position, write);
            }
            task => self.foreground.push_back(task),
        }
    }

    /// Returns the next task whose object has no call in flight. Under load few background writes start, because they
    /// would slow down the others at the server.
    pub fn next(&mut self, now: Duration, under_load: bool) -> NextTask {
        while let Some(task) = self.foreground.pop_front() {
            let target = task.target();
            let bypasses = matches!(&task, Task::Write(write) if write.bypasses_in_flight);
            if bypasses || !self.in_flight.contains_key(&target) {
                self.task_started(target);
                return NextTask::Start(task);
            }
            self.blocked.entry(target).or_default().push_back(task);
        }
        let next = self
            .background
            .iter()
            .find(|(_, write)| !self.in_flight.contains_key(&(write.kind, write.key.clone())));
        let Some(position) = next.map(|(position, _)| *position) else {
            return NextTask::Idle;
        };
        if !self.rate_limiter.try_acquire(now, under_load) {
            return NextTask::Wait(self.rate_limiter.time_until_available(under_load));
        }
        let Some(write) = self.background.remove(&position) else {
            return NextTask::Idle;
        };
        let task = Task::Write(write);
        self.positions.remove(&task.target());
        self.task_started(task.target());
        NextTask::Start(task)
    }

    fn task_started(&mut self, target: TaskTarget) {
        let calls = self.in_flight.entry(target).or_default();
        *calls = calls.saturating_add(1);
    }

    /// Records that a call on this object finished, and unblocks its waiting tasks if it was the last one in flight.
    pub fn task_finished(&mut self, target: &TaskTarget) {
        if let Some(calls) = self.in_flight.get_mut(target).filter(|calls| **calls > 1) {
            *calls = calls.saturating_sub(1);
            return;
        }
        self.in_flight.remove(target);
        for task in self.blocked.remove(target).into_iter().flatten().rev() {
            self.foreground.push_front(task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconciler::Verb;

    fn write(id: u64, name: &str, background: bool) -> Task {
        Task::Write(Write {
            id,
            kind: Kind::Workload,
            key: ObjectKey::new("ns", name),
            verb: Verb::Merge,
            subresource: None,
            body: serde_json::Value::Null,
            status: None,
            response_metadata_only: false,
            background,
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
}
