//! The resources of the history over TLS: what the history is asked, with which access, and what comes of its answers.
#![expect(clippy::disallowed_methods, reason = "the server reads the clock too")]

use crate::shell::views::{TABLE, Views};
use serde_json::json;
use sluice::visibility::access::{Access, TenantDetail};
use sluice::visibility::history::{HistoryAnswer, HistoryQuestion, HistoryTopic, Rollup};
use sluice::visibility::page::ModelError;
use sluice::visibility::questions::{LeaderAnswer, Question};
use sluice::visibility::views::{
    AmountView, Answer as Answered, HistoryAmount, PreemptionReport, PreemptionView, PurgeReport, Recorded,
    Source, UsageRecordReport, UsageRecordView, UsageReport, UsageView, ViewMetadata,
};
use std::sync::atomic::Ordering;

/// What a history answers: one row, with what was asked for in its names.
pub(crate) fn history(question: &HistoryQuestion) -> LeaderAnswer {
    let recorded = Recorded { replica: "m-1".to_owned(), drift: 0, ..Recorded::default() };
    let metadata = ViewMetadata { name: "row".to_owned(), ..ViewMetadata::default() };
    let source = Source::default();
    LeaderAnswer::History(Box::new(match &question.topic {
        HistoryTopic::Preemptions(_) => {
            let amount = AmountView { value: "64".to_owned(), number: None };
            let row = PreemptionView {
                metadata,
                amounts: vec![HistoryAmount {
                    resource: "nvidia.com/gpu".to_owned(),
                    amount,
                    ..HistoryAmount::default()
                }],
                ..PreemptionView::default()
            };
            let view =
                PreemptionReport { items: vec![row], total: 1, recorded, ..PreemptionReport::default() };
            HistoryAnswer::Preemptions(Answered { view, source, partial: true })
        }
        HistoryTopic::Usage(topic) => {
            let row = UsageView { metadata, group: "nlp".to_owned(), ..UsageView::default() };
            let by = topic.by.as_str().to_owned();
            let view = UsageReport { by, items: vec![row], recorded, ..UsageReport::default() };
            HistoryAnswer::Usage(Answered { view, source, partial: false })
        }
        HistoryTopic::Lines(_) | HistoryTopic::Own(_) | HistoryTopic::Records(_) => {
            panic!("no list asks for the topic of a page or of the recorder")
        }
        HistoryTopic::Purge(topic) => {
            let records = if topic.dry_run { 3 } else { 4 };
            let view = PurgeReport { records, sums: 2, running: 1, recorded };
            HistoryAnswer::Purge(Answered { view, source, partial: false })
        }
        HistoryTopic::Export(topic) if topic.page.continue_token == "old" => {
            return LeaderAnswer::Refused(ModelError::Expired("continue: the token has expired".to_owned()));
        }
        HistoryTopic::Export(topic) => {
            let rollup = topic.rollup.map_or("runs", Rollup::as_str).to_owned();
            let row = UsageRecordView { metadata, flavor: rollup, ..UsageRecordView::default() };
            let view = UsageRecordReport { items: vec![row], recorded, ..UsageRecordReport::default() };
            HistoryAnswer::Export(Answered { view, source, partial: false })
        }
    }))
}

#[tokio::test]
async fn the_history_is_asked_with_the_access_of_the_reader() {
    let views = Views::start().await;
    assert_eq!(views.get("/preemptions").await.status, 503, "the lists are not complete");
    views.publish();
    assert_eq!(views.get("/clusterusagereports").await.status, 503, "no history answers");
    views.leader.answers.store(true, Ordering::Relaxed);
    views.leader.asked.lock().unwrap().clear();
    let path = "/namespaces/ns/preemptions?since=2h&victim=a&preemptor=b&clusterQueue=c&limit=7";
    let list = views.get_as("tenant", path, "*/*").await.json();
    assert_eq!((&list["kind"], &list["partial"]), (&json!("PreemptionList"), &json!(true)));
    assert_eq!((&list["items"][0]["kind"], &list["total"]), (&json!("Preemption"), &json!(1)));
    assert_eq!(list["recorded"]["replica"], "m-1");
    let Question::History(asked) = views.leader.asked.lock().unwrap()[0].clone() else { panic!() };
    assert_eq!((asked.access, asked.own), (Access::to_namespace("ns", TenantDetail::Sums), false));
    let HistoryTopic::Preemptions(topic) = asked.topic else { panic!("{:?}", asked.topic) };
    assert_eq!(topic.namespace.as_deref(), Some("ns"));
    assert_eq!((topic.victim.as_deref(), topic.preemptor.as_deref()), (Some("a"), Some("b")));
    assert_eq!((topic.cluster_queue.as_deref(), topic.page.limit), (Some("c"), 7));
    let ago = jiff::Timestamp::now().as_second() - topic.since.unwrap().as_second();
    assert!((7_200..7_260).contains(&ago), "{ago}");

    let table = views.get_as("ann", "/preemptions", TABLE).await.json();
    assert_eq!(
        (&table["rows"][0]["cells"][0], &table["rows"][0]["cells"][4]),
        (&json!("row"), &json!("64 gpu"))
    );
    for (path, kind, by) in [
        ("/clusterusagereports", "ClusterUsageReportList", "queue"),
        ("/clusterusagereports?by=cohort&resource=cpu", "ClusterUsageReportList", "cohort"),
        ("/namespaces/ns/usagereports", "UsageReportList", "localqueue"),
        ("/usagereports?by=namespace", "UsageReportList", "namespace"),
    ] {
        let report = views.get(path).await.json();
        assert_eq!((&report["kind"], &report["by"]), (&json!(kind), &json!(by)), "{path}");
        assert_eq!(report["items"][0]["group"], "nlp", "{path}");
    }
    for (path, named) in [
        ("/clusterusagereports?by=quue", "by: "),
        ("/clusterusagereports?since=yesterday", "since: \"yesterday\""),
        ("/clusterusagereports?since=1h&until=2h", "until: "),
        ("/clusterusagereports?flavors=yes", "flavors: "),
        ("/preemptions?since=-1h", "since: "),
        ("/preemptions?limit=x", "limit"),
        ("/preemptions?fieldSelector=a%3Db", "fieldSelector"),
        ("/usagereports?labelSelector=a%3Db", "labelSelector"),
    ] {
        let answer = views.get(path).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.body);
        assert!(answer.json()["message"].as_str().unwrap().contains(named), "{path}: {}", answer.body);
    }
    for path in
        ["/clusterusagereports", "/preemptions", "/usagereports", "/usagerecords", "/clusterusagerecords"]
    {
        assert_eq!(views.get_as("tenant", path, "*/*").await.status, 403, "{path}");
    }
    assert_eq!(views.get("/preemptions?watch=true").await.status, 405);
    assert_eq!(views.get("/namespaces/ns/preemptions/row").await.status, 405, "it can only be listed");
}

#[tokio::test]
async fn rows_of_the_record_are_asked_for_with_the_access_of_the_reader() {
    let views = Views::start().await;
    views.publish();
    views.leader.answers.store(true, Ordering::Relaxed);
    let path = "/namespaces/ns/usagerecords?since=2h&rollup=day&limit=7&continue=t";
    let list = views.get_as("tenant", path, "*/*").await.json();
    assert_eq!(
        (&list["kind"], &list["items"][0]["kind"]),
        (&json!("UsageRecordList"), &json!("UsageRecord"))
    );
    assert_eq!((&list["items"][0]["flavor"], &list["recorded"]["replica"]), (&json!("day"), &json!("m-1")));
    let Question::History(asked) = views.leader.asked.lock().unwrap()[0].clone() else { panic!() };
    assert_eq!((asked.access, asked.own), (Access::to_namespace("ns", TenantDetail::Sums), false));
    let HistoryTopic::Export(topic) = asked.topic else { panic!("{:?}", asked.topic) };
    assert_eq!((topic.namespace.as_deref(), topic.page.limit), (Some("ns"), 7));
    assert_eq!(topic.page.continue_token, "t");
    let all = views.get("/clusterusagerecords?since=7d").await.json();
    assert_eq!(
        (&all["kind"], &all["items"][0]["flavor"]),
        (&json!("ClusterUsageRecordList"), &json!("runs"))
    );
    let table = views.get_as("ann", "/clusterusagerecords", TABLE).await.json();
    assert_eq!(table["rows"][0]["cells"][0], "row");
    for (path, status, named) in [
        ("/clusterusagerecords?rollup=week", 400, "rollup: unknown roll-up \"week\""),
        ("/clusterusagerecords?since=1h&until=2h", 400, "until: "),
        ("/usagerecords?labelSelector=a%3Db", 400, "labelSelector"),
        ("/clusterusagerecords?continue=old", 410, "expired"),
    ] {
        let answer = views.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.json()["message"].as_str().unwrap().contains(named), "{path}: {}", answer.body);
    }
}

#[tokio::test]
async fn a_purge_is_passed_on_once_its_object_is_read() {
    let views = Views::start().await;
    views.publish();
    views.leader.answers.store(true, Ordering::Relaxed);
    let object =
        |namespace: &str| json!({"kind": "HistoryPurge", "spec": {"namespace": namespace}}).to_string();
    let done = views.post_as("ann", "/historypurges", &object("old-team")).await;
    assert_eq!(done.status, 200, "{}", done.body);
    let done = done.json();
    assert_eq!((&done["kind"], &done["spec"]["namespace"]), (&json!("HistoryPurge"), &json!("old-team")));
    assert_eq!(done["status"], json!({"records": 4, "sums": 2, "running": 1}));
    let counted = views.post_as("ann", "/historypurges?dryRun=All", &object("old-team")).await.json();
    assert_eq!(counted["status"]["records"], 3);
    let Question::History(asked) = views.leader.asked.lock().unwrap()[0].clone() else { panic!() };
    assert_eq!(
        (asked.access, asked.own),
        (Access { tenant_detail: TenantDetail::Sums, ..Access::everything() }, false)
    );
    views.leader.asked.lock().unwrap().clear();
    for (path, body, status, named) in [
        ("/historypurges", object(""), 400, "spec.namespace: "),
        ("/historypurges", object("a/b"), 400, "spec.namespace: "),
        ("/historypurges", object("(purged)"), 400, "spec.namespace: "),
        ("/historypurges", "{}".to_owned(), 400, "spec.namespace: "),
        ("/historypurges", "spec: {}".to_owned(), 400, "the object cannot be read"),
        ("/historypurges?dryRun=yes", object("a"), 400, "dryRun: "),
        ("/clusterusagereports", object("a"), 405, "the verb create is not supported"),
    ] {
        let answer = views.post_as("ann", path, &body).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.json()["message"].as_str().unwrap().contains(named), "{path}: {}", answer.body);
    }
    assert_eq!(views.post_as("tenant", "/historypurges", &object("a")).await.status, 403);
    assert_eq!(views.get("/historypurges").await.status, 405, "nothing is stored");
    assert!(views.leader.asked.lock().unwrap().is_empty(), "no wrong request reaches the record");
}
