//! What others call: webhooks, health, metrics.
//!
//! Invariants: handlers only read published values; no handshake, header or body of one client holds up another; a
//! drain always ends.
#![allow(clippy::disallowed_methods, reason = "the shell reads clocks and starts tasks")]

pub mod accept;
mod bodies;
pub mod callers;
pub mod health;
pub mod metrics;
mod seats;
pub mod tls;
mod verdicts;
pub mod webhooks;
