//! Caches domain counts between placements: the same pods are placed repeatedly, during victim simulation and from cycle to
//! cycle, while few leaf capacities change in between.
//!
//! Invariants: an updated entry equals a count from scratch, and its cached selection equals a new selection; an entry
//! applies to one layout only; the size of the cache is bounded by the number of leaves over all entries.

use super::counts::{DomainFits, ResourceNeed};
use super::domain_selection::{DomainAssignment, DomainSelection};
use super::leaf_capacity::CapacityView;
use super::placement_params::PlacementParams;
use super::pod_requirements::PodRequirements;
use super::tree::DomainLayout;
use super::{PlacementError, TasGates};
use std::sync::{Arc, Weak};

/// Maximum number of entries.
const MAX_CACHED: usize = 32;
/// Maximum number of leaves of all entries together, which bounds memory. The newest entry is kept even if it is larger.
const MAX_DOMAINS: usize = 1 << 16;

/// What is counted: which pods, under which constraints, against which usage.
#[derive(Clone, Debug)]
pub(super) struct CountKey {
    pub(super) pods: Arc<PodRequirements>,
    pub(super) leader: Option<Arc<PodRequirements>>,
    pub(super) params: PlacementParams,
    pub(super) view: CapacityView,
    /// Whether preferred node affinity counts.
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

/// Counts for one key and one layout.
#[derive(Clone, Debug)]
pub(super) struct CachedCounts {
    pub(super) key: CountKey,
    /// Weak, so that the cache does not keep a replaced layout alive.
    pub(super) layout: Weak<DomainLayout>,
    pub(super) needs: Arc<[ResourceNeed]>,
    pub(super) fits: DomainFits,
    /// Leaves on which `find_exclusion` found a reason against the pods, by index.
    pub(super) excluded_leaves: Vec<bool>,
    /// `change_count` up to which leaf capacities are counted; 0 before the first count.
    pub(super) last_seen_change: u64,
    /// The last selection; `None` once a count changed.
    pub(super) last_selection: Option<CachedSelection>,
}

/// The result of selecting domains for `pods` pods.
#[derive(Clone, Debug)]
pub(super) struct CachedSelection {
    pub(super) pods: i64,
    pub(super) gates: TasGates,
    pub(super) result: Result<Vec<DomainAssignment>, PlacementError>,
}

impl CachedCounts {
    /// Returns an entry without counts.
    pub(super) fn new(key: CountKey, layout: &Arc<DomainLayout>, needs: Arc<[ResourceNeed]>) -> Self {
        let (counts, closed) = (DomainFits::default(), Vec::new());
        Self {
            key,
            layout: Arc::downgrade(layout),
            needs,
            fits: counts,
            excluded_leaves: closed,
            last_seen_change: 0,
            last_selection: None,
        }
    }

    /// Selects domains for `pods` pods, or returns the cached selection if no count changed since.
    pub(super) fn select_domains(
        &mut self,
        layout: &DomainLayout,
        pods: i64,
        gates: TasGates,
    ) -> Result<Vec<DomainAssignment>, PlacementError> {
        let cached = self.last_selection.take().filter(|cached| cached.pods == pods && cached.gates == gates);
        let chosen = cached.unwrap_or_else(|| {
            let Self { fits, key: CountKey { params, leader, .. }, .. } = &*self;
            let selection = DomainSelection { layout, fits, params, has_leader: leader.is_some() };
            CachedSelection { pods, gates, result: selection.select_leaves(pods, gates) }
        });
        self.last_selection.insert(chosen).result.clone()
    }

    fn is_for_layout(&self, layout: &Arc<DomainLayout>) -> bool {
        std::ptr::eq(self.layout.as_ptr(), Arc::as_ptr(layout))
    }
}

/// All entries, most recently used last.
#[derive(Clone, Debug, Default)]
pub(super) struct CountCache(Vec<CachedCounts>);

impl CountCache {
    /// Removes and returns the entry of a key. The caller updates it and inserts it again.
    pub(super) fn take(&mut self, key: &CountKey, layout: &Arc<DomainLayout>) -> Option<CachedCounts> {
        let index =
            self.0.iter().rposition(|cached| cached.is_for_layout(layout) && cached.key.matches(key))?;
        Some(self.0.remove(index))
    }

    /// Inserts an entry as the most recently used and drops the least recently used ones over the limits.
    pub(super) fn insert(&mut self, cached: CachedCounts) {
        self.0.push(cached);
        let mut leaf_count = 0;
        let recent = self.0.iter().rev().take_while(|cached| {
            leaf_count += cached.excluded_leaves.len();
            leaf_count <= MAX_DOMAINS
        });
        let kept = recent.count().clamp(1, MAX_CACHED);
        self.0.drain(..self.0.len().saturating_sub(kept));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CachedCounts> {
        self.0.iter()
    }
}
