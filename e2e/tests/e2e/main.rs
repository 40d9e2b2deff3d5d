//! End-to-end tests on one shared control plane with one manager. Parallel cases use their own namespace and queues;
//! serial cases, which replace the manager, inject faults or count all writes, run alone afterwards. `runner` executes
//! them.
//!
//! `cargo test -p sluice-e2e -- WORD...` runs the cases whose names contain a word; `--list` lists them.
#![expect(clippy::disallowed_methods, reason = "tests wait and run programs")]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a case may fail by panicking, and this harness prints"
)]

mod admission_checks;
mod background_jobs;
mod bench_load;
mod beside_kueue;
mod burst;
mod certificates;
mod cohorts;
mod crashes;
mod debugging;
mod deep_queue;
mod definitions;
mod fixture;
mod history;
mod hostile_clients;
mod image;
mod infeasible_jobs;
mod installation;
mod interrupt;
mod invariants;
mod job_ends_during_stop;
mod job_lifecycle;
mod leader_election;
mod lost_writes;
mod manager_down;
mod manager_restarts;
mod memory_limit;
mod node_failures;
mod node_flaps;
mod outages;
mod partial_admission;
mod pods_ready_gate;
mod preemption;
mod provisioning;
mod queue_order;
mod rbac_changes;
mod recreated_queues;
mod rejected_writes;
mod runner;
mod runtime;
mod second_pass;
mod second_pass_crashes;
mod second_pass_guards;
mod second_pass_races;
mod shipped_manifests;
mod simulate_matches_cluster;
mod stale_api_server;
mod stop_policy;
mod topology;
mod uninstall;
mod unreadable_objects;
mod user_edits;
mod watch_faults;
mod webhook_serving;
mod write_counts;

use anyhow::{Result, ensure};
use futures::future::FutureExt as _;
use runner::{Case, CaseRunner, ParallelCase, SerialCase};
use sluice_e2e::signals;
use std::process::ExitCode;
use std::time::Instant;

macro_rules! cases {
    ($kind:ty: $($module:ident::$name:ident),* $(,)?) => {
        [$({
            let run: $kind = |cluster, fixture| $module::$name(cluster, fixture).boxed_local();
            (concat!(stringify!($module), "::", stringify!($name)), run)
        }),*]
    };
}

fn parallel_cases() -> Vec<Case<ParallelCase>> {
    cases![ParallelCase:
        job_lifecycle::job_runs_and_releases_quota,
        job_lifecycle::failed_job_releases_quota,
        job_lifecycle::bare_workload_is_admitted,
        job_lifecycle::jobs_deleted_in_every_state,
        queue_order::higher_priority_first,
        queue_order::priority_raised_while_pending,
        queue_order::strict_fifo_keeps_order,
        queue_order::best_effort_lets_smaller_pass,
        cohorts::siblings_share_full_parent,
        preemption::victims_end_at_different_times,
        preemption::lent_quota_is_reclaimed,
        partial_admission::job_shrinks_to_free_quota,
        provisioning::request_is_created_and_answered,
        topology::pods_land_on_assigned_nodes,
        topology::oversized_pod_affects_one_node,
        topology::deleted_node_is_replaced,
        node_failures::node_fails_under_victim,
        node_failures::two_nodes_of_workload_fail,
        infeasible_jobs::feasible_jobs_still_run,
        infeasible_jobs::missing_queue_appears_later,
        user_edits::edits_of_pending_job,
        user_edits::edits_of_running_job,
        user_edits::batch_user_is_restricted,
        stop_policy::missing_quota_is_zero,
        stop_policy::deactivate_and_reactivate,
        stop_policy::quota_kept_until_pods_end,
        stop_policy::hold_and_drain_cluster_queue,
        stop_policy::hold_and_drain_local_queue,
        stop_policy::quota_lowered_under_usage,
        admission_checks::check_turns_retry_then_rejected,
        recreated_queues::running_job_keeps_quota,
        crashes::concurrent_writer_keeps_conditions,
        simulate_matches_cluster::twelve_jobs_match_prediction,
        unreadable_objects::pod_template_schema_matches_server,
        unreadable_objects::large_objects_delay_no_others,
        unreadable_objects::too_large_workload_is_reported,
        rejected_writes::policy_forbids_manager_writes,
    ]
    .into()
}

fn serial_cases() -> Vec<Case<SerialCase>> {
    cases![SerialCase:
        write_counts::writes_and_events_per_job,
        crashes::manager_killed_at_every_step,
        manager_down::unmanaged_jobs_run,
        lost_writes::lost_late_duplicate_writes,
        job_ends_during_stop::job_ends_during_each_step,
        watch_faults::lost_late_duplicate_events,
        second_pass::races_with_workload_end,
        second_pass_guards::each_guard_is_effective,
        second_pass_crashes::manager_killed_mid_pass,
        node_failures::two_jobs_need_last_node,
        node_flaps::around_ungating,
        stale_api_server::manager_starts_on_stale_lists,
        rejected_writes::refused_writes_back_off,
        rbac_changes::permission_removed_and_restored,
        outages::etcd_stops_and_resumes,
        outages::etcd_writes_are_slow,
        outages::api_server_restarts_twice,
        outages::leader_loses_api_server,
        leader_election::lease_is_edited_by_hand,
        leader_election::two_replicas_act_concurrently,
        beside_kueue::lease_is_held_by_kueue,
        manager_restarts::killed_during_initial_lists,
        manager_restarts::killed_repeatedly_under_burst,
        memory_limit::killed_by_memory_limit,
        pods_ready_gate::admission_waits_for_ready_pods,
        crashes::leader_killed_then_paused,
        runtime::hung_core_is_replaced,
        runtime::lease_survives_hostile_clients,
        runtime::missing_permission_is_reported,
        debugging::dump_replays_cluster,
        debugging::state_level_and_queues,
        runtime::unknown_configuration_field_stops_start,
        certificates::rotation_under_load,
        webhook_serving::externally_managed_certificates,
        webhook_serving::only_api_server_is_answered,
        webhook_serving::other_namespace_installation,
        hostile_clients::good_clients_are_still_answered,
        image::manager_runs_in_image,
        shipped_manifests::deployment_runs_as_rendered,
        shipped_manifests::split_deployments_run_as_rendered,
        certificates::invalid_or_untrusted_certificate,
        unreadable_objects::undecodable_workload_blocks_no_others,
        definitions::missing_ones_are_awaited,
        definitions::older_ones_are_named,
        definitions::newer_ones_lose_nothing,
        uninstall::documented_commands_leave_nothing,
        interrupt::interrupted_demo_leaves_nothing,
        bench_load::small_baseline_load_completes,
        preemption::three_queues_reach_equal_shares,
        deep_queue::freed_capacity_is_refilled,
        // Before the burst, whose events are still being written for some time.
        write_counts::settled_cluster_writes_nothing,
        burst::thousand_jobs_over_three_levels,
    ]
    .into()
}

fn main() -> ExitCode {
    if let Err(error) = sluice_e2e::container::enter_if_asked() {
        println!("{error:#}");
        return ExitCode::FAILURE;
    }
    run_harness()
}

#[tokio::main]
async fn run_harness() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    if std::env::args().any(|word| word == "--list") {
        parallel_cases()
            .iter()
            .map(|case| case.0)
            .chain(serial_cases().iter().map(|case| case.0))
            .for_each(|name| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    match signals::interruptible(run(wanted).boxed_local()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(wanted: impl Fn(&str) -> bool) -> Result<()> {
    let begun = Instant::now();
    let mut runner = CaseRunner::default();
    let parallel: Vec<_> = parallel_cases().into_iter().filter(|case| wanted(case.0)).collect();
    let serial: Vec<_> = serial_cases().into_iter().filter(|case| wanted(case.0)).collect();
    let mut failed = runner.run_parallel(&parallel).await?;
    for case in &serial {
        failed.extend(runner.run_serial(*case).await?);
    }
    let (count, seconds) = (parallel.len() + serial.len(), begun.elapsed().as_secs_f64());
    println!("\n{count} cases, {} failed, {seconds:.1} s", failed.len());
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}
