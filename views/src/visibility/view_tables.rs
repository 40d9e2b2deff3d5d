//! Tables of views, as `kubectl get` shows them.
//!
//! Invariant: the columns agree with the command line; an unknown value is an empty cell.

use super::age::age;
use super::table::{Column, TableRow};
use super::views::{
    AmountView, BlockerView, ClusterQueueView, CohortView, Finding, FlavorResourceView, FlavorView,
    LocalQueueView, ManagerView, Need, QueueCapacityView, QuotaView, Verdict, WorkloadView,
};
use jiff::Timestamp;
use serde_json::{Value, json};

pub(super) const fn text(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", format: "", description, wide: false }
}

pub(super) const fn number(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "integer", format: "", description, wide: false }
}

pub(super) const fn wide(column: Column) -> Column {
    Column { wide: true, ..column }
}

pub(super) const NAME: Column = Column { format: "name", ..text("Name", "Name of the object.") };

/// Formats the scarcest resource, without the domain of its name.
fn need(need: Option<&Need>) -> String {
    let word = |resource: &str| resource.rsplit('/').next().unwrap_or(resource).to_owned();
    need.map(|need| format!("{} {}", need.amount.value, word(&need.resource))).unwrap_or_default()
}

/// Formats the missing amount: `56 nvidia.com/gpu missing at ClusterQueue nlp`.
pub fn blocked_by(blocker: &BlockerView) -> String {
    let node = blocker.node.replace('/', " ");
    match &blocker.missing {
        Some(missing) if !node.is_empty() => {
            format!("{} {} missing at {node}", missing.value, blocker.resource)
        }
        _ => blocker.text.clone(),
    }
}

impl TableRow for WorkloadView {
    const COLUMNS: &'static [Column] = &[
        NAME,
        text("State", "How far the Workload is."),
        text("Wait", "Since when it is in this state."),
        text("Pos", "Position in its ClusterQueue; 1 is the first."),
        number("Prio", "Effective priority."),
        text("Needs", "The scarcest resource that it asks for."),
        text("Reason", "Why it is in this state."),
        wide(text("Job", "Its job.")),
        wide(text("Local Queue", "Its LocalQueue.")),
        wide(text("Cluster Queue", "Its ClusterQueue.")),
        wide(text("Flavor", "Flavors of the scarcest resource.")),
        wide(text("Age", "Since when the Workload exists.")),
        wide(text("Blocked By", "The first thing that it waits for.")),
    ];

    fn cells(&self, now: Timestamp) -> Vec<Value> {
        let ages = |since: Option<Timestamp>| since.map(|since| age(since, now)).unwrap_or_default();
        let position = self.position.map(|position| position.cluster_queue.to_string());
        let job = self.job.as_ref().map(|job| format!("{}/{}", job.kind, job.name));
        vec![
            json!(self.metadata.name),
            json!(self.state.as_str()),
            json!(ages(self.since)),
            json!(position.unwrap_or_default()),
            json!(self.priority),
            json!(need(self.needs.first())),
            json!(self.reason),
            json!(job.unwrap_or_default()),
            json!(self.local_queue),
            json!(self.cluster_queue),
            json!(self.needs.first().map(|need| need.flavor.as_str()).unwrap_or_default()),
            json!(ages(self.metadata.creation_timestamp)),
            json!(self.first_blocker.as_ref().map_or_else(|| self.pending_message().to_owned(), blocked_by)),
        ]
    }

    fn metadata(&self) -> Value {
        json!(self.metadata)
    }
}

impl TableRow for Verdict {
    const COLUMNS: &'static [Column] = WorkloadView::COLUMNS;

    fn cells(&self, now: Timestamp) -> Vec<Value> {
        self.workload.cells(now)
    }

    fn metadata(&self) -> Value {
        self.workload.metadata()
    }
}

/// Returns the flavor-resource with the highest use relative to its quota.
fn fullest(quota: &[QuotaView]) -> Option<&QuotaView> {
    let value = |number: &Option<serde_json::Number>| number.as_ref().and_then(serde_json::Number::as_f64);
    let part = |view: &QuotaView| {
        let (used, nominal) = (value(&view.used.number)?, value(&view.nominal.number)?);
        (nominal > 0.0).then_some(used / nominal)
    };
    quota.iter().rev().max_by(|a, b| part(a).unwrap_or(-1.0).total_cmp(&part(b).unwrap_or(-1.0)))
}

/// Formats usage and quota of the fullest flavor-resource, and the borrowed part.
fn quota_cells(quota: &[QuotaView]) -> [Value; 3] {
    let Some(view) = fullest(quota) else { return [json!(""), json!(""), json!("")] };
    let borrowed = match &view.borrowing_limit {
        Some(limit) => format!("{}/{}", view.borrowed.value, limit.value),
        None => view.borrowed.value.clone(),
    };
    [
        json!(format!("{} {}", view.flavor, view.resource)),
        json!(format!("{}/{}", view.used.value, view.nominal.value)),
        json!(borrowed),
    ]
}

const QUOTA: Column = text("Quota", "The flavor and resource that is used most.");
const USED: Column = text("Used", "Usage and nominal quota of it.");
const BORROWED: Column = text("Borrowed", "What is borrowed of it, and the limit.");

impl TableRow for ClusterQueueView {
    const COLUMNS: &'static [Column] = &[
        NAME,
        text("Cohort", "Its parent cohort."),
        Column { kind: "boolean", ..text("Active", "Whether it admits workloads.") },
        number("Pending", "Number of its pending workloads."),
        number("Admitted", "Number of its admitted workloads."),
        QUOTA,
        USED,
        BORROWED,
    ];

    fn cells(&self, _: Timestamp) -> Vec<Value> {
        let mut cells = vec![
            json!(self.metadata.name),
            json!(self.cohort),
            json!(self.active),
            json!(self.pending.total),
            json!(self.admitted),
        ];
        cells.extend(quota_cells(&self.quota));
        cells
    }

    fn metadata(&self) -> Value {
        json!(self.metadata)
    }
}

impl TableRow for CohortView {
    const COLUMNS: &'static [Column] = &[
        NAME,
        text("Parent", "Its parent."),
        number("Pending", "Number of pending workloads below it."),
        number("Admitted", "Number of admitted workloads below it."),
        QUOTA,
        USED,
        BORROWED,
    ];

    fn cells(&self, _: Timestamp) -> Vec<Value> {
        let mut cells =
            vec![json!(self.metadata.name), json!(self.parent), json!(self.pending), json!(self.admitted)];
        cells.extend(quota_cells(&self.quota));
        cells
    }

    fn metadata(&self) -> Value {
        json!(self.metadata)
    }
}

impl TableRow for LocalQueueView {
    const COLUMNS: &'static [Column] = &[
        NAME,
        text("Cluster Queue", "The ClusterQueue that it names."),
        Column { kind: "boolean", ..text("Active", "Whether its workloads may be admitted.") },
        number("Pending", "Number of its pending workloads."),
        number("Admitted", "Number of its admitted workloads."),
        text("Available", "What its ClusterQueue could use now, of the first flavor and resource."),
    ];

    fn cells(&self, _: Timestamp) -> Vec<Value> {
        let available = self.quota.first();
        let available = available.map(|quota| format!("{} {}", quota.available.value, quota.resource));
        vec![
            json!(self.metadata.name),
            json!(self.cluster_queue),
            json!(self.active),
            json!(self.pending.total),
            json!(self.admitted),
            json!(available.unwrap_or_default()),
        ]
    }

    fn metadata(&self) -> Value {
        json!(self.metadata)
    }
}

impl TableRow for FlavorView {
    const COLUMNS: &'static [Column] = &[
        NAME,
        text("Nodes", "Nodes that are schedulable, of all that match."),
        text("Schedulable", "Allocatable amount of the schedulable nodes."),
        text("Quota", "Sum of the nominal quotas."),
        text("Slack", "Schedulable less quota."),
        text("Charged", "What workloads are charged."),
        text("Others", "What pods outside of any quota use."),
        text("Free", "What is free on the schedulable nodes."),
        text("Resource", "The resource: the scarcest of the flavor."),
        text("Largest Gang", "Most pods that fit anywhere, each of what Pod says."),
        wide(text("Pod", "What one pod asks for.")),
        wide(text("Topology", "Its Topology.")),
    ];

    fn cells(&self, _: Timestamp) -> Vec<Value> {
        let first = self.resources.first();
        let amount = |value: fn(&FlavorResourceView) -> &AmountView| {
            json!(first.map(|resource| value(resource).value.as_str()).unwrap_or_default())
        };
        let pod = self.pod.iter().map(|need| format!("{}={}", need.resource, need.amount.value));
        vec![
            json!(self.metadata.name),
            json!(format!("{}/{}", self.nodes.schedulable, self.nodes.total)),
            amount(|resource| &resource.schedulable),
            amount(|resource| &resource.quota),
            amount(|resource| &resource.slack),
            amount(|resource| &resource.charged),
            amount(|resource| &resource.others),
            amount(|resource| &resource.free),
            json!(first.map(|resource| resource.resource.as_str()).unwrap_or_default()),
            json!(self.levels.last().map(|level| level.largest_gang.to_string()).unwrap_or_default()),
            json!(pod.collect::<Vec<_>>().join(",")),
            json!(self.topology),
        ]
    }

    fn metadata(&self) -> Value {
        json!(self.metadata)
    }
}

impl TableRow for QueueCapacityView {
    const COLUMNS: &'static [Column] = &[
        NAME,
        text("Cluster Queue", "Its ClusterQueue."),
        Column { kind: "boolean", ..text("Active", "Whether its workloads may be admitted.") },
        text("Available", "What the ClusterQueue may use now, by flavor and resource."),
        text("Largest Gang", "Most pods that fit anywhere, by flavor, each as the question says."),
    ];

    fn cells(&self, _: Timestamp) -> Vec<Value> {
        let quotas = self.flavors.iter().flat_map(|flavor| &flavor.quota);
        let available = quotas
            .map(|quota| format!("{} {} {}", quota.available.value, quota.resource, quota.flavor))
            .collect::<Vec<_>>();
        let gangs = self
            .flavors
            .iter()
            .filter_map(|flavor| Some(format!("{} {}", flavor.levels.last()?.largest_gang, flavor.flavor)));
        vec![
            json!(self.metadata.name),
            json!(self.cluster_queue),
            json!(self.active),
            json!(available.join(", ")),
            json!(gangs.collect::<Vec<_>>().join(", ")),
        ]
    }

    fn metadata(&self) -> Value {
        json!(self.metadata)
    }
}

impl TableRow for Finding {
    const COLUMNS: &'static [Column] = &[
        NAME,
        text("Severity", "How bad it is."),
        text("Check", "The check that found it."),
        text("Object", "The object."),
        text("Finding", "What is wrong."),
    ];

    fn cells(&self, _: Timestamp) -> Vec<Value> {
        let object = format!("{} {}", self.object.kind, self.object.full_name());
        vec![
            json!(self.metadata.name),
            json!(self.severity.as_str()),
            json!(self.check.as_str()),
            json!(object),
            json!(self.message),
        ]
    }

    fn metadata(&self) -> Value {
        json!(self.metadata)
    }
}

impl TableRow for ManagerView {
    const COLUMNS: &'static [Column] = &[
        NAME,
        text("Role", "Whether it leads."),
        text("Version", "The program's version."),
        text("State", "`ok`, or the conditions that hold."),
    ];

    fn cells(&self, _: Timestamp) -> Vec<Value> {
        let state = if self.conditions.is_empty() { "ok".to_owned() } else { self.conditions.join(",") };
        let role = if self.leads { "leader" } else { "follower" };
        vec![json!(self.metadata.name), json!(role), json!(self.version), json!(state)]
    }

    fn metadata(&self) -> Value {
        json!(self.metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::views::{Check, FindingObject, Position, Severity, ViewMetadata};

    fn assert_complete<T: TableRow>(row: &T) {
        assert_eq!(row.cells(Timestamp::UNIX_EPOCH).len(), T::COLUMNS.len());
    }

    #[test]
    fn every_row_has_a_cell_for_each_column() {
        assert_complete(&WorkloadView::default());
        assert_complete(&Verdict::default());
        assert_complete(&ClusterQueueView::default());
        assert_complete(&CohortView::default());
        assert_complete(&LocalQueueView::default());
        assert_complete(&FlavorView::default());
        assert_complete(&ManagerView::default());
        assert_complete(&Finding {
            metadata: ViewMetadata::default(),
            check: Check::Starved,
            severity: Severity::Warning,
            object: FindingObject::default(),
            message: String::new(),
            evidence: std::collections::BTreeMap::new(),
            workloads: Vec::new(),
            consequence: String::new(),
            correction: String::new(),
        });
    }

    /// k9s shows nothing for a name that is not a column.
    #[test]
    fn columns_for_k9s_exist() {
        let views: Value = serde_saphyr::from_str(include_str!("../../../k9s/views.yaml")).unwrap();
        for (resource, columns) in
            [("workloadviews", WorkloadView::COLUMNS), ("clusterqueueviews", ClusterQueueView::COLUMNS)]
        {
            let view = &views["views"][format!("visibility.sluice.dev/v1alpha1/{resource}")];
            let names = view["columns"].as_array().expect(resource).iter().filter_map(Value::as_str);
            for name in names.chain(view["sortColumn"].as_str().and_then(|order| order.split(':').next())) {
                let is_column = |column: &Column| column.name.to_uppercase() == name;
                assert!(name == "NAMESPACE" || columns.iter().any(is_column), "{resource} has no {name}");
            }
        }
    }

    #[test]
    fn a_pending_workload_says_what_is_missing() {
        let amount = |value: &str| AmountView { value: value.to_owned(), number: None };
        let row = WorkloadView {
            since: Some(Timestamp::from_second(0).unwrap()),
            position: Some(Position { cluster_queue: 3, local_queue: 1, of: 412, of_local_queue: 37 }),
            needs: vec![Need {
                resource: "nvidia.com/gpu".to_owned(),
                amount: amount("64"),
                ..Need::default()
            }],
            first_blocker: Some(BlockerView {
                resource: "nvidia.com/gpu".to_owned(),
                node: "ClusterQueue/nlp".to_owned(),
                missing: Some(amount("56")),
                ..BlockerView::default()
            }),
            ..WorkloadView::default()
        };
        let cells = row.cells(Timestamp::from_second(3_720).unwrap());
        assert_eq!(cells[2..6], [json!("62m"), json!("3"), json!(0), json!("64 gpu")]);
        assert_eq!(cells.last(), Some(&json!("56 nvidia.com/gpu missing at ClusterQueue nlp")));
    }

    #[test]
    fn the_fullest_quota_is_shown() {
        let view = |resource: &str, used: i64, nominal: i64| QuotaView {
            flavor: "f".to_owned(),
            resource: resource.to_owned(),
            used: AmountView { value: used.to_string(), number: Some(used.into()) },
            nominal: AmountView { value: nominal.to_string(), number: Some(nominal.into()) },
            ..QuotaView::default()
        };
        let quota = [view("cpu", 1, 4), view("gpu", 3, 4), view("none", 9, 0)];
        assert_eq!(quota_cells(&quota)[..2], [json!("f gpu"), json!("3/4")]);
        assert_eq!(quota_cells(&[]), [json!(""), json!(""), json!("")]);
    }
}
