//! Flavors: `flavorviews`, with the number of pods that fit, for a given pod and ClusterQueue.

use axum::response::Response;

use super::{Asked, Refused};
use crate::visibility::access::Access;
use crate::visibility::flavors;
use crate::visibility::page::ModelError;
use crate::visibility::views::{Answer, ViewList};

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
}
