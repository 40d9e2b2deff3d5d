//! Pages of objects that do not exist: what they suggest, and that it is nothing of another tenant.

use crate::fixtures::leading_core::{Core, condition, put_job_and_workload};
use serde_json::json;
use sluice::cache::Kind;
use sluice::dashboard::{PageQuestion, build};
use sluice::reconciler::{CoreSettings, Delta};
use sluice::visibility::access::{Access, TenantDetail};
use sluice::visibility::page::ModelError;
use sluice::visibility::views::Source;

/// Two namespaces with a Workload of a Job each.
fn core() -> Core {
    let mut core = Core::new(CoreSettings::default());
    core.feed(Delta::Leading(false));
    core.put(Kind::Namespace, json!({"metadata": {"name": "nlp-train"}}));
    core.put(Kind::Namespace, json!({"metadata": {"name": "nlp-trial"}}));
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    let waits = [condition("QuotaReserved", "False", "WaitingForQuota")];
    for namespace in ["nlp-train", "nlp-trial"] {
        let queue =
            json!({"metadata": {"name": "lq", "namespace": namespace}, "spec": {"clusterQueue": "cq"}});
        core.put(Kind::LocalQueue, queue);
        let name = format!("llama-{namespace}");
        put_job_and_workload(&mut core, (namespace, &name, "lq"), (1, 0), &template, &waits);
    }
    core.advance_seconds(120);
    core
}

/// What is suggested to a viewer at an address.
fn suggested(core: &mut Core, access: &Access, address: &str) -> Vec<String> {
    let (question, _) = PageQuestion::parse(address).unwrap();
    let found = build::similar(&core.state.snapshot(), access, &question);
    found.into_iter().map(|(_, question)| question.address()).collect()
}

#[test]
fn near_names_that_the_viewer_may_see_are_suggested() {
    let mut core = core();
    let cluster = Access::everything();
    for (address, expected) in [
        ("/clusterqueues/cqq", vec!["/clusterqueues/cq"]),
        ("/cohorts/Tema", vec!["/cohorts/team"]),
        ("/flavors/ff?cq=cq", vec!["/flavors/f?cq=cq"]),
        ("/namespaces/nlp-trian", vec!["/namespaces/nlp-train", "/namespaces/nlp-trial"]),
        ("/workloads/nlp-train/llama", vec!["/workloads/nlp-train/llama-nlp-train"]),
        ("/jobs/nlp-train/job.batch/llama-nlp", vec!["/jobs/nlp-train/job.batch/j-llama-nlp-train"]),
        ("/jobs/nlp-train/jobset/llama-nlp", vec![]),
        ("/clusterqueues/zzzzz", vec![]),
        ("/pending?cq=cqq", vec![]),
    ] {
        assert_eq!(suggested(&mut core, &cluster, address), expected, "{address}");
    }
}

#[test]
fn nothing_of_another_tenant_is_suggested() {
    let mut core = core();
    for detail in [TenantDetail::Sums, TenantDetail::None] {
        let tenant = Access::to_namespace("nlp-train", detail);
        for (address, expected) in [
            ("/clusterqueues/cqq", vec![]),
            ("/cohorts/tema", vec![]),
            ("/flavors/ff", vec![]),
            ("/namespaces/nlp-trian", vec!["/namespaces/nlp-train"]),
            ("/workloads/nlp-trial/llama", vec![]),
            ("/jobs/nlp-trial/job/llama-nlp", vec![]),
            ("/workloads/nlp-train/llama-nlp-trial", vec!["/workloads/nlp-train/llama-nlp-train"]),
        ] {
            assert_eq!(suggested(&mut core, &tenant, address), expected, "{address}");
        }
    }
}

#[test]
fn a_namespace_that_does_not_exist_has_no_page() {
    let core = core();
    let snapshot = core.state.snapshot();
    let page = |name: &str| {
        let access = Access::to_namespace(name, TenantDetail::Sums);
        build::namespace_page(&snapshot, &access, (name, Source::default()))
    };
    assert_eq!(page("nlp-train").unwrap().pending, 1);
    assert_eq!(page("nlp-trian").unwrap_err(), ModelError::NotFound);
    let (question, _) = PageQuestion::parse("/namespaces/nlp-trian").unwrap();
    assert_eq!(question.page().object(), "namespace nlp-trian");
}
