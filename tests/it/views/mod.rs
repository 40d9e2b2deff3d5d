//! Views of what the core publishes.

mod audit;
mod audit_groups;
mod audit_stuck;
mod costs;
mod few_namespaces;
mod found_running;
mod full_nodes;
mod laws;
mod lost_workloads;
mod metrics;
mod metrics_of_lives;
mod obstacles;
mod obstacles_beside_pods;
mod past_usage_of_leaders;
mod pending_lists;
mod recent_lists;
mod remedies;
mod rows;
mod series_of_users;
mod submitters;
mod tenants;
mod unusable_queues;
mod upgrade_dumps;
mod verdict_lines;
mod verdicts;
