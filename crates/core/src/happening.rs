//! The event log: what a commit made true, for people and machines that watch.

use crate::batch::Batch;
use crate::ids::{BatchId, TaskId, WorkerId};
use crate::name::Name;
use crate::now::{SteadyMs, WallMs};
use crate::schedule::ScheduleFacts;
use crate::session::Session;
use crate::task::{Class, Text, Tier};

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
    TaskMerged = 14,
    TaskDropped = 15,
    SessionChanged = 16,
    SessionStopped = 17,
    SessionReset = 18,
    ScheduleCreated = 19,
    ScheduleChanged = 20,
    SchedulePaused = 21,
    ScheduleResumed = 22,
    ScheduleDeleted = 23,
    ScheduleFired = 24,
    ScheduleSkipped = 25,
    ScheduleMissed = 26,
    ScheduleFailing = 27,
    ScheduleRecovered = 28,
    WorkerRegistered = 29,
    WorkerCooled = 30,
    WorkerDraining = 31,
    WorkerResumed = 32,
    WorkerRemoved = 33,
    NodeHolds = 34,
}

impl HappeningKind {
    pub const ALL: [HappeningKind; 35] = [
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
        HappeningKind::TaskMerged,
        HappeningKind::TaskDropped,
        HappeningKind::SessionChanged,
        HappeningKind::SessionStopped,
        HappeningKind::SessionReset,
        HappeningKind::ScheduleCreated,
        HappeningKind::ScheduleChanged,
        HappeningKind::SchedulePaused,
        HappeningKind::ScheduleResumed,
        HappeningKind::ScheduleDeleted,
        HappeningKind::ScheduleFired,
        HappeningKind::ScheduleSkipped,
        HappeningKind::ScheduleMissed,
        HappeningKind::ScheduleFailing,
        HappeningKind::ScheduleRecovered,
        HappeningKind::WorkerRegistered,
        HappeningKind::WorkerCooled,
        HappeningKind::WorkerDraining,
        HappeningKind::WorkerResumed,
        HappeningKind::WorkerRemoved,
        HappeningKind::NodeHolds,
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
            HappeningKind::TaskMerged => "task.merged",
            HappeningKind::TaskDropped => "task.dropped",
            HappeningKind::SessionChanged => "session.changed",
            HappeningKind::SessionStopped => "session.stopped",
            HappeningKind::SessionReset => "session.reset",
            HappeningKind::ScheduleCreated => "schedule.created",
            HappeningKind::ScheduleChanged => "schedule.changed",
            HappeningKind::SchedulePaused => "schedule.paused",
            HappeningKind::ScheduleResumed => "schedule.resumed",
            HappeningKind::ScheduleDeleted => "schedule.deleted",
            HappeningKind::ScheduleFired => "schedule.fired",
            HappeningKind::ScheduleSkipped => "schedule.skipped",
            HappeningKind::ScheduleMissed => "schedule.missed",
            HappeningKind::ScheduleFailing => "schedule.failing",
            HappeningKind::ScheduleRecovered => "schedule.recovered",
            HappeningKind::WorkerRegistered => "worker.registered",
            HappeningKind::WorkerCooled => "worker.cooled",
            HappeningKind::WorkerDraining => "worker.draining",
            HappeningKind::WorkerResumed => "worker.resumed",
            HappeningKind::WorkerRemoved => "worker.removed",
            HappeningKind::NodeHolds => "node.holds",
        }
    }

    /// The bit of this kind in a set of kinds.
    pub fn bit(self) -> u64 {
        1 << (self as u8)
    }

    /// The end of a task that was one; a rejection never was.
    pub fn ends_a_task(self) -> bool {
        self.is_final() && self != HappeningKind::TaskRejected
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
    Worker {
        worker: WorkerId,
        name: Name,
        /// Why; empty when there is nothing to add.
        reason: Text,
    },
    Session(Box<Session>),
    Schedule(Box<ScheduleFacts>),
    Config,
    /// One of several servers on one store.
    Node {
        name: Name,
    },
}

#[derive(Clone, PartialEq, Debug)]
pub struct TaskFacts {
    pub task: TaskId,
    pub agent: Name,
    pub lane: Name,
    pub kind: Name,
    pub tier: Tier,
    pub batch: Option<BatchId>,
    /// The key of its session.
    pub session: Option<Name>,
    pub attempt: u32,
    /// Behind a failure, a retry, a rejection.
    pub class: Option<Class>,
    /// Empty when there is nothing to add.
    pub reason: Text,
    /// How long it waited before this start, or ran before this end; for histograms.
    pub elapsed_ms: Option<SteadyMs>,
}
