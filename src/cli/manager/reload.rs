//! Follows the configuration while the manager runs: the log level and the timeouts of waiting for pods take effect at once;
//! for other changes the log says that they need a restart.
//!
//! Only settings that affect neither charges nor kinds of objects are read again: replicas read a file at different times, and
//! the next leader must compute what this one computed. Invariant: a file that would be refused at the start changes nothing. A
//! mounted ConfigMap changes by replacing a link, so the content is compared and not the time of the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::args::ManagerArgs;
use super::config_mapping;
use super::listen::ListenAddresses;
use super::run::ManagerContext;
use super::settings::{self, ManagerSettings};
use crate::api::config::{self, Configuration};
use crate::lifecycle::pods_ready::PodsReadyLimits;
use crate::reconciler::Delta;
use crate::server::debug::LogLevel;

/// Interval between two reads. The kubelet updates a mount within about a minute.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Name of the file with the log level, in the folder of the configuration.
const LOG_LEVEL_FILE: &str = "log-level";

/// Runs until the task is dropped.
pub(super) fn run(
    settings: &ManagerSettings,
    shared: &ManagerContext,
) -> impl Future<Output = ()> + Send + use<> {
    let level: Arc<dyn LogLevel> = shared.log_level.clone();
    let mut followed = FollowedFiles::new(settings, level);
    let deltas = shared.core.deltas.clone();
    let estimates = Arc::clone(&shared.core.estimates);
    async move {
        loop {
            followed.read_log_level();
            if let Some(limits) = followed.read_configuration() {
                estimates.set_pods_ready_limits(limits.clone());
                if let Some(deltas) = deltas.upgrade() {
                    // The receiver is dropped only when the process ends.
                    drop(deltas.send(Delta::PodsReadyLimits(limits)).await);
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// The files, and their contents at the last read.
struct FollowedFiles {
    /// The configuration; `None` if the manager runs with the defaults.
    configuration: Option<PathBuf>,
    log_level: Option<PathBuf>,
    args: ManagerArgs,
    level: Arc<dyn LogLevel>,
    /// Level of the command line, for when the file is removed.
    initial_level: String,
    /// The configuration in force.
    in_force: Configuration,
    seen: Option<String>,
    seen_level: Option<String>,
    /// Error that was logged last.
    logged: Option<String>,
}

impl FollowedFiles {
    fn new(settings: &ManagerSettings, level: Arc<dyn LogLevel>) -> Self {
        let file = settings.args.config.as_deref();
        let folder = settings.args.config_dir.as_deref().or_else(|| file.and_then(Path::parent));
        let in_folder = |name: &Path| folder.map(|folder| folder.join(name));
        Self {
            configuration: file.and_then(Path::file_name).and_then(|name| in_folder(Path::new(name))),
            log_level: in_folder(Path::new(LOG_LEVEL_FILE)),
            args: settings.args.clone(),
            initial_level: level.get(),
            level,
            in_force: settings.configuration.clone(),
            seen: None,
            seen_level: None,
            logged: None,
        }
    }

    /// Sets the log level if its file has changed; a file that is removed or empty means the level of the command line.
    fn read_log_level(&mut self) {
        let Some(path) = &self.log_level else { return };
        // A file that does not exist is the usual case.
        let text = std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        if text == *self.seen_level.get_or_insert_default() {
            return;
        }
        let level = if text.is_empty() { &self.initial_level } else { &text };
        if let Err(error) = self.level.set(level) {
            tracing::error!(path = %path.display(), error, "log level cannot be read; the current one stays");
        }
        self.seen_level = Some(text);
    }

    /// Reads the configuration if its file has changed. Returns the timeouts of waiting for pods if they have changed.
    fn read_configuration(&mut self) -> Option<PodsReadyLimits> {
        let path = self.configuration.clone()?;
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                self.log_once(&path, &error.to_string());
                return None;
            }
        };
        if self.seen.as_ref() == Some(&text) {
            return None;
        }
        let what = format!("configuration {}", path.display());
        let new = self.check(&text, &what);
        self.seen = Some(text);
        let new = match new {
            Ok(new) => new,
            Err(error) => {
                self.log_once(&path, &format!("{error:#}"));
                return None;
            }
        };
        self.logged = None;
        self.apply(&path, new)
    }

    /// Checks a file as the next start will.
    fn check(&self, text: &str, what: &str) -> anyhow::Result<Configuration> {
        let document = settings::document_of(text, what, self.args.feature_gates.as_deref())?;
        let new = settings::checked(what, document)?.configuration;
        ListenAddresses::of(&self.args, &new)?;
        Ok(new)
    }

    fn apply(&mut self, path: &Path, new: Configuration) -> Option<PodsReadyLimits> {
        let changed = config::changed_settings(&self.in_force, &new);
        let named = |live: bool| {
            let names: Vec<&str> =
                changed.iter().filter(|(_, l)| *l == live).map(|(name, _)| name.as_str()).collect();
            names.join(", ")
        };
        let (at_once, later) = (named(true), named(false));
        if !later.is_empty() {
            tracing::warn!(path = %path.display(), settings = later, "configuration has changed; these settings need a restart");
        }
        if at_once.is_empty() {
            return None;
        }
        let block_admission = self.in_force.wait_for_pods_ready.block_admission;
        let timestamp = self.in_force.wait_for_pods_ready.requeuing_strategy.timestamp;
        self.in_force.wait_for_pods_ready = new.wait_for_pods_ready;
        self.in_force.wait_for_pods_ready.block_admission = block_admission;
        self.in_force.wait_for_pods_ready.requeuing_strategy.timestamp = timestamp;
        tracing::info!(path = %path.display(), settings = at_once, "configuration has changed; these settings are in force");
        config_mapping::pods_ready_limits(&self.in_force)
    }

    fn log_once(&mut self, path: &Path, error: &str) {
        if self.logged.as_deref() != Some(error) {
            tracing::error!(path = %path.display(), error, "configuration cannot be read again: the current one stays in force, and the next start will fail");
            self.logged = Some(error.to_owned());
        }
    }
}

#[cfg(test)]
mod tests;
