//! HTTP servers: webhooks, health, metrics, aggregated API groups.
//!
//! Invariants: handlers only read published values; no handshake, header or body of one client delays another client; a
//! drain always ends.
#![allow(clippy::disallowed_methods, reason = "the shell reads clocks and starts tasks")]

pub mod apis;
pub mod authorizer;
mod body_budget;
pub mod bounded_work;
pub mod client_verifier;
mod connection_slots;
pub mod dashboard;
pub mod debug;
mod decision_cache;
pub mod health;
pub mod listener;
pub mod metrics;
pub mod shared_answers;
pub mod simulations;
pub mod tls;
pub mod user_authorizer;
pub mod webhooks;
