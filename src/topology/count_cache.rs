//! Counts that are kept from one placement to the next: the same pods are placed again and again, while victims are tried
//! out and from cycle to cycle, and in between few spots change.
//!
//! Invariants: a tally that was brought up to date says what a count from nothing says, and what was chosen on it is what
//! would be chosen anew; it belongs to one shape and is of no use to another; what is kept is bounded by the narrowest domains
//! of all tallies together.

use super::counts::{DomainFits, ResourceNeed};
use super::domain_selection::{DomainAssignment, DomainSelection};
use super::leaf_capacity::CapacityView;
use super::placement_params::PlacementParams;
use super::pod_requirements::PodRequirements;
use super::tree::DomainLayout;
use super::{PlacementError, TasGates};
use std::sync::{Arc, Weak};

/// Most tallies that are kept.
const MAX_CACHED: usize = 32;
/// Most narrowest domains that they have together, but for the last.
const MAX_DOMAINS: usize = 1 << 16;

/// What is counted: how many of which pods could go where.
#[derive(Clone, Debug)]
pub(super) struct CountKey {
    pub(super) pods: Arc<PodRequirements>,
    pub(super) leader: Option<Arc<PodRequirements>>,
    pub(super) params: PlacementParams,
    pub(super) view: CapacityView,
    /// Whether preferences of the pods count.
    pub(super) respect_preferred_affinity: bool,
}

impl CountKey {
    fn matches(&self, other: &Self) -> bool {
        let same = |a: &Arc<PodRequirements>, b: &Arc<PodRequirements>| Arc::ptr_eq(a, b) || a == b;
        self.view == other.view
            && self.respect_preferred_affinity == other.respect_preferred_affinity
            && same(&self.pods, &other.pods)
            && self.params == other.params
            && match (&self.leader, &other.leader) {
                (Some(a), Some(b)) => same(a, b),
                (None, None) => true,
                _ => false,
            }
    }
}

/// Counts of one subject on one shape.
#[derive(Clone, Debug)]
pub(super) struct CachedCounts {
    pub(super) key: CountKey,
    /// Not kept alive: nobody counts on a shape that is no more.
    pub(super) layout: Weak<DomainLayout>,
    pub(super) needs: Arc<[ResourceNeed]>,
    pub(super) fits: DomainFits,
    /// Which of the narrowest domains something keeps the pods from.
    pub(super) excluded_leaves: Vec<bool>,
    /// The last change of a spot that is counted; 0 before the first count.
    pub(super) last_seen_change: u64,
    /// What was chosen last on these counts.
    pub(super) last_selection: Option<CachedSelection>,
}

/// What was chosen for so many pods.
#[derive(Clone, Debug)]
pub(super) struct CachedSelection {
    pub(super) pods: i64,
    pub(super) gates: TasGates,
    pub(super) result: Result<Vec<DomainAssignment>, PlacementError>,
}

impl CachedCounts {
    /// One that nothing was counted for yet.
    pub(super) fn new(subject: CountKey, shape: &Arc<DomainLayout>, needs: Arc<[ResourceNeed]>) -> Self {
        let (counts, closed) = (DomainFits::default(), Vec::new());
        Self {
            key: subject,
            layout: Arc::downgrade(shape),
            needs,
            fits: counts,
            excluded_leaves: closed,
            last_seen_change: 0,
            last_selection: None,
        }
    }

    /// Chooses for so many pods, unless that was done since anything changed.
    pub(super) fn select_domains(
        &mut self,
        shape: &DomainLayout,
        pods: i64,
        rules: TasGates,
    ) -> Result<Vec<DomainAssignment>, PlacementError> {
        let known = self.last_selection.take().filter(|known| known.pods == pods && known.gates == rules);
        let chosen = known.unwrap_or_else(|| {
            let Self { fits: counts, key: CountKey { params: terms, leader, .. }, .. } = &*self;
            let choice =
                DomainSelection { layout: shape, fits: counts, params: terms, has_leader: leader.is_some() };
            CachedSelection { pods, gates: rules, result: choice.select_leaves(pods, rules) }
        });
        self.last_selection.insert(chosen).result.clone()
    }

    fn is_for_layout(&self, shape: &Arc<DomainLayout>) -> bool {
        std::ptr::eq(self.layout.as_ptr(), Arc::as_ptr(shape))
    }
}

/// Those that are kept, the one that was used last at the end.
#[derive(Clone, Debug, Default)]
pub(super) struct CountCache(Vec<CachedCounts>);

impl CountCache {
    /// Takes out what was counted of a subject.
    pub(super) fn take(&mut self, subject: &CountKey, shape: &Arc<DomainLayout>) -> Option<CachedCounts> {
        let at = self.0.iter().rposition(|tally| tally.is_for_layout(shape) && tally.key.matches(subject))?;
        Some(self.0.remove(at))
    }

    /// Keeps a tally; those that were not used for longest make way.
    pub(super) fn insert(&mut self, tally: CachedCounts) {
        self.0.push(tally);
        let mut width = 0;
        let fits = self.0.iter().rev().take_while(|tally| {
            width += tally.excluded_leaves.len();
            width <= MAX_DOMAINS
        });
        let kept = fits.count().clamp(1, MAX_CACHED);
        self.0.drain(..self.0.len().saturating_sub(kept));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CachedCounts> {
        self.0.iter()
    }
}
