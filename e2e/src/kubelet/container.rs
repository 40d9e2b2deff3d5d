//! A container: a process with the root folder of an image, in the pod's network namespace, with the user, the limits
//! and the mounts that the pod says.
//!
//! Invariant: what the pod asks for and this machine cannot give is an error, so that no test passes with less.

use super::network::{API_SERVICE, PodNamespace};
use super::volumes::Mount;
use crate::cgroup::{Cgroup, CgroupLimits};
use crate::objects::text;
use crate::process::{Process, ProcessGuard};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A container to start.
pub(super) struct ContainerSpec<'a> {
    /// The pod.
    pub(super) pod: &'a Value,
    /// The container in its spec.
    pub(super) container: &'a Value,
    /// Root folder of the image.
    pub(super) image: &'a Path,
    /// Folder for the root of the container and its log.
    pub(super) folder: &'a Path,
    /// Its mounts.
    pub(super) mounts: &'a [Mount],
    /// Its network.
    pub(super) network: &'a PodNamespace,
}

/// A running container.
pub(super) struct Container {
    /// The process that waits for the container's.
    pub(super) process: Process,
    cgroup: Cgroup,
}

impl Container {
    /// Starts the command of the container.
    pub(super) fn start(spec: &ContainerSpec<'_>, guard: &ProcessGuard) -> Result<Self> {
        let root = prepare_root(spec)?;
        let limits = &spec.container["resources"]["limits"];
        let limits = CgroupLimits {
            memory: memory(text(limits, "/memory"))?,
            cpu_millis: Some(cpu_millis(text(limits, "/cpu"))?),
        };
        let cgroup = Cgroup::new(&spec.network.name, limits)?;
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", spec.network.name))
            .args(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c"])
            .arg(script(spec, &root, &cgroup)?)
            .arg("sh")
            .args(command_line(spec.container)?)
            .current_dir("/")
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOSTNAME", text(spec.pod, "/metadata/name"))
            .env("KUBERNETES_SERVICE_HOST", API_SERVICE)
            .env("KUBERNETES_SERVICE_PORT", "443");
        for variable in spec.container["env"].as_array().into_iter().flatten() {
            let value = variable["value"].as_str();
            let value = value.with_context(|| format!("the variable is not handled: {variable}"))?;
            command.env(text(variable, "/name"), value);
        }
        let process = Process::start("container", &mut command, &spec.folder.join("log"), guard)?;
        Ok(Self { process, cgroup })
    }
}

impl Container {
    /// Returns why the container ended, as the status of a pod says it.
    pub(super) fn end_reason(&self) -> &'static str {
        if self.cgroup.has_killed() { "OOMKilled" } else { "Error" }
    }
}

/// Copies the image and creates what mounts need.
fn prepare_root(spec: &ContainerSpec<'_>) -> Result<PathBuf> {
    let root = spec.folder.join("root");
    if root.exists() {
        return Ok(root);
    }
    let copied = Command::new("cp").arg("--archive").arg(spec.image).arg(&root).status().context("cp")?;
    ensure!(copied.success(), "cannot copy {}", spec.image.display());
    fs::create_dir_all(root.join("proc"))?;
    fs::create_dir_all(root.join("etc"))?;
    fs::write(root.join("etc/hostname"), format!("{}\n", text(spec.pod, "/metadata/name")))?;
    for mount in spec.mounts {
        let target = root.join(mount.target.trim_start_matches('/'));
        if mount.source.is_dir() {
            fs::create_dir_all(&target)?;
        } else {
            fs::create_dir_all(target.parent().unwrap_or(&root))?;
            fs::write(&target, "")?;
        }
    }
    Ok(root)
}

/// Returns the script that mounts, joins the control group, and becomes the container's command.
fn script(spec: &ContainerSpec<'_>, root: &Path, cgroup: &Cgroup) -> Result<String> {
    let security = &spec.container["securityContext"];
    ensure!(security["readOnlyRootFilesystem"] == true, "the container may write to its root");
    ensure!(security["allowPrivilegeEscalation"] == false, "the container may gain privileges");
    ensure!(security["capabilities"]["drop"][0] == "ALL", "the container keeps capabilities");
    let account = &spec.pod["spec"]["securityContext"];
    let (user, group) = (&account["runAsUser"], &account["runAsGroup"]);
    ensure!(user.is_u64() && group.is_u64(), "the pod names no user and group");
    let root = root.display();
    let mut lines = vec![
        "set -e".to_owned(),
        "mount --make-rprivate /".to_owned(),
        format!("mount --bind '{root}' '{root}'"),
    ];
    for mount in spec.mounts {
        let target = format!("{root}{}", mount.target);
        lines.push(format!("mount --bind '{}' '{target}'", mount.source.display()));
        if !mount.writable {
            lines.push(format!("mount -o remount,bind,ro '{target}'"));
        }
    }
    lines.push(format!("mount -t proc proc '{root}/proc'"));
    lines.push(format!("mount -o remount,bind,ro '{root}'"));
    lines.extend(cgroup.members().map(|members| format!("echo 0 > '{}'", members.display())));
    // The change of the user drops all capabilities.
    let enter = format!("chroot --userspec={user}:{group} --groups= '{root}'");
    lines.push(format!("exec setpriv --no-new-privs --inh-caps=-all {enter} \"$@\""));
    Ok(lines.join("\n"))
}

/// Returns command and arguments; the entry point of the image is `/sluice`.
fn command_line(container: &Value) -> Result<Vec<String>> {
    let strings = |field: &str| -> Vec<String> {
        let all = container[field].as_array().into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut line = strings("command");
    if line.is_empty() {
        line.push("/sluice".to_owned());
    }
    line.extend(strings("args"));
    ensure!(
        !line.iter().any(|word| word.contains("$(")),
        "references in arguments are not handled: {line:?}"
    );
    Ok(line)
}

/// Reads a quantity of bytes such as 512Mi.
fn memory(text: &str) -> Result<u64> {
    let (digits, shift) = match (text.strip_suffix("Mi"), text.strip_suffix("Gi")) {
        (Some(digits), _) => (digits, 20),
        (_, Some(digits)) => (digits, 30),
        _ => (text, 0),
    };
    let count: u64 = digits.parse().with_context(|| format!("memory limit {text:?}"))?;
    Ok(count << shift)
}

/// Reads a quantity of CPU such as 2 or 500m.
fn cpu_millis(text: &str) -> Result<u64> {
    let (digits, factor) = text.strip_suffix('m').map_or((text, 1000), |digits| (digits, 1));
    let count: u64 = digits.parse().with_context(|| format!("CPU limit {text:?}"))?;
    Ok(count * factor)
}

#[cfg(test)]
mod tests {
    use super::{command_line, cpu_millis, memory};
    use serde_json::json;

    #[test]
    fn quantities_of_limits() {
        assert_eq!(memory("512Mi").ok(), Some(512 << 20));
        assert_eq!(memory("1Gi").ok(), Some(1 << 30));
        assert_eq!((cpu_millis("2").ok(), cpu_millis("500m").ok()), (Some(2000), Some(500)));
        assert!(memory("lots").is_err() && cpu_millis("").is_err());
    }

    #[test]
    fn entry_point_is_used_without_command() {
        let line = |container| command_line(&container).ok();
        assert_eq!(line(json!({"args": ["--a"]})), Some(vec!["/sluice".to_owned(), "--a".to_owned()]));
        assert_eq!(line(json!({"command": ["/manager"]})), Some(vec!["/manager".to_owned()]));
        assert_eq!(line(json!({"command": ["/manager", "$(HOST)"]})), None);
    }
}
