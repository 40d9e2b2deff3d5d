//! Kinds of values of arguments, and the candidates that a cluster, a kubeconfig or the command line has for them.
//!
//! Invariant: each argument with a value has words of its own, a kind of value here, or is free text; a test lists the free
//! texts.

use ::kube::config::Kubeconfig;
use clap::{Arg, Command};
use serde_json::Value;

use super::{LIMIT, TIMEOUT, connection};
use crate::cache::Kind;
use crate::cli::people::connection::Session;
use crate::cli::people::discovery::Discovery;
use crate::cli::people::kinds::PeopleKind;
use crate::cli::tools::cluster_objects::block_on;
use crate::frameworks::{JobKind, frameworks};
use crate::kube::client::all_path;
use crate::people::workload_object::text_at;

/// Formats of `-o` of each verb for people.
const FORMATS: [&str; 8] =
    ["table", "wide", "json", "yaml", "name", "jsonpath=", "jsonpath-as-json=", "jsonpath-file="];
/// Kinds that are proposed after `describe`, `get`, `edit` and `patch`.
const SHOWN_KINDS: [&str; 9] = [
    "workload",
    "job",
    "clusterqueue",
    "localqueue",
    "cohort",
    "resourceflavor",
    "topology",
    "workloadpriorityclass",
    "admissioncheck",
];
/// Verbs that are followed by a kind and names of its objects.
const ACTING: [&str; 9] =
    ["stop", "resume", "move", "reprioritize", "delete", "describe", "get", "edit", "patch"];
/// Kinds of queues that `simulate` and `what-if` stop.
const QUEUE_KINDS: [&str; 2] = ["clusterqueue", "localqueue"];

/// The kind of an argument's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Namespace,
    ClusterQueue,
    LocalQueue,
    Flavor,
    Cohort,
    /// A cohort, a ClusterQueue, or the word for LocalQueues.
    CohortOrQueue,
    PriorityClass,
    Resource,
    /// Node label of a level of a Topology.
    Level,
    Node,
    /// `QUEUE:FLAVOR:RESOURCE=`.
    Quota,
    /// `TYPE/NAME` of a job.
    Job,
    /// A Workload, or `TYPE/NAME` of a job.
    Workload,
    /// `TYPE/NAME` of a queue, a workload or a job.
    Changed,
    /// `TYPE/NAME` of a workload or a job.
    ChangedJob,
    /// `TYPE/NAME=CLASS` of a workload or a job, with a WorkloadPriorityClass.
    JobAndClass,
    /// A kind, then names of its objects.
    KindAndName,
    Context,
    Cluster,
    User,
    Format,
    /// Words of the program's verbs.
    Verb,
}

impl Named {
    /// Returns the kind of values of a verb's argument; `None` if it is free text or has words of its own.
    pub(super) fn of(path: &[&str], arg: &Arg) -> Option<Self> {
        if arg.is_positional() {
            return Self::of_positional(path);
        }
        let is_simulated = matches!(path.first(), Some(&("simulate" | "what-if")));
        Some(match arg.get_id().as_str() {
            "namespace" | "manager_namespace" => Self::Namespace,
            "clusterqueue" | "cluster_queue" => Self::ClusterQueue,
            "localqueue" | "local_queue" | "to" => Self::LocalQueue,
            "flavor" => Self::Flavor,
            "cohort" => Self::Cohort,
            "class" => Self::PriorityClass,
            "resource" => Self::Resource,
            "level" => Self::Level,
            "drain_node" | "drain" | "like" => Self::Node,
            "quota" | "borrow" | "lend" if is_simulated => Self::Quota,
            "stop" if is_simulated => Self::Changed,
            "delete" | "watch_for" if is_simulated => Self::ChangedJob,
            "priority" if is_simulated => Self::JobAndClass,
            "for_job" => Self::Job,
            "before" | "victim" | "preemptor" => Self::Workload,
            "context" => Self::Context,
            "cluster" => Self::Cluster,
            "user" => Self::User,
            "output" if path.first() != Some(&"dump") => Self::Format,
            _ => return None,
        })
    }

    fn of_positional(path: &[&str]) -> Option<Self> {
        Some(match path {
            ["why"] => Self::Workload,
            ["capacity"] => Self::Flavor,
            [verb, kind] if ACTING.contains(verb) => match *kind {
                "workload" => Self::Workload,
                "clusterqueue" => Self::ClusterQueue,
                "localqueue" => Self::LocalQueue,
                "resourceflavor" => Self::Flavor,
                _ => return None,
            },
            ["tree", "cohort"] => Self::Cohort,
            ["tree", "job"] => Self::Job,
            ["share"] => Self::CohortOrQueue,
            ["describe" | "get" | "edit" | "patch"] => Self::KindAndName,
            ["man"] => Self::Verb,
            _ => return None,
        })
    }

    /// Returns the names that begin with `prefix`. `given` are the values before it, `words` all words of the command line.
    pub(super) fn candidates(self, asked: &Asked<'_>) -> Vec<String> {
        let texts = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let from_file = |names: fn(Kubeconfig) -> Vec<String>| {
            let line = connection(asked.words);
            let file = line.kubeconfig.as_ref().map_or_else(Kubeconfig::read, Kubeconfig::read_from);
            file.map(names).unwrap_or_default()
        };
        match self {
            Self::Context => {
                from_file(|file| file.contexts.into_iter().map(|context| context.name).collect())
            }
            Self::Cluster => {
                from_file(|file| file.clusters.into_iter().map(|cluster| cluster.name).collect())
            }
            Self::User => from_file(|file| file.auth_infos.into_iter().map(|user| user.name).collect()),
            Self::Format => {
                let csv = matches!(asked.path, ["list" | "usage" | "audit", ..]).then_some("csv");
                let all = FORMATS.into_iter().chain(csv);
                // kueuectl has no name for its table.
                let of_kueuectl = asked.program.get_name() == "kueuectl";
                all.filter(|format| !of_kueuectl || *format != "table").map(str::to_owned).collect()
            }
            Self::Verb => verbs(asked.program, asked.given),
            Self::KindAndName if asked.given.is_empty() && !asked.prefix.contains('/') => texts(&SHOWN_KINDS),
            Self::Job if !asked.prefix.contains('/') => job_types(),
            Self::Changed | Self::ChangedJob | Self::JobAndClass if !asked.prefix.contains('/') => {
                let queues = QUEUE_KINDS.iter().filter(|_| self == Self::Changed);
                let mut types: Vec<String> = queues.map(|kind| format!("{kind}/")).collect();
                types.extend(["workload/".to_owned()].into_iter().chain(job_types()));
                types
            }
            _ => self.in_cluster(asked),
        }
    }

    fn in_cluster(self, asked: &Asked<'_>) -> Vec<String> {
        let connection = connection(asked.words);
        let read = async {
            let session = connection.connect().await?;
            self.read(&session, asked).await
        };
        let bounded = async { tokio::time::timeout(TIMEOUT, read).await.unwrap_or_else(|_| Ok(Vec::new())) };
        let mut found = block_on(bounded).unwrap_or_default();
        // The sources of names may repeat a name.
        found.sort();
        found.dedup();
        found
    }

    async fn read(self, session: &Session, asked: &Asked<'_>) -> anyhow::Result<Vec<String>> {
        let namespace = Some(session.namespace.as_str());
        let of = |kind: PeopleKind| kind.collection(namespace);
        let names = |objects: Vec<Value>| objects.iter().filter_map(name).collect::<Vec<_>>();
        Ok(match self {
            Self::Namespace => names(list(session, "/api/v1/namespaces").await?),
            Self::Node => names(list(session, "/api/v1/nodes").await?),
            Self::Flavor => names(list(session, &of(PeopleKind::ResourceFlavor)).await?),
            Self::PriorityClass => {
                names(list(session, &all_path(&Kind::WorkloadPriorityClass.resource())).await?)
            }
            Self::ClusterQueue => kept(&list(session, &of(PeopleKind::ClusterQueue)).await?, asked.path),
            Self::LocalQueue => kept(&list(session, &of(PeopleKind::LocalQueue)).await?, asked.path),
            Self::Resource => texts_at(
                &list(session, &of(PeopleKind::ClusterQueue)).await?,
                &["resourceGroups", "coveredResources"],
            ),
            Self::Level => {
                let topologies = list(session, &all_path(&Kind::Topology.resource())).await?;
                texts_at(&topologies, &["levels", "nodeLabel"])
            }
            Self::Quota => quotas(&list(session, &of(PeopleKind::ClusterQueue)).await?),
            Self::Cohort => cohorts(session).await?,
            Self::CohortOrQueue => {
                let mut found = cohorts(session).await?;
                found.extend(names(list(session, &of(PeopleKind::ClusterQueue)).await?));
                found.push("localqueue".to_owned());
                found
            }
            Self::Workload if !asked.prefix.contains('/') => {
                let mut found = kept(&list(session, &of(PeopleKind::Workload)).await?, asked.path);
                found.extend(job_types());
                found
            }
            Self::KindAndName if !asked.prefix.contains('/') => {
                let kind = asked.given.first().copied().unwrap_or_default();
                names(of_type(session, kind).await?)
            }
            Self::JobAndClass if asked.prefix.contains('=') => {
                let object = asked.prefix.split('=').next().unwrap_or_default();
                let classes = names(list(session, &all_path(&Kind::WorkloadPriorityClass.resource())).await?);
                classes.into_iter().map(|class| format!("{object}={class}")).collect()
            }
            _ => {
                let kind = asked.prefix.split('/').next().unwrap_or_default();
                let names = names(of_type(session, kind).await?);
                let end = if self == Self::JobAndClass { "=" } else { "" };
                names.into_iter().map(|name| format!("{kind}/{name}{end}")).collect()
            }
        })
    }
}

/// Context of the word for which candidates are wanted.
pub(super) struct Asked<'a> {
    /// The program.
    pub(super) program: &'a Command,
    /// Verb and kind.
    pub(super) path: &'a [&'a str],
    /// All words before.
    pub(super) words: &'a [String],
    /// Values of positional arguments that are given already.
    pub(super) given: &'a [&'a str],
    /// Start of the value.
    pub(super) prefix: &'a str,
}

/// Returns the kinds of jobs in the notation of `TYPE/NAME`.
fn job_types() -> Vec<String> {
    let kind = |row| Kind::of_job(JobKind::new(row)).resource().kind.to_lowercase();
    frameworks().map(|row| format!("{}/", kind(row))).collect()
}

/// Returns the verbs below the given ones.
fn verbs(program: &Command, given: &[&str]) -> Vec<String> {
    let mut verb = program;
    for word in given {
        let Some(below) = verb.find_subcommand(word) else { return Vec::new() };
        verb = below;
    }
    let shown = verb.get_subcommands().filter(|below| !below.is_hide_set());
    shown.map(|below| below.get_name().to_owned()).collect()
}

async fn list(session: &Session, path: &str) -> anyhow::Result<Vec<Value>> {
    let list = session.caller.get(&format!("{path}?limit={LIMIT}")).await?;
    Ok(list.get("items").and_then(Value::as_array).cloned().unwrap_or_default())
}

/// Lists the objects of a kind by any of its names.
async fn of_type(session: &Session, kind: &str) -> anyhow::Result<Vec<Value>> {
    let served = Discovery::new(&session.caller).find(kind).await?;
    let Some(served) = served else { return Ok(Vec::new()) };
    list(session, &served.collection(Some(&session.namespace))).await
}

/// Returns the cohorts that are objects, and the cohorts that queues and cohorts name.
async fn cohorts(session: &Session) -> anyhow::Result<Vec<String>> {
    let objects = list(session, &all_path(&Kind::Cohort.resource())).await.unwrap_or_default();
    let queues = list(session, &PeopleKind::ClusterQueue.collection(None)).await?;
    let named = |pointer: &str, objects: &[Value]| -> Vec<String> {
        objects.iter().filter_map(|object| text_at(object, pointer)).map(str::to_owned).collect()
    };
    let mut found = named("/metadata/name", &objects);
    found.extend(named("/spec/parentName", &objects));
    found.extend(named("/spec/cohortName", &queues));
    Ok(found)
}

fn name(object: &Value) -> Option<String> {
    text_at(object, "/metadata/name").map(str::to_owned)
}

/// Returns the names of the objects to which a verb applies.
fn kept(objects: &[Value], path: &[&str]) -> Vec<String> {
    let is_running = |object: &Value| {
        let active = object.pointer("/spec/active").and_then(Value::as_bool).unwrap_or(true);
        active && matches!(text_at(object, "/spec/stopPolicy"), None | Some("None" | ""))
    };
    let verb = path.first().copied().unwrap_or_default();
    let matches = |object: &&Value| match verb {
        "stop" => is_running(object),
        "resume" => !is_running(object),
        _ => true,
    };
    objects.iter().filter(matches).filter_map(name).collect()
}

/// Returns the texts of a field of the elements of a list of the spec, which may be lists themselves.
fn texts_at(objects: &[Value], [elements, field]: &[&str; 2]) -> Vec<String> {
    let lists = objects.iter().filter_map(|object| object.get("spec")?.get(*elements)?.as_array());
    let values = lists.flatten().filter_map(|element| element.get(*field));
    let texts =
        values.flat_map(|value| value.as_array().map_or_else(|| vec![value], |list| list.iter().collect()));
    texts.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the quotas of ClusterQueues as `QUEUE:FLAVOR:RESOURCE=`.
fn quotas(queues: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    let field =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let text = |value: &Value| value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    for queue in queues {
        let (queue_name, groups) = (name(queue).unwrap_or_default(), queue.pointer("/spec/resourceGroups"));
        for group in groups.and_then(Value::as_array).into_iter().flatten() {
            for flavor in field(group, "flavors") {
                for resource in field(&flavor, "resources") {
                    found.push(format!("{queue_name}:{}:{}=", text(&flavor), text(&resource)));
                }
            }
        }
    }
    found
}
