//! A limit of memory on a running process: a control group of its own where this machine lets us make one, with the
//! kernel's killer behind it; a limit of its data segment elsewhere, at which an allocation fails and the process aborts.

use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// In force until dropped, or until the process is gone.
pub struct MemoryLimit {
    /// The control group, and the one that the process came from.
    cgroup: Option<(PathBuf, PathBuf)>,
    pid: u32,
}

impl MemoryLimit {
    /// Limits a process to so many bytes, which is more than it has.
    pub fn set(pid: u32, bytes: u64) -> Result<Self> {
        if let Some(parent) = memory_cgroup_of(pid)? {
            let own = parent.join(format!("sluice-e2e-{pid}"));
            match Self::set_in_cgroup(&own, pid, bytes) {
                Ok(()) => return Ok(Self { cgroup: Some((own, parent)), pid }),
                // What was made of it goes again.
                Err(error) => {
                    println!("      no control group ({error:#}): a limit of the data segment");
                    let _ = fs::remove_dir(&own);
                }
            }
        }
        // What is mapped and not used counts there, too.
        let data = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let data = data.lines().find_map(|line| line.strip_prefix("VmData:")).context("no VmData")?;
        let mapped: u64 = data.trim().trim_end_matches(" kB").parse()?;
        let limit = format!("--data={}", (mapped << 10) + (bytes >> 4));
        let status = Command::new("prlimit").args(["--pid", &pid.to_string(), &limit]).status();
        ensure!(status.context("prlimit is missing")?.success(), "prlimit does not take {limit}");
        Ok(Self { cgroup: None, pid })
    }

    fn set_in_cgroup(own: &Path, pid: u32, bytes: u64) -> Result<()> {
        fs::create_dir(own)?;
        fs::write(own.join("cgroup.procs"), pid.to_string())?;
        // What it has was charged to where it was: what comes is charged here.
        let old = own.join("memory.limit_in_bytes");
        let (file, used) = if old.exists() {
            (old, fs::read_to_string(own.join("memory.usage_in_bytes"))?)
        } else {
            (own.join("memory.max"), fs::read_to_string(own.join("memory.current"))?)
        };
        let resident = crate::process::ProcessUsage::of_process(pid)?.resident_mib << 20;
        let uncharged = resident.saturating_sub(used.trim().parse()?);
        fs::write(file, bytes.saturating_sub(uncharged).to_string())?;
        Ok(())
    }

    /// An error unless the limit was reached.
    pub fn check_oom_killed(&self) -> Result<()> {
        let Some((own, _)) = &self.cgroup else { return Ok(()) };
        let control = own.join("memory.oom_control");
        let file = if control.exists() { control } else { own.join("memory.events") };
        let text = fs::read_to_string(file)?;
        let killed = text.lines().find_map(|line| line.strip_prefix("oom_kill ")).unwrap_or("0");
        ensure!(killed.trim() != "0", "process {} was not killed by its limit: {text}", self.pid);
        Ok(())
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        if let Some((own, parent)) = &self.cgroup {
            // It may live on.
            let _ = fs::write(parent.join("cgroup.procs"), self.pid.to_string());
            let _ = fs::remove_dir(own);
        }
    }
}

/// The control group of a process that decides about its memory, if this machine shows one.
fn memory_cgroup_of(pid: u32) -> Result<Option<PathBuf>> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let find = |controller: &str| {
        groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            (controllers == controller).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    let folders = [find("memory").map(|path| Path::new("/sys/fs/cgroup/memory").join(path))]
        .into_iter()
        .chain([find("").map(|path| Path::new("/sys/fs/cgroup").join(path))]);
    Ok(folders.flatten().find(|folder| {
        folder.join("memory.limit_in_bytes").exists() || folder.join("memory.current").exists()
    }))
}
