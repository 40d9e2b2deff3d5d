//! Who owns an installation, and the commands with which that owner changes it.

use serde_json::Value;

/// Who wrote the objects of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Applied from manifests.
    Kubectl,
    /// A release.
    Helm {
        /// Its name.
        release: String,
        /// Its namespace.
        namespace: String,
    },
    /// A GitOps controller.
    GitOps {
        /// Name of the controller.
        controller: &'static str,
        /// The application or kustomization that has the objects.
        source: String,
    },
}

/// Where GitOps controllers say that an object is theirs, as pointers in the metadata.
const GITOPS_MARKS: [(&str, &str); 4] = [
    ("/annotations/argocd.argoproj.io~1tracking-id", "Argo CD"),
    ("/labels/argocd.argoproj.io~1instance", "Argo CD"),
    ("/labels/kustomize.toolkit.fluxcd.io~1name", "Flux"),
    ("/labels/helm.toolkit.fluxcd.io~1name", "Flux"),
];

impl Owner {
    /// Reads the owner from the manager's Deployment, or from a definition where there is none.
    pub(super) fn of(object: &Value) -> Self {
        let text = |pointer: &str| object.pointer(&format!("/metadata{pointer}")).and_then(Value::as_str);
        let controller = GITOPS_MARKS.iter().find_map(|(mark, controller)| Some((*controller, text(mark)?)));
        if let Some((controller, source)) = controller {
            return Self::GitOps { controller, source: source.to_owned() };
        }
        match (
            text("/annotations/meta.helm.sh~1release-name"),
            text("/annotations/meta.helm.sh~1release-namespace"),
        ) {
            (Some(release), Some(namespace)) => {
                Self::Helm { release: release.to_owned(), namespace: namespace.to_owned() }
            }
            _ => Self::Kubectl,
        }
    }

    /// Returns a description.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Kubectl => "kubectl".to_owned(),
            Self::Helm { release, namespace } => format!("Helm, release {namespace}/{release}"),
            Self::GitOps { controller, source } => format!("{controller}, {source}"),
        }
    }

    /// Returns the commands that replace Kueue's manager by Sluice's; the selector of a Deployment cannot change.
    pub(super) fn replace_by_sluice(&self, namespace: &str) -> Vec<String> {
        let delete = delete_deployment(namespace);
        match self {
            Self::Kubectl => vec![
                "# with ../v1beta1 under components in config/default/kustomization.yaml, and your configuration".to_owned(),
                delete,
                "kubectl apply --server-side --force-conflicts -k config/default".to_owned(),
            ],
            Self::Helm { release, namespace: of_release } => vec![
                "# helm upgrade, not uninstall: that would delete the definitions and all Workloads".to_owned(),
                delete,
                format!(
                    "helm upgrade {release} charts/sluice --namespace {of_release} --set v1beta1.enabled=true --values VALUES"
                ),
            ],
            Self::GitOps { controller, source } => vec![
                format!("# in the source of {source}: Sluice's manifests instead of Kueue's, with config/v1beta1; then"),
                delete,
                format!("# and let {controller} synchronise it, with server-side apply"),
            ],
        }
    }

    /// Returns the commands that replace Sluice's manager by Kueue's.
    pub(super) fn replace_by_kueue(&self, namespace: &str) -> Vec<String> {
        let delete = delete_deployment(namespace);
        match self {
            Self::Kubectl => vec![
                delete,
                "kubectl apply --server-side --force-conflicts -f manifests.yaml  # of your version of Kueue"
                    .to_owned(),
            ],
            Self::Helm { release, namespace: of_release } => vec![
                "# helm upgrade, not uninstall: the objects stay those of one release".to_owned(),
                delete,
                format!("helm upgrade {release} KUEUE_CHART --namespace {of_release} --values VALUES"),
            ],
            Self::GitOps { controller, source } => vec![
                format!("# in the source of {source}: Kueue's manifests instead of Sluice's; then"),
                delete,
                format!("# and let {controller} synchronise it, with server-side apply"),
            ],
        }
    }

    /// Returns the annotation with which the owner keeps an object that its source no longer has; `None` if it deletes none.
    pub(super) fn keeping_mark(&self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::GitOps { controller: "Argo CD", .. } => {
                Some(("argocd.argoproj.io/sync-options", "Prune=false,Delete=false"))
            }
            Self::GitOps { .. } => Some(("kustomize.toolkit.fluxcd.io/prune", "disabled")),
            Self::Kubectl | Self::Helm { .. } => None,
        }
    }
}

fn delete_deployment(namespace: &str) -> String {
    format!("kubectl --namespace {namespace} delete deployment {}", super::inventory::DEPLOYMENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn owner_is_read_from_marks() {
        let of = |metadata: Value| Owner::of(&json!({"metadata": metadata}));
        assert_eq!(of(json!({"name": "a"})), Owner::Kubectl);
        let helm = json!({"annotations": {"meta.helm.sh/release-name": "kueue", "meta.helm.sh/release-namespace": "q"}});
        assert_eq!(of(helm.clone()), Owner::Helm { release: "kueue".to_owned(), namespace: "q".to_owned() });
        // Argo CD and Flux render charts: the objects have Helm's marks as well.
        let mut argo = helm;
        argo["annotations"]["argocd.argoproj.io/tracking-id"] = "batch:apps/Deployment:q/kueue".into();
        assert_eq!(of(argo).keeping_mark().map(|(name, _)| name), Some("argocd.argoproj.io/sync-options"));
        let flux = json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "infra"}});
        assert!(of(flux).describe().contains("infra"));
    }

    #[test]
    fn no_command_deletes_definitions() {
        let owners = [
            Owner::Kubectl,
            Owner::Helm { release: "kueue".to_owned(), namespace: "q".to_owned() },
            Owner::GitOps { controller: "Flux", source: "infra".to_owned() },
        ];
        for owner in owners {
            let all = [owner.replace_by_sluice("q"), owner.replace_by_kueue("q")].concat();
            let commands: Vec<&String> = all.iter().filter(|line| !line.starts_with('#')).collect();
            assert!(!commands.is_empty());
            for command in commands {
                assert!(!command.contains("uninstall") && !command.contains("crd"), "{command}");
            }
        }
    }
}
