//! Rows to write, and a store that keeps its own numbers.

use runyard_core::batch::Batch;
use runyard_core::event::{
    FirstAnswer, Happening, HappeningKind, Idempotency, IdempotencyRow, Rest, Subject, TaskFacts,
};
use runyard_core::flow::{FlowKey, Place, Resources, Shape};
use runyard_core::ids::{BatchId, FlowId, ScheduleId, TaskId, Token, WorkerId};
use runyard_core::name::Blob;
use runyard_core::now::Now;
use runyard_core::schedule::{
    CatchUp, Cause, Outcome, Overlap, Rules, Run, Schedule, ScheduleBody, Standing, Template, Timing,
};
use runyard_core::session::{Member, Message, Session, SessionId};
use runyard_core::task::{Lease, Phase, Policy, State, Task, Tier, Wait};
use runyard_core::write::{Insert, Meta, ScheduleRow, SessionDrop, Update, WriteSet};

use crate::store::{Purge, Reader, Result, Store, TaskDoc};

/// A store with the meta row that its next commit writes.
pub struct Fixture {
    pub store: Box<dyn Store>,
    pub meta: Meta,
}

impl Fixture {
    pub fn new(mut store: Box<dyn Store>) -> Fixture {
        let meta = store.load(1).expect("a store loads").meta;
        Fixture { store, meta }
    }

    /// Fills in the meta row and commits.
    pub fn try_commit(&mut self, writes: WriteSet) -> Result<u64> {
        self.store.commit(&WriteSet { meta: self.meta, ..writes })
    }

    pub fn commit(&mut self, writes: WriteSet) -> u64 {
        self.try_commit(writes).expect("a valid commit succeeds")
    }

    pub fn insert(&mut self, tasks: impl IntoIterator<Item = Task>) {
        let inserts = tasks.into_iter().map(insert).collect();
        self.commit(WriteSet { inserts, ..WriteSet::default() });
    }

    /// Writes the task over what is stored of it now.
    pub fn update(&mut self, task: Task) {
        let from = self.guard(task.id);
        self.commit(WriteSet { updates: vec![update(task, from)], ..WriteSet::default() });
    }

    pub fn guard(&self, id: TaskId) -> (Phase, u32) {
        let task = self.doc(id).expect("the task exists").task;
        (task.phase(), task.attempt)
    }

    pub fn doc(&self, id: TaskId) -> Option<TaskDoc> {
        self.reader().task(id).expect("a task reads")
    }

    pub fn task(&self, id: TaskId) -> Task {
        self.doc(id).expect("the task exists").task
    }

    pub fn reader(&self) -> std::sync::Arc<dyn Reader> {
        self.store.reader()
    }

    /// Purges until nothing is left to do; gives what went.
    pub fn purge(&mut self, wall_ms: u64, purge: &Purge) -> Vec<TaskId> {
        let now = Now { wall_ms, steady_ms: 0 };
        let mut gone = Vec::new();
        for _ in 0..CHUNKS_MAX {
            let purged = self.store.purge(now, purge).expect("a purge succeeds");
            gone.extend(purged.tasks);
            if purged.rest == Rest::Done {
                gone.sort();
                return gone;
            }
        }
        panic!("a purge is not done after {CHUNKS_MAX} chunks");
    }
}

pub fn id(seq: u64) -> TaskId {
    TaskId(u128::from(seq) + 1000)
}

pub fn batch_id(n: u64) -> BatchId {
    BatchId(u128::from(n) + 5000)
}

/// Queued in flow 1, created at `seq` milliseconds.
pub fn task(seq: u64) -> Task {
    Task { state: State::Queued { since_ms: 5 }, ..Task::new(id(seq), seq, FlowId(1), seq) }
}

pub fn in_state(state: State, task: Task) -> Task {
    Task { state, ..task }
}

pub fn in_flow(flow: u64, task: Task) -> Task {
    Task { flow: FlowId(flow), ..task }
}

pub fn ranked(rank: i32, task: Task) -> Task {
    Task { rank, ..task }
}

pub fn ended(at_ms: u64, task: Task) -> Task {
    Task { state: State::Completed, finished_at: Some(at_ms), ..task }
}

/// Its own ttl is over at once.
pub fn with_own_ttl(task: Task) -> Task {
    Task { policy: Policy { ttl_ms: Some(0), ..task.policy }, ..task }
}

pub fn member(batch: BatchId, task: Task) -> Task {
    Task { batch: Some(batch), ..task }
}

/// Not joined yet.
pub fn in_session(n: u64, task: Task) -> Task {
    Task { member: Some(Member::new(session_id(n))), ..task }
}

/// Waits for a seat, with this number in the line.
pub fn in_line(n: u64, line: u64, task: Task) -> Task {
    let member = Member { line, ..Member::new(session_id(n)) };
    Task { member: Some(member), state: State::Waiting(Wait::Seat), ..task }
}

pub fn seated(n: u64, task: Task) -> Task {
    let member = Member { line: 1, seated: true, ..Member::new(session_id(n)) };
    Task { member: Some(member), ..task }
}

pub fn session_id(n: u64) -> SessionId {
    SessionId(n + 100)
}

/// With the key `key n`, one live member and nothing else.
pub fn session(n: u64) -> Session {
    let new = Session::new(session_id(n), format!("key {n}").into(), "main".into(), n);
    Session { n_live: 1, live_from: 0, ..new }
}

/// The `n`-th that was merged into a task.
pub fn message(task: &Task, n: u32) -> (Message, Blob) {
    let (task, task_seq) = (task.id, task.seq);
    let message = Message { task, task_seq, n, at_ms: 7, sent_at: None, key: None };
    (message, blob(format!("message {n} of {task_seq}")))
}

pub fn session_drop(session: u64, n: u64, task: &Task) -> SessionDrop {
    SessionDrop { session: session_id(session), n, task: task.id, task_seq: task.seq }
}

pub fn schedule_id(n: u64) -> ScheduleId {
    ScheduleId(u128::from(n) << 70 | 3)
}

/// Every ten milliseconds, as `schedule n`, next for this moment; with 0 for none.
pub fn schedule_row(n: u64, next_for: u64) -> ScheduleRow {
    let rules = Rules {
        timing: Timing::Every { every_ms: 10, anchor: 0 },
        overlap: Overlap::Skip,
        catch_up: CatchUp::Skip,
        stagger_ms: 0,
        jitter_ms: 0,
        from: None,
        until: None,
        runs_max: None,
        delete_after_run: false,
        alert_after: None,
        pause_after: None,
    };
    let schedule = Schedule {
        id: schedule_id(n),
        name: format!("schedule {n}").into(),
        rules,
        standing: Standing::Enabled,
        revision: 1,
        next_for: Some(next_for).filter(|at| *at > 0),
        done_to: 0,
        n_runs: 0,
        n_live: 0,
        n_failed_in_row: 0,
        is_alerted: false,
        created_at: n,
        changed_at: n,
    };
    let template = Template { flow: key("ada"), rank: 0, policy: Policy::default(), session: None, spec: blob("task") };
    ScheduleRow { schedule, body: Some(ScheduleBody { template, spec: blob(format!("spec {n}")) }) }
}

/// Live, by its time.
pub fn run(schedule: u64, n: u64, scheduled_for: u64) -> Run {
    Run {
        schedule: schedule_id(schedule),
        n,
        name: format!("schedule {schedule}").into(),
        scheduled_for,
        cause: Cause::Time,
        task: Some(id(n)),
        outcome: Outcome::Live,
        created_at: scheduled_for,
        started_at: None,
        ended_at: None,
        attempts: 0,
        class: None,
        reason: "".into(),
        usage: None,
        tail: None,
    }
}

pub fn lease() -> Lease {
    Lease { worker: WorkerId(9), token: Token(u64::MAX - 3), order: 4, since_ms: 77, stop: None }
}

pub fn key(agent: &str) -> FlowKey {
    let shape = Shape { kind: "noop".into(), resources: Resources::default(), place: Place::default() };
    FlowKey { agent: agent.into(), lane: "main".into(), tier: Tier::Normal, shape, gates: Vec::new() }
}

pub fn insert(task: Task) -> Insert {
    let spec = Some(blob(format!("spec of {}", task.seq)));
    Insert { task, key: key("ada").into(), spec, result: None }
}

pub fn update(task: Task, from: (Phase, u32)) -> Update {
    Update { task, from, key: None, result: None }
}

pub fn batch(id: BatchId) -> Batch {
    Batch {
        id,
        parallelism: Some(2),
        calls_back: false,
        n_total: 3,
        n_completed: 1,
        n_failed: 0,
        n_cancelled: 0,
        n_places: 1,
        n_waiting: 1,
        created_at: 10,
        finished_at: None,
    }
}

pub fn idempotency(name: &str, answer: FirstAnswer, created_at: u64) -> IdempotencyRow {
    let key = Idempotency { agent: "ada".into(), key: name.into(), hash: u64::MAX - 1 };
    IdempotencyRow { key, answer, created_at }
}

pub fn happening(kind: HappeningKind, task: &Task) -> Happening {
    let FlowKey { agent, lane, tier, shape, .. } = key("ada");
    let facts = TaskFacts {
        task: task.id,
        agent,
        lane,
        kind: shape.kind,
        tier,
        batch: task.batch,
        session: None,
        attempt: task.attempt,
        class: None,
        reason: "".into(),
        elapsed_ms: Some(3),
    };
    Happening { kind, at_ms: task.created_at, subject: Subject::Task(facts) }
}

pub fn blob(text: impl AsRef<[u8]>) -> Blob {
    Blob::from(text.as_ref())
}

/// More than any rule's rows need, so that a purge that goes round in a circle fails instead of hanging.
pub const CHUNKS_MAX: usize = 10_000;

/// Keeps everything for ever; rules change what they are about.
pub const KEEP: Purge = Purge {
    retention_ms: u64::MAX,
    keys_ms_min: u64::MAX,
    happenings_ms: u64::MAX,
    happenings_bytes_max: u64::MAX,
    deliveries_ms: u64::MAX,
    runs_ms: u64::MAX,
    runs_max: u64::MAX,
    limit: 1000,
};
