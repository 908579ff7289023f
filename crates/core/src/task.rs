//! What the scheduler knows of a task. Payload and result are not here: they pass through as blobs.

use std::borrow::Cow;

use crate::ids::{BatchId, FlowId, TaskId, Token, WorkerId};
use crate::now::{SteadyMs, WallMs};
use crate::schedule::Origin;
use crate::session::{Member, SessionId, Usage};
use crate::trail::Trail;

/// Compared across all agents; lower is served first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Tier {
    Critical = 0,
    High = 1,
    Normal = 2,
    Low = 3,
}

impl Tier {
    pub const ALL: [Tier; 4] = [Tier::Critical, Tier::High, Tier::Normal, Tier::Low];

    pub fn as_str(self) -> &'static str {
        match self {
            Tier::Critical => "critical",
            Tier::High => "high",
            Tier::Normal => "normal",
            Tier::Low => "low",
        }
    }

    pub fn from_code(code: u8) -> Option<Tier> {
        Tier::ALL.get(usize::from(code)).copied()
    }
}

/// Why an attempt failed. The class decides what happens next; the message is for people.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Class {
    Task = 0,
    Timeout = 1,
    Lost = 2,
    Quota = 3,
    Permanent = 4,
    Deadline = 5,
}

impl Class {
    pub const ALL: [Class; 6] =
        [Class::Task, Class::Timeout, Class::Lost, Class::Quota, Class::Permanent, Class::Deadline];

    pub fn as_str(self) -> &'static str {
        match self {
            Class::Task => "task",
            Class::Timeout => "timeout",
            Class::Lost => "lost",
            Class::Quota => "quota",
            Class::Permanent => "permanent",
            Class::Deadline => "deadline",
        }
    }

    pub fn from_code(code: u8) -> Option<Class> {
        Class::ALL.get(usize::from(code)).copied()
    }

    /// The bit of this class in [`Retry::on`].
    pub fn bit(self) -> u8 {
        1 << (self as u8)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Retry {
    pub max_retries: u32,
    pub backoff_ms: u64,
    /// Thousandths: 2000 doubles the wait each time.
    pub multiplier_milli: u32,
    pub backoff_ms_max: u64,
    /// Thousandths of the wait that it may vary by, to either side.
    pub jitter_milli: u32,
    /// Classes that are retried, as bits of [`Class::bit`].
    pub on: u8,
}

impl Default for Retry {
    fn default() -> Self {
        Retry {
            max_retries: 3,
            backoff_ms: 1000,
            multiplier_milli: 2000,
            backoff_ms_max: 60_000,
            jitter_milli: 250,
            on: Class::Task.bit() | Class::Timeout.bit() | Class::Lost.bit() | Class::Quota.bit(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum OnDependencyFailure {
    Cancel = 0,
    Fail = 1,
    Run = 2,
}

/// What the submitter decided once and nothing changes later.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Policy {
    pub timeout_ms: u64,
    pub retry: Retry,
    pub on_dependency_failure: OnDependencyFailure,
    pub preemptible: bool,
    pub stall_ms: Option<u64>,
    /// How long the finished task stays readable; `None` is the configured retention.
    pub ttl_ms: Option<u64>,
    /// Its executor hands further messages to it while it runs.
    pub takes_input: bool,
    /// Its submitter is told of its end. Once a merged message asked for it, the carrier does too.
    pub calls_back: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            timeout_ms: 120_000,
            retry: Retry::default(),
            on_dependency_failure: OnDependencyFailure::Cancel,
            preemptible: false,
            stall_ms: None,
            ttl_ms: None,
            takes_input: false,
            calls_back: false,
        }
    }
}

/// A text of ours, or one that came with a request.
pub type Text = Cow<'static, str>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub class: Class,
    pub message: Text,
}

/// What a `waiting` task waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Wait {
    Dependencies = 0,
    BatchPlace = 1,
    /// Its turn in its session.
    Seat = 2,
}

/// What a `scheduled` task waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delay {
    /// delayMs or runAt, by the wall clock.
    Until(WallMs),
    /// A retry's backoff, in elapsed time.
    Backoff(SteadyMs),
    /// More messages of the same burst may come, so long in elapsed time.
    Debounce(SteadyMs),
}

/// Why a held attempt was asked to stop. The first reason fixes the next state; a cancel overrides any other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Stop {
    Cancel = 0,
    Timeout = 1,
    Deadline = 2,
    Preempted = 3,
    Stalled = 4,
    /// The server is going down cleanly: back to the queue, nothing counted.
    Shutdown = 5,
    /// Handed out and not started in time: back to the queue, nothing counted.
    NotStarted = 6,
}

impl Stop {
    pub const ALL: [Stop; 7] =
        [Stop::Cancel, Stop::Timeout, Stop::Deadline, Stop::Preempted, Stop::Stalled, Stop::Shutdown, Stop::NotStarted];

    pub fn as_str(self) -> &'static str {
        match self {
            Stop::Cancel => "cancel",
            Stop::Timeout => "timeout",
            Stop::Deadline => "deadline",
            Stop::Preempted => "preempted",
            Stop::Stalled => "stalled",
            Stop::Shutdown => "shutdown",
            Stop::NotStarted => "not started in time",
        }
    }

    pub fn from_code(code: u8) -> Option<Stop> {
        Stop::ALL.get(usize::from(code)).copied()
    }
}

/// The right of one worker to run one attempt. A slot *is* a live lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    pub worker: WorkerId,
    pub token: Token,
    /// Start order over all tasks of this core; the latest start is preempted first.
    pub order: u64,
    /// When the attempt was handed out, then when it started; service is charged from here.
    pub since_ms: SteadyMs,
    pub stop: Option<Stop>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Waiting(Wait),
    Scheduled(Delay),
    Queued { since_ms: SteadyMs },
    Assigned(Lease),
    Running(Lease),
    Completed,
    Failed,
    Cancelled,
    Rejected,
}

/// A state without its data: what stores, counts and filters speak of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Phase {
    Waiting = 0,
    Scheduled = 1,
    Queued = 2,
    Assigned = 3,
    Running = 4,
    Completed = 5,
    Failed = 6,
    Cancelled = 7,
    Rejected = 8,
}

impl Phase {
    pub const ALL: [Phase; 9] = [
        Phase::Waiting,
        Phase::Scheduled,
        Phase::Queued,
        Phase::Assigned,
        Phase::Running,
        Phase::Completed,
        Phase::Failed,
        Phase::Cancelled,
        Phase::Rejected,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Waiting => "waiting",
            Phase::Scheduled => "scheduled",
            Phase::Queued => "queued",
            Phase::Assigned => "assigned",
            Phase::Running => "running",
            Phase::Completed => "completed",
            Phase::Failed => "failed",
            Phase::Cancelled => "cancelled",
            Phase::Rejected => "rejected",
        }
    }

    pub fn from_code(code: u8) -> Option<Phase> {
        Phase::ALL.get(usize::from(code)).copied()
    }

    pub fn is_terminal(self) -> bool {
        self >= Phase::Completed
    }

    /// Counted by the admission limits.
    pub fn is_unstarted(self) -> bool {
        self <= Phase::Queued
    }

    /// "Running" in every limit: it holds a lease.
    pub fn is_held(self) -> bool {
        matches!(self, Phase::Assigned | Phase::Running)
    }
}

impl State {
    pub fn phase(&self) -> Phase {
        match self {
            State::Waiting(_) => Phase::Waiting,
            State::Scheduled(_) => Phase::Scheduled,
            State::Queued { .. } => Phase::Queued,
            State::Assigned(_) => Phase::Assigned,
            State::Running(_) => Phase::Running,
            State::Completed => Phase::Completed,
            State::Failed => Phase::Failed,
            State::Cancelled => Phase::Cancelled,
            State::Rejected => Phase::Rejected,
        }
    }

    pub fn lease(&self) -> Option<&Lease> {
        match self {
            State::Assigned(lease) | State::Running(lease) => Some(lease),
            _ => None,
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Task {
    pub id: TaskId,
    /// Submit order, given by the holder of the scheduler lease.
    pub seq: u64,
    pub flow: FlowId,
    pub rank: i32,
    pub batch: Option<BatchId>,
    pub member: Option<Member>,
    /// The running task that it was handed to as input; it runs itself only if that one ends without having taken it.
    pub steers: Option<TaskId>,
    /// The run of a schedule that it is the task of.
    pub origin: Option<Origin>,
    pub policy: Policy,
    pub state: State,
    /// For people; empty when there is nothing to add to the state.
    pub reason: Text,
    /// The fence: raised each time the task is handed to a worker.
    pub attempt: u32,
    /// Attempts that really began: what `attempts` means to a user.
    pub n_runs: u32,
    pub retries_used: u32,
    pub n_lost: u32,
    pub n_quota: u32,
    pub n_preempted: u32,
    /// Parents that have not ended well yet.
    pub n_deps_open: u32,
    /// Some live task names this one as a parent, so its end writes a release.
    pub has_children: bool,
    /// It took one of its batch's places and gives it back at its end.
    pub has_place: bool,
    pub error: Option<Box<Failure>>,
    pub usage: Option<Box<Usage>>,
    /// The worker of the latest attempt.
    pub worker: Option<WorkerId>,
    /// Workers where an attempt failed, latest last: a retry goes elsewhere while somebody else has room.
    pub failed_on: Vec<WorkerId>,
    pub created_at: WallMs,
    pub run_at: Option<WallMs>,
    pub deadline: Option<WallMs>,
    pub dependency_deadline: Option<WallMs>,
    pub queued_at: Option<WallMs>,
    pub assigned_at: Option<WallMs>,
    pub started_at: Option<WallMs>,
    pub finished_at: Option<WallMs>,
    /// Its history in a few bytes for each step; outlives the event log.
    pub trail: Trail,
}

/// Workers that a task remembers to have failed on.
pub const FAILED_ON_MAX: usize = 8;

impl Task {
    /// The latest attempt failed where it was.
    pub fn note_failed_place(&mut self) {
        let Some(worker) = self.worker else { return };
        self.failed_on.retain(|other| *other != worker);
        self.failed_on.push(worker);
        if self.failed_on.len() > FAILED_ON_MAX {
            self.failed_on.remove(0);
        }
    }

    /// A task that nothing has happened to yet.
    pub fn new(id: TaskId, seq: u64, flow: FlowId, created_at: WallMs) -> Task {
        Task {
            id,
            seq,
            flow,
            rank: 0,
            batch: None,
            member: None,
            steers: None,
            origin: None,
            policy: Policy::default(),
            state: State::Waiting(Wait::Dependencies),
            reason: Text::default(),
            attempt: 0,
            n_runs: 0,
            retries_used: 0,
            n_lost: 0,
            n_quota: 0,
            n_preempted: 0,
            n_deps_open: 0,
            has_children: false,
            has_place: false,
            error: None,
            usage: None,
            worker: None,
            failed_on: Vec::new(),
            created_at,
            run_at: None,
            deadline: None,
            dependency_deadline: None,
            queued_at: None,
            assigned_at: None,
            started_at: None,
            finished_at: None,
            trail: Trail::default(),
        }
    }

    pub fn phase(&self) -> Phase {
        self.state.phase()
    }

    /// The next moment on the wall clock at which something is due for this task.
    pub fn wall_due(&self) -> Option<WallMs> {
        if self.phase().is_terminal() {
            return None;
        }
        let own = match self.state {
            State::Scheduled(Delay::Until(at)) => Some(at),
            State::Waiting(Wait::Dependencies) => self.dependency_deadline,
            _ => None,
        };
        // A held task that is already stopping for its deadline has nothing left to wait for.
        let deadline = match self.state.lease() {
            Some(Lease { stop: Some(_), .. }) => None,
            _ => self.deadline,
        };
        match (own, deadline) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The moment in elapsed time at which its backoff or its debounce is over.
    pub fn steady_due(&self) -> Option<SteadyMs> {
        match self.state {
            State::Scheduled(Delay::Backoff(at) | Delay::Debounce(at)) => Some(at),
            _ => None,
        }
    }

    pub fn stop(&self) -> Option<Stop> {
        self.state.lease().and_then(|lease| lease.stop)
    }

    pub fn session(&self) -> Option<SessionId> {
        self.member.map(|member| member.session)
    }

    /// In its session's line, without a seat.
    pub fn in_line(&self) -> bool {
        self.member.is_some_and(|member| member.in_line()) && !self.phase().is_terminal()
    }

    pub fn retries_left(&self) -> u32 {
        self.policy.retry.max_retries.saturating_sub(self.retries_used)
    }
}
