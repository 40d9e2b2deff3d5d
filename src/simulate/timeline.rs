//! What happened to whom and when, read off the Workloads' statuses as they change.

use super::runs::{condition, has_owner, is_true};
use super::server::{key_of, text};
use crate::api::ObjectKey;
use jiff::SignedDuration;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// Seconds since the start.
    pub seconds: f64,
    /// What happened.
    pub event: Happening,
    /// To which job or Workload, or by which file.
    pub subject: String,
    /// The ClusterQueue, where one is concerned.
    #[serde(rename = "clusterQueue", skip_serializing_if = "String::is_empty")]
    pub cluster_queue: String,
    /// For whom somebody had to go.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// Reason, flavors, or message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Happening {
    /// Quota is reserved, and something else is waited for.
    Reserved,
    /// It may run.
    Admitted,
    /// It waits, and why.
    Waits,
    /// It has to make room.
    Preempted,
    /// It has to stop for another reason.
    Evicted,
    /// Its quota is given back, and it is queued again or not.
    Released,
    /// It has ended.
    Finished,
    /// The change was applied.
    Changed,
}

impl Happening {
    /// As tables show it.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Admitted => "admitted",
            Self::Waits => "waits",
            Self::Preempted => "preempted",
            Self::Evicted => "evicted",
            Self::Released => "released",
            Self::Finished => "finished",
            Self::Changed => "changed",
        }
    }
}

/// The entries so far, and who is who.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    pub(super) entries: Vec<Entry>,
    /// Names of Workloads by UID, for those who preempt.
    names: BTreeMap<String, String>,
}

impl Timeline {
    /// Takes note of who a Workload is.
    pub(super) fn meet(&mut self, workload: &Value) {
        let uid = text(workload, "/metadata/uid");
        if !uid.is_empty() && !self.names.contains_key(uid) {
            self.names.insert(uid.to_owned(), name_of(workload));
        }
    }

    /// Takes note of a change of a Workload.
    pub(super) fn observe(&mut self, old: &Value, new: &Value, elapsed: SignedDuration) {
        let turned = |kind: &str| is_true(new, kind) && !is_true(old, kind);
        let (event, by, detail) = if turned("Finished") {
            (Happening::Finished, String::new(), said(new, "Finished", "/reason"))
        } else if turned("Evicted") {
            let preemptor = turned("Preempted").then(|| self.preemptor(new));
            let kind = if preemptor.is_some() { "Preempted" } else { "Evicted" };
            let event = if preemptor.is_some() { Happening::Preempted } else { Happening::Evicted };
            (event, preemptor.unwrap_or_default(), said(new, kind, "/reason"))
        } else if turned("Admitted") {
            (Happening::Admitted, String::new(), flavors(new))
        } else if turned("QuotaReserved") {
            (Happening::Reserved, String::new(), flavors(new))
        } else if is_true(old, "QuotaReserved") && !is_true(new, "QuotaReserved") {
            (Happening::Released, String::new(), said(new, "QuotaReserved", "/reason"))
        } else if !is_true(new, "QuotaReserved") && said(old, "QuotaReserved", "/reason") != said(new, "QuotaReserved", "/reason") {
            (Happening::Waits, String::new(), format!("{}: {}", said(new, "QuotaReserved", "/reason"), said(new, "QuotaReserved", "/message")))
        } else {
            return;
        };
        let queue = [new, old].iter().find_map(|w| w.pointer("/status/admission/clusterQueue")?.as_str());
        self.entries.push(Entry {
            seconds: elapsed.as_secs_f64(),
            event,
            subject: name_of(new),
            cluster_queue: queue.unwrap_or_default().to_owned(),
            by,
            detail,
        });
    }

    /// Takes note of something that is no Workload's.
    pub(super) fn note(&mut self, event: Happening, subject: &str, elapsed: SignedDuration) {
        let (cluster_queue, by, detail) = Default::default();
        let seconds = elapsed.as_secs_f64();
        self.entries.push(Entry { seconds, event, subject: subject.to_owned(), cluster_queue, by, detail });
    }

    /// For whom a Workload has to make room: the condition names the UID.
    fn preemptor(&self, workload: &Value) -> String {
        let message = said(workload, "Preempted", "/message");
        let uid = message.split_once("(UID: ").and_then(|(_, rest)| rest.split(',').next()).unwrap_or_default();
        self.names.get(uid).cloned().unwrap_or_else(|| uid.to_owned())
    }
}

/// A word of a condition.
fn said(workload: &Value, kind: &str, field: &str) -> String {
    condition(workload, kind).map(|c| text(c, field).to_owned()).unwrap_or_default()
}

/// How people call a Workload: by its job, if there is one.
pub(super) fn name_of(workload: &Value) -> String {
    let key = key_of(workload);
    if !has_owner(workload) {
        return key.to_string();
    }
    ObjectKey::new(&key.namespace, text(workload, "/metadata/ownerReferences/0/name")).to_string()
}

/// The flavors of a grant: `cpu=spot memory=spot`, once for all pod sets that are alike, with the number of pods.
pub(super) fn flavors(workload: &Value) -> String {
    let sets = workload.pointer("/status/admission/podSetAssignments").and_then(Value::as_array);
    let mut parts: Vec<(String, i64)> = Vec::new();
    for set in sets.into_iter().flatten() {
        let flavors = set.get("flavors").and_then(Value::as_object).into_iter().flatten();
        let mut pairs: Vec<String> =
            flavors.map(|(resource, flavor)| format!("{resource}={}", flavor.as_str().unwrap_or_default())).collect();
        pairs.sort();
        let count = set.get("count").and_then(Value::as_i64).unwrap_or(0);
        let words = pairs.join(" ");
        match parts.iter_mut().find(|(known, _)| *known == words) {
            Some((_, pods)) => *pods = pods.saturating_add(count),
            None => parts.push((words, count)),
        }
    }
    let shown: Vec<String> = parts.iter().map(|(words, pods)| format!("{words} ({pods} pods)")).collect();
    shown.join(", ")
}
