//! Pods that are queued, alone or in groups, and what they request.

mod bad_input;
mod blocked;
mod disowned;
mod foreign_members;
mod held_for_nothing;
mod many;
mod of_other_workloads;
mod prebuilt_groups;
mod released;
mod requests;
mod resized;
mod restarted;
mod serving_groups;
mod stopped;
mod template;
mod template_defaults;
mod terminating;
mod ungated;
