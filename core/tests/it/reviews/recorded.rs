//! Admission against recorded answers of an API server, as far as they do not depend on a server: accepted requests must be
//! allowed, and requests that a webhook denied must be denied with errors in the same fields.

use std::collections::{BTreeMap, BTreeSet};

use crate::fixtures::recorded_reviews::cases;
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use sluice_core::admission::{AdmissionSettings, ObjectLookup, OwnerRef, OwnerView, ReviewContext, review};
use sluice_core::frameworks::{Found, Framework, Related, RelatedKey, Role, frameworks};

/// The objects of the recording's `context.json`, as admission looks them up.
struct RecordedCluster {
    namespaces: BTreeMap<String, BTreeMap<String, String>>,
    queues: BTreeSet<(String, String)>,
    /// Of these, the ones whose jobs are sent to other clusters.
    multikueue: BTreeSet<(String, String)>,
    runtimes: RecordedRuntimes,
}

/// Runtimes of TrainJobs by name.
#[derive(Debug, Default)]
struct RecordedRuntimes(BTreeMap<String, Value>);

impl Related for RecordedRuntimes {
    fn find(&self, object: &RelatedKey) -> Found<'_> {
        self.0.get(&*object.key.name).map_or(Found::Missing, Found::Object)
    }
}

impl RecordedCluster {
    fn read(context: &Value) -> Self {
        let mut recorded = Self {
            namespaces: BTreeMap::new(),
            queues: BTreeSet::new(),
            multikueue: BTreeSet::new(),
            runtimes: RecordedRuntimes::default(),
        };
        let with_checks: BTreeSet<&str> = context
            .as_array()
            .unwrap()
            .iter()
            .filter(|item| item["body"]["spec"]["admissionChecksStrategy"].is_object())
            .map(|item| item["body"]["metadata"]["name"].as_str().unwrap())
            .collect();
        let mut names = vec!["default".to_owned(), "kube-system".to_owned()];
        for item in context.as_array().unwrap() {
            let (body, meta) = (&item["body"], &item["body"]["metadata"]);
            let name = meta["name"].as_str().unwrap().to_owned();
            match body["kind"].as_str().unwrap() {
                "Namespace" => names.push(name),
                "ClusterTrainingRuntime" => {
                    recorded.runtimes.0.insert(name, body.clone());
                }
                "LocalQueue" => {
                    let key = (meta["namespace"].as_str().unwrap().to_owned(), name);
                    // The only recorded check is that of MultiKueue.
                    if with_checks.contains(body["spec"]["clusterQueue"].as_str().unwrap()) {
                        recorded.multikueue.insert(key.clone());
                    }
                    recorded.queues.insert(key);
                }
                _ => {}
            }
        }
        for name in names {
            let labels = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), name.clone())]);
            recorded.namespaces.insert(name, labels);
        }
        recorded
    }
}

impl ObjectLookup for RecordedCluster {
    fn namespace_labels(&self, namespace: &str) -> Option<&BTreeMap<String, String>> {
        self.namespaces.get(namespace)
    }
    fn local_queue_exists(&self, namespace: &str, name: &str) -> bool {
        self.queues.contains(&(namespace.to_owned(), name.to_owned()))
    }
    fn default_priority_class_exists(&self) -> bool {
        false
    }
    fn queue_is_multikueue(&self, namespace: &str, name: &str) -> bool {
        self.multikueue.contains(&(namespace.to_owned(), name.to_owned()))
    }
    fn related(&self) -> &dyn Related {
        &self.runtimes
    }
    fn knows_pods(&self) -> bool {
        true
    }

    fn owner(&self, _: &str, _: &OwnerRef) -> Option<OwnerView> {
        None
    }
}

/// Applies a patch to an object: to the status alone, or to everything but the status.
fn apply_patch(object: &Value, path: &str, kind: &str, body: &Value) -> Option<Value> {
    let mut patched = object.clone();
    if kind == "application/json-patch+json" {
        let operations: json_patch::Patch = serde_json::from_value(body.clone()).ok()?;
        json_patch::patch(&mut patched, &operations).ok()?;
    } else {
        json_patch::merge(&mut patched, body);
    }
    let mut result = object.clone();
    if path.ends_with("/status") {
        result["status"] = patched["status"].clone();
    } else {
        let status = result["status"].clone();
        result = patched;
        result["status"] = status;
    }
    Some(result)
}

struct Suite {
    group: &'static str,
    kind: &'static str,
    path_suffix: String,
    has_mutating_webhook: bool,
    /// The row of a kind of job.
    row: Option<&'static Framework>,
}

impl Suite {
    /// The suite of a kind of Kueue's own.
    fn of_kueue(kind: &'static str, stem: &str, has_mutating_webhook: bool) -> Self {
        Self { group: "kueue.x-k8s.io", kind, path_suffix: stem.to_owned(), has_mutating_webhook, row: None }
    }

    /// The suite of a kind of job, with its name.
    fn of_job(row: &'static Framework) -> (String, Self) {
        let path_suffix = row.webhook_path(true).trim_start_matches("/mutate-").to_owned();
        let (group, kind) = (row.gvk.group, row.gvk.kind);
        let suite = Self { group, kind, path_suffix, has_mutating_webhook: true, row: Some(row) };
        (kind.to_lowercase(), suite)
    }

    fn send_review(
        &self,
        verb: &str,
        namespace: &str,
        (object, old): (&Value, Option<&Value>),
        ctx: &ReviewContext<'_>,
    ) -> Value {
        let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
        let request = json!({"request": {
            "uid": "u", "operation": operation, "namespace": namespace, "dryRun": true,
            "kind": {"group": self.group, "kind": self.kind}, "object": object, "oldObject": old,
        }});
        let answer = review(&format!("/{verb}-{}", self.path_suffix), &request, ctx);
        assert_eq!(answer["response"]["uid"], "u");
        answer["response"].clone()
    }

    /// The object as stored after mutation by the webhook.
    fn after_mutation(&self, namespace: &str, object: &Value, ctx: &ReviewContext<'_>) -> Value {
        let mut object = object.clone();
        if self.has_mutating_webhook {
            let answer = self.send_review("mutate", namespace, (&object, None), ctx);
            if let Some(text) = answer["patch"].as_str() {
                let patch: json_patch::Patch =
                    serde_json::from_slice(&BASE64_STANDARD.decode(text).unwrap()).unwrap();
                json_patch::patch(&mut object, &patch).unwrap();
            }
            let second_answer = self.send_review("mutate", namespace, (&object, None), ctx);
            assert!(second_answer.get("patch").is_none(), "not idempotent: {second_answer}");
        }
        object
    }
}

/// Path and kind of each error in a message.
fn error_fields(message: &str) -> BTreeSet<(String, String)> {
    let kinds = "Invalid value|Required value|Forbidden|Duplicate value|Not found|Unsupported value|Too long|Too many";
    let path = r"((?:spec|status|metadata|job)[^\s,:\[\]]*(?:\[[^\]]*\][^\s,:\[\]]*)*)";
    let pattern = regex::Regex::new(&format!("{path}: ({kinds})")).unwrap();
    pattern.captures_iter(message).map(|capture| (capture[1].to_owned(), capture[2].to_owned())).collect()
}

fn recorded_fields(expect: &Value) -> Option<BTreeSet<(String, String)>> {
    let all = expect["fields"].as_array()?;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    Some(all.iter().map(|field| (text(&field[0]), text(&field[1]))).collect())
}

/// Old and new object of a case, or `None` where they depend on a server.
fn old_and_new_object(
    suite: &Suite,
    namespace: &str,
    case: &Value,
    ctx: &ReviewContext<'_>,
) -> Option<(Option<Value>, Value)> {
    let mut stored: Option<Value> = None;
    for step in case["steps"].as_array().unwrap() {
        stored = Some(match step["do"].as_str().unwrap() {
            "create" => suite.after_mutation(namespace, &step["body"], ctx),
            _ => apply_patch(&stored?, step["path"].as_str()?, step["type"].as_str()?, &step["body"])?,
        });
    }
    let request = &case["request"];
    let path = request["path"].as_str()?;
    match request["method"].as_str()? {
        "POST" => Some((None, suite.after_mutation(namespace, &request["body"], ctx))),
        "PATCH" => {
            let old = stored?;
            let new = apply_patch(&old, path, request["type"].as_str()?, &request["body"])?;
            Some((Some(old), new))
        }
        _ => None,
    }
}

fn namespace_of(path: &str) -> &str {
    path.split_once("/namespaces/").map_or("", |(_, rest)| rest.split('/').next().unwrap_or_default())
}

/// Name of each case of a suite that is answered differently on purpose.
fn deviations(suite: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(sluice_recorded::deviations("api", suite)).unwrap_or_default();
    text.lines().map(|line| line.split('\t').nth(1).unwrap().to_owned()).collect()
}

#[test]
fn reviews_match_recorded_api_answers() {
    let context = sluice_recorded::find("api/context.json").expect("the objects of the recording");
    let context: Value = serde_json::from_str(&std::fs::read_to_string(context).unwrap()).unwrap();
    let recorded = RecordedCluster::read(&context);
    let settings = AdmissionSettings::default();
    let ctx = ReviewContext { objects: &recorded, settings: &settings };
    let mut suites = vec![
        ("workload".to_owned(), Suite::of_kueue("Workload", "kueue-x-k8s-io-v1beta2-workload", true)),
        (
            "clusterqueue".to_owned(),
            Suite::of_kueue("ClusterQueue", "kueue-x-k8s-io-v1beta2-clusterqueue", true),
        ),
        ("cohort".to_owned(), Suite::of_kueue("Cohort", "kueue-x-k8s-io-v1beta2-cohort", false)),
        (
            "resourceflavor".to_owned(),
            Suite::of_kueue("ResourceFlavor", "kueue-x-k8s-io-v1beta2-resourceflavor", true),
        ),
    ];
    suites.extend(
        frameworks().filter(|row| matches!(row.role, Role::Suspended | Role::PodsOfOwner)).map(Suite::of_job),
    );
    let (mut checked, mut wrong) = (0, Vec::new());
    for (name, suite) in &suites {
        let known_deviations = deviations(name);
        for case in cases(name) {
            if known_deviations.contains(case["name"].as_str().unwrap()) {
                continue;
            }
            let expect = &case["expect"];
            let message = expect["message"].as_str().unwrap_or_default();
            let by_webhook = message.starts_with("admission webhook");
            let namespace = namespace_of(case["request"]["path"].as_str().unwrap());
            // The API server itself answered, or does not call webhooks for jobs of this namespace.
            if expect["verdict"] != "accepted" && !by_webhook
                || (suite.row.is_some() && namespace == "kube-system")
            {
                continue;
            }
            let Some((old, new)) = old_and_new_object(suite, namespace, &case, &ctx) else {
                continue;
            };
            checked += 1;
            let answer = suite.send_review("validate", namespace, (&new, old.as_ref()), &ctx);
            let our_message = answer["status"]["message"].as_str().unwrap_or_default();
            let agrees = if by_webhook {
                answer["allowed"] == false
                    && recorded_fields(expect).is_none_or(|fields| fields == error_fields(our_message))
            } else {
                answer["allowed"] == true && is_defaulted_as_recorded(suite, &new, old.is_none(), expect)
            };
            if !agrees {
                wrong.push(format!("{}: {our_message:?} instead of {message:?}, {new}", case["name"]));
            }
        }
    }
    println!("{checked} recorded answers checked");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Whether a new object was defaulted as recorded, as far as that is visible.
fn is_defaulted_as_recorded(suite: &Suite, new: &Value, created: bool, expect: &Value) -> bool {
    let expected = &expect["object"];
    if !created || !suite.has_mutating_webhook {
        return true;
    }
    // The recording normalises whatever looks like a quantity, so only Kueue's own labels and annotations are compared.
    let own = |value: &Value| -> BTreeMap<String, Value> {
        let all = value.as_object().cloned().unwrap_or_default();
        all.into_iter().filter(|(key, _)| key.starts_with("kueue.x-k8s.io/")).collect()
    };
    let metadata_of =
        |object: &Value| [&object["metadata"]["labels"], &object["metadata"]["annotations"]].map(own);
    let same_metadata = metadata_of(new) == metadata_of(expected)
        && new["metadata"]["finalizers"] == expected["metadata"]["finalizers"];
    let Some(row) = suite.row else { return same_metadata };
    let field = |object: &Value, pointer: &str| object.pointer(pointer).cloned().unwrap_or_default();
    let suspended = |object: &Value| row.fields.suspend.map(|pointer| field(object, pointer) == true);
    // The schema sets the name of the kind's own controller.
    let managed_by = |object: &Value| {
        let rule = row.fields.managed_by?;
        Some(field(object, rule.field)).filter(|name| !name.is_null() && name != rule.built_in)
    };
    let templates = |object: &Value| -> Vec<_> {
        let pointers = row.template_pointers(new).into_iter();
        let templates = pointers.map(|pointer| field(object, &pointer));
        templates
            .map(|template| (metadata_of(&template), template["spec"]["schedulingGates"].clone()))
            .collect()
    };
    same_metadata
        && suspended(new) == suspended(expected)
        && managed_by(new) == managed_by(expected)
        && templates(new) == templates(expected)
}
