//! Estimates the API server's clock from the `Date` headers of its responses.

use std::sync::{Mutex, PoisonError};

use ::kube::client::DynBody;
use http::Response;
use http::header::DATE;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};

use crate::lifecycle::skew::ClockSkew;

/// Clock difference that is logged. Slow networks stay below it.
const LOG_THRESHOLD: SignedDuration = SignedDuration::from_secs(10);

/// Estimate of the API server's clock, shared by all clients.
#[derive(Debug, Default)]
pub struct ServerClock(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    skew: ClockSkew,
    logged: bool,
}

impl ServerClock {
    /// Records the `Date` header of a response, if it has a valid one.
    pub(super) fn record_response(&self, response: &Response<Box<DynBody>>) {
        let date = response.headers().get(DATE).and_then(|value| value.to_str().ok());
        if let Some(date) = date.and_then(|text| DateTimeParser::new().parse_timestamp(text).ok()) {
            self.observe(date, Timestamp::now());
        }
    }

    /// Records a `Date` header received when the local clock showed `now`. Logs when the difference becomes large or small.
    pub fn observe(&self, date: Timestamp, now: Timestamp) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.skew.observe(date, now);
        let ahead = state.skew.ahead();
        if ahead.abs() >= LOG_THRESHOLD && !state.logged {
            state.logged = true;
            tracing::warn!(
                seconds = ahead.as_secs_f64(),
                "the local clock differs from the API server's (positive: ahead); certificates use the API server's \
                 time; synchronize the local clock"
            );
        } else if state.logged && ahead.abs() < LOG_THRESHOLD / 2 {
            state.logged = false;
            tracing::info!("the local clock agrees with the API server's again");
        }
    }

    /// Returns how far the local clock is ahead of the API server's; `None` before the first response.
    pub fn ahead(&self) -> Option<SignedDuration> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.skew.is_known().then(|| state.skew.ahead())
    }

    /// Returns the estimated time at the API server.
    pub fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        now.saturating_sub(self.ahead().unwrap_or_default()).unwrap_or(now)
    }
}
