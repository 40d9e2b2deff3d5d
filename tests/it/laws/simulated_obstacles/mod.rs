//! What readers are told of pending workloads, put to the test by `simulate` on random clusters with topologies, checks and stopped queues.

mod changes;
mod clusters;
mod named;
mod stuck;
