//! Moments on the wall clock: milliseconds inside, RFC 3339 in JSON.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

/// A moment, RFC 3339 with milliseconds, in UTC. Requests may use any offset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ToSchema)]
#[schema(value_type = String, format = DateTime, example = "2026-11-15T21:55:31.000Z")]
pub struct Timestamp(pub u64);

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` is not a time: {detail}; a time looks like 2026-11-15T21:55:31Z or 2026-11-15T22:55:31+01:00")]
pub struct BadTimestamp {
    text: String,
    detail: String,
}

const QUOTED_CHARS_MAX: usize = 64;

impl Timestamp {
    /// Milliseconds since 1970 in UTC.
    pub fn as_ms(self) -> u64 {
        self.0
    }

    fn as_jiff(self) -> jiff::Timestamp {
        // What lies after the year 9999 is shown as the last moment that can be written.
        i64::try_from(self.0)
            .ok()
            .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
            .unwrap_or(jiff::Timestamp::MAX)
    }
}

impl FromStr for Timestamp {
    type Err = BadTimestamp;

    fn from_str(text: &str) -> Result<Timestamp, BadTimestamp> {
        let bad = |detail: String| BadTimestamp { text: text.chars().take(QUOTED_CHARS_MAX).collect(), detail };
        if text.len() > QUOTED_CHARS_MAX {
            return Err(bad("it is too long".into()));
        }
        let parsed: jiff::Timestamp = text.parse().map_err(|error: jiff::Error| bad(error.to_string()))?;
        let ms = u64::try_from(parsed.as_millisecond()).map_err(|_| bad("it lies before 1970".into()))?;
        Ok(Timestamp(ms))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.as_jiff())
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        struct TimestampVisitor;
        impl Visitor<'_> for TimestampVisitor {
            type Value = Timestamp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time as a string, like 2026-11-15T21:55:31Z")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Timestamp, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(TimestampVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_always_written() {
        assert_eq!(Timestamp(1_763_243_731_000).to_string(), "2025-11-15T21:55:31.000Z");
        assert_eq!(Timestamp(1_763_243_731_042).to_string(), "2025-11-15T21:55:31.042Z");
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert!(Timestamp(u64::MAX).to_string().starts_with("9999-12-30"));
    }

    #[test]
    fn any_offset_is_read() {
        let berlin: Timestamp = "2025-11-15T22:55:31.042+01:00".parse().unwrap();
        assert_eq!(berlin, Timestamp(1_763_243_731_042));
        assert_eq!(serde_json::from_str::<Timestamp>(r#""2025-11-15T21:55:31.042Z""#).unwrap(), berlin);
    }

    #[test]
    fn what_is_no_moment_is_refused_with_an_example() {
        for text in
            ["", "tomorrow", "2025-11-15", "2025-13-15T00:00:00Z", "1969-12-31T23:59:59Z", "2025-11-15T21:55:31"]
        {
            let error = text.parse::<Timestamp>().unwrap_err().to_string();
            assert!(error.contains("a time looks like"), "{error}");
        }
        assert!(serde_json::from_str::<Timestamp>("1763243731042").is_err());
    }
}
