//! Rules of ClusterQueue, LocalQueue, Cohort and their shared types.

use super::{Rules, atomic, checks, conditions, keyed, merged, subdomain};
use serde_json::json;

pub(super) fn add(rules: &mut Rules) {
    quota(rules);
    usage(rules);
    cluster_queue(rules);
    cluster_queue_policies(rules);
    let local = rules.of("LocalQueueSpec");
    local.field("clusterQueue", merged(subdomain(), &checks(&[("self == oldSelf", "field is immutable")])));
    local.field("stopPolicy", json!({ "default": "None" }));
    rules.of("CohortSpec").field("parentName", subdomain()).field("resourceGroups", atomic(16));
}

fn quota(rules: &mut Rules) {
    rules
        .of("ResourceGroup")
        .require(&["coveredResources", "flavors"])
        .field("coveredResources", merged(atomic(64), &json!({ "minItems": 1 })))
        .field("flavors", merged(keyed(&["name"], 64), &json!({ "minItems": 1 })))
        .check(&[(
            "self.flavors.all(x, size(x.resources) == size(self.coveredResources))",
            "flavors must have the same number of resources as the coveredResources",
        )]);
    rules
        .of("FlavorQuotas")
        .require(&["name", "resources"])
        .field("name", subdomain())
        .field("resources", merged(keyed(&["name"], 64), &json!({ "minItems": 1 })));
    rules.of("ResourceQuota").require(&["name", "nominalQuota"]);
    rules.of("FairSharing").field("weight", json!({ "default": 1 }));
    rules.of("FairSharingStatus").require(&["weightedShare"]);
}

fn usage(rules: &mut Rules) {
    rules
        .of("FlavorUsage")
        .require(&["name", "resources"])
        .field("name", subdomain())
        .field("resources", keyed(&["name"], 64));
    rules.of("ResourceUsage").require(&["name"]);
    for status in ["ClusterQueueStatus", "LocalQueueStatus"] {
        rules
            .of(status)
            .field("conditions", conditions())
            .field("flavorsReservation", keyed(&["name"], 64))
            .field("flavorsUsage", keyed(&["name"], 64));
    }
    rules.of("LocalQueueFairSharingStatus").require(&["weightedShare"]);
    rules.of("AdmissionFairSharingStatus").require(&["consumedResources", "lastUpdate"]);
}

fn cluster_queue(rules: &mut Rules) {
    rules
        .of("ClusterQueueSpec")
        .field("resourceGroups", atomic(16))
        .field("cohortName", subdomain())
        .field("queueingStrategy", json!({ "default": "BestEffortFIFO" }))
        .field("flavorFungibility", json!({ "default": {} }))
        .field("preemption", json!({ "default": {} }))
        .field("stopPolicy", json!({ "default": "None" }))
        .check(&[(
            "!has(self.cohortName) && has(self.resourceGroups) ? self.resourceGroups.all(rg, rg.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit)))) : true",
            "borrowingLimit must be nil when cohort is empty",
        )]);
    rules
        .of("AdmissionChecksStrategy")
        .require(&["admissionChecks"])
        .field("admissionChecks", merged(keyed(&["name"], 64), &json!({ "minItems": 1 })));
    rules
        .of("AdmissionCheckStrategyRule")
        .require(&["name"])
        .field("name", json!({ "minLength": 1, "maxLength": 316 }))
        .field("onFlavors", json!({ "maxItems": 64, "x-kubernetes-list-type": "set", "items": subdomain() }));
}

fn cluster_queue_policies(rules: &mut Rules) {
    rules
        .of("FlavorFungibility")
        .field("whenCanBorrow", json!({ "default": "MayStopSearch" }))
        .field("whenCanPreempt", json!({ "default": "TryNextFlavor" }))
        .check(&[(
            "!has(self.preference) || (self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')",
            "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
        )]);
    rules
        .of("ClusterQueuePreemption")
        .field("reclaimWithinCohort", json!({ "default": "Never" }))
        .field("borrowWithinCohort", json!({ "default": {} }))
        .field("withinClusterQueue", json!({ "default": "Never" }))
        .check(&[(
            "!(self.reclaimWithinCohort == 'Never' && has(self.borrowWithinCohort) &&  self.borrowWithinCohort.policy != 'Never')",
            "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
        )]);
    rules.of("BorrowWithinCohort").field("policy", json!({ "default": "Never" }));
    rules.of("AdmissionScope").require(&["admissionMode"]);
    rules.of("ConcurrentAdmissionPolicy").require(&["migration"]);
    rules.of("ConcurrentAdmissionMigration").require(&["mode"]).field("mode", json!({ "maxLength": 253 }));
    rules.of("ConcurrentAdmissionConstraints").field("lastAcceptableFlavorName", subdomain());
}
