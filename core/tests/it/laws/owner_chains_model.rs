//! Random chains of controllers: which objects there are, which kinds are enabled, and on whose quota each object runs by that.

use crate::fixtures::owner_chains::{kind_of, named};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::{CreatedKinds, Framework, Role, framework};
use sluice_core::reconciler::CoreSettings;
use std::collections::BTreeSet;

pub(super) const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const REPLICA_SET: (&str, &str) = ("apps", "ReplicaSet");
/// A kind of an external controller: its objects are known by their Workloads alone.
const EXTERNAL: (&str, &str) = ("example.com", "Train");
/// Kinds of the objects of a chain, as (group, kind).
const KINDS: [(&str, &str); 16] = [
    ("workload.codeflare.dev", "AppWrapper"),
    ("workload.codeflare.dev", "AppWrapper"),
    ("jobset.x-k8s.io", "JobSet"),
    ("batch", "Job"),
    ("batch", "Job"),
    ("kubeflow.org", "PyTorchJob"),
    ("kubeflow.org", "MPIJob"),
    ("trainer.kubeflow.org", "TrainJob"),
    ("ray.io", "RayJob"),
    ("ray.io", "RayCluster"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
    ("apps", "Deployment"),
    REPLICA_SET,
    ("apps", "StatefulSet"),
    ("", "Pod"),
    ("", "Pod"),
];
/// Kinds that are not enabled. Pods of a set are held by marks that the objects of the law lack.
const NEVER_ENABLED: [&str; 2] = ["statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"];
/// Kinds that are enabled in some chains.
const SOMETIMES: [&str; 6] = [
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/mpijob",
    "trainer.kubeflow.org/trainjob",
    "ray.io/rayjob",
    "ray.io/raycluster",
];

#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) kind: (&'static str, &'static str),
    /// Whether it names the queue from the start, or from some time on.
    pub(super) labelled: bool,
    pub(super) labelled_later: bool,
    /// Whether it comes while no webhook answers.
    pub(super) unreviewed: bool,
    /// When it comes, in relation to others.
    pub(super) turn: u8,
}

/// What happens to Workloads after all of them were admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Deactivated,
    /// The ClusterQueue is drained: all are evicted.
    Evicted,
    /// They are deleted while they have quota.
    Deleted,
    /// The jobs end that are Jobs.
    Finished,
}

#[derive(Clone, Debug)]
pub(super) struct Chain {
    /// The highest first.
    pub(super) links: Vec<Link>,
    pub(super) enabled: [bool; SOMETIMES.len()],
    pub(super) all_managed: bool,
    /// Whether there is quota while the objects come.
    pub(super) room: bool,
    /// Before which object another manager takes the place of the first.
    pub(super) restart: Option<u8>,
    /// What happens to Workloads in the end, and which objects own them, by bit.
    pub(super) fate: (Fate, u8),
}

pub(super) fn chains() -> impl Strategy<Value = Chain> {
    let link =
        (0..KINDS.len(), any::<bool>(), prop::bool::weighted(0.2), prop::bool::weighted(0.3), any::<u8>());
    let link = link.prop_map(|(kind, labelled, labelled_later, unreviewed, turn)| Link {
        kind: KINDS[kind],
        labelled,
        labelled_later,
        unreviewed,
        turn,
    });
    let external = prop::bool::weighted(0.15);
    let links = (prop::collection::vec(link, 1..=5), external).prop_map(|(mut links, external)| {
        if external {
            links[0] =
                Link { kind: EXTERNAL, labelled: true, labelled_later: false, unreviewed: true, turn: 0 };
        }
        links
    });
    let fate =
        prop_oneof![Just(Fate::Deactivated), Just(Fate::Evicted), Just(Fate::Deleted), Just(Fate::Finished)];
    let settings = (any::<[bool; SOMETIMES.len()]>(), prop::bool::weighted(0.2), any::<bool>());
    (links, settings, prop::option::weighted(0.4, 0..5_u8), (fate, any::<u8>())).prop_map(
        |(links, (enabled, all_managed, room), restart, fate)| Chain {
            links,
            enabled,
            all_managed,
            room,
            restart,
            fate,
        },
    )
}

impl Link {
    pub(super) fn row(&self) -> Option<&'static Framework> {
        framework(self.kind.0, self.kind.1)
    }

    pub(super) fn is_external(&self) -> bool {
        self.kind == EXTERNAL
    }

    pub(super) fn api_version(&self) -> String {
        let known = self.row().map(|row| row.gvk.api_version());
        known.unwrap_or_else(|| format!("{}/v1", self.kind.0))
    }

    pub(super) fn is_pod(&self) -> bool {
        self.kind == ("", "Pod")
    }

    pub(super) fn watched(&self) -> Kind {
        self.row().map_or(Kind::ReplicaSet, kind_of)
    }

    pub(super) fn is_labelled(&self) -> bool {
        self.labelled || (self.labelled_later && !self.is_pod())
    }

    /// Returns what its controller lists as made by it; `None`: anything.
    pub(super) fn makes(&self) -> Option<&'static [(&'static str, &'static str)]> {
        match self.row().map(|row| row.creates) {
            None if self.is_external() => None,
            None => Some(&[("", "Pod")]),
            Some(CreatedKinds::Any) => None,
            Some(CreatedKinds::Only(kinds)) => Some(kinds),
        }
    }
}

impl Chain {
    pub(super) fn is_enabled(&self, row: &Framework) -> bool {
        let of = SOMETIMES.iter().position(|name| *name == row.name);
        !NEVER_ENABLED.contains(&row.name) && of.is_none_or(|number| self.enabled[number])
    }

    /// Returns whether an object is queued, if nothing is in its place.
    pub(super) fn asks(&self, link: &Link) -> bool {
        let has_workloads = |row: &Framework| self.is_enabled(row) && row.role != Role::PassThrough;
        link.is_external()
            || link.row().is_some_and(has_workloads) && (link.is_labelled() || self.all_managed)
    }

    /// Returns whether the controller of a link makes objects as the next one.
    pub(super) fn makes_next(&self, number: usize) -> bool {
        let (link, next) = (&self.links[number], &self.links[number + 1]);
        let lists = |link: &Link| link.makes().is_none_or(|kinds| kinds.contains(&next.kind));
        if lists(link) {
            return true;
        }
        // What a pod makes was made for a controller above the pod that lists it.
        let makers = (0..number).rev().take_while(|above| self.makes_next(*above));
        let lists_by_kind = |link: &Link| link.makes().is_some_and(|kinds| kinds.contains(&next.kind));
        link.is_pod() && makers.map(|above| &self.links[above]).any(lists_by_kind)
    }

    /// The chain before names of queues were added.
    pub(super) fn at_first(&self) -> Self {
        let mut chain = self.clone();
        for link in &mut chain.links {
            link.labelled_later = false;
        }
        chain
    }

    /// Returns whether an object is queued itself, as far as the objects above it show, of which those exist that `exists` says: what is
    /// not there yet is not above another object.
    pub(super) fn queues_itself(&self, number: usize, exists: impl Fn(usize) -> bool) -> bool {
        let first = (0..number).rev().find(|above| !exists(*above)).map_or(0, |missing| missing + 1);
        let seen = Self { links: self.links[first..=number].to_vec(), ..self.clone() };
        seen.holders().last() == Some(&Some(number - first))
    }

    /// Returns for each object the one on whose quota it runs.
    pub(super) fn holders(&self) -> Vec<Option<usize>> {
        let mut holders: Vec<Option<usize>> = Vec::new();
        for (number, link) in self.links.iter().enumerate() {
            let above = number.checked_sub(1).and_then(|above| holders[above]);
            let made = |holder: usize| (holder..number).all(|maker| self.makes_next(maker));
            let above = above.filter(|holder| made(*holder) || !link.is_labelled());
            holders.push(above.or_else(|| self.asks(link).then_some(number)));
        }
        holders
    }

    pub(super) fn object(&self, number: usize) -> Value {
        let link = &self.links[number];
        let name = format!("o{number}");
        let queue = if link.labelled { "lq" } else { "" };
        let mut object = link.row().map_or_else(
            || json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name, "namespace": "ns",
                "uid": format!("uid-{name}"), "labels": {QUEUE: queue}}}),
            |row| named(row, &name, queue),
        );
        if let Some(above) = number.checked_sub(1) {
            object["metadata"]["ownerReferences"] = self.reference(above);
        }
        object
    }

    /// The owner references of what is below an object.
    pub(super) fn reference(&self, number: usize) -> Value {
        let link = &self.links[number];
        json!([{"apiVersion": link.api_version(), "kind": link.kind.1, "name": format!("o{number}"),
            "uid": format!("uid-o{number}"), "controller": true}])
    }

    pub(super) fn core_settings(&self) -> CoreSettings {
        let known = KINDS.iter().filter_map(|kind| framework(kind.0, kind.1));
        let frameworks: BTreeSet<String> =
            known.filter(|row| self.is_enabled(row)).map(|row| row.name.to_owned()).collect();
        let external_kinds = [(EXTERNAL.0.to_owned(), EXTERNAL.1.to_owned())].into();
        CoreSettings {
            frameworks,
            external_kinds,
            manage_jobs_without_queue_name: self.all_managed,
            ..CoreSettings::default()
        }
    }
}
