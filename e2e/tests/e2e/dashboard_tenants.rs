//! What two tenants of one ClusterQueue get from the dashboard and the command line: each address of the table in
//! `tests/dashboard/tenant_routes.rs`, in all forms and as a stream, each line of `tests/dashboard/tenant_lines.rs`, and no name of the
//! other tenant in any of them.

use crate::dashboard::{MARKS, TENANTS, UPDATE, check_headers, expect, wait_for_workload};
use crate::tenant_lines::{LineOutcome, TENANT_LINES};
use crate::tenant_routes::{TENANT_ROUTES, TenantAnswer, TenantNames};
use anyhow::{Context as _, Result, ensure};
use sluice_e2e::binaries::{self, Build};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::dashboard::{Page, Viewer};
use sluice_e2e::objects::{self, Kind, ObjectClient, text};
use sluice_e2e::wait::eventually;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Exit status of a command that printed its answer without the parts that the user may not see.
const PARTIAL: i32 = 3;
/// Exit status of `timeout` for a command that it has ended.
const ENDED: i32 = 124;
/// Seconds after which a command that repeats its output is ended.
const REPEATED_SECONDS: &str = "5";

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

/// The objects of a tenant that tests ask for, and of the other one.
struct Found {
    own: usize,
    other: usize,
    workload: String,
    job: String,
    local_queue: String,
    other_workload: String,
    other_job: String,
}

impl Found {
    async fn read(objects: &ObjectClient, (own, other): (usize, usize)) -> Result<Self> {
        Ok(Self {
            own,
            other,
            workload: wait_for_workload(objects, own, waiting(own), "").await?,
            job: waiting_job(own),
            local_queue: format!("{}-queue", MARKS[own]),
            other_workload: wait_for_workload(objects, other, waiting(other), "").await?,
            other_job: waiting_job(other),
        })
    }

    fn names<'a>(&'a self, [cluster_queue, flavor, priority_class]: &'a [String; 3]) -> TenantNames<'a> {
        TenantNames {
            namespace: TENANTS[self.own],
            workload: &self.workload,
            job: &self.job,
            local_queue: &self.local_queue,
            other_namespace: TENANTS[self.other],
            other_workload: &self.other_workload,
            other_job: &self.other_job,
            cluster_queue,
            flavor,
            priority_class,
        }
    }

    fn hidden(&self) -> Other<'_> {
        Other { mark: MARKS[self.other], asked: [&self.other_workload, &self.other_job, TENANTS[self.other]] }
    }
}

/// A tenant sees the pages of its namespace, and is refused all others. No name of the other tenant is anywhere. `shared` are the names
/// of the ClusterQueue, of the flavor and of a priority class, above those of all workloads, that both use.
pub(crate) async fn tenant_sees_its_own(
    objects: &ObjectClient,
    viewer: &Viewer,
    (own, other): (usize, usize),
    shared: &[String; 3],
) -> Result<()> {
    let found = Found::read(objects, (own, other)).await?;
    let (names, hidden) = (found.names(shared), found.hidden());
    let namespace = names.namespace;
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

/// A user that may change the jobs of a tenant's namespace runs each line of the table: output has names of that tenant alone, and an error
/// no more of the other one than was asked for. `shared` as above.
pub(crate) async fn tenant_commands_are_bounded(
    cluster: &Cluster,
    (own, other): (usize, usize),
    shared: &[String; 3],
) -> Result<()> {
    let found = Found::read(&cluster.objects, (own, other)).await?;
    let (names, hidden, mark) = (found.names(shared), found.hidden(), MARKS[own]);
    let spare = objects::local_queue(names.namespace, &format!("{}-spare", names.local_queue), &shared[0]);
    cluster.objects.create(Kind::LOCAL_QUEUE, &spare).await?;
    let terminal = Terminal::of_editor(cluster, mark, names.namespace)?;
    // The controller that aggregates roles may be later.
    let own_list = format!("list workload -n {}", names.namespace);
    for (line, shown) in [(own_list.as_str(), mark), ("list priorityclass", shared[2].as_str())] {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        eventually(format!("{mark} may {line}"), async || {
            let printed = terminal.run(&words, false)?;
            ensure!(printed.code == Some(0) && printed.output.contains(shown), "{printed:?}");
            Ok(())
        })
        .await?;
    }
    for line in TENANT_LINES {
        let words = line.words(&names);
        let printed = terminal.run(&words, line.outcome == LineOutcome::Repeated)?;
        let what = format!("sluice {} of {mark}", words.join(" "));
        let is_answer = [Some(0), Some(PARTIAL)].contains(&printed.code);
        let is_named = printed.output.contains(mark);
        let is_expected = match line.outcome {
            LineOutcome::Named => is_answer && is_named,
            LineOutcome::Answered => is_answer,
            LineOutcome::Repeated => printed.code == Some(ENDED) && is_named,
            LineOutcome::Refused(says) => {
                !is_answer && printed.output.is_empty() && printed.errors.contains(says)
            }
        };
        ensure!(is_expected, "{what} is not {:?}: {printed:?}", line.outcome);
        let all = format!("{}{}", printed.output, printed.errors);
        match line.outcome {
            LineOutcome::Refused(_) => hidden.is_only_repeated(&what, &all)?,
            _ => hidden.is_absent(&what, &all)?,
        }
    }
    Ok(())
}

/// A user at a terminal.
struct Terminal {
    user: String,
    program: PathBuf,
    kubeconfig: PathBuf,
    /// Where programs are searched: the folder of kubectl, to which some verbs lead, is first.
    search_path: OsString,
}

/// What a command printed.
#[derive(Debug)]
struct Printed {
    code: Option<i32>,
    output: String,
    errors: String,
}

impl Terminal {
    /// Makes a user that may change the jobs of a namespace and read WorkloadPriorityClasses.
    fn of_editor(cluster: &Cluster, mark: &str, namespace: &str) -> Result<Self> {
        let user = format!("{mark}-editor");
        let subject = format!("--user={user}");
        let kubectl = &cluster.kubectl;
        kubectl.run(&["create", "rolebinding", &user, "--clusterrole=edit", "-n", namespace, &subject])?;
        let role = "--clusterrole=kueue-workloadpriorityclass-viewer-role";
        kubectl.run(&["create", "clusterrolebinding", &user, role, &subject])?;
        let kubectl = std::path::absolute(cluster.plane.binaries.path("kubectl"))?;
        let folder = kubectl.parent().context("a folder of kubectl")?;
        Ok(Self {
            user,
            program: binaries::sluice(Build::Dev)?,
            kubeconfig: cluster.plane.admin_kubeconfig(),
            search_path: binaries::search_path(folder),
        })
    }

    /// Runs the program; one that repeats its output is ended.
    fn run(&self, words: &[String], repeats: bool) -> Result<Printed> {
        let mut command = if repeats {
            let mut command = Command::new("timeout");
            command.arg(REPEATED_SECONDS).arg(&self.program);
            command
        } else {
            Command::new(&self.program)
        };
        command.args(words).args(["--as", &self.user]).stdin(Stdio::null());
        // `edit` prints what it would open, and cancels because nothing has changed.
        command.env("KUBECONFIG", &self.kubeconfig).env("PATH", &self.search_path).env("KUBE_EDITOR", "cat");
        let output = command.output().with_context(|| format!("cannot run sluice {}", words.join(" ")))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Printed { code: output.status.code(), output: text(&output.stdout), errors: text(&output.stderr) })
    }
}
