//! Headers that every answer has, and the id that ties a request to its answer.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::clock;

/// What an API has to tell a browser: this is data, show it nowhere, keep it nowhere. A route that serves pages says
/// otherwise itself.
const SECURE: [(HeaderName, HeaderValue); 6] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
];

pub fn secure(headers: &mut HeaderMap) {
    for (name, value) in SECURE {
        headers.entry(name).or_insert(value);
    }
}

const ID_BYTES_MAX: usize = 128;

/// The client's own id, if it is one that can be logged; else a new one.
pub fn request_id(asked: Option<&HeaderValue>) -> HeaderValue {
    let is_plain = |id: &&HeaderValue| {
        (1..=ID_BYTES_MAX).contains(&id.len()) && id.as_bytes().iter().all(|byte| byte.is_ascii_graphic())
    };
    let fresh = || {
        let id = runyard_wire::Id(clock::new_id()).to_string();
        HeaderValue::from_str(&id).expect("an id is printable")
    };
    asked.filter(is_plain).cloned().unwrap_or_else(fresh)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_can_be_logged_comes_back_and_another_is_replaced() {
        let id = |text: &[u8]| request_id(Some(&HeaderValue::from_bytes(text).unwrap()));
        assert_eq!(id(b"abc-1"), "abc-1");
        let long = [b'x'; ID_BYTES_MAX + 1];
        for asked in [&b""[..], b"a b", b"\xff", b"a\tb", &long] {
            assert_eq!(id(asked).len(), 36, "{asked:?}");
        }
        assert_ne!(request_id(None), request_id(None));
    }
}
