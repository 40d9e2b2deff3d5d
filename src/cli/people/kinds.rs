//! The kinds that verbs name, with their aliases, and their paths.

use crate::cache::{ApiResourceInfo, Kind};
use crate::kube::client::collection_path;

/// Labels of the manager's Deployments in the manifests and charts of Kueue and of this project.
pub(super) const MANAGER: &str = "control-plane=controller-manager,app.kubernetes.io/name=kueue";

/// A kind of Kueue that verbs act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeopleKind {
    Workload,
    ClusterQueue,
    LocalQueue,
    ResourceFlavor,
}

impl PeopleKind {
    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::Workload => Kind::Workload,
            Self::ClusterQueue => Kind::ClusterQueue,
            Self::LocalQueue => Kind::LocalQueue,
            Self::ResourceFlavor => Kind::ResourceFlavor,
        }
    }

    pub(crate) fn resource(self) -> ApiResourceInfo {
        self.kind().resource()
    }

    /// Returns the path of the objects in a namespace; of all objects without a namespace, or if the kind has no namespaces.
    pub(crate) fn collection(self, namespace: Option<&str>) -> String {
        let resource = self.resource();
        match namespace {
            Some(namespace) if resource.namespaced => {
                collection_path(&resource, &super::pages::encoded(namespace))
            }
            _ => crate::kube::client::all_path(&resource),
        }
    }

    /// Returns the path of an object.
    pub(crate) fn object(self, namespace: &str, name: &str) -> String {
        format!("{}/{}", self.collection(Some(namespace)), super::pages::encoded(name))
    }
}
