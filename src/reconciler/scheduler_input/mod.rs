//! Conversion of Workloads to scheduler input: the requests of pending ones and the charges of reserving ones.

mod charge;
mod pending;
