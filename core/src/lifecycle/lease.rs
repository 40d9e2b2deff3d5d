//! Leader election: the state machine of a replica that competes for one Lease.
//!
//! Invariants:
//! - At most one replica is before its own renew deadline at any time.
//! - A holder measures its deadline from the time at which it *sent* its last confirmed renewal, or from the last
//!   progress of its core before that. A leader that hangs therefore loses the lease even if its renewal task still
//!   runs.
//! - A candidate measures from the time at which it *received* a change of the record, by its own monotonic clock. It
//!   never reads the clock of the holder.
//! - Every write carries the resourceVersion that was read.
//!
//! The election is safe while `renew_deadline < lease_duration` by more than the rates of the clocks differ.
//!
//! If a user edits or deletes the Lease of an active holder, no other replica may act before the deadline of that
//! holder:
//! - A Lease without a holder is free after the duration stated in it (1 s if its holder released it).
//! - A Lease that names this replica while this replica does not lead counts as held by another replica.
//! - A deleted Lease is free only after the whole lease duration, for a replica that has seen the Lease before.
//!
//! Known limits: a replica that has never seen a Lease waits for one retry period only, so that the first start is
//! not delayed. If the Lease was deleted while its holder was cut off from the API server, both replicas may lead
//! until the deadline of that holder. A replica cannot detect a Lease that is created and deleted between two of its
//! reads.

use std::time::Duration;

/// Monotonic time since a fixed origin of this process.
pub type Monotonic = Duration;

/// Identity and durations of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionSettings {
    /// Identity, unique among all candidates.
    pub identity: String,
    /// Time for which other candidates wait after the last change of the record that they observed.
    pub lease_duration: Duration,
    /// Time for which a holder may act after its last confirmed renewal.
    pub renew_deadline: Duration,
    /// Pause between two attempts to read or write the Lease.
    pub retry_period: Duration,
}

/// Content of a Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// Identity of the holder; empty if the Lease was released.
    pub holder: String,
    /// Lease duration, in seconds: time for which other candidates wait.
    pub duration_secs: i32,
    /// Number of changes of holder.
    pub transitions: i32,
    /// Wall clock of the holder at its last renewal: for display; compared for equality only.
    pub renew_time: String,
    /// resourceVersion; `None` in a record to create.
    pub resource_version: Option<String>,
}

/// Next action of the election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// GET the Lease.
    Read,
    /// PUT the Lease with this content, or POST it if it has no resourceVersion. The caller fills in `renew_time`.
    Write(LeaseRecord),
    /// Do nothing until this time.
    Wait(Monotonic),
    /// The lease is lost (deadline passed without a renewal, or another holder in the record): stop acting permanently.
    Lost,
}

/// Result of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseResponse {
    /// The Lease as read.
    Found(LeaseRecord),
    /// The Lease does not exist.
    NotFound,
    /// The Lease as written.
    Written(LeaseRecord),
    /// Another client wrote the Lease first.
    Conflict,
    /// No usable response; a write may or may not have landed.
    Failed,
}

/// State machine of one candidate.
#[derive(Clone, Debug)]
pub struct Elector {
    settings: ElectionSettings,
    observed: ObservedLease,
    state: LeaderState,
    next_action_at: Monotonic,
    /// Whether this replica has ever seen a record: decides how long an absent Lease must stay absent.
    has_seen_record: bool,
}

#[derive(Clone, Debug)]
enum ObservedLease {
    /// Not read yet, or an absence that may be outdated: the Lease must be read.
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
    /// Creates a candidate that has not read the Lease.
    pub fn new(settings: ElectionSettings) -> Self {
        Self {
            settings,
            observed: ObservedLease::Unknown,
            state: LeaderState::Candidate,
            next_action_at: Monotonic::ZERO,
            has_seen_record: false,
        }
    }

    /// Returns the epoch of the leadership (`transitions` of its first write) while the deadline has not passed.
    pub fn leading_epoch(&self, now: Monotonic) -> Option<i32> {
        match self.state {
            LeaderState::Holder { renewed, epoch } if now < self.deadline(renewed) => Some(epoch),
            _ => None,
        }
    }

    /// Returns the time until which this replica may act, or `None` if it does not lead.
    pub fn acts_until(&self) -> Option<Monotonic> {
        match self.state {
            LeaderState::Holder { renewed, .. } => Some(self.deadline(renewed)),
            _ => None,
        }
    }

    /// Returns the next action. `moved` is the time at which the core of this replica last made progress: a replica
    /// whose core hangs neither renews nor acquires the lease.
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

    /// Returns whether, according to the record, no other replica can be before its deadline.
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
            // Includes a record that names this replica: the response to its own write may have been lost, or a user
            // may have edited the Lease.
            ObservedLease::Record { record, unchanged_since: since, .. } => {
                now >= self.expiry(record, *since)
            }
        }
    }

    /// Processes the response received at `now`. `since` is the earlier of the time at which the action was sent and
    /// the time at which the core last made progress before it.
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
                // The epoch of a leadership is fixed by its first write, even if a deleted Lease is created again.
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
        // A record may be outdated at the next action: a candidate must read it again before it writes.
        if let ObservedLease::Record { is_current: fresh, .. }
        | ObservedLease::Absent { is_current: fresh, .. } = &mut self.observed
            && self.next_action_at > now
        {
            *fresh = matches!(self.state, LeaderState::Holder { .. }) && *fresh;
        }
    }

    /// Ends the leadership. Returns the record that releases the Lease, if this replica holds it.
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

    /// Returns whether the core has made progress: since the last renewal for a holder, within half of the renew
    /// deadline for a candidate.
    fn core_made_progress(&self, now: Monotonic, moved: Monotonic) -> bool {
        match self.state {
            LeaderState::Holder { renewed, .. } => moved > renewed,
            _ => now < moved.saturating_add(self.settings.renew_deadline / 2),
        }
    }

    fn deadline(&self, renewed: Monotonic) -> Monotonic {
        renewed.saturating_add(self.settings.renew_deadline)
    }

    /// Returns when a record held by another replica expires: never earlier than the lease duration configured here.
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

    /// Marks the record as outdated after a conflict or failure: it must be read before the next write. Keeps the time
    /// since which it has been unchanged.
    fn mark_stale(&mut self) {
        match &mut self.observed {
            ObservedLease::Record { is_current: fresh, .. } => *fresh = false,
            // The Lease may have been created and deleted again since: two absences cannot be told apart, so the wait
            // starts again.
            other => *other = ObservedLease::Unknown,
        }
    }
}

/// Returns the lease duration stated in a record.
fn stated_duration(record: &LeaseRecord) -> Duration {
    Duration::from_secs(u64::try_from(record.duration_secs).unwrap_or(0))
}
