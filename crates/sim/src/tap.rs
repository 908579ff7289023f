//! The store in memory with a tap on it: every commit is seen by the oracle, and any commit can be made to fail.

use std::sync::{Arc, Mutex};

use runyard_core::core::FlowWant;
use runyard_core::event::{Due, Release};
use runyard_core::ids::TaskId;
use runyard_core::name::Blob;
use runyard_core::now::{Clock, Now};
use runyard_core::task::Task;
use runyard_core::write::{Loaded, Needs, Rows, WriteSet};
use runyard_store::memory::{FailCommit, MemoryStore};
use runyard_store::store::{FlowRows, Purge, Purged, Reader, Result, Store};

#[derive(Clone, Default)]
pub struct Tap {
    store: MemoryStore,
    seen: Arc<Mutex<Vec<WriteSet>>>,
}

impl Tap {
    pub fn fail_next_commit(&self, fail: FailCommit) {
        self.store.fail_next_commit(fail);
    }

    /// What was committed since this was asked last, whatever the caller was told about it.
    pub fn committed(&self) -> Vec<WriteSet> {
        std::mem::take(&mut self.seen.lock().expect("one thread runs one seed"))
    }

    pub fn rows(&self) -> &MemoryStore {
        &self.store
    }
}

impl Store for Tap {
    fn load(&mut self, salt: u64) -> Result<Loaded> {
        self.store.load(salt)
    }

    fn fetch(&mut self, needs: &Needs) -> Result<Rows> {
        self.store.fetch(needs)
    }

    fn commit(&mut self, writes: &WriteSet) -> Result<u64> {
        let before = self.store.n_commits();
        let result = self.store.commit(writes);
        if self.store.n_commits() > before {
            self.seen.lock().expect("one thread runs one seed").push(writes.clone());
        }
        result
    }

    fn flow_rows(&mut self, wants: &[FlowWant]) -> Result<Vec<FlowRows>> {
        self.store.flow_rows(wants)
    }

    fn dues(&mut self, clock: Clock, after: Option<Due>, limit: usize) -> Result<Vec<Due>> {
        self.store.dues(clock, after, limit)
    }

    fn released(&mut self, release: &Release, limit: usize) -> Result<Vec<Task>> {
        self.store.released(release, limit)
    }

    fn specs(&mut self, tasks: &[TaskId]) -> Result<Vec<Option<Blob>>> {
        self.store.specs(tasks)
    }

    fn n_ahead(&mut self, task: &Task, limit: u32) -> Result<u32> {
        self.store.n_ahead(task, limit)
    }

    fn purge(&mut self, now: Now, purge: &Purge) -> Result<Purged> {
        self.store.purge(now, purge)
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.store.reader()
    }
}
