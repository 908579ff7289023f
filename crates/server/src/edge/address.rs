//! Who is asking? Behind a proxy that is trusted, whoever it says; else whoever connected.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use axum::http::HeaderMap;
use ipnet::IpNet;

/// The other end of the connection, put into each of its requests.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// A trusted proxy appends whom it speaks for, so the list is believed from its end, up to the first that is not one of ours.
pub fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[String]) -> IpAddr {
    let mut address = peer.to_canonical();
    let named = headers.get_all("x-forwarded-for").into_iter().filter_map(|value| value.to_str().ok());
    let mut hops: Vec<&str> = named.flat_map(|list| list.split(',')).map(str::trim).collect();
    while is_trusted(address, trusted) {
        let Some(hop) = hops.pop().and_then(hop_address) else { break };
        address = hop.to_canonical();
    }
    address
}

/// Some proxies tell the port too: `192.0.2.1:4711`, `[2001:db8::1]:4711`.
fn hop_address(hop: &str) -> Option<IpAddr> {
    let with_port = || hop.parse::<SocketAddr>().ok().map(|address| address.ip());
    let in_brackets = || hop.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    hop.parse().ok().or_else(with_port).or_else(in_brackets)
}

pub fn is_trusted(address: IpAddr, trusted: &[String]) -> bool {
    trusted.iter().filter_map(|text| network(text)).any(|network| network.contains(&address))
}

/// `10.0.0.0/8`, or a single address.
pub fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// Who counts as one: whoever has a /64 has 2^64 addresses.
pub fn group(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_a_trusted_proxy_speaks_for_others() {
        let trusted = ["10.0.0.0/8".to_owned(), "::1".to_owned()];
        let table = [
            ("192.0.2.1", &["198.51.100.7"][..], "192.0.2.1"),
            ("10.0.0.1", &["198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["203.0.113.9, 198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["203.0.113.9", "198.51.100.7, 10.2.2.2"], "198.51.100.7"),
            ("::1", &["2001:db8::5"], "2001:db8::5"),
            ("::ffff:10.0.0.1", &["198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["203.0.113.9, 198.51.100.7:4711, 10.2.2.2:80"], "198.51.100.7"),
            ("10.0.0.1", &["[2001:db8::5]:4711"], "2001:db8::5"),
            ("10.0.0.1", &["[2001:db8::5]"], "2001:db8::5"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["nonsense"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7, nonsense"], "10.0.0.1"),
        ];
        for (peer, forwarded, expected) in table {
            let mut headers = HeaderMap::new();
            for value in forwarded {
                headers.append("x-forwarded-for", HeaderValue::from_static(value));
            }
            let seen = client_address(peer.parse().unwrap(), &headers, &trusted);
            assert_eq!(seen.to_string(), expected, "{peer} {forwarded:?}");
        }
    }

    #[test]
    fn a_subscriber_is_one_however_many_addresses_it_has() {
        let group = |text: &str| group(text.parse().unwrap()).to_string();
        assert_eq!(group("2001:db8:1:2:3::4"), "2001:db8:1:2::");
        assert_eq!(group("2001:db8:1:2::9"), "2001:db8:1:2::");
        assert_eq!(group("::ffff:192.0.2.1"), "192.0.2.1");
    }
}
