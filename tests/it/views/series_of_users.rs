//! What users name does not decide how many series a metrics page has.

use super::metrics_of_lives::{FAMILIES, Life, complete, job, parse};
use crate::fixtures::job_server::kind;
use crate::fixtures::server_views::Shown as _;
use jiff::SignedDuration;
use serde_json::json;
use sluice::cache::Kind;
use sluice::frameworks::framework;
use sluice::metrics::model::Role;
use std::collections::BTreeMap;

const SECOND: SignedDuration = SignedDuration::from_secs(1);

impl Life {
    /// A Job with a label and an annotation of its own is admitted in a queue, ends and is deleted.
    fn run(&mut self, name: &str, queue: &str) {
        let mut object = job(name, 1, "low");
        object["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!(queue);
        object["metadata"]["labels"][format!("example.com/{name}")] = json!(name);
        object["metadata"]["annotations"] = json!({format!("example.com/{name}"): "a\n\"b\\"});
        self.server.submit(framework("batch", "Job").unwrap(), object).unwrap();
        complete(&mut self.server, name);
        self.server.advance(SECOND);
        self.server.delete(kind("batch", "Job"), name);
        self.server.advance(SECOND);
    }

    fn series(&mut self) -> Vec<String> {
        for observation in std::mem::take(&mut self.server.observed) {
            self.counters.observe(&observation, Role::Leader);
        }
        let page = sluice::metrics::render(&self.server.gauges(), FAMILIES, Role::Leader).unwrap()
            + &self.counters.render().unwrap();
        let series: BTreeMap<String, f64> = parse(&page);
        series.into_keys().collect()
    }
}

/// Names and labels of Jobs become no labels of series, and a LocalQueue that is deleted leaves none.
#[test]
fn users_cannot_multiply_series() {
    let mut life = Life::new(&["batch/job"], "2");
    life.run("first", "lq");
    let series = life.series();
    for number in 0..30 {
        life.run(&format!("job-{number}"), "lq");
    }
    assert_eq!(life.series(), series, "after 30 Jobs with names of their own");
    for number in 0..5 {
        let name = format!("lq-{number}-{}", "q".repeat(200));
        let queue = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"clusterQueue": "cq"}});
        life.server.create(Kind::LocalQueue, queue);
        life.run(&format!("of-{number}"), &name);
        assert!(life.series().iter().any(|series| series.contains(&name)), "{name} has no series");
        life.server.delete(Kind::LocalQueue, &name);
        life.server.advance(SECOND);
    }
    assert_eq!(life.series(), series, "after LocalQueues were deleted");
}
