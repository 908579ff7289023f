//! The two doors of the core: everything that can happen to it, and everything it can ask for.

use std::sync::Arc;

use crate::batch::Batch;
use crate::config::Config;
use crate::explain::Explanation;
use crate::flow::{FlowKey, Resources};
use crate::ids::{BatchId, FlowId, TaskId, Ticket, Token, WorkerId};
use crate::name::{Blob, Name};
use crate::now::{Clock, SteadyMs, WallMs};
use crate::task::{Class, Phase, Policy, Stop, Task, Text, Tier};

/// Rows an event names are put into the core with `Core::load_rows` before the event is handled.
#[derive(Clone, Debug)]
pub enum Event {
    Submit(Submission),
    Cancel {
        ticket: Ticket,
        task: TaskId,
        reason: Text,
    },
    Change {
        ticket: Ticket,
        task: TaskId,
        change: Change,
    },
    Explain {
        ticket: Ticket,
        task: TaskId,
    },
    /// A worker is there, with the leases it still holds. What it does not present is lost at once.
    WorkerJoined {
        worker: WorkerSpec,
        held: Vec<Held>,
    },
    /// Every few seconds from each worker: it is alive, and so are its leases.
    WorkerSeen {
        worker: WorkerId,
    },
    WorkerGone {
        worker: WorkerId,
        reason: Text,
    },
    Report {
        worker: WorkerId,
        task: TaskId,
        attempt: u32,
        token: Token,
        report: Report,
    },
    /// Limits replaced as a whole. What they were merged from, if it must survive, comes as a `Remember` in the same tick.
    Configure {
        ticket: Option<Ticket>,
        config: Arc<Config>,
    },
    /// Keep a document of the edge (configuration patch, keys) under this name.
    Remember {
        ticket: Option<Ticket>,
        name: Name,
        value: Blob,
    },
    /// `Draining`: accept and start nothing new. `Stopping`: also ask everything held to stop, uncounted.
    Admit {
        admit: Admit,
        ticket: Option<Ticket>,
    },
    /// The time has come for something: `Core::next_timeout` said so. Dues whose rows were not loaded stay due.
    Wake,
    /// One chunk of what a release frees, read by the loop.
    Released {
        release: Release,
        tasks: Vec<TaskId>,
        rest: Rest,
    },
    /// The next rows of a flow's queue, read because `Core::wants` asked for them.
    FlowRefilled {
        flow: FlowId,
        rows: Vec<Task>,
        oldest: Option<Box<Task>>,
        rest: Rest,
    },
    DuesRefilled {
        clock: Clock,
        dues: Vec<Due>,
        rest: Rest,
    },
    /// Start what may start. The loop sends it once a tick, after everything else.
    Dispatch,
}

/// Is there more in the store behind what was read?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    Done,
    More,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admit {
    Open,
    Draining,
    Stopping,
}

#[derive(Clone, Debug)]
pub struct Submission {
    pub ticket: Ticket,
    pub batch: Option<NewBatch>,
    pub mode: SubmitMode,
    pub items: Vec<NewTask>,
    /// Key of the whole submission: the batch's, or the single task's.
    pub idempotency: Option<Idempotency>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubmitMode {
    /// One bad item and nothing is stored.
    All,
    /// Each item answers for itself.
    Partial,
}

#[derive(Clone, Debug)]
pub struct NewBatch {
    pub id: BatchId,
    pub parallelism: Option<u32>,
    /// The batch as submitted, without its tasks.
    pub spec: Blob,
}

#[derive(Clone, Debug)]
pub struct NewTask {
    pub id: TaskId,
    pub flow: FlowKey,
    pub rank: i32,
    pub policy: Policy,
    pub run_at: Option<WallMs>,
    pub delay_ms: Option<u64>,
    pub deadline: Option<WallMs>,
    pub dependency_timeout_ms: Option<u64>,
    pub depends_on: Vec<TaskId>,
    /// The task as submitted, defaults filled in.
    pub spec: Blob,
    /// Set in a `Partial` batch for an item that the edge already refused.
    pub refused: Option<Refusal>,
    pub idempotency: Option<Idempotency>,
}

/// Scope is agent + key; the hash is of the body.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Idempotency {
    pub agent: Name,
    pub key: Name,
    pub hash: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdempotencyRow {
    pub key: Idempotency,
    /// The task, or the batch with its tasks, that the first answer named.
    pub answer: FirstAnswer,
    pub created_at: WallMs,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FirstAnswer {
    Task {
        id: TaskId,
        phase: Phase,
    },
    /// One entry for each item; `rejected` for one that was refused.
    Batch {
        id: BatchId,
        tasks: Vec<(TaskId, Phase)>,
    },
}

#[derive(Clone, Debug, Default)]
pub struct Change {
    pub tier: Option<Tier>,
    pub rank: Option<i32>,
    pub deadline: Option<Option<WallMs>>,
    pub run_at: Option<WallMs>,
}

#[derive(Clone, Debug)]
pub struct WorkerSpec {
    pub id: WorkerId,
    pub name: Name,
    /// Kinds it runs.
    pub kinds: Vec<Name>,
    pub capacity: Resources,
    pub parallel_max: Option<u32>,
    pub labels: Vec<(Name, Name)>,
    /// The server's own: no CPU guard, never cooled.
    pub embedded: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    pub task: TaskId,
    pub attempt: u32,
    pub token: Token,
}

#[derive(Clone, Debug)]
pub enum Report {
    Started,
    /// Output, progress or a heartbeat of the work itself.
    Alive,
    Completed {
        result: Option<Blob>,
    },
    Failed {
        class: Class,
        message: Text,
        retry_after_ms: Option<u64>,
        result: Option<Blob>,
        fault: Fault,
    },
    /// Asked to stop, and nothing of it is alive any more.
    Stopped,
    /// Handed back before anything of it ran.
    NotStarted {
        reason: Text,
    },
}

/// Whose fault was it? Only a broken worker or executor is cooled down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Work,
    Worker,
}

/// What the end of one task sets free.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Release {
    /// Children of an ended parent.
    Parent { parent: TaskId, ended: ParentEnd },
    /// Members of a batch that wait for a place.
    BatchPlace { batch: BatchId },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ParentEnd {
    Well,
    Badly,
}

/// One row of the due index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Due {
    pub at_ms: u64,
    pub seq: u64,
    pub task: TaskId,
}

/// What the core wants done. Writes are not here: `Core::flush` gives them once a tick, folded to one per row. Nothing
/// of this leaves before they are committed.
#[derive(Clone, Debug)]
pub enum Command {
    Answer {
        ticket: Ticket,
        answer: Answer,
    },
    Start(Start),
    /// Ask, grace, kill. The attempt keeps its lease until the worker confirms.
    Stop {
        worker: WorkerId,
        task: TaskId,
        attempt: u32,
        token: Token,
        stop: Stop,
    },
    /// Tell a worker that it does not hold this any more: it must stop it, and its reports will be refused.
    Revoke {
        worker: WorkerId,
        task: TaskId,
        attempt: u32,
    },
}

#[derive(Clone, Debug)]
pub struct Start {
    pub worker: WorkerId,
    pub task: TaskId,
    pub seq: u64,
    pub attempt: u32,
    pub token: Token,
    pub agent: Name,
    pub kind: Name,
    pub deadline: Option<WallMs>,
    pub timeout_ms: u64,
    /// The worker reports signs of life for this one, because its silence is watched.
    pub watch_silence: bool,
    /// Handed on when the submit started in its own tick; else the loop reads it.
    pub spec: Option<Blob>,
}

#[derive(Clone, Debug)]
pub enum Answer {
    /// One for each item, in order.
    Submitted {
        items: Vec<Result<Accepted, Refusal>>,
    },
    Refused(Refusal),
    /// The key was used before with the same body: the first answer again.
    Replayed(FirstAnswer),
    Cancel(CancelAnswer),
    Change(Result<Box<Task>, ChangeRefusal>),
    Explained(Option<Box<Explanation>>),
    Done,
}

#[derive(Clone, Debug)]
pub struct Accepted {
    pub id: TaskId,
    pub phase: Phase,
    /// The task as this event left it. Only for a single submit: a batch answers with ids and states.
    pub task: Option<Box<Task>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CancelAnswer {
    /// It is at its end: nothing of it runs.
    Ended,
    /// It is being stopped, and its end will be `cancelled`.
    Stopping,
    Terminal(Phase),
    NotFound,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChangeRefusal {
    NotFound,
    Started(Phase),
    Terminal(Phase),
    TooManyFlows { scope: Text, limit: u32 },
    DeadlinePassed,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    QueueFull {
        agent: Option<Name>,
        queued: u64,
        limit: u64,
        recorded: Option<TaskId>,
    },
    TooManyFlows {
        agent: Option<Name>,
        flows: u32,
        limit: u32,
    },
    Draining,
    /// The idempotency key was used with another body.
    KeyReused {
        key: Name,
    },
    /// Another item of this batch that it depends on was refused.
    ParentRefused {
        parent: TaskId,
    },
    DeadlinePassed,
    /// Refused by the edge before it came here; the code and text are the edge's own.
    Invalid {
        code: Text,
        field: Text,
        message: Text,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum HappeningKind {
    TaskCreated = 0,
    TaskQueued = 1,
    TaskStarted = 2,
    TaskRetrying = 3,
    TaskPreempted = 4,
    TaskStalled = 5,
    TaskCompleted = 6,
    TaskFailed = 7,
    TaskCancelled = 8,
    TaskRejected = 9,
    BatchFinished = 10,
    ConfigChanged = 11,
    WorkerJoined = 12,
    WorkerLost = 13,
}

impl HappeningKind {
    pub const ALL: [HappeningKind; 14] = [
        HappeningKind::TaskCreated,
        HappeningKind::TaskQueued,
        HappeningKind::TaskStarted,
        HappeningKind::TaskRetrying,
        HappeningKind::TaskPreempted,
        HappeningKind::TaskStalled,
        HappeningKind::TaskCompleted,
        HappeningKind::TaskFailed,
        HappeningKind::TaskCancelled,
        HappeningKind::TaskRejected,
        HappeningKind::BatchFinished,
        HappeningKind::ConfigChanged,
        HappeningKind::WorkerJoined,
        HappeningKind::WorkerLost,
    ];

    /// The name users see in the event stream.
    pub fn as_str(self) -> &'static str {
        match self {
            HappeningKind::TaskCreated => "task.created",
            HappeningKind::TaskQueued => "task.queued",
            HappeningKind::TaskStarted => "task.started",
            HappeningKind::TaskRetrying => "task.retrying",
            HappeningKind::TaskPreempted => "task.preempted",
            HappeningKind::TaskStalled => "task.stalled",
            HappeningKind::TaskCompleted => "task.completed",
            HappeningKind::TaskFailed => "task.failed",
            HappeningKind::TaskCancelled => "task.cancelled",
            HappeningKind::TaskRejected => "task.rejected",
            HappeningKind::BatchFinished => "batch.finished",
            HappeningKind::ConfigChanged => "config.changed",
            HappeningKind::WorkerJoined => "worker.joined",
            HappeningKind::WorkerLost => "worker.lost",
        }
    }

    pub fn is_final(self) -> bool {
        matches!(
            self,
            HappeningKind::TaskCompleted
                | HappeningKind::TaskFailed
                | HappeningKind::TaskCancelled
                | HappeningKind::TaskRejected
        )
    }
}

/// One line of the event log: a few facts, for people and machines that watch.
#[derive(Clone, PartialEq, Debug)]
pub struct Happening {
    pub kind: HappeningKind,
    pub at_ms: WallMs,
    pub subject: Subject,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Subject {
    Task(TaskFacts),
    Batch(Box<Batch>),
    Worker { worker: WorkerId, name: Name },
    Config,
}

#[derive(Clone, PartialEq, Debug)]
pub struct TaskFacts {
    pub task: TaskId,
    pub agent: Name,
    pub lane: Name,
    pub kind: Name,
    pub tier: Tier,
    pub batch: Option<BatchId>,
    pub attempt: u32,
    /// Behind a failure, a retry, a rejection.
    pub class: Option<Class>,
    /// Empty when there is nothing to add.
    pub reason: Text,
    /// How long it waited before this start, or ran before this end; for histograms.
    pub elapsed_ms: Option<SteadyMs>,
}
