//! Why does this task wait? The answer is the list of its gates, each open or closed right now, and its place.

use crate::ids::TaskId;
use crate::now::WallMs;
use crate::task::{Phase, Text};

/// At most so many holders are named for one gate.
pub const HOLDERS_MAX: usize = 20;

#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    pub task: TaskId,
    pub phase: Phase,
    pub reason: Text,
    /// In the order they are checked; data gates (dependencies, time, batch) first.
    pub gates: Vec<GateView>,
    /// Its place in its flow; only while it is queued. Counted by the loop, because memory holds only the head.
    pub ahead: Option<Ahead>,
    /// The task that would be served next over all flows, if one could start.
    pub next: Option<TaskId>,
}

impl Explanation {
    pub fn closed(&self) -> impl Iterator<Item = &GateView> {
        self.gates.iter().filter(|gate| !gate.open)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ahead {
    pub n: u32,
    /// Counting stopped here: there may be more.
    pub at_least: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub struct GateView {
    /// `global`, `agent`, `lane`, `kind`, `gate`, `worker`, `dependencies`, `time`, `batch`, `order`.
    pub kind: &'static str,
    /// Which one: the agent's name, the lane in force, …
    pub name: Text,
    pub open: bool,
    pub current: Option<u64>,
    pub limit: Option<u64>,
    pub holders: Vec<TaskId>,
    pub since_ms: Option<WallMs>,
    pub opens_at_ms: Option<WallMs>,
    pub detail: Text,
}
