//! Answers that are kept for a short time, so that concurrent equal questions cost one answer.
//!
//! Invariants: an answer is kept for exactly its key, which holds the access of the user; the number of kept answers is
//! bounded; of concurrent requests with one key, one makes the answer and the others wait for it; a failure is not kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Most kept answers by default.
const MAX_KEPT: usize = 256;

/// The last answer to a question; locked while it is made.
type Slot<T> = Arc<tokio::sync::Mutex<Option<(Instant, T)>>>;

/// Answers by key.
#[derive(Debug)]
pub struct SharedAnswers<T, K = String> {
    ttl: Duration,
    most: usize,
    kept: Mutex<BTreeMap<K, (Instant, Slot<T>)>>,
}

impl<T: Clone, K: Ord> SharedAnswers<T, K> {
    /// Returns a cache that keeps answers for this time.
    pub fn for_time(ttl: Duration) -> Self {
        Self { ttl, most: MAX_KEPT, kept: Mutex::default() }
    }

    /// Keeps at most this number of answers.
    #[must_use]
    pub fn at_most(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// Returns the kept answer of a key, or the one that `make` makes.
    ///
    /// # Errors
    /// `make` fails.
    pub async fn get<E>(&self, key: K, make: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let slot = self.slot(key);
        let mut known = slot.lock().await;
        if let Some((_, answer)) = known.as_ref().filter(|(made, _)| made.elapsed() < self.ttl) {
            return Ok(answer.clone());
        }
        let answer = make.await?;
        *known = Some((Instant::now(), answer.clone()));
        Ok(answer)
    }

    fn slot(&self, key: K) -> Slot<T> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= self.most && !kept.contains_key(&key) {
            kept.retain(|_, (asked, _)| asked.elapsed() < self.ttl);
            if kept.len() >= self.most {
                kept.clear();
            }
        }
        let empty = || (Instant::now(), Arc::new(tokio::sync::Mutex::new(None)));
        let (asked, slot) = kept.entry(key).or_insert_with(empty);
        *asked = Instant::now();
        Arc::clone(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn concurrent_requests_share_an_answer() {
        let made = AtomicUsize::new(0);
        let answers = SharedAnswers::for_time(Duration::from_mins(1));
        let ask = |key: &str| {
            answers.get(key.to_owned(), async {
                tokio::task::yield_now().await;
                Ok::<_, ()>(made.fetch_add(1, Ordering::SeqCst))
            })
        };
        let all = futures::future::join_all((0..50).map(|_| ask("a"))).await;
        assert!(all.iter().all(|answer| *answer == Ok(0)));
        assert_eq!(ask("b").await, Ok(1), "another key is another question");
        for key in 0..1_000 {
            ask(&key.to_string()).await.unwrap();
        }
        assert!(answers.kept.lock().unwrap().len() <= MAX_KEPT);
    }

    #[tokio::test]
    async fn old_answers_and_failures_are_not_used() {
        let answers = SharedAnswers::for_time(Duration::ZERO);
        assert_eq!(answers.get("a".to_owned(), async { Err(1) }).await, Err(1));
        assert_eq!(answers.get("a".to_owned(), async { Ok::<_, ()>(1) }).await, Ok(1));
        assert_eq!(answers.get("a".to_owned(), async { Ok::<_, ()>(2) }).await, Ok(2));
    }
}
