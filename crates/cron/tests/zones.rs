//! Every zone of the database, every setting of its clock from 2000 to 2040, against a walk through the minutes that
//! knows nothing of how the next one is found.

#![allow(clippy::unwrap_used)]

use std::collections::HashSet;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use runyard_cron::Expr;

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// Around each setting: enough for the largest there is, a whole day.
const BEFORE: SignedDuration = SignedDuration::from_hours(4);
const AFTER: SignedDuration = SignedDuration::from_hours(5);

struct Setting {
    zone: TimeZone,
    name: String,
    at: Timestamp,
}

/// Zones are many, and most are another one's links: settings that look the same are looked at once.
fn settings() -> Vec<Setting> {
    let (from, to) = (time("2000-01-01T00:00:00Z"), time("2040-12-31T00:00:00Z"));
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for name in jiff::tz::db().available() {
        let zone = TimeZone::get(name.as_str()).expect("a zone that is listed");
        for set in zone.following(from).take_while(|set| set.timestamp() < to) {
            let at = set.timestamp();
            let before = zone.to_offset(at.checked_sub(MINUTE).expect("in range"));
            if before != set.offset() && seen.insert((at, before, set.offset())) {
                found.push(Setting { zone: zone.clone(), name: name.to_string(), at });
            }
        }
    }
    assert!(found.len() > 3_000, "{} settings", found.len());
    found
}

fn time(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

/// The moments at which a clock that is looked at every minute says that it is time.
fn walked(set: &Setting, expr: &Expr, fits: impl Fn(DateTime) -> bool) -> Vec<Timestamp> {
    let (from, to) = (set.at.checked_sub(BEFORE).unwrap(), set.at.checked_add(AFTER).unwrap());
    let mut at = from.checked_sub(BEFORE).unwrap();
    let mut fired = Vec::new();
    let mut last_shown: Option<DateTime> = None;
    // The furthest the clock has been: what it shows again is the second pass.
    let mut furthest: Option<DateTime> = None;
    while at <= to {
        let shown = set.zone.to_datetime(at);
        let is_again = furthest.is_some_and(|furthest| shown <= furthest);
        let skipped = || {
            let first = last_shown.expect("looked at before").checked_add(MINUTE).unwrap();
            let minutes = std::iter::successors(Some(first), |minute| minute.checked_add(MINUTE).ok());
            minutes.take_while(|minute| *minute < shown).any(&fits)
        };
        let jumped = last_shown.is_some_and(|last| last.checked_add(MINUTE).unwrap() < shown);
        let is_time = match expr.is_interval() {
            true => fits(shown),
            false => !is_again && (fits(shown) || jumped && skipped()),
        };
        if is_time && at > from {
            fired.push(at);
        }
        furthest = furthest.max(Some(shown));
        last_shown = Some(shown);
        at = at.checked_add(MINUTE).unwrap();
    }
    fired
}

fn compare(expr: &str, fits: impl Fn(DateTime) -> bool) {
    let expr: Expr = expr.parse().expect("valid");
    for set in settings() {
        let (from, to) = (set.at.checked_sub(BEFORE).unwrap(), set.at.checked_add(AFTER).unwrap());
        let found: Vec<Timestamp> = expr.upcoming(&set.zone, from).take_while(|at| *at <= to).collect();
        let walked = walked(&set, &expr, &fits);
        assert_eq!(found, walked, "{expr} in {} around {}", set.name, set.at);
        assert!(found.iter().all(|at| *at > from) && found.is_sorted_by(|a, b| a < b), "{expr} in {}", set.name);
    }
}

#[test]
fn times_of_day_fire_once_each_however_the_clock_is_set() {
    compare("20,50 0-23 * * *", |shown| [20, 50].contains(&shown.minute()));
}

#[test]
fn a_time_of_day_is_neither_missed_nor_doubled() {
    compare("30 2 * * *", |shown| (shown.hour(), shown.minute()) == (2, 30));
}

#[test]
fn midnight_is_neither_missed_nor_doubled() {
    compare("0 0 * * *", |shown| (shown.hour(), shown.minute()) == (0, 0));
}

#[test]
fn intervals_fire_whenever_the_clock_shows_it() {
    compare("*/15 * * * *", |shown| shown.minute() % 15 == 0);
}

#[test]
fn days_are_those_of_the_zone() {
    compare("10 * * * 0", |shown| shown.minute() == 10 && shown.weekday() == jiff::civil::Weekday::Sunday);
}

/// goclaw 66: a window over midnight is two ranges of hours.
#[test]
fn a_window_over_midnight_fires_inside_of_it_only() {
    let calendar = runyard_cron::Calendar::new("* 22-23,0-5 * * *", "Europe/Berlin").expect("valid");
    for (time, is_inside) in [
        ("22:00", true),
        ("23:30", true),
        ("02:00", true),
        ("05:59", true),
        ("06:00", false),
        ("14:00", false),
        ("21:59", false),
    ] {
        let at: jiff::Zoned = format!("2026-06-10T{time}[Europe/Berlin]").parse().expect("a moment");
        let at = at.timestamp().as_millisecond().unsigned_abs();
        assert_eq!(calendar.next_after_ms(at - 1) == Some(at), is_inside, "{time}");
    }
}
