//! The group `visibility.sluice.dev`: views of workloads and queues for users, and why a workload waits.
//!
//! Invariants: a view is built with the access of the requesting user; the memory of an answer is bounded by its page; the
//! leader is asked for what only it knows, and the answer is `partial` if it cannot be asked.

mod audit;
mod body;
mod flavors;
mod history;
mod queries;
mod schemas;
mod verdict;

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::response::Response;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};

pub use self::audit::{AskAudit, AuditCache};
pub use self::body::{HeardUntil, source_of};
use self::body::{Typed, send};
use self::verdict::VERDICT;
use super::access::{AccessError, AccessReviewer};
use super::capacity::CapacityCache;
use super::estimates::AskEstimate;
use super::group::{
    ApiGroup, GroupDescription, QueryOption, ResourceDescription, ResourcePath, ResourceRequest,
};
use super::negotiation::Format;
use super::question_rate::QuestionRate;
use super::questions::AnswerQuestions;
use super::status;
use crate::api::ObjectKey;
use crate::api::visibility as names;
use crate::snapshot::{JobName, NoWorkload, Snapshot};
use crate::visibility::access::{Access, TenantDetail};
use crate::visibility::page::{ModelError, PageQuery};
use crate::visibility::questions::{LeaderAnswer, Question};
use crate::visibility::queue_views;
use crate::visibility::table::{IncludeObject, TableRow, column_definitions};
use crate::visibility::views::{Answer, ListMetadata, Source, ViewList, WithoutWorkload, WorkloadView};
use crate::visibility::workloads::{Rowset, WorkloadQuery, with_rows_left, workload, workloads};

const READ: &[&str] = &["get", "list"];
const LIMIT: QueryOption = QueryOption {
    name: "limit",
    kind: "integer",
    description: "most rows of a page; at most 500, the default",
};
const CONTINUE: QueryOption =
    QueryOption { name: "continue", kind: "string", description: "the token of the page before" };
const PAGE: &[QueryOption] = &[LIMIT, CONTINUE];
const SELECTED_PAGE: &[QueryOption] = &[
    LIMIT,
    CONTINUE,
    QueryOption { name: "labelSelector", kind: "string", description: "labels of the Workloads" },
    QueryOption {
        name: "fieldSelector",
        kind: "string",
        description: "clusterQueue, localQueue, status, reason, priority, job, metadata.name or metadata.namespace; several values of a field have | between them; mine=true: what the user submitted",
    },
];

const fn resource(plural: &'static str, singular: &'static str, kind: &'static str) -> ResourceDescription {
    ResourceDescription {
        plural,
        singular,
        kind,
        short_names: &[],
        namespaced: false,
        verbs: READ,
        options: PAGE,
        description: "",
        subresources: &[],
    }
}

/// Description of the group.
pub static GROUP: GroupDescription = GroupDescription {
    name: names::VIEWS_GROUP,
    versions: &[names::VIEWS_VERSION],
    resources: &[
        ResourceDescription {
            short_names: &["wlv"],
            namespaced: true,
            options: SELECTED_PAGE,
            description: "Workloads with state, position, reason, need and first blocker.",
            subresources: &[VERDICT],
            ..resource("workloadviews", "workloadview", "WorkloadView")
        },
        ResourceDescription {
            short_names: &["lqv"],
            namespaced: true,
            description: "LocalQueues with own usage, counts, and what they may use.",
            subresources: &[flavors::QUEUE_CAPACITY],
            ..resource("localqueueviews", "localqueueview", "LocalQueueView")
        },
        ResourceDescription {
            short_names: &["cqv"],
            description: "ClusterQueues with quota, usage, share and counts.",
            ..resource(CLUSTER_QUEUES, "clusterqueueview", "ClusterQueueView")
        },
        ResourceDescription {
            short_names: &["cov"],
            description: "Cohorts with the quota, usage and counts of their subtrees.",
            ..resource("cohortviews", "cohortview", "CohortView")
        },
        ResourceDescription {
            short_names: &["flv"],
            options: flavors::CAPACITY,
            description: "ResourceFlavors with nodes, quota, usage, and the most pods that fit.",
            ..resource("flavorviews", "flavorview", "FlavorView")
        },
        ResourceDescription {
            namespaced: true,
            verbs: &["list"],
            description: "What cannot work as it is configured, of the objects of a namespace.",
            ..resource("findings", "finding", "Finding")
        },
        ResourceDescription {
            verbs: &["list"],
            description: "What cannot work as it is configured.",
            ..resource("clusterfindings", "clusterfinding", "Finding")
        },
        history::PREEMPTIONS,
        history::USAGE,
        history::CLUSTER_USAGE,
        history::RECORDS,
        history::CLUSTER_RECORDS,
        history::PURGES,
        ResourceDescription {
            description: "The leading replica of the manager: its writes, watches and conditions.",
            ..resource("managerviews", "managerview", "ManagerView")
        },
    ],
    schemas: schemas::schemas,
    schema_prefix: "dev.sluice.visibility",
};
/// A user that may list these may see the cluster.
const CLUSTER_QUEUES: &str = "clusterqueueviews";

/// Answers from the published snapshot and, where that is not enough, from the leader.
pub struct ViewsGroup {
    /// The published snapshot.
    pub published: Arc<ArcSwap<Snapshot>>,
    /// Authorizes users.
    pub access: AccessReviewer,
    /// Asks the leader.
    pub leader: Arc<dyn AnswerQuestions>,
    /// How often users may ask the leader.
    pub rate: Arc<QuestionRate>,
    /// The findings of the last minute.
    pub audits: Arc<AuditCache>,
    /// Capacity of flavors of the last seconds.
    pub capacity: Arc<CapacityCache>,
    /// Computes when workloads may be admitted; `None` where the caller computes it.
    pub estimates: Option<Arc<dyn AskEstimate>>,
    /// Time up to which this replica has received all changes.
    pub heard_until: HeardUntil,
    /// Name of this replica.
    pub replica: String,
    /// Details of shared queues that readers of a namespace may see.
    pub tenant_detail: TenantDetail,
}

impl ApiGroup for ViewsGroup {
    fn description(&self) -> &'static GroupDescription {
        &GROUP
    }

    fn answer(&self, request: ResourceRequest) -> BoxFuture<'static, Response> {
        let asked = Asked {
            snapshot: self.published.load_full(),
            reviewer: self.access.clone(),
            leader: Arc::clone(&self.leader),
            rate: Arc::clone(&self.rate),
            audits: Arc::clone(&self.audits),
            capacity: Arc::clone(&self.capacity),
            estimates: self.estimates.clone(),
            heard_until: (self.heard_until)(),
            replica: self.replica.clone(),
            tenant_detail: self.tenant_detail,
            request,
        };
        Box::pin(async move { asked.answer().await.unwrap_or_else(|refusal| *refusal) })
    }
}

/// A refusal as a response.
type Refused = Box<Response>;

/// A request, and the sources of its answer.
struct Asked {
    snapshot: Arc<Snapshot>,
    reviewer: AccessReviewer,
    leader: Arc<dyn AnswerQuestions>,
    rate: Arc<QuestionRate>,
    audits: Arc<AuditCache>,
    capacity: Arc<CapacityCache>,
    estimates: Option<Arc<dyn AskEstimate>>,
    heard_until: Option<Timestamp>,
    replica: String,
    tenant_detail: TenantDetail,
    request: ResourceRequest,
}

impl Asked {
    async fn answer(&self) -> Result<Response, Refused> {
        let target = &self.request.target;
        let is_list = target.name.is_empty();
        let access = self.access().await?;
        match (target.resource, target.subresource) {
            ("workloadviews", "") if is_list => {
                let (query, is_brief, is_counted) =
                    (self.workload_query()?, self.is_brief()?, self.is_counted()?);
                let rows = workloads(&self.snapshot, &access, &query);
                let (items, mut metadata) = rows.map_err(|error| self.refuse(&error))?;
                if is_counted {
                    metadata = with_rows_left(&self.snapshot, &access, &query, metadata);
                }
                let without_workload =
                    if items.is_empty() { self.without_workload(&query).await } else { None };
                let list = ViewList { without_workload, ..self.view_list(items, metadata) };
                if is_brief { Ok(self.send_brief(list)) } else { self.send_list(list) }
            }
            ("workloadviews", "") => self.one(workload(&self.snapshot, &access, &self.key())),
            ("workloadviews", _) => self.verdict(access).await,
            ("localqueueviews", _) if is_list => {
                let namespace = Some(target.namespace.as_str()).filter(|name| !name.is_empty());
                self.list(queue_views::local_queues(&self.snapshot, &access, (namespace, &self.page()?)))
            }
            ("localqueueviews", "capacity") => self.queue_capacity(&access).await,
            ("localqueueviews", _) => {
                self.one(queue_views::local_queue(&self.snapshot, &access, &self.key()))
            }
            (CLUSTER_QUEUES, _) if is_list => {
                self.list(queue_views::cluster_queues(&self.snapshot, &access, &self.page()?))
            }
            (CLUSTER_QUEUES, _) => {
                self.one(queue_views::cluster_queue(&self.snapshot, &access, &target.name))
            }
            ("findings" | "clusterfindings", _) => self.findings(&access).await,
            ("flavorviews", _) => self.flavors(&access).await,
            ("managerviews", _) => self.manager().await,
            ("preemptions", _) => self.preemptions(access).await,
            ("usagereports" | "clusterusagereports", _) => self.usage(access).await,
            ("usagerecords" | "clusterusagerecords", _) => self.usage_records(access).await,
            ("historypurges", _) => self.purge(access).await,
            _ if is_list => self.list(queue_views::cohorts(&self.snapshot, &access, &self.page()?)),
            _ => self.one(queue_views::cohort(&self.snapshot, &access, &target.name)),
        }
    }

    /// Returns the access of the user: the namespace, or all namespaces, for which this request was reviewed, and the cluster
    /// if the user may list ClusterQueues.
    async fn access(&self) -> Result<Access, Refused> {
        let target = &self.request.target;
        let resource = GROUP.resources.iter().find(|resource| resource.plural == target.resource);
        if resource.is_some_and(|resource| !resource.namespaced) {
            return Ok(Access { tenant_detail: self.tenant_detail, ..Access::everything() });
        }
        let cluster = ResourcePath {
            resource: CLUSTER_QUEUES,
            subresource: "",
            namespace: String::new(),
            name: String::new(),
            ..target.clone()
        };
        let sees_cluster = match self.reviewer.allows(&self.request.user, "list", &cluster).await {
            Ok(allowed) => allowed,
            Err(AccessError::TooManyWaiting) => {
                return Err(Box::new(status::too_many("too many requests at once")));
            }
            Err(AccessError::Call(error)) => {
                tracing::warn!(%error, "access review of a user of the visibility API failed");
                return Err(Box::new(status::unavailable("the access review failed")));
            }
        };
        Ok(Access {
            cluster: sees_cluster,
            all_namespaces: target.namespace.is_empty(),
            ..Access::to_namespace(&target.namespace, self.tenant_detail)
        })
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.request.target.namespace, &self.request.target.name)
    }

    fn page(&self) -> Result<PageQuery, Refused> {
        let (limit, token) = (self.request.option("limit"), self.request.option("continue"));
        let page = PageQuery::parse(limit.as_deref(), token.as_deref());
        let is_selective = self.request.target.resource == "workloadviews";
        let given = |option: &&str| self.request.option(option).is_some_and(|text| !text.is_empty());
        if let Some(option) =
            ["labelSelector", "fieldSelector"].iter().find(|option| !is_selective && given(option))
        {
            let message =
                format!("{option}: {} cannot be selected; list all of them", self.request.target.resource);
            return Err(Box::new(status::bad_request(&message)));
        }
        page.map_err(|error| Box::new(status::bad_request(&error)))
    }

    /// Answers with the state of the leader as far as it is known.
    async fn manager(&self) -> Result<Response, Refused> {
        if !self.rate.admits(&self.request.user.name) {
            return Err(self.refuse(&ModelError::TooMany));
        }
        let Some(LeaderAnswer::Manager(answer)) = self.leader.answer(Question::Manager).await else {
            return Err(self.refuse(&ModelError::Unavailable));
        };
        let name = &self.request.target.name;
        if name.is_empty() {
            return self.send_list(self.view_list(vec![answer.view], ListMetadata::default()));
        }
        if *name != answer.view.metadata.name {
            return Err(self.refuse(&ModelError::NotFound));
        }
        self.send_one(*answer)
    }

    fn source(&self) -> Source {
        source_of(&self.snapshot, &self.replica, self.heard_until)
    }

    #[expect(clippy::unnecessary_box_returns, reason = "refusals are boxed in results, which are small then")]
    fn refuse(&self, error: &ModelError) -> Refused {
        let target = &self.request.target;
        Box::new(match error {
            ModelError::NotSynced => status::unavailable("the first lists of objects are not complete yet"),
            ModelError::NotFound => status::not_found(target, target.resource),
            ModelError::Invalid(message) => status::bad_request(message),
            ModelError::TooMany => status::too_many("too many questions at once"),
            ModelError::Unavailable => status::unavailable("the leader does not answer"),
            ModelError::Expired(message) => status::gone(message),
        })
    }

    fn kind(&self) -> &'static str {
        let target = &self.request.target;
        let resource = GROUP.resources.iter().find(|resource| resource.plural == target.resource);
        let part =
            resource.and_then(|resource| resource.subresources.iter().find(|p| p.name == target.subresource));
        part.map(|part| part.kind).or(resource.map(|resource| resource.kind)).unwrap_or_default()
    }

    fn include(&self) -> Result<IncludeObject, Refused> {
        let include = IncludeObject::parse(self.request.option("includeObject").as_deref());
        include.map_err(|error| Box::new(status::bad_request(&error)))
    }

    fn one<T: TableRow>(&self, view: Result<T, ModelError>) -> Result<Response, Refused> {
        let view = view.map_err(|error| self.refuse(&error))?;
        self.send_one(Answer { view, source: self.source(), partial: self.may_differ() })
    }

    /// Whether positions may differ from the leader's: only the leader knows all past usage by which LocalQueues are ordered.
    fn may_differ(&self) -> bool {
        let has_positions = self.request.target.resource == "workloadviews";
        has_positions && !self.snapshot.leading && self.snapshot.facts.orders_by_past_usage
    }

    fn send_one<T: TableRow>(&self, answer: Answer<T>) -> Result<Response, Refused> {
        if self.request.format == Format::Table {
            return Ok(self.table(&[answer.view], &json!({}), self.include()?));
        }
        Ok(send(&self.typed(self.kind().to_owned(), answer)))
    }

    fn list<T: TableRow>(&self, rows: Result<Rowset<T>, ModelError>) -> Result<Response, Refused> {
        let (items, metadata) = rows.map_err(|error| self.refuse(&error))?;
        self.send_list(self.view_list(items, metadata))
    }

    /// Returns why the job of the query has no Workload, if the query names one job and the reason is known.
    async fn without_workload(&self, query: &WorkloadQuery) -> Option<WithoutWorkload> {
        let ((kind, name), namespace) = (query.selector.job()?, query.namespace.clone()?);
        let job = JobName { namespace, kind: kind.to_owned(), name: name.to_owned() };
        let NoWorkload { reason, message } = self.audits.why_no_workload(job).await?;
        Some(WithoutWorkload { reason, message })
    }

    fn view_list<T>(&self, items: Vec<T>, metadata: ListMetadata) -> ViewList<T> {
        let (source, partial) = (self.source(), self.may_differ());
        ViewList { metadata, items, source, partial, checked_at: None, without_workload: None }
    }

    fn send_list<T: TableRow>(&self, list: ViewList<T>) -> Result<Response, Refused> {
        if self.request.format == Format::Table {
            return Ok(self.table(&list.items, &json!(list.metadata), self.include()?));
        }
        let kind = self.kind();
        let items = list.items.into_iter().map(|item| self.typed(kind.to_owned(), item)).collect();
        let ViewList { metadata, source, partial, checked_at, without_workload, .. } = list;
        let list = ViewList { metadata, items, source, partial, checked_at, without_workload };
        Ok(send(&self.typed(format!("{kind}List"), list)))
    }

    /// Sends rows with what a table shows. As in lists of built-in kinds, the list alone says their type.
    fn send_brief(&self, list: ViewList<WorkloadView>) -> Response {
        let items = list.items.into_iter().map(WorkloadView::brief).collect();
        send(&self.typed(format!("{}List", self.kind()), ViewList { items, ..list }))
    }

    fn typed<T>(&self, kind: String, object: T) -> Typed<T> {
        Typed { api_version: self.api_version(), kind, object }
    }

    fn table<T: TableRow>(&self, rows: &[T], metadata: &Value, include: IncludeObject) -> Response {
        let now = Timestamp::now();
        let row = |row: &T| {
            let mut value = row.to_row(include, now);
            if let Some(object) = value.get_mut("object").and_then(Value::as_object_mut)
                && include == IncludeObject::Object
            {
                object.insert("apiVersion".into(), self.api_version().into());
                object.insert("kind".into(), self.kind().into());
            }
            value
        };
        let rows: Vec<Value> = rows.iter().map(row).collect();
        send(&json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "columnDefinitions": column_definitions(T::COLUMNS), "rows": rows,
        }))
    }

    fn api_version(&self) -> String {
        format!("{}/{}", self.request.target.group, self.request.target.version)
    }
}
