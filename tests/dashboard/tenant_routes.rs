//! Addresses as a tenant asks for them where two tenants share queues: each page, each change of `/what-if`, and objects. Tests of the
//! server and on a real control plane read this table.
//!
//! Invariant: a page, a kind of object or a change without a row fails `tests/it/pages/tenants.rs`.

use self::TenantAnswer::{Denied, Forbidden, Listed, Moved, NotFound, Refused, Shown};

/// What a tenant gets for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TenantAnswer {
    /// A page that has names of the tenant in its JSON, too.
    Listed,
    /// A page.
    Shown,
    /// A page without an answer: such a change is for readers of the whole cluster, as the text says.
    Refused(&'static str),
    /// No page: the tenant, which may change its jobs alone, lacks this right to make the change itself.
    Denied(&'static str),
    /// No page: an object that it is compared with is not there, or may not be seen.
    NotFound,
    /// The way to another page of the tenant.
    Moved,
    /// This right is missing.
    Forbidden(&'static str),
}

/// An address with names in braces, and what a tenant gets for it.
pub(crate) struct TenantRoute {
    pub(crate) template: &'static str,
    pub(crate) answer: TenantAnswer,
}

/// The objects of a tenant, and of another one with which it shares a ClusterQueue and a flavor.
pub(crate) struct TenantNames<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) workload: &'a str,
    pub(crate) job: &'a str,
    pub(crate) local_queue: &'a str,
    pub(crate) other_namespace: &'a str,
    pub(crate) other_workload: &'a str,
    pub(crate) other_job: &'a str,
    pub(crate) cluster_queue: &'a str,
    pub(crate) flavor: &'a str,
    pub(crate) priority_class: &'a str,
}

impl TenantNames<'_> {
    /// Returns a text with the names in the place of their braces.
    pub(crate) fn put_into(&self, template: &str) -> String {
        let named = [
            ("{own}", self.namespace),
            ("{workload}", self.workload),
            ("{job}", self.job),
            ("{lq}", self.local_queue),
            ("{other}", self.other_namespace),
            ("{other_workload}", self.other_workload),
            ("{other_job}", self.other_job),
            ("{cq}", self.cluster_queue),
            ("{flavor}", self.flavor),
            ("{class}", self.priority_class),
        ];
        named.iter().fold(template.to_owned(), |text, (place, name)| text.replace(place, name))
    }
}

impl TenantRoute {
    /// Returns the address for a tenant.
    pub(crate) fn address(&self, names: &TenantNames<'_>) -> String {
        names.put_into(self.template)
    }
}

const fn row(template: &'static str, answer: TenantAnswer) -> TenantRoute {
    TenantRoute { template, answer }
}

const CLUSTER: TenantAnswer = Forbidden("list clusterqueueviews");
const NAMESPACE: TenantAnswer = Forbidden("list workloadviews");
const WHOLE: TenantAnswer =
    Refused("nodes, quotas and queues are changed only by readers of the whole cluster");
const NUMBER: TenantAnswer = Refused("a WorkloadPriorityClass is expected, not a number");

/// All addresses. The start page of a tenant is what it submitted.
pub(crate) static TENANT_ROUTES: [TenantRoute; 67] = [
    row("/namespaces/{own}", Listed),
    row("/pending?ns={own}", Listed),
    row("/pending?ns={own}&lq={lq}&sort=wait", Shown),
    row("/audit?ns={own}", Listed),
    row("/preemptions?ns={own}", Listed),
    row("/usage?ns={own}", Shown),
    row("/admitted?ns={own}", Shown),
    row("/finished?ns={own}", Shown),
    row("/flavors?ns={own}", Shown),
    row("/flavors/{flavor}?ns={own}&pod=cpu%3D1", Shown),
    row("/workloads/{own}/{workload}", Listed),
    row("/workloads/{own}/{workload}?when=1", Listed),
    row("/workloads/{own}/{workload}?before={other}%2F{other_workload}", NotFound),
    row("/mine", Listed),
    row("/mine?ns={own}", Listed),
    row("/objects/workloads/{own}/{workload}", Shown),
    row("/jobs/{own}/job/{job}", Moved),
    row("/", Moved),
    // Changes of jobs, which a tenant may make with its rights to them.
    row("/what-if?ns={own}", Shown),
    row("/what-if?ns={own}&priority=workload%2F{workload}%3D{class}", Shown),
    row("/what-if?ns={own}&priority=workload%2F{workload}%3D1000", NUMBER),
    row("/what-if?ns={own}&stop=job%2F{job}", Denied("patch workloads.kueue.x-k8s.io")),
    row("/what-if?ns={own}&delete=job%2F{job}", Shown),
    row("/what-if?ns={own}&queue={lq}&pods=2&pod=cpu%3D1&for=1h", Shown),
    row("/what-if?ns={own}&queue={lq}&pod=cpu%3D1&topology=any", Shown),
    // Changes of nodes, quotas and queues, which a tenant may not make.
    row("/what-if?ns={own}&add=2&like=h1", WHOLE),
    row("/what-if?ns={own}&drain=h1", WHOLE),
    row("/what-if?ns={own}&quota={cq}%3A{flavor}%3Acpu%3D9", WHOLE),
    row("/what-if?ns={own}&borrow={cq}%3A{flavor}%3Acpu%3D9", WHOLE),
    row("/what-if?ns={own}&lend={cq}%3A{flavor}%3Acpu%3D9", WHOLE),
    row("/what-if?ns={own}&stop=cq%2F{cq}", WHOLE),
    row("/what-if?ns={own}&stop=lq%2F{lq}", WHOLE),
    // Pages of the cluster.
    row("/?o=json", CLUSTER),
    row("/cohorts/any", CLUSTER),
    row("/clusterqueues/{cq}", CLUSTER),
    row("/pending", CLUSTER),
    row("/pending?cq={cq}", CLUSTER),
    row("/admitted", CLUSTER),
    row("/finished", CLUSTER),
    row("/flavors", CLUSTER),
    row("/flavors/{flavor}", CLUSTER),
    row("/preemptions", CLUSTER),
    row("/preemptions?by={cq}", CLUSTER),
    row("/usage", CLUSTER),
    row("/audit", CLUSTER),
    row("/what-if", CLUSTER),
    row("/what-if?add=2&like=h1", CLUSTER),
    row("/objects/clusterqueues/{cq}", CLUSTER),
    row("/objects/cohorts/any", CLUSTER),
    row("/objects/resourceflavors/{flavor}", CLUSTER),
    // Pages of the other tenant.
    row("/namespaces/{other}", NAMESPACE),
    row("/pending?ns={other}", NAMESPACE),
    row("/audit?ns={other}", NAMESPACE),
    row("/preemptions?ns={other}", NAMESPACE),
    row("/usage?ns={other}", NAMESPACE),
    row("/admitted?ns={other}", NAMESPACE),
    row("/finished?ns={other}", NAMESPACE),
    row("/flavors?ns={other}", NAMESPACE),
    row("/workloads/{other}/{other_workload}", NAMESPACE),
    row("/workloads/{other}/{other_workload}?when=1", NAMESPACE),
    row("/workloads/{other}/{other_workload}?before={own}%2F{workload}", NAMESPACE),
    row("/mine?ns={other}", NAMESPACE),
    row("/jobs/{other}/job/{other_job}", NAMESPACE),
    row("/what-if?ns={other}", NAMESPACE),
    row("/what-if?ns={other}&delete=job%2F{other_job}", NAMESPACE),
    row("/objects/workloads/{other}/{other_workload}", NAMESPACE),
    row("/flavors/{flavor}?ns={other}", NAMESPACE),
];
