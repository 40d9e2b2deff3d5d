//! Asks a manager what it remembers of the time in which this process did not record.
//!
//! Invariants: the recorder waits a bounded time for the answer, and begins without it; pages of two replicas are not mixed, because
//! each numbers its amounts in its own way.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::history_answers::AskReplicas;
use crate::history::Remembered;
use crate::visibility::access::Access;
use crate::visibility::history::{HistoryAnswer, HistoryQuestion, HistoryTopic, RecordReport, RecordTopic};
use crate::visibility::questions::{LeaderAnswer, Question};

/// Longest time that the recorder waits for a manager, such as one that starts at the same time.
const LIMIT: Duration = Duration::from_secs(10);
/// Pause between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Time before the end of the last recording from which on records are asked for: its last entries may have been on their way.
const OVERLAP: SignedDuration = SignedDuration::from_mins(1);
/// Maximum number of pages: more than a history holds.
const MAX_PAGES: usize = 64;

/// Returns what the managers at an address remember since a time; `None` if none answers in time, or if nothing is missing.
pub(super) async fn remembered(
    managers: &dyn AskReplicas,
    address: &str,
    since: Option<Timestamp>,
) -> Option<Remembered> {
    let since = since.filter(|_| !address.is_empty())?;
    let since = since.checked_sub(OVERLAP).unwrap_or(since);
    let asking = async {
        loop {
            if let Some(found) = all_pages(managers, address, since).await {
                return found;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    };
    let found = tokio::time::timeout(LIMIT, asking).await.ok();
    if let Some(found) = &found {
        tracing::info!(records = found.records.len(), from = %found.from, "a manager remembers the gap");
    } else {
        tracing::warn!(address, "no manager was asked for the time in which nothing was recorded");
    }
    found
}

/// Returns the records of one replica; `None` without an answer, or if another replica answered for a later page.
async fn all_pages(managers: &dyn AskReplicas, address: &str, since: Timestamp) -> Option<Remembered> {
    let mut found = Remembered::default();
    let mut replica = None;
    let mut after = None;
    for _ in 0..MAX_PAGES {
        let page = page(managers, address, RecordTopic { since, after }).await?;
        let RecordReport { flavor_resources, records, more, recorded } = page;
        if *replica.get_or_insert_with(|| recorded.replica.clone()) != recorded.replica {
            return None;
        }
        if found.records.is_empty() {
            // Events after the first page may be missing from it.
            (found.from, found.until) = (recorded.from?, recorded.until?);
        }
        after = records.last().map(|last| last.key.clone());
        found.records.extend(records);
        // A replica never changes a number: the names of the last page are valid for all pages.
        found.flavor_resources = flavor_resources;
        if !more {
            return Some(found);
        }
    }
    None
}

async fn page(managers: &dyn AskReplicas, address: &str, topic: RecordTopic) -> Option<RecordReport> {
    let topic = HistoryTopic::Records(topic);
    let question = HistoryQuestion { access: Access::everything(), topic, own: false };
    let answer = managers.ask(Some(address.to_owned()), Question::History(question)).await?;
    let LeaderAnswer::History(answer) = answer else { return None };
    match *answer {
        HistoryAnswer::Records(answer) => Some(answer.view),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ObjectKey;
    use crate::history::{Record, RecordEvent, RecordKey, RecordKind, Run, Subject};
    use crate::quota::FlavorResource;
    use crate::visibility::views::{Answer, Recorded, Source};
    use futures::future::BoxFuture;
    use std::sync::{Arc, Mutex};

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn record(uid: &str) -> Record {
        Record {
            key: RecordKey { uid: Arc::from(uid), kind: RecordKind::Segment, attempt: 0, part: 0 },
            seeded: false,
            filled: false,
            workload: Subject {
                key: ObjectKey::new("ns", uid),
                job: None,
                local_queue: Arc::default(),
                cluster_queue: Arc::from("cq"),
                priority_class: Arc::default(),
                priority: 0,
                submitter: Some(Arc::from("ann")),
            },
            event: RecordEvent::Segment {
                run: Run { start: 5, amounts: Arc::from([(0, i64::MAX)]) },
                end: 9,
            },
        }
    }

    /// Managers that answer with these pages, each of a replica, and the keys after which they were asked.
    struct Managers {
        pages: Mutex<Vec<(&'static str, Vec<Record>, bool)>>,
        after: Mutex<Vec<Option<RecordKey>>>,
    }

    impl AskReplicas for Managers {
        fn ask(
            &self,
            address: Option<String>,
            question: Question,
        ) -> BoxFuture<'static, Option<LeaderAnswer>> {
            assert_eq!(address.as_deref(), Some("managers:443"));
            assert!(question.is_for_any_replica(), "the recorder does not know which one leads");
            let Question::History(question) = question else { panic!("{question:?}") };
            let HistoryTopic::Records(topic) = question.topic else { panic!("{:?}", question.topic) };
            assert_eq!(topic.since, time(940));
            self.after.lock().unwrap().push(topic.after);
            let mut pages = self.pages.lock().unwrap();
            let page = (!pages.is_empty()).then(|| pages.remove(0));
            let answer = page.map(|(replica, records, more)| {
                let view = RecordReport {
                    flavor_resources: vec![FlavorResource::new("f", "gpu")],
                    records: records.into_iter().map(Arc::new).collect(),
                    more,
                    recorded: Recorded {
                        replica: replica.to_owned(),
                        from: Some(time(950)),
                        until: Some(time(2_000)),
                        ..Recorded::default()
                    },
                };
                let answer = Answer { view, source: Source::default(), partial: false };
                // As it travels.
                let answer = LeaderAnswer::History(Box::new(HistoryAnswer::Records(answer)));
                serde_json::from_value(serde_json::to_value(answer).unwrap()).unwrap()
            });
            Box::pin(async move { answer })
        }
    }

    fn managers(pages: Vec<(&'static str, Vec<Record>, bool)>) -> Managers {
        Managers { pages: Mutex::new(pages), after: Mutex::default() }
    }

    #[tokio::test]
    async fn pages_of_one_replica_are_joined() {
        let first = ("m-0", vec![record("a"), record("b")], true);
        let managers = managers(vec![first, ("m-0", vec![record("c")], false)]);
        let found = remembered(&managers, "managers:443", Some(time(1_000))).await.unwrap();
        let records: Vec<Record> = found.records.iter().map(|record| Record::clone(record)).collect();
        assert_eq!(records, [record("a"), record("b"), record("c")]);
        assert_eq!((found.from, found.until), (time(950), time(2_000)));
        assert_eq!(*managers.after.lock().unwrap(), [None, Some(record("b").key)]);
    }

    #[tokio::test(start_paused = true)]
    async fn pages_of_two_replicas_are_not() {
        let mixed = [("m-0", vec![record("a")], true), ("m-1", vec![record("b")], false)];
        let again = ("m-1", vec![record("c")], false);
        let managers = managers(mixed.into_iter().chain([again]).collect());
        let found = remembered(&managers, "managers:443", Some(time(1_000))).await.unwrap();
        let uids: Vec<&str> = found.records.iter().map(|record| &*record.key.uid).collect();
        assert_eq!(uids, ["c"], "all pages are asked for again");
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_answer_or_a_gap_the_recorder_begins() {
        let managers = managers(Vec::new());
        assert_eq!(remembered(&managers, "managers:443", Some(time(1_000))).await, None);
        assert!(managers.after.lock().unwrap().len() > 5, "it tries again for a while");
        for (address, since) in [("", Some(time(1_000))), ("managers:443", None)] {
            assert_eq!(remembered(&managers, address, since).await, None);
        }
    }
}
