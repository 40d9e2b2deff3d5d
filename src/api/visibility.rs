//! Names of the aggregated API group that Kueue serves.

/// The group.
pub const GROUP: &str = "visibility.kueue.x-k8s.io";
/// Its versions, the preferred one first.
pub const VERSIONS: &[&str] = &["v1beta2", "v1beta1"];
/// The APIServices by which API servers find it.
pub const API_SERVICES: [&str; 2] =
    ["v1beta2.visibility.kueue.x-k8s.io", "v1beta1.visibility.kueue.x-k8s.io"];
/// Feature gate without which it is not served.
pub const GATE: &str = "VisibilityOnDemand";
