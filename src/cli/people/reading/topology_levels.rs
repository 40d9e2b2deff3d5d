//! The levels of the topology on which Workloads were placed.
//!
//! Invariant: unreadable objects are no error: without them the assignment itself has the levels.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::cache::Kind;
use crate::cli::people::connection::Session;
use crate::cli::people::kinds::PeopleKind;
use crate::cli::people::pages::encoded;
use crate::kube::client::all_path;
use crate::people::workload_object::text_at;

/// Returns the labels of the levels, the widest first; none without a topology assignment.
pub(super) async fn of(session: &Session, workloads: &[Value]) -> Vec<String> {
    let sets = workloads.iter().flat_map(|workload| {
        workload
            .pointer("/status/admission/podSetAssignments")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    });
    let placed = |set: &&Value| set.get("topologyAssignment").is_some_and(Value::is_object);
    let placed: Vec<&Value> = sets.filter(placed).collect();
    let flavors: BTreeSet<&str> = placed
        .iter()
        .filter_map(|set| set.get("flavors")?.as_object())
        .flat_map(|flavors| flavors.values().filter_map(Value::as_str))
        .collect();
    for flavor in flavors {
        // An assignment down to hosts has the host name alone; the levels above come from the Topology.
        if let Some(levels) = of_flavor(session, flavor).await {
            return levels;
        }
    }
    let own = placed.first().and_then(|set| set.pointer("/topologyAssignment/levels")?.as_array());
    own.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

async fn of_flavor(session: &Session, flavor: &str) -> Option<Vec<String>> {
    let flavor = session.caller.get(&PeopleKind::ResourceFlavor.object("", flavor)).await.ok()?;
    let topology = text_at(&flavor, "/spec/topologyName")?;
    let topology = session
        .caller
        .get(&format!("{}/{}", all_path(&Kind::Topology.resource()), encoded(topology)))
        .await
        .ok()?;
    let levels = topology.pointer("/spec/levels")?.as_array()?;
    Some(levels.iter().filter_map(|level| text_at(level, "/nodeLabel")).map(str::to_owned).collect())
}
