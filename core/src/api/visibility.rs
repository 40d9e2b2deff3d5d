//! Names of the aggregated API groups: the one that Kueue serves, and that of the views of users.

/// Kueue's group.
pub const GROUP: &str = "visibility.kueue.x-k8s.io";
/// Its versions, the preferred one first.
pub const VERSIONS: &[&str] = &["v1beta2", "v1beta1"];
/// The group of views.
pub const VIEWS_GROUP: &str = "visibility.sluice.dev";
/// Its version.
pub const VIEWS_VERSION: &str = "v1alpha1";
/// The APIServices by which API servers find both.
pub const API_SERVICES: [&str; 3] = [
    "v1beta2.visibility.kueue.x-k8s.io",
    "v1beta1.visibility.kueue.x-k8s.io",
    "v1alpha1.visibility.sluice.dev",
];
/// Feature gate without which neither is served.
pub const GATE: &str = "VisibilityOnDemand";
