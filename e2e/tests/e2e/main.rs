//! End-to-end tests on real control planes. `cases` is the table of all cases, `runner` executes them.
//!
//! `cargo test --test e2e -- WORD...` runs the cases whose names contain a word; `--tier` those of a tier; `--list` lists them.
#![expect(clippy::disallowed_methods, reason = "tests wait and run programs")]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a case may fail by panicking, and this harness prints"
)]

mod admission_checks;
mod background_jobs;
mod below_jobs;
mod bench_load;
mod bench_ungating;
mod beside_kueue;
mod burst;
mod cases;
mod certificates;
mod charged_pods;
mod cohorts;
mod components;
mod crashes;
mod dashboard;
mod dashboard_tenants;
mod debugging;
mod deep_queue;
mod definitions;
mod documented_commands;
mod dump_of_kinds;
mod elastic_jobs;
mod fair_admission;
mod fixture;
mod framework_file;
mod hostile_clients;
mod image;
mod import;
mod infeasible_jobs;
mod installation;
mod interrupt;
mod invariants;
mod job_ends_during_stop;
mod job_kinds;
mod job_lifecycle;
mod kinds_on_nodes;
mod leader_changes;
mod leader_election;
mod live_switch;
mod lost_writes;
mod manager_down;
mod manager_restarts;
mod memory_limit;
mod migrate;
mod migration_run;
mod node_failures;
mod node_flaps;
mod outages;
mod partial_admission;
mod partitions;
mod patch_forms;
mod people;
mod pod_group_crashes;
mod pod_groups;
mod pods_ready_gate;
mod preemption;
mod provisioning;
mod queue_life;
mod queue_order;
mod ray_clusters;
mod rbac_changes;
mod recorded_history;
mod recorder;
mod recreated_queues;
mod rejected_writes;
mod reload;
mod runner;
mod runtime;
mod second_pass;
mod second_pass_crashes;
mod second_pass_guards;
mod second_pass_matrix;
mod second_pass_races;
mod shipped_dashboard;
mod shipped_manifests;
mod simulate_matches_cluster;
mod simulate_refusals;
mod stale_api_server;
mod stop_policy;
mod stops_between_writes;
mod submitters;
#[path = "../../../tests/dashboard/tenant_lines.rs"]
mod tenant_lines;
#[path = "../../../tests/dashboard/tenant_routes.rs"]
mod tenant_routes;
mod third_party;
mod topology;
mod two_installations;
mod uninstall;
mod unreadable_objects;
mod upgrade_dumps;
mod upgrade_ends;
mod upgrade_scene;
mod upgrades;
mod user_edits;
mod v1beta1;
mod visibility;
mod watch_faults;
mod webhook_serving;
mod what_if_comes_true;
mod without_webhooks;
mod workflows;
mod write_counts;

use anyhow::{Result, ensure};
use cases::{CASES, Case, Tier};
use clap::Parser;
use runner::Outcomes;
use sluice_e2e::part::Part;
use sluice_e2e::{history, rights, wait};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Instant;
use tokio::runtime::Runtime;

/// Runs end-to-end cases on real control planes.
#[derive(Parser)]
#[command(name = "e2e")]
struct Arguments {
    /// Runs only cases whose names contain one of these words.
    words: Vec<String>,
    /// Runs only cases of this tier, or of several; without it, all but the additional time of soak, and earlier versions.
    #[arg(long = "tier", value_name = "TIER", value_enum)]
    tiers: Vec<Tier>,
    /// Control planes at the same time.
    #[arg(long, default_value_t = 3)]
    lanes: usize,
    /// Runs one part of the cases of so many, as 1/3; cases of the core are in each part.
    #[arg(long, value_name = "K/N", value_parser = Part::parse)]
    part: Option<Part>,
    /// Prints the names of the cases with their tiers and runs none.
    #[arg(long)]
    list: bool,
}

impl Arguments {
    fn selects(&self, case: &Case) -> bool {
        let of_tiers = if self.tiers.is_empty() {
            !case.tiers.contains(&Tier::Older)
        } else {
            self.tiers.iter().any(|tier| case.tiers.contains(tier))
        };
        of_tiers && (self.words.is_empty() || self.words.iter().any(|word| case.name.contains(word.as_str())))
    }
}

fn main() -> ExitCode {
    let outcome = sluice_e2e::container::enter_if_asked().and_then(|()| run(&Arguments::parse()));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let mut cases: Vec<Case> = CASES.iter().copied().filter(|case| arguments.selects(case)).collect();
    if let Some(part) = arguments.part {
        let (core, others): (Vec<Case>, Vec<Case>) =
            cases.into_iter().partition(|case| case.tiers.contains(&Tier::Core));
        cases = [core, part.of(others)].concat();
    }
    ensure!(!cases.is_empty(), "no case is selected by --tier and the words {:?}", arguments.words);
    if arguments.list {
        for case in &cases {
            println!("{:?} {}", case.tiers, case.name);
        }
        return Ok(());
    }
    if arguments.tiers.contains(&Tier::Soak) {
        wait::use_whole_durations();
    }
    rights::collect();
    let begun = Instant::now();
    let Outcomes { failed, not_run } = runner::run(&Runtime::new()?, &cases, arguments.lanes)?;
    let passed = cases.len() - failed.len() - not_run.len();
    let reasons: BTreeSet<&str> = not_run.iter().map(|(_, reason)| reason.as_str()).collect();
    let reasons = Vec::from_iter(reasons).join("; ");
    let reasons = if reasons.is_empty() { reasons } else { format!(" ({reasons})") };
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "\n{passed} passed, {} failed, {} not run{reasons}, {seconds:.1} s",
        failed.len(),
        not_run.len()
    );
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    let rights = rights::compare()?;
    println!("{} rights of the shipped roles were used", rights.used);
    if arguments.words.is_empty() {
        println!("the manager used none of these: {}", rights.unused.join(", "));
    }
    ensure!(rights.outside.is_empty(), "no shipped role grants: {}", rights.outside.join(", "));
    // A machine that checks changes can run all cases: one that is left out there would be missed by no reader.
    let in_ci = std::env::var_os("CI").is_some();
    let names: Vec<&str> = not_run.iter().map(|(name, _)| *name).collect();
    ensure!(!in_ci || names.is_empty(), "not run where CI is set: {}", names.join(", "));
    Ok(())
}
