//! `traceparent` (W3C Trace Context): taken in with a submit, kept with the task, handed on to what it runs. No span is
//! made here, so it is handed on as it came.

use axum::http::HeaderMap;

/// The header, if it is one. What is not is as good as none: the trace begins anew behind us.
pub fn traceparent(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all("traceparent").into_iter();
    let (only, None) = (all.next()?, all.next()) else { return None };
    only.to_str().ok().filter(|text| is_valid(text))
}

fn is_valid(text: &str) -> bool {
    let is_hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let says_something = |part: &str| part.bytes().any(|byte| byte != b'0');
    let parts: Vec<&str> = text.split('-').collect();
    // A later version may have more to say; it is taken no longer than it is today.
    let [version, trace, parent, flags] = parts[..] else { return false };
    is_hex(version, 2)
        && version != "ff"
        && is_hex(trace, 32)
        && says_something(trace)
        && is_hex(parent, 16)
        && says_something(parent)
        && is_hex(flags, 2)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_a_well_formed_parent_is_taken() {
        const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("traceparent", HeaderValue::from_str(value).unwrap());
            }
            traceparent(&headers).map(str::to_owned)
        };
        assert_eq!(of(&[GOOD]).as_deref(), Some(GOOD));
        assert_eq!(of(&[GOOD, GOOD]), None);
        assert_eq!(of(&[]), None);
        for bad in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-extra",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0\u{e9}",
        ] {
            let header = HeaderValue::from_bytes(bad.as_bytes()).unwrap();
            let headers = HeaderMap::from_iter([(axum::http::HeaderName::from_static("traceparent"), header)]);
            assert_eq!(traceparent(&headers), None, "{bad}");
        }
    }
}
