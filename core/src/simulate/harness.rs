//! A core and the fake API server that it works on, with what is on its way to the core.
//!
//! Invariants: what the shell does in a cluster is done here once, for simulations and tests alike: the newest object comes
//! before the result of a write that conflicts or whose outcome is unknown, and a read is answered with the object as it is.
//! Answers come in their order. When they and watch events are delivered, and which writes fail, is up to the driver.

use super::fake_api_server::FakeApiServer;
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::reconciler::{CoreSettings, Delta, Reconciler, Write, WriteOutcome, WriteResult};
use jiff::Timestamp;
use std::collections::VecDeque;

/// A core, its server, and what is on its way to the core.
pub struct Harness {
    /// The core.
    pub core: Reconciler,
    /// The server.
    pub server: FakeApiServer,
    /// Answers, and the watch events that were received, oldest first.
    pub inbox: VecDeque<Delta>,
}

impl Harness {
    /// Creates a core that has read nothing.
    pub fn new(settings: CoreSettings, server: FakeApiServer) -> Self {
        Self { core: Reconciler::new(settings), server, inbox: VecDeque::new() }
    }

    /// Puts a new core in the place of one that was killed. What was on its way is lost. Returns the first lists.
    pub fn restart(&mut self, settings: CoreSettings) -> Vec<Delta> {
        self.core = Reconciler::new(settings);
        self.inbox.clear();
        self.server.watch_events.clear();
        self.lists()
    }

    /// Returns the first lists of all kinds that the core watches.
    pub fn lists(&self) -> Vec<Delta> {
        self.server.list(self.core.kinds().iter().copied())
    }

    /// Receives the events of all watches.
    pub fn receive(&mut self) {
        let kinds = self.core.kinds();
        let watched = |delta: &Delta| match delta {
            Delta::Applied { kind, .. } | Delta::Deleted { kind, .. } => kinds.contains(kind),
            _ => true,
        };
        self.inbox.extend(self.server.watch_events.drain(..).filter(watched));
    }

    /// Executes a write and answers it. Returns whether it has landed.
    pub fn execute(&mut self, write: Write, now: Timestamp) -> bool {
        let (id, kind, key) = (write.id, write.kind, write.key.clone());
        let outcome = self.server.write(write, now);
        let landed = matches!(outcome, WriteOutcome::Done(_));
        self.answer(WriteResult { id, kind, key, outcome });
        landed
    }

    /// Answers a write.
    pub fn answer(&mut self, result: WriteResult) {
        if matches!(result.outcome, WriteOutcome::Conflict | WriteOutcome::Unavailable { .. }) {
            let kind = result.kind;
            let newest = self.server.get(kind, &result.key).cloned();
            self.inbox.extend(newest.map(|object| Delta::Applied { kind, object }));
        }
        self.inbox.push_back(Delta::Written(result));
    }

    /// Answers a read.
    pub fn read(&mut self, kind: Kind, key: ObjectKey) {
        let object = self.server.get(kind, &key).cloned();
        self.inbox.push_back(Delta::Read { kind, key, object });
    }
}
