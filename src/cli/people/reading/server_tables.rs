//! Tables that the API server makes: pods of a job, and kinds of Kueue without a view.

use std::process::ExitCode;

use anyhow::{anyhow, bail};
use serde_json::Value;

use super::TableArgs;
use crate::cache::ApiResourceInfo;
use crate::cli::files;
use crate::cli::framework_files::FrameworkFileArgs;
use crate::cli::people::connection::{ConnectionArgs, Session};
use crate::cli::people::discovery::{Discovery, job_name};
use crate::cli::people::failure::wrong_use;
use crate::cli::people::jobs::{ForObject, for_object};
use crate::cli::people::note;
use crate::cli::people::pages::{ListOptions, Pages, encoded, items};
use crate::frameworks::pod_selector;
use crate::kube::client::all_path;
use crate::people::object_list::ObjectList;
use crate::people::output::{ObjectFormat, Output};
use crate::people::server_table::ServerTable;

/// Objects of a page.
const PAGE: i64 = 500;

/// Whose pods are listed.
#[derive(Debug, clap::Args)]
pub(super) struct PodFilter {
    /// The job; of a pod, its group.
    #[arg(long = "for", value_name = "TYPE[.GROUP]/NAME", value_parser = job_name)]
    for_job: String,
    /// In all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    #[command(flatten)]
    framework_files: FrameworkFileArgs,
}

/// Lists the pods of a job.
pub(super) async fn pods(
    table: &TableArgs,
    connection: &ConnectionArgs,
    (filter, labels): (&PodFilter, Option<&String>),
) -> anyhow::Result<ExitCode> {
    filter.framework_files.add()?;
    table.check_cluster("pods")?;
    let session = connection.connect().await?;
    let namespace = (!filter.all_namespaces).then_some(session.namespace.as_str());
    let mut discovery = Discovery::new(&session.caller);
    let job = match for_object(&mut discovery, &session.caller, namespace, &filter.for_job).await? {
        ForObject::Found(job) => job,
        ForObject::NotFound => bail!("{} not found", filter.for_job),
        ForObject::NoName => {
            return Err(wrong_use(format!("--for {:?}: TYPE[.GROUP]/NAME expected", filter.for_job)));
        }
    };
    let selector = pod_selector(&job);
    let selector =
        selector.ok_or_else(|| anyhow!("{}: its pods have no label of their job", filter.for_job))?;
    let labels = match labels {
        Some(labels) => format!("{labels},{selector}"),
        None => selector,
    };
    let path = match namespace {
        Some(namespace) => format!("/api/v1/namespaces/{}/pods", encoded(namespace)),
        None => "/api/v1/pods".to_owned(),
    };
    let is_empty = print(table, &session, (&path, Some(labels)), filter.all_namespaces).await?;
    if is_empty {
        note(&match namespace {
            Some(namespace) => format!("No resources found in {namespace} namespace."),
            None => "No resources found".to_owned(),
        });
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the objects of a kind of the cluster.
pub(super) async fn of_kind(
    table: &TableArgs,
    connection: &ConnectionArgs,
    (resource, labels): (ApiResourceInfo, Option<String>),
) -> anyhow::Result<ExitCode> {
    table.check_cluster(resource.plural)?;
    let session = connection.connect().await?;
    if print(table, &session, (&all_path(&resource), labels), false).await? {
        note("No resources found");
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the objects of a collection; returns whether there is none.
async fn print(
    table: &TableArgs,
    session: &Session,
    (path, labels): (&str, Option<String>),
    namespaces: bool,
) -> anyhow::Result<bool> {
    let options = ListOptions { labels, page: PAGE, ..ListOptions::default() };
    let mut pages = Pages::new(&session.caller, path, &options);
    if let Some(format) = table.format()? {
        return print_objects(&mut pages, format, table.output.show_managed_fields).await;
    }
    let mut pages = pages.with_tables();
    let mut text = ServerTable::new(matches!(table.output.parsed()?, Output::Wide), namespaces);
    while let Some(page) = pages.next().await? {
        text.push(page);
    }
    match text.text(table.width()) {
        Some(text) => files::print(&text).map(|()| false),
        None => Ok(true),
    }
}

async fn print_objects(
    pages: &mut Pages<'_>,
    format: ObjectFormat,
    managed_fields: bool,
) -> anyhow::Result<bool> {
    let (mut list, mut is_empty) = (ObjectList::new(format, managed_fields), true);
    while let Some(mut page) = pages.next().await? {
        let mut found = items(&mut page);
        let text = |field: &str| page.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (version, kind) = (text("apiVersion"), text("kind"));
        for fields in found.iter_mut().filter_map(Value::as_object_mut) {
            // Items of a list of a built-in kind have neither apiVersion nor kind.
            fields.entry("apiVersion").or_insert_with(|| version.clone().into());
            fields.entry("kind").or_insert_with(|| kind.trim_end_matches("List").into());
        }
        is_empty &= found.is_empty();
        files::print(&list.push(&page, found).map_err(anyhow::Error::msg)?)?;
    }
    files::print(&list.end().map_err(anyhow::Error::msg)?)?;
    Ok(is_empty)
}
