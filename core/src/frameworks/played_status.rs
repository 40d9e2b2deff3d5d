//! The status that the controller of a kind writes, played in its place: what simulations store is the inverse of what
//! `status` reads by the same row.
//!
//! Invariants: after [`Framework::play`] the row reads the state that was played, as far as its rules can tell it from others; playing a
//! state twice changes nothing, so that a simulation does not follow its own writes for ever.

use super::related::{Beside, PodSets, Related};
use super::roles::read_roles;
use super::row::{Active, Framework, Message, PodSetSource, Pointer, Ready, StatusFields, Test};
use super::{JobError, read};
use crate::lifecycle::conditions::to_api_time;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// A text that no rule of a row names. The field says that something goes on.
const OTHER_TEXT: &str = "Running";

/// A state to which the controller of a kind brings a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlayedState {
    /// Its pods run, and none is ready yet.
    Started,
    /// Its pods are ready.
    Ready,
    /// Its pods are gone, because it is suspended.
    Stopped,
    /// It has completed.
    Succeeded,
    /// It has failed.
    Failed,
}

/// What the controller of a kind knows of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlayedJob {
    /// Whether it is suspended.
    pub suspended: bool,
    /// Whether pods run.
    pub active: bool,
    /// Whether all of its pods are ready.
    pub ready: bool,
    /// Whether it has finished.
    pub finished: bool,
    /// When its pods started, if the kind says it.
    pub started: Option<Timestamp>,
}

/// An entry of the status about a role.
struct RoleEntry {
    /// Its key in a map, or its name in a list.
    key: String,
    /// What the entry counts: sub-groups, or pods.
    units: i32,
}

/// How a count of each entry is set.
#[derive(Clone, Copy)]
enum Counted {
    None,
    All,
}

impl Framework {
    /// Reads the state of a job.
    ///
    /// # Errors
    /// A field that the row reads has the wrong type.
    pub fn played_job(&self, job: &Value, related: &dyn Related) -> Result<PlayedJob, JobError> {
        let suspended = self.fields.suspend.map(|pointer| read::boolean(job, pointer)).transpose()?;
        // It is the same whatever features are on.
        let status = self.decode_after(job, None, Beside::of(related))?.status;
        let started = self.fields.start_time.map(|pointer| read::time(job, pointer)).transpose()?;
        Ok(PlayedJob {
            suspended: suspended.flatten().unwrap_or(false),
            active: status.active_pods > 0,
            ready: status.pods_ready,
            finished: status.finished.is_some(),
            started: started.flatten(),
        })
    }

    /// Returns whether a job of the kind can finish with this result.
    pub fn can_finish(&self, success: bool) -> bool {
        self.status.finished.iter().any(|rule| rule.success == success)
    }

    /// Returns pointers to the pod templates of a job, in the order of its pod sets; none of a kind that describes its pods by
    /// other fields.
    pub fn template_pointers(&self, job: &Value) -> Vec<String> {
        if self.fields.roles.described().is_some() {
            return Vec::new();
        }
        read_roles(self, job).into_iter().flatten().map(|role| role.pointer).collect()
    }

    /// Writes a state to the status of a job, as its controller does.
    ///
    /// # Errors
    /// A field that the row reads has the wrong type, or no rule of the row says that a job finishes so.
    pub fn play(
        &self,
        job: &mut Value,
        related: &dyn Related,
        state: PlayedState,
        now: Timestamp,
    ) -> Result<(), JobError> {
        let message = match state {
            PlayedState::Succeeded => "Job finished successfully",
            PlayedState::Failed => "Job has failed",
            PlayedState::Started | PlayedState::Ready | PlayedState::Stopped => "",
        };
        let mut status = PlayedStatus { row: self, job, related, message, now };
        match state {
            PlayedState::Started => status.start()?,
            PlayedState::Ready => status.set_ready(Counted::All)?,
            PlayedState::Stopped => {
                status.stop()?;
                if let Some(pointer) = self.fields.start_time {
                    status.remove(pointer);
                }
            }
            PlayedState::Succeeded => status.finish(true)?,
            PlayedState::Failed => status.finish(false)?,
        }
        self.hooks.play(job, state, now)
    }
}

/// The status of a job while it is written.
struct PlayedStatus<'a> {
    row: &'a Framework,
    job: &'a mut Value,
    related: &'a dyn Related,
    /// Message of conditions that get True.
    message: &'static str,
    now: Timestamp,
}

impl PlayedStatus<'_> {
    const fn fields(&self) -> &StatusFields {
        &self.row.status
    }

    fn start(&mut self) -> Result<(), JobError> {
        self.set_ready(Counted::None)?;
        // Where one field says both, the job is ready when it is active.
        self.set_active(Counted::All)?;
        if let Some(pointer) = self.row.fields.start_time
            && read::string(self.job, pointer)?.is_none()
        {
            self.set(pointer, json!(to_api_time(self.now)));
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<(), JobError> {
        self.set_ready(Counted::None)?;
        self.set_active(Counted::None)
    }

    /// Makes the first rule with this result hold.
    fn finish(&mut self, success: bool) -> Result<(), JobError> {
        self.stop()?;
        let Some(rule) = self.fields().finished.iter().find(|rule| rule.success == success) else {
            return Err(read::malformed("/kind", format!("{} does not finish so", self.row.gvk.kind)));
        };
        if success && let Ready::SubGroupsOf(list) = self.fields().ready {
            self.set_entries(list, "/succeeded", Counted::All)?;
        }
        if let Message::Field(pointer) = rule.message {
            self.set(pointer, json!(self.message));
        }
        self.make(&rule.when, true)
    }

    fn set_active(&mut self, counted: Counted) -> Result<(), JobError> {
        let active = matches!(counted, Counted::All);
        match self.fields().active {
            Active::Counts(pointers) => {
                let pods: i32 = self.entries()?.iter().map(|entry| entry.units).fold(0, i32::saturating_add);
                for (position, pointer) in pointers.iter().enumerate() {
                    let count = if active && position == 0 { pods.max(1) } else { 0 };
                    self.set_count(pointer, count)?;
                }
                Ok(())
            }
            Active::SumOver(list, field) => self.set_entries(list, field, counted),
            Active::When(test) => self.make(&test, active),
        }
    }

    fn set_ready(&mut self, counted: Counted) -> Result<(), JobError> {
        match self.fields().ready {
            Ready::When(test) => self.make(&test, matches!(counted, Counted::All)),
            Ready::SubGroupsOf(list) => self.set_entries(list, "/ready", counted),
            Ready::Hook => Ok(()),
        }
    }

    /// Returns what the status says of each role.
    fn entries(&self) -> Result<Vec<RoleEntry>, JobError> {
        if self.row.fields.roles.is_decided_at_start() {
            return self.made_entries();
        }
        let groups = matches!(self.fields().ready, Ready::SubGroupsOf(_));
        let roles = read_roles(self.row, self.job)?.into_iter();
        let mut entries: Vec<RoleEntry> = roles
            .map(|role| RoleEntry {
                key: self.key_in_map(&role.pointer).map_or(role.name, str::to_owned),
                units: if groups { role.sub_groups.unwrap_or(role.count) } else { role.count },
            })
            .collect();
        // A job without pods runs all the same, until its controller says that it has finished.
        if entries.iter().all(|entry| entry.units == 0)
            && let Some(first) = entries.first_mut().filter(|_| !groups)
        {
            first.units = 1;
        }
        Ok(entries)
    }

    /// Returns what the status says of each pod set of a job that is made from other objects.
    fn made_entries(&self) -> Result<Vec<RoleEntry>, JobError> {
        let PodSets::Known(sets) = self.row.pod_sets_with(self.job, Beside::of(self.related))? else {
            return Ok(Vec::new());
        };
        let entry = |set: &Value| {
            let key = read::string(set, "/name")?.unwrap_or_default().to_owned();
            let units = read::count(set, "/topologyRequest/subGroupCount")?.unwrap_or(1);
            Ok(RoleEntry { key, units })
        };
        sets.iter().map(entry).collect()
    }

    /// Returns the key of a role in a map of roles, given the pointer to its template.
    fn key_in_map<'b>(&self, pointer: &'b str) -> Option<&'b str> {
        self.row.pod_sets.iter().find_map(|source| {
            let PodSetSource::Map { map, template, .. } = source else { return None };
            pointer.strip_prefix(map)?.strip_prefix('/')?.strip_suffix(template)
        })
    }

    /// Sets a count in the entries of all roles.
    fn set_entries(&mut self, list: Pointer, field: Pointer, counted: Counted) -> Result<(), JobError> {
        for RoleEntry { key, units } in self.entries()? {
            let count = if matches!(counted, Counted::All) { units } else { 0 };
            let entry = self.entry_pointer(list, &key)?;
            self.set_count(&format!("{entry}{field}"), count)?;
        }
        Ok(())
    }

    /// Returns the pointer to the entry of a role, and creates the entry of a list.
    fn entry_pointer(&mut self, list: Pointer, key: &str) -> Result<String, JobError> {
        if self.row.pod_sets.iter().any(|source| matches!(source, PodSetSource::Map { .. })) {
            return Ok(format!("{list}/{key}"));
        }
        let known = read::list(self.job, list)?;
        let named = |entry: &Value| {
            entry.get("name").and_then(Value::as_str).is_some_and(|name| name.eq_ignore_ascii_case(key))
        };
        let position = known.iter().position(named);
        let index = position.unwrap_or(known.len());
        if position.is_none() {
            let mut entries = known.to_vec();
            entries.push(json!({ "name": key }));
            self.set(list, Value::Array(entries));
        }
        Ok(format!("{list}/{index}"))
    }

    /// Sets a count; an absent one is 0.
    fn set_count(&mut self, pointer: &str, count: i32) -> Result<(), JobError> {
        if read::count(self.job, pointer)?.unwrap_or(0) != count {
            self.set(pointer, json!(count));
        }
        Ok(())
    }

    /// Makes a test hold or fail.
    fn make(&mut self, test: &Test, holds: bool) -> Result<(), JobError> {
        if test.holds(self.job)? == holds {
            return Ok(());
        }
        match test {
            Test::Condition(type_) => self.set_condition(type_, holds),
            Test::NotTrue(type_) => self.set_condition(type_, !holds),
            Test::Text(pointer, texts) => {
                let absent_holds = texts.contains(&"");
                match texts.iter().find(|text| !text.is_empty()).filter(|_| holds) {
                    Some(text) => self.set(pointer, json!(text)),
                    None if holds == absent_holds => self.remove(pointer),
                    None => self.set(pointer, json!(OTHER_TEXT)),
                }
                Ok(())
            }
            Test::Not(test) => self.make(test, !holds),
            Test::All(tests) if holds => tests.iter().try_for_each(|test| self.make(test, true)),
            Test::Any(tests) if !holds => tests.iter().try_for_each(|test| self.make(test, false)),
            Test::All(tests) | Test::Any(tests) => {
                tests.first().map_or(Ok(()), |test| self.make(test, holds))
            }
        }
    }

    fn set_condition(&mut self, type_: &str, holds: bool) -> Result<(), JobError> {
        let mut list = read::list(self.job, "/status/conditions")?.to_vec();
        list.retain(|condition| condition.get("type").and_then(Value::as_str) != Some(type_));
        let (status, message) = if holds { ("True", self.message) } else { ("False", "") };
        list.push(json!({
            "type": type_, "status": status, "reason": type_, "message": message,
            "lastTransitionTime": to_api_time(self.now),
        }));
        self.set("/status/conditions", Value::Array(list));
        Ok(())
    }

    /// Sets a field; creates the objects above it.
    fn set(&mut self, pointer: &str, value: Value) {
        set_at(self.job, pointer, value);
    }

    fn remove(&mut self, pointer: &str) {
        remove_at(self.job, pointer);
    }
}

/// Sets a field; creates the objects above it.
pub(super) fn set_at(object: &mut Value, pointer: &str, value: Value) {
    let mut target = object;
    for name in pointer.split('/').skip(1) {
        let next = match target {
            Value::Array(items) => name.parse().ok().and_then(|index: usize| items.get_mut(index)),
            other => {
                if !other.is_object() {
                    *other = Value::Object(Map::new());
                }
                other.as_object_mut().map(|fields| fields.entry(name).or_insert(Value::Null))
            }
        };
        let Some(next) = next else { return };
        target = next;
    }
    *target = value;
}

fn remove_at(object: &mut Value, pointer: &str) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    if let Some(fields) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
        fields.shift_remove(name);
    }
}
