//! An expression in its zone, for those who count milliseconds.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::{Expr, Wrong};

/// When an expression fires in one zone.
#[derive(Clone, PartialEq, Debug)]
pub struct Calendar {
    expr: Expr,
    zone: TimeZone,
    zone_name: String,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoCalendar {
    #[error("{0}")]
    Expr(#[from] Wrong),
    #[error("`{0}` is no time zone; Europe/Berlin is one")]
    Zone(String),
}

impl Calendar {
    /// The zone by its IANA name.
    pub fn new(expr: &str, zone: &str) -> Result<Calendar, NoCalendar> {
        let found = TimeZone::get(zone).map_err(|_| NoCalendar::Zone(zone.to_owned()))?;
        Ok(Calendar { expr: expr.parse()?, zone: found, zone_name: zone.to_owned() })
    }

    pub fn expr(&self) -> &Expr {
        &self.expr
    }

    pub fn zone_name(&self) -> &str {
        &self.zone_name
    }

    /// The first moment after this one, in milliseconds since the Unix epoch.
    pub fn next_after_ms(&self, after_ms: u64) -> Option<u64> {
        let after = Timestamp::from_millisecond(i64::try_from(after_ms).ok()?).ok()?;
        let next = self.expr.next_after(&self.zone, after)?;
        u64::try_from(next.as_millisecond()).ok()
    }
}

/// Is this the IANA name of a time zone?
pub fn is_zone(name: &str) -> bool {
    TimeZone::get(name).is_ok()
}

/// A moment as people write it: RFC 3339, in UTC. One beyond the calendar is its last.
pub fn written(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.unwrap_or(Timestamp::MAX).to_string()
}
