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
pub type Moment = Duration;

/// Durations and identity of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
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
pub struct Record {
    /// Holder's identity; empty when released.
    pub holder: String,
    /// Seconds that others wait.
    pub duration_secs: i32,
    /// Number of changes of holder.
    pub transitions: i32,
    /// The holder's wall clock at its last renewal: shown to people, compared for equality only.
    pub renewed: String,
    /// resourceVersion; absent in a record that shall be created.
    pub resource_version: Option<String>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// GET the Lease.
    Read,
    /// PUT the Lease with this content, or POST it where it has no resourceVersion. `renewed` is for the shell to fill.
    Write(Record),
    /// Nothing until then.
    Wait(Moment),
    /// The deadline passed without a renewal: stop acting, for good.
    Lost,
}

/// What came of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The Lease as read.
    Found(Record),
    /// There is none.
    Absent,
    /// The Lease as written.
    Written(Record),
    /// Somebody else wrote first.
    Conflict,
    /// No usable answer; a write may have landed or not.
    Failed,
}

/// A candidate.
#[derive(Clone, Debug)]
pub struct Elector {
    settings: Settings,
    seen: Knowledge,
    standing: Standing,
    next: Moment,
    /// Whether a record was ever seen.
    known: bool,
}

#[derive(Clone, Debug)]
enum Knowledge {
    /// The next thing to do is to read.
    Nothing,
    Absent {
        since: Moment,
        fresh: bool,
    },
    Record {
        record: Record,
        since: Moment,
        fresh: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Candidate,
    Holder { renewed: Moment, epoch: i32 },
    Lost,
}

impl Elector {
    /// A candidate that knows nothing.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            seen: Knowledge::Nothing,
            standing: Standing::Candidate,
            next: Moment::ZERO,
            known: false,
        }
    }

    /// The epoch of this replica's leadership, while it is inside its deadline.
    pub fn leading(&self, now: Moment) -> Option<i32> {
        match self.standing {
            Standing::Holder { renewed, epoch } if now < self.deadline(renewed) => Some(epoch),
            _ => None,
        }
    }

    /// Until when this replica may act.
    pub fn acts_until(&self) -> Option<Moment> {
        match self.standing {
            Standing::Holder { renewed, .. } => Some(self.deadline(renewed)),
            _ => None,
        }
    }

    /// What to do at this moment. `moved` is when this replica's core last made progress: a lease is neither renewed nor
    /// taken for a core that hangs.
    pub fn next(&mut self, now: Moment, moved: Moment) -> Action {
        if let Standing::Holder { renewed, .. } = self.standing
            && now >= self.deadline(renewed)
        {
            self.standing = Standing::Lost;
        }
        if self.standing == Standing::Lost {
            return Action::Lost;
        }
        if now < self.next {
            return Action::Wait(self.acts_until().map_or(self.next, |until| until.min(self.next)));
        }
        let may_claim = self.may_claim(now);
        let record = match &self.seen {
            Knowledge::Absent { fresh: true, .. } if may_claim => self.claim(0, None),
            Knowledge::Record { record, fresh: true, .. } if may_claim => {
                let own = record.holder == self.settings.identity;
                let transitions = record.transitions.saturating_add(i32::from(!own));
                self.claim(transitions, record.resource_version.clone())
            }
            _ => return Action::Read,
        };
        if !self.vouches(now, moved) {
            let later = self.later(now);
            return Action::Wait(self.acts_until().map_or(later, |until| until.min(later)));
        }
        Action::Write(record)
    }

    /// Whether nobody else can be inside its deadline, as far as the record tells.
    fn may_claim(&self, now: Moment) -> bool {
        if matches!(self.standing, Standing::Holder { .. }) {
            return true;
        }
        match &self.seen {
            Knowledge::Nothing => false,
            Knowledge::Absent { since, .. } => {
                let wait = if self.known { self.settings.lease_duration } else { self.settings.retry_period };
                now >= since.saturating_add(wait)
            }
            Knowledge::Record { record, since, .. } if record.holder.is_empty() => {
                now >= since.saturating_add(stated(record))
            }
            // Also one that names this replica: it may be a claim of ours whose answer was lost, or the work of a hand.
            Knowledge::Record { record, since, .. } => now >= self.expiry(record, *since),
        }
    }

    /// Takes in the answer at `now` to an action that was sent at `since`, or before which the core last made progress at
    /// `since`: the earlier of the two.
    pub fn answered(&mut self, answer: Answer, since: Moment, now: Moment) {
        match answer {
            Answer::Found(record) => {
                let foreign = record.holder != self.settings.identity;
                if foreign && matches!(self.standing, Standing::Holder { .. }) {
                    self.standing = Standing::Lost;
                }
                self.see(record, now);
                self.next = if self.may_claim(now) { now } else { self.later(now) };
            }
            Answer::Absent => {
                let since = match self.seen {
                    Knowledge::Absent { since, .. } => since,
                    Knowledge::Nothing | Knowledge::Record { .. } => now,
                };
                self.seen = Knowledge::Absent { since, fresh: true };
                self.next = if self.may_claim(now) { now } else { self.later(now) };
            }
            Answer::Written(record) => {
                let epoch = record.transitions;
                self.see(record, now);
                // A change of epoch within one leadership cannot happen; the first one counts.
                let epoch = if let Standing::Holder { epoch, .. } = self.standing { epoch } else { epoch };
                if self.standing != Standing::Lost {
                    self.standing = Standing::Holder { renewed: since, epoch };
                }
                self.next = self.later(now);
            }
            Answer::Conflict => {
                self.unsure();
                self.next = now;
            }
            Answer::Failed => {
                self.unsure();
                self.next = self.later(now);
            }
        }
        // A record that was read long ago is no ground for a write.
        if let Knowledge::Record { fresh, .. } | Knowledge::Absent { fresh, .. } = &mut self.seen
            && self.next > now
        {
            *fresh = matches!(self.standing, Standing::Holder { .. }) && *fresh;
        }
    }

    /// The record that gives the lease back, for a holder that stops; it leads no more.
    pub fn release(&mut self) -> Option<Record> {
        let held = matches!(self.standing, Standing::Holder { .. });
        self.standing = Standing::Lost;
        match &self.seen {
            Knowledge::Record { record, .. } if held && record.holder == self.settings.identity => {
                Some(Record {
                    holder: String::new(),
                    duration_secs: 1,
                    renewed: String::new(),
                    ..record.clone()
                })
            }
            _ => None,
        }
    }

    /// Whether the core has made progress since the last renewal; of a candidate, whether it did so lately.
    fn vouches(&self, now: Moment, moved: Moment) -> bool {
        match self.standing {
            Standing::Holder { renewed, .. } => moved > renewed,
            _ => now < moved.saturating_add(self.settings.renew_deadline / 2),
        }
    }

    fn deadline(&self, renewed: Moment) -> Moment {
        renewed.saturating_add(self.settings.renew_deadline)
    }

    /// When a foreign record may be taken over: never sooner than our own duration says.
    fn expiry(&self, record: &Record, since: Moment) -> Moment {
        since.saturating_add(stated(record).max(self.settings.lease_duration))
    }

    fn later(&self, now: Moment) -> Moment {
        now.saturating_add(self.settings.retry_period)
    }

    fn claim(&self, transitions: i32, resource_version: Option<String>) -> Record {
        let mut secs = self.settings.lease_duration.as_secs();
        if self.settings.lease_duration.subsec_nanos() > 0 {
            secs = secs.saturating_add(1);
        }
        Record {
            holder: self.settings.identity.clone(),
            duration_secs: i32::try_from(secs.max(1)).unwrap_or(i32::MAX),
            transitions,
            renewed: String::new(),
            resource_version,
        }
    }

    fn see(&mut self, record: Record, now: Moment) {
        let since = match &self.seen {
            Knowledge::Record { record: known, since, .. }
                if known.resource_version == record.resource_version =>
            {
                *since
            }
            _ => now,
        };
        self.known = true;
        self.seen = Knowledge::Record { record, since, fresh: true };
    }

    /// After a failure the record may be old: read before writing, but keep since when it was seen unchanged.
    fn unsure(&mut self) {
        match &mut self.seen {
            Knowledge::Record { fresh, .. } => *fresh = false,
            // It may have been made and deleted again meanwhile: nothing tells one absence from another.
            other => *other = Knowledge::Nothing,
        }
    }
}

/// How long a record says that others wait.
fn stated(record: &Record) -> Duration {
    Duration::from_secs(u64::try_from(record.duration_secs).unwrap_or(0))
}
