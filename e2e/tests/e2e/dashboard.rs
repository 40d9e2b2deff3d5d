//! The dashboard as a process of its own, beside a leader in another one: pages, streams, access, a leader that is gone.

use crate::cases::{NotRun, note};
use crate::dashboard_tenants::{tenant_commands_are_bounded, tenant_sees_its_own};
use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::dashboard::{Dashboard, MANAGER_FLAGS, Page, Viewer};
use sluice_e2e::objects::{self, Job, Kind, ObjectClient, text};
use sluice_e2e::wait::{eventually, within};
use std::time::{Duration, Instant};

/// Namespaces of two tenants. Their names, and those of all their objects, are found nowhere else.
pub(crate) const TENANTS: [&str; 2] = ["tenant-aster", "tenant-birch"];
/// A part of the names of all objects of each tenant.
pub(crate) const MARKS: [&str; 2] = ["aster", "birch"];
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// Annotation of jobs that names the submitter.
const SUBMITTER: &str = "example.com/user";
/// Number of tokens that are not valid.
const JUNK: usize = 300;
/// Most time from a change of an object to its update on an open page.
pub(crate) const UPDATE: Duration = Duration::from_secs(5);
/// Most time from the removal of a role to the end of what it allowed.
const REVOKED: Duration = Duration::from_mins(1);

/// A user of the cluster sees all pages; each of two tenants that share a ClusterQueue sees its own namespace and no name of the other, in
/// no form and on no command line; verdicts come from the leader in another process; streams bring changes; without a leader the pages
/// say so.
pub(crate) async fn is_a_process_of_its_own(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let mut settings = cluster.manager()?.settings().clone();
    settings.flags.extend(MANAGER_FLAGS.map(str::to_owned));
    settings.configuration["visibility"]["userLabel"] = json!(SUBMITTER);
    let (before, has_views) = cluster.replace_manager_with_views(settings).await?;
    let dashboard = Dashboard::start(cluster, "/").await?;
    let outcome = check(cluster, fixture, &dashboard, has_views).await;
    let log = std::fs::read_to_string(dashboard.process().log()).unwrap_or_default();
    dashboard.stop();
    outcome?;
    ensure!(!log.contains("eyJ"), "a token is in the log");
    if has_views {
        return cluster.start_manager_without_views(&before).await;
    }
    cluster.start_manager(&before).await?;
    Err(NotRun::because("command lines of tenants: this machine has no address but a loopback one"))
}

/// `has_views`: whether the API server serves the views, without which command lines are not run.
async fn check(
    cluster: &mut Cluster,
    fixture: &Fixture,
    dashboard: &Dashboard,
    has_views: bool,
) -> Result<()> {
    let address = dashboard.address.as_str();
    fill(cluster, fixture).await?;
    let ops = Viewer::account(cluster, address, ("ops", "sluice-cluster-viewer", ""))?;
    let mut tenants = Vec::new();
    for (tenant, mark) in TENANTS.into_iter().zip(MARKS) {
        let name = format!("{mark}-user");
        tenants.push(Viewer::account(cluster, address, (&name, "sluice-namespace-viewer", tenant))?);
        let (binding, user) = (format!("{mark}-jobs"), format!("--serviceaccount={tenant}:{name}"));
        let bind =
            ["create", "rolebinding", &binding, "--clusterrole=kueue-job-editor-role", "-n", tenant, &user];
        cluster.kubectl.run(&bind)?;
    }
    let [aster, birch] = &tenants[..] else { anyhow::bail!("two tenants") };
    anonymous_users_are_asked_to_sign_in(address).await?;
    ops_sees_all(&cluster.objects, fixture, &ops).await.context("the cluster view")?;
    let shared = ["shared", "any", "top"].map(|name| fixture.own_name(name));
    for (own, other, viewer) in [(0, 1, aster), (1, 0, birch)] {
        tenant_sees_its_own(&cluster.objects, viewer, (own, other), &shared).await.context(TENANTS[own])?;
    }
    if has_views {
        for both in [(0, 1), (1, 0)] {
            tenant_commands_are_bounded(cluster, both, &shared).await?;
        }
    }
    junk_delays_no_user(&ops).await?;
    changes_come(fixture, &ops).await?;
    rights_end(cluster, birch).await?;
    leader_goes(cluster, &ops).await
}

/// Two namespaces share a ClusterQueue: birch has a running and a waiting job of a higher priority, aster a preempted and a waiting one.
async fn fill(cluster: &Cluster, fixture: &Fixture) -> Result<()> {
    let spec = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    let queue = fixture.create_queue("shared", "", &[("cpu", "2", None)], spec).await?;
    let high = fixture.create_priority_class("high", 9).await?;
    fixture.create_priority_class("top", 1_000).await?;
    for (tenant, mark) in TENANTS.into_iter().zip(MARKS) {
        fixture.create_namespace(tenant, &json!({})).await?;
        let local = objects::local_queue(tenant, &format!("{mark}-queue"), &queue);
        cluster.objects.create(Kind::LOCAL_QUEUE, &local).await?;
    }
    let job = |tenant: usize, name: &str, cpu: &str| {
        let (mark, namespace) = (MARKS[tenant], TENANTS[tenant]);
        let user = format!("system:serviceaccount:{namespace}:{mark}-user");
        let job = Job::new(namespace, &format!("{mark}-{name}"), &format!("{mark}-queue"), &[("cpu", cpu)]);
        job.annotation(SUBMITTER, &user)
    };
    let submit = async |job: Job| cluster.objects.create(Kind::JOB, job.body()).await;
    submit(job(0, "victim", "2")).await?;
    wait_for_workload(&cluster.objects, 0, "victim", "Admitted").await?;
    submit(job(1, "winner", "2").priority(&high)).await?;
    wait_for_workload(&cluster.objects, 1, "winner", "Admitted").await?;
    submit(job(1, "next", "2").priority(&high)).await?;
    submit(job(0, "waits", "1")).await?;
    submit(job(0, "never", "5")).await?;
    for (tenant, name) in [(1, "next"), (0, "waits"), (0, "never"), (0, "victim")] {
        wait_for_workload(&cluster.objects, tenant, name, "").await?;
    }
    Ok(())
}

/// Waits until the Workload of a job has a condition, or is pending, and returns its name.
pub(crate) async fn wait_for_workload(
    objects: &ObjectClient,
    tenant: usize,
    job: &str,
    condition: &str,
) -> Result<String> {
    eventually(format!("{job} is {condition}"), async || {
        let all = objects.list(Kind::WORKLOAD, TENANTS[tenant], "").await?;
        let wanted = format!("{}-{job}", MARKS[tenant]);
        let owned = |w: &&Value| w["metadata"]["ownerReferences"][0]["name"] == wanted.as_str();
        let workload = all.iter().find(owned).with_context(|| format!("{wanted} has no Workload"))?;
        if condition.is_empty() {
            objects::expect_condition(workload, "QuotaReserved", "False", "")?;
        } else {
            ensure!(objects::condition_is_true(workload, condition), "{}", workload["status"]);
        }
        Ok(text(workload, "/metadata/name").to_owned())
    })
    .await
}

/// Every answer has the strict headers.
pub(crate) fn check_headers(page: &Page, path: &str) -> Result<()> {
    ensure!(page.header("content-security-policy") == POLICY, "{path}: {:?}", page.headers);
    ensure!(page.header("x-content-type-options") == "nosniff", "{path}: {:?}", page.headers);
    ensure!(page.header("referrer-policy") == "same-origin", "{path}: {:?}", page.headers);
    ensure!(page.header("cache-control") == "no-store", "{path}: {:?}", page.headers);
    ensure!(page.header("access-control-allow-origin").is_empty(), "{path}: {:?}", page.headers);
    Ok(())
}

async fn anonymous_users_are_asked_to_sign_in(address: &str) -> Result<()> {
    let anonymous = Viewer::new(address, "")?;
    for path in ["/", "/pending", "/clusterqueues/x", "/nothing", "/audit"] {
        let page = anonymous.get(path).await?;
        ensure!(page.status == 401 && page.text.contains("<h1>Sign in"), "{path}: {}", page.status);
        check_headers(&page, path)?;
        let page = anonymous.get(&format!("{path}?o=json")).await?;
        ensure!(page.status == 401 && page.json()?["reason"] == "Unauthorized", "{path}: {}", page.text);
    }
    ensure!(anonymous.get("/healthz").await?.status == 200, "the probe needs a token");
    Ok(())
}

/// Fails unless a page is answered with this status; returns it.
pub(crate) async fn expect(viewer: &Viewer, path: &str, status: u16) -> Result<Page> {
    let page = viewer.get(path).await?;
    let start: String = page.text.chars().take(2_000).collect();
    ensure!(page.status == status, "{path}: {} instead of {status}: {start}", page.status);
    if status != 303 {
        check_headers(&page, path)?;
    }
    Ok(page)
}

async fn ops_sees_all(objects: &ObjectClient, fixture: &Fixture, ops: &Viewer) -> Result<()> {
    let queue = fixture.own_name("shared");
    // The controller that aggregates roles may be later, and the dashboard follows the objects by itself.
    eventually("the overview counts the pending workloads", async || {
        let page = ops.get("/?o=json").await?;
        ensure!(page.status == 200, "{}: {}", page.status, page.text);
        let overview = page.json()?;
        ensure!(overview["pending"] == 4 && overview["admitted"] == 1, "{overview}");
        ensure!(overview["manager"]["leads"] == true, "the leader is not asked: {overview}");
        Ok(())
    })
    .await?;
    let status = objects.must_get(Kind::CLUSTER_QUEUE, "", &queue).await?;
    let page = expect(ops, &format!("/clusterqueues/{queue}?o=json"), 200).await?.json()?;
    let view = &page["clusterQueue"];
    ensure!(view["pending"]["total"] == status["status"]["pendingWorkloads"], "{view}, {status}");
    ensure!(view["admitted"] == status["status"]["admittedWorkloads"], "{view}, {status}");
    for (path, shown) in [
        ("/".to_owned(), "Pending by reason"),
        (format!("/clusterqueues/{queue}"), "Quota and usage"),
        ("/pending".to_owned(), "aster-waits"),
        (format!("/pending?cq={queue}&reason=stuck"), "aster-never"),
        ("/flavors".to_owned(), "Capacity"),
        (format!("/flavors/{}", fixture.own_name("any")), "Largest gang that fits now"),
        ("/preemptions".to_owned(), "birch-winner"),
        ("/audit".to_owned(), "workload-never-fits"),
        (format!("/namespaces/{}", TENANTS[0]), "aster-queue"),
    ] {
        let page = expect(ops, &path, 200).await?;
        ensure!(page.text.contains(shown), "{path} does not show {shown:?}: {}", page.text);
        ensure!(page.text.contains("id=\"live\""), "{path} is not live");
        let json = ops.get_with(&path, &[("accept", "application/json")]).await?;
        // Preemptions come from the replica whose history began first.
        let replica = &json.json()?["source"]["replica"];
        ensure!(path == "/preemptions" || replica == "dashboard", "{path}: {}", json.text);
    }
    for path in ["/pending?o=csv", "/audit?o=csv", "/flavors?o=csv", "/preemptions?o=csv"] {
        let page = expect(ops, path, 200).await?;
        ensure!(page.header("content-type").starts_with("text/csv"), "{path}: {:?}", page.headers);
        ensure!(page.text.lines().count() > 1, "{path}: {}", page.text);
    }
    lists_and_sums(ops, &queue).await?;
    let waits = wait_for_workload(objects, 0, "waits", "").await?;
    let path = format!("/workloads/{}/{waits}", TENANTS[0]);
    eventually("the verdict is that of the leader", async || {
        let verdict = expect(ops, &format!("{path}?o=json"), 200).await?.json()?;
        ensure!(
            verdict["source"]["role"] == "leader" && verdict["source"]["replica"] != "dashboard",
            "{verdict}"
        );
        ensure!(verdict.get("partial").is_none_or(|partial| partial == false), "{verdict}");
        ensure!(verdict["position"]["clusterQueue"].is_u64(), "{verdict}");
        Ok(())
    })
    .await?;
    let page = expect(ops, &path, 200).await?;
    for shown in ["WaitingForQuota", "Flavors that were tried", "birch-next", "What happened"] {
        ensure!(page.text.contains(shown), "{path} does not show {shown:?}: {}", page.text);
    }
    let next = wait_for_workload(objects, 1, "next", "").await?;
    let page = expect(ops, &format!("{path}?before={}%2F{next}", TENANTS[1]), 200).await?;
    let first = format!("{}/{next} is before {}/{waits}: its priority is higher.", TENANTS[1], TENANTS[0]);
    ensure!(page.text.contains(&first), "{path} does not say {first:?}: {}", page.text);
    let moved = expect(ops, &format!("/jobs/{}/job/aster-waits", TENANTS[0]), 303).await?;
    ensure!(moved.header("location") == path, "{:?}", moved.headers);
    let wrong = format!("/clusterqueues/{queue}x");
    let missing = expect(ops, &wrong, 404).await?;
    ensure!(missing.text.contains(&format!("/clusterqueues/{queue}\"")), "no similar name: {}", missing.text);
    for (path, named) in [("/pending?limit=many", "limit"), ("/audit?check=x", "check"), ("/?o=xml", "o:")] {
        let page = expect(ops, path, 400).await?;
        ensure!(page.text.contains(named), "{path}: {}", page.text);
    }
    expect(ops, "/nothing", 404).await.map(drop)
}

/// Lists have the order that is asked for, the matrix leads to its rows, and the sums of the day are there.
async fn lists_and_sums(ops: &Viewer, queue: &str) -> Result<()> {
    let names = async |path: &str| -> Result<Vec<String>> {
        let page = expect(ops, path, 200).await?.json()?;
        let items = page["items"].as_array().cloned().unwrap_or_default();
        Ok(items.iter().map(|item| text(item, "/job/name").to_owned()).collect())
    };
    let by_position = names("/pending?o=json").await?;
    ensure!(by_position == names(&format!("/pending?cq={queue}&o=json")).await?, "{by_position:?}");
    let mut sorted = by_position.clone();
    sorted.sort();
    ensure!(sorted == ["aster-never", "aster-victim", "aster-waits", "birch-next"], "{by_position:?}");
    ensure!(
        by_position.first().is_some_and(|name| name == "birch-next"),
        "the highest priority: {by_position:?}"
    );
    let by_priority = names("/pending?sort=priority&o=json").await?;
    ensure!(by_priority == by_position, "{by_priority:?}, {by_position:?}");
    let mut paged = Vec::new();
    let mut path = "/pending?sort=wait&limit=1&o=json".to_owned();
    while paged.len() < 5 {
        let page = expect(ops, &path, 200).await?.json()?;
        paged.push(text(&page, "/items/0/job/name").to_owned());
        let token = page["metadata"]["continue"].as_str().unwrap_or_default();
        if token.is_empty() {
            break;
        }
        path = format!("/pending?sort=wait&limit=1&o=json&after={token}");
    }
    ensure!(paged == names("/pending?sort=wait&o=json").await?, "pages of one row: {paged:?}");
    let victims = expect(ops, &format!("/preemptions?by={queue}&of={queue}&o=json"), 200).await?.json()?;
    let uid = text(&victims, "/items/0/victim/uid");
    ensure!(victims["total"] == 1 && victims["now"][uid]["state"] == "Pending", "{victims}");
    let none = expect(ops, "/preemptions?by=none&o=json", 200).await?.json()?;
    ensure!(none["total"] == 0, "{none}");
    let page = expect(ops, &format!("/clusterqueues/{queue}?o=json"), 200).await?.json()?;
    ensure!(page["largest"][0]["job"]["name"] == "birch-winner", "{}", page["largest"]);
    let overview = expect(ops, "/?o=json", 200).await?.json()?;
    ensure!(overview["oldest"]["WaitingForQuota"].is_string(), "{}", overview["oldest"]);
    let day = &overview["trend"]["day"];
    ensure!(
        day["evictions"].as_u64() >= Some(1) && day["waitP50Seconds"].is_i64(),
        "{}",
        overview["trend"]["day"]
    );
    Ok(())
}

/// Many tokens that are not valid do not delay a user.
async fn junk_delays_no_user(ops: &Viewer) -> Result<()> {
    let mut slowest = Duration::ZERO;
    let others: Vec<Viewer> = (0..JUNK).map(|number| ops.with_token(&format!("junk-{number}"))).collect();
    let (statuses, ()) = tokio::try_join!(
        futures::future::try_join_all(others.iter().map(|other| async { Ok(other.get("/").await?.status) })),
        async {
            for _ in 0..10 {
                let begun = Instant::now();
                expect(ops, "/pending", 200).await?;
                slowest = slowest.max(begun.elapsed());
            }
            anyhow::Ok(())
        }
    )?;
    ensure!(statuses.iter().all(|status| [401, 429].contains(status)), "{statuses:?}");
    ensure!(slowest < Duration::from_secs(2), "a page took {slowest:?}");
    note(format_args!("beside {JUNK} bad tokens a page took at most {} ms", slowest.as_millis()));
    Ok(())
}

/// A stream brings what changes, within seconds, and signs of life.
async fn changes_come(fixture: &Fixture, ops: &Viewer) -> Result<()> {
    let mut updates = ops.stream("/").await?;
    let (event, _) = updates.next(UPDATE).await?;
    ensure!(event == "swap", "the first event is {event}");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mark = MARKS[0];
    let job = Job::new(TENANTS[0], "aster-later", &format!("{mark}-queue"), &[("cpu", "2")]);
    fixture.objects.create(Kind::JOB, job.body()).await?;
    let begun = Instant::now();
    loop {
        let (event, data) = updates.next(Duration::from_secs(20)).await?;
        if event == "swap" && data.contains("5 pending workloads") {
            break;
        }
        ensure!(begun.elapsed() < UPDATE, "no update: {event}: {data}");
    }
    note(format_args!("a new Job was on an open page after {:.1} s", begun.elapsed().as_secs_f64()));
    Ok(())
}

/// Without its role a user is refused within a minute, and its stream ends.
async fn rights_end(cluster: &Cluster, birch: &Viewer) -> Result<()> {
    let page = format!("/namespaces/{}", TENANTS[1]);
    let mut updates = birch.stream(&page).await?;
    cluster.kubectl.run(&["delete", "rolebinding", "birch-user", "-n", TENANTS[1]])?;
    let begun = Instant::now();
    within(REVOKED, "the right ends", async || expect(birch, &page, 403).await.map(drop)).await?;
    loop {
        let (event, _) = updates.next(REVOKED).await?;
        ensure!(begun.elapsed() < REVOKED, "the stream goes on: {event}");
        if event == "reload" {
            break;
        }
    }
    note(format_args!("a removed role ended after {:.0} s", begun.elapsed().as_secs_f64()));
    Ok(())
}

/// Without a leader the pages say so, and show the condition instead of the verdict.
async fn leader_goes(cluster: &mut Cluster, ops: &Viewer) -> Result<()> {
    cluster.take_manager().context("no manager")?.terminate();
    let begun = Instant::now();
    within(REVOKED, "the pages say that no replica leads", async || {
        let page = expect(ops, "/", 200).await?;
        ensure!(page.text.contains("No workload is admitted at present."), "{}", page.text);
        Ok(())
    })
    .await?;
    note(format_args!("no leader was said after {:.0} s", begun.elapsed().as_secs_f64()));
    let waits = wait_for_workload(&cluster.objects, 0, "waits", "").await?;
    let path = format!("/workloads/{}/{waits}", TENANTS[0]);
    let verdict = expect(ops, &format!("{path}?o=json"), 200).await?.json()?;
    ensure!(verdict["partial"] == true, "{verdict}");
    let page = expect(ops, &path, 200).await?;
    ensure!(page.text.contains("WaitingForQuota"), "{}", page.text);
    ensure!(page.text.contains("Parts that only the leader knows are missing"), "{}", page.text);
    Ok(())
}
