//! A purge changes no sum, is whole or not done, and names that it removed do not come back.

use super::*;
use crate::record::recorder::CommitError;
use crate::visibility::history::{PURGED, PurgeTopic, PurgedRows, ReadRecord as _};

impl World {
    fn purge(&self) -> PurgedRows {
        self.recorder().purge_names("ns", time(self.now)).unwrap()
    }

    /// Rows that have names.
    fn named(&self) -> PurgedRows {
        let topic = PurgeTopic::of("ns", true).unwrap();
        self.recorder().purge(&topic, time(self.now)).unwrap()
    }

    /// Hours by namespace.
    fn by_namespace(&self) -> Vec<(String, i128)> {
        let cohorts = BTreeMap::new();
        let (from, until) = (time(-1), time(self.now));
        let by = UsageGroup::Namespace;
        let query = UsageQuery { by, from, until, resource: None, namespace: None, cohorts: &cohorts };
        let usage = self.recorder().read_usage(&query, &self.ring.view(), until).unwrap().usage;
        usage.rows.into_iter().map(|row| (row.group, row.used)).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn purges_at_any_time_change_no_sum(steps in steps(), places in prop::collection::vec(any::<prop::sample::Index>(), 1..4)) {
        let mut world = World::new();
        let places: Vec<usize> = places.iter().map(|place| place.index(steps.len())).collect();
        for (number, step) in steps.iter().enumerate() {
            if places.contains(&number) {
                world.purge();
                let left = world.named();
                prop_assert_eq!((left.records, left.sums), (0, 0));
            }
            world.step(*step);
        }
        world.check()?;
        let (named, purged) = (world.named(), world.purge());
        prop_assert_eq!(named, purged, "a dry run counts what a purge removes");
        world.check()?;
        world.start();
        world.check()?;
    }
}

#[test]
fn objects_that_are_still_stored_bring_no_names_back() {
    let mut world = played(&[
        (0, Step::Create, 1),
        (0, Step::Admit(3), 9),
        (0, Step::Evict, 100),
        (0, Step::Release, 10),
        (0, Step::Admit(3), 9),
        (0, Step::Finish, 100),
    ]);
    world.check().unwrap();
    let used = world.by_namespace();
    assert_eq!(used.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["ns"]);
    let purged = world.purge();
    assert!(purged.records > 3 && purged.sums > 0 && purged.running == 0, "{purged:?}");
    for _ in 0..2 {
        world.start();
        world.check().unwrap();
        assert_eq!(world.named(), PurgedRows::default());
        assert_eq!(world.by_namespace(), [(PURGED.to_owned(), used[0].1)]);
    }
    assert_eq!(world.purge(), PurgedRows::default(), "nothing is left");
}

#[test]
fn what_runs_keeps_its_names_and_is_recorded_on() {
    let mut world = played(&[(0, Step::Create, 1), (0, Step::Admit(3), 9), (0, Step::Commit, 7_200)]);
    assert_eq!(world.purge().running, 1);
    world.step((0, Step::Finish, 100, false));
    world.check().unwrap();
    assert!(world.named().records > 0);
}

#[test]
fn a_purge_on_a_full_disk_removes_nothing_and_loses_no_entry() {
    let mut world = played(&[(0, Step::Create, 1), (0, Step::Admit(3), 9), (0, Step::Finish, 100)]);
    world.check().unwrap();
    let named = world.named();
    assert!(named.records > 0);
    world.step((1, Step::Create, 1, false));
    world.step((1, Step::Admit(2), 1, false));
    faults::set_full(&world.path, true);
    for _ in 0..2 {
        let refused = world.recorder().purge_names("ns", time(world.now));
        assert!(matches!(refused, Err(CommitError::Failed(_))), "{refused:?}");
    }
    faults::set_full(&world.path, false);
    world.check().unwrap();
    assert!(world.named().records >= named.records, "nothing was removed");
    world.purge();
    assert_eq!(world.named().records, 0);
    world.check().unwrap();
}
