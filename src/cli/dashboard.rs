//! The dashboard of a process: its flags, its routes, and the values of pages from the published state.
//!
//! Invariant: a page is made from this process's own state with the viewer's access; what only the leader knows is absent, and the
//! page says so.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use jiff::Timestamp;

use super::manager::ManagerContext;
use super::settings::ManagerSettings;
use super::visibility;
use crate::api::ObjectKey;
use crate::dashboard::{Freshness, Links, Question, build};
use crate::kube::watch_status::WatchStatuses;
use crate::server::apis::questions::AnswerQuestions;
use crate::server::dashboard::models::{Answering, Models, Unanswered, Value};
use crate::server::dashboard::{self, Settings};
use crate::server::user_authorizer::UserAuthorizer;
use crate::snapshot::Snapshot;
use crate::visibility::access::Access;
use crate::visibility::page::ModelError;
use crate::visibility::questions::{self, LeaderAnswer, VerdictQuestion, WorkloadName};
use crate::visibility::verdict::verdict;
use crate::visibility::views::{Answer, Role, Source, SourceKind};
use crate::visibility::workloads::workload;

/// Silence of a watch after which a page says that its data is old.
const MAX_SILENCE: Duration = Duration::from_mins(2);

/// Flags of the dashboard.
#[derive(Clone, Debug, clap::Args)]
#[expect(clippy::struct_field_names, reason = "fields are named as their flags")]
pub(super) struct DashboardArgs {
    /// Address of the dashboard; by default it is not served.
    #[arg(long, value_name = "ADDRESS", default_value = "")]
    pub(super) dashboard_bind_address: String,
    /// Path below which a proxy serves the dashboard, such as /sluice; the proxy passes it on.
    #[arg(long, value_name = "PATH", default_value = "/", value_parser = path_prefix)]
    pub(super) dashboard_path_prefix: Links,
    /// Audience for which tokens of users of the dashboard must be; empty for that of the API server.
    #[arg(long, value_name = "NAME", default_value = "sluice-dashboard")]
    pub(super) dashboard_audience: String,
}

fn path_prefix(text: &str) -> Result<Links, String> {
    Links::below(text)
}

/// Returns the routes of the dashboard.
pub(super) fn router(settings: &ManagerSettings, shared: &ManagerContext) -> Router {
    let args = &settings.args.dashboard;
    let authorizer = UserAuthorizer::new(&shared.clients.call, &args.dashboard_audience);
    let models = PublishedState {
        published: Arc::clone(&shared.core.published),
        watches: shared.watch_statuses.clone(),
        leader: visibility::leader(settings, shared),
        replica: settings.replica(),
    };
    dashboard::router(Settings {
        links: args.dashboard_path_prefix.clone(),
        authorizer,
        models: Arc::new(models),
        tenant_detail: settings.tenant_detail(),
        retiring: shared.stop.acting.clone(),
    })
}

/// Makes pages from the published state.
struct PublishedState {
    published: Arc<ArcSwap<Snapshot>>,
    watches: WatchStatuses,
    leader: Arc<dyn AnswerQuestions>,
    replica: String,
}

impl PublishedState {
    fn source(&self, snapshot: &Snapshot) -> Source {
        let time = match self.freshness() {
            Freshness::SilentSince(time) => time,
            // While nothing changes, nothing is published: the last state is that of now.
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

    fn value(&self, question: &Question, access: &Access) -> Result<Value, Unanswered> {
        let snapshot = self.published.load_full();
        let source = self.source(&snapshot);
        let found = match question {
            Question::Overview { .. } => {
                build::overview(&snapshot, access, (None, source)).map(|page| Value::Overview(Box::new(page)))
            }
            Question::Cohort { name, .. } => build::overview(&snapshot, access, (Some(name), source))
                .map(|page| Value::Overview(Box::new(page))),
            Question::ClusterQueue(name) => build::cluster_queue_page(&snapshot, access, (name, source))
                .map(|page| Value::ClusterQueue(Box::new(page))),
            Question::Job(namespace, kind, name) => {
                build::workload_of_job(&snapshot, access, (namespace, kind, name))
                    .map(|name| Value::Elsewhere(Question::Workload(namespace.clone(), name)))
            }
            Question::Pending(query) => build::pending_page(&snapshot, access, (query, source))
                .map(|page| Value::Pending(Box::new(page))),
            Question::Workload(..) => Err(ModelError::NotFound),
            Question::Namespace(name) => build::namespace_page(&snapshot, access, (name, source))
                .map(|page| Value::Namespace(Box::new(page))),
        };
        found.map_err(|error| self.unanswered(error, question, (&snapshot, access)))
    }

    /// Asks the leader why a Workload is where it is. Without its answer the page shows what the condition says.
    async fn verdict(
        &self,
        question: &Question,
        access: &Access,
        key: &ObjectKey,
    ) -> Result<Value, Unanswered> {
        let snapshot = self.published.load_full();
        let refused = |error| self.unanswered(error, question, (&snapshot, access));
        // Before the leader is asked, so that its answer says nothing about what exists.
        let row = workload(&snapshot, access, key).map_err(refused)?;
        let cohorts = build::cohorts_above(&snapshot, access, &row.cluster_queue);
        let asked = VerdictQuestion {
            access: access.clone(),
            workload: WorkloadName { namespace: key.namespace.to_string(), name: key.name.to_string() },
            before: None,
            queue: None,
        };
        let answer = match self.leader.answer(questions::Question::Verdict(asked.clone())).await {
            Some(LeaderAnswer::Verdict(answer)) => answer,
            Some(LeaderAnswer::Refused(ModelError::NotFound)) => return Err(refused(ModelError::NotFound)),
            _ => {
                let view = verdict(&snapshot, &asked, None).map_err(refused)?;
                Box::new(Answer { view, source: self.source(&snapshot), partial: true })
            }
        };
        Ok(Value::Workload(answer, cohorts))
    }

    fn unanswered(
        &self,
        error: ModelError,
        question: &Question,
        (snapshot, access): (&Snapshot, &Access),
    ) -> Unanswered {
        match error {
            ModelError::NotSynced => {
                let waits = self.watches.unsynced();
                let progress = if waits.is_empty() {
                    "The first lists are being processed.".to_owned()
                } else {
                    format!("This replica waits for the first lists of {}.", waits.join(", "))
                };
                Unanswered::NotSynced { progress }
            }
            ModelError::NotFound => Unanswered::NotFound {
                text: format!("There is no {}, or none that you may see.", question.subject()),
                similar: build::similar(snapshot, access, question),
            },
            ModelError::Invalid(text) => Unanswered::Invalid(text),
            ModelError::TooMany => Unanswered::TooMany,
            ModelError::Unavailable => {
                Unanswered::NotSynced { progress: "The leader does not answer at present.".to_owned() }
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
            return Freshness::Live;
        }
        let silence = jiff::SignedDuration::try_from(silence).unwrap_or_default();
        Freshness::SilentSince(Timestamp::now().checked_sub(silence).unwrap_or(Timestamp::UNIX_EPOCH))
    }

    fn answer(&self, question: Question, access: Access) -> Answering<'_> {
        Box::pin(async move {
            match &question {
                Question::Workload(namespace, name) => {
                    self.verdict(&question, &access, &ObjectKey::new(namespace, name)).await
                }
                _ => self.value(&question, &access),
            }
        })
    }
}
