//! Arguments of the durable record: its file in the recorder, the address at which other processes ask for it, and the one at which it
//! asks them.

use std::path::PathBuf;

use anyhow::bail;

use super::component::Component;

/// Flags of the record of history.
#[derive(Clone, Debug, clap::Args)]
#[expect(clippy::struct_field_names, reason = "fields are named as their flags")]
pub(super) struct RecordArgs {
    /// File in which --component=history records history.
    #[arg(long, value_name = "FILE")]
    pub(super) history_record: Option<PathBuf>,
    /// Name of the Service of the process that records history, which is a SAN of its certificate; without it that process has the
    /// certificate of the webhooks.
    #[arg(long, value_name = "NAME")]
    pub(super) history_service: Option<String>,
    /// Address of the process that records history, which is asked for what the memory of this one does not hold; by default no
    /// process is.
    #[arg(long, value_name = "HOST:PORT", default_value = "")]
    pub(super) history_address: String,
    /// Address of the managers, which the process that records history asks at its start for what happened since it last recorded; by
    /// default it asks none. Their certificate has the name of --visibility-service.
    #[arg(long, value_name = "HOST:PORT", default_value = "")]
    pub(super) history_source: String,
}

impl RecordArgs {
    /// Checks the flags of a component. `ring` is the size of its history in memory.
    ///
    /// # Errors
    /// The component records history and has no file or no history, or has a file and does not.
    pub(super) fn check(&self, component: Component, ring: usize) -> anyhow::Result<()> {
        match (component, &self.history_record) {
            (Component::History, None) => bail!("--component=history: --history-record names the file"),
            (Component::History, Some(_)) if ring == 0 => {
                bail!("--history-ring=0: the record is made of the history in memory")
            }
            (_, None) if !self.history_source.is_empty() => {
                bail!("--history-source is for --component=history")
            }
            (Component::History, Some(_)) | (_, None) => Ok(()),
            (_, Some(_)) => bail!("--history-record is for --component=history"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorder_alone_has_a_file() {
        let args = |file: Option<&str>| RecordArgs {
            history_record: file.map(PathBuf::from),
            history_service: None,
            history_address: String::new(),
            history_source: String::new(),
        };
        let (with, without) = (args(Some("/f")), args(None));
        assert!(with.check(Component::History, 1).is_ok() && without.check(Component::All, 0).is_ok());
        for (flags, component, ring) in
            [(&without, Component::History, 1), (&with, Component::History, 0), (&with, Component::All, 1)]
        {
            let error = flags.check(component, ring).unwrap_err().to_string();
            assert!(error.contains("--history-"), "{error}");
        }
        let asking = RecordArgs { history_source: "managers:443".to_owned(), ..args(None) };
        assert!(asking.check(Component::All, 1).unwrap_err().to_string().contains("--history-source"));
    }
}
