//! The rights of the dashboard's account, in `config/` and in the chart, as a fixed list: browsers reach this process, so that a page
//! must never be a reason for a further right. What a page shows beyond it is read with the viewer's own token.

use crate::fixtures::manifests::root;

/// What the account may read of objects that it watches, its certificate, and the lease of the leader, beside the generated rules
/// for job kinds. Names of single objects are left out.
const RULES: [&str; 9] = [
    r#"[""] [limitranges, namespaces, nodes, pods, podtemplates] [get, list, watch]"#,
    "[node.k8s.io] [runtimeclasses] [get, list, watch]",
    "[scheduling.k8s.io] [priorityclasses] [get, list, watch]",
    "[autoscaling.x-k8s.io] [provisioningrequests] [get, list, watch]",
    "[kueue.x-k8s.io] [admissionchecks, clusterqueues, cohorts, localqueues, multikueueclusters, \
     provisioningrequestconfigs, resourceflavors, topologies, workloadpriorityclasses, workloads] [get, list, watch]",
    "[admissionregistration.k8s.io] [mutatingwebhookconfigurations] one [get, list, watch]",
    "[admissionregistration.k8s.io] [validatingwebhookconfigurations] one [get, list, watch]",
    r#"[""] [secrets] one [get, list, watch]"#,
    "[coordination.k8s.io] [leases] one [get]",
];
/// Ends of the names of the roles that its bindings name. The one about metrics creates reviews.
const BOUND: [&str; 4] = ["dashboard-role", "metrics-auth-role", "dashboard-secrets-role", "-lease-role"];

/// Returns the text of a manifest without the rules that are generated from the table of job kinds.
fn written(path: &str) -> String {
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    match (text.split_once("# BEGIN generated"), text.split_once("# END generated")) {
        (Some((before, _)), Some((_, after))) => format!("{before}\n{after}"),
        _ => text,
    }
}

/// Returns the generated rules of a manifest.
fn generated(path: &str) -> String {
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    let (_, rest) = text.split_once("# BEGIN generated").unwrap();
    rest.split_once("# END generated").unwrap().0.to_owned()
}

/// Returns each rule of a text: groups, resources, whether it is limited to one object, verbs.
fn rules(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        if let Some(groups) = line.strip_prefix("- apiGroups: ") {
            found.push(groups.to_owned());
        } else if let Some(last) = found.last_mut() {
            match line.trim().split_once(": ") {
                Some(("resources" | "verbs", list)) => last.extend([" ", list]),
                Some(("resourceNames", _)) => last.push_str(" one"),
                _ => {}
            }
        }
    }
    found
}

/// Returns the roles that bindings name.
fn bound(text: &str) -> Vec<String> {
    let roles = text.split("roleRef:").skip(1);
    let names = roles.filter_map(|part| part.lines().find_map(|line| line.trim().strip_prefix("name: ")));
    names.map(str::to_owned).collect()
}

#[test]
fn no_page_gives_the_dashboard_a_further_right() {
    for files in [
        ["config/dashboard/role.yaml", "config/dashboard/lease_role.yaml"],
        [
            "charts/sluice/templates/rbac/dashboard_role.yaml",
            "charts/sluice/templates/dashboard/lease_role.yaml",
        ],
    ] {
        let text = files.map(written).join("\n");
        assert_eq!(rules(&text), RULES, "{files:?}");
        let bound = bound(&text);
        assert_eq!(bound.len(), BOUND.len(), "{bound:?}");
        for (name, end) in bound.iter().zip(BOUND) {
            assert!(name.ends_with(end), "{files:?}: {name} is not {end}");
        }
    }
    // Rules for job kinds only read, in the chart too, which generates them by the same table.
    let of_kinds = rules(&generated("config/dashboard/role.yaml"));
    assert!(of_kinds.len() > 10 && of_kinds.iter().all(|rule| rule.ends_with("[get, list, watch]")));
}
