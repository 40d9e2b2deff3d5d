//! The shape of a workload's pods as a hash: workloads of one shape ask for the same.

use super::PodSet;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// The hash of everything that judging looks at.
pub(super) fn shape(pod_sets: &[PodSet]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for set in pod_sets {
        part(&mut hash, &*set.name);
        part(&mut hash, &(set.count, set.min_count, set.group.as_deref()));
        for (resource, amount) in &set.requests {
            part(&mut hash, &(&**resource, amount.get()));
        }
        part(&mut hash, &*set.node_selector);
        part(&mut hash, &set.required_affinity);
        part(&mut hash, &set.tolerations);
    }
    hash.finalize().into()
}

/// Adds one value; values that cannot be written as JSON do not exist among these types.
fn part(hash: &mut Sha256, value: &(impl Serialize + ?Sized)) {
    hash.update(serde_json::to_vec(value).unwrap_or_default());
    hash.update([0]);
}
