//! Runs the manager in an unpacked image as a kubelet does: read-only root, another user, no capabilities, the files of a
//! pod mounted in. The process is this harness itself, started once more, which then becomes the manager; its mounts are in
//! a mount namespace of its own and end with it.

use anyhow::{Context as _, Result, bail, ensure};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_bind, mount_bind_recursive, mount_remount};
use rustix::process::{chdir, chroot};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use serde::{Deserialize, Serialize};
use sluice_e2e::install::NAMESPACE;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// First argument of a harness that is to become the manager in a container.
const ENTER: &str = "--enter-container";
/// Where a pod finds its credentials.
const SERVICE_ACCOUNT: &str = "var/run/secrets/kubernetes.io/serviceaccount";
/// Where Kueue's Deployment mounts the configuration.
const CONFIGURATION: &str = "controller_manager_config.yaml";
const HOSTS: &str = "etc/hosts";
/// Name of the API server in the container; the server's certificate contains it.
const API_SERVER_NAME: &str = "kubernetes";
/// The user and group of the image.
const ID: u32 = 65532;

/// A container to be started.
#[derive(Serialize, Deserialize)]
pub(crate) struct Container {
    /// The unpacked image.
    pub(crate) root: PathBuf,
    /// Files to which the process writes its id to join a control group.
    pub(crate) cgroup_members: Vec<PathBuf>,
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) api_server_port: String,
}

/// Returns an error with the reason if this user may not create a mount namespace.
pub(crate) fn check_support() -> Result<()> {
    let command = ["--mount", "--propagation", "private", "true"];
    let output = Command::new("unshare").args(command).output().context("cannot run unshare")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

impl Container {
    /// Writes a script that starts the container with a kubeconfig and a configuration; returns its path.
    pub(crate) fn write_launcher(&self, folder: &Path) -> Result<PathBuf> {
        // A runtime creates mount points in the same way: in a layer above the image.
        for path in ["proc", SERVICE_ACCOUNT] {
            fs::create_dir_all(self.root.join(path))?;
        }
        for path in [CONFIGURATION, HOSTS] {
            fs::write(self.root.join(path), "")?;
        }
        let description = folder.join("container.json");
        fs::write(&description, serde_json::to_string(self)?)?;
        let (harness, path) = (std::env::current_exe()?, folder.join("container-launcher"));
        let script = format!(
            "#!/bin/sh\nexec unshare --mount --propagation private '{}' {ENTER} '{}' \"$@\"\n",
            harness.display(),
            description.display()
        );
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }

    /// Becomes the program; returns only an error.
    fn enter(&self, kubeconfig: &Path, configuration: &Path) -> Result<()> {
        for members in &self.cgroup_members {
            fs::write(members, std::process::id().to_string()).context("cannot join the control group")?;
        }
        let pod = kubeconfig.with_extension("pod");
        write_pod_files(&pod, kubeconfig)?;
        self.mount(&pod, configuration).context("cannot mount the root")?;
        chroot(&self.root).context("chroot")?;
        chdir("/")?;
        drop_privileges().context("cannot drop privileges")?;
        let error = Command::new(&self.program)
            .args(&self.arguments)
            .env_clear()
            .env("KUBERNETES_SERVICE_HOST", API_SERVER_NAME)
            .env("KUBERNETES_SERVICE_PORT", &self.api_server_port)
            .exec();
        Err(error).with_context(|| format!("cannot execute {}", self.program))
    }

    fn mount(&self, pod: &Path, configuration: &Path) -> Result<()> {
        let root = &self.root;
        mount_bind(root, root)?;
        mount_bind_recursive("/proc", root.join("proc"))?;
        mount_bind(pod, root.join(SERVICE_ACCOUNT))?;
        mount_bind(pod.join("hosts"), root.join(HOSTS))?;
        mount_bind(configuration, root.join(CONFIGURATION))?;
        let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        for path in [root.clone(), root.join(SERVICE_ACCOUNT), root.join(HOSTS), root.join(CONFIGURATION)] {
            mount_remount(&path, flags, c"")?;
        }
        Ok(())
    }
}

/// Writes what a kubelet mounts into a pod: token and CA of the service account, and the hosts file.
fn write_pod_files(folder: &Path, kubeconfig: &Path) -> Result<()> {
    let document: serde_json::Value = serde_json::from_str(&fs::read_to_string(kubeconfig)?)?;
    let text = |pointer: &str| document.pointer(pointer).and_then(|value| value.as_str());
    let token = text("/users/0/user/token").context("no token in the kubeconfig")?;
    let ca = document.pointer("/clusters/0/cluster/certificate-authority-data").context("no CA")?;
    let ca: k8s_openapi::ByteString = serde_json::from_value(ca.clone())?;
    let hosts = format!("127.0.0.1 {API_SERVER_NAME}\n");
    fs::create_dir_all(folder)?;
    for (name, content) in [
        ("token", token.as_bytes()),
        ("ca.crt", ca.0.as_slice()),
        ("namespace", NAMESPACE.as_bytes()),
        ("hosts", hosts.as_bytes()),
    ] {
        let path = folder.join(name);
        fs::write(&path, content)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400))?;
        chown(&path, Some(ID), Some(ID))?;
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn drop_privileges() -> Result<()> {
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Ok(()) => {}
            // The kernel knows no capability of this number.
            Err(Errno::INVAL) if number > 0 => break,
            Err(error) => bail!("capability {number}: {error}"),
        }
    }
    let (user, group) = (Uid::from_raw(ID), Gid::from_raw(ID));
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    Ok(())
}

/// Becomes the manager if the command line says so; then returns only an error.
pub(crate) fn enter_if_asked() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, first, description, kubeconfig_flag, kubeconfig, config_flag, configuration, ..] = &arguments[..]
    else {
        return Ok(());
    };
    if first != ENTER {
        return Ok(());
    }
    ensure!(kubeconfig_flag == "--kubeconfig" && config_flag == "--config", "{arguments:?}");
    let container: Container = serde_json::from_str(&fs::read_to_string(description)?)?;
    container.enter(Path::new(kubeconfig), Path::new(configuration))
}
