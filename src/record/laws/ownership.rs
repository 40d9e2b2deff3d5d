//! One process owns the file from its start to its end. Entries of another process are neither overwritten nor counted twice.

use super::*;
use crate::record::recorder::CommitError;
use crate::record::store::OpenError;
use std::fs;

/// A run of 3 that is in the file, and that has ended since.
fn with_an_end() -> World {
    let mut world = played(&[(0, Step::Create, 1), (0, Step::Admit(3), 9), (0, Step::Commit, 1)]);
    world.pass(500);
    assert!(world.objects[0].apply(Step::Finish, world.now));
    world.observe(0);
    world.waiting.append(&mut world.ring.take_entries(time(world.now)));
    world
}

impl World {
    fn try_commit(&self) -> Result<(), CommitError> {
        self.recorder().commit(&self.waiting, time(self.now), Some(time(self.now)))
    }

    /// The file after another process has recorded the end, on another node.
    fn written_elsewhere(&self) -> Vec<u8> {
        let copy = self.path.with_extension("copy");
        fs::copy(&self.path, &copy).unwrap();
        let (other, left) = Recorder::open(&copy, time(self.now)).unwrap();
        assert_eq!(left.runs.len(), 1);
        other.commit(&self.waiting, time(self.now), Some(time(self.now))).unwrap();
        drop(other);
        let bytes = fs::read(&copy).unwrap();
        fs::remove_file(copy).unwrap();
        bytes
    }

    /// Ends this process, and checks what the next one counts.
    fn check_next(mut self, expected: &[u8]) {
        self.recorder = None;
        assert!(fs::read(&self.path).unwrap() == expected, "nothing was written over it");
        self.start();
        self.check().unwrap();
    }
}

#[test]
fn a_full_disk_does_not_give_the_file_to_another_process() {
    let mut world = with_an_end();
    faults::set_full(&world.path, true);
    for _ in 0..2 {
        assert!(matches!(world.try_commit(), Err(CommitError::Failed(_))));
        assert!(matches!(Recorder::open(&world.path, time(0)), Err(OpenError::Locked(_))));
    }
    faults::set_full(&world.path, false);
    world.commit();
    assert!(matches!(Recorder::open(&world.path, time(0)), Err(OpenError::Locked(_))));
    world.check().unwrap();
}

#[test]
fn entries_of_another_process_are_kept_and_counted_once() {
    for full in [false, true] {
        let world = with_an_end();
        if full {
            faults::set_full(&world.path, true);
            assert!(matches!(world.try_commit(), Err(CommitError::Failed(_))));
        }
        let bytes = world.written_elsewhere();
        fs::write(&world.path, &bytes).unwrap();
        faults::set_full(&world.path, false);
        for _ in 0..2 {
            assert!(matches!(world.try_commit(), Err(CommitError::Lost)), "full: {full}");
        }
        if full {
            // The database has opened the file again, which changes no row.
            let mut world = world;
            world.start();
            world.check().unwrap();
        } else {
            world.check_next(&bytes);
        }
    }
}

#[test]
fn a_file_that_is_replaced_or_removed_is_not_written() {
    for full in [false, true] {
        let world = with_an_end();
        let bytes = fs::read(&world.path).unwrap();
        if full {
            faults::set_full(&world.path, true);
            assert!(matches!(world.try_commit(), Err(CommitError::Failed(_))));
        }
        fs::remove_file(&world.path).unwrap();
        faults::set_full(&world.path, false);
        assert!(matches!(world.try_commit(), Err(CommitError::Lost)), "full: {full}");
        fs::write(&world.path, &bytes).unwrap();
        assert!(matches!(world.try_commit(), Err(CommitError::Lost)), "full: {full}");
        world.check_next(&bytes);
    }
}

/// After a failed write the database refuses all other calls: the file is opened again, and waiting entries are committed once.
#[test]
fn a_full_disk_delays_entries_and_loses_none() {
    let mut world = played(&[(0, Step::Create, 1), (0, Step::Admit(3), 9), (0, Step::Commit, 1)]);
    faults::set_full(&world.path, true);
    world.pass(500);
    assert!(world.objects[0].apply(Step::Finish, world.now));
    world.observe(0);
    world.waiting.append(&mut world.ring.take_entries(time(world.now)));
    for _ in 0..3 {
        assert!(world.recorder().commit(&world.waiting, time(world.now), None).is_err());
    }
    faults::set_full(&world.path, false);
    world.commit();
    world.check().unwrap();
    let (reading, state) = world.recorder().reading().unwrap();
    assert_eq!(state.len(), 0);
    let mut finished = 0;
    let count = |_| {
        finished += 1;
        true
    };
    reading.newest_records(RecordKind::Finish, i64::MIN, count).unwrap();
    assert_eq!(finished, 1);
}
