//! The page about a job that has no Workload.

use sluice::dashboard::build::without_workload;
use sluice::snapshot::NoWorkload;

#[test]
fn page_says_why_a_job_has_no_workload() {
    let why = NoWorkload { reason: "Finished".to_owned(), message: "it has finished".to_owned() };
    assert_eq!(
        without_workload(("ns", "job", "train"), &why),
        "job/train in namespace ns has no Workload: it has finished."
    );
}
