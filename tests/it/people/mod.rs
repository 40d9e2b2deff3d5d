//! The command line for people.

mod changing;
mod clocks;
mod connections;
mod export;
mod history_texts;
mod job_trees;
mod kueuectl;
mod lines;
mod local_shares;
mod narrow;
mod properties;
mod purge;
mod sources;
mod tenants;
mod terminal;
mod texts;
mod verdict_texts;
mod what_if;
mod when;
mod without_workload;
