//! The suite on the memory driver, and the failures it can be asked for.

#![allow(clippy::unwrap_used)]

use runyard_core::write::WriteSet;
use runyard_store::memory::{FailCommit, MemoryStore};
use runyard_store::store::{Error, Store};
use runyard_store::suite::Harness;
use runyard_store::suite::fixture::{Fixture, id, insert, task};

struct Memory;

impl Harness for Memory {
    fn fresh(&mut self) -> Box<dyn Store> {
        Box::new(MemoryStore::new())
    }

    /// The content outlives whoever drove it: there is nothing to close.
    fn reopen(&mut self, store: Box<dyn Store>) -> Box<dyn Store> {
        store
    }
}

runyard_store::store_suite!(Memory);

#[test]
fn a_commit_can_fail_without_and_with_its_writes() {
    let store = MemoryStore::new();
    let mut fixture = Fixture::new(Box::new(store.clone()));
    let one = |seq| WriteSet { inserts: vec![insert(task(seq))], ..WriteSet::default() };
    store.fail_next_commit(FailCommit::BeforeApply);
    assert!(matches!(fixture.try_commit(one(1)), Err(Error::Driver { .. })));
    assert!(fixture.doc(id(1)).is_none());
    store.fail_next_commit(FailCommit::AfterApply);
    assert!(matches!(fixture.try_commit(one(2)), Err(Error::Driver { .. })));
    assert!(fixture.doc(id(2)).is_some());
    fixture.commit(one(3));
}

#[test]
fn a_clone_is_the_same_store() {
    let store = MemoryStore::new();
    let mut fixture = Fixture::new(Box::new(store.clone()));
    fixture.insert([task(1)]);
    drop(fixture);
    assert_eq!(Fixture::new(Box::new(store)).task(id(1)), task(1));
}
