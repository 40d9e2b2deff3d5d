//! Law over random chains of controllers: whatever kinds, labels and order, each object is charged once, held with a reason, or in no
//! queue.

use super::builders;
use crate::job_server::JobServer;
use crate::owner_chains::{kind_of, named};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice::admission::AdmissionSettings;
use sluice::cache::Kind;
use sluice::frameworks::{CreatedKinds, Framework, Role, framework};
use sluice::reconciler::CoreSettings;
use std::collections::{BTreeMap, BTreeSet};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const MANAGED: &str = "kueue.x-k8s.io/managed";
const REPLICA_SET: (&str, &str) = ("apps", "ReplicaSet");
/// Kinds of the objects of a chain, as (group, kind).
const KINDS: [(&str, &str); 11] = [
    ("workload.codeflare.dev", "AppWrapper"),
    ("workload.codeflare.dev", "AppWrapper"),
    ("jobset.x-k8s.io", "JobSet"),
    ("batch", "Job"),
    ("batch", "Job"),
    ("kubeflow.org", "PyTorchJob"),
    ("apps", "Deployment"),
    REPLICA_SET,
    ("apps", "StatefulSet"),
    ("", "Pod"),
    ("", "Pod"),
];
/// Kinds that are not enabled. Pods of a set are held by marks that the objects of the law lack.
const NEVER_ENABLED: [&str; 2] = ["statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"];
/// Kinds that are enabled in some chains.
const SOMETIMES: [&str; 2] = ["jobset.x-k8s.io/jobset", "kubeflow.org/pytorchjob"];

#[derive(Clone, Copy, Debug)]
struct Link {
    kind: (&'static str, &'static str),
    /// Whether it names the queue from the start, or from some time on.
    labelled: bool,
    labelled_later: bool,
    /// Whether it comes while no webhook answers.
    unreviewed: bool,
    /// When it comes, in relation to others.
    turn: u8,
}

#[derive(Clone, Debug)]
struct Chain {
    /// The highest first.
    links: Vec<Link>,
    enabled: [bool; 2],
    all_managed: bool,
    /// Whether there is quota while the objects come.
    room: bool,
}

fn chains() -> impl Strategy<Value = Chain> {
    let link =
        (0..KINDS.len(), any::<bool>(), prop::bool::weighted(0.2), prop::bool::weighted(0.3), any::<u8>());
    let link = link.prop_map(|(kind, labelled, labelled_later, unreviewed, turn)| Link {
        kind: KINDS[kind],
        labelled,
        labelled_later,
        unreviewed,
        turn,
    });
    let links = prop::collection::vec(link, 1..=5);
    (links, any::<[bool; 2]>(), prop::bool::weighted(0.2), any::<bool>())
        .prop_map(|(links, enabled, all_managed, room)| Chain { links, enabled, all_managed, room })
}

impl Link {
    fn row(&self) -> Option<&'static Framework> {
        framework(self.kind.0, self.kind.1)
    }

    fn is_pod(&self) -> bool {
        self.kind == ("", "Pod")
    }

    fn watched(&self) -> Kind {
        self.row().map_or(Kind::ReplicaSet, kind_of)
    }

    fn is_labelled(&self) -> bool {
        self.labelled || (self.labelled_later && !self.is_pod())
    }

    /// Returns what its controller lists as made by it; `None`: anything.
    fn makes(&self) -> Option<&'static [(&'static str, &'static str)]> {
        match self.row().map(|row| row.creates) {
            None => Some(&[("", "Pod")]),
            Some(CreatedKinds::Any) => None,
            Some(CreatedKinds::Only(kinds)) => Some(kinds),
        }
    }
}

impl Chain {
    fn is_enabled(&self, row: &Framework) -> bool {
        let of = SOMETIMES.iter().position(|name| *name == row.name);
        !NEVER_ENABLED.contains(&row.name) && of.is_none_or(|number| self.enabled[number])
    }

    /// Returns whether an object is queued, if nothing is in its place.
    fn asks(&self, link: &Link) -> bool {
        let has_workloads = |row: &Framework| self.is_enabled(row) && row.role != Role::PassThrough;
        link.row().is_some_and(has_workloads) && (link.is_labelled() || self.all_managed)
    }

    /// Returns whether the controller of a link makes objects as the next one.
    fn makes_next(&self, number: usize) -> bool {
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
    fn at_first(&self) -> Self {
        let mut chain = self.clone();
        for link in &mut chain.links {
            link.labelled_later = false;
        }
        chain
    }

    /// Returns whether an object is queued itself, as far as the objects above it show, of which those exist that `exists` says: what is
    /// not there yet is not above another object.
    fn queues_itself(&self, number: usize, exists: impl Fn(usize) -> bool) -> bool {
        let first = (0..number).rev().find(|above| !exists(*above)).map_or(0, |missing| missing + 1);
        let seen = Self { links: self.links[first..=number].to_vec(), ..self.clone() };
        seen.holders().last() == Some(&Some(number - first))
    }

    /// Returns for each object the one on whose quota it runs.
    fn holders(&self) -> Vec<Option<usize>> {
        let mut holders: Vec<Option<usize>> = Vec::new();
        for (number, link) in self.links.iter().enumerate() {
            let above = number.checked_sub(1).and_then(|above| holders[above]);
            let made = |holder: usize| (holder..number).all(|maker| self.makes_next(maker));
            let above = above.filter(|holder| made(*holder) || !link.is_labelled());
            holders.push(above.or_else(|| self.asks(link).then_some(number)));
        }
        holders
    }

    fn object(&self, number: usize) -> Value {
        let link = &self.links[number];
        let name = format!("o{number}");
        let queue = if link.labelled { "lq" } else { "" };
        let mut object = link.row().map_or_else(
            || json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name, "namespace": "ns",
                "uid": format!("uid-{name}"), "labels": {QUEUE: queue}}}),
            |row| named(row, &name, queue),
        );
        if let Some(above) = number.checked_sub(1) {
            let (_, kind) = self.links[above].kind;
            let version =
                self.links[above].row().map_or_else(|| "apps/v1".to_owned(), |row| row.gvk.api_version());
            object["metadata"]["ownerReferences"] = json!([{"apiVersion": version, "kind": kind,
                "name": format!("o{above}"), "uid": format!("uid-o{above}"), "controller": true}]);
        }
        object
    }
}

struct Scene {
    chain: Chain,
    server: JobServer,
}

impl Scene {
    fn new(chain: Chain) -> Self {
        let known = KINDS.iter().filter_map(|kind| framework(kind.0, kind.1));
        let frameworks: BTreeSet<String> =
            known.filter(|row| chain.is_enabled(row)).map(|row| row.name.to_owned()).collect();
        let core = CoreSettings {
            frameworks: frameworks.clone(),
            manage_jobs_without_queue_name: chain.all_managed,
            ..CoreSettings::default()
        };
        let admission = AdmissionSettings {
            frameworks,
            manage_jobs_without_queue_name: chain.all_managed,
            ..AdmissionSettings::default()
        };
        let server = JobServer::with_settings(core, admission, if chain.room { "100" } else { "0" });
        Self { chain, server }
    }

    /// Creates all objects, each in its turn; what is refused because its owner is not known comes again.
    fn create_all(&mut self) {
        let mut rest: Vec<usize> = (0..self.chain.links.len()).collect();
        rest.sort_by_key(|number| self.chain.links[*number].turn);
        for _ in 0..=self.chain.links.len() {
            rest.retain(|number| !self.create(*number));
        }
        assert!(rest.is_empty(), "refused for ever: {rest:?} of {:?}", self.chain);
    }

    fn create(&mut self, number: usize) -> bool {
        let link = self.chain.links[number];
        let object = self.chain.object(number);
        let reviewed =
            link.row().filter(|row| self.chain.is_enabled(row) && (link.is_pod() || !link.unreviewed));
        let admitted = match reviewed.map(|row| self.server.admit(row, object.clone(), None)) {
            None => object,
            Some(Ok(object)) => object,
            Some(Err(message)) => {
                assert!(message.contains("was not found"), "{message}: {:?}", self.chain);
                return false;
            }
        };
        if link.is_pod() && self.chain.at_first().queues_itself(number, |above| self.exists(above)) {
            assert!(
                admitted["metadata"]["labels"].get(MANAGED).is_some(),
                "o{number} is not held: {:?}",
                self.chain
            );
        }
        self.server.load(link.watched(), admitted);
        true
    }

    fn label_later(&mut self) {
        for (number, link) in self.chain.links.clone().into_iter().enumerate() {
            if link.is_labelled() && !link.labelled {
                self.server.edit(link.watched(), &format!("o{number}"), |object| {
                    object["metadata"]["labels"][QUEUE] = json!("lq");
                });
            }
        }
    }

    /// Starts what is suspended and runs on the quota of another object, as operators do.
    fn resume_children(&mut self) {
        for (number, holder) in self.chain.holders().into_iter().enumerate() {
            let field = self.chain.links[number].row().and_then(|row| row.fields.suspend);
            if let Some(field) = field.filter(|_| holder.is_some_and(|holder| holder != number)) {
                self.server.edit(self.chain.links[number].watched(), &format!("o{number}"), |object| {
                    if let Some(suspend) = object.pointer_mut(field) {
                        *suspend = json!(false);
                    }
                });
            }
        }
    }

    /// Returns how many Workloads that have not finished each object owns.
    fn open_workloads(&self) -> BTreeMap<usize, usize> {
        let mut owned = BTreeMap::new();
        for workload in self.server.all(Kind::Workload) {
            let conditions = workload["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let finished = conditions.iter().any(|c| c["type"] == "Finished" && c["status"] == "True");
            let owner = workload["metadata"]["ownerReferences"][0]["name"]
                .as_str()
                .and_then(|name| name[1..].parse().ok());
            if let Some(owner) = owner.filter(|_: &usize| !finished) {
                *owned.entry(owner).or_default() += 1;
            }
        }
        owned
    }

    fn is_gated(&self, number: usize) -> Option<bool> {
        let pod = self.server.get(Kind::Pod, &format!("o{number}"))?;
        Some(pod["spec"]["schedulingGates"].to_string().contains("kueue.x-k8s.io/admission"))
    }

    fn is_suspended(&self, number: usize) -> Option<bool> {
        let link = &self.chain.links[number];
        let row = link.row().filter(|row| self.chain.is_enabled(row))?;
        let field = row.fields.suspend?;
        Some(self.server.get(link.watched(), &format!("o{number}"))?.pointer(field) == Some(&json!(true)))
    }

    /// Returns whether all objects above one exist: a pod that was stopped is gone, and the garbage collector follows.
    fn is_attached(&self, number: usize) -> bool {
        (0..number).all(|above| self.exists(above))
    }

    fn exists(&self, number: usize) -> bool {
        self.server.get(self.chain.links[number].watched(), &format!("o{number}")).is_some()
    }

    /// Exactly the objects on whose quota something runs have a Workload, each one.
    fn assert_charged_once(&self, when: &str) {
        let own =
            self.chain.holders().into_iter().enumerate().filter(|(number, holder)| *holder == Some(*number));
        // A pod that was stopped is gone, and so is its Workload. One that was created while it needed no quota is in no queue.
        let exists = |number: usize| {
            let link = &self.chain.links[number];
            let object = self.server.get(link.watched(), &format!("o{number}"));
            object.is_some_and(|object| !link.is_pod() || object["metadata"]["labels"].get(MANAGED).is_some())
        };
        let own = own.map(|(number, _)| number);
        let expected: BTreeMap<usize, usize> = own
            .filter(|number| exists(*number) && self.is_attached(*number))
            .map(|number| (number, 1))
            .collect();
        let mut open = self.open_workloads();
        open.retain(|number, _| self.is_attached(*number));
        assert_eq!(open, expected, "{when}: {:?}", self.chain);
    }

    /// What is held is held for a Workload that waits, or an event says for which object.
    fn assert_reasons(&self) {
        let open = self.open_workloads();
        for number in (0..self.chain.links.len()).filter(|number| self.is_gated(*number) == Some(true)) {
            let name = format!("o{number}");
            let mut events = self.server.events.iter().filter(|event| *event.key.name == *name);
            let said = events.any(|event| event.reason == "WaitsForOwner");
            assert!(said || open.contains_key(&number), "{name} waits without a reason: {:?}", self.chain);
        }
    }
}

fn check(chain: Chain) {
    let mut scene = Scene::new(chain);
    scene.create_all();
    scene.label_later();
    scene.assert_reasons();
    scene.assert_charged_once("all are there");
    scene.server.edit_queue("100");
    scene.server.advance(jiff::SignedDuration::from_secs(30));
    for _ in 0..scene.chain.links.len() {
        scene.resume_children();
    }
    scene.assert_charged_once("there is room");
    let holders = scene.chain.holders();
    for (number, holder) in holders.iter().enumerate() {
        // A Workload without a queue is not admitted.
        let admitted = holder.is_none_or(|holder| scene.chain.links[holder].is_labelled());
        if !admitted || !scene.is_attached(number) {
            continue;
        }
        assert_ne!(
            scene.is_gated(number),
            Some(true),
            "o{number} waits although there is room: {:?}",
            scene.chain
        );
        assert_ne!(
            scene.is_suspended(number).filter(|_| holder.is_some()),
            Some(true),
            "o{number} is suspended although there is room: {:?}",
            scene.chain
        );
    }
    for workload in scene.server.all(Kind::Workload) {
        let name = workload["metadata"]["name"].as_str().unwrap();
        if scene.server.get(Kind::Workload, name).is_some() {
            scene.server.edit(Kind::Workload, name, |workload| workload["spec"]["active"] = json!(false));
        }
    }
    scene.resume_children();
    for (number, holder) in holders.iter().enumerate().filter(|(_, holder)| holder.is_some()) {
        // That of a pod goes with the pod, which is stopped by its deletion.
        let kept = holder.is_some_and(|holder| !scene.chain.links[holder].is_pod());
        let kept = kept && scene.is_attached(number);
        assert_ne!(
            scene.is_suspended(number).filter(|_| kept),
            Some(false),
            "o{number} runs without quota: {:?}",
            scene.chain
        );
    }
}

proptest! {
    #![proptest_config(builders::config(200))]

    #[test]
    fn each_object_of_a_chain_is_charged_once(chain in chains()) {
        check(chain);
    }
}
