//! Which part of the manager a process runs. Webhooks and controller can be two Deployments, so that the process that
//! parses what clients send may only read.
//!
//! Invariant: a process that only serves webhooks never leads and never writes an object.

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
}

impl Component {
    /// Returns whether webhooks are served.
    pub(super) fn serves_webhooks(self) -> bool {
        self != Self::Controller
    }

    /// Returns whether jobs and workloads are reconciled, and certificates renewed.
    pub(super) fn reconciles(self) -> bool {
        self != Self::Webhooks
    }

    /// Returns the kinds that the process reads, of those that the whole manager reads.
    pub(super) fn kinds(self, settings: &CoreSettings) -> Vec<Kind> {
        if self.reconciles() { settings.kinds() } else { settings.kinds_for_reviews() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
