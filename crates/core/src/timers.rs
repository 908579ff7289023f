//! Moments of the steady clock at which the core looks at something again.
//!
//! Whatever one tick sets mostly falls into the same moment, so a moment holds its timers: setting and clearing one, which
//! every attempt does several times, looks among few moments and then among those of one.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{TaskId, WorkerId};
use crate::now::SteadyMs;
use crate::slab::{FlowIx, GateIx};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Timer {
    /// Assigned, and not started in time; or running longer than an attempt may.
    Attempt(TaskId),
    Silence(TaskId),
    Worker(WorkerId),
    Cooled(WorkerId),
    Rate(GateIx),
    /// A flow has waited long enough for a worker to have one kept for it.
    Reserve(FlowIx),
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// None of them empty.
    by_moment: BTreeMap<SteadyMs, BTreeSet<Timer>>,
}

impl Timers {
    pub fn insert(&mut self, at_ms: SteadyMs, timer: Timer) {
        self.by_moment.entry(at_ms).or_default().insert(timer);
    }

    /// One that rang, or was never set, is nobody's loss.
    pub fn remove(&mut self, at_ms: SteadyMs, timer: Timer) {
        let Some(timers) = self.by_moment.get_mut(&at_ms) else { return };
        timers.remove(&timer);
        if timers.is_empty() {
            self.by_moment.remove(&at_ms);
        }
    }

    pub fn contains(&self, at_ms: SteadyMs, timer: Timer) -> bool {
        self.by_moment.get(&at_ms).is_some_and(|timers| timers.contains(&timer))
    }

    pub fn first(&self) -> Option<(SteadyMs, Timer)> {
        self.iter().next()
    }

    pub fn iter(&self) -> impl Iterator<Item = (SteadyMs, Timer)> + '_ {
        self.by_moment.iter().flat_map(|(&at_ms, timers)| timers.iter().map(move |&timer| (at_ms, timer)))
    }
}
