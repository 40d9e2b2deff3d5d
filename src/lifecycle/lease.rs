//! Who leads: the state machine of a replica that competes for one Lease.
//!
//! Invariants: at most one replica is inside its own deadline at any time. A holder counts from the moment at which it
//! *sent* its last confirmed renewal, or from the last progress of its core before that, so that a leader that hangs loses
//! the lease although the task that renews it runs on; a candidate counts from the moment at which it *received* a change
//! of the record, by its own monotonic clock, and never reads the holder's clock. Every write carries the resourceVersion
//! that was read. Safe while `renew_deadline < lease_duration` by more than the clocks' rates differ.
//!
//! A Lease that is edited or deleted by hand under its holder gives nobody the right to act before that holder's deadline:
//! without a holder it is free after the duration that it states (1 s when its holder gave it back), one that names this
//! replica while it does not lead is a foreign one, and one that has gone is free when a replica that knew it has waited for the
//! whole duration. A replica that never saw a Lease waits for one retry only, so that a first start is not late: it may
//! then stand beside a holder that was cut off from the API server while the Lease was deleted, until its deadline. Nor can a
//! replica know of a Lease that is made and deleted between two of its reads.

use std::time::Duration;

/// Time since some fixed origin of this process, by a clock that never goes back.
pub type Monotonic = Duration;

/// Durations and identity of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionSettings {
    /// Unique among all candidates.
    pub identity: String,
    /// How long others wait after the last change that they saw.
    pub lease_duration: Duration,
    /// How long a holder acts after the last renewal that it knows of.
    pub renew_deadline: Duration,
    /// Pause between tries.
    pub retry_period: Duration,
}

/// What a Lease says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Holder's identity; empty when released.
    pub holder: String,
    /// Seconds that others wait.
    pub duration_secs: i32,
    /// Number of changes of holder.
    pub transitions: i32,
    /// The holder's wall clock at its last renewal: shown to people, compared for equality only.
    pub renew_time: String,
    /// resourceVersion; absent in a record that shall be created.
    pub resource_version: Option<String>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// GET the Lease.
    Read,
    /// PUT the Lease with this content, or POST it where it has no resourceVersion. `renewed` is for the shell to fill.
    Write(LeaseRecord),
    /// Nothing until then.
    Wait(Monotonic),
    /// The deadline passed without a renewal: stop acting, for good.
    Lost,
}

/// What came of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseResponse {
    /// The Lease as read.
    Found(LeaseRecord),
    /// There is none.
    NotFound,
    /// The Lease as written.
    Written(LeaseRecord),
    /// Somebody else wrote first.
    Conflict,
    /// No usable answer; a write may have landed or not.
    Failed,
}

/// A candidate.
#[derive(Clone, Debug)]
pub struct Elector {
    settings: ElectionSettings,
    observed: ObservedLease,
    state: LeaderState,
    next_action_at: Monotonic,
    /// Whether a record was ever seen.
    has_seen_record: bool,
}

#[derive(Clone, Debug)]
enum ObservedLease {
    /// The next thing to do is to read.
    Unknown,
    Absent {
        unchanged_since: Monotonic,
        is_current: bool,
    },
    Record {
        record: LeaseRecord,
        unchanged_since: Monotonic,
        is_current: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaderState {
    Candidate,
    Holder { renewed: Monotonic, epoch: i32 },
    Lost,
}

impl Elector {
    /// A candidate that knows nothing.
    pub fn new(settings: ElectionSettings) -> Self {
        Self {
            settings,
            observed: ObservedLease::Unknown,
            state: LeaderState::Candidate,
            next_action_at: Monotonic::ZERO,
            has_seen_record: false,
        }
    }

    /// The epoch of this replica's leadership, while it is inside its deadline.
    pub fn leading_epoch(&self, now: Monotonic) -> Option<i32> {
        match self.state {
            LeaderState::Holder { renewed, epoch } if now < self.deadline(renewed) => Some(epoch),
            _ => None,
        }
    }

    /// Until when this replica may act.
    pub fn acts_until(&self) -> Option<Monotonic> {
        match self.state {
            LeaderState::Holder { renewed, .. } => Some(self.deadline(renewed)),
            _ => None,
        }
    }

    /// What to do at this moment. `moved` is when this replica's core last made progress: a lease is neither renewed nor
    /// taken for a core that hangs.
    pub fn next_action(&mut self, now: Monotonic, moved: Monotonic) -> LeaseAction {
        if let LeaderState::Holder { renewed, .. } = self.state
            && now >= self.deadline(renewed)
        {
            self.state = LeaderState::Lost;
        }
        if self.state == LeaderState::Lost {
            return LeaseAction::Lost;
        }
        if now < self.next_action_at {
            return LeaseAction::Wait(
                self.acts_until().map_or(self.next_action_at, |until| until.min(self.next_action_at)),
            );
        }
        let may_claim = self.may_claim(now);
        let record = match &self.observed {
            ObservedLease::Absent { is_current: true, .. } if may_claim => self.claim_record(0, None),
            ObservedLease::Record { record, is_current: true, .. } if may_claim => {
                let own = record.holder == self.settings.identity;
                let transitions = record.transitions.saturating_add(i32::from(!own));
                self.claim_record(transitions, record.resource_version.clone())
            }
            _ => return LeaseAction::Read,
        };
        if !self.core_made_progress(now, moved) {
            let later = self.next_retry(now);
            return LeaseAction::Wait(self.acts_until().map_or(later, |until| until.min(later)));
        }
        LeaseAction::Write(record)
    }

    /// Whether nobody else can be inside its deadline, as far as the record tells.
    fn may_claim(&self, now: Monotonic) -> bool {
        if matches!(self.state, LeaderState::Holder { .. }) {
            return true;
        }
        match &self.observed {
            ObservedLease::Unknown => false,
            ObservedLease::Absent { unchanged_since: since, .. } => {
                let wait = if self.has_seen_record {
                    self.settings.lease_duration
                } else {
                    self.settings.retry_period
                };
                now >= since.saturating_add(wait)
            }
            ObservedLease::Record { record, unchanged_since: since, .. } if record.holder.is_empty() => {
                now >= since.saturating_add(stated_duration(record))
            }
            // Also one that names this replica: it may be a claim of ours whose answer was lost, or the work of a hand.
            ObservedLease::Record { record, unchanged_since: since, .. } => {
                now >= self.expiry(record, *since)
            }
        }
    }

    /// Takes in the answer at `now` to an action that was sent at `since`, or before which the core last made progress at
    /// `since`: the earlier of the two.
    pub fn handle_response(&mut self, answer: LeaseResponse, since: Monotonic, now: Monotonic) {
        match answer {
            LeaseResponse::Found(record) => {
                let foreign = record.holder != self.settings.identity;
                if foreign && matches!(self.state, LeaderState::Holder { .. }) {
                    self.state = LeaderState::Lost;
                }
                self.observe_record(record, now);
                self.next_action_at = if self.may_claim(now) { now } else { self.next_retry(now) };
            }
            LeaseResponse::NotFound => {
                let since = match self.observed {
                    ObservedLease::Absent { unchanged_since: since, .. } => since,
                    ObservedLease::Unknown | ObservedLease::Record { .. } => now,
                };
                self.observed = ObservedLease::Absent { unchanged_since: since, is_current: true };
                self.next_action_at = if self.may_claim(now) { now } else { self.next_retry(now) };
            }
            LeaseResponse::Written(record) => {
                let epoch = record.transitions;
                self.observe_record(record, now);
                // A change of epoch within one leadership cannot happen; the first one counts.
                let epoch = if let LeaderState::Holder { epoch, .. } = self.state { epoch } else { epoch };
                if self.state != LeaderState::Lost {
                    self.state = LeaderState::Holder { renewed: since, epoch };
                }
                self.next_action_at = self.next_retry(now);
            }
            LeaseResponse::Conflict => {
                self.mark_stale();
                self.next_action_at = now;
            }
            LeaseResponse::Failed => {
                self.mark_stale();
                self.next_action_at = self.next_retry(now);
            }
        }
        // A record that was read long ago is no ground for a write.
        if let ObservedLease::Record { is_current: fresh, .. }
        | ObservedLease::Absent { is_current: fresh, .. } = &mut self.observed
            && self.next_action_at > now
        {
            *fresh = matches!(self.state, LeaderState::Holder { .. }) && *fresh;
        }
    }

    /// The record that gives the lease back, for a holder that stops; it leads no more.
    pub fn release(&mut self) -> Option<LeaseRecord> {
        let held = matches!(self.state, LeaderState::Holder { .. });
        self.state = LeaderState::Lost;
        match &self.observed {
            ObservedLease::Record { record, .. } if held && record.holder == self.settings.identity => {
                Some(LeaseRecord {
                    holder: String::new(),
                    duration_secs: 1,
                    renew_time: String::new(),
                    ..record.clone()
                })
            }
            _ => None,
        }
    }

    /// Whether the core has made progress since the last renewal; of a candidate, whether it did so lately.
    fn core_made_progress(&self, now: Monotonic, moved: Monotonic) -> bool {
        match self.state {
            LeaderState::Holder { renewed, .. } => moved > renewed,
            _ => now < moved.saturating_add(self.settings.renew_deadline / 2),
        }
    }

    fn deadline(&self, renewed: Monotonic) -> Monotonic {
        renewed.saturating_add(self.settings.renew_deadline)
    }

    /// When a foreign record may be taken over: never sooner than our own duration says.
    fn expiry(&self, record: &LeaseRecord, since: Monotonic) -> Monotonic {
        since.saturating_add(stated_duration(record).max(self.settings.lease_duration))
    }

    fn next_retry(&self, now: Monotonic) -> Monotonic {
        now.saturating_add(self.settings.retry_period)
    }

    fn claim_record(&self, transitions: i32, resource_version: Option<String>) -> LeaseRecord {
        let mut secs = self.settings.lease_duration.as_secs();
        if self.settings.lease_duration.subsec_nanos() > 0 {
            secs = secs.saturating_add(1);
        }
        LeaseRecord {
            holder: self.settings.identity.clone(),
            duration_secs: i32::try_from(secs.max(1)).unwrap_or(i32::MAX),
            transitions,
            renew_time: String::new(),
            resource_version,
        }
    }

    fn observe_record(&mut self, record: LeaseRecord, now: Monotonic) {
        let since = match &self.observed {
            ObservedLease::Record { record: known, unchanged_since: since, .. }
                if known.resource_version == record.resource_version =>
            {
                *since
            }
            _ => now,
        };
        self.has_seen_record = true;
        self.observed = ObservedLease::Record { record, unchanged_since: since, is_current: true };
    }

    /// After a failure the record may be old: read before writing, but keep since when it was seen unchanged.
    fn mark_stale(&mut self) {
        match &mut self.observed {
            ObservedLease::Record { is_current: fresh, .. } => *fresh = false,
            // It may have been made and deleted again meanwhile: nothing tells one absence from another.
            other => *other = ObservedLease::Unknown,
        }
    }
}

/// How long a record says that others wait.
fn stated_duration(record: &LeaseRecord) -> Duration {
    Duration::from_secs(u64::try_from(record.duration_secs).unwrap_or(0))
}
