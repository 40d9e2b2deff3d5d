//! Capacity of flavors, asked of the core of this process at most once in five seconds for each question.
//!
//! Invariants: the number of kept answers is bounded; a follower answers from its own state.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::scheduler::{CapacityQuestion, CapacityReport};
use crate::server::shared_answers::SharedAnswers;
use crate::visibility::page::ModelError;

/// How long an answer is used.
const TTL: Duration = Duration::from_secs(5);
/// Most answers that are kept.
const MAX_KEPT: usize = 32;

/// Asks the core of this process.
pub trait AskCapacity: Send + Sync {
    /// Returns the capacity of flavors; `None` if too many questions wait.
    fn capacity(&self, question: CapacityQuestion) -> BoxFuture<'static, Option<CapacityReport>>;
}

/// The answers of the last seconds.
pub struct CapacityCache {
    core: Arc<dyn AskCapacity>,
    kept: SharedAnswers<Arc<CapacityReport>, CapacityQuestion>,
}

impl CapacityCache {
    /// Returns a cache in front of a core.
    pub fn new(core: Arc<dyn AskCapacity>) -> Self {
        Self { core, kept: SharedAnswers::for_time(TTL).at_most(MAX_KEPT) }
    }

    /// Returns the answer to a question.
    ///
    /// # Errors
    /// Too many questions wait.
    pub async fn get(&self, question: CapacityQuestion) -> Result<Arc<CapacityReport>, ModelError> {
        let asked = question.clone();
        let report = async { self.core.capacity(asked).await.map(Arc::new).ok_or(ModelError::TooMany) };
        self.kept.get(question, report).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Core(AtomicUsize);

    impl AskCapacity for Core {
        fn capacity(&self, _: CapacityQuestion) -> BoxFuture<'static, Option<CapacityReport>> {
            let asked = self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move { (asked < 2).then(CapacityReport::default) })
        }
    }

    #[tokio::test]
    async fn the_core_is_asked_once_for_each_question() {
        let cache = CapacityCache::new(Arc::new(Core::default()));
        let other = CapacityQuestion { flavor: Some(Arc::from("f")), ..CapacityQuestion::default() };
        for question in [CapacityQuestion::default(), CapacityQuestion::default(), other.clone(), other] {
            assert!(cache.get(question).await.is_ok());
        }
        let third = CapacityQuestion { flavor: Some(Arc::from("g")), ..CapacityQuestion::default() };
        assert_eq!(cache.get(third).await, Err(ModelError::TooMany));
    }
}
