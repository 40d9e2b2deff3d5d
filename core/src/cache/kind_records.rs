//! Where the records of each kind are: the one place in the cache that knows all kinds.

use super::records::Meta;
use super::{Cache, Kind};
use crate::api::ObjectKey;
use crate::frameworks::{JobKind, RelatedKind};
use std::sync::Arc;

/// UID and resourceVersion.
type Version<'a> = (&'a str, &'a str);

/// The records of a kind.
enum KindRecords {
    /// The records of one kind.
    Of {
        keys: fn(&Cache) -> Vec<ObjectKey>,
        /// UID and resourceVersion of a record whose write responses can overtake its watch.
        version: for<'a> fn(&'a Cache, &ObjectKey) -> Option<Version<'a>>,
    },
    /// The records of a kind of job.
    OfJobs(JobKind),
    /// Objects that jobs read.
    OfRelated(RelatedKind),
}

impl Kind {
    fn records(self) -> KindRecords {
        use KindRecords::Of;
        match self {
            Self::Namespace => Of { keys: |c| named(c.namespaces.labels.keys()), version: never_written },
            Self::LimitRange => {
                Of { keys: |c| c.pod_defaults.limit_range_keys().cloned().collect(), version: never_written }
            }
            Self::RuntimeClass => {
                Of { keys: |c| named(c.pod_defaults.runtime_class_names()), version: never_written }
            }
            Self::PriorityClass => {
                Of { keys: |c| named(c.priority_classes.pod_class_names()), version: never_written }
            }
            Self::WorkloadPriorityClass => {
                Of { keys: |c| named(c.priority_classes.workload_class_names()), version: never_written }
            }
            Self::ProvisioningRequestConfig => {
                Of { keys: |c| named(c.provisioning.config_names()), version: never_written }
            }
            Self::PodTemplate => {
                Of { keys: |c| c.provisioning.template_keys().cloned().collect(), version: never_written }
            }
            Self::ProvisioningRequest => Of {
                keys: |c| c.provisioning.request_keys().cloned().collect(),
                version: |c, key| c.provisioning.known_version(key),
            },
            Self::ResourceFlavor => Of {
                keys: |c| named(c.flavors.keys()),
                version: |c, key| c.flavors.get(&key.name).map(|record| version(&record.meta)),
            },
            Self::Topology => Of {
                keys: |c| named(c.topologies.keys()),
                version: |c, key| c.topologies.get(&key.name).map(|record| version(&record.meta)),
            },
            Self::AdmissionCheck => Of {
                keys: |c| named(c.checks.keys()),
                version: |c, key| c.checks.get(&key.name).map(|record| version(&record.meta)),
            },
            Self::MultiKueueCluster => Of {
                keys: |c| named(c.multikueue_clusters.keys()),
                version: |c, key| c.multikueue_clusters.get(&key.name).map(|record| version(&record.meta)),
            },
            Self::Cohort => Of {
                keys: |c| named(c.queues.cohorts().map(|(name, _)| name)),
                version: |c, key| c.queues.cohort(&key.name).map(|record| version(&record.meta)),
            },
            Self::ClusterQueue => Of {
                keys: |c| named(c.queues.cluster_queues().map(|(name, _)| name)),
                version: |c, key| c.queues.cluster_queue(&key.name).map(|record| version(&record.meta)),
            },
            Self::LocalQueue => Of {
                keys: |c| c.queues.local_queues().map(|(key, _)| key.clone()).collect(),
                version: |c, key| c.queues.local_queue(key).map(|record| version(&record.meta)),
            },
            Self::Workload => Of {
                keys: |c| c.workloads.iter().map(|(key, _)| key.clone()).collect(),
                version: |c, key| c.workloads.get(key).map(|record| version(&record.meta)),
            },
            Self::Node => {
                Of { keys: |c| named(c.nodes.names()), version: |c, key| c.nodes.known_version(&key.name) }
            }
            Self::ReplicaSet => Of { keys: |c| c.jobs.links.keys(Kind::ReplicaSet), version: never_written },
            Self::Pod => Of { keys: |c| c.pods.keys(), version: |c, key| c.pods.known_version(key) },
            Self::Job(kind) => KindRecords::OfJobs(kind),
            Self::Related(kind) => KindRecords::OfRelated(kind),
        }
    }
}

impl Cache {
    /// Returns the keys of all objects of a kind.
    pub(crate) fn keys(&self, kind: Kind) -> Vec<ObjectKey> {
        match kind.records() {
            KindRecords::Of { keys, .. } => keys(self),
            KindRecords::OfJobs(kind) => {
                let mut keys = self.jobs.keys_of_kind(kind);
                keys.extend(self.jobs.links.keys(Kind::Job(kind)));
                keys
            }
            KindRecords::OfRelated(kind) => self.jobs.related.keys(kind),
        }
    }

    /// Returns UID and resourceVersion of the record of an object whose write responses can overtake its watch.
    pub(crate) fn known_version(&self, kind: Kind, key: &ObjectKey) -> Option<Version<'_>> {
        match kind.records() {
            KindRecords::Of { version, .. } => version(self, key),
            KindRecords::OfJobs(kind) => {
                let job = self.jobs.get(&(kind, key.clone()))?;
                Some((&job.uid, &job.resource_version))
            }
            KindRecords::OfRelated(_) => None,
        }
    }
}

/// The version of an object that this manager never updates.
const fn never_written<'a>(_: &'a Cache, _: &ObjectKey) -> Option<Version<'a>> {
    None
}

fn version(meta: &Meta) -> Version<'_> {
    (&meta.uid, &meta.resource_version)
}

fn named<'a>(names: impl Iterator<Item = &'a Arc<str>>) -> Vec<ObjectKey> {
    names.map(|name| ObjectKey::cluster(name)).collect()
}
