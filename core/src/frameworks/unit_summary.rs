//! Numbers of the members of a unit, by what decides on it.
//!
//! Invariant: a summary equals the one that is made from all members at once; an event changes it by the pod that it is
//! about. So an event of a group of 1,000 pods looks at the others only where one of them must be written.

use super::pod_member::{Phase, PodMember};
use std::collections::BTreeMap;

/// Numbers of members of one role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleCounts {
    /// Members.
    pub members: usize,
    /// Members that count for the group: not failed, and not deleted before they were bound.
    pub counting: usize,
    /// Members that succeeded.
    pub succeeded: usize,
}

/// Numbers of the members of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitSummary {
    roles: BTreeMap<String, RoleCounts>,
    /// Members that are being deleted.
    pub deleting: usize,
    /// Members that wait for admission and may be started.
    pub startable: usize,
    /// Members that a stop deletes.
    pub stoppable: usize,
    /// Members that wait or have ended.
    pub waiting_or_ended: usize,
    /// Members that have ended.
    pub ended: usize,
    /// Members whose containers run or may start.
    pub running: usize,
    /// Those of them that are being deleted: whether they still run depends on their grace period.
    pub running_deleting: usize,
    /// Members that count or keep their finalizer.
    pub listed: usize,
    /// Those of them that are ready.
    pub listed_ready: usize,
    /// Those that are ready or have succeeded.
    pub listed_ready_or_succeeded: usize,
    /// Members that say that failed ones are not replaced.
    pub unretriable: usize,
    /// Members that something else than this manager keeps from running.
    pub blocked: usize,
}

/// Numbers of a unit without members.
pub(crate) static NO_MEMBERS: UnitSummary = UnitSummary {
    roles: BTreeMap::new(),
    deleting: 0,
    startable: 0,
    stoppable: 0,
    waiting_or_ended: 0,
    ended: 0,
    running: 0,
    running_deleting: 0,
    listed: 0,
    listed_ready: 0,
    listed_ready_or_succeeded: 0,
    unretriable: 0,
    blocked: 0,
};

impl UnitSummary {
    /// Returns the summary of all these members.
    pub fn of<'a>(members: impl IntoIterator<Item = &'a PodMember>) -> Self {
        let mut summary = Self::default();
        for member in members {
            summary.add(member);
        }
        summary
    }

    /// Adds a member.
    pub fn add(&mut self, member: &PodMember) {
        self.change(member, usize::saturating_add);
    }

    /// Removes a member that was added.
    pub fn remove(&mut self, member: &PodMember) {
        self.change(member, usize::saturating_sub);
        if self.roles.get(&member.role).is_some_and(|counts| counts.members == 0) {
            self.roles.remove(&member.role);
        }
    }

    /// Returns the numbers of a role.
    pub fn role(&self, name: &str) -> RoleCounts {
        self.roles.get(name).copied().unwrap_or_default()
    }

    /// Returns the roles with their numbers, in order.
    pub fn roles(&self) -> impl Iterator<Item = (&str, RoleCounts)> {
        self.roles.iter().map(|(name, counts)| (name.as_str(), *counts))
    }

    /// Returns the number of members.
    pub fn members(&self) -> usize {
        self.roles.values().map(|counts| counts.members).sum()
    }

    /// Returns whether all members are being deleted.
    pub fn is_deleting(&self) -> bool {
        self.deleting > 0 && self.deleting == self.members()
    }

    /// Returns the number of members that succeeded.
    pub fn succeeded(&self) -> usize {
        self.roles.values().map(|counts| counts.succeeded).sum()
    }

    fn change(&mut self, member: &PodMember, by: impl Fn(usize, usize) -> usize) {
        let state = &member.state;
        let ended = member.terminated();
        let waiting_or_ended = state.gated || ended;
        let succeeded = state.phase == Phase::Succeeded;
        let running = member.may_run();
        let listed = member.counts() || state.has_finalizer;
        let change = |number: &mut usize, applies: bool| *number = by(*number, usize::from(applies));
        change(&mut self.deleting, state.deleting);
        change(&mut self.startable, state.gated && !state.deleting && !ended);
        change(&mut self.stoppable, !state.deleting && !waiting_or_ended);
        change(&mut self.waiting_or_ended, waiting_or_ended);
        change(&mut self.ended, ended);
        change(&mut self.running, running);
        change(&mut self.running_deleting, running && member.grace_ends.is_some());
        change(&mut self.listed, listed);
        change(&mut self.listed_ready, listed && state.ready);
        change(&mut self.listed_ready_or_succeeded, listed && (state.ready || succeeded));
        change(&mut self.unretriable, member.group.as_ref().is_some_and(|group| group.unretriable));
        change(&mut self.blocked, member.blocker.is_some());
        let role = self.roles.entry(member.role.clone()).or_default();
        change(&mut role.members, true);
        change(&mut role.counting, member.counts());
        change(&mut role.succeeded, succeeded);
    }
}
