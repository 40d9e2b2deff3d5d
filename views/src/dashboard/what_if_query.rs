//! The address of a question about a change: its parameters, the changes that they mean, and the command that asks the same.
//!
//! Invariants: a value is checked before anything is computed; a reader of a namespace may ask about its jobs alone, and chooses among
//! the priority classes, as its users do; the command has the words of the form, each as one word of a shell.

use super::links::Links;
use crate::api::config::Duration;
use crate::api::names::{QUEUE_NAME_LABEL, UNCONSTRAINED_TOPOLOGY_ANNOTATION};
use crate::cache::Kind;
use crate::simulate::{ChangeRight, Changes, Edit, Manifests};
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Path of the page.
pub(super) const PATH: &str = "/what-if";
/// Most changes of one question.
const MAX_CHANGES: usize = 20;
/// Most pods of a job that is submitted.
const MAX_PODS: i64 = 100_000;
/// Name of the form in messages about the job that it submits.
pub const FORM: &str = "form";
/// Annotation of pods within one domain of a level of a topology.
const WITHIN: &str = "kueue.x-k8s.io/podset-required-topology";
/// Value of `topology` for pods anywhere in it.
const ANY: &str = "any";

/// Parameters with several words, which may also be given several times.
pub(super) const LISTS: [&str; 7] = ["drain", "quota", "borrow", "lend", "priority", "stop", "delete"];

/// Reads one change.
type Parse = fn(&str) -> Result<Edit, String>;

/// Parameters of the page: changes, which are words with spaces or commas between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WhatIfQuery {
    /// Namespace of the jobs; empty for changes of nodes and quotas alone.
    #[serde(rename = "ns")]
    pub namespace: String,
    /// Number of nodes to add.
    pub add: String,
    /// Node that they are like.
    pub like: String,
    /// Nodes to drain.
    pub drain: String,
    /// Nominal quotas, `QUEUE:FLAVOR:RESOURCE=QUANTITY`.
    pub quota: String,
    /// Borrowing limits.
    pub borrow: String,
    /// Lending limits.
    pub lend: String,
    /// Priorities of jobs, `KIND/NAME=CLASS`.
    pub priority: String,
    /// Jobs, and for readers of the cluster queues, to stop.
    pub stop: String,
    /// Jobs to delete.
    pub delete: String,
    /// LocalQueue of a job to submit; empty for none.
    pub queue: String,
    /// Number of pods of that job; empty for one.
    pub pods: String,
    /// Requests of each of its pods, `RESOURCE=QUANTITY,...`.
    pub pod: String,
    /// Level of a topology within one domain of which its pods are, or `any`; empty for pods without a topology.
    pub topology: String,
    /// Run time of jobs without a known end; empty if they never end.
    #[serde(rename = "for")]
    pub run_for: String,
}

impl WhatIfQuery {
    /// Reads the parameters of an address.
    ///
    /// # Errors
    /// A value is malformed; the text names its parameter.
    pub fn read(value: &impl Fn(&str) -> String) -> Result<Self, String> {
        let query = Self {
            namespace: value("ns"),
            add: value("add"),
            like: value("like"),
            drain: value("drain"),
            quota: value("quota"),
            borrow: value("borrow"),
            lend: value("lend"),
            priority: value("priority"),
            stop: value("stop"),
            delete: value("delete"),
            queue: value("queue"),
            pods: value("pods"),
            pod: value("pod"),
            topology: value("topology"),
            run_for: value("for"),
        };
        query.changes(true)?;
        query.run_time()?;
        Ok(query)
    }

    /// Returns the address of the page.
    pub fn address(&self, links: &Links) -> String {
        let pairs = [
            ("ns", self.namespace.as_str()),
            ("add", &self.add),
            ("like", &self.like),
            ("drain", &self.drain),
            ("quota", &self.quota),
            ("borrow", &self.borrow),
            ("lend", &self.lend),
            ("priority", &self.priority),
            ("stop", &self.stop),
            ("delete", &self.delete),
            ("queue", &self.queue),
            ("pods", &self.pods),
            ("pod", &self.pod),
            ("topology", &self.topology),
            ("for", &self.run_for),
        ];
        links.with_query(PATH, &pairs)
    }

    /// Whether the query names a change.
    pub fn has_change(&self) -> bool {
        [&self.add, &self.drain, &self.quota, &self.borrow, &self.lend]
            .into_iter()
            .chain([&self.priority, &self.stop, &self.delete, &self.queue])
            .any(|value| !value.is_empty())
    }

    /// Returns the run time of jobs without a known end.
    ///
    /// # Errors
    /// The value is no duration.
    pub fn run_time(&self) -> Result<Option<SignedDuration>, String> {
        if self.run_for.is_empty() {
            return Ok(None);
        }
        let length = Duration::parse_length(&self.run_for).ok_or_else(|| {
            format!("for: a duration such as 90s, 10m or 1h30m is expected, not {:?}", self.run_for)
        })?;
        Ok(Some(length))
    }

    /// Returns the changes that a reader may ask about: of the cluster, or of the jobs of the namespace alone.
    ///
    /// # Errors
    /// A value is malformed, or the reader may not ask about it; the text names its parameter.
    pub fn changes(&self, sees_cluster: bool) -> Result<Changes, String> {
        let mut edits = self.added_nodes()?;
        let of_cluster: [(&str, &str, Parse); 4] = [
            ("drain", &self.drain, |node| Edit::drained_node("--drain", node)),
            ("quota", &self.quota, |quota| Edit::amount("--quota", "nominalQuota", quota)),
            ("borrow", &self.borrow, |limit| Edit::amount("--borrow", "borrowingLimit", limit)),
            ("lend", &self.lend, |limit| Edit::amount("--lend", "lendingLimit", limit)),
        ];
        let of_jobs: [(&str, &str, Parse); 3] = [
            ("priority", &self.priority, Edit::reprioritized),
            ("stop", &self.stop, Edit::stopped),
            ("delete", &self.delete, Edit::deleted),
        ];
        for (name, words, parse) in of_cluster.into_iter().chain(of_jobs) {
            for word in words_of(words) {
                let edit = parse(word).map_err(|fault| format!("{name}: {fault}"))?;
                if edit.is_of_workload() && self.namespace.is_empty() {
                    return Err(format!("{name}: a job needs a namespace (ns)"));
                }
                edits.push(edit);
            }
        }
        if edits.len() > MAX_CHANGES {
            return Err(format!("{} changes are too many: at most {MAX_CHANGES}", edits.len()));
        }
        if let Some(edit) = edits.iter().find(|edit| !sees_cluster && !edit.is_of_workload()) {
            return Err(format!(
                "{}: nodes, quotas and queues are changed only by readers of the whole cluster",
                edit.text()
            ));
        }
        if let Some(edit) = edits.iter().find(|edit| !sees_cluster && edit.is_numeric_priority()) {
            return Err(format!("{}: a WorkloadPriorityClass is expected, not a number", edit.text()));
        }
        let files = self.submitted()?.map(|manifests| (FORM.to_owned(), manifests));
        Ok(Changes { files: files.into_iter().collect(), edits })
    }

    /// Returns the rights that a reader of the namespace needs to make the changes, each after the flag that asks for it; none for changes
    /// that such a reader may not ask about. `job_of` returns kind and name of the job of a Workload.
    pub fn rights(&self, job_of: &dyn Fn(&str) -> Option<(Kind, String)>) -> Vec<(String, ChangeRight)> {
        let Ok(changes) = self.changes(false) else { return Vec::new() };
        let right = |edit: &Edit| edit.right(job_of).map(|right| (edit.text().to_owned(), right));
        let submitted = changes.files.iter().flat_map(|(_, manifests)| &manifests.objects);
        let of_jobs = submitted.map(|job| ("--submit".to_owned(), ChangeRight::create(job.kind)));
        changes.edits.iter().filter_map(right).chain(of_jobs).collect()
    }

    fn added_nodes(&self) -> Result<Vec<Edit>, String> {
        match (self.add.as_str(), self.like.as_str()) {
            ("", "") => Ok(Vec::new()),
            ("", _) => Err("add: the number of nodes is missing".to_owned()),
            (_, "") => Err("like: the node that the added ones are like is missing".to_owned()),
            (count, like) => {
                let count = Edit::node_count(count).map_err(|fault| format!("add: {fault}"))?;
                Ok(vec![Edit::added_nodes(count, like).map_err(|fault| format!("like: {fault}"))?])
            }
        }
    }

    /// Returns the job that is submitted.
    fn submitted(&self) -> Result<Option<Manifests>, String> {
        if self.queue.is_empty() {
            let given = [("pods", &self.pods), ("pod", &self.pod), ("topology", &self.topology)];
            let alone = given.into_iter().find(|(_, value)| !value.is_empty());
            return alone.map_or(Ok(None), |(name, _)| {
                Err(format!("{name}: a job to submit needs a LocalQueue (queue)"))
            });
        }
        if self.namespace.is_empty() {
            return Err("queue: a LocalQueue needs a namespace (ns)".to_owned());
        }
        let pods = if self.pods.is_empty() { Ok(1) } else { self.pods.parse::<i64>() };
        let pods = pods.ok().filter(|pods| (1..=MAX_PODS).contains(pods));
        let pods = pods
            .ok_or_else(|| format!("pods: a number from 1 to {MAX_PODS} is expected, not {:?}", self.pods))?;
        let mut requests = Map::new();
        for request in self.pod.split(',').map(str::trim).filter(|request| !request.is_empty()) {
            let (resource, quantity) = request
                .split_once('=')
                .ok_or_else(|| format!("pod: RESOURCE=QUANTITY is expected, not {request:?}"))?;
            requests.insert(resource.to_owned(), json!(quantity));
        }
        let annotations = match self.topology.as_str() {
            "" => json!({}),
            ANY => json!({(UNCONSTRAINED_TOPOLOGY_ANNOTATION): "true"}),
            level => json!({(WITHIN): level}),
        };
        let job = job(&self.queue, pods, &Value::Object(requests), &annotations);
        let mut manifests = Manifests::default();
        manifests.parse(FORM, &job.to_string(), &self.namespace);
        Ok(Some(manifests))
    }

    /// Returns the command that asks the same in a terminal.
    pub fn command(&self) -> String {
        let mut words = vec!["sluice".to_owned(), "what-if".to_owned()];
        let mut flag = |name: &str, value: &str| words.extend([name.to_owned(), quoted(value)]);
        if !self.add.is_empty() {
            flag("--add-nodes", &self.add);
            flag("--like", &self.like);
        }
        for (name, values) in [
            ("--drain", &self.drain),
            ("--quota", &self.quota),
            ("--borrow", &self.borrow),
            ("--lend", &self.lend),
            ("--priority", &self.priority),
            ("--stop", &self.stop),
            ("--delete", &self.delete),
        ] {
            words_of(values).for_each(|value| flag(name, value));
        }
        if !self.queue.is_empty() {
            flag("--submit", "FILE");
        }
        for (name, value) in [("--run-for", &self.run_for), ("-n", &self.namespace)] {
            if !value.is_empty() {
                flag(name, value);
            }
        }
        words.join(" ")
    }
}

/// Returns a job whose name the simulation chooses, so that it is none of the cluster.
fn job(queue: &str, pods: i64, requests: &Value, annotations: &Value) -> Value {
    // A server asks for limits of devices that equal their requests.
    let resources = json!({"requests": requests, "limits": requests});
    let container = json!({"name": "main", "image": "what-if", "resources": resources});
    let spec = json!({"restartPolicy": "Never", "containers": [container]});
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"generateName": "what-if-", "labels": {(QUEUE_NAME_LABEL): queue}},
        "spec": {"parallelism": pods, "completions": pods,
            "template": {"metadata": {"annotations": annotations}, "spec": spec}},
    })
}

/// Returns the words of a parameter. No change has a comma in it.
fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| letter == ',' || letter.is_whitespace()).filter(|word| !word.is_empty())
}

/// Returns a text as one word of a shell.
pub(super) fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@+".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(pairs: &[(&str, &str)]) -> Result<WhatIfQuery, String> {
        let value = |wanted: &str| {
            let found = pairs.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned()).unwrap_or_default()
        };
        WhatIfQuery::read(&value)
    }

    #[test]
    fn parameters_are_changes_and_a_command() {
        let asked = query(&[
            ("ns", "team"),
            ("add", "2"),
            ("like", "h1"),
            ("drain", "h2 h3"),
            ("quota", "nlp:h100:nvidia.com/gpu=64"),
            ("priority", "job/train=300"),
            ("for", "1h"),
        ])
        .unwrap();
        let changes = asked.changes(true).unwrap();
        let texts: Vec<&str> = changes.edits.iter().map(Edit::text).collect();
        let command = format!("sluice what-if {} --run-for 1h -n team", texts.join(" "));
        assert_eq!(asked.command(), command);
        assert_eq!(texts.len(), 5, "{texts:?}");
        for drained in ["h2,h3", "h2, h3", " h2  h3,"] {
            let other = WhatIfQuery { drain: drained.to_owned(), ..asked.clone() };
            assert_eq!(other.changes(true).unwrap().edits, changes.edits, "{drained}");
            assert_eq!(other.command(), asked.command(), "{drained}");
        }
        assert!(asked.has_change() && !query(&[("ns", "team"), ("for", "1h")]).unwrap().has_change());
        let submitted =
            query(&[("ns", "team"), ("queue", "lq"), ("pods", "4"), ("pod", "cpu=1,nvidia.com/gpu=8")]);
        let changes = submitted.unwrap().changes(false).unwrap();
        let object = &changes.files[0].1.objects[0].object;
        assert_eq!(object["spec"]["parallelism"], 4);
        let container = &object["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["resources"]["limits"], json!({"cpu": "1", "nvidia.com/gpu": "8"}));
    }

    #[test]
    fn bad_values_are_named() {
        for (pairs, named) in [
            (vec![("add", "0"), ("like", "h1")], "add: a number from 1 to 5000 is expected, not \"0\""),
            (vec![("add", "-1"), ("like", "h1")], "add: a number from 1 to 5000"),
            (vec![("add", "1000000"), ("like", "h1")], "add: a number from 1 to 5000"),
            (vec![("add", "2")], "like: "),
            (vec![("like", "h1")], "add: "),
            (vec![("drain", "<b>")], "drain: "),
            (vec![("quota", "x")], "quota: QUEUE:FLAVOR:RESOURCE=QUANTITY is expected"),
            (vec![("stop", "job/x")], "stop: a job needs a namespace (ns)"),
            (vec![("queue", "lq")], "queue: a LocalQueue needs a namespace (ns)"),
            (vec![("pods", "3")], "pods: a job to submit needs a LocalQueue (queue)"),
            (vec![("ns", "a"), ("queue", "lq"), ("pods", "0")], "pods: a number from 1"),
            (vec![("ns", "a"), ("queue", "lq"), ("pod", "gpu")], "pod: RESOURCE=QUANTITY is expected"),
            (vec![("for", "-1h")], "for: "),
            (
                vec![
                    ("ns", "a"),
                    (
                        "stop",
                        "job/a job/a job/a job/a job/a job/a job/a job/a job/a job/a job/a job/a job/a job/a job/a job/a job/a job/a job/a job/a job/a",
                    ),
                ],
                "21 changes are too many",
            ),
        ] {
            let error = query(&pairs).unwrap_err();
            assert!(error.starts_with(named), "{pairs:?}: {error}");
        }
    }

    #[test]
    fn a_reader_of_a_namespace_changes_its_jobs_alone() {
        for (name, value, may) in [
            ("priority", "job/x=high", true),
            ("priority", "job/x=3", false),
            ("stop", "job/x", true),
            ("delete", "workload/x", true),
            ("stop", "cq/nlp", false),
            ("stop", "lq/q", false),
            ("drain", "h1", false),
            ("quota", "nlp:f:cpu=1", false),
            ("borrow", "nlp:f:cpu=1", false),
            ("lend", "nlp:f:cpu=1", false),
        ] {
            let asked = query(&[("ns", "a"), (name, value)]).unwrap();
            assert!(asked.changes(true).is_ok(), "{name}={value}");
            assert_eq!(asked.changes(false).is_ok(), may, "{name}={value}");
        }
        assert!(query(&[("ns", "a"), ("add", "1"), ("like", "h")]).unwrap().changes(false).is_err());
    }

    #[test]
    fn changes_of_a_namespace_need_rights() {
        let rights = |pairs: &[(&str, &str)]| -> Vec<String> {
            let found = query(pairs).unwrap().rights(&|_| None).into_iter();
            found.map(|(change, right)| format!("{change}: {right}")).collect()
        };
        let asked = [("ns", "ns"), ("priority", "job/x=high"), ("delete", "job/y,job/z"), ("queue", "lq")];
        let expected = [
            "--priority job/x=high: patch jobs.batch x",
            "--delete job/y: delete jobs.batch y",
            "--delete job/z: delete jobs.batch z",
            "--submit: create jobs.batch",
        ];
        assert_eq!(rights(&asked), expected);
        assert!(rights(&[("ns", "ns")]).is_empty());
        assert!(rights(&[("ns", "ns"), ("drain", "h1")]).is_empty(), "it is refused without a review");
    }

    #[test]
    fn words_of_a_shell_are_quoted() {
        for (text, word) in [("a/b=1", "a/b=1"), ("", "''"), ("a b;c", "'a b;c'"), ("it's", "'it'\\''s'")] {
            assert_eq!(quoted(text), word);
        }
    }
}
