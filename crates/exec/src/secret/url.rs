//! Secrets in the URL of a request.

use reqwest::Url;
use serde_json::value::RawValue;
use url::Position;

use super::replaced;

/// Do all references in its URL stand behind scheme, user, host and port? Whatever stands there is looked up, lower-cased
/// and quoted in errors of all kinds.
pub(super) fn stays_behind_host(payload: &RawValue) -> bool {
    #[derive(serde::Deserialize)]
    struct OfUrl {
        url: String,
    }
    let Ok(OfUrl { url }) = serde_json::from_str(payload.get()) else { return false };
    // Parsed as a client does, with one value and with another: if the place is the same, they are not in it.
    let place = |value: &str| {
        let url = replaced(&url, &mut |_| Ok::<_, std::convert::Infallible>(value.to_owned())).ok()?;
        Url::parse(&url).ok().map(|url| url[..Position::BeforePath].to_owned())
    };
    place("a").is_some_and(|here| place("b") == Some(here))
}

/// Percent-encoded, all but what RFC 3986 leaves alone everywhere: so it is one word of a path or a query whatever is in
/// it, and no client writes it in another way.
pub(super) fn encoded(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
