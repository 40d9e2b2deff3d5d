//! Before which time a pending Workload is not admitted.
//!
//! Invariants: a simulation holds the Workload and what certainly keeps its quota, and nothing else: no other pending workload, none that
//! may end or be preempted at any time, none that the reader may not see. Each of them ends as early as its earlier runs, or an
//! annotation, let it. In the cluster there is never less in the way, so that the Workload is not admitted earlier there, unless one is
//! deleted, or ends earlier than that.

use super::facts::Facts;
use super::scope::with_workloads;
use super::{EstimateRequest, Refusal, Tree, loaded};
use crate::api::ObjectKey;
use crate::simulate::job_runner::PlannedRun;
use crate::simulate::objects::key_of;
use crate::simulate::simulation::{KeepGoing, Simulation, SimulationOptions, Until};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// A time before which a Workload is not admitted, unless another one is deleted or ends early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LowerBound {
    /// The time.
    pub at: Timestamp,
    /// What ends then at the earliest.
    pub ending: Vec<ObjectKey>,
}

/// How much later than an end an admission that follows from it may be in a simulation.
const FOLLOWS: SignedDuration = SignedDuration::from_secs(1);

/// Returns the bound; `None` if the Workload may be admitted at any time, or the time is up.
///
/// # Errors
/// Even if all that may end has ended, it is not admitted.
pub(super) fn lower_bound(
    request: &EstimateRequest<'_>,
    tree: &Tree<'_>,
    options: &SimulationOptions,
    keep_going: Option<&KeepGoing>,
) -> Result<Option<LowerBound>, Refusal> {
    let now = options.start;
    let preempted = tree.may_be_preempted(request.objects, &options.core.engine);
    let runs = || tree.facts.iter().filter(|facts| !preempted.contains(&facts.key) && request.shows(facts));
    let ends: Vec<(&Facts, Timestamp)> = runs()
        .filter(|facts| !tree.serves(facts))
        .filter_map(|facts| Some((facts, facts.earliest_end(now)?)))
        .collect();
    let serving = runs().filter(|facts| tree.serves(facts) && facts.is_admitted());
    let mut kept: BTreeSet<&ObjectKey> =
        ends.iter().map(|(facts, _)| &facts.key).chain(serving.map(|f| &f.key)).collect();
    if kept.is_empty() {
        return Ok(None);
    }
    kept.insert(request.workload);
    let objects = with_workloads(request.objects, &|workload| kept.contains(&key_of(workload)), false);
    let Some(mut simulation) = loaded(&objects, planned(&ends, now), options, keep_going)? else {
        return Ok(None);
    };
    // Its checks are answered later, if at all.
    let is_reserved = |simulation: &Simulation| simulation.has(request.workload, "QuotaReserved");
    let settled = simulation.run_to(Until::Settled, &is_reserved);
    if !is_reserved(&simulation) {
        let never = settled && !simulation.livelocked;
        return if never { Err(Refusal::NotAdmitted) } else { Ok(None) };
    }
    Ok(Some(bound(&ends, simulation.now)).filter(|bound| bound.at > now))
}

/// Returns the runs by the UIDs of Workloads and their owners.
fn planned(ends: &[(&Facts, Timestamp)], now: Timestamp) -> BTreeMap<String, PlannedRun> {
    let mut planned = BTreeMap::new();
    for (facts, end) in ends {
        let run = PlannedRun { end: Some(*end), length: end.duration_since(now) };
        planned.extend(facts.uids.iter().map(|uid| (uid.clone(), run)));
    }
    planned
}

/// Returns the last end before an admission that follows from it, and what ends then.
fn bound(ends: &[(&Facts, Timestamp)], admitted: Timestamp) -> LowerBound {
    let last = ends.iter().map(|(_, end)| *end).filter(|end| *end <= admitted).max();
    let Some(at) = last.filter(|end| admitted.duration_since(*end) <= FOLLOWS) else {
        // It waits for a time of its own, such as that of its next attempt.
        let at = admitted.checked_sub(FOLLOWS).unwrap_or(admitted);
        return LowerBound { at, ending: Vec::new() };
    };
    let ending = ends.iter().filter(|(_, end)| *end == at).map(|(facts, _)| facts.key.clone()).collect();
    LowerBound { at, ending }
}
