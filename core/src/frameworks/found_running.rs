//! Jobs that run when a manager starts which charges their kind for more than the one before it did.
//!
//! Invariant: such a job runs on, on the quota that it was given, as long as it asks for what it was found with. A start, or a change
//! of its size, charges it for all of its pods.

use super::related::{Beside, PodSets};
use super::row::Framework;
use super::template_fingerprint::{TemplateFingerprint, pod_set_fingerprint};
use super::view::{JobView, PodSetView};
use crate::resources::{Quantity, default_requests, pod_quantities};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name, number of pods and template of a pod set.
type Size = (Arc<str>, i32, TemplateFingerprint);

/// What a job asked for when it was found running, and for what earlier versions charged that.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundRunning {
    asked: Vec<Size>,
    charged: Vec<Size>,
    /// What it asks for beyond that charge, by resource, before defaults that a cluster adds.
    pub uncharged: BTreeMap<String, Quantity>,
}

impl FoundRunning {
    /// Returns whether these are the pod sets that earlier versions charged: their names, counts and templates.
    pub fn was_charged<'a>(
        &self,
        sets: impl ExactSizeIterator<Item = (&'a Arc<str>, i32, &'a TemplateFingerprint)>,
    ) -> bool {
        sets.len() == self.charged.len()
            && sets.zip(&self.charged).all(|(set, charged)| {
                *set.0 == charged.0 && set.1 == charged.1 && set.2.same_requests(&charged.2)
            })
    }

    /// Returns what it asks for beyond its charge, as `cpu: 2, memory: 4Gi`.
    pub fn uncharged_text(&self) -> String {
        text(&self.uncharged)
    }

    fn asks_for(&self, sets: &[PodSetView]) -> bool {
        let size = |set: &PodSetView| (Arc::clone(&set.name), set.count, set.fingerprint);
        self.asked.iter().cloned().eq(sets.iter().map(size))
    }
}

impl Framework {
    /// Returns what the pods of a job request, as `cpu: 2, memory: 4Gi`, before defaults that a cluster adds.
    pub fn requested_text(&self, job: &Value, beside: Beside<'_>) -> String {
        match self.pod_sets_with(job, beside) {
            Ok(PodSets::Known(sets)) => text(&requests(&sets)),
            Ok(PodSets::Await(_)) | Err(_) => String::new(),
        }
    }

    /// Returns what a running job was found with: by this version of it if there is no view of an earlier one.
    pub(super) fn found_running(
        &self,
        job: &Value,
        view: &JobView,
        before: Option<&JobView>,
        beside: Beside<'_>,
    ) -> Option<Arc<FoundRunning>> {
        if view.suspended || view.pod_sets.is_empty() {
            return None;
        }
        if let Some(before) = before {
            return before.related.since_start.found.clone().filter(|found| found.asks_for(&view.pod_sets));
        }
        let former = self.hooks.as_charged_before(job)?;
        let sets = |job: &Value| match self.pod_sets_with(job, beside) {
            Ok(PodSets::Known(sets)) => Some(sets),
            Ok(PodSets::Await(_)) | Err(_) => None,
        };
        let (asked, charged) = (sets(job)?, sets(&former)?);
        let found = FoundRunning {
            asked: view
                .pod_sets
                .iter()
                .map(|set| (Arc::clone(&set.name), set.count, set.fingerprint))
                .collect(),
            charged: charged.iter().filter_map(size).collect(),
            uncharged: difference(requests(&asked), &requests(&charged)),
        };
        Some(Arc::new(found))
    }
}

fn text(amounts: &BTreeMap<String, Quantity>) -> String {
    let parts = amounts.iter().map(|(resource, amount)| format!("{resource}: {amount}"));
    parts.collect::<Vec<_>>().join(", ")
}

fn size(set: &Value) -> Option<Size> {
    let name = Arc::from(set.get("name")?.as_str()?);
    Some((name, i32::try_from(count(set)).ok()?, pod_set_fingerprint(set)))
}

fn count(set: &Value) -> i64 {
    set.get("count").and_then(Value::as_i64).unwrap_or(1)
}

fn requests(sets: &[Value]) -> BTreeMap<String, Quantity> {
    let mut sum: BTreeMap<String, Quantity> = BTreeMap::new();
    for set in sets {
        let spec = set.pointer("/template/spec").cloned().unwrap_or_default();
        let Ok(mut spec) = serde_json::from_value(spec) else { continue };
        default_requests(&mut spec);
        for (resource, amount) in pod_quantities(&spec) {
            let all = amount.times(count(set));
            let resource = resource.to_string();
            let known = sum.remove(&resource);
            sum.insert(resource, known.map_or_else(|| all.clone(), |known| known.plus(&all)));
        }
    }
    sum
}

/// Returns what is left of amounts, without resources of which nothing is.
fn difference(
    amounts: BTreeMap<String, Quantity>,
    less: &BTreeMap<String, Quantity>,
) -> BTreeMap<String, Quantity> {
    let left = |(resource, amount): (String, Quantity)| {
        let left = less.get(&resource).map_or_else(|| amount.clone(), |less| amount.minus(less));
        (left.sign() > 0).then_some((resource, left))
    };
    amounts.into_iter().filter_map(left).collect()
}
