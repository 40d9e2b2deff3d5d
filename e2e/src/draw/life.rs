//! One scenario: a cluster with Workloads.
//!
//! Invariant: the scenario depends on seed and number alone; as in `cluster`, the order of draws is part of it.

use super::cluster::Cluster;
use super::random::Random;
use super::suite::Suite;
use super::workload;
use anyhow::Result;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// When scenarios begin.
const START: Timestamp = Timestamp::constant(1_795_132_800, 0);

/// A cluster before a cycle.
pub(super) struct Life {
    number: u64,
    random: Random,
    config: Value,
    cluster: Cluster,
    workloads: Vec<Value>,
    /// Number of Workloads that were ever made.
    made: u64,
    /// Time since the start.
    elapsed: Duration,
}

/// The input of `simulate --jsonl`.
#[derive(Serialize)]
struct Line<'a> {
    suite: &'a str,
    name: String,
    now: String,
    cycles: u32,
    config: &'a Value,
    objects: Vec<&'a Value>,
}

impl Life {
    /// Draws the scenario of a seed that has this number.
    pub(super) fn draw(seed: u64, number: u64) -> Self {
        let suite = Suite::of(number);
        let mut random = Random::new(seed, number);
        let config = draw_config(suite, &mut random);
        let cluster = Cluster::draw(suite, &mut random);
        let first = random.between(4..=10);
        let mut life = Self {
            number,
            random,
            config,
            cluster,
            workloads: Vec::new(),
            made: 0,
            elapsed: Duration::ZERO,
        };
        life.submit(first);
        life
    }

    /// Returns the input of the cycle: one line, without its end.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub(super) fn scenario(&self) -> Result<String> {
        let line = Line {
            suite: self.cluster.suite.name(),
            name: self.name(),
            now: self.now(),
            cycles: 1,
            config: &self.config,
            objects: self.cluster.objects.iter().chain(&self.workloads).collect(),
        };
        Ok(serde_json::to_string(&line)?)
    }

    fn name(&self) -> String {
        format!("{}-{}", self.cluster.suite.name(), self.number)
    }

    fn now(&self) -> String {
        (START + self.elapsed).to_string()
    }

    fn pass_time(&mut self) {
        self.elapsed += Duration::from_secs(self.random.between(1..=6));
    }

    fn submit(&mut self, count: u64) {
        for _ in 0..count {
            self.pass_time();
            self.made += 1;
            let created = self.now();
            let priorities = &workload::EVEN;
            let workload = workload::draw(&self.cluster, &mut self.random, self.made, &created, priorities);
            self.workloads.push(workload);
        }
        self.pass_time();
    }
}

fn draw_config(suite: Suite, random: &mut Random) -> Value {
    let mut config = json!({"fairSharing": suite == Suite::Fair, "featureGates": {}});
    if suite == Suite::Fair {
        let (last, first) = ("LessThanOrEqualToFinalShare", "LessThanInitialShare");
        let choices: [&[&str]; 5] = [&[], &[], &[last, first], &[first], &[last]];
        let strategies = *random.pick(&choices);
        // Without strategies there are both.
        if !strategies.is_empty() {
            config["fairStrategies"] = json!(strategies);
        }
    }
    config
}
