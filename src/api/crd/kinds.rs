//! The kinds: names, scope, printer columns, subresources.

use super::super::v1beta2 as api;
use schemars::{Schema, schema_for};
use serde_json::{Value, json};

/// What a definition says of a kind beside its schema.
pub(super) struct KindSpec {
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) short_names: &'static [&'static str],
    pub(super) namespaced: bool,
    /// Whether `status` is a subresource.
    pub(super) status: bool,
    pub(super) columns: &'static [Column],
    pub(super) selectable: &'static [&'static str],
    /// Schema of the Rust type.
    pub(super) schema: fn() -> Schema,
    /// Fields of shared types that this kind does not have.
    pub(super) without: &'static [&'static str],
}

/// A column of `kubectl get`.
pub(super) struct Column {
    name: &'static str,
    kind: &'static str,
    path: &'static str,
    priority: i32,
}

const fn column(name: &'static str, kind: &'static str, path: &'static str) -> Column {
    Column { name, kind, path, priority: 0 }
}

/// A column of `kubectl get -o wide`.
const fn wide(name: &'static str, kind: &'static str, path: &'static str) -> Column {
    Column { name, kind, path, priority: 1 }
}

impl KindSpec {
    pub(super) fn columns(&self) -> Value {
        let columns = self.columns.iter().map(|c| {
            let mut value = json!({ "jsonPath": c.path, "name": c.name, "type": c.kind });
            if c.priority != 0 {
                super::schema::set(&mut value, "priority", json!(c.priority));
            }
            value
        });
        columns.collect()
    }
}

const AGE: Column = column("Age", "date", ".metadata.creationTimestamp");

pub(super) static KINDS: &[KindSpec] = &[
    KindSpec {
        kind: "AdmissionCheck",
        plural: "admissionchecks",
        short_names: &["ac"],
        namespaced: false,
        status: true,
        columns: &[],
        selectable: &[],
        schema: || schema_for!(api::AdmissionCheck),
        without: &[],
    },
    KindSpec {
        kind: "ClusterQueue",
        plural: "clusterqueues",
        short_names: &["cq"],
        namespaced: false,
        status: true,
        columns: &[
            column("Cohort", "string", ".spec.cohortName"),
            wide("Strategy", "string", ".spec.queueingStrategy"),
            column("Pending Workloads", "integer", ".status.pendingWorkloads"),
            wide("Admitted Workloads", "integer", ".status.admittedWorkloads"),
        ],
        selectable: &[],
        schema: || schema_for!(api::ClusterQueue),
        without: &[],
    },
    KindSpec {
        kind: "Cohort",
        plural: "cohorts",
        short_names: &["co"],
        namespaced: false,
        status: true,
        columns: &[],
        selectable: &[],
        schema: || schema_for!(api::Cohort),
        without: &[],
    },
    KindSpec {
        kind: "LocalQueue",
        plural: "localqueues",
        short_names: &["queue", "queues", "lq"],
        namespaced: true,
        status: true,
        columns: &[
            column("ClusterQueue", "string", ".spec.clusterQueue"),
            column("Pending Workloads", "integer", ".status.pendingWorkloads"),
            column("Admitted Workloads", "integer", ".status.admittedWorkloads"),
        ],
        selectable: &[],
        schema: || schema_for!(api::LocalQueue),
        without: &[
            "status.flavorsReservation[].resources[].borrowed",
            "status.flavorsUsage[].resources[].borrowed",
        ],
    },
    KindSpec {
        kind: "MultiKueueCluster",
        plural: "multikueueclusters",
        short_names: &["mkc"],
        namespaced: false,
        status: true,
        columns: &[column("Connected", "string", ".status.conditions[?(@.type=='Active')].status"), AGE],
        selectable: &[],
        schema: || schema_for!(api::MultiKueueCluster),
        without: &[],
    },
    KindSpec {
        kind: "MultiKueueConfig",
        plural: "multikueueconfigs",
        short_names: &["mkconf"],
        namespaced: false,
        status: false,
        columns: &[],
        selectable: &[],
        schema: || schema_for!(api::MultiKueueConfig),
        without: &[],
    },
    KindSpec {
        kind: "ProvisioningRequestConfig",
        plural: "provisioningrequestconfigs",
        short_names: &["prc"],
        namespaced: false,
        status: false,
        columns: &[],
        selectable: &[],
        schema: || schema_for!(api::ProvisioningRequestConfig),
        without: &[],
    },
    KindSpec {
        kind: "ResourceFlavor",
        plural: "resourceflavors",
        short_names: &["flavor", "flavors", "rf"],
        namespaced: false,
        status: false,
        columns: &[],
        selectable: &[],
        schema: || schema_for!(api::ResourceFlavor),
        without: &[],
    },
    KindSpec {
        kind: "Topology",
        plural: "topologies",
        short_names: &["topo"],
        namespaced: false,
        status: false,
        columns: &[],
        selectable: &[],
        schema: || schema_for!(api::Topology),
        without: &[],
    },
    KindSpec {
        kind: "WorkloadPriorityClass",
        plural: "workloadpriorityclasses",
        short_names: &["wpc"],
        namespaced: false,
        status: false,
        columns: &[column("Value", "integer", ".value")],
        selectable: &[],
        schema: || schema_for!(api::WorkloadPriorityClass),
        without: &[],
    },
    KindSpec {
        kind: "Workload",
        plural: "workloads",
        short_names: &["kwl", "kueueworkload", "kueueworkloads"],
        namespaced: true,
        status: true,
        columns: &[
            column("Queue", "string", ".spec.queueName"),
            column("Reserved in", "string", ".status.admission.clusterQueue"),
            column("Admitted", "string", ".status.conditions[?(@.type=='Admitted')].status"),
            column("Finished", "string", ".status.conditions[?(@.type=='Finished')].status"),
            AGE,
        ],
        selectable: &[".status.admission.clusterQueue"],
        schema: || schema_for!(api::Workload),
        without: &[],
    },
];
