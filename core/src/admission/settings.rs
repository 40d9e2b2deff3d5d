//! Settings of admission reviews.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::submitter::SubmitterSettings;
use crate::api::validation::Gates;
use crate::frameworks::{Framework, ManagedKinds, Role, framework_named, frameworks};

/// The part of the configuration on which reviews depend.
#[derive(Clone, Debug)]
pub struct AdmissionSettings {
    /// Whether Jobs without a queue name are suspended too, in the selected namespaces.
    pub manage_jobs_without_queue_name: bool,
    /// Namespaces in which Jobs get the default LocalQueue or, if enabled, are managed without a queue name.
    pub managed_namespaces: LabelSelector,
    /// Enabled frameworks by Kueue's names (`batch/job`), supported or not.
    pub frameworks: BTreeSet<String>,
    /// Kinds, as (group, kind), that an external controller manages.
    pub external_kinds: BTreeSet<(String, String)>,
    /// Kinds that are not queued and read by their metadata, as they may stand between a queued object and its pods.
    pub passing: BTreeSet<(&'static str, &'static str)>,
    /// Feature gates.
    pub gates: Gates,
    /// How the accounts that submit objects are recorded; `None` if they are not.
    pub submitter: Option<SubmitterSettings>,
}

impl AdmissionSettings {
    /// Returns whether objects of a kind are reviewed: its framework is enabled, or they are pods and another framework needs
    /// them to be held.
    pub(super) fn reviews(&self, row: &Framework) -> bool {
        let holds_pods = |row: &Framework| matches!(row.role, Role::PodsOfOwner | Role::PassThrough);
        self.frameworks.contains(row.name)
            || row.is_pod()
                && frameworks().any(|other| holds_pods(other) && self.frameworks.contains(other.name))
    }

    /// Returns whether a pod is started that a template with this mark made: by the framework of that name, or by a controller
    /// that is not known.
    pub(super) fn starts_pods_of(&self, parent: &str) -> bool {
        framework_named(parent).is_none_or(|row| self.frameworks.contains(row.name))
    }

    /// Returns the managed kinds.
    pub(super) const fn managed_kinds(&self) -> ManagedKinds<'_> {
        ManagedKinds { frameworks: &self.frameworks, external: &self.external_kinds }
    }
}

impl Default for AdmissionSettings {
    fn default() -> Self {
        let system = LabelSelectorRequirement {
            key: "kubernetes.io/metadata.name".to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(vec!["kube-system".to_owned(), "kueue-system".to_owned()]),
        };
        Self {
            manage_jobs_without_queue_name: false,
            managed_namespaces: LabelSelector { match_labels: None, match_expressions: Some(vec![system]) },
            frameworks: frameworks().map(|row| row.name.to_owned()).collect(),
            external_kinds: BTreeSet::new(),
            passing: BTreeSet::new(),
            gates: Gates::default(),
            submitter: None,
        }
    }
}
