//! The real binary as a test sees it: a process with a data directory, an address, and plain HTTP.

#![allow(dead_code, clippy::unwrap_used)]

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

mod client;
mod stream;
mod supervised;

#[allow(unused_imports, reason = "each test file uses its own part")]
pub use client::{Answer, Client};
#[allow(unused_imports, reason = "each test file uses its own part")]
pub use stream::Stream;
#[allow(unused_imports, reason = "each test file uses its own part")]
pub use supervised::{is_alive, runs, stop_supervised};

pub struct Server {
    child: Child,
    pub address: String,
}

/// How a server is started.
#[derive(Clone, Copy)]
pub struct Begin<'a> {
    /// Of the command line: where it runs.
    pub prefix: &'a [String],
    pub data: &'a Path,
    pub flags: &'a [&'a str],
    pub config: &'a str,
}

impl Begin<'_> {
    fn spawn(&self) -> Child {
        let file: PathBuf = self.data.join("test.toml");
        std::fs::create_dir_all(self.data).unwrap();
        std::fs::write(&file, self.config).unwrap();
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.data.join("server.log")).unwrap();
        let program = env!("CARGO_BIN_EXE_runyard").to_owned();
        let words: Vec<&String> = self.prefix.iter().chain([&program]).collect();
        Command::new(words[0])
            .args(&words[1..])
            .args(["serve", "--data"])
            .arg(self.data)
            .args((!self.flags.contains(&"--listen")).then_some("--listen=127.0.0.1:0"))
            .arg("--config")
            .arg(&file)
            .args(self.flags)
            .env_remove("RUNYARD_URL")
            .env_remove("RUNYARD_API_KEY")
            .env("SECRET_OF_THE_SERVER", "which no task may see")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }
}

impl Server {
    pub fn start(data: &Path) -> Server {
        Server::start_with(data, &["--no-auth"], "")
    }

    pub fn start_with(data: &Path, flags: &[&str], config: &str) -> Server {
        let mut child = Begin { prefix: &[], data, flags, config }.spawn();
        let mut address = None;
        wait_until(Duration::from_secs(30), "the server says where it listens", || {
            assert!(child.try_wait().unwrap().is_none(), "the server ended: {}", last_lines(data));
            address = address_of(data, child.id());
            address.is_some()
        });
        let server = Server { child, address: address.unwrap() };
        let ready = || server.try_request("GET", "/readyz", &[], "").is_some_and(|answer| answer.status == 200);
        wait_until(Duration::from_secs(30), "the server is ready", ready);
        server
    }

    /// One that is known to listen there, some time: nothing is waited for.
    pub fn spawn(begin: Begin, address: &str) -> Server {
        Server { child: begin.spawn(), address: address.to_owned() }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill9(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn kill9_if_alive(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM, and waits for the end.
    pub fn terminate(&mut self) -> std::process::ExitStatus {
        self.signal("TERM");
        self.ended()
    }

    /// Waits for the end.
    pub fn ended(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }

    /// Sends a signal and waits for nothing.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub fn request(&self, method: &str, path: &str, body: &str) -> Answer {
        self.try_request(method, path, &[], body).expect("the server answers")
    }

    pub fn get(&self, path: &str) -> Value {
        self.request("GET", path, "").json()
    }

    pub fn post(&self, path: &str, body: &str) -> Answer {
        self.request("POST", path, body)
    }

    /// Submits and gives the id.
    pub fn submit(&self, body: &str) -> String {
        let answer = self.post("/v1/tasks", body);
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    pub fn task(&self, id: &str) -> Value {
        self.get(&format!("/v1/tasks/{id}"))
    }

    pub fn state(&self, id: &str) -> String {
        self.task(id)["state"].as_str().unwrap().to_owned()
    }

    /// Waits for the task's end.
    pub fn wait(&self, id: &str) -> Value {
        let task = self.get(&format!("/v1/tasks/{id}/wait?timeoutMs=60000"));
        let state = task["state"].as_str().unwrap_or_default();
        assert!(is_terminal(state), "{task:#}");
        task
    }

    /// `None` when the connection breaks before the whole answer is there.
    pub fn try_request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Option<Answer> {
        self.client().try_send(method, path, headers, body.as_bytes())
    }

    /// As [`Server::try_request`], for bodies that are no text.
    pub fn try_send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<Answer> {
        self.client().try_send(method, path, headers, body)
    }

    /// Sends a request and leaves its answer to be read. Headers given replace those that are sent by themselves.
    pub fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<TcpStream> {
        self.client().open(method, path, headers, body)
    }

    pub fn client(&self) -> Client {
        Client::new(&self.address)
    }
}

/// The end of the server's log; the directory is gone before anybody could look.
pub fn last_lines(data: &Path) -> String {
    const LINES: usize = 40;
    let log = std::fs::read_to_string(data.join("server.log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

/// Where this process listens. A file that an earlier process left behind names that one.
fn address_of(data: &Path, pid: u32) -> Option<String> {
    let file: Value = serde_json::from_slice(&std::fs::read(data.join("server.json")).ok()?).ok()?;
    let is_its = file["pid"].as_u64() == Some(pid.into());
    is_its.then(|| file["url"].as_str()?.strip_prefix("http://").map(str::to_owned)).flatten()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill9_if_alive();
    }
}

pub fn is_terminal(state: &str) -> bool {
    matches!(state, "completed" | "failed" | "cancelled" | "rejected")
}

/// Looks again and again until it is so; a process apart has no event to wait for.
pub fn wait_until(limit: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
