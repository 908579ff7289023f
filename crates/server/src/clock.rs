//! The one file at the edge that reads the real clock and draws ids.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use runyard_core::now::{Now, WallMs};

pub fn wall_ms() -> WallMs {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Time-ordered, so that new rows land at the end of the index on ids.
pub fn new_id() -> u128 {
    uuid::Uuid::now_v7().as_u128()
}

/// When [`new_id`] made this one: it is what the first 48 bits say.
pub fn made_at_ms(id: u128) -> WallMs {
    (id >> 80) as u64
}

/// Mixed into lease tokens of a new store.
pub fn salt() -> u64 {
    (new_id() >> 64) as u64 ^ new_id() as u64
}

/// Both clocks of the scheduler, going on from where its store left them.
pub struct Clock {
    start: Now,
    started: Instant,
}

impl From<Now> for Clock {
    fn from(start: Now) -> Clock {
        Clock { start, started: Instant::now() }
    }
}

impl Clock {
    pub fn now(&self) -> Now {
        let elapsed_ms = self.started.elapsed().as_millis() as u64;
        Now { wall_ms: wall_ms(), steady_ms: self.start.steady_ms + elapsed_ms }
    }
}
