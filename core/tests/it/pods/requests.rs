//! From a pod template to charged amounts: quantities, defaults and bounds of LimitRanges, overhead, transformations.

use k8s_openapi::api::core::v1::{LimitRange, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_core::resources::limit_range::{LimitRangeSummary, requests_above_limits};
use sluice_core::resources::transform::{Strategy as Fate, Transform, Transformation};
use sluice_core::resources::{self, Quantities, Quantity};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A number of nanos, and its text with one of several suffixes: `mantissa × 10^(exponent - 9)`.
fn written() -> impl Strategy<Value = (i128, String)> {
    let suffixes =
        [("n", 0), ("u", 3), ("m", 6), ("", 9), ("k", 12), ("M", 15), ("e-4", 5), ("e2", 11), ("E5", 14)];
    (-1_000_000_000_000_i64..1_000_000_000_000, proptest::sample::select(suffixes.to_vec())).prop_map(
        |(mantissa, (suffix, exponent))| {
            (i128::from(mantissa) * 10_i128.pow(exponent), format!("{mantissa}{suffix}"))
        },
    )
}

fn from_nanos(nanos: i128) -> Quantity {
    quantity(&format!("{nanos}n"))
}

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

proptest! {
    #[test]
    fn quantity_round_trips_through_text((nanos, text) in written()) {
        let parsed = quantity(&text);
        prop_assert_eq!(&parsed, &from_nanos(nanos));
        prop_assert_eq!(&quantity(&parsed.to_string()), &parsed);
        let canonical = parsed.canonical();
        prop_assert_eq!(quantity(&canonical).canonical(), canonical);
    }

    #[test]
    fn binary_suffixes_round_trip(number in -4096_i64..4096, power in 0_usize..6) {
        let text = format!("{number}{}", ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
        let parsed = quantity(&text);
        let value = i128::from(number) << (10 * (power + 1));
        // Kubernetes' own bound for binary suffixes.
        prop_assume!(value.unsigned_abs() < 1 << 63);
        prop_assert_eq!(&parsed, &quantity(&value.to_string()));
        prop_assert_eq!(&quantity(&parsed.canonical()), &parsed);
    }

    #[test]
    fn quantity_order_matches_numbers((a, a_text) in written(), (b, b_text) in written()) {
        prop_assert_eq!(quantity(&a_text).cmp(&quantity(&b_text)), a.cmp(&b));
        prop_assert_eq!(quantity(&a_text) == quantity(&b_text), a == b);
        prop_assert_eq!(i128::from(quantity(&a_text).sign()), a.signum());
    }

    #[test]
    fn quantity_arithmetic_is_exact(
        (a, a_text) in written(), (b, b_text) in written(), factor in -9_i64..1000,
    ) {
        let (left, right) = (quantity(&a_text), quantity(&b_text));
        prop_assert_eq!(left.plus(&right), from_nanos(a + b));
        prop_assert_eq!(right.plus(&left), left.plus(&right));
        prop_assert_eq!(left.minus(&right), from_nanos(a - b));
        prop_assert_eq!(left.plus(&right).minus(&right), left.clone());
        prop_assert_eq!(left.times(factor), from_nanos(a * i128::from(factor)));
    }

    #[test]
    fn amounts_round_away_from_zero((nanos, text) in written()) {
        for (resource, unit) in [("cpu", 1_000_000_i128), ("memory", 1_000_000_000)] {
            prop_assume!(nanos.abs() / unit < i128::from(i64::MAX));
            let exact = resources::amount(resource, &quantity(&text)).to_i128() * unit;
            prop_assert!(exact.abs() >= nanos.abs() && exact.abs() - nanos.abs() < unit, "{} {}", resource, exact);
        }
    }

    #[test]
    fn quantity_parser_accepts_or_refuses_any_text(text in "[-+0-9.eEkKmMGiTPnu]{0,24}") {
        if let Ok(parsed) = Quantity::parse(&text) {
            prop_assert_eq!(&quantity(&parsed.to_string()), &parsed);
        }
    }
}

fn pod(spec: Value) -> PodSpec {
    serde_json::from_value(spec).unwrap()
}

/// A pod with one container of these resources.
fn pod_with_resources(resources: &Value) -> PodSpec {
    pod(json!({"containers": [{"name": "c", "resources": resources}]}))
}

fn limit_range_summary(items: &[Value]) -> LimitRangeSummary {
    let range = |item: &Value| serde_json::from_value(json!({"spec": {"limits": [item]}})).unwrap();
    let ranges: Vec<LimitRange> = items.iter().map(range).collect();
    LimitRangeSummary::new(&ranges)
}

fn to_strings(quantities: &Quantities) -> Vec<String> {
    quantities.iter().map(|(name, quantity)| format!("{name}={quantity}")).collect()
}

#[test]
fn limit_range_apply_cases() {
    let both = json!({"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "500m"}});
    let later = json!({"type": "Container", "defaultRequest": {"cpu": "9", "memory": "1Gi"}});
    let table = [
        ("nothing is set", vec![both.clone()], json!({}), vec!["cpu=500m"]),
        ("a request stays", vec![both.clone()], json!({"requests": {"cpu": "1"}}), vec!["cpu=1"]),
        (
            "a default limit is used",
            vec![json!({"type": "Container", "default": {"cpu": "2"}})],
            json!({}),
            vec!["cpu=2"],
        ),
        (
            "the largest default applies, as the API server takes any of them",
            vec![both.clone(), later],
            json!({}),
            vec!["cpu=9", "memory=1Gi"],
        ),
        ("a limit is the request", vec![both.clone()], json!({"limits": {"cpu": "3"}}), vec!["cpu=3"]),
        (
            "a limit of zero is the request",
            vec![both.clone()],
            json!({"limits": {"cpu": "0"}}),
            vec!["cpu=0"],
        ),
        (
            "a limit of another resource leaves the default",
            vec![both.clone()],
            json!({"limits": {"memory": "1Gi"}}),
            vec!["cpu=500m", "memory=1Gi"],
        ),
        (
            "an extended resource has its limit",
            vec![json!({"type": "Container", "defaultRequest": {"a/b": "1"}})],
            json!({"limits": {"a/b": "2"}}),
            vec!["a/b=2"],
        ),
        (
            "a maximum is a default",
            vec![json!({"type": "Container", "max": {"cpu": "2"}})],
            json!({}),
            vec!["cpu=2"],
        ),
        (
            "a default limit goes before the maximum",
            vec![json!({"type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "1"}})],
            json!({}),
            vec!["cpu=1"],
        ),
        (
            "a minimum is a default",
            vec![json!({"type": "Container", "min": {"cpu": "2"}})],
            json!({}),
            vec!["cpu=2"],
        ),
        (
            "a maximum goes before the minimum",
            vec![json!({"type": "Container", "min": {"cpu": "1"}, "max": {"cpu": "2"}})],
            json!({}),
            vec!["cpu=2"],
        ),
        (
            "bounds of pods give no default",
            vec![json!({"type": "Pod", "max": {"cpu": "2"}})],
            json!({}),
            vec![],
        ),
        (
            "other types are ignored",
            vec![json!({"type": "PersistentVolumeClaim", "default": {"cpu": "2"}})],
            json!({}),
            vec![],
        ),
    ];
    for (case, items, resources, expected) in table {
        let mut spec = pod_with_resources(&resources);
        resources::default_requests(&mut spec);
        limit_range_summary(&items).apply(&mut spec);
        assert_eq!(to_strings(&resources::pod_quantities(&spec)), expected, "{case}");
    }
    let mut spec = pod(
        json!({"containers": [{"name": "c"}], "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "3"}}}]}),
    );
    limit_range_summary(&[both]).apply(&mut spec);
    assert_eq!(
        to_strings(&resources::pod_quantities(&spec)),
        ["cpu=3"],
        "an init container's own request stays"
    );
}

/// Where a pod as a whole has only limits, the API server requests the sum of its containers, before LimitRanges add
/// defaults to these.
#[test]
fn pod_level_request_cases() {
    let container = |resources: &Value| json!([{"name": "c", "resources": resources}]);
    let requests = container(&json!({"requests": {"cpu": "1", "a/b": "4"}}));
    let pages = container(&json!({"limits": {"hugepages-2Mi": "2Mi"}}));
    let table = [
        ("limits alone", json!({}), json!({"limits": {"cpu": "8", "a/b": "9"}}), vec!["cpu=8"]),
        ("containers request", requests.clone(), json!({"limits": {"cpu": "8"}}), vec!["a/b=4", "cpu=1"]),
        ("own request", requests.clone(), json!({"requests": {"cpu": "3"}}), vec!["a/b=4", "cpu=3"]),
        (
            "another limit",
            requests,
            json!({"limits": {"memory": "1Gi"}}),
            vec!["a/b=4", "cpu=1", "memory=1Gi"],
        ),
        ("limited huge pages", pages, json!({"limits": {"hugepages-2Mi": "4Mi"}}), vec!["hugepages-2Mi=4Mi"]),
    ];
    let defaults = limit_range_summary(&[json!({"type": "Container", "defaultRequest": {"cpu": "500m"}})]);
    for (case, containers, resources, expected) in table {
        let containers = if containers.is_array() { containers } else { container(&containers) };
        let mut spec = pod(json!({"containers": containers, "resources": resources}));
        assert_eq!(to_strings(&resources::pod_quantities(&spec)), expected, "{case}");
        resources::default_requests(&mut spec);
        assert_eq!(to_strings(&resources::pod_quantities(&spec)), expected, "{case}: completed");
        if expected.iter().any(|text| text.starts_with("cpu")) {
            defaults.apply(&mut spec);
            assert_eq!(
                to_strings(&resources::pod_quantities(&spec)),
                expected,
                "{case}: beside a LimitRange"
            );
        }
    }
}

#[test]
fn limit_range_check_cases() {
    let table = [
        (
            "within",
            json!({"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}}),
            json!({"requests": {"cpu": "1500m"}}),
            None,
        ),
        (
            "above",
            json!({"type": "Container", "max": {"cpu": "2"}}),
            json!({"requests": {"cpu": "2001m"}}),
            Some(("s.containers[0]", "cpu", "must not be above the limitRange max")),
        ),
        (
            "a limit above",
            json!({"type": "Container", "max": {"cpu": "2"}}),
            json!({"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}),
            Some(("s.containers[0]", "cpu", "must not be above the limitRange max")),
        ),
        (
            "below",
            json!({"type": "Container", "min": {"memory": "1Gi"}}),
            json!({"requests": {"memory": "1Mi"}}),
            Some(("s.containers[0]", "memory", "must not be below the limitRange min")),
        ),
        ("no request, no bound", json!({"type": "Container", "min": {"memory": "1Gi"}}), json!({}), None),
        (
            "ratio",
            json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}),
            json!({"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}),
            Some(("s.containers[0]", "cpu", "by more than the limitRange maxLimitRequestRatio")),
        ),
        (
            "ratio met",
            json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}),
            json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}),
            None,
        ),
        (
            "the pod",
            json!({"type": "Pod", "max": {"cpu": "2"}}),
            json!({"requests": {"cpu": "3"}}),
            Some(("s: ", "cpu", "must not be above the limitRange max")),
        ),
    ];
    for (case, item, resources, expected) in table {
        let violations = limit_range_summary(&[item]).check(&pod_with_resources(&resources), "s");
        match expected {
            None => assert!(violations.is_empty(), "{case}: {violations:?}"),
            Some((path, resource, text)) => {
                let joined = violations.concat();
                assert!(violations.len() == 1 && joined.starts_with(path), "{case}: {violations:?}");
                assert!(joined.contains(resource) && joined.contains(text), "{case}: {joined}");
            }
        }
    }
}

#[test]
fn tightest_limit_range_bound_applies() {
    let ranges = limit_range_summary(&[
        json!({"type": "Container", "max": {"cpu": "4"}, "min": {"cpu": "100m"}}),
        json!({"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "200m"}}),
    ]);
    for (cpu, problems) in [("3", 1), ("150m", 1), ("1", 0)] {
        let violations = ranges.check(&pod_with_resources(&json!({"requests": {"cpu": cpu}})), "s");
        assert_eq!(violations.len(), problems, "{cpu}: {violations:?}");
    }
}

#[test]
fn requests_above_limits_cases() {
    let table = [
        (json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1000m"}}), 0),
        (json!({"requests": {"cpu": "1"}}), 0),
        (json!({"requests": {"cpu": "1001m"}, "limits": {"cpu": "1"}}), 1),
    ];
    for (resources, problems) in table {
        let violations = requests_above_limits(&pod_with_resources(&resources), "s");
        assert_eq!(violations.len(), problems, "{resources}: {violations:?}");
        let mut pod_level = pod_with_resources(&json!({}));
        pod_level.resources = serde_json::from_value(resources.clone()).unwrap();
        let violations = requests_above_limits(&pod_level, "s");
        assert!(
            violations.len() == problems && violations.iter().all(|f| f.starts_with("s.resources: ")),
            "{violations:?}"
        );
    }
}

#[test]
fn apply_overhead_cases() {
    let classes = |class: &str| {
        (class == "vm").then(|| BTreeMap::from([("cpu".to_owned(), ApiQuantity("250m".to_owned()))]))
    };
    let table = [
        ("no class", json!({}), "cpu=1"),
        ("a class with overhead", json!({"runtimeClassName": "vm"}), "cpu=1250m"),
        ("a missing class", json!({"runtimeClassName": "gone"}), "cpu=1"),
        ("own overhead", json!({"runtimeClassName": "vm", "overhead": {"cpu": "1"}}), "cpu=2"),
        ("less overhead", json!({"runtimeClassName": "vm", "overhead": {"cpu": "1m"}}), "cpu=1250m"),
        ("unreadable overhead", json!({"runtimeClassName": "gone", "overhead": {"cpu": "-1"}}), "cpu=1"),
        ("empty counts as none", json!({"runtimeClassName": "vm", "overhead": {}}), "cpu=1250m"),
    ];
    for (case, more, expected) in table {
        let mut spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut spec = pod(spec);
        resources::apply_overhead(&mut spec, classes);
        assert_eq!(to_strings(&resources::pod_quantities(&spec)), [expected], "{case}");
    }
}

fn quantities(entries: &[(&str, &str)]) -> Quantities {
    entries.iter().map(|(name, text)| (Arc::from(*name), quantity(text))).collect()
}

fn transform(input: &str, strategy: Fate, multiply_by: Option<&str>, outputs: &[(&str, &str)]) -> Transform {
    let rule =
        Transformation { strategy, multiply_by: multiply_by.map(Arc::from), outputs: quantities(outputs) };
    Transform {
        exclude_prefixes: vec!["free.example.com/".to_owned()],
        transformations: BTreeMap::from([(Arc::from(input), rule)]),
    }
}

#[test]
fn transform_apply_cases() {
    let table = [
        (
            "excluded",
            transform("x", Fate::Retain, None, &[]),
            vec![("free.example.com/a", "1"), ("cpu", "1")],
            vec!["cpu=1"],
        ),
        (
            "retained",
            transform("gpu", Fate::Retain, None, &[("credits", "10")]),
            vec![("gpu", "3")],
            vec!["credits=30", "gpu=3"],
        ),
        (
            "replaced",
            transform("gpu", Fate::Replace, None, &[("credits", "10")]),
            vec![("gpu", "3")],
            vec!["credits=30"],
        ),
        (
            "replaced by nothing",
            transform("gpu", Fate::Replace, None, &[]),
            vec![("gpu", "3"), ("cpu", "1")],
            vec!["cpu=1"],
        ),
        (
            "added to the request",
            transform("gpu", Fate::Replace, None, &[("cpu", "2")]),
            vec![("gpu", "3"), ("cpu", "1")],
            vec!["cpu=7"],
        ),
        (
            "multiplied",
            transform("gpu", Fate::Replace, Some("cpu"), &[("credits", "10")]),
            vec![("gpu", "3"), ("cpu", "4")],
            vec!["cpu=4", "credits=120"],
        ),
        (
            "the multiplier is not requested",
            transform("gpu", Fate::Replace, Some("cpu"), &[("credits", "10")]),
            vec![("gpu", "3")],
            vec!["credits=30"],
        ),
        (
            "never below zero",
            transform("gpu", Fate::Replace, None, &[("credits", "-1")]),
            vec![("gpu", "3")],
            vec!["credits=0"],
        ),
        (
            "the multiplier is excluded",
            transform("gpu", Fate::Replace, Some("free.example.com/slices"), &[("credits", "1")]),
            vec![("gpu", "20"), ("free.example.com/slices", "3")],
            vec!["credits=60"],
        ),
        (
            "the input is excluded",
            transform("free.example.com/gpu", Fate::Replace, None, &[("credits", "2")]),
            vec![("free.example.com/gpu", "20")],
            vec!["credits=40"],
        ),
        (
            "the input is excluded but retained",
            transform("free.example.com/gpu", Fate::Retain, Some("cpu"), &[("credits", "2")]),
            vec![("free.example.com/gpu", "20"), ("cpu", "2"), ("free.example.com/other", "1")],
            vec!["cpu=2", "credits=80"],
        ),
        (
            "an output is charged even if its name is excluded",
            transform("gpu", Fate::Replace, None, &[("free.example.com/credits", "2")]),
            vec![("gpu", "3"), ("free.example.com/credits", "100")],
            vec!["free.example.com/credits=6"],
        ),
        (
            "the input multiplies itself",
            transform("gpu", Fate::Replace, Some("gpu"), &[("credits", "1")]),
            vec![("gpu", "3")],
            vec!["credits=9"],
        ),
        (
            "not requested",
            transform("gpu", Fate::Replace, None, &[("credits", "1")]),
            vec![("cpu", "3")],
            vec!["cpu=3"],
        ),
    ];
    for (case, rules, requested, expected) in table {
        assert_eq!(to_strings(&rules.apply(&quantities(&requested))), expected, "{case}");
    }
}

/// Outputs are not inputs of further rules, and a replaced or excluded resource still multiplies others.
#[test]
fn transformations_read_requests_only() {
    let rule = |strategy, by: Option<&str>, output: &str| Transformation {
        strategy,
        multiply_by: by.map(Arc::from),
        outputs: quantities(&[(output, "2")]),
    };
    let rules = Transform {
        exclude_prefixes: vec!["free/".to_owned()],
        transformations: BTreeMap::from([
            (Arc::from("a"), rule(Fate::Replace, Some("b"), "b")),
            (Arc::from("b"), rule(Fate::Replace, Some("free/c"), "c")),
            (Arc::from("free/c"), rule(Fate::Retain, Some("a"), "c")),
        ]),
    };
    let charged = rules.apply(&quantities(&[("a", "2"), ("b", "3"), ("free/c", "5")]));
    // b: 2 a × 3 b × 2; c: 3 b × 5 c × 2 and 5 c × 2 a × 2.
    assert_eq!(to_strings(&charged), ["b=12", "c=50"]);
}
