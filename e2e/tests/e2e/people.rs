//! The command line for people on a real API server: what it answers and changes, as the program, as plugin of a real kubectl and as
//! kueuectl.

use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use sluice_e2e::binaries::{self, Build};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::Kind;
use sluice_e2e::wait::eventually;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A Job waits behind another one: verbs say why, move it, and delete its Job; no dry run changes anything. The same by a plugin of
/// kubectl, and with the lists of kueuectl.
pub(crate) async fn verbs_answer_and_act(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    fixture.create_queue("small", "", &[("cpu", "1", None)], json!({})).await?;
    // One after the other: two of one second are in the order of their UIDs.
    fixture.submit(fixture.job("first", "main", "1")).await?;
    fixture.wait_for_queue_counts("main", (0, 1, 1), &[("cpu", "1")]).await?;
    fixture.submit(fixture.job("second", "main", "1")).await?;
    fixture.wait_for_queue_counts("main", (1, 1, 1), &[("cpu", "1")]).await?;
    let people = People::link(cluster, fixture)?;
    // This plane may have no Service of the manager: the objects answer, too.
    for source in ["auto", "cluster"] {
        let (code, text) = people.run("sluice", &["why", "job/second", "--source", source])?;
        ensure!(code == Some(0) && text.contains("may still use 0: 1 is missing."), "{source}: {text}");
        let (code, text) =
            people.run("sluice", &["why", "job/second", "--fail-pending", "--source", source])?;
        ensure!(code == Some(4), "{source}: {code:?} {text}");
    }
    let (_, text) = people.run("sluice", &["tree", "job", "job/first"])?;
    ensure!(text.contains("Admitted") && text.contains("pod set main"), "{text}");
    for source in ["auto", "cluster"] {
        eventually("why says what the pod of the Job does", async || {
            let (_, text) = people.run("sluice", &["why", "job/first", "--source", source])?;
            let pods = text.lines().find(|line| line.starts_with("Pods ")).unwrap_or_default();
            ensure!(pods.contains("1 running") || pods.contains("1 pending"), "{source}: {text}");
            Ok(())
        })
        .await?;
    }
    people.look_at_top()?;
    for verb in [
        vec!["delete", "workload", "job/second"],
        vec!["move", "workload", "job/second", "--to", "small"],
        vec!["stop", "workload", "job/second"],
    ] {
        for strategy in ["client", "server"] {
            let dry_run = format!("--dry-run={strategy}");
            let (code, text) = people.run("sluice", &[verb.as_slice(), &[&dry_run]].concat())?;
            ensure!(code == Some(0) && text.contains(&format!("({strategy} dry run)")), "{verb:?}: {text}");
        }
    }
    fixture.objects.must_get(Kind::JOB, &fixture.name, "second").await?;
    fixture.wait_for_queue_counts("main", (1, 1, 1), &[("cpu", "1")]).await?;
    let (code, text) = people.run("kubectl", &["sluice", "list", "workload", "--status", "pending"])?;
    ensure!(code == Some(0) && text.contains("job-second") && !text.contains("job-first"), "{text}");
    let (code, text) = people.run("kubectl", &["kueue", "list", "workload"])?;
    ensure!(code == Some(0) && text.contains("POSITION IN QUEUE"), "{text}");
    let (code, text) = people.run("kubectl", &["kueue", "get", "clusterqueue", "-o", "name"])?;
    ensure!(code == Some(0) && text.contains("clusterqueue.kueue.x-k8s.io/"), "{text}");
    let (code, text) = people.run("sluice", &["move", "workload", "job/first", "--to", "small"])?;
    ensure!(code == Some(1) && text.contains(": use --evict"), "{text}");
    let (code, text) =
        people.run("sluice", &["move", "workload", "job/first", "--to", "small", "--evict"])?;
    ensure!(code == Some(0), "{text}");
    fixture.wait_for_queue_counts("small", (0, 1, 1), &[("cpu", "1")]).await?;
    fixture.wait_for_queue_counts("main", (0, 1, 1), &[("cpu", "1")]).await?;
    let (code, text) = people.run("sluice", &["delete", "workload", "--all", "--yes"])?;
    ensure!(code == Some(0) && text.contains("job.batch/first deleted"), "{text}");
    eventually("the Jobs are gone", async || {
        let left = fixture.objects.list(Kind::JOB, &fixture.name, "").await?;
        ensure!(left.is_empty(), "{} Jobs", left.len());
        Ok(())
    })
    .await
}

/// The program with its names, and the kubectl of the control plane.
struct People {
    folder: PathBuf,
    kubeconfig: PathBuf,
    namespace: String,
}

impl People {
    fn link(cluster: &Cluster, fixture: &Fixture) -> Result<Self> {
        let folder = cluster.plane.folder().join("people");
        std::fs::create_dir_all(&folder)?;
        let program = binaries::sluice(Build::Dev)?;
        let kubectl = cluster.plane.binaries.path("kubectl");
        let links = [("sluice", &program), ("kubectl-sluice", &program), ("kubectl-kueue", &program)];
        for (name, target) in links.into_iter().chain([("kubectl", &kubectl)]) {
            let link = folder.join(name);
            if !link.exists() {
                symlink(std::path::absolute(target)?, link)?;
            }
        }
        let kubeconfig = cluster.plane.admin_kubeconfig();
        Ok(Self { folder, kubeconfig, namespace: fixture.name.clone() })
    }

    /// `top` on a terminal: the rows, the text of `why` for the first one, and the terminal as it was.
    fn look_at_top(&self) -> Result<()> {
        let line = format!("{}/sluice top -n {}", self.folder.display(), self.namespace);
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--echo", "never", "--command", &line, "/dev/null"]);
        command.env("KUBECONFIG", &self.kubeconfig).env("TERM", "xterm").env("LC_ALL", "C");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("script, of util-linux, gives a program a terminal")?;
        let mut keys = child.stdin.take().context("no input")?;
        let mut output = child.stdout.take().context("no output")?;
        let shown = Arc::new(Mutex::new(String::new()));
        let reading = thread::spawn({
            let shown = Arc::clone(&shown);
            move || {
                let mut part = [0_u8; 4096];
                while let Ok(count @ 1..) = output.read(&mut part) {
                    shown.lock().unwrap().push_str(&String::from_utf8_lossy(&part[..count]));
                }
            }
        });
        let has = |texts: &[&str]| {
            let shown = shown.lock().unwrap();
            texts.iter().any(|text| shown.contains(text))
        };
        // Each key after the frame that it is for, and after all of them the end.
        for (frame, key) in
            [(["> job-second"; 2], "\r"), (["job-second has been pending", "FLAVOR"], "q"), ([""; 2], "q")]
        {
            let began = Instant::now();
            while !has(&frame) && began.elapsed() < Duration::from_secs(20) {
                thread::sleep(Duration::from_millis(50));
            }
            thread::sleep(Duration::from_millis(500));
            keys.write_all(key.as_bytes()).with_context(|| shown.lock().unwrap().clone())?;
        }
        let status = child.wait()?;
        reading.join().map_err(|_| anyhow::anyhow!("the output cannot be read"))?;
        let text = shown.lock().unwrap().clone();
        ensure!(status.success(), "{status}: {text}");
        ensure!(text.contains("> job-second") && text.contains("q quit  / filter"), "{text}");
        ensure!(text.contains("job-second has been pending") || text.contains("FLAVOR"), "{text}");
        let (taken, given_back) = ("\u{1b}[?1049h", "\u{1b}[?1049l");
        ensure!(text.find(taken) < text.rfind(given_back) && text.contains(taken), "{text}");
        Ok(())
    }

    /// Runs a program of the folder; returns exit code and output.
    fn run(&self, name: &str, arguments: &[&str]) -> Result<(Option<i32>, String)> {
        let mut command = Command::new(self.folder.join(name));
        command.args(arguments).args(["-n", &self.namespace]).stdin(std::process::Stdio::null());
        command.env("KUBECONFIG", &self.kubeconfig).env("PATH", &self.folder).env("LC_ALL", "C");
        let output = command.output().with_context(|| format!("cannot run {name}"))?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.code(), String::from_utf8_lossy(&text).into_owned()))
    }
}
