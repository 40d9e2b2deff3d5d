//! Simulations: what is submitted, admitted and reported, and when.

mod amounts;
mod cluster;
mod elastic;
mod estimates;
mod every_kind;
mod job_order;
mod loaded_pods;
mod manifests;
mod messages;
mod outlived_runs;
mod refusals;
mod replay;
mod without_workload;
