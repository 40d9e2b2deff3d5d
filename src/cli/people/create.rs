//! `sluice create`: creates queues and flavors from flags.

use std::process::ExitCode;

use serde_json::Value;

use super::args::WriteArgs;
use super::connection::ConnectionArgs;
use super::failure::{NOT_FOUND, not_found};
use super::kinds::PeopleKind;
use super::kueuectl::create::{ClusterQueueSpecArgs, ResourceFlavorSpecArgs, local_queue};
use super::note;
use super::writing::{DryRun, Write, Writer};

/// Arguments of `create`.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(subcommand)]
    kind: CreateKind,
}

#[derive(Debug, clap::Subcommand)]
enum CreateKind {
    /// Create a ClusterQueue
    #[command(aliases = ["cq", "clusterqueues"])]
    Clusterqueue {
        /// Name of the new ClusterQueue.
        name: String,
        #[command(flatten)]
        spec: ClusterQueueSpecArgs,
    },
    /// Create a LocalQueue
    #[command(aliases = ["lq", "localqueues"])]
    Localqueue {
        /// Name of the new LocalQueue.
        name: String,
        /// Its ClusterQueue.
        #[arg(short, long, value_name = "NAME")]
        clusterqueue: String,
        /// Do not look whether the ClusterQueue exists.
        #[arg(short, long)]
        ignore_unknown_cq: bool,
    },
    /// Create a ResourceFlavor
    #[command(aliases = ["rf", "resourceflavors"])]
    Resourceflavor {
        /// Name of the new ResourceFlavor.
        name: String,
        #[command(flatten)]
        spec: ResourceFlavorSpecArgs,
    },
}

pub(crate) async fn run(args: &CreateArgs) -> anyhow::Result<ExitCode> {
    args.write.output.format()?;
    let (kind, object) = match &args.kind {
        CreateKind::Clusterqueue { name, spec } => {
            let object = spec.object(name).map_err(anyhow::Error::msg)?;
            if spec.selects_all_namespaces() {
                note("note: without --namespace-selector every namespace may use the ClusterQueue");
            }
            (PeopleKind::ClusterQueue, object)
        }
        CreateKind::Resourceflavor { name, spec } => {
            (PeopleKind::ResourceFlavor, spec.object(name).map_err(anyhow::Error::msg)?)
        }
        CreateKind::Localqueue { name, clusterqueue, ignore_unknown_cq } => {
            let session = args.connection.connect().await?;
            if !ignore_unknown_cq {
                match session.caller.get(&PeopleKind::ClusterQueue.object("", clusterqueue)).await {
                    Ok(_) => {}
                    Err(error) if error.code() == Some(NOT_FOUND) => {
                        let all = PeopleKind::ClusterQueue.collection(None);
                        return Err(
                            not_found(&session.caller, "clusterqueue", clusterqueue, &all, None).await
                        );
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            (PeopleKind::LocalQueue, local_queue(name, &session.namespace, clusterqueue))
        }
    };
    let object = without_status(object);
    let dry_run = args.write.dry_run;
    let stored = if dry_run == DryRun::Client {
        None
    } else {
        let session = args.connection.connect().await?;
        let writer = Writer { caller: &session.caller, dry_run };
        writer.send(&kind.collection(Some(&session.namespace)), Write::Create(&object)).await?
    };
    args.write.print(&stored.unwrap_or(object), "created")?;
    Ok(ExitCode::SUCCESS)
}

fn without_status(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.shift_remove("status");
    }
    object
}
