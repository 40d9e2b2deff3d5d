//! A control group with limits for one process and its children, of version 1 or 2.

use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Period of a CPU limit in microseconds.
const CPU_PERIOD: u64 = 100_000;

/// Number of groups of `with_memory`: one that a killed process has not left yet must not stand in the way of the next.
static MEMORY_GROUPS: AtomicU32 = AtomicU32::new(0);

/// A control group; removed on drop, when its processes have ended.
pub struct Cgroup {
    /// One folder for each hierarchy.
    folders: Vec<PathBuf>,
}

/// Limits of a control group.
#[derive(Clone, Copy, Debug)]
pub struct CgroupLimits {
    /// Memory in bytes.
    pub memory: u64,
    /// CPU in thousandths of a core; `None` for no limit.
    pub cpu_millis: Option<u64>,
}

impl Cgroup {
    /// Creates a group with this name. An error if this machine does not permit it.
    pub fn new(name: &str, limits: CgroupLimits) -> Result<Self> {
        let mut group = Self { folders: Vec::new() };
        let quota = limits.cpu_millis.map(|millis| millis.saturating_mul(CPU_PERIOD) / 1000);
        if Path::new("/sys/fs/cgroup/memory").is_dir() {
            group.add("/sys/fs/cgroup/memory", name, "memory.limit_in_bytes", &limits.memory.to_string())?;
            if let Some(quota) = quota {
                group.add("/sys/fs/cgroup/cpu", name, "cpu.cfs_quota_us", &quota.to_string())?;
            }
            return Ok(group);
        }
        // Fails if the controllers are enabled already, or cannot be; writing the limits tells.
        let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory +cpu");
        group.add("/sys/fs/cgroup", name, "memory.max", &limits.memory.to_string())?;
        if let (Some(quota), Some(folder)) = (quota, group.folders.first()) {
            fs::write(folder.join("cpu.max"), format!("{quota} {CPU_PERIOD}"))?;
        }
        Ok(group)
    }

    /// Creates the group of this program, with a memory limit. Prints a line and returns `None` if this machine does not
    /// permit it.
    pub fn with_memory(bytes: u64) -> Option<Self> {
        let limits = CgroupLimits { memory: bytes, cpu_millis: None };
        let number = MEMORY_GROUPS.fetch_add(1, Ordering::Relaxed);
        let group = Self::new(&format!("sluice-e2e-{}-memory-{number}", std::process::id()), limits);
        let explain = |error: &anyhow::Error| {
            println!("      no memory limit ({error:#}): only the peak of the manager is checked");
        };
        group.inspect_err(explain).ok()
    }

    fn add(&mut self, parent: &str, name: &str, file: &str, value: &str) -> Result<()> {
        let folder = Path::new(parent).join(name);
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        self.folders.push(folder.clone());
        fs::write(folder.join(file), value).with_context(|| folder.join(file).display().to_string())
    }

    /// Returns the files to which a process writes its id, or 0, in order to join.
    pub fn members(&self) -> impl Iterator<Item = PathBuf> {
        self.folders.iter().map(|folder| folder.join("cgroup.procs"))
    }

    /// Returns whether the kernel has killed a process of the group for its memory.
    pub fn has_killed(&self) -> bool {
        let counts = |file: &str| {
            let text = self.folders.first().and_then(|folder| fs::read_to_string(folder.join(file)).ok());
            text.is_some_and(|text| {
                text.lines()
                    .any(|line| line.strip_prefix("oom_kill ").is_some_and(|count| count.trim() != "0"))
            })
        };
        counts("memory.oom_control") || counts("memory.events")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            // A killed process leaves its group a moment later. An empty folder that stays is harmless.
            for _ in 0..50 {
                if fs::remove_dir(folder).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
