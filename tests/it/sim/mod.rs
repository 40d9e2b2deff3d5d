//! Seeded simulation of the core against a double of the API server. A failing seed is printed and replays.

mod ahead;
mod bad_topology;
mod clock_steps;
mod echoes;
mod late_answers;
mod laws;
mod passes;
mod preemption;
mod provisioning;
mod readiness;
mod replacement;
mod topology;
mod watched;
mod world;
