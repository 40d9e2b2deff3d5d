//! Inputs of a simulation for a session: the objects of the cluster, read with the user's rights, or of a file.
//!
//! Invariant: a simulation starts at the time of the objects' server, or of the dump, so that a wrong clock of this machine changes no age.

use serde_json::Value;

use super::{cluster_configuration, config_mapping, settings};
use crate::api::config::LoadedConfiguration;
use crate::cache::Kind;
use crate::cli::people::connection::Session;
use crate::cli::tools::cluster_objects::{ClusterObjects, ClusterReader};
use crate::simulate::{Dump, SimulationOptions, SkippedResource};

/// Objects, and the configuration of the simulated manager.
pub(in crate::cli::people) struct SimulatedObjects {
    pub(in crate::cli::people) objects: Vec<(Kind, Value)>,
    /// Kinds that could not be read, except kinds of jobs, because a Workload can be simulated without its job.
    pub(in crate::cli::people) skipped: Vec<SkippedResource>,
    pub(in crate::cli::people) options: SimulationOptions,
    /// Whether the manager's configuration is not known.
    pub(in crate::cli::people) has_default_configuration: bool,
}

/// Reads the objects of a session.
pub(in crate::cli::people) async fn read(session: &Session) -> anyhow::Result<SimulatedObjects> {
    let cluster = ClusterReader::of(session.caller.clone());
    let (loaded, has_default_configuration) = if let Some(dump) = &session.dump {
        (configuration_of(dump)?, dump.configuration.is_none())
    } else {
        let (loaded, missing) = cluster_configuration(&cluster).await?;
        (loaded, missing.is_some())
    };
    let configuration = loaded.configuration;
    let namespace = configuration.namespace.as_deref().unwrap_or(settings::DEFAULT_NAMESPACE);
    let core = config_mapping::core_settings(&configuration, namespace);
    let kinds = core.kinds();
    let ClusterObjects { objects, mut skipped } = cluster.objects(&kinds).await?;
    skipped.extend(session.dump.iter().flat_map(|dump| dump.skipped.iter().cloned()));
    let is_needed = |skipped: &SkippedResource| {
        let mut kinds = kinds.iter().filter(|kind| !matches!(kind, Kind::Job(_)));
        kinds.any(|kind| kind.resource().plural == skipped.resource)
    };
    skipped.retain(is_needed);
    let start = match &session.dump {
        Some(dump) => dump.time,
        // Asked after the objects, so that none is newer.
        None => cluster.time().await,
    };
    let options = SimulationOptions {
        start,
        run_for: None,
        recorded: None,
        admission: config_mapping::admission_settings(&configuration, namespace),
        core,
    };
    Ok(SimulatedObjects { objects, skipped, options, has_default_configuration })
}

/// Returns the configuration of a dump; the built-in one if it has none.
pub(super) fn configuration_of(dump: &Dump) -> anyhow::Result<LoadedConfiguration> {
    match dump.configuration.clone() {
        Some(document) => settings::checked("configuration of the dump", document),
        None => settings::configuration(None, None),
    }
}
