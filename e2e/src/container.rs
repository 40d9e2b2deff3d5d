//! Becomes a program in a container, as a runtime does: the root folder of an image, read-only; the mounts, control groups,
//! user and group that it is given; no capabilities, and no way to gain any.
//!
//! The process is the program that calls this, started once more in a mount namespace of its own, with which the mounts
//! end. The main function of that program begins with `enter_if_asked`.

use anyhow::{Context as _, Result, bail};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_bind, mount_remount};
use rustix::process::{chdir, chroot};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// First argument of a process that is to become a program in a container.
const ENTER: &str = "--enter-container";

/// What is mounted at a path of a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mount {
    /// File or folder of this machine.
    pub source: PathBuf,
    /// Path in the container.
    pub target: String,
    /// Whether the container may write.
    pub writable: bool,
}

/// What confines a process to a container.
#[derive(Debug, Serialize, Deserialize)]
pub struct Confinement {
    /// Root folder: an unpacked image.
    pub root: PathBuf,
    /// Mounts beside that of /proc.
    pub mounts: Vec<Mount>,
    /// Files to which the process writes its id to join control groups.
    pub cgroup_members: Vec<PathBuf>,
    /// User.
    pub user: u32,
    /// Group, the only one.
    pub group: u32,
}

impl Confinement {
    /// Creates the mount points and writes itself to a file. Returns the command line that enters the container; a program
    /// with its arguments has to follow. It has to run as root in a mount namespace of its own.
    pub fn prepare(&self, description: &Path) -> Result<[String; 3]> {
        fs::create_dir_all(self.root.join("proc"))?;
        for mount in &self.mounts {
            let target = self.path(mount);
            if mount.source.is_dir() {
                fs::create_dir_all(&target)?;
            } else if !target.exists() {
                fs::create_dir_all(target.parent().unwrap_or(&self.root))?;
                fs::write(&target, "")?;
            }
        }
        fs::write(description, serde_json::to_string(self)?)?;
        let program = std::env::current_exe()?;
        Ok([program.display().to_string(), ENTER.to_owned(), description.display().to_string()])
    }

    /// Path of the target of a mount before the root is entered.
    fn path(&self, mount: &Mount) -> PathBuf {
        self.root.join(mount.target.trim_start_matches('/'))
    }

    fn enter(&self) -> Result<()> {
        for members in &self.cgroup_members {
            fs::write(members, "0").with_context(|| format!("cannot join {}", members.display()))?;
        }
        self.mount().context("cannot mount the root")?;
        chroot(&self.root).context("chroot")?;
        chdir("/")?;
        drop_privileges(self.user, self.group).context("cannot drop privileges")
    }

    fn mount(&self) -> Result<()> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount_bind(&self.root, &self.root)?;
        mount("proc", self.root.join("proc"), "proc", flags | MountFlags::NOEXEC, None)?;
        for mount in &self.mounts {
            let target = self.path(mount);
            mount_bind(&mount.source, &target).with_context(|| mount.target.clone())?;
            let access = if mount.writable { MountFlags::empty() } else { MountFlags::RDONLY };
            mount_remount(&target, MountFlags::BIND | flags | access, c"")?;
        }
        // Last, so that the mounts above find their mount points.
        mount_remount(&self.root, MountFlags::BIND | flags | MountFlags::RDONLY, c"")?;
        Ok(())
    }
}

fn drop_privileges(user: u32, group: u32) -> Result<()> {
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            // The kernel knows no capability of this number.
            Err(Errno::INVAL) if number > 0 => break,
            Err(error) => bail!("capability {number}: {error}"),
        }
    }
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    Ok(())
}

/// Becomes the program in a container if the command line says so; then returns only an error. To be called before any
/// other thread starts: privileges and root folder belong to a thread.
pub fn enter_if_asked() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, first, description, program, rest @ ..] = &arguments[..] else { return Ok(()) };
    if first != ENTER {
        return Ok(());
    }
    let confinement: Confinement = serde_json::from_str(&fs::read_to_string(description)?)?;
    confinement.enter()?;
    Err(Command::new(program).args(rest).exec()).with_context(|| format!("cannot execute {program}"))
}
