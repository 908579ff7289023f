//! Clients that speak to the socket themselves, for what no well-behaved one does.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::{PATIENCE, Yard};

/// What the server still says before it hangs up.
pub async fn last_words(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    let _ = tokio::time::timeout(PATIENCE, read).await.expect("the server hangs up");
    String::from_utf8_lossy(&bytes).into_owned()
}

pub async fn say(yard: &Yard, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(&yard.addr).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// A number of `/metrics`.
pub async fn metric(yard: &Yard, name: &str) -> i64 {
    let text = yard.get("/metrics").await.body;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

/// Asks until it is so.
pub async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it comes to be so");
}

/// An event stream that its client opens and never reads from.
pub async fn unread(yard: &Yard) -> TcpStream {
    unread_at(yard, "/v1/events").await
}

/// An answer that its client asks for and never reads.
pub async fn unread_at(yard: &Yard, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(yard.addr.parse().unwrap()).await.unwrap();
    let key = yard.key.as_ref().unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

pub fn rss_mb() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<i64>().unwrap() / 1024
}
