//! Integration tests of the library, in one binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a helper fails its test; skipped tests print a line"
)]

mod batch_job_status;
mod blocked_pods;
mod changed_roles;
mod charged_usage;
mod chart;
mod client_certificates;
mod configure;
mod core_fixture;
mod core_gates;
mod core_settings;
mod crds;
mod dockerfile;
mod elastic_clusters;
mod elastic_gates;
mod elastic_slices;
mod end_to_end_cases;
mod events_and_observations;
mod every_job_kind;
mod every_kind_bad_input;
mod fake_api;
mod feature_gates;
mod finalizers;
mod foreign_members;
mod framework_file;
mod framework_manifests;
mod framework_rows;
mod job_kind_contracts;
mod job_samples;
mod job_server;
mod job_workload;
mod kueue_takeover;
mod kustomize_output;
mod laws;
mod layering;
mod manifest_permissions;
mod manifests;
mod many_pods;
mod metrics;
mod monitoring;
mod monitoring_queries;
mod pod_bad_input;
mod pod_below_pod;
mod pod_requests;
mod pod_template;
mod pods_of_other_workloads;
mod priority;
mod queue_status;
mod recorded_conversions;
mod recorded_lives;
mod recorded_reviews;
mod recorded_tables;
mod reference_data;
mod related_objects;
mod released_pods;
mod released_quota;
mod resized_pods;
mod running_children;
mod scaled_sets;
mod serving_groups;
mod shell_api_services;
mod shell_certificate_rotation;
mod shell_client_verifier;
mod shell_debug;
mod shell_definition_check;
mod shell_executor;
mod shell_hostile_clients;
mod shell_lease;
mod shell_metrics;
mod shell_rbac_check;
mod shell_retiring_listener;
mod shell_serving_certificate;
mod shell_tls_listener;
mod shell_visibility;
mod shell_watch;
mod sim;
mod simulate_amounts;
mod simulate_changes;
mod simulate_cluster;
mod simulate_command;
mod simulate_elastic;
mod simulate_every_kind;
mod simulate_job_order;
mod simulate_manifests;
mod simulate_messages;
mod simulate_refusals;
mod simulate_replay;
mod simulate_without_workload;
mod stored_objects;
mod template_defaults;
mod terminating_pods;
mod topology;
mod train_jobs;
mod unit_pods;
mod unit_ray;
mod unit_sets;
mod unreviewed_workloads;
mod vocabulary;
mod waiting_heads;
