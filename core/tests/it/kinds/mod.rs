//! Rules of the kinds of jobs, each kind by its row.

mod bad_input;
mod batch_job_status;
mod carried_status;
mod changed_roles;
mod contracts;
mod elastic_clusters;
mod elastic_services;
mod elastic_slices;
mod every_kind;
mod kept_clusters;
mod priority;
mod recreated_sets;
mod refused_sizes;
mod restored_marks;
mod returned_jobs;
mod samples;
mod scaled_sets;
mod train_jobs;
