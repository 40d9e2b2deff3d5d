//! The component of the manager that a process runs. Webhooks and controller can be two Deployments, so that the process that
//! parses input of clients has no right to write. The dashboard can be a Deployment of its own for the same reason, and the
//! recorder of history is one because it has a volume.
//!
//! Invariant: a process that only serves webhooks or the dashboard, or only records history, never leads and never writes an
//! object.

use crate::cache::Kind;
use crate::reconciler::CoreSettings;

/// Part of the manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Component {
    /// Webhooks and controller.
    #[default]
    All,
    /// Webhooks only; reads, and writes nothing.
    Webhooks,
    /// Controller only, which also renews the webhooks' certificate.
    Controller,
    /// Dashboard only; reads what the controller reads, and writes nothing.
    Dashboard,
    /// Records history in a file; reads what the controller reads, and writes no object.
    History,
}

impl Component {
    /// Returns whether webhooks are served.
    pub(super) fn serves_webhooks(self) -> bool {
        matches!(self, Self::All | Self::Webhooks)
    }

    /// Returns whether jobs and workloads are reconciled, and certificates renewed.
    pub(super) fn reconciles(self) -> bool {
        matches!(self, Self::All | Self::Controller)
    }

    /// Returns the kinds that the process reads: all kinds of a whole manager, or a part of them.
    pub(super) fn kinds(self, settings: &CoreSettings) -> Vec<Kind> {
        let mut kinds = if self == Self::Webhooks { settings.kinds_for_reviews() } else { settings.kinds() };
        if self.reconciles() || self.serves_webhooks() {
            kinds.extend(settings.passing_kinds());
        }
        kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dashboard_reads_all_and_does_nothing_else() {
        let settings = CoreSettings::default();
        assert_eq!(Component::Dashboard.kinds(&settings), settings.kinds());
        assert!(!Component::Dashboard.reconciles() && !Component::Dashboard.serves_webhooks());
    }

    #[test]
    fn the_recorder_reads_all_and_does_nothing_else() {
        let settings = CoreSettings::default();
        assert_eq!(Component::History.kinds(&settings), settings.kinds());
        assert!(!Component::History.reconciles() && !Component::History.serves_webhooks());
    }

    #[test]
    fn webhooks_read_only_what_reviews_need() {
        let mut settings = CoreSettings::default();
        let all = settings.kinds();
        assert_eq!(Component::Controller.kinds(&settings), all);
        let read = Component::Webhooks.kinds(&settings);
        assert!(read.contains(&Kind::LocalQueue) && !read.contains(&Kind::Node) && read.len() < all.len());
        assert!(all.contains(&Kind::Pod) && !read.contains(&Kind::Pod));
        settings.frameworks.insert("pod".to_owned());
        assert!(Component::Webhooks.kinds(&settings).contains(&Kind::Pod), "a pod may be above another one");
    }
}
