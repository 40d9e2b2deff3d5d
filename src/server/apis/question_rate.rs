//! Rate limit of questions that cost the core time.
//!
//! Invariants: each user has a rate of its own, so that no user can use up the rate of others; the sum over all users is
//! bounded too; the memory for users is bounded.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Questions of one user in a second.
const PER_USER: u32 = 20;
/// Questions of all users in a second.
const TOTAL: u32 = 100;
/// Length of the interval in which questions are counted.
const WINDOW: Duration = Duration::from_secs(1);
/// Most users that are counted in a window; more than `TOTAL` admits.
const MAX_USERS: usize = 1_024;

/// Counts the questions of the current second.
#[derive(Debug)]
pub struct QuestionRate(Mutex<Window>);

#[derive(Debug)]
struct Window {
    began: Instant,
    total: u32,
    by_user: BTreeMap<String, u32>,
}

impl Default for QuestionRate {
    fn default() -> Self {
        Self(Mutex::new(Window { began: Instant::now(), total: 0, by_user: BTreeMap::new() }))
    }
}

impl QuestionRate {
    /// Counts a question of a user. Returns whether it may be asked.
    pub fn admits(&self, user: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).admits(user, Instant::now())
    }
}

impl Window {
    fn admits(&mut self, user: &str, now: Instant) -> bool {
        if now.saturating_duration_since(self.began) >= WINDOW {
            (self.began, self.total) = (now, 0);
            self.by_user.clear();
        }
        if self.total >= TOTAL || (self.by_user.len() >= MAX_USERS && !self.by_user.contains_key(user)) {
            return false;
        }
        let count = self.by_user.entry(user.to_owned()).or_default();
        if *count >= PER_USER {
            return false;
        }
        *count = count.saturating_add(1);
        self.total = self.total.saturating_add(1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_all_together_have_a_rate() {
        let began = Instant::now();
        let mut window = Window { began, total: 0, by_user: BTreeMap::new() };
        let mut admitted = |user: &str, now| (0..50).filter(|_| window.admits(user, now)).count();
        assert_eq!(admitted("ann", began), 20);
        assert_eq!(admitted("bob", began), 20, "another user is not affected");
        let others: usize = (0..10).map(|number| admitted(&format!("u{number}"), began)).sum();
        assert_eq!(others, 60, "all together have 100");
        assert_eq!(admitted("ann", began + WINDOW), 20);
    }
}
