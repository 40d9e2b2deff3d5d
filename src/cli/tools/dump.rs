//! `sluice dump`: reads a cluster and writes its state as manifests that `sluice simulate` loads.
//!
//! Exit codes: 0 success; 1 error, nothing was written; 2 invalid command line; 3 a resource could not be read. Invariant: it
//! reads the kinds that `simulate --from-cluster` reads, and no Secret.

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::cluster_objects::{self, CONFIGURATION_FIELD, ClusterObjects, ClusterReader};
use crate::cli::framework_files::FrameworkFileArgs;
use crate::cli::manager::config_mapping;
use crate::cli::manager::settings;
use crate::metrics::build;
use crate::simulate::{Dump, Redaction, SkippedResource};

/// A resource could not be read.
const EXIT_SKIPPED: u8 = 3;

/// Arguments of `sluice dump`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The dump holds what decisions depend on: queues, cohorts, flavors, topologies, nodes, checks, classes, \
namespaces, LimitRanges, jobs, pods and Workloads with their status, and the manager's configuration. Secrets are not read. \
Left out are managed fields and annotations of other projects; in pod templates all texts that no decision reads, such as \
environment, commands, arguments, images and volumes, are replaced by placeholders, equal texts by equal ones. Names, \
labels and messages stay: read the file before you publish it.\n\
Replay: sluice simulate FILE.\n\
Exit codes: 0: success; 1: error, nothing was written; 2: invalid command line; 3: a resource could not be read (named on \
standard error and in the dump)."
)]
pub(crate) struct DumpArgs {
    /// Kubeconfig file of the cluster; default: the files that kubectl reads.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// File to write; default: standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Configuration file of the manager; default: the ConfigMap.
    #[arg(long, value_name = "FILE", conflicts_with = "config_map")]
    config: Option<PathBuf>,
    /// ConfigMap with the configuration of the manager.
    #[arg(long, value_name = "NAMESPACE/NAME", default_value = "kueue-system/kueue-manager-config", value_parser = config_map)]
    config_map: ConfigMapName,
    #[command(flatten)]
    framework_files: FrameworkFileArgs,
    /// Feature gates of the manager's command line as NAME=true,…
    #[arg(long, value_name = "LIST")]
    feature_gates: Option<String>,
}

/// Namespace and name of a ConfigMap.
#[derive(Clone, Debug)]
struct ConfigMapName {
    namespace: String,
    name: String,
}

fn config_map(text: &str) -> Result<ConfigMapName, String> {
    let parts = text.split_once('/').filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
    let parts = parts.filter(|(_, name)| !name.contains('/'));
    let name = |(namespace, name): (&str, &str)| ConfigMapName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    parts.map(name).ok_or_else(|| "must be NAMESPACE/NAME".to_owned())
}

pub(crate) fn run(args: &DumpArgs) -> anyhow::Result<ExitCode> {
    args.framework_files.add()?;
    let dump = cluster_objects::block_on(read(args))?;
    for SkippedResource { resource, reason } in &dump.header.skipped {
        crate::cli::print_error(&format_args!("{resource}: skipped: {reason}"));
    }
    match &args.output {
        Some(path) => {
            let file = std::fs::File::create(path).with_context(|| path.display().to_string())?;
            write(&dump, file).with_context(|| path.display().to_string())?;
        }
        None => write(&dump, std::io::stdout().lock()).context("standard output")?,
    }
    Ok(if dump.header.skipped.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_SKIPPED) })
}

/// A header and the redacted objects.
struct ClusterDump {
    header: Dump,
    objects: Vec<Value>,
}

async fn read(args: &DumpArgs) -> anyhow::Result<ClusterDump> {
    let cluster = ClusterReader::connect(args.kubeconfig.as_deref(), args.context.as_deref()).await?;
    let (configuration, mut skipped) = match read_configuration(&cluster, args).await? {
        Ok(document) => (Some(document), Vec::new()),
        Err(skipped) => (None, vec![skipped]),
    };
    let loaded = match &configuration {
        Some(document) => settings::checked("configuration", document.clone())?,
        None => settings::configuration(None, args.feature_gates.as_deref())?,
    };
    let core = config_mapping::core_settings(&loaded.configuration, settings::DEFAULT_NAMESPACE);
    let ClusterObjects { objects, skipped: kinds } = cluster.objects(&core.kinds()).await?;
    skipped.extend(kinds);
    let mut redaction = Redaction::default();
    let redact = |(kind, mut object)| {
        redaction.redact(kind, &mut object);
        with_type_first(object)
    };
    let objects = objects.into_iter().map(redact).collect();
    Ok(ClusterDump {
        header: Dump::new(Timestamp::now(), &build::describe(), configuration, skipped),
        objects,
    })
}

/// Moves apiVersion and kind, which items of a list lack, to the start.
fn with_type_first(object: Value) -> Value {
    let Value::Object(mut fields) = object else { return object };
    let mut ordered = Map::new();
    for name in ["apiVersion", "kind"] {
        ordered.extend(fields.shift_remove(name).map(|value| (name.to_owned(), value)));
    }
    ordered.extend(fields);
    Value::Object(ordered)
}

/// Returns the manager's configuration with the feature gates of the command line, or why it cannot be read.
async fn read_configuration(
    cluster: &ClusterReader,
    args: &DumpArgs,
) -> anyhow::Result<Result<Value, SkippedResource>> {
    let gates = args.feature_gates.as_deref();
    if let Some(path) = &args.config {
        return settings::document(Some(path), gates).map(Ok);
    }
    let ConfigMapName { namespace, name } = &args.config_map;
    let what = format!("ConfigMap {namespace}/{name}");
    match cluster
        .config_map_field(namespace, name, CONFIGURATION_FIELD)
        .await
        .with_context(|| what.clone())?
    {
        Ok(text) => settings::document_of(&text, &what, gates).map(Ok),
        Err(reason) => {
            let reason =
                format!("the configuration of the manager is not known: {reason}; pass --config FILE");
            Ok(Err(SkippedResource { resource: format!("configmaps {namespace}/{name}"), reason }))
        }
    }
}

/// Writes one document for the header and each object.
fn write(dump: &ClusterDump, output: impl Write) -> anyhow::Result<()> {
    let mut output = BufWriter::new(output);
    writeln!(output, "# State of a cluster for bug reports. Replay: sluice simulate FILE")?;
    output.write_all(document(&dump.header)?.as_bytes())?;
    for object in &dump.objects {
        output.write_all(document(object)?.as_bytes())?;
    }
    output.flush()?;
    Ok(())
}

fn document(value: &impl Serialize) -> anyhow::Result<String> {
    Dump::document(value).map_err(anyhow::Error::msg)
}
