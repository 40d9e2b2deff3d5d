//! `kueuectl version`: this program, and the image of the manager.

use serde_json::Value;

use crate::cli::files;
use crate::cli::people::connection::ConnectionArgs;
use crate::cli::people::kinds::MANAGER;
use crate::cli::people::pages::{ListOptions, Pages, encoded, items};
use crate::metrics::build;
use crate::people::workload_object::text_at;

const CONTAINER: &str = "manager";
const NOT_FOUND: u16 = 404;
const PAGE: i64 = 100;

/// Arguments of `version`.
#[derive(Debug, clap::Args)]
pub(super) struct VersionArgs {
    /// Namespace of the manager; default: all.
    #[arg(long, value_name = "NAME")]
    manager_namespace: Option<String>,
}

pub(super) async fn run(connection: &ConnectionArgs, args: &VersionArgs) -> anyhow::Result<()> {
    files::print(&format!("Client Version: {}\n", build::describe()))?;
    let session = connection.connect().await?;
    let path = match &args.manager_namespace {
        Some(namespace) => format!("/apis/apps/v1/namespaces/{}/deployments", encoded(namespace)),
        None => "/apis/apps/v1/deployments".to_owned(),
    };
    let options = ListOptions { labels: Some(MANAGER.to_owned()), page: PAGE, ..ListOptions::default() };
    let mut pages = Pages::new(&session.caller, &path, &options);
    loop {
        let mut page = match pages.next().await {
            Ok(Some(page)) => page,
            Ok(None) => return Ok(()),
            Err(error) if error.code() == Some(NOT_FOUND) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for image in items(&mut page).iter().filter_map(manager_image) {
            files::print(&format!("Kueue Controller Manager Image: {image}\n"))?;
        }
    }
}

fn manager_image(deployment: &Value) -> Option<&str> {
    let containers = deployment.pointer("/spec/template/spec/containers")?.as_array()?;
    let manager = containers.iter().find(|container| text_at(container, "/name") == Some(CONTAINER))?;
    text_at(manager, "/image")
}
