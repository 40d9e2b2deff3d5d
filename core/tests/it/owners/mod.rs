//! Objects below others: on whose quota they run.

mod chains;
mod changes;
mod grown_children;
mod moved_jobs;
mod passed_chains;
mod pod_below_pod;
mod pods_below_unwatched;
mod ray_children;
mod running_children;
mod submitters;
