//! What the tests share: a server in a directory of its own, a peer that `http` tasks call, and streams that are read as
//! they come.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

pub use crate::support::Stream;
use crate::support::{Answer, Server, stop_supervised, wait_until};

/// Longer than anything here takes on a busy machine.
pub const SOON: Duration = Duration::from_secs(30);

pub struct Scene {
    server: Server,
    home: TempDir,
    config: String,
    flags: Vec<&'static str>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.server.kill9_if_alive();
        stop_supervised(&self.data());
    }
}

impl Deref for Scene {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Scene {
    pub fn new() -> Scene {
        Scene::with("")
    }

    /// A server without keys and with this configuration file.
    pub fn with(config: &str) -> Scene {
        Scene::with_flags(&["--no-auth"], config)
    }

    pub fn with_flags(flags: &[&'static str], config: &str) -> Scene {
        let home = tempfile::tempdir().unwrap();
        let server = Server::start_with(&home.path().join("data"), flags, config);
        Scene { server, home, config: config.to_owned(), flags: flags.to_vec() }
    }

    pub fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn config_file(&self) -> PathBuf {
        self.data().join("test.toml")
    }

    pub fn server_log(&self) -> String {
        std::fs::read_to_string(self.data().join("server.log")).unwrap()
    }

    pub fn server_mut(&mut self) -> &mut Server {
        &mut self.server
    }

    /// Stops the server cleanly and starts it again on the same data.
    pub fn restart(&mut self) {
        assert!(self.server.terminate().success());
        self.start_again();
    }

    pub fn start_again(&mut self) {
        self.server = Server::start_with(&self.data(), &self.flags, &self.config);
    }

    pub fn send(&self, method: &str, path: &str, body: Value) -> Answer {
        self.request(method, path, &body.to_string())
    }

    /// Expects this status and gives the JSON answer.
    pub fn expect(&self, status: u16, method: &str, path: &str, body: Value) -> Value {
        let answer = self.send(method, path, body);
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        answer.json()
    }

    /// Expects a problem+json of this status.
    pub fn problem(&self, status: u16, method: &str, path: &str, body: Value) -> Value {
        problem(status, &self.send(method, path, body))
    }

    pub fn submit(&self, body: Value) -> String {
        self.server.submit(&body.to_string())
    }

    pub fn noop(&self, payload: Value) -> String {
        self.submit(json!({"kind": "noop", "payload": payload}))
    }

    /// Waits for the task's end.
    pub fn end(&self, id: &str) -> Value {
        self.server.wait(id)
    }

    /// Waits for an end as this state.
    pub fn ends_as(&self, state: &str, id: &str) -> Value {
        let task = self.end(id);
        assert_eq!(task["state"], state, "{task:#}");
        task
    }

    /// Holds its slot until it is cancelled or the server is gone.
    pub fn blocker(&self) -> String {
        let id = self.noop(json!({"sleepMs": 600_000}));
        self.until_state(&id, "running");
        id
    }

    pub fn until_state(&self, id: &str, state: &str) {
        wait_until(SOON, &format!("{id} is {state}"), || self.state(id) == state);
    }

    pub fn cancel(&self, id: &str) -> Answer {
        self.post(&format!("/v1/tasks/{id}/cancel"), "")
    }

    pub fn batch(&self, body: Value) -> (String, Vec<String>) {
        let answer = self.expect(201, "POST", "/v1/batches", body);
        let ids = answer["tasks"].as_array().unwrap().iter().map(|item| text(&item["id"])).collect();
        (text(&answer["id"]), ids)
    }

    pub fn stats(&self) -> Value {
        self.get("/v1/stats")
    }

    /// The names of the steps in the task's own history.
    pub fn steps(&self, id: &str) -> Vec<String> {
        let history = self.get(&format!("/v1/tasks/{id}/events"));
        history["items"].as_array().unwrap().iter().map(|step| text(&step["step"])).collect()
    }

    pub fn ids(&self, path: &str) -> Vec<String> {
        self.get(path)["items"].as_array().unwrap().iter().map(|task| text(&task["id"])).collect()
    }

    /// Everything from the first event on, then live.
    pub fn events(&self, query: &str) -> Stream {
        Stream::open(self, &format!("/v1/events?after=0-0&{query}"), &[])
    }

    /// The types and tasks of all events up to the one that `is_last`.
    pub fn events_until(&self, is_last: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut stream = self.events("types=task.*,batch.*");
        let mut events = Vec::new();
        loop {
            let event = stream.next_event();
            let done = is_last(&event);
            events.push(event);
            if done {
                return events;
            }
        }
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

pub fn n(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

pub fn is(event: &Value, kind: &str, id: &str) -> bool {
    event["type"] == kind && (event["task"] == id || event["batch"] == id)
}

/// The answer is RFC 9457 with everything it needs.
pub fn problem(status: u16, answer: &Answer) -> Value {
    assert_eq!(answer.status, status, "{}", answer.body);
    let is_problem = answer.head.to_ascii_lowercase().contains("content-type: application/problem+json");
    assert!(is_problem, "{}\n{}", answer.head, answer.body);
    let problem = answer.json();
    assert_eq!(n(&problem["status"]), u64::from(status));
    for field in ["type", "title", "detail", "code"] {
        assert!(!text(&problem[field]).is_empty(), "{problem:#}");
    }
    problem
}

pub fn header(answer: &Answer, name: &str) -> Option<String> {
    let prefix = format!("{}: ", name.to_ascii_lowercase());
    let line = answer.head.lines().find(|line| line.to_ascii_lowercase().starts_with(&prefix))?;
    Some(line[prefix.len()..].to_owned())
}

/// Milliseconds since 1970 of a timestamp as the API writes it.
pub fn ms(value: &Value) -> i64 {
    text(value).parse::<jiff::Timestamp>().unwrap().as_millisecond()
}

pub fn from_now(ms: i64) -> String {
    (jiff::Timestamp::now() + jiff::SignedDuration::from_millis(ms)).to_string()
}

/// A small HTTP server on loopback that `http` tasks call.
pub struct Peer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    hung_up: Receiver<()>,
}

/// A request as the peer saw it.
#[derive(Clone)]
pub struct Asked {
    pub head: String,
    pub body: String,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<String> {
        let prefix = format!("{name}: ");
        self.head
            .lines()
            .find(|line| line.to_ascii_lowercase().starts_with(&prefix))
            .map(|line| line[prefix.len()..].into())
    }
}

pub enum Reply {
    /// Status, further header lines, body.
    With(u16, &'static str, String),
    /// No answer; it waits until the caller hangs up.
    Silence,
}

impl Reply {
    pub fn json(body: Value) -> Reply {
        Reply::With(200, "content-type: application/json\r\n", body.to_string())
    }

    pub fn text(status: u16, body: &str) -> Reply {
        Reply::With(status, "content-type: text/plain\r\n", body.to_owned())
    }

    pub fn events(body: &str) -> Reply {
        Reply::With(200, "content-type: text/event-stream\r\n", body.to_owned())
    }
}

impl Peer {
    /// Answers the n-th request (from 0) with what `reply` says.
    pub fn start(reply: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (hangs_up, hung_up) = channel();
        let (seen, reply) = (asked.clone(), Arc::new(reply));
        // It holds nothing but its port, and lives until the test's process ends.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, reply, hangs_up) = (seen.clone(), reply.clone(), hangs_up.clone());
                std::thread::spawn(move || serve(stream, &seen, &*reply, &hangs_up));
            }
        });
        Peer { address, asked, hung_up }
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// A task that calls this peer, with more fields.
    pub fn task(&self, more: Value) -> Value {
        let mut task = json!({"kind": "http", "payload": {"url": self.url()}});
        task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        task
    }

    /// Waits until a caller that got no answer has hung up.
    pub fn until_hung_up(&self) {
        self.hung_up.recv_timeout(SOON).expect("the caller hangs up");
    }
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<Asked>>, reply: &dyn Fn(usize) -> Reply, hangs_up: &Sender<()>) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let mut asked = Asked { head, body: String::new() };
    let length = asked.header("content-length").map_or(0, |length| length.trim().parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    asked.body = String::from_utf8(body).unwrap();
    let n = {
        let mut seen = seen.lock().unwrap();
        seen.push(asked);
        seen.len() - 1
    };
    match reply(n) {
        Reply::With(status, headers, body) => {
            let length = body.len();
            let text =
                format!("HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}");
            // A caller that was stopped meanwhile is gone.
            let _ = reader.into_inner().write_all(text.as_bytes());
        }
        Reply::Silence => {
            let _ = reader.read(&mut [0; 1]);
            let _ = hangs_up.send(());
        }
    }
}
