//! What readers are told of pending workloads, put to the test by `simulate` on random clusters with topologies, checks,
//! stopped queues, and pods of Jobs and others on the nodes.

mod changes;
mod clusters;
mod jobs;
mod named;
mod stuck;
