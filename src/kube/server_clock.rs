//! Estimates the API server's clock from the `Date` headers of its responses.
//!
//! Invariant: between two responses the estimate advances with the monotonic clock, so that a wrong wall clock of this node, or
//! a change of it, has no effect.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use ::kube::client::DynBody;
use http::Response;
use http::header::DATE;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};

use crate::lifecycle::skew::ClockSkew;

/// Clock difference that is logged. Slow networks stay below it.
const LOG_THRESHOLD: SignedDuration = SignedDuration::from_secs(10);
/// Least difference between wall clock and monotonic clock that counts as a step.
const LEAST_STEP: SignedDuration = SignedDuration::from_secs(1);

/// Estimate of the API server's clock, shared by all clients.
#[derive(Debug)]
pub struct ServerClock {
    /// Wall clock at the origin of the monotonic clock.
    began: Timestamp,
    origin: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    skew: ClockSkew,
    logged: bool,
}

impl Default for ServerClock {
    fn default() -> Self {
        Self::starting_at(Timestamp::now())
    }
}

impl ServerClock {
    /// Creates a clock without a response, at this time of the wall clock.
    pub fn starting_at(began: Timestamp) -> Self {
        Self { began, origin: Instant::now(), state: Mutex::default() }
    }

    /// Returns the wall clock of the start plus the monotonic time since, unaffected by later changes of the wall clock.
    fn steady(&self) -> Timestamp {
        self.began.saturating_add(self.origin.elapsed()).unwrap_or(self.began)
    }

    /// Records the `Date` header of a response, if it has a valid one.
    pub(super) fn record_response(&self, response: &Response<Box<DynBody>>) {
        if let Some(date) = date_of(response) {
            self.observe(date);
        }
    }

    /// Records a `Date` header received now. Logs when the difference becomes large or small.
    pub fn observe(&self, date: Timestamp) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.skew.observe(date, self.steady());
        let ahead = self.ahead_of(&state);
        if ahead.abs() >= LOG_THRESHOLD && !state.logged {
            state.logged = true;
            tracing::warn!(
                seconds = ahead.as_secs_f64(),
                "the local clock differs from the API server's (positive: ahead); decisions, history and certificates use \
                 the API server's time; synchronize the local clock"
            );
        } else if state.logged && ahead.abs() < LOG_THRESHOLD / 2 {
            state.logged = false;
            tracing::info!("the local clock agrees with the API server's again");
        }
    }

    fn ahead_of(&self, state: &State) -> SignedDuration {
        let step = Timestamp::now().duration_since(self.steady());
        let step = if step.abs() < LEAST_STEP { SignedDuration::ZERO } else { step };
        state.skew.ahead().saturating_add(step)
    }

    /// Returns how far the local clock is ahead of the API server's; `None` before the first response.
    pub fn ahead(&self) -> Option<SignedDuration> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.skew.is_known().then(|| self.ahead_of(&state))
    }

    /// Returns whether a response has had a valid `Date` header.
    pub fn is_known(&self) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).skew.is_known()
    }

    /// Returns the estimated time at the API server; that of the local clock before the first response.
    pub fn now(&self) -> Timestamp {
        let (now, state) = (self.steady(), self.state.lock().unwrap_or_else(PoisonError::into_inner));
        now.saturating_sub(state.skew.ahead()).unwrap_or(now)
    }
}

/// Returns the time in the `Date` header of a response, if it has a valid one.
pub(super) fn date_of<B>(response: &Response<B>) -> Option<Timestamp> {
    let date = response.headers().get(DATE).and_then(|value| value.to_str().ok())?;
    DateTimeParser::new().parse_timestamp(date).ok()
}
