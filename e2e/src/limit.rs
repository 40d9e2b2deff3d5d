//! Memory limit on a running process. Uses a control group if one can be created, so that the kernel kills the process;
//! otherwise limits the data segment, so that an allocation fails and the process aborts.

use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A memory limit that is active until dropped.
pub struct MemoryLimit {
    /// The control group and its parent, from which the process was moved.
    cgroup: Option<(PathBuf, PathBuf)>,
    pid: u32,
}

impl MemoryLimit {
    /// Limits a process to `bytes`, which must exceed its current memory.
    pub fn set(pid: u32, bytes: u64) -> Result<Self> {
        if let Some(parent) = memory_cgroup_of(pid)? {
            let own = parent.join(format!("sluice-e2e-{pid}"));
            match Self::set_in_cgroup(&own, pid, bytes) {
                Ok(()) => return Ok(Self { cgroup: Some((own, parent)), pid }),
                // Removes a control group that was created but not usable.
                Err(error) => {
                    println!("      no control group ({error:#}); limiting the data segment instead");
                    let _ = fs::remove_dir(&own);
                }
            }
        }
        // The data segment includes mapped memory that is not resident.
        let data = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let data = data.lines().find_map(|line| line.strip_prefix("VmData:")).context("no VmData")?;
        let mapped: u64 = data.trim().trim_end_matches(" kB").parse()?;
        let limit = format!("--data={}", (mapped << 10) + (bytes >> 4));
        let status = Command::new("prlimit").args(["--pid", &pid.to_string(), &limit]).status();
        ensure!(status.context("cannot run prlimit")?.success(), "prlimit rejected {limit}");
        Ok(Self { cgroup: None, pid })
    }

    fn set_in_cgroup(own: &Path, pid: u32, bytes: u64) -> Result<()> {
        fs::create_dir(own)?;
        fs::write(own.join("cgroup.procs"), pid.to_string())?;
        // Existing memory stays charged to the previous control group; only new memory is charged here.
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

    /// Returns an error unless the process was killed at the limit; always succeeds without a control group.
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
            // The process may still be running.
            let _ = fs::write(parent.join("cgroup.procs"), self.pid.to_string());
            let _ = fs::remove_dir(own);
        }
    }
}

/// Returns the memory control group of a process (v1 or v2), if visible on this machine.
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
