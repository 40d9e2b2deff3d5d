//! The owner of an installation, and the commands with which the owner changes it.

use serde_json::Value;

use super::inventory::{Inventory, Placed};
use super::leftovers::Installation;
use crate::cli::manager::settings;
use crate::frameworks::frameworks;

/// The tool that applies the objects of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// `kubectl apply` of manifests.
    Kubectl,
    /// A release of a Helm chart.
    Helm {
        /// Name of the release.
        release: String,
        /// Namespace of the release.
        namespace: String,
    },
    /// A GitOps controller.
    GitOps {
        /// Name of the controller.
        controller: &'static str,
        /// The application or kustomization of the objects, as its mark names it.
        source: String,
    },
}

/// Marks of GitOps controllers on their objects, as pointers in the metadata.
const GITOPS_MARKS: [(&str, &str); 4] = [
    ("/annotations/argocd.argoproj.io~1tracking-id", "Argo CD"),
    ("/labels/argocd.argoproj.io~1instance", "Argo CD"),
    ("/labels/kustomize.toolkit.fluxcd.io~1name", "Flux"),
    ("/labels/helm.toolkit.fluxcd.io~1name", "Flux"),
];

impl Owner {
    /// Reads the owner from the manager's Deployment, or from a definition if there is no Deployment.
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

    /// Returns the commands that replace one manager by the other. The old Deployment is deleted, because its selector cannot
    /// change. Lines that begin with `#` are notes for the reader.
    pub(super) fn replacement(&self, situation: &Situation<'_>) -> Vec<String> {
        let mut lines = Vec::new();
        if !situation.is_applied {
            lines.extend(match situation.new {
                Installation::Sluice => self.before_sluice(situation),
                Installation::Kueue => self.before_kueue(),
            });
        }
        if !situation.old.is_empty() {
            let names = situation.old.join(" ");
            lines.push(format!("kubectl --namespace {} delete deployment {names}", situation.namespace));
        }
        if !situation.is_applied {
            lines.extend(situation.verified_api_services());
            lines.push(self.apply(situation));
        }
        lines
    }

    fn before_sluice(&self, situation: &Situation<'_>) -> Vec<String> {
        let components: Vec<String> = std::iter::once("v1beta1".to_owned())
            .chain(situation.components.iter().map(|component| format!("frameworks/{component}")))
            .map(|component| format!("../{component}"))
            .collect();
        match self {
            Self::Kubectl => {
                let mut lines = vec![
                    format!(
                        "# in config/default/kustomization.yaml under components: {}",
                        components.join(", ")
                    ),
                    "# in config/manager/controller_manager_config.yaml: your configuration".to_owned(),
                ];
                if situation.namespace != settings::DEFAULT_NAMESPACE {
                    lines.push(format!(
                        "# in config/default/kustomization.yaml: namespace: {}",
                        situation.namespace
                    ));
                }
                lines
            }
            Self::Helm { .. } => {
                vec![
                    "# helm upgrade, not uninstall: that would delete the definitions and all Workloads"
                        .to_owned(),
                ]
            }
            Self::GitOps { source, .. } => vec![format!(
                "# in the source of {source}: Sluice's manifests instead of Kueue's, with {}, and your configuration; then",
                components.join(", ").replace("../", "config/")
            )],
        }
    }

    fn before_kueue(&self) -> Vec<String> {
        match self {
            Self::Kubectl => Vec::new(),
            Self::Helm { .. } => {
                vec!["# helm upgrade, not uninstall: the objects stay those of one release".to_owned()]
            }
            Self::GitOps { source, .. } => {
                vec![format!("# in the source of {source}: Kueue's manifests instead of Sluice's; then")]
            }
        }
    }

    fn apply(&self, situation: &Situation<'_>) -> String {
        match (self, situation.new) {
            (Self::Kubectl, Installation::Sluice) => {
                "kubectl apply --server-side --force-conflicts -k config/default".to_owned()
            }
            (Self::Kubectl, Installation::Kueue) => {
                "kubectl apply --server-side --force-conflicts -f manifests.yaml  # of your version of Kueue"
                    .to_owned()
            }
            (Self::Helm { release, namespace }, Installation::Sluice) => {
                let names = if situation.prefix == "kueue" {
                    String::new()
                } else {
                    format!(" --set fullnameOverride={}", situation.prefix)
                };
                format!(
                    "helm upgrade {release} charts/sluice --namespace {namespace} --set v1beta1.enabled=true{names} --values VALUES"
                )
            }
            (Self::Helm { release, namespace }, Installation::Kueue) => {
                format!("helm upgrade {release} KUEUE_CHART --namespace {namespace} --values VALUES")
            }
            (Self::GitOps { controller, .. }, _) => {
                format!("# and let {controller} synchronise it, with server-side apply")
            }
        }
    }

    /// Returns the annotation that makes the owner keep an object that its source no longer has; `None` if the owner deletes no
    /// objects.
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

/// Facts on which the commands of a replacement depend.
pub(super) struct Situation<'a> {
    pub(super) new: Installation,
    /// Namespace of both managers.
    pub(super) namespace: &'a str,
    /// Prefix of the names of both installations.
    pub(super) prefix: &'a str,
    /// Deployments of the old manager.
    pub(super) old: Vec<&'a str>,
    /// Whether the new manager's Deployment exists.
    pub(super) is_applied: bool,
    /// Components of `config/frameworks` that the configuration needs.
    pub(super) components: Vec<String>,
    /// APIServices with an authority. Kueue's manifests disable verification, and cannot be applied over them.
    pub(super) verified: Vec<&'a str>,
}

impl<'a> Situation<'a> {
    /// Derives the facts from an inventory.
    pub(super) fn of(inventory: &'a Inventory, new: Installation) -> Self {
        let managers = &inventory.managers;
        let has_authority = |placed: &&Placed| placed.object.pointer("/spec/caBundle").is_some();
        let verified = inventory.api_services.iter().filter(has_authority);
        Self {
            new,
            namespace: &managers.namespace,
            prefix: managers.prefix(),
            old: managers.names_of(new.other()),
            is_applied: managers.installation() == Some(new),
            components: components(inventory),
            verified: verified.filter_map(|placed| placed.path.rsplit('/').next()).collect(),
        }
    }

    fn verified_api_services(&self) -> Option<String> {
        let due = self.new == Installation::Kueue && !self.verified.is_empty();
        due.then(|| format!("kubectl delete apiservice --ignore-not-found {}", self.verified.join(" ")))
    }
}

/// Returns the components of `config/frameworks` for the kinds of jobs that the cluster's configuration lists and the shipped
/// one does not.
pub(super) fn components(inventory: &Inventory) -> Vec<String> {
    let text = inventory.configuration.as_deref().unwrap_or_default();
    let document = settings::document_of(text, "configuration", None).unwrap_or_default();
    let listed = document.pointer("/integrations/frameworks").and_then(Value::as_array).cloned();
    let listed = listed.unwrap_or_default();
    let needed = frameworks().filter(|row| !row.is_shipped() && listed.iter().any(|name| *name == *row.name));
    needed.map(|row| row.gvk.kind.to_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tools::migrate::managers::tests::deployment;
    use serde_json::json;

    #[test]
    fn owner_is_read_from_marks() {
        let of = |metadata: Value| Owner::of(&json!({"metadata": metadata}));
        assert_eq!(of(json!({"name": "a"})), Owner::Kubectl);
        let helm = json!({"annotations": {"meta.helm.sh/release-name": "kueue", "meta.helm.sh/release-namespace": "q"}});
        assert_eq!(of(helm.clone()), Owner::Helm { release: "kueue".to_owned(), namespace: "q".to_owned() });
        // Argo CD and Flux render charts, so their objects have Helm's marks as well.
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
        let mut inventory = Inventory::with_definitions();
        for (owner, new) in
            owners.iter().flat_map(|owner| [(owner, Installation::Sluice), (owner, Installation::Kueue)])
        {
            inventory.managers.deployments = vec![deployment(new.other(), "kueue-system", 1)];
            let all = owner.replacement(&Situation::of(&inventory, new));
            let commands: Vec<&String> = all.iter().filter(|line| !line.starts_with('#')).collect();
            assert!(!commands.is_empty());
            for command in commands {
                assert!(!command.contains("uninstall") && !command.contains("crd"), "{command}");
            }
        }
    }

    #[test]
    fn commands_fit_the_cluster() {
        let mut inventory = Inventory::with_definitions();
        inventory.managers.deployments = vec![deployment(Installation::Kueue, "kueue-system", 1)];
        inventory.managers.deployments[0]["metadata"]["name"] = "batch-kueue-controller-manager".into();
        inventory.configuration = Some(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations:\n  frameworks: [batch/job, kubeflow.org/mpijob, kubeflow.org/tfjob, kubeflow.org/jaxjob]\n"
                .to_owned(),
        );
        let lines = Owner::Kubectl.replacement(&Situation::of(&inventory, Installation::Sluice));
        assert!(
            lines[0].contains("components: ../v1beta1, ../frameworks/tfjob, ../frameworks/jaxjob"),
            "{lines:?}"
        );
        let helm = Owner::Helm { release: "batch".to_owned(), namespace: "q".to_owned() };
        let lines = helm.replacement(&Situation::of(&inventory, Installation::Sluice));
        assert!(lines[2].contains("--set fullnameOverride=batch-kueue"), "{lines:?}");
        // Kueue's APIServices are not verified, and an authority in them would be refused.
        let api_service = json!({"spec": {"caBundle": "eA=="}});
        inventory.api_services =
            vec![Placed { path: "/apis/x/apiservices/v1beta2.visibility".to_owned(), object: api_service }];
        inventory.managers.deployments = vec![deployment(Installation::Sluice, "kueue-system", 1)];
        let lines = Owner::Kubectl.replacement(&Situation::of(&inventory, Installation::Kueue));
        assert_eq!(lines[1], "kubectl delete apiservice --ignore-not-found v1beta2.visibility");
        // No command is left.
        assert!(Owner::Kubectl.replacement(&Situation::of(&inventory, Installation::Sluice)).is_empty());
    }
}
