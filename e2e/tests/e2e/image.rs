//! The image: packed, unpacked, and run with the restrictions of the shipped Deployment.

use crate::cases::{NotRun, note};
use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use sluice_e2e::binaries::{self, Build};
use sluice_e2e::cgroup::Cgroup;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::container::{Confinement, Mount};
use sluice_e2e::control_plane::ControlPlane;
use sluice_e2e::install::{ACCOUNT, NAMESPACE};
use sluice_e2e::manager::ManagerSettings;
use sluice_e2e::process::ProcessUsage;
use sluice_e2e::{kubeconfig, paths};
use sluice_release::contents::{KUEUE_PROGRAM, PROGRAM};
use sluice_release::libraries::{self, Debian};
use sluice_release::source::Source;
use sluice_release::unpack::ImageArchive;
use sluice_release::{archive, command, image};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Memory limit in the shipped Deployment.
const MEMORY_LIMIT: u64 = 1 << 30;
/// Where a pod finds its credentials.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Where Kueue's Deployment mounts the configuration.
const CONFIGURATION: &str = "/controller_manager_config.yaml";
/// Name of the API server in the container; the server's certificate contains it.
const API_SERVER_NAME: &str = "kubernetes";
/// The user and group of the image.
const ID: u32 = 65532;
/// Files of the image beside libraries and licence texts.
const FILES: [&str; 10] = [
    "etc/group",
    "etc/nsswitch.conf",
    "etc/passwd",
    "kubectl-kueue",
    "kubectl-sluice",
    "kubectl_complete-kueue",
    "kubectl_complete-sluice",
    "kueuectl",
    "manager",
    "sluice",
];
/// Folder of the licence texts, and some of them with words that each contains.
const DOCUMENTS: &str = "usr/share";
const LICENSES: [(&str, &str); 7] = [
    ("doc/libc6/copyright", "GNU C Library"),
    ("doc/libgcc-s1/copyright", "GCC Runtime Library Exception"),
    ("common-licenses/LGPL-2.1", "GNU LESSER GENERAL PUBLIC LICENSE"),
    ("common-licenses/GPL-3", "GNU GENERAL PUBLIC LICENSE"),
    ("doc/sluice/LICENSE", "Apache License"),
    ("doc/sluice/LICENSES-crates", "Jason Evans"),
    ("doc/sluice/COPYRIGHT-rust-library.html", "The Rust Standard Library"),
];

/// Kueue's command line runs in the unpacked image as another user, without capabilities, on a read-only root and within
/// the memory limit: the manager finds the API server by a host name, becomes ready and admits a Job. There is no shell.
pub(crate) async fn manager_runs_in_image(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    check_packing()?;
    if let Err(reason) = check_support() {
        return Err(NotRun::because(format_args!("this machine forbids a mount namespace: {reason:#}")));
    }
    let folder = cluster.plane.folder().to_owned();
    let root = folder.join("image-root");
    unpack_image(&root)?;
    check_command_line(&folder)?;
    let cgroup = Cgroup::with_memory(MEMORY_LIMIT);
    let old = cluster.manager()?.settings().clone();
    let pod = write_pod_files(&cluster.plane).await?;
    let mount = |source: PathBuf, target: &str| Mount { source, target: target.to_owned(), writable: false };
    let confinement = Confinement {
        root: root.clone(),
        mounts: vec![
            mount(pod.clone(), SERVICE_ACCOUNT),
            mount(pod.join("hosts"), "/etc/hosts"),
            mount(folder.join(format!("{}.yaml", old.name)), CONFIGURATION),
        ],
        cgroup_members: cgroup.iter().flat_map(Cgroup::members).collect(),
        user: ID,
        group: ID,
    };
    let program = write_launcher(&confinement, &cluster.plane)?;
    let settings = ManagerSettings { program, ..old };
    let old = cluster.replace_manager(&settings).await?;
    let pid = cluster.manager()?.process().identity().pid;
    check_restrictions(pid, cgroup.is_some())?;

    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    fixture.submit(fixture.job("first", "main", "1")).await?;
    fixture.wait_until_running("first").await?;
    fixture.submit(fixture.job("second", "main", "1")).await?;
    fixture.wait_until_pending("second", "WaitingForQuota").await?;
    fixture.finish_job("first").await?;
    fixture.wait_until_running("second").await?;
    fixture.finish_job("second").await?;

    cluster.manager()?.process().check()?;
    note(format_args!("{} MiB resident at most in the image", ProcessUsage::of_process(pid)?.peak_mib));
    cluster.replace_manager(&old).await?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    ensure!(!mounts.contains(&root.display().to_string()), "a mount of the container is left:\n{mounts}");
    Ok(())
}

/// An error `NotRun` where this machine cannot pack an image.
pub(crate) fn check_packing() -> Result<()> {
    if Command::new("dpkg-query").arg("--version").output().is_ok() {
        Ok(())
    } else {
        Err(NotRun::because("no dpkg-query; the image is packed on Debian"))
    }
}

/// The archive of the command line has a program that answers by each of its names, manual pages and scripts.
fn check_command_line(folder: &Path) -> Result<()> {
    let program = stripped_program(&folder.join("command-line"))?;
    let architecture = libraries::requirements(&program, &Debian)?.architecture;
    let bytes = archive::pack(&program, architecture, &Source::read(paths::root())?)?;
    archive::unpack(&bytes, folder)?;
    let unpacked = folder.join(archive::stem(architecture));
    let run = |name: &str, words: &[&str]| command::output(Command::new(unpacked.join(name)).args(words));
    ensure!(run("sluice", &["version"])?.starts_with("sluice "), "the program does not say its version");
    ensure!(run("kubectl-sluice", &["why", "--help"])?.contains("kubectl sluice why"), "no help as a plugin");
    ensure!(run("kueuectl", &["--help"])?.contains("kueuectl"), "no help as kueuectl");
    ensure!(run("kubectl_complete-kueue", &["st"])?.contains("stop"), "no completion");
    for (file, words) in [
        ("man/man1/sluice-why.1", "sluice\\-why"),
        ("completion/_sluice", "#compdef sluice"),
        ("k9s/plugins.yaml", "sluice why"),
        ("LICENSE", "Apache License"),
        ("LICENSES-crates", "clap_mangen"),
    ] {
        let text = fs::read_to_string(unpacked.join(file)).with_context(|| file.to_owned())?;
        ensure!(text.contains(words), "{file} does not contain {words}");
    }
    note(format_args!("{} KiB with the command line", bytes.len() >> 10));
    Ok(())
}

/// Writes the program `sluice` without symbols, as a release has it: with them each image would be three times as large.
/// Optimizing it as a release takes longer than all cases. Returns its path.
pub(crate) fn stripped_program(folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let path = folder.join("sluice");
    command::run(Command::new("strip").arg("-o").arg(&path).arg(binaries::sluice(Build::Dev)?))?;
    Ok(path)
}

/// Packs the program, checks the archive and unpacks it into a folder.
pub(crate) fn unpack_image(root: &Path) -> Result<()> {
    let source = Source::read(paths::root())?;
    let packed = image::pack(&stripped_program(&root.with_extension("build"))?, "sluice", &source, &Debian)?;
    let archive = ImageArchive::read(&packed.archive)?;
    ensure!(archive.digest == packed.digest, "{} and {}", archive.digest, packed.digest);
    ensure!(archive.config["config"]["Entrypoint"] == json!([PROGRAM]), "{}", archive.config);
    note(format_args!("{}, {} KiB", packed.digest, packed.archive.len() >> 10));
    let _ = fs::remove_dir_all(root);
    archive.unpack(root)?;
    let mut files = BTreeSet::new();
    list_files(root, root, &mut files)?;
    files.retain(|file| !file.starts_with(DOCUMENTS));
    let (libraries, others): (Vec<&String>, Vec<&String>) =
        files.iter().partition(|file| file.contains(".so"));
    ensure!(others == FILES, "the image has the files {others:?}");
    ensure!(libraries.iter().any(|file| file.ends_with("/libc.so.6")), "no libc.so.6 in {libraries:?}");
    for (file, words) in LICENSES {
        let text = fs::read_to_string(root.join(DOCUMENTS).join(file)).with_context(|| file.to_owned())?;
        ensure!(text.contains(words), "{file} does not contain {words:?}");
    }
    Ok(())
}

/// Collects files and links, relative to the root.
fn list_files(root: &Path, folder: &Path, files: &mut BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            list_files(root, &path, files)?;
        } else {
            files.insert(path.strip_prefix(root)?.display().to_string());
        }
    }
    Ok(())
}

/// Returns an error with the reason if this user may not create a mount namespace.
fn check_support() -> Result<()> {
    let command = ["--mount", "--propagation", "private", "true"];
    let output = Command::new("unshare").args(command).output().context("cannot run unshare")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// Writes what a kubelet mounts into a pod: token and CA of the service account, and the hosts file. Returns the folder.
async fn write_pod_files(plane: &ControlPlane) -> Result<PathBuf> {
    let folder = plane.folder().join("image-pod");
    let token = kubeconfig::token(&plane.admin().await?, NAMESPACE, ACCOUNT).await?;
    fs::create_dir_all(&folder)?;
    for (name, content) in [
        ("token", token),
        ("ca.crt", plane.ca_pem()),
        ("namespace", NAMESPACE.to_owned()),
        ("hosts", format!("127.0.0.1 {API_SERVER_NAME}\n")),
    ] {
        let path = folder.join(name);
        fs::write(&path, content)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400))?;
        chown(&path, Some(ID), Some(ID))?;
    }
    Ok(folder)
}

/// Writes a script that starts the manager in the container with Kueue's command line, whichever arguments it gets. The
/// only addition is the address at which the API server calls the webhooks instead of their Service.
fn write_launcher(confinement: &Confinement, plane: &ControlPlane) -> Result<PathBuf> {
    let port = plane.server().rsplit(':').next().context("no port")?;
    let enter = confinement.prepare(&plane.folder().join("container.json"))?;
    let script = format!(
        "#!/bin/sh\nexec env -i KUBERNETES_SERVICE_HOST={API_SERVER_NAME} KUBERNETES_SERVICE_PORT={port} \\\n\
         unshare --mount --propagation private '{}' \\\n\
         {KUEUE_PROGRAM} --config={CONFIGURATION} --zap-log-level=2 --webhook-san=127.0.0.1\n",
        enter.join("' '")
    );
    let path = plane.folder().join("container-launcher");
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// Checks user, capabilities, root folder and control group of the process.
fn check_restrictions(pid: u32, limited: bool) -> Result<()> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|value| value.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap_or_default()
    };
    for (name, expected) in [
        ("Uid", "65532 65532 65532 65532"),
        ("Gid", "65532 65532 65532 65532"),
        ("Groups", ""),
        ("NoNewPrivs", "1"),
    ] {
        ensure!(field(name) == expected, "{name} is {}", field(name));
    }
    for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        ensure!(field(name).chars().all(|digit| digit == '0'), "{name} is {}", field(name));
    }
    let root = format!("/proc/{pid}/root");
    // As root: only the mount forbids it.
    for path in ["file", "etc/passwd", "lib/file"] {
        let written = fs::File::options().create(true).append(true).open(format!("{root}/{path}"));
        let kind = written.err().map(|error| error.kind());
        ensure!(kind == Some(ErrorKind::ReadOnlyFilesystem), "writing to /{path}: {kind:?}");
    }
    for shell in ["bin/sh", "bin/bash", "bin/busybox", "usr/bin"] {
        ensure!(!Path::new(&root).join(shell).exists(), "the image has /{shell}");
    }
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    ensure!(!limited || groups.contains("/sluice-e2e-"), "it is in no control group of its own:\n{groups}");
    Ok(())
}
