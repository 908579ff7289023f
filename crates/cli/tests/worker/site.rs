//! A server with keys, and workers that have joined it.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Answer, Server, is_terminal, stop_supervised, wait_until};

/// Longer than anything here takes on a busy machine.
pub const SOON: Duration = Duration::from_secs(60);

/// Work is placed however busy the machine is that runs these tests.
const ALWAYS: &str = "[workers]\nmaxCpuUsage = 100\n";

pub struct Site {
    server: Server,
    home: TempDir,
    config: String,
    admin: String,
}

impl Site {
    pub fn new() -> Site {
        Site::with(ALWAYS)
    }

    pub fn with(config: &str) -> Site {
        Site::listening("127.0.0.1:0", config)
    }

    pub fn listening(address: &str, config: &str) -> Site {
        let home = tempfile::tempdir().unwrap();
        let server = Server::start_with(&home.path().join("server"), &["--listen", address], config);
        let admin = std::fs::read_to_string(home.path().join("server/admin.key")).unwrap().trim().to_owned();
        Site { server, home, config: config.to_owned(), admin }
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// The server is killed, and comes back at the same address.
    pub fn kill_and_restart(&mut self) {
        self.server.kill9();
        self.start_again();
    }

    /// The server is killed, and comes back when this is done.
    pub fn while_away(&mut self, meanwhile: impl FnOnce(&Path)) {
        self.server.kill9();
        meanwhile(self.home.path());
        self.start_again();
    }

    fn start_again(&mut self) {
        let address = self.server.address.clone();
        let flags = ["--listen", address.as_str()];
        self.server = Server::start_with(&self.home().join("server"), &flags, &self.config);
    }

    pub fn request(&self, method: &str, path: &str, body: &str) -> Answer {
        let key = format!("Bearer {}", self.admin);
        self.server.try_request(method, path, &[("authorization", &key)], body).expect("the server answers")
    }

    pub fn get(&self, path: &str) -> Value {
        self.request("GET", path, "").json()
    }

    pub fn expect(&self, status: u16, method: &str, path: &str, body: Value) -> Value {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.request(method, path, &text);
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        if answer.body.is_empty() { Value::Null } else { answer.json() }
    }

    pub fn submit(&self, task: Value) -> String {
        self.expect(201, "POST", "/v1/tasks", task)["id"].as_str().unwrap().to_owned()
    }

    /// A shell line for a worker with this label.
    pub fn shell(&self, zone: &str, line: &str) -> String {
        self.submit(process(zone, json!({"shell": line})))
    }

    pub fn task(&self, id: &str) -> Value {
        self.get(&format!("/v1/tasks/{id}"))
    }

    pub fn state(&self, id: &str) -> String {
        self.task(id)["state"].as_str().unwrap().to_owned()
    }

    pub fn until_state(&self, id: &str, state: &str) {
        let is_so = || {
            let now = self.state(id);
            assert!(now == state || !is_terminal(&now), "{:#}", self.task(id));
            now == state
        };
        wait_until(SOON, &format!("{id} is {state}"), is_so);
    }

    pub fn ends_as(&self, state: &str, id: &str) -> Value {
        let task = self.get(&format!("/v1/tasks/{id}/wait?timeoutMs=60000"));
        assert_eq!(task["state"], state, "{task:#}");
        task
    }

    pub fn log(&self, id: &str) -> String {
        self.request("GET", &format!("/v1/tasks/{id}/logs"), "").body
    }

    pub fn until_logged(&self, id: &str, line: &str) {
        wait_until(SOON, &format!("{id} has said `{line}`"), || self.log(id).contains(line));
    }

    /// By its name; null when there is none.
    pub fn worker(&self, name: &str) -> Value {
        let all = self.get("/v1/workers?limit=1000");
        let found = all["items"].as_array().unwrap().iter().find(|worker| worker["name"] == name);
        found.cloned().unwrap_or_default()
    }

    pub fn until_status(&self, name: &str, status: &str) {
        wait_until(SOON, &format!("{name} is {status}"), || self.worker(name)["status"] == status);
    }

    pub fn join_token(&self) -> String {
        let key = self.expect(201, "POST", "/v1/keys", json!({"name": "join", "scopes": ["worker"]}));
        key["key"].as_str().unwrap().to_owned()
    }

    /// A worker in this zone that is ready for work. `flags` come on top.
    pub fn host(&self, name: &str, zone: &str, flags: &[&str]) -> Host {
        let label = format!("zone={zone}");
        let mut all = vec!["--name", name, "--labels", &label, "--max-parallel", "8"];
        all.extend(flags);
        let host = Host::start(self, name, &all);
        wait_until(SOON, &format!("{name} is there"), || {
            ["idle", "busy"].iter().any(|status| self.worker(name)["status"] == *status)
        });
        host
    }

    pub fn runyard(&self, arguments: &[&str]) -> String {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"));
        command.args(["--url", &self.url(), "--api-key", &self.admin]).args(arguments).timeout(SOON);
        let output = command.assert().success();
        String::from_utf8(output.get_output().stdout.clone()).unwrap()
    }
}

pub fn process(zone: &str, payload: Value) -> Value {
    json!({"kind": "process", "payload": payload, "place": {"require": {"zone": zone}}, "resources": {"cpu": 0.01, "ramMb": 1}})
}

/// A worker's process.
pub struct Host {
    child: Child,
    begin: Begin,
}

/// How it is started, and what it has on disk.
struct Begin {
    /// Of the command line.
    prefix: Vec<String>,
    server: String,
    flags: Vec<String>,
    token: String,
    data: PathBuf,
    log: PathBuf,
}

impl Begin {
    fn spawn(&self) -> Child {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
        let program = env!("CARGO_BIN_EXE_runyard").to_owned();
        let words: Vec<&String> = self.prefix.iter().chain([&program]).collect();
        Command::new(words[0])
            .args(&words[1..])
            .args(["worker", "--server", &self.server, "--data-dir"])
            .arg(&self.data)
            .args(&self.flags)
            .env("RUNYARD_WORKER_TOKEN", &self.token)
            .env_remove("RUNYARD_URL")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    }
}

impl Host {
    pub fn start(site: &Site, name: &str, flags: &[&str]) -> Host {
        Host::start_in(site, name, flags, &site.url(), &[])
    }

    pub fn start_in(site: &Site, name: &str, flags: &[&str], server: &str, prefix: &[String]) -> Host {
        Host::join(site.home(), name, flags, server, &site.join_token(), prefix)
    }

    /// Of whichever server this is, with this token.
    pub fn join(home: &Path, name: &str, flags: &[&str], server: &str, token: &str, prefix: &[String]) -> Host {
        let begin = Begin {
            prefix: prefix.to_vec(),
            server: server.to_owned(),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            token: token.to_owned(),
            log: home.join(format!("{name}.log")),
            data: home.join(format!("worker-{name}")),
        };
        Host { child: begin.spawn(), begin }
    }

    /// Again, on the same data.
    pub fn spawn(&mut self) {
        self.child = self.begin.spawn();
    }

    pub fn own_log(&self) -> String {
        std::fs::read_to_string(&self.begin.log).unwrap()
    }

    pub fn data(&self) -> &Path {
        &self.begin.data
    }

    pub fn kill9(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until(SOON, "the worker ends", || {
            status = self.has_ended();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        stop_supervised(&self.begin.data);
    }
}
