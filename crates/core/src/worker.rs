//! Workers as the scheduler knows them: who they are, what they say of themselves, and what may be asked of them.
//!
//! ```text
//!              register                 sync (joins)
//!  unknown ───────────────► absent ──────────────────► here ──┐ sync: seen, vitals, reports
//!                             ▲  ▲                      │ ▲───┘
//!                   remove ◄──┘  └── silent, leaves, ───┘
//!                                    registers again
//! ```
//! Draining, cooling and trouble of its own keep a worker from being given anything new; they are not states beside these,
//! and a worker may be several of them. What is absent keeps its leases until its silence has lasted too long.

use crate::event::{Held, Report};
use crate::flow::{Resources, Shape};
use crate::ids::{TaskId, WorkerId};
use crate::name::{Blob, Name};
use crate::now::WallMs;
use crate::task::Text;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerSpec {
    pub id: WorkerId,
    pub name: Name,
    /// Kinds it runs.
    pub kinds: Vec<Name>,
    /// Those of them that go on when the worker's own process ends, and are presented again by the next one.
    pub keeps: Vec<Name>,
    pub capacity: Resources,
    pub parallel_max: Option<u32>,
    pub labels: Vec<(Name, Name)>,
    /// A server's own, in the scheduler's process or in that of another node: no CPU guard, never cooled.
    pub embedded: bool,
}

/// A worker that registered, as the store keeps it. The one in the scheduler's process needs none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerRow {
    pub spec: WorkerSpec,
    /// Which of the processes that called themselves this worker is the one that is heard.
    pub session: u64,
    pub draining: bool,
    pub registered_at: WallMs,
    /// What the edge keeps with it (key, host, version); unread by the core.
    pub about: Blob,
}

/// What a worker says of its machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Vitals {
    /// Thousandths of a percent, over all cores.
    pub cpu_usage_milli: Option<u32>,
    pub ram_free_mb: Option<u32>,
    /// Why it should get nothing for now, in its own words.
    pub trouble: Option<Text>,
    /// It takes so many more than it holds, whatever its size.
    pub want: Option<u32>,
}

#[derive(Clone, Debug)]
pub enum WorkerAct {
    /// It is there for the first time, or again: a process that called itself so before is not heard any more. `at` and
    /// `draining` of the row are the core's.
    Register(Box<WorkerRow>),
    Sync(Box<Sync>),
    /// Takes nothing new; what it runs goes on.
    Drain,
    Resume,
    /// For good. What it holds is lost.
    Remove,
}

/// Everything a worker has to say at one time.
#[derive(Clone, Debug)]
pub struct Sync {
    pub session: u64,
    /// It presents itself: what is not in `held` is lost at once.
    pub joins: bool,
    /// It says goodbye: what it still holds has the usual time to be presented again.
    pub leaves: bool,
    pub held: Vec<Held>,
    /// `None` of one that a later one has overtaken on its way: only its reports count, and it is no sign of life.
    pub vitals: Option<Vitals>,
    pub reports: Vec<(Held, Report)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkerAnswer {
    Registered(Box<WorkerRow>),
    Synced {
        /// Reports on leases that do not live: they changed nothing.
        refused: Vec<(TaskId, u32)>,
    },
    /// Drained, resumed or removed; as the act left it.
    Done(Box<WorkerView>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerRefusal {
    NotFound,
    /// Another process has registered under this id since.
    Fenced,
    /// It must present what it holds first: the scheduler does not count on it any more, or not yet.
    NotJoined,
    TooMany {
        limit: u32,
    },
    /// The one in the scheduler's process can be drained like any other, but nobody registers for it or removes it.
    Embedded,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WorkerStatus {
    Idle,
    Busy,
    /// Cooling down, or it says so itself.
    Unhealthy,
    Draining,
    Offline,
}

impl WorkerStatus {
    pub const ALL: [WorkerStatus; 5] = [
        WorkerStatus::Idle,
        WorkerStatus::Busy,
        WorkerStatus::Unhealthy,
        WorkerStatus::Draining,
        WorkerStatus::Offline,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            WorkerStatus::Idle => "idle",
            WorkerStatus::Busy => "busy",
            WorkerStatus::Unhealthy => "unhealthy",
            WorkerStatus::Draining => "draining",
            WorkerStatus::Offline => "offline",
        }
    }
}

/// One worker for whoever looks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerView {
    pub spec: WorkerSpec,
    pub status: WorkerStatus,
    /// Why it is unhealthy, draining or offline; empty otherwise.
    pub reason: Text,
    pub draining: bool,
    pub reserved: Resources,
    /// What a task could still get here.
    pub free: Resources,
    pub held: Vec<TaskId>,
    pub vitals: Vitals,
    pub seen_at: Option<WallMs>,
    pub cooling_until: Option<WallMs>,
    /// A task waits for room here, and others do not pass it.
    pub is_kept: bool,
    pub registered_at: Option<WallMs>,
    /// As the edge gave it; empty for the embedded one.
    pub about: Blob,
}

/// Work that finds no room, and workers without work.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Demand {
    pub unmet: Vec<Unmet>,
    pub idle: Vec<IdleWorker>,
    pub n_workers: u32,
}

/// Queued tasks of one shape that no worker has room for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unmet {
    pub shape: Shape,
    pub n_queued: u64,
    /// How long the one that has waited longest has done so.
    pub waited_ms: u64,
    /// Would it fit some worker that is there, were that idle?
    pub fits_some: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdleWorker {
    pub id: WorkerId,
    pub name: Name,
    pub idle_ms: u64,
}
