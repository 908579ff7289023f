//! Waiting for a server that is away: longer each time, and not all workers at once.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(200);
/// A server that is back is found within this.
const LONGEST: Duration = Duration::from_secs(5);

pub(super) struct Backoff {
    n_tries: u32,
    dice: RandomState,
}

impl Backoff {
    pub(super) fn new() -> Backoff {
        Backoff { n_tries: 0, dice: RandomState::new() }
    }

    pub(super) fn n_tries(&self) -> u32 {
        self.n_tries
    }

    pub(super) fn reset(&mut self) {
        self.n_tries = 0;
    }

    pub(super) async fn pause(&mut self) {
        tokio::time::sleep(self.next()).await;
    }

    /// Between half of the step and the whole.
    fn next(&mut self) -> Duration {
        let step = FIRST.saturating_mul(1 << self.n_tries.min(10)).min(LONGEST);
        self.n_tries += 1;
        let part = (self.dice.hash_one(self.n_tries) % 1000) as f64 / 2000.0;
        step.mul_f64(0.5 + part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_differ_between_workers() {
        let pauses = || {
            let mut backoff = Backoff::new();
            (0..40).map(|_| backoff.next()).collect::<Vec<_>>()
        };
        let (one, other) = (pauses(), pauses());
        assert_ne!(one, other);
        assert!(one[0] >= FIRST / 2 && one[0] <= FIRST);
        assert!(one.iter().all(|pause| *pause <= LONGEST) && one[39] >= LONGEST / 2);
    }
}
