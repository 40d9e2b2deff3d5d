//! `sluice history purge`: removes the names of a namespace from the durable record.
//!
//! Invariants: the namespace is named on the command line, never taken from the context; what would be removed is counted and shown
//! before the question.

use std::process::ExitCode;

use anyhow::bail;
use serde_json::{Value, json};

use super::args::WriteArgs;
use super::connection::{ConnectionArgs, Session};
use super::failure::{NOT_FOUND, UNAVAILABLE, wrong_use};
use super::source::VIEWS;
use super::writing::{DryRun, Write, Writer};
use super::{counted, note};
use crate::cli::files;
use crate::kube::client::CallError;
use crate::visibility::history::PurgeTopic;
use crate::visibility::views::HistoryPurge;

/// Arguments of `history`.
#[derive(Debug, clap::Args)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(subcommand)]
    verb: HistoryVerb,
}

#[derive(Debug, clap::Subcommand)]
enum HistoryVerb {
    /// Remove the names of a namespace from the durable record; sums of queues stay
    Purge {
        #[command(flatten)]
        write: WriteArgs,
    },
}

pub(crate) async fn run(args: &HistoryArgs) -> anyhow::Result<ExitCode> {
    let HistoryVerb::Purge { write } = &args.verb;
    let format = write.output.format()?;
    let Some(namespace) = &args.connection.namespace else {
        return Err(wrong_use("--namespace: names the namespace to purge; that of the context is not taken"));
    };
    PurgeTopic::of(namespace, false).map_err(|error| wrong_use(format!("--namespace: {error}")))?;
    let object = json!({
        "apiVersion": "visibility.sluice.dev/v1alpha1", "kind": "HistoryPurge", "metadata": {},
        "spec": {"namespace": namespace},
    });
    let print = |answer: &Value, line: &str| match &format {
        Some(format) => files::print(&format.text(answer, true).map_err(anyhow::Error::msg)?),
        None => files::print(&format!("namespace/{namespace} {line}{}\n", write.dry_run.suffix())),
    };
    if write.dry_run == DryRun::Client {
        print(&object, "purged from the record")?;
        return Ok(ExitCode::SUCCESS);
    }
    let session = args.connection.connect().await?;
    let (shown, found) = send(&session, &object, DryRun::Server).await?;
    let what = rows(&found);
    if write.dry_run == DryRun::Server {
        print(&shown, &format!("purged from the record: {what}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    note(&format!(
        "This removes the names of namespace {namespace} from the durable record, in {what}. Sums of queues stay."
    ));
    if found.status.running > 0 {
        let running = number(found.status.running, "run");
        note(&format!("Not ended: {running}, which keep their names and are recorded on."));
    }
    if !write.confirm(&format!("purge namespace {namespace} from the record"))? {
        note("nothing was purged");
        return Ok(ExitCode::SUCCESS);
    }
    let (answer, done) = send(&session, &object, DryRun::None).await?;
    print(&answer, &format!("purged from the record: {}", rows(&done)))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns what was counted, as in `3 records and 2 sums`.
fn rows(purge: &HistoryPurge) -> String {
    format!("{} and {}", number(purge.status.records, "record"), number(purge.status.sums, "sum"))
}

fn number(count: u64, name: &str) -> String {
    counted(usize::try_from(count).unwrap_or(usize::MAX), name)
}

/// Sends the request, and returns its answer.
async fn send(session: &Session, object: &Value, dry_run: DryRun) -> anyhow::Result<(Value, HistoryPurge)> {
    let writer = Writer { caller: &session.caller, dry_run };
    let answer = match writer.send(&format!("{VIEWS}/historypurges"), Write::Create(object)).await {
        Ok(answer) => answer.unwrap_or_default(),
        Err(CallError::Status { code: NOT_FOUND, .. }) => {
            bail!("the manager of this cluster does not serve historypurges: it is another one, or older")
        }
        Err(CallError::Status { code: UNAVAILABLE, message, .. }) => bail!(
            "the durable record does not answer (503: {message}): if it is large, it may still be at work; ask again, all of it is purged or nothing"
        ),
        Err(error) => return Err(error.into()),
    };
    let purge = super::reading::read(&answer)?;
    Ok((answer, purge))
}
