//! What one tick writes, folded: one entry for each row it touched, whatever happened to the row on the way.

use std::sync::Arc;

use crate::batch::Batch;
use crate::event::{Happening, IdempotencyRow, Release};
use crate::flow::FlowKey;
use crate::ids::{BatchId, FlowId, ScheduleId, TaskId, WorkerId};
use crate::name::{Blob, Name};
use crate::now::Now;
use crate::outbox::{Delivery, DeliveryId, Progress};
use crate::schedule::{Run, Schedule, ScheduleBody, Template};
use crate::session::{Message, Session, SessionId};
use crate::task::{Phase, Task};
use crate::worker::WorkerRow;

#[derive(Clone, Debug, Default)]
pub struct WriteSet {
    pub inserts: Vec<Insert>,
    pub updates: Vec<Update>,
    pub edges_added: Vec<Edge>,
    pub edges_removed: Vec<Edge>,
    pub releases_added: Vec<Release>,
    pub releases_removed: Vec<Release>,
    pub flows_put: Vec<FlowRow>,
    pub flows_removed: Vec<FlowId>,
    pub batches_added: Vec<(Batch, Blob)>,
    pub batches_put: Vec<Batch>,
    pub sessions_added: Vec<Session>,
    pub sessions_put: Vec<Session>,
    /// Merged messages, each as submitted.
    pub messages_added: Vec<(Message, Blob)>,
    /// Dropped tasks that the session's next run is told of, by their number in the session's count.
    pub drops_added: Vec<SessionDrop>,
    pub idempotency_added: Vec<IdempotencyRow>,
    pub counts: Vec<(CountKey, CountDelta)>,
    /// Named gates' rate state, as `Rate::state`.
    pub rates: Vec<(Name, u64)>,
    /// Documents of the edge (configuration patch, keys), kept by name and unread by the core.
    pub settings: Vec<(Name, Blob)>,
    pub happenings: Vec<Happening>,
    /// The outbox: new messages, and what became of earlier ones.
    pub deliveries_added: Vec<Delivery>,
    pub deliveries_put: Vec<(DeliveryId, Progress)>,
    pub schedules_put: Vec<ScheduleRow>,
    pub schedules_removed: Vec<ScheduleId>,
    /// New runs; one of a schedule and a nominal time that has one already is refused, and with it the whole commit.
    pub runs_added: Vec<Run>,
    pub runs_put: Vec<Run>,
    pub workers_put: Vec<WorkerRow>,
    pub workers_removed: Vec<WorkerId>,
    pub meta: Meta,
}

impl WriteSet {
    /// Nothing worth a commit. The clocks alone are not: they are stored with the next real write.
    pub fn is_empty(&self) -> bool {
        self.inserts.is_empty()
            && self.updates.is_empty()
            && self.edges_added.is_empty()
            && self.edges_removed.is_empty()
            && self.releases_added.is_empty()
            && self.releases_removed.is_empty()
            && self.flows_put.is_empty()
            && self.flows_removed.is_empty()
            && self.batches_added.is_empty()
            && self.batches_put.is_empty()
            && self.sessions_added.is_empty()
            && self.sessions_put.is_empty()
            && self.messages_added.is_empty()
            && self.drops_added.is_empty()
            && self.idempotency_added.is_empty()
            && self.counts.is_empty()
            && self.rates.is_empty()
            && self.settings.is_empty()
            && self.happenings.is_empty()
            && self.deliveries_added.is_empty()
            && self.deliveries_put.is_empty()
            && self.schedules_put.is_empty()
            && self.schedules_removed.is_empty()
            && self.runs_added.is_empty()
            && self.runs_put.is_empty()
            && self.workers_put.is_empty()
            && self.workers_removed.is_empty()
    }
}

/// A schedule as the tick left it.
#[derive(Clone, Debug)]
pub struct ScheduleRow {
    pub schedule: Schedule,
    /// Set when it is new or was edited.
    pub body: Option<ScheduleBody>,
}

/// A new row, in the state the tick left it.
#[derive(Clone, Debug)]
pub struct Insert {
    pub task: Task,
    pub key: Arc<FlowKey>,
    /// `None` for a recorded rejection, which keeps no payload.
    pub spec: Option<Blob>,
    pub result: Option<Blob>,
}

/// A changed row. The guard is what the row must still be: the store refuses the whole commit otherwise.
#[derive(Clone, Debug)]
pub struct Update {
    pub task: Task,
    pub from: (Phase, u32),
    /// Set when the tier changed, so that the copy of the key in the row follows.
    pub key: Option<Arc<FlowKey>>,
    pub result: Option<Blob>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Edge {
    pub parent: TaskId,
    pub child: TaskId,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionDrop {
    pub session: SessionId,
    pub n: u64,
    pub task: TaskId,
    pub task_seq: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowRow {
    pub id: FlowId,
    pub key: FlowKey,
    pub n_queued: u64,
    /// Tasks of this flow that have not ended.
    pub n_live: u64,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CountKey {
    pub agent: Name,
    pub lane: Name,
}

/// Changes to one row of counts. The first five are gauges and may fall.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CountDelta {
    pub waiting: i64,
    pub scheduled: i64,
    pub queued: i64,
    pub assigned: i64,
    pub running: i64,
    pub submitted: i64,
    pub started: i64,
    pub completed: i64,
    pub failed: i64,
    pub cancelled: i64,
    pub rejected: i64,
    pub expired: i64,
    pub retried: i64,
}

impl CountDelta {
    /// The column names, in the order of [`CountDelta::values`].
    pub const NAMES: [&'static str; 13] = [
        "waiting",
        "scheduled",
        "queued",
        "assigned",
        "running",
        "submitted",
        "started",
        "completed",
        "failed",
        "cancelled",
        "rejected",
        "expired",
        "retried",
    ];

    pub fn values(&self) -> [i64; 13] {
        [
            self.waiting,
            self.scheduled,
            self.queued,
            self.assigned,
            self.running,
            self.submitted,
            self.started,
            self.completed,
            self.failed,
            self.cancelled,
            self.rejected,
            self.expired,
            self.retried,
        ]
    }

    pub fn from_values(v: [i64; 13]) -> CountDelta {
        let [
            waiting,
            scheduled,
            queued,
            assigned,
            running,
            submitted,
            started,
            completed,
            failed,
            cancelled,
            rejected,
            expired,
            retried,
        ] = v;
        CountDelta {
            waiting,
            scheduled,
            queued,
            assigned,
            running,
            submitted,
            started,
            completed,
            failed,
            cancelled,
            rejected,
            expired,
            retried,
        }
    }

    /// The gauge of a live phase; ended tasks have none.
    pub fn gauge(&mut self, phase: Phase) -> Option<&mut i64> {
        match phase {
            Phase::Waiting => Some(&mut self.waiting),
            Phase::Scheduled => Some(&mut self.scheduled),
            Phase::Queued => Some(&mut self.queued),
            Phase::Assigned => Some(&mut self.assigned),
            Phase::Running => Some(&mut self.running),
            Phase::Completed | Phase::Failed | Phase::Cancelled | Phase::Rejected => None,
        }
    }

    pub fn unstarted(&self) -> i64 {
        self.waiting + self.scheduled + self.queued
    }
}

/// The one row that says how far this store is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Meta {
    /// Who may write: raised at every start and takeover, checked in every commit.
    pub epoch: u64,
    pub next_seq: u64,
    pub next_flow: u64,
    pub next_delivery: u64,
    /// The greatest times seen; the core's clocks never go behind them.
    pub now: Now,
    /// Mixed into lease tokens, so that two stores never give the same one.
    pub salt: u64,
}

/// Rows the loop reads for one tick, named by the events in it.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    pub tasks: Vec<TaskId>,
    pub batches: Vec<BatchId>,
    pub sessions: Vec<SessionId>,
    pub session_keys: Vec<Name>,
    pub keys: Vec<crate::event::Idempotency>,
    pub schedules: Vec<ScheduleId>,
    pub schedule_names: Vec<Name>,
}

impl Needs {
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
            && self.batches.is_empty()
            && self.sessions.is_empty()
            && self.session_keys.is_empty()
            && self.keys.is_empty()
            && self.schedules.is_empty()
            && self.schedule_names.is_empty()
    }

    pub fn clear(&mut self) {
        self.tasks.clear();
        self.batches.clear();
        self.sessions.clear();
        self.session_keys.clear();
        self.keys.clear();
        self.schedules.clear();
        self.schedule_names.clear();
    }
}

#[derive(Clone, Debug, Default)]
pub struct Rows {
    pub tasks: Vec<Task>,
    pub batches: Vec<Batch>,
    pub sessions: Vec<Session>,
    pub keys: Vec<IdempotencyRow>,
    /// With what each makes a task of.
    pub schedules: Vec<(Schedule, Arc<Template>)>,
}

/// Everything a core starts from: O(flows + held tasks), whatever is queued.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    pub meta: Meta,
    pub flows: Vec<FlowRow>,
    /// Assigned and running tasks.
    pub held: Vec<Task>,
    pub batches: Vec<Batch>,
    /// Those that a held task belongs to.
    pub sessions: Vec<Session>,
    pub releases: Vec<Release>,
    pub counts: Vec<(CountKey, CountDelta)>,
    pub rates: Vec<(Name, u64)>,
    pub settings: Vec<(Name, Blob)>,
    pub n_schedules: u64,
    /// All that registered and were not removed.
    pub workers: Vec<WorkerRow>,
}
