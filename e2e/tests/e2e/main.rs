//! End-to-end tests: all cases share one control plane with one manager. Most run side by side, each in a namespace and
//! queues of its own; those that take the manager away or count what everybody writes run alone afterwards.
//!
//! `cargo test -p sluice-e2e -- WORD...` runs the cases whose names contain a word; `--list` lists them.
#![expect(clippy::disallowed_methods, reason = "tests wait and run programs")]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a case fails by panicking as well as by an error, and this harness prints"
)]

mod absent;
mod again;
mod bad_items;
mod between;
mod burst;
mod certificates;
mod checks;
mod cohorts;
mod crashes;
mod deaths;
mod deep;
mod edge;
mod edits;
mod ending;
mod faults;
mod ground;
mod guards;
mod harm;
mod history;
mod holds;
mod interrupt;
mod kills;
mod lagging;
mod leaders;
mod life;
mod load;
mod matrix;
mod memory;
mod nodes;
mod order;
mod outages;
mod partial;
mod predict;
mod preemption;
mod provisioning;
mod quiet;
mod readiness;
mod refusals;
mod rights;
mod run;
mod runtime;
mod served;
mod topology;
mod unreadable;
mod watches;
mod work;

use anyhow::{Result, ensure};
use futures::future::FutureExt as _;
use run::{Alone, Case, Shared, Stage};
use sluice_e2e::signals;
use std::process::ExitCode;
use std::time::Instant;

macro_rules! cases {
    ($kind:ty: $($module:ident::$name:ident),* $(,)?) => {
        [$({
            let run: $kind = |cluster, ground| $module::$name(cluster, ground).boxed_local();
            (concat!(stringify!($module), "::", stringify!($name)), run)
        }),*]
    };
}

fn shared() -> Vec<Case<Shared>> {
    cases![Shared:
        life::one_job_from_creation_to_the_next,
        life::a_failed_job_gives_its_quota_back,
        life::a_workload_without_a_job_is_scheduled,
        life::jobs_deleted_in_every_state,
        order::higher_priority_first,
        order::priority_raised_while_pending,
        order::strict_fifo_keeps_the_line,
        order::best_effort_fifo_lets_smaller_ones_pass,
        cohorts::two_children_of_a_full_parent,
        preemption::victims_that_end_at_different_times,
        preemption::lent_quota_is_reclaimed,
        partial::a_job_shrinks_to_what_is_free,
        provisioning::room_is_asked_for_and_answered,
        topology::pods_land_where_they_were_placed,
        topology::a_pod_larger_than_its_node_spoils_that_node_alone,
        topology::a_node_that_goes_is_told_and_replaced,
        nodes::one_fails_under_who_is_preempted,
        nodes::two_fail_under_one,
        bad_items::bad_items_stop_no_good_one,
        bad_items::a_missing_queue_appears,
        edits::edits_of_a_pending_job,
        edits::edits_of_a_running_job,
        edits::what_a_batch_user_may_not_do,
        holds::a_quota_left_out_is_nothing,
        holds::deactivate_and_reactivate,
        holds::eviction_keeps_quota_until_pods_are_gone,
        holds::hold_and_drain_a_cluster_queue,
        holds::hold_and_drain_a_local_queue,
        holds::quota_lowered_under_usage,
        checks::a_check_changes_its_mind,
        again::what_queues_stand_on_under_the_same_name,
        crashes::a_second_writer_loses_no_condition,
        predict::twelve_jobs_are_foretold,
        unreadable::pod_templates_have_the_servers_schema,
        unreadable::large_objects_hold_nobody_up,
        unreadable::a_workload_too_large_to_store_is_told_of,
        refusals::own_writes_that_a_policy_forbids,
    ]
    .into()
}

fn alone() -> Vec<Case<Alone>> {
    cases![Alone:
        quiet::writes_and_events_of_one_job,
        crashes::killed_at_every_step,
        absent::only_who_opted_in_waits,
        faults::writes_that_go_astray,
        ending::a_job_that_ends_while_it_is_stopped,
        watches::events_that_go_astray,
        matrix::no_pass_lands_on_who_goes,
        guards::each_is_needed_or_stands_before_another,
        kills::the_manager_dies_in_a_second_pass,
        nodes::two_want_the_one_that_is_left,
        nodes::one_comes_and_goes,
        lagging::a_server_that_is_behind,
        refusals::writes_that_are_refused,
        rights::one_goes_and_comes_back,
        outages::the_store_stops,
        outages::the_store_is_slow,
        outages::the_server_is_restarted,
        outages::a_leader_is_cut_off,
        leaders::a_lease_edited_by_hand,
        leaders::two_that_act_at_once,
        deaths::in_the_first_lists,
        deaths::over_and_over,
        memory::killed_by_its_limit,
        readiness::one_admission_after_the_other,
        crashes::two_replicas_and_a_paused_leader,
        runtime::a_core_that_hangs_is_replaced,
        runtime::bad_clients_do_not_cost_the_lease,
        runtime::rights_go_and_come_back,
        certificates::rotated_under_creates,
        served::made_by_another,
        served::only_the_api_server_is_answered,
        served::another_namespace,
        edge::bad_clients_starve_nobody,
        certificates::not_valid_or_not_trusted,
        unreadable::an_undecodable_workload_stops_nobody,
        interrupt::an_interrupted_demo_leaves_nothing,
        load::a_fiftieth_of_the_baseline,
        preemption::three_queues_reach_equal_shares,
        deep::freed_capacity_is_refilled,
        // Before the burst, whose events take their time to go out.
        quiet::settled_means_no_writes,
        burst::thousand_jobs_over_three_levels,
    ]
    .into()
}

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    if std::env::args().any(|word| word == "--list") {
        shared()
            .iter()
            .map(|case| case.0)
            .chain(alone().iter().map(|case| case.0))
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
    let mut stage = Stage::default();
    let shared: Vec<_> = shared().into_iter().filter(|case| wanted(case.0)).collect();
    let alone: Vec<_> = alone().into_iter().filter(|case| wanted(case.0)).collect();
    let mut failed = stage.side_by_side(&shared).await?;
    for case in &alone {
        failed.extend(stage.alone(*case).await?);
    }
    let (count, seconds) = (shared.len() + alone.len(), begun.elapsed().as_secs_f64());
    println!("\n{count} cases, {} failed, {seconds:.1} s", failed.len());
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}
