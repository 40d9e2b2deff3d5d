//! Questions about changes, for viewers of a namespace.
//!
//! Invariant: such a viewer asks only about changes that it may make itself, by its own rights to the changed objects.

use super::Dashboard;
use super::viewer::Viewer;
use crate::api::ObjectKey;
use crate::dashboard::PageQuestion;
use crate::server::user_authorizer::{NoReview, Right};
use crate::simulate::ChangeRight;

impl Dashboard {
    /// Returns why a viewer may not ask about a change, as a sentence; `None` if it may, or if the question is about none.
    pub(super) async fn refused_change(
        &self,
        viewer: &Viewer,
        question: &PageQuestion,
    ) -> Result<Option<String>, NoReview> {
        let PageQuestion::WhatIf(query) = question else { return Ok(None) };
        if viewer.access.cluster {
            return Ok(None);
        }
        let namespace = query.namespace.as_str();
        let rights = query.rights(&|workload| self.models.job_of(&ObjectKey::new(namespace, workload)));
        for (change, right) in rights {
            if !self.may_change(viewer, namespace, &right).await? {
                return Ok(Some(format!(
                    "{change}: you have no right to {right} in namespace {namespace}, so that you cannot make this change."
                )));
            }
        }
        Ok(None)
    }

    /// Returns whether a viewer has a right. That to all objects of a kind is reviewed first: most have it, and its review is shared by
    /// questions about different objects.
    async fn may_change(
        &self,
        viewer: &Viewer,
        namespace: &str,
        right: &ChangeRight,
    ) -> Result<bool, NoReview> {
        let resource = right.kind.resource();
        let of_kind = Right {
            verb: right.verb,
            group: resource.group,
            version: resource.version,
            resource: resource.plural,
            namespace,
            name: "",
        };
        let (reviews, token) = (&self.authorizer, viewer.token.as_str());
        if reviews.may(token, &viewer.user, of_kind).await? {
            return Ok(true);
        }
        Ok(!right.name.is_empty()
            && reviews.may(token, &viewer.user, Right { name: &right.name, ..of_kind }).await?)
    }
}
