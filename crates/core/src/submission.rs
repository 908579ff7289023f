//! What is asked for with a submit, and what an idempotency key remembers of it.

use crate::event::Refusal;
use crate::flow::FlowKey;
use crate::ids::{BatchId, ScheduleId, TaskId, Ticket};
use crate::name::{Blob, Name};
use crate::now::WallMs;
use crate::schedule::Origin;
use crate::session::{Mode, Settings};
use crate::task::{Phase, Policy};
use crate::worker::WorkerRow;

#[derive(Clone, Debug)]
pub struct Submission {
    pub ticket: Ticket,
    pub batch: Option<NewBatch>,
    pub mode: SubmitMode,
    pub items: Vec<NewTask>,
    /// Key of the whole submission: the batch's, or the single task's.
    pub idempotency: Option<Idempotency>,
    pub asked: Asked,
}

/// Whether an earlier try with the same ids may have been stored without anybody having heard the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Asked {
    #[default]
    Once,
    /// What is stored is the answer.
    Again,
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
    /// Its submitter is told of its end.
    pub calls_back: bool,
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
    pub session: Option<NewMember>,
    /// A running task that is to get this as input instead, if it takes it.
    pub steers: Option<TaskId>,
    /// The run of a schedule that it is the task of.
    pub origin: Option<Origin>,
    /// The task as submitted, defaults filled in.
    pub spec: Blob,
    /// Set in a `Partial` batch for an item that the edge already refused.
    pub refused: Option<Refusal>,
    pub idempotency: Option<Idempotency>,
}

impl NewTask {
    /// One that asks for nothing but to run.
    pub fn new(id: TaskId, flow: FlowKey, spec: Blob) -> NewTask {
        NewTask {
            id,
            flow,
            rank: 0,
            policy: Policy::default(),
            run_at: None,
            delay_ms: None,
            deadline: None,
            dependency_timeout_ms: None,
            depends_on: Vec::new(),
            session: None,
            steers: None,
            origin: None,
            spec,
            refused: None,
            idempotency: None,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewMember {
    pub key: Name,
    /// They stick to the session.
    pub settings: Settings,
    /// For this message only, in the place of the session's mode.
    pub as_mode: Option<Mode>,
    pub sent_at: Option<WallMs>,
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
    /// A command that was done, of which no row would say so.
    Command(Receipt),
}

/// What a command did, as far as nothing else that is stored would tell it again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Receipt {
    Done,
    Ran {
        schedule: ScheduleId,
        run: u64,
    },
    Stopped {
        task: Option<TaskId>,
    },
    StoppedAll {
        running: u32,
        waiting: u32,
        debouncing: u32,
    },
    /// As it was when it was removed.
    WorkerRemoved(Box<WorkerRow>),
}
