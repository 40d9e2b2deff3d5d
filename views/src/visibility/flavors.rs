//! ResourceFlavors: nodes, quota, usage, and the number of pods that still fit.
//!
//! Invariants: only readers of the cluster see flavors with their nodes, other readers what a LocalQueue of theirs may use; the
//! number of pods of a level is the core's count on the nodes, reduced to what the quota of a ClusterQueue allows; a flavor without a
//! topology is marked as approximate.

use super::access::Access;
use super::amounts::{amount_view, plain_amount_view};
use super::page::ModelError;
use super::queue_views::local_queue;
use super::quota::PublishedQuota;
use super::views::{
    AmountView, DomainView, FlavorResourceView, FlavorView, JobFitView, LevelView, LocalQuotaView, Need,
    NodeCount, PodSetShape, QueueCapacityView, QueueFlavorView, QueueLevelView, ViewMetadata,
};
use crate::api::{ObjectKey, similar};
use crate::quota::{FlavorResource, NodeRef};
use crate::resources::{self, Amount, Quantity, Requests};
use crate::scheduler::{CapacityQuestion, CapacityReport, FlavorCapacity, JobCapacity, JobPodSet};
use crate::snapshot::Snapshot;
use crate::topology::{CapacityLimit, LevelCapacity, NodeAmount};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of resources of a pod in a question.
const MAX_RESOURCES: usize = 32;

/// Parses the requests of one pod: `RESOURCE=QUANTITY,...`; empty requests if the text is empty.
///
/// # Errors
/// If a part is not a resource with a positive quantity, or a resource occurs twice.
pub fn parse_pod(text: &str) -> Result<Requests, ModelError> {
    let invalid = |problem: String| ModelError::Invalid(format!("pod: {problem}"));
    let mut pod = Requests::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let named = part.split_once('=').map(|(name, quantity)| (name.trim(), quantity.trim()));
        let (name, quantity) = named
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| invalid(format!("{part:?}: RESOURCE=QUANTITY expected")))?;
        let parsed = Quantity::parse(quantity)
            .map_err(|problem| invalid(format!("{name}: invalid quantity {quantity:?}: {problem}")))?;
        let amount = resources::amount(name, &parsed);
        if amount <= Amount::ZERO {
            return Err(invalid(format!("{name}: the quantity {quantity:?} is not positive")));
        }
        if pod.insert(Arc::from(name), amount).is_some() {
            return Err(invalid(format!("{name} is given twice")));
        }
        if pod.len() > MAX_RESOURCES {
            return Err(invalid(format!("more than {MAX_RESOURCES} resources")));
        }
    }
    Ok(pod)
}

/// Returns the question to the core about a flavor, or about all of them. A Workload, as namespace/name, needs a flavor beside
/// it.
///
/// # Errors
/// If `pod` or `workload` cannot be parsed, both are given, or there is a Workload without a flavor.
pub fn question(flavor: Option<&str>, pod: &str, workload: &str) -> Result<CapacityQuestion, ModelError> {
    let invalid = |problem: &str| ModelError::Invalid(format!("workload: {problem}"));
    let workload = Some(workload).filter(|text| !text.is_empty());
    let workload = workload.map(|text| {
        let (namespace, name) = text.split_once('/').ok_or_else(|| invalid("NAMESPACE/NAME expected"))?;
        Ok(ObjectKey::new(namespace, name))
    });
    let question = CapacityQuestion {
        flavor: flavor.map(Arc::from),
        pod: parse_pod(pod)?,
        workload: workload.transpose()?,
    };
    match &question {
        CapacityQuestion { workload: Some(_), flavor: None, .. } => Err(invalid("only with one flavor")),
        CapacityQuestion { workload: Some(_), pod, .. } if !pod.is_empty() => Err(invalid("not with pod")),
        _ => Ok(question),
    }
}

/// Returns the flavors of a report by name, bounded by the quota of a ClusterQueue if one is given.
///
/// # Errors
/// If the lists are not complete, the reader does not see the cluster, the manager watches no nodes, or the ClusterQueue does not
/// exist.
pub fn flavors(
    snapshot: &Snapshot,
    access: &Access,
    (report, cluster_queue): (&CapacityReport, Option<&str>),
) -> Result<Vec<FlavorView>, ModelError> {
    if !snapshot.synced {
        return Err(ModelError::NotSynced);
    }
    if !access.cluster {
        return Err(ModelError::NotFound);
    }
    if let Some(key) = &report.unknown_workload {
        return Err(ModelError::Invalid(format!("workload {key} not found, or its pods are not known")));
    }
    if !report.knows_nodes {
        let message = "nodes are not watched: feature gate TopologyAwareScheduling is off";
        return Err(ModelError::Invalid(message.to_owned()));
    }
    let known = &snapshot.facts.cluster_queues;
    if let Some(name) = cluster_queue.filter(|name| !known.contains_key(*name)) {
        let near = similar::hint(name, known.keys().map(AsRef::as_ref));
        return Err(ModelError::Invalid(format!("clusterqueue {name:?} not found{near}")));
    }
    let sums = QuotaSums::of(snapshot);
    let queue = cluster_queue.map(|name| NodeRef::ClusterQueue(Arc::from(name)));
    let view = |capacity| FlavorOf { snapshot, sums: &sums, queue: queue.as_ref(), capacity }.view();
    Ok(report.flavors.iter().map(view).collect())
}

/// Returns what the workloads of a LocalQueue may use now. The report, of all flavors, counts the pods that were asked for; without
/// it only quota is shown.
///
/// # Errors
/// If the lists are not complete, or the reader may see no LocalQueue with this key.
pub fn queue_capacity(
    snapshot: &Snapshot,
    access: &Access,
    (key, report): (&ObjectKey, Option<&CapacityReport>),
) -> Result<QueueCapacityView, ModelError> {
    let queue = local_queue(snapshot, access, key)?;
    let mut flavors: Vec<QueueFlavorView> = Vec::new();
    for quota in queue.quota {
        let quota = LocalQuotaView { shared: None, ..quota };
        if let Some(known) = flavors.iter_mut().find(|known| known.flavor == quota.flavor) {
            known.quota.push(quota);
        } else {
            let flavor = quota.flavor.clone();
            flavors.push(QueueFlavorView { flavor, quota: vec![quota], ..QueueFlavorView::default() });
        }
    }
    let (sums, node) = (QuotaSums::of(snapshot), NodeRef::ClusterQueue(Arc::from(&*queue.cluster_queue)));
    let level = |level: LevelView| QueueLevelView {
        level: level.level,
        largest_gang: if queue.active { level.largest_gang } else { 0 },
        limited_by: if queue.active { level.limited_by } else { queue.reason.clone() },
    };
    for flavor in &mut flavors {
        let mut known = report.into_iter().flat_map(|report| &report.flavors);
        let Some(capacity) = known.find(|known| *known.name == *flavor.flavor) else { continue };
        let view = FlavorOf { snapshot, sums: &sums, queue: Some(&node), capacity }.view();
        flavor.approximate = view.approximate;
        flavor.levels = view.levels.into_iter().map(level).collect();
    }
    let (metadata, cluster_queue) = (queue.metadata, queue.cluster_queue);
    Ok(QueueCapacityView { metadata, cluster_queue, active: queue.active, reason: queue.reason, flavors })
}

/// Quota and usage of all flavor-resources of the cluster.
#[derive(Debug, Default)]
pub(super) struct QuotaSums(BTreeMap<FlavorResource, QuotaSum>);

/// Quota and usage of a flavor-resource.
#[derive(Clone, Debug)]
pub(super) struct QuotaSum {
    /// Sum of the nominal quotas.
    pub(super) nominal: i128,
    /// Sum of the charged usage.
    pub(super) charged: i128,
    /// The first node with a quota; it determines the unit of amounts.
    pub(super) node: NodeRef,
}

impl QuotaSums {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let mut sums = Self::default();
        let queues = &snapshot.queues;
        let leaves = queues.cluster_queues.iter();
        let leaves = leaves.map(|(name, queue)| {
            (NodeRef::ClusterQueue(Arc::clone(name)), &queue.usage_by_flavor_resource, true)
        });
        let cohorts = queues.cohorts.iter();
        let cohorts = cohorts.map(|(name, cohort)| {
            (NodeRef::Cohort(Arc::clone(name)), &cohort.usage_by_flavor_resource, false)
        });
        for (node, usages, is_leaf) in leaves.chain(cohorts) {
            for (fr, usage) in usages {
                let empty = || QuotaSum { nominal: 0, charged: 0, node: node.clone() };
                let sum = sums.0.entry(fr.clone()).or_insert_with(empty);
                sum.nominal = sum.nominal.saturating_add(usage.limits.nominal.to_i128());
                let used = if is_leaf { usage.usage.to_i128() } else { 0 };
                sum.charged = sum.charged.saturating_add(used);
            }
        }
        sums
    }

    pub(super) fn get(&self, fr: &FlavorResource) -> Option<&QuotaSum> {
        self.0.get(fr)
    }

    /// Returns an amount in the unit of the quota.
    pub(super) fn view(&self, snapshot: &Snapshot, fr: &FlavorResource, amount: i128) -> AmountView {
        match self.get(fr) {
            Some(sum) => amount_view(&snapshot.facts.units, &sum.node, fr, amount),
            None => plain_amount_view(&fr.resource, amount),
        }
    }
}

/// A flavor, with the input of its view.
struct FlavorOf<'a> {
    snapshot: &'a Snapshot,
    sums: &'a QuotaSums,
    queue: Option<&'a NodeRef>,
    capacity: &'a FlavorCapacity,
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

impl FlavorOf<'_> {
    fn fr(&self, resource: &Arc<str>) -> FlavorResource {
        FlavorResource { flavor: Arc::clone(&self.capacity.name), resource: Arc::clone(resource) }
    }

    fn amount(&self, resource: &Arc<str>, amount: i128) -> AmountView {
        self.sums.view(self.snapshot, &self.fr(resource), amount)
    }

    /// Returns the usage of pods outside any quota, and the free amount. Without a topology it is not known which pods have
    /// quota: usage above the charged amount counts as outside.
    fn others_and_free(&self, resource: &Arc<str>, amount: &NodeAmount) -> (i128, i128) {
        if !self.capacity.by_node {
            return (amount.others, amount.free);
        }
        let charged = self.sums.get(&self.fr(resource)).map_or(0, |sum| sum.charged);
        let free = (amount.allocatable - charged.max(amount.others)).max(0).min(amount.free);
        ((amount.others - charged).max(0), free)
    }

    fn view(&self) -> FlavorView {
        let capacity = self.capacity;
        let facts = self.snapshot.facts.flavors.get(&capacity.name);
        let shown = capacity.resources.first().map(|(resource, _)| resource);
        let plain: Arc<str> = Arc::from("");
        let shown = shown.unwrap_or(&plain);
        FlavorView {
            metadata: ViewMetadata {
                name: capacity.name.to_string(),
                uid: facts.map(|facts| facts.uid.to_string()).unwrap_or_default(),
                creation_timestamp: facts.map(|facts| facts.created),
                ..ViewMetadata::default()
            },
            topology: capacity.topology.as_deref().unwrap_or_default().to_owned(),
            nodes: NodeCount {
                total: count(capacity.nodes.total),
                schedulable: count(capacity.nodes.schedulable),
                without_level: count(capacity.nodes.without_level),
            },
            resources: capacity.resources.iter().map(|(name, amount)| self.resource(name, amount)).collect(),
            pod: capacity.pod.iter().map(|(resource, amount)| self.need(resource, *amount)).collect(),
            levels: capacity.levels.iter().map(|level| self.level(level, shown)).collect(),
            approximate: capacity.by_node,
            cluster_queue: self.queue.map(|queue| queue.as_str().to_owned()).unwrap_or_default(),
            domains: capacity
                .leaves
                .iter()
                .map(|leaf| DomainView {
                    values: leaf.values.iter().map(ToString::to_string).collect(),
                    free: self.amount(shown, leaf.free),
                    capacity: self.amount(shown, leaf.capacity),
                    schedulable: leaf.schedulable,
                })
                .collect(),
            job: capacity.job.as_ref().map(|job| self.job(job)),
        }
    }

    fn job(&self, job: &JobCapacity) -> JobFitView {
        let shape = |set: &JobPodSet| PodSetShape {
            name: set.name.to_string(),
            count: u64::try_from(set.count).unwrap_or(0),
            pod: set.pod.iter().map(|(resource, amount)| self.need(resource, *amount)).collect(),
        };
        let mut view = JobFitView {
            workload: job.workload.to_string(),
            pod_sets: job.pod_sets.iter().map(shape).collect(),
            copies: job.copies,
            at_least: job.failure.is_none(),
            limited_by: job
                .failure
                .as_ref()
                .map(|(name, text)| format!("pod set {name}: {text}"))
                .unwrap_or_default(),
        };
        let within_quota = self.queue.and_then(|queue| self.jobs_within_quota(queue, job));
        for (copies, limit) in self.jobs_beside_charged(job).into_iter().chain(within_quota) {
            if copies < view.copies || (view.at_least && copies == view.copies) {
                (view.copies, view.at_least, view.limited_by) = (copies, false, limit);
            }
        }
        view
    }

    /// Returns how many jobs fit into what the rows of a flavor without a topology count as free, and the limit of a further one; `None` if
    /// nodes alone say it.
    fn jobs_beside_charged(&self, job: &JobCapacity) -> Option<(u64, String)> {
        let within = |(resource, amount): &(Arc<str>, NodeAmount)| {
            let of_set = |set: &JobPodSet| {
                let each = set.pod.get(resource).map_or(0, |amount| amount.to_i128());
                each.saturating_mul(i128::from(set.count.max(0)))
            };
            let need = job.pod_sets.iter().map(of_set).fold(0_i128, i128::saturating_add);
            let (_, free) = self.others_and_free(resource, amount);
            let copies = free.max(0).checked_div(need).filter(|_| need > 0)?;
            let free = self.amount(resource, free).value;
            let limit = format!("{free} {resource} of the nodes is free beside what is charged");
            Some((u64::try_from(copies).unwrap_or(u64::MAX), limit))
        };
        let counted = self.capacity.resources.iter().filter(|_| self.capacity.by_node);
        counted.filter_map(within).min_by_key(|(copies, _)| *copies)
    }

    /// Returns how many jobs the quota of a ClusterQueue allows now, and the limit of a further one; `None` if the quota covers
    /// none of their requests.
    fn jobs_within_quota(&self, queue: &NodeRef, job: &JobCapacity) -> Option<(u64, String)> {
        let quota = PublishedQuota::of(self.snapshot);
        let mut needs = BTreeMap::<Arc<str>, i128>::new();
        for set in &job.pod_sets {
            let pods: Arc<str> = Arc::from("pods");
            let charged = set.charged.iter().filter(|(resource, _)| ***resource != *pods);
            let charged = charged.map(|(resource, amount)| (Arc::clone(resource), amount.to_i128()));
            for (resource, amount) in charged.chain([(Arc::clone(&pods), 1)]) {
                let sum = needs.entry(resource).or_default();
                *sum = sum.saturating_add(amount.saturating_mul(i128::from(set.count.max(0))));
            }
        }
        let within = |(resource, need): (&Arc<str>, &i128)| {
            let declared = quota.flavors_of(queue, resource);
            // The number of pods is charged only if it has a quota.
            if *need <= 0 || (declared.is_empty() && **resource == *"pods") {
                return None;
            }
            // A resource of another group gets any flavor of that group.
            let own = self.fr(resource);
            let usable = |fr: &&FlavorResource| !declared.contains(&own) || **fr == own;
            let available = declared.iter().filter(usable).map(|fr| quota.headroom(queue, fr).0.available);
            let available = available.max().unwrap_or(0).max(0);
            let copies = u64::try_from(available.checked_div(*need).unwrap_or(0)).unwrap_or(u64::MAX);
            Some((copies, format!("quota of {resource} in ClusterQueue {}", queue.as_str())))
        };
        needs.iter().filter_map(within).min_by_key(|(copies, _)| *copies)
    }

    fn need(&self, resource: &Arc<str>, amount: Amount) -> Need {
        let amount = self.amount(resource, amount.to_i128());
        Need { resource: resource.to_string(), amount, flavor: String::new() }
    }

    fn resource(&self, resource: &Arc<str>, amount: &NodeAmount) -> FlavorResourceView {
        let sum = self.sums.get(&self.fr(resource));
        let (nominal, charged) = sum.map_or((0, 0), |sum| (sum.nominal, sum.charged));
        let (others, free) = self.others_and_free(resource, amount);
        FlavorResourceView {
            resource: resource.to_string(),
            schedulable: self.amount(resource, amount.allocatable),
            quota: self.amount(resource, nominal),
            slack: self.amount(resource, amount.allocatable - nominal),
            charged: self.amount(resource, charged),
            others: self.amount(resource, others),
            free: self.amount(resource, free),
        }
    }

    fn level(&self, level: &LevelCapacity, shown: &Arc<str>) -> LevelView {
        let mut gang = u64::try_from(level.gang).unwrap_or(0);
        let mut limited_by = match &level.limit {
            CapacityLimit::NoNodes => "nodes".to_owned(),
            CapacityLimit::Excluded => "taints".to_owned(),
            CapacityLimit::Resource(resource) => resource.to_string(),
        };
        let mut most_free = level.most_free;
        // Charged workloads without pods are on no node yet.
        if self.capacity.by_node {
            for (resource, amount) in &self.capacity.resources {
                let (_, free) = self.others_and_free(resource, amount);
                if resource == shown {
                    most_free = most_free.min(free);
                }
                let fit = self.fit(resource, free);
                if fit < gang {
                    (gang, limited_by) = (fit, resource.to_string());
                }
            }
        }
        if let Some(queue) = self.queue {
            let quota = PublishedQuota::of(self.snapshot);
            for resource in self.capacity.pod.keys() {
                let fr = self.fr(resource);
                let declared = quota.declares(queue, &fr);
                let available = if declared { quota.headroom(queue, &fr).0.available } else { 0 };
                let fit = self.fit(resource, available);
                if fit < gang {
                    (gang, limited_by) = (fit, "quota".to_owned());
                }
            }
        }
        let (location, more) = place(level, most_free);
        LevelView {
            level: level.level.to_string(),
            domains: count(level.domains),
            most_free: self.amount(shown, most_free),
            location,
            more,
            largest_gang: gang,
            limited_by,
        }
    }

    /// Returns the number of pods for which an amount is enough.
    fn fit(&self, resource: &Arc<str>, amount: i128) -> u64 {
        let Some(need) = self.capacity.pod.get(resource).map(|need| need.to_i128()) else { return u64::MAX };
        let fit = amount.max(0).checked_div(need).unwrap_or(i128::MAX);
        u64::try_from(fit).unwrap_or(u64::MAX)
    }
}

/// Returns the first domain with the most free amount, and the number of further domains with the same; nothing if nothing is
/// free.
fn place(level: &LevelCapacity, most_free: i128) -> (String, u64) {
    if most_free <= 0 {
        return (String::new(), 0);
    }
    let location: Vec<&str> = level.location.iter().map(AsRef::as_ref).collect();
    (location.join("/"), count(level.more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_without_a_free_amount_has_no_place() {
        let location = ["b1", "r1"].map(Arc::from).to_vec();
        let level = LevelCapacity { location, more: 5, ..LevelCapacity::default() };
        assert_eq!(place(&level, 0), (String::new(), 0));
        assert_eq!(place(&level, 3), ("b1/r1".to_owned(), 5));
    }

    #[test]
    fn pods_are_read() {
        let pod = parse_pod("nvidia.com/gpu=8, cpu=96,memory=1Gi").unwrap();
        let expected = [("cpu", 96_000), ("memory", 1 << 30), ("nvidia.com/gpu", 8)];
        assert_eq!(pod, expected.map(|(name, amount)| (Arc::from(name), Amount::new(amount))).into());
        assert_eq!(parse_pod(""), Ok(Requests::new()));
        for (text, named) in [
            ("gpu", "RESOURCE=QUANTITY"),
            ("=1", "RESOURCE=QUANTITY"),
            ("gpu=x", "gpu: invalid quantity \"x\""),
            ("gpu=0", "not positive"),
            ("gpu=-1", "not positive"),
            ("gpu=1,gpu=2", "given twice"),
        ] {
            let Err(ModelError::Invalid(error)) = parse_pod(text) else { panic!("{text}") };
            assert!(error.starts_with("pod: ") && error.contains(named), "{error}");
        }
    }
}
