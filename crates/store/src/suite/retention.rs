//! Rules of purge.

use runyard_core::batch::Batch;
use runyard_core::event::{FirstAnswer, HappeningKind, ParentEnd, Receipt, Release, Rest};
use runyard_core::now::Now;
use runyard_core::task::{Phase, Policy, State, Task};
use runyard_core::write::{Edge, Needs, WriteSet};

use super::Harness;
use super::fixture::*;
use crate::store::{Filter, Purge};

pub fn purge_keeps_live_tasks(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([task(1), in_state(State::Running(lease()), task(2)), with_ttl(0, task(3))]);
    assert!(fixture.purge(1_000_000, &Purge { retention_ms: 0, ..KEEP }).is_empty());
    assert_eq!(fixture.task(id(1)), task(1));
}

pub fn purge_takes_ended_tasks_after_their_time(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([ended(50, task(1)), task(2), ended(100, task(3)), ended(60, task(4))]);
    let purge = Purge { retention_ms: 1000, ..KEEP };
    assert!(fixture.purge(1049, &purge).is_empty());
    assert_eq!(fixture.purge(1060, &purge), [id(1), id(4)]);
    assert!(fixture.doc(id(1)).is_none());
    assert_eq!(fixture.store.specs(&[id(1)]).expect("it reads"), [None]);
    assert_eq!(fixture.purge(5000, &purge), [id(3)], "one that was too young at the first walk is found by the next");
    assert_eq!(fixture.reader().tasks(&Filter::default(), None, 9).expect("it reads").items.len(), 1);
}

pub fn purge_follows_a_tasks_own_ttl(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([with_ttl(10, ended(50, task(1))), with_ttl(5000, ended(50, task(2))), ended(50, task(3))]);
    let purge = Purge { retention_ms: 100, ..KEEP };
    assert!(fixture.purge(59, &purge).is_empty());
    assert_eq!(fixture.purge(60, &purge), [id(1)]);
    assert_eq!(fixture.purge(150, &purge), [id(3)]);
    assert_eq!(fixture.purge(5050, &purge), [id(2)]);
}

pub fn purge_keeps_a_parent_that_is_being_released(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([with_ttl(0, ended(5, task(1))), ended(5, task(2)), task(3)]);
    let releases = [1, 2].map(|seq| Release::Parent { parent: id(seq), ended: ParentEnd::Well });
    let edges_added = [1, 2].map(|seq| Edge { parent: id(seq), child: id(3) }).to_vec();
    fixture.commit(WriteSet { releases_added: releases.to_vec(), edges_added, ..WriteSet::default() });
    let purge = Purge { retention_ms: 0, ..KEEP };
    assert!(fixture.purge(1000, &purge).is_empty());
    for release in &releases {
        assert_eq!(fixture.store.released(release, 9).expect("it reads"), [task(3)]);
    }
    fixture.commit(WriteSet { releases_removed: releases.to_vec(), ..WriteSet::default() });
    assert_eq!(fixture.purge(1000, &purge), [id(1), id(2)]);
}

pub fn purge_works_in_chunks_until_done(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    // Live ones between them must not end the walk.
    let mixed = |seq: u64| if seq.is_multiple_of(3) { task(seq) } else { ended(seq, task(seq)) };
    fixture.insert((0..30).map(mixed));
    let purge = Purge { retention_ms: 0, limit: 4, ..KEEP };
    let first = fixture.store.purge(Now { wall_ms: 1000, steady_ms: 0 }, &purge).expect("it purges");
    assert!(first.tasks.len() <= 4 && first.rest == Rest::More);
    let rest = fixture.purge(1000, &purge);
    assert_eq!(first.tasks.len() + rest.len(), 20);
    let left = fixture.reader().tasks(&Filter::default(), None, 99).expect("it reads").items;
    assert!(left.iter().all(|doc| doc.task.seq.is_multiple_of(3)) && left.len() == 10);
}

pub fn purge_passes_over_live_tasks_in_the_smallest_chunks(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([task(0), task(1), ended(2, task(2)), task(3), ended(4, task(4))]);
    assert_eq!(fixture.purge(1000, &Purge { retention_ms: 0, limit: 1, ..KEEP }), [id(2), id(4)]);
}

pub fn purge_takes_edges_along(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([ended(5, task(1)), ended(5, task(2)), task(3)]);
    // The first is a child of a parent nobody knows, and a parent of one that lives.
    let edges_added = vec![Edge { parent: id(77), child: id(1) }, Edge { parent: id(1), child: id(3) }];
    fixture.commit(WriteSet { edges_added, ..WriteSet::default() });
    fixture.purge(1000, &Purge { retention_ms: 0, ..KEEP });
    for parent in [id(77), id(1)] {
        let release = Release::Parent { parent, ended: ParentEnd::Well };
        assert!(fixture.store.released(&release, 9).expect("it reads").is_empty());
    }
}

pub fn purge_keeps_a_batch_as_long_as_a_member(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let one = batch_id(1);
    fixture.insert([member(one, ended(5, task(1))), member(one, with_ttl(1000, ended(5, task(2))))]);
    let finished = Batch { finished_at: Some(5), ..batch(one) };
    let batches_added = vec![(finished, blob("spec")), (batch(batch_id(2)), blob("spec"))];
    fixture.commit(WriteSet { batches_added, ..WriteSet::default() });
    let purge = Purge { retention_ms: 10, ..KEEP };
    assert_eq!(fixture.purge(500, &purge), [id(1)]);
    assert!(fixture.reader().batch(one).expect("it reads").is_some());
    assert_eq!(fixture.purge(2000, &purge), [id(2)]);
    assert!(fixture.reader().batch(one).expect("it reads").is_none());
    assert!(fixture.reader().batch(batch_id(2)).expect("it reads").is_some(), "an unfinished batch stays");
}

pub fn purge_keeps_a_key_as_long_as_its_task(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([ended(5, task(1))]);
    let finished = Batch { finished_at: Some(5), ..batch(batch_id(1)) };
    let rows = vec![
        idempotency("task", FirstAnswer::Task { id: id(1), phase: Phase::Queued }, 1),
        idempotency("batch", FirstAnswer::Batch { id: batch_id(1), tasks: Vec::new() }, 1),
    ];
    fixture.commit(WriteSet {
        batches_added: vec![(finished, blob("spec"))],
        idempotency_added: rows.clone(),
        ..WriteSet::default()
    });
    fixture.purge(5000, &Purge { keys_ms_min: 10, ..KEEP });
    assert_eq!(n_keys(&mut fixture), 2);
    fixture.purge(5000, &Purge { keys_ms_min: 10, retention_ms: 10, ..KEEP });
    assert_eq!(n_keys(&mut fixture), 0);
    fixture.commit(WriteSet { idempotency_added: rows, ..WriteSet::default() });
}

pub fn purge_keeps_a_young_key_without_its_task(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.insert([with_ttl(0, ended(5, task(1)))]);
    let row = idempotency("task", FirstAnswer::Task { id: id(1), phase: Phase::Queued }, 1);
    fixture.commit(WriteSet { idempotency_added: vec![row], ..WriteSet::default() });
    let purge = Purge { keys_ms_min: 100, ..KEEP };
    assert_eq!(fixture.purge(50, &purge), [id(1)]);
    assert_eq!(n_keys(&mut fixture), 1);
    fixture.purge(101, &purge);
    assert_eq!(n_keys(&mut fixture), 0);
}

pub fn purge_takes_a_receipt_when_its_time_is_over(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let row = idempotency("task", FirstAnswer::Command(Receipt::Done), 1);
    fixture.commit(WriteSet { idempotency_added: vec![row], ..WriteSet::default() });
    let purge = Purge { keys_ms_min: 100, ..KEEP };
    fixture.purge(50, &purge);
    assert_eq!(n_keys(&mut fixture), 1);
    fixture.purge(101, &purge);
    assert_eq!(n_keys(&mut fixture), 0);
}

pub fn purge_takes_old_happenings(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    happen_at(&mut fixture, [10, 20, 30]);
    fixture.purge(120, &Purge { happenings_ms: 100, ..KEEP });
    assert_eq!(fixture.reader().happenings_range().expect("it reads"), Some((3, 3)));
}

pub fn purge_keeps_the_log_under_its_size(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    happen_at(&mut fixture, 1..=20);
    let mut n_left = |happenings_bytes_max| {
        fixture.purge(100, &Purge { happenings_bytes_max, limit: 3, ..KEEP });
        fixture.reader().happenings(0, 100).expect("it reads").len()
    };
    assert_eq!(n_left(1_000_000), 20);
    let some = n_left(300);
    assert!((1..20).contains(&some), "{some} left");
    assert_eq!(n_left(300), some, "what fits stays");
    assert_eq!(n_left(0), 0);
}

fn with_ttl(ttl_ms: u64, task: Task) -> Task {
    Task { policy: Policy { ttl_ms: Some(ttl_ms), ..task.policy }, ..task }
}

fn n_keys(fixture: &mut Fixture) -> usize {
    let any = FirstAnswer::Task { id: id(1), phase: Phase::Queued };
    let keys = ["task", "batch"].map(|name| idempotency(name, any.clone(), 0).key).to_vec();
    fixture.store.fetch(&Needs { keys, ..Needs::default() }).expect("it reads").keys.len()
}

fn happen_at(fixture: &mut Fixture, moments: impl IntoIterator<Item = u64>) {
    for wall_ms in moments {
        fixture.meta.now.wall_ms = wall_ms;
        let happenings = vec![happening(HappeningKind::TaskCreated, &task(wall_ms))];
        fixture.commit(WriteSet { happenings, ..WriteSet::default() });
    }
}
