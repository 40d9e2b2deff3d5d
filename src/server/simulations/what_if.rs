//! What a change would do: simulates without and with the change.
//!
//! Invariant: an answer has only what its reader may see.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::Value;

use super::objects::{FinishedWorkloads, check_with_changes};
use super::{Advice, Estimates, NoSimulation, Simulator};
use crate::cache::Kind;
use crate::dashboard::{FORM, Links, WhatIfQuery};
use crate::server::bounded_work::WorkTime;
use crate::simulate::estimate::drop_finished;
use crate::simulate::{
    Comparison, KeepGoing, Manifests, NoComparison, SimulationOptions, Start, Until, WhatIf,
};
use crate::visibility::access::Access;

/// Time that an answer looks ahead.
const AHEAD: SignedDuration = SignedDuration::from_hours(24);
/// Most workloads of an answer: it is kept for a time, and each of the pending ones may fare differently.
const MAX_WORKLOADS: usize = 2_000;
/// What to do where a page has no answer; it has the command.
const ADVICE: Advice = Advice { text: "ask in a terminal", command: "sluice what-if" };

/// The answer to a question, or why there is none.
type Answer = Result<Comparison, String>;

/// Answers questions about changes.
pub struct WhatIfAnswers {
    simulator: Simulator<Answer>,
}

/// A question with its reader.
struct Asked {
    what_if: WhatIf,
    options: SimulationOptions,
    access: Access,
}

impl WhatIfAnswers {
    /// Returns answers from the same cluster, whose work counts with that of the estimates.
    pub fn beside(estimates: &Estimates) -> Self {
        Self { simulator: estimates.simulator.sharing() }
    }

    /// Returns what a change would do.
    ///
    /// # Errors
    /// There is no answer: the change is refused, or the question is beyond a bound of simulations on request; the text says why.
    pub async fn what_if(
        &self,
        query: &WhatIfQuery,
        (access, user): (&Access, &str),
    ) -> Result<Comparison, String> {
        let asked = self.asked(query, access)?;
        let key = query.address(&Links::default());
        let simulate = move |stored, time| compare(asked, stored, time);
        let reader = (access, user);
        let found = self.simulator.answer(reader, &key, FinishedWorkloads::Dropped, simulate).await;
        found.unwrap_or_else(|none| Err(none.with_advice(ADVICE, access)))
    }

    fn asked(&self, query: &WhatIfQuery, access: &Access) -> Result<Asked, String> {
        let changes = query.changes(access.cluster)?;
        let namespace = query.namespace.clone();
        let what_if = WhatIf { changes, namespace, until: Until::After(AHEAD), watched: Vec::new() };
        let options = SimulationOptions { run_for: query.run_time()?, ..self.simulator.options() };
        Ok(Asked { what_if, options, access: access.clone() })
    }
}

/// Compares the cluster without and with the change. Runs on the thread of the work.
fn compare(asked: Asked, mut stored: Vec<(Kind, Value)>, time: WorkTime) -> Result<Answer, NoSimulation> {
    let Asked { what_if, options, access } = asked;
    drop_finished(&mut stored);
    check_with_changes(&stored, &what_if.changes.edits)?;
    let start = Start { options, stored, problems: Vec::new(), manifests: Manifests::default() };
    let keep_going: KeepGoing = Arc::new(move || time.is_left());
    let (comparison, report) = match what_if.compare(start, Some(&keep_going)) {
        Ok(found) => found,
        Err(NoComparison::Refused(why)) => return Ok(Err(why)),
        Err(NoComparison::Stopped) => return Err(NoSimulation::TooLong),
    };
    if let Some(problem) = report.problems.iter().find(|problem| &*problem.location.file == FORM) {
        return Ok(Err(format!("the job cannot be submitted: {}", problem.reason)));
    }
    let mut comparison = shown(comparison, &access);
    comparison.assumptions.push(format!("the answer looks {} hours ahead", AHEAD.as_hours()));
    Ok(Ok(comparison))
}

/// Returns what a reader sees of a comparison, and at most `MAX_WORKLOADS` of its workloads.
fn shown(comparison: Comparison, access: &Access) -> Comparison {
    let seen = if access.sees_everything() {
        comparison
    } else {
        let namespace = |key: &str| key.split_once('/').map_or_else(String::new, |(name, _)| name.to_owned());
        comparison.only(&|workload| access.sees(&namespace(&workload.workload)))
    };
    seen.first(MAX_WORKLOADS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::bounded_work::WorkLimits;
    use crate::server::simulations::objects::tests::received;
    use crate::simulate::{ComparedWorkload, WorkloadRef};
    use crate::visibility::access::TenantDetail;
    use serde_json::json;
    use std::time::Duration;

    const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

    /// A queue of one CPU that two namespaces share: a Job of the other one has it, and a Job of the own one waits.
    fn objects() -> Vec<(Kind, Value)> {
        let job = |namespace: &str, name: &str, created: &str| {
            let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}});
            let spec = json!({"suspend": true, "parallelism": 1, "completions": 1,
                "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}});
            let labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
            json!({"metadata": {"namespace": namespace, "name": name, "uid": name, "labels": labels, "creationTimestamp": created}, "spec": spec})
        };
        let workload = |namespace: &str, name: &str, created: &str| {
            let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": true});
            let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}});
            let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
            let metadata = json!({"namespace": namespace, "name": name, "uid": format!("w-{name}"), "creationTimestamp": created,
                "ownerReferences": [owner]});
            json!({"metadata": metadata, "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]}})
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
            (Kind::WorkloadPriorityClass, json!({"metadata": {"name": "high"}, "value": 300})),
            (batch, job("secret", "secret-runs", "2026-11-26T12:00:00Z")),
            (batch, job("own", "waits", "2026-11-26T13:00:00Z")),
            (Kind::Workload, workload("secret", "secret-runs", "2026-11-26T12:00:00Z")),
            (Kind::Workload, workload("own", "waits", "2026-11-26T13:00:00Z")),
        ]
    }

    fn answer(query: &WhatIfQuery, access: Access) -> Answer {
        answer_in(&objects(), query, access)
    }

    fn answer_in(objects: &[(Kind, Value)], query: &WhatIfQuery, access: Access) -> Answer {
        let cpu = WorkLimits::default().cpu;
        simulated(query, access, objects, cpu).unwrap()
    }

    /// Answers a question about these objects within a time of CPU.
    fn simulated(
        query: &WhatIfQuery,
        access: Access,
        objects: &[(Kind, Value)],
        cpu: Duration,
    ) -> Result<Answer, NoSimulation> {
        let changes = match query.changes(access.cluster) {
            Ok(changes) => changes,
            Err(refused) => return Ok(Err(refused)),
        };
        let namespace = query.namespace.clone();
        let what_if = WhatIf { changes, namespace, until: Until::After(AHEAD), watched: Vec::new() };
        let options = SimulationOptions {
            core: crate::reconciler::CoreSettings::default(),
            admission: crate::admission::AdmissionSettings::default(),
            start: "2026-11-26T14:00:00Z".parse().unwrap(),
            run_for: None,
            recorded: None,
        };
        let stored = received(objects, FinishedWorkloads::Dropped, true).unwrap();
        let time = Duration::from_mins(5);
        let time = WorkTime::of(&WorkLimits { cpu, time, ..WorkLimits::default() });
        compare(Asked { what_if, options, access }, stored, time)
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
        let raised = query("/what-if?ns=own&priority=job%2Fwaits%3Dhigh");
        let found = answer(&raised, tenant()).unwrap();
        let text = format!("{found:?}");
        assert!(text.contains("own/waits") && !text.contains("secret"), "{text}");
        assert_eq!(found.workloads.len(), 1, "{text}");
        let whole = answer(&raised, Access::everything()).unwrap();
        assert!(format!("{whole:?}").contains("secret/secret-runs"), "{whole:?}");
        for (address, refused) in [
            ("/what-if?ns=own&quota=cq%3Af%3Acpu%3D2", "--quota cq:f:cpu=2: nodes, quotas and queues"),
            (
                "/what-if?ns=own&priority=job%2Fwaits%3D300",
                "--priority job/waits=300: a WorkloadPriorityClass is expected, not a number",
            ),
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

    /// As `why` does for its jobs: a queue that does not exist, quota that another namespace uses, and a head of it that never fits.
    #[test]
    fn a_tenant_learns_what_blocks_its_jobs_and_no_other_name() {
        let tenant = || Access::to_namespace("own", TenantDetail::None);
        let blockers = |query: &WhatIfQuery, objects: &[(Kind, Value)], access: Access| {
            let found = answer_in(objects, query, access.clone()).unwrap();
            assert!(access.cluster || !format!("{found:?}").contains("secret"), "{found:?}");
            let created =
                found.workloads.into_iter().filter(|row| row.effect == crate::simulate::Effect::Created);
            (created.map(|row| row.with.blocked_by).collect::<Vec<_>>(), found.assumptions)
        };
        let (found, assumed) =
            blockers(&query("/what-if?ns=own&queue=lq&pods=1&pod=cpu%3D1"), &objects(), tenant());
        assert_eq!(found, ["ClusterQueue cq: 0 of 1 cpu"]);
        let expected = [
            "running jobs without a known end go on",
            "nothing else arrives, and nothing else changes",
            "the answer looks 24 hours ahead",
        ];
        assert_eq!(assumed, expected);
        let unknown = query("/what-if?ns=own&queue=zebraq&pods=1&pod=cpu%3D1");
        let (found, _) = blockers(&unknown, &objects(), tenant());
        assert!(matches!(&found[..], [only] if only.contains("zebraq")), "{found:?}");
        assert_eq!(found, blockers(&unknown, &objects(), Access::everything()).0);
        // Behind the head of another namespace.
        let mut strict = objects();
        for (kind, object) in &mut strict {
            if *kind == Kind::ClusterQueue {
                object["spec"]["queueingStrategy"] = json!("StrictFIFO");
            }
            if *kind == Kind::Workload && object["metadata"]["namespace"] == "secret" {
                object["spec"]["podSets"][0]["count"] = json!(5);
            }
            if object["metadata"]["name"] == "secret-runs" && *kind != Kind::Workload {
                object["spec"]["parallelism"] = json!(5);
                object["spec"]["completions"] = json!(5);
            }
        }
        let submitted = query("/what-if?ns=own&queue=lq&pods=1&pod=cpu%3D1");
        let (found, _) = blockers(&submitted, &strict, tenant());
        let behind = "Behind a workload of another namespace, the head of the StrictFIFO ClusterQueue cq, which can never be admitted; all behind it wait without end";
        assert_eq!(found, [behind]);
        let (found, _) = blockers(&submitted, &strict, Access::everything());
        assert!(found[0].starts_with("Behind secret/"), "{found:?}");
    }

    #[test]
    fn a_change_that_cannot_be_made_is_refused_with_its_flag() {
        for (address, refused) in [
            ("/what-if?add=1&like=n9", "--add-nodes 1 --like n9: Node n9 not found"),
            ("/what-if?drain=n9", "--drain n9: Node n9 not found"),
            ("/what-if?quota=cq%3Ag%3Acpu%3D1", "--quota cq:g:cpu=1: ClusterQueue cq has no quota for cpu"),
            ("/what-if?quota=gone%3Af%3Acpu%3D1", "--quota gone:f:cpu=1: ClusterQueue gone not found"),
        ] {
            let error = answer(&query(address), Access::everything()).unwrap_err();
            assert!(error.starts_with(refused), "{address}: {error}");
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
    fn nodes_that_a_change_adds_count_before_they_are_made() {
        let labels: serde_json::Map<String, Value> =
            (0..300).map(|number| (format!("label-{number}"), json!("a-value-of-twenty-b"))).collect();
        let node =
            json!({"metadata": {"name": "h1", "labels": labels}, "status": {"allocatable": {"cpu": "1"}}});
        let mut objects = objects();
        objects.push((Kind::Node, node));
        let too_large = NoSimulation::TooLarge;
        for (count, expected) in [(2, Ok(true)), (5_000, Err(&too_large))] {
            let asked = query(&format!("/what-if?add={count}&like=h1"));
            let found = simulated(&asked, Access::everything(), &objects, Duration::from_mins(1));
            assert_eq!(found.as_ref().map(Result::is_ok), expected, "{count}");
        }
    }

    #[test]
    fn a_simulation_that_takes_too_long_is_stopped() {
        let mut objects = objects();
        let waiting = objects.last().unwrap().1.clone();
        for number in 0..300 {
            let mut workload = waiting.clone();
            workload["metadata"]["name"] = json!(format!("more-{number}"));
            workload["metadata"]["uid"] = json!(format!("more-{number}"));
            workload["metadata"]["ownerReferences"] = json!([]);
            objects.push((Kind::Workload, workload));
        }
        let asked = query("/what-if?quota=cq%3Af%3Acpu%3D2");
        let found = |cpu: Duration| simulated(&asked, Access::everything(), &objects, cpu);
        assert_eq!(found(Duration::from_millis(1)), Err(NoSimulation::TooLong));
        assert!(found(Duration::from_mins(1)).unwrap().is_ok(), "it ends by itself");
    }

    #[test]
    fn an_answer_has_a_number_of_workloads() {
        let row = |namespace: &str, number: usize| ComparedWorkload {
            workload: WorkloadRef { workload: format!("{namespace}/w-{number:05}"), job: String::new() },
            ..ComparedWorkload::default()
        };
        let rows = |namespace: &'static str| (0..2_003).map(move |number| row(namespace, number));
        let workloads: Vec<ComparedWorkload> = rows("own").chain(rows("secret")).collect();
        let whole = Comparison { workloads, ..Comparison::default() };
        for (access, more) in
            [(Access::everything(), 2_006), (Access::to_namespace("own", TenantDetail::None), 3)]
        {
            let found = shown(whole.clone(), &access);
            assert_eq!((found.workloads.len(), found.more_workloads), (2_000, more));
            assert!(found.workloads.iter().all(|row| row.workload.workload.starts_with("own/")));
        }
    }
}
