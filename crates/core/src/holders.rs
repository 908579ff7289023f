//! Who holds the slots of a gate, in the order victims are taken: lowest tier, then latest start.
//!
//! Starts come in their order, so a slot is taken at the end of its tier's list, and given back from wherever it stands:
//! either touches its neighbours only, however many tens of thousands hold one.

use crate::ids::TaskId;
use crate::slab::{Slab, SlotIx};
use crate::task::Tier;

#[derive(Debug, Default)]
pub(crate) struct Holders {
    slots: Slab<SlotIx, Slot>,
    /// The latest start of each tier.
    latest: [Option<SlotIx>; 4],
}

#[derive(Debug)]
struct Slot {
    task: TaskId,
    order: u64,
    tier: Tier,
    earlier: Option<SlotIx>,
    later: Option<SlotIx>,
}

impl Holders {
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `order` counts starts. A later one is told by it even when it comes first, as after a restart.
    pub fn take(&mut self, tier: Tier, order: u64, task: TaskId) -> SlotIx {
        let (mut earlier, mut later) = (self.latest[tier as usize], None);
        while let Some(ix) = earlier.filter(|&ix| self.slots[ix].order > order) {
            (earlier, later) = (self.slots[ix].earlier, Some(ix));
        }
        let ix = self.slots.insert(Slot { task, order, tier, earlier, later });
        self.link(earlier, Some(ix));
        match later {
            Some(later) => self.slots[later].earlier = Some(ix),
            None => self.latest[tier as usize] = Some(ix),
        }
        ix
    }

    /// Gives the task that held it.
    pub fn give_back(&mut self, ix: SlotIx) -> TaskId {
        let Slot { task, tier, earlier, later, .. } = self.slots.remove(ix);
        self.link(earlier, later);
        match later {
            Some(later) => self.slots[later].earlier = earlier,
            None => self.latest[tier as usize] = earlier,
        }
        task
    }

    fn link(&mut self, earlier: Option<SlotIx>, later: Option<SlotIx>) {
        if let Some(earlier) = earlier {
            self.slots[earlier].later = later;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.latest.iter().rev().flat_map(|&latest| {
            std::iter::successors(latest, |&ix| self.slots[ix].earlier).map(|ix| self.slots[ix].task)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    #[test]
    fn holders_come_by_tier_and_then_latest_first_whatever_was_given_back() {
        let mut holders = Holders::default();
        let mut expected: Vec<(std::cmp::Reverse<u8>, std::cmp::Reverse<u64>, TaskId, SlotIx)> = Vec::new();
        for n in 0..2000u64 {
            let draw = mix(n);
            if draw.is_multiple_of(3) && !expected.is_empty() {
                let (.., task, slot) = expected.swap_remove((draw / 3) as usize % expected.len());
                assert_eq!(holders.give_back(slot), task);
            } else {
                let tier = Tier::ALL[(draw >> 8) as usize % 4];
                // Some come out of their order.
                let order = if draw.is_multiple_of(7) { 10 * n + 49 } else { 10 * n + 100 };
                let task = TaskId(u128::from(n));
                let slot = holders.take(tier, order, task);
                expected.push((std::cmp::Reverse(tier as u8), std::cmp::Reverse(order), task, slot));
            }
            let mut sorted: Vec<_> = expected.iter().map(|(tier, order, task, _)| (*tier, *order, *task)).collect();
            sorted.sort();
            assert!(holders.iter().eq(sorted.into_iter().map(|(.., task)| task)));
            assert_eq!(holders.len(), expected.len());
        }
        assert!(expected.len() > 100);
    }
}
