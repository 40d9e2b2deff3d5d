//! The screen of `top`: its reaction to keys, and the lines that a terminal shows.
//!
//! Invariants: a frame fits the lines and columns of the terminal; the marked row stays the same object when rows are
//! added or move; no key causes a write.

mod frame;
mod rows;

pub use frame::Size;
pub use rows::TopRows;

use crate::people::rows_left::RowsLeft;
use crate::visibility::views::{ClusterQueueView, DecisionView, WorkloadView};

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// One row up.
    Up,
    /// One row down.
    Down,
    /// A screen up.
    PageUp,
    /// A screen down.
    PageDown,
    /// The first row.
    Home,
    /// The last row.
    End,
    /// Shows why the marked row waits, or ends an input.
    Enter,
    /// Goes back.
    Escape,
    /// Deletes the last character of an input.
    Backspace,
}

/// Effect of a key on the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Draw another frame.
    Draw,
    /// End the command.
    Quit,
    /// Read and show the text of `why` for a Workload.
    Why {
        /// Namespace of the Workload.
        namespace: String,
        /// Name of the Workload.
        name: String,
    },
}

/// Results of the last reading.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Workloads that have not finished, in the order of the manager.
    pub workloads: Vec<WorkloadView>,
    /// Workloads that were not read.
    pub left: RowsLeft,
    /// ClusterQueues; `None` without the right to list them.
    pub queues: Option<Vec<ClusterQueueView>>,
    /// What the manager decides; `None` without the right to read it.
    pub decisions: Option<DecisionView>,
}

/// Kind of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopKind {
    /// Workloads.
    #[default]
    Workloads,
    /// ClusterQueues with the bars of their quota.
    Queues,
}

/// Order of Workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    /// The longest wait first.
    #[default]
    Wait,
    /// By ClusterQueue and position in it.
    Position,
    /// The greatest need first.
    Need,
    /// The highest priority first.
    Priority,
}

impl Order {
    const fn next(self) -> Self {
        match self {
            Self::Wait => Self::Position,
            Self::Position => Self::Need,
            Self::Need => Self::Priority,
            Self::Priority => Self::Wait,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Position => "position",
            Self::Need => "need",
            Self::Priority => "priority",
        }
    }
}

/// Text that covers the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Overlay {
    /// Nothing.
    #[default]
    None,
    /// The keys.
    Help,
    /// A text, and its first shown line.
    Text(String, usize),
}

/// The state of the screen.
#[derive(Clone, Debug, Default)]
pub struct TopScreen {
    kind: TopKind,
    order: Order,
    /// Part of the name of all shown rows.
    filter: String,
    /// Whether keys go into the filter.
    is_typing: bool,
    /// Reason of all shown rows.
    reason: Option<String>,
    /// Namespace of all shown rows.
    namespace: Option<String>,
    /// Key of the marked row; `None` marks the first row.
    marked: Option<String>,
    is_frozen: bool,
    overlay: Overlay,
    /// Why the last reading failed.
    error: Option<String>,
}

impl TopScreen {
    /// Creates the screen for a kind of rows.
    pub fn new(kind: TopKind) -> Self {
        Self { kind, ..Self::default() }
    }

    /// Whether the user has stopped reading, so that the rows stay.
    pub const fn is_frozen(&self) -> bool {
        self.is_frozen
    }

    /// Sets the error of the last reading; `None` after a success.
    pub fn set_error(&mut self, error: Option<String>) {
        self.error = error;
    }

    /// Shows a text until a key closes it.
    pub fn show_text(&mut self, text: String) {
        self.overlay = Overlay::Text(text, 0);
    }

    /// Acts on a key. `page` is the number of rows on the screen.
    pub fn press(&mut self, key: Key, reading: &Reading, page: usize) -> Request {
        if self.is_typing {
            self.type_filter(key);
            return Request::Draw;
        }
        if self.overlay != Overlay::None {
            return self.press_in_overlay(key, page);
        }
        match key {
            Key::Char('q') => return Request::Quit,
            Key::Char('/') => self.is_typing = true,
            Key::Char('o') => self.order = self.order.next(),
            Key::Char('r') => self.reason = next_of(self.reason.as_deref(), rows::reasons(reading)),
            Key::Char('n') => self.namespace = next_of(self.namespace.as_deref(), rows::namespaces(reading)),
            Key::Char(' ') => self.is_frozen = !self.is_frozen,
            Key::Char('?') => self.overlay = Overlay::Help,
            Key::Escape => {
                self.filter.clear();
                (self.reason, self.namespace) = (None, None);
            }
            Key::Enter => return self.ask_why(reading),
            Key::Char('k') | Key::Up => self.mark(reading, |place, _| place.saturating_sub(1)),
            Key::Char('j') | Key::Down => self.mark(reading, |place, _| place + 1),
            Key::PageUp => self.mark(reading, |place, _| place.saturating_sub(page)),
            Key::PageDown => self.mark(reading, |place, _| place + page),
            Key::Home => self.mark(reading, |_, _| 0),
            Key::End => self.mark(reading, |_, last| last),
            Key::Char(_) | Key::Backspace => {}
        }
        Request::Draw
    }

    fn type_filter(&mut self, key: Key) {
        match key {
            Key::Char(c) => self.filter.push(c),
            Key::Backspace => drop(self.filter.pop()),
            Key::Enter => self.is_typing = false,
            Key::Escape => {
                self.filter.clear();
                self.is_typing = false;
            }
            _ => {}
        }
    }

    fn press_in_overlay(&mut self, key: Key, page: usize) -> Request {
        let Overlay::Text(text, line) = &mut self.overlay else {
            self.overlay = Overlay::None;
            return Request::Draw;
        };
        let last = text.lines().count().saturating_sub(1);
        *line = match key {
            Key::Up | Key::Char('k') => line.saturating_sub(1),
            Key::Down | Key::Char('j') => *line + 1,
            Key::PageUp => line.saturating_sub(page),
            Key::PageDown | Key::Char(' ') => *line + page,
            Key::Home => 0,
            Key::End => last,
            _ => {
                self.overlay = Overlay::None;
                return Request::Draw;
            }
        }
        .min(last);
        Request::Draw
    }

    /// Returns the request for the text of the marked Workload; `Draw` if no Workload is marked.
    fn ask_why(&self, reading: &Reading) -> Request {
        let rows = TopRows::of(self, reading);
        match rows.workload(rows.place(self.marked.as_deref())) {
            Some(row) => {
                Request::Why { namespace: row.metadata.namespace.clone(), name: row.metadata.name.clone() }
            }
            None => Request::Draw,
        }
    }

    fn mark(&mut self, reading: &Reading, moved: impl Fn(usize, usize) -> usize) {
        let rows = TopRows::of(self, reading);
        let Some(last) = rows.len().checked_sub(1) else { return };
        let place = moved(rows.place(self.marked.as_deref()), last).min(last);
        self.marked = rows.key(place);
    }
}

/// Returns the value after `current`; after the last one, and without values, `None`: all rows.
fn next_of(current: Option<&str>, values: Vec<String>) -> Option<String> {
    let next =
        current.map_or(0, |current| values.iter().position(|value| value == current).map_or(0, |at| at + 1));
    values.into_iter().nth(next)
}

#[cfg(test)]
mod tests;
