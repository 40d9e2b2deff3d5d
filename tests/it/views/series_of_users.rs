//! What users name does not decide how many series a metrics page has.

use super::metrics_of_lives::{FAMILIES, Life, complete, job, parse};
use crate::fixtures::job_server::kind;
use crate::fixtures::server_views::Shown as _;
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::api::names::SUBMITTER_ANNOTATION;
use sluice::cache::Kind;
use sluice::frameworks::framework;
use sluice::metrics::model::Role;
use sluice::reconciler::CoreSettings;
use std::collections::BTreeSet;

const SECOND: SignedDuration = SignedDuration::from_secs(1);

impl Life {
    /// A Job with a label and an annotation of its own is admitted in a queue, ends and is deleted.
    fn run(&mut self, name: &str, queue: &str) {
        self.run_annotated(name, queue, &json!({format!("example.com/{name}"): "a\n\"b\\"}));
    }

    /// The same with these annotations.
    fn run_annotated(&mut self, name: &str, queue: &str, annotations: &Value) {
        let mut object = job(name, 1, "low");
        object["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!(queue);
        object["metadata"]["labels"][format!("example.com/{name}")] = json!(name);
        object["metadata"]["annotations"] = annotations.clone();
        self.server.submit(framework("batch", "Job").unwrap(), object).unwrap();
        complete(&mut self.server, name);
        self.server.advance(SECOND);
        self.server.delete(kind("batch", "Job"), name);
        self.server.advance(SECOND);
    }

    fn series(&mut self) -> Vec<String> {
        parse(&self.page()).into_keys().collect()
    }

    /// Returns what a scrape reads.
    fn page(&mut self) -> String {
        for observation in std::mem::take(&mut self.server.observed) {
            self.counters.observe(&observation, Role::Leader);
        }
        sluice::metrics::render(&self.server.gauges(), FAMILIES, Role::Leader).unwrap()
            + &self.counters.render().unwrap()
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

/// A manager that reads submitters has the series of one that does not, and names no user in them, whether the job waits, runs or has
/// ended.
#[test]
fn submitters_are_in_no_series() {
    let frameworks: BTreeSet<String> = ["batch/job".to_owned()].into();
    let live = |key: Option<&str>| {
        let mut settings = CoreSettings { frameworks: frameworks.clone(), ..CoreSettings::default() };
        settings.copied.submitter = key.map(str::to_owned);
        let mut life = Life::with_settings(settings, "2");
        let mut pages = Vec::new();
        for number in 0..10 {
            let user = format!("user-{number}@example.com");
            life.run_annotated(&format!("job-{number}"), "lq", &json!({SUBMITTER_ANNOTATION: user}));
            pages.push(life.page());
        }
        for (number, pods) in [(10, 2), (11, 1)] {
            let mut object = job(&format!("job-{number}"), pods, "low");
            object["metadata"]["annotations"] =
                json!({SUBMITTER_ANNOTATION: format!("user-{number}@example.com")});
            life.server.submit(framework("batch", "Job").unwrap(), object).unwrap();
            life.server.advance(SECOND);
            pages.push(life.page());
        }
        let snapshot = life.server.harness.core.snapshot();
        for number in [10, 11] {
            let user = format!("user-{number}@example.com");
            let mut own = snapshot.workloads.of_submitter(&user, ObjectKey::new("", ""));
            assert_eq!(own.next().is_some(), key.is_some(), "one runs, and one waits");
        }
        pages
    };
    let (reads, ignores) = (live(Some(SUBMITTER_ANNOTATION)), live(None));
    for (page, other) in reads.iter().zip(&ignores) {
        let series = |page: &str| parse(page).into_keys().collect::<Vec<_>>();
        assert_eq!(series(page), series(other));
        assert!(!page.contains("example.com"), "{page}");
    }
}
