//! What a change would do, for pages: reads the cluster's objects, and simulates without and with the change.
//!
//! Invariants: the objects are read with the rights of this process, and an answer has only what its reader may see; the memory for
//! objects is bounded while they are read; nothing is kept but answers.

use std::sync::Arc;

use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::run::ManagerContext;
use super::settings::ManagerSettings;
use crate::cache::Kind;
use crate::dashboard::{FORM, Links, WhatIfQuery};
use crate::kube::client::{CallError, Caller, Content, Rate, all_path};
use crate::kube::list::with_type_meta;
use crate::server::bounded_work::{BoundedWork, NoWork, WorkLimits, WorkTime};
use crate::simulate::estimate::drop_finished;
use crate::simulate::{
    Comparison, KeepGoing, Manifests, NoComparison, Redaction, SimulationOptions, Start, Until, WhatIf,
};
use crate::visibility::access::Access;
use crate::visibility::page::ModelError;

/// Most pending workloads of a cluster that is simulated for a page.
const MAX_PENDING: usize = 20_000;
/// Most memory of a simulation, in MiB.
const MAX_MEBIBYTES: usize = 64;
/// Copies of the objects of which a simulation has room: as they were read, as they are stored, on their way to the core, and what
/// the core keeps of them.
const COPIES: usize = 4;
/// Memory of a value beside its text: of a field its name, its place in the index and its hash, too.
const VALUE_BYTES: usize = size_of::<Value>() + 48;
/// Time that an answer looks ahead.
const AHEAD: SignedDuration = SignedDuration::from_hours(24);
/// Objects of a page of a list.
const PAGE_SIZE: u32 = 500;
/// Rate of the lists of all questions.
const LIST_RATE: Rate = Rate { per_second: 20.0, burst: 100.0 };
/// HTTP status for a kind that is not installed.
const NOT_FOUND: u16 = 404;

/// The answer to a question, or why there is none.
type Answer = Result<Comparison, String>;

/// Answers questions about changes.
pub(super) struct Simulations {
    caller: Caller,
    /// Kinds on which decisions depend, Workloads last.
    kinds: Vec<Kind>,
    /// Options, of which each question has its own start.
    options: SimulationOptions,
    work: BoundedWork<Arc<Answer>>,
}

/// A question with its reader.
struct Asked {
    what_if: WhatIf,
    options: SimulationOptions,
    access: Access,
}

/// A part of what is read.
enum Listed {
    /// Objects of a kind.
    Page(Kind, Vec<Box<RawValue>>),
    /// All objects have been read.
    End,
}

/// Why a question was not answered; asked again, it may be.
#[derive(Debug)]
enum Unanswered {
    NoWork(NoWork),
    Unread(CallError),
}

impl From<NoWork> for Unanswered {
    fn from(error: NoWork) -> Self {
        Self::NoWork(error)
    }
}

impl Simulations {
    pub(super) fn new(settings: &ManagerSettings, shared: &ManagerContext) -> Self {
        let mut core = settings.core();
        // Nothing asks a simulation what happened.
        core.gates.history_bytes = 0;
        let mut kinds = core.kinds();
        kinds.sort_by_key(|kind| *kind == Kind::Workload);
        let start = Timestamp::UNIX_EPOCH;
        Self {
            caller: shared.clients.call.clone().with_rate(Some(LIST_RATE)),
            kinds,
            options: SimulationOptions { core, admission: settings.admission(), start, run_for: None },
            work: BoundedWork::new(WorkLimits::default()),
        }
    }

    /// Returns what a change would do, or why that is not known. `pending` is the number of pending workloads.
    ///
    /// # Errors
    /// The user, or all users together, ask too much at once.
    pub(super) async fn what_if(
        &self,
        query: &WhatIfQuery,
        (access, user): (&Access, &str),
        pending: usize,
    ) -> Result<Answer, ModelError> {
        if pending > MAX_PENDING {
            return Ok(Err(format!(
                "{pending} workloads are pending, and a page simulates at most {MAX_PENDING}: ask in a terminal"
            )));
        }
        let asked = match self.asked(query, access) {
            Ok(asked) => asked,
            Err(refused) => return Ok(Err(refused)),
        };
        // Serializing an access does not fail; if it did, its debug form would be as distinct.
        let reader = serde_json::to_string(access).unwrap_or_else(|_| format!("{access:?}"));
        let key = format!("{reader} {}", query.address(&Links::default()));
        match self.work.kept(key, self.simulated(asked, user)).await {
            Ok(answer) => Ok((*answer).clone()),
            Err(Unanswered::NoWork(NoWork::UserBusy | NoWork::AllBusy)) => Err(ModelError::TooMany),
            Err(Unanswered::NoWork(failed)) => Ok(Err(failed.to_string())),
            Err(Unanswered::Unread(error)) => {
                tracing::warn!(%error, "the objects for a simulation cannot be read");
                Ok(Err("the objects of the cluster cannot be read at present".to_owned()))
            }
        }
    }

    fn asked(&self, query: &WhatIfQuery, access: &Access) -> Result<Asked, String> {
        let changes = query.changes(access.cluster)?;
        let namespace = query.namespace.clone();
        let what_if = WhatIf { changes, namespace, until: Until::After(AHEAD), watched: Vec::new() };
        let (start, run_for) = (Timestamp::now(), query.run_time()?);
        let options = SimulationOptions { start, run_for, ..self.options.clone() };
        Ok(Asked { what_if, options, access: access.clone() })
    }

    async fn simulated(&self, asked: Asked, user: &str) -> Result<Arc<Answer>, Unanswered> {
        let turn = self.work.begin(user)?;
        let (pages, received) = mpsc::channel(1);
        let computing = turn.run(move |time| compare(asked, received, *time));
        let (read, computed) = tokio::join!(read_all(&self.caller, &self.kinds, pages), computing);
        read.map_err(Unanswered::Unread)?;
        Ok(Arc::new(computed?))
    }
}

/// A page of a list, whose objects are decoded by the thread of the work.
#[derive(Deserialize)]
struct RawPage {
    #[serde(default)]
    metadata: RawMetadata,
    items: Option<Vec<Box<RawValue>>>,
}

#[derive(Default, Deserialize)]
struct RawMetadata {
    #[serde(default, rename = "continue")]
    token: String,
}

/// Lists the objects of all kinds. Ends early if nothing receives them any longer.
async fn read_all(caller: &Caller, kinds: &[Kind], pages: mpsc::Sender<Listed>) -> Result<(), CallError> {
    for kind in kinds {
        let resource = kind.resource();
        let mut token = String::new();
        loop {
            let path = format!("{}?limit={PAGE_SIZE}&continue={token}", all_path(&resource));
            let read = caller.call_as::<RawPage>(Method::GET, &path, Content::Json, None::<&Value>).await;
            let page = match read {
                Err(error) if error.code() == Some(NOT_FOUND) => break,
                read => read?,
            };
            if pages.send(Listed::Page(*kind, page.items.unwrap_or_default())).await.is_err() {
                return Ok(());
            }
            token = page.metadata.token;
            if token.is_empty() {
                break;
            }
        }
    }
    // The work may have ended.
    let _ = pages.send(Listed::End).await;
    Ok(())
}

/// Receives the objects, and compares. Runs on the thread of the work.
fn compare(asked: Asked, received: mpsc::Receiver<Listed>, time: WorkTime) -> Answer {
    let Asked { what_if, options, access } = asked;
    let mut stored = received_objects(received, time)?;
    drop_finished(&mut stored);
    let start = Start { options, stored, problems: Vec::new(), manifests: Manifests::default() };
    let keep_going: KeepGoing = Arc::new(move || time.is_left());
    let (mut comparison, report) = match what_if.compare(start, Some(&keep_going)) {
        Ok(found) => found,
        Err(NoComparison::Refused(why)) => return Err(why),
        Err(NoComparison::Stopped) => return Err(too_long()),
    };
    if let Some(problem) = report.problems.iter().find(|problem| &*problem.location.file == FORM) {
        return Err(format!("the job cannot be submitted: {}", problem.reason));
    }
    comparison.assumptions.push(format!("the answer looks {} hours ahead", AHEAD.as_hours()));
    if access.sees_everything() {
        return Ok(comparison);
    }
    let namespace =
        |key: &str| key.split_once('/').map_or_else(String::new, |(namespace, _)| namespace.to_owned());
    Ok(comparison.only(&|workload| access.sees(&namespace(&workload.workload))))
}

fn too_long() -> String {
    "the simulation takes too long for a page: ask in a terminal".to_owned()
}

fn received_objects(
    mut received: mpsc::Receiver<Listed>,
    time: WorkTime,
) -> Result<Vec<(Kind, Value)>, String> {
    let (mut objects, mut bytes, mut redaction) = (Vec::new(), 0_usize, Redaction::default());
    loop {
        let (kind, page) = match received.blocking_recv() {
            Some(Listed::Page(kind, page)) => (kind, page),
            Some(Listed::End) => return Ok(objects),
            None => return Err("the objects of the cluster cannot be read at present".to_owned()),
        };
        for raw in page {
            if !time.is_left() {
                return Err(too_long());
            }
            let object: Value = serde_json::from_str(raw.get()).map_err(|error| error.to_string())?;
            if kind == Kind::Workload && is_finished(&object) {
                continue;
            }
            let mut object = with_type_meta(object, &kind.resource());
            // What no decision reads, and may be secret, need not be in memory.
            redaction.redact(kind, &mut object);
            bytes = bytes.saturating_add(weight(&object));
            if bytes.saturating_mul(COPIES) > MAX_MEBIBYTES << 20 {
                return Err(format!(
                    "the objects of the cluster need more than the {MAX_MEBIBYTES} MiB that a page may use: ask in a terminal"
                ));
            }
            objects.push((kind, object));
        }
    }
}

/// Whether a Workload has finished.
fn is_finished(workload: &Value) -> bool {
    let conditions = workload.pointer("/status/conditions").and_then(Value::as_array);
    let holds = |condition: &Value| {
        condition.get("type").and_then(Value::as_str) == Some("Finished")
            && condition.get("status").and_then(Value::as_str) == Some("True")
    };
    conditions.into_iter().flatten().any(holds)
}

/// Returns about how many bytes a value takes in memory.
fn weight(value: &Value) -> usize {
    let inner: usize = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| name.len().saturating_add(weight(field))).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    inner.saturating_add(VALUE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::access::TenantDetail;
    use serde_json::json;

    const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

    fn time() -> WorkTime {
        WorkTime::of(&WorkLimits::default())
    }

    /// A queue of one CPU that two namespaces share: a Job of the other one has it, and a Job of the own one waits.
    fn objects() -> Vec<(Kind, Value)> {
        let job = |namespace: &str, name: &str, created: &str| {
            let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}});
            let spec = json!({"suspend": true, "parallelism": 1, "completions": 1,
                "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}});
            let labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
            json!({"metadata": {"namespace": namespace, "name": name, "uid": name, "labels": labels, "creationTimestamp": created}, "spec": spec})
        };
        let groups = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1"}]}]}]);
        let queue = json!({"metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": groups,
            "preemption": {"withinClusterQueue": "LowerPriority"}}});
        let local = |namespace: &str| json!({"metadata": {"namespace": namespace, "name": "lq"}, "spec": {"clusterQueue": "cq"}});
        let batch = Kind::from_group_kind("batch", "Job").unwrap();
        vec![
            (Kind::Namespace, json!({"metadata": {"name": "secret"}})),
            (Kind::Namespace, json!({"metadata": {"name": "own"}})),
            (Kind::ResourceFlavor, json!({"apiVersion": KUEUE, "metadata": {"name": "f"}, "spec": {}})),
            (Kind::ClusterQueue, queue),
            (Kind::LocalQueue, local("secret")),
            (Kind::LocalQueue, local("own")),
            (batch, job("secret", "secret-runs", "2026-11-26T12:00:00Z")),
            (batch, job("own", "waits", "2026-11-26T13:00:00Z")),
        ]
    }

    fn answer(query: &WhatIfQuery, access: Access) -> Answer {
        let (pages, received) = mpsc::channel(64);
        for (kind, object) in objects() {
            let raw = serde_json::value::to_raw_value(&object).unwrap();
            pages.try_send(Listed::Page(kind, vec![raw])).ok().unwrap();
        }
        pages.try_send(Listed::End).ok().unwrap();
        let changes = query.changes(access.cluster)?;
        let namespace = query.namespace.clone();
        let what_if = WhatIf { changes, namespace, until: Until::After(AHEAD), watched: Vec::new() };
        let options = SimulationOptions {
            core: crate::reconciler::CoreSettings::default(),
            admission: crate::admission::AdmissionSettings::default(),
            start: "2026-11-26T14:00:00Z".parse().unwrap(),
            run_for: None,
        };
        compare(Asked { what_if, options, access }, received, time())
    }

    fn query(address: &str) -> WhatIfQuery {
        let Ok((crate::dashboard::PageQuestion::WhatIf(query), _)) =
            crate::dashboard::PageQuestion::parse(address)
        else {
            panic!("{address}")
        };
        query
    }

    #[test]
    fn a_tenant_learns_what_becomes_of_its_jobs_and_no_other_name() {
        let tenant = || Access::to_namespace("own", TenantDetail::None);
        let raised = query("/what-if?ns=own&priority=job%2Fwaits%3D300");
        let found = answer(&raised, tenant()).unwrap();
        let text = format!("{found:?} {}", found.table());
        assert!(text.contains("own/waits") && !text.contains("secret"), "{text}");
        assert_eq!(found.workloads.len(), 1, "{text}");
        let whole = answer(&raised, Access::everything()).unwrap();
        assert!(format!("{whole:?}").contains("secret/secret-runs"), "{whole:?}");
        for (address, refused) in [
            ("/what-if?ns=own&quota=cq%3Af%3Acpu%3D2", "--quota cq:f:cpu=2: nodes, quotas and queues"),
            ("/what-if?ns=own&stop=cq%2Fcq", "--stop cq/cq: nodes, quotas and queues"),
            (
                "/what-if?ns=own&delete=job%2Fsecret-runs",
                "--delete job/secret-runs: Job own/secret-runs not found",
            ),
        ] {
            let error = answer(&query(address), tenant()).unwrap_err();
            assert!(error.starts_with(refused) && !error.contains("secret/"), "{error}");
        }
    }

    #[test]
    fn a_job_of_the_form_is_submitted_or_refused() {
        let submitted = query("/what-if?ns=own&queue=lq&pods=1&pod=cpu%3D1");
        let found = answer(&submitted, Access::everything()).unwrap();
        let created = found.workloads.iter().filter(|row| row.effect == crate::simulate::Effect::Created);
        assert_eq!(created.count(), 1, "{found:?}");
        let wrong = answer(&query("/what-if?ns=own&queue=lq&pod=cpu%3Dmany"), Access::everything());
        assert!(wrong.unwrap_err().starts_with("the job cannot be submitted: "));
    }

    #[test]
    fn large_clusters_and_lists_that_end_early_have_no_answer() {
        let (pages, received) = mpsc::channel(4);
        let large = json!({"metadata": {"name": "n", "labels": {"x": "y".repeat(17 << 20)}}});
        let raw = serde_json::value::to_raw_value(&large).unwrap();
        pages.try_send(Listed::Page(Kind::Namespace, vec![raw])).ok().unwrap();
        assert!(received_objects(received, time()).unwrap_err().contains("more than the 64 MiB"));
        let (pages, received) = mpsc::channel(4);
        pages.try_send(Listed::Page(Kind::Namespace, Vec::new())).ok().unwrap();
        drop(pages);
        assert!(received_objects(received, time()).unwrap_err().contains("cannot be read"));
    }
}
