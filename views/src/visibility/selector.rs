//! Field selectors of lists of workloads.
//!
//! Invariant: an unknown field or value is an error that names it, never a selector that selects nothing.

use super::views::WorkloadState;
use crate::api::reason::PendingReason;
use crate::api::{names, selector};
use crate::cache::records::WorkloadRecord;
use crate::frameworks::submitter_name;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The fields, for messages.
const FIELDS: &str =
    "clusterQueue, localQueue, status, reason, priority, job, mine, metadata.name, metadata.namespace";
/// Error text for a list of one submitter, where submitters are not known.
pub const NO_SUBMITTERS: &str = "mine: nothing says what names the submitter of a workload: set visibility.userLabel in the configuration of the manager, or start it with --record-submitter";

/// Returns whether a pending Workload with this reason stays pending until something is changed.
pub fn needs_change(reason: &str) -> bool {
    PendingReason::ALL.iter().any(|known| known.needs_change() && known.as_str() == reason)
}

/// Returns whether the state of an object keeps a pending Workload with this reason out of its queue.
pub fn keeps_out(reason: &str) -> bool {
    PendingReason::ALL.iter().any(|known| known.keeps_out() && known.as_str() == reason)
}

/// Returns whether this reason, of `QuotaReserved=False`, can select pending Workloads.
pub fn is_pending_reason(reason: &str) -> bool {
    PendingReason::ALL.iter().any(|known| known.as_str() == reason)
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    ClusterQueue(String),
    LocalQueue(String),
    /// One of these states.
    Status(Vec<WorkloadState>),
    /// One of these reasons.
    Reason(Vec<ReasonOf>),
    Priority(i64),
    Job {
        kind: String,
        name: String,
    },
    Name(String),
    Namespace(String),
}

/// Reason of a pending Workload in a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReasonOf {
    /// This reason, as in the row: from the condition, unless the state has another one now.
    This(&'static str),
    /// Any reason, and the Workload is not admitted even if all reserving workloads end.
    Stuck,
    /// Any reason, and the wait may end without a change.
    Waiting,
}

impl ReasonOf {
    fn matches(self, fields: &SelectedFields<'_>) -> bool {
        match self {
            Self::This(reason) => fields.reason == reason,
            Self::Stuck => fields.is_stuck,
            Self::Waiting => !fields.is_stuck,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    field: Field,
    negated: bool,
}

/// Selects workloads. Without a requirement on the status, finished workloads are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkloadSelector {
    requirements: Vec<Requirement>,
    /// Required labels.
    labels: Option<LabelSelector>,
    /// The ClusterQueues of the selected workloads; `None` for all.
    cluster_queues: Option<BTreeSet<Arc<str>>>,
    /// Set if only workloads of one submitter are selected.
    submitter: Option<Submitter>,
}

/// The submitter of selected workloads.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Submitter {
    /// The reader, whose name the text of the selector does not have. No workload matches before the name is known.
    Reader,
    /// The user of this name.
    Named(String),
}

/// The fields of a Workload that requirements read.
#[derive(Clone, Copy, Debug)]
pub(super) struct SelectedFields<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) cluster_queue: &'a str,
    pub(super) local_queue: &'a str,
    pub(super) state: WorkloadState,
    pub(super) reason: &'a str,
    /// Whether the Workload is stuck. Like the present reason, it is only known if `reads_standing`.
    pub(super) is_stuck: bool,
    pub(super) priority: i64,
    /// Kind and name of the job.
    pub(super) job: (&'a str, &'a str),
}

impl WorkloadSelector {
    /// Parses a field selector: `field=value`, `field==value` or `field!=value`, separated by commas. Several values of a field
    /// are separated by `|`. `status` takes states in any case, or `all`; `reason` takes reasons, `waiting` or `stuck`; `job`
    /// takes `KIND/NAME`; `mine=true` selects what the reader submitted, see [`Self::for_reader`].
    ///
    /// # Errors
    /// If a field or value is not known; the text names it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let (mine, parts): (Vec<&str>, Vec<&str>) = parts.partition(|part| part.starts_with("mine="));
        if let Some(other) = mine.iter().find(|part| **part != "mine=true") {
            return Err(format!("fieldSelector: {other:?}: mine takes true alone"));
        }
        let requirements = parts.into_iter().map(requirement).collect::<Result<_, _>>()?;
        let submitter = (!mine.is_empty()).then_some(Submitter::Reader);
        Ok(Self { requirements, labels: None, cluster_queues: None, submitter })
    }

    /// Returns whether it selects what its reader submitted, and the reader is not known yet.
    pub fn needs_reader(&self) -> bool {
        self.submitter == Some(Submitter::Reader)
    }

    /// Sets the name of the reader, if the selector needs it.
    #[must_use]
    pub fn for_reader(self, user: &str) -> Self {
        if !self.needs_reader() {
            return self;
        }
        Self { submitter: Some(Submitter::Named(submitter_name(user).to_owned())), ..self }
    }

    /// Returns the submitter of all selected Workloads, if it selects by submitter; empty before the name is known.
    pub(super) fn submitter(&self) -> Option<&str> {
        self.submitter.as_ref().map(|submitter| match submitter {
            Submitter::Reader => "",
            Submitter::Named(user) => user.as_str(),
        })
    }

    /// Returns whether the submitter of a Workload matches.
    pub(super) fn matches_submitter(&self, record: &WorkloadRecord) -> bool {
        match &self.submitter {
            None => true,
            Some(Submitter::Reader) => false,
            Some(Submitter::Named(user)) => record.annotations.submitter.as_deref() == Some(user.as_str()),
        }
    }

    /// Adds a label selector, in the syntax of `kubectl`.
    ///
    /// # Errors
    /// If a part is not a requirement; the text names it.
    pub fn with_labels(self, text: &str) -> Result<Self, String> {
        let parsed = selector::parse(text).map_err(|error| format!("labelSelector: {error}"))?;
        let labels = Some(parsed).filter(|labels| *labels != LabelSelector::default());
        Ok(Self { labels, ..self })
    }

    /// Selects only workloads of these ClusterQueues, such as the ones below a cohort.
    #[must_use]
    pub fn within(self, cluster_queues: BTreeSet<Arc<str>>) -> Self {
        Self { cluster_queues: Some(cluster_queues), ..self }
    }

    /// Returns whether workloads of a ClusterQueue may be selected, as far as `within` says.
    pub(super) fn is_within(&self, cluster_queue: &str) -> bool {
        self.cluster_queues.as_ref().is_none_or(|known| known.contains(cluster_queue))
    }

    /// Returns whether the labels of a Workload match.
    pub(super) fn matches_labels(&self, record: &WorkloadRecord) -> bool {
        let Some(labels) = &self.labels else { return true };
        if selector::keys(labels).contains(names::JOB_UID_LABEL) {
            selector::matches(labels, &record.all_labels())
        } else {
            selector::matches(labels, &record.labels)
        }
    }

    pub(super) fn matches(&self, fields: &SelectedFields<'_>) -> bool {
        let is_status = |requirement: &Requirement| matches!(requirement.field, Field::Status(_));
        let unfinished = self.requirements.iter().any(is_status) || fields.state != WorkloadState::Finished;
        unfinished
            && self.is_within(fields.cluster_queue)
            && self.requirements.iter().all(|requirement| requirement.matches(fields))
    }

    /// Returns the fields of requirements that are not negated.
    fn required(&self) -> impl Iterator<Item = &Field> {
        self.requirements
            .iter()
            .filter(|requirement| !requirement.negated)
            .map(|requirement| &requirement.field)
    }

    /// Returns the ClusterQueue of all selected Workloads, if the selector names one.
    pub(super) fn cluster_queue(&self) -> Option<&str> {
        self.required()
            .find_map(|field| if let Field::ClusterQueue(name) = field { Some(&**name) } else { None })
    }

    /// Returns the LocalQueue of all selected Workloads, if the selector names one.
    pub(super) fn local_queue(&self) -> Option<&str> {
        self.required()
            .find_map(|field| if let Field::LocalQueue(name) = field { Some(&**name) } else { None })
    }

    /// Returns whether it selects by the reason of pending workloads, or by whether they are stuck.
    pub(super) fn reads_standing(&self) -> bool {
        self.requirements.iter().any(|requirement| matches!(requirement.field, Field::Reason(_)))
    }

    /// Returns whether it selects pending workloads only.
    pub(super) fn only_pending(&self) -> bool {
        self.required().any(|field| *field == Field::Status(vec![WorkloadState::Pending]))
    }

    /// Returns kind and name of the job whose workloads it selects, if it names one.
    pub fn job(&self) -> Option<(&str, &str)> {
        self.requirements.iter().find_map(|requirement| match &requirement.field {
            Field::Job { kind, name } if !requirement.negated => Some((kind.as_str(), name.as_str())),
            _ => None,
        })
    }

    /// Returns whether it selects by queue and status only.
    pub(super) fn is_by_queue(&self) -> bool {
        self.labels.is_none()
            && self.cluster_queues.is_none()
            && self.submitter.is_none()
            && self.requirements.iter().all(|requirement| {
                !requirement.negated
                    && matches!(
                        requirement.field,
                        Field::ClusterQueue(_) | Field::LocalQueue(_) | Field::Status(_)
                    )
            })
    }
}

impl Requirement {
    fn matches(&self, fields: &SelectedFields<'_>) -> bool {
        let matches = match &self.field {
            Field::ClusterQueue(name) => fields.cluster_queue == name,
            Field::LocalQueue(name) => fields.local_queue == name,
            Field::Status(states) => states.contains(&fields.state),
            Field::Reason(reasons) => {
                fields.state == WorkloadState::Pending && reasons.iter().any(|reason| reason.matches(fields))
            }
            Field::Priority(priority) => fields.priority == *priority,
            Field::Job { kind, name } => fields.job.0.eq_ignore_ascii_case(kind) && fields.job.1 == name,
            Field::Name(name) => fields.name == name,
            Field::Namespace(name) => fields.namespace == name,
        };
        matches != self.negated
    }
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let (name, value, negated) = if let Some((name, value)) = text.split_once("!=") {
        (name, value, true)
    } else if let Some((name, value)) = text.split_once('=') {
        (name, value.strip_prefix('=').unwrap_or(value), false)
    } else {
        return Err(format!("fieldSelector: {text:?} has no =; fields: {FIELDS}"));
    };
    let field = match name.trim() {
        "clusterQueue" => Field::ClusterQueue(value.to_owned()),
        "localQueue" => Field::LocalQueue(value.to_owned()),
        "status" => Field::Status(states(value)?),
        "reason" => Field::Reason(reasons(value)?),
        "priority" => {
            let number = value.parse();
            Field::Priority(number.map_err(|_| format!("fieldSelector: priority {value:?} is not a number"))?)
        }
        "job" => {
            let job = value
                .split_once('/')
                .ok_or_else(|| format!("fieldSelector: job {value:?} is not KIND/NAME"))?;
            Field::Job { kind: job.0.to_owned(), name: job.1.to_owned() }
        }
        "metadata.name" => Field::Name(value.to_owned()),
        "metadata.namespace" => Field::Namespace(value.to_owned()),
        other => return Err(format!("fieldSelector: unknown field {other:?}; fields: {FIELDS}")),
    };
    Ok(Requirement { field, negated })
}

fn states(text: &str) -> Result<Vec<WorkloadState>, String> {
    if text.eq_ignore_ascii_case("all") {
        return Ok(WorkloadState::ALL.to_vec());
    }
    let state = |word: &str| {
        let known = WorkloadState::ALL.into_iter().find(|state| state.as_str().eq_ignore_ascii_case(word));
        known.ok_or_else(|| {
            format!("unknown status {word:?}: use pending, quotareserved, admitted, evicted, finished or all")
        })
    };
    text.split('|').map(state).collect()
}

fn reasons(text: &str) -> Result<Vec<ReasonOf>, String> {
    let reason = |word: &str| {
        let known = PendingReason::ALL.map(PendingReason::as_str);
        match word.to_ascii_lowercase().as_str() {
            "stuck" => Ok(ReasonOf::Stuck),
            "waiting" => Ok(ReasonOf::Waiting),
            _ => known
                .into_iter()
                .find(|reason| reason.eq_ignore_ascii_case(word))
                .map(ReasonOf::This)
                .ok_or_else(|| {
                    format!("unknown reason {word:?}: use waiting, stuck, or one of {}", known.join(", "))
                }),
        }
    };
    text.split('|').map(reason).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS_OF_ONE: SelectedFields<'static> = SelectedFields {
        namespace: "ns",
        name: "w",
        cluster_queue: "cq",
        local_queue: "lq",
        state: WorkloadState::Pending,
        reason: "WaitingForQuota",
        is_stuck: false,
        priority: 7,
        job: ("Job", "train"),
    };

    #[test]
    fn requirements_select() {
        for (text, expected) in [
            ("", true),
            ("clusterQueue=cq,localQueue==lq", true),
            ("clusterQueue!=cq", false),
            ("status=pending", true),
            ("status=admitted|Pending", true),
            ("status=finished", false),
            ("reason=waiting", true),
            ("reason=stuck", false),
            ("reason=waitingforquota", true),
            ("reason!=WaitingForQuota", false),
            ("priority=7", true),
            ("priority!=7", false),
            ("job=job/train", true),
            ("job=Job/other", false),
            ("metadata.name=w,metadata.namespace=ns", true),
        ] {
            assert_eq!(WorkloadSelector::parse(text).unwrap().matches(&FIELDS_OF_ONE), expected, "{text}");
        }
        let finished = SelectedFields { state: WorkloadState::Finished, ..FIELDS_OF_ONE };
        for (text, expected) in
            [("", false), ("clusterQueue=cq", false), ("status=all", true), ("status=finished", true)]
        {
            assert_eq!(WorkloadSelector::parse(text).unwrap().matches(&finished), expected, "{text}");
        }
    }

    #[test]
    fn workloads_of_some_cluster_queues_are_selected() {
        let within = |names: &[&str]| {
            let names = names.iter().map(|name| Arc::from(*name)).collect();
            WorkloadSelector::default().within(names)
        };
        for (names, expected) in [(&["cq", "other"][..], true), (&["other"], false), (&[], false)] {
            let selector = within(names);
            assert_eq!(selector.matches(&FIELDS_OF_ONE), expected, "{names:?}");
            assert!(!selector.is_by_queue(), "the number of remaining rows is not counted");
        }
    }

    #[test]
    fn unknown_words_are_named() {
        for (text, named) in [
            ("status=runing", "unknown status \"runing\": use pending"),
            ("reason=x", "unknown reason \"x\""),
            ("colour=red", "unknown field \"colour\""),
            ("status", "has no ="),
            ("priority=high", "priority \"high\""),
            ("job=train", "not KIND/NAME"),
            ("mine=false", "mine takes true alone"),
            ("mine=", "mine takes true alone"),
        ] {
            let error = WorkloadSelector::parse(text).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn what_the_reader_submitted_needs_the_reader() {
        let selector = WorkloadSelector::parse("status=pending,mine=true").unwrap();
        assert!(selector.needs_reader() && selector.only_pending() && !selector.is_by_queue());
        let known = selector.for_reader("ann");
        assert!(!known.needs_reader());
        assert_eq!(known.clone().for_reader("eve"), known, "only the first reader counts");
        assert!(!WorkloadSelector::parse("status=pending").unwrap().needs_reader());
    }

    #[test]
    fn a_workload_waits_or_is_stuck_whatever_its_reason() {
        for (is_stuck, selected) in [(false, "reason=waiting"), (true, "reason=stuck")] {
            let fields = SelectedFields { is_stuck, ..FIELDS_OF_ONE };
            for text in ["reason=waiting", "reason=stuck"] {
                let selector = WorkloadSelector::parse(text).unwrap();
                assert!(selector.reads_standing());
                assert_eq!(selector.matches(&fields), text == selected, "{text}");
            }
            assert!(WorkloadSelector::parse("reason=stuck|waiting").unwrap().matches(&fields));
        }
        let admitted = SelectedFields { state: WorkloadState::Admitted, ..FIELDS_OF_ONE };
        assert!(!WorkloadSelector::parse("reason=waiting,status=all").unwrap().matches(&admitted));
    }
}
