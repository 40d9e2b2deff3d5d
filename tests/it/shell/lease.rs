//! I16: never do two replicas lead within their own deadlines, whatever the network, the clocks and edits of the Lease do; and a
//! replica whose core hangs leads no longer than its deadline.

use proptest::prelude::*;
use sluice::lifecycle::lease::{
    ElectionSettings, Elector, LeaseAction, LeaseRecord, LeaseResponse, Monotonic,
};
use std::collections::VecDeque;
use std::time::Duration;

/// Fate of one request; delays in milliseconds of real time.
#[derive(Clone, Debug)]
struct RequestFate {
    out: u64,
    back: u64,
    lost: bool,
}

#[derive(Clone, Debug)]
enum LeaseEdit {
    /// Deletes the Lease, if every replica has seen it: a replica that has not cannot notice the deletion.
    Delete,
    /// Clears the holder, as after a release, but keeps the duration.
    ClearHolder,
    /// Names a foreign holder.
    NameForeignHolder,
    /// Names this replica as the holder.
    NameReplica(usize),
}

#[derive(Clone, Debug)]
enum MessageInFlight {
    Arrives { at: u64, node: usize, action: LeaseAction, fate: RequestFate, sent: u64 },
    Answers { at: u64, node: usize, answer: LeaseResponse, sent: u64 },
}

struct Replica {
    elector: Elector,
    /// Offset (ms) and rate (per mille) of its clock.
    offset: u64,
    rate: u64,
    waiting: bool,
    /// Real time from which its core hangs.
    hangs_at: u64,
    /// Time of the core's last progress, as of the last request.
    last_progress_at_request: Monotonic,
    wake: u64,
    restarts: u32,
    identity: String,
    /// Whether it has seen the Lease.
    has_seen_lease: bool,
    /// Real time at which it is started again; 0 while it runs.
    restarts_at: u64,
}

impl Replica {
    /// A replica by the offset and rate of its clock, and the time from which its core hangs.
    fn new(index: usize, (offset, rate, hangs_at): (u64, u64, u64)) -> Self {
        let identity = format!("node-{index}");
        Self {
            elector: Elector::new(settings(&format!("{identity}-0"))),
            offset,
            rate,
            waiting: false,
            hangs_at,
            last_progress_at_request: Monotonic::ZERO,
            wake: 0,
            restarts: 0,
            identity,
            has_seen_lease: false,
            restarts_at: 0,
        }
    }

    fn name(&self) -> String {
        format!("{}-{}", self.identity, self.restarts)
    }

    fn clock(&self, real: u64) -> Monotonic {
        Duration::from_micros(self.offset * 1000 + real * self.rate)
    }

    /// The process has ended, and a new process takes its place. Where the Lease is edited, it starts after the deadline of any
    /// holder, because it cannot know of a Lease that was deleted while it was held.
    fn restart(&mut self, real: u64, edited: bool) {
        if self.restarts_at == 0 && edited {
            self.restarts_at = real + LEASE_EXPIRY_MS;
            self.has_seen_lease = false;
        }
        if real < self.restarts_at {
            return;
        }
        self.restarts_at = 0;
        self.restarts += 1;
        self.hangs_at = u64::MAX;
        self.elector = Elector::new(settings(&self.name()));
        self.has_seen_lease = false;
    }

    /// Time of the core's last progress.
    fn last_progress(&self, real: u64) -> Monotonic {
        self.clock(real.min(self.hangs_at))
    }
}

const REQUEST_TIMEOUT_MS: u64 = 5000;
/// After this time, a holder that was cut off is past its deadline.
const LEASE_EXPIRY_MS: u64 = 20_000;
/// Offset, rate and hang time of two replicas with correct clocks and healthy cores.
const HEALTHY_REPLICAS: [(u64, u64, u64); 2] = [(0, 1000, u64::MAX), (77_000, 1000, u64::MAX)];

fn settings(identity: &str) -> ElectionSettings {
    ElectionSettings {
        identity: identity.to_owned(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    }
}

fn apply_write(server: &mut (Option<LeaseRecord>, u64), action: &LeaseAction) -> LeaseResponse {
    match action {
        LeaseAction::Read => server.0.clone().map_or(LeaseResponse::NotFound, LeaseResponse::Found),
        LeaseAction::Write(record) => {
            let current = server.0.as_ref().and_then(|record| record.resource_version.clone());
            if record.resource_version != current {
                return LeaseResponse::Conflict;
            }
            server.1 += 1;
            let stored = LeaseRecord { resource_version: Some(server.1.to_string()), ..record.clone() };
            server.0 = Some(stored.clone());
            LeaseResponse::Written(stored)
        }
        LeaseAction::Wait(_) | LeaseAction::Lost => unreachable!("never sent"),
    }
}

fn edit_lease(server: &mut (Option<LeaseRecord>, u64), nodes: &[Replica], edit: &LeaseEdit) {
    server.1 += 1;
    let Some(record) = server.0.as_mut() else { return };
    record.resource_version = Some(server.1.to_string());
    match edit {
        LeaseEdit::Delete if nodes.iter().all(|node| node.has_seen_lease) => server.0 = None,
        LeaseEdit::Delete => {}
        LeaseEdit::ClearHolder => record.holder.clear(),
        LeaseEdit::NameForeignHolder => "stranger".clone_into(&mut record.holder),
        LeaseEdit::NameReplica(node) => {
            let node = &nodes[node % nodes.len()];
            record.holder = node.name();
        }
    }
}

/// No replica has seen a Lease that was just created.
fn forget_if_made(nodes: &mut [Replica], action: &LeaseAction, answer: &LeaseResponse) {
    let created = matches!(action, LeaseAction::Write(record) if record.resource_version.is_none());
    if created && matches!(answer, LeaseResponse::Written(_)) {
        for node in nodes {
            node.has_seen_lease = false;
        }
    }
}

/// Runs the replicas. Returns the number of 50 ms moments with a holder, or what went wrong.
fn run(
    clocks: &[(u64, u64, u64)],
    fates: &[RequestFate],
    outages: &[(u64, u64)],
    edits: &[(u64, LeaseEdit)],
) -> Result<u64, String> {
    let mut nodes: Vec<Replica> =
        clocks.iter().enumerate().map(|(index, clock)| Replica::new(index, *clock)).collect();
    let mut server = (None, 0);
    let mut wire: Vec<MessageInFlight> = Vec::new();
    let mut fates: VecDeque<RequestFate> = fates.iter().cloned().collect();
    let mut held_moments = 0;
    for real in (0..180_000_u64).step_by(50) {
        for (_, edit) in edits.iter().filter(|(at, _)| at / 50 * 50 == real) {
            edit_lease(&mut server, &nodes, edit);
        }
        let is_outage = outages.iter().any(|(from, length)| (*from..from + length).contains(&real));
        let (due, rest): (Vec<_>, Vec<_>) = wire.into_iter().partition(|pending| match pending {
            MessageInFlight::Arrives { at, .. } | MessageInFlight::Answers { at, .. } => *at <= real,
        });
        wire = rest;
        for pending in due {
            match pending {
                MessageInFlight::Arrives { node, action, fate, sent, .. } => {
                    let answer = apply_write(&mut server, &action);
                    forget_if_made(&mut nodes, &action, &answer);
                    let back = real + fate.back;
                    if !fate.lost && back < sent + REQUEST_TIMEOUT_MS {
                        wire.push(MessageInFlight::Answers { at: back, node, answer, sent });
                    }
                }
                MessageInFlight::Answers { node, answer, sent, .. } => {
                    let node = &mut nodes[node];
                    if node.waiting {
                        node.waiting = false;
                        node.has_seen_lease |=
                            matches!(answer, LeaseResponse::Found(_) | LeaseResponse::Written(_));
                        let (since, now) =
                            (node.clock(sent).min(node.last_progress_at_request), node.clock(real));
                        node.elector.handle_response(answer, since, now);
                    }
                }
            }
        }
        for (index, node) in nodes.iter_mut().enumerate() {
            let now = node.clock(real);
            if node.waiting {
                if real >= node.wake {
                    node.waiting = false;
                    // A later response to this request is dropped.
                    wire.retain(
                        |pending| !matches!(pending, MessageInFlight::Answers { node, .. } if *node == index),
                    );
                    let sent = node.clock(node.wake - REQUEST_TIMEOUT_MS);
                    node.elector.handle_response(LeaseResponse::Failed, sent, now);
                }
                continue;
            }
            node.last_progress_at_request = node.last_progress(real);
            match node.elector.next_action(now, node.last_progress_at_request) {
                LeaseAction::Wait(_) => {}
                LeaseAction::Lost => node.restart(real, !edits.is_empty()),
                action => {
                    let fate = fates.pop_front().unwrap_or(RequestFate { out: 5, back: 5, lost: false });
                    node.waiting = true;
                    node.wake = real + REQUEST_TIMEOUT_MS;
                    if !is_outage {
                        wire.push(MessageInFlight::Arrives {
                            at: real + fate.out,
                            node: index,
                            action,
                            fate,
                            sent: real,
                        });
                    }
                }
            }
        }
        held_moments += count_holders(&nodes, real)?;
    }
    Ok(held_moments)
}

/// Number of holders at this moment. Fails if there are two, or if the core of a holder has hung for too long.
fn count_holders(nodes: &[Replica], real: u64) -> Result<u64, String> {
    let holders: Vec<_> =
        nodes.iter().filter(|node| node.elector.leading_epoch(node.clock(real)).is_some()).collect();
    if holders.len() > 1 {
        return Err(format!("two holders at {real} ms"));
    }
    if holders.iter().any(|node| node.clock(real) >= node.last_progress(real) + Duration::from_secs(10)) {
        return Err(format!("a holder whose core hangs at {real} ms"));
    }
    Ok(u64::try_from(holders.len()).unwrap_or(0))
}

fn fate() -> impl Strategy<Value = RequestFate> {
    let delay = prop_oneof![3 => 1..200_u64, 1 => 200..20_000_u64];
    (delay.clone(), delay, prop::bool::weighted(0.2)).prop_map(|(out, back, lost)| RequestFate {
        out,
        back,
        lost,
    })
}

fn hangs() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(u64::MAX), 1 => 0..150_000_u64]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn i16_lease_never_has_two_holders(
        clocks in prop::collection::vec((0..100_000_u64, 900..1100_u64, hangs()), 2..4),
        fates in prop::collection::vec(fate(), 0..200),
        outages in prop::collection::vec((0..150_000_u64, 1..30_000_u64), 0..4),
    ) {
        let result = run(&clocks, &fates, &outages, &[]);
        prop_assert!(result.is_ok(), "{result:?}");
    }

    #[test]
    fn i16_edited_lease_never_has_two_holders(
        clocks in prop::collection::vec((0..100_000_u64, 900..1100_u64, hangs()), 2..4),
        fates in prop::collection::vec(fate(), 0..100),
        outages in prop::collection::vec((0..150_000_u64, 1..30_000_u64), 0..2),
        edits in prop::collection::vec((0..170_000_u64, hand()), 1..12),
    ) {
        let result = run(&clocks, &fates, &outages, &edits);
        prop_assert!(result.is_ok(), "{result:?}");
    }
}

fn hand() -> impl Strategy<Value = LeaseEdit> {
    prop_oneof![
        Just(LeaseEdit::Delete),
        Just(LeaseEdit::ClearHolder),
        Just(LeaseEdit::NameForeignHolder),
        (0..4_usize).prop_map(LeaseEdit::NameReplica)
    ]
}

#[test]
fn edited_lease_regains_holder() {
    for edit in [
        LeaseEdit::Delete,
        LeaseEdit::ClearHolder,
        LeaseEdit::NameForeignHolder,
        LeaseEdit::NameReplica(0),
        LeaseEdit::NameReplica(1),
    ] {
        let untouched = run(&HEALTHY_REPLICAS, &[], &[], &[]).unwrap();
        let held_moments = run(&HEALTHY_REPLICAS, &[], &[], &[(60_000, edit.clone())]).unwrap();
        // The recovery takes the lease's 15 s, some retries, and the restart of a replica that has ended.
        assert!(
            held_moments + 20 * 25 > untouched,
            "{edit:?}: held in {held_moments} moments, {untouched} without"
        );
    }
}

#[test]
fn lease_is_held_continuously_without_faults() {
    let held_moments = run(&HEALTHY_REPLICAS, &[], &[], &[]).unwrap();
    // The first replica waits for one retry before it creates the Lease.
    assert!(held_moments > 3540, "held in {held_moments} of 3600 moments");
}

#[test]
fn hung_core_loses_lease_to_standby() {
    // The first replica hangs after a minute; the second takes over for the rest of three minutes.
    let held_moments = run(&[(0, 1000, 60_000), (77_000, 1000, u64::MAX)], &[], &[], &[]).unwrap();
    assert!(
        held_moments > 3540 - 200,
        "held in {held_moments} of 3600 moments, with at most 10 s without a leader"
    );
}

#[test]
fn released_lease_is_taken_at_next_retry() {
    let mut server = (None, 0);
    let mut now = Duration::from_secs(1);
    let mut first = Elector::new(settings("a"));
    let mut run_until = |elector: &mut Elector, server: &mut (Option<LeaseRecord>, u64), until: u64| {
        while now < Duration::from_secs(until) {
            now = match elector.next_action(now, now) {
                LeaseAction::Wait(until) => until,
                action => {
                    let answer = apply_write(server, &action);
                    elector.handle_response(answer, now, now);
                    now
                }
            };
        }
        elector.leading_epoch(now)
    };
    assert_eq!(run_until(&mut first, &mut server, 4), Some(0));
    let released = first.release().unwrap();
    apply_write(&mut server, &LeaseAction::Write(released));
    assert_eq!(first.leading_epoch(Duration::ZERO), None);
    // It reads the Lease, and takes it at its next retry.
    assert_eq!(run_until(&mut Elector::new(settings("b")), &mut server, 8), Some(1));
}
