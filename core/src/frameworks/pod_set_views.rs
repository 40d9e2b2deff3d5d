//! Views of the pod sets of a job: as the job says them, or as other objects complete them.

use super::JobError;
use super::child_size::made_requests;
use super::read;
use super::roles::{PodRole, without_server_labels};
use super::row::Framework;
use super::template::TemplateInfo;
use super::template_fingerprint::pod_set_fingerprint;
use super::view::{JobView, MissingTemplate, PodSetInfo, PodSetView};
use super::workload::pod_set_info;
use serde_json::Value;
use std::sync::Arc;

impl Framework {
    /// Returns the views of pod sets as the job says them. Data derived from the pod templates of an unchanged spec is reused.
    pub(super) fn own_pod_set_views(
        &self,
        roles: &[PodRole<'_>],
        view: &JobView,
        before: Option<&JobView>,
    ) -> Result<Vec<PodSetView>, JobError> {
        let same = before.filter(|b| {
            self.flags.pod_sets_from_spec
                && b.uid == view.uid
                && b.generation == view.generation
                && b.generation > 0
        });
        let compared = view.controller.is_some() || self.makes_jobs();
        let own = |(position, role): (usize, &PodRole<'_>)| {
            let known = same.and_then(|b| b.pod_sets.get(position)).filter(|set| *set.name == *role.name);
            self.pod_set_view(role, known, compared)
        };
        roles.iter().enumerate().map(own).collect()
    }

    /// Returns the views of pod sets that a hook has completed. One that it has added is where the hook says, if the job has a
    /// place for it.
    pub(super) fn made_pod_set_views(
        &self,
        job: &Value,
        roles: &[PodRole<'_>],
        sets: &[Value],
    ) -> Result<Vec<PodSetView>, JobError> {
        let role_of = |name: &str| roles.iter().find(|role| *role.name == *name);
        let place = |set: &Value| role_of(set.get("name")?.as_str()?).map(|role| role.pointer.as_str());
        let info = |set| pod_set_info(set, place(set).unwrap_or("/template"));
        let infos: Vec<PodSetInfo> = sets.iter().map(info).collect::<Result<_, JobError>>()?;
        let view = |(set, info): (&Value, PodSetInfo)| {
            let role = role_of(&info.name);
            let added = if role.is_none() { self.hooks.place_of(job, &info.name) } else { None };
            let stored =
                added.as_ref().and_then(|place| job.pointer(place)).filter(|stored| !stored.is_null());
            let listed = self.fields.roles.is_listed();
            let missing = set.get("template").filter(|_| stored.is_none() && !listed).zip(added.as_deref());
            let pointer = role.map(|role| role.pointer.as_str()).or(added.as_deref());
            let additions = stored
                .filter(|_| listed)
                .map(|stored| TemplateInfo::read_fields(Some(stored), &self.fields.roles.injected()));
            let made = stored.or(missing.map(|(template, _)| template));
            let missing = missing.map(|(template, place)| MissingTemplate {
                pointer: place.to_owned(),
                template: template.clone(),
            });
            Ok(PodSetView {
                name: info.name,
                count: info.count,
                min_count: read::int(set, "/minCount")?,
                sub_groups: read::int(set, "/topologyRequest/subGroupCount")?,
                fingerprint: pod_set_fingerprint(set),
                requests: made_requests(set),
                template: Arc::new(without_server_labels(self, (*info.template).clone())),
                pointer: Arc::from(pointer.unwrap_or_default()),
                has_metadata: role.is_some_and(PodRole::has_metadata)
                    || made.and_then(|made| made.get("metadata")).is_some_and(Value::is_object),
                described: additions.transpose()?.map(Arc::new),
                missing: missing.map(Arc::new),
            })
        };
        sets.iter().zip(infos).map(view).collect()
    }

    fn pod_set_view(
        &self,
        role: &PodRole<'_>,
        known: Option<&PodSetView>,
        compared: bool,
    ) -> Result<PodSetView, JobError> {
        let (fingerprint, template, has_metadata) = match known {
            Some(set) => (set.fingerprint, Arc::clone(&set.template), set.has_metadata),
            None => (
                pod_set_fingerprint(&role.pod_set(self)?),
                Arc::new(role.template_info(self)?),
                role.has_metadata(),
            ),
        };
        let requests = || known.and_then(|set| set.requests.clone()).or_else(|| role.requests());
        Ok(PodSetView {
            name: Arc::from(role.name.as_str()),
            count: role.count,
            min_count: role.min_count,
            sub_groups: role.sub_groups,
            fingerprint,
            requests: compared.then(requests).flatten(),
            template,
            pointer: Arc::from(role.pointer.as_str()),
            has_metadata,
            described: role.described(self)?.map(Arc::new),
            missing: role.missing(self).map(Arc::new),
        })
    }
}
