//! Host and Origin. A web page in a browser can send requests to a loopback port under a name of its own (DNS
//! rebinding); it cannot choose the Host and Origin headers it sends them with.

use std::net::{IpAddr, SocketAddr};

/// Is this Host header one that people use for this server?
pub fn host_is_allowed(host: &str, listen: SocketAddr, allowed: &[String]) -> bool {
    let name = without_port(host);
    if port_of(host).is_some_and(|port| port.parse::<u16>().is_err() || !port.as_bytes()[0].is_ascii_digit()) {
        return false;
    }
    if name_is_allowed(name, host, allowed) || name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let Some(ip) = ip_of(name) else { return false };
    // An address is never the result of a rebound name, so a server that listens everywhere takes any of them.
    ip.is_loopback() || ip == listen.ip() || listen.ip().is_unspecified()
}

/// Same origin as the Host that was checked before, or a name that was allowed by configuration.
pub fn origin_is_allowed(origin: &str, host: &str, allowed: &[String]) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let default_port = match scheme {
        "http" => "80",
        "https" => "443",
        _ => return false,
    };
    if authority.is_empty() || authority.contains(['/', '@', '?', '#']) {
        return false;
    }
    let same = |a: &str, b: &str| {
        without_port(a).eq_ignore_ascii_case(without_port(b))
            && port_of(a).unwrap_or(default_port) == port_of(b).unwrap_or(default_port)
    };
    same(authority, host) || name_is_allowed(without_port(authority), authority, allowed)
}

fn name_is_allowed(name: &str, with_port: &str, allowed: &[String]) -> bool {
    allowed.iter().any(|own| own.eq_ignore_ascii_case(name) || own.eq_ignore_ascii_case(with_port))
}

fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        // The colons of a bare IPv6 address are its own.
        Some(at) if host.ends_with(']') || host[..at].contains(':') && !host.starts_with('[') => host,
        Some(at) => &host[..at],
        None => host,
    }
}

fn port_of(host: &str) -> Option<&str> {
    host.strip_prefix(without_port(host))?.strip_prefix(':')
}

fn ip_of(name: &str) -> Option<IpAddr> {
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    bare.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_server_pass() {
        let allowed = ["yard.example".to_owned(), "proxy:8443".to_owned()];
        let loopback: SocketAddr = "127.0.0.1:7340".parse().expect("an address");
        let everywhere: SocketAddr = "0.0.0.0:7340".parse().expect("an address");
        let table = [
            ("127.0.0.1:7340", loopback, true),
            ("localhost:9999", loopback, true),
            ("LOCALHOST", loopback, true),
            ("[::1]:7340", loopback, true),
            ("::1", loopback, true),
            ("127.5.5.5", loopback, true),
            ("yard.example", loopback, true),
            ("Yard.Example:80", loopback, true),
            ("proxy:8443", loopback, true),
            ("proxy:80", loopback, false),
            ("evil.example:7340", loopback, false),
            ("localhost.evil.example", loopback, false),
            ("127.0.0.1.evil.example", loopback, false),
            ("10.0.0.5:7340", loopback, false),
            ("10.0.0.5:7340", everywhere, true),
            ("evil.example", everywhere, false),
            ("", loopback, false),
            ("localhost:evil", loopback, false),
            ("localhost:", loopback, false),
            ("localhost:+80", loopback, false),
            ("localhost:80.evil.example", loopback, false),
            ("yard.example:99999", loopback, false),
        ];
        for (host, listen, expected) in table {
            assert_eq!(host_is_allowed(host, listen, &allowed), expected, "{host} on {listen}");
        }
    }

    #[test]
    fn only_the_same_origin_or_an_allowed_one_passes() {
        let allowed = ["dash.example".to_owned()];
        let table = [
            ("http://127.0.0.1:7340", "127.0.0.1:7340", true),
            ("http://localhost", "localhost:80", true),
            ("https://yard", "yard", true),
            ("https://dash.example", "127.0.0.1:7340", true),
            ("http://localhost:3000", "localhost:7340", false),
            ("http://127.0.0.1:7340", "localhost:7340", false),
            ("https://evil.example", "127.0.0.1:7340", false),
            ("null", "127.0.0.1:7340", false),
            ("file://", "127.0.0.1:7340", false),
            ("http://evil@127.0.0.1:7340", "127.0.0.1:7340", false),
        ];
        for (origin, host, expected) in table {
            assert_eq!(origin_is_allowed(origin, host, &allowed), expected, "{origin} to {host}");
        }
    }
}
