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
mod deep;
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
mod life;
mod load;
mod matrix;
mod nodes;
mod order;
mod partial;
mod predict;
mod preemption;
mod provisioning;
mod quiet;
mod readiness;
mod topology;
mod unreadable;
mod watches;

use anyhow::{Result, bail, ensure};
use futures::future::{FutureExt as _, LocalBoxFuture};
use futures::stream::{self, StreamExt as _};
use ground::Ground;
use serde_json::json;
use sluice_e2e::cluster::{Cluster, Options};
use sluice_e2e::plane::Plane;
use sluice_e2e::{process, signals};
use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::Instant;

/// Cases at once: enough to hide waiting, few enough for two cores.
const AT_ONCE: usize = 4;

type Shared = for<'a> fn(&'a Cluster, &'a Ground) -> LocalBoxFuture<'a, Result<()>>;
type Alone = for<'a> fn(&'a mut Cluster, &'a Ground) -> LocalBoxFuture<'a, Result<()>>;

macro_rules! cases {
    ($kind:ty: $($module:ident::$name:ident),* $(,)?) => {
        [$({
            let run: $kind = |cluster, ground| $module::$name(cluster, ground).boxed_local();
            (concat!(stringify!($module), "::", stringify!($name)), run)
        }),*]
    };
}

fn shared() -> Vec<(&'static str, Shared)> {
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
    ]
    .into()
}

fn alone() -> Vec<(&'static str, Alone)> {
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
        readiness::one_admission_after_the_other,
        crashes::two_replicas_and_a_paused_leader,
        certificates::rotated_under_creates,
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
    match signals::interruptible(run(wanted)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(wanted: impl Fn(&str) -> bool) -> Result<()> {
    let begun = Instant::now();
    let options = Options {
        balanced: true,
        // A leader that is killed is replaced within seconds; no case waits for pods to become ready.
        configuration: json!({
            "leaderElection": {"leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms"},
        }),
        nodes: 4,
        ..Options::default()
    };
    let mut cluster = Cluster::start(&options, &Plane::own_folder()).await?;
    println!("control plane and manager ready after {:.1} s\n", begun.elapsed().as_secs_f64());
    let failed = RefCell::new(Vec::new());
    let report = |name: &'static str, begun: Instant, outcome: Result<()>| {
        let seconds = begun.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => println!("ok    {seconds:6.1} s  {name}"),
            Err(error) => {
                println!("FAIL  {seconds:6.1} s  {name}: {error:#}");
                failed.borrow_mut().push(name);
            }
        }
    };
    let mut count = 0_usize;
    let side_by_side: Vec<_> = shared().into_iter().filter(|case| wanted(case.0)).collect();
    count += side_by_side.len();
    stream::iter(side_by_side)
        .for_each_concurrent(AT_ONCE, async |(name, case)| {
            let begun = Instant::now();
            let ground = Ground::new(&cluster, name);
            report(name, begun, caught(on(&ground, case(&cluster, &ground))).await);
        })
        .await;
    let mut planes = 1;
    for (name, case) in alone().into_iter().filter(|case| wanted(case.0)) {
        if failed.borrow().len() >= planes {
            planes = failed.borrow().len() + 1;
            leave(cluster);
            cluster =
                Cluster::start(&options, &Plane::own_folder().with_extension(planes.to_string())).await?;
        }
        count += 1;
        let begun = Instant::now();
        let ground = Ground::new(&cluster, name);
        report(name, begun, caught(on(&ground, case(&mut cluster, &ground))).await);
    }
    let failed = failed.into_inner();
    println!("\n{count} cases, {} failed, {:.1} s", failed.len(), begun.elapsed().as_secs_f64());
    if failed.len() >= planes {
        leave(cluster);
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Ends a plane on which a case failed, and keeps its logs: what the case left there is nobody else's.
fn leave(mut spoilt: Cluster) {
    if let Ok(manager) = spoilt.manager() {
        println!("the manager logged last:\n{}", process::tail(manager.log(), 30));
    }
    println!("logs are in {}", spoilt.plane.folder().display());
    spoilt.plane.keep_folder();
}

/// A case on its ground: what a successful one made is taken away again.
async fn on(ground: &Ground, case: LocalBoxFuture<'_, Result<()>>) -> Result<()> {
    ground.prepare().await?;
    case.await?;
    ground.sweep().await
}

async fn caught(case: impl Future<Output = Result<()>>) -> Result<()> {
    match AssertUnwindSafe(case).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(_) => bail!("it panicked"),
    }
}
