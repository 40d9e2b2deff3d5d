//! The Go modules from which the programs are built; versions and link flags follow from their module files.

use crate::paths;
use anyhow::{Context as _, Result, bail};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

/// Folder of the module of the default Kubernetes version; those of the others have the version as suffix.
const KUBERNETES: &str = "kubernetes";

/// A Go module below `e2e/controlplane` and the programs built from it.
#[derive(Clone)]
pub(crate) struct GoModule {
    pub(crate) folder: Cow<'static, str>,
    /// Module path whose version in go.mod is the component's version.
    module_path: &'static str,
    /// (binary name, package).
    pub(crate) programs: &'static [(&'static str, &'static str)],
    /// Link-time strings; `{v}`, `{major}` and `{minor}` are substituted.
    link_strings: &'static [&'static str],
}

const MODULES: [GoModule; 13] = [
    GoModule {
        folder: Cow::Borrowed(KUBERNETES),
        module_path: "k8s.io/kubernetes",
        programs: &[
            ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
            ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
            ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
            ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
        ],
        // Without these the server reports version v0.0.0, which clients read.
        link_strings: &[
            "k8s.io/component-base/version.gitVersion={v}",
            "k8s.io/component-base/version.gitMajor={major}",
            "k8s.io/component-base/version.gitMinor={minor}",
            "k8s.io/client-go/pkg/version.gitVersion={v}",
            "k8s.io/client-go/pkg/version.gitMajor={major}",
            "k8s.io/client-go/pkg/version.gitMinor={minor}",
        ],
    },
    GoModule {
        folder: Cow::Borrowed("etcd"),
        module_path: "go.etcd.io/etcd/server/v3",
        programs: &[("etcd", "go.etcd.io/etcd/server/v3")],
        link_strings: &[],
    },
    GoModule {
        folder: Cow::Borrowed("kwok"),
        module_path: "sigs.k8s.io/kwok",
        programs: &[("kwok", "sigs.k8s.io/kwok/cmd/kwok")],
        link_strings: &["sigs.k8s.io/kwok/pkg/consts.Version={v}"],
    },
    // Charts read the version of helm.
    GoModule {
        folder: Cow::Borrowed("helm"),
        module_path: "helm.sh/helm/v4",
        programs: &[("helm", "helm.sh/helm/v4/cmd/helm")],
        link_strings: &["helm.sh/helm/v4/internal/version.version={v}"],
    },
    GoModule {
        folder: Cow::Borrowed("helm3"),
        module_path: "helm.sh/helm/v3",
        programs: &[("helm3", "helm.sh/helm/v3/cmd/helm")],
        link_strings: &["helm.sh/helm/v3/internal/version.version={v}"],
    },
    // Takes recorded clusters back from Sluice; its manifests are read from the same module.
    operator("kueue", "sigs.k8s.io/kueue", &[("kueue", "sigs.k8s.io/kueue/cmd/kueue")]),
    operator("frameworks/jobset", "sigs.k8s.io/jobset", &[("jobset", "sigs.k8s.io/jobset")]),
    operator("frameworks/lws", "sigs.k8s.io/lws", &[("lws", "sigs.k8s.io/lws/cmd")]),
    operator(
        "frameworks/mpi-operator",
        "github.com/kubeflow/mpi-operator",
        &[("mpi-operator", "github.com/kubeflow/mpi-operator/cmd/mpi-operator")],
    ),
    operator(
        "frameworks/training-operator",
        "github.com/kubeflow/training-operator",
        &[("training-operator", "github.com/kubeflow/training-operator/cmd/training-operator.v1")],
    ),
    operator(
        "frameworks/kuberay",
        "github.com/ray-project/kuberay/ray-operator",
        &[("kuberay", "github.com/ray-project/kuberay/ray-operator")],
    ),
    operator(
        "frameworks/trainer",
        "github.com/kubeflow/trainer/v2",
        &[("trainer", "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager")],
    ),
    operator(
        "frameworks/appwrapper",
        "github.com/project-codeflare/appwrapper",
        &[("appwrapper", "github.com/project-codeflare/appwrapper/cmd")],
    ),
];

/// Controllers of job kinds, for `make e2e-operators`; definitions of the kinds are read from the same modules.
const fn operator(
    folder: &'static str,
    module_path: &'static str,
    programs: &'static [(&'static str, &'static str)],
) -> GoModule {
    GoModule { folder: Cow::Borrowed(folder), module_path, programs, link_strings: &[] }
}

/// Returns all modules, with the one of this minor version of Kubernetes; `None` is the default version.
pub(crate) fn modules(kubernetes: Option<&str>) -> Result<Vec<GoModule>> {
    let mut all = MODULES.to_vec();
    let module = all.first_mut().filter(|module| module.folder == KUBERNETES);
    let (Some(module), Some(wanted)) = (module, kubernetes) else { return Ok(all) };
    let default = module.minor_version()?;
    if wanted == default {
        return Ok(all);
    }
    module.folder = format!("{KUBERNETES}-{wanted}").into();
    if !module.folder().join("go.mod").is_file() {
        let mut known = vec![default];
        for entry in fs::read_dir(paths::root().join("e2e/controlplane"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            known.extend(name.strip_prefix(&format!("{KUBERNETES}-")).map(str::to_owned));
        }
        known.sort();
        bail!(
            "Kubernetes {wanted} has no module in e2e/controlplane; those that have are {}",
            known.join(", ")
        );
    }
    Ok(all)
}

impl GoModule {
    pub(crate) fn folder(&self) -> PathBuf {
        paths::root().join("e2e/controlplane").join(&*self.folder)
    }

    pub(crate) fn builds(&self, name: &str) -> bool {
        self.programs.iter().any(|(program, _)| *program == name)
    }

    /// Returns the folder of its binaries. Versions other than the default have their own, so that none replaces another.
    pub(crate) fn output(&self) -> PathBuf {
        let folder = paths::controlplane().join("bin");
        let is_default = MODULES.iter().any(|module| module.folder == self.folder);
        if is_default { folder } else { folder.join(&*self.folder) }
    }

    fn go_mod(&self) -> Result<String> {
        let path = self.folder().join("go.mod");
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    }

    pub(crate) fn version(&self) -> Result<String> {
        let text = self.go_mod()?;
        let line = text.lines().find_map(|line| {
            let requirement = line.trim().trim_start_matches("require ");
            requirement.strip_prefix(self.module_path)?.strip_prefix(' ')
        });
        let version = line.and_then(|rest| rest.split_whitespace().next());
        Ok(version
            .with_context(|| format!("{} is not in {}/go.mod", self.module_path, self.folder))?
            .to_owned())
    }

    /// Returns the first two numbers of the version.
    fn minor_version(&self) -> Result<String> {
        let version = self.version()?;
        let numbers: Vec<&str> = version.trim_start_matches('v').split('.').take(2).collect();
        Ok(numbers.join("."))
    }

    pub(crate) fn link_flags(&self) -> Result<String> {
        let version = self.version()?;
        let mut numbers = version.trim_start_matches('v').split('.');
        let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        let mut flags = "-s -w".to_owned();
        for string in self.link_strings {
            let value = string.replace("{v}", &version).replace("{major}", major).replace("{minor}", minor);
            write!(flags, " -X {value}")?;
        }
        Ok(flags)
    }

    /// Returns what determines a binary: link flags and go.mod. A change triggers a rebuild.
    pub(crate) fn stamp(&self) -> Result<String> {
        Ok(format!("{}\n{}", self.link_flags()?, self.go_mod()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selected_version_has_its_own_module_and_folder() {
        let kubernetes = |wanted| modules(wanted).map(|mut all| all.swap_remove(0));
        let default = kubernetes(None).unwrap();
        let minor = default.minor_version().unwrap();
        assert_eq!(kubernetes(Some(&minor)).unwrap().output(), default.output());
        for wanted in ["1.33", "1.37"] {
            let module = kubernetes(Some(wanted)).unwrap();
            assert!(module.version().unwrap().starts_with(&format!("v{wanted}.")), "{wanted}");
            assert!(module.output() != default.output(), "{wanted}");
        }
        let error = kubernetes(Some("1.2")).err().unwrap().to_string();
        assert!(
            error.contains("1.2 has no module") && error.ends_with(&format!("1.33, {minor}, 1.37")),
            "{error}"
        );
    }
}
