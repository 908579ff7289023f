//! A store that says how long it was busy, so that the rest of a tick is the core's.
//!
//! Processor time of this thread: the loop waits for nothing, and what neighbours on the machine do is not its speed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use runyard_core::event::{Due, Release};
use runyard_core::ids::{ScheduleId, TaskId};
use runyard_core::name::Blob;
use runyard_core::now::{Clock, Now};
use runyard_core::schedule::{Run, ScheduleDue};
use runyard_core::session::{Session, SessionId};
use runyard_core::task::Task;
use runyard_core::write::{Loaded, Needs, Rows, WriteSet};
use runyard_store::memory::MemoryStore;
use runyard_store::store::{FlowRows, FlowWant, Purge, Purged, Reader, Result, Store};
use rustix::time::{ClockId, clock_gettime};

#[derive(Clone, Default)]
pub struct Watch {
    nanos: Arc<AtomicU64>,
}

impl Watch {
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let began = processor_time();
        let done = work();
        self.nanos.fetch_add((processor_time() - began).as_nanos() as u64, Ordering::Relaxed);
        done
    }
}

pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

pub struct Timed {
    store: MemoryStore,
    watch: Watch,
}

impl Timed {
    pub fn new(store: MemoryStore, watch: Watch) -> Timed {
        Timed { store, watch }
    }
}

impl Store for Timed {
    fn load(&mut self, salt: u64) -> Result<Loaded> {
        self.watch.time(|| self.store.load(salt))
    }

    fn fetch(&mut self, needs: &Needs) -> Result<Rows> {
        self.watch.time(|| self.store.fetch(needs))
    }

    fn commit(&mut self, writes: &WriteSet) -> Result<u64> {
        self.watch.time(|| self.store.commit(writes))
    }

    fn flow_rows(&mut self, wants: &[FlowWant]) -> Result<Vec<FlowRows>> {
        self.watch.time(|| self.store.flow_rows(wants))
    }

    fn dues(&mut self, clock: Clock, after: Option<Due>, limit: usize) -> Result<Vec<Due>> {
        self.watch.time(|| self.store.dues(clock, after, limit))
    }

    fn released(&mut self, release: &Release, limit: usize) -> Result<Vec<Task>> {
        self.watch.time(|| self.store.released(release, limit))
    }

    fn specs(&mut self, tasks: &[TaskId]) -> Result<Vec<Option<Blob>>> {
        self.watch.time(|| self.store.specs(tasks))
    }

    fn sessions_after(&mut self, after: SessionId, limit: usize) -> Result<Vec<Session>> {
        self.watch.time(|| self.store.sessions_after(after, limit))
    }

    fn merged(&mut self, task: TaskId) -> Result<Vec<Blob>> {
        self.watch.time(|| self.store.merged(task))
    }

    fn dropped(&mut self, session: SessionId, from: u64, to: u64) -> Result<Vec<Blob>> {
        self.watch.time(|| self.store.dropped(session, from, to))
    }

    fn schedules_due(&mut self, after: Option<ScheduleDue>, limit: usize) -> Result<Vec<ScheduleDue>> {
        self.watch.time(|| self.store.schedules_due(after, limit))
    }

    fn run(&mut self, schedule: ScheduleId, n: u64) -> Result<Option<Run>> {
        self.watch.time(|| self.store.run(schedule, n))
    }

    fn n_ahead(&mut self, task: &Task, limit: u32) -> Result<u32> {
        self.watch.time(|| self.store.n_ahead(task, limit))
    }

    fn purge(&mut self, now: Now, purge: &Purge) -> Result<Purged> {
        self.watch.time(|| self.store.purge(now, purge))
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.store.reader()
    }
}
