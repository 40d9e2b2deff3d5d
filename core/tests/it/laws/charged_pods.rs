//! What pods request, transformed as configured, is never more than what their Workload was charged.
//!
//! The model of what the API server makes of a pod is compared with a table recorded from one
//! (`core/tests/pods-made-by-api-server.json`, written and checked by the end-to-end case `charged_pods`).

use crate::fixtures::leading_core::{Core, JOB, condition, job, reserving_workload, workload, writes};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use sluice_core::cache::Kind;
use sluice_core::reconciler::{CoreSettings, Delta};
use sluice_core::resources::Quantity;
use sluice_core::resources::transform::{Strategy as Charging, Transform, Transformation};
use std::collections::BTreeMap;
use std::sync::Arc;

type Amounts = BTreeMap<String, i64>;

fn milli(quantity: &Value) -> i64 {
    Quantity::parse(quantity.as_str().unwrap()).unwrap().milli()
}

fn amounts(map: &Value) -> Amounts {
    map.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), milli(value))).collect()
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        *sum.entry(name.clone()).or_default() += amount;
    }
}

fn fill(map: &mut Value, defaults: &Value) {
    let Some(defaults) = defaults.as_object().filter(|defaults| !defaults.is_empty()) else { return };
    if !map.is_object() {
        *map = Value::Object(Map::new());
    }
    for (name, value) in defaults {
        map.as_object_mut().unwrap().entry(name.clone()).or_insert_with(|| value.clone());
    }
}

fn containers<'a>(spec: &'a Value, list: &str) -> Vec<&'a Value> {
    spec[list].as_array().into_iter().flatten().collect()
}

/// What the containers request together: at each moment of the pod's start, and while it runs.
fn peak(spec: &Value) -> Amounts {
    let requests = |container: &Value| amounts(&container["resources"]["requests"]);
    let (mut sidecars, mut moments) = (Amounts::new(), Vec::new());
    for container in containers(spec, "initContainers") {
        let mut moment = sidecars.clone();
        add(&mut moment, &requests(container));
        if container["restartPolicy"] == "Always" {
            sidecars.clone_from(&moment);
        }
        moments.push(moment);
    }
    let mut running = sidecars;
    for container in containers(spec, "containers") {
        add(&mut running, &requests(container));
    }
    moments.push(running);
    let mut peak = Amounts::new();
    for (name, amount) in moments.into_iter().flatten() {
        let most = peak.entry(name).or_default();
        *most = amount.max(*most);
    }
    peak
}

/// The pod that the API server makes, with LimitRanges applied in this order.
fn made(mut spec: Value, ranges: &[Value], overhead: &Value) -> Value {
    for list in ["initContainers", "containers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            let limits = container["resources"]["limits"].clone();
            fill(&mut container["resources"]["requests"], &limits);
        }
    }
    if spec["resources"]["limits"].is_object() {
        let sums = peak(&spec).into_iter().filter(|(name, _)| name == "cpu" || name == "memory");
        let sums: Map<String, Value> = sums.map(|(name, sum)| (name, json!(format!("{sum}m")))).collect();
        fill(&mut spec["resources"]["requests"], &Value::Object(sums));
        let limits = spec["resources"]["limits"].clone();
        fill(&mut spec["resources"]["requests"], &limits);
    }
    for range in ranges.iter().filter(|range| range["type"] == "Container") {
        let (mut limits, mut requests) = (range["default"].clone(), range["defaultRequest"].clone());
        fill(&mut limits, &range["max"]);
        fill(&mut requests, &limits);
        fill(&mut requests, &range["min"]);
        for list in ["initContainers", "containers"] {
            for container in spec[list].as_array_mut().into_iter().flatten() {
                fill(&mut container["resources"]["limits"], &limits);
                fill(&mut container["resources"]["requests"], &requests);
            }
        }
    }
    if overhead.is_object() {
        spec["overhead"] = overhead.clone();
    }
    spec
}

fn requested(pod: &Value) -> Amounts {
    let mut total = peak(pod);
    total.extend(amounts(&pod["resources"]["requests"]));
    add(&mut total, &amounts(&pod["overhead"]));
    total
}

/// What a pod with these requests costs by the configured transformations.
fn transformed(requested: &Amounts, transform: &Transform) -> Amounts {
    let whole = |milli: i64| (milli + 999) / 1000;
    let mut cost = Amounts::new();
    for (name, amount) in requested {
        let rule = transform.transformations.get(name.as_str());
        for (output, unit) in rule.into_iter().flat_map(|rule| &rule.outputs) {
            let factor = rule.and_then(|rule| rule.multiply_by.as_deref()).and_then(|by| requested.get(by));
            let units = whole(*amount) * factor.map_or(1, |factor| whole(*factor));
            add(&mut cost, &Amounts::from([(output.to_string(), unit.milli() * units)]));
        }
        let replaced = rule.is_some_and(|rule| rule.strategy == Charging::Replace);
        let excluded = transform.exclude_prefixes.iter().any(|prefix| name.starts_with(prefix));
        if !replaced && !excluded {
            add(&mut cost, &Amounts::from([(name.clone(), *amount)]));
        }
    }
    cost
}

/// The charge of a Workload of one such pod; `None` if it is not admitted.
fn charge(spec: &Value, ranges: &[Value], overhead: &Value) -> Option<Amounts> {
    charge_with(Transform::default(), spec, ranges, overhead)
}

/// Like `charge`, with transformations of the requests.
fn charge_with(transform: Transform, spec: &Value, ranges: &[Value], overhead: &Value) -> Option<Amounts> {
    let mut core = Core::new(CoreSettings { transform, ..CoreSettings::default() });
    let resources = ["cpu", "memory", "example.com/gpu", "example.com/credits"];
    let quotas = resources.map(|name| json!({"name": name, "nominalQuota": "1000"}));
    core.put(
        Kind::ClusterQueue,
        json!({"metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": [
            {"coveredResources": resources, "flavors": [{"name": "f", "resources": quotas}]}]}}),
    );
    for (index, range) in ranges.iter().enumerate() {
        let meta = json!({"name": format!("range-{index}"), "namespace": "ns"});
        core.put(Kind::LimitRange, json!({"metadata": meta, "spec": {"limits": [range]}}));
    }
    if overhead.is_object() {
        let class = json!({"metadata": {"name": "vm"}, "handler": "vm", "overhead": {"podFixed": overhead}});
        core.put(Kind::RuntimeClass, class);
    }
    let mut bare = workload("j", &[]);
    bare["metadata"] = json!({"name": "w", "namespace": "ns"});
    bare["spec"]["podSets"][0]["template"]["spec"] = spec.clone();
    let written = writes(&core.put(Kind::Workload, bare), Kind::Workload);
    let assignments = &written.first()?.body["status"]["admission"]["podSetAssignments"];
    assignments.is_array().then(|| amounts(&assignments[0]["resourceUsage"]))
}

fn covers(charged: &Amounts, requested: &Amounts) -> bool {
    requested.iter().all(|(name, amount)| charged.get(name).copied().unwrap_or_default() >= *amount)
}

#[test]
fn model_and_charge_match_recorded_pods() {
    let rows: Vec<Value> = serde_json::from_str(include_str!("../../pods-made-by-api-server.json")).unwrap();
    for row in rows.iter().filter(|row| row["made"] != "refused") {
        let ranges = row["limitRanges"].as_array().unwrap();
        let pod = made(row["spec"].clone(), ranges, &row["overhead"]);
        for list in ["containers", "initContainers"] {
            let of_model: Vec<Amounts> = containers(&pod, list)
                .into_iter()
                .map(|container| amounts(&container["resources"]["requests"]))
                .collect();
            let recorded: Vec<Amounts> = containers(&row["made"], list).into_iter().map(amounts).collect();
            assert_eq!(of_model, recorded, "{list}: {row}");
        }
        assert_eq!(amounts(&pod["resources"]["requests"]), amounts(&row["made"]["resources"]), "{row}");
        assert_eq!(amounts(&pod["overhead"]), amounts(&row["made"]["overhead"]), "{row}");
        let charged = charge(&row["spec"], ranges, &row["overhead"]);
        assert_eq!(charged, Some(requested(&pod)), "{row}");
    }
}

/// Some of the resources, with small amounts.
fn drawn(names: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let entry = (proptest::sample::select(names), 1_i64..5);
    proptest::collection::vec(entry, 0..3).prop_map(|entries| {
        let text = |amount: i64| json!(amount.to_string());
        entries
            .into_iter()
            .map(|(name, amount)| (name.to_owned(), text(amount)))
            .collect::<Map<_, _>>()
            .into()
    })
}

const ALL: &[&str] = &["cpu", "memory", "example.com/gpu"];
const OVERCOMMITTED: &[&str] = &["cpu", "memory"];

fn container() -> impl Strategy<Value = Value> {
    (drawn(ALL), drawn(ALL), proptest::bool::ANY).prop_map(|(requests, limits, sidecar)| {
        let mut container =
            json!({"name": "c", "image": "x", "resources": {"requests": requests, "limits": limits}});
        if sidecar {
            container["restartPolicy"] = json!("Always");
        }
        container
    })
}

fn limit_range() -> impl Strategy<Value = Value> {
    let maps = (drawn(OVERCOMMITTED), drawn(ALL), drawn(ALL), drawn(OVERCOMMITTED));
    maps.prop_map(|(limits, requests, max, min)| {
        json!({"type": "Container", "default": limits, "defaultRequest": requests, "max": max, "min": min})
    })
}

/// Rules for some resources, with outputs that pods request too or that only rules charge.
fn transform() -> impl Strategy<Value = Transform> {
    const INPUTS: &[&str] = &["cpu", "memory", "example.com/gpu"];
    const OUTPUTS: &[&str] = &["cpu", "memory", "example.com/gpu", "example.com/credits"];
    let outputs = proptest::collection::btree_map(proptest::sample::select(OUTPUTS), 1_i64..4, 1..3);
    let rule = (any::<bool>(), proptest::option::of(proptest::sample::select(INPUTS)), outputs).prop_map(
        |(replaces, multiply_by, outputs)| Transformation {
            strategy: if replaces { Charging::Replace } else { Charging::Retain },
            multiply_by: multiply_by.map(Arc::from),
            outputs: outputs
                .into_iter()
                .map(|(name, amount)| (Arc::from(name), Quantity::parse(&amount.to_string()).unwrap()))
                .collect(),
        },
    );
    let rules = proptest::collection::btree_map(proptest::sample::select(INPUTS), rule, 0..3);
    let excluded = proptest::option::weighted(0.3, proptest::sample::select(&["mem", "example.com/"][..]));
    (rules, excluded).prop_map(|(rules, excluded)| Transform {
        exclude_prefixes: excluded.into_iter().map(str::to_owned).collect(),
        transformations: rules.into_iter().map(|(name, rule)| (Arc::from(name), rule)).collect(),
    })
}

proptest! {
    #[test]
    fn pods_never_request_more_than_charged(
        inits in proptest::collection::vec(container(), 0..3),
        mains in proptest::collection::vec(container(), 1..3),
        pod_level in proptest::option::of((drawn(OVERCOMMITTED), drawn(OVERCOMMITTED))),
        ranges in proptest::collection::vec(limit_range(), 0..3),
        overhead in proptest::option::of(drawn(OVERCOMMITTED)),
        stated in proptest::option::of(drawn(OVERCOMMITTED)),
        transform in transform(),
    ) {
        let mut spec = json!({"restartPolicy": "Never", "initContainers": inits, "containers": mains});
        for container in spec["containers"].as_array_mut().unwrap() {
            container.as_object_mut().unwrap().remove("restartPolicy");
        }
        if let Some((requests, limits)) = pod_level {
            spec["resources"] = json!({"requests": requests, "limits": limits});
            if limits.as_object().unwrap().is_empty() {
                spec["resources"].as_object_mut().unwrap().remove("limits");
            }
        }
        if overhead.is_some() {
            spec["runtimeClassName"] = json!("vm");
        }
        let overhead = overhead.unwrap_or_default();
        let mut template = spec.clone();
        if let Some(stated) = stated {
            template["overhead"] = stated;
        }
        let reversed: Vec<Value> = ranges.iter().rev().cloned().collect();
        if let Some(charged) = charge_with(transform.clone(), &template, &ranges, &overhead) {
            for order in [&ranges, &reversed] {
                let pod = made(spec.clone(), order, &overhead);
                let cost = transformed(&requested(&pod), &transform);
                prop_assert!(covers(&charged, &cost), "charged {charged:?}, requested {:?}, costs {cost:?}", requested(&pod));
            }
        }
    }
}

/// How the pods of a Job differ from those that its prebuilt Workload states.
#[derive(Clone, Debug)]
enum Difference {
    None,
    /// Another container, after the others of its list.
    Added(&'static str, Value),
    /// Other requests or limits of a container.
    Changed(&'static str, usize, &'static str, Value),
}

impl Difference {
    fn apply(&self, spec: &mut Value) {
        match self {
            Self::None => {}
            Self::Added(list, container) => {
                let mut container = container.clone();
                container["name"] = json!("added");
                spec[list].as_array_mut().unwrap().push(container);
            }
            Self::Changed(list, index, field, amounts) => {
                let all = spec[list].as_array_mut().unwrap();
                let index = index % all.len().max(1);
                if let Some(container) = all.get_mut(index) {
                    container["resources"][field] = amounts.clone();
                }
            }
        }
    }
}

fn difference() -> impl Strategy<Value = Difference> {
    let list = || proptest::sample::select(&["initContainers", "containers"][..]);
    let field = proptest::sample::select(&["requests", "limits"][..]);
    prop_oneof![
        1 => Just(Difference::None),
        1 => (list(), container()).prop_map(|(list, container)| Difference::Added(list, container)),
        4 => (list(), 0..3_usize, field, drawn(ALL)).prop_map(|(list, index, field, amounts)| {
            Difference::Changed(list, index, field, amounts)
        }),
    ]
}

proptest! {
    /// A Job starts by a Workload that its user made only if the Workload is charged for its pods.
    #[test]
    fn prebuilt_workload_is_charged_for_pods_of_its_job(
        inits in proptest::collection::vec(container(), 0..3),
        mains in proptest::collection::vec(container(), 1..3),
        difference in difference(),
    ) {
        let without_policy = |mut container: Value| {
            container.as_object_mut().unwrap().remove("restartPolicy");
            container
        };
        let mains: Vec<Value> = mains.into_iter().map(without_policy).collect();
        let stated = json!({"restartPolicy": "Never", "initContainers": inits, "containers": mains});
        let mut own = stated.clone();
        difference.apply(&mut own);
        let admitted = [condition("QuotaReserved", "True", "QuotaReserved"), condition("Admitted", "True", "Admitted")];
        let Some(charged) = charge(&stated, &[], &Value::Null) else { return Ok(()) };
        let mut workload = reserving_workload("j", &admitted);
        workload["spec"]["podSets"][0]["template"]["spec"] = stated.clone();
        let assignment = &mut workload["status"]["admission"]["podSetAssignments"][0];
        assignment["flavors"] = charged.keys().map(|name| (name.clone(), json!("f"))).collect::<Map<_, _>>().into();
        let amount = |(name, thousandths): (&String, &i64)| (name.clone(), json!(format!("{thousandths}m")));
        assignment["resourceUsage"] = charged.iter().map(amount).collect::<Map<_, _>>().into();
        let mut job = job("j");
        job["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("w-j");
        job["spec"]["template"]["spec"] = own.clone();

        let mut core = Core::new(CoreSettings::default());
        core.feed(Delta::Leading(false));
        let objects = [core.applied_delta(JOB, job), core.applied_delta(Kind::Workload, workload)];
        let effects = core.feed_all(objects.into_iter().chain([Delta::Leading(true)]));
        let starts = writes(&effects, JOB).iter().any(|write| write.body["spec"]["suspend"] == json!(false));
        prop_assert!(starts || own != stated, "the Workload of the same pods starts its Job: {effects:?}");
        if starts {
            let requested = requested(&made(own, &[], &Value::Null));
            prop_assert!(covers(&charged, &requested), "charged {charged:?}, requested {requested:?}");
        }
    }
}
