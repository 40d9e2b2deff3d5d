//! One binary of integration tests.

mod laws;
