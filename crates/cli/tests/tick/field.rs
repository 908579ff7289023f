//! A data directory that is ticked. Work comes to it through a real server that starts nothing, and is gone before the
//! tick.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Server, is_alive, stop_supervised, wait_until};

/// Longer than anything here takes on a busy machine.
pub const SOON: Duration = Duration::from_secs(30);

pub struct Field {
    home: TempDir,
}

impl Drop for Field {
    fn drop(&mut self) {
        stop_supervised(&self.data());
    }
}

impl Field {
    /// With this configuration, beside a worker that has room for everything.
    pub fn new(config: &str) -> Field {
        Field::with_worker("", config)
    }

    /// The same with further keys of `[worker]`.
    pub fn with_worker(worker: &str, config: &str) -> Field {
        let field = Field { home: tempfile::tempdir().unwrap() };
        field.configure_worker(worker, config);
        field
    }

    pub fn configure(&self, config: &str) {
        self.configure_worker("", config);
    }

    fn configure_worker(&self, worker: &str, config: &str) {
        let text = format!("[worker]\ncpu = 1000\nramMb = 1000000\n{worker}\n{config}");
        std::fs::write(self.config_file(), text).unwrap();
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn data(&self) -> PathBuf {
        self.home().join("data")
    }

    pub fn config_file(&self) -> PathBuf {
        self.home().join("tick.toml")
    }

    /// A server that starts nothing, to hand in work and to look at it.
    pub fn idle_server(&self) -> Server {
        let config = std::fs::read_to_string(self.config_file()).unwrap();
        Server::start_with(&self.data(), &["--no-auth"], &format!("{config}\n[limits]\nmaxInflight = 0\n"))
    }

    pub fn submit(&self, bodies: &[Value]) -> Vec<String> {
        let mut server = self.idle_server();
        let ids = bodies.iter().map(|body| server.submit(&body.to_string())).collect();
        assert!(server.terminate().success());
        ids
    }

    pub fn task(&self, id: &str) -> Value {
        let mut server = self.idle_server();
        let task = server.task(id);
        assert!(server.terminate().success());
        task
    }

    pub fn states(&self, ids: &[String]) -> Vec<String> {
        let mut server = self.idle_server();
        let states = ids.iter().map(|id| server.state(id)).collect();
        assert!(server.terminate().success());
        states
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_runyard"));
        command.arg("tick").arg("--data").arg(self.data()).arg("--config").arg(self.config_file()).args(arguments);
        command.env_remove("RUNYARD_DATA").env_remove("RUNYARD_CONFIG").stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// One pass without errors, and what it says.
    pub fn tick(&self) -> Value {
        self.tick_ending(0, &[])
    }

    pub fn tick_ending(&self, code: i32, arguments: &[&str]) -> Value {
        let output = self.run(&[&["--json"], arguments].concat());
        let (stdout, stderr) = (text_of(&output.stdout), text_of(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{stdout}{stderr}");
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"))
    }

    /// All lease files, by the order of their tasks.
    pub fn leases(&self) -> Vec<Value> {
        let entries = std::fs::read_dir(self.data().join("running")).map(|entries| entries.flatten().collect());
        let entries: Vec<std::fs::DirEntry> = entries.unwrap_or_default();
        let mut paths: Vec<PathBuf> = entries.iter().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        paths.sort();
        // One that ends in this moment is gone.
        let bytes = paths.iter().filter_map(|path| std::fs::read(path).ok());
        bytes.map(|bytes| serde_json::from_slice(&bytes).unwrap_or_default()).collect()
    }

    pub fn lease_file(&self, id: &str) -> PathBuf {
        self.data().join(format!("running/task_{id}.json"))
    }

    pub fn lease(&self, id: &str) -> Value {
        let lease = self.leases().into_iter().find(|lease| lease["task_id"] == id);
        lease.unwrap_or_else(|| panic!("{id} has no lease among {:#?}", self.leases()))
    }

    pub fn is_running(&self, id: &str) -> bool {
        let runs = |lease: &Value| lease["metadata"]["command_pid"].as_u64().is_some_and(is_alive);
        self.leases().iter().any(|lease| lease["task_id"] == id && runs(lease))
    }

    /// Of those, which run: by their place among them.
    pub fn running(&self, ids: &[String]) -> Vec<usize> {
        (0..ids.len()).filter(|place| self.is_running(&ids[*place])).collect()
    }

    /// The agents of everything that runs, in order.
    pub fn agents(&self) -> Vec<String> {
        let mut agents: Vec<String> = self.leases().iter().map(|lease| text(&lease["agent"])).collect();
        agents.sort();
        agents
    }

    /// Kills what answers for the task, and waits until its command has died with it.
    pub fn kill_supervisor(&self, id: &str) {
        let lease = self.lease(id);
        let (supervisor, command) = (n(&lease["pid"]), n(&lease["metadata"]["command_pid"]));
        signal("KILL", supervisor);
        wait_until(SOON, "both are dead", || !is_alive(supervisor) && !is_alive(command));
    }

    /// Lets tasks of [`until`] end, and waits until their ends are on record.
    pub fn let_end(&self, go: &str, ids: &[&String]) {
        std::fs::write(self.home().join(go), "").unwrap();
        for id in ids {
            let exit = self.data().join(format!("runs/{id}-1/exit.json"));
            wait_until(SOON, "the end is on record", || exit.exists() && !self.lease_file(id).exists());
        }
    }

    /// A task that goes on until there is this file.
    pub fn until(&self, agent: &str, go: &str) -> Value {
        let shell = format!("while [ ! -e {} ]; do sleep 0.02; done", self.home().join(go).display());
        json!({"kind": "process", "agent": agent, "payload": {"shell": shell}, "timeoutMs": 600_000})
    }
}

/// A task that goes on for as long as it is let.
pub fn sleeper(agent: &str) -> Value {
    json!({"kind": "process", "agent": agent, "payload": {"shell": "exec sleep 1000"}, "timeoutMs": 1_000_000})
}

/// With these fields beside, or instead.
pub fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

pub fn signal(name: &str, pid: u64) {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

pub fn text_of(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

pub fn n(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The numbers of a summary under these names.
pub fn counts<const N: usize>(summary: &Value, names: [&str; N]) -> [u64; N] {
    names.map(|name| n(&summary[name]))
}

pub fn messages(summary: &Value) -> Vec<String> {
    summary["messages"].as_array().unwrap().iter().map(text).collect()
}
