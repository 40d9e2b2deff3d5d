//! What users who click cost others: how long scheduling cycles and reviews take without users of the dashboard and with some that ask
//! *When will it start?* and `/what-if` without pause. Both are measured on one manager under one load, in alternating phases, so that
//! neither the state of the machine nor what the manager has kept favours one of them.

use super::api_server_only::ApiServerOnly;
use super::cycle_times::CycleTimes;
use super::scenario::NAMESPACE;
use super::sizing::{BUSY_RATE, BUSY_TIME, prepare, queue_name, run_jobs};
use super::viewers::{started, users};
use super::webhooks::{self, percentile};
use crate::control_plane::ControlPlane;
use crate::dashboard::{Page, Viewer};
use crate::manager::Manager;
use crate::objects::{Kind, text};
use crate::process::{ProcessUsage, ThreadKey, threads_cpu};
use anyhow::{Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Reviews a second in each phase.
const REVIEWS: u32 = 50;
/// How long all Jobs expect to run, so that an estimate is simulated and not refused at once.
const RUN_TIME: &str = "2h";
/// Name of the threads that do bounded work, in `server/bounded_work.rs`.
const WORK: &str = "long work";
/// Time between two readings of the CPU time of these threads, which end with their work.
const SAMPLE: Duration = Duration::from_millis(50);
/// Time after which a user that was refused clicks again.
const AGAIN: Duration = Duration::from_millis(100);
/// Goal for the ratio of both 99th percentiles.
const GOAL: f64 = 1.1;

/// Size of a run.
#[derive(Clone, Copy, Debug)]
pub struct Amounts {
    /// Number of pending Jobs.
    pub jobs: usize,
    /// Number of queues.
    pub queues: usize,
    /// Number of users that click.
    pub clickers: usize,
    /// Number of pairs of phases, at least 3.
    pub pairs: usize,
}

/// Prints a line for each phase, the ratios of the 99th percentiles, and what became of the clicks.
pub async fn run(amounts: &Amounts) -> Result<()> {
    ensure!(amounts.pairs >= 3, "--pairs: at least 3 are compared, not {}", amounts.pairs);
    let mut bare = ApiServerOnly::start(None, &ControlPlane::temporary_folder(), Value::Null).await?;
    bare.settings.flags.push("--metrics-insecure".to_owned());
    let originals = prepare(&bare, amounts.queues, Some(RUN_TIME)).await?;
    originals.copy(&bare.plane, 1..amounts.jobs, amounts.queues).await?;
    let manager = started(&bare, amounts.jobs).await?;
    let users = users(&bare, manager.dashboard_port(), amounts.clickers)?;
    let questions = Arc::new(Questions::of(&bare, amounts.queues).await?);
    let scene = Scene { bare, manager, users, questions, queues: amounts.queues };
    println!(
        "{} pending Workloads, {} queues; {BUSY_RATE} Jobs and {REVIEWS} reviews a second, {} s a phase; m: thousandths of a core",
        amounts.jobs,
        amounts.queues,
        BUSY_TIME.as_secs()
    );
    println!("pair  clickers  cycles  p50 ms  p99 ms  reviews  p50 ms  p99 ms  manager m  bounded work m");
    let (mut pairs, mut clicks) = (Vec::new(), Clicks::default());
    for pair in 0..amounts.pairs {
        // Every other pair begins with clicks: what grows during the run counts for both.
        let is_turned = pair % 2 == 1;
        let first = scene.phase(pair * 2, is_turned).await?;
        let second = scene.phase(pair * 2 + 1, !is_turned).await?;
        let (without, with) = if is_turned { (second, first) } else { (first, second) };
        for (phase, clickers) in [(&without, 0), (&with, amounts.clickers)] {
            println!("{:>4}  {clickers:>8}  {}", pair + 1, phase.line());
        }
        clicks.add(&with.clicks);
        pairs.push([with.cycles_p99() / without.cycles_p99(), with.reviews_p99() / without.reviews_p99()]);
    }
    let [cycles, reviews] = [0, 1].map(|of| median(pairs.iter().map(|ratios| ratios[of]).collect()));
    println!(
        "p99 with clickers to p99 without, median of {} pairs: cycles {cycles:.2}, reviews {reviews:.2} (goal {GOAL})",
        pairs.len()
    );
    clicks.print();
    scene.manager.terminate();
    Ok(())
}

/// A cluster with a manager and users.
struct Scene {
    bare: ApiServerOnly,
    manager: Manager,
    users: Vec<Viewer>,
    questions: Arc<Questions>,
    queues: usize,
}

impl Scene {
    /// Sends reviews and runs Jobs, and lets the users click meanwhile if they are to.
    async fn phase(&self, round: usize, with_clicks: bool) -> Result<Phase> {
        let objects = &self.bare.objects;
        let reviews = Arc::new(webhooks::reviews(objects).await?);
        let client = webhooks::client_of(objects, self.bare.settings.webhook_port).await?;
        let pid = self.manager.process().identity().pid;
        let (cycles, used, begun) =
            (CycleTimes::of(&self.manager).await?, ProcessUsage::of_process(pid)?, Instant::now());
        let ended = Arc::<AtomicBool>::default();
        let clicking: Vec<_> = self
            .users
            .iter()
            .filter(|_| with_clicks)
            .map(|user| tokio::spawn(click(user.clone(), Arc::clone(&self.questions), Arc::clone(&ended))))
            .collect();
        let sampling = tokio::spawn(bounded_work(pid, Arc::clone(&ended)));
        let load = async {
            let sent = webhooks::send_all(&client, &reviews, REVIEWS, BUSY_TIME);
            tokio::try_join!(sent, run_jobs(objects, self.queues, round))
        };
        let load = load.await;
        let (after, spent) = (CycleTimes::of(&self.manager).await, ProcessUsage::of_process(pid));
        let time = begun.elapsed();
        ended.store(true, Ordering::Relaxed);
        let mut clicks = Clicks::default();
        for clicked in clicking {
            clicks.add(&clicked.await??);
        }
        let bounded = sampling.await?;
        let (mut reviews, ()) = load?;
        reviews.sort_unstable();
        let cpu = spent?.cpu.saturating_sub(used.cpu);
        Ok(Phase { cycles: after?.since(&cycles), reviews, time, cpu, bounded, clicks })
    }
}

/// What was measured in a phase.
struct Phase {
    cycles: CycleTimes,
    /// How long reviews took, the shortest first.
    reviews: Vec<Duration>,
    time: Duration,
    /// CPU time of the manager.
    cpu: Duration,
    /// CPU time of the threads that did bounded work.
    bounded: Duration,
    clicks: Clicks,
}

impl Phase {
    fn cycles_p99(&self) -> f64 {
        milliseconds(self.cycles.percentile(99))
    }

    fn reviews_p99(&self) -> f64 {
        percentile(&self.reviews, 99)
    }

    fn line(&self) -> String {
        let millicores = |cpu: Duration| cpu.as_secs_f64() / self.time.as_secs_f64() * 1000.0;
        format!(
            "{:>6}  {:>6.2}  {:>6.2}  {:>7}  {:>6.2}  {:>6.2}  {:>9.0}  {:>14.0}",
            self.cycles.count(),
            milliseconds(self.cycles.percentile(50)),
            self.cycles_p99(),
            self.reviews.len(),
            percentile(&self.reviews, 50),
            self.reviews_p99(),
            millicores(self.cpu),
            millicores(self.bounded)
        )
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Returns the middle value; of an even number, the higher one of both. NaN without a value.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Questions of which no two are the same within the time for which answers are kept.
struct Questions {
    /// Names of pending Workloads.
    workloads: Vec<String>,
    queues: usize,
    asked: AtomicUsize,
}

impl Questions {
    async fn of(bare: &ApiServerOnly, queues: usize) -> Result<Self> {
        let all = bare.objects.list(Kind::WORKLOAD, NAMESPACE, "kueue.x-k8s.io/job-uid").await?;
        let names = all.iter().map(|workload| text(workload, "/metadata/name").to_owned());
        let workloads: Vec<String> = names.filter(|name| name.contains("pending-")).collect();
        ensure!(!workloads.is_empty(), "no Workload is pending");
        Ok(Self { workloads, queues, asked: AtomicUsize::new(0) })
    }

    /// Returns the address of the next question.
    fn next_address(&self) -> String {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let name = self.workloads.get(number % self.workloads.len()).map_or("", String::as_str);
        match number % 3 {
            0 => format!("/workloads/{NAMESPACE}/{name}?when=1&o=json"),
            1 => format!("/what-if?ns={NAMESPACE}&priority=workload%2F{name}%3D{}&o=json", 1_000 + number),
            _ => {
                let queue = queue_name(number % self.queues);
                format!("/what-if?quota={queue}%3Aany%3Acpu%3D{}&o=json", 20 + number)
            }
        }
    }
}

/// What became of clicks.
#[derive(Debug, Default)]
struct Clicks {
    /// How long those took that got an answer.
    answered: Vec<Duration>,
    /// Number of the others, by the reason.
    refused: BTreeMap<String, usize>,
}

impl Clicks {
    fn add(&mut self, other: &Self) {
        self.answered.extend(&other.answered);
        for (reason, count) in &other.refused {
            *self.refused.entry(reason.clone()).or_default() += count;
        }
    }

    fn print(&mut self) {
        self.answered.sort_unstable();
        println!(
            "{} clicks answered, p50 {:.0} ms, p99 {:.0} ms; refused:",
            self.answered.len(),
            percentile(&self.answered, 50),
            percentile(&self.answered, 99)
        );
        for (reason, count) in &self.refused {
            println!("  {count:>6}  {reason}");
        }
    }
}

/// Asks one question after the other until the phase has ended. The last answer is waited for, so that its work is not measured in
/// the next phase.
async fn click(user: Viewer, questions: Arc<Questions>, ended: Arc<AtomicBool>) -> Result<Clicks> {
    let mut clicks = Clicks::default();
    while !ended.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let page = user.get(&questions.next_address()).await?;
        match refusal(&page)? {
            None => clicks.answered.push(begun.elapsed()),
            Some(reason) => {
                *clicks.refused.entry(reason).or_default() += 1;
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
    Ok(clicks)
}

/// Returns why a click got no answer. An estimate that is a lower bound alone is an answer.
fn refusal(page: &Page) -> Result<Option<String>> {
    if page.status != 200 {
        return Ok(Some(format!("status {}", page.status)));
    }
    let value = page.json()?;
    if !text(&value, "/estimate/notBefore").is_empty() {
        return Ok(None);
    }
    let refused = [text(&value, "/estimate/refused"), text(&value, "/refused")];
    Ok(refused.into_iter().find(|text| !text.is_empty()).map(reason))
}

/// Returns a refusal without its advice, and with one sign for each number, so that equal reasons are counted together.
fn reason(refused: &str) -> String {
    let reason = refused.split(": ").next().unwrap_or_default();
    let mut text = String::new();
    for letter in reason.chars() {
        match letter {
            digit if !digit.is_ascii_digit() => text.push(digit),
            _ if text.ends_with('#') => {}
            _ => text.push('#'),
        }
    }
    text
}

/// Returns the CPU time of the threads that do bounded work, from now until the phase has ended.
async fn bounded_work(pid: u32, ended: Arc<AtomicBool>) -> Duration {
    let mut seen: BTreeMap<ThreadKey, Duration> = BTreeMap::new();
    while !ended.load(Ordering::Relaxed) {
        seen.extend(threads_cpu(pid, WORK));
        tokio::time::sleep(SAMPLE).await;
    }
    seen.values().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(status: u16, text: &str) -> Page {
        Page { status, headers: http::HeaderMap::new(), text: text.to_owned() }
    }

    #[test]
    fn refusals_are_told_from_answers() {
        let no_range = r#"{"estimate": {"refused": "14 of 61 run", "notBefore": "2026-11-26T14:00:00Z"}}"#;
        let too_long = "the simulation takes too long to be made on request";
        let refused = format!(r#"{{"refused": "{too_long}: ask in a terminal."}}"#);
        for (status, text, expected) in [
            (200, r#"{"answer": {"workloads": []}}"#, None),
            (200, r#"{"estimate": {"latest": "2026-11-26T14:00:00Z"}}"#, None),
            (200, no_range, None),
            (200, r#"{"estimate": {"refused": "14 of 61 run: in a terminal"}}"#, Some("# of # run")),
            (200, refused.as_str(), Some(too_long)),
            (429, "", Some("status 429")),
        ] {
            assert_eq!(refusal(&page(status, text)).unwrap().as_deref(), expected, "{text}");
        }
        assert!(refusal(&page(200, "<html>")).is_err());
    }

    #[test]
    fn a_median_is_the_middle() {
        assert_eq!(median(vec![1.5, 0.5, 1.0]).to_bits(), 1.0_f64.to_bits());
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn no_question_is_asked_twice() {
        let workloads = (0..7).map(|number| format!("pending-{number}")).collect();
        let questions = Questions { workloads, queues: 4, asked: AtomicUsize::new(0) };
        let asked: std::collections::BTreeSet<String> = (0..15).map(|_| questions.next_address()).collect();
        assert_eq!(asked.len(), 15);
    }
}
