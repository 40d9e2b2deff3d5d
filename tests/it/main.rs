//! x

mod shell_certificates;
mod shell_executor;
mod shell_lease;
mod shell_server;
