//! The shell: clients and servers, leases, certificates, requests and answers.

mod api_services;
mod certificate_rotation;
mod client_verifier;
pub(crate) mod dashboard;
mod dashboard_rights;
mod debug;
mod definition_check;
mod estimates;
mod executor;
mod flavors;
mod history_views;
mod hostile_clients;
mod leader_call;
mod lease;
mod metrics;
mod observer_certificates;
mod partial_workloads;
mod rbac_check;
mod retiring_listener;
mod serving_certificate;
mod sinks;
mod tenant_views;
mod tls_listener;
mod user_names;
mod views;
mod visibility;
mod watch;
