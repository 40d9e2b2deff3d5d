//! Seeded simulation of the core against a fake API server. A failing seed is printed and can be replayed.

mod clock_steps;
mod dump;
mod ended_rights;
mod foreign_writers;
mod gates;
mod history;
mod inspection;
mod invalid_topology;
mod late_check_states;
mod laws;
mod lazy_decoding;
mod node_replacement;
mod partial_admission;
mod pod_ownership;
mod pods_ready_gate;
mod preemption;
mod provisioning;
mod published_order;
mod reclaimed_pods;
mod second_pass;
mod stale_reads;
mod topology;
mod user_edits;
mod workload_owners;
mod world;
mod write_backpressure;
