//! Prints the report of a load benchmark.

use super::api_server_baseline::ApiServerBaseline;
use super::load::LoadOutcome;
use super::scenario::{Scenario, to_f64};
use crate::audit::AuditedRequest;
use crate::process::ProcessUsage;
use std::collections::BTreeMap;
use std::time::Duration;

/// All measurements of a run.
pub struct Report<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// Cost of the unavoidable writes, measured before the load.
    pub baseline: ApiServerBaseline,
    /// Result of the load.
    pub outcome: LoadOutcome,
    /// Usage of the controller before and after the load.
    pub controller: (ProcessUsage, ProcessUsage),
    /// CPU seconds of kube-apiserver and etcd during the load.
    pub server: f64,
    /// The controller's writes.
    pub writes: Vec<AuditedRequest>,
}

impl Report<'_> {
    /// Prints the report.
    pub fn print(&self) {
        let Self { scenario, baseline: floor, outcome, .. } = self;
        let total = scenario.total_workloads();
        let (quota, writes) = (scenario.min_seconds_by_quota(), floor.seconds(total));
        let bound = quota.max(writes);
        let wall = outcome.wall.as_secs_f64();
        println!("\n{}: {total} workloads on {} queues", scenario.name, scenario.cohorts * scenario.queues);
        println!(
            "  floor by writes       {writes:9.1} s  (create {:.2}, admit {:.2}, finish {:.2} ms of CPU each, {} cores)",
            floor.create_ms, floor.admit_ms, floor.finish_ms, floor.cores
        );
        println!("  floor by quota        {quota:9.1} s");
        println!("  wall                  {wall:9.1} s  ({:.2} of the floor)", wall / bound);
        for (class, waits) in scenario.classes.iter().zip(&outcome.waits) {
            let sum: Duration = waits.iter().sum();
            let mean = sum.as_secs_f64() / to_f64(waits.len().max(1));
            println!("  mean time to admission {:6} {mean:9.1} s", class.name);
        }
        let possible = scenario.total_quota() * wall;
        println!("  quota usage           {:9.1} %", outcome.reserved / possible * 100.0);
        println!("  evictions             {:9}", outcome.evictions);
        let (before, after) = self.controller;
        let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
        println!("  controller: CPU       {cpu:9.1} s");
        println!("  controller: peak      {:9} MiB resident", after.peak_mib);
        println!("  server and etcd: CPU  {:9.1} s", self.server);
        self.print_writes(total);
    }

    fn print_writes(&self, total: usize) {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let mut refused = 0_usize;
        for write in &self.writes {
            let what = format!("{} {}", write.verb, write.resource);
            *counts.entry(what).or_default() += 1;
            refused += usize::from(write.code >= 400);
        }
        let each = |count: usize| to_f64(count) / to_f64(total.max(1));
        let workloads =
            counts.iter().filter(|(what, _)| what.contains(" workloads")).map(|(_, n)| n).sum::<usize>();
        println!("  writes per workload   {:9.2}  to Workloads, by the controller", each(workloads));
        println!("  writes by the controller, {refused} of them refused:");
        for (what, times) in counts {
            println!("    {what:32} {times:8}  {:6.2} per workload", each(times));
        }
    }
}
