//! The kind SparkApplication: a driver and executors, described by fields of their own, from which `spark_pods` makes their pod
//! templates.
//!
//! Invariant: the number of executors is fixed while an application is queued or runs, so that no executor is without quota.

use super::JobError;
use super::hooks::{Hooks, ReviewField, ReviewScope, RuleSettings};
use super::job_under_review::JobUnderReview;
use super::played_status::{PlayedState, set_at};
use super::read::{self, malformed};
use super::role_shape::{DescribedRole, InjectedFields, RoleShape};
use super::row::{
    Active, Count, Enabled, FieldPointers, FinishedRule, Flags, Framework, Message, PodLabel, PodLabels,
    PodSetSource, Pointer, Ready, Reclaimable, Role, StatusFields, Test, TopologyChecks,
};
use super::row_parts::{JOB_FLAGS, JOB_RBAC, JOB_WEBHOOKS, NAME, NO_RANK, PODS};
use super::spark_pods;
use super::spark_texts::{
    ALLOCATION, FIELDS, Form, SETTINGS, SPARK_CONF, integer, is_former_name, is_number_of_devices, shown,
    switches_on,
};
use super::view::{Gvk, JobView, PodSetView};
use crate::api::validation::{Errors, FieldError};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

const STATE: Pointer = "/status/applicationState/state";
const MESSAGE: Pointer = "/status/applicationState/errorMessage";
const EXECUTORS: Pointer = "/status/executorState";
const DRIVER_STATUS: Pointer = "/status/driverInfo";
const INSTANCES: Pointer = "/spec/executor/instances";
const MODE: Pointer = "/spec/mode";
/// Where Spark itself reads the number, if the operator sets none.
const INSTANCES_SETTING: Pointer = "/spec/sparkConf/spark.executor.instances";
const DYNAMIC_ALLOCATION: Pointer = "/spec/dynamicAllocation/enabled";
pub(super) static ROW: Framework = Framework {
    gvk: Gvk {
        group: "sparkoperator.k8s.io",
        version: "v1beta2",
        kind: "SparkApplication",
        plural: "sparkapplications",
    },
    name: "sparkoperator.k8s.io/sparkapplication",
    short_names: &[],
    enabled: Enabled::WhenListed,
    role: Role::Suspended,
    fields: FieldPointers {
        suspend: Some("/spec/suspend"),
        managed_by: None,
        start_time: None,
        server_labels: &[],
        priority_class: None,
        roles: RoleShape::Described(DescribedRole {
            injected: InjectedFields {
                labels: "/labels",
                annotations: "/annotations",
                node_selector: "/nodeSelector",
                tolerations: "/tolerations",
                scheduling_gates: "/template/spec/schedulingGates",
            },
            template: "/template",
            shared_node_selector: "/spec/nodeSelector",
        }),
    },
    pod_sets: &[
        PodSetSource::Fixed { name: "driver", template: "/spec/driver", count: Count::One },
        PodSetSource::Fixed {
            name: "executor",
            template: "/spec/executor",
            count: Count::FieldOrText(INSTANCES, INSTANCES_SETTING),
        },
    ],
    related: &[],
    pods: PodLabels {
        selector: Some(&[PodLabel { key: "sparkoperator.k8s.io/app-name", value: NAME }]),
        rank: NO_RANK,
    },
    status: StatusFields {
        finished: &[
            FinishedRule {
                when: Test::Text(STATE, &["COMPLETED"]),
                success: true,
                message: Message::Field(MESSAGE),
            },
            FinishedRule {
                // A failed submission is none of them: the operator submits again, or writes that the application has failed.
                when: Test::Text(STATE, &["FAILED"]),
                success: false,
                message: Message::Field(MESSAGE),
            },
        ],
        active: Active::When(Test::Text(STATE, &["RUNNING"])),
        ready: Ready::Hook,
        reclaimable: Reclaimable::None,
    },
    creates: PODS,
    webhooks: JOB_WEBHOOKS,
    rbac: JOB_RBAC,
    flags: Flags {
        prebuilt: false,
        topology_checks: TopologyChecks::Templates,
        gate: Some("SparkApplicationIntegration"),
        ..JOB_FLAGS
    },
    hooks: &Spark,
};

/// Additions to the row.
#[derive(Debug)]
struct Spark;

impl Hooks for Spark {
    fn pod_template(&self, job: &Value, role: &Value, name: &str) -> Result<Value, JobError> {
        let unknown = "must be off: the number of executors is not known";
        if read::boolean(job, DYNAMIC_ALLOCATION)?.unwrap_or(false) {
            return Err(malformed(DYNAMIC_ALLOCATION, unknown));
        }
        for setting in ALLOCATION {
            if read::string(job, setting)?.is_some_and(switches_on) {
                return Err(JobError::Malformed { path: shown(setting), problem: unknown.to_owned() });
            }
        }
        spark_pods::template(job, role, name)
    }

    /// Once only `true` was a boolean, and neither Spark's minimum of memory beside the heap nor a former name of a setting was read.
    fn as_charged_before(&self, job: &Value) -> Option<Value> {
        let now_on = |(setting, text): (&String, &Value)| {
            setting == "spark.memory.offHeap.enabled"
                && text != "true"
                && text.as_str().is_some_and(switches_on)
        };
        let unread = |setting: &str| setting.ends_with(".minMemoryOverhead") || is_former_name(setting);
        let mut former = job.clone();
        let settings = former.pointer_mut(SPARK_CONF)?.as_object_mut()?;
        let before = settings.len();
        settings.retain(|setting, text| !unread(setting) && !now_on((setting, text)));
        (settings.len() != before).then_some(former)
    }

    fn pods_ready(&self, _row: &Framework, job: &Value, view: &JobView) -> Result<bool, JobError> {
        let ready =
            |state: &&Value| state.as_str().is_some_and(|text| matches!(text, "RUNNING" | "COMPLETED"));
        let executors = read::entries(job, EXECUTORS)?.iter().filter(|state| ready(state)).count();
        let wanted = view.pod_sets.iter().filter(|set| *set.name == *"executor").map(|set| set.count).sum();
        let wanted: i32 = wanted;
        Ok(view.status.active_pods > 0 && usize::try_from(wanted).is_ok_and(|wanted| executors >= wanted))
    }

    fn count_fields(&self, _view: &JobView, set: &PodSetView, count: i32) -> Vec<(Pointer, i32)> {
        if set.count == count || *set.name != *"executor" { Vec::new() } else { vec![(INSTANCES, count)] }
    }

    /// Lists the executors, and adds what the schema of the status requires.
    fn play(&self, job: &mut Value, state: PlayedState, _now: Timestamp) -> Result<(), JobError> {
        let asked = match read::count(job, INSTANCES)? {
            Some(count) => count,
            None => read::string(job, INSTANCES_SETTING)?.and_then(integer).unwrap_or(1),
        };
        let running = if state == PlayedState::Ready { asked } else { 0 };
        let executors: Map<String, Value> =
            (1..=running).map(|number| (format!("executor-{number}"), json!("RUNNING"))).collect();
        set_at(job, EXECUTORS, Value::Object(executors));
        if job.pointer(DRIVER_STATUS).is_none() {
            set_at(job, DRIVER_STATUS, json!({}));
        }
        if state == PlayedState::Ready {
            set_at(job, STATE, json!("RUNNING"));
        } else if job.pointer(STATE).is_none() {
            set_at(job, STATE, json!("SUSPENDED"));
        }
        Ok(())
    }

    fn review_fields(&self) -> &'static [ReviewField] {
        &REVIEWED
    }

    fn reviewed_parts(&self) -> &'static [Pointer] {
        &[SPARK_CONF]
    }

    fn review_scope(
        &self,
        job: &JobUnderReview<'_>,
        old: Option<&JobUnderReview<'_>>,
        settings: RuleSettings<'_>,
    ) -> ReviewScope {
        if settings.concerns(job, old) { ReviewScope::Full } else { ReviewScope::Nothing }
    }

    fn validate_change(
        &self,
        job: &JobUnderReview<'_>,
        old: Option<&JobUnderReview<'_>>,
        settings: RuleSettings<'_>,
        errors: &mut Errors,
    ) {
        if !settings.manages(job) {
            return;
        }
        // A text that an earlier version took may stay.
        let managed = old.filter(|old| settings.manages(old));
        let changed = |pointer: Pointer| {
            let before = managed.and_then(|old| old.text(pointer));
            job.text(pointer).filter(|text| before != Some(*text))
        };
        for (pointer, form) in FIELDS.into_iter().chain(SETTINGS) {
            errors.extend(changed(pointer).and_then(|text| form.fault(pointer, text)));
        }
        errors.extend(new_faults_of_devices(job, managed));
        let mode = job.text(MODE).unwrap_or_default();
        if mode != "cluster" {
            let detail = "only the mode cluster is supported for a queued SparkApplication";
            errors.push(FieldError::invalid("spec.mode", mode, detail));
        }
        if job.is_true(DYNAMIC_ALLOCATION) && !job.asks_for_elasticity(settings.gates) {
            let detail = "a queued SparkApplication has a fixed number of executors";
            errors.push(FieldError::invalid("spec.dynamicAllocation.enabled", true, detail));
        }
        for setting in ALLOCATION {
            if let Some(text) = job.text(setting).filter(|text| switches_on(text)) {
                let detail = "a queued SparkApplication has a fixed number of executors";
                errors.push(FieldError::invalid(shown(setting), text, detail));
            }
        }
    }
}

/// Returns the faults of numbers of devices that an earlier version of the application does not have. No table has the names of
/// these settings: the name of the device is part of them.
fn new_faults_of_devices(job: &JobUnderReview<'_>, old: Option<&JobUnderReview<'_>>) -> Vec<FieldError> {
    let settings = job.value(SPARK_CONF).and_then(Value::as_object).into_iter().flatten();
    let numbers = settings.filter(|(setting, _)| is_number_of_devices(setting));
    let fault = |(setting, text): (&String, &Value)| {
        let before = old.and_then(|old| old.value(SPARK_CONF)?.get(setting));
        let text = text.as_str().filter(|_| before != Some(text))?;
        Form::Integer.fault(&format!("{SPARK_CONF}/{setting}"), text)
    };
    numbers.filter_map(fault).collect()
}

/// The fields of an application that its rules read.
static REVIEWED: LazyLock<Vec<ReviewField>> = LazyLock::new(|| {
    let texts = FIELDS.iter().chain(&SETTINGS).map(|(pointer, _)| ReviewField::Text(pointer));
    [ReviewField::Text(MODE), ReviewField::Boolean(DYNAMIC_ALLOCATION)].into_iter().chain(texts).collect()
});

#[cfg(test)]
mod tests {
    use super::super::{JobPatch, PatchBody, PodSetInfo, TemplateInfo, pod_set_infos};
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    fn application(driver: &Value, executor: &Value) -> Value {
        json!({
            "metadata": {"name": "s", "uid": "u", "resourceVersion": "7"},
            "spec": {"suspend": true, "mode": "cluster", "driver": driver, "executor": executor},
        })
    }

    fn sets(job: &Value) -> Vec<Value> {
        ROW.pod_sets(job).unwrap()
    }

    fn apply(job: &mut Value, patches: &[JobPatch]) {
        for patch in patches {
            let PatchBody::Merge(body) = patch.body() else { panic!("{patch:?}") };
            json_patch::merge(job, body);
        }
    }

    /// An application that does not say how many executors it has is charged one, which runs.
    #[test]
    fn played_application_has_the_executors_that_it_is_charged() {
        for (setting, running) in [(Value::Null, 1), (json!({"spark.executor.instances": "3"}), 3)] {
            let mut job = application(&json!({}), &json!({}));
            job["spec"]["sparkConf"] = setting;
            ROW.hooks.play(&mut job, PlayedState::Ready, Timestamp::UNIX_EPOCH).unwrap();
            assert_eq!(read::entries(&job, EXECUTORS).unwrap().len(), running);
        }
    }

    /// The selector for all roles stands in for theirs, and a start moves it; a stop sets roles to what the Workload has, and leaves
    /// the templates for the operator.
    #[test]
    fn start_adds_to_the_roles() {
        let mut job = application(&json!({"nodeSelector": {"own": "1"}}), &json!({"instances": 2}));
        job["spec"]["nodeSelector"] = json!({"disk": "ssd"});
        let originals = pod_set_infos(&sets(&job)).unwrap();
        let mut added = TemplateInfo::default();
        added.node_selector.insert("zone".to_owned(), "z".to_owned());
        added.scheduling_gates.push("kueue.x-k8s.io/topology".to_owned());
        let grant = |info: &PodSetInfo| PodSetInfo { template: Arc::new(added.clone()), ..info.clone() };
        let grants: Vec<PodSetInfo> = originals.iter().map(grant).collect();
        let start = ROW.run_patch(&ROW.decode(&job).unwrap(), &grants).unwrap();
        apply(&mut job, &start);
        let spec = &job["spec"];
        assert_eq!((&spec["suspend"], &spec["nodeSelector"]), (&json!(false), &Value::Null));
        assert_eq!(spec["driver"]["nodeSelector"], json!({"disk": "ssd", "zone": "z"}));
        assert_eq!(spec["executor"]["nodeSelector"], json!({"disk": "ssd", "zone": "z"}));
        assert_eq!(spec["executor"]["labels"]["kueue.x-k8s.io/podset"], "executor");
        let gates = json!([{"name": "kueue.x-k8s.io/topology"}]);
        assert_eq!(
            spec["driver"]["template"]["spec"],
            json!({"schedulingGates": gates, "containers": [{"name": "spark-kubernetes-driver"}]})
        );
        let running = ROW.decode(&job).unwrap();
        assert!(ROW.run_patch(&running, &grants).unwrap().is_empty());
        apply(&mut job, &ROW.stop_patches(&running, &originals));
        let stopped = ROW.decode(&job).unwrap();
        assert!(stopped.suspended && ROW.stop_patches(&stopped, &originals).is_empty());
        assert_eq!(job["spec"]["driver"]["nodeSelector"], json!({"own": "1"}));
        let template = json!({"spec": {"containers": [{"name": "spark-kubernetes-executor"}]}});
        assert_eq!(job["spec"]["executor"]["template"], template);
    }

    #[test]
    fn executors_are_counted() {
        let mut job = application(&json!({}), &json!({"instances": 2}));
        let ready = |job: &Value| ROW.decode(job).unwrap().status.pods_ready;
        let running = json!({"state": "RUNNING"});
        job["status"] =
            json!({"applicationState": running, "executorState": {"a": "RUNNING", "b": "PENDING"}});
        assert!(!ready(&job));
        job["status"]["executorState"]["b"] = json!("COMPLETED");
        assert!(ready(&job));
        job["status"]["applicationState"]["state"] = json!("FAILING");
        assert!(!ready(&job));
        let mut one = application(&json!({}), &json!({}));
        one["status"] = json!({"applicationState": running});
        assert!(!ready(&one), "the operator starts one executor where no number is given");
        one["spec"]["sparkConf"] = json!({"spark.executor.instances": "3"});
        assert_eq!(sets(&one)[1]["count"], 3);
    }

    /// The states of spark-operator v2, each with what the operator makes of it by itself while the application is not suspended, and
    /// whether an application that is in it has ended, with success or not.
    const STATES: [(&str, &[&str], Option<bool>); 14] = [
        ("", &["SUBMITTED", "SUBMISSION_FAILED"], None),
        ("SUBMITTED", &["RUNNING", "SUCCEEDING", "FAILING", "UNKNOWN"], None),
        // Its end follows from the policy of restarts: none left is `FAILED`.
        ("SUBMISSION_FAILED", &["SUBMITTED", "FAILED"], None),
        ("RUNNING", &["SUBMITTED", "SUCCEEDING", "FAILING", "UNKNOWN"], None),
        ("UNKNOWN", &["SUBMITTED", "RUNNING", "SUCCEEDING", "FAILING"], None),
        ("SUCCEEDING", &["PENDING_RERUN", "COMPLETED"], None),
        ("FAILING", &["PENDING_RERUN", "FAILED"], None),
        ("PENDING_RERUN", &["SUBMITTED", "SUBMISSION_FAILED"], None),
        // Written when the specification has changed, in whatever state the application is.
        ("INVALIDATING", &["PENDING_RERUN"], None),
        // Written when it is suspended before it has ended.
        ("SUSPENDING", &["SUSPENDED"], None),
        ("SUSPENDED", &["RESUMING"], None),
        ("RESUMING", &["SUBMITTED", "SUBMISSION_FAILED"], None),
        ("COMPLETED", &[], Some(true)),
        ("FAILED", &[], Some(false)),
    ];

    #[test]
    fn what_the_operator_leaves_by_itself_is_no_end() {
        let mut reached = vec!["", "INVALIDATING", "SUSPENDING"];
        for (state, next, ended) in STATES {
            reached.extend(next);
            assert_eq!(next.is_empty(), ended.is_some(), "{state:?}");
            let mut job = application(&json!({}), &json!({"instances": 1}));
            job["spec"]["suspend"] = json!(false);
            let said = json!({"state": state, "errorMessage": "why"});
            job["status"] = json!({"applicationState": said, "executorState": {"a": "RUNNING"}});
            let status = ROW.decode(&job).unwrap().status;
            assert_eq!(
                status.finished.map(|end| (end.success, end.message)),
                ended.map(|success| (success, "why".to_owned())),
                "{state:?}"
            );
            // Executors count only beside a driver that runs.
            let runs = state == "RUNNING";
            assert_eq!((status.active_pods > 0, status.pods_ready), (runs, runs), "{state:?}");
        }
        // No state is left out, neither of the table nor of the row.
        let listed: BTreeSet<&str> = STATES.iter().map(|(state, ..)| *state).collect();
        assert_eq!(reached.into_iter().collect::<BTreeSet<_>>(), listed);
        let tests = ROW.status.finished.iter().map(|rule| &rule.when);
        let ends = tests.filter_map(|test| match test {
            Test::Text(STATE, states) => Some(*states),
            _ => None,
        });
        let ends: BTreeSet<&str> = ends.flatten().copied().collect();
        let ended = STATES.iter().filter(|(.., ended)| ended.is_some()).map(|(state, ..)| *state);
        assert_eq!(ends, ended.collect());
    }

    #[test]
    fn changing_numbers_of_executors_are_refused() {
        for (field, value) in [
            ("dynamicAllocation", json!({"enabled": true})),
            ("sparkConf", json!({"spark.dynamicAllocation.enabled": "true"})),
            ("sparkConf", json!({"spark.dynamicAllocation.enabled": " TRUE "})),
            ("sparkConf", json!({"spark.dynamicAllocation.enabled": "1"})),
            ("sparkConf", json!({"spark.streaming.dynamicAllocation.enabled": "True"})),
        ] {
            let mut job = application(&json!({}), &json!({"instances": 2}));
            job["spec"][field] = value;
            let error = ROW.decode(&job).unwrap_err().to_string();
            assert!(error.contains("ynamicAllocation.enabled") && error.contains("must be off"), "{error}");
        }
    }
}
