//! The server of aggregated API groups, made of the parts of the manager.

use std::sync::Arc;

use super::manager::ManagerContext;
use crate::server::apis::access::AccessReviewer;
use crate::server::apis::front_proxy::FrontProxy;
use crate::server::apis::group::ApiGroup;
use crate::server::apis::visibility::VisibilityGroup;
use crate::server::apis::{ApiServer, OnRequest};

/// Returns the server, and the settings of front proxies that it looks at, which are to be followed.
pub(super) fn server(shared: &ManagerContext) -> (ApiServer, Arc<FrontProxy>) {
    let front_proxy = Arc::new(FrontProxy::default());
    let counters = Arc::clone(&shared.counters);
    let on_request: OnRequest = Arc::new(move |group, resource, status| {
        counters.count_visibility_request(group, resource, status.as_u16());
    });
    let groups: [Arc<dyn ApiGroup>; 1] = [Arc::new(VisibilityGroup::new(Arc::clone(&shared.core.published)))];
    let server = ApiServer {
        groups: Arc::new(groups),
        front_proxy: Arc::clone(&front_proxy),
        access: AccessReviewer::new(&shared.clients.call),
        on_request,
    };
    (server, front_proxy)
}
