//! `sluice describe`: an object's spec, its views, conditions and events. Other kinds are described by kubectl.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::bail;
use clap::{CommandFactory, FromArgMatches, Parser};
use serde_json::Value;

use super::{TableArgs, ask, encoded, read, time_of, why};
use crate::cache::{ApiResourceInfo, Kind};
use crate::cli::files;
use crate::cli::people::connection::{ConnectionArgs, Session};
use crate::cli::people::discovery::Discovery;
use crate::cli::people::failure::{EXIT_PARTIAL, FORBIDDEN, NOT_FOUND, not_found, print_error};
use crate::cli::people::help;
use crate::cli::people::kinds::PeopleKind;
use crate::cli::people::kubectl::{self, KubectlArgs, arguments};
use crate::cli::tools::cluster_objects::block_on;
use crate::frameworks::{JobKind, frameworks};
use crate::kube::client::{all_path, collection_path};
use crate::kube::list::list_path;
use crate::people::description::{conditions, events, fields_text};
use crate::people::views::{self, Look};
use crate::people::workload_object::text_at;
use crate::visibility::views::{Answer, ClusterQueueView, CohortView, LocalQueueView, PendingView, Verdict};

/// Events of a page.
const PAGE: u32 = 500;
/// A kind that this program describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Described {
    Workload,
    Job,
    ClusterQueue,
    LocalQueue,
    Cohort,
}

impl Described {
    /// Returns the kind of a word; `None` for a kind that kubectl describes.
    fn of(word: &str) -> Option<Self> {
        Some(match word.to_lowercase().as_str() {
            "workload" | "wl" | "workloads" | "kwl" | "kueueworkload" | "kueueworkloads" => Self::Workload,
            "clusterqueue" | "cq" | "clusterqueues" => Self::ClusterQueue,
            "localqueue" | "lq" | "localqueues" => Self::LocalQueue,
            "cohort" | "cohorts" => Self::Cohort,
            // These have no Workload of their own; their pods may have one.
            "pod" | "pods" | "po" | "deployment" | "deployments" => return None,
            other => {
                let base = other.split('.').next().unwrap_or(other);
                let is_named = |resource: ApiResourceInfo| {
                    resource.kind.to_lowercase() == base || resource.plural == base
                };
                let is_job = frameworks().any(|row| is_named(Kind::of_job(JobKind::new(row)).resource()));
                return is_job.then_some(Self::Job);
            }
        })
    }
}

/// The command line for kinds that are described here.
#[derive(Debug, Parser)]
#[command(name = "sluice describe")]
struct DescribeArgs {
    /// workload, job, clusterqueue, localqueue or cohort, and names; or TYPE/NAME.
    #[arg(value_name = "KIND NAME", required = true)]
    words: Vec<String>,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(crate) fn run(args: &KubectlArgs) -> anyhow::Result<ExitCode> {
    let kind = kind_of(&args.rest);
    let word = kind.as_deref().map(|kind| kind.split('/').next().unwrap_or(kind));
    let asks_help = kind.is_none();
    let Some(kind) = word.and_then(Described::of) else {
        if !asks_help {
            return kubectl::hand_over("describe", args);
        }
        own(args);
        return Ok(ExitCode::SUCCESS);
    };
    let args = own(args);
    block_on(describe(kind, &args))
}

/// Parses the words as arguments of this program. Help and errors of the command line are printed, and end the process with
/// their exit status.
fn own(args: &KubectlArgs) -> DescribeArgs {
    let words = std::iter::once(OsString::from("sluice describe")).chain(args.rest.iter().cloned());
    let command = help::added(DescribeArgs::command(), ("sluice describe", "describe"), false);
    let matches = command.try_get_matches_from(words).unwrap_or_else(|error| help::wrapped(error).exit());
    DescribeArgs::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Returns the first word that is neither a flag nor the value of one.
fn kind_of(words: &[OsString]) -> Option<String> {
    let place = arguments(words).into_iter().next()?;
    words.get(place)?.to_str().map(str::to_owned)
}

async fn describe(kind: Described, args: &DescribeArgs) -> anyhow::Result<ExitCode> {
    if args.table.format()?.is_some() {
        bail!("describe prints a text: use get for -o json, yaml, name or jsonpath");
    }
    let session = args.table.connect(&args.connection).await?;
    let (first, rest) =
        args.words.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    let names: Vec<String> = match first.split_once('/') {
        Some((_, name)) if kind != Described::Job => {
            std::iter::once(name.to_owned()).chain(rest.iter().cloned()).collect()
        }
        Some(_) => args.words.clone(),
        None if kind == Described::Job => rest.iter().map(|name| format!("{first}/{name}")).collect(),
        None => rest.to_vec(),
    };
    if names.is_empty() {
        bail!("name what to describe: sluice describe {first} NAME");
    }
    let mut worst = ExitCode::SUCCESS;
    for (number, name) in names.iter().enumerate() {
        if number > 0 {
            files::print("\n\n")?;
        }
        let described = One { session: &session, kind, name, table: &args.table };
        match described.print().await {
            Ok(true) => {}
            Ok(false) => worst = ExitCode::from(EXIT_PARTIAL),
            Err(error) if names.len() > 1 => {
                print_error(&error);
                worst = ExitCode::from(EXIT_PARTIAL);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(session.ended(worst))
}

/// An object to describe.
struct One<'a> {
    session: &'a Session,
    kind: Described,
    name: &'a str,
    table: &'a TableArgs,
}

/// What is known of an object.
struct Known {
    object: Value,
    /// Text of the answer about it.
    text: String,
    look: Look,
}

impl One<'_> {
    /// Prints the object; returns whether all parts could be read.
    async fn print(&self) -> anyhow::Result<bool> {
        let Known { object, text, look } = match self.kind {
            Described::Workload | Described::Job => self.workload().await?,
            Described::ClusterQueue => self.cluster_queue().await?,
            Described::LocalQueue => self.local_queue().await?,
            Described::Cohort => self.cohort().await?,
        };
        let mut parts = vec![fields_text(&object), text, conditions(&object, look)];
        let events_read = self.events(&object).await?;
        parts.push(events(events_read.as_deref(), look));
        parts.retain(|part| !part.is_empty());
        files::print(&parts.join("\n"))?;
        Ok(events_read.is_some())
    }

    /// Returns an object with the text of the answer about it, whose clock counts for its conditions and events, too.
    fn known(
        &self,
        object: Value,
        answer: &Value,
        text: impl FnOnce(Look) -> anyhow::Result<String>,
    ) -> anyhow::Result<Known> {
        let look = self.table.look(time_of(answer));
        Ok(Known { object, text: text(look)?, look })
    }

    async fn workload(&self) -> anyhow::Result<Known> {
        let mut discovery = Discovery::new(&self.session.caller);
        let (namespace, name) = why::workload(self.session, &mut discovery, self.name).await?;
        let object = self.session.caller.get(&PeopleKind::Workload.object(&namespace, &name)).await?;
        let path = format!("namespaces/{}/workloadviews/{}/verdict", encoded(&namespace), encoded(&name));
        let answer = ask(self.session, &path, "workloadviews/verdict").await?;
        self.known(object, &answer, |look| Ok(views::why(&read::<Answer<Verdict>>(&answer)?, false, look)))
    }

    /// Reads an object of a kind of Kueue. If it does not exist, the error has similar names.
    async fn object(&self, resource: &ApiResourceInfo) -> anyhow::Result<Option<Value>> {
        let namespace = resource.namespaced.then_some(self.session.namespace.as_str());
        let collection = match namespace {
            Some(namespace) => collection_path(resource, &encoded(namespace)),
            None => all_path(resource),
        };
        match self.session.caller.get(&format!("{collection}/{}", encoded(self.name))).await {
            Ok(object) => Ok(Some(object)),
            // A cohort may exist only because queues name it.
            Err(error) if error.code() == Some(NOT_FOUND) && self.kind == Described::Cohort => Ok(None),
            Err(error) if error.code() == Some(NOT_FOUND) => {
                let kind = resource.kind.to_lowercase();
                Err(not_found(&self.session.caller, &kind, self.name, &collection, namespace).await)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn cluster_queue(&self) -> anyhow::Result<Known> {
        let object = self.object(&PeopleKind::ClusterQueue.resource()).await?.unwrap_or_default();
        let path = format!("clusterqueueviews/{}", encoded(self.name));
        let answer = ask(self.session, &path, "clusterqueueviews").await?;
        let view: ClusterQueueView = read(&answer)?;
        let counts = counts(view.pending, view.reserving, view.admitted);
        let text = |look| Ok(format!("{counts}\n{}", views::quota_table(&view.quota, look)));
        self.known(object, &answer, text)
    }

    async fn local_queue(&self) -> anyhow::Result<Known> {
        let object = self.object(&PeopleKind::LocalQueue.resource()).await?.unwrap_or_default();
        let namespace = encoded(&self.session.namespace);
        let path = format!("namespaces/{namespace}/localqueueviews/{}", encoded(self.name));
        let answer = ask(self.session, &path, "localqueueviews").await?;
        let view: LocalQueueView = read(&answer)?;
        let counts = counts(view.pending, view.reserving, view.admitted);
        let text = |look| Ok(format!("{counts}\n{}", views::local_quota_table(&view.quota, look)));
        self.known(object, &answer, text)
    }

    async fn cohort(&self) -> anyhow::Result<Known> {
        let object = self.object(&Kind::Cohort.resource()).await?;
        let path = format!("cohortviews/{}", encoded(self.name));
        let answer = match ask(self.session, &path, "cohortviews").await {
            Ok(answer) => answer,
            Err(error) if object.is_some() => return Err(error),
            Err(_) => {
                let collection = all_path(&Kind::Cohort.resource());
                return Err(not_found(&self.session.caller, "cohort", self.name, &collection, None).await);
            }
        };
        let view: CohortView = read(&answer)?;
        let object =
            object.unwrap_or_else(|| serde_json::json!({"kind": "Cohort", "metadata": {"name": self.name}}));
        let below = |label: &str, names: &[String]| {
            if names.is_empty() { String::new() } else { format!("{label} below it: {}\n", names.join(", ")) }
        };
        let lines = below("Cohorts", &view.cohorts) + &below("ClusterQueues", &view.cluster_queues);
        let text = |look| Ok(format!("{lines}\n{}", views::quota_table(&view.quota, look)));
        self.known(object, &answer, text)
    }

    /// Returns the events of an object; `None` if the user may not read them.
    async fn events(&self, object: &Value) -> anyhow::Result<Option<Vec<Value>>> {
        let Some(uid) = text_at(object, "/metadata/uid") else { return Ok(Some(Vec::new())) };
        // Events of cluster-scoped objects are in the namespace default.
        let namespace = text_at(object, "/metadata/namespace").unwrap_or("default");
        let path = format!("/api/v1/namespaces/{}/events", encoded(namespace));
        let query = format!("fieldSelector={}", encoded(&format!("involvedObject.uid={uid}")));
        match list_path(&self.session.caller, &path, &query, PAGE).await {
            Ok(events) => Ok(Some(events)),
            Err(error) if error.code() == Some(FORBIDDEN) => Ok(None),
            Err(error) if error.code() == Some(NOT_FOUND) => Ok(Some(Vec::new())),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the numbers of a queue's workloads as text.
fn counts(pending: PendingView, reserving: u64, admitted: u64) -> String {
    let PendingView { total, inadmissible, .. } = pending;
    format!("{total} pending ({inadmissible} parked), {reserving} with quota, {admitted} admitted\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_described_here_or_by_kubectl() {
        for (line, expected) in [
            ("cq nlp", Some(Described::ClusterQueue)),
            ("-n x lq train", Some(Described::LocalQueue)),
            ("--namespace=x job/train", Some(Described::Job)),
            ("workload a b", Some(Described::Workload)),
            ("rayjobs.ray.io x", Some(Described::Job)),
            ("cohort ai", Some(Described::Cohort)),
            ("pod x", None),
            ("service x", None),
            ("--help", None),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let word = kind_of(&words);
            let word = word.as_deref().map(|word| word.split('/').next().unwrap_or(word));
            assert_eq!(word.and_then(Described::of), expected, "{line}");
        }
    }
}
