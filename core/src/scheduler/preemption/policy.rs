//! What the preemption policies of a ClusterQueue let its heads evict: the only code that reads these fields of its spec.
//!
//! Invariants: a policy follows from the spec and the settings alone. Which ClusterQueues borrow, and how shares compare, is asked
//! where targets are searched and where views say what may be preempted; both apply these rules.
//! Neighbours: `candidates` applies the rules to workloads; `snapshot` publishes them for views.

use crate::api::v1beta2::{BorrowPolicy, ClusterQueuePreemption, ReclaimPolicy, WithinClusterQueuePolicy};
use crate::scheduler::config::EngineSettings;
use jiff::Timestamp;

/// What the ClusterQueue of a preemptor may use with it, while targets are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attempt {
    /// At most its nominal quota.
    WithinNominal,
    /// Also what it borrows.
    Borrowing,
}

/// Whose workloads a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionScope {
    /// Those of the head's ClusterQueue.
    OwnQueue,
    /// Those of other ClusterQueues of its tree, while these borrow.
    BorrowingQueues,
}

/// Workloads that a rule lets a head evict, by their priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VictimPriority {
    /// All.
    Any,
    /// Those of lower priority.
    Lower,
    /// Those of lower priority that have at most this one.
    LowerUpTo(i64),
    /// Those of lower priority, and those of the same that are newer in the queue.
    LowerOrNewerEqual,
}

/// What rules compare of a head and of a workload that it may evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionRank {
    /// Priority.
    pub priority: i64,
    /// Time by which it is ordered in its queue.
    pub queued_since: Timestamp,
}

/// Workloads that the heads of a ClusterQueue may evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionRule {
    /// Whose they are.
    pub scope: EvictionScope,
    /// Which of these, by priority.
    pub priority: VictimPriority,
    /// The widest attempt in which they may be evicted.
    pub borrowing: Attempt,
}

/// The preemption policies of a ClusterQueue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreemptionPolicy {
    own: Option<EvictionRule>,
    reclaim: Option<EvictionRule>,
    borrow: Option<EvictionRule>,
    takes_from_any: bool,
    searches_while_borrowing: bool,
}

impl VictimPriority {
    /// Whether a head with a rank may evict a workload with one.
    pub fn allows(self, head: EvictionRank, victim: EvictionRank) -> bool {
        let lower = victim.priority < head.priority;
        match self {
            Self::Any => true,
            Self::Lower => lower,
            Self::LowerUpTo(most) => lower && victim.priority <= most,
            Self::LowerOrNewerEqual => {
                lower || (victim.priority == head.priority && head.queued_since < victim.queued_since)
            }
        }
    }

    /// Whether a head with a priority that is high enough may evict a workload with this one.
    pub fn reaches(self, priority: i64) -> bool {
        match self {
            Self::LowerUpTo(most) => priority <= most,
            Self::Any | Self::Lower | Self::LowerOrNewerEqual => true,
        }
    }
}

impl PreemptionPolicy {
    /// Returns the policies that a spec asks for. Without a cohort there is no other ClusterQueue to evict from. Under fair sharing,
    /// shares decide in place of `borrowWithinCohort`.
    pub fn of(preemption: &ClusterQueuePreemption, cohort: Option<&str>, settings: &EngineSettings) -> Self {
        let is_fair = settings.fair_sharing.is_some();
        let own = match preemption.within_cluster_queue.unwrap_or_default() {
            WithinClusterQueuePolicy::Never => None,
            WithinClusterQueuePolicy::LowerPriority => Some(VictimPriority::Lower),
            WithinClusterQueuePolicy::LowerOrNewerEqualPriority => Some(VictimPriority::LowerOrNewerEqual),
        };
        let reclaim = match preemption.reclaim_within_cohort.unwrap_or_default() {
            ReclaimPolicy::Never => None,
            ReclaimPolicy::LowerPriority => Some(VictimPriority::Lower),
            ReclaimPolicy::Any => Some(VictimPriority::Any),
        };
        let borrow = preemption.borrow_within_cohort.as_ref();
        let borrow =
            borrow.filter(|borrow| borrow.policy.unwrap_or_default() != BorrowPolicy::Never).map(|borrow| {
                let most = borrow.max_priority_threshold.map(i64::from);
                most.map_or(VictimPriority::Lower, VictimPriority::LowerUpTo)
            });
        let others =
            |priority, borrowing| EvictionRule { scope: EvictionScope::BorrowingQueues, priority, borrowing };
        let reclaims = reclaim.filter(|_| cohort.is_some());
        let reclaiming = if is_fair { Attempt::Borrowing } else { Attempt::WithinNominal };
        Self {
            own: own.map(|priority| EvictionRule {
                scope: EvictionScope::OwnQueue,
                priority,
                borrowing: Attempt::Borrowing,
            }),
            reclaim: reclaims.map(|priority| others(priority, reclaiming)),
            borrow: borrow
                .filter(|_| reclaims.is_some() && !is_fair)
                .map(|priority| others(priority, Attempt::Borrowing)),
            takes_from_any: reclaim == Some(VictimPriority::Any),
            searches_while_borrowing: if is_fair {
                // As in Kueue, where API defaulting always sets the field; an absent one counts as permitting.
                preemption.reclaim_within_cohort != Some(ReclaimPolicy::Never)
            } else {
                borrow.is_some()
            },
        }
    }

    /// All rules.
    pub fn rules(&self) -> impl Iterator<Item = EvictionRule> + use<> {
        [self.own, self.reclaim, self.borrow].into_iter().flatten()
    }

    /// The rule about workloads of the own ClusterQueue.
    pub fn own(&self) -> Option<EvictionRule> {
        self.own
    }

    /// The rule about workloads of other ClusterQueues; it allows what that of `borrow` does, and more.
    pub fn reclaim(&self) -> Option<EvictionRule> {
        self.reclaim
    }

    /// The rule about workloads of other ClusterQueues that may be evicted for a head with which its own ClusterQueue borrows;
    /// none under fair sharing, where shares decide that.
    pub fn borrow(&self) -> Option<EvictionRule> {
        self.borrow
    }

    /// Whether its heads evict workloads of other ClusterQueues only within its nominal quota, or that of cohorts above it.
    pub fn reclaims_only_nominal(&self) -> bool {
        self.borrow.is_none() && self.reclaim.is_some_and(|rule| rule.borrowing == Attempt::WithinNominal)
    }

    /// Whether its heads may evict any workload.
    pub fn may_preempt(&self) -> bool {
        self.own.is_some() || self.reclaim.is_some()
    }

    /// Whether its heads may evict newer workloads of their priority.
    pub fn preempts_newer(&self) -> bool {
        self.own.is_some_and(|own| own.priority == VictimPriority::LowerOrNewerEqual)
    }

    /// Whether a head without targets keeps capacity from other heads. One that may take back its quota from any workload need not.
    pub fn withholds_capacity(&self) -> bool {
        !self.takes_from_any
    }

    /// Whether targets are searched also for an amount that its ClusterQueue can only borrow.
    pub fn searches_while_borrowing(&self) -> bool {
        self.searches_while_borrowing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::v1beta2::BorrowWithinCohort;
    use crate::scheduler::config::FairStrategy;

    fn settings(is_fair: bool) -> EngineSettings {
        let fair_sharing = is_fair.then(|| vec![FairStrategy::LessThanInitialShare]);
        EngineSettings { fair_sharing, ..EngineSettings::default() }
    }

    fn spec(
        within: WithinClusterQueuePolicy,
        reclaim: ReclaimPolicy,
        borrow: Option<BorrowWithinCohort>,
    ) -> ClusterQueuePreemption {
        ClusterQueuePreemption {
            within_cluster_queue: Some(within),
            reclaim_within_cohort: Some(reclaim),
            borrow_within_cohort: borrow,
        }
    }

    fn lower_up_to(max_priority_threshold: Option<i32>) -> BorrowWithinCohort {
        BorrowWithinCohort { policy: Some(BorrowPolicy::LowerPriority), max_priority_threshold }
    }

    #[test]
    fn rules_follow_from_policies_and_settings() {
        use Attempt::{Borrowing, WithinNominal};
        use VictimPriority::{Any, Lower, LowerOrNewerEqual, LowerUpTo};
        let others =
            |priority, borrowing| EvictionRule { scope: EvictionScope::BorrowingQueues, priority, borrowing };
        let own = |priority| EvictionRule { scope: EvictionScope::OwnQueue, priority, borrowing: Borrowing };
        let rules = |spec: &ClusterQueuePreemption, cohort: Option<&str>, is_fair| {
            PreemptionPolicy::of(spec, cohort, &settings(is_fair)).rules().collect::<Vec<_>>()
        };
        let nothing = ClusterQueuePreemption::default();
        assert_eq!(rules(&nothing, Some("team"), false), []);
        let all = spec(
            WithinClusterQueuePolicy::LowerOrNewerEqualPriority,
            ReclaimPolicy::Any,
            Some(lower_up_to(Some(5))),
        );
        let of_queue = own(LowerOrNewerEqual);
        assert_eq!(
            rules(&all, Some("team"), false),
            [of_queue, others(Any, WithinNominal), others(LowerUpTo(5), Borrowing)]
        );
        // Shares decide, and no threshold.
        assert_eq!(rules(&all, Some("team"), true), [of_queue, others(Any, Borrowing)]);
        assert_eq!(rules(&all, None, false), [of_queue]);
        let lower = spec(
            WithinClusterQueuePolicy::LowerPriority,
            ReclaimPolicy::LowerPriority,
            Some(lower_up_to(None)),
        );
        assert_eq!(
            rules(&lower, Some("team"), false),
            [own(Lower), others(Lower, WithinNominal), others(Lower, Borrowing)]
        );
        // The API refuses this spec.
        let borrows = spec(WithinClusterQueuePolicy::Never, ReclaimPolicy::Never, Some(lower_up_to(None)));
        assert_eq!(rules(&borrows, Some("team"), false), []);
    }

    #[test]
    fn searches_depend_on_what_is_absent() {
        let searches = |spec: &ClusterQueuePreemption, is_fair| {
            PreemptionPolicy::of(spec, Some("team"), &settings(is_fair)).searches_while_borrowing()
        };
        let nothing = ClusterQueuePreemption::default();
        assert!(searches(&nothing, true) && !searches(&nothing, false));
        let never = spec(WithinClusterQueuePolicy::Never, ReclaimPolicy::Never, None);
        assert!(!searches(&never, true) && !searches(&never, false));
        let borrows = spec(WithinClusterQueuePolicy::Never, ReclaimPolicy::Any, Some(lower_up_to(Some(0))));
        assert!(searches(&borrows, true) && searches(&borrows, false));
    }

    #[test]
    fn ranks_are_compared() {
        let rank = |priority, second| EvictionRank {
            priority,
            queued_since: Timestamp::from_second(second).unwrap(),
        };
        let head = rank(5, 10);
        let allowed = |rule: VictimPriority| {
            let victims = [rank(3, 0), rank(4, 0), rank(5, 10), rank(5, 11), rank(6, 11)];
            victims.map(|victim| rule.allows(head, victim))
        };
        assert_eq!(allowed(VictimPriority::Any), [true; 5]);
        assert_eq!(allowed(VictimPriority::Lower), [true, true, false, false, false]);
        assert_eq!(allowed(VictimPriority::LowerUpTo(3)), [true, false, false, false, false]);
        assert_eq!(allowed(VictimPriority::LowerOrNewerEqual), [true, true, false, true, false]);
    }
}
