//! Which runs have a right to a container now: what is not among them is nobody's.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use super::reclaim::Run;

#[derive(Default)]
pub(crate) struct LiveRuns {
    runs: Mutex<BTreeSet<Run>>,
}

/// Live until it is dropped, or for good.
pub(crate) struct Live<'a> {
    all: &'a LiveRuns,
    run: Run,
    goes_on: bool,
}

impl LiveRuns {
    pub(crate) fn enter(&self, run: Run) -> Live<'_> {
        self.lock().insert(run);
        Live { all: self, run, goes_on: false }
    }

    pub(crate) fn contains(&self, run: &Run) -> bool {
        self.lock().contains(run)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Run>> {
        self.runs.lock().expect("no thread panics while it holds the runs")
    }
}

impl Live<'_> {
    /// It has left this worker, but not its container.
    pub(crate) fn goes_on(mut self) {
        self.goes_on = true;
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        if !self.goes_on {
            self.all.lock().remove(&self.run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_live_until_it_has_ended_but_one_that_is_left_stays() {
        let runs = LiveRuns::default();
        let (ended, left) = (runs.enter((1, 1)), runs.enter((2, 1)));
        assert!(runs.contains(&(1, 1)) && runs.contains(&(2, 1)) && !runs.contains(&(1, 2)));
        drop(ended);
        left.goes_on();
        assert!(!runs.contains(&(1, 1)) && runs.contains(&(2, 1)));
    }
}
