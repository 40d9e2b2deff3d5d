//! Rules of ResourceFlavor, Topology, AdmissionCheck, the priority class and the configuration kinds.

use super::super::builtin::QUALIFIED_NAME;
use super::{LABEL, Rules, TAINT_EFFECTS, atomic, checks, conditions, keyed, merged, subdomain, tolerations};
use serde_json::json;

const UNIQUE: (&str, &str) =
    ("size(self.filter(i, size(self.filter(j, j == i)) > 1)) == 0", "must be unique");

pub(super) fn add(rules: &mut Rules) {
    resource_flavor(rules);
    topology(rules);
    admission_check(rules);
    multikueue(rules);
    provisioning(rules);
    rules.of("WorkloadPriorityClass").require(&["value"]).field("description", json!({ "maxLength": 2048 }));
}

fn resource_flavor(rules: &mut Rules) {
    let effects = checks(&[(
        "self.all(x, x.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
        TAINT_EFFECTS,
    )]);
    rules
        .of("ResourceFlavorSpec")
        .field("nodeLabels", json!({ "maxProperties": 8, "x-kubernetes-map-type": "atomic" }))
        .field("nodeTaints", merged(atomic(8), &effects))
        .field("tolerations", tolerations())
        .field("topologyName", subdomain())
        .check(&[
            (
                "!has(self.topologyName) || self.nodeLabels.size() >= 1",
                "at least one nodeLabel is required when topology is set",
            ),
            (
                "!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
                "topologyName is immutable when topologyName is set",
            ),
        ]);
}

fn topology(rules: &mut Rules) {
    let levels = checks(&[
        (
            "self == oldSelf || (self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname' && oldSelf[size(oldSelf) - 1].nodeLabel == 'kubernetes.io/hostname')",
            "levels are mutable only when kubernetes.io/hostname is the lowest level both before and after the change",
        ),
        UNIQUE,
        (
            "size(self.filter(i, i.nodeLabel == 'kubernetes.io/hostname')) == 0 || self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'",
            "the kubernetes.io/hostname label can only be used at the lowest level of topology",
        ),
    ]);
    rules
        .of("TopologySpec")
        .require(&["levels"])
        .field("levels", merged(merged(atomic(16), &json!({ "minItems": 1 })), &levels));
    rules
        .of("TopologyLevel")
        .require(&["nodeLabel"])
        .field("nodeLabel", json!({ "minLength": 1, "maxLength": 316, "pattern": QUALIFIED_NAME }));
}

fn admission_check(rules: &mut Rules) {
    let immutable = checks(&[("self == oldSelf", "field is immutable")]);
    rules
        .of("AdmissionCheckSpec")
        .require(&["controllerName"])
        .field("controllerName", merged(json!({ "minLength": 1, "maxLength": 253 }), &immutable));
    rules
        .of("AdmissionCheckParametersReference")
        .require(&["apiGroup", "kind", "name"])
        .field("apiGroup", merged(subdomain(), &json!({ "minLength": 1 })))
        .field(
            "kind",
            json!({ "minLength": 1, "maxLength": 63, "pattern": "^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$" }),
        )
        .field("name", json!({ "minLength": 1, "maxLength": 63, "pattern": LABEL }));
    rules.of("AdmissionCheckStatus").field("conditions", conditions());
}

fn multikueue(rules: &mut Rules) {
    let clusters = json!({ "minItems": 1, "items": { "maxLength": 256 } });
    rules
        .of("MultiKueueConfigSpec")
        .require(&["clusters"])
        .field("clusters", merged(merged(atomic(20), &clusters), &checks(&[UNIQUE])));
    rules.of("MultiKueueClusterSpec").require(&["clusterSource"]);
    rules.of("ClusterSource").check(&[(
        "[has(self.kubeConfig),has(self.clusterProfileRef)].filter(x,x==true).size() == 1",
        "exactly one of the fields in [kubeConfig clusterProfileRef] must be set",
    )]);
    rules
        .of("KubeConfig")
        .require(&["location"])
        .field("location", json!({ "minLength": 1, "maxLength": 256 }))
        .field("locationType", json!({ "default": "Secret" }));
    rules
        .of("ClusterProfileReference")
        .require(&["name"])
        .field("name", json!({ "minLength": 1, "maxLength": 256 }));
    rules.of("MultiKueueClusterStatus").field("conditions", conditions());
}

fn provisioning(rules: &mut Rules) {
    let retry = json!({ "backoffBaseSeconds": 60, "backoffLimitCount": 3, "backoffMaxSeconds": 1800 });
    rules
        .of("ProvisioningRequestConfigSpec")
        .require(&["provisioningClassName"])
        .field("provisioningClassName", merged(subdomain(), &json!({ "minLength": 1 })))
        .field("parameters", json!({ "maxProperties": 100, "additionalProperties": { "maxLength": 255 } }))
        .field("managedResources", json!({ "maxItems": 100, "x-kubernetes-list-type": "set" }))
        .field("retryStrategy", json!({ "default": retry }));
    rules
        .of("ProvisioningRequestRetryStrategy")
        .field("backoffLimitCount", json!({ "default": 3 }))
        .field("backoffBaseSeconds", json!({ "default": 60 }))
        .field("backoffMaxSeconds", json!({ "default": 1800 }));
    rules.of("ProvisioningRequestPodSetUpdates").field("nodeSelector", keyed(&["key"], 8));
    rules
        .of("ProvisioningRequestNodeSelector")
        .require(&["key", "valueFromProvisioningClassDetail"])
        .field("key", json!({ "minLength": 1, "maxLength": 317, "pattern": QUALIFIED_NAME }))
        .field("valueFromProvisioningClassDetail", json!({ "minLength": 1, "maxLength": 32768 }));
}
