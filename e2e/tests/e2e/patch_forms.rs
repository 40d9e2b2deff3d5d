//! One edit in each form in which a client can send it: replaced as a whole, merged, by a JSON patch, and applied. The webhooks
//! answer all alike; a form that they took for another one would be a way past them.

use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Map, Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, text};

const QUEUE: &str = "/metadata/labels/kueue.x-k8s.io~1queue-name";

/// An edit: of a Job's Workload or of the Job, a field, its value (null removes it), and whether it is allowed while the Job waits and
/// while it runs.
type Edit = (Kind, &'static str, Value, [bool; 2]);

fn edits() -> Vec<Edit> {
    vec![
        (Kind::JOB, QUEUE, json!("other"), [true, false]),
        (Kind::JOB, QUEUE, Value::Null, [true, false]),
        (Kind::JOB, QUEUE, json!(""), [false, false]),
        (Kind::JOB, "/metadata/labels/kueue.x-k8s.io~1prebuilt-workload-name", json!("w"), [true, false]),
        (Kind::JOB, "/spec/parallelism", json!(2), [true, true]),
        (Kind::JOB, "/metadata/labels/example.com~1team", json!("a"), [true, true]),
        (Kind::WORKLOAD, "/spec/queueName", json!("other"), [true, false]),
        (Kind::WORKLOAD, "/spec/podSets/0/count", json!(2), [true, false]),
        (Kind::WORKLOAD, "/spec/active", json!(false), [true, true]),
        (Kind::WORKLOAD, "/spec/podSets/0/template/spec/containers/0/image", json!("work:2"), [true, false]),
    ]
}

/// Each edit of a waiting and of a running Job and of their Workloads has one outcome in all forms, which the table names; nothing is
/// stored. A queue name is not removed and set again in two steps either.
pub(crate) async fn forms_of_an_edit_are_answered_alike(_: &Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    fixture.create_queue("other", "", &[("cpu", "1", None)], json!({})).await?;
    for name in ["runs", "waits"] {
        fixture.submit(fixture.job(name, "main", "1")).await?;
        if name == "runs" {
            fixture.wait_until_running(name).await?;
        }
    }
    fixture.wait_until_pending("waits", "").await?;
    let mut wrong = Vec::new();
    for (kind, pointer, value, allowed) in edits() {
        for (name, allowed) in ["waits", "runs"].into_iter().zip(allowed) {
            let object = if kind == Kind::JOB {
                fixture.objects.must_get(kind, &fixture.name, name).await?
            } else {
                fixture.workload(name).await?
            };
            let outcomes = answers(fixture, kind, &object, pointer, &value).await?;
            let (_, first) = outcomes.first().context("no form")?;
            let alike = outcomes.iter().all(|(_, outcome)| outcome == first);
            if !alike || first.is_none() != allowed {
                wrong.push(format!("{} {name}, {pointer} = {value}: {outcomes:?}", kind.singular()));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    for name in ["runs", "waits"] {
        fixture.check_unchanged(name).await?;
    }
    fixture.finish_job("runs").await?;
    fixture.wait_until_running("waits").await?;
    fixture.finish_job("waits").await
}

impl Fixture {
    async fn check_unchanged(&self, name: &str) -> Result<()> {
        let job = self.objects.must_get(Kind::JOB, &self.name, name).await?;
        let queue = job.pointer(QUEUE).and_then(Value::as_str);
        ensure!(queue == Some("main"), "a dry run changed the queue of {name}: {queue:?}");
        Ok(())
    }
}

/// Returns how each form of an edit is refused, if it is, without storing any.
async fn answers(
    fixture: &Fixture,
    kind: Kind,
    object: &Value,
    pointer: &str,
    value: &Value,
) -> Result<Vec<(&'static str, Option<String>)>> {
    let api: &Api<DynamicObject> = &fixture.objects.api(kind, &fixture.name);
    let name = text(object, "/metadata/name");
    let (edited, existed) = edited(object, pointer, value)?;
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let replaced: DynamicObject = serde_json::from_value(edited.clone())?;
    let operation = match (value.is_null(), existed) {
        (true, _) => json!([{"op": "remove", "path": pointer}]),
        (false, true) => json!([{"op": "replace", "path": pointer, "value": value}]),
        (false, false) => json!([{"op": "add", "path": pointer, "value": value}]),
    };
    let put = PostParams { dry_run: true, ..PostParams::default() };
    let json_patch: Patch<Value> = Patch::Json(serde_json::from_value(operation)?);
    let (merge, apply) = (Patch::Merge(merge_patch(&edited, pointer, value)), Patch::Apply(applied(&edited)));
    let applying = PatchParams { dry_run: true, ..PatchParams::apply("e2e-form").force() };
    let mut forms: Vec<(&str, LocalBoxFuture<'_, kube::Result<DynamicObject>>)> = vec![
        ("replaced", api.replace(name, &put, &replaced).boxed_local()),
        ("merged", api.patch(name, &dry, &merge).boxed_local()),
        ("patched", api.patch(name, &dry, &json_patch).boxed_local()),
    ];
    // Another manager cannot remove by applying what it does not own.
    if !value.is_null() {
        forms.push(("applied", api.patch(name, &applying, &apply).boxed_local()));
    }
    let mut outcomes = Vec::new();
    for (form, sent) in forms {
        outcomes.push((form, sent.await.err().map(|error| error.to_string())));
    }
    Ok(outcomes)
}

/// Returns the object with the value at the pointer, and whether the field existed. Null removes the field.
fn edited(object: &Value, pointer: &str, value: &Value) -> Result<(Value, bool)> {
    let mut edited = object.clone();
    let (parent, field) = pointer.rsplit_once('/').context("no field")?;
    let field = field.replace("~1", "/");
    let parent = edited.pointer_mut(parent).and_then(Value::as_object_mut);
    let parent: &mut Map<String, Value> = parent.with_context(|| format!("{pointer}: no object"))?;
    let existed = if value.is_null() {
        parent.remove(&field).is_some()
    } else {
        parent.insert(field, value.clone()).is_some()
    };
    Ok((edited, existed))
}

/// Returns the merge patch of an edit: a list is sent as a whole.
fn merge_patch(edited: &Value, pointer: &str, value: &Value) -> Value {
    let fields: Vec<String> = pointer.split('/').skip(1).map(|field| field.replace("~1", "/")).collect();
    let is_index = |field: &String| field.parse::<usize>().is_ok();
    let path = fields.split(is_index).next().unwrap_or_default();
    let leaf = if path.len() == fields.len() {
        value.clone()
    } else {
        path.iter().fold(edited, |object, field| &object[field]).clone()
    };
    path.iter().rev().fold(leaf, |inner, field| json!({field: inner}))
}

/// Returns what a client applies: no status, and of the metadata only names, labels and annotations.
fn applied(edited: &Value) -> Value {
    let metadata = ["name", "namespace", "labels", "annotations"];
    let metadata: Map<String, Value> = metadata
        .iter()
        .filter_map(|field| Some(((*field).to_owned(), edited["metadata"].get(field)?.clone())))
        .collect();
    json!({"apiVersion": edited["apiVersion"], "kind": edited["kind"], "metadata": metadata, "spec": edited["spec"]})
}
