//! The server of aggregated API groups, made of the parts of the manager.

use std::sync::Arc;

use super::core_queries::OwnCore;
use super::history_answers::{AskReplicas, HistoryAnswers, RecordSource};
use super::leader_questions::{LeaderLink, LocalAnswers, account_named, account_of, heard_until};
use super::run::ManagerContext;
use super::settings::ManagerSettings;
use crate::kube::leader_call::{LeaderCall, LeaderCallSettings};
use crate::metrics::model::Role;
use crate::server::apis::access::AccessReviewer;
use crate::server::apis::capacity::CapacityCache;
use crate::server::apis::front_proxy::FrontProxy;
use crate::server::apis::group::ApiGroup;
use crate::server::apis::questions::{PrivatePath, QUESTIONS_PATH, TokenReviewer};
use crate::server::apis::views::ViewsGroup;
use crate::server::apis::visibility::VisibilityGroup;
use crate::server::apis::{ApiServer, OnRequest};
use crate::server::simulations::Estimates;

/// Returns the server, and its settings of front proxies, which the caller must keep up to date with `FrontProxy::watch`.
pub(super) fn server(settings: &ManagerSettings, shared: &ManagerContext) -> (ApiServer, Arc<FrontProxy>) {
    let front_proxy = Arc::new(FrontProxy::default());
    let counters = Arc::clone(&shared.counters);
    let on_request: OnRequest = Arc::new(move |group, resource, status| {
        counters.count_visibility_request(group, resource, status.as_u16());
    });
    let access = AccessReviewer::new(&shared.clients.call);
    let published = || Arc::clone(&shared.core.published);
    let local = local_answers(settings, shared);
    let views = ViewsGroup {
        published: published(),
        access: access.clone(),
        leader: leader(settings, shared),
        rate: Arc::default(),
        audits: Arc::clone(&shared.core.audits),
        capacity: Arc::new(CapacityCache::new(Arc::new(OwnCore(shared.core.queries.clone())))),
        estimates: Some(Arc::<Estimates>::clone(&shared.core.estimates)),
        heard_until: Arc::new({
            let watches = shared.watch_statuses.clone();
            move || heard_until(&watches)
        }),
        replica: settings.replica(),
        tenant_detail: settings.tenant_detail(),
    };
    let groups: [Arc<dyn ApiGroup>; 2] = [Arc::new(VisibilityGroup::new(published())), Arc::new(views)];
    let server = ApiServer {
        groups: Arc::new(groups),
        front_proxy: Arc::clone(&front_proxy),
        access,
        on_request,
        private: private_path(settings, shared, local),
    };
    (server, front_proxy)
}

/// Returns the source of answers from the state of this process.
fn local_answers(settings: &ManagerSettings, shared: &ManagerContext) -> LocalAnswers {
    LocalAnswers {
        queries: shared.core.queries.clone(),
        published: Arc::clone(&shared.core.published),
        replica: settings.replica(),
        holder: Arc::clone(&shared.leadership.holder),
        elects: shared.leadership.role != Role::Standalone,
        unknown_gates: settings.unknown_gates.clone(),
        watches: shared.watch_statuses.clone(),
        recent: Arc::clone(&shared.core.recent),
        audits: Arc::clone(&shared.core.audits),
        history: history(settings, shared),
    }
}

/// Returns the source of answers from the history.
pub(super) fn history(settings: &ManagerSettings, shared: &ManagerContext) -> HistoryAnswers {
    HistoryAnswers {
        shared: Arc::clone(&shared.core.history),
        queries: shared.core.queries.clone(),
        published: Arc::clone(&shared.core.published),
        replica: settings.replica(),
        holder: Arc::clone(&shared.leadership.holder),
        call: leader_call(settings, shared).map(|call| -> Arc<dyn AskReplicas> { Arc::new(call) }),
        record: record_source(settings, shared),
    }
}

/// Returns the source of answers that only the leader has.
pub(super) fn leader(settings: &ManagerSettings, shared: &ManagerContext) -> Arc<LeaderLink> {
    Arc::new(LeaderLink { local: local_answers(settings, shared), remote: leader_call(settings, shared) })
}

/// Returns the location of the durable record.
fn record_source(settings: &ManagerSettings, shared: &ManagerContext) -> RecordSource {
    let args = &settings.args.record;
    if args.history_record.is_some() {
        RecordSource::Own(Arc::clone(&shared.core.recording))
    } else if args.history_address.is_empty() {
        RecordSource::None
    } else {
        let service = args.history_service.as_ref().unwrap_or(&settings.args.visibility_service);
        let call = call_of_service(service, settings, shared);
        RecordSource::At(args.history_address.clone(), Arc::new(Arc::new(call)))
    }
}

/// Returns the client of the leader; `None` without an election, because this process leads.
fn leader_call(settings: &ManagerSettings, shared: &ManagerContext) -> Option<Arc<LeaderCall>> {
    (shared.leadership.role != Role::Standalone).then(|| Arc::new(replica_call(settings, shared)))
}

/// Returns the client of the other replicas.
pub(super) fn replica_call(settings: &ManagerSettings, shared: &ManagerContext) -> LeaderCall {
    call_of_service(&settings.args.visibility_service, settings, shared)
}

/// Returns the client of a process of this installation whose certificate has the name of a Service.
fn call_of_service(service: &str, settings: &ManagerSettings, shared: &ManagerContext) -> LeaderCall {
    let call = LeaderCallSettings {
        server_name: format!("{service}.{}.svc", settings.namespace),
        validating: settings.args.validating_webhook_configuration.clone(),
        token_file: settings.args.leader_token.clone(),
        path: QUESTIONS_PATH,
    };
    LeaderCall::new(&shared.clients.call, call, Arc::clone(&shared.leadership.holder))
}

/// Returns the path for other processes of this installation; `None` if no account may use it.
fn private_path(
    settings: &ManagerSettings,
    shared: &ManagerContext,
    local: LocalAnswers,
) -> Option<Arc<PrivatePath>> {
    let callers = settings.args.leader_caller.iter();
    let mut accounts: Vec<String> = callers.map(|name| account_named(name, &settings.namespace)).collect();
    // A pod without a token cannot ask the leader.
    accounts.extend(
        std::fs::read_to_string(&settings.args.leader_token).ok().and_then(|token| account_of(&token)),
    );
    let published = Arc::clone(&shared.core.published);
    (!accounts.is_empty()).then(|| {
        Arc::new(PrivatePath {
            reviewer: TokenReviewer::new(&shared.clients.call, accounts),
            leads: Arc::new(move || published.load().leading),
            local: Arc::new(local),
        })
    })
}
