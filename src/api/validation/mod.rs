//! Rules that schemas cannot say, by kind: each validator reads the raw object and returns every error it finds.
//!
//! Invariants: validators are total (a value of an unexpected type is an error that names its field), never look at
//! anything but the objects given, and report an error's path and kind as the API server's own checks would.

mod cursor;
mod error;
mod gates;
pub mod syntax;

pub use cursor::{Cursor, child_path, key_path};
pub use error::{ErrorKind, FieldError, aggregate};
pub use gates::{Gate, Gates};
