//! Tests over several modules, and replays of recorded behaviour.

mod admission;
