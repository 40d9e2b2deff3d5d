//! The texts of verdicts, compared with golden files: why a workload waits, when it may be admitted, and what is said first.

use crate::people::texts::{amount, check, look, read, row};
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::people::views;
use sluice::simulate::estimate::Refusal;
use sluice::visibility::views::{Answer, Verdict};

fn verdict(more: Value) -> Answer<Verdict> {
    let mut verdict = row("job-llama-ft-7c2-4b1d9", "2026-11-26T13:02:46Z", [3, 100, 64], "WaitingForQuota");
    let source = json!({"source": {"kind": "manager", "replica": "m-0", "role": "leader", "stateVersion": 81231, "time": "2026-11-26T14:05:12Z"}});
    verdict["priorityClass"] = json!("research-normal");
    for fields in [source, more] {
        verdict.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    }
    read(verdict)
}

/// A blocker, with what is requested, available and the limit.
fn blocker(
    kind: &str,
    resource: &str,
    [requested, available, limit]: [i64; 3],
    node: &str,
    missing: Option<i64>,
) -> Value {
    let mut blocker = json!({"kind": kind, "podSet": "main", "flavor": "h100-80g", "resource": resource, "node": node,
        "requested": amount(requested), "available": amount(available), "limit": amount(limit)});
    if let Some(missing) = missing {
        blocker["missing"] = amount(missing);
    }
    blocker
}

#[test]
fn expected_reasons_of_pending_workloads() {
    let gpu = "nvidia.com/gpu";
    let pending = verdict(json!({
        "blockers": [blocker("inUse", gpu, [64, 8, 192], "ClusterQueue/nlp", Some(56)),
            {"kind": "mismatch", "podSet": "main", "flavor": "a100-40g", "text": "node affinity requires gpu.type in (h100)"}],
        "next": [blocker("next", gpu, [64, 48, 320], "Cohort/ai", Some(16))],
        "fits": [blocker("fits", "cpu", [768, 864, 4572], "", None)],
        "options": [
            {"kind": "wait", "possible": true, "detail": "56 nvidia.com/gpu of nlp must be released; 61 workloads use 184"},
            {"kind": "preempt", "possible": false, "detail": "12 workloads have a lower priority and use 40 together"},
            {"kind": "smaller", "possible": true, "detail": "1 of 8 pods would be admitted now; set kueue.x-k8s.io/job-min-parallelism to allow it"},
            {"kind": "quota", "possible": false, "detail": "a borrowing limit of 120 is not enough alone: Cohort ai can provide 48"},
        ],
        "ahead": {"count": 5, "first": [{"namespace": "nlp-train", "name": "job-mt-eval-0c1f2", "priority": 200, "needs": [{"resource": gpu, "amount": amount(16)}]}], "hidden": 4},
        "history": [{"time": "2026-11-26T13:02:11Z", "event": "Preempted", "reason": "InCohortReclamation", "text": "by a workload of ClusterQueue ranking"}],
    }));
    check("why", |look| views::why(&pending, true, look));
    let mut never = blocker("neverFits", gpu, [32, 8, 16], "ClusterQueue/interns", None);
    never["podSet"] = json!("workers");
    let never = verdict(
        json!({"neverFits": true, "reason": "ExceedsMaxQuota", "blockers": [never, blocker("inUse", "cpu", [4, 2, 8], "Cohort/ai", Some(2))], "partial": true}),
    );
    check("why-never", |look| views::why(&never, false, look));
    let admitted = verdict(
        json!({"state": "Admitted", "reason": "", "position": null, "since": "2026-11-26T13:03:12Z", "admission": {
        "podSets": [{"name": "main", "count": 4, "resources": [{"resource": gpu, "amount": amount(32), "flavor": "h100-80g"}, {"resource": "cpu", "amount": amount(8), "flavor": "h100-80g"}],
            "domains": {"b1/r4": 1, "b2/r3": 3}, "states": {"running": 3, "pending": 1, "ended": 0}}],
        "endsBy": "2026-11-27T01:00:00Z", "borrows": true, "preemptibleBy": ["a workload of ClusterQueue vision that reclaims its quota"]},
        "checks": [{"name": "capacity", "state": "Ready", "message": "Provisioned", "since": "2026-11-25T23:00:00Z"}]}),
    );
    check("why-admitted", |look| views::why(&admitted, false, look));
    for state in ["QuotaReserved", "Evicted", "Finished"] {
        let verdict = verdict(
            json!({"state": state, "reason": "Preempted", "position": null, "source": {"kind": "file", "replica": "dump.yaml", "stateVersion": 0}}),
        );
        check(&format!("why-{}", state.to_lowercase()), |look| views::why(&verdict, false, look));
    }
    let compared = verdict(json!({"before": {
        "workload": "nlp-train/job-llama-ft-7c2-4b1d9", "other": "nlp-train/job-mt-eval-0c1f2", "otherIsBefore": true, "because": "its priority is higher", "scope": "queue",
        "factors": [
            {"name": "ClusterQueue", "workload": "nlp", "other": "nlp"},
            {"name": "LocalQueue usage", "workload": "off", "other": "off", "note": "admission fair sharing"},
            {"name": "Priority", "workload": "100", "other": "200", "decides": true},
            {"name": "class", "workload": "research-normal", "other": "eval", "part": true},
        ],
        "note": "In BestEffortFIFO a later workload may still be admitted first if it fits"}}));
    check("why-before", |look| views::why(&compared, false, look));
    let cycle = verdict(json!({"before": {
        "workload": "nlp-train/a", "other": "rank/b", "otherIsBefore": false, "because": "its priority is higher", "scope": "cycle",
        "factors": [
            {"name": "Queued since", "workload": "2026-11-26T13:02:46Z (eviction)", "other": "2026-11-25T08:01:13Z"},
            {"name": "UID", "workload": "1", "other": "2"}],
        "note": "They are in different ClusterQueues: the order holds within one scheduling cycle only"}}));
    check("why-before-cycle", |look| views::why(&cycle, false, look));
    let misconfigured = verdict(
        json!({"reason": "Misconfigured", "position": null, "message": "LocalQueue default doesn't exist", "source": {"kind": "file", "replica": "dump.yaml", "stateVersion": 0}}),
    );
    check("why-misconfigured", |look| views::why(&misconfigured, false, look));
}

#[test]
fn expected_estimates_of_admission() {
    let range = |latest: &str, more: Value| {
        let mut range = json!({
            "earliest": "2026-11-26T16:10:40Z", "latest": latest, "declared": 9, "fromHistory": 52, "unknown": 0, "earlierRuns": 1840,
            "earlierRunsSince": "2026-10-27T14:05:12Z", "assumptions": ["nothing new arrives in the cohort of nlp; quotas and nodes stay"]});
        range.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        verdict(json!({"estimate": range}))
    };
    let usual = range("2026-11-27T03:39:01Z", json!({}));
    check("why-when", |look| views::why(&usual, false, look));
    let declared = range(
        "2026-12-03T03:39:01Z",
        json!({"declared": 1, "fromHistory": 0, "earlierRuns": 0, "earlierRunsSince": null}),
    );
    let annotated = range("2026-11-27T03:39:01Z", json!({"declared": 0, "expected": 6, "fromHistory": 1}));
    let text = views::why(&annotated, false, look());
    let known = "Known      0 of 7 running workloads declare a maximum execution time, 6 an expected one (annotation sluice.dev/expected-run-time)\n";
    assert!(text.contains(known) && text.contains("Guessed    1 from"), "{text}");
    check("why-when-declared", |look| views::why(&declared, false, look));
    let refused = verdict(json!({"estimate": {"refused": Refusal::NeverFits.to_string()}}));
    check("why-when-refused", |look| views::why(&refused, false, look));
    let bound = verdict(
        json!({"estimate": {"refused": Refusal::UnknownRunning(7, 11).to_string(), "notBefore": "2026-11-26T19:42:30Z",
        "mustEnd": ["nlp-train/tokenize"], "assumptions": ["no workload is deleted; quotas and nodes stay"],
        "unknown": ["vision/a", "vision/b", "vision/c", "vision/d", "vision/e", "vision/f", "vision/g"],
        "notes": ["sluice.dev/expected-run-time of vision/a is ignored: \"2 hours\" is not a duration such as 2h30m"]}}),
    );
    check("why-when-bound", |look| views::why(&bound, false, look));
    let nodes = || vec!["nodes".to_owned(), "workloads".to_owned()];
    let refusals = [
        Refusal::NeverFits,
        Refusal::NotPending("Finished".to_owned()),
        Refusal::Deleted,
        Refusal::Deactivated,
        Refusal::Hidden,
        Refusal::TooManyAhead(12_400),
        Refusal::TooManyWorkloads(123_456),
        Refusal::NoQueue,
        Refusal::Forbidden(
            nodes(),
            "nodes is forbidden: User \"u\" cannot list resource \"nodes\"".to_owned(),
        ),
        Refusal::UnknownRunning(14, 61),
        Refusal::UnknownRunning(1, 1),
        Refusal::UnknownAhead(vec![ObjectKey::new("ns", "w")], 1_000),
        Refusal::NotAdmitted,
        Refusal::ChecksUnanswered,
        Refusal::TooLong,
        Refusal::Failed("no schema".to_owned()),
    ];
    let texts: Vec<String> = refusals.iter().map(|refusal| format!("no estimate: {refusal}\n")).collect();
    check("why-when-refusals", |_| texts.concat());
}

/// What never goes is said, not what others cause, nor another flavor that does not match.
#[test]
fn the_blocker_that_matters_is_said_first() {
    let gpu = "nvidia.com/gpu";
    let mismatch = json!({"kind": "mismatch", "podSet": "main", "flavor": "a100", "text": "flavor a100 supports only topology-aware scheduling"});
    let said = |more: Value| views::why(&verdict(more), false, look()).lines().nth(1).unwrap().to_owned();
    let (in_use, huge) = (
        blocker("inUse", "cpu", [4, 2, 8], "Cohort/ai", Some(2)),
        blocker("neverFits", gpu, [32, 8, 16], "Cohort/ai", None),
    );
    let mut hidden = huge.clone();
    hidden.as_object_mut().unwrap().remove("limit");
    for (never, blockers, expected) in [
        (
            true,
            json!([mismatch, in_use, huge]),
            "It can never be admitted: request 32 > 16, the most of nvidia.com/gpu that Cohort ai can have.",
        ),
        (
            false,
            json!([mismatch, huge, in_use]),
            "It needs 4 cpu in h100-80g. Cohort ai may still use 2: 2 are missing.",
        ),
        (
            true,
            json!([mismatch]),
            "It can never be admitted as it is: flavor a100 supports only topology-aware scheduling.",
        ),
        (
            true,
            json!([hidden]),
            "It can never be admitted: it requests more of nvidia.com/gpu than Cohort ai can have.",
        ),
        (
            false,
            json!([mismatch, {"kind": "nodesInUse", "podSet": "main", "text": "topology \"t\" allows to fit only 2 out of 3 pod(s)"}]),
            "Topology \"t\" allows to fit only 2 out of 3 pod(s).",
        ),
    ] {
        assert_eq!(said(json!({"neverFits": never, "blockers": blockers})), expected);
    }
    let no_node = "Admitted, but no node takes pod train-0: 0/3 nodes are available";
    let blocked = json!({"state": "Admitted", "reason": "", "position": null, "admission": {}, "blockers": [{"kind": "unschedulable", "text": no_node}]});
    assert_eq!(said(blocked), format!("{no_node}."));
}

#[test]
fn a_text_without_end_is_shortened() {
    let long = "x".repeat(500_000);
    let texts = json!({"kind": "mismatch", "flavor": "f", "text": long});
    let checks = json!([{"name": "c", "state": "Pending", "message": long}]);
    let found =
        verdict(json!({"reason": long.get(..10), "message": long, "blockers": [texts], "checks": checks}));
    let text = views::why(&found, true, look());
    assert!(text.len() < 20_000, "{}", text.len());
    assert_eq!(text.matches("(498000 more characters: -o json)").count(), 3, "{text}");
}
