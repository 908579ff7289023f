//! Chance from a seed: the plan of a run can be had again, though never its timing.

use std::ops::Range;
use std::time::Duration;

pub struct Dice {
    state: u64,
}

impl Dice {
    /// Each part of a run has a stream of its own, so that they do not depend on who draws first.
    pub fn new(seed: u64, stream: u64) -> Dice {
        Dice { state: seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03) }
    }

    pub fn between(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    pub fn ms(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.between(range))
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let n = items.len() as u64;
        (n > 0).then(|| &items[(self.next() % n) as usize])
    }

    /// Splitmix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}
