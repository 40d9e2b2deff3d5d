//! Counts that are kept from one placement to the next: the same pods are placed again and again, while victims are tried
//! out and from cycle to cycle, and in between few spots change.
//!
//! Invariants: a tally that was brought up to date says what a count from nothing says, and what was chosen on it is what
//! would be chosen anew; it belongs to one shape and is of no use to another; what is kept is bounded by the narrowest domains
//! of all tallies together.

use super::choose::{Choice, Share};
use super::counts::{Counts, Need};
use super::pods::Pods;
use super::spots::View;
use super::terms::Terms;
use super::tree::Shape;
use super::{Refusal, Rules};
use std::sync::{Arc, Weak};

/// Most tallies that are kept.
const MOST: usize = 32;
/// Most narrowest domains that they have together, but for the last.
const WIDTH: usize = 1 << 16;

/// What is counted: how many of which pods could go where.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) pods: Arc<Pods>,
    pub(super) leader: Option<Arc<Pods>>,
    pub(super) terms: Terms,
    pub(super) view: View,
    /// Whether preferences of the pods count.
    pub(super) scores: bool,
}

impl Subject {
    fn is(&self, other: &Self) -> bool {
        let same = |a: &Arc<Pods>, b: &Arc<Pods>| Arc::ptr_eq(a, b) || a == b;
        self.view == other.view
            && self.scores == other.scores
            && same(&self.pods, &other.pods)
            && self.terms == other.terms
            && match (&self.leader, &other.leader) {
                (Some(a), Some(b)) => same(a, b),
                (None, None) => true,
                _ => false,
            }
    }
}

/// Counts of one subject on one shape.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub(super) subject: Subject,
    /// Not kept alive: nobody counts on a shape that is no more.
    pub(super) shape: Weak<Shape>,
    pub(super) needs: Arc<[Need]>,
    pub(super) counts: Counts,
    /// Which of the narrowest domains something keeps the pods from.
    pub(super) closed: Vec<bool>,
    /// The last change of a spot that is counted; 0 before the first count.
    pub(super) seen: u64,
    /// What was chosen last on these counts.
    pub(super) chosen: Option<Chosen>,
}

/// What was chosen for so many pods.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) pods: i64,
    pub(super) rules: Rules,
    pub(super) outcome: Result<Vec<Share>, Refusal>,
}

impl Tally {
    /// One that nothing was counted for yet.
    pub(super) fn new(subject: Subject, shape: &Arc<Shape>, needs: Arc<[Need]>) -> Self {
        let (counts, closed) = (Counts::default(), Vec::new());
        Self { subject, shape: Arc::downgrade(shape), needs, counts, closed, seen: 0, chosen: None }
    }

    /// Chooses for so many pods, unless that was done since anything changed.
    pub(super) fn choose(&mut self, shape: &Shape, pods: i64, rules: Rules) -> Result<Vec<Share>, Refusal> {
        let known = self.chosen.take().filter(|known| known.pods == pods && known.rules == rules);
        let chosen = known.unwrap_or_else(|| {
            let Self { counts, subject: Subject { terms, leader, .. }, .. } = &*self;
            let choice = Choice { shape, counts, terms, has_leader: leader.is_some() };
            Chosen { pods, rules, outcome: choice.make(pods, rules) }
        });
        self.chosen.insert(chosen).outcome.clone()
    }

    fn is_of(&self, shape: &Arc<Shape>) -> bool {
        std::ptr::eq(self.shape.as_ptr(), Arc::as_ptr(shape))
    }
}

/// Those that are kept, the one that was used last at the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Tallies(Vec<Tally>);

impl Tallies {
    /// Takes out what was counted of a subject.
    pub(super) fn take(&mut self, subject: &Subject, shape: &Arc<Shape>) -> Option<Tally> {
        let at = self.0.iter().rposition(|tally| tally.is_of(shape) && tally.subject.is(subject))?;
        Some(self.0.remove(at))
    }

    /// Keeps a tally; those that were not used for longest make way.
    pub(super) fn put(&mut self, tally: Tally) {
        self.0.push(tally);
        let mut width = 0;
        let fits = self.0.iter().rev().take_while(|tally| {
            width += tally.closed.len();
            width <= WIDTH
        });
        let kept = fits.count().clamp(1, MOST);
        self.0.drain(..self.0.len().saturating_sub(kept));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Tally> {
        self.0.iter()
    }
}
