//! `sluice why`: the verdict of a Workload.

use std::cell::Cell;
use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use serde_json::{Value, json};

use super::{TableArgs, WatchArgs, ask, note_partial, read, when};
use crate::api::ObjectKey;
use crate::cli::files;
use crate::cli::people::connection::{ConnectionArgs, Session};
use crate::cli::people::discovery::{Discovery, type_and_name};
use crate::cli::people::failure::{EXIT_PARTIAL, FORBIDDEN};
use crate::cli::people::pages::{encoded, items};
use crate::cli::people::source::VIEWS;
use crate::cli::people::targets::{self, WithoutWorkload};
use crate::kube::client::CallError;
use crate::people::text_table::printable;
use crate::people::views;
use crate::visibility::views::{Answer, Verdict};

/// Exit status if the answer is no and a flag makes that an error.
const EXIT_NO: u8 = 4;

/// Arguments of `why`.
#[derive(Debug, clap::Args)]
pub(crate) struct WhyArgs {
    /// Workload, or job as TYPE[.GROUP]/NAME.
    #[arg(value_name = "NAME|TYPE/NAME")]
    name: String,
    /// Compare with another Workload, in the order in which the scheduler compares.
    #[arg(long, value_name = "OTHER")]
    before: Option<String>,
    /// Estimate when a pending workload may be admitted: a likely range, or a time before which it is not. With the rights of simulate
    /// --from-cluster it is simulated here, else the manager is asked for what you may see.
    #[arg(long, conflicts_with_all = ["before", "watch"])]
    when: bool,
    /// Print the message of the condition too.
    #[arg(long)]
    all: bool,
    /// Exit with status 4 while the Workload is pending.
    #[arg(long)]
    fail_pending: bool,
    #[command(flatten)]
    watch: WatchArgs,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) async fn run(args: &WhyArgs) -> anyhow::Result<ExitCode> {
    args.table.format()?;
    let session = args.table.connect(&args.connection).await?;
    let mut discovery = Discovery::new(&session.caller);
    let (namespace, name) = match workload(&session, &mut discovery, &args.name).await {
        Ok(found) => found,
        Err(error) => match error.downcast_ref::<WithoutWorkload>() {
            Some(why) => return args.print_without_workload(why, &session),
            None => return Err(error),
        },
    };
    let key = ObjectKey::new(&namespace, &name);
    let mut path = format!("namespaces/{}/workloadviews/{}/verdict", encoded(&namespace), encoded(&name));
    if let Some(other) = &args.before {
        // The text before the slash is a namespace, or the type of a job.
        let is_key = match other.split_once('/') {
            Some((first, _)) => discovery.find(first).await?.is_none(),
            None => false,
        };
        let other = if is_key {
            other.clone()
        } else {
            let (namespace, name) = workload(&session, &mut discovery, other).await?;
            format!("{namespace}/{name}")
        };
        let _ = write!(path, "?before={}", encoded(&other));
    }
    // Whether the user lacks a right that the estimate needs.
    let lacks_right = Cell::new(false);
    let ask_again = async || {
        let mut answer = ask(&session, &path, "workloadviews/verdict").await?;
        if args.when {
            let found = when::admission(&session, &key, &read(&answer)?).await?;
            lacks_right.set(found.lacks_right);
            if let Some(fields) = answer.as_object_mut() {
                fields.insert("estimate".to_owned(), json!(found.estimate));
            }
        }
        Ok(answer)
    };
    let print = |answer: &Value| {
        note_partial(answer);
        args.table
            .print(answer, |verdict: Answer<Verdict>, look| Ok(views::why(&verdict, args.all, look)))?;
        let is_pending = answer.get("state").and_then(Value::as_str) == Some("Pending");
        Ok(if args.fail_pending && is_pending {
            ExitCode::from(EXIT_NO)
        } else if lacks_right.get() {
            ExitCode::from(EXIT_PARTIAL)
        } else {
            session.ended(ExitCode::SUCCESS)
        })
    };
    args.watch.run(ask_again, Value::clone, print).await
}

impl WhyArgs {
    /// Prints why a job has no Workload, which is the answer.
    fn print_without_workload(&self, why: &WithoutWorkload, session: &Session) -> anyhow::Result<ExitCode> {
        match self.table.format()? {
            Some(format) => {
                let answer = json!({"job": why.job, "withoutWorkload": {"reason": why.reason, "message": why.message}});
                files::print(&format.text(&answer, true).map_err(anyhow::Error::msg)?)?;
            }
            None => files::print(&(printable(&why.to_string()) + "\n"))?,
        }
        Ok(if self.fail_pending { ExitCode::from(EXIT_NO) } else { session.ended(ExitCode::SUCCESS) })
    }
}

/// Returns an answer of the views; `None` if there is no such object. A missing right is an error.
fn permitted(path: &str, answer: Result<Value, CallError>) -> anyhow::Result<Option<Value>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(CallError::Status { code: FORBIDDEN, message, .. }) => {
            Err(super::forbidden(path, "workloadviews", &message))
        }
        Err(_) => Ok(None),
    }
}

/// Returns namespace and name of the Workload that a text names. The views are asked first, so that the right to them is
/// enough. Otherwise the objects are searched, which also gives the reason why a job has no Workload.
pub(super) async fn workload(
    session: &Session,
    discovery: &mut Discovery<'_>,
    text: &str,
) -> anyhow::Result<(String, String)> {
    if text.is_empty() {
        bail!("a workload has no empty name");
    }
    let namespaced = format!("namespaces/{}/workloadviews", encoded(&session.namespace));
    let views = format!("{VIEWS}/{namespaced}");
    let by_name = async |name: &str| {
        permitted(&namespaced, session.caller.get(&format!("{views}/{}", encoded(name))).await)
    };
    let found = match type_and_name(text).map_err(anyhow::Error::msg)? {
        Some((kind, name)) => {
            let Some(served) = discovery.find(kind).await? else { bail!("the server has no kind {kind:?}") };
            if served.is_workload() && by_name(name).await?.is_some() {
                return Ok((session.namespace.clone(), name.to_owned()));
            }
            let selector = encoded(&format!("job={}/{name},status=all", served.kind));
            let list = session.caller.get(&format!("{views}?fieldSelector={selector}")).await;
            let list = permitted(&namespaced, list)?;
            let mut rows = list.map(|mut list| items(&mut list)).unwrap_or_default();
            // Of several, as for an elastic job, the unfinished one is used.
            rows.sort_by_key(|row| row.get("state").and_then(Value::as_str) == Some("Finished"));
            rows.into_iter().next()
        }
        None => by_name(text).await?,
    };
    if let Some(name) = found.as_ref().and_then(|row| row.pointer("/metadata/name")?.as_str()) {
        return Ok((session.namespace.clone(), name.to_owned()));
    }
    let target = targets::one(session, discovery, text).await?;
    Ok((target.namespace().to_owned(), target.name().to_owned()))
}
