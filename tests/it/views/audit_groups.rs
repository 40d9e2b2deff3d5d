//! What an audit finds by groups of workloads is what lists say of each one.

use crate::fixtures::leading_core::{Core, START, condition};
use crate::views::audit::{core, published, queue, quota};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;
use sluice::cache::Kind;
use sluice::visibility::access::Access;
use sluice::visibility::findings::{audit, examined};
use sluice::visibility::selector::WorkloadSelector;
use sluice::visibility::views::Check;
use sluice::visibility::workloads::{WorkloadQuery, workloads};
use std::collections::BTreeMap;

/// ClusterQueues of 2 CPUs: one of each strategy, and one that is stopped.
const QUEUES: [(&str, &str, &str); 3] =
    [("any", "BestEffortFIFO", "None"), ("strict", "StrictFIFO", "None"), ("held", "BestEffortFIFO", "Hold")];

/// A drawn Workload: queue, CPUs, priority, seconds after the start, and whether it is active and has been evaluated.
type Drawn = (usize, u32, i32, i64, (bool, bool));

fn put(core: &mut Core, number: usize, (queue, cpu, priority, later, (active, evaluated)): Drawn) {
    let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu.to_string()}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let reason = if active { "WaitingForQuota" } else { "Deactivated" };
    let conditions =
        if active && !evaluated { vec![] } else { vec![condition("QuotaReserved", "False", reason)] };
    let created = Timestamp::from_second(START + later).unwrap().to_string();
    core.put(
        Kind::Workload,
        json!({
            "metadata": {"name": format!("w-{number}"), "namespace": "ns", "creationTimestamp": created},
            "spec": {"queueName": format!("to-{}", QUEUES[queue].0), "priority": priority, "active": active,
                "podSets": [{"name": "main", "count": 1, "template": template}]},
            "status": {"conditions": conditions},
        }),
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Together the findings count each workload that lists call stuck once, in its queue.
    #[test]
    fn findings_count_each_stuck_workload_once(
        all in prop::collection::vec((0..QUEUES.len(), 1_u32..5, 0_i32..3, 0_i64..4, (prop::bool::weighted(0.8), any::<bool>())), 0..40),
    ) {
        let mut core = core();
        for (name, strategy, policy) in QUEUES {
            let spec = json!({"queueingStrategy": strategy, "stopPolicy": policy, "resourceGroups": quota("f", "2")});
            queue(&mut core, name, &spec);
        }
        for (number, drawn) in all.into_iter().enumerate() {
            put(&mut core, number, drawn);
        }
        let snapshot = published(&mut core);
        let everything = Access::everything();
        let selector = WorkloadSelector::parse("status=pending").unwrap();
        let query = WorkloadQuery { selector, ..WorkloadQuery::default() };
        let (rows, _) = workloads(&snapshot, &everything, &query).unwrap();
        let mut expected: BTreeMap<String, u64> = BTreeMap::new();
        for row in rows.iter().filter(|row| row.stuck) {
            *expected.entry(row.cluster_queue.clone()).or_default() += 1;
        }
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        let findings = audit((&snapshot, None), &everything, (None, core.now)).unwrap();
        let is_meant = |check| matches!(check, Check::WorkloadNeverFits | Check::WorkloadKeptOut);
        for finding in findings.iter().filter(|finding| is_meant(finding.check)) {
            let count: u64 = finding.workloads.iter().map(|class| class.count).sum();
            *found.entry(finding.object.name.clone()).or_default() += count;
            for class in &finding.workloads {
                let first = rows.iter().find(|row| row.metadata.name == class.first).unwrap();
                prop_assert!(first.stuck, "{}: {:?}", class.first, finding);
            }
        }
        prop_assert_eq!(found, expected);
        prop_assert!(examined(&snapshot) <= rows.len());
    }
}
