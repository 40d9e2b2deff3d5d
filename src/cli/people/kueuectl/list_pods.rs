//! `kueuectl list pods`: the pods of a job, or of the group of a pod.

use anyhow::bail;

use super::flags::{AllNamespacesArgs, PrintArgs, SelectorArgs};
use super::list::{list_options, text};
use crate::cli::files;
use crate::cli::people::connection::Session;
use crate::cli::people::discovery::Discovery;
use crate::cli::people::jobs::{ForObject, for_object};
use crate::cli::people::note;
use crate::cli::people::pages::{Pages, items};
use crate::frameworks::pod_selector;
use crate::people::output::Output;
use crate::people::server_table::ServerTable;

#[derive(Debug, clap::Args)]
pub(super) struct PodArgs {
    #[command(flatten)]
    selectors: SelectorArgs,
    #[command(flatten)]
    all: AllNamespacesArgs,
    /// The job (required).
    #[arg(long = "for", value_name = "TYPE[.API-GROUP]/NAME")]
    for_job: Option<String>,
    #[command(flatten)]
    print: PrintArgs,
}

pub(super) async fn run(session: &Session, args: &PodArgs) -> anyhow::Result<()> {
    let Some(job) = &args.for_job else { bail!("required flag(s) \"for\" not set") };
    let mut options = list_options(&args.selectors)?;
    let output = args.print.parsed()?;
    let namespace = args.all.namespace(&session.namespace);
    let nothing = match namespace {
        Some(namespace) => format!("No resources found in {namespace} namespace."),
        None => "No resources found.".to_owned(),
    };
    let job = match for_object(&mut Discovery::new(&session.caller), &session.caller, namespace, job).await? {
        ForObject::Found(job) => job,
        ForObject::NoName => {
            bail!(
                "invalid value '{job}' used in --for flag; value must be in the format TYPE[.API-GROUP]/NAME"
            )
        }
        ForObject::NotFound => {
            note(&nothing);
            return Ok(());
        }
    };
    let Some(selector) = pod_selector(&job) else { bail!("unsupported kind: {}", text(&job, "/kind")) };
    let labels = options.labels.filter(|labels| !labels.is_empty());
    options.labels = Some(labels.map_or(selector.clone(), |labels| format!("{labels},{selector}")));
    let path = match namespace {
        Some(namespace) => {
            format!("/api/v1/namespaces/{}/pods", crate::cli::people::pages::encoded(namespace))
        }
        None => "/api/v1/pods".to_owned(),
    };
    let pages = Pages::new(&session.caller, &path, &options);
    let mut is_empty = true;
    match output {
        Output::Objects(format) => {
            let mut pages = pages;
            while let Some(mut page) = pages.next().await? {
                for mut pod in items(&mut page) {
                    if let Some(fields) = pod.as_object_mut() {
                        // Items of a list of a built-in kind have neither apiVersion nor kind.
                        fields.insert("apiVersion".to_owned(), "v1".into());
                        fields.insert("kind".to_owned(), "Pod".into());
                    }
                    is_empty = false;
                    let shown = format.text(&pod, args.print.shows_managed_fields());
                    files::print(&shown.map_err(anyhow::Error::msg)?)?;
                }
            }
        }
        Output::GoTemplate => bail!("templates of Go are not supported: use jsonpath, or kubectl get"),
        Output::Default | Output::Wide => {
            let mut table = ServerTable::new(matches!(output, Output::Wide), namespace.is_none());
            let mut pages = pages.with_tables();
            while let Some(page) = pages.next().await? {
                table.push(page);
            }
            if let Some(text) = table.text(None) {
                is_empty = false;
                files::print(&text)?;
            }
        }
    }
    if is_empty {
        note(&nothing);
    }
    Ok(())
}
