//! What comes back from servers that are not ours, and where requests to them may go.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use runyard_exec::guard::{Allow, Guard};
use runyard_exec::http::classify::retry_after_ms;
use runyard_exec::http::sse::SseParser;

fn events(chunks: &[&[u8]]) -> Vec<String> {
    let (mut parser, mut events) = (SseParser::default(), Vec::new());
    for chunk in chunks {
        parser.feed(chunk, |event| events.push(format!("{event:?}")));
    }
    events.extend(parser.finish().map(|event| format!("{event:?}")));
    events
}

/// Addresses that are nobody's business on the internet.
fn private() -> impl Strategy<Value = Ipv4Addr> {
    let net = prop::sample::select(vec![
        (0x0a00_0000u32, 8),
        (0x7f00_0000, 8),
        (0xa9fe_0000, 16),
        (0xac10_0000, 12),
        (0xc0a8_0000, 16),
        (0x6440_0000, 10),
        (0, 8),
        (0xe000_0000, 4),
        (0xf000_0000, 4),
        (0xc612_0000, 15),
    ]);
    (net, any::<u32>()).prop_map(|((net, bits), host)| Ipv4Addr::from(net | (host & (u32::MAX >> bits))))
}

/// The ways a URL may spell one address.
fn spelled(ip: Ipv4Addr, form: u8) -> String {
    let (n, [a, b, c, d]) = (u32::from(ip), ip.octets());
    match form {
        0 => ip.to_string(),
        1 => n.to_string(),
        2 => format!("0x{n:x}"),
        3 => format!("0{n:o}"),
        4 => format!("0x{a:x}.0{b:o}.{c}.{d}"),
        5 => format!("{a}.{}", n & 0x00ff_ffff),
        6 => format!("{a}.{b}.{}", n & 0xffff),
        7 => format!("[{}]", ip.to_ipv6_mapped()),
        8 => format!("[64:ff9b::{ip}]"),
        9 => format!("[2002:{:x}:{:x}::1]", n >> 16, n & 0xffff),
        _ => format!("[::{ip}]"),
    }
}

proptest! {
    #[test]
    fn events_are_the_same_however_they_arrive(
        text in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..120),
            "((data|event|id|retry|:)?:? ?[a-z0-9é]{0,5}(\r\n|\n|\r|\n\n)){0,12}".prop_map(String::into_bytes),
        ],
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        places.sort_unstable();
        let mut chunks = Vec::new();
        let mut from = 0;
        for place in places {
            chunks.push(&text[from..place]);
            from = place;
        }
        chunks.push(&text[from..]);
        prop_assert_eq!(events(&chunks), events(&[&text]));
    }

    #[test]
    fn any_retry_after_is_a_time_or_none(value in prop::collection::vec(any::<u8>(), 0..40), number in any::<u64>(), now in 0i64..4_000_000_000) {
        let now = jiff::Timestamp::from_second(now).expect("a moment");
        for value in [value, number.to_string().into_bytes(), format!("Sun, 06 Nov {} 08:49:37 GMT", number % 20_000).into_bytes()] {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                retry_after_ms(&HeaderMap::from_iter([(RETRY_AFTER, value)]), now);
            }
        }
    }

    /// Whatever an operator allows by mistake, the addresses of metadata services stay shut.
    #[test]
    fn no_entry_opens_what_is_link_local(text in prop_oneof![".{0,30}", "[0-9a-f.:/*]{0,20}", "(0\\.0\\.0\\.0|::|169\\.254\\.169\\.254|\\*)(/[0-9]{1,3})?"], last in any::<u16>()) {
        let Ok(allow) = text.parse::<Allow>() else { return Ok(()) };
        let guard = Guard::new(vec![allow]);
        let [c, d] = last.to_be_bytes();
        prop_assert!(guard.check_address("x", IpAddr::from([169, 254, c, d])).is_err(), "{}", text);
        let local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last);
        prop_assert!(guard.check_address("x", IpAddr::from(local)).is_err(), "{}", text);
    }

    #[test]
    fn a_private_address_is_blocked_in_every_spelling(ip in private(), form in 0u8..11, port in any::<u16>()) {
        let text = format!("http://{}:{port}/x", spelled(ip, form));
        let Ok(url) = Url::parse(&text) else { return Ok(()) };
        prop_assert!(Guard::new(Vec::new()).check_url(&url).is_err(), "{}", text);
    }

    #[test]
    fn any_url_is_allowed_or_blocked(text in prop_oneof!["[ -~]{0,40}", "https?://[ -~]{0,30}", "https?://.{0,20}"]) {
        if let Ok(url) = Url::parse(&text) {
            let _ = Guard::new(Vec::new()).check_url(&url);
        }
    }
}
