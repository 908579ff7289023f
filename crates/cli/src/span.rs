//! Lengths of time, moments and parts of a whole, as people write and read them.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use runyard_wire::Timestamp;

/// A length of time: `250ms`, `5s`, `1.5h`, `1h30m`, `7d`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span(pub Duration);

const UNITS: [(&str, f64); 5] = [("ms", 1.0), ("s", 1000.0), ("m", 60_000.0), ("h", 3_600_000.0), ("d", 86_400_000.0)];
/// A thousand years: what is longer is a slip of the finger, and would overflow elsewhere.
const SPAN_MS_MAX: f64 = 1000.0 * 365.0 * 86_400_000.0;

impl Span {
    pub fn as_ms(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let bad = || format!("`{text}` is no length of time; it looks like 250ms, 5s, 1h30m or 7d");
        let mut rest = text.trim();
        let mut ms = 0.0;
        if rest.is_empty() {
            return Err(bad());
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
            let (amount, tail) = rest.split_at(digits);
            let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(letters);
            let amount: f64 = amount.parse().map_err(|_| bad())?;
            let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
            ms += amount * unit_ms;
            rest = tail.trim_start();
        }
        if ms > SPAN_MS_MAX {
            return Err(bad());
        }
        Ok(Span(Duration::from_micros((ms * 1000.0).round() as u64)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&short(self.as_ms()))
    }
}

/// A moment: RFC 3339, or a length of time from now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment(pub Timestamp);

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Moment, String> {
        let span = text.strip_prefix('+').unwrap_or(text).parse::<Span>();
        match (span, text.parse::<Timestamp>()) {
            (Ok(span), _) => Ok(Moment(Timestamp(now().0 + span.as_ms()))),
            (_, Ok(at)) => Ok(Moment(at)),
            (_, Err(error)) => Err(format!("{error}, or like 10m: that long from now")),
        }
    }
}

pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The two greatest units: `850ms`, `4.2s`, `3m05s`, `2h10m`, `6d04h`.
pub fn short(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms}ms"),
        1..10 => format!("{}.{}s", seconds, ms % 1000 / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// A part of a whole, 0.0 to 1.0.
pub fn percent(fraction: f64) -> String {
    format!("{:.0} %", fraction * 100.0)
}

/// How long ago, or how long still.
pub fn from_now(at: Timestamp) -> String {
    let now = now().0;
    if at.0 > now { format!("in {}", short(at.0 - now)) } else { format!("{} ago", short(now - at.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read_as_people_write_them() {
        for (text, ms) in [("250ms", 250), ("5s", 5000), ("1.5h", 5_400_000), ("1h30m", 5_400_000), ("0s", 0)] {
            assert_eq!(text.parse::<Span>().unwrap().as_ms(), ms, "{text}");
        }
        for text in ["", "5", "s", "5 parsecs", "-5s", "1..5s", "99999999999d", "5sx"] {
            assert!(text.parse::<Span>().unwrap_err().contains("it looks like"), "{text}");
        }
    }

    #[test]
    fn lengths_are_written_short() {
        for (ms, text) in
            [(850, "850ms"), (4_250, "4.2s"), (185_000, "3m05s"), (7_800_000, "2h10m"), (532_800_000, "6d04h")]
        {
            assert_eq!(short(ms), text);
        }
    }

    #[test]
    fn a_moment_may_be_relative() {
        let before = now().0;
        let Moment(at) = "+10m".parse().unwrap();
        assert!((before + 600_000..=now().0 + 600_000).contains(&at.0));
        assert_eq!("1970-01-01T00:00:01Z".parse::<Moment>().unwrap().0, Timestamp(1000));
        assert!("soon".parse::<Moment>().unwrap_err().contains("like 10m"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_length_of_time_or_is_refused(text in "[0-9.]{0,20}[a-z]{0,3}[0-9.]{0,20}[a-z]{0,3}", other in ".{0,30}") {
            for text in [text, other] {
                let _ = text.parse::<Moment>();
                if let Ok(span) = text.parse::<Span>() {
                    proptest::prop_assert!(span.as_ms() as f64 <= SPAN_MS_MAX, "{text}");
                }
            }
        }

        #[test]
        fn what_is_shown_of_a_length_of_time_can_be_read_again(ms in 0u64..10_000_000_000) {
            proptest::prop_assert!(short(ms).parse::<Span>().is_ok(), "{}", short(ms));
        }
    }
}
