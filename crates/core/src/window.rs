//! Memory holds only the head of what is stored: of each flow's queue, and of the due index of each clock.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{Due, Rest};
use crate::ids::TaskId;
use crate::line::Spot;

/// One flow may hold so many entries, whatever is left of the shared budget: a whole flood that arrives in one tick.
pub(crate) const WINDOW_FLOW_MAX: usize = 16_384;
/// Rows read for one flow in one refill.
pub const REFILL_ROWS_MAX: usize = 1024;

/// The first queued tasks of one flow, in order. Complete when it holds all of them.
#[derive(Debug, Default)]
pub(crate) struct Window {
    entries: BTreeMap<Spot, TaskId>,
}

impl Window {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn first(&self) -> Option<(Spot, TaskId)> {
        self.entries.first_key_value().map(|(&spot, &task)| (spot, task))
    }

    pub fn last(&self) -> Option<(Spot, TaskId)> {
        self.entries.last_key_value().map(|(&spot, &task)| (spot, task))
    }

    pub fn insert(&mut self, spot: Spot, task: TaskId) {
        self.entries.insert(spot, task);
    }

    pub fn remove(&mut self, spot: Spot) -> bool {
        self.entries.remove(&spot).is_some()
    }

    pub fn pop_last(&mut self) -> Option<(Spot, TaskId)> {
        self.entries.pop_last()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Spot, TaskId)> + '_ {
        self.entries.iter().map(|(&spot, &task)| (spot, task))
    }
}

/// The next due moments of one clock, or of the schedules. Memory knows all that is due up to the horizon.
#[derive(Debug)]
pub(crate) struct DueWindow<D = Due> {
    dues: BTreeSet<D>,
    horizon: Horizon<D>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Horizon<D> {
    /// Nothing has been read yet.
    Unread,
    /// Behind this the store may hold more.
    At(D),
    /// Everything in the store is here.
    None,
}

impl<D: Ord + Copy> DueWindow<D> {
    /// Starts out knowing nothing, so that a refill is wanted at once.
    pub fn unknown() -> DueWindow<D> {
        DueWindow { dues: BTreeSet::new(), horizon: Horizon::Unread }
    }

    pub fn insert(&mut self, due: D, max: usize) {
        let is_beyond = match self.horizon {
            Horizon::Unread => true,
            Horizon::At(horizon) => due > horizon,
            Horizon::None => false,
        };
        if is_beyond {
            return;
        }
        self.dues.insert(due);
        if self.dues.len() > max {
            // What is dropped stays in the store; the horizon says from where on.
            self.dues.pop_last();
            self.horizon = self.dues.last().map_or(Horizon::Unread, |last| Horizon::At(*last));
        }
    }

    pub fn remove(&mut self, due: D) {
        self.dues.remove(&due);
    }

    pub fn first(&self) -> Option<D> {
        self.dues.first().copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = &D> {
        self.dues.iter()
    }

    /// From where to read on, when memory runs low.
    pub fn wants(&self, max: usize) -> Option<Option<D>> {
        match self.horizon {
            Horizon::Unread => Some(None),
            Horizon::At(horizon) => (self.dues.len() <= max / 4).then_some(Some(horizon)),
            Horizon::None => None,
        }
    }

    pub fn refill(&mut self, dues: Vec<D>, rest: Rest) {
        self.horizon = match (rest, dues.last()) {
            (Rest::Done, _) => Horizon::None,
            (Rest::More, Some(last)) => Horizon::At(*last),
            (Rest::More, None) => self.horizon,
        };
        self.dues.extend(dues);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(at_ms: u64) -> Due {
        Due { at_ms, seq: at_ms, task: TaskId(u128::from(at_ms)) }
    }

    #[test]
    fn the_latest_is_forgotten_when_the_window_is_full_and_read_again() {
        let mut window = DueWindow::unknown();
        window.refill(Vec::new(), Rest::Done);
        for at_ms in [5, 1, 4, 2, 3] {
            window.insert(due(at_ms), 3);
        }
        assert_eq!(window.iter().map(|due| due.at_ms).collect::<Vec<_>>(), [1, 2, 3]);
        window.insert(due(9), 3);
        assert_eq!(window.horizon, Horizon::At(due(3)));
        window.remove(due(1));
        window.remove(due(2));
        window.remove(due(3));
        assert_eq!(window.wants(3), Some(Some(due(3))));
        window.refill(vec![due(4), due(5), due(9)], Rest::Done);
        assert_eq!(window.first(), Some(due(4)));
        assert_eq!(window.wants(3), None);
    }
}
