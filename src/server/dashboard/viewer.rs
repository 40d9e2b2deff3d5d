//! The viewer of a page: the user, and what that user may see of the page.
//!
//! Invariants: the access follows from reviews for this user alone; at most two permissions are reviewed for a page, however
//! many namespaces there are, and for the page of what the user submitted one for each of a few namespaces (a question about changes needs
//! more, `changes.rs`); without a permission that the page needs there is no access.
//! That page needs none: without one of them it has no row, whether the user has submitted nothing or may not read where it did.

use std::sync::Arc;

use http::HeaderMap;

use super::Dashboard;
use crate::dashboard::{MissingRight, PageQuestion, Scope};
use crate::server::apis::front_proxy::User;
use crate::server::user_authorizer::{ListRight, NoReview};
use crate::visibility::access::Access;

/// The API group of the resources that pages show.
const GROUP: &str = "visibility.sluice.dev";

/// A user and what that user may see of a page.
#[derive(Clone, Debug)]
pub(super) struct Viewer {
    pub(super) token: String,
    pub(super) user: Arc<User>,
    pub(super) access: Access,
    pub(super) scope: Scope,
}

/// Why there is no viewer.
#[derive(Clone, Debug)]
pub(super) enum Refused {
    /// There is no token, or it is not valid.
    Unknown {
        had_token: bool,
    },
    /// The user lacks a permission.
    Forbidden {
        user: Arc<User>,
        missing: MissingRight,
    },
    NoReview(NoReview),
}

impl From<NoReview> for Refused {
    fn from(error: NoReview) -> Self {
        Self::NoReview(error)
    }
}

impl Dashboard {
    /// Returns the viewer of a request: the user, and what that user may see of the page.
    pub(super) async fn viewer(
        &self,
        headers: &HeaderMap,
        question: &PageQuestion,
    ) -> Result<Viewer, Refused> {
        let Some(token) = self.cookies.token(headers) else {
            return Err(Refused::Unknown { had_token: false });
        };
        self.viewer_of(&token, question).await
    }

    /// Returns the viewer with a token.
    pub(super) async fn viewer_of(&self, token: &str, question: &PageQuestion) -> Result<Viewer, Refused> {
        let reviews = &self.authorizer;
        let Some(user) = reviews.identify(token).await? else {
            return Err(Refused::Unknown { had_token: true });
        };
        let right = ListRight { group: GROUP, resource: "clusterqueueviews", namespace: "" };
        let cluster = reviews.may_list(token, &user, right).await?;
        if !cluster && question.page().is_of_own_namespaces() {
            return self.viewer_of_own(token, user).await;
        }
        let namespace = question.page().namespace().unwrap_or_default();
        let in_namespace = !cluster && !namespace.is_empty() && {
            let right = ListRight { group: GROUP, resource: "workloadviews", namespace };
            reviews.may_list(token, &user, right).await?
        };
        let mut access = Access { tenant_detail: self.tenant_detail, ..Access::default() };
        access.cluster = cluster;
        if in_namespace {
            access.namespaces.insert(namespace.to_owned());
        }
        let scope = match (cluster, in_namespace) {
            (true, _) => Scope::Cluster,
            (false, true) => Scope::Namespace(namespace.to_owned()),
            (false, false) => {
                let resource = if namespace.is_empty() { "clusterqueueviews" } else { "workloadviews" };
                let missing = MissingRight {
                    page: question.page().subject(),
                    right: format!("list {resource}"),
                    namespace: namespace.to_owned(),
                };
                return Err(Refused::Forbidden { user, missing });
            }
        };
        Ok(Viewer { token: token.to_owned(), user, access, scope })
    }

    /// Returns the viewer of what it submitted without the view of the cluster: it sees the namespaces that it may read among the few in
    /// which it has submitted something.
    async fn viewer_of_own(&self, token: &str, user: Arc<User>) -> Result<Viewer, Refused> {
        let mut access = Access { tenant_detail: self.tenant_detail, ..Access::default() };
        for namespace in self.models.own_namespaces(&user.name) {
            let right = ListRight { group: GROUP, resource: "workloadviews", namespace: &namespace };
            if self.authorizer.may_list(token, &user, right).await? {
                access.namespaces.insert(namespace);
            }
        }
        let mut names = access.namespaces.iter();
        let scope = match (names.next(), names.next()) {
            (Some(only), None) => Scope::Namespace(only.clone()),
            _ => Scope::Nothing,
        };
        Ok(Viewer { token: token.to_owned(), user, access, scope })
    }
}
