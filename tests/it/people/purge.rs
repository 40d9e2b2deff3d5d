//! `sluice history purge`: what it refuses before it asks the cluster.

use crate::fixtures::people_server::PeopleServer;
use serde_json::{Value, json};

#[test]
fn the_namespace_is_named_and_valid() {
    let server = PeopleServer::start();
    for (line, part) in [
        ("history purge", "--namespace: names the namespace to purge"),
        ("history purge --yes", "--namespace: names the namespace to purge"),
        ("history purge -n A", "--namespace: \"A\" is no name of a namespace"),
        ("history purge -n a/b", "--namespace: \"a/b\" is no name of a namespace"),
        ("history purge -n (purged)", "is no name of a namespace"),
        ("history", "purge"),
    ] {
        let outcome = server.run("sluice", line);
        assert_eq!((outcome.code, outcome.out.as_str()), (2, ""), "{line}: {outcome:?}");
        assert!(outcome.err.contains(part), "{line}: {outcome:?}");
    }
    assert_eq!(server.requests(), Vec::new());
}

#[test]
fn a_client_dry_run_sends_nothing() {
    let server = PeopleServer::start();
    let outcome = server.run("sluice", "history purge -n old-team --dry-run");
    assert_eq!(outcome.out, "namespace/old-team purged from the record (client dry run)\n", "{outcome:?}");
    let json = server.run("sluice", "history purge -n old-team --dry-run -o json");
    let object: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&object["kind"], &object["spec"]["namespace"]), (&json!("HistoryPurge"), &json!("old-team")));
    assert_eq!(server.requests(), Vec::new());
}

#[test]
fn what_would_be_removed_is_counted_first() {
    let server = PeopleServer::start();
    server.state.lock().unwrap().knows_no_user = true;
    let outcome = server.run("sluice", "history purge -n old-team --yes");
    assert_eq!(outcome.code, 1, "{outcome:?}");
    let asked = server.requests();
    let purges: Vec<_> = asked.iter().filter(|(method, _)| method == "POST").collect();
    assert_eq!(purges.len(), 1, "what would be removed is counted first: {asked:?}");
    assert!(purges[0].1.ends_with("/historypurges?dryRun=All"), "{asked:?}");
}
