//! I25: a workload that cannot reclaim its ClusterQueue's lent quota only because it would borrow another resource says so.

use crate::fixtures::builders::{
    charge, config, cpu_gpu_group, engine, key, pod_set, queue, run_until_idle, workload,
};
use proptest::prelude::*;
use sluice_core::api::v1beta2::{
    BorrowPolicy, BorrowWithinCohort, ClusterQueuePreemption, ReclaimPolicy, WithinClusterQueuePolicy,
};
use sluice_core::scheduler::{Charge, ClusterQueue, Engine, Outcome};

/// The owner of quota for cpu and gpu, a guest with 40 cpu and some gpu, and what both use.
#[derive(Clone, Copy, Debug)]
struct Case {
    owner_cpu: i64,
    used_cpu: i64,
    used_gpu: i64,
    guest_gpu: i64,
    lent_gpu: i64,
    guest_priority: i64,
    request: (i64, i64),
    policy: ReclaimPolicy,
    borrow_policy: BorrowPolicy,
}

const OWNED_GPU: i64 = 4;

const REPORTED: Case = Case {
    owner_cpu: 10,
    used_cpu: 14,
    used_gpu: 0,
    guest_gpu: 0,
    lent_gpu: 4,
    guest_priority: 0,
    request: (1, 2),
    policy: ReclaimPolicy::Any,
    borrow_policy: BorrowPolicy::Never,
};

impl Case {
    fn settled(&self) -> (Engine, Option<String>) {
        let mut engine = engine();
        let preemption = ClusterQueuePreemption {
            reclaim_within_cohort: Some(self.policy),
            within_cluster_queue: Some(WithinClusterQueuePolicy::Never),
            borrow_within_cohort: Some(BorrowWithinCohort {
                policy: Some(self.borrow_policy),
                ..BorrowWithinCohort::default()
            }),
        };
        let owner = queue(Some("root"), cpu_gpu_group(&[("red", self.owner_cpu, OWNED_GPU)]));
        engine.set_cluster_queue("owner", Some(ClusterQueue { preemption, ..owner }));
        engine.set_cluster_queue(
            "guest",
            Some(queue(Some("root"), cpu_gpu_group(&[("red", 40, self.guest_gpu)]))),
        );
        engine.charge(
            &key("own"),
            charge("owner", &[("red", "cpu", self.used_cpu), ("red", "gpu", self.used_gpu)]),
        );
        let lent = charge("guest", &[("red", "gpu", self.guest_gpu + self.lent_gpu)]);
        engine.charge(&key("lent"), Charge { priority: self.guest_priority, ..lent });
        let pods = vec![pod_set("main", 1, &[("cpu", self.request.0), ("gpu", self.request.1)])];
        engine.enqueue(workload("w", "owner", 1, 9, pods));
        let decisions = run_until_idle(&mut engine);
        let pending = decisions.iter().all(|decision| matches!(decision.outcome, Outcome::Pending(_)));
        let message = engine.verdict(&key("w")).map(ToString::to_string);
        (engine, message.filter(|_| pending))
    }

    fn preempts(&self) -> bool {
        let (mut engine, message) = self.settled();
        message.is_none() && engine.charge_of(&key("w")).is_none() && {
            engine.release(&key("lent"));
            run_until_idle(&mut engine);
            engine.charge_of(&key("w")).is_some()
        }
    }
}

const BORROWS_CPU: &str =
    "(not reclaimed: borrowWithinCohort does not allow it to a workload that borrows cpu in flavor red)";

#[test]
fn message_names_borrowed_resource() {
    let (mut engine, message) = REPORTED.settled();
    let expected = format!(
        "couldn't assign flavors to pod set main: insufficient unused quota for gpu in flavor red, \
         request 2, limit 4 at Cohort root {BORROWS_CPU}"
    );
    assert_eq!(message.as_ref(), Some(&expected));
    engine.take_message_updates(usize::MAX);
    // Other amounts of the same obstacle are no other message.
    let more = charge("owner", &[("red", "cpu", 12)]);
    engine.charge(&key("own"), more);
    run_until_idle(&mut engine);
    assert_eq!(engine.verdict(&key("w")).map(ToString::to_string), Some(expected));
    assert!(!engine.has_message_updates());
    // Without borrowing it reclaims.
    assert!(Case { used_cpu: 9, ..REPORTED }.preempts());
}

/// The request alone exceeds the nominal quota: no evictions are considered.
#[test]
fn message_names_resource_that_is_short_itself() {
    let (_, message) = Case { guest_gpu: 4, request: (1, 6), used_cpu: 1, ..REPORTED }.settled();
    let message = message.expect("it is pending");
    assert!(message.ends_with("to a workload that borrows gpu in flavor red)"), "{message}");
    let (_, message) =
        Case { guest_gpu: 4, request: (1, 6), used_cpu: 1, policy: ReclaimPolicy::Never, ..REPORTED }
            .settled();
    assert!(message.is_some_and(|message| !message.contains("reclaimed")), "its policy alone forbids it");
}

fn case() -> impl Strategy<Value = Case> {
    let policy = prop_oneof![
        1 => Just(ReclaimPolicy::Never), 2 => Just(ReclaimPolicy::LowerPriority), 2 => Just(ReclaimPolicy::Any)
    ];
    let borrow_policy = prop_oneof![3 => Just(BorrowPolicy::Never), 1 => Just(BorrowPolicy::LowerPriority)];
    let usage = (0..8_i64, 0..8_i64, 0..4_i64, 0..3_i64, 0..=OWNED_GPU);
    (usage, 0..3_i64, (0..4_i64, 1..=OWNED_GPU), policy, borrow_policy).prop_map(
        |(
            (owner_cpu, used_cpu, used_gpu, guest_gpu, lent_gpu),
            guest_priority,
            request,
            policy,
            borrow_policy,
        )| Case {
            owner_cpu,
            used_cpu,
            used_gpu,
            guest_gpu,
            lent_gpu: lent_gpu.min(OWNED_GPU - used_gpu),
            guest_priority,
            request,
            policy,
            borrow_policy,
        },
    )
}

proptest! {
    #![proptest_config(config(600))]

    /// A pending workload names cpu exactly if it would reclaim with enough cpu of its own.
    #[test]
    fn i25_message_names_borrowing_exactly_if_it_forbids_reclaim(case in case()) {
        let (_, message) = case.settled();
        if let Some(message) = message {
            let owner_of_cpu = Case { owner_cpu: 100, ..case };
            prop_assert_eq!(message.ends_with(BORROWS_CPU), owner_of_cpu.preempts(), "{}", message);
        }
    }
}
