//! Flavors: `flavorviews`, with the number of pods that fit, for a given pod and ClusterQueue, and what a LocalQueue may use.

use axum::response::Response;

use super::{Asked, CONTINUE, LIMIT, Refused};
use crate::server::apis::group::{QueryOption, SubresourceDescription};
use crate::visibility::access::Access;
use crate::visibility::flavors;
use crate::visibility::page::ModelError;
use crate::visibility::views::{Answer, ViewList};

/// Options of `flavorviews`.
pub(super) const CAPACITY: &[QueryOption] = &[
    LIMIT,
    CONTINUE,
    QueryOption {
        name: "pod",
        kind: "string",
        description: "what one pod asks for, as RESOURCE=QUANTITY,...; default: all of the scarcest resource of the largest node",
    },
    QueryOption {
        name: "clusterQueue",
        kind: "string",
        description: "the ClusterQueue whose quota bounds the answer too",
    },
];

/// What a LocalQueue may use.
pub(super) const QUEUE_CAPACITY: SubresourceDescription = SubresourceDescription {
    name: "capacity",
    kind: "QueueCapacity",
    verbs: &["get"],
    options: &[QueryOption {
        name: "pod",
        kind: "string",
        description: "what one pod asks for, as RESOURCE=QUANTITY,...; without it only quota is shown",
    }],
    description: "What the workloads of a LocalQueue may use now.",
};

impl Asked {
    /// Answers with one flavor, or a page of them.
    pub(super) async fn flavors(&self, access: &Access) -> Result<Response, Refused> {
        let name = Some(self.request.target.name.as_str()).filter(|name| !name.is_empty());
        let text = |option: &str| self.request.option(option).unwrap_or_default();
        let cluster_queue = [text("clusterQueue"), text("cq")].into_iter().find(|text| !text.is_empty());
        let refuse = |error: ModelError| self.refuse(&error);
        let question = flavors::question(name, &text("pod"), &text("workload")).map_err(refuse)?;
        if !self.rate.admits(&self.request.user.name) {
            return Err(self.refuse(&ModelError::TooMany));
        }
        let report = self.capacity.get(question).await.map_err(refuse)?;
        let views = flavors::flavors(&self.snapshot, access, (&report, cluster_queue.as_deref()));
        let mut views = views.map_err(refuse)?;
        if name.is_some() {
            let view = views.pop().ok_or(ModelError::NotFound).map_err(refuse)?;
            return self.send_one(Answer { view, source: self.source(), partial: report.is_cut });
        }
        let (items, metadata) =
            self.page()?.rows("flavors", views, |flavor| &flavor.metadata).map_err(refuse)?;
        self.send_list(ViewList { partial: report.is_cut, ..self.view_list(items, metadata) })
    }

    /// Answers with what the workloads of a LocalQueue may use.
    pub(super) async fn queue_capacity(&self, access: &Access) -> Result<Response, Refused> {
        let refuse = |error: ModelError| self.refuse(&error);
        let key = self.key();
        // Checked before the core is asked, so that the answer cannot reveal whether an object exists.
        let own = flavors::queue_capacity(&self.snapshot, access, (&key, None)).map_err(refuse)?;
        let question =
            flavors::question(None, &self.request.option("pod").unwrap_or_default(), "").map_err(refuse)?;
        if question.pod.is_empty() {
            return self.send_one(Answer { view: own, source: self.source(), partial: false });
        }
        if !self.rate.admits(&self.request.user.name) {
            return Err(self.refuse(&ModelError::TooMany));
        }
        let report = self.capacity.get(question).await.map_err(refuse)?;
        if !report.knows_nodes {
            let message = "nodes are not watched: feature gate TopologyAwareScheduling is off";
            return Err(self.refuse(&ModelError::Invalid(message.to_owned())));
        }
        let view = flavors::queue_capacity(&self.snapshot, access, (&key, Some(&report))).map_err(refuse)?;
        self.send_one(Answer { view, source: self.source(), partial: report.is_cut })
    }
}
