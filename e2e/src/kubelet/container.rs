//! A container: a process with the root folder of an image, in the pod's network namespace, with the user, the limits
//! and the mounts that the pod says.
//!
//! Invariant: what the pod asks for and this machine cannot give is an error, so that no test passes with less.

use super::network::{API_SERVICE, PodNamespace};
use crate::cgroup::{Cgroup, CgroupLimits};
use crate::container::{Confinement, Mount};
use crate::objects::text;
use crate::process::{Process, ProcessGuard};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// User and group of all images here.
const IMAGE_ACCOUNT: u64 = 65532;

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
            .args([
                "unshare",
                "--uts",
                "--mount",
                "--propagation",
                "private",
                "--pid",
                "--fork",
                "--kill-child",
            ])
            // A manager's identity begins with its host name.
            .args(["sh", "-c", "hostname \"$0\" && exec \"$@\"", text(spec.pod, "/metadata/name")])
            .args(confinement(spec, root, &cgroup)?.prepare(&spec.folder.join("container.json"))?)
            .args(command_line(spec.container)?)
            .current_dir("/")
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOSTNAME", text(spec.pod, "/metadata/name"))
            .env("KUBERNETES_SERVICE_HOST", API_SERVICE)
            .env("KUBERNETES_SERVICE_PORT", "443");
        for variable in spec.container["env"].as_array().into_iter().flatten() {
            let value = match text(variable, "/valueFrom/fieldRef/fieldPath") {
                "status.podIP" => Some(spec.network.address.as_str()),
                _ => variable["value"].as_str(),
            };
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

/// Copies the image, which is the root also after a restart.
fn prepare_root(spec: &ContainerSpec<'_>) -> Result<PathBuf> {
    let root = spec.folder.join("root");
    if root.exists() {
        return Ok(root);
    }
    let copied = Command::new("cp").arg("--archive").arg(spec.image).arg(&root).status().context("cp")?;
    ensure!(copied.success(), "cannot copy {}", spec.image.display());
    fs::create_dir_all(root.join("etc"))?;
    fs::write(root.join("etc/hostname"), format!("{}\n", text(spec.pod, "/metadata/name")))?;
    Ok(root)
}

/// Returns what confines the container. What the pod leaves open is an error.
fn confinement(spec: &ContainerSpec<'_>, root: PathBuf, cgroup: &Cgroup) -> Result<Confinement> {
    let security = &spec.container["securityContext"];
    ensure!(security["readOnlyRootFilesystem"] == true, "the container may write to its root");
    ensure!(security["allowPrivilegeEscalation"] == false, "the container may gain privileges");
    ensure!(security["capabilities"]["drop"][0] == "ALL", "the container keeps capabilities");
    Ok(Confinement {
        root,
        mounts: spec.mounts.to_vec(),
        cgroup_members: cgroup.members().collect(),
        user: account(spec.pod, "runAsUser")?,
        group: account(spec.pod, "runAsGroup")?,
    })
}

/// Returns the user or group of a pod; that of its image if the pod names none and must not be root.
pub(super) fn account(pod: &Value, field: &str) -> Result<u32> {
    let security = &pod["spec"]["securityContext"];
    let id = security[field].as_u64().or_else(|| (security["runAsNonRoot"] == true).then_some(IMAGE_ACCOUNT));
    id.and_then(|id| u32::try_from(id).ok()).with_context(|| format!("the pod has no {field}"))
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
