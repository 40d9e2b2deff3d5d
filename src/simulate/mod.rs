//! What a cluster would do, without one: the same core fed from manifests or recorded scenarios, in virtual time.
