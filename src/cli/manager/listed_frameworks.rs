//! Checks that each framework of the configuration has its entries in the webhook configurations and its permissions. Without
//! the entries its objects would run without quota and without any sign of it; without the permissions they would wait forever.
//!
//! Invariant: a replica that had all entries and permissions once stays ready when some are lost. Losses are logged and shown
//! in metrics, and must not stop reviews of the other kinds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::frameworks::Framework;
use crate::kube::rbac_check::MissingPermissions;

/// The frameworks of the configuration, and their missing entries.
#[derive(Debug)]
pub(super) struct ListedFrameworks {
    frameworks: Vec<&'static Framework>,
    /// Configurations without an entry for a framework, by its name; `None` before the configurations are read.
    without_entry: Mutex<Option<BTreeMap<&'static str, Vec<String>>>>,
    complete: AtomicBool,
}

impl ListedFrameworks {
    pub(super) fn new(frameworks: Vec<&'static Framework>) -> Self {
        Self { frameworks, without_entry: Mutex::default(), complete: AtomicBool::new(false) }
    }

    /// Returns why this replica is not ready: for each framework the missing entries and permissions.
    pub(super) fn not_ready_reasons(&self, permissions: &MissingPermissions) -> Vec<String> {
        if self.complete.load(Ordering::Acquire) {
            return Vec::new();
        }
        let entries = self.without_entry.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let known = entries.is_some() && permissions.is_known();
        let (entries, missing) = (entries.unwrap_or_default(), permissions.list());
        let reasons = self.frameworks.iter().filter_map(|row| {
            let entries = entries.get(row.name).into_iter().flatten();
            let entries = entries.map(|configuration| format!("an entry in {configuration}"));
            let denied = missing.iter().filter(|permission| permission.framework == Some(row.name));
            let denied = denied.map(|permission| format!("permission to {permission}"));
            let lacks: Vec<String> = entries.chain(denied).collect();
            (!lacks.is_empty()).then(|| reason(row, &lacks))
        });
        let reasons: Vec<String> = reasons.collect();
        if known && reasons.is_empty() {
            self.complete.store(true, Ordering::Release);
        }
        reasons
    }

    /// Returns the rows of the frameworks.
    pub(super) fn rows(&self) -> &[&'static Framework] {
        &self.frameworks
    }

    /// Sets the frameworks without an entry, by configuration.
    pub(super) fn set_without_entry(&self, configurations: &[(String, Vec<&'static str>)]) {
        let mut lacking: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        for (configuration, frameworks) in configurations {
            for framework in frameworks {
                lacking.entry(framework).or_default().push(configuration.clone());
            }
        }
        let mut known = self.without_entry.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref() == Some(&lacking) {
            return;
        }
        let is_first = known.replace(lacking.clone()).is_none();
        drop(known);
        for row in self.frameworks.iter().filter(|row| lacking.contains_key(row.name)) {
            let configurations = lacking.get(row.name).map(|names| names.join(", ")).unwrap_or_default();
            tracing::error!(
                framework = row.name,
                configurations,
                "no webhook is called for a framework of the configuration; its objects run without quota: {}",
                row.manifests_or_removal()
            );
        }
        if lacking.is_empty() && !is_first {
            tracing::info!("webhooks are called for all frameworks of the configuration");
        }
    }
}

fn reason(row: &Framework, lacks: &[String]) -> String {
    format!("framework {} lacks {}: {}", row.name, lacks.join(", "), row.manifests_or_removal())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frameworks::frameworks;

    #[test]
    fn a_framework_without_entries_is_named_with_its_component() {
        let row = |name: &str| frameworks().find(|row| row.name == name).unwrap();
        let listed = ListedFrameworks::new(vec![row("batch/job"), row("kubeflow.org/tfjob")]);
        let permissions = MissingPermissions::default();
        listed.set_without_entry(&[
            ("mutating".to_owned(), vec!["kubeflow.org/tfjob"]),
            ("validating".to_owned(), vec![]),
        ]);
        let reasons = listed.not_ready_reasons(&permissions);
        assert_eq!(
            reasons,
            [
                "framework kubeflow.org/tfjob lacks an entry in mutating: apply the component config/frameworks/tfjob, or remove \
                 it from integrations.frameworks"
            ]
        );
        listed.set_without_entry(&[("mutating".to_owned(), vec![]), ("validating".to_owned(), vec![])]);
        assert!(listed.not_ready_reasons(&permissions).is_empty());
        // The permissions are not known yet.
        listed.set_without_entry(&[("mutating".to_owned(), vec!["batch/job"])]);
        let reasons = listed.not_ready_reasons(&permissions);
        assert!(reasons[0].contains("apply config/default"), "{reasons:?}");
    }
}
