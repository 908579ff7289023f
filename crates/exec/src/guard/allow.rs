//! One entry of `[outbound] allow`: a network, or a host by its name.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::address::{self, Special};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Allow {
    Net(IpNet),
    /// Whatever it resolves to.
    Host(String),
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("must be an address, a network such as 10.1.0.0/16, or a host name, not {0:?}")]
pub struct NotAllow(String);

impl Allow {
    pub fn covers(&self, host: &str, ip: IpAddr) -> bool {
        match self {
            Allow::Net(net) => net.contains(&ip),
            Allow::Host(name) => *name == normal(host),
        }
    }
}

impl Allow {
    /// What it is, where listing it would not help: all of it is never called.
    pub fn never(&self) -> Option<Special> {
        let Allow::Net(net) = self else { return None };
        let never = |ip: IpAddr| {
            let all = std::iter::once(ip).chain(address::embedded(ip).map(IpAddr::V4));
            all.filter_map(address::special).find(|what| what.is_never())
        };
        never(net.broadcast()).and(never(net.network()))
    }
}

impl FromStr for Allow {
    type Err = NotAllow;

    fn from_str(text: &str) -> Result<Allow, NotAllow> {
        if let Ok(net) = text.parse::<IpNet>() {
            return Ok(Allow::Net(net));
        }
        if let Ok(ip) = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            return Ok(Allow::Net(ip.into()));
        }
        // A name as a URL has it: what a client takes for a number is none.
        match url::Host::parse(text) {
            Ok(url::Host::Domain(name)) if !name.contains('*') => Ok(Allow::Host(normal(&name))),
            _ => Err(NotAllow(text.to_owned())),
        }
    }
}

impl fmt::Display for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Allow::Net(net) => net.fmt(f),
            Allow::Host(name) => f.write_str(name),
        }
    }
}

/// `Hooks.Example.` is the same host.
fn normal(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_networks_addresses_or_names() {
        let table = [
            ("127.0.0.1", Some("127.0.0.1/32")),
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("[::1]", Some("::1/128")),
            ("fd00::/8", Some("fd00::/8")),
            ("Hooks.Internal.", Some("hooks.internal")),
            ("localhost", Some("localhost")),
            ("", None),
            ("10.0.0.0/33", None),
            ("http://x/", None),
            ("x:80", None),
            ("*.internal", None),
            ("0x7f.1", None),
        ];
        for (text, expected) in table {
            let allow = text.parse::<Allow>().ok().map(|allow| allow.to_string());
            assert_eq!(allow.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_never_called_is_told_apart() {
        let never = |text: &str| text.parse::<Allow>().expect("an entry").never().map(|what| what.to_string());
        for (text, what) in [
            ("169.254.169.254", "a metadata service"),
            ("169.254.0.0/16", "link-local"),
            ("fe80::1", "link-local"),
            ("fd00:ec2::23", "a metadata service"),
            ("::ffff:169.254.169.254", "a metadata service"),
        ] {
            assert_eq!(never(text).as_deref(), Some(what), "{text}");
        }
        for text in ["0.0.0.0/0", "169.254.0.0/15", "10.0.0.0/8", "fd00::/8", "metadata.internal"] {
            assert_eq!(never(text), None, "{text}");
        }
    }
}
