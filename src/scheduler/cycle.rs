//! One cycle: heads, nomination, order, processing.
//!
//! Every head gets exactly one outcome; processing maps heads to outcomes and cannot end early.

use super::assign::{Context, Plan, Short, assign};
use super::config::Charge;
use super::decision::{Decision, Outcome};
use super::engine::Engine;
use super::matching::selects;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::api::v1beta2::{QueueingStrategy, ReclaimPolicy};
use crate::queue::{Claim, ClassId, OrderKey, Parked, Verdict, Waits, Workload};
use crate::quota::{FlavorResource, NodeRef};
use crate::resources::Amount;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A head of this cycle after nomination.
struct Entry {
    queue: Arc<str>,
    class: ClassId,
    key: ObjectKey,
    uid: Arc<str>,
    place: (u32, OrderKey),
    found: Found,
}

enum Found {
    /// It fits the quota as it stood at the start of the cycle.
    Fits(Box<Plan>, Workload),
    /// It does not fit.
    Short(Box<Short>),
    /// It did not fit and its class is parked.
    Parked(Arc<Verdict>, Option<Claim>),
    /// A head that was blocked before keeps its claim.
    Claims(Claim),
}

/// What has happened in this cycle so far.
#[derive(Default)]
struct Turn {
    /// Reservations to be undone at the end.
    reserved: Vec<(Arc<str>, BTreeMap<FlavorResource, i128>)>,
    /// Trees whose next cycle starts from something else than this one.
    moved: BTreeSet<NodeRef>,
    /// Trees with claims of blocked heads.
    claims: BTreeMap<NodeRef, BTreeSet<Arc<str>>>,
}

impl Engine {
    /// Judges one head of every ClusterQueue. Those admitted hold their quota from then on.
    pub fn cycle(&mut self, _now: Timestamp) -> Vec<Decision> {
        self.cycles += 1;
        let judged = self.nominate();
        let mut entries: Vec<Entry> = judged.into_iter().map(|entry| self.park_if_short(entry)).collect();
        entries.sort_by(|a, b| a.place.cmp(&b.place));
        let mut turn = Turn::default();
        let decisions = entries.into_iter().filter_map(|entry| self.process(entry, &mut turn)).collect();
        for (queue, usage) in turn.reserved {
            let back = usage.into_iter().map(|(pair, amount)| (pair, -amount)).collect();
            self.tree.hold(&queue, &back);
        }
        decisions
    }

    /// Heads to be judged, judged against the quota as it stands, and the blocked heads with claims beside them.
    fn nominate(&self) -> Vec<Entry> {
        let ready = self.pending.ready();
        let trees: BTreeSet<&NodeRef> = ready.iter().filter_map(|queue| self.tree.root(queue)).collect();
        let blocked = self.pending.claimants().filter(|queue| !ready.contains(*queue));
        let near = blocked.filter(|queue| self.tree.root(queue).is_some_and(|root| trees.contains(root)));
        let claims = near.filter_map(|queue| self.claiming_entry(queue));
        ready.iter().filter_map(|queue| self.judged_entry(queue)).chain(claims).collect()
    }

    fn claiming_entry(&self, queue: &Arc<str>) -> Option<Entry> {
        let head = self.pending.claimant(queue)?;
        let claim = head.claim?.clone();
        Some(entry(queue, head.class, head.workload, claim.borrows, Found::Claims(claim)))
    }

    fn judged_entry(&self, name: &Arc<str>) -> Option<Entry> {
        let head = self.pending.head(name)?;
        let queue = self.queues.get(name)?;
        let (flavors, tree) = (&self.flavors, &self.tree);
        let labels = self.namespaces.get(&head.workload.key.namespace);
        if !selects(queue.namespace_selector.as_ref(), labels) {
            let text = "Workload namespace doesn't match ClusterQueue selector";
            let verdict = Verdict::plain(PendingReason::Misconfigured, text);
            let short = Short { verdict, waits: Waits::default(), claim: None, aside: true };
            return Some(entry(name, head.class, head.workload, 0, Found::Short(Box::new(short))));
        }
        let context = Context { settings: &self.settings, tree, flavors, name, queue, cycle: self.cycles };
        Some(match assign(&context, head.workload, head.cursor) {
            Ok(plan) => {
                let borrows = plan.borrows;
                entry(
                    name,
                    head.class,
                    head.workload,
                    borrows,
                    Found::Fits(Box::new(plan), head.workload.clone()),
                )
            }
            Err(short) => entry(name, head.class, head.workload, 0, Found::Short(short)),
        })
    }

    /// Parks the class of a head that does not fit, before anything of this cycle is charged: what is charged later may be
    /// what it waits for.
    fn park_if_short(&mut self, mut entry: Entry) -> Entry {
        let Found::Short(short) = entry.found else {
            return entry;
        };
        let Short { verdict, waits, claim, aside } = *short;
        let verdict = Arc::new(verdict);
        let claim = claim.filter(|_| self.reclaim_policy(&entry.queue) != ReclaimPolicy::Any);
        entry.place.0 = claim.as_ref().map_or(0, |claim| claim.borrows);
        let parked = Parked { aside, claim: claim.clone(), waits };
        self.pending.park(&entry.queue, entry.class, &verdict, parked);
        entry.found = Found::Parked(verdict, claim);
        entry
    }

    fn process(&mut self, entry: Entry, turn: &mut Turn) -> Option<Decision> {
        let root = self.tree.root(&entry.queue).cloned()?;
        let outcome = match entry.found {
            Found::Claims(claim) => {
                self.reserve(&entry.queue, &claim, turn);
                turn.claims.entry(root).or_default().insert(entry.queue);
                return None;
            }
            Found::Parked(verdict, claim) => {
                if let Some(claim) = claim {
                    self.reserve(&entry.queue, &claim, turn);
                    if self.strategy(&entry.queue) == QueueingStrategy::StrictFIFO {
                        turn.claims.entry(root).or_default().insert(Arc::clone(&entry.queue));
                    } else {
                        turn.moved.insert(root);
                    }
                }
                Outcome::Pending(verdict)
            }
            Found::Fits(plan, workload) => {
                let short = self.lacking(&entry.queue, &plan.usage);
                if short.is_empty() {
                    turn.moved.insert(root);
                    self.admit(&workload, *plan)
                } else if turn.moved.contains(&root) {
                    self.pending.keep(&entry.queue, entry.class, plan.cursor);
                    let text = "The workload no longer fits after processing another workload";
                    Outcome::Skipped(Arc::new(Verdict::plain(PendingReason::WaitingForQuota, text)))
                } else {
                    let claims = turn.claims.get(&root).cloned().unwrap_or_default();
                    self.park_behind(&entry.queue, entry.class, root, short, claims)
                }
            }
            Found::Short(_) => return None,
        };
        Some(Decision { key: entry.key, uid: entry.uid, outcome })
    }

    /// What of the usage is not available to the queue now.
    fn lacking(&self, queue: &str, usage: &BTreeMap<FlavorResource, i128>) -> BTreeSet<FlavorResource> {
        let fits = |pair: &FlavorResource, need: i128| {
            self.tree.path(queue, pair).is_some_and(|path| need <= path.available().max(0))
        };
        usage.iter().filter(|(pair, need)| !fits(pair, **need)).map(|(pair, _)| pair.clone()).collect()
    }

    /// Charges an assignment.
    fn admit(&mut self, workload: &Workload, plan: Plan) -> Outcome {
        let usage =
            plan.usage.iter().map(|(pair, amount)| (pair.clone(), Amount::from_wide(*amount))).collect();
        let charge = Charge {
            cluster_queue: Arc::clone(&workload.cluster_queue),
            usage,
            uid: Arc::clone(&workload.uid),
            local_queue: Arc::clone(&workload.local_queue),
            priority: workload.priority,
            reserved_at: None,
            evicted: false,
            queued_since: workload.queued_since,
            variant: workload.variant.clone(),
        };
        self.charge(&workload.key, charge);
        Outcome::Admitted(plan.assignment)
    }

    /// Parks a class that would fit if it were not for the claims of blocked heads.
    fn park_behind(
        &mut self,
        queue: &Arc<str>,
        class: ClassId,
        tree: NodeRef,
        short: BTreeSet<FlavorResource>,
        claims: BTreeSet<Arc<str>>,
    ) -> Outcome {
        let names: Vec<&str> = claims.iter().map(|name| &**name).collect();
        let text = format!("the quota is kept for the head of ClusterQueue {}", names.join(", "));
        let verdict = Arc::new(Verdict::plain(PendingReason::WaitingForQuota, &text));
        let waits = Waits { tree: Some(tree), any: short, claims, needs: BTreeMap::new() };
        self.pending.park(queue, class, &verdict, Parked { aside: false, claim: None, waits });
        Outcome::Pending(verdict)
    }

    /// Keeps what a head that waits for evictions could claim from the others of this cycle. A queue in debt claims
    /// nothing.
    fn reserve(&mut self, queue: &Arc<str>, claim: &Claim, turn: &mut Turn) {
        let amount = |pair: &FlavorResource, need: i128| {
            let path = self.tree.path(queue, pair)?;
            let own = path.nominal() - path.usage();
            Some(match (claim.borrows, path.borrowing_limit()) {
                (0, _) => need.min(own).max(0),
                (_, None) => need,
                (_, Some(limit)) => need.min(own + limit).max(0),
            })
        };
        let reserve = |(pair, need): (&FlavorResource, &i128)| Some((pair.clone(), amount(pair, *need)?));
        let usage: BTreeMap<FlavorResource, i128> = claim.usage.iter().filter_map(reserve).collect();
        self.tree.hold(queue, &usage);
        turn.reserved.push((Arc::clone(queue), usage));
    }

    fn strategy(&self, queue: &str) -> QueueingStrategy {
        self.queues.get(queue).map(|queue| queue.strategy).unwrap_or_default()
    }

    fn reclaim_policy(&self, queue: &str) -> ReclaimPolicy {
        self.queues.get(queue).and_then(|queue| queue.preemption.reclaim_within_cohort).unwrap_or_default()
    }
}

fn entry(queue: &Arc<str>, class: ClassId, workload: &Workload, borrows: u32, found: Found) -> Entry {
    Entry {
        queue: Arc::clone(queue),
        class,
        key: workload.key.clone(),
        uid: Arc::clone(&workload.uid),
        place: (borrows, OrderKey::of(workload)),
        found,
    }
}
