//! Evaluates the webhook configurations of the cluster: their manager, listed frameworks without an entry, and kinds of jobs
//! that start without a queue name while no manager answers.
//!
//! Invariant: one watch of each configuration serves all three, and each state of it is evaluated once.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use ::kube::Client;
use serde_json::Value;
use tokio::sync::watch;

use super::leadership::Ownership;
use super::listed_frameworks::ListedFrameworks;
use super::settings::ManagerSettings;
use crate::admission::{kinds_open_without_queue, kinds_without_entry};
use crate::frameworks::Framework;
use crate::kube::webhook_config_watch;
use crate::kube::webhook_ownership::{
    ForeignConfiguration, KUEUE_CONFIGURATIONS, Owner, ServiceName, foreign, owner,
};
use crate::metrics::ConfigurationGaps;

/// Results for one configuration.
#[derive(Clone)]
struct Reading {
    owner: Owner,
    /// Frameworks that no entry covers.
    uncovered: Vec<&'static str>,
    /// Frameworks whose objects without a queue name start while no manager answers.
    open: Vec<&'static str>,
}

impl Reading {
    fn of(
        object: Option<&Value>,
        mutating: bool,
        service: &ServiceName,
        rows: &[&'static Framework],
    ) -> Self {
        Self {
            owner: owner(object, service),
            uncovered: kinds_without_entry(object, mutating, rows),
            open: kinds_open_without_queue(object, mutating, rows),
        }
    }
}

/// Receivers of the results.
struct Reports {
    /// Names of the configurations in the order of the readings: first this manager's, then Kueue's.
    names: Vec<String>,
    service: ServiceName,
    manages_unqueued: bool,
    frameworks: Arc<ListedFrameworks>,
    gaps: Arc<ConfigurationGaps>,
    /// Channel for the owners, if this replica may lead.
    ownership: Option<watch::Sender<Ownership>>,
}

/// Watches the webhook configurations of this manager, and Kueue's if they have other names.
pub(super) fn watch(
    settings: &ManagerSettings,
    client: Client,
    frameworks: Arc<ListedFrameworks>,
    gaps: Arc<ConfigurationGaps>,
    ownership: Option<watch::Sender<Ownership>>,
) -> impl Future<Output = ()> + Send + use<> {
    let (certificates, watch) = (settings.certificates(), settings.watch());
    let service = certificates.service;
    let mut pairs = vec![[certificates.mutating, certificates.validating]];
    let kueue = KUEUE_CONFIGURATIONS.map(str::to_owned);
    if !pairs.contains(&kueue) {
        pairs.push(kueue);
    }
    let rows = frameworks.rows().to_vec();
    let reports = Reports {
        names: pairs.iter().flatten().cloned().collect(),
        service: service.clone(),
        manages_unqueued: settings.configuration.manage_jobs_without_queue_name,
        frameworks,
        gaps,
        ownership,
    };
    let evaluate = move |object: Option<&Value>, mutating| Reading::of(object, mutating, &service, &rows);
    webhook_config_watch::run(client, pairs, watch, evaluate, move |readings| reports.take(&readings))
}

impl Reports {
    fn take(&self, readings: &[Reading]) {
        let named = || self.names.iter().cloned().zip(readings);
        let uncovered = named().take(2).map(|(name, reading)| (name, reading.uncovered.clone()));
        self.frameworks.set_without_entry(&uncovered.collect::<Vec<_>>());
        if self.manages_unqueued {
            self.report_unguarded(named().take(2).flat_map(|(_, reading)| reading.open.iter().copied()));
        }
        let owners = named().map(|(name, reading)| (name, reading.owner.clone()));
        self.report_owners(&owners.collect::<Vec<_>>());
    }

    /// Logs and exports which kinds of jobs without a queue name can start while no manager answers.
    fn report_unguarded(&self, open: impl Iterator<Item = &'static str>) {
        let open: BTreeSet<&str> = open.collect();
        let changed = self.gaps.set_jobs_unguarded(!open.is_empty());
        if changed && !open.is_empty() {
            tracing::warn!(
                frameworks = open.into_iter().collect::<Vec<_>>().join(", "),
                "manageJobsWithoutQueueName is on, but no webhook that fails closed is asked about jobs without a queue: they start \
                 while no manager answers; apply the component config/webhooks/manage-all-jobs, and for a framework with a \
                 component of its own the one below it"
            );
        } else if changed {
            tracing::info!("webhooks reject jobs without a queue while no manager responds");
        }
    }

    /// Logs, exports and sends which configurations belong to another manager.
    fn report_owners(&self, owners: &[(String, Owner)]) {
        let Some(ownership) = &self.ownership else { return };
        let previous = ownership.borrow().clone().unwrap_or_default();
        let foreign = foreign(&previous, owners);
        if self.gaps.set_foreign_webhooks(foreign.iter().map(|foreign| foreign.name.clone()).collect()) {
            if foreign.is_empty() {
                tracing::info!("the webhook configurations belong to this manager");
            }
            for ForeignConfiguration { name, service } in &foreign {
                tracing::error!(
                    configuration = name, %service, own_service = %self.service,
                    "webhook configuration belongs to another manager: this one does not act; uninstall one of both, or correct \
                     --namespace and internalCertManagement.webhookServiceName"
                );
            }
        }
        ownership.send_replace(Some(foreign));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frameworks::frameworks;
    use serde_json::json;

    fn configuration(mutating: bool, row: &Framework, namespace: &str) -> Value {
        let service = json!({"namespace": namespace, "name": "hooks", "path": row.webhook_path(mutating)});
        json!({"webhooks": [{"clientConfig": {"service": service}, "failurePolicy": "Fail"}]})
    }

    #[test]
    fn readings_of_own_configurations_reach_each_report() {
        let row = |name: &str| frameworks().find(|row| row.name == name).unwrap();
        let rows = [row("batch/job"), row("pod")];
        let service = ServiceName { namespace: "a".to_owned(), name: "hooks".to_owned() };
        let (sender, ownership) = watch::channel(None);
        let frameworks = Arc::new(ListedFrameworks::new(rows.to_vec()));
        let gaps = Arc::new(ConfigurationGaps::default());
        let names = ["own-m", "own-v", "kueue-m", "kueue-v"].map(str::to_owned).to_vec();
        let reports = Reports {
            names,
            service: service.clone(),
            manages_unqueued: true,
            frameworks: Arc::clone(&frameworks),
            gaps: Arc::clone(&gaps),
            ownership: Some(sender),
        };
        let own =
            |mutating| Reading::of(Some(&configuration(mutating, rows[0], "a")), mutating, &service, &rows);
        let other = Reading::of(Some(&configuration(false, rows[0], "b")), false, &service, &rows);
        let absent = Reading::of(None, true, &service, &rows);
        reports.take(&[own(true), own(false), absent, other]);
        let reasons = frameworks.not_ready_reasons(&crate::kube::rbac_check::MissingPermissions::default());
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(
            reasons[0].starts_with("framework pod lacks an entry in own-m, an entry in own-v"),
            "{reasons:?}"
        );
        assert!(!gaps.set_jobs_unguarded(true), "pods are open");
        let foreign = ownership.borrow().clone().unwrap();
        assert_eq!(foreign.iter().map(|foreign| foreign.name.as_str()).collect::<Vec<_>>(), ["kueue-v"]);
    }
}
