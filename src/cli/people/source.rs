//! Sources of answers: the manager's group, the cluster's objects, or a dump.
//!
//! Invariants: `auto` uses the manager if its group is served; another source than the manager is named on standard error.

use std::path::PathBuf;
use std::time::Duration;

use super::closed::Closed;
use super::connection::{ConnectionArgs, Session};
use super::failure::{NOT_FOUND, UNAVAILABLE, wrong_use};
use super::{note, offline};
use crate::kube::client::{CallError, Caller};

/// Path of the group's version.
pub(super) const VIEWS: &str = "/apis/visibility.sluice.dev/v1alpha1";

/// Longest time for which `auto` waits for the manager.
const PROBE: Duration = Duration::from_secs(10);

/// The flag `--source`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct SourceArgs {
    /// Where answers come from: the manager, the cluster's objects (read with your rights and evaluated here), or a file of sluice
    /// dump; auto takes the manager where it answers.
    #[arg(long, global = true, value_name = "auto|manager|cluster|FILE", default_value = "auto", hide_possible_values = true, value_parser = Closed::new(|| vec!["auto", "manager", "cluster"], parse))]
    source: Source,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Source {
    #[default]
    Auto,
    Manager,
    Cluster,
    File(PathBuf),
}

fn parse(text: &str) -> Result<Source, String> {
    match text {
        "" => Err("use auto, manager, cluster or a file of sluice dump".to_owned()),
        "auto" => Ok(Source::Auto),
        "manager" => Ok(Source::Manager),
        "cluster" => Ok(Source::Cluster),
        path => Ok(Source::File(path.into())),
    }
}

impl SourceArgs {
    /// Returns a session with the source of answers.
    pub(super) async fn connect(&self, args: &ConnectionArgs) -> anyhow::Result<Session> {
        match &self.source {
            Source::Manager => args.connect().await,
            Source::Cluster => offline::of_cluster(args.connection().await?).await,
            Source::File(path) => offline::of_file(path, args.namespace_alone().await),
            Source::Auto => {
                let connection = args.connection().await?;
                let (caller, namespace) = (connection.caller(), connection.namespace.clone());
                let Some(missing) = missing(&caller).await else {
                    return Ok(Session { caller, namespace, is_partial: false, dump: None });
                };
                note(&format!("note: {missing}: answers are computed here from the cluster's objects"));
                offline::of_cluster(connection).await
            }
        }
    }

    /// Returns a session with the source of objects: the cluster, or a file.
    pub(super) async fn connect_to_objects(&self, args: &ConnectionArgs) -> anyhow::Result<Session> {
        match &self.source {
            Source::File(path) => offline::of_file(path, args.namespace_alone().await),
            Source::Auto | Source::Cluster | Source::Manager => args.connect().await,
        }
    }

    /// Returns whether the flag allows an answer of the manager.
    pub(super) const fn allows_manager(&self) -> bool {
        matches!(self.source, Source::Auto | Source::Manager)
    }

    /// Returns an error if a flag selects another source than the cluster, because `what` is only there.
    pub(super) fn check_cluster(&self, what: &str) -> anyhow::Result<()> {
        match self.source {
            Source::Auto | Source::Cluster => Ok(()),
            Source::Manager | Source::File(_) => {
                Err(wrong_use(format!("--source: {what} are read from the cluster")))
            }
        }
    }

    /// Returns an error if a flag excludes the manager, because only the manager has `what`.
    pub(super) fn check_manager(&self, what: &str) -> anyhow::Result<()> {
        match self.source {
            Source::Auto | Source::Manager => Ok(()),
            Source::Cluster | Source::File(_) => {
                Err(wrong_use(format!("--source: {what} is known to the manager alone")))
            }
        }
    }
}

/// Returns why the manager's group cannot be asked; `None` if it can be asked, or if the failure of the question itself is a
/// better error.
async fn missing(caller: &Caller) -> Option<&'static str> {
    const SILENT: &str = "the visibility API does not answer";
    let Ok(found) = tokio::time::timeout(PROBE, caller.get(VIEWS)).await else { return Some(SILENT) };
    match found {
        Err(CallError::Timeout(_)) => Some(SILENT),
        Err(error) if error.code() == Some(NOT_FOUND) => {
            Some("the cluster does not serve visibility.sluice.dev")
        }
        Err(error) if error.code() == Some(UNAVAILABLE) => Some(SILENT),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_words_are_files() {
        for (text, expected) in [
            ("auto", Ok(Source::Auto)),
            ("manager", Ok(Source::Manager)),
            ("cluster", Ok(Source::Cluster)),
            ("./cluster", Ok(Source::File("./cluster".into()))),
            ("", Err("use auto, manager, cluster or a file of sluice dump".to_owned())),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
