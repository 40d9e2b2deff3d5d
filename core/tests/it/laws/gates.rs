//! What feature gates change in decisions of the scheduler that later cycles hide.

use super::second_passes::{add_hosts, one_host_workload};
use crate::fixtures::builders::{
    admitted_names, charge, cpu_workload, engine_with, flavor_group, key, limits, queue, run_until_idle,
    single_flavor_group,
};
use crate::fixtures::setting_effects::SettingEffect;
use jiff::Timestamp;
use sluice_core::api::v1beta2::{ClusterQueuePreemption, ReclaimPolicy};
use sluice_core::reconciler::CoreSettings;
use sluice_core::scheduler::{ClusterQueue, Engine, Outcome};

const ROWS: [SettingEffect; 3] = [
    SettingEffect {
        gate: "FlavorFungibilityPreserveScanProgress",
        set: |settings, on| settings.engine.gates.preserve_scan_progress = on,
        play: flavor_after_lost_race,
        enabled: "blue",
        disabled: "red",
    },
    SettingEffect {
        gate: "RecomputeAssignmentUponPreemptionTargetsOverlap",
        set: |settings, on| settings.engine.gates.recompute_on_overlap = on,
        play: second_preemptor,
        enabled: "[NewTargets], skips None",
        disabled: "[], skips Some(1)",
    },
    SettingEffect {
        gate: "TASRecomputeAssignmentWithinSchedulingCycle",
        set: |settings, on| settings.engine.gates.recompute_topology = on,
        play: admitted_by_cycle,
        enabled: r#"["a", "b"], then []"#,
        disabled: r#"["a"], then ["b"]"#,
    },
];

fn engine(settings: &CoreSettings) -> Engine {
    engine_with(settings.engine.clone())
}

/// A workload lost its flavor to one of another queue, which has released it by the next cycle; its queue has changed since.
fn flavor_after_lost_race(settings: &CoreSettings) -> String {
    let mut engine = engine(settings);
    let set_queue = |engine: &mut Engine, name, red, blue| {
        let quotas = [limits(red, None, None), limits(blue, None, None)];
        engine.set_cluster_queue(
            name,
            Some(queue(Some("all"), flavor_group(&["red", "blue"], "cpu", &quotas))),
        );
    };
    for (name, red, blue) in [("one", 0, 0), ("two", 0, 1), ("lends", 1, 0)] {
        set_queue(&mut engine, name, red, blue);
    }
    engine.enqueue(cpu_workload("takes", "one", 0, 1));
    engine.enqueue(cpu_workload("loses", "two", 1, 1));
    assert_eq!(admitted_names(&engine.run_cycle(Timestamp::UNIX_EPOCH)), ["takes"]);
    engine.release(&key("takes"));
    set_queue(&mut engine, "two", 0, 2);
    let decisions = engine.run_cycle(Timestamp::UNIX_EPOCH);
    let flavor = decisions.into_iter().find_map(|decision| match decision.outcome {
        Outcome::Admitted(assignment) => assignment.pod_sets[0].flavors.get("cpu").map(ToString::to_string),
        _ => None,
    });
    flavor.unwrap_or_default()
}

/// Two preemptors would evict the same victim.
fn second_preemptor(settings: &CoreSettings) -> String {
    let mut engine = engine(settings);
    let preemption = ClusterQueuePreemption {
        reclaim_within_cohort: Some(ReclaimPolicy::Any),
        ..ClusterQueuePreemption::default()
    };
    for (name, nominal) in [("a", 1), ("b", 1), ("c", 0)] {
        let base = queue(Some("all"), single_flavor_group("red", "cpu", limits(nominal, None, None)));
        engine.set_cluster_queue(name, Some(ClusterQueue { preemption: preemption.clone(), ..base }));
    }
    for name in ["x", "y"] {
        engine.charge(&key(name), charge("c", &[("red", "cpu", 1)]));
    }
    for (second, name) in (0..).zip(["a", "b"]) {
        engine.enqueue(cpu_workload(&format!("of-{name}"), name, second, 1));
    }
    engine.run_cycle(Timestamp::UNIX_EPOCH);
    let results: Vec<_> = engine.take_recomputations().into_iter().map(|(_, result)| result).collect();
    format!("{results:?}, skips {:?}", engine.preemption_skips("b"))
}

/// Workloads of two queues without a common cohort are nominated for the same node, and there is another one.
fn admitted_by_cycle(settings: &CoreSettings) -> String {
    let mut engine = engine(settings);
    add_hosts(&mut engine, &[2, 2]);
    for name in ["a", "b"] {
        let groups = single_flavor_group("red", "cpu", limits(100, None, None));
        engine.set_cluster_queue(name, Some(queue(None, groups)));
        engine.enqueue(one_host_workload(name, name, 0, 0, 2));
    }
    let first = admitted_names(&engine.run_cycle(Timestamp::UNIX_EPOCH));
    let later = admitted_names(&run_until_idle(&mut engine));
    format!("{first:?}, then {later:?}")
}

#[test]
fn outcomes_differ_as_stated() {
    for row in &ROWS {
        row.check();
    }
}
