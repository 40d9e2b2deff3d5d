//! Which manager the webhook configurations of the cluster belong to.
//!
//! Names of webhook configurations are cluster-wide, Leases are not: two managers in two namespaces would both hold a Lease and
//! would both admit. The configurations name the Service that gets the reviews, and so the one manager that may act.
//!
//! Invariants: a manager does not act while a configuration names the Service of another one, nor after that, until a
//! configuration names its own. A missing configuration by itself neither ends nor prevents acting: administrators delete the
//! configurations before they uninstall, and if no manager answers.

use std::fmt;

use serde_json::Value;

/// Names that Kueue gives to its configurations. A manager whose own configurations have other names yields to their owner.
pub const KUEUE_CONFIGURATIONS: [&str; 2] =
    ["kueue-mutating-webhook-configuration", "kueue-validating-webhook-configuration"];

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The manager that a configuration belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// There is no configuration, or it has no webhooks.
    Absent,
    /// This manager: all webhooks name its Service. A webhook that is called by URL counts as well, because it names no other
    /// Service.
    This,
    /// The manager behind this Service.
    Other(ServiceName),
}

/// Returns the owner of a configuration.
pub fn owner(configuration: Option<&Value>, own: &ServiceName) -> Owner {
    let webhooks = configuration.and_then(|object| object.get("webhooks")).and_then(Value::as_array);
    let Some(webhooks) = webhooks.filter(|webhooks| !webhooks.is_empty()) else { return Owner::Absent };
    let services = webhooks.iter().filter_map(|webhook| webhook.pointer("/clientConfig/service"));
    let mut named = services.map(|service| {
        let field = |name: &str| service.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        ServiceName { namespace: field("namespace"), name: field("name") }
    });
    named.find(|service| service != own).map_or(Owner::This, Owner::Other)
}

/// A configuration that belongs to another manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignConfiguration {
    /// Name of the configuration.
    pub name: String,
    /// Service that gets its reviews.
    pub service: ServiceName,
}

impl fmt::Display for ForeignConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sends reviews to Service {}", self.name, self.service)
    }
}

/// Returns the configurations that belong to another manager, from the present owners by name and the previous result.
///
/// Deleted configurations of another manager count until a configuration names this manager, because the other manager may
/// still be stopping.
pub fn foreign(previous: &[ForeignConfiguration], owners: &[(String, Owner)]) -> Vec<ForeignConfiguration> {
    let present: Vec<ForeignConfiguration> = owners
        .iter()
        .filter_map(|(name, owner)| match owner {
            Owner::Other(service) => {
                Some(ForeignConfiguration { name: name.clone(), service: service.clone() })
            }
            Owner::Absent | Owner::This => None,
        })
        .collect();
    if present.is_empty() && !owners.iter().any(|(_, owner)| *owner == Owner::This) {
        return previous.to_vec();
    }
    present
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(namespace: &str, name: &str) -> ServiceName {
        ServiceName { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn calls(namespace: &str, name: &str) -> Value {
        json!({"clientConfig": {"service": {"namespace": namespace, "name": name, "path": "/p"}}})
    }

    #[test]
    fn owners_by_service() {
        let own = service("a", "hooks");
        let by_url = json!({"clientConfig": {"url": "https://192.0.2.1/p"}});
        for (webhooks, expected) in [
            (json!([calls("a", "hooks"), calls("a", "hooks")]), Owner::This),
            (json!([calls("b", "hooks")]), Owner::Other(service("b", "hooks"))),
            (json!([calls("a", "kueue")]), Owner::Other(service("a", "kueue"))),
            // Half of an update, or an entry that another installation added.
            (json!([calls("a", "hooks"), calls("b", "hooks")]), Owner::Other(service("b", "hooks"))),
            (json!([by_url]), Owner::This),
            (json!([by_url, calls("b", "hooks")]), Owner::Other(service("b", "hooks"))),
            (json!([]), Owner::Absent),
            (Value::Null, Owner::Absent),
        ] {
            assert_eq!(owner(Some(&json!({"webhooks": webhooks})), &own), expected, "{webhooks}");
        }
        assert_eq!(owner(None, &own), Owner::Absent);
    }

    #[test]
    fn other_manager_counts_until_configuration_names_this_one() {
        let other = || Owner::Other(service("b", "hooks"));
        let names = |owners: [Owner; 2]| -> Vec<(String, Owner)> {
            ["mutating", "validating"].map(str::to_owned).into_iter().zip(owners).collect()
        };
        let mut found = Vec::new();
        for (owners, expected) in [
            ([Owner::Absent, Owner::Absent], 0),
            ([Owner::This, Owner::Absent], 0),
            ([other(), Owner::This], 1),
            ([other(), other()], 2),
            ([other(), Owner::Absent], 1),
            ([Owner::Absent, Owner::Absent], 1),
            ([Owner::This, Owner::Absent], 0),
            ([Owner::Absent, Owner::Absent], 0),
            ([Owner::This, other()], 1),
            ([Owner::This, Owner::This], 0),
        ] {
            found = foreign(&found, &names(owners.clone()));
            assert_eq!(found.len(), expected, "{owners:?}");
        }
    }
}
