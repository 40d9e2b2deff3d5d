//! Equivalence hash: workloads with the same hash, priority and queue get the same scheduling outcome.

use super::Workload;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// Hashes everything that nomination reads of a workload, except priority and queues.
pub(super) fn equivalence_hash(workload: &Workload) -> [u8; 32] {
    let mut hash = Sha256::new();
    for set in &*workload.pod_sets {
        update_text(&mut hash, &set.name);
        update_text(&mut hash, set.group.as_deref().unwrap_or_default());
        hash.update(set.count.to_le_bytes());
        hash.update(set.min_count.unwrap_or(i32::MIN).to_le_bytes());
        for (resource, amount) in &set.requests {
            update_text(&mut hash, resource);
            hash.update(amount.get().to_le_bytes());
        }
        hash.update([0]);
        update_unless_empty(
            &mut hash,
            set.pod_requirements.node_selector.is_empty(),
            &set.pod_requirements.node_selector,
        );
        update_unless_empty(
            &mut hash,
            set.pod_requirements.required_affinity.is_empty(),
            &set.pod_requirements.required_affinity,
        );
        update_unless_empty(
            &mut hash,
            set.pod_requirements.tolerations.is_empty(),
            &set.pod_requirements.tolerations,
        );
        update_unless_empty(&mut hash, set.pod_requirements.request.is_none(), &set.pod_requirements.request);
        update_unless_empty(
            &mut hash,
            set.pod_requirements.preferred_affinity.is_empty(),
            &set.pod_requirements.preferred_affinity,
        );
        for (resource, amount) in
            set.pod_requirements.requests.iter().filter(|_| set.pod_requirements.requests != set.requests)
        {
            update_text(&mut hash, resource);
            hash.update(amount.get().to_le_bytes());
        }
    }
    hash.update([u8::from(workload.preemption_gated)]);
    if let Some(variant) = &workload.variant {
        update_text(&mut hash, "variant");
        update_text(&mut hash, &variant.parent);
        variant.flavors.iter().for_each(|flavor| update_text(&mut hash, flavor));
    }
    if workload.is_slice {
        update_text(&mut hash, "slice");
    }
    if let Some(old) = &workload.replaces {
        update_text(&mut hash, "replaces");
        update_text(&mut hash, &old.name);
    }
    if let Some(verdict) = &workload.precheck_failure {
        update_text(&mut hash, "obstacle");
        update_text(&mut hash, verdict.reason.as_str());
        update_text(&mut hash, &verdict.to_string());
    }
    hash.finalize().into()
}

/// Adds a text with its length, so that different sequences of texts never hash the same bytes.
fn update_text(hash: &mut Sha256, text: &str) {
    hash.update(text.len().to_le_bytes());
    hash.update(text);
}

/// Adds a value unless it is empty, which most are. All these types serialize to JSON without errors.
fn update_unless_empty(hash: &mut Sha256, empty: bool, value: &(impl Serialize + ?Sized)) {
    if !empty {
        hash.update(serde_json::to_vec(value).unwrap_or_default());
    }
    hash.update([0]);
}
