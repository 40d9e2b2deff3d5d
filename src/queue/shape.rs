//! The shape of a workload as a hash: workloads of one shape are judged alike.

use super::Workload;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// The hash of everything that judging looks at, beside priority and queues.
pub(super) fn shape(workload: &Workload) -> [u8; 32] {
    let mut hash = Sha256::new();
    for set in &*workload.pod_sets {
        text(&mut hash, &set.name);
        text(&mut hash, set.group.as_deref().unwrap_or_default());
        hash.update(set.count.to_le_bytes());
        hash.update(set.min_count.unwrap_or(i32::MIN).to_le_bytes());
        for (resource, amount) in &set.requests {
            text(&mut hash, resource);
            hash.update(amount.get().to_le_bytes());
        }
        hash.update([0]);
        part(&mut hash, set.pods.node_selector.is_empty(), &set.pods.node_selector);
        part(&mut hash, set.pods.required_affinity.is_empty(), &set.pods.required_affinity);
        part(&mut hash, set.pods.tolerations.is_empty(), &set.pods.tolerations);
        part(&mut hash, set.pods.request.is_none(), &set.pods.request);
        part(&mut hash, set.pods.preferred_affinity.is_empty(), &set.pods.preferred_affinity);
        for (resource, amount) in set.pods.requests.iter().filter(|_| set.pods.requests != set.requests) {
            text(&mut hash, resource);
            hash.update(amount.get().to_le_bytes());
        }
    }
    hash.update([u8::from(workload.gated)]);
    if let Some(variant) = &workload.variant {
        text(&mut hash, "variant");
        text(&mut hash, &variant.parent);
        variant.flavors.iter().for_each(|flavor| text(&mut hash, flavor));
    }
    if let Some(old) = &workload.replaces {
        text(&mut hash, "replaces");
        text(&mut hash, &old.name);
    }
    if let Some(obstacle) = &workload.obstacle {
        text(&mut hash, "obstacle");
        text(&mut hash, obstacle.reason.as_str());
        text(&mut hash, &obstacle.to_string());
    }
    hash.finalize().into()
}

/// Adds a text so that no two sequences of texts are the same bytes.
fn text(hash: &mut Sha256, text: &str) {
    hash.update(text.len().to_le_bytes());
    hash.update(text);
}

/// Adds what is mostly empty; values that cannot be written as JSON do not exist among these types.
fn part(hash: &mut Sha256, empty: bool, value: &(impl Serialize + ?Sized)) {
    if !empty {
        hash.update(serde_json::to_vec(value).unwrap_or_default());
    }
    hash.update([0]);
}
