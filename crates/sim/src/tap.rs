//! The store in memory with a tap on it: every commit is seen by the oracle, and any commit can be made to fail.

use std::sync::{Arc, Mutex, MutexGuard};

use runyard_core::core::FlowWant;
use runyard_core::event::{Due, Release};
use runyard_core::ids::{ScheduleId, TaskId};
use runyard_core::name::Blob;
use runyard_core::now::{Clock, Now};
use runyard_core::schedule::{Run, ScheduleDue};
use runyard_core::session::{Session, SessionId};
use runyard_core::task::Task;
use runyard_core::write::{Loaded, Needs, Rows, WriteSet};
use runyard_store::memory::{FailCommit, MemoryStore};
use runyard_store::store::{Error, FlowRows, Purge, Purged, Reader, Result, Store};

#[derive(Clone, Default)]
pub struct Tap {
    store: MemoryStore,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    fail_next: Option<FailCommit>,
    has_failed: bool,
    committed: Vec<WriteSet>,
}

impl Tap {
    pub fn fail_next_commit(&self, fail: FailCommit) {
        self.lock().fail_next = Some(fail);
    }

    /// Was a commit made to fail since this was asked last? Any other failure is a finding.
    pub fn has_failed(&self) -> bool {
        std::mem::take(&mut self.lock().has_failed)
    }

    /// What was committed since this was asked last, whatever the caller was told about it.
    pub fn committed(&self) -> Vec<WriteSet> {
        std::mem::take(&mut self.lock().committed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("one thread runs one seed")
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
        let fail = self.lock().fail_next.take();
        if fail == Some(FailCommit::BeforeApply) {
            self.lock().has_failed = true;
            return Err(injected("committing nothing"));
        }
        let seq = self.store.commit(writes)?;
        self.lock().committed.push(writes.clone());
        if fail.is_some() {
            self.lock().has_failed = true;
            return Err(injected("answering a commit that was made"));
        }
        Ok(seq)
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

    fn sessions_after(&mut self, after: SessionId, limit: usize) -> Result<Vec<Session>> {
        self.store.sessions_after(after, limit)
    }

    fn merged(&mut self, task: TaskId) -> Result<Vec<Blob>> {
        self.store.merged(task)
    }

    fn dropped(&mut self, session: SessionId, from: u64, to: u64) -> Result<Vec<Blob>> {
        self.store.dropped(session, from, to)
    }

    fn schedules_due(&mut self, after: Option<ScheduleDue>, limit: usize) -> Result<Vec<ScheduleDue>> {
        self.store.schedules_due(after, limit)
    }

    fn run(&mut self, schedule: ScheduleId, n: u64) -> Result<Option<Run>> {
        self.store.run(schedule, n)
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

fn injected(doing: &'static str) -> Error {
    Error::Driver { doing, source: "the simulator asked for a failure".into() }
}
