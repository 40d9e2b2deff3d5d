//! Which Workload belongs to which unit, and which units this manager manages.
//!
//! Owner references alone do not determine it: users and other clients edit them. A Workload belongs to the job that it was made
//! for, which its name contains as a hash of the job's UID, or else to its owner, or else to the job that names it. Invariants: a
//! job has one Workload and a Workload one job, whatever clients edit; while pods of a job run, or its templates are not
//! restored, the Workload that started it keeps its quota.

use super::LoadedUnit;
use super::slices::Slices;
use crate::api::reason::ConditionType;
use crate::api::{ObjectKey, OwnerRecord, names};
use crate::cache::records::WorkloadRecord;
use crate::cache::{Cache, JobId, Kind};
use crate::frameworks::{
    Component, JobKind, JobView, NO_MEMBERS, OwnerRef, PodMember, Role, Unit, UnitKey, UnitStatus,
    UnitSummary, framework, is_disowned_pod, own_workload_keys, path_of,
};
use crate::lifecycle::conditions;
use crate::reconciler::settings::CoreSettings;
use crate::reconciler::work_queue::ReconcileKey;
use std::borrow::Cow;
use std::sync::Arc;

/// The units, as the cache has them.
#[derive(Clone, Copy)]
pub struct Units<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) settings: &'a CoreSettings,
}

impl<'a> Units<'a> {
    /// Returns a unit; `None` if it has no objects, or its kind has no Workloads.
    pub(crate) fn load(self, key: &UnitKey) -> Option<LoadedUnit<'a>> {
        let (owner, members, summary) = match key.kind.role {
            Role::Suspended => (Some(self.owner(key)?), Vec::new(), Cow::Borrowed(&NO_MEMBERS)),
            Role::PodsOfOwner => {
                let summary = Cow::Borrowed(self.cache.unit_summary(key));
                (Some(self.owner(key)?), self.cache.unit_members(key), summary)
            }
            Role::Pods | Role::PassThrough => {
                let (members, summary) = self.own_members(key);
                (None, members, summary)
            }
        };
        let mut unit = assemble(key, owner, members, summary)?;
        if let Some(record) = self.inherited_workload(&unit) {
            unit.workload = record.meta.key.clone();
        }
        Some(unit)
    }

    fn owner(self, key: &UnitKey) -> Option<&'a JobView> {
        self.cache.job(&(key.kind, key.key.clone())).map(|view| &**view)
    }

    /// Returns kind and key of the object that events about a unit are on.
    pub(crate) fn subject_of(self, key: &UnitKey) -> Option<(Kind, ObjectKey)> {
        let unit = self.load(key)?;
        let (kind, key, _) = unit.subject();
        Some((kind, key.clone()))
    }

    /// Returns the unit that a Workload belongs to.
    pub(crate) fn of_workload(self, record: &WorkloadRecord) -> Option<UnitKey> {
        let made_for = || self.cache.unit_of_own_workload(&record.meta.key).map(|(unit, _)| unit);
        self.cache.unit_of_workload(record).or_else(made_for).or_else(|| {
            let ((kind, key), _) = self.job_of_workload(record)?;
            Some(UnitKey::of_object(*kind, key.clone()))
        })
    }

    /// Returns the Workloads of a unit. The first is in use: the prebuilt Workload that the unit names, the Workload that was
    /// made for it, or another one that it owns. The others end.
    fn workloads_of(self, unit: &LoadedUnit<'_>) -> Vec<&'a Arc<WorkloadRecord>> {
        let named = self.cache.workload(&unit.workload);
        if unit.view.options.prebuilt_workload.is_some() || unit.key.is_pod_group() {
            // A Workload that has lost all pods of a group ended with them: new pods of the name get another one.
            let prebuilt = unit.view.options.prebuilt_workload.is_some();
            let is_own = |record: &&Arc<WorkloadRecord>| {
                self.belongs(unit, record) && (prebuilt || !has_lost_its_owner(record))
            };
            return named.filter(is_own).into_iter().collect();
        }
        // The name says that a Workload was made for the job, and is not hashed once more.
        let is_own = |record: &&Arc<WorkloadRecord>| unit.owner.is_some() || self.belongs(unit, record);
        let named = named.filter(is_own).filter(|record| !is_given_up(record));
        let is_other = |record: &&Arc<WorkloadRecord>| {
            let key = &record.meta.key;
            key.namespace == unit.workload.namespace && *key != unit.workload && self.belongs(unit, record)
        };
        let owned = self.cache.workloads_owned_by(&unit.view.uid).iter();
        let owned = owned.filter_map(|key| self.cache.workload(key)).filter(is_other);
        let mut others: Vec<_> = owned.filter(|record| !is_given_up(record)).collect();
        others.sort_by_key(|record| conditions::is_true(&record.status, ConditionType::Finished));
        let mut all: Vec<_> = named.into_iter().chain(others).collect();
        // A Workload that has ended, or ends, is superseded by the one that was made to follow it.
        let follows = |record: &WorkloadRecord| all.iter().any(|other| record.carries_from(&other.meta.uid));
        if let Some(next) = all.iter().position(|record| follows(record)) {
            all.swap(0, next);
        }
        all
    }

    /// Returns the Workload of a unit that is in use; of the slices of an elastic job, the one on whose quota its pods run.
    pub(super) fn workload_of(self, unit: &LoadedUnit<'_>) -> Option<&'a Arc<WorkloadRecord>> {
        match self.slices_of(unit) {
            Some(slices) => slices.in_use(),
            None => self.workloads_of(unit).into_iter().next(),
        }
    }

    /// Returns the Workload of a job that is in use.
    pub(crate) fn workload_of_job(self, kind: JobKind, key: &ObjectKey) -> Option<&'a Arc<WorkloadRecord>> {
        self.workload_of(&self.load(&UnitKey::of_object(kind, key.clone()))?)
    }

    /// Returns the slices of an elastic job; `None` if the unit is no elastic job.
    pub(super) fn slices_of(self, unit: &LoadedUnit<'_>) -> Option<Slices<'a>> {
        let owner = unit.owner.filter(|owner| owner.options.slice.is_some())?;
        let owned = self.cache.workloads_owned_by(&owner.uid).iter();
        let records = owned.filter_map(|key| self.cache.workload(key));
        let own = records.filter(|record| record.meta.key.namespace == owner.key.namespace);
        Some(Slices::of(own.filter(|record| self.belongs(unit, record)).collect()))
    }

    /// Returns whether a Workload belongs to a unit, or did.
    pub(super) fn belongs(self, unit: &LoadedUnit<'_>, record: &WorkloadRecord) -> bool {
        match (unit.key.component, unit.owner) {
            (Component::PodGroup, _) => record.annotations.is_pod_group,
            (Component::Replica(_), _) => record.meta.key == unit.workload,
            (Component::Object, None) => owns(unit, record),
            (Component::Object, Some(owner)) => {
                self.job_of_workload(record).is_some_and(|(_, job)| job.uid == owner.uid)
            }
        }
    }

    /// Returns the job that a Workload belongs to: the one that it was made for, its owner, or the job that names it while
    /// it has no owner.
    pub(crate) fn job_of_workload(self, record: &WorkloadRecord) -> Option<(&'a JobId, &'a Arc<JobView>)> {
        let key = &record.meta.key;
        self.cache.job_of_own_workload(key).or_else(|| match record.owner {
            Some(_) => self.cache.job_of(record).filter(|(id, _)| id.1.namespace == key.namespace),
            None => self.cache.jobs_naming(key).find(|(id, view)| {
                let ends = view.deleting || view.status.finished.is_some();
                !ends && self.manages_job(id.0, view) && self.highest_above(id.0, view).is_none()
            }),
        })
    }

    /// Returns whether the objects that the Workload of a group was made for are deleted or being deleted, and neither the
    /// garbage collector nor an object ends it: they were deleted without their dependents, so that nothing refers to them. Such
    /// a Workload would hold its quota for ever.
    pub(super) fn is_left_without_objects(self, record: &WorkloadRecord) -> bool {
        let is_known = |owner: &Arc<OwnerRecord>| framework(owner.group(), &owner.kind).is_some();
        let mut owners = record.owner.iter().chain(record.other_owners.iter());
        let set = self.cache.unit_of_own_workload(&record.meta.key);
        let goes = set.is_none_or(|(_, view)| view.deleting);
        let is_owned = if record.job_uid.is_some() { owners.any(is_known) } else { owners.next().is_some() };
        let finishes = self.settings.gates.finish_orphaned_workloads;
        finishes && record.is_made_for_objects() && goes && !is_owned
    }

    /// Returns the units that a change of a Workload with this key concerns, beside its owner.
    pub(crate) fn named_like_workload(self, key: &ObjectKey) -> Vec<UnitKey> {
        let made_for = self.cache.unit_of_own_workload(key).map(|(unit, _)| unit);
        // The present object takes over the Workload of an earlier one, or makes its own after that is deleted.
        let made_for = made_for.or_else(|| self.cache.set_in_workload_name(key));
        let naming = self.cache.jobs_naming(key);
        let naming = naming.map(|((kind, job), _)| UnitKey::of_object(*kind, job.clone()));
        made_for.into_iter().chain(naming).collect()
    }

    /// Returns the Workloads that a change of a job concerns, beside the ones that it owns.
    pub(crate) fn workloads_named_by(self, kind: JobKind, view: &JobView) -> Vec<ObjectKey> {
        let keys = view.prebuilt_workload_key().into_iter().chain(own_workload_keys(&kind, view));
        keys.filter(|key| self.cache.workload(key).is_some()).collect()
    }

    /// Returns whether pods of a unit may run; pods outside the counts of its status name this Workload. Neither its status nor
    /// the status of a job below it is enough: one may be older than the other, and most leave out terminating pods.
    pub(super) fn has_pods(self, unit: &LoadedUnit<'_>, workload: &ObjectKey, status: &UnitStatus) -> bool {
        status.active
            || unit
                .owner
                .filter(|_| !unit.key.kind.tells_end_of_pods())
                .is_some_and(|owner| self.has_pods_below(&owner.uid, workload))
    }

    /// Returns whether pods of a job that no longer exists may run on the quota of its Workload: they end after the job if it was
    /// deleted in the background. As in Kueue, pods of a Job do not count.
    pub(super) fn outlive_job(self, kind: JobKind, uid: &str, workload: &ObjectKey) -> bool {
        kind.role == Role::Suspended && kind != JobKind::BATCH_JOB && self.has_pods_below(uid, workload)
    }

    /// Returns whether pods below a job with this UID run: pods that name its Workload, or pods of a job below it.
    fn has_pods_below(self, uid: &str, workload: &ObjectKey) -> bool {
        self.cache.has_running_pods(workload, uid) || self.has_running_child(uid, &workload.namespace)
    }

    /// Returns the steps that may be due at the end of pods that name these Workloads: their jobs wait for their pods.
    pub(crate) fn steps_at_end_of_pods(
        self,
        workloads: impl IntoIterator<Item = ObjectKey>,
    ) -> Vec<ReconcileKey> {
        workloads.into_iter().flat_map(|workload| self.steps_at_end_of_pod(&workload)).collect()
    }

    fn steps_at_end_of_pod(self, workload: &ObjectKey) -> Vec<ReconcileKey> {
        let mut units = self.named_like_workload(workload);
        let waiting = units.iter().flat_map(|unit| self.children_that_wait(unit)).collect::<Vec<_>>();
        units.extend(waiting);
        let slices = self.cache.slices_from(workload);
        units.extend(slices.iter().filter_map(|key| self.of_workload(self.cache.workload(key)?)));
        let vanished = self.cache.vanished(workload).map(|record| record.meta.key.clone());
        let workloads = slices.into_iter().chain(vanished).map(ReconcileKey::workload);
        units.into_iter().map(ReconcileKey::Unit).chain(workloads).collect()
    }

    /// Returns the steps that may be due at the end of the pods of a job: of the jobs above it, and of their Workloads.
    pub(crate) fn steps_above(self, job: &JobView) -> Vec<ReconcileKey> {
        let above = self.cache.controllers_of_job(job);
        let highest = above.last().map_or(job, |(_, highest)| highest);
        let of = |uid: &str| self.cache.workloads_owned_by(uid).iter().chain(self.cache.vanished_of(uid));
        // The next one may be deleted, and its Workload wait for these pods.
        let gone = highest.controller.iter().flat_map(|gone| of(&gone.uid));
        let mut steps: Vec<ReconcileKey> = gone.cloned().map(ReconcileKey::workload).collect();
        for (kind, above) in above {
            let workloads = of(&above.uid).cloned().chain(self.workloads_named_by(kind, &above));
            steps.extend(workloads.map(ReconcileKey::workload));
            steps.extend(self.steps_of_jobs([&(kind, above.key.clone())]));
        }
        steps
    }

    /// Returns whether a job below another one has pods, and no Workload of its own.
    fn has_running_child(self, owner: &str, namespace: &str) -> bool {
        let runs = |view: &JobView| {
            view.status.active_pods > 0
                && *view.key.namespace == *namespace
                && self.cache.workloads_owned_by(&view.uid).is_empty()
        };
        self.cache.jobs_below(owner).into_iter().filter_map(|id| self.cache.job(id)).any(|view| runs(view))
    }

    /// Returns whether a Workload belongs to a unit that has another one.
    pub(super) fn is_superfluous(self, record: &WorkloadRecord, unit: &LoadedUnit<'_>) -> bool {
        match self.slices_of(unit) {
            Some(slices) => slices.is_superfluous(record),
            None => self.workload_of(unit).is_none_or(|used| used.meta.key != record.meta.key),
        }
    }

    /// Returns the Workload on whose quota the pods of a job run, or whose start is not undone yet, if the job has another
    /// Workload now, or none.
    pub(super) fn former_workload(
        self,
        unit: &LoadedUnit<'_>,
        used: Option<&ObjectKey>,
    ) -> Option<&'a Arc<WorkloadRecord>> {
        let owner = unit.owner?;
        if self.slices_of(unit).is_some_and(|slices| slices.started(owner)) {
            return None;
        }
        let name = starting_workload(owner)?;
        let key = ObjectKey { namespace: owner.key.namespace.clone(), name: Arc::from(name) };
        let record = self.cache.workload(&key).filter(|_| used != Some(&key))?;
        let uid = &owner.uid;
        let made_for_job = || {
            record.job_uid.as_ref() == Some(uid) || own_workload_keys(&unit.key.kind, owner).contains(&key)
        };
        let belongs = record.owner.as_ref().map_or_else(made_for_job, |owner| owner.uid == *uid);
        (belongs && !record.pod_sets().is_empty()).then_some(record)
    }

    /// Returns whether jobs in a namespace are managed. A namespace that is not cached is not managed.
    pub(crate) fn manages_namespace(self, namespace: &str) -> bool {
        let labels = self.cache.namespace_labels(namespace);
        labels.is_some_and(|labels| crate::api::selector::matches(&self.settings.managed_namespaces, labels))
    }

    /// Returns whether this manager manages a job: the job names a queue (or jobs without queue name are managed), no
    /// other controller manages it, and its namespace is managed.
    pub(crate) fn manages_job(self, kind: JobKind, job: &JobView) -> bool {
        let queued = job.queue_name.is_some() || self.settings.manage_jobs_without_queue_name;
        queued && !is_managed_by_other_controller(kind, job) && self.manages_namespace(&job.key.namespace)
    }

    /// Returns why this manager does not manage a job that names a queue: the reason and the cause that an event gives. `None` if it
    /// does, or may once it knows the job's namespace.
    pub(super) fn why_not_managed(self, kind: JobKind, job: &JobView) -> Option<(&'static str, String)> {
        let namespace = &job.key.namespace;
        if is_managed_by_other_controller(kind, job) {
            return Some(("ManagedByOtherController", controller_of_others(kind, job)));
        }
        let known = self.cache.namespace_labels(namespace).is_some();
        let cause = || format!("managedJobsNamespaceSelector does not select namespace {namespace}");
        (known && !self.manages_namespace(namespace)).then(|| ("NamespaceNotSelected", cause()))
    }

    /// Returns whether the pods of a unit without an owner are managed, by their labels. If only kinds that create pods are
    /// configured, only the pods of these kinds are managed. A pod below a job that is queued in its place is not.
    pub(super) fn manages_pods(self, unit: &LoadedUnit<'_>) -> bool {
        self.holds_pods(unit) && self.above_unit(unit).is_none()
    }

    /// Returns whether pods of a unit without an owner are held back, if nothing is queued in their place.
    fn holds_pods(self, unit: &LoadedUnit<'_>) -> bool {
        unit.members().all(is_made_by_parent) || self.settings.manages_kind(unit.key.kind)
    }

    /// Returns the object that is queued in place of a unit, not counting the object that has made the Workload of its pods.
    pub(super) fn above_unit(self, unit: &LoadedUnit<'_>) -> Option<OwnerRef> {
        if unit.owner.is_none() && self.is_disowned(unit) {
            return None;
        }
        let above = self.ancestor_of(unit.key.kind, &unit.view)?;
        if unit.owner.is_some() {
            return Some(above);
        }
        let makes_groups = framework(above.group(), &above.kind)
            .is_some_and(|row| row.role == Role::PodsOfOwner && unit.members().all(is_made_by_parent));
        // A pod of the unit itself may control others.
        let key = ObjectKey::new(&unit.view.key.namespace, &above.name);
        let is_member = unit.member(&key).is_some_and(|member| *member.uid == *above.uid);
        (!makes_groups && !is_member && self.holds_pods(unit)).then_some(above)
    }
}

impl Units<'_> {
    /// Returns whether pods name a controller that does not accept them: it releases them, so that nothing is queued in their
    /// place.
    fn is_disowned(self, unit: &LoadedUnit<'_>) -> bool {
        let Some((first, owner)) = unit.members().next().zip(unit.view.controller.as_ref()) else {
            return false;
        };
        let labels = first.pod.pointer("/metadata/labels");
        let label = |key: &str| labels.and_then(|labels| labels.get(key)?.as_str());
        is_disowned_pod((&first.key.name, label), owner, |owner| {
            if let Some(job) = self.cache.job_id(&owner.uid).and_then(|id| self.cache.job(id)) {
                return Some((job.options.pod_identity.clone(), job.controller.clone()));
            }
            let id = (Kind::ReplicaSet, ObjectKey::new(&unit.view.key.namespace, &owner.name));
            let set = self.cache.link(&id).filter(|entry| *entry.uid == *owner.uid)?;
            Some((set.pod_identity.clone(), set.controller.clone()))
        })
    }
}

/// Puts a unit together; `None` if it has no objects, or its kind has no Workloads.
pub(super) fn assemble<'a>(
    key: &UnitKey,
    owner: Option<&'a JobView>,
    members: Vec<Arc<PodMember>>,
    summary: Cow<'a, UnitSummary>,
) -> Option<LoadedUnit<'a>> {
    let rules = key.kind.unit_rules()?;
    let objects =
        Unit { kind: key.kind, component: key.component, owner, members: &members, summary: &summary };
    let view = match owner {
        Some(owner) => Cow::Borrowed(owner),
        None => Cow::Owned(rules.view(&objects).ok()?),
    };
    let name = rules.workload_name(&objects).ok()?;
    let workload = ObjectKey { namespace: view.key.namespace.clone(), name: Arc::from(name) };
    Some(LoadedUnit { key: key.clone(), rules, owner, members, summary, view, workload })
}

/// Returns whether a pod was made from a template that the webhook has marked.
pub(super) fn is_made_by_parent(member: &PodMember) -> bool {
    let annotations = member.pod.pointer("/metadata/annotations");
    annotations.is_some_and(|map| map.get(names::SUSPENDING_PARENT_ANNOTATION).is_some())
}

/// Returns whether the unit's object is the owner of a Workload.
pub(super) fn owns(unit: &LoadedUnit<'_>, record: &WorkloadRecord) -> bool {
    record.owner.as_ref().is_some_and(|owner| owner.uid == unit.view.uid)
}

/// Returns whether the job belongs to another manager: it names a controller other than that of its kind and MultiKueue, or its
/// kind determines so.
pub(crate) fn is_managed_by_other_controller(kind: JobKind, job: &JobView) -> bool {
    if job.options.skipped {
        return true;
    }
    let built_in = kind.fields.managed_by.map(|field| field.built_in);
    let by = job.managed_by.as_deref();
    by.is_some_and(|by| Some(by) != built_in && by != names::MULTIKUEUE_CONTROLLER)
}

/// Describes why a job of another controller is not managed.
pub(crate) fn controller_of_others(kind: JobKind, job: &JobView) -> String {
    match (kind.fields.managed_by, job.managed_by.as_deref()) {
        (Some(field), Some(by)) => {
            format!("{} names another controller, {by}", path_of(field.field))
        }
        _ => "it runs on an object that exists already".to_owned(),
    }
}

/// Returns whether a Workload ended because no job used it: the job may need it again, or another Workload in its place.
pub(super) fn is_given_up(record: &WorkloadRecord) -> bool {
    has_lost_its_owner(record) || finished_with(record, "OutOfSync")
}

/// Returns whether a Workload ended because the objects that it was made for were gone.
fn has_lost_its_owner(record: &WorkloadRecord) -> bool {
    finished_with(record, "OwnerNotFound")
}

fn finished_with(record: &WorkloadRecord, reason: &str) -> bool {
    conditions::is_true(&record.status, ConditionType::Finished)
        && conditions::reason(&record.status, ConditionType::Finished) == reason
}

/// Returns whether a Workload ended because of the status of its job. If the status has changed since, the job runs again.
pub(super) fn ended_with_its_job(record: &WorkloadRecord) -> bool {
    conditions::is_true(&record.status, ConditionType::Finished)
        && matches!(conditions::reason(&record.status, ConditionType::Finished), "Succeeded" | "Failed")
}

/// Returns the name of the Workload whose admission started a job; `None` if the start was undone.
pub(super) fn starting_workload(view: &JobView) -> Option<&str> {
    if let Some(patches) = &view.options.patches {
        return patches.started_by();
    }
    let mut annotations = view.pod_sets.iter().map(|set| &set.start_from().annotations);
    annotations.find_map(|map| map.get(names::WORKLOAD_ANNOTATION)).map(String::as_str)
}
