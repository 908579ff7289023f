use super::*;

fn judged(guard: &Guard, ip: &str) -> Option<Special> {
    match guard.check_address("host", ip.parse().expect("an address")) {
        Ok(()) => None,
        Err(Blocked::Address { what, .. }) => Some(what),
        Err(other) => panic!("{ip}: {other}"),
    }
}

#[test]
fn only_global_unicast_passes() {
    let guard = Guard::default();
    let public = [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.0.3.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "203.0.112.255",
        "203.0.114.0",
        "223.255.255.255",
        "2000::",
        "2001:200::1",
        "2001:db7:ffff::",
        "2001:db9::",
        "2003::1",
        "2606:4700:4700::1111",
        "3ffe:ffff::",
        "3fff:1000::",
    ];
    for ip in public {
        assert_eq!(judged(&guard, ip), None, "{ip}");
    }
    let special = [
        ("0.255.255.255", "this network"),
        ("10.255.255.255", "a private network"),
        ("100.64.0.0", "a carrier's shared network"),
        ("100.127.255.255", "a carrier's shared network"),
        ("127.255.255.255", "loopback"),
        ("172.31.255.255", "a private network"),
        ("192.0.0.255", "kept for protocols"),
        ("192.168.255.255", "a private network"),
        ("198.19.255.255", "kept for benchmarks"),
        ("239.255.255.255", "multicast"),
        ("255.255.255.254", "reserved"),
        ("255.255.255.255", "broadcast"),
        ("::2:1", "an IPv4 address in IPv6"),
        ("1fff:ffff::", "outside global unicast"),
        ("2001:1ff:ffff::", "kept for protocols"),
        ("2002:101:101::1", "a 6to4 tunnel"),
        ("3fff:fff::", "kept for documentation"),
        ("4000::", "outside global unicast"),
        ("fdff::1", "a private network"),
        ("feff::1", "site-local"),
    ];
    for (ip, what) in special {
        assert_eq!(judged(&guard, ip), Some(Special::Local(what)), "{ip}");
    }
}

#[test]
fn what_is_listed_passes_and_nothing_beside_it() {
    let allow = ["127.0.0.1", "10.1.0.0/16", "fd12::/16", "inner"].map(|text| text.parse().expect("an entry"));
    let guard = Guard::new(allow.to_vec());
    for ip in ["127.0.0.1", "10.1.255.255", "fd12::9"] {
        assert_eq!(judged(&guard, ip), None, "{ip}");
    }
    for ip in ["127.0.0.2", "10.2.0.0", "fd13::9", "::1", "::ffff:127.0.0.1"] {
        assert!(judged(&guard, ip).is_some(), "{ip}");
    }
    let ip = "192.168.7.7".parse().expect("an address");
    assert_eq!(guard.check_address("INNER.", ip), Ok(()));
    assert!(guard.check_address("inner.example", ip).is_err());
}

#[test]
fn metadata_and_link_local_cannot_be_listed() {
    let allow = ["0.0.0.0/0", "::/0", "meta"].map(|text| text.parse().expect("an entry"));
    let guard = Guard::new(allow.to_vec());
    assert_eq!(judged(&guard, "10.0.0.1"), None);
    let never = [
        "169.254.169.254",
        "169.254.1.1",
        "169.254.170.2",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fe80::1",
        "febf::1",
        "::ffff:169.254.169.254",
        "::169.254.169.254",
        "::ffff:0:169.254.169.254",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::169.254.169.254",
        "64:ff9b:1:a9fe:a9:fe00::",
        "64:ff9b:1:a9:fe:a9fe::",
        "64:ff9b:1:0:a9:fea9:fe00:0",
        "2002:a9fe:a9fe::1",
        "2001:0:a9fe:a9fe::",
        "2001:0:808:808:0:0:5601:5601",
        "2a00::5efe:169.254.169.254",
        "2a00::200:5efe:169.254.169.254",
    ];
    for ip in never {
        assert!(judged(&guard, ip).is_some_and(Special::is_never), "{ip}");
        assert!(guard.check_address("meta", ip.parse().expect("an address")).is_err(), "{ip}");
    }
}

#[test]
fn a_url_says_only_where_to_call() {
    let guard = Guard::default();
    let check = |url: &str| guard.check_url(&Url::parse(url).expect("a URL"));
    assert_eq!(check("https://hooks.example/x?y#z"), Ok(()));
    assert_eq!(check("ftp://hooks.example/"), Err(Blocked::Scheme { scheme: "ftp".into() }));
    assert_eq!(check("file:///etc/passwd"), Err(Blocked::Scheme { scheme: "file".into() }));
    assert_eq!(check("http://me@hooks.example/"), Err(Blocked::UserInfo));
    assert_eq!(check("http://:secret@hooks.example/"), Err(Blocked::UserInfo));
    let refused = check("http://0x7f.1/").expect_err("loopback").to_string();
    let expected = "127.0.0.1 is not called: 127.0.0.1 is loopback, not a public address (outbound.allow can list it)";
    assert_eq!(refused, expected);
    let named = guard.check_address("db.internal", "10.1.2.3".parse().expect("an address")).expect_err("private");
    let expected =
        "db.internal is not called: it is a private network, not a public address (outbound.allow can list it)";
    assert_eq!(named.to_string(), expected, "which address it has is not for everybody");
}
