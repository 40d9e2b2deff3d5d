//! Answers that are kept for a short time, so that concurrent equal questions cost one answer.
//!
//! Invariants: an answer is kept for exactly its key, which holds the access of the user; the number of kept answers is
//! bounded; an answer that is too old is dropped at the next question, whatever that asks; of concurrent requests with one key, one makes
//! the answer and the others wait for it; a failure is not kept.

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
    kept: Mutex<BTreeMap<K, Slot<T>>>,
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
        kept.retain(|_, slot| self.is_needed(slot));
        if kept.len() >= self.most && !kept.contains_key(&key) {
            kept.clear();
        }
        Arc::clone(kept.entry(key).or_default())
    }

    /// Returns whether a slot is in use, or has an answer that is not too old.
    fn is_needed(&self, slot: &Slot<T>) -> bool {
        let is_current = |(made, _): &(Instant, T)| made.elapsed() < self.ttl;
        // A slot in use may have no answer yet, and concurrent requests wait for it.
        Arc::strong_count(slot) > 1
            || slot.try_lock().is_ok_and(|known| known.as_ref().is_some_and(is_current))
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

    #[tokio::test(start_paused = true)]
    async fn an_old_answer_is_dropped_at_the_next_question() {
        let answers = SharedAnswers::for_time(Duration::from_secs(30));
        let ask = async |key: &str| {
            let made = async { Ok::<_, ()>(Arc::new(key.to_owned())) };
            answers.get(key.to_owned(), made).await.unwrap()
        };
        let first = ask("a").await;
        tokio::time::advance(Duration::from_secs(29)).await;
        assert!(Arc::ptr_eq(&first, &ask("a").await), "it is used, and is not kept for longer by that");
        tokio::time::advance(Duration::from_secs(2)).await;
        ask("b").await;
        assert_eq!(Arc::strong_count(&first), 1, "nothing else has the answer");
        let kept: Vec<String> = answers.kept.lock().unwrap().keys().cloned().collect();
        assert_eq!(kept, ["b"]);
    }
}
