//! Workers that registered.

use runyard_core::flow::Resources;
use runyard_core::ids::WorkerId;
use runyard_core::worker::{WorkerRow, WorkerSpec};
use runyard_core::write::WriteSet;

use super::Harness;
use super::fixture::Fixture;

fn worker(id: u128) -> WorkerRow {
    let spec = WorkerSpec {
        id: WorkerId(id),
        name: format!("box-{id}").into(),
        kinds: vec!["process".into(), "resize".into()],
        keeps: vec!["process".into()],
        capacity: Resources { cpu_milli: 4500, ram_mb: 8192, named: vec![("gpu".into(), 2)] },
        parallel_max: Some(3),
        labels: vec![("zone".into(), "a".into())],
        embedded: false,
    };
    WorkerRow { spec, session: u64::MAX - 1, draining: false, registered_at: 77, about: b"{}".as_slice().into() }
}

pub fn a_worker_comes_back_as_it_was_written(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    let own = WorkerSpec { embedded: true, ..worker(2).spec };
    let (first, second) = (worker(1), WorkerRow { draining: true, spec: own, ..worker(2) });
    fixture.commit(WriteSet { workers_put: vec![second.clone(), first.clone()], ..WriteSet::default() });
    fixture = Fixture::new(harness.reopen(fixture.store));
    assert_eq!(fixture.reader().workers().expect("it reads"), [first.clone(), second.clone()]);
    assert_eq!(fixture.store.load(1).expect("it loads").workers, [first, second]);
}

pub fn a_changed_worker_replaces_its_row(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.commit(WriteSet { workers_put: vec![worker(1)], ..WriteSet::default() });
    let later = WorkerRow { session: 5, draining: true, ..worker(1) };
    fixture.commit(WriteSet { workers_put: vec![later.clone()], ..WriteSet::default() });
    assert_eq!(fixture.reader().workers().expect("it reads"), [later]);
}

pub fn a_removed_worker_is_gone(harness: &mut dyn Harness) {
    let mut fixture = Fixture::new(harness.fresh());
    fixture.commit(WriteSet { workers_put: vec![worker(1), worker(2)], ..WriteSet::default() });
    fixture.commit(WriteSet { workers_removed: vec![WorkerId(1), WorkerId(9)], ..WriteSet::default() });
    assert_eq!(fixture.reader().workers().expect("it reads"), [worker(2)]);
}
