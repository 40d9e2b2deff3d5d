//! The dashboard of a process: its flags, its routes, and the values of pages from the published state.
//!
//! Invariant: a page is made from this process's own state with the viewer's access; without an answer of the leader its part
//! is absent, and the page says so.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use jiff::Timestamp;

use super::core_queries::OwnCore;
use super::dashboard_history::PageHistory;
use super::listen::{self, BindAddress};
use super::run::ManagerContext;
use super::settings::ManagerSettings;
use super::visibility;
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::dashboard::{
    Freshness, Links, Overview, OverviewQuery, PageQuestion, WhatIfPage, WhatIfQuery, WorkloadPage, build,
};
use crate::kube::lease_follower::LeaseFollower;
use crate::kube::watch_status::WatchStatuses;
use crate::server::apis::capacity::CapacityCache;
use crate::server::apis::estimates::AskEstimate as _;
use crate::server::apis::questions::AnswerQuestions;
use crate::server::apis::views::AuditCache;
use crate::server::dashboard::models::{Answering, Models, NoValue, Value};
use crate::server::dashboard::{self, Settings};
use crate::server::shared_answers::SharedAnswers;
use crate::server::simulations::{Estimates, WhatIfAnswers};
use crate::server::user_authorizer::UserAuthorizer;
use crate::snapshot::{JobName, Snapshot};
use crate::visibility::access::Access;
use crate::visibility::findings::Form;
use crate::visibility::flavors;
use crate::visibility::own_workloads::own_namespaces;
use crate::visibility::page::ModelError;
use crate::visibility::questions::{self, LeaderAnswer, VerdictQuestion, WorkloadName};
use crate::visibility::selector::NO_SUBMITTERS;
use crate::visibility::verdict::verdict;
use crate::visibility::views::{Answer, Role, Source, SourceKind};
use crate::visibility::workloads::workload;

/// How long an answer of the leader is used: the shortest interval between two renderings of a page.
const ANSWER_TTL: Duration = Duration::from_secs(2);
/// Silence of a watch after which a page shows its data as old.
const MAX_SILENCE: Duration = Duration::from_mins(2);

/// Most namespaces in which a right is reviewed for the page of what a viewer submitted.
const MAX_OWN_NAMESPACES: usize = 8;

/// Flags of the dashboard.
#[derive(Clone, Debug, clap::Args)]
#[expect(clippy::struct_field_names, reason = "fields are named as their flags")]
pub(super) struct DashboardArgs {
    /// Address of the dashboard; by default it is not served.
    #[arg(long, value_name = "ADDRESS", default_value = "", value_parser = listen::bind_address)]
    pub(super) dashboard_bind_address: BindAddress,
    /// Path below which a proxy serves the dashboard, such as /sluice; the proxy passes it on.
    #[arg(long, value_name = "PATH", default_value = "/", value_parser = path_prefix)]
    pub(super) dashboard_path_prefix: Links,
    /// Audience for which tokens of users of the dashboard must be; empty for that of the API server.
    #[arg(long, value_name = "NAME", default_value = "sluice-dashboard")]
    pub(super) dashboard_audience: String,
    /// Name of the Service of the dashboard, which is a SAN of the serving certificate.
    #[arg(long, value_name = "NAME")]
    pub(super) dashboard_service: Option<String>,
}

fn path_prefix(text: &str) -> Result<Links, String> {
    Links::below(text)
}

/// Returns the routes of the dashboard.
pub(super) fn router(
    settings: &ManagerSettings,
    shared: &ManagerContext,
    lease: Arc<LeaseFollower>,
) -> Router {
    let args = &settings.args.dashboard;
    let authorizer = UserAuthorizer::new(&shared.clients.call, &args.dashboard_audience);
    let models = PublishedState {
        published: Arc::clone(&shared.core.published),
        watches: shared.watch_statuses.clone(),
        leader: visibility::leader(settings, shared),
        answers: SharedAnswers::for_time(ANSWER_TTL),
        audits: Arc::clone(&shared.core.audits),
        estimates: Arc::clone(&shared.core.estimates),
        history: PageHistory::new(visibility::leader(settings, shared)),
        capacity: CapacityCache::new(Arc::new(OwnCore(shared.core.queries.clone()))),
        what_ifs: WhatIfAnswers::beside(&shared.core.estimates),
        replica: settings.replica(),
        lease,
    };
    dashboard::router(Settings {
        links: args.dashboard_path_prefix.clone(),
        authorizer,
        models: Arc::new(models),
        tenant_detail: settings.tenant_detail(),
        // A token for the dashboard alone is none for the API server.
        objects: args.dashboard_audience.is_empty().then(|| shared.clients.user.clone()),
        retiring: shared.stop.acting.clone(),
    })
}

/// Makes pages from the published state.
struct PublishedState {
    published: Arc<ArcSwap<Snapshot>>,
    watches: WatchStatuses,
    leader: Arc<dyn AnswerQuestions>,
    /// Answers of the leader.
    answers: SharedAnswers<LeaderAnswer>,
    audits: Arc<AuditCache>,
    estimates: Arc<Estimates>,
    history: PageHistory,
    capacity: CapacityCache,
    what_ifs: WhatIfAnswers,
    replica: String,
    lease: Arc<LeaseFollower>,
}

impl PublishedState {
    fn source(&self, snapshot: &Snapshot) -> Source {
        let time = match self.freshness() {
            Freshness::SilentSince(time) => time,
            // An unchanged state is not published again, so while the watches are not silent the last state is current.
            _ => Timestamp::now(),
        };
        Source {
            kind: SourceKind::Manager,
            replica: self.replica.clone(),
            role: Some(if snapshot.leading { Role::Leader } else { Role::Follower }),
            state_version: snapshot.version,
            time: Some(time),
        }
    }

    async fn value(
        &self,
        question: &PageQuestion,
        (access, user): (&Access, &str),
    ) -> Result<Value, NoValue> {
        let snapshot = self.published.load_full();
        match (self.model(question, (access, user), &snapshot).await, question) {
            (Ok(value), _) => Ok(value),
            (Err(ModelError::NotFound), PageQuestion::Job(job)) if access.sees(&job.namespace) => Err(self
                .without_workload(job)
                .await
                .unwrap_or_else(|| self.unanswered(ModelError::NotFound, question, (&snapshot, access)))),
            (Err(error), _) => Err(self.unanswered(error, question, (&snapshot, access))),
        }
    }

    /// Returns why a job has no Workload, if that is known.
    async fn without_workload(&self, job: &JobName) -> Option<NoValue> {
        let kind = job.kind.split('.').next().unwrap_or_default();
        let found = self.audits.why_no_workload(JobName { kind: kind.to_owned(), ..job.clone() }).await?;
        let text = build::without_workload((&job.namespace, kind, &job.name), &found);
        Some(NoValue::NotFound { text, similar: Vec::new() })
    }

    async fn model(
        &self,
        question: &PageQuestion,
        (access, user): (&Access, &str),
        snapshot: &Arc<Snapshot>,
    ) -> Result<Value, ModelError> {
        let source = self.source(snapshot);
        Ok(match question {
            PageQuestion::Overview(query) => {
                Value::page(self.overview((snapshot, access), (query, source)).await?)
            }
            PageQuestion::Audit(query) => {
                let audit = self.audits.get(snapshot, query.form(access)).await?;
                let found = (audit.checked_at, &*audit.findings);
                Value::page(build::audit_page(snapshot, access, (query, source), found)?)
            }
            PageQuestion::Flavors(query) => {
                let flavor = Some(query.flavor.as_str()).filter(|name| !name.is_empty());
                let report = self.capacity.get(flavors::question(flavor, &query.pod, "")?).await?;
                Value::page(build::flavor_page(snapshot, access, (query, source), &report)?)
            }
            PageQuestion::ClusterQueue(query) => {
                let mut page = build::cluster_queue_page(snapshot, access, (&query.name, source))?;
                page.trend = self.history.lines(Some(&query.name), access).await;
                Value::page(page)
            }
            PageQuestion::Job(job) => {
                let asked = (job.namespace.as_str(), job.kind.as_str(), job.name.as_str());
                let name = build::workload_of_job(snapshot, access, asked)?;
                let namespace = job.namespace.clone();
                Value::Redirect(Box::new(PageQuestion::Workload(WorkloadName { namespace, name })))
            }
            PageQuestion::Pending(query) => {
                Value::page(build::pending_page(snapshot, access, (query, source))?)
            }
            PageQuestion::Workloads(query) => {
                Value::page(build::workload_list_page(snapshot, access, (query, source))?)
            }
            PageQuestion::Preemptions(query) => {
                let mut page = self.history.preemptions(query, access).await?;
                page.now = build::victims_now(snapshot, access, &page.answer.view);
                Value::page(page)
            }
            PageQuestion::Usage(query) => Value::page(self.history.usage(query, access).await?),
            PageQuestion::Workload(name) => Value::page(self.workload(access, (name, None), snapshot).await?),
            PageQuestion::Before(query) => {
                let asked = (&query.workload, Some(&query.other));
                Value::page(self.workload(access, asked, snapshot).await?)
            }
            PageQuestion::When(query) => {
                let mut page = self.workload(access, (&query.workload, None), snapshot).await?;
                let verdict = page.answer.view.clone();
                let estimate = self.estimates.estimate(verdict, access.clone(), user.to_owned()).await;
                page.answer.view.estimate = Some(estimate);
                Value::page(page)
            }
            PageQuestion::Namespace(query) => {
                Value::page(build::namespace_page(snapshot, access, (&query.name, source))?)
            }
            PageQuestion::WhatIf(query) => {
                Value::page(self.what_if(query, (access, user), (snapshot, source)).await?)
            }
            PageQuestion::Mine(_) if !snapshot.workloads.reads_submitters() => {
                return Err(ModelError::Invalid(NO_SUBMITTERS.to_owned()));
            }
            PageQuestion::Mine(query) => {
                let mut page = build::mine_page(snapshot, access, (query, source))?;
                page.history = self.history.own(&query.user, access).await;
                Value::page(page)
            }
        })
    }

    /// Returns the page of a cohort, or the start page with the leader's decisions and writes and the charts of the last 24
    /// hours.
    async fn overview(
        &self,
        (snapshot, access): (&Arc<Snapshot>, &Access),
        (query, source): (&OverviewQuery, Source),
    ) -> Result<Overview, ModelError> {
        let audit = self.audits.get(snapshot, Form::of(access, None)).await?;
        let mut page = build::overview(snapshot, access, (query, source), &audit.findings)?;
        if query.cohort.is_empty() {
            if let Some(LeaderAnswer::Manager(answer)) = self.ask(questions::Question::Manager).await {
                page.manager = Some(answer.view);
            }
            page.trend = self.history.lines(None, access).await;
        }
        Ok(page)
    }

    /// Simulates a change, if the question names one.
    async fn what_if(
        &self,
        query: &WhatIfQuery,
        reader: (&Access, &str),
        (snapshot, source): (&Snapshot, Source),
    ) -> Result<WhatIfPage, ModelError> {
        let page = WhatIfPage { query: query.clone(), source, ..WhatIfPage::default() };
        if !query.has_change() {
            return Ok(page);
        }
        if !snapshot.synced {
            return Err(ModelError::NotSynced);
        }
        Ok(match self.what_ifs.what_if(query, reader).await {
            Ok(answer) => WhatIfPage { answer: Some(answer), ..page },
            Err(refused) => WhatIfPage { refused: format!("{refused}."), ..page },
        })
    }

    /// Returns an answer of the leader that is at most `ANSWER_TTL` old; `None` without an answer.
    async fn ask(&self, question: questions::Question) -> Option<LeaderAnswer> {
        let key = serde_json::to_string(&question).ok()?;
        let answer = async { self.leader.answer(question).await.ok_or(()) };
        self.answers.get(key, answer).await.ok()
    }

    /// Asks the leader for the verdict of a Workload, compared with another one if there is one. Without its answer the page shows the message of the condition.
    async fn workload(
        &self,
        access: &Access,
        (name, before): (&WorkloadName, Option<&WorkloadName>),
        snapshot: &Snapshot,
    ) -> Result<WorkloadPage, ModelError> {
        // Checked before the leader is asked, so that its answer cannot reveal whether an object exists.
        let row = workload(snapshot, access, &ObjectKey::new(&name.namespace, &name.name))?;
        let cohorts = build::cohorts_above(snapshot, access, &row.cluster_queue);
        let asked = VerdictQuestion {
            access: access.clone(),
            workload: name.clone(),
            before: before.cloned(),
            queue: None,
            priority: None,
        };
        let answer = match self.ask(questions::Question::Verdict(asked.clone())).await {
            Some(LeaderAnswer::Verdict(answer)) => answer,
            Some(LeaderAnswer::Refused(ModelError::NotFound)) => return Err(ModelError::NotFound),
            _ => {
                let view = verdict(snapshot, &asked, None)?;
                Box::new(Answer { view, source: self.source(snapshot), partial: true })
            }
        };
        Ok(WorkloadPage { answer: *answer, cohorts })
    }

    fn unanswered(
        &self,
        error: ModelError,
        question: &PageQuestion,
        (snapshot, access): (&Snapshot, &Access),
    ) -> NoValue {
        match error {
            ModelError::NotSynced => {
                let waits = self.watches.unsynced();
                let progress = if waits.is_empty() {
                    "The first lists are being processed.".to_owned()
                } else {
                    format!("This replica waits for the first lists of {}.", waits.join(", "))
                };
                NoValue::NotSynced { progress }
            }
            ModelError::NotFound => NoValue::NotFound {
                text: format!("There is no {}, or none that you may see.", question.page().object()),
                similar: build::similar(snapshot, access, question),
            },
            ModelError::Invalid(text) | ModelError::Expired(text) => NoValue::Invalid(text),
            ModelError::TooMany => NoValue::TooMany,
            ModelError::Unavailable => {
                NoValue::NotSynced { progress: "The leader does not answer at present.".to_owned() }
            }
        }
    }
}

impl Models for PublishedState {
    fn version(&self) -> (String, u64) {
        (self.replica.clone(), self.published.load().version)
    }

    fn freshness(&self) -> Freshness {
        let silence = self.watches.iter().filter(|(_, health)| health.synced() && !health.not_served());
        let silence = silence.map(|(_, health)| health.time_since_activity()).max().unwrap_or_default();
        if silence <= MAX_SILENCE {
            let is_leaderless = !self.published.load().leading && self.lease.is_leaderless();
            return if is_leaderless { Freshness::WithoutLeader } else { Freshness::Live };
        }
        let silence = jiff::SignedDuration::try_from(silence).unwrap_or_default();
        Freshness::SilentSince(Timestamp::now().checked_sub(silence).unwrap_or(Timestamp::UNIX_EPOCH))
    }

    fn reads_submitters(&self) -> bool {
        self.published.load().workloads.reads_submitters()
    }

    fn own_namespaces(&self, user: &str) -> Vec<String> {
        own_namespaces(&self.published.load(), user, MAX_OWN_NAMESPACES)
    }

    fn job_of(&self, workload: &ObjectKey) -> Option<(Kind, String)> {
        let snapshot = self.published.load();
        let owner = snapshot.workloads.get(workload)?.owner.as_ref()?;
        Some((Kind::from_group_kind(owner.group(), &owner.kind)?, owner.name.to_string()))
    }

    fn answer(&self, question: PageQuestion, access: Access, user: String) -> Answering<'_> {
        Box::pin(async move { self.value(&question, (&access, user.as_str())).await })
    }
}
