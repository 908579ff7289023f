//! Moments of the steady clock at which the core looks at something again.
//!
//! Whatever one tick sets mostly falls into the same moment, so a moment holds its timers. Setting and clearing one, which
//! every attempt does several times, needs no order among those of a moment: they are put in order when it has come.

use std::collections::{BTreeMap, BTreeSet};

use crate::hash::DetSet;
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
    by_moment: BTreeMap<SteadyMs, DetSet<Timer>>,
    /// Those whose moment has come.
    due: BTreeSet<(SteadyMs, Timer)>,
}

impl Timers {
    pub fn insert(&mut self, at_ms: SteadyMs, timer: Timer) {
        self.by_moment.entry(at_ms).or_default().insert(timer);
    }

    /// One that rang, or was never set, is nobody's loss.
    pub fn remove(&mut self, at_ms: SteadyMs, timer: Timer) {
        let Some(timers) = self.by_moment.get_mut(&at_ms) else {
            self.due.remove(&(at_ms, timer));
            return;
        };
        if !timers.remove(&timer) {
            self.due.remove(&(at_ms, timer));
        }
        if timers.is_empty() {
            self.by_moment.remove(&at_ms);
        }
    }

    pub fn contains(&self, at_ms: SteadyMs, timer: Timer) -> bool {
        self.by_moment.get(&at_ms).is_some_and(|timers| timers.contains(&timer)) || self.due.contains(&(at_ms, timer))
    }

    pub fn next_ms(&self) -> Option<SteadyMs> {
        let due = self.due.first().map(|&(at_ms, _)| at_ms);
        self.by_moment.keys().next().copied().into_iter().chain(due).min()
    }

    /// Takes out the first whose moment has come.
    pub fn ring(&mut self, now_ms: SteadyMs) -> Option<Timer> {
        while let Some(moment) = self.by_moment.first_entry().filter(|moment| *moment.key() <= now_ms) {
            let at_ms = *moment.key();
            self.due.extend(moment.remove().into_iter().map(|timer| (at_ms, timer)));
        }
        self.due.pop_first().map(|(_, timer)| timer)
    }

    pub fn iter(&self) -> impl Iterator<Item = (SteadyMs, Timer)> + '_ {
        let later = self.by_moment.iter().flat_map(|(&at_ms, timers)| timers.iter().map(move |&timer| (at_ms, timer)));
        self.due.iter().copied().chain(later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(n: u128) -> Timer {
        Timer::Attempt(TaskId(n))
    }

    #[test]
    fn timers_ring_by_their_moments_and_what_was_cleared_does_not() {
        let mut timers = Timers::default();
        for n in [3, 1, 2] {
            timers.insert(20, attempt(n));
        }
        timers.insert(10, attempt(4));
        timers.remove(20, attempt(1));
        assert_eq!((timers.next_ms(), timers.ring(9)), (Some(10), None));
        assert_eq!(timers.ring(25), Some(attempt(4)));
        // Set while others of later moments wait for their turn, it still comes before them.
        timers.insert(15, attempt(5));
        assert_eq!((timers.ring(25), timers.ring(25)), (Some(attempt(5)), Some(attempt(2))));
        timers.remove(20, attempt(3));
        assert_eq!((timers.ring(25), timers.next_ms()), (None, None));
    }
}
