//! The seam between the scheduler and its database.
//!
//! [`Store`] is what the tick loop writes and reads through: blocking, one caller, no policy. A driver writes what it
//! is told, in one transaction, guarded by (phase, attempt) of each changed row and by the epoch of the whole store; it
//! never decides anything. [`Reader`] is what everyone else reads through: lists, single tasks, the event log.
//! Readers see committed rows only.

use std::path::Path;

use runyard_core::batch::Batch;
pub use runyard_core::core::FlowWant;
use runyard_core::event::{Due, Happening, HappeningKind, Release, Rest};
use runyard_core::flow::FlowKey;
use runyard_core::ids::{BatchId, FlowId, ScheduleId, TaskId};
use runyard_core::name::{Blob, Name};
use runyard_core::now::{Clock, Now, WallMs};
use runyard_core::outbox::{Delivery, DeliveryId, DeliveryState};
use runyard_core::schedule::{Run, Schedule, ScheduleDue};
use runyard_core::session::{Message, Session, SessionId};
use runyard_core::task::{Phase, Task, Tier};
use runyard_core::worker::WorkerRow;
use runyard_core::write::{CountDelta, CountKey, Loaded, Needs, Rows, WriteSet};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A guard did not hold: somebody else wrote, or memory and store disagree. The core must be dropped and reloaded.
    #[error("row of task {task:?} is not as it was: {detail}")]
    Conflict { task: Option<TaskId>, detail: String },
    /// A later epoch has taken this store over.
    #[error("this holder's epoch {ours} is over: the store is at {theirs}")]
    Fenced { ours: u64, theirs: u64 },
    #[error("the data is of a later version ({found}) than this program knows ({known}); use a newer runyard")]
    TooNew { found: u32, known: u32 },
    /// Another process writes this data.
    #[error("the data is in use by {} (it holds {})", by_whom(.holder.as_ref()), .path.display())]
    Locked { path: std::path::PathBuf, holder: Option<Holder> },
    #[error("{what} is damaged: {detail}")]
    Damaged { what: &'static str, detail: String },
    /// The database cannot be reached, or went away in the middle: the same may go well later.
    #[error("{doing}: the database is away")]
    Away {
        doing: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("{doing}")]
    Driver {
        doing: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

pub type Result<T> = std::result::Result<T, Error>;

/// Who has a store open for writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    pub user: User,
    pub pid: u32,
}

/// What it does with the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum User {
    /// Keeps it until it is told to stop.
    #[default]
    Server,
    /// Is gone in a moment.
    Tick,
}

impl User {
    pub fn as_str(self) -> &'static str {
        match self {
            User::Server => "server",
            User::Tick => "tick",
        }
    }

    pub fn parse(text: &str) -> Option<User> {
        [User::Server, User::Tick].into_iter().find(|user| user.as_str() == text)
    }
}

fn by_whom(holder: Option<&Holder>) -> String {
    holder.map_or("another runyard".to_owned(), |holder| format!("a {} with pid {}", holder.user.as_str(), holder.pid))
}

/// One caller: the tick loop. Everything it reads it may trust until its next commit.
pub trait Store {
    /// Takes the store over (raises the epoch, durably) and reads what a core starts from. `salt` is used when the store
    /// has none yet.
    fn load(&mut self, salt: u64) -> Result<Loaded>;

    /// Rows by key. What does not exist is simply not in the answer.
    fn fetch(&mut self, needs: &Needs) -> Result<Rows>;

    /// All of it or nothing, durable when it returns. Gives the sequence number of its happenings in the event log; a
    /// commit without happenings gives the last one used.
    fn commit(&mut self, writes: &WriteSet) -> Result<u64>;

    /// Heads of queues: for each request the queued tasks of that flow in (rank, seq) order after `after`, and the
    /// queued task of that flow with the least seq.
    fn flow_rows(&mut self, wants: &[FlowWant]) -> Result<Vec<FlowRows>>;

    /// The due index of one clock, in (at, seq) order, after `after`.
    fn dues(&mut self, clock: Clock, after: Option<Due>, limit: usize) -> Result<Vec<Due>>;

    /// Tasks that a release is about.
    ///
    /// - `Parent`, `BatchPlace`: children by their edges, or batch members that wait for a place, in seq order.
    /// - `SessionStop`: live members with `from <= seq < before`, in seq order.
    /// - `SessionSeat`, `SessionOverflow`: members in line without a seat (`Task::in_line`), in line order.
    /// - `SessionShrink`: seated members that are waiting or queued, in seq order.
    /// - `SessionReview` is about sessions and gives no task; see [`Store::sessions_after`].
    fn released(&mut self, release: &Release, limit: usize) -> Result<Vec<Task>>;

    /// Specs of tasks about to start, in the order asked.
    fn specs(&mut self, tasks: &[TaskId]) -> Result<Vec<Option<Blob>>>;

    /// Rows of sessions in the order of their ids, whatever their state.
    fn sessions_after(&mut self, after: SessionId, limit: usize) -> Result<Vec<Session>>;

    /// The messages that were merged into a task, in their order, as submitted.
    fn merged(&mut self, task: TaskId) -> Result<Vec<Blob>>;

    /// What a session's dropped tasks `from <= n < to` carried, in that order: each task's own message, then those merged
    /// into it.
    fn dropped(&mut self, session: SessionId, from: u64, to: u64) -> Result<Vec<Blob>>;

    /// Enabled schedules in the order of (due moment, id), after `after`, whether their time has come or not.
    fn schedules_due(&mut self, after: Option<ScheduleDue>, limit: usize) -> Result<Vec<ScheduleDue>>;

    fn run(&mut self, schedule: ScheduleId, n: u64) -> Result<Option<Run>>;

    /// How many queued tasks of its flow stand before this one, counted up to `limit`.
    fn n_ahead(&mut self, task: &Task, limit: u32) -> Result<u32>;

    /// One chunk of retention: ended tasks past their time, with their specs, keys, edges; old batches, keys, happenings
    /// and deliveries. What a pending delivery tells of stays. `Rest::More` when another chunk is waiting.
    fn purge(&mut self, now: Now, purge: &Purge) -> Result<Purged>;

    /// Readers for everyone else, on the same data.
    fn reader(&self) -> std::sync::Arc<dyn Reader>;
}

#[derive(Clone, Debug)]
pub struct FlowRows {
    pub flow: FlowId,
    pub rows: Vec<Task>,
    pub oldest: Option<Box<Task>>,
    pub rest: Rest,
}

#[derive(Clone, Copy, Debug)]
pub struct Purge {
    /// Ended tasks without a ttl of their own are kept so long after their end.
    pub retention_ms: u64,
    /// Idempotency keys live as long as their task and at least so long.
    pub keys_ms_min: u64,
    pub happenings_ms: u64,
    pub happenings_bytes_max: u64,
    /// Messages that are delivered or given up are kept so long after what they told of.
    pub deliveries_ms: u64,
    /// Ended runs are kept so long, and so many of each schedule.
    pub runs_ms: u64,
    pub runs_max: u64,
    /// Rows looked at in one chunk.
    pub limit: usize,
}

#[derive(Clone, Debug)]
pub struct Purged {
    /// Tasks that are gone; their logs may go too.
    pub tasks: Vec<TaskId>,
    pub rest: Rest,
}

/// Shared by the API: many callers, each call its own snapshot.
pub trait Reader: Send + Sync {
    fn task(&self, id: TaskId) -> Result<Option<TaskDoc>>;

    /// Newest first. `after` is the `seq` a page ended with. A page may be short of `limit` and still have a
    /// `next`: a filter looks at a bounded number of rows for each page, and a page that has reached
    /// [`PAGE_BYTES_MAX`] ends.
    fn tasks(&self, filter: &Filter, after: Option<u64>, limit: usize) -> Result<Page>;

    /// The same list without what the tasks carry, for whoever acts on each of them.
    fn task_ids(&self, filter: &Filter, after: Option<u64>, limit: usize) -> Result<IdPage>;

    /// The messages that were merged into a task, in their order.
    fn messages(&self, id: TaskId) -> Result<Vec<(Message, Blob)>>;

    fn session(&self, key: &str) -> Result<Option<Session>>;

    /// Latest created first. `after` is the id a page ended with; a page may be short of `limit` and still have a `next`.
    fn sessions(&self, filter: &SessionFilter, after: Option<SessionId>, limit: usize) -> Result<SessionPage>;

    fn batch(&self, id: BatchId) -> Result<Option<(Batch, Blob)>>;

    /// Kept counts, not counted ones: the cost is the number of agent × lane pairs.
    fn counts(&self) -> Result<Vec<(CountKey, CountDelta)>>;

    fn flows(&self) -> Result<u64>;

    /// The event log in order, from the first commit after `after`.
    fn happenings(&self, after: u64, limit: usize) -> Result<Vec<(u64, Vec<Happening>)>>;

    /// The first and last sequence numbers the event log still holds; `None` when it is empty.
    fn happenings_range(&self) -> Result<Option<(u64, u64)>>;

    fn delivery(&self, id: DeliveryId) -> Result<Option<Delivery>>;

    /// Pending ones in (next_at, id) order, after `after`, whether their time has come or not.
    fn deliveries_due(&self, after: Option<(WallMs, DeliveryId)>, limit: usize) -> Result<Vec<Delivery>>;

    /// Newest first. `after` is the id a page ended with; a page may be short of `limit` and still have a `next`.
    fn deliveries(&self, filter: &DeliveryFilter, after: Option<DeliveryId>, limit: usize) -> Result<DeliveryPage>;

    /// With the schedule as it was submitted.
    fn schedule(&self, id: ScheduleId) -> Result<Option<(Schedule, Blob)>>;

    fn schedule_named(&self, name: &str) -> Result<Option<ScheduleId>>;

    /// Latest created first. `after` is the id a page ended with; a page may be short of `limit` and still have a `next`.
    fn schedules(&self, filter: &ScheduleFilter, after: Option<ScheduleId>, limit: usize) -> Result<SchedulePage>;

    fn schedule_counts(&self) -> Result<ScheduleCounts>;

    /// Latest first. `before` is the number a page ended with. Runs outlive their schedule.
    fn runs(&self, schedule: ScheduleId, before: Option<u64>, limit: usize) -> Result<Vec<Run>>;

    fn setting(&self, name: &str) -> Result<Option<Blob>>;
    /// All that registered, by id.
    fn workers(&self) -> Result<Vec<WorkerRow>>;

    /// A consistent copy of everything, while the writer goes on.
    fn backup(&self, to: &Path) -> Result<()>;
}

/// A task with what the core does not keep.
#[derive(Clone, Debug)]
pub struct TaskDoc {
    pub task: Task,
    pub agent: Name,
    pub lane: Name,
    pub kind: Name,
    pub tier: Tier,
    /// The key of its session.
    pub session: Option<Name>,
    pub spec: Option<Blob>,
    pub result: Option<Blob>,
}

#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub phases: Vec<Phase>,
    pub agent: Option<Name>,
    pub lane: Option<Name>,
    pub kind: Option<Name>,
    pub tier: Option<Tier>,
    pub batch: Option<BatchId>,
    /// The key of a session.
    pub session: Option<Name>,
    pub created_after: Option<WallMs>,
    pub created_before: Option<WallMs>,
}

#[derive(Clone, Debug)]
pub struct Page {
    pub items: Vec<TaskDoc>,
    pub next: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct SessionFilter {
    /// Keys that begin so.
    pub prefix: Option<Name>,
    /// Only those with live tasks.
    pub busy: bool,
}

#[derive(Clone, Debug)]
pub struct SessionPage {
    pub items: Vec<Session>,
    pub next: Option<SessionId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScheduleCounts {
    pub total: u64,
    /// Those with a next moment.
    pub enabled: u64,
}

#[derive(Clone, Debug, Default)]
pub struct ScheduleFilter {
    /// Only those that are enabled, or only those that are not.
    pub enabled: Option<bool>,
    /// Only those whose tasks are of this agent.
    pub agent: Option<Name>,
}

#[derive(Clone, Debug)]
pub struct SchedulePage {
    pub items: Vec<(Schedule, Blob)>,
    pub next: Option<ScheduleId>,
}

#[derive(Clone, Debug, Default)]
pub struct DeliveryFilter {
    pub state: Option<DeliveryPhase>,
    /// The name of a subscription.
    pub hook: Option<Name>,
    pub event: Option<HappeningKind>,
    /// The id of a task or a batch.
    pub subject: Option<u128>,
}

/// A delivery's state without its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DeliveryPhase {
    Pending = 0,
    Delivered = 1,
    GivenUp = 2,
}

impl DeliveryPhase {
    pub fn of(state: DeliveryState) -> DeliveryPhase {
        match state {
            DeliveryState::Pending { .. } => DeliveryPhase::Pending,
            DeliveryState::Delivered => DeliveryPhase::Delivered,
            DeliveryState::GivenUp => DeliveryPhase::GivenUp,
        }
    }
}

#[derive(Clone, Debug)]
pub struct DeliveryPage {
    pub items: Vec<Delivery>,
    pub next: Option<DeliveryId>,
}

#[derive(Clone, Debug)]
pub struct IdPage {
    pub items: Vec<TaskId>,
    pub next: Option<u64>,
}

/// Specs and results on one page. A thousand tasks of 2 MiB each must not become one answer; one task always fits.
pub const PAGE_BYTES_MAX: usize = 8 << 20;

impl TaskDoc {
    /// What counts towards [`PAGE_BYTES_MAX`].
    pub fn n_bytes(&self) -> usize {
        [&self.spec, &self.result].into_iter().flatten().map(|blob| blob.len()).sum()
    }
}

/// The copy of the flow's key that a task's row carries, so that it can be read after its flow is gone.
pub fn row_key(key: &FlowKey) -> (&Name, &Name, &Name, Tier) {
    (&key.agent, &key.lane, &key.shape.kind, key.tier)
}
