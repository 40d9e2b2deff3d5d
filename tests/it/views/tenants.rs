//! Two tenants share queues: nothing that is made for one names the other, in views, in answers of the leader and in findings.

use crate::fixtures::leading_core::Core;
use crate::fixtures::tenants::{SECRET, core};
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::scheduler::Supposition;
use sluice::visibility::access::{Access, TenantDetail};
use sluice::visibility::findings::audit;
use sluice::visibility::flavors::queue_capacity;
use sluice::visibility::page::PageQuery;
use sluice::visibility::questions::{LeaderAnswer, VerdictQuestion, WorkloadName};
use sluice::visibility::queue_views;
use sluice::visibility::selector::WorkloadSelector;
use sluice::visibility::views::Source;
use sluice::visibility::workloads::{WorkloadQuery, workload, workloads};

/// What the leader says to a question with this access.
fn ask(core: &mut Core, access: &Access, name: &str) -> LeaderAnswer {
    let key = ObjectKey::new("ns", name);
    let explanation = core.state.engine_mut().explain(&key, &Supposition::default(), &mut || true);
    let workload = WorkloadName::parse(name, "ns");
    let question =
        VerdictQuestion { access: access.clone(), workload, before: None, queue: None, priority: None };
    question.answer(&core.state.snapshot(), explanation.as_ref(), Source::default())
}

#[test]
fn the_other_tenant_has_no_name() {
    let mut core = core();
    let snapshot = core.state.snapshot();
    let facts = core.state.audit_facts();
    for detail in [TenantDetail::Sums, TenantDetail::None] {
        let access = Access::to_namespace("ns", detail);
        let query = |selector: &str| WorkloadQuery {
            selector: WorkloadSelector::parse(selector).unwrap(),
            ..WorkloadQuery::default()
        };
        let mut shown: Vec<Value> = Vec::new();
        for selector in [
            "",
            "status=all",
            "clusterQueue=cq,status=pending",
            "localQueue=secret-lq",
            "metadata.namespace=secret-ns",
        ] {
            let (rows, metadata) = workloads(&snapshot, &access, &query(selector)).unwrap();
            shown.push(json!([rows, metadata]));
        }
        shown.push(json!(
            queue_views::local_queues(&snapshot, &access, (None, &PageQuery::default())).unwrap().0
        ));
        shown.push(json!(queue_capacity(&snapshot, &access, (&ObjectKey::new("ns", "lq"), None)).unwrap()));
        shown.push(json!(audit((&snapshot, Some(&facts)), &access, (None, core.now)).unwrap()));
        for name in ["waits", "was-preempted", "runs"] {
            shown.push(json!(ask(&mut core, &access, name)));
        }
        let foreign = ObjectKey::new("secret-ns", "secret-lq");
        assert!(queue_capacity(&snapshot, &access, (&foreign, None)).is_err());
        let text = json!(shown).to_string();
        assert!(text.contains("was-preempted"), "{text}");
        assert!(!text.contains(SECRET), "{text}");
        for (namespace, name) in [("secret-ns", "secret-head"), ("secret-ns", "secret-runs")] {
            assert!(workload(&snapshot, &access, &ObjectKey::new(namespace, name)).is_err());
        }
        // Not even whether it exists.
        let before = |other: &str| {
            let workload = WorkloadName::parse("waits", "ns");
            let other = Some(WorkloadName::parse(other, "ns"));
            let question = VerdictQuestion {
                access: access.clone(),
                workload,
                before: other,
                queue: None,
                priority: None,
            };
            format!("{:?}", question.answer(&snapshot, None, Source::default()))
        };
        assert_eq!(before("secret-ns/secret-head").replace("secret-head", "x"), before("secret-ns/x"));
    }
    // A reader of the cluster sees both.
    let LeaderAnswer::Verdict(all) = ask(&mut core, &Access::everything(), "waits") else { panic!() };
    assert!(json!(all).to_string().contains("secret-ns"));
}
