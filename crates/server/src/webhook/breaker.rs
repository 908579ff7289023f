//! A target that is down is asked rarely. Its messages wait without using up their tries, and the others do not wait
//! behind them.
//!
//! ```text
//! closed ─(5 failures in a row)─► open for 30 s ─► half open: one probe ─► taken: closed
//!                                      ▲                                      │
//!                                      └── open for twice as long, ≤ 10 min ◄─┴─ failed
//! ```

use runyard_core::now::WallMs;

const FAILURES_MAX: u32 = 5;
const OPEN_MS_MIN: u64 = 30_000;
const OPEN_MS_MAX: u64 = 600_000;

#[derive(Debug, Default)]
pub struct Breaker {
    n_failures: u32,
    /// For how long it opens the next time.
    open_ms: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Closed,
    Open {
        until_ms: WallMs,
    },
    /// One probe is on its way.
    Probing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Free,
    /// Not before then; `None` while a probe is on its way.
    Shut {
        until_ms: Option<WallMs>,
    },
}

impl Breaker {
    /// May a message go now? The first one after the time is over is the probe.
    pub fn pass(&mut self, now_ms: WallMs) -> Way {
        let way = self.look(now_ms);
        if way == Way::Free && self.state != State::Closed {
            self.state = State::Probing;
        }
        way
    }

    /// As [`Breaker::pass`], and changes nothing.
    pub fn look(&self, now_ms: WallMs) -> Way {
        match self.state {
            State::Closed => Way::Free,
            State::Open { until_ms } if now_ms >= until_ms => Way::Free,
            State::Open { until_ms } => Way::Shut { until_ms: Some(until_ms) },
            State::Probing => Way::Shut { until_ms: None },
        }
    }

    pub fn succeeded(&mut self) {
        *self = Breaker::default();
    }

    pub fn failed(&mut self, now_ms: WallMs) {
        self.n_failures += 1;
        // Those that were on their way when it opened say nothing new.
        let opens = match self.state {
            State::Closed => self.n_failures >= FAILURES_MAX,
            State::Probing => true,
            State::Open { .. } => false,
        };
        if opens {
            self.open_ms = (self.open_ms * 2).clamp(OPEN_MS_MIN, OPEN_MS_MAX);
            self.state = State::Open { until_ms: now_ms + self.open_ms };
        }
    }

    /// The probe came to nothing that says anything about the target.
    pub fn undecided(&mut self, now_ms: WallMs) {
        if self.state == State::Probing {
            self.state = State::Open { until_ms: now_ms };
        }
    }

    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Nothing to remember.
    pub fn is_idle(&self) -> bool {
        self.state == State::Closed && self.n_failures == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened() -> Breaker {
        let mut breaker = Breaker::default();
        (0..FAILURES_MAX).for_each(|_| breaker.failed(0));
        breaker
    }

    #[test]
    fn it_opens_after_failures_in_a_row_only() {
        let mut breaker = Breaker::default();
        for _ in 0..3 {
            (1..FAILURES_MAX).for_each(|_| breaker.failed(0));
            assert_eq!(breaker.pass(0), Way::Free);
            breaker.succeeded();
        }
        assert_eq!(opened().pass(0), Way::Shut { until_ms: Some(OPEN_MS_MIN) });
    }

    #[test]
    fn one_probe_decides() {
        let mut breaker = opened();
        assert_eq!(breaker.pass(OPEN_MS_MIN - 1), Way::Shut { until_ms: Some(OPEN_MS_MIN) });
        assert_eq!(breaker.pass(OPEN_MS_MIN), Way::Free);
        assert_eq!(breaker.pass(OPEN_MS_MIN), Way::Shut { until_ms: None });
        breaker.failed(OPEN_MS_MIN);
        assert_eq!(breaker.pass(OPEN_MS_MIN), Way::Shut { until_ms: Some(3 * OPEN_MS_MIN) });
        assert_eq!(breaker.pass(3 * OPEN_MS_MIN), Way::Free);
        breaker.succeeded();
        assert!(breaker.is_idle());
        assert_eq!(breaker.pass(0), Way::Free);
        assert_eq!(breaker.pass(0), Way::Free);
    }

    #[test]
    fn it_waits_longer_each_time_up_to_a_limit_and_late_failures_change_nothing() {
        let mut breaker = opened();
        breaker.failed(5);
        let mut now_ms = 0;
        let mut waits = Vec::new();
        for _ in 0..8 {
            let Way::Shut { until_ms: Some(until_ms) } = breaker.pass(now_ms) else { panic!("it is open") };
            waits.push(until_ms - now_ms);
            now_ms = until_ms;
            assert_eq!(breaker.pass(now_ms), Way::Free);
            breaker.failed(now_ms);
        }
        assert_eq!(waits, [30_000, 60_000, 120_000, 240_000, 480_000, 600_000, 600_000, 600_000]);
    }

    #[test]
    fn a_probe_that_says_nothing_leaves_room_for_another() {
        let mut breaker = opened();
        assert_eq!(breaker.pass(OPEN_MS_MIN), Way::Free);
        breaker.undecided(OPEN_MS_MIN);
        assert_eq!(breaker.pass(OPEN_MS_MIN), Way::Free);
        assert_eq!(breaker.pass(OPEN_MS_MIN), Way::Shut { until_ms: None });
    }
}
