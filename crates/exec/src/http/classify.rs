//! What a status that is not 2xx means for the task.
//!
//! | status | class |
//! |---|---|
//! | 429, and 503 with Retry-After | quota |
//! | 408 | timeout |
//! | 409, 425, other 5xx | task |
//! | 3xx, other 4xx | permanent |

use jiff::Timestamp;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

use crate::outcome::Class;

pub fn class_of(status: StatusCode, retry_after_ms: Option<u64>) -> Class {
    match status.as_u16() {
        429 => Class::Quota,
        503 if retry_after_ms.is_some() => Class::Quota,
        408 => Class::Timeout,
        409 | 425 | 500.. => Class::Task,
        _ => Class::Permanent,
    }
}

/// Seconds or an HTTP date; a date that has passed is "now". What is neither counts as absent.
pub fn retry_after_ms(headers: &HeaderMap, now: Timestamp) -> Option<u64> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More seconds than a number can hold is a very long time, not no time.
        return Some(value.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1000));
    }
    let at = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
    Some(u64::try_from(at.as_millisecond() - now.as_millisecond()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn every_status_has_its_class() {
        let table = [
            (301, None, Class::Permanent),
            (304, None, Class::Permanent),
            (400, None, Class::Permanent),
            (401, None, Class::Permanent),
            (404, None, Class::Permanent),
            (408, None, Class::Timeout),
            (409, None, Class::Task),
            (422, None, Class::Permanent),
            (425, None, Class::Task),
            (429, None, Class::Quota),
            (429, Some(1), Class::Quota),
            (500, None, Class::Task),
            (500, Some(1), Class::Task),
            (502, None, Class::Task),
            (503, None, Class::Task),
            (503, Some(0), Class::Quota),
            (504, None, Class::Task),
            (529, None, Class::Task),
        ];
        for (status, retry_after_ms, class) in table {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(class_of(status, retry_after_ms), class, "{status}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now: Timestamp = "2026-11-15T21:00:00Z".parse().expect("a time");
        let table = [
            ("7", Some(7000)),
            (" 0 ", Some(0)),
            ("Sun, 15 Nov 2026 21:00:30 GMT", Some(30_000)),
            ("Sun, 15 Nov 2026 20:59:30 GMT", Some(0)),
            ("99999999999999999999", Some(u64::MAX)),
            ("18446744073709551615", Some(u64::MAX)),
            ("", None),
            ("+7", None),
            ("-1", None),
            ("soon", None),
        ];
        for (value, expected) in table {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]);
            assert_eq!(retry_after_ms(&headers, now), expected, "{value}");
        }
        assert_eq!(retry_after_ms(&HeaderMap::new(), now), None);
    }
}
