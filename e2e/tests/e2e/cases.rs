//! The table of cases: the tier in which each runs, what it needs, and about how long it takes.

use crate::fixture::Fixture;
use anyhow::Result;
use clap::ValueEnum;
use futures::future::{FutureExt as _, LocalBoxFuture};
use sluice_e2e::cluster::Cluster;
use std::fmt;

/// When a case runs. A run of all cases has those of `Core` and `Full`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tier {
    /// In `make test`: all that users do daily, and the guards of the four failures.
    Core,
    /// In `make test-all`: faults, load, and most of what `Core` samples.
    Full,
    /// In `make soak`: the longest matrices, and cases of other tiers whose faults last their whole time here and not a tenth of it.
    Soak,
    /// Only in `make upgrade`, which builds the earlier versions that wrote dumps.
    Older,
    /// Also in `make e2e KUBERNETES=1.33`: together they use each API that Sluice uses, in a few minutes.
    Versions,
}

/// A case that shares a control plane with others: it needs queues of its own.
pub(crate) type SharedCase = for<'a> fn(&'a Cluster, &'a Fixture) -> LocalBoxFuture<'a, Result<()>>;
/// A case that no other case may disturb.
pub(crate) type ExclusiveCase = for<'a> fn(&'a mut Cluster, &'a Fixture) -> LocalBoxFuture<'a, Result<()>>;

/// What a case needs, and the case.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// Queues of its own.
    Queues(SharedCase),
    /// A control plane of its own: it replaces the manager, injects faults or counts all writes.
    Plane(ExclusiveCase),
    /// A control plane of its own that serves all job kinds.
    Kinds(ExclusiveCase),
    /// The addresses of pods, which exist once: it runs the kubelet of the tests.
    Kubelet(ExclusiveCase),
    /// The whole machine: it needs both cores, or measures memory.
    Machine(ExclusiveCase),
}

/// A row of the table.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    /// Module and function.
    pub(crate) name: &'static str,
    /// `Core` or `Full`, then the others in which it runs also.
    pub(crate) tiers: &'static [Tier],
    /// Order of magnitude of its duration, from which the lanes get the longest case first.
    pub(crate) seconds: u32,
    pub(crate) work: Work,
}

macro_rules! cases {
    ($($tier:ident $(+ $also:ident)*, $needs:ident, $seconds:literal, $module:ident::$name:ident;)*) => {
        [$(Case {
            name: concat!(stringify!($module), "::", stringify!($name)),
            tiers: &[Tier::$tier $(, Tier::$also)*],
            seconds: $seconds,
            work: Work::$needs(|cluster, fixture| crate::$module::$name(cluster, fixture).boxed_local()),
        }),*]
    };
}

tokio::task_local! {
    /// Name of the case that is running, for `note`.
    pub(crate) static CASE_NAME: &'static str;
}

/// Prints a line of the running case, with its name: cases of several lanes print at once.
pub(crate) fn note(line: impl fmt::Display) {
    CASE_NAME.with(|name| println!("      {name}: {line}"));
}

/// The error of a case that this machine cannot run: the runner counts it apart from those that failed.
#[derive(Debug)]
pub(crate) struct NotRun(String);

impl NotRun {
    pub(crate) fn because(reason: impl fmt::Display) -> anyhow::Error {
        Self(reason.to_string()).into()
    }
}

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotRun {}

/// All cases.
pub(crate) const CASES: &[Case] = &cases! {
    Core + Versions, Queues, 4, job_lifecycle::job_runs_and_releases_quota;
    Core, Queues, 3, job_lifecycle::failed_job_releases_quota;
    Core, Queues, 2, job_lifecycle::bare_workload_is_admitted;
    Core + Versions, Queues, 24, job_lifecycle::jobs_deleted_in_every_state;
    Core + Versions, Queues, 4, job_lifecycle::prebuilt_workload_without_defaults;
    Core, Plane, 15, import::running_pods_are_imported;
    Core, Plane, 30, people::verbs_answer_and_act;
    Full, Plane, 24, migrate::rights_owners_and_namespaces;
    Core, Kinds, 20, job_kinds::each_served_kind_runs;
    Core, Plane, 45, framework_file::kind_of_a_file_is_queued;
    Core + Soak, Kinds, 40, ray_clusters::cluster_grows_and_shrinks_many_times;
    Core, Kinds, 45, kinds_on_nodes::ranks_and_resizes;
    Core, Kinds, 53, below_jobs::gates_are_removed_below_other_objects;
    Core, Plane, 33, pod_groups::groups_and_sets_under_a_full_queue;
    Core, Plane, 54, pod_group_crashes::manager_killed_between_any_two_writes;
    Core, Queues, 7, queue_order::higher_priority_first;
    Core, Queues, 5, queue_order::priority_raised_while_pending;
    Core, Queues, 27, queue_order::strict_fifo_keeps_order;
    Core, Queues, 5, queue_order::best_effort_lets_smaller_pass;
    Core, Queues, 3, cohorts::siblings_share_full_parent;
    Core + Soak + Versions, Queues, 28, preemption::victims_end_at_different_times;
    Core, Queues, 22, preemption::lent_quota_is_reclaimed;
    Core, Queues, 5, preemption::lowered_priority_is_preempted;
    Core + Versions, Queues, 5, partial_admission::job_shrinks_to_free_quota;
    Core + Versions, Queues, 10, elastic_jobs::job_grows_waits_shrinks_and_ends;
    Core + Versions, Queues, 24, provisioning::request_is_created_and_answered;
    Core + Versions, Queues, 27, topology::pods_land_on_assigned_nodes;
    Core, Queues, 30, topology::oversized_pod_affects_one_node;
    Core, Queues, 8, topology::unrelated_pod_is_not_ungated;
    Core + Versions, Queues, 24, topology::deleted_node_is_replaced;
    Core, Queues, 30, node_failures::node_fails_under_victim;
    Core, Queues, 34, node_failures::two_nodes_of_workload_fail;
    Core, Queues, 41, infeasible_jobs::feasible_jobs_still_run;
    Core, Queues, 1, infeasible_jobs::missing_queue_appears_later;
    Core + Versions, Queues, 2, user_edits::edits_of_pending_job;
    Core + Versions, Queues, 3, user_edits::edits_of_running_job;
    Core, Queues, 3, user_edits::workload_gets_its_owner_back;
    Core, Queues, 22, patch_forms::forms_of_an_edit_are_answered_alike;
    Core + Versions, Queues, 30, user_edits::resize_of_running_jobs;
    Core + Versions, Queues, 2, user_edits::batch_user_is_restricted;
    Core, Queues, 1, stop_policy::missing_quota_is_zero;
    Core, Queues, 5, stop_policy::deactivate_and_reactivate;
    Core, Queues, 2, stop_policy::quota_kept_until_pods_end;
    Core, Queues, 6, stop_policy::quota_kept_in_foreground_deletion;
    Core + Versions, Queues, 20, stop_policy::stops_leave_no_warning;
    Core, Queues, 5, stop_policy::hold_and_drain_cluster_queue;
    Core, Queues, 2, stop_policy::hold_and_drain_local_queue;
    Core, Queues, 29, stop_policy::quota_lowered_under_usage;
    Core + Versions, Queues, 5, admission_checks::check_turns_retry_then_rejected;
    Core, Queues, 29, recreated_queues::running_job_keeps_quota;
    Core, Queues, 7, crashes::concurrent_writer_keeps_conditions;
    Core + Versions, Queues, 72, simulate_matches_cluster::twelve_jobs_match_prediction;
    Core, Queues, 65, simulate_refusals::same_refusals_as_server;
    Core, Queues, 60, what_if_comes_true::changes_do_what_was_said;
    Core, Queues, 1, unreadable_objects::pod_template_schema_matches_server;
    Core, Queues, 4, charged_pods::server_makes_pods_as_recorded;
    Core + Versions, Queues, 24, unreadable_objects::large_objects_delay_no_others;
    Core, Plane, 9, unreadable_objects::too_large_workload_is_reported;
    Core + Soak + Versions, Queues, 24, rejected_writes::policy_forbids_manager_writes;
    Core, Plane, 9, write_counts::writes_and_events_per_job;
    Core, Plane, 12, write_counts::checks_of_other_field_managers;
    Core, Plane, 35, crashes::manager_killed_at_every_step;
    Core, Plane, 11, manager_down::unmanaged_jobs_run;
    Full, Plane, 12, without_webhooks::jobs_wait_without_webhooks;
    Full + Soak, Plane, 50, lost_writes::lost_late_duplicate_writes;
    Core, Plane, 17, job_ends_during_stop::job_ends_during_each_step;
    Soak, Plane, 350, watch_faults::lost_late_duplicate_events;
    Full, Plane, 108, watch_faults::one_fault_for_each_event;
    Core, Plane, 19, second_pass::one_race_for_each_interference;
    Soak, Plane, 140, second_pass::races_with_workload_end;
    Core, Plane, 18, second_pass_guards::each_guard_is_effective;
    Core, Plane, 40, second_pass_crashes::manager_killed_mid_pass;
    Core, Plane, 18, node_failures::two_jobs_need_last_node;
    Core, Plane, 30, node_flaps::around_ungating;
    Full + Soak, Plane, 20, stale_api_server::manager_starts_on_stale_lists;
    Full + Soak, Plane, 78, rejected_writes::refused_writes_back_off;
    Full + Soak, Plane, 43, rbac_changes::permission_removed_and_restored;
    Core, Plane, 12, rbac_changes::incomplete_framework_is_not_ready;
    Core + Soak, Plane, 20, outages::etcd_stops_and_resumes;
    Full + Soak, Plane, 25, outages::etcd_writes_are_slow;
    Full + Soak, Plane, 31, outages::api_server_restarts_twice;
    Full + Soak, Plane, 27, outages::leader_loses_api_server;
    Full + Soak, Plane, 60, leader_election::lease_is_edited_by_hand;
    Full, Plane, 45, leader_changes::back_off_and_reserved_capacity_are_kept;
    Full, Plane, 60, upgrades::states_are_kept_up_and_back;
    Core, Plane, 209, upgrade_dumps::dumps_are_taken_over;
    Soak, Plane, 60, upgrade_dumps::dumps_are_taken_over_after_definitions;
    Soak, Plane, 100, upgrade_dumps::states_are_written;
    Older, Plane, 180, upgrade_dumps::older_build_takes_over_again;
    Full + Soak, Plane, 28, leader_election::two_replicas_act_concurrently;
    Full, Plane, 48, beside_kueue::lease_is_held_by_kueue;
    Full + Soak, Plane, 39, manager_restarts::killed_during_initial_lists;
    Full + Soak, Plane, 34, manager_restarts::killed_repeatedly_under_burst;
    Full + Soak, Plane, 24, memory_limit::killed_by_memory_limit;
    Core, Plane, 19, pods_ready_gate::admission_waits_for_ready_pods;
    Full, Plane, 20, fair_admission::less_used_queue_goes_first;
    Full, Plane, 20, stops_between_writes::either_manager_finishes_it;
    Full, Plane, 204, components::each_one_starts;
    Core, Plane, 15, reload::times_and_log_level_follow_the_files;
    Core, Plane, 24, crashes::leader_killed_then_paused;
    Full, Plane, 28, runtime::hung_core_is_replaced;
    Full, Machine, 36, runtime::lease_survives_hostile_clients;
    Soak + Versions, Plane, 91, runtime::missing_permission_is_reported;
    Core, Plane, 7, debugging::dump_replays_cluster;
    Full, Kinds, 90, dump_of_kinds::every_kind_is_dumped_and_replayed;
    Core, Plane, 2, debugging::state_level_and_queues;
    Core, Plane, 1, runtime::unknown_configuration_field_stops_start;
    Full, Plane, 37, certificates::rotation_under_load;
    Full, Plane, 28, webhook_serving::externally_managed_certificates;
    Core, Plane, 11, webhook_serving::only_api_server_is_answered;
    Full, Plane, 23, webhook_serving::other_namespace_installation;
    Full, Plane, 77, two_installations::webhook_configurations_decide;
    Full, Machine, 88, hostile_clients::good_clients_are_still_answered;
    Soak, Machine, 120, live_switch::manifests_are_replaced_and_come_back;
    Soak, Machine, 120, live_switch::release_is_upgraded_and_back;
    Soak, Machine, 120, live_switch::release_of_helm_3_is_upgraded_and_back;
    Soak, Machine, 250, partitions::switch_meets_outages;
    Full, Kubelet, 58, image::manager_runs_in_image;
    Full + Versions, Machine, 141, shipped_manifests::deployment_runs_as_rendered;
    Full, Kubelet, 177, recorded_history::replicas_tell_what_happened;
    Full, Kubelet, 60, submitters::users_list_what_they_submitted;
    Full, Plane, 69, recorder::record_survives_its_process;
    Soak, Machine, 111, shipped_manifests::split_deployments_run_as_rendered;
    Core, Plane, 130, dashboard::is_a_process_of_its_own;
    Soak, Kubelet, 90, shipped_dashboard::dashboard_runs_as_rendered;
    Full + Versions, Kubelet, 60, visibility::pending_workloads_are_served;
    Soak, Kubelet, 60, visibility::split_deployments_serve;
    Full, Kubelet, 60, v1beta1::store_is_taken_over;
    Full, Kubelet, 80, v1beta1::split_deployments_take_over_a_store;
    Core, Plane, 38, certificates::invalid_or_untrusted_certificate;
    Core, Plane, 14, unreadable_objects::undecodable_workload_blocks_no_others;
    Full, Plane, 26, definitions::missing_ones_are_awaited;
    Full, Plane, 29, definitions::older_ones_are_named;
    Full, Plane, 47, definitions::newer_ones_lose_nothing;
    Full, Plane, 49, uninstall::documented_commands_leave_nothing;
    Full, Kubelet, 155, documented_commands::install_page_runs_as_printed;
    Full, Plane, 50, interrupt::interrupted_demo_leaves_nothing;
    Full, Plane, 133, bench_load::small_baseline_load_completes;
    Soak, Plane, 30, bench_ungating::small_run_completes;
    Core, Plane, 35, third_party::controller_keeps_contract;
    Soak, Plane, 80, third_party::broken_rules_are_named;
    Core, Plane, 35, workflows::three_workflows_share_small_quota;
    Core, Plane, 16, preemption::three_queues_reach_equal_shares;
    Core + Soak, Plane, 134, deep_queue::freed_capacity_is_refilled;
    Full, Plane, 69, write_counts::settled_cluster_writes_nothing;
    Soak, Machine, 90, burst::burst_is_deleted;
    Soak, Machine, 72, burst::thousand_jobs_over_three_levels;
};
