//! Pages of a durable record, for programs that read it elsewhere.
//!
//! Invariants: the first page fixes the period of all pages, and the token carries it; a row that began or ended after that
//! changes no page; a token contains names of rows that its reader has seen, and no others.

use super::{HistorySource, ReadRecord, hours_view, shown};
use crate::history::Gap;
use crate::visibility::access::Access;
use crate::visibility::amounts::plain_amount_view;
use crate::visibility::page::{ModelError, PageQuery, not_of_this_list, read_token, write_token};
use crate::visibility::views::{
    AmountView, HoursView, ListMetadata, Recorded, UsageRecordReport, UsageRecordView,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Error text without a durable record.
pub const NO_RECORD: &str = "the durable record is off, and nothing else keeps what ran: switch it on with history.enabled of the chart, or the component config/history";
/// Validity of a token, in milliseconds.
const TOKEN_TTL: i64 = 24 * 3_600_000;

/// The rows that are asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportTopic {
    /// Start of the period.
    pub since: Timestamp,
    /// End of the period; `None` for the time of the first page.
    #[serde(default)]
    pub until: Option<Timestamp>,
    /// Unit of time of sums; `None` for single runs.
    #[serde(default)]
    pub rollup: Option<Rollup>,
    /// Namespace of the rows; `None` for all.
    #[serde(default)]
    pub namespace: Option<String>,
    /// The page that is asked for.
    pub page: PageQuery,
}

/// Unit of time of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Rollup {
    /// Hours.
    Hour,
    /// Days, in UTC.
    Day,
}

impl Rollup {
    /// Parses a word.
    ///
    /// # Errors
    /// If the word is neither `hour` nor `day`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "hour" => Ok(Self::Hour),
            "day" => Ok(Self::Day),
            other => Err(format!("unknown roll-up {other:?}: use hour or day")),
        }
    }

    /// Returns the word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }
}

/// The times that the first page of an export fixes, in milliseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportPeriod {
    /// Start of the period.
    #[serde(rename = "f")]
    pub from: i64,
    /// End of the period.
    #[serde(rename = "u")]
    pub until: i64,
    /// Time of the commit on which all pages are based: a run that ended then or later counts as running.
    #[serde(rename = "a")]
    pub as_of: i64,
    /// End that was asked for, if it is later than the last commit.
    #[serde(rename = "w", default)]
    pub wanted: i64,
    /// Time from which on the record has such rows.
    #[serde(rename = "r", default)]
    pub recorded: Option<i64>,
    /// Time of the question for the first page.
    #[serde(rename = "b")]
    pub begun: i64,
}

/// A place between two rows, in the order of the record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportPlace {
    /// Whether all ended runs are before the place: running ones follow.
    #[serde(rename = "r", default)]
    pub running: bool,
    /// Time of a row, in milliseconds since the epoch.
    #[serde(rename = "t", default)]
    pub time: i64,
    /// Key of the row; empty before all rows of that time.
    #[serde(rename = "k", default)]
    pub key: String,
    /// Number of rows with that time and key before the place.
    #[serde(rename = "d", default)]
    pub done: usize,
}

/// A query for a page of a record.
#[derive(Clone, Debug)]
pub struct ExportQuery<'a> {
    /// The topic; from the second page on, its times have no effect.
    pub topic: &'a ExportTopic,
    /// The time of the question.
    pub now: Timestamp,
    /// The period, and the place after which the page begins; `None` for the first page.
    pub after: Option<(ExportPeriod, ExportPlace)>,
}

/// A page of a record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExportPage {
    /// The rows.
    pub rows: Vec<UsageRecordView>,
    /// The period.
    pub period: ExportPeriod,
    /// Place where the next page begins; `None` after the last page.
    pub next: Option<ExportPlace>,
    /// Time from which on the record has such rows.
    pub recorded_from: Option<Timestamp>,
    /// Times of the period in which nothing was recorded.
    pub gaps: Vec<Gap>,
}

#[derive(Serialize, Deserialize)]
struct Token {
    #[serde(rename = "s")]
    scope: String,
    #[serde(rename = "p")]
    period: ExportPeriod,
    #[serde(rename = "k")]
    place: ExportPlace,
}

impl ExportTopic {
    /// Returns the scope with which a token must agree.
    fn scope(&self) -> String {
        let rollup = self.rollup.map_or("runs", Rollup::as_str);
        format!("export/{rollup}/{}", self.namespace.as_deref().unwrap_or_default())
    }

    fn after(&self, now: Timestamp) -> Result<Option<(ExportPeriod, ExportPlace)>, ModelError> {
        let text = self.page.continue_token.as_str();
        if text.is_empty() {
            return Ok(None);
        }
        let read = read_token::<Token>(text).filter(|token| token.scope == self.scope());
        let token = read.ok_or_else(not_of_this_list)?;
        let (mut period, now) = (token.period, now.as_millisecond());
        if now.saturating_sub(period.begun) > TOKEN_TTL {
            return Err(expired("it is older than a day"));
        }
        // A token is not signed: the period of a forged one could end in the future.
        period.until = period.until.min(now);
        period.as_of = period.as_of.min(now);
        Ok(Some((period, token.place)))
    }
}

/// Returns the error that an export cannot continue.
pub fn expired(reason: &str) -> ModelError {
    ModelError::Expired(format!("continue: the token has expired: {reason}; begin without it"))
}

impl HistorySource<'_> {
    /// Returns a page of rows of a durable record, only of namespaces that the reader may see.
    ///
    /// # Errors
    /// If the reader may not see the namespace, there is no record, or the token belongs to another list or has expired.
    pub fn export(
        &self,
        topic: &ExportTopic,
        access: &Access,
        record: Option<&dyn ReadRecord>,
    ) -> Result<UsageRecordReport, ModelError> {
        let sees_all = access.cluster || access.all_namespaces;
        if !topic.namespace.as_deref().map_or(sees_all, |namespace| access.sees(namespace)) {
            let message = "records of the whole cluster are for readers of the cluster: use -n NAMESPACE";
            return Err(ModelError::Invalid(message.to_owned()));
        }
        let record = record.ok_or_else(|| ModelError::Invalid(NO_RECORD.to_owned()))?;
        let after = topic.after(self.now)?;
        let page = record.export(&ExportQuery { topic, now: self.now, after })?;
        Ok(self.export_report(topic, page, access))
    }

    fn export_report(&self, topic: &ExportTopic, page: ExportPage, access: &Access) -> UsageRecordReport {
        let at = |time: i64| Timestamp::from_millisecond(time).unwrap_or(self.now);
        let ExportPage { mut rows, period, next, recorded_from, gaps } = page;
        if !access.sees_sums() {
            for sums in rows.iter_mut().filter_map(|row| row.sums.as_mut()) {
                sums.borrowed = HoursView::default();
            }
        }
        let (from, until) = (at(period.from), at(period.until));
        let recorded = Recorded {
            complete: recorded_from.is_some_and(|recorded| recorded <= from)
                && !gaps.iter().any(Gap::is_lossy),
            gaps: shown(gaps, access),
            ..self.recorded((Some(from), until), recorded_from)
        };
        let token = next.map(|place| write_token(&Token { scope: topic.scope(), period, place }));
        UsageRecordReport {
            metadata: ListMetadata { continue_token: token.unwrap_or_default(), ..ListMetadata::default() },
            items: rows,
            recorded,
        }
    }
}

/// Returns units × milliseconds of a resource as hours.
pub fn hours(resource: &str, time: i128) -> HoursView {
    hours_view(resource, time)
}

/// Returns an amount of a resource.
pub fn amount(resource: &str, units: i64) -> AmountView {
    plain_amount_view(resource, units.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{HistoryView, RecordedUsage, StepSum, UsageQuery};
    use crate::visibility::access::TenantDetail;
    use crate::visibility::history::{PurgeTopic, PurgedRows};

    /// A record with one row of the requested namespace, after which there is another page.
    #[derive(Debug)]
    struct OneRow;

    impl ReadRecord for OneRow {
        fn usage(&self, _: &UsageQuery<'_>, _: &HistoryView, _: Timestamp) -> Option<RecordedUsage> {
            None
        }

        fn course(
            &self,
            _: &UsageQuery<'_>,
            _: &[(Timestamp, Timestamp)],
            _: &[&str],
            _: (&HistoryView, Timestamp),
        ) -> Option<Vec<Option<StepSum>>> {
            None
        }

        fn preemptions(&self, _: &HistoryView, _: Option<Timestamp>) -> Option<(HistoryView, Vec<Gap>)> {
            None
        }

        fn purge(&self, _: &PurgeTopic, _: Timestamp) -> Result<PurgedRows, ModelError> {
            Err(ModelError::Unavailable)
        }

        fn export(&self, query: &ExportQuery<'_>) -> Result<ExportPage, ModelError> {
            let now = query.now.as_millisecond();
            let period = query.after.as_ref().map_or(
                ExportPeriod {
                    from: query.topic.since.as_millisecond(),
                    until: now,
                    begun: now,
                    ..ExportPeriod::default()
                },
                |after| after.0,
            );
            let sums = crate::visibility::views::RecordedSums {
                borrowed: hours("cpu", 3_600_000_000),
                ..Default::default()
            };
            let row = UsageRecordView {
                namespace: query.topic.namespace.clone().unwrap_or_default(),
                sums: Some(sums),
                ..UsageRecordView::default()
            };
            let (start, end) = (query.topic.since, query.topic.since);
            let gap = Gap { start, end, unknown_ends: 3, ..Gap::default() };
            let next = Some(ExportPlace { key: "k".to_owned(), ..ExportPlace::default() });
            Ok(ExportPage {
                rows: vec![row],
                period,
                next,
                recorded_from: Some(query.topic.since),
                gaps: vec![gap],
            })
        }
    }

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn topic(namespace: Option<&str>, token: &str) -> ExportTopic {
        ExportTopic {
            since: time(0),
            until: None,
            rollup: None,
            namespace: namespace.map(str::to_owned),
            page: PageQuery { limit: 1, continue_token: token.to_owned() },
        }
    }

    fn ask(
        topic: &ExportTopic,
        access: &Access,
        (seconds, record): (i64, Option<&dyn ReadRecord>),
    ) -> Result<UsageRecordReport, ModelError> {
        let history = crate::history::Ring::new(1).view();
        let source = HistorySource { history: &history, replica: "recorder", now: time(seconds) };
        source.export(topic, access, record)
    }

    #[test]
    fn without_a_record_the_answer_says_how_to_switch_it_on() {
        let error = ask(&topic(None, ""), &Access::everything(), (9, None)).unwrap_err();
        let ModelError::Invalid(text) = error else { panic!("{error:?}") };
        assert!(text.contains("history.enabled") && text.contains("config/history"), "{text}");
    }

    #[test]
    fn a_tenant_is_answered_for_its_namespace_alone() {
        let tenant = Access::to_namespace("a", TenantDetail::None);
        for namespace in [None, Some("b")] {
            assert!(matches!(
                ask(&topic(namespace, ""), &tenant, (9, Some(&OneRow))),
                Err(ModelError::Invalid(_))
            ));
        }
        let own = ask(&topic(Some("a"), ""), &tenant, (9, Some(&OneRow))).unwrap();
        let sums = own.items[0].sums.as_ref().unwrap();
        assert_eq!((&sums.borrowed.text[..], own.recorded.gaps[0].unknown_ends), ("", 0));
        let all = ask(&topic(None, ""), &Access::everything(), (9, Some(&OneRow))).unwrap();
        let sums = all.items[0].sums.as_ref().unwrap();
        assert_eq!((&sums.borrowed.text[..], all.recorded.gaps[0].unknown_ends), ("1.0", 3));
    }

    #[test]
    fn a_token_is_of_one_list_and_of_one_day() {
        let all = Access::everything();
        let first = ask(&topic(Some("a"), ""), &all, (9, Some(&OneRow))).unwrap();
        let token = first.metadata.continue_token;
        let second = ask(&topic(Some("a"), &token), &all, (500, Some(&OneRow))).unwrap();
        assert_eq!(second.recorded.until, Some(time(9)), "the period is that of the first page");
        for (other, token) in [(topic(Some("b"), &token), "b"), (topic(Some("a"), "AAAA"), "no token")] {
            assert!(
                matches!(ask(&other, &all, (500, Some(&OneRow))), Err(ModelError::Invalid(_))),
                "{token}"
            );
        }
        let by_hour = ExportTopic { rollup: Some(Rollup::Hour), ..topic(Some("a"), &token) };
        assert!(matches!(ask(&by_hour, &all, (500, Some(&OneRow))), Err(ModelError::Invalid(_))));
        let late = ask(&topic(Some("a"), &token), &all, (10 + 86_400, Some(&OneRow)));
        let Err(ModelError::Expired(text)) = late else { panic!("{late:?}") };
        assert!(text.starts_with("continue: the token has expired"), "{text}");
    }

    #[test]
    fn roll_ups_have_words() {
        for rollup in [Rollup::Hour, Rollup::Day] {
            assert_eq!(Rollup::parse(rollup.as_str()), Ok(rollup));
        }
        assert!(Rollup::parse("week").unwrap_err().contains("\"week\""));
    }
}
