//! The durable record on a real API server: what records it is killed while workloads run and end, and afterwards has what they had.

use crate::cases::note;
use crate::fixture::Fixture;
use crate::watch_faults::wait_until_gone;
use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition_is_true, text};
use sluice_e2e::process::free_ports;
use sluice_e2e::recorder::{Asker, Ports, Recorder};
use sluice_e2e::wait::eventually;
use std::time::Duration;

/// Jobs that run while the recorder is killed.
const JOBS: usize = 6;

/// Usage of a week is answered by the recorder, whichever process is asked. It is killed while jobs run, end and begin; then it has what
/// each of them had, to the second, also of one that is deleted by then, and names the gap and what of it is filled. While it is away the manager answers from its own history and says so. A second
/// recorder of the same file waits.
pub(crate) async fn record_survives_its_process(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let (asker, token) = Asker::new(cluster)?;
    let [private] = free_ports(1)?[..] else { bail!("expected a port") };
    let ports = Ports::choose()?.asking(private);
    let mut settings = cluster.manager()?.settings().clone();
    settings.flags.retain(|flag| !flag.starts_with("--visibility-bind-address"));
    settings.flags.extend([
        format!("--visibility-bind-address=127.0.0.1:{private}"),
        format!("--leader-token={}", token.display()),
        "--pod-ip=127.0.0.1".to_owned(),
        ports.flag(),
        "--leader-caller=kueue-history".to_owned(),
    ]);
    let before = cluster.replace_manager(&settings).await?;
    let outcome = check(cluster, fixture, (&asker, private), ports).await;
    cluster.replace_manager(&before).await?;
    outcome
}

async fn check(
    cluster: &Cluster,
    fixture: &Fixture,
    (asker, manager): (&Asker, u16),
    ports: Ports,
) -> Result<()> {
    let cpus = JOBS.to_string();
    fixture.create_queue("main", "", &[("cpu", &cpus, None)], json!({})).await?;
    let file = cluster.plane.folder().join("history.redb");
    let recorder = Recorder::start(cluster, ports, &file).await?;
    recorder.wait_until_ready().await?;
    for number in 0..JOBS {
        fixture.submit(fixture.job(&format!("job-{number}"), "main", "1")).await?;
    }
    fixture
        .wait_for_queue_counts("main", (0, i64::try_from(JOBS)?, i64::try_from(JOBS)?), &[("cpu", &cpus)])
        .await?;
    // Committed within a second or two.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let report = usage(asker, manager).await?;
    ensure!(
        report["recorded"]["replica"] == "recorder" && report["recorded"].get("gaps").is_none(),
        "{report}"
    );
    let row = row_of(&report, &fixture.name)?;
    ensure!(row["jobs"] == JOBS, "{row}");

    recorder.process().kill();
    let partial = eventually("the manager answers alone", async || {
        let answer = asker.history(manager, &topic(), false).await?;
        let answer = answer.pointer("/history/usage").cloned().with_context(|| answer.to_string())?;
        ensure!(answer["partial"] == true && answer["recorded"]["replica"] != "recorder", "{answer}");
        Ok(answer)
    })
    .await?;
    ensure!(partial["recorded"]["complete"] == false, "{partial}");
    // One ends, one is stopped, and one begins that no recorder has seen.
    fixture.finish_job("job-0").await?;
    fixture.set_workload_spec("job-1", json!({"active": false})).await?;
    eventually("the stopped one gave its quota back", async || {
        let found = fixture.workload("job-1").await?;
        ensure!(!condition_is_true(&found, "QuotaReserved"), "{}", found["status"]);
        Ok(())
    })
    .await?;
    fixture.submit(fixture.job("late", "main", "1")).await?;
    fixture.wait_for_condition("late", "QuotaReserved", "True", "QuotaReserved").await?;
    let gone = run_and_delete(fixture).await?;

    let again = Recorder::start(cluster, ports, &file).await?;
    again.wait_until_ready().await?;
    fixture.finish_job("job-2").await?;
    agrees_with_conditions(fixture, (asker, manager), gone).await?;
    export_agrees_with_usage(fixture, (asker, manager)).await?;
    ensure!(
        again.metric("sluice_history_store_conflicts_total").await? < 1.0,
        "a record contradicts another one"
    );
    ensure!(again.metric("sluice_history_store_bytes").await? > 0.0, "the file has no size");
    second_recorder_waits(cluster, &again).await?;
    again.process().terminate(Duration::from_secs(10));
    Ok(())
}

/// Runs a job that no recorder sees: its Workload is deleted when it has finished. Returns how many seconds it had its CPU.
async fn run_and_delete(fixture: &Fixture) -> Result<i64> {
    fixture.submit(fixture.job("gone", "main", "1")).await?;
    fixture.wait_for_condition("gone", "QuotaReserved", "True", "QuotaReserved").await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    fixture.finish_job("gone").await?;
    let found = fixture.workload("gone").await?;
    let times = (time_of(&found, "QuotaReserved"), time_of(&found, "Finished"));
    let (Some(start), Some(end)) = times else { bail!("{}", found["status"]) };
    for (kind, name) in [(Kind::JOB, "gone"), (Kind::WORKLOAD, text(&found, "/metadata/name"))] {
        fixture.objects.delete(kind, &fixture.name, name, PropagationPolicy::Background).await?;
    }
    wait_until_gone(fixture, Kind::WORKLOAD, &fixture.name, text(&found, "/metadata/name")).await?;
    Ok(seconds(start, end))
}

fn topic() -> Value {
    let week = Timestamp::now().as_second() - 7 * 86_400;
    let since = Timestamp::from_second(week).unwrap_or_default();
    json!({"usage": {"by": "namespace", "since": since.to_string(), "resource": "cpu"}})
}

/// Returns the usage of a week, as the recorder has it.
async fn usage(asker: &Asker, port: u16) -> Result<Value> {
    eventually("the recorder answers", async || {
        let answer = asker.history(port, &topic(), false).await?;
        let answer = answer.pointer("/history/usage").cloned().with_context(|| answer.to_string())?;
        ensure!(answer.get("partial").is_none_or(|partial| partial == false), "{answer}");
        ensure!(answer["recorded"]["replica"] == "recorder", "{answer}");
        Ok(answer)
    })
    .await
}

fn row_of<'a>(report: &'a Value, namespace: &str) -> Result<&'a Value> {
    let mut rows = report["items"].as_array().context("no rows")?.iter();
    rows.find(|row| row["group"] == namespace).with_context(|| report.to_string())
}

fn time_of(workload: &Value, kind: &str) -> Option<Timestamp> {
    let conditions = workload["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == kind)?;
    found["lastTransitionTime"].as_str()?.parse().ok()
}

/// What the record has is the sum of what the conditions say, and of what runs until now.
async fn agrees_with_conditions(fixture: &Fixture, (asker, manager): (&Asker, u16), gone: i64) -> Result<()> {
    eventually("the record has what the workloads had", async || {
        let mut begun = Vec::new();
        let mut known = gone;
        for found in fixture.objects.list(Kind::WORKLOAD, &fixture.name, "").await? {
            let start = time_of(&found, "QuotaReserved").context("no time")?;
            match time_of(&found, "Finished") {
                Some(end) => known += seconds(start, end),
                None if condition_is_true(&found, "QuotaReserved") => begun.push(start),
                // Its reservation is over: its start is no condition any more.
                None => {}
            }
        }
        let report = usage(asker, manager).await?;
        let row = row_of(&report, &fixture.name)?;
        let used: i64 = text(row, "/used/unitMilliseconds").parse()?;
        let until: Timestamp = text(&report, "/recorded/until").parse()?;
        let running: i64 = begun.iter().map(|start| seconds(*start, until)).sum();
        // The stopped one ran from its admission beside the others until its quota was released.
        let stopped = fixture.workload("job-1").await?;
        let released = time_of(&stopped, "QuotaReserved").context("no time")?;
        let others = fixture.workload("job-0").await?;
        let about = seconds(time_of(&others, "QuotaReserved").context("no time")?, released);
        let (used, expected) = (used / 1_000 / 1_000, known + running + about);
        let jobs = i64::try_from(JOBS)?;
        ensure!((used - expected).abs() <= jobs + 2, "{used} s of a CPU, not {expected}: {row}");
        let gaps = report["recorded"]["gaps"].as_array().map_or(0, Vec::len);
        ensure!(gaps == 1 && report["recorded"]["drift"] == 0, "{}", report["recorded"]);
        let gap = &report["recorded"]["gaps"][0];
        ensure!(gap["unknownEnds"] == 0 && gap["filled"]["from"] == gap["start"], "{gap}");
        note(format_args!("{used} s of a CPU in the record, {expected} s by conditions"));
        Ok(())
    })
    .await
}

/// The rows of an export, in pages of two, have what usage has, to the millisecond.
async fn export_agrees_with_usage(fixture: &Fixture, (asker, manager): (&Asker, u16)) -> Result<()> {
    eventually("the export has the sum of usage", async || {
        let (rows, until) = exported(fixture, (asker, manager)).await?;
        let report = usage(asker, manager).await?;
        let used: i64 = text(row_of(&report, &fixture.name)?, "/used/unitMilliseconds").parse()?;
        let asked: Timestamp = text(&report, "/recorded/until").parse()?;
        let (mut sum, mut running) = (0_i64, 0_i64);
        for row in &rows {
            sum += text(row, "/used/unitMilliseconds").parse::<i64>()?;
            if row.get("end").is_none() {
                running += text(row, "/run/units").parse::<i64>()?;
            }
        }
        // Usage was asked for a moment later.
        let later = running * (asked.as_millisecond() - until.as_millisecond());
        ensure!(sum + later == used, "{sum} and {later} exported, {used} used: {rows:?}");
        ensure!(running > 0 && rows.len() > JOBS, "{rows:?}");
        note(format_args!("{} rows exported", rows.len()));
        Ok(())
    })
    .await
}

/// Returns the rows of the namespace of the last week, and until when they count.
async fn exported(fixture: &Fixture, (asker, manager): (&Asker, u16)) -> Result<(Vec<Value>, Timestamp)> {
    let week = Timestamp::from_second(Timestamp::now().as_second() - 7 * 86_400)?.to_string();
    let (mut rows, mut token) = (Vec::new(), String::new());
    loop {
        let page = json!({"limit": 2, "continue_token": token});
        let topic = json!({"export": {"since": week, "namespace": fixture.name, "page": page}});
        let answer = asker.history(manager, &topic, false).await?;
        let answer = answer.pointer("/history/export").cloned().with_context(|| answer.to_string())?;
        rows.extend(answer["items"].as_array().context("no rows")?.iter().cloned());
        text(&answer, "/metadata/continue").clone_into(&mut token);
        if token.is_empty() {
            return Ok((rows, text(&answer, "/recorded/until").parse()?));
        }
    }
}

fn seconds(start: Timestamp, end: Timestamp) -> i64 {
    end.as_second() - start.as_second()
}

async fn second_recorder_waits(cluster: &Cluster, first: &Recorder) -> Result<()> {
    let second = Recorder::start(cluster, Ports::choose()?, first.file()).await?;
    eventually("the second recorder waits", async || {
        second.process().check()?;
        let (code, body) = second.readiness().await?;
        ensure!(code != 200 && body.contains("record"), "{code}: {body}");
        Ok(())
    })
    .await?;
    second.process().terminate(Duration::from_secs(10));
    Ok(())
}
