//! A real server on a free port, and an HTTP client small enough to send what no library would.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

pub mod hand;
pub mod raw;

use std::time::Duration;

use runyard_server::{ServeOptions, Server};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Nothing here takes longer unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Yard {
    pub server: Option<Server>,
    pub dir: TempDir,
    pub key: Option<String>,
    pub addr: String,
}

pub fn options(dir: &TempDir) -> ServeOptions {
    ServeOptions { listen: Some("127.0.0.1:0".into()), ..ServeOptions::new(dir.path().join("data")) }
}

impl Yard {
    pub async fn new() -> Yard {
        Yard::with(json!({})).await
    }

    /// With this configuration, as flags would give it.
    pub async fn with(config: Value) -> Yard {
        let dir = TempDir::new().unwrap();
        let flags = config.as_object().unwrap().clone();
        Yard::start(ServeOptions { flags, ..options(&dir) }, dir).await
    }

    pub async fn start(options: ServeOptions, dir: TempDir) -> Yard {
        let server = Server::start(options).await.unwrap();
        assert!(tokio::time::timeout(PATIENCE, server.ready()).await.unwrap());
        let key = server.key_file.as_ref().map(|path| std::fs::read_to_string(path).unwrap().trim().to_owned());
        let addr = server.addr.to_string();
        Yard { server: Some(server), dir, key, addr }
    }

    /// Stops it and starts it again on the same data.
    pub async fn restart(mut self, config: Value) -> Yard {
        self.stop().await;
        let flags: Map<String, Value> = config.as_object().unwrap().clone();
        let options = ServeOptions { flags, ..options(&self.dir) };
        let dir = std::mem::replace(&mut self.dir, TempDir::new().unwrap());
        Yard::start(options, dir).await
    }

    pub async fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            tokio::time::timeout(PATIENCE, server.shutdown(Duration::ZERO)).await.unwrap();
        }
    }

    pub fn request(&self, method: &str, path: &str) -> Request {
        let request = Request::new(&self.addr, method, path);
        match &self.key {
            Some(key) => request.header("Authorization", &format!("Bearer {key}")),
            None => request,
        }
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.request("GET", path).send().await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.request("POST", path).json(&body).send().await
    }

    /// Submits and expects it to be taken.
    pub async fn submit(&self, body: Value) -> Value {
        let reply = self.post("/v1/tasks", body).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.json()
    }

    /// Waits for the task's end.
    pub async fn ended(&self, id: &Value) -> Value {
        let path = format!("/v1/tasks/{}/wait?timeoutMs=25000", id.as_str().unwrap());
        let reply = self.get(&path).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.header("wait-timed-out"), None, "{reply:?}");
        reply.json()
    }

    /// An open event stream.
    pub async fn events(&self, query: &str, last: Option<&str>) -> Events {
        let mut request = self.request("GET", &format!("/v1/events{query}")).header("Accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last);
        }
        request.open().await
    }
}

pub struct Request {
    addr: String,
    method: String,
    path: String,
    host: Option<String>,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    pub fn new(addr: &str, method: &str, path: &str) -> Request {
        let text = str::to_owned;
        let host = Some(addr.to_owned());
        Request {
            addr: text(addr),
            method: text(method),
            path: text(path),
            host,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    pub fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn host(mut self, host: Option<&str>) -> Request {
        self.host = host.map(str::to_owned);
        self
    }

    pub fn json(self, body: &Value) -> Request {
        self.header("Content-Type", "application/json").body(body.to_string().into_bytes())
    }

    pub fn body(mut self, body: Vec<u8>) -> Request {
        self.body = body;
        self
    }

    pub async fn send(self) -> Reply {
        let exchange = async {
            let mut stream = self.connect("close").await;
            let mut bytes = Vec::new();
            // A server that refuses a body early may close before it read all of it.
            let _ = stream.read_to_end(&mut bytes).await;
            Reply::parse(&bytes)
        };
        tokio::time::timeout(PATIENCE, exchange).await.expect("the server answers")
    }

    /// Only the status, also of an answer that does not end.
    pub async fn status(self) -> u16 {
        let stream = self.connect("close").await;
        let mut line = String::new();
        let read = tokio::time::timeout(PATIENCE, BufReader::new(stream).read_line(&mut line)).await;
        read.expect("the server answers").unwrap();
        line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no status: {line:?}"))
    }

    pub async fn open(self) -> Events {
        let stream = self.connect("keep-alive").await;
        let mut events = Events { lines: BufReader::new(stream) };
        let status = events.line().await.expect("a status line");
        assert!(status.contains(" 200 "), "{status}");
        while events.line().await.is_some_and(|line| !line.is_empty()) {}
        events
    }

    async fn connect(&self, connection: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.addr).await.unwrap();
        let mut head = format!("{} {} HTTP/1.1\r\nConnection: {connection}\r\n", self.method, self.path);
        if let Some(host) = &self.host {
            head += &format!("Host: {host}\r\n");
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !self.body.is_empty() {
            head += &format!("Content-Length: {}\r\n", self.body.len());
        }
        head += "\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let _ = stream.write_all(&self.body).await;
        stream
    }
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    fn parse(bytes: &[u8]) -> Reply {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok()).unwrap();
        let headers: Vec<_> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let is_chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        let body = if is_chunked { dechunked(body) } else { body.to_owned() };
        Reply { status, headers, body }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The problem, checked for its form.
    pub fn problem(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{self:?}");
        for field in ["type", "title", "detail", "code"] {
            assert!(problem[field].as_str().is_some_and(|text| !text.is_empty()), "{field} in {self:?}");
        }
        problem
    }
}

fn dechunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        if size == 0 || size > rest.len() {
            break;
        }
        text += &rest[..size];
        body = rest[size..].trim_start_matches("\r\n");
    }
    text
}

/// Server-sent events, read one by one.
pub struct Events {
    lines: BufReader<TcpStream>,
}

#[derive(Debug, Default, Clone)]
pub struct SentEvent {
    pub id: Option<String>,
    pub event: String,
    pub data: Value,
}

impl Events {
    /// The next event with data; `None` when the stream has ended.
    pub async fn next(&mut self) -> Option<SentEvent> {
        let mut sent = SentEvent::default();
        loop {
            let line = self.line().await?;
            // Lines of the chunked framing hold no colon; comments begin with one.
            match line.split_once(": ") {
                Some(("id", id)) => sent.id = Some(id.to_owned()),
                Some(("event", event)) => sent.event = event.to_owned(),
                Some(("data", data)) => {
                    sent.data = serde_json::from_str(data).unwrap();
                    return Some(sent);
                }
                _ => {}
            }
        }
    }

    /// The next event with this name.
    pub async fn next_of(&mut self, name: &str) -> SentEvent {
        loop {
            let sent = self.next().await.expect("the stream goes on");
            if sent.event == name {
                return sent;
            }
        }
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = tokio::time::timeout(PATIENCE, self.lines.read_line(&mut line)).await.expect("the stream goes on");
        match read {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(line.trim_end().to_owned()),
        }
    }
}
