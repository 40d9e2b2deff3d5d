//! The reconciler, fed with objects and answers one by one.

mod borrowed_history;
mod charged_usage;
mod elastic_gates;
mod events_and_observations;
mod finalizers;
mod gates;
mod job_workload;
mod left_workloads;
mod lost_pods;
mod lower_bounds;
mod queue_status;
mod related_objects;
mod released_quota;
mod settings;
mod unreadable_references;
mod waiting_heads;
mod workload_update_events;
