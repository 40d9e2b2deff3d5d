//! Pod sets of a job: where the row says that its templates are, and how many pods each has.

use super::JobError;
use super::read::{self, malformed};
use super::row::{Count, Framework, PodSetSource};
use super::template::TemplateInfo;
use super::topology::topology_request;
use super::workload::clean_template;
use serde_json::{Map, Value, json};

/// A pod set as the job describes it.
pub(super) struct PodRole<'a> {
    /// Name of the pod set.
    pub(super) name: String,
    /// Number of pods.
    pub(super) count: i32,
    /// Minimum number of pods for partial admission.
    pub(super) min_count: Option<i32>,
    /// Pointer to the template in the object.
    pub(super) pointer: String,
    /// The template.
    template: Option<&'a Value>,
    /// Number of sub-groups, if the kind has them.
    pub(super) sub_groups: Option<i32>,
}

/// Reads the pod sets of a job, in order.
pub(super) fn read_roles<'a>(row: &Framework, job: &'a Value) -> Result<Vec<PodRole<'a>>, JobError> {
    let mut roles = Vec::new();
    match row.pod_sets {
        PodSetSource::Unread => {
            return Err(malformed("/kind", format!("{} is not supported", row.gvk.kind)));
        }
        PodSetSource::Fixed { name, template, count } => {
            roles.push(read_role(row, job, RolePlace { name, base: "", template, count: &count })?);
        }
        PodSetSource::Array { list, name, template, count } => {
            for (index, _) in read::list(job, list)?.iter().enumerate() {
                let base = format!("{list}/{index}");
                let at = format!("{base}{name}");
                let name = read::string(job, &at)?.ok_or_else(|| malformed(&at, "is required"))?;
                roles.push(read_role(row, job, RolePlace { name, base: &base, template, count: &count })?);
            }
        }
        PodSetSource::Map { map, order, template, count } => {
            for name in order {
                let base = format!("{map}/{name}");
                if job.pointer(&base).is_some_and(|role| !role.is_null()) {
                    roles.push(read_role(
                        row,
                        job,
                        RolePlace { name, base: &base, template, count: &count },
                    )?);
                }
            }
        }
    }
    Ok(roles)
}

/// Where a role is and how it is read.
#[derive(Clone, Copy)]
struct RolePlace<'a> {
    name: &'a str,
    base: &'a str,
    template: &'a str,
    count: &'a Count,
}

fn read_role<'a>(row: &Framework, job: &'a Value, place: RolePlace<'_>) -> Result<PodRole<'a>, JobError> {
    let count = read_count(job, place.base, place.count)?;
    let pointer = format!("{}{}", place.base, place.template);
    let sub_groups = row.rank.sub_groups.map(|groups| {
        Ok::<_, JobError>(read::count(job, &format!("{}{}", place.base, groups.count))?.unwrap_or(1))
    });
    Ok(PodRole {
        name: place.name.to_lowercase(),
        count,
        min_count: row.hooks.min_count(job, count)?,
        template: job.pointer(&pointer),
        pointer,
        sub_groups: sub_groups.transpose()?,
    })
}

fn read_count(job: &Value, base: &str, rule: &Count) -> Result<i32, JobError> {
    let field = |pointer: &str| read::count(job, &format!("{base}{pointer}"));
    Ok(match rule {
        Count::Field(pointer) => field(pointer)?.unwrap_or(1),
        Count::Job { parallelism, completions } => {
            let parallelism = field(parallelism)?.unwrap_or(1);
            field(completions)?.map_or(parallelism, |completions| completions.min(parallelism))
        }
        Count::Product(a, b) => read_count(job, base, a)?.saturating_mul(read_count(job, base, b)?),
    })
}

impl PodRole<'_> {
    /// Returns the entry for `spec.podSets` of the Workload.
    pub(super) fn pod_set(&self, row: &Framework) -> Result<Value, JobError> {
        let raw = self.template.filter(|template| template.is_object());
        let raw = raw.ok_or_else(|| malformed(&self.pointer, "is required"))?;
        let annotations = read::string_map(raw, "/metadata/annotations")?;
        let mut template = clean_template(raw);
        if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
            labels.retain(|key, _| !row.fields.server_labels.contains(&key.as_str()));
        }
        let mut set = Map::from_iter([
            ("name".to_owned(), json!(self.name)),
            ("template".to_owned(), template),
            ("count".to_owned(), json!(self.count)),
        ]);
        if let Some(min) = self.min_count {
            set.insert("minCount".to_owned(), json!(min));
        }
        if let Some(request) = topology_request(&annotations, &row.rank, self.sub_groups)? {
            set.insert("topologyRequest".to_owned(), request);
        }
        Ok(Value::Object(set))
    }

    /// Reads the part of the template to which admission adds.
    pub(super) fn template_info(&self, row: &Framework) -> Result<TemplateInfo, JobError> {
        Ok(without_server_labels(row, TemplateInfo::read(self.template)?))
    }

    /// Returns whether the template has metadata, to which a JSON patch can add.
    pub(super) fn has_metadata(&self) -> bool {
        self.template.and_then(|template| template.get("metadata")).is_some_and(Value::is_object)
    }
}

/// Removes the labels that the API server adds to templates of the kind.
pub(super) fn without_server_labels(row: &Framework, mut template: TemplateInfo) -> TemplateInfo {
    template.labels.retain(|key, _| !row.fields.server_labels.contains(&key.as_str()));
    template
}

impl PodSetSource {
    /// Returns the pointer to the template of the pod set at this position of the view.
    pub(super) fn template_pointer(&self, position: usize, name: &str) -> Option<String> {
        match self {
            Self::Unread => None,
            Self::Fixed { template, .. } => Some((*template).to_owned()),
            Self::Array { list, template, .. } => Some(format!("{list}/{position}{template}")),
            Self::Map { map, order, template, .. } => {
                let key = order.iter().find(|key| key.to_lowercase() == name)?;
                Some(format!("{map}/{key}{template}"))
            }
        }
    }
}
