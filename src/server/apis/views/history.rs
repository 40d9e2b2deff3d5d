//! Preemptions and usage, from the history of the replica that began to record first.
//!
//! Invariant: an answer has the start of its recording, and is `partial` if another replica may know more.

use axum::response::Response;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Asked, LIMIT, Refused, resource, send};
use crate::history::UsageGroup;
use crate::server::apis::group::{QueryOption, ResourceDescription};
use crate::server::apis::negotiation::Format;
use crate::server::apis::status;
use crate::visibility::access::Access;
use crate::visibility::history::{
    ExportTopic, HistoryAnswer, HistoryQuestion, HistoryTopic, PERIOD, PreemptionTopic, PurgeTopic, Rollup,
    UsageTopic, since,
};
use crate::visibility::page::ModelError;
use crate::visibility::questions::{LeaderAnswer, Question};
use crate::visibility::table::TableRow;
use crate::visibility::views::{HistoryPurge, HistoryPurgeStatus, ListMetadata, PurgeReport};

const fn option(name: &'static str, description: &'static str) -> QueryOption {
    QueryOption { name, kind: "string", description }
}

const SINCE: QueryOption = option("since", "start of the period: a time, or a duration as 24h");

pub(super) const PREEMPTIONS: ResourceDescription = ResourceDescription {
    namespaced: true,
    verbs: &["list"],
    options: &[
        LIMIT,
        super::CONTINUE,
        SINCE,
        option("victim", "name of the victim, or of its job"),
        option("preemptor", "name of the preemptor"),
        option("clusterQueue", "ClusterQueue of the victim or the preemptor"),
    ],
    description: "Preemptions, in the namespaces of their victims; the newest first, with sums.",
    ..resource("preemptions", "preemption", "Preemption")
};
const USAGE_OPTIONS: &[QueryOption] = &[
    option("by", "the groups: queue, cohort, namespace, localqueue, priorityclass or flavor"),
    SINCE,
    option("until", "end of the period: a time, or a duration before now"),
    option("resource", "only this resource"),
    option("flavors", "true: the hours of each row by flavor, too"),
];
pub(super) const USAGE: ResourceDescription = ResourceDescription {
    namespaced: true,
    verbs: &["list"],
    options: USAGE_OPTIONS,
    description: "Hours of quota that the workloads of a namespace had; beyond the last 24 hours from the durable record.",
    ..resource("usagereports", "usagereport", "UsageReport")
};
pub(super) const CLUSTER_USAGE: ResourceDescription = ResourceDescription {
    verbs: &["list"],
    options: USAGE_OPTIONS,
    description: "Hours of quota by queue, cohort or other groups; beyond the last 24 hours from the durable record.",
    ..resource("clusterusagereports", "clusterusagereport", "ClusterUsageReport")
};

const RECORD_OPTIONS: &[QueryOption] = &[
    LIMIT,
    super::CONTINUE,
    SINCE,
    option("until", "end of the period: a time, or a duration before now"),
    option("rollup", "hour or day: sums of what has ended of the period, by group; default: workloads"),
];
pub(super) const RECORDS: ResourceDescription = ResourceDescription {
    namespaced: true,
    verbs: &["list"],
    options: RECORD_OPTIONS,
    description: "Rows of the durable record: what the workloads of a namespace had, and when; the first page fixes the period.",
    ..resource("usagerecords", "usagerecord", "UsageRecord")
};
pub(super) const CLUSTER_RECORDS: ResourceDescription = ResourceDescription {
    verbs: &["list"],
    options: RECORD_OPTIONS,
    description: "Rows of the durable record: what workloads had, and when; the first page fixes the period.",
    ..resource("clusterusagerecords", "clusterusagerecord", "ClusterUsageRecord")
};

pub(super) const PURGES: ResourceDescription = ResourceDescription {
    verbs: &["create"],
    options: &[option("dryRun", "All: only count what would be removed")],
    description: "Removes the names of a namespace from the durable record; sums stay. Nothing is stored of the request.",
    ..resource("historypurges", "historypurge", "HistoryPurge")
};

impl Asked {
    /// Removes the names of a namespace from the durable record.
    pub(super) async fn purge(&self, access: Access) -> Result<Response, Refused> {
        let bad = |message: String| -> Refused { Box::new(status::bad_request(&message)) };
        let mut asked: HistoryPurge = serde_json::from_slice(&self.request.body)
            .map_err(|error| bad(format!("the object cannot be read: {error}")))?;
        let dry_run = match self.request.option("dryRun").unwrap_or_default().as_str() {
            "" => false,
            "All" => true,
            other => return Err(bad(format!("dryRun: {other:?} is not All"))),
        };
        let topic = PurgeTopic::of(&asked.spec.namespace, dry_run)
            .map_err(|error| bad(format!("spec.namespace: {error}")))?;
        if !self.rate.admits(&self.request.user.name) {
            return Err(self.refuse(&ModelError::TooMany));
        }
        match self.ask_history(access, HistoryTopic::Purge(topic)).await? {
            HistoryAnswer::Purge(answer) => {
                let PurgeReport { records, sums, running, .. } = answer.view;
                asked.status = HistoryPurgeStatus { records, sums, running };
                Ok(send(&self.typed(self.kind().to_owned(), asked)))
            }
            _ => Err(self.refuse(&ModelError::Unavailable)),
        }
    }

    /// Answers with a page of preemptions.
    pub(super) async fn preemptions(&self, access: Access) -> Result<Response, Refused> {
        let text = |name: &str| self.request.option(name).filter(|text| !text.is_empty());
        let topic = PreemptionTopic {
            since: self.time("since", Timestamp::now())?,
            namespace: self.asked_namespace(),
            victim: text("victim"),
            preemptor: text("preemptor"),
            cluster_queue: text("clusterQueue"),
            preemptor_queue: None,
            victim_queue: None,
            page: self.page()?,
        };
        match self.ask_history(access, HistoryTopic::Preemptions(topic)).await? {
            HistoryAnswer::Preemptions(answer) if self.request.format == Format::Table => {
                self.rows_of(&answer.view.items, &answer.view.metadata)
            }
            HistoryAnswer::Preemptions(answer) => Ok(self.send_report(answer)),
            _ => Err(self.refuse(&ModelError::Unavailable)),
        }
    }

    /// Answers with usage in a period.
    pub(super) async fn usage(&self, access: Access) -> Result<Response, Refused> {
        self.page()?;
        let (now, is_cluster) = (Timestamp::now(), self.request.target.resource == CLUSTER_USAGE.plural);
        let by = match self.request.option("by").filter(|text| !text.is_empty()) {
            Some(text) => UsageGroup::parse(&text)
                .map_err(|error| Box::new(status::bad_request(&format!("by: {error}"))))?,
            None if is_cluster => UsageGroup::Queue,
            None => UsageGroup::LocalQueue,
        };
        let (since, until) = self.period(now)?;
        let topic = UsageTopic {
            by,
            since,
            until,
            resource: self.request.option("resource").filter(|text| !text.is_empty()),
            namespace: self.asked_namespace(),
            steps: false,
            flavors: self.asks_flavors()?,
        };
        match self.ask_history(access, HistoryTopic::Usage(topic)).await? {
            HistoryAnswer::Usage(answer) if self.request.format == Format::Table => {
                self.rows_of(&answer.view.items, &answer.view.metadata)
            }
            HistoryAnswer::Usage(answer) => Ok(self.send_report(answer)),
            _ => Err(self.refuse(&ModelError::Unavailable)),
        }
    }

    /// Answers with a page of rows of the durable record.
    pub(super) async fn usage_records(&self, access: Access) -> Result<Response, Refused> {
        let rollup = match self.request.option("rollup").filter(|text| !text.is_empty()) {
            Some(text) => Some(
                Rollup::parse(&text)
                    .map_err(|error| Box::new(status::bad_request(&format!("rollup: {error}"))))?,
            ),
            None => None,
        };
        let (since, until) = self.period(Timestamp::now())?;
        let topic =
            ExportTopic { since, until, rollup, namespace: self.asked_namespace(), page: self.page()? };
        match self.ask_history(access, HistoryTopic::Export(topic)).await? {
            HistoryAnswer::Export(answer) if self.request.format == Format::Table => {
                self.rows_of(&answer.view.items, &answer.view.metadata)
            }
            HistoryAnswer::Export(answer) => Ok(self.send_report(answer)),
            _ => Err(self.refuse(&ModelError::Unavailable)),
        }
    }

    /// Reads the period of the query; by default it begins a day ago.
    fn period(&self, now: Timestamp) -> Result<(Timestamp, Option<Timestamp>), Refused> {
        let day_ago = now.checked_sub(PERIOD).unwrap_or(Timestamp::MIN);
        let since = self.time("since", now)?.unwrap_or(day_ago);
        let until = self.time("until", now)?;
        if until.is_some_and(|until| until <= since) {
            return Err(Box::new(status::bad_request("until: the end of the period is not after its start")));
        }
        Ok((since, until))
    }

    /// Reads whether the hours of each row are asked for by flavor.
    fn asks_flavors(&self) -> Result<bool, Refused> {
        match self.request.option("flavors").unwrap_or_default().as_str() {
            "" | "false" => Ok(false),
            "true" => Ok(true),
            text => {
                let message = format!("flavors: {text:?} is neither true nor false");
                Err(Box::new(status::bad_request(&message)))
            }
        }
    }

    fn asked_namespace(&self) -> Option<String> {
        Some(self.request.target.namespace.clone()).filter(|name| !name.is_empty())
    }

    /// Reads a time of the query.
    fn time(&self, name: &str, now: Timestamp) -> Result<Option<Timestamp>, Refused> {
        let Some(text) = self.request.option(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        // The client's clock may be ahead.
        let latest = now.checked_add(SignedDuration::from_mins(5)).unwrap_or(now);
        let time = match text.parse::<Timestamp>() {
            Ok(time) if time <= latest => Ok(time.min(now)),
            _ => since(&text, now),
        };
        time.map(Some).map_err(|error| Box::new(status::bad_request(&format!("{name}: {error}"))))
    }

    async fn ask_history(&self, access: Access, topic: HistoryTopic) -> Result<HistoryAnswer, Refused> {
        if !self.snapshot.synced {
            return Err(self.refuse(&ModelError::NotSynced));
        }
        if self.request.option("fieldSelector").is_some_and(|text| !text.is_empty()) {
            let message = "fieldSelector: use the options of the query that the API description names";
            return Err(Box::new(status::bad_request(message)));
        }
        if !self.rate.admits(&self.request.user.name) {
            return Err(self.refuse(&ModelError::TooMany));
        }
        let question = HistoryQuestion { access, topic, own: false };
        let is_of_record = question.is_of_record_alone();
        match self.leader.answer(Question::History(question)).await {
            Some(LeaderAnswer::History(answer)) => Ok(*answer),
            Some(LeaderAnswer::Refused(ModelError::Unavailable)) if is_of_record => {
                Err(Box::new(status::unavailable("what keeps the durable record does not answer")))
            }
            Some(LeaderAnswer::Refused(error)) => Err(self.refuse(&error)),
            _ => Err(self.refuse(&ModelError::Unavailable)),
        }
    }

    fn rows_of<T: TableRow>(&self, rows: &[T], metadata: &ListMetadata) -> Result<Response, Refused> {
        Ok(self.table(rows, &json!(metadata), self.include()?))
    }

    /// Sends a report as a list of objects with further fields.
    fn send_report(&self, report: impl Serialize) -> Response {
        let kind = self.kind();
        let mut list = json!(self.typed(format!("{kind}List"), report));
        let items = list.get_mut("items").and_then(Value::as_array_mut);
        for item in items.into_iter().flatten().filter_map(Value::as_object_mut) {
            item.insert("apiVersion".to_owned(), self.api_version().into());
            item.insert("kind".to_owned(), kind.into());
        }
        send(&list)
    }
}
