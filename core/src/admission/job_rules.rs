//! Validation of new and changed jobs of every kind.

use super::AdmissionSettings;
use super::topology::{self, PREFERRED, REQUIRED};
use crate::api::names::{
    ADMISSION_GATED_BY_ANNOTATION, ELASTIC_JOB_ANNOTATION, MAX_EXEC_TIME_LABEL, PREBUILT_WORKLOAD,
    PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL,
};
use crate::api::validation::syntax::{invalid_each, parse_int, subdomain};
use crate::api::validation::{Errors, FieldError, Gate, gated_by, key_path};
use crate::frameworks::{
    Beside, Elastic, JobUnderReview, Related, Role, TopologyChecks, WebhookHandler, map_text, path_of,
};
use serde_json::{Map, Value};

const LABEL_VALUE_MAX: usize = 63;

fn label(key: &str) -> String {
    key_path("metadata.labels", key)
}

fn annotation(key: &str) -> String {
    key_path("metadata.annotations", key)
}

/// Checks the rules for every new job, or for a changed one: those for its names and limits only where the row says so.
pub(super) fn validate_create(
    job: &JobUnderReview<'_>,
    old: Option<&JobUnderReview<'_>>,
    settings: &AdmissionSettings,
    errors: &mut Errors,
) {
    if old.is_none() || job.row.flags.create_rules_on_update {
        validate_names_and_limits(job, settings, errors);
    } else if job.suspended && !marks_templates(job) {
        validate_prebuilt(job, settings, errors);
    }
    if settings.gates.is_enabled(Gate::AdmissionGatedBy) {
        gated_by::check(job.annotation(ADMISSION_GATED_BY_ANNOTATION), errors);
    }
    job.row.hooks.validate(job, errors);
    if job.queue.is_some_and(|queue| !queue.is_empty()) {
        errors.extend(job.contradicting_counts(old));
    }
    // A pod, and an object that another one creates for a part of its pods, has the annotations of the whole pod set.
    let is_whole = job.row.role != Role::Pods && (job.queue.is_some() || !job.has_controller());
    for (index, pod_set) in job.pod_sets.iter().enumerate() {
        let pods = Some(pod_set.pods).filter(|_| is_whole && is_resized(job, old, index));
        validate_topology(job, (pod_set.annotations, &pod_set.annotations_path), pods, settings, errors);
    }
    if let (Role::PassThrough, Some(_)) = (job.row.role, job.queue) {
        validate_marked_templates(job, settings, errors);
    }
    let groups = job.row.flags.topology_checks == TopologyChecks::TemplatesAndGroups;
    if groups && settings.gates.is_enabled(Gate::TopologyAwareScheduling) {
        errors.extend(topology::check_groups(&job.pod_sets));
    }
}

/// Checks the topology annotations of the templates of an object without pod sets: else each of its pods would be refused, and only
/// events of the object between say so.
fn validate_marked_templates(job: &JobUnderReview<'_>, settings: &AdmissionSettings, errors: &mut Errors) {
    let WebhookHandler::MarkTemplates(marks) = job.row.webhooks.handler else { return };
    for template in marks.templates {
        let metadata = job.value(template).and_then(|template| template.get("metadata"));
        let annotations = metadata.and_then(|metadata| metadata.get("annotations")?.as_object());
        let path = format!("{}.metadata.annotations", path_of(template));
        validate_topology(job, (annotations, &path), None, settings, errors);
    }
}

/// Checks the topology annotations of pod templates that are made from other objects.
pub(super) fn validate_made_pod_sets(
    job: &JobUnderReview<'_>,
    related: &dyn Related,
    settings: &AdmissionSettings,
    errors: &mut Errors,
) {
    let elastic_jobs = settings.gates.is_enabled(Gate::ElasticJobsViaWorkloadSlices);
    for set in job.made_pod_sets(Beside { related, elastic_jobs }) {
        let annotations = set.annotations.as_object();
        validate_topology(job, (annotations, &set.annotations_path), Some(set.pods), settings, errors);
    }
}

/// Returns whether the object is no job itself: its webhook marks pod templates, and its pods wait. Such an object runs no Workload
/// that it names and has no limit of time.
const fn marks_templates(job: &JobUnderReview<'_>) -> bool {
    matches!(job.row.webhooks.handler, WebhookHandler::MarkTemplates(_))
}

fn validate_names_and_limits(job: &JobUnderReview<'_>, settings: &AdmissionSettings, errors: &mut Errors) {
    if let Some(queue) = job.queue {
        errors.extend(invalid_each(&label(QUEUE_NAME_LABEL), queue, subdomain(queue)));
    }
    if job.asks_for_elasticity(&settings.gates) && job.row.flags.elastic == Elastic::No {
        let gvk = job.row.gvk;
        let detail = format!("elastic job is not supported for \"{}, Kind={}\"", gvk.api_version(), gvk.kind);
        errors.push(FieldError::forbidden(annotation(ELASTIC_JOB_ANNOTATION), detail));
    }
    if marks_templates(job) {
        return;
    }
    validate_prebuilt(job, settings, errors);
    if let Some(seconds) = job.label(MAX_EXEC_TIME_LABEL) {
        match parse_int(seconds) {
            Err(fault) => errors.push(FieldError::invalid(label(MAX_EXEC_TIME_LABEL), seconds, fault)),
            Ok(number) if number <= 0 => {
                errors.push(FieldError::invalid(
                    label(MAX_EXEC_TIME_LABEL),
                    number,
                    "should be greater than 0",
                ));
            }
            Ok(number) if i32::try_from(number).is_err() => {
                let detail = format!("should be at most {}", i32::MAX);
                errors.push(FieldError::invalid(label(MAX_EXEC_TIME_LABEL), number, detail));
            }
            Ok(_) => {}
        }
    }
}

/// Returns whether a user sets the slices of a pod set or its number of pods. A start with fewer pods and the stop after it
/// change the number too; they must not be refused, or the job could neither start nor stop.
fn is_resized(job: &JobUnderReview<'_>, old: Option<&JobUnderReview<'_>>, index: usize) -> bool {
    let Some(old) = old else { return true };
    let pods = |job: &JobUnderReview<'_>| job.pod_sets.get(index).map(|set| set.pods);
    let slices = |job: &JobUnderReview<'_>| {
        let set = job.pod_sets.get(index);
        topology::SLICES.map(|key| map_text(set.and_then(|set| set.annotations), key).map(str::to_owned))
    };
    slices(job) != slices(old) || (job.suspended == old.suspended && pods(job) != pods(old))
}

/// Returns the name of the prebuilt Workload and the path of the annotation or label that names it. The annotation has
/// precedence.
fn prebuilt_name<'a>(job: &JobUnderReview<'a>, settings: &AdmissionSettings) -> (String, Option<&'a str>) {
    let from_annotation = job
        .annotation(PREBUILT_WORKLOAD)
        .filter(|_| settings.gates.is_enabled(Gate::WorkloadIdentifierAnnotations));
    match (from_annotation, job.label(PREBUILT_WORKLOAD)) {
        (Some(name), _) => (annotation(PREBUILT_WORKLOAD), Some(name)),
        (None, Some(name)) if name.len() > LABEL_VALUE_MAX => (annotation(PREBUILT_WORKLOAD), Some(name)),
        (None, name) => (label(PREBUILT_WORKLOAD), name),
    }
}

fn validate_prebuilt(job: &JobUnderReview<'_>, settings: &AdmissionSettings, errors: &mut Errors) {
    let (path, name) = prebuilt_name(job, settings);
    if name.is_some() && !job.row.flags.prebuilt {
        let gvk = job.row.gvk;
        let detail = format!("Is not supported for \"{}, Kind={}\"", gvk.api_version(), gvk.kind);
        errors.push(FieldError::forbidden(path, detail));
        return;
    }
    if let Some(name) = name {
        errors.extend(invalid_each(&path, name, subdomain(name)));
    }
}

fn validate_topology(
    job: &JobUnderReview<'_>,
    (annotations, path): (Option<&Map<String, Value>>, &str),
    pods: Option<i64>,
    settings: &AdmissionSettings,
    errors: &mut Errors,
) {
    let checks = job.row.flags.topology_checks;
    if checks != TopologyChecks::None && settings.gates.is_enabled(Gate::TopologyAwareScheduling) {
        let topology_errors = topology::check(annotations, path, pods, (checks, &settings.gates));
        if !topology_errors.is_empty() {
            // Invalid annotations are not checked any further.
            errors.extend(topology_errors);
            return;
        }
    }
    if checks == TopologyChecks::TemplateThenSlices && job.elastic(&settings.gates) {
        for (key, word) in [(REQUIRED, "required"), (PREFERRED, "preferred")] {
            if map_text(annotations, key).is_some() {
                let detail = format!("{word} topology is not supported with elastic jobs");
                errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
            }
        }
    }
}

/// Checks the rules for a changed job. `default_queue`: whether the namespace has a default LocalQueue.
pub(super) fn validate_update(
    job: &JobUnderReview<'_>,
    old: &JobUnderReview<'_>,
    default_queue: bool,
    settings: &AdmissionSettings,
    errors: &mut Errors,
) {
    if marks_templates(job) {
        validate_change_of_marked(job, old, errors);
    } else {
        validate_change_of_job(job, old, default_queue, settings, errors);
    }
    if settings.gates.is_enabled(Gate::AdmissionGatedBy) {
        let gates =
            |job: &JobUnderReview<'_>| job.annotation(ADMISSION_GATED_BY_ANNOTATION).map(str::to_owned);
        gated_by::check_update(gates(job).as_deref(), gates(old).as_deref(), errors);
    }
}

/// Checks a change of an object whose pods wait one by one: its queue is fixed while a pod was ready, and is never removed.
fn validate_change_of_marked(job: &JobUnderReview<'_>, old: &JobUnderReview<'_>, errors: &mut Errors) {
    let (queue, before) = (job.queue.unwrap_or_default(), old.queue.unwrap_or_default());
    if (!old.suspended || queue.is_empty()) && queue != before {
        errors.push(FieldError::immutable(label(QUEUE_NAME_LABEL), queue));
    }
    validate_priority_class(job, old, old.suspended, errors);
}

fn validate_change_of_job(
    job: &JobUnderReview<'_>,
    old: &JobUnderReview<'_>,
    default_queue: bool,
    settings: &AdmissionSettings,
    errors: &mut Errors,
) {
    let queue = |job: &JobUnderReview<'_>| job.queue.unwrap_or_default().to_owned();
    if !job.suspended && queue(job) != queue(old) {
        errors.push(FieldError::immutable(label(QUEUE_NAME_LABEL), queue(job)));
    }
    if default_queue && queue(job).is_empty() && !queue(old).is_empty() {
        let detail = "may not be removed where a default LocalQueue exists";
        errors.push(FieldError::invalid(label(QUEUE_NAME_LABEL), "", detail));
    }
    // A suspended job may change its prebuilt Workload; the rules for new jobs were already checked.
    let ((path, name), (_, old_name)) = (prebuilt_name(job, settings), prebuilt_name(old, settings));
    if !job.suspended
        && !old.elastic(&settings.gates)
        && name.unwrap_or_default() != old_name.unwrap_or_default()
    {
        errors.push(FieldError::immutable(path, name.unwrap_or_default()));
    }
    let seconds = |job: &JobUnderReview<'_>| job.label(MAX_EXEC_TIME_LABEL).unwrap_or_default().to_owned();
    if !(job.suspended && old.suspended) && seconds(job) != seconds(old) {
        errors.push(FieldError::immutable(label(MAX_EXEC_TIME_LABEL), seconds(job)));
    }
    validate_priority_class(job, old, job.suspended, errors);
    let elastic = job.asks_for_elasticity(&settings.gates);
    if elastic != old.asks_for_elasticity(&settings.gates) {
        errors.push(FieldError::immutable(annotation(ELASTIC_JOB_ANNOTATION), elastic));
    }
}

/// Checks the priority class: it may be changed at any time, added only while suspended, and never removed.
fn validate_priority_class(
    job: &JobUnderReview<'_>,
    old: &JobUnderReview<'_>,
    suspended: bool,
    errors: &mut Errors,
) {
    let (class, old_class) = (job.priority_class.unwrap_or_default(), old.priority_class.unwrap_or_default());
    let path = label(PRIORITY_CLASS_LABEL);
    if !suspended && old_class.is_empty() && !class.is_empty() {
        let detail = "WorkloadPriorityClass cannot be added to a non-suspended workload";
        errors.push(FieldError::invalid(path, class, detail));
    } else if class.is_empty() && !old_class.is_empty() {
        errors.push(FieldError::invalid(path, "", "WorkloadPriorityClass cannot be removed"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::topology::GROUP_NAME;
    use super::*;
    use crate::frameworks::several_sources::{SEVERAL, job};
    use crate::frameworks::{Flags, Framework};
    use serde_json::json;

    /// Neither allows prebuilt Workloads nor checks topology annotations.
    static LIMITED: Framework = Framework {
        flags: Flags { prebuilt: false, topology_checks: TopologyChecks::None, ..SEVERAL.flags },
        ..SEVERAL
    };

    /// Checks groups of pod sets.
    static GROUPED: Framework = Framework {
        flags: Flags { topology_checks: TopologyChecks::TemplatesAndGroups, ..SEVERAL.flags },
        ..SEVERAL
    };

    /// Returns the paths and texts of what a row finds in a job.
    fn faults(row: &'static Framework, object: &Value) -> Vec<String> {
        let mut errors = Errors::new();
        let read = JobUnderReview::read(row, object, &mut errors);
        validate_create(&read, None, &AdmissionSettings::default(), &mut errors);
        errors.take().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn groups_of_pod_sets_are_checked_where_the_row_says_so() {
        let grouped = |pods: i32, level: &str| {
            let mut object = job();
            let place = |level: &str| json!({REQUIRED: level, GROUP_NAME: "g"});
            object["spec"]["head"]["template"]["metadata"]["annotations"] = place("rack");
            object["spec"]["groups"][0]["template"]["metadata"]["annotations"] = place(level);
            object["spec"]["heads"] = json!(pods);
            object
        };
        assert_eq!(faults(&GROUPED, &grouped(1, "rack")), Vec::<String>::new());
        let differs = grouped(1, "block");
        let found = faults(&GROUPED, &differs);
        assert!(found.len() == 2 && found.iter().all(|text| text.contains("the same topology")), "{found:?}");
        assert!(found[1].starts_with("spec.groups[0].template.metadata.annotations["), "{found:?}");
        assert_eq!(faults(&SEVERAL, &differs), Vec::<String>::new());
        let found = faults(&GROUPED, &grouped(2, "rack"));
        assert!(found.len() == 2 && found[0].contains("exactly one pod"), "{found:?}");
        let mut alone = grouped(1, "rack");
        alone["spec"]["groups"].as_array_mut().unwrap().remove(0);
        let found = faults(&GROUPED, &alone);
        assert!(found.len() == 1 && found[0].contains("exactly 2 pod sets"), "{found:?}");
        // Without a level the group is refused as such.
        let group = &mut alone["spec"]["head"]["template"]["metadata"]["annotations"];
        *group = json!({GROUP_NAME: "g"});
        let found = faults(&GROUPED, &alone);
        assert!(found.len() == 1 && found[0].contains("Forbidden"), "{found:?}");
    }

    #[test]
    fn flags_of_the_row_decide() {
        let mut object = job();
        object["metadata"]["annotations"] = json!({PREBUILT_WORKLOAD: "w"});
        object["spec"]["head"]["template"]["metadata"]["annotations"][REQUIRED] = json!("Not a label");
        let faults = |row| faults(row, &object);
        let [topology] = &faults(&SEVERAL)[..] else { panic!("{:?}", faults(&SEVERAL)) };
        assert!(topology.contains("spec.head.template.metadata.annotations"), "{topology}");
        let [prebuilt] = &faults(&LIMITED)[..] else { panic!("{:?}", faults(&LIMITED)) };
        assert!(prebuilt.contains("prebuilt-workload-name") && prebuilt.contains("Forbidden"), "{prebuilt}");
        assert_eq!(LIMITED.decode(&object).unwrap().options.prebuilt_workload, None);
    }

    /// Neither repeats the rules for names and limits for changes, nor can be resized.
    static FIRST_TIME: Framework = Framework {
        flags: Flags {
            create_rules_on_update: false,
            elastic: Elastic::No,
            topology_checks: TopologyChecks::Templates,
            ..SEVERAL.flags
        },
        ..SEVERAL
    };

    /// Returns the paths of what a row finds in a change of a suspended or running job that sets fields.
    fn changed_faults(row: &'static Framework, suspended: bool, set: &[(&str, &str, Value)]) -> Vec<String> {
        let mut old = job();
        old["metadata"]["labels"] = json!({});
        old["metadata"]["annotations"] = json!({});
        old["spec"]["suspend"] = json!(suspended);
        let mut new = old.clone();
        for (parent, key, value) in set {
            new.pointer_mut(parent).unwrap()[*key] = value.clone();
        }
        let (mut errors, settings) = (Errors::new(), AdmissionSettings::default());
        let [old, new] = [&old, &new].map(|object| JobUnderReview::read(row, object, &mut Errors::new()));
        validate_create(&new, Some(&old), &settings, &mut errors);
        validate_update(&new, &old, false, &settings, &mut errors);
        errors
            .take()
            .iter()
            .map(|error| error.to_string().split(": ").take(2).collect::<Vec<_>>().join(" "))
            .collect()
    }

    #[test]
    fn kinds_that_cannot_be_resized_refuse_the_annotation() {
        let elastic = [("/metadata/annotations", ELASTIC_JOB_ANNOTATION, json!("true"))];
        let path = "metadata.annotations[kueue.x-k8s.io/elastic-job]";
        let fault = |kind: &str| format!("{path} {kind}");
        let mut object = job();
        object["metadata"]["annotations"] = json!({ELASTIC_JOB_ANNOTATION: "true"});
        let [created] = &faults(&FIRST_TIME, &object)[..] else {
            panic!("{:?}", faults(&FIRST_TIME, &object))
        };
        assert!(created.starts_with(&format!("{path}: Forbidden")), "{created}");
        assert_eq!(faults(&SEVERAL, &object), Vec::<String>::new());
        assert_eq!(changed_faults(&FIRST_TIME, true, &elastic), [fault("Invalid value")]);
        assert_eq!(changed_faults(&SEVERAL, true, &elastic), [fault("Invalid value")]);
    }

    #[test]
    fn some_kinds_check_names_and_limits_once() {
        let names = |value: &str| {
            let labels = [MAX_EXEC_TIME_LABEL, PREBUILT_WORKLOAD, QUEUE_NAME_LABEL];
            labels.map(|label| ("/metadata/labels", label, json!(value)))
        };
        let prebuilt = format!("metadata.labels[{PREBUILT_WORKLOAD}] Invalid value");
        assert_eq!(changed_faults(&FIRST_TIME, true, &names("Bad_")), [prebuilt]);
        assert_eq!(changed_faults(&SEVERAL, true, &names("Bad_")).len(), 3);
        // Gates and topologies are checked each time.
        let head = "/spec/head/template/metadata/annotations";
        let others = [
            ("/metadata/annotations", ADMISSION_GATED_BY_ANNOTATION, json!("bad")),
            (head, REQUIRED, json!("Not a label")),
        ];
        assert_eq!(changed_faults(&FIRST_TIME, true, &others).len(), 3);
    }

    /// Stops at the first fault of its annotations.
    static ONCE: Framework = Framework {
        flags: Flags { topology_checks: TopologyChecks::TemplateThenSlices, ..SEVERAL.flags },
        ..SEVERAL
    };

    #[test]
    fn slices_are_compared_with_the_pods_when_a_user_sets_either() {
        let (size, level) = (topology::SLICES[1], topology::SLICES[0]);
        let group = "/spec/groups/1/template/metadata/annotations";
        let sliced = [(group, REQUIRED, json!("b")), (group, level, json!("r")), (group, size, json!("13"))];
        let fault = format!("spec.groups[1].template.metadata.annotations[{size}] Invalid value");
        for suspended in [true, false] {
            assert_eq!(changed_faults(&FIRST_TIME, suspended, &sliced), std::slice::from_ref(&fault));
        }
        // Beside other faults of the annotations too, except for kinds that stop at those.
        let lone = [(group, size, json!("13"))];
        let forbidden = format!("spec.groups[1].template.metadata.annotations[{size}] Forbidden");
        assert_eq!(changed_faults(&FIRST_TIME, true, &lone), [forbidden.clone(), fault]);
        assert_eq!(changed_faults(&ONCE, true, &lone), [forbidden]);
    }
}
