//! What kind of address is this? Everything that is not global unicast has a name here.
//!
//! After the special-purpose registries for IPv4 and IPv6 (RFC 6890 and what was added since). Of IPv6 only 2000::/3
//! is in use as global unicast, so what lies outside needs no further list.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address that is not global unicast, or that nobody's receiver has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special {
    /// Not even an allow-list helps.
    Never(&'static str),
    Local(&'static str),
}

impl Special {
    pub fn is_never(self) -> bool {
        matches!(self, Special::Never(_))
    }
}

impl fmt::Display for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Special::Never(what) | Special::Local(what)) = self;
        f.write_str(what)
    }
}

/// `None` for a global unicast address.
pub fn special(ip: IpAddr) -> Option<Special> {
    let (never, local) = match ip {
        IpAddr::V4(ip) => (find(NEVER_V4, u32::from(ip).into(), 32), find(LOCAL_V4, u32::from(ip).into(), 32)),
        IpAddr::V6(ip) => (find(NEVER_V6, u128::from(ip), 128), local_v6(ip)),
    };
    never.map(Special::Never).or(local.map(Special::Local))
}

fn local_v6(ip: Ipv6Addr) -> Option<&'static str> {
    let bits = u128::from(ip);
    find(LOCAL_V6, bits, 128).or_else(|| (bits >> 125 != 0b001).then_some("outside global unicast"))
}

/// The name of the first network that holds these bits.
fn find(networks: &[(u128, u32, &'static str)], bits: u128, width: u32) -> Option<&'static str> {
    let holds = |&&(network, prefix, _): &&(u128, u32, &'static str)| (bits ^ network) >> (width - prefix) == 0;
    networks.iter().find(holds).map(|(_, _, name)| *name)
}

/// The IPv4 addresses that an IPv6 one stands for, by every scheme that packs one into it.
pub fn embedded(ip: IpAddr) -> impl Iterator<Item = Ipv4Addr> {
    let found = match ip {
        IpAddr::V4(_) => Vec::new(),
        IpAddr::V6(ip) => embedded_v6(ip),
    };
    found.into_iter()
}

fn embedded_v6(ip: Ipv6Addr) -> Vec<Ipv4Addr> {
    let bits = u128::from(ip);
    let at = |shift: u32| (bits >> shift) as u32;
    let found = match ip.segments() {
        // ::a.b.c.d (compatible), ::ffff:a.b.c.d (mapped), ::ffff:0:a.b.c.d (translated)
        [0, 0, 0, 0, 0, 0, high, low] if (high, low) != (0, 0) && (high, low) != (0, 1) => vec![at(0)],
        [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => vec![at(0)],
        // NAT64. The local-use prefix leaves open where in the rest the address lies (RFC 6052 knows six places); these
        // are the ones that can be behind a prefix of 48 bits or more.
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => vec![at(0)],
        [0x64, 0xff9b, 1, ..] => {
            vec![at(0), (at(64) << 16) | (at(40) & 0xffff), (at(64) << 24) | (at(32) & 0xff_ffff), at(24)]
        }
        // 6to4
        [0x2002, ..] => vec![at(80)],
        // Teredo: the server, and the client behind it with its bits turned round.
        [0x2001, 0, ..] => vec![at(64), !at(0)],
        // ISATAP, in any network.
        [.., 0 | 0x200, 0x5efe, _, _] => vec![at(0)],
        _ => Vec::new(),
    };
    found.into_iter().map(Ipv4Addr::from).collect()
}

const fn v4(a: u8, b: u8, c: u8, d: u8) -> u128 {
    u32::from_be_bytes([a, b, c, d]) as u128
}

const fn v6(head: [u16; 4], tail: u64) -> u128 {
    let [a, b, c, d] = head;
    ((a as u128) << 112) | ((b as u128) << 96) | ((c as u128) << 80) | ((d as u128) << 64) | tail as u128
}

/// Clouds answer here with credentials for whoever asks, and link-local reaches the machine's own network segment.
const NEVER_V4: &[(u128, u32, &str)] = &[
    (v4(169, 254, 169, 254), 32, "a metadata service"),
    (v4(169, 254, 170, 2), 32, "a metadata service"),
    (v4(169, 254, 0, 0), 16, "link-local"),
    (v4(100, 100, 100, 200), 32, "a metadata service"),
    (v4(192, 0, 0, 192), 32, "a metadata service"),
    (v4(168, 63, 129, 16), 32, "a metadata service"),
];

const NEVER_V6: &[(u128, u32, &str)] = &[
    (v6([0xfd00, 0xec2, 0, 0], 0), 32, "a metadata service"),
    (v6([0xfd20, 0xce, 0, 0], 0x254), 128, "a metadata service"),
    (v6([0xfe80, 0, 0, 0], 0), 10, "link-local"),
];

const LOCAL_V4: &[(u128, u32, &str)] = &[
    (v4(0, 0, 0, 0), 8, "this network"),
    (v4(10, 0, 0, 0), 8, "a private network"),
    (v4(100, 64, 0, 0), 10, "a carrier's shared network"),
    (v4(127, 0, 0, 0), 8, "loopback"),
    (v4(172, 16, 0, 0), 12, "a private network"),
    (v4(192, 0, 0, 0), 24, "kept for protocols"),
    (v4(192, 0, 2, 0), 24, "kept for documentation"),
    (v4(192, 31, 196, 0), 24, "a sink for stray queries"),
    (v4(192, 52, 193, 0), 24, "kept for protocols"),
    (v4(192, 88, 99, 0), 24, "an old 6to4 relay"),
    (v4(192, 168, 0, 0), 16, "a private network"),
    (v4(192, 175, 48, 0), 24, "a sink for stray queries"),
    (v4(198, 18, 0, 0), 15, "kept for benchmarks"),
    (v4(198, 51, 100, 0), 24, "kept for documentation"),
    (v4(203, 0, 113, 0), 24, "kept for documentation"),
    (v4(224, 0, 0, 0), 4, "multicast"),
    (v4(255, 255, 255, 255), 32, "broadcast"),
    (v4(240, 0, 0, 0), 4, "reserved"),
];

const LOCAL_V6: &[(u128, u32, &str)] = &[
    (0, 128, "the unspecified address"),
    (1, 128, "loopback"),
    (v6([0, 0, 0, 0], 0xffff_0000_0000), 96, "an IPv4 address in IPv6"),
    (0, 96, "an IPv4 address in IPv6"),
    (v6([0x64, 0xff9b, 0, 0], 0), 96, "behind NAT64"),
    (v6([0x64, 0xff9b, 1, 0], 0), 48, "behind NAT64"),
    (v6([0x100, 0, 0, 0], 0), 64, "a discard address"),
    (v6([0x2001, 0, 0, 0], 0), 32, "a Teredo tunnel"),
    (v6([0x2001, 0xdb8, 0, 0], 0), 32, "kept for documentation"),
    (v6([0x2001, 0, 0, 0], 0), 23, "kept for protocols"),
    (v6([0x2002, 0, 0, 0], 0), 16, "a 6to4 tunnel"),
    (v6([0x2620, 0x4f, 0x8000, 0], 0), 48, "a sink for stray queries"),
    (v6([0x3fff, 0, 0, 0], 0), 20, "kept for documentation"),
    (v6([0xfc00, 0, 0, 0], 0), 7, "a private network"),
    (v6([0xfec0, 0, 0, 0], 0), 10, "site-local"),
    (v6([0xff00, 0, 0, 0], 0), 8, "multicast"),
];
