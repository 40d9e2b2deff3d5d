//! Selection of the history or the durable record that answers.

use super::*;
use crate::history::Ring;
use crate::visibility::access::Access;
use crate::visibility::history::{ExportTopic, HistoryAnswer, HistoryTopic, PreemptionTopic};
use crate::visibility::page::PageQuery;
use crate::visibility::views::{Answer, PreemptionReport, Source};

/// Fake replicas that answer or not, and the questions that they got.
#[derive(Default)]
struct Others {
    answer: bool,
    asked: Mutex<Vec<(Option<String>, bool)>>,
}

impl AskReplicas for Others {
    fn ask(&self, address: Option<String>, question: Question) -> BoxFuture<'static, Option<LeaderAnswer>> {
        let Question::History(question) = question else { panic!("{question:?}") };
        self.asked.lock().unwrap().push((address, question.own));
        let view = PreemptionReport { total: 77, ..PreemptionReport::default() };
        let answer = HistoryAnswer::Preemptions(Answer { view, source: Source::default(), partial: false });
        let answer = self.answer.then(|| LeaderAnswer::History(Box::new(answer)));
        Box::pin(async move { answer })
    }
}

fn hours_ago(hours: i64) -> Timestamp {
    Timestamp::now().checked_sub(jiff::SignedDuration::from_hours(hours)).unwrap()
}

/// A replica whose history began some hours ago, beside other replicas.
fn replica(hours: i64, leading: bool, others: Option<Arc<Others>>) -> HistoryAnswers {
    let (queries, mut received) = mpsc::channel(4);
    tokio::spawn(async move {
        let mut ring = Ring::new(1 << 20);
        ring.set_time(hours_ago(hours));
        ring.begin();
        while let Some(query) = received.recv().await {
            if let CoreQuery::History(reply) = query {
                drop(reply.send(ring.view()));
            }
        }
    });
    let snapshot = Snapshot { synced: true, leading, ..Snapshot::default() };
    HistoryAnswers {
        shared: Arc::new(HistoryShared::new(Arc::default())),
        queries,
        published: Arc::new(ArcSwap::from_pointee(snapshot)),
        replica: "m-0".to_owned(),
        holder: Arc::default(),
        call: others.map(|others| -> Arc<dyn AskReplicas> { others }),
        record: RecordSource::None,
    }
}

fn question(hours: i64, own: bool) -> HistoryQuestion {
    let page = PageQuery::default();
    let topic = PreemptionTopic { since: Some(hours_ago(hours)), page, ..PreemptionTopic::default() };
    HistoryQuestion { access: Access::everything(), topic: HistoryTopic::Preemptions(topic), own }
}

/// Returns whether other replicas gave the answer, and whether it is partial.
async fn ask(replica: &HistoryAnswers, question: &HistoryQuestion) -> (bool, bool) {
    match replica.answer(question).await {
        LeaderAnswer::History(answer) => match *answer {
            HistoryAnswer::Preemptions(answer) => (answer.view.total == 77, answer.partial),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn record_answers_periods_before_all_histories() {
    for (hours, own, asked) in [(100, false, true), (24, false, false), (1, false, false), (100, true, false)]
    {
        let record = others(true);
        let replica = HistoryAnswers {
            record: RecordSource::At("history:8082".to_owned(), Arc::<Others>::clone(&record)),
            ..replica(30, true, None)
        };
        assert_eq!(ask(&replica, &question(hours, own)).await, (asked, false), "{hours}");
        let addresses = if asked { vec![(Some("history:8082".to_owned()), true)] } else { Vec::new() };
        assert_eq!(*record.asked.lock().unwrap(), addresses);
    }
    // A history that began later has less than the record.
    let young = HistoryAnswers {
        record: RecordSource::At("history:8082".to_owned(), others(true)),
        ..replica(2, true, None)
    };
    assert_eq!(ask(&young, &question(24, false)).await, (true, false));
}

#[tokio::test]
async fn rows_of_the_record_come_from_nothing_else() {
    let topic = ExportTopic {
        since: hours_ago(1),
        until: None,
        rollup: None,
        namespace: None,
        page: PageQuery::default(),
    };
    let question =
        HistoryQuestion { access: Access::everything(), topic: HistoryTopic::Export(topic), own: false };
    let (first, record) = (others(true), others(true));
    let alone = replica(30, true, Some(Arc::clone(&first)));
    let LeaderAnswer::Refused(ModelError::Invalid(text)) = alone.answer(&question).await else { panic!() };
    assert!(text.contains("history.enabled"), "{text}");
    assert!(first.asked.lock().unwrap().is_empty(), "no other replica has it either");
    for (record, is_there) in [(Arc::clone(&record), true), (others(false), false)] {
        let source = RecordSource::At("history:8082".to_owned(), record);
        let replica = HistoryAnswers { record: source, ..replica(30, true, Some(Arc::clone(&first))) };
        match replica.answer(&question).await {
            LeaderAnswer::History(_) => assert!(is_there),
            LeaderAnswer::Refused(ModelError::Unavailable) => assert!(!is_there),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(*record.asked.lock().unwrap(), [(Some("history:8082".to_owned()), true)]);
    assert!(first.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn without_the_record_histories_answer_and_say_so() {
    for (hours, partial) in [(100, true), (24, false)] {
        let (record, first) = (others(false), others(true));
        let follower = HistoryAnswers {
            record: RecordSource::At("history:8082".to_owned(), record),
            ..replica(2, false, Some(Arc::clone(&first)))
        };
        assert_eq!(ask(&follower, &question(hours, false)).await, (true, partial), "{hours}");
        assert_eq!(*first.asked.lock().unwrap(), [(None, false)]);
    }
}

fn others(answer: bool) -> Arc<Others> {
    Arc::new(Others { answer, ..Others::default() })
}

#[tokio::test]
async fn a_history_that_has_the_whole_period_answers_itself() {
    for leading in [true, false] {
        let all = others(true);
        let own = replica(30, leading, Some(Arc::clone(&all)));
        for hours in [1, 24, 100] {
            assert_eq!(ask(&own, &question(hours, false)).await, (false, false), "{hours}");
        }
        let young = replica(2, leading, Some(Arc::clone(&all)));
        assert_eq!(ask(&young, &question(1, false)).await, (false, false));
        assert_eq!(ask(&young, &question(24, true)).await, (false, false), "it is asked for its own");
        assert!(all.asked.lock().unwrap().is_empty());
    }
    assert_eq!(
        ask(&replica(2, true, None), &question(24, false)).await,
        (false, false),
        "there are no others"
    );
}

#[tokio::test]
async fn a_follower_asks_the_leader() {
    let all = others(true);
    let follower = replica(2, false, Some(Arc::clone(&all)));
    assert_eq!(ask(&follower, &question(24, false)).await, (true, false));
    assert_eq!(*all.asked.lock().unwrap(), [(None, false)]);
    let follower = replica(2, false, Some(others(false)));
    assert_eq!(ask(&follower, &question(24, false)).await, (false, true), "the leader does not answer");
}

#[tokio::test]
async fn the_leader_asks_the_replica_that_began_first() {
    let report = |replica: &str, hours: i64| RingReport {
        replica: replica.to_owned(),
        address: format!("{replica}:8082"),
        from: hours_ago(hours),
    };
    for (answers, expected) in [(true, (true, false)), (false, (false, true))] {
        let all = others(answers);
        let leader = replica(2, true, Some(Arc::clone(&all)));
        assert_eq!(
            ask(&leader, &question(24, false)).await,
            (false, true),
            "it does not know the others yet"
        );
        leader.store_report(report("m-1", 1));
        assert_eq!(ask(&leader, &question(24, false)).await, (false, true));
        leader.store_report(report("m-2", 9));
        leader.store_report(report("m-3", 5));
        assert_eq!(ask(&leader, &question(24, false)).await, expected);
        assert_eq!(*all.asked.lock().unwrap(), [(Some("m-2:8082".to_owned()), true)]);
    }
}

#[tokio::test]
async fn first_leader_knows_that_no_other_history_is_older() {
    let lease = |transitions: u32| serde_json::json!({"spec": {"holderIdentity": "m-0", "leaseTransitions": transitions}});
    for (transitions, is_partial) in [(0, false), (1, true)] {
        let leader = replica(2, true, Some(others(true)));
        leader.holder.read_address(&lease(transitions));
        assert_eq!(ask(&leader, &question(24, false)).await, (false, is_partial), "{transitions}");
    }
}

#[tokio::test]
async fn a_copy_is_not_kept() {
    let own = replica(30, true, None);
    ask(&own, &question(1, false)).await;
    assert!(own.shared.copy.lock().await.is_some());
    tokio::time::sleep(COPY_TTL + Duration::from_millis(200)).await;
    assert!(own.shared.copy.lock().await.is_none());
}
