//! Command lines as a user of one namespace runs them where two tenants share queues. A case on a real control plane runs each as both
//! tenants.
//!
//! Invariant: a verb that looks or acts without a row fails `tests/it/people/tenants.rs`, and so does one that answers about the
//! user's namespace and has no row about the other one.

use self::LineOutcome::{Answered, Named, Refused, Repeated};
use super::tenant_routes::TenantNames;

/// What a tenant gets for a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineOutcome {
    /// Output with names of the tenant.
    Named,
    /// Output, which may have no name.
    Answered,
    /// Output with names of the tenant, again and again until it is ended.
    Repeated,
    /// No output, and an error with this text.
    Refused(&'static str),
}

/// Words after the name of the program, with names in braces, and what a tenant gets for them. The user has the ClusterRole `edit` in its
/// namespace, and may read WorkloadPriorityClasses.
pub(crate) struct TenantLine {
    pub(crate) template: &'static str,
    pub(crate) outcome: LineOutcome,
}

impl TenantLine {
    /// Returns the words for a tenant.
    pub(crate) fn words(&self, names: &TenantNames<'_>) -> Vec<String> {
        names.put_into(self.template).split_whitespace().map(str::to_owned).collect()
    }
}

const fn row(template: &'static str, outcome: LineOutcome) -> TenantLine {
    TenantLine { template, outcome }
}

/// In errors about a missing right.
const FORBIDDEN: LineOutcome = Refused("forbidden");

/// All command lines. Those that change something are dry runs. `{lq}-spare` is a second LocalQueue of the tenant.
pub(crate) static TENANT_LINES: &[TenantLine] = &[
    row("list workload -n {own}", Named),
    row("list workload -n {own} --status all -o json --views", Named),
    row("list workload -n {other}", FORBIDDEN),
    row("list workload -A", FORBIDDEN),
    row("list localqueue -n {own}", Named),
    row("list localqueue -n {other}", FORBIDDEN),
    row("list clusterqueue", FORBIDDEN),
    row("list cohort", FORBIDDEN),
    row("list resourceflavor", FORBIDDEN),
    row("list topology", FORBIDDEN),
    row("list priorityclass", Answered),
    row("list pods --for job/{job} -n {own}", Answered),
    row("list pods --for job/{other_job} -n {other}", FORBIDDEN),
    row("list finding -n {own}", Answered),
    row("list finding -n {other}", FORBIDDEN),
    row("list preemption -n {own}", Answered),
    row("list preemption -n {other}", FORBIDDEN),
    row("describe workload {workload} -n {own}", Named),
    row("describe job {job} -n {own}", Named),
    row("describe localqueue {lq} -n {own}", Named),
    row("describe workload {other_workload} -n {other}", FORBIDDEN),
    row("describe clusterqueue {cq}", FORBIDDEN),
    row("why {workload} -n {own}", Named),
    row("why job/{job} -n {own} --all -o json", Named),
    row("why {workload} -n {own} --when", Named),
    row("why {workload} -n {own} --before {other}/{other_workload}", Refused("not found")),
    row("why {other_workload} -n {other}", FORBIDDEN),
    row("why job/{other_job} -n {other} --when", FORBIDDEN),
    row("tree job job/{job} -n {own}", Named),
    row("tree job job/{other_job} -n {other}", FORBIDDEN),
    row("tree cohort", FORBIDDEN),
    row("share", FORBIDDEN),
    row("share localqueue -n {own}", Answered),
    row("share localqueue -n {other}", FORBIDDEN),
    row("capacity", FORBIDDEN),
    row("capacity {flavor} --pod cpu=1", FORBIDDEN),
    row("capacity -q {lq} -n {own} --pod cpu=1", Answered),
    row("capacity -q {lq} -n {other} --pod cpu=1", FORBIDDEN),
    row("usage", FORBIDDEN),
    row("usage -n {own} --by localqueue", Answered),
    row("usage -n {other}", FORBIDDEN),
    row("audit", FORBIDDEN),
    row("audit -n {own}", Answered),
    row("audit -n {other}", FORBIDDEN),
    row("top -n {own}", Repeated),
    row("top -n {other}", FORBIDDEN),
    row("top -A", FORBIDDEN),
    row("status", FORBIDDEN),
    row("get workloads -n {own} -o yaml", Named),
    row("get localqueue {lq} -n {own} -o yaml", Named),
    row("get workloads -n {other}", FORBIDDEN),
    row("get clusterqueue {cq}", FORBIDDEN),
    row("create localqueue new -c {cq} -i -n {own} --dry-run=client -o yaml", Named),
    row("create localqueue new -c {cq} -n {own} --dry-run=server", FORBIDDEN),
    row("create localqueue new -c {cq} -i -n {other} --dry-run=server", FORBIDDEN),
    row("create clusterqueue new --nominal-quota {flavor}:cpu=1 --dry-run=server", FORBIDDEN),
    row("stop workload {workload} -n {own} --dry-run=client", Named),
    row("stop workload {workload} -n {own} --dry-run=server", FORBIDDEN),
    row("stop workload {other_workload} -n {other} --dry-run=server", FORBIDDEN),
    row("stop localqueue {lq} -n {own} --dry-run=server", FORBIDDEN),
    row("stop clusterqueue {cq} --dry-run=server", FORBIDDEN),
    row("resume workload {workload} -n {own} --dry-run=client", Named),
    row("resume workload {other_workload} -n {other} --dry-run=client", FORBIDDEN),
    row("move workload {workload} --to {lq}-spare -n {own} --dry-run=server", Named),
    row("move workload {other_workload} --to {lq} -n {other} --dry-run=server", FORBIDDEN),
    // With the highest priority it may preempt workloads of the other tenant, which the preview counts.
    row("reprioritize workload {workload} --class {class} -n {own} --dry-run=server", Named),
    row("reprioritize workload {other_workload} --class {class} -n {other} --dry-run=server", FORBIDDEN),
    row("delete workload {workload} -n {own} --dry-run=server", Named),
    row("delete workload --all -n {other} --dry-run=server", FORBIDDEN),
    row("edit job {job} -n {own}", Named),
    row("edit job {other_job} -n {other}", FORBIDDEN),
    row("patch job {job} -n {own} --type=json -p []", Named),
    row("patch job {other_job} -n {other} --type=json -p []", FORBIDDEN),
    row("history purge -n {own} --dry-run=server", FORBIDDEN),
    row("history purge -n {other} --dry-run=server", FORBIDDEN),
    // It simulates the whole cluster.
    row("what-if --delete job/{job} -n {own}", Refused("in the whole cluster, which what-if simulates")),
    row("what-if --drain h1", Refused("in the whole cluster, which what-if simulates")),
];
