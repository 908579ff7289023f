use runyard_core::event::{Asked, Due, NewTask, Release, Submission, SubmitMode};
use runyard_core::flow::{FlowKey, Place, Shape};
use runyard_core::ids::{ScheduleId, WorkerId};
use runyard_core::name::Blob;
use runyard_core::now;
use runyard_core::schedule::{Run, ScheduleDue};
use runyard_core::session::{Session, SessionId};
use runyard_core::task::{Task, Tier};
use runyard_core::worker::Vitals;
use runyard_core::write::{Loaded, Needs, Rows, WriteSet};
use runyard_store::memory::MemoryStore;
use runyard_store::store::{FlowRows, FlowWant, Purged, Reader, Result};

use super::*;
use crate::handle::Unavailable;

#[test]
fn what_may_be_poison_is_alone_and_the_inbox_has_its_turn() {
    let seen = |n| Event::WorkerSeen { worker: WorkerId(n), vitals: Vitals::default() };
    let number = |event: Option<Event>| match event {
        Some(Event::WorkerSeen { worker, .. }) => Some(worker.0),
        _ => None,
    };
    let mut alone = Alone::default();
    assert!(alone.next().is_none() && alone.is_empty());
    alone.set(seen(1), [seen(2), seen(3)]);
    let turns: Vec<_> = (0..6).map(|_| number(alone.next())).collect();
    assert_eq!(turns, [Some(1), None, Some(2), None, Some(3), None]);
    assert!(alone.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_can_never_be_committed_takes_nobody_down_with_it_for_long() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Poisoned(MemoryStore::new());
    let handle = Handle::new(store.reader());
    let options = SchedulerOptions {
        store: once(store),
        tenure: Tenure::Sole,
        prepare: Box::new(|| Ok(())),
        config: Box::new(Arc::default),
        purge: Box::new(|| crate::config::to_purge(&crate::config::Config::default())),
        data_dir: dir.path().to_owned(),
        grace_ms: 0,
        supervisor: None,
        process_defaults: Arc::new(Default::default),
        docker_defaults: Arc::new(Default::default),
        may_run: Arc::new(|_, _| Ok(())),
        guard: None,
        secrets: None,
        uploads: None,
        capacity: Resources { cpu_milli: 1000, ram_mb: 1000, named: Vec::new() },
        heartbeat: Box::new(|| Duration::from_secs(10)),
        vitals: Box::new(Vitals::default),
        desk: Arc::new(Desk::new(handle.clone())),
        observer: Box::new(NobodyWatches),
    };
    let scheduler = Scheduler::spawn(options, handle.clone()).expect("it starts");
    handle.ask(submit(POISON)).await.expect("its submit is harmless");
    let (mut n_dropped, mut n_stored) = (0, 0);
    while n_stored < 5 {
        match handle.ask(submit(TaskId(crate::clock::new_id()))).await {
            Ok(_) => n_stored += 1,
            Err(Unavailable::Recovering) => n_dropped += 1,
            Err(error) => panic!("{error}"),
        }
        assert!(n_dropped <= 3, "neighbours are dropped again and again");
        // Until the next recovery is over: else all of them are stored before the poison is there.
        let mut readiness = handle.readiness();
        readiness.changed().await.expect("the scheduler goes on");
    }
    handle.close();
    scheduler.worker.shutdown(Duration::ZERO).await;
}

const POISON: TaskId = TaskId(7);

fn submit(id: TaskId) -> impl FnOnce(Ticket) -> Event {
    let shape = Shape { kind: "noop".into(), resources: Resources::default(), place: Place::default() };
    let (agent, lane, gates) = ("a".into(), "main".into(), Vec::new());
    let flow = FlowKey { agent, lane, tier: Tier::Normal, shape, gates };
    let new = NewTask::new(id, flow, Blob::from(b"{}".to_vec()));
    let items = vec![new];
    move |ticket| {
        Event::Submit(Submission {
            ticket,
            batch: None,
            mode: SubmitMode::All,
            items,
            idempotency: None,
            asked: Asked::Once,
        })
    }
}

struct NobodyWatches;

impl Observer for NobodyWatches {
    fn committed(&self, _: &[Happening], _: usize, _: Duration) {}
    fn recovered(&self) {}
    fn purged(&self, _: &[TaskId]) {}
}

/// A store that panics over the end of one task, as a bug in the handling of one row would.
struct Poisoned(MemoryStore);

impl Store for Poisoned {
    fn commit(&mut self, writes: &WriteSet) -> Result<u64> {
        let ends = |task: &Task| task.id == POISON && task.phase().is_terminal();
        assert!(!writes.updates.iter().any(|update| ends(&update.task)), "the poison, as planned");
        self.0.commit(writes)
    }

    fn load(&mut self, salt: u64) -> Result<Loaded> {
        self.0.load(salt)
    }

    fn fetch(&mut self, needs: &Needs) -> Result<Rows> {
        self.0.fetch(needs)
    }

    fn flow_rows(&mut self, wants: &[FlowWant]) -> Result<Vec<FlowRows>> {
        self.0.flow_rows(wants)
    }

    fn dues(&mut self, clock: now::Clock, after: Option<Due>, limit: usize) -> Result<Vec<Due>> {
        self.0.dues(clock, after, limit)
    }

    fn released(&mut self, release: &Release, limit: usize) -> Result<Vec<Task>> {
        self.0.released(release, limit)
    }

    fn specs(&mut self, tasks: &[TaskId]) -> Result<Vec<Option<Blob>>> {
        self.0.specs(tasks)
    }

    fn sessions_after(&mut self, after: SessionId, limit: usize) -> Result<Vec<Session>> {
        self.0.sessions_after(after, limit)
    }

    fn merged(&mut self, task: TaskId) -> Result<Vec<Blob>> {
        self.0.merged(task)
    }

    fn dropped(&mut self, session: SessionId, from: u64, to: u64) -> Result<Vec<Blob>> {
        self.0.dropped(session, from, to)
    }

    fn schedules_due(&mut self, after: Option<ScheduleDue>, limit: usize) -> Result<Vec<ScheduleDue>> {
        self.0.schedules_due(after, limit)
    }

    fn run(&mut self, schedule: ScheduleId, n: u64) -> Result<Option<Run>> {
        self.0.run(schedule, n)
    }

    fn n_ahead(&mut self, task: &Task, limit: u32) -> Result<u32> {
        self.0.n_ahead(task, limit)
    }

    fn purge(&mut self, now: Now, purge: &Purge) -> Result<Purged> {
        self.0.purge(now, purge)
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.0.reader()
    }
}
