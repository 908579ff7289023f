//! When it fires next.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use crate::Expr;

/// The longest wait there is: a 29 February over a century that has none.
const YEARS_MAX: i16 = 8;
const SECOND: SignedDuration = SignedDuration::from_secs(1);

impl Expr {
    /// The first moment after this one. None when there is none before the calendar ends.
    pub fn next_after(&self, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
        if self.is_interval() { self.next_shown(zone, after) } else { self.next_time_of_day(zone, after) }
    }

    /// The next moments, from the first after this one.
    pub fn upcoming<'a>(&'a self, zone: &'a TimeZone, after: Timestamp) -> impl Iterator<Item = Timestamp> + 'a {
        std::iter::successors(self.next_after(zone, after), |at| self.next_after(zone, *at))
    }

    /// The next moment at which the clock on the wall shows a time that fits. Between two settings of the clock it only
    /// runs, so one stretch is looked at after the other.
    fn next_shown(&self, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
        let mut start = whole_second(after).checked_add(SECOND).ok()?;
        loop {
            let offset = zone.to_offset(start);
            let shown = self.next_fit(offset.to_datetime(start))?;
            let at = offset.to_timestamp(shown).ok()?;
            match zone.following(start).next() {
                Some(set) if at >= set.timestamp() => start = set.timestamp(),
                _ => return Some(at),
            }
        }
    }

    fn next_time_of_day(&self, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
        let mut from = zone.to_datetime(whole_second(after));
        loop {
            let fit = self.next_fit(from)?;
            // Not later when it has already passed: in the second pass through an hour, or at `after` itself.
            match moment(zone, fit)? {
                at if at > after => return Some(at),
                _ => from = fit.checked_add(SECOND).ok()?,
            }
        }
    }

    /// The first date and time that fits and is not before.
    fn next_fit(&self, from: DateTime) -> Option<DateTime> {
        let (mut date, mut time) = (from.date(), from.time());
        let last_year = date.year().saturating_add(YEARS_MAX);
        while date.year() <= last_year {
            if !self.month.has(number(date.month())) {
                date = date.last_of_month().tomorrow().ok()?;
                time = Time::midnight();
                continue;
            }
            if self.days.fit(date)
                && let Some(time) = self.next_time(time)
            {
                return Some(DateTime::from_parts(date, time));
            }
            date = tomorrow(date)?;
            time = Time::midnight();
        }
        None
    }

    fn next_time(&self, from: Time) -> Option<Time> {
        let (hour, minute, second) = (number(from.hour()), number(from.minute()), number(from.second()));
        if self.hour.has(hour) {
            if self.minute.has(minute)
                && let Some(second) = self.second.from(second)
            {
                return Some(time(hour, minute, second));
            }
            if let Some(minute) = self.minute.from(minute + 1) {
                return Some(time(hour, minute, self.second.first()));
            }
        }
        let hour = self.hour.from(hour + 1)?;
        Some(time(hour, self.minute.first(), self.second.first()))
    }
}

/// When a time of day is: the first pass of two, and where it is skipped, the moment the clock is set.
fn moment(zone: &TimeZone, shown: DateTime) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(shown).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(shown).ok(),
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(shown).ok(),
        AmbiguousOffset::Gap { after, .. } => {
            // By the new time it lies before the setting, and nothing lies between them.
            zone.following(after.to_timestamp(shown).ok()?).next().map(|set| set.timestamp())
        }
    }
}

fn whole_second(at: Timestamp) -> Timestamp {
    let below = SignedDuration::from_nanos(at.as_nanosecond().rem_euclid(1_000_000_000) as i64);
    // Only the very first moment of the calendar has none before it.
    at.checked_sub(below).unwrap_or(at)
}

fn tomorrow(date: Date) -> Option<Date> {
    date.tomorrow().ok()
}

fn time(hour: u32, minute: u32, second: u32) -> Time {
    Time::constant(hour as i8, minute as i8, second as i8, 0)
}

/// Parts of a date or time are small and not negative.
fn number(n: i8) -> u32 {
    n.unsigned_abs().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(expr: &str, zone: &str, after: &str, n: usize) -> Vec<String> {
        let expr: Expr = expr.parse().expect("valid");
        let zone = TimeZone::get(zone).expect("a zone");
        let after: Timestamp = after.parse().expect("a time");
        expr.upcoming(&zone, after).take(n).map(|at| at.to_string()).collect()
    }

    #[test]
    fn times_of_day_in_a_zone() {
        assert_eq!(runs("0 9 * * *", "America/Toronto", "2026-03-28T12:00:00Z", 1), ["2026-03-28T13:00:00Z"]);
        assert_eq!(runs("0 9 * * *", "UTC", "2026-03-28T09:00:00Z", 1), ["2026-03-29T09:00:00Z"]);
        assert_eq!(runs("0 9 * * *", "UTC", "2026-03-28T08:59:59.999Z", 1), ["2026-03-28T09:00:00Z"]);
        assert_eq!(
            runs("15,45 30 8 * * *", "UTC", "2026-01-01T08:30:15Z", 2),
            ["2026-01-01T08:30:45Z", "2026-01-02T08:30:15Z"]
        );
    }

    /// goclaw 44
    #[test]
    fn a_skipped_time_of_day_fires_when_the_clock_goes_on_and_only_once() {
        // Berlin goes from 02:00 to 03:00 at 01:00Z on 29 March 2026.
        let berlin = |expr, n| runs(expr, "Europe/Berlin", "2026-03-28T12:00:00Z", n);
        assert_eq!(berlin("30 2 * * *", 2), ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
        assert_eq!(berlin("0,15,30 2 * * *", 2), ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]);
        assert_eq!(berlin("0 2,3 * * *", 2), ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]);
    }

    /// goclaw 44
    #[test]
    fn a_repeated_time_of_day_fires_in_the_first_pass() {
        // Berlin goes back from 03:00 to 02:00 at 01:00Z on 25 October 2026.
        let berlin = |after, n| runs("30 2 * * *", "Europe/Berlin", after, n);
        assert_eq!(berlin("2026-10-24T12:00:00Z", 2), ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
        // Asked in the second pass.
        assert_eq!(berlin("2026-10-25T01:10:00Z", 1), ["2026-10-26T01:30:00Z"]);
    }

    #[test]
    fn intervals_follow_the_clock_as_it_runs() {
        let berlin = |after, n| runs("30 * * * *", "Europe/Berlin", after, n);
        assert_eq!(
            berlin("2026-03-29T00:00:00Z", 3),
            ["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z", "2026-03-29T02:30:00Z"]
        );
        assert_eq!(
            berlin("2026-10-25T00:00:00Z", 3),
            ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"]
        );
        assert_eq!(
            runs("*/20 * * * *", "UTC", "2026-01-01T00:59:59.5Z", 2),
            ["2026-01-01T01:00:00Z", "2026-01-01T01:20:00Z"]
        );
    }

    #[test]
    fn rare_days_are_waited_for() {
        assert_eq!(runs("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", 1), ["2104-02-29T00:00:00Z"]);
        assert_eq!(
            runs("0 0 31 * *", "UTC", "2026-03-31T00:00:00Z", 2),
            ["2026-05-31T00:00:00Z", "2026-07-31T00:00:00Z"]
        );
        assert!(runs("0 0 1 1 *", "UTC", "9999-06-01T00:00:00Z", 1).is_empty());
    }

    #[test]
    fn a_day_that_was_skipped_whole() {
        // Samoa had no 30 December 2011.
        assert_eq!(
            runs("0 12 * * *", "Pacific/Apia", "2011-12-29T23:00:00Z", 2),
            ["2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"]
        );
    }
}
