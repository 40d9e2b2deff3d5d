//! What two tenants of one ClusterQueue get from the dashboard: each address of the table in `tests/dashboard/tenant_routes.rs`, in all
//! forms and as a stream, and no name of the other tenant in any of them.

use crate::dashboard::{MARKS, TENANTS, UPDATE, check_headers, expect, wait_for_workload};
use crate::tenant_routes::{TENANT_ROUTES, TenantAnswer, TenantNames};
use anyhow::{Context as _, Result, ensure};
use sluice_e2e::dashboard::{Page, Viewer};
use sluice_e2e::objects::{Kind, ObjectClient, text};
use sluice_e2e::wait::eventually;

/// A tenant whose names are in no answer, with what may be repeated because it was asked for.
struct Other<'a> {
    mark: &'a str,
    asked: [&'a str; 3],
}

impl Other<'_> {
    /// Fails if a text names the other tenant.
    fn is_absent(&self, what: &str, text: &str) -> Result<()> {
        ensure!(!text.contains(self.mark), "{what} names the other tenant: {text}");
        Ok(())
    }

    /// The same of an error, which may repeat what was asked for.
    fn is_only_repeated(&self, what: &str, text: &str) -> Result<()> {
        let rest = self.asked.iter().fold(text.to_owned(), |text, name| text.replace(name, ""));
        self.is_absent(what, &rest)
    }
}

/// A tenant sees the pages of its namespace, and is refused all others. No name of the other tenant is anywhere. The last argument has
/// the names of the ClusterQueue, of the flavor and of a priority class that both use.
pub(crate) async fn tenant_sees_its_own(
    objects: &ObjectClient,
    viewer: &Viewer,
    (own, other): (usize, usize),
    [cluster_queue, flavor, priority_class]: &[String; 3],
) -> Result<()> {
    let (namespace, job) = (TENANTS[own], waiting_job(own));
    let workload = wait_for_workload(objects, own, waiting(own), "").await?;
    let (other_job, local_queue) = (waiting_job(other), format!("{}-queue", MARKS[own]));
    let other_workload = wait_for_workload(objects, other, waiting(other), "").await?;
    let names = TenantNames {
        namespace,
        workload: &workload,
        job: &job,
        local_queue: &local_queue,
        other_namespace: TENANTS[other],
        other_workload: &other_workload,
        other_job: &other_job,
        cluster_queue,
        flavor,
        priority_class,
    };
    let hidden = Other { mark: MARKS[other], asked: [&other_workload, &other_job, TENANTS[other]] };
    let start = format!("/namespaces/{namespace}");
    eventually("the namespace is shown", async || expect(viewer, &start, 200).await.map(drop)).await?;
    for route in &TENANT_ROUTES {
        let address = route.address(&names);
        match route.answer {
            TenantAnswer::Listed => is_shown(viewer, &address, (MARKS[own], &hidden), true).await?,
            TenantAnswer::Shown => is_shown(viewer, &address, (MARKS[own], &hidden), false).await?,
            TenantAnswer::Refused(why) => {
                let page = answered(viewer, &address, 200).await?;
                ensure!(page.text.contains(why), "{address}: {}", page.text);
                hidden.is_absent(&address, &page.text)?;
            }
            TenantAnswer::Denied(right) => {
                let page = answered(viewer, &address, 403).await?;
                ensure!(page.text.contains(right), "{address} does not name {right:?}: {}", page.text);
                hidden.is_absent(&address, &page.text)?;
            }
            TenantAnswer::NotFound => {
                let page = answered(viewer, &address, 400).await?;
                ensure!(page.text.contains("not found"), "{address}: {}", page.text);
                hidden.is_only_repeated(&address, &page.text)?;
            }
            TenantAnswer::Moved => {
                let page = answered(viewer, &address, 303).await?;
                hidden.is_absent(&address, page.header("location"))?;
            }
            TenantAnswer::Forbidden(right) => is_forbidden(viewer, &address, (right, &hidden)).await?,
        }
    }
    for workload in objects.list(Kind::WORKLOAD, namespace, "").await? {
        let path = format!("/workloads/{namespace}/{}", text(&workload, "/metadata/name"));
        is_shown(viewer, &path, (MARKS[own], &hidden), true).await?;
    }
    answers_are_bounded(viewer, &names, &hidden).await
}

/// Name of a job of a tenant that waits, without the mark.
const fn waiting(tenant: usize) -> &'static str {
    if tenant == 0 { "waits" } else { "next" }
}

fn waiting_job(tenant: usize) -> String {
    format!("{}-{}", MARKS[tenant], waiting(tenant))
}

/// Fails unless an address is answered with this status. The rate of questions of a user is bounded: one that is too early is asked again.
async fn answered(viewer: &Viewer, address: &str, status: u16) -> Result<Page> {
    let page = eventually(format!("{address} is answered"), async || {
        let page = viewer.get(address).await?;
        ensure!(page.status != 429, "{address}: too many questions");
        Ok(page)
    })
    .await?;
    let start: String = page.text.chars().take(2_000).collect();
    ensure!(page.status == status, "{address}: {} instead of {status}: {start}", page.status);
    if status != 303 {
        check_headers(&page, address)?;
    }
    Ok(page)
}

/// Whether a page has a stream. What costs a simulation, and what is read with the token of the viewer, is made once.
fn is_live(address: &str) -> bool {
    !address.starts_with("/what-if") && !address.starts_with("/objects/")
}

/// Fails unless a page has names of the tenant, and none of the other one, in each form and in its stream.
async fn is_shown(
    viewer: &Viewer,
    address: &str,
    (mark, hidden): (&str, &Other<'_>),
    is_listed: bool,
) -> Result<()> {
    let join = if address.contains('?') { '&' } else { '?' };
    let page = answered(viewer, &format!("{address}{join}o=html"), 200).await?;
    ensure!(page.text.contains(mark), "{address} has no name of the tenant: {}", page.text);
    hidden.is_absent(address, &page.text)?;
    if address.starts_with("/objects/") {
        return Ok(());
    }
    let page = answered(viewer, &format!("{address}{join}o=json"), 200).await?;
    ensure!(!is_listed || page.text.contains(mark), "the JSON of {address}: {}", page.text);
    page.json().with_context(|| format!("the JSON of {address}"))?;
    hidden.is_absent(address, &page.text)?;
    let csv = viewer.get(&format!("{address}{join}o=csv")).await?;
    ensure!([200, 400, 429].contains(&csv.status), "the CSV of {address}: {}: {}", csv.status, csv.text);
    hidden.is_absent(address, &csv.text)?;
    if !is_live(address) {
        return has_no_stream(viewer, address, 400).await;
    }
    // A stream that this test has left may count for a moment.
    let opened = eventually(format!("{address} has a stream"), async || viewer.stream(address).await);
    let mut updates = opened.await?;
    let (event, data) = updates.next(UPDATE).await?;
    ensure!(event == "swap", "the stream of {address}: {event}: {data}");
    hidden.is_absent(&format!("the stream of {address}"), &data)
}

async fn has_no_stream(viewer: &Viewer, address: &str, status: u16) -> Result<()> {
    let path = format!("/events?page={}", sluice::dashboard::encode(address));
    let refused = viewer.send(&path, &[]).await?;
    ensure!(refused.status() == status, "a stream of {address}: {}", refused.status());
    Ok(())
}

/// Fails unless a page names the right that is missing. What was asked for may be repeated, nothing beside it.
async fn is_forbidden(viewer: &Viewer, address: &str, (right, hidden): (&str, &Other<'_>)) -> Result<()> {
    let page = answered(viewer, address, 403).await?;
    ensure!(page.text.contains(right), "{address} does not name the right {right:?}: {}", page.text);
    hidden.is_only_repeated(address, &page.text)?;
    has_no_stream(viewer, address, if address.starts_with("/objects/") { 400 } else { 403 }).await
}

/// The verdict counts what it does not name, a simulation has an answer for the tenant, and what does not exist is told like what may not
/// be seen.
async fn answers_are_bounded(viewer: &Viewer, names: &TenantNames<'_>, hidden: &Other<'_>) -> Result<()> {
    let (namespace, workload, class) = (names.namespace, names.workload, names.priority_class);
    let verdict =
        answered(viewer, &format!("/workloads/{namespace}/{workload}?o=json"), 200).await?.json()?;
    ensure!(verdict["source"]["role"] == "leader", "{verdict}");
    if namespace == TENANTS[0] {
        ensure!(verdict["ahead"]["hidden"].as_u64() > Some(0), "workloads ahead are not counted: {verdict}");
    }
    // With a higher priority it may preempt workloads of the other tenant, which the answer does not name.
    let path = format!("/what-if?ns={namespace}&priority=workload%2F{workload}%3D{class}&o=json");
    let simulated = answered(viewer, &path, 200).await?.json()?;
    ensure!(simulated["answer"]["workloads"].is_array(), "{path}: {simulated}");
    let missing = answered(viewer, &format!("/workloads/{namespace}/missing"), 404).await?;
    hidden.is_absent("what is missing", &missing.text)?;
    // Cohorts are of the cluster: a namespace does not learn which there are.
    let cohort = answered(viewer, &format!("/pending?ns={namespace}&cohort=any"), 404).await?;
    ensure!(cohort.text.contains("There is no Cohort any, or none that you may see."), "{}", cohort.text);
    Ok(())
}
