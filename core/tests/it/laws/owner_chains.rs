//! Law over random chains of controllers: whatever kinds, labels and order, each object is charged once, held with a reason, or in no
//! queue.

use super::owner_chains_model::{Chain, Fate, Link, QUEUE, chains};
use crate::fixtures::builders;
use crate::fixtures::job_samples::related;
use crate::fixtures::job_server::JobServer;
use crate::fixtures::owner_chains::workload;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_core::admission::AdmissionSettings;
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use std::collections::{BTreeMap, BTreeSet};

const MANAGED: &str = "kueue.x-k8s.io/managed";

struct Scene {
    chain: Chain,
    server: JobServer,
    /// Number of objects that were created.
    created: usize,
}

impl Scene {
    fn new(chain: Chain) -> Self {
        let core = chain.core_settings();
        let admission = AdmissionSettings {
            frameworks: core.frameworks.clone(),
            external_kinds: core.external_kinds.clone(),
            manage_jobs_without_queue_name: chain.all_managed,
            ..AdmissionSettings::default()
        };
        let mut server = JobServer::with_settings(core, admission, if chain.room { "100" } else { "0" });
        for (kind, object) in related() {
            server.create(kind, object);
        }
        let created = 0;
        Self { chain, server, created }
    }

    /// Creates all objects, each in its turn; what is refused because its owner is not known comes again.
    fn create_all(&mut self) {
        let mut rest: Vec<usize> = (0..self.chain.links.len()).collect();
        // A child of an external object is taken for one of an unknown kind until that has a Workload.
        let order = |link: &Link| (!link.is_external(), link.turn);
        rest.sort_by_key(|number| order(&self.chain.links[*number]));
        for _ in 0..=self.chain.links.len() {
            rest.retain(|number| !self.create(*number));
        }
        assert!(rest.is_empty(), "refused for ever: {rest:?} of {:?}", self.chain);
    }

    fn create(&mut self, number: usize) -> bool {
        let link = self.chain.links[number];
        if link.is_external() {
            let (name, owner) = (format!("w{number}"), self.chain.reference(number));
            self.server.load(Kind::Workload, workload(&name, number, ("QuotaReserved", "False"), &owner));
            self.created += 1;
            return true;
        }
        let object = self.chain.object(number);
        let restarts = self.chain.restart.is_some_and(|before| usize::from(before) == self.created);
        if restarts && link.unreviewed && !link.is_pod() {
            // It comes while there is no manager.
            self.server.load_unseen(link.watched(), object);
            self.server.restart(self.chain.core_settings());
            self.created += 1;
            return true;
        }
        if restarts {
            self.server.restart(self.chain.core_settings());
        }
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
        self.created += 1;
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
        for (owner, _) in self.owned_workloads() {
            *owned.entry(owner).or_default() += 1;
        }
        owned
    }

    /// Returns the Workloads that have not finished, by their names, with the objects that own them.
    fn owned_workloads(&self) -> Vec<(usize, String)> {
        let owned = |workload: Value| {
            let conditions = workload["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let finished = conditions.iter().any(|c| c["type"] == "Finished" && c["status"] == "True");
            let owner = workload["metadata"]["ownerReferences"][0]["name"].as_str()?[1..].parse().ok()?;
            let name = workload["metadata"]["name"].as_str()?.to_owned();
            (!finished).then_some((owner, name))
        };
        self.server.all(Kind::Workload).into_iter().filter_map(owned).collect()
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
        if self.chain.links[number].is_external() {
            return self.owned_workloads().iter().any(|(owner, _)| *owner == number);
        }
        self.server.get(self.chain.links[number].watched(), &format!("o{number}")).is_some()
    }

    /// Exactly the objects on whose quota something runs, and that have not finished, have a Workload, each one.
    fn assert_charged_once(&self, when: &str, finished: &BTreeSet<usize>) {
        let own =
            self.chain.holders().into_iter().enumerate().filter(|(number, holder)| *holder == Some(*number));
        // A pod that was stopped is gone, and so is its Workload. One that was created while it needed no quota is in no queue.
        let exists = |number: usize| {
            let link = &self.chain.links[number];
            if link.is_external() {
                return self.exists(number);
            }
            let object = self.server.get(link.watched(), &format!("o{number}"));
            object.is_some_and(|object| !link.is_pod() || object["metadata"]["labels"].get(MANAGED).is_some())
        };
        let own = own.map(|(number, _)| number).filter(|number| !finished.contains(number));
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

    /// Objects with quota that is their own run, and what is below them.
    fn assert_runs(&self, when: &str, stopped: &BTreeSet<usize>) {
        for (number, holder) in self.chain.holders().into_iter().enumerate() {
            // A Workload without a queue is not admitted.
            let admitted = holder
                .is_none_or(|holder| self.chain.links[holder].is_labelled() && !stopped.contains(&holder));
            if !admitted || !self.is_attached(number) {
                continue;
            }
            let chain = &self.chain;
            assert_ne!(self.is_gated(number), Some(true), "{when}: o{number} waits: {chain:?}");
            let suspended = self.is_suspended(number).filter(|_| holder.is_some());
            assert_ne!(suspended, Some(true), "{when}: o{number} is suspended: {chain:?}");
        }
    }

    /// Nothing runs on the quota of these objects. That of a pod goes with the pod, which is stopped by its deletion.
    fn assert_stopped(&self, when: &str, stopped: &BTreeSet<usize>) {
        for (number, holder) in self.chain.holders().into_iter().enumerate() {
            let kept =
                holder.is_some_and(|holder| stopped.contains(&holder) && !self.chain.links[holder].is_pod());
            let runs = self.is_suspended(number).filter(|_| kept && self.is_attached(number));
            assert_ne!(runs, Some(false), "{when}: o{number} runs without quota: {:?}", self.chain);
        }
    }

    /// Deletes the Workloads of objects that are gone.
    fn collect_garbage(&mut self) {
        for (owner, name) in self.owned_workloads() {
            if !self.exists(owner) {
                self.server.delete(Kind::Workload, &name);
            }
        }
    }

    /// Lets the fate of the chain come. Returns the objects whose Workloads are stopped, and the ones that have finished.
    fn meet_fate(&mut self) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let (fate, of) = self.chain.fate;
        let links = self.chain.links.clone();
        let may_meet = |number: usize| match fate {
            Fate::Deactivated | Fate::Evicted => true,
            // No controller makes the Workload of an external object again.
            Fate::Deleted => !links[number].is_external(),
            Fate::Finished => links[number].kind == ("batch", "Job"),
        };
        let met: Vec<(usize, String)> = self
            .owned_workloads()
            .into_iter()
            .filter(|(owner, _)| may_meet(*owner) && (fate == Fate::Evicted || (of >> *owner) & 1 == 1))
            .collect();
        if fate == Fate::Evicted {
            self.server.edit_any(Kind::ClusterQueue, &ObjectKey::cluster("cq"), |queue| {
                queue["spec"]["stopPolicy"] = json!("HoldAndDrain");
            });
        }
        for (owner, name) in &met {
            match fate {
                Fate::Deactivated => self.server.edit(Kind::Workload, name, |workload| {
                    workload["spec"]["active"] = json!(false);
                }),
                Fate::Evicted => {}
                Fate::Deleted => self.server.delete(Kind::Workload, name),
                Fate::Finished => {
                    self.server.edit(links[*owner].watched(), &format!("o{owner}"), |job| {
                        job["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
                    });
                }
            }
        }
        let owners = met.into_iter().map(|(owner, _)| owner).collect();
        match fate {
            Fate::Deactivated | Fate::Evicted => (owners, BTreeSet::new()),
            Fate::Deleted => (BTreeSet::new(), BTreeSet::new()),
            Fate::Finished => (BTreeSet::new(), owners),
        }
    }
}

fn check(chain: Chain) {
    let (mut scene, none) = (Scene::new(chain), BTreeSet::new());
    scene.create_all();
    scene.label_later();
    scene.assert_reasons();
    scene.assert_charged_once("all are there", &none);
    scene.server.edit_queue("100");
    scene.server.advance(jiff::SignedDuration::from_secs(30));
    for _ in 0..scene.chain.links.len() {
        scene.resume_children();
    }
    scene.assert_charged_once("there is room", &none);
    scene.assert_runs("there is room", &none);
    let (stopped, finished) = scene.meet_fate();
    scene.server.advance(jiff::SignedDuration::from_secs(30));
    scene.collect_garbage();
    for _ in 0..scene.chain.links.len() {
        scene.resume_children();
    }
    let when = format!("{:?}", scene.chain.fate);
    scene.assert_charged_once(&when, &finished);
    scene.assert_stopped(&when, &stopped);
    // What is below a Job that has ended is over.
    let over: BTreeSet<usize> = stopped.union(&finished).copied().collect();
    scene.assert_runs(&when, &over);
}

proptest! {
    #![proptest_config(builders::config(builders::sample(160, 2)))]

    #[test]
    fn each_object_of_a_chain_is_charged_once(chain in chains()) {
        check(chain);
    }
}
