//! The two doors of the core: everything that can happen to it, and everything it can ask for.

use std::sync::Arc;

use crate::config::Config;
use crate::explain::Explanation;
use crate::ids::{BatchId, FlowId, ScheduleId, TaskId, Ticket, Token, WorkerId};
use crate::name::{Blob, Name};
use crate::now::{Clock, WallMs};
use crate::outbox::DeliveryChange;
use crate::schedule::{Run, ScheduleAct, ScheduleAnswer, ScheduleDue, ScheduleRefusal};
use crate::session::{Context, Session, SessionId, Settings, Usage};
use crate::task::{Class, Phase, Stop, Task, Text, Tier};
use crate::turned_away::TurnedAway;
use crate::worker::{Demand, Vitals, WorkerAct, WorkerAnswer, WorkerRefusal, WorkerView};

pub use crate::happening::{Happening, HappeningKind, Subject, TaskFacts};
pub use crate::submission::{
    Asked, FirstAnswer, Idempotency, IdempotencyRow, NewBatch, NewMember, NewTask, Receipt, Submission, SubmitMode,
};
pub use crate::worker::WorkerSpec;

/// Rows an event names are put into the core with `Core::load_rows` before the event is handled.
#[derive(Clone, Debug)]
pub enum Event {
    Submit(Submission),
    /// The edge has refused them for want of room: they are counted, and recorded as far as that is allowed.
    TurnedAway(Vec<TurnedAway>),
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
    /// The work itself says that it is alive, past its worker.
    Heartbeat {
        ticket: Ticket,
        task: TaskId,
    },
    Explain {
        ticket: Ticket,
        task: TaskId,
    },
    Session {
        ticket: Ticket,
        key: Name,
        act: SessionAct,
    },
    /// A worker is there, with the leases it still holds. What it does not present is lost at once.
    WorkerJoined {
        worker: WorkerSpec,
        held: Vec<Held>,
    },
    /// Every few seconds from each worker: it is alive, and so are its leases.
    WorkerSeen {
        worker: WorkerId,
        vitals: Vitals,
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
    /// What a worker on another machine says, and what is asked of any.
    Worker {
        ticket: Ticket,
        worker: WorkerId,
        act: WorkerAct,
    },
    /// One worker, or all of them.
    Workers {
        ticket: Ticket,
        only: Option<WorkerId>,
    },
    /// Which work finds no worker, and which workers no work?
    Demand {
        ticket: Ticket,
    },
    /// Another node of this store has become the one that writes it.
    NodeHolds {
        name: Name,
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
    Schedule {
        ticket: Ticket,
        id: ScheduleId,
        act: ScheduleAct,
    },
    /// The task of this run has ended: its rows are loaded, and here is the run as the store has it.
    RunEnded {
        release: Release,
        run: Option<Box<Run>>,
    },
    /// The next schedules, in the order of their due moments.
    SchedulesRefilled {
        dues: Vec<ScheduleDue>,
        rest: Rest,
    },
    /// What the deliverer has done about rows of the outbox.
    Deliveries {
        ticket: Option<Ticket>,
        changes: Vec<DeliveryChange>,
    },
    /// `Draining`: accept and start nothing new. `Stopping`: also ask everything held to stop, uncounted, but for what
    /// its worker keeps.
    Admit {
        admit: Admit,
        ticket: Option<Ticket>,
    },
    /// The time has come for something: `Core::next_timeout` said so. Dues whose rows were not loaded stay due.
    Wake,
    /// A command that makes no row under an id of its own, done at most once under this key, whoever asks how often. A
    /// repeat is answered with [`Answer::Replayed`].
    Once {
        ticket: Ticket,
        key: Idempotency,
        command: Box<Event>,
    },
    /// Was the command of this key done?
    WasDone {
        ticket: Ticket,
        key: Idempotency,
    },
    /// One chunk of what a release frees, read by the loop. When there is more, the store has been read up to `bound`
    /// (exclusive), by the order in which this release's rows are read.
    Released {
        release: Release,
        tasks: Vec<TaskId>,
        rest: Rest,
        bound: u64,
    },
    /// The next sessions that a review looks at.
    SessionsReviewed {
        after: SessionId,
        sessions: Vec<SessionId>,
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionAct {
    /// Its own settings, as a whole.
    Set(Settings),
    Context(Context),
    /// Cancels the oldest running member.
    Stop,
    /// Cancels all members; messages sent before now are refused from now on.
    StopAll,
    /// As `StopAll`, and a new generation begins.
    Reset,
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

#[derive(Clone, Debug, Default)]
pub struct Change {
    pub tier: Option<Tier>,
    pub rank: Option<i32>,
    pub deadline: Option<Option<WallMs>>,
    pub run_at: Option<WallMs>,
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
    /// This task, which was handed over as input, has been taken in.
    InputTaken {
        message: TaskId,
    },
    Completed {
        result: Option<Blob>,
        usage: Option<Usage>,
    },
    Failed {
        class: Class,
        message: Text,
        retry_after_ms: Option<u64>,
        result: Option<Blob>,
        usage: Option<Usage>,
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
    /// Live members of a session, from this sequence number on and before that one, that are to be stopped.
    SessionStop { session: SessionId, before: u64, from: u64, why: StopWhy },
    /// Queued members beyond the number that may be seated.
    SessionShrink { session: SessionId },
    /// The first in a session's line.
    SessionSeat { session: SessionId },
    /// The first in a line that is too long.
    SessionOverflow { session: SessionId },
    /// All sessions after this one, whose rules may have changed.
    SessionReview { after: SessionId },
    /// The run whose task has ended.
    RunEnded { schedule: ScheduleId, run: u64, task: TaskId },
}

/// Why the members of a session are stopped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum StopWhy {
    StopAll = 0,
    Reset = 1,
    /// Members that have not joined yet stay.
    Interrupt = 2,
}

impl StopWhy {
    pub const ALL: [StopWhy; 3] = [StopWhy::StopAll, StopWhy::Reset, StopWhy::Interrupt];

    /// The reason its members end with.
    pub fn as_str(self) -> &'static str {
        match self {
            StopWhy::StopAll => "session_stopped",
            StopWhy::Reset => "session_reset",
            StopWhy::Interrupt => "interrupted by a newer message",
        }
    }
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
    /// Hand this message to a running attempt. The worker answers with `Report::InputTaken`, or not at all.
    Input {
        worker: WorkerId,
        task: TaskId,
        attempt: u32,
        token: Token,
        message: TaskId,
        /// As in [`Start::spec`].
        spec: Option<Blob>,
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
    pub session: Option<Name>,
    /// How many messages were merged into it, and which dropped ones it is told of.
    pub n_merged: u32,
    pub told: Option<(SessionId, u64, u64)>,
    /// The merged messages and the dropped ones, as submitted; the loop reads them.
    pub merged: Vec<Blob>,
    pub dropped: Vec<Blob>,
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
    Heartbeat(HeartbeatAnswer),
    Explained(Option<Box<Explanation>>),
    Session(SessionAnswer),
    Schedule(Result<ScheduleAnswer, ScheduleRefusal>),
    Worker(Result<WorkerAnswer, WorkerRefusal>),
    /// By id.
    Workers(Vec<WorkerView>),
    Demand(Box<Demand>),
    Done,
    /// The command of that key was not done so far.
    NotDone,
}

#[derive(Clone, Debug)]
pub struct Accepted {
    pub id: TaskId,
    pub phase: Phase,
    /// The task as this event left it. Only for a single submit: a batch answers with ids and states.
    pub task: Option<Box<Task>>,
    /// The message was merged into this task, as its so many-th.
    pub merged: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionAnswer {
    /// As the event left it.
    Row(Box<Session>),
    /// The task that is being stopped, if any ran.
    Stopped {
        task: Option<TaskId>,
    },
    StoppedAll {
        running: u32,
        waiting: u32,
        debouncing: u32,
        session: Box<Session>,
    },
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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeartbeatAnswer {
    /// Its silence begins anew, or, when its start has not been told yet, with its start.
    Noted,
    /// It is being stopped, and nothing it says changes that.
    Stopping,
    NotRunning(Phase),
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
    /// Mode `reject`, and the session has no free seat.
    SessionBusy {
        key: Name,
        recorded: Option<TaskId>,
    },
    /// Drop `new`, and the line is full.
    SessionFull {
        key: Name,
        waiting: u32,
        cap: u32,
        recorded: Option<TaskId>,
    },
    /// Sent before the session was stopped.
    Stale {
        key: Name,
        cutoff: WallMs,
        recorded: Option<TaskId>,
    },
    /// Refused by the edge before it came here; the code and text are the edge's own.
    Invalid {
        code: Text,
        field: Text,
        message: Text,
    },
}
