//! A network in which every address is this machine, with one listener that writes down who was called.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const PUBLIC_V4: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);
pub const PUBLIC_V6: Ipv6Addr = Ipv6Addr::new(0x2606, 0x2800, 0x220, 1, 0, 0, 0, 1);

/// Every address is routed to this machine, names are asked of it, and the environment names it as a proxy.
const SETUP: &str = r#"
set -e
ip link set lo up
ip route add local 0.0.0.0/0 dev lo
ip -6 route add local ::/0 dev lo
mount --bind "$RESOLV" /etc/resolv.conf
for name in http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY; do export $name=http://127.0.0.1:9; done
exec "$@"
"#;

/// Runs one test of this binary in a namespace, and fails as it fails.
pub fn enter(test: &str, inside: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let resolv = dir.path().join("resolv.conf");
    std::fs::write(&resolv, "nameserver 127.0.0.1\noptions timeout:2 attempts:2\n").expect("a file");
    let program = std::env::current_exe().expect("this program");
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--mount", "sh", "-c", SETUP, "sh"])
        .arg(program)
        .args(["--exact", test, "--nocapture"])
        .env(inside, test)
        .env("RESOLV", &resolv)
        .output()
        .expect("unshare (util-linux) is installed");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "in the namespace:\n{out}\n{err}");
}

pub struct Net {
    pub port: u16,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    reached: Vec<IpAddr>,
    heads: Vec<String>,
}

impl Net {
    pub fn listen() -> Net {
        let listener = TcpListener::bind("[::]:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let taken = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let ip = stream.local_addr().expect("an address").ip().to_canonical();
                taken.lock().expect("no panic").reached.push(ip);
                let taken = taken.clone();
                std::thread::spawn(move || answer(stream, &taken, port));
            }
        });
        Net { port, seen }
    }

    /// Whom everyone connected to, in order. A connection of our own at the end shows that none before it is left out:
    /// they are accepted in the order in which they came.
    pub fn reached(&self) -> Vec<IpAddr> {
        const MARK: Ipv4Addr = Ipv4Addr::new(127, 77, 77, 77);
        drop(TcpStream::connect((MARK, self.port)).expect("the listener is there"));
        for _ in 0..1000 {
            let mut seen = self.seen.lock().expect("no panic");
            if let Some(at) = seen.reached.iter().position(|ip| *ip == MARK) {
                seen.reached.remove(at);
                return seen.reached.clone();
            }
            drop(seen);
            std::thread::park_timeout(Duration::from_millis(10));
        }
        panic!("the listener has stopped accepting");
    }

    /// What came first on each connection that said anything.
    pub fn heads(&self) -> Vec<String> {
        self.seen.lock().expect("no panic").heads.clone()
    }
}

/// Keeps the connection open after its answer, as a server does that hopes for more.
fn answer(mut stream: TcpStream, seen: &Mutex<Seen>, port: u16) {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        let head = String::from_utf8_lossy(&buffer[..n]).into_owned();
        let status = head.split("/redirect/").nth(1).and_then(|rest| rest.get(..3)).unwrap_or("200").to_owned();
        seen.lock().expect("no panic").heads.push(head);
        let to = format!("location: http://127.0.0.1:{port}/inner\r\n");
        let answer = format!("HTTP/1.1 {status} x\r\n{to}content-length: 0\r\n\r\n");
        let _ = stream.write_all(answer.as_bytes());
    }
}
