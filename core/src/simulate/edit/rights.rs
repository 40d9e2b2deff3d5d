//! The rights that a user needs to make a change of jobs.
//!
//! Invariant: a right is one to the object that the commands of a terminal write for the change, so that a user that may not make it
//! does not learn what would come of it.

use super::{Change, Edit, Target};
use crate::cache::Kind;
use std::fmt;

/// A right that making a change needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRight {
    /// Verb of the API.
    pub verb: &'static str,
    /// Kind of the object.
    pub kind: Kind,
    /// Its name; empty for any object of the kind in the namespace.
    pub name: String,
}

impl ChangeRight {
    /// Returns the right to create objects of a kind.
    pub const fn create(kind: Kind) -> Self {
        Self { verb: "create", kind, name: String::new() }
    }
}

/// Writes it as `delete jobs.batch train`.
impl fmt::Display for ChangeRight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = self.kind.resource();
        write!(f, "{} {}", self.verb, resource.plural)?;
        if !resource.group.is_empty() {
            write!(f, ".{}", resource.group)?;
        }
        if self.name.is_empty() { Ok(()) } else { write!(f, " {}", self.name) }
    }
}

impl Edit {
    /// Whether the change gives a priority by a number: no class has it, so that only this simulation can.
    pub fn is_numeric_priority(&self) -> bool {
        matches!(&self.change, Change::Priority(class) if class.parse::<i32>().is_ok())
    }

    /// Returns the right that a user needs to make the change of a job or a Workload; `None` for another change. `job_of` returns kind and
    /// name of the job of a Workload, which is changed in its place.
    pub fn right(&self, job_of: &dyn Fn(&str) -> Option<(Kind, String)>) -> Option<ChangeRight> {
        if !self.is_of_workload() {
            return None;
        }
        let Target { kind, name } = &self.target;
        let job = || {
            let job = if *kind == Kind::Workload { job_of(name) } else { None };
            job.unwrap_or_else(|| (*kind, name.clone()))
        };
        let of_job = |verb: &'static str| {
            let (kind, name) = job();
            ChangeRight { verb, kind, name }
        };
        match self.change {
            Change::DeleteJob => Some(of_job("delete")),
            Change::Priority(_) => Some(of_job("patch")),
            Change::Stop => {
                // A stopped job has a Workload that is not active. Its name does not follow from that of the job.
                let name = if *kind == Kind::Workload { name.clone() } else { String::new() };
                Some(ChangeRight { verb: "patch", kind: Kind::Workload, name })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_is_to_what_a_command_writes() {
        let job = Kind::from_group_kind("batch", "Job").unwrap();
        let job_of = |workload: &str| (workload == "owned").then(|| (job, "train".to_owned()));
        for (edit, expected) in [
            (Edit::deleted("job/train"), "delete jobs.batch train"),
            (Edit::deleted("workload/owned"), "delete jobs.batch train"),
            (Edit::deleted("workload/bare"), "delete workloads.kueue.x-k8s.io bare"),
            (Edit::deleted("pod/p"), "delete pods p"),
            (Edit::reprioritized("job/train=high"), "patch jobs.batch train"),
            (Edit::reprioritized("workload/owned=high"), "patch jobs.batch train"),
            (Edit::reprioritized("workload/bare=high"), "patch workloads.kueue.x-k8s.io bare"),
            (Edit::stopped("job/train"), "patch workloads.kueue.x-k8s.io"),
            (Edit::stopped("workload/owned"), "patch workloads.kueue.x-k8s.io owned"),
        ] {
            assert_eq!(edit.unwrap().right(&job_of).unwrap().to_string(), expected);
        }
        for edit in [Edit::stopped("cq/q"), Edit::drained_node("--drain", "h1"), Edit::added_nodes(2, "h1")] {
            assert_eq!(edit.unwrap().right(&job_of), None, "it is for readers of the whole cluster");
        }
        assert_eq!(ChangeRight::create(job).to_string(), "create jobs.batch");
    }

    #[test]
    fn a_number_is_no_class() {
        for (class, is_number) in [("300", true), ("-1", true), ("high", false), ("priority-300", false)] {
            let edit = Edit::reprioritized(&format!("job/x={class}")).unwrap();
            assert_eq!(edit.is_numeric_priority(), is_number, "{class}");
        }
        assert!(!Edit::stopped("job/x").unwrap().is_numeric_priority());
    }
}
