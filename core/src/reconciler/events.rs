//! Constructors of events.

use super::messages::{Effect, Event, EventType};
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::cache::unreadable::UnreadableObject;

/// Creates an event on an object, given by its kind, its key and its UID.
pub(crate) fn event_on(
    (kind, key, uid): (Kind, &ObjectKey, &str),
    event_type: EventType,
    reason: &str,
    note: String,
) -> Event {
    let (key, uid, reason) = (key.clone(), uid.to_owned(), reason.to_owned());
    Event { kind, key, uid, event_type, reason, note, once: false }
}

/// Formats the note about an object that cannot be decoded.
pub(crate) fn unreadable_text(kind: Kind, problem: &str) -> String {
    format!("{} cannot be read: {problem}", kind.resource().kind)
}

/// Creates the warning on an object that cannot be decoded.
pub(crate) fn unreadable_event(kind: Kind, key: &ObjectKey, object: &UnreadableObject) -> Effect {
    let note = unreadable_text(kind, &object.problem);
    Effect::Event(event_on((kind, key, &object.uid), EventType::Warning, "Unreadable", note))
}

/// Creates a normal event on a Workload.
pub(crate) fn workload_event(record: &WorkloadRecord, reason: &str, note: String) -> Effect {
    Effect::Event(event_on(subject(record), EventType::Normal, reason, note))
}

/// Creates a warning on a Workload.
pub(crate) fn workload_warning(record: &WorkloadRecord, reason: &str, note: String) -> Effect {
    Effect::Event(event_on(subject(record), EventType::Warning, reason, note))
}

fn subject(record: &WorkloadRecord) -> (Kind, &ObjectKey, &str) {
    (Kind::Workload, &record.meta.key, &record.meta.uid)
}
