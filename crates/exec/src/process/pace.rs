//! How often a run is looked at. Hundreds of them may wait for something at the same time, each in a process of its own:
//! one that says nothing is looked at less and less often.

use std::time::Duration;

use tokio::time::Instant;

/// While it says something: how soon a line of its report, or an output without a line end, is seen.
const INTERVAL_MIN: Duration = Duration::from_millis(250);
/// While it says nothing. Five hundred supervisors that looked every 250 ms took a quarter of a core.
const INTERVAL_MAX: Duration = Duration::from_secs(1);

pub(crate) struct Pace {
    interval: Duration,
    interval_max: Duration,
    at: Instant,
}

/// What a look has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    News,
    Nothing,
}

impl Pace {
    /// Whose silence is measured is looked at all the time: a sign of life that is seen late may be seen too late.
    pub(crate) fn new(now: Instant, watch_silence: bool) -> Pace {
        let interval_max = if watch_silence { INTERVAL_MIN } else { INTERVAL_MAX };
        Pace { interval: INTERVAL_MIN, interval_max, at: now + INTERVAL_MIN }
    }

    /// When to look next.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    pub(crate) fn looked(&mut self, now: Instant, look: Look) {
        self.interval = match look {
            Look::News => INTERVAL_MIN,
            Look::Nothing => (self.interval * 2).min(self.interval_max),
        };
        self.at = now + self.interval;
    }

    /// There is output: what follows is worth a look soon.
    pub(crate) fn hurry(&mut self, now: Instant) {
        self.interval = INTERVAL_MIN;
        self.at = self.at.min(now + INTERVAL_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In milliseconds, when it is looked at.
    fn moments(pace: &mut Pace, began: Instant, looks: &[Look]) -> Vec<u128> {
        let look = |look: &Look| {
            let at = pace.at();
            pace.looked(at, *look);
            at.duration_since(began).as_millis()
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn silence_is_looked_at_less_often_until_something_is_said() {
        let began = Instant::now();
        let mut pace = Pace::new(began, false);
        let looks = [Look::Nothing, Look::Nothing, Look::Nothing, Look::News, Look::Nothing, Look::Nothing];
        assert_eq!(moments(&mut pace, began, &looks), [250, 750, 1750, 2750, 3000, 3500]);
        pace.hurry(began + Duration::from_millis(3600));
        assert_eq!(moments(&mut pace, began, &[Look::Nothing, Look::Nothing]), [3850, 4350]);
    }

    #[test]
    fn whose_silence_is_measured_is_looked_at_all_the_time() {
        let began = Instant::now();
        let mut pace = Pace::new(began, true);
        assert_eq!(moments(&mut pace, began, &[Look::Nothing; 3]), [250, 500, 750]);
    }

    /// Who talks without a pause is looked at all the same.
    #[test]
    fn a_hurry_does_not_put_a_look_off() {
        let began = Instant::now();
        let mut pace = Pace::new(began, false);
        pace.hurry(began + Duration::from_millis(200));
        assert_eq!(pace.at(), began + INTERVAL_MIN);
    }
}
