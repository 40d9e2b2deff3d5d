//! The kinds of the API group: names, scope, printer columns, subresources.

use super::super::v1beta2 as api;
use schemars::{Schema, schema_for};
use serde_json::{Value, json};

/// Parts of a CustomResourceDefinition other than the schema.
pub(super) struct KindSpec {
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) short_names: &'static [&'static str],
    pub(super) namespaced: bool,
    /// Whether `status` is a subresource.
    pub(super) has_status: bool,
    pub(super) columns: &'static [Column],
    pub(super) selectable_fields: &'static [&'static str],
    /// Returns the schema of the Rust type.
    pub(super) schema: fn() -> Schema,
    /// Fields of shared types that this kind does not have.
    pub(super) omitted_fields: &'static [&'static str],
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
        has_status: true,
        columns: &[],
        selectable_fields: &[],
        schema: || schema_for!(api::AdmissionCheck),
        omitted_fields: &[],
    },
    KindSpec {
        kind: "ClusterQueue",
        plural: "clusterqueues",
        short_names: &["cq"],
        namespaced: false,
        has_status: true,
        columns: &[
            column("Cohort", "string", ".spec.cohortName"),
            wide("Strategy", "string", ".spec.queueingStrategy"),
            column("Pending Workloads", "integer", ".status.pendingWorkloads"),
            wide("Admitted Workloads", "integer", ".status.admittedWorkloads"),
        ],
        selectable_fields: &[],
        schema: || schema_for!(api::ClusterQueue),
        omitted_fields: &[],
    },
    KindSpec {
        kind: "Cohort",
        plural: "cohorts",
        short_names: &["co"],
        namespaced: false,
        has_status: true,
        columns: &[],
        selectable_fields: &[],
        schema: || schema_for!(api::Cohort),
        omitted_fields: &[],
    },
    KindSpec {
        kind: "LocalQueue",
        plural: "localqueues",
        short_names: &["queue", "queues", "lq"],
        namespaced: true,
        has_status: true,
        columns: &[
            column("ClusterQueue", "string", ".spec.clusterQueue"),
            column("Pending Workloads", "integer", ".status.pendingWorkloads"),
            column("Admitted Workloads", "integer", ".status.admittedWorkloads"),
        ],
        selectable_fields: &[],
        schema: || schema_for!(api::LocalQueue),
        omitted_fields: &[
            "status.flavorsReservation[].resources[].borrowed",
            "status.flavorsUsage[].resources[].borrowed",
        ],
    },
    KindSpec {
        kind: "MultiKueueCluster",
        plural: "multikueueclusters",
        short_names: &["mkc"],
        namespaced: false,
        has_status: true,
        columns: &[column("Connected", "string", ".status.conditions[?(@.type=='Active')].status"), AGE],
        selectable_fields: &[],
        schema: || schema_for!(api::MultiKueueCluster),
        omitted_fields: &[],
    },
    KindSpec {
        kind: "MultiKueueConfig",
        plural: "multikueueconfigs",
        short_names: &["mkconf"],
        namespaced: false,
        has_status: false,
        columns: &[],
        selectable_fields: &[],
        schema: || schema_for!(api::MultiKueueConfig),
        omitted_fields: &[],
    },
    KindSpec {
        kind: "ProvisioningRequestConfig",
        plural: "provisioningrequestconfigs",
        short_names: &["prc"],
        namespaced: false,
        has_status: false,
        columns: &[],
        selectable_fields: &[],
        schema: || schema_for!(api::ProvisioningRequestConfig),
        omitted_fields: &[],
    },
    KindSpec {
        kind: "ResourceFlavor",
        plural: "resourceflavors",
        short_names: &["flavor", "flavors", "rf"],
        namespaced: false,
        has_status: false,
        columns: &[],
        selectable_fields: &[],
        schema: || schema_for!(api::ResourceFlavor),
        omitted_fields: &[],
    },
    KindSpec {
        kind: "Topology",
        plural: "topologies",
        short_names: &["topo"],
        namespaced: false,
        has_status: false,
        columns: &[],
        selectable_fields: &[],
        schema: || schema_for!(api::Topology),
        omitted_fields: &[],
    },
    KindSpec {
        kind: "WorkloadPriorityClass",
        plural: "workloadpriorityclasses",
        short_names: &["wpc"],
        namespaced: false,
        has_status: false,
        columns: &[column("Value", "integer", ".value")],
        selectable_fields: &[],
        schema: || schema_for!(api::WorkloadPriorityClass),
        omitted_fields: &[],
    },
    KindSpec {
        kind: "Workload",
        plural: "workloads",
        short_names: &["kwl", "kueueworkload", "kueueworkloads"],
        namespaced: true,
        has_status: true,
        columns: &[
            column("Queue", "string", ".spec.queueName"),
            column("Reserved in", "string", ".status.admission.clusterQueue"),
            column("Admitted", "string", ".status.conditions[?(@.type=='Admitted')].status"),
            column("Finished", "string", ".status.conditions[?(@.type=='Finished')].status"),
            AGE,
        ],
        selectable_fields: &[".status.admission.clusterQueue"],
        schema: || schema_for!(api::Workload),
        omitted_fields: &[],
    },
];
