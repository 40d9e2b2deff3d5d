//! Work on request that takes long, such as a simulation: bounded for each user and in all, on threads of the lowest priority.
//!
//! Invariants: a user has one piece of work at a time, and all users together `total`, also when the client of one is gone; work is
//! asked to stop after a time of its own thread's CPU, and after a time; an answer is kept for exactly its key, a failure is not.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::shared_answers::SharedAnswers;

/// Most answers that are kept.
const MAX_KEPT: usize = 64;

/// Bounds of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkLimits {
    /// Number of pieces of work of all users at a time.
    pub total: usize,
    /// CPU time of one.
    pub cpu: Duration,
    /// Time of one: a thread of the lowest priority may get no CPU.
    pub time: Duration,
    /// How long an answer is kept.
    pub kept: Duration,
}

impl Default for WorkLimits {
    fn default() -> Self {
        Self {
            total: 2,
            cpu: Duration::from_secs(3),
            time: Duration::from_secs(20),
            kept: Duration::from_secs(30),
        }
    }
}

/// Why work was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoWork {
    /// The user has work that has not ended.
    #[error("your last question is still being computed")]
    UserBusy,
    /// Others have all that may be computed at a time.
    #[error("too many questions are being computed")]
    AllBusy,
    /// The thread could not be started, or has failed.
    #[error("the answer could not be computed")]
    Failed,
}

/// The time that a piece of work has left. To be asked on the thread of the work.
#[derive(Clone, Copy, Debug)]
pub struct WorkTime {
    cpu: Duration,
    end: Instant,
}

impl WorkTime {
    /// Returns the time of work that begins now, on this thread.
    pub fn of(limits: &WorkLimits) -> Self {
        let now = Instant::now();
        Self {
            cpu: thread_cpu().saturating_add(limits.cpu),
            end: now.checked_add(limits.time).unwrap_or(now),
        }
    }

    /// Returns whether the work may continue.
    pub fn is_left(&self) -> bool {
        Instant::now() < self.end && thread_cpu() < self.cpu
    }
}

/// Runs work within bounds, and keeps its answers.
#[derive(Debug)]
pub struct BoundedWork<T> {
    limits: WorkLimits,
    /// Users whose work has not ended.
    running: Arc<Mutex<BTreeSet<String>>>,
    kept: SharedAnswers<T>,
}

impl<T: Clone + Send + 'static> BoundedWork<T> {
    /// Returns the bounds, without any work.
    pub fn new(limits: WorkLimits) -> Self {
        Self { limits, running: Arc::default(), kept: SharedAnswers::for_time(limits.kept).at_most(MAX_KEPT) }
    }

    /// Returns work with answers of another type that counts with this one: a user has one piece of both together.
    pub fn sharing<U: Clone + Send + 'static>(&self) -> BoundedWork<U> {
        BoundedWork { running: Arc::clone(&self.running), ..BoundedWork::new(self.limits) }
    }

    /// Returns the kept answer of a key, or the one that `make` makes, which begins work only when it is needed. The key must hold the
    /// access of the user.
    ///
    /// # Errors
    /// `make` fails.
    pub async fn kept<E>(&self, key: String, make: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.kept.get(key, make).await
    }

    /// Counts a piece of work of a user, which is then to be run.
    ///
    /// # Errors
    /// The user, or all users together, have as much work as they may.
    pub fn begin(&self, user: &str) -> Result<Turn, NoWork> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.contains(user) {
            return Err(NoWork::UserBusy);
        }
        if running.len() >= self.limits.total {
            return Err(NoWork::AllBusy);
        }
        running.insert(user.to_owned());
        let counted = Counted { running: Arc::clone(&self.running), user: user.to_owned() };
        Ok(Turn { limits: self.limits, counted })
    }
}

/// Counts a user's work until it is dropped.
#[derive(Debug)]
struct Counted {
    running: Arc<Mutex<BTreeSet<String>>>,
    user: String,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.user);
    }
}

/// A counted piece of work that has not begun.
#[derive(Debug)]
pub struct Turn {
    limits: WorkLimits,
    counted: Counted,
}

impl Turn {
    /// Does the work on a thread of its own. It counts until it ends, also if the caller does not wait for that.
    ///
    /// # Errors
    /// The thread cannot be started, or the work panics.
    pub async fn run<R: Send + 'static>(
        self,
        work: impl FnOnce(&WorkTime) -> R + Send + 'static,
    ) -> Result<R, NoWork> {
        let Self { limits, counted } = self;
        let (sender, result) = oneshot::channel();
        let run = move || {
            lower_priority();
            let done = work(&WorkTime::of(&limits));
            // Before the answer, so that the user may ask the next question at once.
            drop(counted);
            // The caller may be gone.
            let _ = sender.send(done);
        };
        std::thread::Builder::new().name("long work".to_owned()).spawn(run).map_err(|_| NoWork::Failed)?;
        result.await.map_err(|_| NoWork::Failed)
    }
}

/// Gives this thread the lowest priority, so that the core and reviews come first.
fn lower_priority() {
    // Elsewhere the call changes the priority of the whole process.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(19) {
        tracing::debug!(%error, "a thread keeps its priority");
    }
}

/// Returns the CPU time of this thread.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    fn short() -> WorkLimits {
        WorkLimits { cpu: Duration::from_mins(1), time: Duration::from_mins(1), ..WorkLimits::default() }
    }

    #[test]
    fn a_user_has_one_and_all_have_two() {
        let work = BoundedWork::<u32>::new(short());
        let own = work.begin("a").unwrap();
        assert_eq!(work.begin("a").err(), Some(NoWork::UserBusy));
        let other = work.begin("b").unwrap();
        assert_eq!(work.begin("c").err(), Some(NoWork::AllBusy));
        drop(own);
        assert!(work.begin("c").is_ok(), "a turn that is dropped counts no longer");
        assert_eq!(
            work.sharing::<String>().begin("b").err(),
            Some(NoWork::UserBusy),
            "answers of both types"
        );
        drop(other);
        assert!(work.running.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn work_counts_until_it_ends_although_nothing_waits_for_it() {
        let work = BoundedWork::<u32>::new(short());
        let (release, released) = mpsc::channel::<()>();
        let mut running = Box::pin(work.begin("a").unwrap().run(move |_| released.recv().is_ok()));
        assert!(futures::poll!(&mut running).is_pending());
        drop(running);
        assert_eq!(work.begin("a").err(), Some(NoWork::UserBusy));
        release.send(()).unwrap();
        let begun = Instant::now();
        while work.begin("a").is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30), "the work does not end");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn work_is_asked_to_stop_after_cpu_and_after_time() {
        let spin = |time: &WorkTime| {
            let mut rounds = 0_u64;
            while time.is_left() {
                rounds = rounds.wrapping_add(1);
            }
            rounds
        };
        let cpu = WorkLimits { cpu: Duration::from_millis(20), ..short() };
        assert!(BoundedWork::<u64>::new(cpu).begin("a").unwrap().run(spin).await.unwrap() > 0);
        let wait = |time: &WorkTime| {
            while time.is_left() {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let limits = WorkLimits { time: Duration::from_millis(20), ..short() };
        BoundedWork::<u64>::new(limits).begin("a").unwrap().run(wait).await.unwrap();
    }

    #[tokio::test]
    async fn answers_are_kept_by_key_and_failures_are_not() {
        let (work, made) = (BoundedWork::<usize>::new(short()), Arc::new(AtomicUsize::new(0)));
        let ask = async |user: &str, key: &str, fails: bool| {
            let made = Arc::clone(&made);
            let count = move |_: &WorkTime| {
                let number = made.fetch_add(1, Ordering::SeqCst);
                if fails { Err(NoWork::Failed) } else { Ok(number) }
            };
            work.kept(key.to_owned(), async { work.begin(user)?.run(count).await? }).await
        };
        assert_eq!(ask("a", "x", true).await, Err(NoWork::Failed));
        assert_eq!(ask("a", "x", false).await, Ok(1));
        assert_eq!(ask("b", "x", false).await, Ok(1), "a key is one question, whichever user asks it");
        assert_eq!(ask("a", "y", false).await, Ok(2));
        let (user, other) = (work.begin("a").unwrap(), work.begin("b").unwrap());
        assert_eq!(ask("c", "x", false).await, Ok(1), "what is kept needs no work");
        assert_eq!(ask("c", "z", false).await, Err(NoWork::AllBusy));
        drop((user, other));
    }

    #[tokio::test]
    async fn a_panic_ends_the_work_alone() {
        let work = BoundedWork::<u32>::new(short());
        let failed = work.begin("a").unwrap().run(|_| -> u32 { panic!("on purpose") }).await;
        assert_eq!(failed, Err(NoWork::Failed));
        assert!(work.begin("a").is_ok());
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn work_has_the_lowest_priority_and_its_caller_has_not() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let before = priority();
        let found = BoundedWork::<i32>::new(short()).begin("a").unwrap().run(move |_| priority()).await;
        assert_eq!((found, priority()), (Ok(19), before));
    }
}
