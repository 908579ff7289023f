//! Cron expressions: when they fire in a time zone, and what they say in English.
//!
//! Five fields (minute, hour, day of month, month, day of week), or six with the second first. Each is a list of values,
//! ranges and steps; months and days of the week have names; days take `L` (last), `W` (nearest weekday) and `#` (the nth).
//! `@hourly` and its like stand for the usual ones.
//!
//! # Two rules that need saying
//!
//! **Days.** With both day fields restricted, a day that fits either fires; a field that begins with `*` is not restricted,
//! and a day then has to fit both. That is how cron has always done it.
//!
//! **Clocks that are set.** An hour field that begins with `*` means an interval: it fires whenever the clock on the wall
//! shows a time that fits, so also in both passes through a repeated hour, and not in a skipped one. Any other hour field
//! means times of day: one in a skipped hour fires when the clock goes on, once however many were skipped; one in a repeated
//! hour fires in the first pass only.
//!
//! Nothing here reads a clock: the same expression, zone and moment give the same answer.

#![forbid(unsafe_code)]

mod calendar;
mod days;
mod describe;
mod field;
mod next;
mod parse;

use days::Days;
use field::Field;

pub use calendar::{Calendar, NoCalendar, is_zone, written};
pub use parse::Wrong;

/// Reading is strict: what can never fire, or surely was not meant, is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expr {
    text: String,
    second: Field,
    minute: Field,
    hour: Field,
    month: Field,
    days: Days,
}

impl Expr {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Fires by elapsed time, not at times of day.
    pub fn is_interval(&self) -> bool {
        self.hour.is_star()
    }

    /// Means "each so many hours": whoever writes it hardly cares about the second, and everybody writes it.
    pub fn is_on_the_hour(&self) -> bool {
        self.is_interval() && self.minute == Field::of([0]) && self.second.count() == 1
    }
}

impl std::str::FromStr for Expr {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Expr, Wrong> {
        parse::expr(text)
    }
}

impl std::fmt::Display for Expr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_the_hour_is_what_says_only_which_hours() {
        for (text, expected) in [
            ("@hourly", true),
            ("0 * * * *", true),
            ("0 */2 * * MON-FRI", true),
            ("30 0 * * * *", true),
            ("* 0 * * * *", false),
            ("0,30 * * * *", false),
            ("*/5 * * * *", false),
            ("5 * * * *", false),
            ("0 9 * * *", false),
            ("@daily", false),
        ] {
            assert_eq!(text.parse::<Expr>().expect("valid").is_on_the_hour(), expected, "{text}");
        }
    }
}
