//! Child processes. Each has its own process group and is identified by pid and start time, so that a reused pid is
//! never signalled. A guard process kills them when this program ends, even if it is killed.

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Identifies a process by pid and start time, because a pid alone may have been reused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Program name, for messages.
    pub name: String,
    /// Pid, which is also its process group id.
    pub pid: u32,
    /// Start time in clock ticks since boot, from `/proc/PID/stat`.
    pub started: String,
}

impl ProcessIdentity {
    fn new(name: &str, pid: u32) -> Result<Self> {
        let started = start_time(pid).with_context(|| format!("{name} exited immediately"))?;
        Ok(Self { name: name.to_owned(), pid, started })
    }

    /// Returns whether this process is running; false for a zombie or a reused pid.
    pub fn is_running(&self) -> bool {
        start_time(self.pid).is_some_and(|now| now == self.started)
    }

    /// Sends a signal to its process group, if the process is still running.
    pub fn signal(&self, signal: &str) {
        if self.is_running() {
            let script = format!("kill -{signal} -{}", self.pid);
            let _ = Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).status();
        }
    }

    /// Sends SIGTERM, and SIGKILL after `timeout`; returns when the process has ended.
    pub fn stop(&self, timeout: Duration) {
        self.signal("CONT");
        self.signal("TERM");
        let deadline = Instant::now() + timeout;
        while self.is_running() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.signal("KILL");
        while self.is_running() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Returns field 22 of `/proc/PID/stat`; `None` for a zombie.
fn start_time(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    (fields.next()? != "Z").then(|| fields.nth(18).map(str::to_owned)).flatten()
}

/// A running child.
pub struct Process {
    identity: ProcessIdentity,
    child: Mutex<Child>,
    log: PathBuf,
    detached: bool,
}

impl Process {
    /// Starts a program, appends its output to `log` and registers it with the guard.
    pub fn start(name: &str, command: &mut Command, log: &Path, guard: &ProcessGuard) -> Result<Self> {
        let out =
            File::options().create(true).append(true).open(log).with_context(|| log.display().to_string())?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let identity = ProcessIdentity::new(name, child.id())?;
        guard.register(&identity)?;
        Ok(Self { identity, child: Mutex::new(child), log: log.to_owned(), detached: false })
    }

    /// Returns its identity.
    pub const fn identity(&self) -> &ProcessIdentity {
        &self.identity
    }

    /// Returns the path of its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Returns an error with the end of its log if it has exited.
    pub fn check(&self) -> Result<()> {
        let status = self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait()?;
        match status {
            None => Ok(()),
            Some(status) => {
                bail!(
                    "{} exited ({status}); its log {}:\n{}",
                    self.identity.name,
                    self.log.display(),
                    tail(&self.log, 15)
                )
            }
        }
    }

    /// Sends SIGKILL and waits for its exit.
    pub fn kill(&self) {
        self.identity.signal("KILL");
        let _ = self.child.lock().unwrap_or_else(PoisonError::into_inner).wait();
    }

    /// Sends SIGTERM, and SIGKILL after `timeout`. Returns its exit code; `None` if it was killed by a signal.
    pub fn terminate(&self, timeout: Duration) -> Option<i32> {
        self.identity.signal("CONT");
        self.identity.signal("TERM");
        let deadline = Instant::now() + timeout;
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return status.code(),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
                Ok(None) | Err(_) => break,
            }
        }
        self.identity.signal("KILL");
        let _ = child.wait();
        None
    }

    /// Lets it outlive this program: drop no longer kills it.
    pub const fn detach(&mut self) {
        self.detached = true;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.detached {
            self.kill();
        }
    }
}

/// A shell that kills the registered processes when this program ends, which it notices by its standard input closing.
pub struct ProcessGuard {
    child: Mutex<Child>,
    input: Mutex<Option<ChildStdin>>,
}

const GUARD_SCRIPT: &str = r#"
trap '' INT TERM HUP
started() { read -r s <"/proc/$1/stat" || return 1; s=${s##*) }; set -- $s; echo "${20}"; }
while read -r line; do
  [ "$line" = release ] && exit 0
  set -- "$@" "$line"
done
for entry; do
  pid=${entry%% *}
  [ "$(started "$pid" 2>/dev/null)" = "${entry#* }" ] && kill -KILL "-$pid" 2>/dev/null
done
exit 0
"#;

impl ProcessGuard {
    /// Starts the guard's shell.
    pub fn start() -> Result<Self> {
        let mut child = Command::new("sh")
            .args(["-c", GUARD_SCRIPT, "guard"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start sh")?;
        let input = child.stdin.take();
        Ok(Self { child: Mutex::new(child), input: Mutex::new(input) })
    }

    fn send_line(&self, line: &str) -> Result<()> {
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let input = input.as_mut().context("the process guard has ended")?;
        writeln!(input, "{line}").context("cannot write to the process guard")
    }

    fn register(&self, identity: &ProcessIdentity) -> Result<()> {
        self.send_line(&format!("{} {}", identity.pid, identity.started))
    }

    /// Stops the guard without killing the registered processes.
    pub fn release(&self) -> Result<()> {
        self.send_line("release")
    }
}

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        self.input.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = self.child.lock().unwrap_or_else(PoisonError::into_inner).wait();
    }
}

/// Runs a program with this standard input and returns its standard output. An error contains `title` and the standard
/// error if it exits with one.
pub fn output_with_input(command: &mut Command, title: &str, input: &str) -> Result<String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{title}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    // A program that fails may end before it has read its input; then its own error says more.
    written.with_context(|| format!("{title}: cannot write its input"))?;
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the last `lines` lines of a file; "" if it cannot be read.
pub fn tail(path: &Path, lines: usize) -> String {
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
}

/// Below the kernel's ephemeral port range.
const PORT_RANGE: std::ops::Range<u16> = 20_000..32_000;

/// Returns free ports of 127.0.0.1. No port is returned twice until the range is exhausted, because a restarted manager
/// listens on its port again.
pub fn free_ports(count: usize) -> Result<Vec<u16>> {
    static LAST_OFFSET: Mutex<Option<u16>> = Mutex::new(None);
    let width = PORT_RANGE.end - PORT_RANGE.start;
    let mut last_offset = LAST_OFFSET.lock().unwrap_or_else(PoisonError::into_inner);
    let mut offset = match *last_offset {
        Some(offset) => offset,
        None => u16::try_from(seed()? % u32::from(width))?,
    };
    let mut listeners = Vec::new();
    for _ in 0..width {
        if listeners.len() == count {
            break;
        }
        // 7 and the width are coprime, so that every port is tried.
        offset = (offset + 7) % width;
        let port = PORT_RANGE.start + offset;
        if let Ok(listener) = std::net::TcpListener::bind(("127.0.0.1", port)) {
            listeners.push((port, listener));
        }
    }
    *last_offset = Some(offset);
    if listeners.len() < count {
        bail!("no {count} free ports on 127.0.0.1");
    }
    Ok(listeners.into_iter().map(|(port, _)| port).collect())
}

/// Returns a start value that differs between concurrent test processes.
fn seed() -> Result<u32> {
    Ok(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.subsec_nanos()
        ^ std::process::id())
}

/// CPU time and resident memory of a process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessUsage {
    /// User and system time.
    pub cpu: Duration,
    /// Resident memory in MiB.
    pub resident_mib: u64,
    /// Peak resident memory in MiB.
    pub peak_mib: u64,
}

impl ProcessUsage {
    /// Reads the usage of a process from `/proc`.
    pub fn of_process(pid: u32) -> Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let after = stat.rsplit_once(") ").context("malformed /proc stat")?.1;
        let ticks: u64 =
            after.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let mebibytes = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default()
                / 1024
        };
        // A clock tick is 10 ms on every Linux that Rust supports.
        Ok(Self {
            cpu: Duration::from_millis(ticks * 10),
            resident_mib: mebibytes("VmRSS:"),
            peak_mib: mebibytes("VmHWM:"),
        })
    }
}

/// A thread: its id, and its start in ticks, because ids are used again.
pub type ThreadKey = (u32, u64);

/// Reads the CPU time of the threads of a process that have a name. One that ends meanwhile is left out.
pub fn threads_cpu(pid: u32, name: &str) -> Vec<(ThreadKey, Duration)> {
    let of_thread = |folder: fs::DirEntry| {
        let stat = fs::read_to_string(folder.path().join("stat")).ok()?;
        thread_cpu(&stat, name)
    };
    let folders = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    folders.filter_map(of_thread).collect()
}

/// Reads a line of `/proc/PID/task/ID/stat`; `None` if the thread has another name.
fn thread_cpu(stat: &str, name: &str) -> Option<(ThreadKey, Duration)> {
    let (before, after) = stat.rsplit_once(") ")?;
    let (id, found) = before.split_once(" (")?;
    let fields: Vec<&str> = after.split(' ').collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = number(11)?.saturating_add(number(12)?);
    let key = (id.parse().ok()?, number(19)?);
    (found == name).then_some((key, Duration::from_millis(ticks.saturating_mul(10))))
}

/// Runs a program; returns whether it succeeded, and what it wrote to standard output.
pub async fn outcome_and_output(command: &mut tokio::process::Command) -> Result<(bool, String)> {
    let child = command.stdout(Stdio::piped()).spawn();
    let child = child.with_context(|| format!("cannot run {}", command.as_std().get_program().display()))?;
    let output = child.wait_with_output().await?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::{free_ports, thread_cpu};
    use std::collections::BTreeSet;
    use std::time::Duration;

    #[test]
    fn a_thread_has_name_start_and_time() {
        let stat = "4711 (long work) S 1 4700 4700 0 -1 4194368 9 0 0 0 7 5 0 0 39 19 8 0 123456 1000 20 184";
        assert_eq!(thread_cpu(stat, "long work"), Some(((4711, 123_456), Duration::from_millis(120))));
        assert_eq!(thread_cpu(stat, "core"), None);
        assert_eq!(thread_cpu("4711 (long work) S 1", "long work"), None);
    }

    #[test]
    fn no_port_is_given_twice() {
        let mut seen = BTreeSet::new();
        for _ in 0..1000 {
            for port in free_ports(3).expect("ports") {
                assert!(seen.insert(port), "port {port} was returned twice");
            }
        }
    }
}
