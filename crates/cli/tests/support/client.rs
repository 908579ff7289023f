//! Plain HTTP over a connection for each request.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use super::Stream;

#[derive(Clone)]
pub struct Client {
    pub address: String,
    /// How long an answer is waited for.
    pub patience: Duration,
    /// Sent with every request.
    pub key: Option<String>,
}

/// Longer than any answer takes that comes at all.
const PATIENCE: Duration = Duration::from_secs(90);

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.body))
    }
}

impl Client {
    pub fn new(address: &str) -> Client {
        Client { address: address.to_owned(), patience: PATIENCE, key: None }
    }

    pub fn with_key(mut self, key: &str) -> Client {
        self.key = Some(format!("Bearer {key}"));
        self
    }

    /// An answer that does not end.
    pub fn stream(&self, path: &str, headers: &[(&str, &str)]) -> Stream {
        Stream::over(self.open("GET", path, headers, b"").expect("the server is there"), path)
    }

    /// `None` when the connection breaks before the whole answer is there.
    pub fn try_send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<Answer> {
        let mut stream = self.open(method, path, headers, body)?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.get(9..12)?.parse().ok()?;
        let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        let body = if is_chunked { unchunk(body) } else { body.to_owned() };
        Some(Answer { status, head: head.to_owned(), body })
    }

    /// Sends a request and leaves its answer to be read. Headers given replace those that are sent by themselves.
    pub fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(self.patience)).ok()?;
        let mut request = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        let length = body.len().to_string();
        let mut own = vec![("host", self.address.as_str()), ("content-length", &length)];
        own.extend((!body.is_empty()).then_some(("content-type", "application/json")));
        own.extend(self.key.as_deref().map(|key| ("authorization", key)));
        let has = |wanted: &str| headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
        let is_chunked = has("transfer-encoding");
        own.retain(|(own, _)| !(has(own) || is_chunked && *own == "content-length"));
        own.iter().chain(headers).for_each(|(name, value)| request.push_str(&format!("{name}: {value}\r\n")));
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        // A server that has heard enough answers and closes; its answer is what counts.
        let _ = stream.write_all(body);
        Some(stream)
    }
}

fn unchunk(mut rest: &str) -> String {
    let mut text = String::new();
    while let Some((size, tail)) = rest.split_once("\r\n") {
        let Ok(size @ 1..) = usize::from_str_radix(size.trim(), 16) else { break };
        let Some(chunk) = tail.get(..size) else { break };
        text.push_str(chunk);
        rest = tail.get(size + 2..).unwrap_or("");
    }
    text
}
