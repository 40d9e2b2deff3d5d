//! Findings about workloads that waiting does not admit: one for each queue and obstacle, with the classes of its workloads.
//!
//! Invariants: together they contain each workload that lists call stuck exactly once; workloads of a missing queue are in the
//! finding about that queue. The form for a namespace is written for a reader of that namespace alone.

use super::{Audit, Said, counted, finding, number, verb, word};
use crate::api::ObjectKey;
use crate::api::reason::{ConditionType, PendingReason};
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::conditions;
use crate::quota::{FlavorResource, NodeRef};
use crate::resources::{Amount, Requests};
use crate::scheduler::{BlockerKind, Obstacle};
use crate::visibility::access::{Access, TenantDetail};
use crate::visibility::views::{Check, Finding, WorkloadClass, WorkloadState};
use crate::visibility::workload_row::Rows;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of classes that a finding lists.
const MAX_LISTED: usize = 20;
/// Maximum number of classes of a finding; further workloads of a namespace share one class.
const MAX_CLASSES: usize = 10_000;

/// Class of workloads: their namespace, and count and requests of their pod sets.
type ClassName<'a> = (Arc<str>, Vec<(i32, &'a Requests)>);

/// Workloads by class: name of the first, and number.
#[derive(Default)]
pub(super) struct Classes<'a>(BTreeMap<ClassName<'a>, (Arc<str>, usize)>);

impl<'a> Classes<'a> {
    /// Adds workloads like this one.
    pub(super) fn add(&mut self, record: &'a WorkloadRecord, count: usize) {
        let sets = record.effective_requests.pod_sets.iter().flat_map(|sets| sets.iter());
        let sets = sets.map(|set| (set.count, &set.requests)).collect();
        let key = &record.meta.key;
        let mut name = (Arc::clone(&key.namespace), sets);
        if self.0.len() >= MAX_CLASSES && !self.0.contains_key(&name) {
            name.1 = Vec::new();
        }
        let class = self.0.entry(name).or_insert_with(|| (Arc::clone(&key.name), 0));
        class.1 = class.1.saturating_add(count);
        if key.name < class.0 {
            class.0 = Arc::clone(&key.name);
        }
    }

    pub(super) fn workloads(&self) -> usize {
        self.0.values().map(|(_, count)| count).sum()
    }

    pub(super) fn views(&self) -> Vec<WorkloadClass> {
        let view = |((namespace, _), (first, count)): (&ClassName<'_>, &(Arc<str>, usize))| WorkloadClass {
            namespace: namespace.to_string(),
            first: first.to_string(),
            count: u64::try_from(*count).unwrap_or(u64::MAX),
        };
        self.0.iter().take(MAX_LISTED).map(view).collect()
    }
}

/// The queue of a finding: a ClusterQueue, or the LocalQueue of a namespace with its ClusterQueue.
type Place = (Arc<str>, Option<ObjectKey>);

/// The obstacle of workloads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Keeps {
    /// The maximum amount of a flavor-resource that their queue can have.
    Quota(FlavorResource),
    /// Nodes, flavors or resource groups, as text.
    Text(String),
    /// A workload before them in the queue.
    Before,
    /// The state of an object.
    Object(PendingReason),
}

/// Workloads with the same obstacle.
struct Kept<'a> {
    classes: Classes<'a>,
    first: &'a WorkloadRecord,
    obstacle: Obstacle,
    least: Amount,
    most: Amount,
}

/// All stuck workloads.
#[derive(Default)]
pub(super) struct Stuck<'a>(BTreeMap<(Place, Keeps), Kept<'a>>);

impl Audit<'_> {
    /// Adds pending workloads that decisions treat alike if they are stuck: one of them, and their number. Returns whether they are.
    pub(super) fn collect_stuck<'a>(
        &'a self,
        (record, count): (&'a WorkloadRecord, usize),
        queue: &Arc<str>,
        stuck: &mut Stuck<'a>,
    ) -> bool {
        let state = WorkloadState::Pending;
        let obstacle = self.rows.obstacle(record, queue, state);
        let (reason, is_stuck) = Rows::said_of(&obstacle, record, state);
        if !is_stuck {
            return false;
        }
        let local = record.local_queue().filter(|_| self.form.is_by_namespace());
        let tenant = self.tenant(&record.meta.key.namespace);
        let (keeps, request) = match &obstacle {
            Obstacle::NeverFits(never) => {
                let blocker = never.blockers.iter().find(|blocker| blocker.kind == BlockerKind::NeverFits);
                if let Some(blocker) = blocker.filter(|_| never.is_quota()) {
                    let fr = FlavorResource::new(&blocker.flavor, &blocker.resource);
                    (Keeps::Quota(fr), blocker.requested)
                } else {
                    let node = NodeRef::ClusterQueue(Arc::clone(queue));
                    let text = never.text(queue, &self.rows_for(tenant.as_ref()).reader(&node));
                    (Keeps::Text(text), Amount::ZERO)
                }
            }
            Obstacle::Behind(_) => (Keeps::Before, Amount::ZERO),
            _ => {
                let known = PendingReason::ALL.into_iter().find(|known| known.as_str() == reason);
                (Keeps::Object(known.unwrap_or(PendingReason::Misconfigured)), Amount::ZERO)
            }
        };
        let kept = stuck.0.entry(((Arc::clone(queue), local), keeps)).or_insert_with(|| Kept {
            classes: Classes::default(),
            first: record,
            obstacle: obstacle.clone(),
            least: request,
            most: request,
        });
        if record.meta.key < kept.first.meta.key {
            (kept.first, kept.obstacle) = (record, obstacle);
        }
        kept.classes.add(record, count);
        kept.least = kept.least.min(request);
        kept.most = kept.most.max(request);
        true
    }

    /// Returns the access of a reader of the namespace, in the form for namespaces.
    pub(super) fn tenant(&self, namespace: &str) -> Option<Access> {
        (!self.form.is_in_full()).then(|| Access::to_namespace(namespace, TenantDetail::None))
    }

    pub(super) fn rows_for<'t>(&'t self, tenant: Option<&'t Access>) -> Rows<'t> {
        Rows { access: tenant.unwrap_or(self.rows.access), ..self.rows }
    }

    pub(super) fn stuck(&self, stuck: &Stuck<'_>, found: &mut Vec<Finding>) {
        for (((queue, local), keeps), kept) in &stuck.0 {
            let workloads = kept.classes.workloads();
            let (check, said, part) = self.said_of(queue, keeps, kept);
            let said = said.with("workloads", number(workloads));
            let object = local.clone().unwrap_or_else(|| ObjectKey::cluster(queue));
            let kind = if local.is_some() { "LocalQueue" } else { "ClusterQueue" };
            let mut one = finding(check, (kind, &object), said);
            one.metadata.name = format!("{}.{part}", one.metadata.name);
            one.workloads = kept.classes.views();
            found.push(one);
        }
    }

    /// Returns check and texts of a finding about workloads, and the part of its name that keeps findings about the same queue
    /// apart.
    fn said_of(&self, queue: &Arc<str>, keeps: &Keeps, kept: &Kept<'_>) -> (Check, Said, String) {
        let subject = counted(kept.classes.workloads(), "workload");
        let remedy = || match &kept.obstacle {
            Obstacle::NeverFits(never) => never.remedy(queue, self.form.is_in_full()),
            _ => String::new(),
        };
        let (message, correction, part) = match keeps {
            Keeps::Object(reason) => return self.kept_out(queue, *reason, kept),
            Keeps::Quota(fr) => {
                let part = format!("{}.{}", fr.flavor, word(&fr.resource));
                (self.too_much(queue, fr, kept), remedy(), part)
            }
            Keeps::Text(text) => (format!("{subject}: {text}"), remedy(), hash_of(text)),
            Keeps::Before => {
                let tenant = self.tenant(&kept.first.meta.key.namespace);
                let node = NodeRef::ClusterQueue(Arc::clone(queue));
                let text = kept.obstacle.sentence(queue, &self.rows_for(tenant.as_ref()).reader(&node));
                (format!("{subject}: {text}"), self.unblocks(queue), "behind".to_owned())
            }
        };
        let consequence = "waiting does not admit them";
        let mut said = Said { message, consequence, correction, ..Said::default() };
        if let Keeps::Quota(fr) = keeps {
            let view = |amount: i128| self.sums.view(self.snapshot, fr, amount);
            said = said.with("least", view(kept.least.to_i128())).with("most", view(kept.most.to_i128()));
            if self.form.is_in_full() {
                said = said.with("limit", view(self.potential(queue, fr)));
            }
        }
        (Check::WorkloadNeverFits, said, part)
    }

    /// Returns the same for workloads that the state of an object keeps out.
    fn kept_out(&self, queue: &str, reason: PendingReason, kept: &Kept<'_>) -> (Check, Said, String) {
        let (state, correction): (String, String) = match reason {
            PendingReason::Deactivated => ("not active".into(), "set spec.active, or delete them".into()),
            PendingReason::OnHold => {
                ("of jobs without pods".into(), "scale the jobs up, or delete them".into())
            }
            PendingReason::AdmissionGated => (
                "held by a gate".into(),
                "remove the gate from the annotation kueue.x-k8s.io/admission-gated-by".into(),
            ),
            PendingReason::Suspended => (
                "in a queue that is stopped or inactive".into(),
                self.of_administrator(format!(
                    "kubectl describe clusterqueue {queue}; start the queue, or correct what it names"
                )),
            ),
            PendingReason::Misconfigured
            | PendingReason::PendingEvaluation
            | PendingReason::NoMatchingFlavor
            | PendingReason::ExceedsMaxQuota
            | PendingReason::WaitingForQuota
            | PendingReason::TopologyPlacementFailed
            | PendingReason::WaitingForPreemptedWorkloads
            | PendingReason::WaitingForPodsReady => {
                (format!("kept out: {}", text_of(kept)), "correct what the message names".into())
            }
        };
        let workloads = kept.classes.workloads();
        let is = if workloads == 1 { "is" } else { "are" };
        let message = format!("{} {is} {state}", counted(workloads, "workload"));
        let consequence = "they wait until that changes";
        let said = Said { message, consequence, correction, ..Said::default() };
        (Check::WorkloadKeptOut, said, reason.as_str().to_ascii_lowercase())
    }

    /// Returns the correction for workloads behind one that can never be admitted.
    pub(super) fn unblocks(&self, queue: &str) -> String {
        let list = format!("sluice list workload -A -c {queue} --reason stuck");
        self.of_administrator(format!("{list}; correct or delete the one before"))
    }

    /// Returns the correction for an administrator. In the form for namespaces, the reader is asked to turn to one.
    pub(super) fn of_administrator(&self, correction: String) -> String {
        if self.form.is_in_full() { correction } else { "ask an administrator of the cluster".to_owned() }
    }

    /// Returns the maximum amount of a flavor-resource that a queue can have.
    fn potential(&self, queue: &Arc<str>, fr: &FlavorResource) -> i128 {
        let node = NodeRef::ClusterQueue(Arc::clone(queue));
        self.quota.headroom(&node, fr).0.potential.max(0)
    }

    /// Formats the requests: `3 workloads request 3 to 8 cpu, at most 2`.
    fn too_much(&self, queue: &Arc<str>, fr: &FlavorResource, kept: &Kept<'_>) -> String {
        let workloads = kept.classes.workloads();
        let view = |amount: i128| self.sums.view(self.snapshot, fr, amount).value;
        let (least, most) = (view(kept.least.to_i128()), view(kept.most.to_i128()));
        let range = if least == most { most } else { format!("{least} to {most}") };
        let subject = format!("{} {}", counted(workloads, "workload"), verb(workloads, "request"));
        if !self.form.is_in_full() {
            return format!(
                "{subject} {range} {} in {}: more than the queue can have",
                word(&fr.resource),
                fr.flavor
            );
        }
        let limit = view(self.potential(queue, fr));
        format!("{subject} {range} {}, at most {limit}", word(&fr.resource))
    }
}

/// Returns a hash that keeps texts apart in the name of a finding.
fn hash_of(text: &str) -> String {
    let add = |hash: u32, byte: u8| hash.wrapping_mul(31).wrapping_add(u32::from(byte));
    format!("{:08x}", text.bytes().fold(0, add))
}

/// Returns the message about the object that keeps out the first of the workloads.
fn text_of(kept: &Kept<'_>) -> String {
    if let Obstacle::Object(verdict) = &kept.obstacle {
        return verdict.to_string();
    }
    let condition = conditions::find(&kept.first.status, ConditionType::QuotaReserved);
    condition.map(|condition| condition.message.clone()).unwrap_or_default()
}
